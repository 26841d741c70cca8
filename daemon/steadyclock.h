/*
 * steadyclock.h: the time of day, believed only when nobody has set it for a while. What is removed for its age is gone: a clock that a
 * machine woke up with, or that was set by mistake, should not decide that. Pure; for one thread.
 */
#ifndef SPIKEWATCH_STEADYCLOCK_H
#define SPIKEWATCH_STEADYCLOCK_H

#include "clock.h"

#include <stdbool.h>

/* Believed after so much time without a step. */
#define STEADYCLOCK_NS (3600 * NS_PER_S)

/* Beyond this between two looks, it was set, or the machine slept. */
#define STEADYCLOCK_STEP_NS (60 * NS_PER_S)

/* Zeroed is the right start. */
struct steadyclock {
	bool looked;
	int64_t ahead_ns; /* of the monotonic clock, at the last look */
	mono_t since;     /* no step since then */
};

/* A look at both clocks. The time of day if it has been steady for STEADYCLOCK_NS; else 0, at which nothing is old. */
wall_t steadyclock_look(struct steadyclock *clock, mono_t mono, wall_t wall);

#endif
