/*
 * hooks.c: one thread, a poll(2) over the pipes and processes of what runs, and over an eventfd by which others wake it. All of a run
 * belongs to that thread until its done is called; only the list of new runs and two flags are shared.
 *
 * Invariants: a process is waited for only when everything in its group has been sent SIGKILL: until then its pid, which is the group's
 * id, cannot be another's. At most HOOKS_AT_ONCE processes are not yet waited for, those that not even SIGKILL has ended included
 * (they wait for a disk or a network): they are left behind, and take the place of one that could run.
 *
 * Rejected: the collector's thread, which may be busy for seconds; a thread for each; a queue, in which a dump waits until there is
 * nothing left to see.
 */
#include "hooks.h"

#include "hookline.h"
#include "hookproc.h"
#include "piddir.h"
#include "scope.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* How long the death of what was killed is waited for. */
#define UNKILLABLE_NS (5 * NS_PER_S)

/* Without a descriptor of the process (an old kernel) it is looked at so often. */
#define LOOK_MS 100

struct hookrun {
	struct hookrun *next;
	struct hooks_scene scene;
	char rule[HOOKLINE_SAFE_MAX], target[HOOKLINE_SAFE_MAX];
	size_t index; /* of the command that runs, or is next */
	struct incident_capture records[CONFIG_RUNS_MAX];
	struct hookproc proc;
	bool has_proc;
};

struct hooks {
	struct clock clock;
	int wake;
	pthread_t thread;
	bool running; /* the thread */
	pthread_mutex_t lock;
	struct hookrun *added; /* under the lock, as the two flags */
	bool stop, end;
	/* The thread's. */
	struct hookrun *runs;
	size_t alive;              /* processes not yet waited for */
	pid_t lost[HOOKS_AT_ONCE]; /* of them: left behind; 0: none */
	char *piece;               /* HOOKPROC_PIECE_BYTES */
};

static const struct hookplan_command *command_of(const struct hookrun *run)
{
	return &run->scene.plan->commands[run->index];
}

static struct incident_capture *record_of(struct hookrun *run)
{
	return &run->records[run->index];
}

/* ---- beginning ---- */

/* NULL: it may run. */
static const char *why_not(struct hooks *hooks, const struct hookrun *run, bool stopping)
{
	const struct hooks_scene *scene = &run->scene;
	AUTO_CLOSE int piddir = -1;

	if (stopping)
		return "the daemon was being stopped";
	if (hooks->alive >= HOOKS_AT_ONCE)
		return "refused: too many commands are running";
	if (!command_of(run)->wants_pid)
		return NULL;
	if (scene->pid == 0)
		return "the target has no process";

	return piddir_open(scene->procfd, scene->pid, scene->start_ticks, &piddir) < 0 ? "target has exited" : NULL;
}

/* Goes on with the next command. */
static void go_on(struct hookrun *run)
{
	if (run->has_proc)
		hookproc_release(&run->proc);
	run->has_proc = false;
	run->index++;
}

static void begin(struct hooks *hooks, struct hookrun *run, bool stopping)
{
	struct incident_capture *record = record_of(run);
	const char *why = why_not(hooks, run, stopping);
	struct hookproc_options options = {
		.command = command_of(run),
		.dirfd = run->scene.dirfd,
		.rule = run->rule,
		.target = run->target,
		.max_file_bytes = run->scene.max_bytes,
		.now = clock_mono(&hooks->clock),
	};
	char pid[16] = "";
	int r;

	*record = hookplan_record(command_of(run));
	if (why) {
		record->status = INCIDENT_CAPTURE_SKIPPED;
		incident_text(record->why, sizeof record->why, why);
		go_on(run);
		return;
	}

	if (run->scene.pid > 0)
		snprintf(pid, sizeof pid, "%d", run->scene.pid);
	options.pid = pid;
	record->has_at = true;
	record->at_ns = mono_diff(options.now, run->scene.fired);
	r = hookproc_start(&options, record, &run->proc);
	if (r < 0) {
		record->status = INCIDENT_CAPTURE_FAILED;
		snprintf(record->why, sizeof record->why, "could not be started: %s", strerrordesc_np(-r));
		go_on(run);
		return;
	}

	hooks->alive++;
	run->has_proc = true;
}

/* ---- the end ---- */

