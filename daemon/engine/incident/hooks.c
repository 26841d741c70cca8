/*
 * hooks.c: one thread in a poll(2) over the output pipes and ends of what runs (children.h), and
 * over an eventfd by which others wake it. A run belongs to that thread until its done is called;
 * only the list of new runs and two flags are shared.
 *
 * At most HOOKS_AT_ONCE commands have not ended, including those that not even SIGKILL has ended
 * (they wait for a disk or a network): these are abandoned, and keep their slot.
 *
 * Output goes through a pipe so that it can be limited. At the limit the pipe is closed, and a
 * command that writes on is ended by SIGPIPE, as with head(1).
 *
 * The lock of the draft is held, too, by what looks after a command: a draft whose lock is free is
 * written by nothing any more.
 *
 * Rejected: the incident worker's thread, which may be busy for seconds; a thread for each; a
 * queue, in which a dump waits until there is nothing left to see.
 */
#include "daemon/engine/incident/hooks.h"

#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "lib/base/units.h"
#include "lib/config/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#define ARGUMENTS_MAX 65536 /* bytes of the words of a command */
#define READ_BYTES 65536u
#define PATH_VALUE "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* As in a login. Some programs close all possible descriptors, and the daemon's limit is high. */
#define FILES_MAX 1024

/*
 * Address space, which is no memory: runtimes reserve some gigabytes. CPU time: all of its timeout
 * on so many CPUs.
 */
#define ADDRESS_SPACE_MAX ((uint64_t)16 << 30)
#define CPUS_MAX 4

/* A command may still run so long when the daemon stops. */
#define HOOKS_STOP_NS (2 * NS_PER_S)

/* How long the end of a killed process is waited for. */
#define UNKILLABLE_NS (5 * NS_PER_S)

struct hook_command {
	char name[CONFIG_RUN_NAME_MAX + 1];
	char **words; /* with placeholders; NULL at the end */
	uint64_t timeout_ns, max_output_bytes;
	bool wants_pid, privileged;
};

struct hook_plan {
	size_t count; /* at least one */
	struct hook_command commands[CONFIG_RUNS_MAX];
};

enum hook_process_phase {
	HOOK_PROCESS_RUNNING,
	HOOK_PROCESS_TERMINATED, /* was sent SIGTERM */
	HOOK_PROCESS_KILLED,
};

struct hook_process {
	const struct hook_command *command;
	struct incident_capture *record;
	int dirfd; /* of the incident's draft */
	enum hook_process_phase phase;
	struct child child;
	int out, file; /* -1: at its end, not yet created */
	mono_t began, deadline;
	bool stopped; /* ended because the daemon stops */
	bool cut;
	int write_error;
};

struct hook_run {
	struct hook_run *next;
	struct hooks_scene scene;
	char rule[COMMAND_TEMPLATE_SAFE_MAX], target[COMMAND_TEMPLATE_SAFE_MAX];
	size_t index; /* of the command that runs, or is next */
	struct incident_capture records[CONFIG_RUNS_MAX];
	struct hook_process proc;
	bool has_proc;
};

struct hooks {
	struct clock clock;
	uint64_t stop_ns;
	int wake;
	pthread_t thread;
	bool running; /* the thread */
	pthread_mutex_t lock;
	struct hook_run *added; /* under the lock, as the two flags */
	bool stop, end;
	/* The thread's. */
	struct hook_run *runs;
	size_t alive;                          /* have not ended */
	struct child abandoned[HOOKS_AT_ONCE]; /* of them; pid 0: none */
	char *buffer;                          /* READ_BYTES */
};

/* ---- the plan ---- */

void hook_plan_free(struct hook_plan *plan)
{
	if (!plan)
		return;

	for (size_t i = 0; i < plan->count; i++) {
		for (char **word = plan->commands[i].words; word && *word; word++)
			free(*word);
		free(plan->commands[i].words);
	}
	free(plan);
}

