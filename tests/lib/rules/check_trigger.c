/* check_trigger.c: every boundary of a judgement. */
#include "torture.h"
#include "trigger_bench.h"

#include <check.h>
#include <errno.h>
#include <math.h>

Suite *trigger_suite(void);

/* clang-format off */
/*
 * One value after four windows of 50 each: judged by thresholds of 0, which means not configured.
 */
static const struct {
	double percent, delta, minimum, maximum;
	double value;
	enum trigger_reason reason;
} boundaries[] = {
	{ 70,  0,  0,  0, 69.999, TRIGGER_WITHIN_BOUNDS },
	{ 70,  0,  0,  0, 70,     TRIGGER_WITHIN_BOUNDS },
	{ 70,  0,  0,  0, 70.001, TRIGGER_ABOVE_PERCENT },
	{  0, 20,  0,  0, 59.999, TRIGGER_WITHIN_BOUNDS },
	{  0, 20,  0,  0, 60,     TRIGGER_ABOVE_AVERAGE },
	{  0, 20,  0,  0, 60.001, TRIGGER_ABOVE_AVERAGE },
	{ 60, 20,  0,  0, 60,     TRIGGER_ABOVE_AVERAGE }, /* equal is enough for one, not for the other */
	{ 59, 20,  0,  0, 60,     TRIGGER_ABOVE_PERCENT }, /* percent comes first */
	{ 10,  0, 30,  0, 29.999, TRIGGER_BELOW_MINIMUM },
	{ 10,  0, 30,  0, 30,     TRIGGER_ABOVE_PERCENT },
	{  0, 20, 61,  0, 60.999, TRIGGER_BELOW_MINIMUM },
	{  0, 20, 61,  0, 61,     TRIGGER_ABOVE_AVERAGE },
	{ 70,  0,  0, 90, 89.999, TRIGGER_ABOVE_PERCENT },
	{ 70,  0,  0, 90, 90,     TRIGGER_ABOVE_MAXIMUM },
	{ 70,  0,  0, 90, 90.001, TRIGGER_ABOVE_MAXIMUM },
	{  0, 20,  0, 90, 90,     TRIGGER_ABOVE_MAXIMUM },
	{ 70,  0, 95, 90, 92,     TRIGGER_BELOW_MINIMUM }, /* minimum comes first */
	{  0,  0,  0,  0, 1e9,    TRIGGER_WITHIN_BOUNDS }, /* nothing configured never fires */
	{  0,  0, 30,  0, 1e9,    TRIGGER_WITHIN_BOUNDS },
	{  0,  0,  0, 90, 50,     TRIGGER_WITHIN_BOUNDS },
};
/* clang-format on */

START_TEST(judges_as_the_table_says)
{
	begin((struct trigger_rule){
		.has_percent = boundaries[_i].percent > 0,
		.has_delta = boundaries[_i].delta > 0,
		.has_minimum = boundaries[_i].minimum > 0,
		.has_maximum = boundaries[_i].maximum > 0,
		.percent = boundaries[_i].percent,
		.delta = boundaries[_i].delta,
		.minimum = boundaries[_i].minimum,
		.maximum = boundaries[_i].maximum,
		.history = 4,
		.warmup = 4,
	});
	for (int i = 0; i < 4; i++)
		ck_assert_reason(next(50), TRIGGER_WARMING_UP);

	ck_assert_str_eq(trigger_reason_name(next(boundaries[_i].value)), trigger_reason_name(boundaries[_i].reason));
	ck_assert_double_eq(bench.decision.average, 50);
	ck_assert_double_eq(bench.decision.value, boundaries[_i].value);
	ck_assert_int_eq(bench.decision.fires, boundaries[_i].reason == TRIGGER_ABOVE_PERCENT ||
						       boundaries[_i].reason == TRIGGER_ABOVE_AVERAGE);
	end();
}
END_TEST

START_TEST(threshold_of_zero_is_a_threshold)
{
	begin((struct trigger_rule){ .has_percent = true });
	ck_assert_reason(next(0), TRIGGER_WITHIN_BOUNDS);
	ck_assert_fires(next(0.001));
	end();

	begin((struct trigger_rule){ .has_percent = true, .has_maximum = true });
	ck_assert_reason(next(0), TRIGGER_ABOVE_MAXIMUM);
	end();

	begin((struct trigger_rule){ .has_delta = true, .warmup = 1 });
	next(50);
	ck_assert_reason(next(49.999), TRIGGER_WITHIN_BOUNDS);
	next(50.001);
	ck_assert_fires(next(50)); /* exactly the average of 50, 49.999 and 50.001 */
	end();
}
END_TEST

