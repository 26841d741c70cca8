/* check_suggestion.c: proposals, held against the engine that will judge by them. */
#include "replay_rig.h"
#include "lib/base/base.h"
#include "cli/replay/replay.h"
#include "torture.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/trigger.h"

#include <errno.h>

Suite *suggestion_suite(void);

static struct config *config;
static struct suggestion *suggestion;
static uint64_t fired;

/* The rule of the test: memory_bytes, in windows of 100 ms. */
static void configure(const char *rate_limit)
{
	config = scene_config(
		"{ \"targets\": [ { \"name\": \"a\", \"comm\": \"a\" }, { \"name\": \"b\", \"comm\": \"b\" } ], "
		"\"rules\": [ { \"name\": \"big\", \"metric\": \"threads\", \"window\": \"100ms\", "
		"\"above\": 1, \"warmup\": 0, %s } ] }",
		rate_limit);
	suggestion = NULL;
	rig_seed = 1;
	fired = 0;
}

static void release(void)
{
	suggestion_free(suggestion);
	config_free(config);
}

static void on_window(void *ctx, const struct evaluator_firing *window)
{
	(void)ctx;
	if (suggestion)
		ck_assert_int_eq(suggestion_add(suggestion, 0, window), 0);
}

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;
	fired++;
	return 0;
}

/* Three targets whose threads change; the same for the same seed. How often the rule fired. */
static uint64_t live(unsigned windows, uint64_t seed)
{
	const struct rule_replay_options options = {
		.config = config, .machine = rig_machine, .fire = on_fire, .witness = on_window
	};
	struct ring_event event = { .type = RING_EVENT_TARGET };
	struct rule_replay *rule_replay;
	struct sample samples[3] = { { 0 } };

	fired = 0;
	rig_seed = seed;
	ck_assert_int_eq(rule_replay_new(&options, &rule_replay), 0);
	for (uint32_t id = 1; id <= 3; id++) {
		event.target = rig_target(id);
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
	}
	for (unsigned window = 0; window <= windows; window++) {
		event = (struct ring_event){ .type = RING_EVENT_TICK, .time = { (1000 + 100 * window) * NS_PER_MS } };
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
		event.type = RING_EVENT_SAMPLE;
		for (uint32_t id = 1; id <= 3; id++) {
			uint64_t threads = 5 + rig_random(40);

			if (rig_random(3) == 0)
				sample_set(&samples[id - 1], SAMPLE_THREADS, threads * threads);
			event.id = id;
			event.sample = &samples[id - 1];
			ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
		}
		event.type = RING_EVENT_TICK_END;
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
	}
	rule_replay_free(rule_replay);

	return fired;
}

/* What is proposed for so many firings fires at most so often, and what is lower more often. */
static void check_answers(const char *rate_limit)
{
	struct suggestion_answer answer;

	configure(rate_limit);
	ck_assert_int_eq(suggestion_new(&config->rules[0], &suggestion), 0);
	live(400, 7);

	struct suggestion *kept = TAKE(suggestion);

	for (uint64_t wanted = 0; wanted < 60; wanted += 1 + wanted / 4) {
		suggestion_answer(kept, wanted, &answer);
		ck_assert(answer.known);
		config->rules[0].trigger.percent = answer.threshold;
		uint64_t really = live(400, 7);

		ck_assert_msg(really == answer.firings && really <= wanted,
			      "%s: %ju wanted, %ju foretold, %ju fired at %g", rate_limit, (uintmax_t)wanted,
			      (uintmax_t)answer.firings, (uintmax_t)really, answer.threshold);
		/* A lower one that makes a difference fires too often. */
		while (really == answer.firings && config->rules[0].trigger.percent > 0) {
			config->rules[0].trigger.percent = config->rules[0].trigger.percent * 0.9 - 0.1;
			really = live(400, 7);
		}
		ck_assert_msg(really > wanted || config->rules[0].trigger.percent <= 0, "%s: %ju wanted, %ju at %g",
			      rate_limit, (uintmax_t)wanted, (uintmax_t)really, config->rules[0].trigger.percent);
	}
	suggestion_free(kept);
	release();
}

START_TEST(a_threshold_fires_as_often_as_foretold)
{
	check_answers("\"cooldown\": \"0s\"");
	check_answers("\"cooldown\": \"2s\"");
	check_answers("\"cooldown\": \"0s\", \"minimum\": 100");
	check_answers("\"cooldown\": \"5s\", \"maximum\": 1500");
}
END_TEST

