/*
 * bench_daemon.c: the daemon as a whole, on a thousand mostly idle processes: CPU, memory,
 * descriptors, and how long it takes from a condition that has become true to an open incident.
 *
 * The daemon is the one that was built beside this program, with a ring and a spool of its own in a
 * temporary directory. It is watched from outside, like any other process: its CPU clock, its
 * smaps, its fd/, and what it says.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "lib/config/config.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/model/pacing.h"
#include "lib/source/source.h"

#include <math.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>

#define TARGETS 1000u
#define RUNNING 10u
#define HERTZ 100u
#define SETTLE_NS (3 * NS_PER_S)
#define MEASURE_NS (5 * NS_PER_S)
#define WINDOW_NS (100 * NS_PER_MS)
#define ABOVE_NS (60 * NS_PER_MS) /* of CPU in a window: the threshold of the rule "burst" */
#define AFTER_NS (50 * NS_PER_MS) /* bench_spikewatch_configure's */
#define FIRINGS 12u
#define LONG_AFTER_NS NS_PER_S /* a tenth of the default */
#define LONG_FIRINGS 7u

static unsigned own_cpu, target_cpu;

static const char rest[] =
	"\"targets\": ["
	"    { \"name\": \"many\", \"comm\": \"bench_many\", \"per\": \"process\" },"
	"    { \"name\": \"burner\", \"comm\": \"bench_burner\", \"per\": \"process\" } ],"
	"  \"rules\": ["
	"    { \"name\": \"burst\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": "
	"\"60%\","
	"      \"warmup\": 1, \"cooldown\": \"100ms\", \"targets\": [\"burner\"] },"
	"    { \"name\": \"cpu\", \"metric\": \"cpu\", \"window\": \"1s\", \"percent\": \"90%\", \"targets\": "
	"[\"many\"] },"
	"    { \"name\": \"memory\", \"metric\": \"memory\", \"window\": \"1s\", \"percent\": \"90%\" },"
	"    { \"name\": \"threads\", \"metric\": \"threads\", \"window\": \"1s\", \"above\": 1000 },"
	"    { \"name\": \"fds\", \"metric\": \"fds\", \"window\": \"1s\", \"above\": 1000 } ]";

struct rig {
	struct bench_spikewatch daemon;
	struct bench_targets many, burner;
	struct burning {
		_Atomic uint64_t at_ns;    /* when it is to begin */
		_Atomic uint64_t above_ns; /* when it had used what the threshold is, by its own clock; 0: not yet */
	} * burning;                       /* shared with the burner */
};

/* ---- targets ---- */

/* Runs without a break from each moment it is given, for a window and a little more. */
static void burn(struct burning *burning)
{
	for (uint64_t last = 0;;) {
		uint64_t at = atomic_load(&burning->at_ns);

		if (at == last) {
			bench_sleep(NS_PER_MS);
			continue;
		}
		last = at;
		bench_sleep_until(at);

		uint64_t cpu_ns = bench_cpu();

		while (bench_now() < at + WINDOW_NS + 20 * NS_PER_MS)
			if (atomic_load(&burning->above_ns) == 0 && bench_cpu() - cpu_ns > ABOVE_NS)
				atomic_store(&burning->above_ns, bench_now());
	}
}

static void start_targets(struct rig *rig)
{
	rig->burning = mmap(NULL, sizeof *rig->burning, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_need(rig->burning != MAP_FAILED, "shared memory");
	rig->many = (struct bench_targets){
		.count = TARGETS, .busy = RUNNING, .manner = BENCH_TICKING, .name = "bench_many", .cpu = target_cpu
	};
	bench_targets_start(&rig->many);

	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_burner");
		bench_pin(target_cpu);
		burn(rig->burning);
	}
	rig->burner.pids = calloc(1, sizeof(pid_t));
	bench_need(rig->burner.pids, "memory");
	rig->burner.pids[0] = pid;
}

static void end_targets(struct rig *rig)
{
	kill(rig->burner.pids[0], SIGKILL);
	waitpid(rig->burner.pids[0], NULL, 0);
	free(rig->burner.pids);
	bench_targets_end(&rig->many);
}

/* ---- figures ---- */

