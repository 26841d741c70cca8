/*
 * evaluator.h: rules over a stream of observations: for each (rule, target) it keeps the window and
 * the trigger's state and steps it at every end of a window. It does not know where they come from:
 * the same observations lead to the same decisions. Pure: time comes with the observations.
 * Allocates only when a target appears, or the configuration changes.
 *
 * Windows of a rule are consecutive and aligned: they end at multiples of its length on the
 * monotonic clock, judged by the first tick at or after that end, over the time between the two
 * observations of the target that are nearest. A window in which the sampler stalled is judged
 * once, over what has really passed. The first window of a target begins at the first such end at
 * which it is known: a part of a window is not judged.
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
 * watch.h: one watched target within the evaluator: when and how it was last seen, the windows that
 * are open on it, and the triggers of the rules that look at it. The structures are the evaluator's
 * to read and write; this module makes them and knows what an observation means.
 */

/*
 * The rules of a configuration, sorted by window length, and the lengths there are. {0} is empty
 * and legal.
 */
struct judged_target_plan {
	const struct config_rule **rules;
	size_t rule_count;
	uint64_t *lengths_ns;
	size_t length_count;
};

/* One rule on one target. */
struct judged_target_pair {
	const struct config_rule *rule;
	struct trigger_state *state;
	struct trigger_decision decision;
	bool judged; /* decision is known */
	bool owed;   /* what is to be remembered of it may not be in the memo */
};

/* The window that all rules of one length share on one target. */
struct judged_target_window {
	bool open;
	bool untouched; /* the target has not changed since from */
	mono_t edge;    /* where from would be if the target had been looked at in that tick */
	struct metric_point from;
	uint64_t peak_bytes; /* most memory since from, from included */
	size_t first, count; /* its pairs */
};

struct judged_target {
	struct judged_target *chain;   /* next in a bucket of the table */
	struct judged_target *touched; /* next of those sampled since the last tick */
	bool is_touched;
	size_t index;  /* in the table's row */
	uint32_t line; /* of writer_clocks.h: whose ticks it moves on with */
	struct target target;
	char *strings;     /* of target */
	uint64_t read_ns;  /* how often it is read; 0: every tick */
	bool seen;         /* the next four are known */
	bool since_known;  /* and so is since */
	mono_t since;      /* of the sample that was the last to differ from the one before */
	mono_t at;         /* of the last sample */
	int64_t offset_ns; /* at, less the time of its tick */
	struct sample sample;
	struct judged_target_window *windows; /* one for each length of the plan, in its order */
	size_t window_count;
	struct judged_target_pair *pairs;
	size_t pair_count;
};

/* 0 or -ENOMEM. config must outlive the plan. */
int judged_target_plan_init(struct judged_target_plan *plan, const struct config *config);

/* Frees what init took. */
void judged_target_plan_release(struct judged_target_plan *plan);

/*
 * Copies the target, pairs it with the rules that name its entry, and resumes what memo remembers
 * of each. 0 or -ENOMEM.
 */
int judged_target_new(const struct judged_target_plan *plan, const struct target *target, uint64_t read_ns,
		      const struct rule_state *rule_state, struct judged_target **ret);

/* NULL is fine. */
void judged_target_free(struct judged_target *judged_target);
CLEANUP(judged_target, free);

/*
 * writer_clocks.h: how far the ticks of each writer have come, and which windows have ended by
 * then. A writer's ticks say nothing of targets that another one looks at, so each has a time of
 * its own: windows of its targets end with its ticks. Pure.
 */

/*
 * As many as there may be sampler threads (config.h). Should there be more, some share a line,
 * whose time then goes back now and then.
 */
#define WRITER_CLOCKS_MAX 16u

struct timeline {
	bool started;
	mono_t now; /* of the last tick */
};

/* {0} is legal for release. */
struct writer_clocks {
	struct timeline lines[WRITER_CLOCKS_MAX];
	uint64_t *ended; /* of each line, windows of each length that have ended since the epoch of the clock */
};

