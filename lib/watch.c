/*
 * watch.c: a target, its windows, its triggers.
 *
 * When was a target seen? A tick without a record of it means that it looked as before, so the observation moves on with
 * the ticks: tick time + the offset of its last record from its tick (the sampler visits targets in the same order
 * every time). A process that wakes up after a minute has therefore used its CPU time since it was last looked at, not within that
 * minute.
 *
 * When was that? What is idle is not looked at in every tick (idlepace.h), so the observation stays behind the tick by as much as
 * follows from how long the target has stood still. A window may begin that much before its edge, and then holds all that can have been used
 * since: it never shows more than was possible. When the target wakes, a record says when it was last looked at as it was
 * before: then the window begins there, or at its edge.
 *
 * cgroups are different: they are read at an interval of their own, and a tick in between says nothing. Theirs moves
 * on in steps of that interval, half an interval late, so that a read which slips by a tick is not taken for an idle one.
 *
 * Pairs are in the order of the plan, by window length: those of a window are neighbours.
 */
#include "watch.h"

#include "idlepace.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rules by window length; those of one length stay in the order of the configuration. */
static void sort_rules(const struct config *config, const struct config_rule **rules)
{
	for (size_t i = 0; i < config->rule_count; i++) {
		size_t k = i;

		for (; k > 0 && rules[k - 1]->window_ns > config->rules[i].window_ns; k--)
			rules[k] = rules[k - 1];
		rules[k] = &config->rules[i];
	}
}

int watch_plan_init(struct watch_plan *plan, const struct config *config)
{
	AUTO_FREE const struct config_rule **rules = calloc(config->rule_count + 1, sizeof(*rules));
	AUTO_FREE uint64_t *lengths = calloc(config->rule_count + 1, sizeof(*lengths));
	size_t length_count = 0;

	if (!rules || !lengths)
		return -ENOMEM;

	sort_rules(config, rules);
	for (size_t i = 0; i < config->rule_count; i++)
		if (length_count == 0 || lengths[length_count - 1] != rules[i]->window_ns)
			lengths[length_count++] = rules[i]->window_ns;

	*plan = (struct watch_plan){ TAKE(rules), config->rule_count, TAKE(lengths), length_count };
	return 0;
}

void watch_plan_release(struct watch_plan *plan)
{
	free(plan->rules);
	free(plan->lengths_ns);
	*plan = (struct watch_plan){ 0 };
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;

	for (size_t i = 0; i < watch->pair_count; i++)
		trigger_state_free(watch->pairs[i].state);
	free(watch->pairs);
	free(watch->windows);
	free(watch->strings);
	free(watch);
}

static void release_watch(struct watch **watch)
{
	watch_free(*watch);
}

/* Copies a target and its strings. */
static int copy_target(const struct target *target, struct target *ret, char **ret_strings)
{
	struct target copy = *target;
	const char **const strings[] = { &copy.entry,   &copy.name,   &copy.key,      &copy.comm,
					 &copy.cmdline, &copy.cgroup, &copy.container };
	size_t size = 0;
	char *text, *p;

	copy.container = target->container ? target->container : "";
	for (size_t i = 0; i < ARRAY_LEN(strings); i++)
		size += strlen(*strings[i]) + 1;
	p = text = malloc(size);
	if (!text)
		return -ENOMEM;

	for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
		size = strlen(*strings[i]) + 1;
		memcpy(p, *strings[i], size);
		*strings[i] = p;
		p += size;
	}

	*ret = copy;
	*ret_strings = text;
	return 0;
}

static bool rule_applies(const struct config_rule *rule, const struct target *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target->entry) == 0)
			return true;
	return rule->target_count == 0;
}

static int add_pair(struct watch *watch, const struct config_rule *rule, const struct memo *memo)
{
	struct watch_pair *pair = &watch->pairs[watch->pair_count];
	struct trigger_memory memory;
	int r = trigger_state_new(&rule->trigger, &pair->state);

	if (r < 0)
		return r;

	watch->pair_count++;
	pair->rule = rule;
	if (memo_get(memo, rule->name, watch->target.key, &memory))
		trigger_restore(pair->state, &memory);
	return 0;
}

static size_t count_rules(const struct watch_plan *plan, const struct target *target)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->rule_count; i++)
		count += rule_applies(plan->rules[i], target);
	return count;
}

/* Pairs the watch with its rules; their order, by window length, makes those of a window neighbours. */
static int add_pairs(struct watch *watch, const struct watch_plan *plan, const struct memo *memo)
{
	size_t g = 0;

	for (size_t i = 0; i < plan->rule_count; i++) {
		const struct config_rule *rule = plan->rules[i];
		int r;

		if (!rule_applies(rule, &watch->target))
			continue;
		while (plan->lengths_ns[g] != rule->window_ns)
			g++;
		if (watch->windows[g].count++ == 0)
			watch->windows[g].first = watch->pair_count;

		r = add_pair(watch, rule, memo);
		if (r < 0)
			return r;
	}
	return 0;
}

