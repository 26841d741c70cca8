/*
 * replay.c: spikewatch replay runs the rules of a configuration over recorded samples: what would
 * have fired, what nearly did, which rules could not be judged and why.
 *
 * Every source (recording.h) is read once. Its events go to one evaluator with the rules as they
 * are and to one for each variant of --what-if, as the daemon hands over the events of its ring;
 * what a recording lacks is reconstructed in recording.c only. Neither history nor cooldowns reach
 * from one source to the next. Firings are printed while a source is read.
 *
 * --suggest keeps the highest values of each rule, and proposes the lowest threshold that fires as
 * often as asked for. It is then tried: the sources are read once more, under the proposed rules.
 */
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
#include "lib/cgroup/cgroup.h"
#include "lib/config/config.h"
#include "lib/config/config_keys.h"
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
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char command[] = "spikewatch replay";

/* ---- which entry of the configuration a recorded target belongs to ---- */

/*
 * The entries, compiled as by the daemon. Entries by executable or pid file select nothing here,
 * because a recording does not hold these; nor do groups, which are known by their entry only.
 */
struct entry_assignment {
	const struct config *config;
	const char *as;         /* the entry of targets that no entry selects; NULL: they keep their own */
	struct match **matches; /* one per entry */
};

static void entry_assignment_free(struct entry_assignment *assignment)
{
	if (!assignment)
		return;

	for (size_t i = 0; assignment->matches && i < assignment->config->target_count; i++)
		match_free(assignment->matches[i]);
	free(assignment->matches);
	free(assignment);
}
CLEANUP(entry_assignment, free);

static int entry_assignment_new(const struct config *config, const char *as, struct entry_assignment **ret)
{
	AUTO(entry_assignment_freep) struct entry_assignment *assignment = calloc(1, sizeof(*assignment));

	if (!assignment)
		return -ENOMEM;

	assignment->config = config;
	assignment->as = as;
	assignment->matches = calloc(config->target_count + 1, sizeof(*assignment->matches));
	if (!assignment->matches)
		return -ENOMEM;
	for (size_t i = 0; i < config->target_count; i++) {
		int r = match_new(&config->targets[i], &assignment->matches[i]);

		if (r < 0)
			return r;
	}

	*ret = TAKE(assignment);
	return 0;
}

static bool is_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return true;
	return false;
}

static const char *text_or_null(const char *text)
{
	return *text ? text : NULL;
}

/* contains: whether the target is in a cgroup of the entry, rather than the entry's own. */
static bool entry_selects(const struct match *match, const struct target *target, bool contains)
{
	struct container container;
	bool contained = container_unpack(target->container, &container);
	const struct match_facts facts = {
		.pid = target->pid,
		.comm = text_or_null(target->comm),
		.cmdline = text_or_null(target->cmdline),
		.cgroup = text_or_null(target->cgroup),
		.container = contained ? &container : NULL,
	};

	if (contains)
		return match_contains(match, &facts);
	if (target->kind == TARGET_CGROUP)
		return match_cgroup(match, target->cgroup, facts.container);
	return target->kind == TARGET_PROCESS && match_process(match, &facts, 0);
}

/* An entry with "outside" does not select what is in a cgroup of an earlier entry. */
static bool is_taken(const struct entry_assignment *assignment, size_t entry, const struct target *target)
{
	for (size_t i = 0; assignment->config->targets[entry].outside && i < entry; i++)
		if (entry_selects(assignment->matches[i], target, true))
			return true;
	return false;
}

/*
 * The target's own entry if the configuration has it, else the first that selects it by pid, name,
 * command line or cgroup, else `as`, else its own. Never NULL.
 */
static const char *entry_assignment_entry(const struct entry_assignment *assignment, const struct target *target)
{
	if (is_entry(assignment->config, target->entry))
		return target->entry;
	for (size_t i = 0; i < assignment->config->target_count; i++)
		if (entry_selects(assignment->matches[i], target, false) && !is_taken(assignment, i, target))
			return assignment->config->targets[i].name;
	return assignment->as ? assignment->as : target->entry;
}

/*
 * ---- a threshold that would have fired so often ----
 *
 * The highest values of a rule's windows, which overlap, are kept in a heap of bounded size; the
 * threshold is then found by bisection. With `for` the value is the one that held for that time
 * (trigger_hold_add).
 *
 * Firings are counted as by the rule: the first value above it, then none for a cooldown.
 * The heap holds all values above a threshold unless it is below what was dropped. Other conditions
 * (count, rearm, delta) are ignored.
 */

/* Values that are kept, and so firings that can be asked for. */
#define SUGGESTION_VALUES_MAX 65536

/* A rule whose `for` lasts more windows has no suggestion. */
#define SUGGESTION_HOLD_MAX 4096

struct suggestion_answer {
	bool known;       /* there were values */
	double threshold; /* as round as it can be; fires for what is above it */
	uint64_t firings; /* at that threshold, as counted here */
	double highest;   /* value that held for `for` */
};

struct value {
	double value;
	uint64_t at_ns;
	uint32_t owner;
};

struct suggestion {
	const struct config_rule *rule;
	struct value *values; /* the lowest first, as a heap, until sorted */
	size_t count, cap;
	bool dropped, sorted;
	double floor; /* highest value that was dropped */
	struct pair_map owners;
	struct trigger_hold *holds; /* of each owner */
	size_t owner_count, owner_cap;
	double highest;
};

static void swap_values(struct value *a, struct value *b)
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
		swap_values(&heap[at], &heap[child]);
		at = child;
	}
}

static void sift_up(struct value *heap, size_t at)
{
	for (; at > 0 && heap[at].value < heap[(at - 1) / 2].value; at = (at - 1) / 2)
		swap_values(&heap[at], &heap[(at - 1) / 2]);
}

static int keep_value(struct suggestion *suggestion, struct value value)
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
	if (vector_reserve(&suggestion->values, &suggestion->cap, suggestion->count + 1, sizeof(*suggestion->values)) <
	    0)
		return -ENOMEM;
	suggestion->values[suggestion->count] = value;
	sift_up(suggestion->values, suggestion->count++);
	return 0;
}

static int add_owner(struct suggestion *suggestion, uint32_t source, uint32_t id, uint32_t *ret)
{
	if (vector_reserve(&suggestion->holds, &suggestion->owner_cap, suggestion->owner_count + 1,
			   sizeof(*suggestion->holds)) < 0)
		return -ENOMEM;

	suggestion->holds[suggestion->owner_count] = (struct trigger_hold){ 0 };
	*ret = (uint32_t)suggestion->owner_count;
	pair_map_put(&suggestion->owners, source, id, *ret);
	if (!pair_map_get(&suggestion->owners, source, id, ret))
		return -ENOMEM;
	suggestion->owner_count++;
	return 0;
}

/* Windows of a target come in order; targets of different sources are different. 0 or -ENOMEM. */
static int suggestion_add(struct suggestion *suggestion, uint32_t source, const struct evaluator_firing *window)
{
	uint32_t owner;
	double least;
	int r = 0;

	if (!pair_map_get(&suggestion->owners, source, window->target->id, &owner))
		r = add_owner(suggestion, source, window->target->id, &owner);
	if (r < 0)
		return r;

	r = trigger_hold_add(&suggestion->holds[owner], suggestion->rule->trigger.for_ns, window->decision, window->end,
			     &least);
	if (r != 0)
		return r < 0 ? r : 0;
	if (suggestion->count == 0 || least > suggestion->highest)
		suggestion->highest = least;
	return keep_value(suggestion, (struct value){ least, window->end.ns, owner });
}

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

