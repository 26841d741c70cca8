/* replay.c: spikewatch replay: what is wanted, checked before anything is read. */
#include "cli/replay/replay.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/story.h"
#include "cli/replay/recording.h"
#include "daemon/engine/base/paths.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/units.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/config/config_change.h"
#include "lib/config/selection.h"
#include "lib/evaluator/evaluator.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The highest values that are kept: so many firings can be asked for. */
#define SUGGESTION_VALUES_MAX 65536

/* A rule whose `for` lasts longer than so many of its windows has no suggestion. */
#define SUGGESTION_HOLD_MAX 4096

/* Troubles of a source that are told one by one; the rest is counted. */
#define REPLAYVIEW_TROUBLES_MAX 10

/* A rule's proposal for so many firings. */
struct replayview_proposal {
	const struct config_rule *rule;
	double per_day;
	uint64_t wanted; /* in what was replayed */
	bool fits;       /* the rule has a threshold to change, and a `for` that can be followed */
	struct suggestion_answer answer;
	bool replayed;
	uint64_t fired; /* if so */
};

/* All borrowed. */
struct rerun_request {
	const struct config *config;
	const struct whatif *whatif; /* variants of config */
	const char *as;              /* casting.h; or NULL */
	const char *directory;       /* of incidents, for their names */
	struct metric_machine machine;
	bool cores_are_told, memory_is_told; /* sources know no better */
	char **sources;                      /* what replaysource_open reads; it is read again if there are rates */
	size_t source_count;
	const double *rates; /* firings a day for which thresholds are proposed */
	size_t rate_count;
	bool json, summary;
};

/*
 * casting.c: the entries, compiled as the daemon compiles them. A recording does not hold the path of an executable, nor what a pid file
 * said: entries by these select nothing here. Nor does a group: it is known by its entry only.
 */

struct casting {
	const struct config *config;
	const char *as;
	struct match **matches; /* one per entry */
};

static void casting_release(struct casting **casting)
{
	casting_free(*casting);
}

int casting_new(const struct config *config, const char *as, struct casting **ret)
{
	AUTO(casting_release) struct casting *casting = calloc(1, sizeof(*casting));

	if (!casting)
		return -ENOMEM;

	casting->config = config;
	casting->as = as;
	casting->matches = calloc(config->target_count + 1, sizeof(*casting->matches));
	if (!casting->matches)
		return -ENOMEM;
	for (size_t i = 0; i < config->target_count; i++) {
		int r = match_new(&config->targets[i], &casting->matches[i]);

		if (r < 0)
			return r;
	}

	*ret = TAKE(casting);
	return 0;
}

void casting_free(struct casting *casting)
{
	if (!casting)
		return;

	for (size_t i = 0; casting->matches && i < casting->config->target_count; i++)
		match_free(casting->matches[i]);
	free(casting->matches);
	free(casting);
}

static bool is_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return true;
	return false;
}

static const char *known(const char *text)
{
	return *text ? text : NULL;
}

static bool selects(const struct match *match, const struct target *target)
{
	struct container container;
	bool contained = container_unpack(target->container, &container);
	const struct match_facts facts = {
		.pid = target->pid,
		.comm = known(target->comm),
		.cmdline = known(target->cmdline),
		.cgroup = known(target->cgroup),
		.container = contained ? &container : NULL,
	};

	if (target->kind == TARGET_CGROUP)
		return match_cgroup(match, target->cgroup, facts.container);
	return target->kind == TARGET_PROCESS && match_process(match, &facts, 0);
}

const char *casting_entry(const struct casting *casting, const struct target *target)
{
	if (is_entry(casting->config, target->entry))
		return target->entry;
	for (size_t i = 0; i < casting->config->target_count; i++)
		if (selects(casting->matches[i], target))
			return casting->config->targets[i].name;
	return casting->as ? casting->as : target->entry;
}

/*
 * suggestion.c: the values that matter, in a heap of bounded size; then a threshold is looked for by halving.
 *
 * A rule with `for` fires when the value has been above the threshold in every window of that time, that is when the least of them is:
 * so the least of the last windows takes the place of the value. It is kept per target as a queue whose values only rise.
 *
 * How often a threshold fires is counted as the rule would: the first value above it, then none for a cooldown. That needs all values above
 * it in order of time, which the heap holds as long as the threshold is not below what it had to drop.
 */

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

/*
 * rehearsal.c: an evaluator, and one row per rule of what it said.
 *
 * Invariant: events reach the evaluator exactly as daemon/watcher.c hands them over. Whatever a recording cannot tell the evaluator is
 * made up where the recording is read (tape.c), never here.
 */

struct rehearsal {
	struct rehearsal_options options;
	struct evaluator *evaluator;
	struct rehearsal_rule *rules;
	mono_t tick;
	wall_t wall;
};

#define FIELD(name) (1u << SAMPLE_##name)

/* Without any of these a metric has no value. */
static const uint32_t needed[METRICS] = {
	[METRIC_CPU] = FIELD(CPU),
	[METRIC_CPU_CORES] = FIELD(CPU),
	[METRIC_MEMORY] = FIELD(MEMORY),
	[METRIC_MEMORY_BYTES] = FIELD(MEMORY),
	[METRIC_MEMORY_PEAK] = FIELD(MEMORY),
	[METRIC_THREADS] = FIELD(THREADS),
	[METRIC_FDS] = FIELD(FDS),
	[METRIC_FAULTS] = FIELD(MINOR_FAULTS) | FIELD(MAJOR_FAULTS),
	[METRIC_THROTTLED] = FIELD(PERIODS) | FIELD(THROTTLED_PERIODS),
	[METRIC_PIDS] = FIELD(PIDS),
	[METRIC_CPU_PRESSURE] = FIELD(CPU_PRESSURE),
	[METRIC_MEMORY_PRESSURE] = FIELD(MEMORY_PRESSURE),
	[METRIC_IO_PRESSURE] = FIELD(IO_PRESSURE),
};

/* ---- what the evaluator says ---- */

static struct rehearsal_rule *row_of(const struct rehearsal *rehearsal, const struct config_rule *rule)
{
	return &rehearsal->rules[rule - rehearsal->options.config->rules];
}

/* A share of a limit that is not there is one of the machine's (metric.c). */
static bool is_unlimited(const struct evaluator_firing *window)
{
	if (window->rule->of != METRIC_OF_LIMIT)
		return false;
	if (window->rule->metric == METRIC_CPU)
		return window->cpu_limit == UINT64_MAX;
	return window->rule->metric == METRIC_MEMORY && window->memory_limit == UINT64_MAX;
}

