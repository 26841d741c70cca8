/*
 * evaluator.h: judges the rules of a configuration over the events of a ring. For each pair of rule
 * and target it keeps the open window and the state of the trigger, and steps the trigger whenever a
 * window has ended. The same events lead to the same decisions: time comes with the events. Pure;
 * allocates only when a target appears or the configuration changes.
 *
 * Windows slide: one ends every tenth of its length, at the same moments of the monotonic clock for
 * all targets, and is judged by the first tick at or after that end, over the time between the two
 * observations of the target that are nearest to its ends. Every tenth of them ends at a multiple of
 * its length: these whole windows lie end to end, make the history, and are counted. Windows in which
 * the sampler stalled are judged once, over the time that really passed. The first window of a target
 * begins at the first end of a step at which it is known: a part of a window is not judged.
 */
#ifndef SPIKEWATCH_LIB_EVALUATOR_EVALUATOR_H
#define SPIKEWATCH_LIB_EVALUATOR_EVALUATOR_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * As many writers as there may be sampler threads (config.h) have a clock of their own: a writer's
 * ticks say nothing of the targets that another one samples. Writers beyond share one.
 */
#define WRITER_CLOCKS_MAX 16u

/* The clock of a writer. */
static inline uint32_t writer_clocks_of(uint32_t writer)
{
	return writer % WRITER_CLOCKS_MAX;
}

struct evaluator;

/* One rule fired on one target, or looked at one of its windows. Valid during the call. */
struct evaluator_firing {
	const struct config_rule *rule;
	const struct target *target;
	mono_t from, to;       /* the window: the two observations it lies between */
	uint64_t unsampled_ns; /* of it, in holes of the sampling (RING_EVENT_HOLE): the value is over all of it */
	mono_t end;            /* nominal: `for` and cooldowns are counted between these */
	bool whole;            /* one of those that lie end to end */
	wall_t wall;           /* of to */
	const struct sample *sample; /* as last seen by then */
	const struct trigger_decision *decision;
	const struct trigger_rule *effective; /* thresholds */
	uint64_t cpu_limit, memory_limit;     /* as in the last sample; UINT64_MAX unknown */
};

/* One rule on one target: why it fired or did not. Valid during the call. */
struct evaluator_status {
	const struct config_rule *rule;
	const struct target *target;
	const struct trigger_decision *decision; /* the last one; NULL before the first window ended */
	const struct trigger_memory *memory;
	const uint32_t *reasons;     /* TRIGGER_REASONS counters, of windows */
	struct trigger_burst burst;  /* the last one that no window caught */
	const struct sample *sample; /* of the target, the last one; NULL: none, or before a gap */
};

/* What is known of one target. Valid during the call. */
struct evaluator_sight {
	const struct target *target;
	bool seen;                   /* the next two are known: a gap makes a target unseen until its next sample */
	mono_t at;                   /* of the last sample */
	const struct sample *sample; /* the last one; NULL: none */
};

struct evaluator_options {
	const struct config *config; /* must outlive the evaluator, or its reload */
	struct metric_machine machine;
	struct rule_state *rule_state; /* from earlier runs, and is kept up to date; NULL: none */
	/* The callbacks must not call back into the evaluator. */
	int (*fire)(void *ctx, const struct evaluator_firing *firing);
	bool (*disk_ok)(void *ctx); /* NULL: always. Called at most once in a tick */
	/*
	 * After windows that were counted (trigger_reasons), before fire, with decision->reason as counted; for
	 * counters. windows: how many, of as many targets; of more than one nothing else is in the decision.
	 * May be NULL.
	 */
	void (*judged)(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
		       uint32_t windows);
	/*
	 * Windows that end, whole or not, in the order of their ends, with everything there is to report
	 * of them; decision->fires: fire is next. Left out are those that need no judging because the target
	 * has not changed, unless every_window. Decisions are the same in either case. May be NULL.
	 */
	void (*witness)(void *ctx, const struct evaluator_firing *window);
	bool every_window;
	void *ctx;
};

/* 0 or -ENOMEM. Options are copied, what they point to is not. */
int evaluator_new(const struct evaluator_options *options, struct evaluator **ret);

/* NULL is fine. */
void evaluator_free(struct evaluator *evaluator);
CLEANUP(evaluator, free);

/*
 * Takes the next event of a ring (or of a recording that is played as one); events must come in the
 * order in which the reader delivers them. 0; -ENOMEM: the target of a RING_EVENT_TARGET stays
 * unknown, or keeps the name that it had; what fire returned.
 *
 *   TICK      its time, wall clock and idle interval hold up to its TICK_END
 *   TARGET    a known target is renamed; one under a new id resumes what is remembered under its
 *             key. Strings are copied.
 *   HOLE      windows that reach into it are judged over all the time that passed, and say how much
 *             of it was not sampled
 *   SAMPLE    O(1). Unknown targets are ignored.
 *   GONE      the open windows of the target are dropped
 *   TICK_END  targets of this writer without a sample were seen unchanged; the windows that have
 *             ended are judged, all of them even when fire fails: its first error is returned
 *   LAPPED,   observations are missing: open windows are dropped, each target counts again from its
 *   DAMAGED   next sample. History and candidates within `for` stay.
 *
 * A tick moves only the targets of its writer, whose windows end with that writer's ticks: times of
 * different writers need not be in order. Writers are numbered from 0 up to WRITER_CLOCKS_MAX.
 */
int evaluator_event(struct evaluator *evaluator, const struct ring_event *event);

/*
 * When the next window ends that a tick has not ended yet: before that, no tick makes a rule fire.
 * UINT64_MAX: there are no rules, or there was no tick.
 */
mono_t evaluator_next_end(const struct evaluator *evaluator);

/*
 * Another configuration, in two steps: prepare takes all memory and changes nothing; drop undoes it.
 * commit puts config in force, and nothing refers to the previous one afterwards; it cannot fail.
 * config must outlive the evaluator. No events in between. 0 or -ENOMEM. Not from within fire.
 *
 * A target whose entry is the same (config_target_same) stays. A rule that is the same
 * (config_rule_same) keeps its whole state on each target that it applies to before and after. A
 * rule that changed starts anew with what is remembered under its name (struct rule_state), cut to
 * what it says now. A new window length begins with its next end.
 *
 * Targets of entries that changed or were removed are dropped, and later events of theirs are
 * ignored. They are told from those of the new configuration by their ids, which are given in
 * order: call this before any event of a target that was selected by the new configuration, and
 * after all others as far as possible.
 */
struct evaluator_reload;
int evaluator_reload_prepare(struct evaluator *evaluator, const struct config *config, struct evaluator_reload **ret);
void evaluator_reload_commit(struct evaluator_reload *reload);
void evaluator_reload_drop(struct evaluator_reload *reload);
CLEANUP(evaluator_reload, drop);

/* Visits every (rule, target) until visit returns non-zero. */
int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx);

/* The same of one target; 0 also if it is not known. */
int evaluator_visit_one(const struct evaluator *evaluator, uint32_t id,
			int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx);

/* Visits every known target, with or without rules, until visit returns non-zero; returns that. */
int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx);

#endif
