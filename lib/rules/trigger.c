/*
 * trigger.c: one step of one rule on one target.
 *
 * A step is: advance the clocks, judge the value (is it a candidate?), check what suppresses a
 * candidate, fire or not, and only then add the value to the history. So the average never includes
 * the value it is compared with, and includes every other one: candidates, values above the maximum
 * and values of the warm-up.
 *
 * The average. Subtracting what leaves a running sum leaves rounding errors behind: after a value
 * of 1e18 has passed through, the sum of small numbers is wrong by hundreds. So nothing is ever
 * subtracted. `slots` is filled from the front; when it is full, each slot is replaced by the sum
 * of itself and all slots after it, and filling starts again at the front. At any position p the
 * last `capacity` values then sum up to (old slots p and later: slots[p]) + (new slots before p:
 * `recent`). Invariant: slots [0, position) hold values, slots [position, filled) hold such sums.
 *
 * Time. Spans that are under way (cooldown, the count's period) end on the monotonic clock, which
 * cannot be set. What is kept over a restart is in wall clock time: it is shifted when that clock
 * was set by more than WALL_STEP_NS, so that a correction after boot neither shortens nor lengthens
 * a cooldown over a restart.
 *
 * Holding. A candidate holds from the end of the first window in which it was one, within a
 * cooldown too; any other judgement, "unavailable" included, ends that. A firing starts it anew, so
 * a rule with `for` and without cooldown fires once per `for`, not at every step.
 */
#include "lib/rules/trigger.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * So little is not noticed in a cooldown, and slewing takes hours for it: what is remembered is not
 * rewritten all the time.
 */
#define WALL_STEP_NS (5 * NS_PER_S)

/*
 * There is one for each target of each rule: counters of half the size, and no room between the
 * fields.
 */
struct trigger_state {
	struct trigger_memory memory;
	mono_t cooldown_end;  /* while memory.cooldown_until is not 0 */
	mono_t period_end;    /* while memory.count is not 0 and the rule has a period */
	mono_t pending_since; /* of the first candidate in a row, or of the last firing */
	uint32_t reasons[TRIGGER_REASONS];
	uint16_t capacity; /* windows of history */
	uint16_t filled;   /* windows in it, at most capacity */
	uint16_t position; /* of the next value */
	bool anchored;     /* the two ends above are known: a step was taken since the memory was restored */
	bool pending;      /* the last value was a candidate */
	double recent;     /* sum of slots [0, position) */
	double slots[];
};

_Static_assert(TRIGGER_HISTORY_MAX < UINT16_MAX, "a position in the history has 16 bits");

int trigger_state_new(const struct trigger_rule *rule, struct trigger_state **ret)
{
	struct trigger_state *state;

	assert(rule->history >= 1 && rule->history <= TRIGGER_HISTORY_MAX);

	state = calloc(1, sizeof(*state) + rule->history * sizeof(state->slots[0]));
	if (!state)
		return -ENOMEM;

	state->capacity = (uint16_t)rule->history;
	*ret = state;
	return 0;
}

void trigger_state_free(struct trigger_state *state)
{
	free(state);
}

void trigger_restore(struct trigger_state *state, const struct trigger_memory *memory)
{
	state->memory = *memory;
	state->anchored = false;
}

const struct trigger_memory *trigger_memory(const struct trigger_state *state)
{
	return &state->memory;
}

bool trigger_memory_equal(const struct trigger_memory *a, const struct trigger_memory *b)
{
	return a->cooldown_until.ns == b->cooldown_until.ns && a->count_since.ns == b->count_since.ns &&
	       a->count == b->count && a->fired == b->fired && a->high_water == b->high_water &&
	       a->disarmed == b->disarmed;
}

const uint32_t *trigger_reasons(const struct trigger_state *state)
{
	return state->reasons;
}

/* ---- history ---- */

static bool history_average(const struct trigger_state *state, double *ret)
{
	double sum = state->recent;

	if (state->filled == 0)
		return false;
	if (state->position < state->filled)
		sum += state->slots[state->position];

	*ret = sum / state->filled;
	return true;
}

static void history_add(struct trigger_state *state, double value)
{
	state->slots[state->position++] = value;
	state->recent += value;
	if (state->filled < state->capacity)
		state->filled++;
	if (state->position < state->capacity)
		return;

	for (uint32_t i = state->capacity - 1; i > 0; i--)
		state->slots[i - 1] += state->slots[i];
	state->position = 0;
	state->recent = 0;
}

/* ---- time ---- */