/* Of two firings of a target: after one, `for` begins anew; and their windows do not overlap. */
static uint64_t least_distance_ns(const struct config_rule *rule)
{
	uint64_t least =
		rule->trigger.for_ns > rule->trigger.cooldown_ns ? rule->trigger.for_ns : rule->trigger.cooldown_ns;

	return least > rule->window_ns ? least : rule->window_ns;
}

static uint64_t count_firings(const struct suggestion *suggestion, double threshold)
{
	uint64_t apart = least_distance_ns(suggestion->rule), last = 0, firings = 0;
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
static double round_up(double value)
{
	double below = (double)(uint64_t)value;

	return below < value ? below + 1 : below;
}

/*
 * The roundest number in [from, below), both not negative. base: 10, or 2 for bytes. Parts of one
 * are divisions, so that 0.1 is 0.1.
 */
static double round_in(double from, double below, double base)
{
	double step = 1, rounded;

	while (step <= below && step < 1e15)
		step *= base;
	for (; step > 1; step /= base) {
		rounded = round_up(from / step) * step;
		if (rounded >= from && rounded < below)
			return rounded;
	}
	for (double parts = 1; parts < 1e9 && from * parts < 1e15; parts *= base) {
		rounded = round_up(from * parts) / parts;
		if (rounded >= from && rounded < below)
			return rounded;
	}
	return from;
}

/* The values at which the count of firings is known and may change, sorted. Returns how many. */
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

/* The lowest threshold at which it fires at most `firings` times. No values can be added later. */
static void suggestion_answer(struct suggestion *suggestion, uint64_t firings, struct suggestion_answer *ret)
{
	AUTO_FREE double *sorted = calloc(suggestion->count + 1, sizeof(*sorted));
	double base = metric_unit(suggestion->rule->metric) == UNIT_BYTES ? 2 : 10;
	size_t count, low = 0, high;
	double above;

	*ret = (struct suggestion_answer){ .highest = suggestion->highest };
	if (!sorted || suggestion->count == 0)
		return;
	if (!suggestion->sorted)
		qsort(suggestion->values, suggestion->count, sizeof(*suggestion->values), by_time);
	suggestion->sorted = true;
	count = list_thresholds(suggestion, sorted);

	/* At the highest value nothing fires. */
	for (high = count - 1; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (count_firings(suggestion, sorted[middle]) <= firings)
			high = middle;
		else
			low = middle + 1;
	}
	ret->known = true;
	/* Above the highest value any threshold would do: a near one shows what there was. */
	above = low + 1 < count ? sorted[low + 1] : sorted[low] > 0 ? sorted[low] * 1.1 : 1;
	ret->threshold = round_in(sorted[low], above, base);
	ret->firings = count_firings(suggestion, ret->threshold);
}

/* rule must outlive it. 0; -ENOMEM; -ERANGE: its `for` is too long for its window. */
static int suggestion_new(const struct config_rule *rule, struct suggestion **ret)
{
	uint64_t windows = (rule->trigger.for_ns + rule->window_ns - 1) / rule->window_ns + 1;
	struct suggestion *suggestion;

	if (windows > SUGGESTION_HOLD_MAX)
		return -ERANGE;
	suggestion = calloc(1, sizeof(*suggestion));
	if (!suggestion)
		return -ENOMEM;

	suggestion->rule = rule;
	*ret = suggestion;
	return 0;
}

static void suggestion_free(struct suggestion *suggestion)
{
	if (!suggestion)
		return;

	for (size_t i = 0; i < suggestion->owner_count; i++)
		trigger_hold_release(&suggestion->holds[i]);
	free(suggestion->holds);
	free(suggestion->values);
	pair_map_release(&suggestion->owners);
	free(suggestion);
}

/* ---- an evaluator, and the outcome of each of its rules ---- */

/* The window that came nearest to a threshold without reaching it. */
struct rule_replay_miss {
	bool known;
	double value, distance; /* value + distance is the threshold; distance >= 0 */
	wall_t wall;            /* the window's end */
	char target[128];       /* its name, cut; may hold any byte */
};

/* What became of one rule, over all targets. */
struct rule_replay_rule {
	const struct config_rule *rule;
	uint64_t longest_ns;               /* of the recordings: the longest */
	bool addressed;                    /* there was a target that it is for */
	uint64_t windows, fired;           /* counted (trigger.h); of them fired */
	uint64_t reasons[TRIGGER_REASONS]; /* of these windows */
	uint64_t unlimited; /* windows as a share of a limit that was not recorded, and so of the machine */
	uint32_t fields;    /* in any of the samples that it saw */
	bool first_known;
	wall_t first; /* firing */
	struct rule_replay_miss miss;
};

struct rule_replay_options {
	const struct config *config; /* must outlive the rule replay */
	struct metric_machine machine;
	/*
	 * May be NULL. witness sees the windows, before fire, which sees those that fired; a
	 * non-zero return of fire ends the event.
	 */
	bool every_window; /* for witness, see evaluator.h */
	int (*fire)(void *ctx, const struct evaluator_firing *firing);
	void (*witness)(void *ctx, const struct evaluator_firing *window);
	void *ctx;
};

struct rule_replay {
	struct rule_replay_options options;
	struct evaluator *evaluator;
	struct rule_replay_rule *rules; /* in the order of the configuration */
	mono_t began;                   /* the recording's first tick; 0: none yet */
};

#define FIELD(name) (1u << SAMPLE_##name)

/* Without any of these fields a metric has no value. */
static const uint32_t needed_fields[METRICS] = {
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
	[METRIC_CPU_WAIT] = FIELD(CPU_WAIT),
	[METRIC_CPU_PRESSURE] = FIELD(CPU_PRESSURE),
	[METRIC_MEMORY_PRESSURE] = FIELD(MEMORY_PRESSURE),
	[METRIC_IO_PRESSURE] = FIELD(IO_PRESSURE),
};

static struct rule_replay_rule *rule_row(const struct rule_replay *rule_replay, const struct config_rule *rule)
{
	return &rule_replay->rules[rule - rule_replay->options.config->rules];
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

static void note_miss(struct rule_replay_miss *miss, const struct evaluator_firing *window)
{
	const struct trigger_decision *decision = window->decision;

	if (decision->candidate || !decision->has_distance || decision->distance < 0)
		return;
	if (miss->known && miss->distance <= decision->distance)
		return;
	*miss = (struct rule_replay_miss){
		.known = true,
		.value = decision->value,
		.distance = decision->distance,
		.wall = window->wall,
	};
	snprintf(miss->target, sizeof(miss->target), "%s", window->target->name);
}

static void rule_replay_on_window(void *ctx, const struct evaluator_firing *window)
{
	struct rule_replay *rule_replay = ctx;
	struct rule_replay_rule *row = rule_row(rule_replay, window->rule);

	row->fields |= window->sample->mask;
	if (window->decision->counted) {
		row->windows++;
		row->reasons[window->decision->counted_reason]++;
		row->unlimited += is_unlimited(window);
	}
	note_miss(&row->miss, window);
	if (rule_replay->options.witness)
		rule_replay->options.witness(rule_replay->options.ctx, window);
}

static int rule_replay_on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct rule_replay *rule_replay = ctx;
	struct rule_replay_rule *row = rule_row(rule_replay, firing->rule);

	row->fired++;
	if (!row->first_known || firing->wall.ns < row->first.ns) /* ticks of several writers overlap */
		row->first = firing->wall;
	row->first_known = true;
	return rule_replay->options.fire ? rule_replay->options.fire(rule_replay->options.ctx, firing) : 0;
}

static bool names_entry(const struct config_rule *rule, const char *entry)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], entry) == 0)
			return true;
	return rule->target_count == 0;
}