START_TEST(nothing_after_nothing_is_not_above_average)
{
	begin((struct trigger_rule){ .has_delta = true, .delta = 20, .warmup = 3, .history = 3 });
	for (int i = 0; i < 3; i++)
		next(0);
	ck_assert_reason(next(0), TRIGGER_WITHIN_BOUNDS);
	ck_assert(bench.decision.has_average);
	ck_assert_double_eq(bench.decision.average, 0);
	ck_assert_fires(next(0.001));
	end();
}
END_TEST

START_TEST(average_needs_a_history)
{
	begin((struct trigger_rule){ .has_delta = true, .delta = 20, .warmup = 0 });
	ck_assert_reason(next(1000), TRIGGER_WITHIN_BOUNDS);
	ck_assert(!bench.decision.has_average);
	ck_assert(!bench.decision.has_distance);
	ck_assert_fires(next(1200));
	end();
}
END_TEST

START_TEST(without_warmup_the_first_window_may_fire)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(warm_up_counts_windows_with_a_value)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .warmup = 2, .history = 2 });
	ck_assert_reason(next(99), TRIGGER_WARMING_UP);
	ck_assert_reason(next_unavailable(), TRIGGER_UNAVAILABLE);
	ck_assert_reason(next_unavailable(), TRIGGER_UNAVAILABLE);
	ck_assert_reason(next(99), TRIGGER_WARMING_UP);
	ck_assert_fires(next(99));
	end();
}
END_TEST

START_TEST(what_is_no_number_is_unavailable)
{
	const double values[] = { NAN, INFINITY, -INFINITY };

	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	for (size_t i = 0; i < 3; i++) {
		ck_assert_reason(next(values[i]), TRIGGER_UNAVAILABLE);
		ck_assert(!bench.decision.available && !bench.decision.has_distance);
	}
	ck_assert(!bench.decision.has_average);
	end();
}
END_TEST

START_TEST(average_is_over_the_windows_before_this_one)
{
	begin((struct trigger_rule){ .history = 3 });
	next(10);
	ck_assert(!bench.decision.has_average);
	next(20);
	ck_assert_double_eq(bench.decision.average, 10);
	next(60);
	ck_assert_double_eq(bench.decision.average, 15);
	next(1); /* history is exactly full: 10 20 60 */
	ck_assert_double_eq(bench.decision.average, 30);
	next(2); /* 20 60 1 */
	ck_assert_double_eq(bench.decision.average, 27);
	next_unavailable(); /* 60 1 2 */
	ck_assert_double_eq(bench.decision.average, 21);
	next(0); /* still */
	ck_assert_double_eq(bench.decision.average, 21);
	end();
}
END_TEST

START_TEST(history_holds_whatever_was_seen)
{
	begin((struct trigger_rule){
		.has_percent = true,
		.percent = 70,
		.has_minimum = true,
		.minimum = 10,
		.has_maximum = true,
		.maximum = 100,
		.history = 4,
	});
	ck_assert_reason(next(2), TRIGGER_BELOW_MINIMUM);
	ck_assert_reason(next(200), TRIGGER_ABOVE_MAXIMUM);
	ck_assert_fires(next(80));
	ck_assert_reason(next(38), TRIGGER_WITHIN_BOUNDS);
	next(0);
	ck_assert_double_eq(bench.decision.average, 80);
	end();
}
END_TEST

/*
 * The average of a ring of any length, at every position, after several times around, is the one by
 * definition.
 */
START_TEST(average_is_right_at_every_position_of_every_history)
{
	double values[400];

	for (size_t i = 0; i < 400; i++)
		values[i] = (double)((i * 7919) % 1000);

	for (uint32_t history = 1; history <= 12; history++) {
		begin((struct trigger_rule){ .history = history });
		for (size_t i = 0; i < 100; i++) {
			double sum = 0;
			size_t count = i < history ? i : history;

			for (size_t k = i - count; k < i; k++)
				sum += values[k];
			next(values[i]);
			ck_assert_int_eq(bench.decision.has_average, count > 0);
			if (count > 0)
				ck_assert_double_eq_tol(bench.decision.average, sum / (double)count, 1e-9);
		}
		end();
	}
}
END_TEST

