/*
 * bench_pace.c: does the sampler keep its deadlines: capture rate, mean error of a wake-up, CPU, by
 * rate and by the way of waiting. Held against a bare loop of clock_nanosleep with the same timer
 * slack, a moment before, which looks at nothing. And the daemon in a cgroup with a CPU quota: how soon it
 * has found a rate that it can keep.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/model/sample.h"

#define TARGETS 100u
#define SECONDS_NS 2000000000u
#define BUDGETED_NS 10000000000u
#define BARE_NS 1000000000u

struct pace {
	double capture_percent, error_us, cpu_percent;
};

static struct pace run_bare(uint64_t interval_ns)
{
	uint64_t begin = bench_now(), deadline = begin + interval_ns, sum = 0, ticks = 0;

	prctl(PR_SET_TIMERSLACK, 1000ul);
	while (deadline < begin + BARE_NS) {
		bench_sleep_until(deadline);

		uint64_t late = bench_now() - deadline;

		sum += late;
		ticks++;
		deadline += (late / interval_ns + 1) * interval_ns;
	}
	return (struct pace){
		.capture_percent = 100 * (double)ticks * (double)interval_ns / (double)(deadline - interval_ns - begin),
		.error_us = (double)sum / (double)ticks / 1000,
	};
}

static void read_stats(const struct bench_sampler *bench, struct stats *ret)
{
	while (ring_stats(bench->ring, ret) < 0)
		sched_yield();
}

/* The first tenth of a second does not count: targets are being added. */
static struct pace run(const struct bench_targets *targets, uint64_t interval_ns, enum config_wait wait)
{
	struct bench_sampler bench;
	struct stats from, to;

	bench_sampler_make(&bench, targets, interval_ns, wait);
	bench_need(samplers_start(bench.sampler) == 0, "starting the sampler");
	bench_sleep(100000000);
	read_stats(&bench, &from);

	uint64_t began = bench_now(), cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID);

	bench_sleep(interval_ns == NS_PER_MS ? BUDGETED_NS : SECONDS_NS);
	read_stats(&bench, &to);
	cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu;

	uint64_t took = bench_now() - began, ticks = to.total_snapshots - from.total_snapshots;

	bench_sampler_end(&bench);
	return (struct pace){
		.capture_percent = 100 * (double)ticks / (double)(to.total_slots - from.total_slots),
		.error_us =
			(double)(to.total_sleep_timing_error - from.total_sleep_timing_error) / (double)ticks / 1000,
		.cpu_percent = 100 * (double)cpu / (double)took,
	};
}

static void report(const struct bench_targets *targets, uint64_t interval_ns, enum config_wait wait)
{
	char rate[80], error[80], cpu[80];
	bool budgeted = interval_ns == NS_PER_MS;
	unsigned hertz = (unsigned)(NS_PER_S / interval_ns);
	const char *how = wait == CONFIG_WAIT_SPIN ? "spinning" : "sleeping";
	struct pace bare = run_bare(interval_ns);
	struct pace pace = run(targets, interval_ns, wait);

	snprintf(rate, sizeof rate, "capture rate, %u processes, %u Hz, %s", TARGETS, hertz, how);
	snprintf(error, sizeof error, "  mean wake-up error");
	snprintf(cpu, sizeof cpu, "  CPU, of one core");
	bench_report((struct bench_row){ rate, "%", pace.capture_percent, bare.capture_percent,
					 budgeted ? BENCH_AT_LEAST : BENCH_NO_LIMIT, 99.9 });
	bench_report((struct bench_row){ error, "us", pace.error_us, bare.error_us,
					 budgeted ? BENCH_AT_MOST : BENCH_NO_LIMIT,
					 wait == CONFIG_WAIT_SPIN ? 5 : 60 });
	bench_report((struct bench_row){ cpu, "%", pace.cpu_percent, 0, BENCH_NO_LIMIT, 0 });
}

/* ---- under a quota ---- */

#define QUOTA_TARGETS 1000u
#define QUOTA_PERCENT 5u
#define QUOTA_PERIOD_US 100000u
#define WATCHED_NS (16 * NS_PER_S)
#define LOOK_NS (100 * NS_PER_MS)
#define LOOKS ((unsigned)(WATCHED_NS / LOOK_NS))
#define KEPT_LOOKS 20u /* two seconds */

static struct bench_spikewatch daemon_;
static char group[300];

static void remove_group(void)
{
	if (group[0])
		rmdir(group);
}

static bool write_to_group(const char *name, const char *text)
{
	char path[400];

	snprintf(path, sizeof path, "%s/%s", group, name);

	FILE *file = fopen(path, "w");

	return file && (fputs(text, file) >= 0) + (fclose(file) == 0) == 2;
}