static void note_length(struct rule_replay *rule_replay, mono_t tick)
{
	if (rule_replay->began.ns == 0)
		rule_replay->began = tick;
	for (size_t i = 0; i < rule_replay->options.config->rule_count; i++)
		if (mono_diff(tick, rule_replay->began) > (int64_t)rule_replay->rules[i].longest_ns)
			rule_replay->rules[i].longest_ns = (uint64_t)mono_diff(tick, rule_replay->began);
}

/* The next event of a recording. 0; -ENOMEM; what fire returned. */
static int rule_replay_event(struct rule_replay *rule_replay, const struct ring_event *event)
{
	const struct config *config = rule_replay->options.config;

	for (size_t i = 0; event->type == RING_EVENT_TARGET && i < config->rule_count; i++)
		if (names_entry(&config->rules[i], event->target.entry))
			rule_replay->rules[i].addressed = true;
	if (event->type == RING_EVENT_TICK)
		note_length(rule_replay, event->time);
	return evaluator_event(rule_replay->evaluator, event);
}

static int new_evaluator(struct rule_replay *rule_replay, const struct metric_machine *machine, struct evaluator **ret)
{
	const struct evaluator_options options = {
		.config = rule_replay->options.config,
		.machine = *machine,
		.fire = rule_replay_on_fire,
		.witness = rule_replay_on_window,
		.every_window = rule_replay->options.every_window,
		.ctx = rule_replay,
	};

	return evaluator_new(&options, ret);
}

/* Another recording begins: only the counts go on. 0; -ENOMEM: nothing has changed. */
static int rule_replay_again(struct rule_replay *rule_replay, const struct metric_machine *machine)
{
	struct evaluator *fresh;
	int r = new_evaluator(rule_replay, machine, &fresh);

	if (r < 0)
		return r;
	evaluator_free(rule_replay->evaluator);
	rule_replay->evaluator = fresh;
	rule_replay->began = (mono_t){ 0 };
	return 0;
}

static void rule_replay_free(struct rule_replay *rule_replay)
{
	if (!rule_replay)
		return;

	evaluator_free(rule_replay->evaluator);
	free(rule_replay->rules);
	free(rule_replay);
}
CLEANUP(rule_replay, free);

static int rule_replay_new(const struct rule_replay_options *options, struct rule_replay **ret)
{
	AUTO(rule_replay_freep) struct rule_replay *rule_replay = calloc(1, sizeof(*rule_replay));
	int r;

	if (!rule_replay)
		return -ENOMEM;

	rule_replay->options = *options;
	rule_replay->rules = calloc(options->config->rule_count + 1, sizeof(*rule_replay->rules));
	if (!rule_replay->rules)
		return -ENOMEM;
	for (size_t i = 0; i < options->config->rule_count; i++)
		rule_replay->rules[i].rule = &options->config->rules[i];
	r = new_evaluator(rule_replay, &options->machine, &rule_replay->evaluator);
	if (r < 0)
		return r;

	*ret = TAKE(rule_replay);
	return 0;
}

/* Candidates that did not fire: pending, in cooldown, not re-armed, below the count. */
static uint64_t rule_replay_held_back(const struct rule_replay_rule *rule)
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

/* Why a rule was never judged, or never had a value, into buf. False: it was judged. */
static bool rule_replay_obstacle(const struct rule_replay_rule *rule, char *buf, size_t cap)
{
	uint32_t missing = needed_fields[rule->rule->metric] & ~rule->fields;
	char text[160];

	if (!rule->addressed)
		snprintf(buf, cap, "no target of this rule was recorded");
	else if (rule->windows == 0)
		snprintf(buf, cap, "no whole window of %s was recorded",
			 units_format_duration(text, sizeof(text), rule->rule->window_ns));
	else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE] && missing) {
		list_fields(missing, text, sizeof(text));
		snprintf(buf, cap, "%s is not recorded", text);
	} else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE])
		snprintf(buf, cap, "in every window its counters stepped back or its limit is 0");
	else if (rule->windows == rule->reasons[TRIGGER_UNAVAILABLE] + rule->reasons[TRIGGER_WARMING_UP])
		snprintf(buf, cap, "the recording is shorter than its warm-up, %u windows of %s",
			 rule->rule->trigger.warmup, units_format_duration(text, sizeof(text), rule->rule->window_ns));
	else
		return false;
	return true;
}

/* An incident has seconds, and the average that its rule was judged by is of minutes as a rule. */
static bool history_is_short(const struct rule_replay_rule *row)
{
	const struct trigger_rule *trigger = &row->rule->trigger;

	return trigger->has_delta && row->longest_ns < (trigger->history + 1) * row->rule->window_ns;
}

/* A remark on a rule that was judged. False: there is none. */
static bool rule_replay_remark(const struct rule_replay_rule *rule, char *buf, size_t cap)
{
	char length[32], history[32];

	if (rule->unlimited > 0)
		snprintf(buf, cap, "%ju of its %ju windows have no limit recorded and were compared with the machine's",
			 (uintmax_t)rule->unlimited, (uintmax_t)rule->windows);
	else if (history_is_short(rule))
		snprintf(buf, cap,
			 "its average is over up to %s, and no recording has more than %s: what was known from before "
			 "is not in it",
			 units_format_duration(history, sizeof(history),
					       rule->rule->trigger.history * rule->rule->window_ns),
			 units_format_duration(length, sizeof(length), rule->longest_ns));
	return rule->unlimited > 0 || history_is_short(rule);
}

/* ---- the output ---- */

/* Smaller sources are read too fast for a progress display. */
#define PROGRESS_BYTES_MIN (16u << 20)

/* Troubles of a source that are printed; the rest is counted. */
#define TROUBLES_MAX 10

struct replay_view {
	struct json_writer *json; /* NULL: text */
	bool summary;             /* no list of firings */
	bool progress;            /* standard error is a terminal */
	/* Of the present source. */
	const char *path;
	uint64_t troubles;
	unsigned shown_percent; /* progress on the terminal; 0: none */
	bool headed;            /* the head of the list of firings was printed */
};

/* A rule's proposal for so many firings. */
struct proposal {
	const struct config_rule *rule;
	double per_day;
	uint64_t wanted; /* in what was replayed */
	bool fits;       /* the rule has a threshold to change, and a `for` that can be followed */
	struct suggestion_answer answer;
	bool replayed;
	uint64_t fired; /* if so */
};

static void pad_column(size_t printed, size_t width)
{
	printf("%*s", printed < width ? (int)(width - printed) + 2 : 2, "");
}

/* json: instead of text. 0 or -ENOMEM. */
static int replay_view_open(struct replay_view *view, bool json, bool summary)
{
	*view = (struct replay_view){ .summary = summary, .progress = isatty(STDERR_FILENO) == 1 };
	if (!json)
		return 0;
	if (output_json_new(&view->json) < 0)
		return -ENOMEM;
	json_begin_object(view->json);
	json_member_array(view->json, "sources");
	return 0;
}

static void replay_view_close(struct replay_view *view)
{
	if (view->json)
		json_end_object(view->json);
	json_writer_close(view->json);
	view->json = NULL;
}

static void clear_progress(struct replay_view *view)
{
	if (view->shown_percent > 0)
		fputs("\r\033[K", stderr);
	view->shown_percent = 0;
}

static void replay_view_source(struct replay_view *view, const struct replay_source *source)
{
	view->path = source->path;
	view->troubles = 0;
	view->headed = false;
	if (!view->json)
		return;
	json_begin_object(view->json);
	json_member_text(view->json, "path", source->path);
	json_member_text(view->json, "kind", source->kind);
	if (!view->summary)
		json_member_array(view->json, "firings");
}

