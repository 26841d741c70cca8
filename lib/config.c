/*
 * config.c: a configuration that is there. How it comes into being is told by the modules above: config_field (one
 * key), config_target and config_rule (one entry), config_parse (the whole and what must agree in it), config_load
 * (files).
 *
 * Its texts are those of the parsed documents, which it keeps: nothing is copied, and one call frees all.
 */
#include "config.h"

#include "json.h"
#include "scope.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void release_runs(struct config_target *target)
{
	for (size_t i = 0; target->runs != NULL && i < target->run_count; i++) {
		free(target->runs[i].words);
		free(target->runs[i].rules);
	}
	free(target->runs);
	free(target->labels);
}

void config_free(struct config *config)
{
	if (config == NULL)
		return;
	for (size_t i = 0; config->rules != NULL && i < config->rule_count; i++)
		free(config->rules[i].targets);
	for (size_t i = 0; config->targets != NULL && i < config->target_count; i++)
		release_runs(&config->targets[i]);
	for (size_t i = 0; config->documents != NULL && i < config->document_count; i++)
		json_document_free(config->documents[i]);
	for (size_t i = 0; config->files != NULL && i < config->document_count; i++)
		free(config->files[i]);
	free(config->metrics.container_labels);
	free(config->rules);
	free(config->targets);
	free(config->documents);
	free(config->files);
	free(config);
}

static const char *pattern_of(const struct config_target *target, const char *key)
{
	for (size_t i = 0; i < target->label_count; i++)
		if (strcmp(target->labels[i].key, key) == 0)
			return target->labels[i].pattern;
	return NULL;
}

/* In whichever order; no key is twice in one. */
static bool same_labels(const struct config_target *a, const struct config_target *b)
{
	if (a->label_count != b->label_count)
		return false;
	for (size_t i = 0; i < a->label_count; i++) {
		const char *other = pattern_of(b, a->labels[i].key);

		if (other == NULL || strcmp(a->labels[i].pattern, other) != 0)
			return false;
	}
	return true;
}

bool config_target_same(const struct config_target *a, const struct config_target *b)
{
	if (strcmp(a->name, b->name) != 0 || a->selector != b->selector || a->per != b->per || a->tree != b->tree ||
	    !same_labels(a, b))
		return false;
	return a->selector == CONFIG_PID ? a->pid == b->pid : strcmp(a->pattern, b->pattern) == 0;
}

static bool same_texts(const char *const *a, size_t count_a, const char *const *b, size_t count_b)
{
	if (count_a != count_b)
		return false;
	for (size_t i = 0; i < count_a; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

static bool same_run(const struct config_run *a, const struct config_run *b)
{
	return strcmp(a->name, b->name) == 0 && a->timeout_ns == b->timeout_ns &&
	       a->max_output_bytes == b->max_output_bytes &&
	       same_texts(a->words, a->word_count, b->words, b->word_count) &&
	       same_texts(a->rules, a->rule_count, b->rules, b->rule_count);
}

bool config_target_captures_same(const struct config_target *a, const struct config_target *b)
{
	if (a->again_ns != b->again_ns || a->run_count != b->run_count)
		return false;
	for (size_t i = 0; i < a->run_count; i++)
		if (!same_run(&a->runs[i], &b->runs[i]))
			return false;
	return true;
}

bool config_run_wanted(const struct config_run *run, const char *rule)
{
	for (size_t i = 0; i < run->rule_count; i++)
		if (fnmatch(run->rules[i], rule, 0) == 0)
			return true;
	return run->rule_count == 0;
}

static bool looks_at(const struct config_rule *rule, const char *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target) == 0)
			return true;
	return rule->target_count == 0;
}

uint64_t config_idle_ns(const struct config *config)
{
	const struct config_sampling *sampling = &config->sampling;
	uint64_t idle_ns = sampling->idle_interval_ns;

	if (sampling->heartbeat_ns < idle_ns)
		idle_ns = sampling->heartbeat_ns;

	return idle_ns > sampling->interval_ns ? idle_ns : 0;
}

/* What is not known of a window is no more than a quarter of it. */
#define WINDOW_SHARE 4

uint64_t config_idle_of(const struct config *config, const char *target)
{
	uint64_t idle_ns = config_idle_ns(config);

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns / WINDOW_SHARE < idle_ns && looks_at(&config->rules[i], target))
			idle_ns = config->rules[i].window_ns / WINDOW_SHARE;

	return idle_ns;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

uint64_t config_idle_grid_ns(const struct config *config)
{
	uint64_t idle_ns = config_idle_ns(config);
	uint64_t all_ns = 0;

	for (size_t i = 0; i < config->rule_count; i++)
		all_ns = common_divisor(config->rules[i].window_ns, all_ns);
	if (all_ns == 0 || idle_ns == 0)
		return idle_ns;

	/* The longest part of it that is not above the idle interval. */
	for (uint64_t parts = (all_ns + idle_ns - 1) / idle_ns; all_ns / parts > config->sampling.interval_ns; parts++)
		if (all_ns % parts == 0)
			return all_ns / parts;

	return 0;
}

/* A threshold that is not configured has no value. */
static bool same_threshold(bool has_a, double a, bool has_b, double b)
{
	return has_a == has_b && (!has_a || a == b);
}

static bool same_thresholds(const struct trigger_rule *a, const struct trigger_rule *b)
{
	return same_threshold(a->has_percent, a->percent, b->has_percent, b->percent) &&
	       same_threshold(a->has_delta, a->delta, b->has_delta, b->delta) &&
	       same_threshold(a->has_minimum, a->minimum, b->has_minimum, b->minimum) &&
	       same_threshold(a->has_maximum, a->maximum, b->has_maximum, b->maximum);
}

bool config_rule_same(const struct config_rule *a, const struct config_rule *b)
{
	const struct trigger_rule *s = &a->trigger, *t = &b->trigger;

	return strcmp(a->name, b->name) == 0 && a->metric == b->metric && a->of == b->of &&
	       a->window_ns == b->window_ns && same_thresholds(s, t) && s->warmup == t->warmup &&
	       s->history == t->history && s->for_ns == t->for_ns && s->cooldown_ns == t->cooldown_ns &&
	       s->count == t->count && s->count_period_ns == t->count_period_ns && s->rearm == t->rearm;
}

void config_error_format(const struct config_error *err, char *buf, size_t cap)
{
	char place[32] = "";

	if (err->line > 0)
		snprintf(place, sizeof(place), ":%u:%u", err->line, err->column);
	snprintf(buf, cap, "%s%s%s%s%s%s", err->file, place, err->file[0] != '\0' ? ": " : "", err->key,
		 err->key[0] != '\0' ? ": " : "", err->message);
}

const char *config_selector_name(enum config_selector selector)
{
	static const char *const names[] = {
		"pid", "pidfile", "comm", "exe", "cmdline", "cgroup", "unit", "containers"
	};

	return selector < ARRAY_LEN(names) ? names[selector] : NULL;
}

const char *config_capture_name(enum config_capture capture)
{
	static const char *const names[] = { "samples", "threads", "status", "smaps", "limits", "cgroup", "system" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (capture == 1u << i)
			return names[i];
	return NULL;
}
