/*
 * sum.h: the sum of samples whose members come and go. Pure; nothing fails.
 *
 * A member's counters count from when it joins, or from its beginning, and stay in the sum when it leaves, so no counter of a sum steps back. A gauge
 * of the sum is that of the members now, and available while every one of them has it. Limits, states and high-water marks
 * cannot be added up (the peak of a sum is not the sum of the peaks): they are unavailable.
 */
#ifndef SPIKEWATCH_SUM_H
#define SPIKEWATCH_SUM_H

#include "sample.h"

#include <stdbool.h>
#include <stdint.h>

/* CPU, CPU_USER, CPU_SYSTEM, MINOR_FAULTS, MAJOR_FAULTS, MEMORY, THREADS, FDS; the counters are the first */
#define SUM_FIELDS 8
#define SUM_COUNTERS 5

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
	uint64_t value[SUM_FIELDS]; /* also after it left; counters: the highest seen, gauges: the last */
	uint32_t mask;
};

/* Those fields of a sample that are counters of a sum, in a quarter of the room. */
struct sum_counters {
	uint64_t value[SUM_COUNTERS];
	uint32_t mask;
};

/* Of a sample, all counters that it has. */
void sum_keep(struct sum_counters *kept, const struct sample *sample);

/* Sets those that were kept in *ret. */
void sum_kept(const struct sum_counters *kept, struct sample *ret);

/* Before sum_join with begun: *part's counters count from *since; those that it has not, from *now. A part of {0} counts from 0. */
void sum_begin(struct sum_part *part, const struct sample *since, const struct sample *now);

/* The part belongs to the sum until it leaves. begun: its counters count from what they are in *part already, and not from *now. */
void sum_join(struct sum *sum, struct sum_part *part, const struct sample *now, bool begun);
void sum_update(struct sum *sum, struct sum_part *part, const struct sample *now);
void sum_leave(struct sum *sum, struct sum_part *part);

/* Adds to the counters what was used by somebody who is no member (any more). */
void sum_credit(struct sum *sum, const uint64_t counters[SUM_COUNTERS]);

/* Sets the fields above and PROCESSES in *ret, all others become unavailable. */
void sum_sample(struct sum *sum, struct sample *ret);

#endif
