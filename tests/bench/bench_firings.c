/*
 * bench_firings.c: the daemon while rules fire 12,000 times a minute: a hundred processes, each above its
 * threshold in every window of half a second, no cooldown, no limit of incidents an hour, call stacks
 * with registers and stack recorded as by default.
 *
 * Told: how many fired, by the rules' own counters; how much its resident memory, without the ring, was above
 * what it was before the first one fired, and what is left of that afterwards; the ticks that came
 * when due; the longest answer; and firings that are in no incident and not counted either.
 */
#include "bench_spikewatch.h"

#include <math.h>
#include <sys/mman.h>

#define TARGETS 100u
#define GROWN_BYTES (4u << 20) /* of each target: the threshold is between that and what it had before */
#define FIRING_NS (30 * NS_PER_S)
#define SETTLE_NS (4 * NS_PER_S)
#define LOOK_NS (250 * NS_PER_MS)
#define ABOVE_REST_MIB 8
#define ANSWER_MS 100

struct rig {
	struct bench_spikewatch daemon;
	pid_t pids[TARGETS];
	_Atomic bool *grow; /* shared with the targets */
};

/* Takes its memory, and gives it back, as it is told. */
static void be_target(const struct rig *rig)
{
	void *memory = mmap(NULL, GROWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool grown = false;

	bench_need(memory != MAP_FAILED, "memory");
	for (;; bench_sleep(100 * NS_PER_MS)) {
		if (*rig->grow == grown)
			continue;
		grown = !grown;
		if (grown)
			memset(memory, 1, GROWN_BYTES);
		else
			madvise(memory, GROWN_BYTES, MADV_DONTNEED);
	}
}

static void start_targets(struct rig *rig)
{
	rig->grow = mmap(NULL, sizeof *rig->grow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_need(rig->grow != MAP_FAILED, "shared memory");
	for (size_t i = 0; i < TARGETS; i++) {
		rig->pids[i] = fork();
		bench_need(rig->pids[i] >= 0, "fork");
		if (rig->pids[i] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_firing");
		be_target(rig);
	}
}

static void end_targets(struct rig *rig)
{
	for (size_t i = 0; i < TARGETS; i++) {
		kill(rig->pids[i], SIGKILL);
		waitpid(rig->pids[i], NULL, 0);
	}
}

static void configure(struct rig *rig)
{
	const char *dir = rig->daemon.dir;
	int len = snprintf(
		rig->daemon.text, sizeof rig->daemon.text,
		"{ \"sampling\": { \"interval\": \"10ms\", \"rescan_interval\": \"1s\", \"cpu_budget\": \"90%%\" },"
		"  \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false },"
		"  \"incidents\": { \"directory\": \"%s/incidents\", \"before\": \"2s\", \"after\": \"50ms\","
		"    \"min_free\": \"0\", \"max_per_hour\": 0, \"max_count\": 100 },"
		"  \"state_file\": \"%s/state\","
		"  \"stacks\": { \"mode\": \"dwarf\" },"
		"  \"targets\": [ { \"name\": \"t\", \"comm\": \"bench_firing\", \"per\": \"process\" } ],"
		"  \"rules\": [ { \"name\": \"grown\", \"metric\": \"memory_bytes\", \"window\": \"500ms\","
		"    \"above\": \"3MiB\", \"warmup\": 0, \"cooldown\": \"0s\" } ] }",
		dir, dir, dir);

	bench_need(len > 0 && (size_t)len < sizeof rig->daemon.text, "a configuration that fits");
}

/* ---- figures ---- */

struct counts {
	double fired;                   /* by the rules, of all targets */
	double opened, merged, refused; /* what the incidents say */
	double took_ms;                 /* the answer */
};

static struct counts count(const struct rig *rig)
{
	static const char key[] = "\"fired\":";
	uint64_t began = bench_now();
	struct counts counts = { 0 };
	size_t len;
	char *status = bench_spikewatch_ask(&rig->daemon, "status", &len);

	counts.took_ms = (double)(bench_now() - began) / 1e6;
	bench_need(status, "a status");
	counts.opened = bench_status_number(status, "incidents", "opened");
	counts.merged = bench_status_number(status, "incidents", "merged");
	counts.refused = bench_status_number(status, "incidents", "refused");
	for (const char *at = status; (at = strstr(at, key)); at += strlen(key))
		counts.fired += strtod(at + strlen(key), NULL);
	free(status);
	return counts;
}

/* Until all incidents that were opened are on the disk, and a little longer: s. */
static double await_written(const struct rig *rig)
{
	uint64_t began = bench_now(), written = began;

	for (double pending = 1; pending > 0 && written - began < 30 * NS_PER_S; written = bench_now()) {
		size_t len;
		char *status;

		bench_sleep(NS_PER_S);
		status = bench_spikewatch_ask(&rig->daemon, "status", &len);
		bench_need(status, "a status");
		pending = bench_status_number(status, "incidents", "pending");
		free(status);
	}
	bench_sleep(SETTLE_NS);
	return (double)(written - began) / 1e9;
}

struct seen {
	double most_mib, longest_ms, most_descriptors;
};

static struct seen watch(const struct rig *rig)
{
	uint64_t end = bench_now() + FIRING_NS;
	struct seen seen = { 0 };

	for (uint64_t next = bench_now(); next < end; next += LOOK_NS) {
		bench_sleep_until(next);
		seen.most_mib = fmax(seen.most_mib, bench_spikewatch_memory(&rig->daemon).resident_mib);
		seen.most_descriptors = fmax(seen.most_descriptors, bench_count_descriptors(rig->daemon.pid));
		seen.longest_ms = fmax(seen.longest_ms, count(rig).took_ms);
	}
	return seen;
}

static void report(struct rig *rig)
{
	double rest_mib, rest_descriptors, left_mib, minutes, written_s;
	struct bench_meter from, to;
	struct counts before, during, after;
	struct seen seen;

	rest_mib = bench_spikewatch_memory(&rig->daemon).resident_mib;
	rest_descriptors = bench_count_descriptors(rig->daemon.pid);
	before = count(rig);
	bench_spikewatch_meter(&rig->daemon, &from);
	*rig->grow = true;
	seen = watch(rig);
	bench_spikewatch_meter(&rig->daemon, &to);
	during = count(rig);
	*rig->grow = false;
	written_s = await_written(rig);
	after = count(rig);
	left_mib = bench_spikewatch_memory(&rig->daemon).resident_mib;
	minutes = (double)(to.at_ns - from.at_ns) / 60e9;

	printf("rules that fire on 100 processes twice a second for %u s, 100 Hz\n", (unsigned)(FIRING_NS / NS_PER_S));
	bench_report((struct bench_row){ "  firings a minute", "", (during.fired - before.fired) / minutes, 0,
					 BENCH_AT_LEAST, 10000 });
	bench_report((struct bench_row){ .what = "    of them with an incident of their own",
					 .unit = "",
					 .measured = (during.opened - before.opened) / minutes });
	bench_report((struct bench_row){ "  neither in an incident nor counted (against: fired)", "",
					 fabs(after.fired - (after.opened + after.merged + after.refused)), after.fired,
					 BENCH_AT_MOST, 0 });
	bench_report((struct bench_row){ "  resident memory, without the ring, the most above its rest", "MiB",
					 seen.most_mib - rest_mib, rest_mib, BENCH_AT_MOST, ABOVE_REST_MIB });
	bench_report((struct bench_row){ .what = "    when all is written (against: its rest)",
					 .unit = "MiB",
					 .measured = left_mib,
					 .against = rest_mib });
	bench_report((struct bench_row){
		.what = "  from the last firing until all is written", .unit = "s", .measured = written_s });
	bench_report((struct bench_row){ .what = "  open descriptors, the most (against: before)",
					 .unit = "",
					 .measured = seen.most_descriptors,
					 .against = rest_descriptors });
	bench_report((struct bench_row){ "  ticks that came when due", "%", bench_meter_captured(&from, &to), 0,
					 BENCH_AT_LEAST, 99.9 });
	bench_report((struct bench_row){ "  the longest answer to `status`, of 100 targets", "ms", seen.longest_ms, 0,
					 BENCH_AT_MOST, ANSWER_MS });
	bench_report((struct bench_row){
		.what = "  the daemon, CPU, of one core", .unit = "%", .measured = bench_meter_percent(&from, &to) });
	bench_report_threads(&from, &to, 1);
}

int main(void)
{
	static struct rig rig;

	bench_raise_descriptors();
	bench_spikewatch_make(&rig.daemon, NULL, NULL);
	configure(&rig);
	start_targets(&rig);
	bench_spikewatch_start(&rig.daemon);
	bench_sleep(SETTLE_NS);
	report(&rig);
	bench_spikewatch_end(&rig.daemon);
	end_targets(&rig);

	return 0;
}