static int copy_command(const struct config_run *run, struct hook_command *ret)
{
	snprintf(ret->name, sizeof ret->name, "%s", run->name);
	ret->timeout_ns = run->timeout_ns;
	ret->max_output_bytes = run->max_output_bytes;
	ret->privileged = run->privileged;
	ret->words = calloc(run->word_count + 1, sizeof *ret->words);
	if (!ret->words)
		return -ENOMEM;

	for (size_t i = 0; i < run->word_count; i++) {
		ret->wants_pid |= command_template_uses(run->words[i], COMMAND_TEMPLATE_PID);
		ret->words[i] = strdup(run->words[i]);
		if (!ret->words[i])
			return -ENOMEM;
	}

	return 0;
}

int hook_plan_new(const struct config_target *entry, const char *rule, struct hook_plan **ret)
{
	AUTO(hook_plan_freep) struct hook_plan *plan = calloc(1, sizeof *plan);
	int r = plan ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < entry->run_count; i++)
		if (config_run_wanted(&entry->runs[i], rule))
			r = copy_command(&entry->runs[i], &plan->commands[plan->count++]);
	if (r < 0)
		return r;

	*ret = plan->count ? TAKE(plan) : NULL;

	return 0;
}

static struct incident_capture command_record(const struct hook_command *command)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_OK };

	snprintf(record.name, sizeof record.name, INCIDENT_RUN_PREFIX "%s", command->name);

	return record;
}

void hook_plan_refuse(const struct hook_plan *plan, const char *why, struct incident *incident)
{
	for (size_t i = 0; i < plan->count; i++) {
		struct incident_capture record = command_record(&plan->commands[i]);

		record.status = INCIDENT_CAPTURE_SKIPPED;
		incident_text(record.why, sizeof record.why, why);
		incident_add_capture(incident, &record);
	}
}

/*
 * The words of a command with placeholders replaced, NULL at the end: one allocation for free(3).
 * 0; -ENOMEM; -E2BIG.
 */
static int hook_plan_words(const struct hook_command *command, const struct command_template_values *values,
			   char ***ret)
{
	struct command_template_values all = *values;
	size_t count = 0, bytes = 0;
	char **words, *at;

	all.text[COMMAND_TEMPLATE_NAME] = command->name;
	for (; command->words[count]; count++)
		bytes += command_template_expand(command->words[count], &all, NULL, 0) + 1;
	if (bytes > ARGUMENTS_MAX)
		return -E2BIG;
	words = calloc(1, (count + 1) * sizeof *words + bytes);
	if (!words)
		return -ENOMEM;

	at = (char *)(words + count + 1);
	for (size_t i = 0; i < count; i++) {
		size_t len = command_template_expand(command->words[i], &all, at, bytes) + 1;

		words[i] = at;
		at += len;
		bytes -= len;
	}
	*ret = words;

	return 0;
}

/* ---- a process: its output ---- */

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void hook_process_release(struct hook_process *proc)
{
	close_one(&proc->out);
	close_one(&proc->file);
	child_close(&proc->child);
}

/* The file is created with the first output. */
static int write_output(struct hook_process *proc, const char *data, size_t len)
{
	struct incident_capture *record = proc->record;
	uint64_t room = proc->command->max_output_bytes - record->bytes;
	size_t fits = len < room ? len : (size_t)room;
	int r;

	if (proc->file < 0) {
		snprintf(record->file, sizeof record->file, "%s.txt", record->name);
		proc->file =
			openat(proc->dirfd, record->file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
		if (proc->file < 0) {
			r = -errno;
			record->file[0] = '\0';
			return r;
		}
	}
	r = sink_write_all(proc->file, data, fits);
	if (r < 0)
		return r;
	record->bytes += fits;
	proc->cut = fits < len;

	return 0;
}

/* Copies output to its file. buffer: READ_BYTES. all: until the end, else one read. */
static void hook_process_read(struct hook_process *proc, char *buffer, bool all)
{
	do {
		ssize_t len = proc->out < 0 ? 0 : read(proc->out, buffer, READ_BYTES);

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && errno == EAGAIN)
			return;
		if (len > 0)
			proc->write_error = write_output(proc, buffer, (size_t)len);
		if (len <= 0 || proc->cut || proc->write_error < 0)
			close_one(&proc->out);
	} while (all && proc->out >= 0);
}