/* What the looks alone cost at this rate, the waking up included: percent of a core. */
static double bare_percent(const struct rig *rig)
{
	struct bench_bare bare;

	bench_bare_make(&bare, &rig->many);
	prctl(PR_SET_TIMERSLACK, 1000ul);
	bench_bare_tick(&bare);

	uint64_t began = bench_now(), deadline = began, cpu = bench_cpu();

	while (deadline < began + 2 * NS_PER_S) {
		deadline += NS_PER_S / HERTZ;
		bench_sleep_until(deadline);
		bench_bare_tick(&bare);
	}
	cpu = bench_cpu() - cpu;
	bench_bare_end(&bare);
	return 100 * (double)cpu / (double)(bench_now() - began);
}

static double cpu_percent(clockid_t clock)
{
	uint64_t began = bench_now(), cpu = bench_clock(clock);

	bench_sleep(MEASURE_NS);
	cpu = bench_clock(clock) - cpu;
	return 100 * (double)cpu / (double)(bench_now() - began);
}

/* ---- from a condition that is true to an incident, and on to a sealed one ---- */

struct firing {
	double whole_ms, ours_ms, sealed_ms;
};

/* When a directory is next made in that of the incidents, or renamed; 0: none is until `until`. */
static uint64_t await_directory(int watch, uint32_t what, uint64_t until)
{
	_Alignas(struct inotify_event) char events[4096];

	for (;;) {
		struct pollfd wait = { .fd = watch, .events = POLLIN };
		uint64_t now = bench_now();

		if (now >= until || poll(&wait, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0)
			return 0;
		now = bench_now();

		ssize_t len = read(watch, events, sizeof events);

		for (ssize_t at = 0; at < len;) {
			const struct inotify_event *event = (const struct inotify_event *)(void *)(events + at);

			if (event->mask & what && event->mask & IN_ISDIR)
				return now;
			at += (ssize_t)(sizeof *event + event->len);
		}
	}
}

/*
 * This thread tells the time at which something was done by the daemon, on the same CPU: it must not wait
 * for the end of what that does next.
 */
static void run_before_the_daemon(bool begin)
{
	struct sched_param priority = { .sched_priority = begin ? 2 : 0 };

	sched_setscheduler(0, begin ? SCHED_FIFO : SCHED_OTHER, &priority); /* else the figures are too high */
}

/* The first tick after that time in which there is a sample of the burner, by the ring; 0: none. */
static uint64_t tick_after(struct rig *rig, uint64_t at_ns)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t found_ns = 0;
	uint32_t id = 0;

	bench_need(ring_cursor_new(rig->daemon.ring, RING_OLDEST, &cursor) == 0, "cursor");
	for (int r; found_ns == 0 && (r = ring_cursor_next(cursor, &event)) != RING_EMPTY;) {
		if (r == 0 && event.type == RING_EVENT_TARGET && event.target.pid == rig->burner.pids[0])
			id = event.id;
		if (r == 0 && event.type == RING_EVENT_SAMPLE && event.id == id && id != 0 && event.time.ns >= at_ns)
			found_ns = event.time.ns;
	}
	ring_cursor_free(cursor);
	return found_ns;
}

/*
 * The window slides with the ticks, so the condition is true from the moment on at which the burner, which
 * slept before, has used the threshold's part of a window. False: no incident came.
 */
static bool time_firing(struct rig *rig, int watch, uint64_t after_ns, struct firing *ret)
{
	uint64_t at = bench_now() + 2 * WINDOW_NS;

	atomic_store(&rig->burning->above_ns, 0);
	atomic_store(&rig->burning->at_ns, at);

	uint64_t opened = await_directory(watch, IN_CREATE, at + 10 * WINDOW_NS);
	uint64_t sealed = await_directory(watch, IN_MOVED_TO, at + after_ns + 30 * WINDOW_NS);

	bench_sleep_until(at + 5 * WINDOW_NS);

	uint64_t above = atomic_load(&rig->burning->above_ns), tick = above ? tick_after(rig, above) : 0;

	if (opened == 0 || sealed == 0 || tick == 0)
		return false;
	*ret = (struct firing){ ((double)opened - (double)above) / 1e6, ((double)opened - (double)tick) / 1e6,
				((double)sealed - (double)(tick + after_ns)) / 1e6 };
	return true;
}

/* ---- the floor: the same way by a bare program, on the same CPU and disk ---- */

struct floor_threads {
	int dirfd, event;
	uint64_t tick_ns;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool asked;
};