static void note_miss(struct rehearsal_miss *miss, const struct evaluator_firing *window)
{
	const struct trigger_decision *decision = window->decision;

	if (decision->candidate || !decision->has_distance || decision->distance < 0)
		return;
	if (miss->known && miss->distance <= decision->distance)
		return;
	*miss = (struct rehearsal_miss){
		.known = true,
		.value = decision->value,
		.distance = decision->distance,
		.wall = window->wall,
	};
	snprintf(miss->target, sizeof(miss->target), "%s", window->target->name);
}

static void rehearsal_on_window(void *ctx, const struct evaluator_firing *window)
{
	struct rehearsal *rehearsal = ctx;
	struct rehearsal_rule *row = row_of(rehearsal, window->rule);

	row->windows++;
	row->reasons[window->decision->reason]++;
	row->fields |= window->sample->mask;
	row->unlimited += is_unlimited(window);
	note_miss(&row->miss, window);
	if (rehearsal->options.witness)
		rehearsal->options.witness(rehearsal->options.ctx, window);
}

static int rehearsal_on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct rehearsal *rehearsal = ctx;
	struct rehearsal_rule *row = row_of(rehearsal, firing->rule);

	row->fired++;
	if (!row->first_known || firing->wall.ns < row->first.ns) /* ticks of several writers overlap */
		row->first = firing->wall;
	row->first_known = true;
	return rehearsal->options.fire ? rehearsal->options.fire(rehearsal->options.ctx, firing) : 0;
}

/* ---- events ---- */

static bool names(const struct config_rule *rule, const char *entry)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], entry) == 0)
			return true;
	return rule->target_count == 0;
}

static int on_target(struct rehearsal *rehearsal, const struct target *target)
{
	for (size_t i = 0; i < rehearsal->options.config->rule_count; i++)
		if (names(&rehearsal->options.config->rules[i], target->entry))
			rehearsal->rules[i].addressed = true;
	return evaluator_target(rehearsal->evaluator, target);
}

int rehearsal_event(struct rehearsal *rehearsal, const struct ring_event *event)
{
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		evaluator_writer(rehearsal->evaluator, event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		rehearsal->tick = event->time;
		rehearsal->wall = event->wall;
		evaluator_idle(rehearsal->evaluator, event->idle_ns);
		return 0;
	case RING_EVENT_SAMPLE:
		evaluator_sample(rehearsal->evaluator, event->id, event->time, event->sample);
		return 0;
	case RING_EVENT_TARGET:
		return on_target(rehearsal, &event->target);
	case RING_EVENT_GONE:
		evaluator_gone(rehearsal->evaluator, event->id);
		return 0;
	case RING_EVENT_TICK_END:
		return evaluator_tick(rehearsal->evaluator, rehearsal->tick, rehearsal->wall);
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		evaluator_gap(rehearsal->evaluator);
		return 0;
	}
	return 0;
}

static int new_evaluator(struct rehearsal *rehearsal, const struct metric_machine *machine, struct evaluator **ret)
{
	const struct evaluator_options options = {
		.config = rehearsal->options.config,
		.machine = *machine,
		.fire = rehearsal_on_fire,
		.witness = rehearsal_on_window,
		.ctx = rehearsal,
	};

	return evaluator_new(&options, ret);
}

int rehearsal_again(struct rehearsal *rehearsal, const struct metric_machine *machine)
{
	struct evaluator *fresh;
	int r = new_evaluator(rehearsal, machine, &fresh);

	if (r < 0)
		return r;
	evaluator_free(rehearsal->evaluator);
	rehearsal->evaluator = fresh;
	return 0;
}

static void rehearsal_release(struct rehearsal **rehearsal)
{
	rehearsal_free(*rehearsal);
}

int rehearsal_new(const struct rehearsal_options *options, struct rehearsal **ret)
{
	AUTO(rehearsal_release) struct rehearsal *rehearsal = calloc(1, sizeof(*rehearsal));
	int r;

	if (!rehearsal)
		return -ENOMEM;

	rehearsal->options = *options;
	rehearsal->rules = calloc(options->config->rule_count + 1, sizeof(*rehearsal->rules));
	if (!rehearsal->rules)
		return -ENOMEM;
	for (size_t i = 0; i < options->config->rule_count; i++)
		rehearsal->rules[i].rule = &options->config->rules[i];
	r = new_evaluator(rehearsal, &options->machine, &rehearsal->evaluator);
	if (r < 0)
		return r;

	*ret = TAKE(rehearsal);
	return 0;
}

void rehearsal_free(struct rehearsal *rehearsal)
{
	if (!rehearsal)
		return;

	evaluator_free(rehearsal->evaluator);
	free(rehearsal->rules);
	free(rehearsal);
}

/* ---- outcomes ---- */

const struct rehearsal_rule *rehearsal_rules(const struct rehearsal *rehearsal)
{
	return rehearsal->rules;
}

uint64_t rehearsal_held_back(const struct rehearsal_rule *rule)
{
	uint64_t count = 0;

	for (unsigned reason = TRIGGER_PENDING; reason < TRIGGER_REASONS; reason++)
		count += rule->reasons[reason];
	return count;
}

/* "periods, throttled_periods": fields of mask. */
static void list_fields(uint32_t mask, char *buf, size_t cap)
{
	size_t len = 0;

	*buf = '\0';
	for (unsigned f = 0; f < SAMPLE_FIELDS && len < cap; f++)
		if (mask >> f & 1u)
			len += (size_t)snprintf(buf + len, cap - len, "%s%s", len ? ", " : "",
						sample_field_info((enum sample_field)f)->name);
}

bool rehearsal_obstacle(const struct rehearsal_rule *rule, char *buf, size_t cap)
{
	uint32_t missing = needed[rule->rule->metric] & ~rule->fields;
	char text[160];

	if (!rule->addressed)
		snprintf(buf, cap, "there is no target that it names");
	else if (rule->windows == 0)
		snprintf(buf, cap, "no whole window of %s was recorded",
			 units_format_duration(text, sizeof(text), rule->rule->window_ns));
	else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE] && missing) {
		list_fields(missing, text, sizeof(text));
		snprintf(buf, cap, "%s is not recorded", text);
	} else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE])
		snprintf(buf, cap, "its counters stepped back, or its limit is 0, in every window");
	else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE] + rule->reasons[TRIGGER_WARMING_UP])
		snprintf(buf, cap, "the recording is shorter than its warm-up, %u windows of %s",
			 rule->rule->trigger.warmup, units_format_duration(text, sizeof(text), rule->rule->window_ns));
	else
		return false;
	return true;
}

