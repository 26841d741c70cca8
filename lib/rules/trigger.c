/*
 * trigger.c: one step of one rule on one target.
 *
 * A step is: advance the clocks, judge the value (is it a candidate?), check what suppresses a
 * candidate, fire or not, and count.
 *
 * Windows slide, the history tumbles: it is made of the whole windows only, which lie end to end, so
 * that every moment is in it once. A window under test overlaps the last whole one unless it begins
 * at its end. So the value of a whole window is held back until a window is judged that begins when
 * it has ended: the average never includes a part of what it is compared with, and includes every
 * other value: candidates, values above the maximum and values of the warm-up.
 *
 * The average. Subtracting what leaves a running sum leaves rounding errors behind: after a value
 * of 1e18 has passed through, the sum of small numbers is wrong by hundreds. So nothing is ever
 * subtracted. The slots are filled from the front; when all are full, each is replaced by the sum
 * of itself and all slots after it, and filling starts again at the front. At any position p the
 * last `capacity` values then sum up to (old slots p and later: slot p) + (new slots before p:
 * `recent`). Invariant: slots [0, position) hold values, slots [position, filled) hold such sums.
 *
 * Time. Spans that are under way (cooldown, the count's period) end on the monotonic clock, which
 * cannot be set. What is kept over a restart is in wall clock time: it is shifted when that clock
 * was set by more than WALL_STEP_NS, so that a correction after boot neither shortens nor lengthens
 * a cooldown over a restart.
 *
 * Holding. A candidate holds from the end of the first window in which it was one, within a
 * cooldown too; any other judgement, "unavailable" included, ends that. A firing starts it anew, so
 * a rule with `for` and without cooldown fires once per `for`. Windows of two firings never overlap:
 * a rule without either fires once per window, not once per step.
 *
 * Maximum. A window that slides into a time of high values shows every value below them on its way
 * up, and again on its way down. So with `maximum` a candidate waits as long as the value still
 * rises, a window's length at most, and a window that overlaps one above the maximum counts as that.
 *
 * Memory. There is a state for each target of each rule, and most of them never see a candidate. What
 * only candidates need is allocated with the first one.
 */
#include "lib/rules/trigger.h"

#include "lib/base/map.h"

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

/* What a state has to remember once there was a candidate, or a value that was too high. */
struct trigger_past {
	struct trigger_memory memory;
	mono_t now;                        /* of the last step */
	mono_t cooldown_end;               /* while memory.cooldown_until is not 0 */
	mono_t period_end;                 /* while memory.count is not 0 and the rule has a period */
	mono_t pending_since;              /* of the first candidate in a row, or of the last firing */
	mono_t apart_from;                 /* firings before this time would overlap the last one */
	mono_t above_until;                /* windows that end before this time overlap one that was too high */
	uint32_t reasons[TRIGGER_REASONS]; /* the first one that is not in PLAIN_REASONS, and so on */
	struct trigger_burst burst;
	bool anchored; /* the ends above are known: a step was taken since the memory was restored */
};

/* Counted in each state; all others in its past. */
enum plain_reason { PLAIN_UNAVAILABLE, PLAIN_WARMING_UP, PLAIN_BELOW_MINIMUM, PLAIN_WITHIN_BOUNDS, PLAIN_REASONS };

struct trigger_state {
	struct trigger_past *past; /* NULL: nothing happened yet */
	double value;              /* of the last step */
	double held;               /* of the last whole window: not in the history yet */
	double recent;             /* sum of slots [0, position), or the highest of them */
	uint32_t reasons[PLAIN_REASONS];
	uint16_t capacity;                       /* windows of history */
	uint16_t filled;                         /* windows in it, at most capacity */
	uint16_t position;                       /* of the next value */
	uint16_t equal;                          /* so many values came last that were one and the same */
	uint8_t reason, candidate_reason, phase; /* of the last step */
	uint8_t nearest;                         /* reason that came nearest to a firing since the last whole window */
	bool stepped : 1, available : 1, fires : 1;
	bool is_held : 1;
	bool pending : 1; /* the last value was a candidate */
	bool counted : 1; /* the window under way: it fired */
	bool wide : 1;    /* slots are doubles, else floats */
	bool highest : 1; /* of the history its highest value is wanted, not the average */
	uint64_t slots[];
};

