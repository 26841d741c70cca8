/*
 * condition.h: something that is bad for a while: when to say so. Said when it begins, when it is worse than it has been since
 * then, and when it has been good for some time: a condition that comes and goes is one that lasts, and one that lasts is silent. Pure.
 */
#ifndef SPIKEWATCH_CONDITION_H
#define SPIKEWATCH_CONDITION_H

#include "clock.h"

#include <stdbool.h>
#include <stdint.h>

/* What is to be said now. */
enum condition_turn { CONDITION_SAME, CONDITION_BEGINS, CONDITION_WORSENS, CONDITION_ENDS };

/* Zeroed is the right start: all is well. */
struct condition {
	bool on;
	unsigned worst;     /* level of this episode */
	mono_t began, last; /* the first look at which it was bad, and the last one */
	uint64_t times;     /* looks at which it was bad in this episode; still readable when it ends */
};

/*
 * One look. level: 0 is good; one that is higher than all since it began is worth saying: there should be few. It ends at the first
 * good look when calm_ns have passed since the last bad one, so that there are at most two turns besides the levels in that time.
 */
enum condition_turn condition_step(struct condition *condition, unsigned level, mono_t now, uint64_t calm_ns);

/* From the first to the last bad look; also right after it has ended. */
uint64_t condition_lasted_ns(const struct condition *condition);

/* "begin", "change", "end": for log_about. NULL of CONDITION_SAME. */
const char *condition_state(enum condition_turn turn);

/* 1 for less than `step`, and one more for each factor of `step` (at least 2): a level for what may grow. 0 of 0. */
unsigned condition_level(uint64_t amount, uint64_t step);

#endif