static void begin_warning(struct replay_view *view)
{
	clear_progress(view);
	fprintf(stderr, "%s: warning: ", command);
	output_escaped(stderr, view->path);
	fputs(": ", stderr);
}

static void replay_view_trouble(struct replay_view *view, uint64_t line, uint64_t rows_lost, const char *why)
{
	if (view->troubles++ >= TROUBLES_MAX)
		return;
	begin_warning(view);
	if (line > 0)
		fprintf(stderr, "line %ju: ", (uintmax_t)line);
	fputs(why, stderr);
	if (rows_lost > 0)
		fprintf(stderr, " (%ju %s lost)", (uintmax_t)rows_lost, rows_lost == 1 ? "row" : "rows");
	fputc('\n', stderr);
}

static void warn_of_rest(struct replay_view *view, const struct recording_summary *summary)
{
	if (view->troubles > TROUBLES_MAX) {
		begin_warning(view);
		fprintf(stderr, "and %ju more\n", (uintmax_t)(view->troubles - TROUBLES_MAX));
	}
	if (summary->nameless > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples of undeclared targets were dropped\n", (uintmax_t)summary->nameless);
	}
	if (summary->late > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples were dropped: too late, or at an impossible time\n",
			(uintmax_t)summary->late);
	}
}

static void put_source_end(struct json_writer *json, const struct replay_view *view,
			   const struct recording_summary *summary)
{
	if (!view->summary)
		json_end_array(json);
	if (summary->any) {
		json_member_u64(json, "from", summary->from.ns);
		json_member_u64(json, "to", summary->to.ns);
	}
	json_member_u64(json, "ticks", summary->ticks);
	json_member_u64(json, "samples", summary->samples);
	json_member_u64(json, "targets", summary->targets);
	json_member_u64(json, "gaps", summary->gaps);
	json_member_u64(json, "holes", summary->holes);
	json_member_u64(json, "unsampled_ns", summary->unsampled_ns);
	json_member_u64(json, "suspends", summary->suspends);
	json_member_u64(json, "suspended_ns", summary->suspended_ns);
	json_member_u64(json, "troubles", view->troubles);
	json_member_u64(json, "samples_passed_over", summary->nameless + summary->late);
	json_end_object(json);
}

static void replay_view_source_end(struct replay_view *view, const struct replay_source *source,
				   const struct recording_summary *summary)
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
	printf(": %s, ", source->kind);
	fputs(units_format_duration(text, sizeof(text), summary->to.ns - summary->from.ns), stdout);
	printf(" from %s, ", story_time(summary->from, true, text, sizeof(text)));
	printf("%ju %s, %ju samples", (uintmax_t)summary->targets, summary->targets == 1 ? "target" : "targets",
	       (uintmax_t)summary->samples);
	if (summary->gaps > 0)
		printf(", %ju %s", (uintmax_t)summary->gaps, summary->gaps == 1 ? "gap" : "gaps");
	if (summary->holes > 0)
		printf(", %ju %s of the sampling (%s)", (uintmax_t)summary->holes,
		       summary->holes == 1 ? "hole" : "holes",
		       units_format_duration(text, sizeof(text), summary->unsampled_ns));
	if (summary->suspends > 0)
		printf(", the machine suspended %s%s", summary->suspends == 1 ? "for " : "several times, for ",
		       units_format_duration(text, sizeof(text), summary->suspended_ns));
	putchar('\n');
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

/* Whether the minimum is what the value had to reach. */
static bool by_minimum(const struct evaluator_firing *firing)
{
	return firing->effective->has_minimum && firing->effective->minimum > level_of(firing);
}

/* What the value was compared with. */
static double threshold_of(const struct evaluator_firing *firing)
{
	return by_minimum(firing) ? firing->effective->minimum : level_of(firing);
}

/*
 * "93.8% > 80%", "147 MiB >= 132 MiB, above the average of 88.2 MiB", "102 MiB >= 64 MiB, the
 * minimum; the average was 6.54 MiB"
 */
static void print_why(const struct evaluator_firing *firing)
{
	enum unit_kind unit = metric_unit(firing->rule->metric);
	bool minimum = by_minimum(firing), average = by_average(firing);
	char text[64];

	fputs(units_format(text, sizeof(text), unit, firing->decision->value, UNITS_READING), stdout);
	fputs(minimum || average ? " >= " : " > ", stdout);
	fputs(units_format(text, sizeof(text), unit, threshold_of(firing), UNITS_READING), stdout);
	if (minimum)
		fputs(", the minimum", stdout);
	if (average)
		printf("%s%s%s%s", minimum ? "; the " : ", above the ", trigger_usual_name(firing->effective->usual),
		       minimum ? " was " : " of ",
		       units_format(text, sizeof(text), unit, firing->decision->average, UNITS_READING));
	if (firing->unsampled_ns > 0 && firing->unsampled_ns * 2 >= (uint64_t)mono_diff(firing->to, firing->from))
		printf("; %s of the window were not sampled",
		       units_format_duration(text, sizeof(text), firing->unsampled_ns));
	putchar('\n');
}

static void put_firing(struct json_writer *json, const struct evaluator_firing *firing)
{
	const struct trigger_decision *decision = firing->decision;

	json_begin_object(json);
	json_member_u64(json, "wall", firing->wall.ns);
	json_member_u64(json, "mono", firing->to.ns);
	json_member_u64(json, "window_ns", (uint64_t)mono_diff(firing->to, firing->from));
	json_member_u64(json, "window_unsampled_ns", firing->unsampled_ns);
	json_member_text(json, "rule", firing->rule->name);
	json_member_text(json, "target", firing->target->name);
	json_member_text(json, "key", firing->target->key);
	json_member_text(json, "reason", trigger_reason_name(decision->reason));
	json_member_text(json, "unit", units_name(metric_unit(firing->rule->metric)));
	json_member_double(json, "value", decision->value);
	json_member_double(json, "threshold", threshold_of(firing));
	if (decision->has_average)
		json_member_double(json, "average", decision->average);
	json_end_object(json);
}

static void replay_view_firing(struct replay_view *view, const struct evaluator_firing *firing)
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
	pad_column(output_escaped(stdout, firing->rule->name), 14);
	pad_column(output_escaped(stdout, firing->target->name), 18);
	print_why(firing);
}

static void put_miss(struct json_writer *json, const struct rule_replay_miss *miss)
{
	json_key(json, "nearest_miss");
	if (!miss->known) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	json_member_u64(json, "wall", miss->wall.ns);
	json_member_text(json, "target", miss->target);
	json_member_double(json, "value", miss->value);
	json_member_double(json, "threshold", miss->value + miss->distance);
	json_member_double(json, "distance", miss->distance);
	json_end_object(json);
}

static void put_rule(struct json_writer *json, const struct rule_replay_rule *row)
{
	char text[256];

	json_begin_object(json);
	json_member_text(json, "name", row->rule->name);
	json_member_text(json, "metric", metric_name(row->rule->metric));
	json_member_text(json, "unit", units_name(metric_unit(row->rule->metric)));
	json_member_u64(json, "windows", row->windows);
	json_member_u64(json, "fired", row->fired);
	json_member_u64(json, "held_back", rule_replay_held_back(row));
	json_member_object(json, "reasons");
	for (unsigned reason = 0; reason < TRIGGER_REASONS; reason++)
		if (row->reasons[reason] > 0)
			json_member_u64(json, trigger_reason_name((enum trigger_reason)reason), row->reasons[reason]);
	json_end_object(json);
	put_miss(json, &row->miss);
	if (rule_replay_obstacle(row, text, sizeof(text)))
		json_member_text(json, "not_judged", text);
	if (rule_replay_remark(row, text, sizeof(text)))
		json_member_text(json, "remark", text);
	json_end_object(json);
}

