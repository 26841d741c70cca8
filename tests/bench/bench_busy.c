/*
 * bench_busy.c: does the sampler get a CPU where there is none to spare. The daemon at 100 Hz beside
 * processes that take all CPUs, each in a session of its own, as the shells of many users or
 * services are: what part of the slots it takes, and its longest hole. Held against itself without
 * real-time priority. Then under a CPU quota with too much to do: how long until it has found a rate
 * that it can keep, and whether it keeps it.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"

#include "lib/cgroup/cgroup_mounts.h"

#define BUSY_TARGETS 200u
#define BUSY_NS (8 * NS_PER_S)
#define SETTLE_NS (2 * NS_PER_S) /* the first second of a process is busy in itself */
#define QUOTA_TARGETS 1000u
#define QUOTA_SETTLE_NS (5 * NS_PER_S)
#define QUOTA_NS (15 * NS_PER_S)

struct load {
	const char *what;
	unsigned count;
	uint64_t work_ns, rest_ns; /* rest_ns 0: never */
};

static const struct load loads[] = {
	{ "24 that work 5 ms and rest 1 ms", 24, 5 * NS_PER_MS, NS_PER_MS },
	{ "32 that spin", 32, NS_PER_S, 0 },
};

static void work(const struct load *load)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	for (;;) {
		uint64_t until = bench_cpu() + load->work_ns;

		while (bench_cpu() < until)
			continue;
		if (load->rest_ns > 0)
			bench_sleep(load->rest_ns);
	}
}

static void configure(struct bench_spikewatch *daemon, const char *sampling)
{
	const char *dir = daemon->dir;
	int len = snprintf(daemon->text, sizeof daemon->text,
			   "{ \"sampling\": { %s }, \"stacks\": { \"mode\": \"off\" },"
			   "  \"ring\": { \"path\": \"%s/ring\", \"size\": \"64MiB\", \"lock\": false },"
			   "  \"incidents\": { \"directory\": \"%s/incidents\" }, \"state_file\": \"%s/state\","
			   "  \"targets\": [ { \"name\": \"bench\", \"comm\": \"bench_busy\", \"per\": \"process\" } ],"
			   "  \"rules\": [ { \"name\": \"never\", \"metric\": \"threads\", \"above\": 1000000 } ] }",
			   sampling, dir, dir, dir);

	bench_need(len > 0 && (size_t)len < sizeof daemon->text, "a configuration that fits");
}

/* ---- beside others ---- */

struct outcome {
	double captured_percent, longest_ms;
};

/* The longest time between two ticks in that time. */
static double longest_hole_ms(const struct ring *ring, uint64_t from_ns, uint64_t to_ns)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t last = 0, longest = 0;

	bench_need(ring_cursor_new(ring, RING_OLDEST, &cursor) == 0, "a cursor");
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_TICK || event.time.ns < from_ns || event.time.ns > to_ns)
			continue;
		if (last > 0 && event.time.ns - last > longest)
			longest = event.time.ns - last;
		last = event.time.ns;
	}
	ring_cursor_free(cursor);
	return (double)longest / NS_PER_MS;
}

static struct outcome run_beside(struct bench_spikewatch *daemon, const struct load *load, const char *scheduling)
{
	struct bench_meter from, to;
	struct outcome outcome;
	pid_t pids[64];
	char sampling[80];

