/*
 * allowance.h: CPU time that may be taken of a core: a share of it, and what was not taken of the last second at once. Who takes more than there is has to
 * wait until time has paid for it, a second at most.
 *
 * Pure; time is an argument. What it is after a calm second is full.
 */
#ifndef SPIKEWATCH_ALLOWANCE_H
#define SPIKEWATCH_ALLOWANCE_H

#include "clock.h"

#include <stdbool.h>

struct allowance {
	unsigned share;  /* one part in so many of a core */
	int64_t left_ns; /* below 0: taken in advance */
	mono_t filled;   /* as of then */
};

/* Full. */
struct allowance allowance_of(unsigned share, mono_t now);

/* cpu_ns were taken up to now, which is not earlier than before. */
void allowance_take(struct allowance *allowance, uint64_t cpu_ns, mono_t now);

/* Whether there is nothing left. */
bool allowance_is_spent(const struct allowance *allowance, mono_t now);

#endif
