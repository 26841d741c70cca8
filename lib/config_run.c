/*
 * config_run.c: a command is an array of words, the first an absolute path: there is no shell and no search, so what runs is what
 * stands there. What could never run (a placeholder that does not exist, a pattern that no rule has) is refused here: it would be missed
 * at the worst moment.
 */
#include "config_run.h"

#include "clock.h"
#include "hookline.h"
#include "scope.h"
#include "trigger.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ULL
#define MIB (1024 * KIB)

/*
 * timeout     A dump of a large process takes so long; an incident waits for it. Ten minutes is a hang.
 * max_output  What other captures may have; a gigabyte is not read by anybody.
 */
// clang-format off
const struct config_field config_run_fields[] = {
	CONFIG_OTHER("", "name"),
	CONFIG_OTHER("", "command"),
	CONFIG_RANGE("", "timeout",    DURATION, struct config_run, timeout_ns,       30 * NS_PER_S, 100 * NS_PER_MS, 600 * NS_PER_S),
	CONFIG_RANGE("", "max_output", BYTES,    struct config_run, max_output_bytes, MIB,           KIB,             1024 * MIB),
	CONFIG_OTHER("", "rules"),
};
// clang-format on
const size_t config_run_field_count = ARRAY_LEN(config_run_fields);

/* Makes a list with room for the texts of an array, and NULL. example: of what was expected. */
static int read_texts(const struct config_scope *scope, const struct json_node *node, size_t max, const char *example,
		      const char ***ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_ARRAY || node->count == 0)
		return config_refuse_value(scope, node, "expected an array of texts such as %s, found %s", example,
					   node->type == JSON_ARRAY ? "none" : config_found(node, shown));
	if (node->count > max)
		return config_refuse_value(scope, node, "too many: expected at most %zu, found %zu", max, node->count);
	*ret = calloc(node->count + 1, sizeof(**ret));
	return *ret != NULL ? 0 : -ENOMEM;
}

/* The scope of an element: "targets[0].run[1].command[2]". */
static struct config_scope element(const struct config_scope *scope, const char *key, size_t index)
{
	struct config_scope within = *scope;

	snprintf(within.path, sizeof(within.path), "%.40s.%.10s[%zu]", scope->path, key, index);
	return within;
}

/* An argument may be empty, a path or a pattern may not. */
static int read_word(const struct config_scope *scope, const struct json_node *node, bool may_be_empty,
		     const char **ret)
{
	if (may_be_empty && node->type == JSON_STRING && node->text_len == 0) {
		*ret = node->text;
		return 0;
	}
	return config_read_text(scope, node, PATH_MAX - 1, ret);
}

static int read_argument(const struct config_scope *scope, const struct json_node *node, size_t index, const char **ret)
{
	char shown[CONFIG_SHOWN];
	size_t at;
	int r = read_word(scope, node, index > 0, ret);

	if (r < 0)
		return r;
	if (index == 0 && ((*ret)[0] != '/' || strchr(*ret, '{') != NULL))
		return config_refuse(
			scope, node->place, NULL,
			"no program is searched for, no shell is asked: expected a path that begins with / "
			"and has no placeholder, found %s",
			config_found(node, shown));
	if (hookline_check(*ret, &at) < 0)
		return config_refuse(scope, node->place, NULL,
				     "unknown placeholder at %.24s: expected one of " HOOKLINE_LIST ", or {{ for a {",
				     config_quote(*ret + at, strlen(*ret + at), shown));
	return 0;
}

static int read_command(const struct config_scope *scope, const struct json_node *node, struct config_run *run)
{
	int r = read_texts(scope, node, CONFIG_RUN_WORDS_MAX, "[\"/usr/bin/gcore\", \"{pid}\"]", &run->words);

	for (const struct json_node *word = node->first; r == 0 && word != NULL; word = word->next) {
		const struct config_scope within = element(scope, "command", run->word_count);

		r = read_argument(&within, word, run->word_count, &run->words[run->word_count]);
		run->word_count++;
	}
	return r;
}

