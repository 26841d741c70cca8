/*
 * pacer.h: when the sampler works: absolute deadlines, skipped slots, backoff. Pure: time comes in as arguments.
 *
 * Slot k is at start + k * interval. A slot that passed while the sampler was busy or asleep is skipped and counted,
 * never made up for by a burst. Changing the interval starts a new grid; counters go on.
 *
 *     pacer_init ─▶ [ sleep until pacer_deadline ] ─▶ pacer_wake(now) ─▶ collect ─▶ pacer_done(now) ─┐
 *                     ▲       ▲      │ a reader holds the next page                                  │
 *                     │       └─ [ sleep until what pacer_backoff(now) returns ]                      │
 *                     └───────────────────────────────────────────────────────────────────────────────┘
 */
#ifndef SPIKEWATCH_PACER_H
#define SPIKEWATCH_PACER_H

#include "clock.h"
#include "stats.h"

#include <stdint.h>

/* The factors that gVisor's profiling metrics use. */
#define PACER_BACKOFF_FIRST 1.0
#define PACER_BACKOFF_GROWTH 1.125
#define PACER_BACKOFF_MAX 256.0

struct pacer {
	struct stats *stats; /* the caller's; must outlive the pacer */
	uint64_t interval_ns;
	mono_t deadline; /* of the slot to be taken next, or being taken */
	mono_t until;    /* when the current sleep is to end: deadline, or the end of a backoff */
	mono_t woke;     /* when the collection under way began */
	double backoff;  /* factor of the next backoff sleep */
};

/* interval_ns > 0. The first slot is now. Sets the collection_rate and cheap_start_nanos of *stats. */
void pacer_init(struct pacer *pacer, struct stats *stats, mono_t now, uint64_t interval_ns);

/* When to take the next snapshot. */
mono_t pacer_deadline(const struct pacer *pacer);

/*
 * The sampler is awake at now and about to collect: counts the timing error, held against the deadline or the end of the
 * backoff, and slots that have passed since the deadline as missed. May be called early: that counts as error too.
 */
void pacer_wake(struct pacer *pacer, mono_t now);

/*
 * The snapshot is complete: counts it, falls back to the first backoff factor, and moves to the first slot after now. Slots that
 * passed meanwhile are missed.
 */
void pacer_done(struct pacer *pacer, mono_t now);

/*
 * Nothing could be taken because a reader holds the next page: counts a backoff sleep and returns until when to sleep
 * (now + interval x factor). The factor grows up to its maximum. Slots that pass meanwhile count as missed in the next pacer_wake.
 */
mono_t pacer_backoff(struct pacer *pacer, mono_t now);

/* The run ends now: slots that have elapsed since the deadline, in a backoff for instance, are missed. */
void pacer_stop(struct pacer *pacer, mono_t now);

/*
 * A new grid. Its first slot is the one that has begun and was not taken, which still can be, otherwise the next one of the old grid or
 * one interval from now, whichever comes first: changes in quick succession never put a tick off. A backoff sleep that is under way
 * ends, and counts for as long as it lasted. Not between pacer_wake and pacer_done. interval_ns > 0.
 */
void pacer_set_interval(struct pacer *pacer, mono_t now, uint64_t interval_ns);

#endif