bool rehearsal_remark(const struct rehearsal_rule *rule, char *buf, size_t cap)
{
	if (rule->unlimited == 0)
		return false;

	snprintf(buf, cap, "%ju of its %ju windows have no limit recorded and were held against the machine's",
		 (uintmax_t)rule->unlimited, (uintmax_t)rule->windows);
	return true;
}

/*
 * replayview.c: lines and tables of a replay. Each part has its text and its JSON side by side, from the same values.
 */

/* Shorter inputs are read in a moment. */
#define PROGRESS_BYTES_MIN (16u << 20)

static void pad(size_t printed, size_t width)
{
	printf("%*s", printed < width ? (int)(width - printed) + 2 : 2, "");
}

/* ---- the whole ---- */

int replayview_open(struct replayview *view, bool json, bool summary)
{
	*view = (struct replayview){ .summary = summary, .progress = isatty(STDERR_FILENO) == 1 };
	if (!json)
		return 0;
	if (output_json_new(&view->json) < 0)
		return -ENOMEM;
	json_begin_object(view->json);
	jsonmember_array(view->json, "sources");
	return 0;
}

void replayview_close(struct replayview *view)
{
	if (view->json)
		json_end_object(view->json);
	output_json_release(&view->json);
	view->json = NULL;
}

/* ---- progress ---- */

static void clear_progress(struct replayview *view)
{
	if (view->shown_percent > 0)
		fputs("\r\033[K", stderr);
	view->shown_percent = 0;
}

static void replayview_progress(struct replayview *view, uint64_t done_bytes, uint64_t size_bytes)
{
	unsigned percent;

	if (!view->progress || size_bytes < PROGRESS_BYTES_MIN)
		return;
	percent = (unsigned)(100.0 * (double)done_bytes / (double)size_bytes);
	if (percent <= view->shown_percent || percent > 100)
		return;
	fprintf(stderr, "\rreplaying: %u %%", percent);
	view->shown_percent = percent;
}

/* ---- sources ---- */

/* A source begins, something is wrong with it, so far it has been read, one of its windows fired, it is over. */
static void replayview_source(struct replayview *view, const struct replaysource *source)
{
	view->path = source->path;
	view->troubles = 0;
	view->headed = false;
	if (!view->json)
		return;
	json_begin_object(view->json);
	jsonmember_text(view->json, "path", source->path);
	jsonmember_text(view->json, "kind", replaysource_kind_name(source->kind));
	if (!view->summary)
		jsonmember_array(view->json, "firings");
}

static void begin_warning(struct replayview *view)
{
	clear_progress(view);
	fputs("spikewatch replay: warning: ", stderr);
	output_escaped(stderr, view->path);
	fputs(": ", stderr);
}

static void replayview_trouble(struct replayview *view, uint64_t line, uint64_t rows_lost, const char *why)
{
	if (view->troubles++ >= REPLAYVIEW_TROUBLES_MAX)
		return;
	begin_warning(view);
	if (line > 0)
		fprintf(stderr, "line %ju: ", (uintmax_t)line);
	fputs(why, stderr);
	if (rows_lost > 0)
		fprintf(stderr, " (%ju %s lost)", (uintmax_t)rows_lost, rows_lost == 1 ? "row" : "rows");
	fputc('\n', stderr);
}

static void warn_of_rest(struct replayview *view, const struct tape_summary *summary)
{
	if (view->troubles > REPLAYVIEW_TROUBLES_MAX) {
		begin_warning(view);
		fprintf(stderr, "and %ju more\n", (uintmax_t)(view->troubles - REPLAYVIEW_TROUBLES_MAX));
	}
	if (summary->nameless > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples of targets that nothing describes were passed over\n",
			(uintmax_t)summary->nameless);
	}
	if (summary->late > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples that came too late, or at absurd times, were passed over\n",
			(uintmax_t)summary->late);
	}
}

static void put_source_end(struct json_writer *json, const struct replayview *view, const struct tape_summary *summary)
{
	if (!view->summary)
		json_end_array(json);
	if (summary->any) {
		jsonmember_u64(json, "from", summary->from.ns);
		jsonmember_u64(json, "to", summary->to.ns);
	}
	jsonmember_u64(json, "ticks", summary->ticks);
	jsonmember_u64(json, "samples", summary->samples);
	jsonmember_u64(json, "targets", summary->targets);
	jsonmember_u64(json, "gaps", summary->gaps);
	jsonmember_u64(json, "troubles", view->troubles);
	jsonmember_u64(json, "samples_passed_over", summary->nameless + summary->late);
	json_end_object(json);
}

static void replayview_source_end(struct replayview *view, const struct replaysource *source,
			   const struct tape_summary *summary)
{
	char text[64];

	clear_progress(view);
	warn_of_rest(view, summary);
	if (view->json) {
		put_source_end(view->json, view, summary);
		return;
	}
	if (view->headed)
		putchar('\n');
	output_escaped(stdout, source->path);
	if (!summary->any) {
		fputs(": no samples\n", stdout);
		return;
	}
	printf(": %s, ", replaysource_kind_name(source->kind));
	fputs(units_format_duration(text, sizeof(text), summary->to.ns - summary->from.ns), stdout);
	printf(" from %s, ", story_time(summary->from, true, text, sizeof(text)));
	printf("%ju %s, %ju samples", (uintmax_t)summary->targets, summary->targets == 1 ? "target" : "targets",
	       (uintmax_t)summary->samples);
	if (summary->gaps > 0)
		printf(", %ju %s", (uintmax_t)summary->gaps, summary->gaps == 1 ? "gap" : "gaps");
	putchar('\n');
}

/* ---- firings ---- */

/* A threshold as a configuration writes it: 80.5, 1.25, "512MiB" without quotes. Exact. Returns buf. */
static const char *replayview_threshold(const struct config_rule *rule, double value, char *buf, size_t cap)
{
	uint64_t bytes = value > 0 && value < 1e18 ? (uint64_t)value : 0;
	unsigned unit = 0;
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

	if (metric_unit(rule->metric) != METRIC_BYTES) {
		for (int digits = 1; digits <= 17; digits++) {
			snprintf(buf, cap, "%.*g", digits, value);
			if (strtod(buf, NULL) == value && !strchr(buf, 'e'))
				return buf;
		}
		snprintf(buf, cap, "%.9f", value);
		return buf;
	}
	for (; unit + 1 < ARRAY_LEN(units) && bytes > 0 && bytes % 1024 == 0; unit++)
		bytes /= 1024;
	snprintf(buf, cap, "%ju%s", (uintmax_t)bytes, units[unit]);
	return buf;
}

