/*
 * health.h: speaks for the sampler, which never speaks itself: judges its counters over the last span (stats.h) and says in the log
 * when a condition begins, when it ends and, at the stop, how it was on the whole. Never a flood: a condition that goes on is silent.
 */
#ifndef SPIKEWATCH_HEALTH_H
#define SPIKEWATCH_HEALTH_H

#include "clock.h"
#include "discovery.h"
#include "stats.h"

#include <stdbool.h>
#include <stdint.h>

/* Conditions are judged over so much time: a single late wake-up of a busy machine is no condition. */
#define HEALTH_SPAN_NS (10 * NS_PER_S)

/* Zeroed is the right start. */
struct health {
	struct stats since;
	mono_t judged;
	bool bad[VERDICT_KINDS];
	uint64_t episodes[VERDICT_KINDS];
	uint32_t slowdown;
	bool refused, failed, unreadable, unfinished; /* as last said */
};

/* Looks at the counters as of now; logs what changed. */
void health_judge(struct health *health, const struct stats *stats, mono_t now);

/* Says when the CPU budget begins or ceases to lengthen the interval. share: CPU of this process, of one core. */
void health_slowdown(struct health *health, uint32_t slowdown, double share);

/* Says when targets cannot be watched, and why. */
void health_discovery(struct health *health, const struct discovery_state *state);

/* The last words: verdicts over the whole run. */
void health_summary(const struct health *health, const struct stats *stats);

#endif