/* Likewise; values that floats hold exactly. */
START_TEST(highest_is_right_at_every_position_of_every_history)
{
	for (uint32_t history = 1; history <= 12; history++) {
		begin((struct trigger_rule){
			.history = history, .has_delta = true, .delta = 50, .usual = TRIGGER_USUAL_HIGHEST });
		for (size_t i = 0; i < 100; i++) {
			double highest = 0;

			for (size_t k = i > history ? i - history : 0; k < i; k++)
				highest = fmax(highest, (double)((k * 7919) % 1000));
			next((double)((i * 7919) % 1000));
			ck_assert_int_eq(bench.decision.has_average, i > 0);
			if (i > 0)
				ck_assert_double_eq(bench.decision.average, highest);
		}
		end();
	}
}
END_TEST

/* A burst that comes again within the history is usual; against the average it is none. */
START_TEST(what_comes_again_is_not_above_the_highest)
{
	static const struct {
		enum trigger_usual usual;
		bool again;
	} cases[] = { { TRIGGER_USUAL_AVERAGE, true }, { TRIGGER_USUAL_HIGHEST, false } };

	for (size_t i = 0; i < 2; i++) {
		begin((struct trigger_rule){
			.history = 20, .warmup = 5, .has_delta = true, .delta = 50, .usual = cases[i].usual });
		for (unsigned k = 0; k < 8; k++)
			next(1);
		ck_assert_fires(next(100));
		for (unsigned k = 0; k < 8; k++)
			next(1);
		next(110);
		ck_assert_int_eq(bench.decision.fires, cases[i].again);
		end();
	}
}
END_TEST

START_TEST(average_forgets_a_huge_value_without_a_trace)
{
	begin((struct trigger_rule){ .history = 7, .has_delta = true, .warmup = 8 });
	for (int i = 0; i < 3; i++)
		next(0.1);
	next(1e18);
	for (int i = 0; i < 8; i++)
		next(0.1);
	ck_assert_double_eq_tol(bench.decision.average, 0.1, 1e-12);
	end();
}
END_TEST

START_TEST(average_does_not_drift)
{
	begin((struct trigger_rule){ .history = 1000, .has_delta = true, .delta = 1e9 });
	for (int i = 0; i < 200000; i++)
		next(i % 2 ? 1e6 : 0.1);
	ck_assert_double_eq_tol(bench.decision.average, 500000.05, 1e-6);
	end();
}
END_TEST

START_TEST(distance_is_to_the_lowest_threshold)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .history = 2 });
	next(60);
	ck_assert(bench.decision.has_distance);
	ck_assert_double_eq(bench.decision.distance, 10);
	next(71);
	ck_assert_double_eq(bench.decision.distance, -1);
	bench.rule.has_delta = true;
	bench.rule.delta = 0;
	next(50); /* average 65.5 */
	ck_assert_double_eq(bench.decision.distance, 15.5);
	bench.rule.has_minimum = true;
	bench.rule.minimum = 69;
	next(50); /* average 60.5, but nothing below the minimum counts */
	ck_assert_double_eq(bench.decision.distance, 19);
	bench.rule.has_maximum = true;
	bench.rule.maximum = 80;
	next(80);
	ck_assert(!bench.decision.has_distance);
	next_unavailable();
	ck_assert(!bench.decision.has_distance);
	end();
}
END_TEST

START_TEST(rule_without_thresholds_has_no_distance)
{
	begin((struct trigger_rule){ .has_minimum = true, .minimum = 10 });
	next(60);
	next(5);
	ck_assert(!bench.decision.has_distance);
	end();
}
END_TEST

START_TEST(only_the_first_candidate_allocates)
{
	unsigned long before;

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = S, .history = 3 });
	before = torture_allocations();
	for (int i = 0; i < 20; i++) {
		bench.now_ns += S;

		const struct trigger_window window = window_of(true, true, i * 10);

		trigger_step(bench.state, &bench.rule, &window, &bench.decision);
	}
	ck_assert_uint_eq(torture_allocations(), before + 1); /* with the first candidate */
	end();
}
END_TEST