static bool by_average(const struct evaluator_firing *firing)
{
	return firing->decision->candidate_reason == TRIGGER_ABOVE_AVERAGE;
}

static double level_of(const struct evaluator_firing *firing)
{
	return by_average(firing) ? firing->decision->average * (100 + firing->effective->delta) / 100
				  : firing->effective->percent;
}

/* The minimum is what it had to reach: it is above the level. */
static bool by_minimum(const struct evaluator_firing *firing)
{
	return firing->effective->has_minimum && firing->effective->minimum > level_of(firing);
}

/* What the value was held against. */
static double threshold_of(const struct evaluator_firing *firing)
{
	return by_minimum(firing) ? firing->effective->minimum : level_of(firing);
}

/* "93.8% > 80%", "147 MiB >= 132 MiB, above the average of 88.2 MiB", "102 MiB >= 64 MiB, the minimum; the average was 6.54 MiB" */
static void print_why(const struct evaluator_firing *firing)
{
	enum metric_unit unit = metric_unit(firing->rule->metric);
	bool minimum = by_minimum(firing), average = by_average(firing);
	char text[64];

	fputs(metrictext_value(unit, firing->decision->value, text, sizeof(text)), stdout);
	fputs(minimum || average ? " >= " : " > ", stdout);
	fputs(metrictext_value(unit, threshold_of(firing), text, sizeof(text)), stdout);
	if (minimum)
		fputs(", the minimum", stdout);
	if (average)
		printf("%s%s", minimum ? "; the average was " : ", above the average of ",
		       metrictext_value(unit, firing->decision->average, text, sizeof(text)));
	putchar('\n');
}

static void put_firing(struct json_writer *json, const struct evaluator_firing *firing)
{
	const struct trigger_decision *decision = firing->decision;

	json_begin_object(json);
	jsonmember_u64(json, "wall", firing->wall.ns);
	jsonmember_u64(json, "mono", firing->to.ns);
	jsonmember_u64(json, "window_ns", (uint64_t)mono_diff(firing->to, firing->from));
	jsonmember_text(json, "rule", firing->rule->name);
	jsonmember_text(json, "target", firing->target->name);
	jsonmember_text(json, "key", firing->target->key);
	jsonmember_text(json, "reason", trigger_reason_name(decision->reason));
	jsonmember_text(json, "unit", incident_unit_name(metric_unit(firing->rule->metric)));
	jsonmember_double(json, "value", decision->value);
	jsonmember_double(json, "threshold", threshold_of(firing));
	if (decision->has_average)
		jsonmember_double(json, "average", decision->average);
	json_end_object(json);
}

void replayview_firing(struct replayview *view, const struct evaluator_firing *firing)
{
	char text[64];

	if (view->summary)
		return;
	if (view->json) {
		put_firing(view->json, firing);
		return;
	}
	clear_progress(view);
	if (!view->headed)
		printf("%-28s  %-14s  %-18s  %s\n", "When", "Rule", "Target", "Why");
	view->headed = true;
	printf("%-28s  ", story_time(firing->wall, true, text, sizeof(text)));
	pad(output_escaped(stdout, firing->rule->name), 14);
	pad(output_escaped(stdout, firing->target->name), 18);
	print_why(firing);
}

/* ---- rules ---- */

static void put_miss(struct json_writer *json, const struct rehearsal_miss *miss)
{
	json_key(json, "nearest_miss");
	if (!miss->known) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	jsonmember_u64(json, "wall", miss->wall.ns);
	jsonmember_text(json, "target", miss->target);
	jsonmember_double(json, "value", miss->value);
	jsonmember_double(json, "threshold", miss->value + miss->distance);
	jsonmember_double(json, "distance", miss->distance);
	json_end_object(json);
}

static void put_rule(struct json_writer *json, const struct rehearsal_rule *row)
{
	char text[256];

	json_begin_object(json);
	jsonmember_text(json, "name", row->rule->name);
	jsonmember_text(json, "metric", metric_name(row->rule->metric));
	jsonmember_text(json, "unit", incident_unit_name(metric_unit(row->rule->metric)));
	jsonmember_u64(json, "windows", row->windows);
	jsonmember_u64(json, "fired", row->fired);
	jsonmember_u64(json, "held_back", rehearsal_held_back(row));
	json_key(json, "reasons");
	json_begin_object(json);
	for (unsigned reason = 0; reason < TRIGGER_REASONS; reason++)
		if (row->reasons[reason] > 0)
			jsonmember_u64(json, trigger_reason_name((enum trigger_reason)reason), row->reasons[reason]);
	json_end_object(json);
	put_miss(json, &row->miss);
	if (rehearsal_obstacle(row, text, sizeof(text)))
		jsonmember_text(json, "not_judged", text);
	if (rehearsal_remark(row, text, sizeof(text)))
		jsonmember_text(json, "remark", text);
	json_end_object(json);
}

static void print_miss(const struct rehearsal_rule *row)
{
	enum metric_unit unit = metric_unit(row->rule->metric);
	const struct rehearsal_miss *miss = &row->miss;
	char text[64];

	if (!miss->known) {
		fputs("-\n", stdout);
		return;
	}
	fputs(metrictext_value(unit, miss->value, text, sizeof(text)), stdout);
	printf(" of %s, ", metrictext_value(unit, miss->value + miss->distance, text, sizeof(text)));
	output_escaped(stdout, miss->target);
	printf(", %s\n", story_time(miss->wall, true, text, sizeof(text)));
}

static void print_rule(const struct rehearsal_rule *row)
{
	char text[256];

	pad(output_escaped(stdout, row->rule->name), 14);
	if (rehearsal_obstacle(row, text, sizeof(text))) {
		printf("not judged: %s\n", text);
		return;
	}
	printf("%7ju  %5ju  %9ju  ", (uintmax_t)row->windows, (uintmax_t)row->fired,
	       (uintmax_t)rehearsal_held_back(row));
	print_miss(row);
	if (rehearsal_remark(row, text, sizeof(text)))
		printf("%-14s  (%s)\n", "", text);
}

/* Rules, in the order of the configuration. */
static void replayview_rules(struct replayview *view, const struct rehearsal_rule *rules, size_t count)
{
	if (view->json) {
		json_end_array(view->json); /* of sources */
		jsonmember_array(view->json, "rules");
		for (size_t i = 0; i < count; i++)
			put_rule(view->json, &rules[i]);
		json_end_array(view->json);
		return;
	}
	printf("\n%-14s  %7s  %5s  %9s  %s\n", "Rule", "Windows", "Fired", "Held back", "Nearest miss");
	for (size_t i = 0; i < count; i++)
		print_rule(&rules[i]);
}

