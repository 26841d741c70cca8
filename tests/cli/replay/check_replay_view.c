/*
 * check_replay_view.c: a firing in words and as JSON: what it was held against is the minimum where
 * that is higher.
 */
#include "cli/replay/replay.h"

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024.0 * 1024)

Suite *replay_view_suite(void);

static char output[4096];

/* What is printed of it. Prints to stdout meanwhile. */
static void fire(const struct trigger_rule *rule, const struct trigger_decision *decision, bool json)
{
	const struct config_rule configured = { .name = "jump", .metric = METRIC_MEMORY_BYTES };
	const struct target target = { .name = "db", .key = "db" };
	struct replay_view view;
	FILE *file = tmpfile();
	int saved = dup(STDOUT_FILENO);

	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	ck_assert_int_eq(replay_view_open(&view, json, false), 0);
	replay_view_firing(&view, &(struct evaluator_firing){ .rule = &configured,
							      .target = &target,
							      .from = { 0 },
							      .to = { NS_PER_S },
							      .decision = decision,
							      .effective = rule });
	replay_view_close(&view);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(file);
	output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
	fclose(file);
}

static void says(const char *text)
{
	ck_assert_msg(strstr(output, text), "does not say \"%s\":\n%s", text, output);
}

static struct trigger_decision decision_of(enum trigger_reason reason, double value, double average)
{
	return (struct trigger_decision){
		.candidate_reason = reason, .value = value, .average = average, .has_average = true
	};
}

START_TEST(above_the_average_and_the_minimum_it_was_held_against_the_higher)
{
	struct trigger_rule rule = { .has_delta = true, .delta = 50, .has_minimum = true, .minimum = 64 * MIB };
	struct trigger_decision decision = decision_of(TRIGGER_ABOVE_AVERAGE, 102 * MIB, 6 * MIB);

	fire(&rule, &decision, false);
	says("102 MiB >= 64 MiB, the minimum; the average was 6 MiB\n");
	fire(&rule, &decision, true);
	says("\"threshold\": 67108864,");

	rule.minimum = 8 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB >= 9 MiB, above the average of 6 MiB\n");
	fire(&rule, &decision, true);
	says("\"threshold\": 9437184,");

	rule.has_minimum = false;
	rule.minimum = 64 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB >= 9 MiB, above the average of 6 MiB\n");
}
END_TEST

START_TEST(above_a_threshold_and_the_minimum_it_was_held_against_the_higher)
{
	struct trigger_rule rule = {
		.has_percent = true, .percent = 32 * MIB, .has_minimum = true, .minimum = 64 * MIB
	};
	struct trigger_decision decision = decision_of(TRIGGER_ABOVE_PERCENT, 102 * MIB, 6 * MIB);

	fire(&rule, &decision, false);
	says("102 MiB >= 64 MiB, the minimum\n");
	rule.minimum = 16 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB > 32 MiB\n");
}
END_TEST

Suite *replay_view_suite(void)
{
	Suite *suite = suite_create("replay_view");
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, above_the_average_and_the_minimum_it_was_held_against_the_higher);
	tcase_add_test(tcase, above_a_threshold_and_the_minimum_it_was_held_against_the_higher);
	suite_add_tcase(suite, tcase);
	return suite;
}
