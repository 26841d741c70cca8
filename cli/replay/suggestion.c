/*
 * suggestion.c: the values that matter, in a heap of bounded size; then a threshold is looked for by halving.
 *
 * A rule with `for` fires when the value has been above the threshold in every window of that time, that is when the least of them is:
 * so the least of the last windows takes the place of the value. It is kept per target as a queue whose values only rise.
 *
 * How often a threshold fires is counted as the rule would: the first value above it, then none for a cooldown. That needs all values above
 * it in order of time, which the heap holds as long as the threshold is not below what it had to drop.
 */
#include "suggestion.h"

#include "pairmap.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>

struct value {
	double value;
	uint64_t at_ns;
	uint32_t owner;
};

/* The last windows of one target, without those that a later, lower one makes irrelevant. */
struct hold {
	struct held {
		double value;
		uint64_t window; /* number in the row */
	} * queue;               /* a circle of hold_windows; NULL with one */
	size_t first, count;
	uint64_t row; /* windows in a row that could fire */
};

struct suggestion {
	const struct config_rule *rule;
	size_t hold_windows;
	struct value *values; /* the lowest first, as a heap, until sorted */
	size_t count, cap;
	bool dropped, sorted;
	double floor; /* highest value that was dropped */
	struct pairmap owners;
	struct hold *holds; /* of each owner */
	size_t owner_count, owner_cap;
	double highest;
};

/* ---- keeping the highest ---- */

static void swap(struct value *a, struct value *b)
{
	struct value c = *a;

	*a = *b;
	*b = c;
}

static void sift_down(struct value *heap, size_t count)
{
	size_t at = 0, child;

	while ((child = 2 * at + 1) < count) {
		if (child + 1 < count && heap[child + 1].value < heap[child].value)
			child++;
		if (heap[at].value <= heap[child].value)
			return;
		swap(&heap[at], &heap[child]);
		at = child;
	}
}

static void sift_up(struct value *heap, size_t at)
{
	for (; at > 0 && heap[at].value < heap[(at - 1) / 2].value; at = (at - 1) / 2)
		swap(&heap[at], &heap[(at - 1) / 2]);
}