_Static_assert(TRIGGER_HISTORY_MAX < UINT16_MAX, "a position in the history has 16 bits");
_Static_assert(sizeof(struct trigger_state) == 64, "as trigger.h says");

/* Sums need more digits than a highest value. */
static bool is_wide(const struct trigger_rule *rule)
{
	return rule->has_delta && rule->usual == TRIGGER_USUAL_AVERAGE;
}

size_t trigger_state_size(const struct trigger_rule *rule)
{
	size_t bytes = rule->history * (is_wide(rule) ? sizeof(double) : sizeof(float));

	return sizeof(struct trigger_state) + (bytes + 7) / 8 * 8;
}

void trigger_state_init(struct trigger_state *state, const struct trigger_rule *rule)
{
	assert(rule->history >= 1 && rule->history <= TRIGGER_HISTORY_MAX);

	state->capacity = (uint16_t)rule->history;
	state->wide = is_wide(rule);
	state->highest = rule->usual == TRIGGER_USUAL_HIGHEST;
}

void trigger_state_release(struct trigger_state *state)
{
	free(state->past);
	state->past = NULL;
}

void trigger_state_swap(struct trigger_state *a, struct trigger_state *b, const struct trigger_rule *rule)
{
	uint64_t *words_of_a = (uint64_t *)a, *words_of_b = (uint64_t *)b;

	for (size_t i = 0; i < trigger_state_size(rule) / sizeof(uint64_t); i++) {
		uint64_t word = words_of_a[i];

		words_of_a[i] = words_of_b[i];
		words_of_b[i] = word;
	}
}

/* NULL: no memory. */
static struct trigger_past *past_of(struct trigger_state *state)
{
	if (!state->past)
		state->past = calloc(1, sizeof(*state->past));
	return state->past;
}

int trigger_restore(struct trigger_state *state, const struct trigger_memory *memory)
{
	struct trigger_past *past = past_of(state);

	if (!past)
		return -ENOMEM;

	past->memory = *memory;
	past->anchored = false;
	return 0;
}

void trigger_inherit(struct trigger_state *state, struct trigger_state *old)
{
	struct trigger_past *past = old->past;

	if (!past)
		return;

	old->past = state->past;
	*past = (struct trigger_past){ .memory = past->memory };
	state->past = past;
}

const struct trigger_memory *trigger_memory(const struct trigger_state *state)
{
	static const struct trigger_memory nothing;

	return state->past ? &state->past->memory : &nothing;
}

/* ---- counters ---- */

/* PLAIN_REASONS: it is counted in the past. */
static enum plain_reason plain_reason_of(enum trigger_reason reason)
{
	switch (reason) {
	case TRIGGER_UNAVAILABLE:
		return PLAIN_UNAVAILABLE;
	case TRIGGER_WARMING_UP:
		return PLAIN_WARMING_UP;
	case TRIGGER_BELOW_MINIMUM:
		return PLAIN_BELOW_MINIMUM;
	case TRIGGER_WITHIN_BOUNDS:
		return PLAIN_WITHIN_BOUNDS;
	default:
		return PLAIN_REASONS;
	}
}

void trigger_reasons(const struct trigger_state *state, uint32_t *ret)
{
	for (unsigned i = 0; i < TRIGGER_REASONS; i++) {
		enum plain_reason plain = plain_reason_of((enum trigger_reason)i);

		ret[i] = plain < PLAIN_REASONS ? state->reasons[plain] : state->past ? state->past->reasons[i] : 0;
	}
}

/* How near to a firing a reason is. */
static unsigned nearness(enum trigger_reason reason)
{
	static const uint8_t order[TRIGGER_REASONS] = {
		[TRIGGER_UNAVAILABLE] = 0,    [TRIGGER_WARMING_UP] = 1,     [TRIGGER_BELOW_MINIMUM] = 2,
		[TRIGGER_WITHIN_BOUNDS] = 3,  [TRIGGER_ABOVE_MAXIMUM] = 4,  [TRIGGER_PENDING] = 5,
		[TRIGGER_COOLDOWN] = 6,       [TRIGGER_NOT_REARMED] = 7,    [TRIGGER_COUNT_LIMIT] = 8,
		[TRIGGER_DISK_BUDGET] = 9,    [TRIGGER_ABOVE_PERCENT] = 10, [TRIGGER_ABOVE_AVERAGE] = 10,
		[TRIGGER_BELOW_PERCENT] = 10,
	};
	return order[reason];
}