/* ---- variants ---- */

static void put_variant(struct json_writer *json, const struct whatif_variant *variant,
			const struct rehearsal_rule *row)
{
	json_begin_object(json);
	jsonmember_text(json, "rule", row->rule->name);
	jsonmember_text(json, "key", variant->key);
	jsonmember_text(json, "value", variant->value);
	jsonmember_u64(json, "windows", row->windows);
	jsonmember_u64(json, "fired", row->fired);
	jsonmember_u64(json, "held_back", rehearsal_held_back(row));
	if (row->first_known)
		jsonmember_u64(json, "first", row->first.ns);
	json_end_object(json);
}

static void print_outcome(const char *what, const struct rehearsal_rule *row)
{
	char text[64];

	printf("  %-24s  %5ju  %9ju  %s\n", what, (uintmax_t)row->fired, (uintmax_t)rehearsal_held_back(row),
	       row->first_known ? story_time(row->first, true, text, sizeof(text)) : "-");
}

/* base: the outcomes of the configuration as it is; outcomes: those of each variant, for all its rules. */
static void replayview_whatif(struct replayview *view, const struct whatif *whatif, const struct rehearsal_rule *base,
		       const struct rehearsal_rule *const *outcomes)
{
	if (view->json)
		jsonmember_array(view->json, "what_if");
	for (size_t i = 0; i < whatif->count; i++) {
		const struct whatif_variant *variant = &whatif->variants[i];
		char what[128];

		if (view->json) {
			put_variant(view->json, variant, &outcomes[i][variant->rule]);
			continue;
		}
		if (i == 0 || variant[-1].rule != variant->rule) {
			fputs("\nWhat if: rule ", stdout);
			output_escaped(stdout, base[variant->rule].rule->name);
			printf("\n  %-24s  %5s  %9s  %s\n", "", "Fired", "Held back", "First");
			print_outcome("as it is", &base[variant->rule]);
		}
		snprintf(what, sizeof(what), "%s %s", variant->key, variant->value);
		print_outcome(what, &outcomes[i][variant->rule]);
	}
	if (view->json)
		json_end_array(view->json);
}

/* ---- proposals ---- */

static bool is_proposal(const struct replayview_proposal *proposal)
{
	return proposal->fits && proposal->answer.known;
}

static void put_proposal(struct json_writer *json, const struct replayview_proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;

	json_begin_object(json);
	jsonmember_text(json, "rule", proposal->rule->name);
	jsonmember_double(json, "per_day", proposal->per_day);
	jsonmember_u64(json, "wanted", proposal->wanted);
	jsonmember_bool(json, "known", is_proposal(proposal));
	if (is_proposal(proposal)) {
		jsonmember_text(json, "key",
				metric_unit(proposal->rule->metric) == METRIC_PERCENT ? "percent" : "above");
		jsonmember_double(json, "threshold", answer->threshold);
		jsonmember_double(json, "highest", answer->highest);
		json_key(json, "fired");
		if (proposal->replayed)
			json_u64(json, proposal->fired);
		else
			json_null(json);
	}
	json_end_object(json);
}

static void print_proposal(const struct replayview_proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;
	enum metric_unit unit = metric_unit(proposal->rule->metric);
	char text[64];

	pad(output_escaped(stdout, proposal->rule->name), 14);
	if (!is_proposal(proposal)) {
		puts(proposal->fits ? "nothing to go by: it never had a value that could fire"
				    : "nothing to propose: it has no threshold of its own, or its for is too long");
		return;
	}
	printf("%6.6g  ", proposal->per_day);
	pad((size_t)printf("%s %s", unit == METRIC_PERCENT ? "percent" : "above",
			   replayview_threshold(proposal->rule, answer->threshold, text, sizeof(text))),
	    22);
	if (proposal->replayed)
		printf("%5ju  ", (uintmax_t)proposal->fired);
	else
		printf("%5s  ", "?");
	puts(metrictext_value(unit, answer->highest, text, sizeof(text)));
}

/* span_ns: how much time was replayed. */
static void replayview_proposals(struct replayview *view, const struct replayview_proposal *proposals, size_t count,
			  uint64_t span_ns)
{
	char span[64];

	if (view->json) {
		jsonmember_array(view->json, "suggestions");
		for (size_t i = 0; i < count; i++)
			put_proposal(view->json, &proposals[i]);
		json_end_array(view->json);
		return;
	}
	printf("\nThresholds that fire so often; %s were replayed\n",
	       units_format_duration(span, sizeof(span), span_ns));
	printf("%-14s  %6s  %-22s  %5s  %s\n", "Rule", "A day", "Threshold", "Fired", "Highest seen");
	for (size_t i = 0; i < count; i++)
		if (i == 0 || is_proposal(&proposals[i]) || proposals[i].rule != proposals[i - 1].rule)
			print_proposal(&proposals[i]);
}

/*
 * rerun.c: every source is read once, and its events are handed to the rules as they are and to every variant of them at the same time.
 * What is proposed is then tried: the sources are read once more, under rules that have the proposed thresholds.
 *
 * Each source is judged by itself: neither history nor cooldowns reach from one to the next.
 */

#define DAY_NS (86400 * NS_PER_S)

/* The same observations under several configurations. */
struct stage {
	struct rehearsal **rehearsals;
	size_t count;
};

struct rerun {
	const struct rerun_request *request;
	struct casting *casting;
	struct stage stage;              /* the configuration as it is, then the variants */
	struct suggestion **suggestions; /* one per rule; NULL: none can be made */
	struct replayview view;
	/* While sources are read. */
	const struct stage *playing;
	bool trying;     /* for the second time: nothing is told */
	uint32_t source; /* its number */
	int result;      /* of collecting */
	uint64_t span_ns;
	bool rereadable;
	int code; /* enum options_exit; the worst so far */
	bool any; /* source could be opened */
};

/* ---- stages ---- */

static void stage_release(struct stage *stage)
{
	for (size_t i = 0; i < stage->count; i++)
		rehearsal_free(stage->rehearsals[i]);
	free(stage->rehearsals);
	*stage = (struct stage){ 0 };
}

static int stage_add(struct stage *stage, const struct rehearsal_options *options)
{
	struct rehearsal **grown = realloc(stage->rehearsals, (stage->count + 1) * sizeof(*grown));
	int r;

	if (!grown)
		return -ENOMEM;
	stage->rehearsals = grown;
	r = rehearsal_new(options, &stage->rehearsals[stage->count]);
	if (r == 0)
		stage->count++;
	return r;
}

