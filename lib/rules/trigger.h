/*
 * trigger.h: does this value of this target make this rule fire, and why (not)? A pure function of
 * rule, state, time and value; it does not know what a dump is.
 *
 *	ARMED ── candidate, for = 0 or held for `for` ──▶ fires ── next step ──▶ COOLDOWN
 *	│   ▲                                               ▲                      │ cooldown over
 *	│   │ no candidate any more                         │ held for `for`       ▼
 *	└▶ PENDING ─────────────────────────────────────────┘     ARMED, or DISARMED until re-armed
 *
 * The order in which a value is judged is fixed and written at enum trigger_reason.
 */
#ifndef SPIKEWATCH_LIB_RULES_TRIGGER_H
#define SPIKEWATCH_LIB_RULES_TRIGGER_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* In the order of judgement; the first that applies is the reason. Names: trigger_reason_name(). */
enum trigger_reason {
	TRIGGER_UNAVAILABLE,   /* no value */
	TRIGGER_WARMING_UP,    /* fewer than warmup windows of history */
	TRIGGER_BELOW_MINIMUM, /* value < minimum */
	TRIGGER_ABOVE_MAXIMUM, /* value >= maximum: protects a machine that is already drowning */
	TRIGGER_ABOVE_PERCENT, /* candidate: value > percent (or > above, for metrics in absolute units) */
	TRIGGER_ABOVE_AVERAGE, /* candidate: value >= average x (100 + delta) / 100, and more than nothing */
	TRIGGER_BELOW_PERCENT, /* candidate: value < percent, of a rule that is `below` */
	TRIGGER_WITHIN_BOUNDS, /* else */
	/* why a candidate did not fire */
	TRIGGER_PENDING, /* has not held for `for` yet; overlaps the window that fired last; still rises (`maximum`) */
	TRIGGER_COOLDOWN,
	TRIGGER_NOT_REARMED, /* has not been below the threshold since it fired, or is not above the high-water mark */
	TRIGGER_COUNT_LIMIT,
	TRIGGER_DISK_BUDGET,
	TRIGGER_REASONS
};

enum trigger_rearm {
	TRIGGER_REARM_COOLDOWN,   /* as soon as the cooldown is over */
	TRIGGER_REARM_BELOW,      /* and a value has been below-minimum or within-bounds since it fired */
	TRIGGER_REARM_HIGH_WATER, /* and the value exceeds the highest seen in any earlier firing */
};

/* What `delta` is above: a figure of the windows of the history. */
enum trigger_usual {
	TRIGGER_USUAL_AVERAGE,
	TRIGGER_USUAL_HIGHEST, /* what comes again within the history is usual, however short it is */
};

/* A value. A threshold that is not configured never fires: hence the has_*. */
struct trigger_rule {
	bool has_percent, has_delta, has_minimum, has_maximum;
	bool below;     /* percent is what the value has to be below; without delta, and no distance is measured */
	double percent; /* `percent` or `above`, in the unit of the metric */
	double delta;   /* percent above what is usual */
	enum trigger_usual usual;
	double minimum;
	double maximum;
	uint32_t warmup;  /* windows with a value; at most history */
	uint32_t history; /* windows with a value in the average; 1 .. TRIGGER_HISTORY_MAX */
	uint64_t for_ns;
	uint64_t cooldown_ns;
	uint32_t count;           /* firings per count_period; 0: no limit */
	uint64_t count_period_ns; /* 0: ever */
	enum trigger_rearm rearm;
};

#define TRIGGER_HISTORY_MAX 1000

enum trigger_phase { TRIGGER_ARMED, TRIGGER_IN_PENDING, TRIGGER_IN_COOLDOWN, TRIGGER_DISARMED };

/*
 * What must survive a restart; on the wall clock, because monotonic time does not outlive a boot.
 */
struct trigger_memory {
	wall_t cooldown_until; /* 0: none */
	wall_t count_since;    /* the first firing in the period in which `count` counts; the period starts there */
	uint64_t fired;        /* firings ever */
	double high_water;     /* highest value that ever fired; 0 with fired == 0 */
	uint32_t count;        /* firings in the period */
	bool disarmed;         /* waits for the value to come down (TRIGGER_REARM_BELOW) */
};

