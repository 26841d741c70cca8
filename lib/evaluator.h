/*
 * evaluator.h: rules over a stream of observations: for each (rule, target) it keeps the window and the trigger's state and steps it
 * at every end of a window. The daemon feeds it from the ring, a replay from a recording: the same code takes the same decisions.
 * Pure: time comes with the observations. Allocates only when a target appears.
 *
 * Windows of a rule are consecutive and aligned: they end at multiples of its length on the monotonic clock, judged by the
 * first tick at or after that end.
 */
#ifndef SPIKEWATCH_EVALUATOR_H
#define SPIKEWATCH_EVALUATOR_H

#include "clock.h"
#include "config.h"
#include "memo.h"
#include "metric.h"
#include "target.h"
#include "trigger.h"

struct evaluator;

/* One rule fired on one target. Valid during the call. */
struct evaluator_firing {
	const struct config_rule *rule;
	const struct target *target;
	mono_t from, to;  /* the window */
	wall_t wall;      /* its end */
	const struct trigger_decision *decision;
	const struct trigger_rule *effective; /* thresholds */
	uint64_t cpu_limit, memory_limit;     /* as in the last sample; UINT64_MAX unknown */
};

/* One row of "why did it (not) fire". Valid during the call. */
struct evaluator_status {
	const struct config_rule *rule;
	const struct target *target;
	const struct trigger_decision *decision; /* the last one; NULL before the first window ended */
	const struct trigger_memory *memory;
	const uint64_t *reasons;                 /* TRIGGER_REASONS counters */
};

struct evaluator_options {
	const struct config *config;        /* must outlive the evaluator */
	struct metric_machine machine;
	struct memo *memo;                  /* what earlier lives remembered; may be NULL; is kept up to date */
	int (*fire)(void *ctx, const struct evaluator_firing *firing);
	bool (*disk_ok)(void *ctx);         /* NULL: always */
	void *ctx;
};

int evaluator_new(const struct evaluator_options *options, struct evaluator **ret);
void evaluator_free(struct evaluator *evaluator);

/* Events, in the order of the ring. 0 or -ENOMEM. Unknown ids are ignored. */
int evaluator_target(struct evaluator *evaluator, const struct target *target);
void evaluator_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample);
void evaluator_gone(struct evaluator *evaluator, uint32_t id);

/* All samples up to tick `now` were delivered: judges the windows that have ended. Returns the first non-zero return of fire. */
int evaluator_tick(struct evaluator *evaluator, mono_t now, wall_t wall);

/* Observations are missing (the reader was overtaken): windows that are open are dropped, not judged. */
void evaluator_gap(struct evaluator *evaluator);

/* Visits every (rule, target) until visit returns non-zero. */
int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx);

/* (rule, target) pairs judged so far. */
uint64_t evaluator_evaluations(const struct evaluator *evaluator);

#endif
