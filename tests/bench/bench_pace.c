/*
 * bench_pace.c: does the sampler keep its deadlines: capture rate, mean error of a wake-up, CPU, by
 * rate and by the way of waiting. Held against a bare loop of clock_nanosleep with the same timer
 * slack, a moment before, which looks at nothing.
 */
#include "bench_targets.h"
#include "lib/model/sample.h"

#define TARGETS 100u
#define SECONDS_NS 2000000000u
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

	bench_sleep(SECONDS_NS);
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

int main(void)
{
	unsigned own_cpu = bench_nth_cpu(0);
	struct bench_targets targets = { .count = TARGETS, .cpu = bench_nth_cpu(1) };

	bench_pin(own_cpu);
	bench_raise_descriptors();
	bench_targets_start(&targets);
	for (unsigned spin = 0; spin < 2; spin++)
		for (uint64_t interval_ns = 10 * NS_PER_MS; interval_ns >= 100 * NS_PER_US; interval_ns /= 10)
			report(&targets, interval_ns, spin ? CONFIG_WAIT_SPIN : CONFIG_WAIT_SLEEP);
	bench_targets_end(&targets);

	return 0;
}
