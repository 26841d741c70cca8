/*
 * bench_asleep.c: what the daemon takes for what does not run, and whether it sees what does so for
 * a moment: 200 processes of which one has bursts, one process of 2,000 threads, 1,000 cgroups.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "lib/cgroup/cgroup_mounts.h"

#include <pthread.h>

#define PROCESSES 200u
#define THREADS 2000u
#define CGROUPS 1000u
#define BURSTS 60u
#define SETTLE_NS (4 * NS_PER_S)
#define MEASURE_NS (6 * NS_PER_S)
#define INTERVAL_NS (10 * NS_PER_MS)

static const char rules[] = "\"rules\": [ { \"name\": \"cpu\", \"metric\": \"cpu_cores\", \"window\": \"1s\", "
			    "\"above\": 0.9 } ]";

static struct bench_spikewatch daemon_;
static char cgroups[CGROUP_CONTROLLERS + 1][256]; /* where the cgroups are, in each hierarchy */
static size_t cgroup_dirs;

/* The daemon with this member "targets" at 100 Hz, from settled on. */
static void watch(const char *targets)
{
	char rest[1024];

	snprintf(rest, sizeof rest, "\"targets\": [ %s ], %s", targets, rules);
	bench_spikewatch_configure(&daemon_, "10ms", rest);
	bench_spikewatch_start(&daemon_);
	bench_sleep(SETTLE_NS);
}

static void measure(struct bench_meter *from, struct bench_meter *to)
{
	bench_spikewatch_meter(&daemon_, from);
	bench_sleep(MEASURE_NS);
	bench_spikewatch_meter(&daemon_, to);
}

/* ---- bursts ---- */

struct burst {
	uint64_t from_ns, to_ns, cpu_ns;
};

/* Shared with the process that has them. */
static struct {
	_Atomic uint64_t length_ns; /* of the next; 0: none */
	_Atomic unsigned count;
	struct burst bursts[BURSTS];
} * board;

static void have_bursts(void)
{
	uint32_t random = 12345;

	for (;;) {
		uint64_t length_ns = atomic_load(&board->length_ns);
		unsigned count = atomic_load(&board->count);

		random = random * 1664525 + 1013904223;
		bench_sleep(100 * NS_PER_MS + random % (50 * NS_PER_MS));
		if (length_ns == 0 || count == BURSTS)
			continue;

		struct burst *burst = &board->bursts[count];
		uint64_t cpu_ns = bench_cpu();

		burst->from_ns = bench_now();
		while (bench_now() < burst->from_ns + length_ns)
			continue;
		burst->to_ns = bench_now();
		burst->cpu_ns = bench_cpu() - cpu_ns;
		atomic_store(&board->count, count + 1);
	}
}

/*
 * Percent of the bursts whose CPU time is, to a tenth, in records from an interval before they began
 * to an interval after they ended; some time is added for the tick to come and to be taken.
 */
static double bursts_seen(pid_t pid, uint64_t length_ns)
{
	static struct {
		uint64_t at_ns, cpu_ns;
	} seen[1u << 16];
	struct ring_cursor *cursor;
	struct ring_event event;
	uint32_t id = 0;
	size_t count = 0;
	unsigned good = 0;

	atomic_store(&board->count, 0);
	atomic_store(&board->length_ns, length_ns);
	while (atomic_load(&board->count) < BURSTS)
		bench_sleep(100 * NS_PER_MS);
	atomic_store(&board->length_ns, 0);
	bench_sleep(500 * NS_PER_MS);
	bench_need(ring_cursor_new(daemon_.ring, RING_OLDEST, &cursor) == 0, "cursor");
	for (int r; (r = ring_cursor_next(cursor, &event)) != RING_EMPTY && count < 1u << 16;) {
		if (r == 0 && event.type == RING_EVENT_TARGET && event.target.pid == pid)
			id = event.id;
		if (r != 0 || event.type != RING_EVENT_SAMPLE || event.id != id || id == 0)
			continue;
		seen[count].at_ns = event.time.ns;
		seen[count++].cpu_ns = event.sample->value[SAMPLE_CPU];
	}
	ring_cursor_free(cursor);
	for (unsigned i = 0; i < BURSTS; i++) {
		const struct burst *burst = &board->bursts[i];
		uint64_t before_ns = 0, after_ns = 0;

		for (size_t k = 0; k < count; k++) {
			if (seen[k].at_ns < burst->from_ns)
				before_ns = seen[k].cpu_ns;
			if (seen[k].at_ns < burst->to_ns + INTERVAL_NS + 2 * NS_PER_MS)
				after_ns = seen[k].cpu_ns;
		}
		good += after_ns - before_ns >= burst->cpu_ns / 10 * 9;
	}
	return 100.0 * good / BURSTS;
}