/* ---- a process: its start ---- */

/* The path of the draft, of which only the descriptor is known. */
static int draft_path(int dirfd, char path[PATH_MAX])
{
	char link[40];
	ssize_t len;

	snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
	len = readlink(link, path, PATH_MAX - 1);
	if (len < 0)
		return -errno;
	path[len] = '\0';

	return 0;
}

static int make_pipe(int *ret_out, int *ret_write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;

	*ret_out = ends[0];
	*ret_write_end = ends[1];

	return fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int start_command(const struct hook_run *run, struct hook_process *proc, char *const *words,
			 char *const *environment, int out)
{
	const struct hook_command *command = proc->command;
	struct child_descriptor descriptors[] = { { out, STDOUT_FILENO },
						  { out, STDERR_FILENO },
						  { proc->dirfd, CHILD_DIRECTORY },
						  { proc->dirfd, CHILD_HOLDS },
						  { run->scene.lockfd, CHILD_HOLDS } };
	struct child_options options = {
		.words = words,
		.environment = environment,
		.descriptors = descriptors,
		.descriptor_count = ARRAY_LEN(descriptors) - (run->scene.lockfd <= 0),
		.rights = command->privileged ? CHILD_CAPABILITIES : CHILD_NONE,
		.limits = { .file_bytes = run->scene.max_bytes, .files = FILES_MAX },
	};

	if (!command->privileged) {
		options.limits.address_space_bytes = ADDRESS_SPACE_MAX;
		options.limits.cpu_seconds =
			CPUS_MAX * (unsigned)((command->timeout_ns + HOOKS_GRACE_NS) / NS_PER_S + 1);
	}
	return child_start(&options, &proc->child);
}

static int spawn_with_pipe(const struct hook_run *run, const char *path, struct hook_process *proc)
{
	char pid[16] = "";
	const struct command_template_values values = { {
		[COMMAND_TEMPLATE_PID] = pid,
		[COMMAND_TEMPLATE_INCIDENT] = path,
		[COMMAND_TEMPLATE_RULE] = run->rule,
		[COMMAND_TEMPLATE_TARGET] = run->target,
	} };
	char texts[4][PATH_MAX + 32], search[] = PATH_VALUE;
	char *environment[] = { search, texts[0], texts[1], texts[2], texts[3], NULL };
	AUTO_FREE char **words = NULL;
	AUTO_CLOSE int write_end = -1;
	int r;

	if (run->scene.pid > 0)
		snprintf(pid, sizeof pid, "%d", run->scene.pid);
	snprintf(texts[0], sizeof texts[0], "SPIKEWATCH_INCIDENT=%s", path);
	snprintf(texts[1], sizeof texts[1], "SPIKEWATCH_RULE=%s", run->rule);
	snprintf(texts[2], sizeof texts[2], "SPIKEWATCH_TARGET=%s", run->target);
	snprintf(texts[3], sizeof texts[3], "SPIKEWATCH_PID=%s", pid);
	r = hook_plan_words(proc->command, &values, &words);
	if (r == 0)
		r = make_pipe(&proc->out, &write_end);
	if (r < 0)
		return r;

	return start_command(run, proc, words, environment, write_end);
}

static const struct hook_command *command_of(const struct hook_run *run)
{
	return &run->scene.plan->commands[run->index];
}

static struct incident_capture *record_of(struct hook_run *run)
{
	return &run->records[run->index];
}

/* Starts the next command of a run. 0; -errno: nothing runs. */
static int start_process(struct hook_run *run, mono_t now)
{
	const struct hook_command *command = command_of(run);
	struct hook_process proc = {
		.command = command,
		.record = record_of(run),
		.dirfd = run->scene.dirfd,
		.child = { .fd = -1 },
		.out = -1,
		.file = -1,
		.began = now,
		.deadline = mono_add(now, command->timeout_ns),
	};
	char path[PATH_MAX];
	int r = draft_path(run->scene.dirfd, path);

	if (r == 0)
		r = spawn_with_pipe(run, path, &proc);
	if (r < 0) {
		hook_process_release(&proc);
		return r;
	}
	run->proc = proc;

	return 0;
}

/* ---- a process: its end ---- */

/* Records how it has ended. */
static void hook_process_judge(struct hook_process *proc, const struct child_end *how)
{
	struct incident_capture *record = proc->record;
	char limit[UNITS_TEXT_MAX] = "";
	bool ended = proc->phase != HOOK_PROCESS_RUNNING;

	record->has_exit = how->code == CLD_EXITED;
	record->has_signal = !record->has_exit;
	record->exit_status = record->has_exit ? how->status : 0;
	record->signal = record->has_signal ? how->status : 0;
	record->status = INCIDENT_CAPTURE_FAILED;

	if (ended && proc->stopped)
		snprintf(record->why, sizeof record->why, "ended because the daemon was stopped");
	else if (ended)
		snprintf(record->why, sizeof record->why, "ended because it took longer than %s",
			 units_format_duration(limit, sizeof limit, proc->command->timeout_ns));
	else if (proc->write_error < 0)
		snprintf(record->why, sizeof record->why, "its output could not be written: %s",
			 strerrordesc_np(-proc->write_error));
	else if (record->has_signal && how->status == SIGXFSZ)
		snprintf(record->why, sizeof record->why, "ended because a file of it grew beyond max_incident_size");
	else if (record->has_signal && !(proc->cut && how->status == SIGPIPE))
		snprintf(record->why, sizeof record->why, "ended by signal %d (%s)", how->status,
			 sigdescr_np(how->status) ? sigdescr_np(how->status) : "of the user");
	else if (record->exit_status != 0)
		snprintf(record->why, sizeof record->why, "exit status %d", record->exit_status);
	else
		record->status = INCIDENT_CAPTURE_OK;
	if (proc->cut) {
		size_t len = strlen(record->why);

		units_format_bytes(limit, sizeof limit, proc->command->max_output_bytes);
		snprintf(record->why + len, sizeof record->why - len, "%scut: its output is larger than %s",
			 len ? "; " : "", limit);
	}
}

/* ---- a run: its commands, one after the other ---- */

/* NULL: it may run. */
static const char *why_not_run(struct hooks *hooks, const struct hook_run *run, bool stopping)
{
	const struct hooks_scene *scene = &run->scene;
	AUTO_CLOSE int pid_directory = -1;

	if (stopping)
		return "the daemon was being stopped";
	if (hooks->alive >= HOOKS_AT_ONCE)
		return "refused: too many commands are running";
	if (!command_of(run)->wants_pid)
		return NULL;
	if (scene->pid == 0)
		return "the target has no process";

	return pid_directory_open(scene->procfd, scene->pid, scene->start_ticks, &pid_directory) < 0
		       ? "target has exited"
		       : NULL;
}

static void advance_run(struct hook_run *run)
{
	if (run->has_proc)
		hook_process_release(&run->proc);
	run->has_proc = false;
	run->index++;
}

static void start_next_command(struct hooks *hooks, struct hook_run *run, bool stopping)
{
	struct incident_capture *record = record_of(run);
	const char *why = why_not_run(hooks, run, stopping);
	mono_t now = clock_mono(&hooks->clock);
	int r;

	*record = command_record(command_of(run));
	if (why) {
		record->status = INCIDENT_CAPTURE_SKIPPED;
		incident_text(record->why, sizeof record->why, why);
		advance_run(run);
		return;
	}

	record->has_at = true;
	record->at_ns = mono_diff(now, run->scene.fired);
	r = start_process(run, now);
	if (r < 0) {
		record->status = INCIDENT_CAPTURE_FAILED;
		snprintf(record->why, sizeof record->why, "could not be started: %s", strerrordesc_np(-r));
		advance_run(run);
		return;
	}

	hooks->alive++;
	run->has_proc = true;
}

/* It has ended, with all that it has started. */
static void finish_command(struct hooks *hooks, struct hook_run *run, const struct child_end *how, mono_t now)
{
	struct incident_capture *record = record_of(run);

	hooks->alive--;
	hook_process_read(&run->proc, hooks->buffer, true);
	record->has_duration = true;
	record->duration_ns = (uint64_t)mono_diff(now, run->proc.began);
	hook_process_judge(&run->proc, how);
	advance_run(run);
}

static void abandon_command(struct hooks *hooks, struct hook_run *run, mono_t now)
{
	struct incident_capture *record = record_of(run);
	size_t i = 0;

	while (hooks->abandoned[i].pid)
		i++;
	hooks->abandoned[i] = run->proc.child;
	run->proc.child.fd = -1;
	record->has_duration = true;
	record->duration_ns = (uint64_t)mono_diff(now, run->proc.began);
	record->status = INCIDENT_CAPTURE_FAILED;
	snprintf(record->why, sizeof record->why, "process %d could not be ended: not even SIGKILL did",
		 run->proc.child.pid);
	advance_run(run);
}

/* Its time is over. */
static void signal_overdue(struct hooks *hooks, struct hook_run *run, mono_t now)
{
	if (run->proc.phase == HOOK_PROCESS_RUNNING) {
		child_signal(&run->proc.child, SIGTERM);
		run->proc.phase = HOOK_PROCESS_TERMINATED;
		run->proc.deadline = mono_add(now, HOOKS_GRACE_NS);
	} else if (run->proc.phase == HOOK_PROCESS_TERMINATED) {
		child_signal(&run->proc.child, SIGKILL);
		run->proc.phase = HOOK_PROCESS_KILLED;
		run->proc.deadline = mono_add(now, UNKILLABLE_NS);
	} else {
		abandon_command(hooks, run, now);
	}
}

static void reap_abandoned(struct hooks *hooks)
{
	struct child_end how;

	for (size_t i = 0; i < HOOKS_AT_ONCE; i++) {
		if (!hooks->abandoned[i].pid || !child_ended(&hooks->abandoned[i], &how))
			continue;
		child_close(&hooks->abandoned[i]);
		hooks->abandoned[i].pid = 0;
		hooks->alive--;
	}
}

/* ---- the thread ---- */

/* Does what is due of a run now. */
static void check_run(struct hooks *hooks, struct hook_run *run, bool stopping)
{
	mono_t now = clock_mono(&hooks->clock), last = mono_add(now, hooks->stop_ns);
	struct child_end how;

	if (run->has_proc) {
		hook_process_read(&run->proc, hooks->buffer, false);
		if (child_ended(&run->proc.child, &how)) {
			finish_command(hooks, run, &how, now);
		} else if (stopping && run->proc.phase == HOOK_PROCESS_RUNNING &&
			   mono_diff(run->proc.deadline, last) > 0) {
			run->proc.stopped = true;
			run->proc.deadline = last;
		} else if (mono_diff(now, run->proc.deadline) >= 0) {
			signal_overdue(hooks, run, now);
		}
	}
	while (!run->has_proc && run->index < run->scene.plan->count)
		start_next_command(hooks, run, stopping);
}

static bool run_is_over(const struct hook_run *run)
{
	return !run->has_proc && run->index == run->scene.plan->count;
}

static void check_all_runs(struct hooks *hooks, bool stopping)
{
	reap_abandoned(hooks);
	for (struct hook_run **at = &hooks->runs; *at;) {
		struct hook_run *run = *at;

		check_run(hooks, run, stopping);
		if (!run_is_over(run)) {
			at = &run->next;
			continue;
		}
		*at = run->next;
		run->next = NULL;
		run->scene.done(run->scene.ctx); /* the run is the caller's from now on */
	}
}

static int poll_timeout_ms(const struct hooks *hooks, mono_t now)
{
	int64_t least = hooks->alive ? 60 * (int64_t)NS_PER_S : -1;

	for (const struct hook_run *run = hooks->runs; run; run = run->next) {
		int64_t left = mono_diff(run->proc.deadline, now);

		if (left < least)
			least = left > 0 ? left : 0;
	}

	return least < 0 ? -1 : (int)(least / (int64_t)NS_PER_MS) + 1;
}

/* After check_all_runs each run has a process, so there are at most HOOKS_AT_ONCE. */
static void wait_for_event(struct hooks *hooks)
{
	struct pollfd polled[1 + 2 * HOOKS_AT_ONCE] = { { .fd = hooks->wake, .events = POLLIN } };
	nfds_t count = 1;
	uint64_t woken;

	for (const struct hook_run *run = hooks->runs; run; run = run->next) {
		assert(count + 2 <= ARRAY_LEN(polled));
		polled[count++] = (struct pollfd){ .fd = run->proc.out, .events = POLLIN };
		polled[count++] = (struct pollfd){ .fd = run->proc.child.fd, .events = POLLIN };
	}
	poll(polled, count, poll_timeout_ms(hooks, clock_mono(&hooks->clock)));
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
			struct hook_run *run = hooks->added;

			hooks->added = run->next;
			run->next = hooks->runs;
			hooks->runs = run;
		}
		stopping = hooks->stop;
		end = hooks->end;
		pthread_mutex_unlock(&hooks->lock);

		check_all_runs(hooks, stopping);
		if (end && !hooks->runs)
			return NULL;
		wait_for_event(hooks);
	}
}

