/*
 * timelines.h: how far the ticks of each writer have come, and which windows have ended by then. A writer's ticks say nothing of targets that another
 * one looks at, so each has a time of its own: windows of its targets end with its ticks. Pure.
 */
#ifndef SPIKEWATCH_TIMELINES_H
#define SPIKEWATCH_TIMELINES_H

#include "clock.h"
#include "watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As many as there may be sampler threads (config.h). Should there be more, some share a line, whose time then goes back now and then. */
#define TIMELINES_MAX 16u

struct timeline {
	bool started;
	mono_t now; /* of the last tick */
};

/* {0} is legal for release. */
struct timelines {
	struct timeline lines[TIMELINES_MAX];
	uint64_t *ended; /* of each line, windows of each length that have ended since the epoch of the clock */
};

/* For the window lengths of a plan. 0 or -ENOMEM. */
int timelines_init(struct timelines *timelines, const struct watch_plan *plan);

/* Frees what init took. */
void timelines_release(struct timelines *timelines);

/* Which line is a writer's. */
static inline uint32_t timelines_of(uint32_t writer)
{
	return writer % TIMELINES_MAX;
}

/*
 * A tick. False: time went back (a clock that began anew, another boot). In that case, and with the first tick, a window ends only if that
 * is right now.
 */
bool timelines_step(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, mono_t now);

/* Whether windows of the plan's length g have ended since this was asked last. */
bool timelines_end(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, size_t g);

/*
 * Makes next, which is of next_plan, go on where old is. lengths: for each length of next_plan its place in plan; SIZE_MAX: it is new, and has no window
 * open: the next end is the first that counts.
 */
void timelines_inherit(struct timelines *next, const struct watch_plan *next_plan, const struct timelines *old,
		       const struct watch_plan *plan, const size_t *lengths);

#endif