/* As the sampler: with real-time priority, where it may. */
static void *floor_tick(void *argument)
{
	struct floor_threads *threads = argument;
	struct sched_param priority = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_FIFO, &priority);
	bench_sleep_until(threads->tick_ns);
	bench_need(eventfd_write(threads->event, 1) == 0, "eventfd");
	return NULL;
}

/* As the event loop. */
static void *floor_hand_over(void *argument)
{
	struct floor_threads *threads = argument;
	struct sched_param normal = { 0 };
	eventfd_t times;

	sched_setscheduler(0, SCHED_OTHER, &normal);
	bench_need(eventfd_read(threads->event, &times) == 0, "eventfd");
	pthread_mutex_lock(&threads->lock);
	threads->asked = true;
	pthread_cond_signal(&threads->wake);
	pthread_mutex_unlock(&threads->lock);
	return NULL;
}

/* As the incident worker. */
static void *floor_make(void *argument)
{
	struct floor_threads *threads = argument;
	struct sched_param normal = { 0 };
	struct stat st;

	sched_setscheduler(0, SCHED_OTHER, &normal);
	pthread_mutex_lock(&threads->lock);
	while (!threads->asked)
		pthread_cond_wait(&threads->wake, &threads->lock);
	pthread_mutex_unlock(&threads->lock);
	flock(threads->dirfd, LOCK_EX);
	bench_need(fstatat(threads->dirfd, "floor", &st, 0) < 0 && mkdirat(threads->dirfd, "floor", 0750) == 0,
		   "mkdir");
	flock(threads->dirfd, LOCK_UN);
	return NULL;
}

/* From a tick to a directory that is seen: ms. */
static double time_floor(int watch, const char *path)
{
	static void *(*const steps[])(void *) = { floor_tick, floor_hand_over, floor_make };
	struct floor_threads threads = { .dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
					 .event = eventfd(0, EFD_CLOEXEC),
					 .tick_ns = bench_now() + 50 * NS_PER_MS,
					 .lock = PTHREAD_MUTEX_INITIALIZER,
					 .wake = PTHREAD_COND_INITIALIZER };
	pthread_t thread[ARRAY_LEN(steps)];

	bench_need(threads.dirfd >= 0 && threads.event >= 0, path);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		bench_need(pthread_create(&thread[i], NULL, steps[i], &threads) == 0, "thread");

	uint64_t made = await_directory(watch, IN_CREATE, threads.tick_ns + NS_PER_S);

	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		pthread_join(thread[i], NULL);
	bench_need(made && unlinkat(threads.dirfd, "floor", AT_REMOVEDIR) == 0, "a directory");
	close(threads.event);
	close(threads.dirfd);
	return ((double)made - (double)threads.tick_ns) / 1e6;
}

/* From now on the time after a firing is LONG_AFTER_NS: long enough to do there what else would come behind it. */
static void make_after_long(struct rig *rig)
{
	static const char from[] = "\"after\": \"50ms\"", to[] = "\"after\": \"1s\"  ";
	char *at = strstr(rig->daemon.text, from), path[sizeof rig->daemon.dir + 8];

	_Static_assert(sizeof from == sizeof to, "in its place");
	bench_need(at, from);
	memcpy(at, to, sizeof to - 1);
	snprintf(path, sizeof path, "%s/config", rig->daemon.dir);

	FILE *file = fopen(path, "w");

	bench_need(file && fputs(rig->daemon.text, file) >= 0 && fclose(file) == 0, path);
	kill(rig->daemon.pid, SIGHUP);
	bench_sleep(NS_PER_S);
}

static void report_long_firings(struct rig *rig, int watch)
{
	double sealed[LONG_FIRINGS];
	struct firing firing;
	unsigned count = 0;

	make_after_long(rig);
	for (unsigned i = 0; i < LONG_FIRINGS; i++)
		if (time_firing(rig, watch, LONG_AFTER_NS, &firing))
			sealed[count++] = firing.sealed_ms;
	bench_need(count > LONG_FIRINGS / 2, "the rule fires");
	bench_report((struct bench_row){ "    the same if there was 1 s for reading symbols (\"after\"), median", "ms",
					 bench_median(sealed, count), 0, BENCH_AT_MOST, 50 });
}