	for (unsigned i = 0; i < load->count; i++) {
		pids[i] = fork();
		bench_need(pids[i] >= 0, "fork");
		if (pids[i] == 0)
			work(load);
	}
	snprintf(sampling, sizeof sampling, "\"interval\": \"10ms\", \"scheduling\": \"%s\"", scheduling);
	configure(daemon, sampling);
	bench_spikewatch_start(daemon);
	bench_sleep(SETTLE_NS);
	bench_spikewatch_meter(daemon, &from);
	bench_sleep(BUSY_NS);
	bench_spikewatch_meter(daemon, &to);
	outcome.captured_percent = bench_meter_captured(&from, &to);
	outcome.longest_ms = longest_hole_ms(daemon->ring, from.at_ns, to.at_ns);
	bench_spikewatch_end(daemon);
	for (unsigned i = 0; i < load->count; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return outcome;
}

static void report_beside(struct bench_spikewatch *daemon, const struct load *load)
{
	struct outcome normal = run_beside(daemon, load, "normal"), ours = run_beside(daemon, load, "auto");
	char what[96];

	snprintf(what, sizeof what, "capture rate, 100 Hz, beside %s (against: normal)", load->what);
	bench_report(
		(struct bench_row){ what, "%", ours.captured_percent, normal.captured_percent, BENCH_AT_LEAST, 99.9 });
	bench_report((struct bench_row){ "  longest time between two ticks", "ms", ours.longest_ms, normal.longest_ms,
					 BENCH_AT_MOST, 15 });
}

/* ---- under a quota ---- */

static char quota_dir[PATH_MAX];

static bool write_to(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof path, "%s/%s", dir, name);

	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* A cgroup below this process's own, with a twentieth of a core. Its parent is where this process was. */
static bool make_quota(char *ret_parent, size_t cap)
{
	struct cgroup_mounts *mounts;
	char path[PATH_MAX / 2];
	bool v2 = false, done;
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	bench_need(procfd >= 0 && cgroup_mounts_new("/proc", "", &mounts) == 0, "cgroups");

	const char *dir = cgroup_mounts_controller(mounts, CGROUP_CPU, &v2);

	done = dir && cgroup_path_in(mounts, procfd, getpid(), CGROUP_CPU, path, sizeof path) == 0;
	if (done) {
		snprintf(ret_parent, cap, "%s%s", dir, path);
		snprintf(quota_dir, sizeof quota_dir, "%.4000s/bench-busy-%d", ret_parent, getpid());
		done = mkdir(quota_dir, 0755) == 0 && (v2 ? write_to(quota_dir, "cpu.max", "5000 100000")
							  : write_to(quota_dir, "cpu.cfs_quota_us", "5000"));
	}
	cgroup_mounts_free(mounts);
	close(procfd);
	return done;
}

static void remove_quota(void *ctx)
{
	(void)ctx;
	if (*quota_dir)
		rmdir(quota_dir);
}

/* Until the interval last changed, and what part of the slots was taken after QUOTA_SETTLE_NS. */
static void watch_settling(struct bench_spikewatch *daemon, uint64_t began)
{
	struct bench_meter settled, to;
	uint64_t changed = began, rate = 0;
	struct stats stats = { 0 };

	bench_spikewatch_meter(daemon, &settled);
	for (uint64_t now = began; now < began + QUOTA_NS; now = bench_now()) {
		if (now < began + QUOTA_SETTLE_NS)
			bench_spikewatch_meter(daemon, &settled);
		if (ring_stats(daemon->ring, &stats) == 0 && stats.collection_rate != rate) {
			changed = now;
			rate = stats.collection_rate;
		}
		bench_sleep(50 * NS_PER_MS);
	}
	bench_spikewatch_meter(daemon, &to);
	bench_report((struct bench_row){ "quota of 5 %, 1,000 processes, 1 kHz: from the start to a settled rate", "s",
					 (double)(changed - began) / NS_PER_S, 0, BENCH_AT_MOST, 5 });
	bench_report((struct bench_row){ "  the interval then", "ms", (double)rate / NS_PER_MS, 0, BENCH_NO_LIMIT, 0 });
	bench_report((struct bench_row){ "  capture rate from then on", "%", bench_meter_captured(&settled, &to), 0,
					 BENCH_AT_LEAST, 99 });
}

static void report_quota(struct bench_spikewatch *daemon)
{
	char parent[PATH_MAX / 2 + 256], pid[16];

	snprintf(pid, sizeof pid, "%d", getpid());
	if (!make_quota(parent, sizeof parent) || !write_to(quota_dir, "cgroup.procs", pid)) {
		puts("under a CPU quota: not measured, no cgroup with one can be made here");
		return;
	}
	configure(daemon, "\"interval\": \"1ms\"");

	bench_spikewatch_start(daemon);

	uint64_t began = bench_now();

	bench_need(write_to(parent, "cgroup.procs", pid), parent);
	bench_sleep(NS_PER_S); /* the first tick */
	watch_settling(daemon, began);
	bench_spikewatch_end(daemon);
	rmdir(quota_dir);
}

int main(void)
{
	static struct bench_spikewatch daemon;
	struct bench_targets targets = { .count = BUSY_TARGETS, .cpu = bench_nth_cpu(1) };

	bench_raise_descriptors();
	bench_spikewatch_make(&daemon, remove_quota, NULL);
	bench_targets_start(&targets);
	for (size_t i = 0; i < ARRAY_LEN(loads); i++)
		report_beside(&daemon, &loads[i]);
	bench_targets_end(&targets);

	targets.count = QUOTA_TARGETS;
	bench_targets_start(&targets);
	report_quota(&daemon);
	bench_targets_end(&targets);

	return 0;
}