/* ---- the other threads' side ---- */

static void wake_thread(struct hooks *hooks)
{
	(void)!write(hooks->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

int hooks_new(const struct clock *clock, uint64_t stop_ns, struct hooks **ret)
{
	struct hooks *hooks = calloc(1, sizeof *hooks);

	if (!hooks)
		return -ENOMEM;

	hooks->clock = *clock;
	hooks->stop_ns = stop_ns ? stop_ns : HOOKS_STOP_NS;
	pthread_mutex_init(&hooks->lock, NULL);
	hooks->buffer = malloc(READ_BYTES);
	hooks->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (hooks->wake < 0 || !hooks->buffer) {
		int r = hooks->wake < 0 ? -errno : -ENOMEM;

		hooks_free(hooks);
		return r;
	}
	*ret = hooks;

	return 0;
}

void hooks_stop(struct hooks *hooks)
{
	pthread_mutex_lock(&hooks->lock);
	hooks->stop = true;
	pthread_mutex_unlock(&hooks->lock);
	wake_thread(hooks);
}

void hooks_free(struct hooks *hooks)
{
	if (!hooks)
		return;

	if (hooks->running) {
		pthread_mutex_lock(&hooks->lock);
		hooks->end = true;
		pthread_mutex_unlock(&hooks->lock);
		wake_thread(hooks);
		pthread_join(hooks->thread, NULL);
	}
	close_one(&hooks->wake);
	pthread_mutex_destroy(&hooks->lock);
	free(hooks->buffer);
	free(hooks);
}

static int start_thread(struct hooks *hooks)
{
	int r;

	if (hooks->running)
		return 0;

	r = thread_start(&hooks->thread, run_thread, hooks);
	hooks->running = r == 0;

	return r;
}

int hooks_start(struct hooks *hooks, const struct hooks_scene *scene, struct hook_run **ret)
{
	struct hook_run *run;
	int r = start_thread(hooks);

	if (r < 0)
		return r;
	run = calloc(1, sizeof *run);
	if (!run)
		return -ENOMEM;

	run->scene = *scene;
	command_template_safe(scene->rule, run->rule);
	command_template_safe(scene->target, run->target);
	run->scene.rule = run->scene.target = NULL;
	*ret = run;
	pthread_mutex_lock(&hooks->lock);
	run->next = hooks->added;
	hooks->added = run;
	pthread_mutex_unlock(&hooks->lock);
	wake_thread(hooks);

	return 0;
}

void hook_run_report(struct hook_run *run, struct incident *incident)
{
	for (size_t i = 0; i < run->scene.plan->count; i++)
		incident_add_capture(incident, &run->records[i]);
	free(run);
}
