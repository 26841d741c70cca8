/*
 * idlepace.h: how often a target that does not change is looked at, and what follows from it for those who read the records: the one
 * promise that both sides go by. Pure.
 *
 * A target that has not changed for d is looked at again at most min(d / 8, the idle interval) later, or at the next tick. So whoever knows
 * when it last changed knows, without a record, that it was still the same so long ago; and a rate over a time that ends then is off by
 * an eighth of the idle part of it at most.
 */
#ifndef SPIKEWATCH_IDLEPACE_H
#define SPIKEWATCH_IDLEPACE_H

#include "clock.h"

#include <stdbool.h>
#include <stdint.h>

struct idlepace {
	uint64_t interval_ns; /* between two ticks; 0: every tick is for all */
	uint64_t idle_ns;     /* the longest pause; not above interval_ns: every tick is for all */
};

/* How long ago, at most, a target was looked at that had not changed for still_ns by now. */
static inline uint64_t idlepace_bound_ns(uint64_t still_ns, uint64_t idle_ns)
{
	uint64_t share_ns = still_ns / 8;

	return share_ns < idle_ns ? share_ns : idle_ns;
}

/*
 * How long after a look at a tick the next one is due: in the first tick at or after that; 0: in the next tick. still_ns: since it changed. tick: how
 * many there were; phase: any number: targets whose phases differ are looked at in different ticks.
 */
uint64_t idlepace_wait_ns(const struct idlepace *pace, uint64_t still_ns, uint32_t tick, uint32_t phase);

/*
 * When a target was last looked at for certain, by the tick at `now`: its record is from `at`, it last changed at *since (NULL: not known), and
 * no record came later. idle_ns as of that tick.
 */
mono_t idlepace_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns);

#endif
