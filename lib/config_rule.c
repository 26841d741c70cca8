/*
 * config_rule.c: a rule is read key by key, then held against itself, its targets and the sampling: a rule that
 * could never fire, or never have a value, is refused, because at run time it would look exactly like a rule that
 * is content.
 *
 * Defaults that were not asked for give way: a rule with "history": 3 need not say "warmup": 3 as well.
 */
#include "config_rule.h"

#include "clock.h"
#include "scope.h"
#include "units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE (60 * NS_PER_S)
#define DAY (1440 * MINUTE)
/* A thousand times over: nothing grows by more than that in a window without somebody mistaking the unit. */
#define PERCENT_MAX 100000.0

static const char *const of_choices[] = { "limit", "core", "machine", NULL };
static const char *const rearm_choices[] = { "cooldown", "below", "high-water", NULL };

/*
 * window    A second is what people mean by a spike; below 10 ms CPU counters stand still between scheduler ticks;
 *           beyond an hour it is a trend, not a spike.
 * warmup    Five windows make an average worth comparing with, history of ten forgets a spike after ten.
 * cooldown  A spike that goes on is one incident; a minute leaves room for its end to be recorded.
 * count     No limit: what incidents may take is limited by the disk budget.
 */
// clang-format off
#define OTHER(k)                      CONFIG_OTHER("", k)
#define CHOICE(k, member, names)      CONFIG_ROW("", k, CHOICE, struct config_rule, member, .choices = names)
#define DURATION(k, member, ...)      CONFIG_RANGE("", k, DURATION, struct config_rule, member, __VA_ARGS__)
#define COUNT(k, member, ...)         CONFIG_RANGE("", k, COUNT, struct config_rule, member, __VA_ARGS__)

const struct config_field config_rule_fields[] = {
	OTHER   ("name"),
	OTHER   ("targets"),
	OTHER   ("metric"),
	CHOICE  ("of",           of,                      of_choices),
	/*       key             where                    default    least           most        */
	DURATION("window",       window_ns,               NS_PER_S,  10 * NS_PER_MS, 60 * MINUTE),
	OTHER   ("percent"),
	OTHER   ("above"),
	OTHER   ("delta"),
	OTHER   ("minimum"),
	OTHER   ("maximum"),
	COUNT   ("warmup",       trigger.warmup,          5,         0,              TRIGGER_HISTORY_MAX),
	COUNT   ("history",      trigger.history,         10,        1,              TRIGGER_HISTORY_MAX),
	DURATION("for",          trigger.for_ns,          0,         0,              60 * MINUTE),
	DURATION("cooldown",     trigger.cooldown_ns,     MINUTE,    0,              30 * DAY),
	COUNT   ("count",        trigger.count,           0,         0,              1000000),
	DURATION("count_period", trigger.count_period_ns, DAY,       0,              3650 * DAY),
	CHOICE  ("rearm",        trigger.rearm,           rearm_choices),
};
// clang-format on
const size_t config_rule_field_count = ARRAY_LEN(config_rule_fields);

/* What a rule is read with. */
struct reading {
	const struct config_scope *scope;
	const struct json_node *node;
	const struct config *config;
	struct config_rule *rule;
};

/* The first argument of what refuses a member: its value's place, the rule's if it is not there. */
#define refuse(reading, member, ...) config_refuse((reading)->scope, place_of(reading, member), member, __VA_ARGS__)

static struct json_place place_of(const struct reading *reading, const char *key)
{
	const struct json_node *member = key != NULL ? json_member(reading->node, key) : NULL;

	return member != NULL ? member->place : reading->node->place;
}

/* ---- metric and thresholds ---- */

static int read_metric(const struct reading *reading)
{
	const struct json_node *node = json_member(reading->node, "metric");
	struct config_guess guess = { 0 };
	char hint[240], shown[CONFIG_SHOWN];
	const char *name;
	int r;

	if (node == NULL)
		return refuse(reading, NULL, "has no metric: expected a member \"metric\"");
	r = config_read_text(reading->scope, node, 64, &name);
	if (r < 0)
		return r;
	if (metric_by_name(name, &reading->rule->metric))
		return 0;
	guess.word = name;
	for (unsigned i = 0; i < METRICS; i++)
		config_guess_offer(&guess, metric_name((enum metric)i));
	return refuse(reading, "metric", "unknown metric %s; %s", config_found(node, shown),
		      config_guess_say(&guess, hint, sizeof(hint)));
}

