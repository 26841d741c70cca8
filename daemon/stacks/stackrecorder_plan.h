/*
 * stackrecorder_plan.h: how large which rings are. Pure.
 */
#ifndef SPIKEWATCH_STACKRECORDER_PLAN_H
#define SPIKEWATCH_STACKRECORDER_PLAN_H

#include "stackrecorder.h"

struct stackrecorder_plan {
	uint64_t ring_bytes
		[STACKFILE_STREAM_KINDS]; /* of each CPU, powers of two; STACKFILE_BOOK: the side ring. 0: none */
	bool dwarf;                       /* those of followed threads have room for stacks */
};

struct stackrecorder_needs {
	const struct stackrecorder_options *options;
	unsigned cpus;
	uint32_t frequency;
	bool everybody; /* there are everybody's events: followed ones only for dwarf */
	bool dwarf;     /* asked for, and possible here */
	uint64_t most;  /* bytes of all CPUs; 0: three quarters of options->max_memory_bytes */
};

/* The most memory that recorder and rings may take; and what of it rings may. */
uint64_t stackrecorder_plan_memory(const struct stackrecorder_options *options);

/* All rings of a CPU together. */
uint64_t stackrecorder_plan_bytes(const struct stackrecorder_plan *plan);

/*
 * The largest rings that fit. 0; -ENOSPC: not even the smallest do, and then reason, of STACKRECORDER_REASON_MAX bytes, says it for people.
 * A plan that the kernel has no room for is followed by the one with needs->most one less than it took.
 */
int stackrecorder_plan(const struct stackrecorder_needs *needs, struct stackrecorder_plan *ret, char *reason);

#endif