static void print_miss(const struct rule_replay_rule *row)
{
	enum unit_kind unit = metric_unit(row->rule->metric);
	const struct rule_replay_miss *miss = &row->miss;
	char text[64];

	if (!miss->known) {
		fputs("-\n", stdout);
		return;
	}
	fputs(units_format(text, sizeof(text), unit, miss->value, UNITS_READING), stdout);
	printf(" of %s, ", units_format(text, sizeof(text), unit, miss->value + miss->distance, UNITS_READING));
	output_escaped(stdout, miss->target);
	printf(", %s\n", story_time(miss->wall, true, text, sizeof(text)));
}

static void print_rule(const struct rule_replay_rule *row)
{
	char text[256];

	pad_column(output_escaped(stdout, row->rule->name), 14);
	if (rule_replay_obstacle(row, text, sizeof(text))) {
		printf("not judged: %s\n", text);
		return;
	}
	printf("%7ju  %5ju  %9ju  ", (uintmax_t)row->windows, (uintmax_t)row->fired,
	       (uintmax_t)rule_replay_held_back(row));
	print_miss(row);
	if (rule_replay_remark(row, text, sizeof(text)))
		printf("%-14s  (%s)\n", "", text);
}

static void replay_view_rules(struct replay_view *view, const struct rule_replay_rule *rules, size_t count)
{
	if (view->json) {
		json_end_array(view->json); /* of sources */
		json_member_array(view->json, "rules");
		for (size_t i = 0; i < count; i++)
			put_rule(view->json, &rules[i]);
		json_end_array(view->json);
		return;
	}
	printf("\n%-14s  %7s  %5s  %9s  %s\n", "Rule", "Windows", "Fired", "Held back", "Nearest miss");
	for (size_t i = 0; i < count; i++)
		print_rule(&rules[i]);
}

static void put_variant(struct json_writer *json, const struct what_if_variant *variant,
			const struct rule_replay_rule *row)
{
	json_begin_object(json);
	json_member_text(json, "rule", row->rule->name);
	json_member_text(json, "key", variant->key);
	json_member_text(json, "value", variant->value);
	json_member_u64(json, "windows", row->windows);
	json_member_u64(json, "fired", row->fired);
	json_member_u64(json, "held_back", rule_replay_held_back(row));
	if (row->first_known)
		json_member_u64(json, "first", row->first.ns);
	json_end_object(json);
}

static void print_outcome(const char *what, const struct rule_replay_rule *row)
{
	char text[64];

	printf("  %-24s  %5ju  %9ju  %s\n", what, (uintmax_t)row->fired, (uintmax_t)rule_replay_held_back(row),
	       row->first_known ? story_time(row->first, true, text, sizeof(text)) : "-");
}

/* base: outcomes of the configuration as it is; outcomes: of all rules of each variant. */
static void replay_view_whatif(struct replay_view *view, const struct what_if *what_if,
			       const struct rule_replay_rule *base, const struct rule_replay_rule *const *outcomes)
{
	if (view->json)
		json_member_array(view->json, "what_if");
	for (size_t i = 0; i < what_if->count; i++) {
		const struct what_if_variant *variant = &what_if->variants[i];
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

static bool is_proposal(const struct proposal *proposal)
{
	return proposal->fits && proposal->answer.known;
}

static void put_proposal(struct json_writer *json, const struct proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;

	json_begin_object(json);
	json_member_text(json, "rule", proposal->rule->name);
	json_member_double(json, "per_day", proposal->per_day);
	json_member_u64(json, "wanted", proposal->wanted);
	json_member_bool(json, "known", is_proposal(proposal));
	if (is_proposal(proposal)) {
		json_member_text(json, "key",
				 metric_unit(proposal->rule->metric) == UNIT_PERCENT ? "percent" : "above");
		json_member_double(json, "threshold", answer->threshold);
		json_member_double(json, "highest", answer->highest);
		json_key(json, "fired");
		if (proposal->replayed)
			json_u64(json, proposal->fired);
		else
			json_null(json);
	}
	json_end_object(json);
}

static void print_proposal(const struct proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;
	enum unit_kind unit = metric_unit(proposal->rule->metric);
	char text[64];

	pad_column(output_escaped(stdout, proposal->rule->name), 14);
	if (!is_proposal(proposal)) {
		puts(proposal->fits ? "no suggestion: it never had a value that could fire"
				    : "no suggestion: it has no threshold of its own, or its for is too long");
		return;
	}
	printf("%6.6g  ", proposal->per_day);
	pad_column((size_t)printf("%s %s", unit == UNIT_PERCENT ? "percent" : "above",
				  units_format(text, sizeof(text), metric_unit(proposal->rule->metric),
					       answer->threshold, UNITS_EXACT)),
		   22);
	if (proposal->replayed)
		printf("%5ju  ", (uintmax_t)proposal->fired);
	else
		printf("%5s  ", "?");
	puts(units_format(text, sizeof(text), unit, answer->highest, UNITS_READING));
}

/* span_ns: how much time was replayed. */
#define DAY_NS (86400 * NS_PER_S)

/* What suggestions from so little are worth. */
static const char *suggestion_worth(uint64_t span_ns)
{
	if (span_ns < NS_PER_S * 3600)
		return ": too little for\nmore than a first guess: a working day has other hours. Replay a day, better "
		       "a week";
	if (span_ns < DAY_NS)
		return ": less than a day,\nso nothing is known of its other hours. Replay a day, better a week";
	return ": less than a week,\nso nothing is known of its other days";
}

static void replay_view_proposals(struct replay_view *view, const struct proposal *proposals, size_t count,
				  uint64_t span_ns)
{
	char span[64];

	if (view->json) {
		json_member_array(view->json, "suggestions");
		for (size_t i = 0; i < count; i++)
			put_proposal(view->json, &proposals[i]);
		json_end_array(view->json);
		return;
	}
	printf("\nThresholds that fire so often; %s were replayed%s\n",
	       units_format_duration(span, sizeof(span), span_ns),
	       span_ns < 7 * DAY_NS ? suggestion_worth(span_ns) : "");
	printf("%-14s  %6s  %-22s  %5s  %s\n", "Rule", "A day", "Threshold", "Fired", "Highest seen");
	for (size_t i = 0; i < count; i++)
		if (i == 0 || is_proposal(&proposals[i]) || proposals[i].rule != proposals[i - 1].rule)
			print_proposal(&proposals[i]);
}

/* ---- a run over all sources ---- */

#define RATES_MAX 8

/* The same events under several configurations. */
struct stage {
	struct rule_replay **rule_replays;
	size_t count;
};

/* The command line, what is made of it before anything is read, and the run. */
struct replay {
	const char *config_path, *what_if_text, *suggest_text, *as, *directory;
	uint64_t cpus, memory_bytes; /* 0: as the sources say, or as of this machine */
	bool json, summary;
	char **sources; /* what replay_source_open reads; read again if there are rates */
	size_t source_count;
	struct config *config;
	struct what_if what_if; /* variants of config */
	struct metric_machine machine;
	double rates[RATES_MAX]; /* firings a day for which thresholds are proposed */
	size_t rate_count;
	char incidents[INCIDENT_LOAD_PATH_MAX];
	char ring[PATHS_MAX], *ring_source; /* the source if there are no operands */
	/* The run. */
	struct entry_assignment *entry_assignment;
	struct stage stage;              /* the configuration as it is, then the variants */
	struct suggestion **suggestions; /* one per rule; NULL: none can be made */
	struct replay_view view;
	uint64_t span_ns;
	bool rereadable;
	int code; /* enum options_exit; the worst so far */
	bool any; /* source could be opened */
	/* While sources are read. */
	const struct stage *playing;
	bool trying;     /* the second reading: nothing is printed */
	uint32_t source; /* its number */
	int result;      /* of collecting */
};

static void stage_release(struct stage *stage)
{
	for (size_t i = 0; i < stage->count; i++)
		rule_replay_free(stage->rule_replays[i]);
	free(stage->rule_replays);
	*stage = (struct stage){ 0 };
}

static int stage_add(struct stage *stage, const struct rule_replay_options *options)
{
	struct rule_replay **grown = realloc(stage->rule_replays, (stage->count + 1) * sizeof(*grown));
	int r;

	if (!grown)
		return -ENOMEM;
	stage->rule_replays = grown;
	r = rule_replay_new(options, &stage->rule_replays[stage->count]);
	if (r == 0)
		stage->count++;
	return r;
}

static int stage_add_variants(struct stage *stage, const struct what_if *what_if, const struct metric_machine *machine)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < what_if->count; i++) {
		const struct rule_replay_options options = { .config = &what_if->variants[i].config,
							     .machine = *machine };

		r = stage_add(stage, &options);
	}
	return r;
}

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct replay *replay = ctx;

	if (!replay->trying)
		replay_view_firing(&replay->view, firing);
	return 0;
}

