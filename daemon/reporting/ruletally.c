/*
 * ruletally.c: one row per rule, in the order of the configuration: a rule's row is found from its place in config->rules, because the
 * evaluator hands out pointers into it.
 */
#include "ruletally.h"

#include "scope.h"

#include <errno.h>
#include <string.h>

struct ruletally {
	const struct config *config;
	struct ruletally_counts *rows; /* config->rule_count */
};

static struct ruletally_counts *row_of(const struct ruletally *tally, const struct config_rule *rule)
{
	uintptr_t offset = (uintptr_t)rule - (uintptr_t)tally->config->rules;

	return offset < tally->config->rule_count * sizeof(*rule) ? &tally->rows[offset / sizeof(*rule)] : NULL;
}

static const struct ruletally_counts *row_named(const struct ruletally *tally, const char *name)
{
	for (size_t i = 0; i < tally->config->rule_count; i++)
		if (strcmp(tally->config->rules[i].name, name) == 0)
			return &tally->rows[i];

	return NULL;
}

static void release(struct ruletally **tally)
{
	ruletally_free(*tally);
}

int ruletally_new(const struct config *config, const struct ruletally *before, struct ruletally **ret)
{
	AUTO(release) struct ruletally *tally = calloc(1, sizeof(*tally));

	if (!tally)
		return -ENOMEM;

	tally->config = config;
	tally->rows = calloc(config->rule_count + 1, sizeof(*tally->rows));
	if (!tally->rows)
		return -ENOMEM;

	for (size_t i = 0; before && i < config->rule_count; i++) {
		const struct ruletally_counts *row = row_named(before, config->rules[i].name);

		if (row)
			tally->rows[i] = *row;
	}
	*ret = TAKE(tally);

	return 0;
}

void ruletally_free(struct ruletally *tally)
{
	if (tally)
		free(tally->rows);
	free(tally);
}

void ruletally_judged(struct ruletally *tally, const struct config_rule *rule, const struct trigger_decision *decision)
{
	struct ruletally_counts *row = row_of(tally, rule);

	if (row == NULL)
		return;

	row->windows++;
	row->fired += decision->fires;
	row->reasons[decision->reason]++;
}

void ruletally_opened(struct ruletally *tally, const struct config_rule *rule)
{
	struct ruletally_counts *row = row_of(tally, rule);

	if (row)
		row->opened++;
}

const struct ruletally_counts *ruletally_counts(const struct ruletally *tally, const struct config_rule *rule)
{
	return row_of(tally, rule);
}