static int check_of(const struct reading *reading)
{
	enum metric metric = reading->rule->metric;

	if (json_member(reading->node, "of") == NULL)
		return 0;
	if (metric != METRIC_CPU && metric != METRIC_MEMORY)
		return refuse(reading, "of", "means nothing for \"%s\": expected it only with \"cpu\" and \"memory\"",
			      metric_name(metric));
	if (metric == METRIC_MEMORY && reading->rule->of == METRIC_OF_CORE)
		return refuse(reading, "of", "memory has no cores: expected \"limit\" or \"machine\"");
	return 0;
}

/* A value in the unit of the metric. */
static int read_value(const struct reading *reading, const struct json_node *node, enum metric_unit unit, double *ret)
{
	uint64_t bytes = 0;
	int r;

	if (unit == METRIC_BYTES) {
		r = config_read_bytes(reading->scope, node, &bytes);
		if (r == 0)
			*ret = (double)bytes;
		return r;
	}
	if (unit != METRIC_PERCENT)
		return config_read_number(reading->scope, node, ret);
	r = config_read_percent(reading->scope, node, ret);
	if (r == 0 && *ret > PERCENT_MAX)
		return refuse(reading, node->key, "out of range: expected at most %.0f%%", PERCENT_MAX);
	return r;
}

static int read_threshold(const struct reading *reading, const char *key, enum metric_unit unit, bool *ret_has,
			  double *ret)
{
	const struct json_node *node = json_member(reading->node, key);

	*ret_has = node != NULL;
	return node != NULL ? read_value(reading, node, unit, ret) : 0;
}

/* The one of "percent" and "above" that the metric does not have. */
static int check_threshold_name(const struct reading *reading)
{
	static const char *const examples[] = {
		[METRIC_PERCENT] = "\"percent\": \"80%\"", [METRIC_CORES] = "\"above\": 1.5",
		[METRIC_BYTES] = "\"above\": \"512MiB\"",  [METRIC_COUNT] = "\"above\": 200",
		[METRIC_PER_SECOND] = "\"above\": 1000",
	};
	enum metric_unit unit = metric_unit(reading->rule->metric);
	const char *wrong = unit == METRIC_PERCENT ? "above" : "percent";

	if (json_member(reading->node, wrong) == NULL)
		return 0;
	return refuse(reading, wrong, "\"%s\" is %s percentage: expected %s", metric_name(reading->rule->metric),
		      unit == METRIC_PERCENT ? "a" : "no", examples[unit]);
}

static int read_thresholds(const struct reading *reading)
{
	struct trigger_rule *trigger = &reading->rule->trigger;
	enum metric_unit unit = metric_unit(reading->rule->metric);
	const char *above = unit == METRIC_PERCENT ? "percent" : "above";
	int r = check_threshold_name(reading);

	if (r == 0)
		r = read_threshold(reading, above, unit, &trigger->has_percent, &trigger->percent);
	if (r == 0)
		r = read_threshold(reading, "delta", METRIC_PERCENT, &trigger->has_delta, &trigger->delta);
	if (r == 0)
		r = read_threshold(reading, "minimum", unit, &trigger->has_minimum, &trigger->minimum);
	if (r == 0)
		r = read_threshold(reading, "maximum", unit, &trigger->has_maximum, &trigger->maximum);
	if (r < 0)
		return r;
	if (!trigger->has_percent && !trigger->has_delta)
		return refuse(reading, NULL, "has no threshold and would never fire: expected \"%s\" or \"delta\"",
			      above);
	if (trigger->has_delta && trigger->delta <= 0)
		return refuse(reading, "delta", "every window would fire: expected more than 0%%");
	if (trigger->has_maximum && trigger->has_percent && trigger->maximum <= trigger->percent)
		return refuse(reading, "maximum", "\"%s\" could never fire: expected more than \"%s\"", above, above);
	if (trigger->has_maximum && trigger->has_minimum && trigger->maximum <= trigger->minimum)
		return refuse(reading, "maximum", "the rule could never fire: expected more than \"minimum\"");
	if (trigger->has_maximum && trigger->maximum <= 0)
		return refuse(reading, "maximum", "the rule could never fire: expected more than 0");
	return 0;
}

