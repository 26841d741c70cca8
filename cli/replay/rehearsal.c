/*
 * rehearsal.c: an evaluator, and one row per rule of what it said.
 *
 * Invariant: events reach the evaluator exactly as daemon/watcher.c hands them over. Whatever a recording cannot tell the evaluator is
 * made up where the recording is read (tape.c), never here.
 */
#include "rehearsal.h"

#include "scope.h"
#include "units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void on_window(void *ctx, const struct evaluator_firing *window)
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

static int on_fire(void *ctx, const struct evaluator_firing *firing)
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
		.fire = on_fire,
		.witness = on_window,
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

static void release(struct rehearsal **rehearsal)
{
	rehearsal_free(*rehearsal);
}

int rehearsal_new(const struct rehearsal_options *options, struct rehearsal **ret)
{
	AUTO(release) struct rehearsal *rehearsal = calloc(1, sizeof(*rehearsal));
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