START_TEST(a_threshold_that_must_hold_fires_as_often_as_foretold)
{
	check_answers("\"cooldown\": \"3s\", \"for\": \"200ms\"");
	check_answers("\"cooldown\": \"1s\", \"for\": \"500ms\"");
}
END_TEST

START_TEST(thresholds_are_round)
{
	static const struct {
		double low, high, threshold;
		bool never;
	} cases[] = {
		{ 83.27, 91.4, 90, false },  { 50.1, 50.2, 50.1, false }, { 7, 8, 7, false },
		{ 1234, 5678, 2000, false }, { 0.123, 0.9, 0.2, false },  { 0.2, 0.59, 0.6, true },
		{ 20, 30.5, 31, true },      { 0, 0, 0, true },
	};
	struct sample sample = { 0 };
	struct target target = rig_target(1);
	struct suggestion_answer answer;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		configure("\"cooldown\": \"0s\"");
		ck_assert_int_eq(suggestion_new(&config->rules[0], &suggestion), 0);
		for (unsigned k = 0; k < 2; k++) {
			struct trigger_decision decision = { .available = true, .reason = TRIGGER_WITHIN_BOUNDS };
			struct evaluator_firing window = { .rule = &config->rules[0],
							   .target = &target,
							   .to = { (10 + k) * NS_PER_S },
							   .sample = &sample,
							   .decision = &decision };

			decision.value = k ? cases[i].high : cases[i].low;
			ck_assert_int_eq(suggestion_add(suggestion, 0, &window), 0);
		}
		suggestion_answer(suggestion, cases[i].never ? 0 : 1, &answer);
		ck_assert(answer.known && answer.firings == (cases[i].never ? 0 : 1));
		ck_assert_double_eq_tol(answer.threshold, cases[i].threshold, 1e-9);
		release();
	}
}
END_TEST

START_TEST(without_values_nothing_is_known)
{
	struct suggestion_answer answer = { .known = true };

	configure("\"cooldown\": \"0s\"");
	ck_assert_int_eq(suggestion_new(&config->rules[0], &suggestion), 0);
	suggestion_answer(suggestion, 5, &answer);
	ck_assert(!answer.known);
	config->rules[0].trigger.for_ns = 3600 * NS_PER_S;
	suggestion_free(TAKE(suggestion));
	ck_assert_int_eq(suggestion_new(&config->rules[0], &suggestion), -ERANGE);
	release();
}
END_TEST

/* More windows than are kept: the highest are, and so the answer for few firings is exact. */
START_TEST(of_very_many_the_highest_are_kept)
{
	struct suggestion_answer answer;

	configure("\"cooldown\": \"0s\"");
	ck_assert_int_eq(suggestion_new(&config->rules[0], &suggestion), 0);
	live(24000, 3);

	struct suggestion *kept = TAKE(suggestion);

	for (uint64_t wanted = 3000; wanted < 400000; wanted *= 10) {
		suggestion_answer(kept, wanted, &answer);
		config->rules[0].trigger.percent = answer.threshold;
		ck_assert_uint_eq(live(24000, 3), answer.firings);
		ck_assert_uint_gt(answer.firings, wanted > 30000 ? 40000 : wanted / 2);
	}
	suggestion_free(kept);
	release();
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	struct sample sample = { 0 };
	struct trigger_decision decision = { .available = true, .reason = TRIGGER_WITHIN_BOUNDS, .value = 1 };
	bool injected = true;

	configure("\"cooldown\": \"0s\", \"for\": \"1s\"");
	for (long n = 1; injected; n++) {
		struct target target = rig_target(1);
		struct evaluator_firing window = {
			.rule = &config->rules[0], .target = &target, .sample = &sample, .decision = &decision
		};
		struct suggestion *one = NULL;

		torture_arm(n);
		int r = suggestion_new(&config->rules[0], &one);

		for (unsigned i = 0; r == 0 && i < 300; i++) {
			target.id = 1 + i % 20;
			window.to.ns += 100 * NS_PER_MS;
			r = suggestion_add(one, 0, &window);
		}
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		suggestion_free(one);
	}
	release();
}
END_TEST

Suite *suggestion_suite(void)
{
	Suite *suite = suite_create("suggestion");
	TCase *tcase = tcase_create("thresholds");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_threshold_fires_as_often_as_foretold);
	tcase_add_test(tcase, a_threshold_that_must_hold_fires_as_often_as_foretold);
	tcase_add_test(tcase, thresholds_are_round);
	tcase_add_test(tcase, without_values_nothing_is_known);
	tcase_add_test(tcase, of_very_many_the_highest_are_kept);
	tcase_add_test(tcase, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, tcase);

	return suite;
}