static void count_reason(struct trigger_state *state, enum trigger_reason reason, struct trigger_decision *decision)
{
	enum plain_reason plain = plain_reason_of(reason);
	uint32_t *counter = plain < PLAIN_REASONS ? &state->reasons[plain] : &state->past->reasons[reason];

	*counter += *counter < UINT32_MAX;
	decision->counted = true;
	decision->counted_reason = reason;
}

/* A window counts when it fires, or when it is over. */
static void count(struct trigger_state *state, bool whole, struct trigger_decision *decision)
{
	if (nearness(decision->reason) > nearness((enum trigger_reason)state->nearest))
		state->nearest = (uint8_t)decision->reason;

	if (decision->fires)
		count_reason(state, decision->reason, decision);
	else if (whole && !state->counted)
		count_reason(state, (enum trigger_reason)state->nearest, decision);

	if (whole || decision->fires) {
		state->counted = decision->fires && !whole;
		state->nearest = TRIGGER_UNAVAILABLE;
	}
}

/* ---- history ---- */

static double slot(const struct trigger_state *state, size_t i)
{
	return state->wide ? ((const double *)state->slots)[i] : (double)((const float *)state->slots)[i];
}

static void set_slot(struct trigger_state *state, size_t i, double value)
{
	if (state->wide)
		((double *)state->slots)[i] = value;
	else
		((float *)state->slots)[i] = (float)value;
}

/* Two values as one: their sum, or the higher one. Values are not negative. */
static double together(const struct trigger_state *state, double a, double b)
{
	return !state->highest ? a + b : a > b ? a : b;
}

static bool history_average(const struct trigger_state *state, double *ret)
{
	double sum = state->recent;

	if (state->filled == 0)
		return false;
	if (state->position < state->filled)
		sum = together(state, sum, slot(state, state->position));

	*ret = state->highest ? sum : sum / state->filled;
	return true;
}

/* The value that came last: the last slot holds the sum of itself alone. Only if there is one. */
static double history_last(const struct trigger_state *state)
{
	return slot(state, state->position > 0 ? state->position - 1 : state->capacity - 1);
}

/* Whether the value is the one that came last, as far as slots can tell. */
static bool is_last(const struct trigger_state *state, double value)
{
	double kept = state->wide ? value : (double)(float)value;

	return state->filled > 0 && !(history_last(state) < kept) && !(history_last(state) > kept);
}

static void history_add(struct trigger_state *state, double value)
{
	double sum = 0;

	if (!is_last(state, value))
		state->equal = 0;
	if (state->equal < UINT16_MAX)
		state->equal++;
	set_slot(state, state->position++, value);
	state->recent = together(state, state->recent, value);
	if (state->filled < state->capacity)
		state->filled++;
	if (state->position < state->capacity)
		return;

	for (size_t i = state->capacity; i-- > 0;) {
		sum = together(state, sum, slot(state, i));
		set_slot(state, i, sum);
	}
	state->position = 0;
	state->recent = 0;
}