static void report_processes(void)
{
	struct bench_targets many_targets = { .count = PROCESSES - 1, .name = "bench_asleep", .cpu = bench_nth_cpu(1) };
	struct bench_meter from, to;
	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_asleep");
		bench_pin(bench_nth_cpu(1));
		have_bursts();
	}
	bench_targets_start(&many_targets);
	watch("{ \"name\": \"many\", \"comm\": \"bench_asleep\", \"per\": \"process\" }");
	measure(&from, &to);
	bench_report((struct bench_row){ "200 processes that sleep, each looked at in every tick of 100 Hz", "%",
					 bench_meter_percent(&from, &to), 0, BENCH_AT_MOST, 2.5 });
	bench_report_threads(&from, &to, 0.05);
	bench_report((struct bench_row){ "  of them one has bursts of 5 ms: seen in the tick after", "%",
					 bursts_seen(pid, 5 * NS_PER_MS), 0, BENCH_AT_LEAST, 95 });
	bench_report((struct bench_row){ "  of 20 ms", "%", bursts_seen(pid, 20 * NS_PER_MS), 0, BENCH_AT_LEAST, 99 });
	bench_spikewatch_end(&daemon_);
	bench_targets_end(&many_targets);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- threads ---- */

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* CPU of the daemon for one process of so many threads, percent; and of which of its own. */
static double threads_cost(unsigned threads, struct bench_meter *from, struct bench_meter *to)
{
	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		pthread_attr_t small;
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_threads");
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 65536);
		for (unsigned i = 1; i < threads; i++)
			if (pthread_create(&thread, &small, sleep_for_ever, NULL) != 0)
				_exit(EXIT_FAILURE);
		sleep_for_ever(NULL);
	}
	bench_sleep(NS_PER_S);
	watch("{ \"name\": \"one\", \"comm\": \"bench_threads\", \"per\": \"process\" }");
	measure(from, to);
	bench_spikewatch_end(&daemon_);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return bench_meter_percent(from, to);
}

static void report_threads(void)
{
	struct bench_meter from, to;
	double one = threads_cost(1, &from, &to);

	bench_report_threads(&from, &to, 0.02);
	bench_report((struct bench_row){ "one process of 2,000 threads that sleep, more than one of a single thread",
					 "%", threads_cost(THREADS, &from, &to) - one, 0, BENCH_AT_MOST, 0.5 });
	bench_report_threads(&from, &to, 0.02);
}

/* ---- cgroups ---- */

static void make_in(const char *hierarchy)
{
	char *top = cgroups[cgroup_dirs], path[300];

	if (!hierarchy)
		return;
	snprintf(top, sizeof cgroups[0], "%.200s/spikewatch-bench-%d", hierarchy, (int)getpid());
	if (mkdir(top, 0755) < 0)
		return;
	cgroup_dirs++;
	for (unsigned i = 0; i < CGROUPS; i++) {
		snprintf(path, sizeof path, "%.250s/c%u", top, i);
		bench_need(mkdir(path, 0755) == 0, path);
	}
}

static void remove_cgroups(void)
{
	char path[300];

	for (size_t k = 0; k < cgroup_dirs; k++) {
		for (unsigned i = 0; i < CGROUPS; i++) {
			snprintf(path, sizeof path, "%.250s/c%u", cgroups[k], i);
			rmdir(path);
		}
		rmdir(cgroups[k]);
	}
	cgroup_dirs = 0;
}

static void report_cgroups(void)
{
	struct cgroup_mounts *mounts;
	struct bench_meter from, to;
	char targets[256];
	bool v2;

	bench_need(cgroup_mounts_new("/proc", "", &mounts) == 0, "cgroups");
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		make_in(cgroup_mounts_controller(mounts, (enum cgroup_resource)i, &v2));
	make_in(cgroup_mounts_v2(mounts));
	cgroup_mounts_free(mounts);
	if (cgroup_dirs == 0) {
		printf("(no cgroups can be made here)\n");
		return;
	}
	snprintf(targets, sizeof targets, "{ \"name\": \"groups\", \"cgroup\": \"/spikewatch-bench-%d/*\" }",
		 (int)getpid());
	watch(targets);
	bench_sleep(20 * NS_PER_S); /* until heartbeats are as far apart as they come */
	measure(&from, &to);
	bench_report((struct bench_row){ "1,000 cgroups that do not run, 100 Hz", "%", bench_meter_percent(&from, &to),
					 0, BENCH_AT_MOST, 2 });
	bench_report_threads(&from, &to, 0.05);
	bench_report((struct bench_row){ "  ticks that came when due", "%", bench_meter_captured(&from, &to), 0,
					 BENCH_AT_LEAST, 99.9 });
	bench_spikewatch_end(&daemon_);
	remove_cgroups();
}

int main(void)
{
	bench_raise_descriptors();
	bench_spikewatch_make(&daemon_, NULL, NULL);
	prctl(PR_SET_TIMERSLACK, 1000ul);
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_need(board != MAP_FAILED, "shared memory");
	atexit(remove_cgroups);
	report_processes();
	report_threads();
	if (geteuid() == 0)
		report_cgroups();

	return 0;
}