/* It has ended, and is waited for when nothing of its group is left to do anything. */
static void finish(struct hooks *hooks, struct hookrun *run, const siginfo_t *how, mono_t now)
{
	struct incident_capture *record = record_of(run);

	kill(-run->proc.pid, SIGKILL);
	while (waitpid(run->proc.pid, NULL, 0) < 0 && errno == EINTR)
		;
	hooks->alive--;
	hookproc_take(&run->proc, hooks->piece, true);
	record->has_duration = true;
	record->duration_ns = (uint64_t)mono_diff(now, run->proc.began);
	hookproc_judge(&run->proc, how);
	go_on(run);
}

static void leave_behind(struct hooks *hooks, struct hookrun *run, mono_t now)
{
	struct incident_capture *record = record_of(run);
	size_t i = 0;

	while (hooks->lost[i])
		i++;
	hooks->lost[i] = run->proc.pid;
	record->has_duration = true;
	record->duration_ns = (uint64_t)mono_diff(now, run->proc.began);
	record->status = INCIDENT_CAPTURE_FAILED;
	snprintf(record->why, sizeof record->why, "process %d could not be ended: not even SIGKILL did", run->proc.pid);
	go_on(run);
}

static void press(struct hooks *hooks, struct hookrun *run, mono_t now)
{
	if (run->proc.phase == HOOKPROC_RUNNING) {
		kill(-run->proc.pid, SIGTERM);
		run->proc.phase = HOOKPROC_TOLD;
		run->proc.deadline = mono_add(now, HOOKS_GRACE_NS);
	} else if (run->proc.phase == HOOKPROC_TOLD) {
		kill(-run->proc.pid, SIGKILL);
		run->proc.phase = HOOKPROC_KILLED;
		run->proc.deadline = mono_add(now, UNKILLABLE_NS);
	} else {
		leave_behind(hooks, run, now);
	}
}

static void collect_lost(struct hooks *hooks)
{
	for (size_t i = 0; i < HOOKS_AT_ONCE; i++) {
		if (!hooks->lost[i] || waitpid(hooks->lost[i], NULL, WNOHANG) == 0)
			continue;
		hooks->lost[i] = 0;
		hooks->alive--;
	}
}

/* ---- the thread ---- */