static int read_rules(const struct config_scope *scope, const struct json_node *node, struct config_run *run)
{
	int r = read_texts(scope, node, CONFIG_RUN_RULES_MAX, "[\"memory-*\"]", &run->rules);

	for (const struct json_node *rule = node->first; r == 0 && rule != NULL; rule = rule->next) {
		const struct config_scope within = element(scope, "rules", run->rule_count);

		r = config_read_text(&within, rule, 64, &run->rules[run->rule_count]);
		run->rule_count++;
	}
	return r;
}

static int check_name(const struct config_scope *scope, const struct json_node *name,
		      const struct config_target *target)
{
	size_t n = target->run_count - 1;

	if (strlen(target->runs[n].name) > CONFIG_RUN_NAME_MAX)
		return config_refuse_value(scope, name, "becomes part of a file name: expected at most %d characters",
					   CONFIG_RUN_NAME_MAX);
	for (size_t i = 0; i < n; i++)
		if (strcmp(target->runs[i].name, target->runs[n].name) == 0)
			return config_refuse_value(
				scope, name, "duplicate name \"%s\": expected each command of a target to have its own",
				target->runs[n].name);
	return 0;
}

/* The scope stands for the command. */
static int read_run(const struct config_scope *scope, const struct json_node *node, struct config_target *target)
{
	struct config_run *run = &target->runs[target->run_count++];
	const struct json_node *name = json_member(node, "name"), *command = json_member(node, "command");
	const struct json_node *rules = json_member(node, "rules");
	int r;

	config_field_defaults(config_run_fields, config_run_field_count, run);
	r = config_field_apply(scope, config_run_fields, config_run_field_count, "", node, run, NULL);
	if (r < 0)
		return r;
	if (name == NULL || command == NULL)
		return config_refuse(scope, node->place, NULL, "has no %s: expected members \"name\" and \"command\"",
				     name == NULL ? "name" : "command");
	r = config_read_name(scope, name, &run->name);
	if (r == 0)
		r = check_name(scope, name, target);
	if (r == 0)
		r = read_command(scope, command, run);
	return r == 0 && rules != NULL ? read_rules(scope, rules, run) : r;
}

int config_run_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	char shown[CONFIG_SHOWN];
	int r = 0;

	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of objects, [ { ... } ], found %s",
					   config_found(node, shown));
	if (node->count > CONFIG_RUNS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_RUNS_MAX,
					   node->count);
	ret->runs = calloc(node->count + 1, sizeof(*ret->runs));
	if (ret->runs == NULL)
		return -ENOMEM;
	for (const struct json_node *run = node->first; r == 0 && run != NULL; run = run->next) {
		const struct config_scope within = element(scope, "run", ret->run_count);

		r = read_run(&within, run, ret);
	}
	return r;
}

/* ---- and the rules ---- */

static bool matches_any(const char *pattern, const struct config *config)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (fnmatch(pattern, config->rules[i].name, 0) == 0)
			return true;
	return fnmatch(pattern, CONFIG_RUN_MANUAL, 0) == 0;
}

static int agree(const struct config_scope *scope, const struct json_node *run, const struct config *config)
{
	const struct json_node *rules = json_member(run, "rules");
	struct config_guess guess = { 0 };
	char hint[240];
	size_t index = 0;

	for (const struct json_node *rule = rules != NULL ? rules->first : NULL; rule != NULL; rule = rule->next) {
		const struct config_scope within = element(scope, "rules", index++);

		if (matches_any(rule->text, config))
			continue;
		guess.word = rule->text;
		for (size_t i = 0; i < config->rule_count; i++)
			config_guess_offer(&guess, config->rules[i].name);
		config_guess_offer(&guess, CONFIG_RUN_MANUAL);
		return config_refuse(&within, rule->place, NULL, "no rule has such a name; %s",
				     config_guess_say(&guess, hint, sizeof(hint)));
	}
	return 0;
}

int config_run_agree(const struct config_scope *scope, const struct json_node *node, const struct config *config)
{
	const struct json_node *runs = json_member(node, "run");
	size_t index = 0;
	int r = 0;

	for (const struct json_node *run = runs != NULL ? runs->first : NULL; r == 0 && run != NULL; run = run->next) {
		const struct config_scope within = element(scope, "run", index++);

		r = agree(&within, run, config);
	}
	return r;
}