static int stage_add_variants(struct stage *stage, const struct whatif *whatif, const struct metric_machine *machine)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < whatif->count; i++) {
		const struct rehearsal_options options = { .config = &whatif->variants[i].config, .machine = *machine };

		r = stage_add(stage, &options);
	}
	return r;
}

/* ---- what comes while a source is read ---- */

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct rerun *rerun = ctx;

	if (!rerun->trying)
		replayview_firing(&rerun->view, firing);
	return 0;
}

static void on_window(void *ctx, const struct evaluator_firing *window)
{
	struct rerun *rerun = ctx;
	size_t rule = (size_t)(window->rule - rerun->request->config->rules);

	if (rerun->suggestions && rerun->suggestions[rule] && rerun->result == 0)
		rerun->result = suggestion_add(rerun->suggestions[rule], rerun->source, window);
}

/* A reader that has seen enough of us ends it. */
static int on_event(void *ctx, const struct ring_event *event)
{
	struct rerun *rerun = ctx;
	struct ring_event cast;
	int r = 0;

	if (event->type == RING_EVENT_TARGET) {
		cast = *event;
		cast.target.entry = casting_entry(rerun->casting, &event->target);
		event = &cast;
	}
	for (size_t i = 0; r == 0 && i < rerun->playing->count; i++)
		r = rehearsal_event(rerun->playing->rehearsals[i], event);
	if (r == 0)
		r = rerun->result;
	return r == 0 && ferror(stdout) ? -EPIPE : r;
}

static void on_trouble(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct rerun *rerun = ctx;

	if (!rerun->trying)
		replayview_trouble(&rerun->view, line, rows_lost, why);
	rerun->code = EXIT_TROUBLE > rerun->code ? EXIT_TROUBLE : rerun->code;
}

static void on_progress(void *ctx, uint64_t done_bytes, uint64_t size_bytes)
{
	struct rerun *rerun = ctx;

	replayview_progress(&rerun->view, done_bytes, size_bytes);
}

/* ---- sources ---- */

static void rerun_complain(struct rerun *rerun, int code, const char *message)
{
	fputs("spikewatch replay: ", stderr);
	output_escaped(stderr, message);
	fputc('\n', stderr);
	rerun->code = rerun->code < code ? code : rerun->code;
}

/* The command line knows the machine best, then the recording. */
static struct metric_machine machine_of(const struct rerun *rerun, const struct replaysource *source)
{
	struct metric_machine machine = rerun->request->machine;

	if (!rerun->request->cores_are_told && source->machine.cores > 0)
		machine.cores = source->machine.cores;
	if (!rerun->request->memory_is_told && source->machine.memory_bytes > 0)
		machine.memory_bytes = source->machine.memory_bytes;
	return machine;
}

/* What is to be said of a source once it is over. */
static void end_source(struct rerun *rerun, const struct replaysource *source, const struct tape_summary *summary,
		       int result)
{
	const struct salvage_report *report = &summary->report;
	bool stream = source->kind != REPLAYSOURCE_RING;

	if (rerun->trying || result == -EPIPE)
		return;
	if (result < 0 && result != -ENOMEM)
		on_trouble(rerun, 0, 0, strerror(-result));
	if (stream && report->ours && !report->complete)
		on_trouble(rerun, 0, 0, "it has no closing checksum: it was cut off, or is still being written");
	replayview_source_end(&rerun->view, source, summary);
	if (summary->any)
		rerun->span_ns += summary->to.ns > summary->from.ns ? summary->to.ns - summary->from.ns : 0;
	if (stream && !report->ours) {
		char message[REPLAYSOURCE_MESSAGE_MAX];

		snprintf(message, sizeof(message), "%.400s: there is no line of ours in it", source->path);
		rerun_complain(rerun, EXIT_USAGE, message);
	}
}

/* 0, or what ends the command: -ENOMEM, -EPIPE. What is wrong with the source is said. */
static int play(struct rerun *rerun, struct replaysource *source)
{
	const struct tape_options options = {
		.interval_ns = rerun->request->config->sampling.interval_ns,
		.heartbeat_ns = rerun->request->config->sampling.heartbeat_ns,
		.event = on_event,
		.trouble = on_trouble,
		.ctx = rerun,
	};
	struct metric_machine machine = machine_of(rerun, source);
	struct tape_summary summary;
	int r = 0;

	for (size_t i = 0; r == 0 && i < rerun->playing->count; i++)
		r = rehearsal_again(rerun->playing->rehearsals[i], &machine);
	if (r < 0)
		return r;
	rerun->rereadable &= source->rereadable;
	if (!rerun->trying)
		replayview_source(&rerun->view, source);
	r = replaysource_play(source, &options, on_progress, &summary);
	end_source(rerun, source, &summary, r);
	return r == -ENOMEM || r == -EPIPE ? r : 0;
}

static int play_one(struct rerun *rerun, const char *operand)
{
	AUTO(replaysource_close) struct replaysource source = { .fd = -1 };
	char message[REPLAYSOURCE_MESSAGE_MAX];
	int r = replaysource_open(operand, rerun->request->directory, &source, message);

	if (r == -ENOMEM)
		return r;
	if (r == 0) {
		rerun->any = true;
		return play(rerun, &source);
	}
	if (!rerun->trying)
		rerun_complain(rerun, r == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE, message);
	return 0;
}

static int play_all(struct rerun *rerun, const struct stage *stage)
{
	int r = 0;

	rerun->playing = stage;
	for (size_t i = 0; r == 0 && i < rerun->request->source_count; i++) {
		rerun->source = (uint32_t)i;
		r = play_one(rerun, rerun->request->sources[i]);
	}
	return r;
}

/* ---- proposals ---- */

static int make_suggestions(struct rerun *rerun)
{
	if (rerun->request->rate_count == 0)
		return 0;
	rerun->suggestions = calloc(rerun->request->config->rule_count + 1, sizeof(struct suggestion *));
	if (!rerun->suggestions)
		return -ENOMEM;
	for (size_t i = 0; i < rerun->request->config->rule_count; i++) {
		const struct config_rule *rule = &rerun->request->config->rules[i];
		int r = rule->trigger.has_percent ? suggestion_new(rule, &rerun->suggestions[i]) : 0;

		if (r == -ENOMEM)
			return r;
	}
	return 0;
}

static struct replayview_proposal propose(const struct rerun *rerun, size_t rule, double per_day)
{
	struct replayview_proposal proposal = { .rule = &rerun->request->config->rules[rule], .per_day = per_day };