static void report_firings(struct rig *rig)
{
	double whole[FIRINGS], ours[FIRINGS], sealed[FIRINGS], floor[FIRINGS], worst = 0;
	struct bench_meter meter;
	struct firing firing;
	unsigned count = 0;
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char path[sizeof rig->daemon.dir + 16];

	bench_spikewatch_meter(&rig->daemon, &meter); /* opens the ring */
	snprintf(path, sizeof path, "%s/incidents", rig->daemon.dir);
	bench_need(watch >= 0 && inotify_add_watch(watch, path, IN_CREATE | IN_MOVED_TO) >= 0, path);
	run_before_the_daemon(true);
	for (unsigned i = 0; i < FIRINGS; i++) {
		floor[i] = time_floor(watch, path);
		if (!time_firing(rig, watch, AFTER_NS, &firing))
			continue;
		whole[count] = firing.whole_ms;
		sealed[count] = firing.sealed_ms;
		ours[count++] = firing.ours_ms;
		worst = fmax(worst, firing.whole_ms);
	}
	bench_need(count > FIRINGS / 2, "the rule fires");
	bench_report(
		(struct bench_row){ "  condition true, by its own clock -> directory, median (5 ms and half a tick)",
				    "ms", bench_median(whole, count), 0, BENCH_AT_MOST, 10 });
	bench_report((struct bench_row){ "    the worst of 12 (budget: two ticks and 10 ms)", "ms", worst, 0,
					 BENCH_AT_MOST, 30 });
	bench_report(
		(struct bench_row){ "    of it after the first tick that finds it so, median (against: bare threads)",
				    "ms", bench_median(ours, count), bench_median(floor, FIRINGS), BENCH_AT_MOST, 5 });
	bench_report((struct bench_row){ "  50 ms after the firing are over -> sealed, with stacks, median", "ms",
					 bench_median(sealed, count), 0, BENCH_AT_MOST, 50 });
	report_long_firings(rig, watch);
	run_before_the_daemon(false);
	close(watch);
}

static void report_daemon(struct rig *rig)
{
	clockid_t clock;

	double before = bare_percent(rig);

	bench_spikewatch_start(&rig->daemon);
	bench_sleep(SETTLE_NS);
	bench_need(clock_getcpuclockid(rig->daemon.pid, &clock) == 0, "clock_getcpuclockid");

	double ours = cpu_percent(clock);

	kill(rig->daemon.pid, SIGSTOP);

	double bare = (before + bare_percent(rig)) / 2;

	kill(rig->daemon.pid, SIGCONT);
	bench_report((struct bench_row){ "  the daemon, with 5 rules", "%", ours, bare, BENCH_AT_MOST, 4 });
	bench_report((struct bench_row){ "  resident memory, without the ring", "MiB",
					 bench_spikewatch_memory(&rig->daemon).resident_mib, 0, BENCH_AT_MOST, 12 });
	bench_report((struct bench_row){
		.what = "  open descriptors", .unit = "", .measured = bench_count_descriptors(rig->daemon.pid) });
	report_firings(rig);
	bench_spikewatch_end(&rig->daemon);
}

static void report_session(const struct rig *rig)
{
	struct config_source source = { "bench", rig->daemon.text, strlen(rig->daemon.text) };
	struct config_error error;
	struct config *config;
	struct session *session;
	char what[80];

	if (config_parse(&source, 1, &config, &error) < 0) {
		fprintf(stderr, "bench: %s: %s\n", error.key, error.message);
		exit(EXIT_FAILURE);
	}
	bench_need(session_new(config, NULL, &session) == 0, "session");

	double bare = bare_percent(rig);

	bench_need(session_start(session) == 0, "session");
	bench_sleep(SETTLE_NS);

	double ours = cpu_percent(CLOCK_PROCESS_CPUTIME_ID);

	session_stop(session);
	bare = (bare + bare_percent(rig)) / 2;
	snprintf(what, sizeof what, "CPU, %u processes, %u not idle, %u Hz (against: a bare loop)", TARGETS, RUNNING,
		 HERTZ);
	bench_report((struct bench_row){ what, "%", ours, bare, BENCH_AT_MOST, 4 });
	session_free(session);
	config_free(config);
}

int main(void)
{
	static struct rig rig;

	own_cpu = bench_nth_cpu(0);
	target_cpu = bench_nth_cpu(1);
	bench_pin(own_cpu);
	bench_raise_descriptors();
	bench_spikewatch_make(&rig.daemon, NULL, NULL);
	bench_spikewatch_configure(&rig.daemon, "10ms", rest);

	start_targets(&rig);

	report_session(&rig);
	report_daemon(&rig);
	end_targets(&rig);

	return 0;
}