static uint64_t add_capped(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/*
 * From wall to until, at most longest: no clock that was set makes a span longer than it ever was.
 */
static uint64_t wall_left(uint64_t until_ns, wall_t wall, uint64_t longest)
{
	uint64_t left = until_ns > wall.ns ? until_ns - wall.ns : 0;

	return left < longest ? left : longest;
}

static uint64_t mono_left(mono_t end, mono_t now)
{
	int64_t left = mono_diff(end, now);

	return left > 0 ? (uint64_t)left : 0;
}

/*
 * Corrects a remembered point on the wall clock, unless it is only a little off: it is not worth
 * writing it down anew.
 */
static void follow_wall(wall_t *remembered, uint64_t actual_ns)
{
	uint64_t off = remembered->ns > actual_ns ? remembered->ns - actual_ns : actual_ns - remembered->ns;

	if (off > WALL_STEP_NS)
		remembered->ns = actual_ns;
}

/*
 * Finds on the monotonic clock of this life the ends that an earlier one remembered on the wall
 * clock.
 */
static void anchor(struct trigger_state *state, const struct trigger_rule *rule, mono_t now, wall_t wall)
{
	const struct trigger_memory *memory = &state->memory;
	uint64_t period_until = add_capped(memory->count_since.ns, rule->count_period_ns);

	state->cooldown_end = mono_add(now, wall_left(memory->cooldown_until.ns, wall, rule->cooldown_ns));
	state->period_end = mono_add(now, wall_left(period_until, wall, rule->count_period_ns));
	state->anchored = true;
}

/* Ends what is over at now, and keeps what is not true to the wall clock. */
static void keep_time(struct trigger_state *state, const struct trigger_rule *rule, mono_t now, wall_t wall)
{
	struct trigger_memory *memory = &state->memory;
	uint64_t left;

	if (!state->anchored)
		anchor(state, rule, now, wall);

	if (memory->cooldown_until.ns != 0) {
		left = mono_left(state->cooldown_end, now);
		if (left == 0)
			memory->cooldown_until.ns = 0;
		else
			follow_wall(&memory->cooldown_until, wall.ns + left);
	}

	if (memory->count > 0 && rule->count_period_ns > 0) {
		left = mono_left(state->period_end, now);
		if (left == 0) {
			memory->count = 0;
			memory->count_since.ns = 0;
		} else {
			uint64_t gone = rule->count_period_ns - left;

			follow_wall(&memory->count_since, wall.ns > gone ? wall.ns - gone : 0);
		}
	}
}

/* ---- judgement ---- */

static double average_threshold(const struct trigger_rule *rule, double average)
{
	return average * (100 + rule->delta) / 100;
}

static enum trigger_reason judge(const struct trigger_state *state, const struct trigger_rule *rule,
				 const struct trigger_decision *decision)
{
	double value = decision->value;

	if (!decision->available)
		return TRIGGER_UNAVAILABLE;
	if (state->filled < rule->warmup)
		return TRIGGER_WARMING_UP;
	if (rule->has_minimum && value < rule->minimum)
		return TRIGGER_BELOW_MINIMUM;
	if (rule->has_maximum && value >= rule->maximum)
		return TRIGGER_ABOVE_MAXIMUM;
	if (rule->has_percent && value > rule->percent)
		return TRIGGER_ABOVE_PERCENT;

	/*
	 * Nothing after a long time of nothing is no spike, although 0 >= 0: only more than nothing
	 * is above average.
	 */
	if (rule->has_delta && decision->has_average && value > 0 &&
	    value >= average_threshold(rule, decision->average))
		return TRIGGER_ABOVE_AVERAGE;
	return TRIGGER_WITHIN_BOUNDS;
}

/*
 * Lowest value that is a candidate (or, for a strict threshold, is next to one). False if none is.
 */
static bool lowest_threshold(const struct trigger_rule *rule, const struct trigger_decision *decision, double *ret)
{
	bool by_average = rule->has_delta && decision->has_average;
	double lowest = INFINITY;

	if (rule->has_percent)
		lowest = rule->percent;
	if (by_average && average_threshold(rule, decision->average) < lowest)
		lowest = average_threshold(rule, decision->average);
	if (rule->has_minimum && rule->minimum > lowest)
		lowest = rule->minimum;

	*ret = lowest;
	return rule->has_percent || by_average;
}

static void measure_distance(const struct trigger_rule *rule, enum trigger_reason judgement,
			     struct trigger_decision *decision)
{
	double threshold;

	if (judgement == TRIGGER_UNAVAILABLE || judgement == TRIGGER_WARMING_UP || judgement == TRIGGER_ABOVE_MAXIMUM)
		return;

	decision->has_distance = lowest_threshold(rule, decision, &threshold);
	if (decision->has_distance)
		decision->distance = threshold - decision->value;
}

static bool is_rearmed(const struct trigger_state *state, const struct trigger_rule *rule,
		       const struct trigger_decision *decision)
{
	switch (rule->rearm) {
	case TRIGGER_REARM_COOLDOWN:
		return true;
	case TRIGGER_REARM_BELOW:
		return !state->memory.disarmed;
	case TRIGGER_REARM_HIGH_WATER:
		return state->memory.fired == 0 || (decision->available && decision->value > state->memory.high_water);
	}
	return true;
}

/* Why a candidate must not fire; its own reason if it may. */
static enum trigger_reason holds_back(const struct trigger_state *state, const struct trigger_rule *rule,
				      const struct trigger_decision *decision, bool disk_ok)
{
	if (decision->pending_ns < rule->for_ns)
		return TRIGGER_PENDING;
	if (state->memory.cooldown_until.ns != 0)
		return TRIGGER_COOLDOWN;
	if (!is_rearmed(state, rule, decision))
		return TRIGGER_NOT_REARMED;
	if (rule->count > 0 && state->memory.count >= rule->count)
		return TRIGGER_COUNT_LIMIT;
	if (!disk_ok)
		return TRIGGER_DISK_BUDGET;
	return decision->candidate_reason;
}

static void hold(struct trigger_state *state, mono_t now, struct trigger_decision *decision)
{
	if (!decision->candidate) {
		state->pending = false;
		return;
	}

	if (!state->pending)
		state->pending_since = now;
	state->pending = true;
	decision->pending_ns = mono_left(now, state->pending_since);
}

static void fire(struct trigger_state *state, const struct trigger_rule *rule, mono_t now, wall_t wall, double value)
{
	struct trigger_memory *memory = &state->memory;

	if (rule->cooldown_ns > 0) {
		state->cooldown_end = mono_add(now, rule->cooldown_ns);
		memory->cooldown_until.ns = add_capped(wall.ns, rule->cooldown_ns);
	}
	if (memory->count == 0) {
		state->period_end = mono_add(now, rule->count_period_ns);
		memory->count_since = wall;
	}
	if (memory->count < UINT32_MAX)
		memory->count++;
	if (memory->fired == 0 || value > memory->high_water)
		memory->high_water = value;
	memory->fired++;
	memory->disarmed = rule->rearm == TRIGGER_REARM_BELOW;
	state->pending_since = now;
}

static enum trigger_phase phase_after(const struct trigger_state *state, const struct trigger_rule *rule,
				      const struct trigger_decision *decision)
{
	if (state->memory.cooldown_until.ns != 0)
		return TRIGGER_IN_COOLDOWN;
	if (!is_rearmed(state, rule, decision))
		return TRIGGER_DISARMED;
	return decision->reason == TRIGGER_PENDING ? TRIGGER_IN_PENDING : TRIGGER_ARMED;
}

void trigger_step(struct trigger_state *state, const struct trigger_rule *rule, mono_t now, wall_t wall, bool available,
		  double value, bool disk_ok, struct trigger_decision *ret)
{
	struct trigger_decision decision = { .available = available && isfinite(value) };
	enum trigger_reason judgement;

	assert(rule->history == state->capacity);

	keep_time(state, rule, now, wall);

	decision.value = decision.available ? value : 0;
	decision.has_average = history_average(state, &decision.average);
	judgement = judge(state, rule, &decision);
	measure_distance(rule, judgement, &decision);
	decision.reason = judgement;
	decision.candidate = judgement == TRIGGER_ABOVE_PERCENT || judgement == TRIGGER_ABOVE_AVERAGE;
	hold(state, now, &decision);

	if (judgement == TRIGGER_BELOW_MINIMUM || judgement == TRIGGER_WITHIN_BOUNDS)
		state->memory.disarmed = false;

	if (decision.candidate) {
		decision.candidate_reason = judgement;
		decision.reason = holds_back(state, rule, &decision, disk_ok);
		decision.fires = decision.reason == judgement;
	}
	if (decision.fires)
		fire(state, rule, now, wall, decision.value);
	if (decision.available)
		history_add(state, decision.value);

	if (state->memory.cooldown_until.ns != 0)
		decision.cooldown_left_ns = mono_left(state->cooldown_end, now);
	decision.phase = phase_after(state, rule, &decision);
	state->reasons[decision.reason] += state->reasons[decision.reason] < UINT32_MAX;
	*ret = decision;
}

const char *trigger_reason_name(enum trigger_reason reason)
{
	static const char *const names[TRIGGER_REASONS] = {
		[TRIGGER_UNAVAILABLE] = "unavailable",     [TRIGGER_WARMING_UP] = "warming-up",
		[TRIGGER_BELOW_MINIMUM] = "below-minimum", [TRIGGER_ABOVE_MAXIMUM] = "above-maximum",
		[TRIGGER_ABOVE_PERCENT] = "above-percent", [TRIGGER_ABOVE_AVERAGE] = "above-average",
		[TRIGGER_WITHIN_BOUNDS] = "within-bounds", [TRIGGER_PENDING] = "pending",
		[TRIGGER_COOLDOWN] = "cooldown",           [TRIGGER_NOT_REARMED] = "not-re-armed",
		[TRIGGER_COUNT_LIMIT] = "count-limit",     [TRIGGER_DISK_BUDGET] = "disk-budget",
	};
	return names[reason];
}

const char *trigger_phase_name(enum trigger_phase phase)
{
	static const char *const names[] = {
		[TRIGGER_ARMED] = "armed",
		[TRIGGER_IN_PENDING] = "pending",
		[TRIGGER_IN_COOLDOWN] = "cooldown",
		[TRIGGER_DISARMED] = "disarmed",
	};
	return names[phase];
}