START_TEST(candidate_that_gets_no_memory_is_judged_with_the_next_window)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	next(10);
	bench.now_ns += S;

	const struct trigger_window window = window_of(true, true, 80);

	torture_arm(1);
	ck_assert_int_eq(trigger_step(bench.state, &bench.rule, &window, &bench.decision), -ENOMEM);
	ck_assert(torture_disarm());
	ck_assert_double_eq(bench.decision.value, 10);
	ck_assert_fires(next(80));
	ck_assert_double_eq(bench.decision.average, 10);
	end();
}
END_TEST

START_TEST(a_rule_the_other_way_round_fires_below_and_is_armed_again_above)
{
	begin((struct trigger_rule){
		.has_percent = true, .below = true, .percent = 5, .history = 1, .rearm = TRIGGER_REARM_BELOW });
	next(5);
	ck_assert(!bench.decision.candidate && !bench.decision.has_distance);
	ck_assert_fires(next(4.9));
	ck_assert_int_eq(bench.decision.candidate_reason, TRIGGER_BELOW_PERCENT);
	next(0);
	ck_assert(!bench.decision.fires);
	ck_assert_int_eq(bench.decision.reason, TRIGGER_NOT_REARMED);
	next(80);
	ck_assert_int_eq(bench.decision.reason, TRIGGER_WITHIN_BOUNDS);
	ck_assert_fires(next(0));
	end();
}
END_TEST

START_TEST(names_are_stable)
{
	static const char *const reasons[] = { "unavailable",   "warming-up",    "below-minimum", "above-maximum",
					       "above-percent", "above-average", "below-percent", "within-bounds",
					       "pending",       "cooldown",      "not-re-armed",  "count-limit",
					       "disk-budget" };

	for (int i = 0; i < TRIGGER_REASONS; i++)
		ck_assert_str_eq(trigger_reason_name((enum trigger_reason)i), reasons[i]);
	ck_assert_str_eq(trigger_phase_name(TRIGGER_ARMED), "armed");
	ck_assert_str_eq(trigger_phase_name(TRIGGER_IN_PENDING), "pending");
	ck_assert_str_eq(trigger_phase_name(TRIGGER_IN_COOLDOWN), "cooldown");
	ck_assert_str_eq(trigger_phase_name(TRIGGER_DISARMED), "disarmed");
}
END_TEST

static TCase *judgement(void)
{
	TCase *tcase = tcase_create("judgement");

	tcase_add_loop_test(tcase, judges_as_the_table_says, 0, (int)(sizeof(boundaries) / sizeof(boundaries[0])));
	tcase_add_test(tcase, threshold_of_zero_is_a_threshold);
	tcase_add_test(tcase, nothing_after_nothing_is_not_above_average);
	tcase_add_test(tcase, average_needs_a_history);
	tcase_add_test(tcase, without_warmup_the_first_window_may_fire);
	tcase_add_test(tcase, warm_up_counts_windows_with_a_value);
	tcase_add_test(tcase, what_is_no_number_is_unavailable);
	tcase_add_test(tcase, average_is_over_the_windows_before_this_one);
	tcase_add_test(tcase, history_holds_whatever_was_seen);
	tcase_add_test(tcase, average_is_right_at_every_position_of_every_history);
	tcase_add_test(tcase, highest_is_right_at_every_position_of_every_history);
	tcase_add_test(tcase, what_comes_again_is_not_above_the_highest);
	tcase_add_test(tcase, average_forgets_a_huge_value_without_a_trace);
	tcase_add_test(tcase, average_does_not_drift);
	tcase_add_test(tcase, distance_is_to_the_lowest_threshold);
	tcase_add_test(tcase, rule_without_thresholds_has_no_distance);
	tcase_add_test(tcase, only_the_first_candidate_allocates);
	tcase_add_test(tcase, candidate_that_gets_no_memory_is_judged_with_the_next_window);
	tcase_add_test(tcase, names_are_stable);
	tcase_add_test(tcase, a_rule_the_other_way_round_fires_below_and_is_armed_again_above);
	return tcase;
}

Suite *trigger_suite(void)
{
	Suite *suite = suite_create("trigger");

	suite_add_tcase(suite, judgement());
	return suite;
}