static void on_window(void *ctx, const struct evaluator_firing *window)
{
	struct replay *replay = ctx;
	size_t rule = (size_t)(window->rule - replay->config->rules);

	if (replay->suggestions && replay->suggestions[rule] && replay->result == 0)
		replay->result = suggestion_add(replay->suggestions[rule], replay->source, window);
}

/* A closed standard output ends the command. */
static int on_event(void *ctx, const struct ring_event *event)
{
	struct replay *replay = ctx;
	struct ring_event assigned;
	int r = 0;

	if (event->type == RING_EVENT_TARGET) {
		assigned = *event;
		assigned.target.entry = entry_assignment_entry(replay->entry_assignment, &event->target);
		event = &assigned;
	}
	for (size_t i = 0; r == 0 && i < replay->playing->count; i++)
		r = rule_replay_event(replay->playing->rule_replays[i], event);
	if (r == 0)
		r = replay->result;
	return r == 0 && ferror(stdout) ? -EPIPE : r;
}

static void on_trouble(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct replay *replay = ctx;

	if (!replay->trying)
		replay_view_trouble(&replay->view, line, rows_lost, why);
	replay->code = EXIT_TROUBLE > replay->code ? EXIT_TROUBLE : replay->code;
}

static void on_progress(void *ctx, uint64_t done_bytes, uint64_t size_bytes)
{
	struct replay_view *view = &((struct replay *)ctx)->view;
	unsigned percent;

	if (!view->progress || size_bytes < PROGRESS_BYTES_MIN)
		return;
	percent = (unsigned)(100.0 * (double)done_bytes / (double)size_bytes);
	if (percent <= view->shown_percent || percent > 100)
		return;
	fprintf(stderr, "\rreplaying: %u %%", percent);
	view->shown_percent = percent;
}

static void complain_source(struct replay *replay, int code, const char *message)
{
	output_complain(command, message, NULL);
	replay->code = replay->code < code ? code : replay->code;
}

/* The command line overrides the recording. */
static struct metric_machine machine_of(const struct replay *replay, const struct replay_source *source)
{
	struct metric_machine machine = replay->machine;

	if (replay->cpus == 0 && source->machine.cores > 0)
		machine.cores = source->machine.cores;
	if (replay->memory_bytes == 0 && source->machine.memory_bytes > 0)
		machine.memory_bytes = source->machine.memory_bytes;
	return machine;
}

/* Prints what there was, and what was wrong, once a source is over. */
static void end_source(struct replay *replay, const struct replay_source *source,
		       const struct recording_summary *summary, int result)
{
	const struct stream_reader_report *report = &summary->report;
	bool stream = !source->ring;

	if (replay->trying || result == -EPIPE)
		return;
	if (result < 0 && result != -ENOMEM)
		on_trouble(replay, 0, 0, strerror(-result));
	if (stream && report->ours && !report->complete)
		on_trouble(replay, 0, 0, "it has no closing checksum: it was cut off, or is still being written");
	replay_view_source_end(&replay->view, source, summary);
	if (summary->any)
		replay->span_ns += summary->to.ns > summary->from.ns ? summary->to.ns - summary->from.ns : 0;
	if (stream && !report->ours) {
		char message[REPLAY_SOURCE_MESSAGE_MAX];

		snprintf(message, sizeof(message), "%.400s: not a recording: there is no line of a sample stream in it",
			 source->path);
		complain_source(replay, EXIT_USAGE, message);
	}
}

/* 0, or what ends the command: -ENOMEM, -EPIPE. Errors of the source are printed. */
static int play_source(struct replay *replay, struct replay_source *source)
{
	const struct recording_options options = {
		.interval_ns = replay->config->sampling.interval_ns,
		.heartbeat_ns = replay->config->sampling.heartbeat_ns,
		.event = on_event,
		.trouble = on_trouble,
		.ctx = replay,
	};
	struct metric_machine machine = machine_of(replay, source);
	struct recording_summary summary;
	int r = 0;

	for (size_t i = 0; r == 0 && i < replay->playing->count; i++)
		r = rule_replay_again(replay->playing->rule_replays[i], &machine);
	if (r < 0)
		return r;
	replay->rereadable &= source->rereadable;
	if (!replay->trying)
		replay_view_source(&replay->view, source);
	r = replay_source_play(source, &options, on_progress, &summary);
	end_source(replay, source, &summary, r);
	return r == -ENOMEM || r == -EPIPE ? r : 0;
}

static int play_operand(struct replay *replay, const char *operand)
{
	AUTO(replay_source_close) struct replay_source source = { .fd = -1 };
	char message[REPLAY_SOURCE_MESSAGE_MAX];
	int r = replay_source_open(operand, replay->incidents, &source, message);

	if (r == -ENOMEM)
		return r;
	if (r == 0) {
		replay->any = true;
		return play_source(replay, &source);
	}
	if (!replay->trying)
		complain_source(replay, r == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE, message);
	return 0;
}

static int play_stage(struct replay *replay, const struct stage *stage)
{
	int r = 0;

	replay->playing = stage;
	for (size_t i = 0; r == 0 && i < replay->source_count; i++) {
		replay->source = (uint32_t)i;
		r = play_operand(replay, replay->sources[i]);
	}
	return r;
}

static int make_suggestions(struct replay *replay)
{
	if (replay->rate_count == 0)
		return 0;
	replay->suggestions = calloc(replay->config->rule_count + 1, sizeof(struct suggestion *));
	if (!replay->suggestions)
		return -ENOMEM;
	for (size_t i = 0; i < replay->config->rule_count; i++) {
		const struct config_rule *rule = &replay->config->rules[i];
		int r = rule->trigger.has_percent ? suggestion_new(rule, &replay->suggestions[i]) : 0;

		if (r == -ENOMEM)
			return r;
	}
	return 0;
}

static struct proposal make_proposal(const struct replay *replay, size_t rule, double per_day)
{
	struct proposal proposal = { .rule = &replay->config->rules[rule], .per_day = per_day };

	proposal.wanted = (uint64_t)(per_day * ((double)replay->span_ns / (double)DAY_NS) + 0.5);
	proposal.fits = replay->suggestions[rule] != NULL;
	if (proposal.fits)
		suggestion_answer(replay->suggestions[rule], proposal.wanted, &proposal.answer);
	return proposal;
}