/* True if there is nothing new to remember. */
static inline bool trigger_memory_equal(const struct trigger_memory *a, const struct trigger_memory *b)
{
	return a->cooldown_until.ns == b->cooldown_until.ns && a->count_since.ns == b->count_since.ns &&
	       a->count == b->count && a->fired == b->fired && a->high_water == b->high_water &&
	       a->disarmed == b->disarmed;
}

struct trigger_state; /* opaque: one per (rule, target) */

/*
 * One position of a sliding window, as far as the trigger has to know it.
 *
 * Windows of a rule overlap: one ends every step_ns. Of those, the whole ones lie end to end: they
 * alone make the history, and each is counted once.
 */
struct trigger_window {
	mono_t now; /* its end */
	wall_t wall;
	uint64_t window_ns; /* length of the rule's windows */
	uint64_t step_ns;   /* since the end of the one judged or judgeable before */
	bool whole;
	bool apart;     /* begins when the last whole one had ended, or later */
	bool disk_ok;   /* there is room for an incident; need not be known unless trigger_wants says so */
	bool available; /* there is a value; one that is no finite number is unavailable */
	double value;
};

/*
 * One judgement. A step of a rule that waits for `for` within its cooldown has the reason PENDING
 * and the phase IN_COOLDOWN: the phase says what the rule waits for, the reason what this value
 * lacked first. There is one for each target of each rule: no room between its fields.
 */
struct trigger_decision {
	double value;
	double average;  /* over previous windows, the one under test excluded; or the highest of them */
	double distance; /* lowest threshold that would make it a candidate, less value; < 0: it is one */
	uint64_t cooldown_left_ns;
	uint64_t pending_ns;                  /* how long it has been a candidate, or since it last fired */
	enum trigger_reason reason;           /* why it did (candidate's reason) or did not fire */
	enum trigger_reason candidate_reason; /* candidate: ABOVE_PERCENT, ABOVE_AVERAGE or BELOW_PERCENT */
	enum trigger_phase phase;             /* after this step */
	bool fires;
	bool candidate;
	bool available;
	bool has_average;
	bool has_distance;                  /* judged against a threshold, and not held to be too high */
	bool counted;                       /* this step counted a window, for the next one: */
	enum trigger_reason counted_reason; /* what came nearest to a firing in it */
};

/*
 * A stretch above the threshold that no window caught: it was shorter than the window, or as long
 * but in no window from end to end.
 */
struct trigger_burst {
	mono_t end; /* ns 0: there was none */
	uint64_t length_ns;
	double value;      /* over the part of it that lies between two ends of steps */
	double best;       /* over the window that showed most of it */
	bool badly_placed; /* a window right over it would have been above the threshold; else it was too short */
};

/*
 * Bytes of a state, a multiple of 8: 64, and for each window of history 8, or 4 without `delta` or if
 * that is above the highest: the figure is kept to seven digits then. What the first candidate has to remember
 * is allocated with it.
 */
size_t trigger_state_size(const struct trigger_rule *rule);

/* In zeroed storage of that size, aligned to 8 bytes. */
void trigger_state_init(struct trigger_state *state, const struct trigger_rule *rule);
void trigger_state_release(struct trigger_state *state);

/* Exchanges two states of equal rules. */
void trigger_state_swap(struct trigger_state *a, struct trigger_state *b, const struct trigger_rule *rule);

/*
 * Resumes what an earlier life remembered; before the first step. A cooldown or a count's period
 * that would take longer than the rule's own (the clock was set, the rule was changed) is cut to
 * that at the first step. 0 or -ENOMEM.
 */
int trigger_restore(struct trigger_state *state, const struct trigger_memory *memory);

/*
 * A fresh state of a rule that changed remembers what the old one does, which has no more use for
 * it. Never fails.
 */
void trigger_inherit(struct trigger_state *state, struct trigger_state *old);

/*
 * What to remember, as of the last step. Within one life time is measured on the monotonic clock,
 * and this follows the wall clock.
 */
const struct trigger_memory *trigger_memory(const struct trigger_state *state);