/* Brings a run forward as far as it goes now. */
static void step(struct hooks *hooks, struct hookrun *run, bool stopping)
{
	mono_t now = clock_mono(&hooks->clock), last = mono_add(now, HOOKS_STOP_NS);
	siginfo_t how = { 0 };

	if (run->has_proc) {
		hookproc_take(&run->proc, hooks->piece, false);
		if (waitid(P_PID, (id_t)run->proc.pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    how.si_pid == run->proc.pid) {
			finish(hooks, run, &how, now);
		} else if (stopping && run->proc.phase == HOOKPROC_RUNNING && mono_diff(run->proc.deadline, last) > 0) {
			run->proc.stopped = true;
			run->proc.deadline = last;
		} else if (mono_diff(now, run->proc.deadline) >= 0) {
			press(hooks, run, now);
		}
	}
	while (!run->has_proc && run->index < run->scene.plan->count)
		begin(hooks, run, stopping);
}

static bool is_over(const struct hookrun *run)
{
	return !run->has_proc && run->index == run->scene.plan->count;
}

static void step_all(struct hooks *hooks, bool stopping)
{
	collect_lost(hooks);
	for (struct hookrun **at = &hooks->runs; *at;) {
		struct hookrun *run = *at;

		step(hooks, run, stopping);
		if (!is_over(run)) {
			at = &run->next;
			continue;
		}
		*at = run->next;
		run->next = NULL;
		run->scene.done(run->scene.ctx); /* the run is somebody else's from now on */
	}
}

static int wait_ms(const struct hooks *hooks, mono_t now)
{
	int64_t least = hooks->alive ? 60 * (int64_t)NS_PER_S : -1;

	for (const struct hookrun *run = hooks->runs; run; run = run->next) {
		int64_t left = mono_diff(run->proc.deadline, now);

		if (run->proc.pidfd < 0 && left > LOOK_MS * (int64_t)NS_PER_MS)
			left = LOOK_MS * (int64_t)NS_PER_MS;
		if (left < least)
			least = left > 0 ? left : 0;
	}

	return least < 0 ? -1 : (int)(least / (int64_t)NS_PER_MS) + 1;
}

/* At most HOOKS_AT_ONCE runs are still there after step_all: those that have a process. */
static void wait_for_something(struct hooks *hooks)
{
	struct pollfd polled[1 + 2 * HOOKS_AT_ONCE] = { { .fd = hooks->wake, .events = POLLIN } };
	nfds_t count = 1;
	uint64_t woken;

	for (const struct hookrun *run = hooks->runs; run; run = run->next) {
		assert(count + 2 <= ARRAY_LEN(polled));
		polled[count++] = (struct pollfd){ .fd = run->proc.out, .events = POLLIN };
		polled[count++] = (struct pollfd){ .fd = run->proc.pidfd, .events = POLLIN };
	}
	poll(polled, count, wait_ms(hooks, clock_mono(&hooks->clock)));
	(void)!read(hooks->wake, &woken, sizeof woken);
}

static void *run_thread(void *argument)
{
	struct hooks *hooks = argument;
	bool stopping, end;

	prctl(PR_SET_NAME, "hooks");
	for (;;) {
		pthread_mutex_lock(&hooks->lock);
		while (hooks->added) {
			struct hookrun *run = hooks->added;

			hooks->added = run->next;
			run->next = hooks->runs;
			hooks->runs = run;
		}
		stopping = hooks->stop;
		end = hooks->end;
		pthread_mutex_unlock(&hooks->lock);

		step_all(hooks, stopping);
		if (end && !hooks->runs)
			return NULL;
		wait_for_something(hooks);
	}
}

/* ---- for others ---- */

static void wake(struct hooks *hooks)
{
	(void)!write(hooks->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

int hooks_new(const struct clock *clock, struct hooks **ret)
{
	struct hooks *hooks = calloc(1, sizeof *hooks);

	if (!hooks)
		return -ENOMEM;

	hooks->clock = *clock;
	hooks->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	hooks->piece = malloc(HOOKPROC_PIECE_BYTES);
	if (hooks->wake < 0 || !hooks->piece) {
		int r = hooks->wake < 0 ? -errno : -ENOMEM;

		if (hooks->wake >= 0)
			close(hooks->wake);
		free(hooks->piece);
		free(hooks);
		return r;
	}
	pthread_mutex_init(&hooks->lock, NULL);
	*ret = hooks;

	return 0;
}

void hooks_stop(struct hooks *hooks)
{
	pthread_mutex_lock(&hooks->lock);
	hooks->stop = true;
	pthread_mutex_unlock(&hooks->lock);
	wake(hooks);
}

void hooks_free(struct hooks *hooks)
{
	if (!hooks)
		return;

	if (hooks->running) {
		pthread_mutex_lock(&hooks->lock);
		hooks->end = true;
		pthread_mutex_unlock(&hooks->lock);
		wake(hooks);
		pthread_join(hooks->thread, NULL);
	}
	close(hooks->wake);
	pthread_mutex_destroy(&hooks->lock);
	free(hooks->piece);
	free(hooks);
}

static int start_thread(struct hooks *hooks)
{
	sigset_t all, before;
	int r;

	if (hooks->running)
		return 0;

	/* Ignored, as some parents leave it, the kernel would not keep for us how a command has ended. */
	signal(SIGCHLD, SIG_DFL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&hooks->thread, NULL, run_thread, hooks);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	hooks->running = r == 0;

	return -r;
}

int hooks_start(struct hooks *hooks, const struct hooks_scene *scene, struct hookrun **ret)
{
	struct hookrun *run;
	int r = start_thread(hooks);

	if (r < 0)
		return r;
	run = calloc(1, sizeof *run);
	if (!run)
		return -ENOMEM;

	run->scene = *scene;
	hookline_safe(scene->rule, run->rule);
	hookline_safe(scene->target, run->target);
	run->scene.rule = run->scene.target = NULL;
	*ret = run;
	pthread_mutex_lock(&hooks->lock);
	run->next = hooks->added;
	hooks->added = run;
	pthread_mutex_unlock(&hooks->lock);
	wake(hooks);

	return 0;
}

void hookrun_report(const struct hookrun *run, struct incident *incident)
{
	for (size_t i = 0; i < run->scene.plan->count; i++)
		incident_add_capture(incident, &run->records[i]);
}

void hookrun_free(struct hookrun *run)
{
	free(run);
}