/* Adds a proposal as a variant. 0; -ENOMEM; 1: it is not valid in this rule, or one too many. */
static int add_trial(const struct replay *replay, struct what_if *trials, const struct proposal *proposal)
{
	const struct config_rule *rule = proposal->rule;
	char message[WHAT_IF_MESSAGE_MAX], value[64];
	bool percent = metric_unit(rule->metric) == UNIT_PERCENT;
	int r;

	units_format(value, sizeof(value), metric_unit(rule->metric), proposal->answer.threshold, UNITS_EXACT);
	r = what_if_add(trials, replay->config, (size_t)(rule - replay->config->rules), percent ? "percent" : "above",
			value, message);
	return r == -EINVAL ? 1 : r;
}

/* Replays everything once more under what is proposed. 0, -ENOMEM, -EPIPE. */
static int try_proposals(struct replay *replay, struct proposal *proposals, size_t count)
{
	AUTO(what_if_release) struct what_if trials = { 0 };
	AUTO(stage_release) struct stage stage = { 0 };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < count; i++) {
		if (!proposals[i].fits || !proposals[i].answer.known)
			continue;
		r = add_trial(replay, &trials, &proposals[i]);
		proposals[i].replayed = r == 0;
	}
	if (r >= 0)
		r = stage_add_variants(&stage, &trials, &replay->machine);
	replay->trying = true;
	if (r >= 0)
		r = play_stage(replay, &stage);
	for (size_t i = 0, trial = 0; r == 0 && i < count; i++)
		if (proposals[i].replayed) {
			size_t rule = (size_t)(proposals[i].rule - replay->config->rules);

			proposals[i].fired = stage.rule_replays[trial++]->rules[rule].fired;
		}
	return r;
}

static int suggest_thresholds(struct replay *replay)
{
	size_t count = replay->config->rule_count * replay->rate_count, at = 0;
	AUTO_FREE struct proposal *proposals = calloc(count + 1, sizeof(*proposals));
	int r = 0;

	if (!proposals)
		return -ENOMEM;
	for (size_t rule = 0; rule < replay->config->rule_count; rule++)
		for (size_t i = 0; i < replay->rate_count; i++)
			proposals[at++] = make_proposal(replay, rule, replay->rates[i]);
	if (replay->rereadable)
		r = try_proposals(replay, proposals, count);
	if (r == 0)
		replay_view_proposals(&replay->view, proposals, count, replay->span_ns);
	return r;
}

static int show_variants(struct replay *replay)
{
	AUTO_FREE const struct rule_replay_rule **outcomes = calloc(replay->what_if.count + 1, sizeof(*outcomes));

	if (!outcomes)
		return -ENOMEM;
	for (size_t i = 0; i < replay->what_if.count; i++)
		outcomes[i] = replay->stage.rule_replays[i + 1]->rules;
	replay_view_whatif(&replay->view, &replay->what_if, replay->stage.rule_replays[0]->rules, outcomes);
	return 0;
}

static int play_all(struct replay *replay)
{
	const struct rule_replay_options options = {
		.config = replay->config,
		.machine = replay->machine,
		.every_window = replay->rate_count > 0,
		.fire = on_fire,
		.witness = on_window,
		.ctx = replay,
	};
	int r = make_suggestions(replay);

	if (r == 0)
		r = stage_add(&replay->stage, &options);
	if (r == 0)
		r = stage_add_variants(&replay->stage, &replay->what_if, &replay->machine);
	if (r == 0)
		r = play_stage(replay, &replay->stage);
	if (r < 0 || (!replay->any && !replay->json)) /* nothing could be opened: only messages */
		return r;
	replay_view_rules(&replay->view, replay->stage.rule_replays[0]->rules, replay->config->rule_count);
	if (replay->what_if.count > 0)
		r = show_variants(replay);
	if (r == 0 && replay->rate_count > 0)
		r = suggest_thresholds(replay);
	return r;
}

/* ---- the command ---- */

/* Returns -EINVAL. */
static int replay_complain(const char *message)
{
	output_complain(command, message, NULL);
	return -EINVAL;
}

/* "1" or "0.5,2,10". */
static int parse_rates(struct replay *replay)
{
	const char *at = replay->suggest_text;

	while (at) {
		size_t len = strcspn(at, ",");

		if (replay->rate_count == RATES_MAX || units_number(at, len, &replay->rates[replay->rate_count]) < 0)
			return replay_complain("--suggest: expected up to eight numbers of firings a day, such as 1 or "
					       "0.5,2,10");
		replay->rate_count++;
		at = at[len] ? at + len + 1 : NULL;
	}
	return 0;
}

static int check_as(struct replay *replay)
{
	char message[200];

	if (!replay->as || is_entry(replay->config, replay->as))
		return 0;
	snprintf(message, sizeof(message), "--as %.64s: the configuration has no target of this name; there is %.64s",
		 replay->as, replay->config->targets[0].name);
	return replay_complain(message);
}

/* ---- the rule that an incident has recorded ---- */

/* The incident that operand stands for. False: it stands for something else, or no rule fired. */
static bool load_incident(struct replay *replay, const char *operand, struct incident *ret)
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = -1, fd = -1;
	struct incident_load_glance glance;
	const char *name = operand;
	struct stat st;

	if (stat(operand, &st) == 0) {
		fd = S_ISDIR(st.st_mode) ? open(operand, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	} else if (!strchr(operand, '/') && incident_pick_place("spikewatch replay", replay->directory, operand,
								replay->incidents, sizeof(replay->incidents)) == 0) {
		dirfd = open(replay->incidents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dirfd >= 0 && incident_load_list(dirfd, &names) == 0 &&
		    incident_load_find(&names, operand, &name) == 0)
			fd = incident_load_open(dirfd, name);
	}
	if (fd < 0)
		return false;
	incident_load_glance(fd, ret, &glance);
	return glance.readable && ret->kind == INCIDENT_RULE;
}

static void put_threshold(struct json_writer *json, const char *key, const char *unit, bool has, double value)
{
	char text[32];

	if (has && strcmp(unit, "bytes") == 0) {
		snprintf(text, sizeof(text), "%.0fB", value);
		json_member_text(json, key, text);
	} else if (has) {
		json_member_double(json, key, value);
	}
}

static void put_duration(struct json_writer *json, const char *key, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 "ns", ns);
	json_member_text(json, key, text);
}

static void put_recorded_rule(struct json_writer *json, const struct incident_rule *rule)
{
	const struct trigger_rule *thresholds = &rule->thresholds;
	bool percent = strcmp(rule->unit, "percent") == 0;

	json_begin_object(json);
	json_member_text(json, "name", rule->name);
	json_member_text(json, "metric", rule->metric);
	if (*rule->of)
		json_member_text(json, "of", rule->of);
	put_duration(json, "window", rule->window_ns);
	put_threshold(json, percent ? "percent" : "above", rule->unit, thresholds->has_percent, thresholds->percent);
	put_threshold(json, "delta", "percent", thresholds->has_delta, thresholds->delta);
	json_member_text(json, "usual", trigger_usual_name(thresholds->usual));
	put_threshold(json, "minimum", rule->unit, thresholds->has_minimum, thresholds->minimum);
	put_threshold(json, "maximum", rule->unit, thresholds->has_maximum, thresholds->maximum);
	put_duration(json, "for", thresholds->for_ns);
	json_member_u64(json, "warmup", thresholds->warmup);
	json_member_u64(json, "history", thresholds->history);
	put_duration(json, "cooldown", thresholds->cooldown_ns);
	json_member_text(json, "rearm", trigger_rearm_name(thresholds->rearm));
	json_end_object(json);
}