/*
 * Whether a window that is not whole must be stepped: it is a candidate, or too high, or ends
 * something that is under way. Any other one changes nothing but the value that is shown. The value
 * of a whole window that this one does not overlap enters the history. Cheap.
 */
bool trigger_wants(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window);

/* Whether something is under way, so that windows matter even if the target has not changed. */
bool trigger_is_waiting(const struct trigger_state *state);

/*
 * Judges one window. The value of a whole one enters the history when the next one that it does not
 * overlap is judged, whatever the judgement. rule is the one the state was made for. 0; -ENOMEM, at
 * the first candidate: nothing was judged. The cost does not depend on history.
 */
int trigger_step(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window,
		 struct trigger_decision *ret);

/*
 * Of a target that does not change: whether every whole window to come that has this value is no
 * candidate, and changes nothing but history and counters. Then true, *ret_reason is what each counts
 * as, and `times` of them, the last of which ends at window->now, are taken in as by so many steps, in
 * a time that does not depend on `times`. False: nothing was done.
 */
bool trigger_repeat(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window,
		    uint64_t times, enum trigger_reason *ret_reason);

/* The last decision, without what it counted. False: there was none. */
bool trigger_last(const struct trigger_state *state, const struct trigger_rule *rule, struct trigger_decision *ret);

/* What trigger_step would say of a window that is not whole, without a step. */
void trigger_peek(const struct trigger_state *state, const struct trigger_rule *rule,
		  const struct trigger_window *window, struct trigger_decision *ret);

/* The value above which a window would be a candidate now. False: none would. */
bool trigger_threshold(const struct trigger_state *state, const struct trigger_rule *rule, double *ret);

/* Remembers a burst, for trigger_burst; without memory for it, nothing. */
void trigger_note_burst(struct trigger_state *state, const struct trigger_burst *burst);

/* The last burst that was noted. */
struct trigger_burst trigger_last_burst(const struct trigger_state *state);

/*
 * How many windows were counted for each reason, in ret[TRIGGER_REASONS]; the counters stop at their
 * largest value. A window counts once: when it fires, or else when it is over, for what came nearest
 * to a firing among all that ended in it. For candidates that did not fire this is what was
 * suppressed.
 */
void trigger_reasons(const struct trigger_state *state, uint32_t *ret);

/*
 * "unavailable", "warming-up", "below-minimum", "above-maximum", "above-percent", "above-average", "below-percent",
 * "within-bounds", "pending", "cooldown", "not-re-armed", "count-limit", "disk-budget".
 */
const char *trigger_reason_name(enum trigger_reason reason);

/* As the configuration writes it. */
static inline const char *trigger_rearm_name(enum trigger_rearm rearm)
{
	return rearm == TRIGGER_REARM_BELOW ? "below" : rearm == TRIGGER_REARM_HIGH_WATER ? "high-water" : "cooldown";
}

/* "average", "highest". */
static inline const char *trigger_usual_name(enum trigger_usual usual)
{
	return usual == TRIGGER_USUAL_HIGHEST ? "highest" : "average";
}

/* "armed", "pending", "cooldown", "disarmed". */
const char *trigger_phase_name(enum trigger_phase phase);

/*
 * The highest threshold that a rule with `for` would have fired at: it fires when the least value of
 * all windows that ended in that time is above it. One for each rule and target; {0} is empty and
 * legal.
 */
struct trigger_hold {
	struct trigger_held {
		double value;
		mono_t end;
	} * queue; /* [first, count): those of that time without what a later, lower one makes irrelevant */
	size_t first, count, cap;
	bool in_row;  /* the last window could fire, and all */
	mono_t since; /* from this end on */
};

/*
 * A window was judged. 0: *ret is the value that has held for for_ns; TRIGGER_HOLD_SHORT: it has been
 * judged for less, or this window has no value that could fire; -ENOMEM.
 */
enum { TRIGGER_HOLD_SHORT = 1 };
int trigger_hold_add(struct trigger_hold *hold, uint64_t for_ns, const struct trigger_decision *decision, mono_t end,
		     double *ret);

/* Frees what it took; it is {0} then. */
static inline void trigger_hold_release(struct trigger_hold *hold)
{
	free(hold->queue);
	*hold = (struct trigger_hold){ 0 };
}

#endif