/* A cgroup with that quota; where its processes enter it. False: there can be none here. */
static bool make_group(char *procs, size_t cap)
{
	struct cgroup_mounts *mounts;
	char text[64];
	bool v2 = false, made;

	bench_need(cgroup_mounts_new("/proc", "", &mounts) == 0, "cgroups");

	const char *top = cgroup_mounts_controller(mounts, CGROUP_CPU, &v2);

	snprintf(group, sizeof group, "%.200s/spikewatch-bench-%d", top ? top : "", (int)getpid());
	made = top && mkdir(group, 0755) == 0;
	cgroup_mounts_free(mounts);
	if (!made) {
		group[0] = '\0';
		return false;
	}
	snprintf(procs, cap, "%s/cgroup.procs", group);
	snprintf(text, sizeof text, v2 ? "%u %u\n" : "%u\n", QUOTA_PERIOD_US / 100 * QUOTA_PERCENT, QUOTA_PERIOD_US);
	return write_to_group(v2 ? "cpu.max" : "cpu.cfs_quota_us", text);
}

/* Slots so far, those that were taken, and how far apart they are. */
struct slots {
	uint64_t all, taken, interval_ns;
};

static struct slots read_slots(void)
{
	struct stats stats = { 0 };
	int dirfd = daemon_.ring ? -1 : open(daemon_.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd >= 0 && ring_open(dirfd, "ring", false, &daemon_.ring) < 0)
		daemon_.ring = NULL;
	if (dirfd >= 0)
		close(dirfd);
	if (!daemon_.ring || ring_stats(daemon_.ring, &stats) < 0)
		return (struct slots){ 0 };
	return (struct slots){ stats.total_slots, stats.total_snapshots, stats.collection_rate };
}

static double captured(const struct slots *from, const struct slots *to)
{
	return to->all > from->all ? 100 * (double)(to->taken - from->taken) / (double)(to->all - from->all) : 0;
}

/*
 * From the first moment on from which, for the next two seconds and for the rest of the time, nine in ten
 * of the ticks came, the rate is one that can be kept.
 */
static void report_quota(unsigned target_cpu)
{
	static struct slots slots[LOOKS];
	struct bench_targets many_targets = { .count = QUOTA_TARGETS, .name = "bench_pace", .cpu = target_cpu };
	char procs[400];
	unsigned settled = LOOKS - 1;

	if (!make_group(procs, sizeof procs)) {
		printf("(no cgroup with a quota can be made here)\n");
		return;
	}
	bench_targets_start(&many_targets);
	daemon_.group = procs;
	bench_spikewatch_configure(&daemon_, "1ms",
				   "\"targets\": [ { \"name\": \"many\", \"comm\": \"bench_pace\", \"per\": "
				   "\"process\" } ], \"rules\": [ { \"name\": \"cpu\", \"metric\": \"cpu_cores\", "
				   "\"window\": \"1s\", \"above\": 0.9 } ]");

	uint64_t began = bench_now();

	bench_spikewatch_begin(&daemon_);
	for (unsigned i = 0; i < LOOKS; i++) {
		bench_sleep_until(began + (i + 1) * LOOK_NS);
		slots[i] = read_slots();
	}
	while (settled > 0 && slots[settled - 1].all > 0 &&
	       captured(&slots[settled - 1],
			&slots[settled - 1 + KEPT_LOOKS < LOOKS ? settled - 1 + KEPT_LOOKS : LOOKS - 1]) >= 90)
		settled--;

	unsigned watched = 0;

	while (watched < LOOKS - 1 && getenv("BENCH_TRACE") && ++watched)
		printf("%5.1f s: %6.0f slots %6.0f taken, interval %.0f ms\n", (double)(watched + 1) / 10,
		       (double)slots[watched].all, (double)slots[watched].taken,
		       (double)slots[watched].interval_ns / 1e6);
	bench_report((struct bench_row){ "1,000 processes at 1 kHz under a CPU quota of 5 %: settles after", "s",
					 (double)((settled + 1) * LOOK_NS) / 1e9, 0, BENCH_AT_MOST, 5 });
	bench_report((struct bench_row){
		.what = "  at an interval of", .unit = "ms", .measured = (double)slots[LOOKS - 1].interval_ns / 1e6 });
	bench_report((struct bench_row){ "  ticks that came when due, from then on", "%",
					 captured(&slots[settled], &slots[LOOKS - 1]), 0, BENCH_AT_LEAST, 95 });
	bench_spikewatch_end(&daemon_);
	bench_targets_end(&many_targets);
	remove_group();
}

int main(int argc, char **argv)
{
	unsigned own_cpu = bench_nth_cpu(0), target_cpu = bench_nth_cpu(1);
	struct bench_targets targets = { .count = TARGETS, .cpu = target_cpu };
	bool quota_alone = argc > 1 && strcmp(argv[1], "quota") == 0;

	bench_raise_descriptors();
	bench_spikewatch_make(&daemon_, NULL, NULL);
	atexit(remove_group);
	report_quota(target_cpu);
	if (quota_alone)
		return 0;

	bench_pin(own_cpu);
	bench_targets_start(&targets);
	for (unsigned spin = 0; spin < 2; spin++)
		for (uint64_t interval_ns = 10 * NS_PER_MS; interval_ns >= 100 * NS_PER_US; interval_ns /= 10)
			report(&targets, interval_ns, spin ? CONFIG_WAIT_SPIN : CONFIG_WAIT_SLEEP);
	bench_targets_end(&targets);

	return 0;
}