/* A configuration with this rule, and an entry for the target as it was called. 0; -ENOMEM; -EINVAL. */
static int config_of_incident(const struct incident *incident, struct config **ret)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct config_source source = { .file = INCIDENT_FILE };
	struct config_error wrong;
	struct json_writer *json;
	int r = json_writer_new(sink_buffer(&text), false, &json);

	if (r < 0)
		return r;
	json_begin_object(json);
	json_member_array(json, "targets");
	json_begin_object(json);
	json_member_text(json, "name", incident->target.entry);
	json_member_text(json, "comm", "?");
	if (incident->target.kind == TARGET_GROUP)
		json_member_text(json, "per", "group");
	json_end_object(json);
	json_end_array(json);
	json_member_array(json, "rules");
	put_recorded_rule(json, &incident->rule);
	json_end_array(json);
	json_end_object(json);
	r = json_writer_close(json);
	if (r < 0)
		return r;
	source.text = text.data;
	source.len = text.len;
	return config_parse(&source, 1, ret, &wrong);
}

/* 1: the rule is that of the incident that is replayed; 0: there is none; -ENOMEM. */
static int load_recorded_rule(struct replay *replay)
{
	AUTO_FREE struct incident *incident = NULL;
	int r;

	if (replay->config_path || replay->source_count != 1)
		return 0;
	incident = calloc(1, sizeof(*incident));
	if (!incident)
		return -ENOMEM;
	if (!load_incident(replay, replay->sources[0], incident))
		return 0;
	r = config_of_incident(incident, &replay->config);
	if (r == -EINVAL)
		return 0;
	if (r < 0)
		return r;
	fputs("spikewatch replay: the rule is \"", stderr);
	output_escaped(stderr, incident->rule.name);
	fputs("\" as the incident recorded it; -c FILE takes those of a configuration\n", stderr);
	return 1;
}

static int load_config(struct replay *replay)
{
	const struct config_file file = {
		.path = replay->config_path ? replay->config_path : PATHS_CONFIG,
		.dropins = replay->config_path ? NULL : PATHS_DROPINS,
	};
	char message[CONFIG_FILE_MESSAGE_MAX];
	int r = load_recorded_rule(replay);

	if (r != 0)
		return r < 0 ? r : 0;
	r = config_file_load(&file, &replay->config, message);
	if (r == -EINVAL) {
		int code = replay_complain(message);

		if (access(file.path, F_OK) < 0 && !replay->config_path)
			fputs("-c FILE names another configuration, such as that of the daemon that recorded.\n",
			      stderr);
		return code;
	}
	if (r == 0 && replay->config->rule_count == 0) {
		snprintf(message, sizeof(message), "%.500s: there are no rules in it", file.path);
		return replay_complain(message);
	}
	return r;
}

/* What percentages of the machine are of, where the sources do not say. */
static int find_machine(struct replay *replay)
{
	AUTO_CLOSE int procfd = open(replay->config->proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = procfd < 0 ? -errno : cgroup_limits_machine(procfd, "", NULL, &replay->machine);

	if (replay->cpus > 0)
		replay->machine.cores = (double)replay->cpus;
	if (replay->memory_bytes > 0)
		replay->machine.memory_bytes = replay->memory_bytes;
	if (r < 0 && (replay->cpus == 0 || replay->memory_bytes == 0))
		return replay_complain("this machine's CPUs and memory cannot be read: expected --cpus and --memory");
	return 0;
}

static int read_what_if(struct replay *replay)
{
	char message[WHAT_IF_MESSAGE_MAX], line[WHAT_IF_MESSAGE_MAX + 16];
	int r;

	if (!replay->what_if_text)
		return 0;
	r = what_if_parse(&replay->what_if, replay->config, replay->what_if_text, message);
	if (r != -EINVAL)
		return r;
	snprintf(line, sizeof(line), "--what-if: %s", message);
	return replay_complain(line);
}

/* Where the daemon with this configuration has its files. */
static int find_files(struct replay *replay)
{
	const char *directory = replay->directory;
	struct paths paths;

	if (!directory && *replay->config->incidents.directory)
		directory = replay->config->incidents.directory;
	/* Else where the incident was found whose rule is replayed. */
	if (!*replay->incidents && incident_load_directory(directory, replay->incidents, sizeof(replay->incidents)) < 0)
		snprintf(replay->incidents, sizeof(replay->incidents), ".");
	if (replay->source_count > 0)
		return 0;
	if (paths_choose(replay->config, &paths) < 0)
		return replay_complain("the path of the daemon's ring is not known: expected a source");
	snprintf(replay->ring, sizeof(replay->ring), "%s", paths.ring);
	replay->ring_source = replay->ring;
	replay->sources = &replay->ring_source;
	replay->source_count = 1;
	return 0;
}

/* 0; -ENOMEM; -EINVAL: explained on stderr. */
static int replay_prepare(struct replay *replay)
{
	int r = parse_rates(replay);

	if (r == 0)
		r = load_config(replay);
	if (r == 0)
		r = check_as(replay);
	if (r == 0)
		r = find_machine(replay);
	if (r == 0)
		r = read_what_if(replay);
	return r == 0 ? find_files(replay) : r;
}

/* Prints to standard output, and what is wrong to standard error. Returns the code to exit with. */
static int replay_all(struct replay *replay)
{
	int r = replay_prepare(replay);

	if (r < 0 && r != -ENOMEM)
		return EXIT_USAGE;
	if (r == 0)
		r = entry_assignment_new(replay->config, replay->as, &replay->entry_assignment);
	if (r == 0)
		r = replay_view_open(&replay->view, replay->json, replay->summary);
	if (r == 0) {
		r = play_all(replay);
		replay_view_close(&replay->view);
	}
	if (r == -ENOMEM)
		return output_no_memory();
	return r < 0 && replay->code == EXIT_OK ? EXIT_TROUBLE : replay->code;
}

static void replay_release(struct replay *replay)
{
	stage_release(&replay->stage);
	for (size_t i = 0; replay->suggestions && i < replay->config->rule_count; i++)
		suggestion_free(replay->suggestions[i]);
	free(replay->suggestions);
	entry_assignment_free(replay->entry_assignment);
	what_if_release(&replay->what_if);
	config_free(replay->config);
}

int replay_command(int argc, char **argv)
{
	AUTO(replay_release) struct replay replay = { .rereadable = true };
	const struct option_spec options[] = {
		{ 'c', "config", OPTION_TEXT, "FILE", "rules to run (" PATHS_CONFIG ")", &replay.config_path },
		{ 'w', "what-if", OPTION_TEXT, "CHANGE", "RULE.KEY=VALUE,VALUE,...: what would have fired then",
		  &replay.what_if_text },
		{ 0, "suggest", OPTION_TEXT, "N[,N...]", "thresholds that fire N times a day", &replay.suggest_text },
		{ 0, "as", OPTION_TEXT, "ENTRY", "the entry of targets that no entry selects", &replay.as },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are, for names", &replay.directory },
		{ 0, "cpus", OPTION_NUMBER, "N", "CPUs of the recorded machine (this one's)", &replay.cpus },
		{ 0, "memory", OPTION_SIZE, "SIZE", "memory of the recorded machine (this one's)",
		  &replay.memory_bytes },
		{ 's', "summary", OPTION_FLAG, NULL, "no list of firings", &replay.summary },
		{ 0, "json", OPTION_FLAG, NULL, "all of it as one JSON object", &replay.json },
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "[SOURCE...]",
		.summary = "Runs rules over what was recorded: what fires, and what nearly did.",
		.description = "SOURCE: a recording, - for standard input, an incident's name or directory, a ring's\n"
			       "file. None: the ring of the daemon that runs with this configuration.",
		.example = "spikewatch replay -c my.json last --what-if 'hot.percent=60,70,80'",
		.exits = "0 replayed, 1 a source is damaged or failed, 2 wrong usage or not a source",
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