/* For the window lengths of a plan. 0 or -ENOMEM. */
int writer_clocks_init(struct writer_clocks *writer_clocks, const struct judged_target_plan *plan);

/* Frees what init took. */
void writer_clocks_release(struct writer_clocks *writer_clocks);

/* Which line is a writer's. */
static inline uint32_t writer_clocks_of(uint32_t writer)
{
	return writer % WRITER_CLOCKS_MAX;
}

/*
 * A tick. False: time went back (a clock that began anew, another boot). In that case, and with the
 * first tick, a window ends only if that is right now.
 */
bool writer_clocks_step(struct writer_clocks *writer_clocks, const struct judged_target_plan *plan, uint32_t line,
			mono_t now);

/* Whether windows of the plan's length g have ended since this was asked last. */
bool writer_clocks_end(struct writer_clocks *writer_clocks, const struct judged_target_plan *plan, uint32_t line,
		       size_t g);

/*
 * Makes next, which is of next_plan, go on where old is. lengths: for each length of next_plan its
 * place in plan; SIZE_MAX: it is new, and has no window open: the next end is the first that
 * counts.
 */
void writer_clocks_inherit(struct writer_clocks *next, const struct judged_target_plan *next_plan,
			   const struct writer_clocks *old, const struct judged_target_plan *plan,
			   const size_t *lengths);

struct evaluator;

/* One rule fired on one target, or one of its windows was judged. Valid during the call. */
struct evaluator_firing {
	const struct config_rule *rule;
	const struct target *target;
	mono_t from, to;             /* the window: the two observations it lies between */
	wall_t wall;                 /* of to */
	const struct sample *sample; /* as last seen by then */
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
	const uint32_t *reasons; /* TRIGGER_REASONS counters */
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
	struct rule_state *rule_state; /* what earlier lives remembered; NULL: none; is kept up to date */
	int (*fire)(void *ctx, const struct evaluator_firing *firing); /* must not call back into the evaluator */
	bool (*disk_ok)(void *ctx);                                    /* NULL: always. Asked at most once in a tick */
	/*
	 * Every window that was judged, before fire; must not call back either. NULL: nobody wants
	 * to know.
	 */
	void (*judged)(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision);
	/*
	 * The same with all there is to say of it; decision->fires says whether fire comes next.
	 * NULL as well.
	 */
	void (*witness)(void *ctx, const struct evaluator_firing *window);
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
 * Another configuration, in two steps: prepare takes all memory, changes nothing and is undone by
 * drop; commit puts config in force in place of the one before, which nothing refers to afterwards,
 * and cannot fail. config must outlive the evaluator. Nothing may be handed to the evaluator in
 * between. 0 or -ENOMEM. Not from within fire.
 *
 * A target whose entry is the same (config_target_same) stays, with what is known of it; a rule
 * that is the same (config_rule_same) keeps its whole state on each target that it looks at before
 * and after. A rule that changed begins anew with what is remembered under its name, cut to what it
 * says now; a new window length begins with its next end.
 *
 * Targets of entries that changed or are not there any more are dropped, and stay away: later
 * samples and descriptions of theirs are ignored. They are told from those of the new configuration
 * by their ids, which are given in order: do this before anything that was described under the new
 * configuration comes by, and after all, as far as possible, that came before.
 */
struct evaluator_reload;
int evaluator_reload_prepare(struct evaluator *evaluator, const struct config *config, struct evaluator_reload **ret);
void evaluator_reload_commit(struct evaluator_reload *reload);
void evaluator_reload_drop(struct evaluator_reload *reload);
CLEANUP(evaluator_reload, drop);

/* Visits every (rule, target) until visit returns non-zero. */
int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx);

/* The same of one target; 0 also if it is not known (any more). */
int evaluator_visit_one(const struct evaluator *evaluator, uint32_t id,
			int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx);

/*
 * Visits every known target, those that no rule looks at too, until visit returns non-zero, and
 * returns that.
 */
int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx);

/* (rule, target) pairs judged so far. */
uint64_t evaluator_evaluations(const struct evaluator *evaluator);

#endif
