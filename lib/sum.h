/*
 * sum.h: the sum of samples whose members come and go. Pure; nothing fails.
 *
 * A member's counters count from when it joins and stay in the sum when it leaves, so no counter of a sum steps back. A gauge
 * of the sum is that of the members now, and available while every one of them has it. Limits, states and high-water marks
 * cannot be added up (the peak of a sum is not the sum of the peaks): they are unavailable.
 */
#ifndef SPIKEWATCH_SUM_H
#define SPIKEWATCH_SUM_H

#include "sample.h"

#include <stdbool.h>
#include <stdint.h>

/* CPU, CPU_USER, CPU_SYSTEM, MINOR_FAULTS, MAJOR_FAULTS, MEMORY, THREADS, FDS */
#define SUM_FIELDS 8

/* Values; {0} is the sum of nobody. */
struct sum {
	uint64_t value[SUM_FIELDS];
	uint32_t have[SUM_FIELDS]; /* members that have the field now */
	uint32_t members;
	uint32_t seen; /* mask of the fields that any member ever had */
	bool changed;  /* since sum_sample */
};

/* What one member contributes. */
struct sum_part {
	uint64_t value[SUM_FIELDS]; /* counters: the highest seen, gauges: the last */
	uint32_t mask;
};

/* *part is made anew; it belongs to the sum until it leaves. */
void sum_join(struct sum *sum, struct sum_part *part, const struct sample *now);
void sum_update(struct sum *sum, struct sum_part *part, const struct sample *now);
void sum_leave(struct sum *sum, struct sum_part *part);

/* Sets the fields above and PROCESSES in *ret, all others become unavailable. */
void sum_sample(struct sum *sum, struct sample *ret);

#endif