/* The last whole window is history for a window that does not overlap it. */
static void admit_held(struct trigger_state *state, bool apart)
{
	if (!apart || !state->is_held)
		return;

	state->is_held = false;
	history_add(state, state->held);
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
static void anchor(struct trigger_past *past, const struct trigger_rule *rule, mono_t now, wall_t wall)
{
	const struct trigger_memory *memory = &past->memory;
	uint64_t period_until = add_capped(memory->count_since.ns, rule->count_period_ns);

	past->cooldown_end = mono_add(now, wall_left(memory->cooldown_until.ns, wall, rule->cooldown_ns));
	past->period_end = mono_add(now, wall_left(period_until, wall, rule->count_period_ns));
	past->anchored = true;
}

/* Ends what is over at now, and keeps what is not true to the wall clock. */
static void keep_time(struct trigger_past *past, const struct trigger_rule *rule, mono_t now, wall_t wall)
{
	struct trigger_memory *memory = &past->memory;
	uint64_t left;

	if (!past->anchored)
		anchor(past, rule, now, wall);
	past->now = now;

	if (memory->cooldown_until.ns != 0) {
		left = mono_left(past->cooldown_end, now);
		if (left == 0)
			memory->cooldown_until.ns = 0;
		else
			follow_wall(&memory->cooldown_until, wall.ns + left);
	}

	if (memory->count > 0 && rule->count_period_ns > 0) {
		left = mono_left(past->period_end, now);
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

/* Whether a window overlaps one that ended a window's length before `until`. Not if the clock began anew since. */
static bool overlaps(const struct trigger_window *window, mono_t until)
{
	int64_t left = mono_diff(until, window->now);

	return left > 0 && left <= (int64_t)window->window_ns;
}

/* Whether it overlaps a window that was too high. */
static bool is_near_maximum(const struct trigger_state *state, const struct trigger_rule *rule,
			    const struct trigger_window *window)
{
	return rule->has_maximum && state->past && overlaps(window, state->past->above_until);
}

static enum trigger_reason judge(const struct trigger_state *state, const struct trigger_rule *rule,
				 const struct trigger_window *window, const struct trigger_decision *decision)
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
	if (rule->below)
		return value < rule->percent ? TRIGGER_BELOW_PERCENT : TRIGGER_WITHIN_BOUNDS;
	if (rule->has_percent && value > rule->percent)
		return is_near_maximum(state, rule, window) ? TRIGGER_ABOVE_MAXIMUM : TRIGGER_ABOVE_PERCENT;

	/*
	 * Nothing after a long time of nothing is no spike, although 0 >= 0: only more than nothing
	 * is above average.
	 */
	if (rule->has_delta && decision->has_average && value > 0 &&
	    value >= average_threshold(rule, decision->average))
		return is_near_maximum(state, rule, window) ? TRIGGER_ABOVE_MAXIMUM : TRIGGER_ABOVE_AVERAGE;
	return TRIGGER_WITHIN_BOUNDS;
}

/*
 * Lowest value that is a candidate (or, for a strict threshold, is next to one). False if none is, or
 * nothing is lower.
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
	return !rule->below && (rule->has_percent || by_average);
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

static bool is_rearmed(const struct trigger_state *state, const struct trigger_rule *rule, bool available, double value)
{
	const struct trigger_memory *memory = trigger_memory(state);

	switch (rule->rearm) {
	case TRIGGER_REARM_COOLDOWN:
		return true;
	case TRIGGER_REARM_BELOW:
		return !memory->disarmed;
	case TRIGGER_REARM_HIGH_WATER:
		return memory->fired == 0 || (available && value > memory->high_water);
	}
	return true;
}

/* Whether the value may be on its way to something higher. */
static bool is_rising(const struct trigger_state *state, const struct trigger_rule *rule,
		      const struct trigger_window *window, const struct trigger_decision *decision)
{
	return rule->has_maximum && window->step_ns < window->window_ns && decision->pending_ns < window->window_ns &&
	       decision->value > state->value;
}

/* Why a candidate must not fire; its own reason if it may. value: still the one before. */
static enum trigger_reason holds_back(const struct trigger_state *state, const struct trigger_rule *rule,
				      const struct trigger_window *window, const struct trigger_decision *decision)
{
	const struct trigger_past *past = state->past;

	if (decision->pending_ns < rule->for_ns || is_rising(state, rule, window, decision))
		return TRIGGER_PENDING;
	if (past->memory.cooldown_until.ns != 0)
		return TRIGGER_COOLDOWN;
	if (overlaps(window, past->apart_from))
		return TRIGGER_PENDING;
	if (!is_rearmed(state, rule, decision->available, decision->value))
		return TRIGGER_NOT_REARMED;
	if (rule->count > 0 && past->memory.count >= rule->count)
		return TRIGGER_COUNT_LIMIT;
	if (!window->disk_ok)
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
		state->past->pending_since = now;
	state->pending = true;
	decision->pending_ns = mono_left(now, state->past->pending_since);
}

static void fire(struct trigger_past *past, const struct trigger_rule *rule, const struct trigger_window *window)
{
	struct trigger_memory *memory = &past->memory;

	if (rule->cooldown_ns > 0) {
		past->cooldown_end = mono_add(window->now, rule->cooldown_ns);
		memory->cooldown_until.ns = add_capped(window->wall.ns, rule->cooldown_ns);
	}
	if (memory->count == 0) {
		past->period_end = mono_add(window->now, rule->count_period_ns);
		memory->count_since = window->wall;
	}
	if (memory->count < UINT32_MAX)
		memory->count++;
	if (memory->fired == 0 || window->value > memory->high_water)
		memory->high_water = window->value;
	memory->fired++;
	memory->disarmed = rule->rearm == TRIGGER_REARM_BELOW;
	past->pending_since = window->now;
	past->apart_from = mono_add(window->now, window->window_ns);
}

static enum trigger_phase phase_after(const struct trigger_state *state, const struct trigger_rule *rule,
				      const struct trigger_decision *decision)
{
	if (trigger_memory(state)->cooldown_until.ns != 0)
		return TRIGGER_IN_COOLDOWN;
	if (!is_rearmed(state, rule, decision->available, decision->value))
		return TRIGGER_DISARMED;
	return decision->reason == TRIGGER_PENDING ? TRIGGER_IN_PENDING : TRIGGER_ARMED;
}

static bool is_candidate(enum trigger_reason judgement)
{
	return judgement == TRIGGER_ABOVE_PERCENT || judgement == TRIGGER_ABOVE_AVERAGE ||
	       judgement == TRIGGER_BELOW_PERCENT;
}

/* What the value is by itself, whatever has happened before. */
static void look(const struct trigger_state *state, const struct trigger_rule *rule,
		 const struct trigger_window *window, struct trigger_decision *ret)
{
	*ret = (struct trigger_decision){ .available = window->available && isfinite(window->value) };
	ret->value = ret->available ? window->value : 0;
	ret->has_average = history_average(state, &ret->average);
	ret->reason = judge(state, rule, window, ret);
	measure_distance(rule, ret->reason, ret);
	ret->candidate = is_candidate(ret->reason);
	ret->candidate_reason = ret->candidate ? ret->reason : TRIGGER_UNAVAILABLE;
}

bool trigger_is_waiting(const struct trigger_state *state)
{
	return state->pending || (state->past && state->past->memory.disarmed);
}

bool trigger_wants(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window)
{
	struct trigger_decision decision = { .available = window->available && isfinite(window->value),
					     .value = window->value };
	enum trigger_reason judgement;

	admit_held(state, window->apart);
	if (trigger_is_waiting(state))
		return true;
	if (rule->has_delta)
		decision.has_average = history_average(state, &decision.average);

	judgement = judge(state, rule, window, &decision);
	return is_candidate(judgement) || judgement == TRIGGER_ABOVE_MAXIMUM;
}

void trigger_peek(const struct trigger_state *state, const struct trigger_rule *rule,
		  const struct trigger_window *window, struct trigger_decision *ret)
{
	look(state, rule, window, ret);
	ret->phase = phase_after(state, rule, ret);
}

bool trigger_threshold(const struct trigger_state *state, const struct trigger_rule *rule, double *ret)
{
	struct trigger_decision decision = { 0 };

	if (state->filled < rule->warmup)
		return false;
	decision.has_average = rule->has_delta && history_average(state, &decision.average);
	return lowest_threshold(rule, &decision, ret);
}

/* Judges a candidate, which may fire. */
static void step_candidate(struct trigger_state *state, const struct trigger_rule *rule,
			   const struct trigger_window *window, struct trigger_decision *decision)
{
	decision->reason = holds_back(state, rule, window, decision);
	decision->fires = decision->reason == decision->candidate_reason;
	if (decision->fires)
		fire(state->past, rule, window);
}

/* Takes in the decision, and the value of a whole window. */
static void keep_decision(struct trigger_state *state, bool whole, const struct trigger_decision *decision)
{
	state->stepped = true;
	state->value = decision->value;
	state->available = decision->available;
	state->fires = decision->fires;
	state->reason = (uint8_t)decision->reason;
	state->candidate_reason = (uint8_t)decision->candidate_reason;
	state->phase = (uint8_t)decision->phase;
	if (whole && decision->available) {
		state->held = decision->value;
		state->is_held = true;
	}
}

int trigger_step(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window,
		 struct trigger_decision *ret)
{
	struct trigger_decision decision;

	assert(rule->history == state->capacity);

	admit_held(state, window->apart);
	if (state->past)
		keep_time(state->past, rule, window->now, window->wall);

	look(state, rule, window, &decision);
	if ((decision.candidate || decision.reason == TRIGGER_ABOVE_MAXIMUM) && !state->past) {
		if (!past_of(state))
			return -ENOMEM;
		keep_time(state->past, rule, window->now, window->wall);
	}

	hold(state, window->now, &decision);
	if (state->past && (decision.reason == TRIGGER_BELOW_MINIMUM || decision.reason == TRIGGER_WITHIN_BOUNDS))
		state->past->memory.disarmed = false;
	if (decision.reason == TRIGGER_ABOVE_MAXIMUM && decision.value >= rule->maximum)
		state->past->above_until = mono_add(window->now, window->window_ns);
	if (decision.candidate)
		step_candidate(state, rule, window, &decision);

	if (trigger_memory(state)->cooldown_until.ns != 0)
		decision.cooldown_left_ns = mono_left(state->past->cooldown_end, window->now);
	decision.phase = phase_after(state, rule, &decision);
	keep_decision(state, window->whole, &decision);
	count(state, window->whole, &decision);
	*ret = decision;
	return 0;
}

/* ---- windows that are all the same ---- */

/* Less than that above what is usual may be a matter of rounding. */
#define CLEAR_DELTA 0.001

/* Whether the history, and the value that is to enter it, are this value alone. */
static bool is_history_of(const struct trigger_state *state, double value)
{
	return state->equal >= state->capacity && is_last(state, value) && state->is_held && !(state->held < value) &&
	       !(state->held > value);
}

/* Whether something ends by itself that the last step has left. */
static bool is_under_way(const struct trigger_state *state, const struct trigger_rule *rule)
{
	const struct trigger_past *past = state->past;

	if (!state->stepped || trigger_is_waiting(state))
		return true;
	return past && (!past->anchored || past->memory.cooldown_until.ns != 0 ||
			(past->memory.count > 0 && rule->count_period_ns > 0));
}

static bool is_at_rest(const struct trigger_state *state, const struct trigger_rule *rule,
		       const struct trigger_window *window, enum trigger_reason *ret_reason)
{
	struct trigger_decision decision = { .available = window->available && isfinite(window->value),
					     .value = window->value };

	if (is_under_way(state, rule))
		return false;
	*ret_reason = judge(state, rule, window, &decision);
	if (*ret_reason == TRIGGER_WITHIN_BOUNDS && rule->has_delta && window->value > 0)
		return rule->delta >= CLEAR_DELTA && is_history_of(state, window->value);
	return *ret_reason == TRIGGER_UNAVAILABLE || *ret_reason == TRIGGER_BELOW_MINIMUM ||
	       *ret_reason == TRIGGER_WITHIN_BOUNDS;
}

/*
 * After twice the length of the history, and two for the value that is held back, all slots are made of
 * the same value. What follows comes again after each length of the history, but for the counter.
 */
bool trigger_repeat(struct trigger_state *state, const struct trigger_rule *rule, const struct trigger_window *window,
		    uint64_t times, enum trigger_reason *ret_reason)
{
	uint64_t length = state->capacity, settled = 2 * length + 2, left_out = 0;
	struct trigger_decision decision;
	uint32_t *counter;

	if (!is_at_rest(state, rule, window, ret_reason))
		return false;

	if (times > settled)
		left_out = (times - settled) / length * length;
	for (uint64_t i = left_out; i < times; i++)
		trigger_step(state, rule, window, &decision); /* no candidate: it takes no memory */
	counter = &state->reasons[plain_reason_of(*ret_reason)];
	*counter = left_out < UINT32_MAX - *counter ? *counter + (uint32_t)left_out : UINT32_MAX;
	return true;
}

bool trigger_last(const struct trigger_state *state, const struct trigger_rule *rule, struct trigger_decision *ret)
{
	const struct trigger_past *past = state->past;

	if (!state->stepped)
		return false;

	*ret = (struct trigger_decision){
		.value = state->value,
		.reason = (enum trigger_reason)state->reason,
		.candidate_reason = (enum trigger_reason)state->candidate_reason,
		.phase = (enum trigger_phase)state->phase,
		.fires = state->fires,
		.available = state->available,
		.candidate = is_candidate((enum trigger_reason)state->candidate_reason),
	};
	ret->has_average = history_average(state, &ret->average);
	measure_distance(rule, ret->candidate ? ret->candidate_reason : ret->reason, ret);
	if (past && ret->candidate)
		ret->pending_ns = mono_left(past->now, past->pending_since);
	if (past && past->memory.cooldown_until.ns != 0)
		ret->cooldown_left_ns = mono_left(past->cooldown_end, past->now);
	return true;
}

/* ---- bursts that no window caught ---- */

void trigger_note_burst(struct trigger_state *state, const struct trigger_burst *burst)
{
	struct trigger_past *past = past_of(state);

	if (past)
		past->burst = *burst;
}

struct trigger_burst trigger_last_burst(const struct trigger_state *state)
{
	return state->past ? state->past->burst : (struct trigger_burst){ 0 };
}

const char *trigger_reason_name(enum trigger_reason reason)
{
	static const char *const names[TRIGGER_REASONS] = {
		[TRIGGER_UNAVAILABLE] = "unavailable",
		[TRIGGER_WARMING_UP] = "warming-up",
		[TRIGGER_BELOW_MINIMUM] = "below-minimum",
		[TRIGGER_ABOVE_MAXIMUM] = "above-maximum",
		[TRIGGER_ABOVE_PERCENT] = "above-percent",
		[TRIGGER_ABOVE_AVERAGE] = "above-average",
		[TRIGGER_BELOW_PERCENT] = "below-percent",
		[TRIGGER_WITHIN_BOUNDS] = "within-bounds",
		[TRIGGER_PENDING] = "pending",
		[TRIGGER_COOLDOWN] = "cooldown",
		[TRIGGER_NOT_REARMED] = "not-re-armed",
		[TRIGGER_COUNT_LIMIT] = "count-limit",
		[TRIGGER_DISK_BUDGET] = "disk-budget",
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

/* ---- the value that held ---- */

/* Room for one more at the end. 0 or -ENOMEM. */
static int hold_reserve(struct trigger_hold *hold)
{
	if (hold->count < hold->cap || hold->first == 0)
		return vector_reserve(&hold->queue, &hold->cap, hold->count + 1, sizeof(*hold->queue));

	memmove(hold->queue, hold->queue + hold->first, (hold->count - hold->first) * sizeof(*hold->queue));
	hold->count -= hold->first;
	hold->first = 0;
	return 0;
}

/* Whether a lower threshold would have made this window a candidate. */
static bool could_fire(const struct trigger_decision *decision)
{
	return decision->available && decision->reason != TRIGGER_UNAVAILABLE &&
	       decision->reason != TRIGGER_WARMING_UP && decision->reason != TRIGGER_BELOW_MINIMUM &&
	       decision->reason != TRIGGER_ABOVE_MAXIMUM;
}

int trigger_hold_add(struct trigger_hold *hold, uint64_t for_ns, const struct trigger_decision *decision, mono_t end,
		     double *ret)
{
	int r;

	if (!could_fire(decision)) {
		hold->first = hold->count = 0;
		hold->in_row = false;
		return TRIGGER_HOLD_SHORT;
	}
	if (!hold->in_row)
		hold->since = end;
	hold->in_row = true;
	while (hold->count > hold->first && hold->queue[hold->count - 1].value >= decision->value)
		hold->count--;
	while (hold->first < hold->count && mono_diff(end, hold->queue[hold->first].end) > (int64_t)for_ns)
		hold->first++;
	r = hold_reserve(hold);
	if (r < 0)
		return r;
	hold->queue[hold->count++] = (struct trigger_held){ decision->value, end };
	if (mono_diff(end, hold->since) < (int64_t)for_ns)
		return TRIGGER_HOLD_SHORT;
	*ret = hold->queue[hold->first].value;
	return 0;
}