static int keep(struct suggestion *suggestion, struct value value)
{
	if (suggestion->count == SUGGESTION_VALUES_MAX) {
		struct value *lowest = &suggestion->values[0];
		double out = value.value > lowest->value ? lowest->value : value.value;

		if (!suggestion->dropped || out > suggestion->floor)
			suggestion->floor = out;
		suggestion->dropped = true;
		if (value.value <= lowest->value)
			return 0;
		*lowest = value;
		sift_down(suggestion->values, suggestion->count);
		return 0;
	}
	if (suggestion->count == suggestion->cap) {
		size_t cap = suggestion->cap ? 2 * suggestion->cap : 256;
		struct value *grown = realloc(suggestion->values, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		suggestion->values = grown;
		suggestion->cap = cap;
	}
	suggestion->values[suggestion->count] = value;
	sift_up(suggestion->values, suggestion->count++);
	return 0;
}

/* ---- owners and how long they hold ---- */

static int add_owner(struct suggestion *suggestion, uint32_t source, uint32_t id, uint32_t *ret)
{
	if (suggestion->owner_count == suggestion->owner_cap) {
		size_t cap = suggestion->owner_cap ? 2 * suggestion->owner_cap : 16;
		struct hold *grown = realloc(suggestion->holds, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		suggestion->holds = grown;
		suggestion->owner_cap = cap;
	}

	struct hold *hold = &suggestion->holds[suggestion->owner_count];

	*hold = (struct hold){ 0 };
	if (suggestion->hold_windows > 1) {
		hold->queue = calloc(suggestion->hold_windows, sizeof(*hold->queue));
		if (!hold->queue)
			return -ENOMEM;
	}
	*ret = (uint32_t)suggestion->owner_count;
	pairmap_put(&suggestion->owners, source, id, *ret);
	if (!pairmap_get(&suggestion->owners, source, id, ret)) {
		free(hold->queue);
		return -ENOMEM;
	}
	suggestion->owner_count++;
	return 0;
}

/* True: *ret is the least value of the last hold_windows windows. */
static bool hold_add(struct hold *hold, size_t windows, double value, double *ret)
{
	uint64_t number = hold->row++;

	if (windows == 1) {
		*ret = value;
		return true;
	}
	while (hold->count > 0 && hold->queue[(hold->first + hold->count - 1) % windows].value >= value)
		hold->count--;
	if (hold->count > 0 && hold->queue[hold->first].window + windows <= number) {
		hold->first = (hold->first + 1) % windows;
		hold->count--;
	}
	hold->queue[(hold->first + hold->count++) % windows] = (struct held){ value, number };
	*ret = hold->queue[hold->first].value;
	return hold->row >= windows;
}

/* Whether a lower threshold would have made this window a candidate. */
static bool could_fire(const struct trigger_decision *decision)
{
	return decision->available && decision->reason != TRIGGER_UNAVAILABLE &&
	       decision->reason != TRIGGER_WARMING_UP && decision->reason != TRIGGER_BELOW_MINIMUM &&
	       decision->reason != TRIGGER_ABOVE_MAXIMUM;
}

int suggestion_add(struct suggestion *suggestion, uint32_t source, const struct evaluator_firing *window)
{
	uint64_t late = window->to.ns % window->rule->window_ns;
	uint32_t owner;
	double least;
	int r = 0;

	if (!pairmap_get(&suggestion->owners, source, window->target->id, &owner))
		r = add_owner(suggestion, source, window->target->id, &owner);
	if (r < 0)
		return r;

	struct hold *hold = &suggestion->holds[owner];

	if (!could_fire(window->decision)) {
		hold->count = 0;
		hold->row = 0;
		return 0;
	}
	if (!hold_add(hold, suggestion->hold_windows, window->decision->value, &least))
		return 0;
	if (suggestion->count == 0 || least > suggestion->highest)
		suggestion->highest = least;
	/* Ends of windows are whole numbers of windows apart: so are they for the rule's cooldown. */
	return keep(suggestion, (struct value){ least, window->to.ns - late, owner });
}

/* ---- the answer ---- */

static int by_time(const void *a, const void *b)
{
	const struct value *x = a, *y = b;

	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A firing begins the row anew: with `for` the next one is a whole `for` later, whatever the cooldown. */
static uint64_t apart_ns(const struct trigger_rule *trigger)
{
	return trigger->for_ns > trigger->cooldown_ns ? trigger->for_ns : trigger->cooldown_ns;
}

static uint64_t count_firings(const struct suggestion *suggestion, double threshold)
{
	uint64_t apart = apart_ns(&suggestion->rule->trigger), last = 0, firings = 0;
	bool fired = false;

	for (size_t i = 0; i < suggestion->count; i++) {
		const struct value *value = &suggestion->values[i];

		if (i > 0 && value->owner != value[-1].owner)
			fired = false;
		if (value->value <= threshold || (fired && value->at_ns - last < apart))
			continue;
		fired = true;
		last = value->at_ns;
		firings++;
	}
	return firings;
}

/* The least whole number that is not below value, which is not negative and below 2^53. */
static double whole(double value)
{
	double below = (double)(uint64_t)value;

	return below < value ? below + 1 : below;
}

/* The roundest number in [from, below), both not negative. base: 10, or 2 for bytes. Parts of one are divisions, so that 0.1 is 0.1. */
static double round_in(double from, double below, double base)
{
	double step = 1, rounded;

	while (step <= below && step < 1e15)
		step *= base;
	for (; step > 1; step /= base) {
		rounded = whole(from / step) * step;
		if (rounded >= from && rounded < below)
			return rounded;
	}
	for (double parts = 1; parts < 1e9 && from * parts < 1e15; parts *= base) {
		rounded = whole(from * parts) / parts;
		if (rounded >= from && rounded < below)
			return rounded;
	}
	return from;
}

/* From where on thresholds can be counted, and what is between them: values, sorted, each once. Their number. */
static size_t list_thresholds(const struct suggestion *suggestion, double *sorted)
{
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < suggestion->count; i++)
		if (!suggestion->dropped || suggestion->values[i].value >= suggestion->floor)
			sorted[count++] = suggestion->values[i].value;
	qsort(sorted, count, sizeof(*sorted), by_value);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || sorted[i] != sorted[kept - 1])
			sorted[kept++] = sorted[i];
	return kept;
}

void suggestion_answer(struct suggestion *suggestion, uint64_t firings, struct suggestion_answer *ret)
{
	AUTO_FREE double *sorted = calloc(suggestion->count + 1, sizeof(*sorted));
	double base = metric_unit(suggestion->rule->metric) == METRIC_BYTES ? 2 : 10;
	size_t count, low = 0, high;
	double above;

	*ret = (struct suggestion_answer){ .highest = suggestion->highest };
	if (!sorted || suggestion->count == 0)
		return;
	if (!suggestion->sorted)
		qsort(suggestion->values, suggestion->count, sizeof(*suggestion->values), by_time);
	suggestion->sorted = true;
	count = list_thresholds(suggestion, sorted);

	/* The lowest of the values that fires no more often: at the highest none is above it. */
	for (high = count - 1; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (count_firings(suggestion, sorted[middle]) <= firings)
			high = middle;
		else
			low = middle + 1;
	}
	ret->known = true;
	/* Above the highest any would do: one that is not far from it says what there was. */
	above = low + 1 < count ? sorted[low + 1] : sorted[low] > 0 ? sorted[low] * 1.1 : 1;
	ret->threshold = round_in(sorted[low], above, base);
	ret->firings = count_firings(suggestion, ret->threshold);
}

/* ---- the object ---- */

int suggestion_new(const struct config_rule *rule, struct suggestion **ret)
{
	uint64_t windows = (rule->trigger.for_ns + rule->window_ns - 1) / rule->window_ns + 1;
	struct suggestion *suggestion;

	if (windows > SUGGESTION_HOLD_MAX)
		return -ERANGE;
	suggestion = calloc(1, sizeof(*suggestion));
	if (!suggestion)
		return -ENOMEM;

	suggestion->rule = rule;
	suggestion->hold_windows = windows;
	*ret = suggestion;
	return 0;
}

void suggestion_free(struct suggestion *suggestion)
{
	if (!suggestion)
		return;

	for (size_t i = 0; i < suggestion->owner_count; i++)
		free(suggestion->holds[i].queue);
	free(suggestion->holds);
	free(suggestion->values);
	pairmap_release(&suggestion->owners);
	free(suggestion);
}