static int check_history(const struct reading *reading)
{
	struct trigger_rule *trigger = &reading->rule->trigger;

	if (trigger->warmup > trigger->history && json_member(reading->node, "warmup") == NULL)
		trigger->warmup = trigger->history;
	if (trigger->warmup > trigger->history && json_member(reading->node, "history") == NULL)
		trigger->history = trigger->warmup;
	if (trigger->warmup > trigger->history)
		return refuse(reading, "warmup", "the rule would never warm up: expected at most \"history\", %u",
			      trigger->history);
	if (trigger->has_delta && trigger->warmup == 0)
		return refuse(reading, "warmup", "\"delta\" needs an average: expected at least 1");
	return 0;
}

/* ---- targets ---- */

static const struct config_target *find_target(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];
	return NULL;
}

/* The scope names the element: "rules[2].targets[0]". */
static int read_target(const struct config_scope *scope, const struct json_node *node, const struct config *config,
		       struct config_rule *rule)
{
	struct config_guess guess = { 0 };
	char hint[240];
	const char *name;
	int r = config_read_name(scope, node, &name);

	if (r < 0)
		return r;
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], name) == 0)
			return config_refuse(scope, node->place, NULL, "\"%s\" twice: expected each target once", name);
	if (find_target(config, name) != NULL) {
		rule->targets[rule->target_count++] = name;
		return 0;
	}
	guess.word = name;
	for (size_t i = 0; i < config->target_count; i++)
		config_guess_offer(&guess, config->targets[i].name);
	if (guess.best == NULL)
		return config_refuse(scope, node->place, NULL, "no target has the name \"%s\"; there are %s", name,
				     guess.list);
	return config_refuse(scope, node->place, NULL, "no target has the name \"%s\"; %s", name,
			     config_guess_say(&guess, hint, sizeof(hint)));
}

