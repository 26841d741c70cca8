/*
 * tapeclock.h: the ticks of a stream of samples, which does not say them: one where rows are, and between them one every interval for as long as
 * targets can have been idle. Each writer (ring.h) has its own. Only for tape.c.
 */
#ifndef SPIKEWATCH_TAPECLOCK_H
#define SPIKEWATCH_TAPECLOCK_H

#include "clock.h"
#include "ring.h"
#include "rowpace.h"
#include "tape.h"
#include "timelines.h"

#include <stdbool.h>
#include <stdint.h>

/* The ticks of one writer. */
struct tapeclock_line {
	bool started;    /* there was one, the next two are known */
	mono_t tick;     /* the last one, */
	uint64_t number; /* and its number */
};

/* Start with options, summary and pace.interval_ns. The first two must outlive it. */
struct tapeclock {
	const struct tape_options *options;
	struct tape_summary *summary; /* its ticks and times are counted here */
	struct rowpace pace;
	struct tapeclock_line lines[TIMELINES_MAX];
	bool open;         /* a tick is, */
	uint32_t writer;   /* of this one; if none is, of the last */
	uint64_t number;   /* of ticks that there were */
	uint64_t restarts; /* tapeclock_restart was called so often */
};

/* The ticks of a writer. */
static inline struct tapeclock_line *tapeclock_line(struct tapeclock *clock, uint32_t writer)
{
	return &clock->lines[timelines_of(writer)];
}

/* An event within the last tick of this writer. */
struct ring_event tapeclock_event(struct tapeclock *clock, enum ring_event_type type, uint32_t writer, uint32_t id);

/* Ends the tick that is open, if one is. 0 or what options->event returned, as below. */
int tapeclock_end(struct tapeclock *clock);

/* Begins a tick of this writer at `at`, after those in which nothing changed. */
int tapeclock_next(struct tapeclock *clock, uint32_t writer, mono_t at);

/* Makes the tick that a row at `at` belongs to the open one. again: its target has a row in this writer's last tick already. */
int tapeclock_reach(struct tapeclock *clock, uint32_t writer, mono_t at, bool again);

/* Another stream, perhaps of earlier. */
void tapeclock_restart(struct tapeclock *clock);

#endif