	proposal.wanted = (uint64_t)(per_day * ((double)rerun->span_ns / (double)DAY_NS) + 0.5);
	proposal.fits = rerun->suggestions[rule] != NULL;
	if (proposal.fits)
		suggestion_answer(rerun->suggestions[rule], proposal.wanted, &proposal.answer);
	return proposal;
}

/* Adds the variant that a proposal is. 0; -ENOMEM; 1: it makes no good rule, or one too many. */
static int add_trial(const struct rerun *rerun, struct whatif *trials, const struct replayview_proposal *proposal)
{
	const struct config_rule *rule = proposal->rule;
	char message[WHATIF_MESSAGE_MAX], value[64];
	bool percent = metric_unit(rule->metric) == METRIC_PERCENT;
	int r;

	replayview_threshold(rule, proposal->answer.threshold, value, sizeof(value));
	r = whatif_add(trials, rerun->request->config, (size_t)(rule - rerun->request->config->rules),
		       percent ? "percent" : "above", value, message);
	return r == -EINVAL ? 1 : r;
}

/* Replays everything once more under what is proposed. 0, -ENOMEM, -EPIPE. */
static int try_proposals(struct rerun *rerun, struct replayview_proposal *proposals, size_t count)
{
	AUTO(whatif_release) struct whatif trials = { 0 };
	AUTO(stage_release) struct stage stage = { 0 };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < count; i++) {
		if (!proposals[i].fits || !proposals[i].answer.known)
			continue;
		r = add_trial(rerun, &trials, &proposals[i]);
		proposals[i].replayed = r == 0;
	}
	if (r >= 0)
		r = stage_add_variants(&stage, &trials, &rerun->request->machine);
	rerun->trying = true;
	if (r >= 0)
		r = play_all(rerun, &stage);
	for (size_t i = 0, trial = 0; r == 0 && i < count; i++)
		if (proposals[i].replayed) {
			size_t rule = (size_t)(proposals[i].rule - rerun->request->config->rules);

			proposals[i].fired = rehearsal_rules(stage.rehearsals[trial++])[rule].fired;
		}
	return r;
}

static int suggest(struct rerun *rerun)
{
	size_t count = rerun->request->config->rule_count * rerun->request->rate_count, at = 0;
	AUTO_FREE struct replayview_proposal *proposals = calloc(count + 1, sizeof(*proposals));
	int r = 0;

	if (!proposals)
		return -ENOMEM;
	for (size_t rule = 0; rule < rerun->request->config->rule_count; rule++)
		for (size_t i = 0; i < rerun->request->rate_count; i++)
			proposals[at++] = propose(rerun, rule, rerun->request->rates[i]);
	if (rerun->rereadable)
		r = try_proposals(rerun, proposals, count);
	if (r == 0)
		replayview_proposals(&rerun->view, proposals, count, rerun->span_ns);
	return r;
}

/* ---- all of it ---- */

static int show_variants(struct rerun *rerun)
{
	AUTO_FREE const struct rehearsal_rule **outcomes = calloc(rerun->request->whatif->count + 1, sizeof(*outcomes));

	if (!outcomes)
		return -ENOMEM;
	for (size_t i = 0; i < rerun->request->whatif->count; i++)
		outcomes[i] = rehearsal_rules(rerun->stage.rehearsals[i + 1]);
	replayview_whatif(&rerun->view, rerun->request->whatif, rehearsal_rules(rerun->stage.rehearsals[0]), outcomes);
	return 0;
}

static int run(struct rerun *rerun)
{
	const struct rehearsal_options options = {
		.config = rerun->request->config,
		.machine = rerun->request->machine,
		.fire = on_fire,
		.witness = on_window,
		.ctx = rerun,
	};
	int r = make_suggestions(rerun);

	if (r == 0)
		r = stage_add(&rerun->stage, &options);
	if (r == 0)
		r = stage_add_variants(&rerun->stage, rerun->request->whatif, &rerun->request->machine);
	if (r == 0)
		r = play_all(rerun, &rerun->stage);
	if (r < 0 || (!rerun->any && !rerun->request->json)) /* tables of nothing would hide what was said */
		return r;
	replayview_rules(&rerun->view, rehearsal_rules(rerun->stage.rehearsals[0]), rerun->request->config->rule_count);
	if (rerun->request->whatif->count > 0)
		r = show_variants(rerun);
	if (r == 0 && rerun->request->rate_count > 0)
		r = suggest(rerun);
	return r;
}

static void release(struct rerun *rerun)
{
	stage_release(&rerun->stage);
	for (size_t i = 0; rerun->suggestions && i < rerun->request->config->rule_count; i++)
		suggestion_free(rerun->suggestions[i]);
	free(rerun->suggestions);
	casting_free(rerun->casting);
}

/* Prints to standard output, and what is wrong to standard error. Returns the code to exit with. */
static int rerun_all(const struct rerun_request *request)
{
	AUTO(release) struct rerun rerun = { .request = request, .rereadable = true };
	int r = casting_new(request->config, request->as, &rerun.casting);

	if (r == 0)
		r = replayview_open(&rerun.view, request->json, request->summary);
	if (r == 0) {
		r = run(&rerun);
		replayview_close(&rerun.view);
	}
	if (r == -ENOMEM)
		return output_no_memory();
	return r < 0 && rerun.code == EXIT_OK ? EXIT_TROUBLE : rerun.code;
}

#define DEFAULT_CONFIG "/etc/spikewatch/spikewatch.json"
#define DEFAULT_DROPINS "/etc/spikewatch/spikewatch.d"

#define RATES_MAX 8

struct replay {
	/* The command line. */
	const char *config_path, *whatif_text, *suggest_text, *as, *directory;
	uint64_t cpus, memory_bytes;
	bool json, summary;
	char **sources; /* operands */
	size_t source_count;
	/* What is made of it. */
	struct config *config;
	struct whatif whatif;
	struct metric_machine machine;
	double rates[RATES_MAX];
	size_t rate_count;
	char incidents[INCIDENTLOAD_PATH_MAX];
	char ring[PATHS_MAX]; /* if there are no operands */
};

/* Says so. Returns -EINVAL. */
static int complain(const char *message)
{
	fputs("spikewatch replay: ", stderr);
	output_escaped(stderr, message);
	fputc('\n', stderr);
	return -EINVAL;
}

