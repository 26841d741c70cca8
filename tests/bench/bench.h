/*
 * bench.h: what the benchmarks share: clocks, CPUs, and the rows of the one table that `make bench`
 * prints.
 *
 * A figure is held against a floor or a peer that was measured in the same run, in turns with it,
 * so that a machine that is slow or busy at the moment is so for both. CPU time is that of the
 * measuring thread: what else runs does not count.
 */
#ifndef SPIKEWATCH_BENCH_H
#define SPIKEWATCH_BENCH_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum bench_limit { BENCH_NO_LIMIT, BENCH_AT_MOST, BENCH_AT_LEAST, BENCH_RATIO_AT_MOST };

struct bench_row {
	const char *what;
	const char *unit;
	double measured;
	double against; /* a floor or a peer, measured in the same run. 0: nothing to hold it against */
	enum bench_limit limit;
	double budget; /* in the unit, or of the ratio */
};

/* A number of about four digits. */
static inline const char *bench_number(double value, const char *unit, char *buf, size_t cap)
{
	int digits = value < 10 ? 2 : value < 100 ? 1 : 0;

	snprintf(buf, cap, "%.*f %s", digits, value, unit);
	return buf;
}

static inline bool bench_within(const struct bench_row *row)
{
	switch (row->limit) {
	case BENCH_AT_MOST:
		return row->measured <= row->budget;
	case BENCH_AT_LEAST:
		return row->measured >= row->budget;
	case BENCH_RATIO_AT_MOST:
		return row->measured <= row->budget * row->against;
	case BENCH_NO_LIMIT:
		break;
	}
	return true;
}

static inline void bench_report(struct bench_row row)
{
	static const char *const signs[] = { "", "<= ", ">= ", "<= " };
	char measured[32], against[32] = "", ratio[16] = "", budget[32] = "";

	if (row.against > 0) {
		bench_number(row.against, row.unit, against, sizeof against);
		snprintf(ratio, sizeof ratio, "%.2f", row.measured / row.against);
	}
	if (row.limit != BENCH_NO_LIMIT)
		bench_number(row.budget, row.limit == BENCH_RATIO_AT_MOST ? "x" : row.unit, budget, sizeof budget);
	printf("%-66s %12s %12s %6s %3s%-9s %s\n", row.what,
	       bench_number(row.measured, row.unit, measured, sizeof measured), against, ratio, signs[row.limit],
	       budget,
	       row.limit == BENCH_NO_LIMIT ? ""
	       : bench_within(&row)        ? "ok"
					   : "MISSED");
	fflush(stdout);
}

/* Ends the benchmark when what it stands on does not work. */
static inline void bench_need(bool works, const char *what)
{
	if (works)
		return;
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static inline uint64_t bench_clock(clockid_t clock)
{
	struct timespec at;

	bench_need(clock_gettime(clock, &at) == 0, "clock_gettime");
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static inline uint64_t bench_now(void)
{
	return bench_clock(CLOCK_MONOTONIC);
}

static inline uint64_t bench_cpu(void)
{
	return bench_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* What one pair of bench_cpu costs by itself. */
static inline uint64_t bench_cpu_cost(void)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t from = bench_cpu(), took = bench_cpu() - from;

		least = took < least ? took : least;
	}
	return least;
}

static inline void bench_sleep_until(uint64_t ns)
{
	struct timespec at = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		continue;
}

static inline void bench_sleep(uint64_t ns)
{
	bench_sleep_until(bench_now() + ns);
}

/*
 * The nth of the CPUs that this benchmark was started on; they come round again. Ask before
 * pinning.
 */
static inline unsigned bench_nth_cpu(int nth)
{
	cpu_set_t set;

	bench_need(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");

	int left = nth % CPU_COUNT(&set);
	unsigned cpu = 0;

	while (!CPU_ISSET(cpu, &set) || left-- > 0)
		cpu++;
	return cpu;
}

/* Pins the calling thread, and what it will start. */
static inline void bench_pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	bench_need(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

/* A thousand targets need thousands of descriptors. */
static inline void bench_raise_descriptors(void)
{
	struct rlimit limit;

	bench_need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
	limit.rlim_cur = limit.rlim_max;
	bench_need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

static inline int bench_compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Sorts. */
static inline double bench_median(double *values, size_t count)
{
	qsort(values, count, sizeof *values, bench_compare);
	return values[count / 2];
}

#endif