int watch_new(const struct watch_plan *plan, const struct target *target, uint64_t read_ns, const struct memo *memo,
	      struct watch **ret)
{
	AUTO(release_watch) struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return -ENOMEM;

	watch->read_ns = read_ns;
	r = copy_target(target, &watch->target, &watch->strings);
	if (r < 0)
		return r;
	size_t rules = count_rules(plan, &watch->target);

	watch->windows = calloc(plan->length_count ? plan->length_count : 1, sizeof(*watch->windows));
	watch->pairs = calloc(rules ? rules : 1, sizeof(*watch->pairs));
	if (!watch->windows || !watch->pairs)
		return -ENOMEM;
	watch->window_count = plan->length_count;

	r = add_pairs(watch, plan, memo);
	if (r < 0)
		return r;

	*ret = TAKE(watch);
	return 0;
}

static bool same_names(const struct target *a, const struct target *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->comm, b->comm) == 0 && strcmp(a->cmdline, b->cmdline) == 0 &&
	       strcmp(a->cgroup, b->cgroup) == 0 &&
	       strcmp(a->container ? a->container : "", b->container ? b->container : "") == 0;
}

int watch_rename(struct watch *watch, const struct target *target)
{
	struct target copy;
	char *strings;
	int r;

	if (same_names(&watch->target, target))
		return 0;

	r = copy_target(target, &copy, &strings);
	if (r < 0)
		return r;

	free(watch->strings);
	watch->strings = strings;
	watch->target = copy;
	return 0;
}

/* It was as it is now at `at`: no window can know it to have been so later. */
static void hold_back(struct watch *watch, mono_t at)
{
	for (size_t i = 0; i < watch->window_count; i++) {
		struct watch_window *window = &watch->windows[i];

		if (window->untouched && mono_diff(window->from.time, at) > 0)
			window->from.time = at;
	}
}

/* It has changed since `at`: until then it was as it was when the windows began. */
static void move_up(struct watch *watch, mono_t at)
{
	for (size_t i = 0; i < watch->window_count; i++) {
		struct watch_window *window = &watch->windows[i];
		mono_t from = mono_diff(at, window->edge) < 0 ? at : window->edge;

		if (window->untouched && mono_diff(from, window->from.time) > 0)
			window->from.time = from;
		window->untouched = false;
	}
}

static void note_change(struct watch *watch, mono_t at, const struct sample *sample)
{
	bool same = watch->seen && watch->sample.mask == sample->mask && sample_difference(&watch->sample, sample) == 0;

	if (!watch->seen)
		watch->since_known = false;
	else if (!same)
		watch->since_known = true;
	if (!same)
		watch->since = at;
	if (!watch->seen || watch->read_ns > 0)
		return;
	if (same)
		hold_back(watch, at);
	else
		move_up(watch, watch->at);
}

void watch_see(struct watch *watch, mono_t at, const struct sample *sample)
{
	note_change(watch, at, sample);

	uint64_t peak = metric_peak(watch->seen ? &watch->sample : sample, sample);

	for (size_t i = 0; i < watch->window_count; i++)
		if (watch->windows[i].peak_bytes < peak)
			watch->windows[i].peak_bytes = peak;

	watch->sample = *sample;
	watch->at = at;
	watch->seen = true;
}

/* When it would have been seen if it was looked at in that tick. */
static mono_t seen_in(const struct watch *watch, mono_t now)
{
	return (mono_t){ now.ns + (uint64_t)watch->offset_ns };
}

/* Sums are made in every tick, and windows end when they are exact (source.h). */
mono_t watch_seen_at(const struct watch *watch, mono_t now, uint64_t idle_ns)
{
	int64_t age = mono_diff(now, watch->at) - (int64_t)(watch->read_ns / 2);
	mono_t here = seen_in(watch, now);

	if (watch->read_ns == 0 && watch->target.kind == TARGET_PROCESS && idle_ns > 0)
		return idlepace_seen_at(watch->at, watch->since_known ? &watch->since : NULL, here, idle_ns);
	if (watch->read_ns == 0)
		return here;
	if (age < 0)
		return watch->at;
	return mono_add(watch->at, (uint64_t)age / watch->read_ns * watch->read_ns);
}

void watch_open(const struct watch *watch, struct watch_window *window, const struct metric_point *from, mono_t now)
{
	window->open = true;
	window->untouched = true;
	window->edge = seen_in(watch, now);
	window->from = *from;
	window->peak_bytes = metric_peak(&watch->sample, &watch->sample);
}

void watch_lose(struct watch *watch)
{
	watch->seen = false;
	for (size_t i = 0; i < watch->window_count; i++)
		watch->windows[i].open = false;
}