/* "1" or "0.5,2,10". */
static int parse_rates(struct replay *replay)
{
	const char *at = replay->suggest_text;

	while (at) {
		size_t len = strcspn(at, ",");

		if (replay->rate_count == RATES_MAX || units_number(at, len, &replay->rates[replay->rate_count]) < 0)
			return complain("--suggest: expected up to eight numbers of firings a day, such as 1 or "
					"0.5,2,10");
		replay->rate_count++;
		at = at[len] ? at + len + 1 : NULL;
	}
	return 0;
}

static int check_as(struct replay *replay)
{
	char message[200];

	if (!replay->as)
		return 0;
	for (size_t i = 0; i < replay->config->target_count; i++)
		if (strcmp(replay->config->targets[i].name, replay->as) == 0)
			return 0;
	snprintf(message, sizeof(message), "--as %.64s: the configuration has no target of this name; there is %.64s",
		 replay->as, replay->config->targets[0].name);
	return complain(message);
}

static int load_config(struct replay *replay)
{
	const struct configfile file = {
		.path = replay->config_path ? replay->config_path : DEFAULT_CONFIG,
		.dropins = replay->config_path ? NULL : DEFAULT_DROPINS,
	};
	char message[CONFIGFILE_MESSAGE_MAX];
	int r = configfile_load(&file, &replay->config, message);

	if (r == -EINVAL) {
		int code = complain(message);

		if (access(file.path, F_OK) < 0 && !replay->config_path)
			fputs("-c FILE says whose rules: those of the daemon that recorded, for instance.\n", stderr);
		return code;
	}
	if (r == 0 && replay->config->rule_count == 0) {
		snprintf(message, sizeof(message), "%.500s: there are no rules in it", file.path);
		return complain(message);
	}
	return r;
}

/* Which CPUs and memory percentages of the machine are of, where the sources do not say. */
static int find_machine(struct replay *replay)
{
	AUTO_CLOSE int procfd = open(replay->config->proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = procfd < 0 ? -errno : cglimits_machine(procfd, "", &replay->machine);

	if (replay->cpus > 0)
		replay->machine.cores = (double)replay->cpus;
	if (replay->memory_bytes > 0)
		replay->machine.memory_bytes = replay->memory_bytes;
	if (r < 0 && (replay->cpus == 0 || replay->memory_bytes == 0))
		return complain("this machine's CPUs and memory cannot be read: expected --cpus and --memory");
	return 0;
}

static int read_whatif(struct replay *replay)
{
	char message[WHATIF_MESSAGE_MAX], line[WHATIF_MESSAGE_MAX + 16];
	int r;

	if (!replay->whatif_text)
		return 0;
	r = whatif_parse(&replay->whatif, replay->config, replay->whatif_text, message);
	if (r != -EINVAL)
		return r;
	snprintf(line, sizeof(line), "--what-if: %s", message);
	return complain(line);
}

/* Where the daemon of this configuration has its files. */
static int find_files(struct replay *replay)
{
	const char *directory = replay->directory;
	char *operand = replay->ring;
	struct paths paths;

	if (!directory && *replay->config->incidents.directory)
		directory = replay->config->incidents.directory;
	if (incidentload_directory(directory, replay->incidents, sizeof(replay->incidents)) < 0)
		snprintf(replay->incidents, sizeof(replay->incidents), ".");
	if (replay->source_count > 0)
		return 0;
	if (paths_choose(replay->config, &paths) < 0)
		return complain("where the daemon's ring is cannot be told: expected a source");
	snprintf(operand, sizeof(replay->ring), "%s", paths.ring);
	return 0;
}

/* 0; -ENOMEM; -EINVAL: it was said. */
static int prepare(struct replay *replay)
{
	int r = parse_rates(replay);

	if (r == 0)
		r = load_config(replay);
	if (r == 0)
		r = check_as(replay);
	if (r == 0)
		r = find_machine(replay);
	if (r == 0)
		r = read_whatif(replay);
	return r == 0 ? find_files(replay) : r;
}

static int replay_all(struct replay *replay)
{
	char *ring = replay->ring;
	int r = prepare(replay);
	const struct rerun_request request = {
		.config = replay->config,
		.whatif = &replay->whatif,
		.as = replay->as,
		.directory = replay->incidents,
		.machine = replay->machine,
		.cores_are_told = replay->cpus > 0,
		.memory_is_told = replay->memory_bytes > 0,
		.sources = replay->source_count > 0 ? replay->sources : &ring,
		.source_count = replay->source_count > 0 ? replay->source_count : 1,
		.rates = replay->rates,
		.rate_count = replay->rate_count,
		.json = replay->json,
		.summary = replay->summary,
	};

	if (r == -ENOMEM)
		return output_no_memory();
	return r < 0 ? EXIT_USAGE : rerun_all(&request);
}

static void replay_release(struct replay *replay)
{
	whatif_release(&replay->whatif);
	config_free(replay->config);
}

int replay_command(int argc, char **argv)
{
	AUTO(replay_release) struct replay replay = { 0 };
	const struct option_spec options[] = {
		{ 'c', "config", OPTION_TEXT, "FILE", "whose rules (" DEFAULT_CONFIG ")", &replay.config_path },
		{ 'w', "what-if", OPTION_TEXT, "CHANGE", "RULE.KEY=VALUE,VALUE,...: what would have fired then",
		  &replay.whatif_text },
		{ 0, "suggest", OPTION_TEXT, "N[,N...]", "thresholds that fire N times a day", &replay.suggest_text },
		{ 0, "as", OPTION_TEXT, "ENTRY", "what targets are that no entry selects", &replay.as },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are, for names", &replay.directory },
		{ 0, "cpus", OPTION_NUMBER, "N", "of the machine recorded (this one's)", &replay.cpus },
		{ 0, "memory", OPTION_SIZE, "SIZE", "of the machine recorded (this one's)", &replay.memory_bytes },
		{ 's', "summary", OPTION_FLAG, NULL, "no list of firings", &replay.summary },
		{ 0, "json", OPTION_FLAG, NULL, "all of it as one JSON object", &replay.json },
	};
	const struct options_usage usage = {
		.command = "spikewatch replay",
		.operands = "[SOURCE...]",
		.summary = "Runs rules over what was recorded: what fires, and what nearly did.",
		.description = "SOURCE: a recording, - for standard input, an incident's name or directory, a ring's\n"
			       "file. None: the ring of the daemon that runs with this configuration.",
		.example = "spikewatch replay -c my.json last --what-if 'hot.percent=60,70,80'",
		.exits = "0 replayed, 1 a source is damaged or failed, 2 wrong usage or none of ours",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
	};
	int first = 0, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	replay.sources = argv + first;
	replay.source_count = (size_t)(argc - first);
	return replay_all(&replay);
}