static int read_targets(const struct reading *reading)
{
	const struct json_node *node = json_member(reading->node, "targets");
	struct config_scope scope = *reading->scope;
	char shown[CONFIG_SHOWN];
	size_t index = 0;

	if (node == NULL || (node->type == JSON_STRING && node->text_len == 1 && node->text[0] == '*'))
		return 0;
	if (node->type != JSON_ARRAY)
		return refuse(reading, "targets", "expected \"*\" or an array of names such as [\"db\"], found %s",
			      config_found(node, shown));
	if (node->count == 0)
		return refuse(reading, "targets", "empty: expected \"*\" for all, or at least one name");
	reading->rule->targets = calloc(node->count, sizeof(*reading->rule->targets));
	if (reading->rule->targets == NULL)
		return -ENOMEM;
	for (const struct json_node *name = node->first; name != NULL; name = name->next) {
		int r;

		snprintf(scope.path, sizeof(scope.path), "%.40s.targets[%zu]", reading->scope->path, index++);
		r = read_target(&scope, name, reading->config, reading->rule);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- what the metric needs ---- */

/* Which kinds of targets a rule looks at. */
struct kinds {
	bool cgroup, process;
};

static struct kinds kinds_of(const struct reading *reading)
{
	const struct config_rule *rule = reading->rule;
	size_t count = rule->target_count > 0 ? rule->target_count : reading->config->target_count;
	struct kinds kinds = { false, false };

	for (size_t i = 0; i < count; i++) {
		const struct config_target *target = rule->target_count > 0
							     ? find_target(reading->config, rule->targets[i])
							     : &reading->config->targets[i];

		if (target->per == CONFIG_PER_CGROUP)
			kinds.cgroup = true;
		else
			kinds.process = true;
	}
	return kinds;
}

static bool needs_cgroup(enum metric metric)
{
	return metric == METRIC_THROTTLED || metric == METRIC_PIDS || metric == METRIC_CPU_PRESSURE ||
	       metric == METRIC_MEMORY_PRESSURE || metric == METRIC_IO_PRESSURE;
}

static bool needs_process(enum metric metric)
{
	return metric == METRIC_THREADS || metric == METRIC_FDS;
}

static int check_kinds(const struct reading *reading, struct kinds kinds)
{
	const struct config_rule *rule = reading->rule;
	bool wants_cgroup = needs_cgroup(rule->metric) && !kinds.cgroup;
	struct config_guess names = { .word = "" };
	const struct config *config = reading->config;
	bool named = rule->target_count > 0;

	if (!wants_cgroup && !(needs_process(rule->metric) && !kinds.process))
		return 0;
	for (size_t i = 0; i < (named ? rule->target_count : config->target_count); i++)
		config_guess_offer(&names, named ? rule->targets[i] : config->targets[i].name);
	if (wants_cgroup)
		return refuse(
			reading, "metric",
			"\"%s\" is a metric of cgroups, but all targets are processes: expected one with \"per\": "
			"\"cgroup\" among %.80s",
			metric_name(rule->metric), names.list);
	return refuse(reading, "metric",
		      "\"%s\" is a metric of processes, but all targets are cgroups%s: expected one with \"per\": "
		      "\"process\" or \"group\" among %.80s",
		      metric_name(rule->metric), rule->metric == METRIC_THREADS ? " (they have \"pids\")" : "",
		      names.list);
}

/* A rate needs two readings in a window, a level one. */
static bool is_rate(enum metric metric)
{
	return metric == METRIC_CPU || metric == METRIC_CPU_CORES || metric == METRIC_FAULTS ||
	       metric == METRIC_THROTTLED || metric == METRIC_CPU_PRESSURE || metric == METRIC_MEMORY_PRESSURE ||
	       metric == METRIC_IO_PRESSURE;
}

static int check_window(const struct reading *reading, struct kinds kinds)
{
	const struct config_sampling *sampling = &reading->config->sampling;
	enum metric metric = reading->rule->metric;
	unsigned readings = is_rate(metric) ? 2 : 1;
	const char *key = "interval";
	uint64_t every_ns = sampling->interval_ns;
	char shortest[UNITS_TEXT_MAX], every[UNITS_TEXT_MAX];

	if (metric == METRIC_FDS) {
		key = "fds_interval";
		every_ns = sampling->fds_interval_ns;
	} else if (metric == METRIC_MEMORY_PEAK && sampling->peak_interval_ns > every_ns) {
		key = "peak_interval";
		every_ns = sampling->peak_interval_ns;
	}
	if (kinds.cgroup && !needs_process(metric) && sampling->cgroup_interval_ns > every_ns) {
		key = "cgroup_interval";
		every_ns = sampling->cgroup_interval_ns;
	}
	if (every_ns == 0)
		return refuse(reading, "metric", "descriptors are never counted: expected sampling.%s above 0", key);
	if (reading->rule->window_ns >= readings * every_ns)
		return 0;
	units_format_duration(shortest, sizeof(shortest), readings * every_ns);
	units_format_duration(every, sizeof(every), every_ns);
	return refuse(reading, "window", "too short for \"%s\": expected at least %s, %s sampling.%s (%s)",
		      metric_name(metric), shortest, readings == 2 ? "twice" : "one", key, every);
}

int config_rule_read(const struct config_scope *scope, const struct json_node *node, const struct config *config,
		     struct config_rule *ret)
{
	const struct reading reading = { scope, node, config, ret };
	const struct json_node *name = json_member(node, "name");
	int r;

	config_field_defaults(config_rule_fields, config_rule_field_count, ret);
	r = config_field_apply(scope, config_rule_fields, config_rule_field_count, "", node, ret, NULL);
	if (r < 0)
		return r;
	if (name == NULL)
		return refuse(&reading, NULL, "has no name: expected a member \"name\"");
	r = config_read_name(scope, name, &ret->name);
	if (r == 0)
		r = read_metric(&reading);
	if (r == 0)
		r = check_of(&reading);
	if (r == 0)
		r = read_thresholds(&reading);
	if (r == 0)
		r = check_history(&reading);
	if (r == 0)
		r = read_targets(&reading);
	if (r == 0)
		r = check_kinds(&reading, kinds_of(&reading));
	return r < 0 ? r : check_window(&reading, kinds_of(&reading));
}
