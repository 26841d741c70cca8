/*
 * check_trigger_firing.c: what holds a candidate back, and what survives a restart, without a
 * clock.
 */
#include "trigger_bench.h"

#include <check.h>

Suite *trigger_firing_suite(void);

START_TEST(candidate_must_hold_for_exactly_so_long)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .for_ns = 3 * S });
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_IN_PENDING);
	ck_assert_int_eq(bench.decision.candidate_reason, TRIGGER_ABOVE_PERCENT);
	ck_assert_uint_eq(bench.decision.pending_ns, 0);
	ck_assert_reason(after(3 * S - 1, 71), TRIGGER_PENDING);
	ck_assert_uint_eq(bench.decision.pending_ns, 3 * S - 1);
	ck_assert_fires(after(1, 71));
	ck_assert_uint_eq(bench.decision.pending_ns, 3 * S);
	end();
}
END_TEST

START_TEST(anything_but_a_candidate_ends_the_hold)
{
	begin((struct trigger_rule){
		.has_percent = true, .percent = 70, .for_ns = 2 * S, .has_maximum = true, .maximum = 90 });
	next(71);
	ck_assert_reason(next(70), TRIGGER_WITHIN_BOUNDS);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	next(71);
	ck_assert_reason(next(95), TRIGGER_ABOVE_MAXIMUM);
	next(71);
	ck_assert_reason(next_unavailable(), TRIGGER_UNAVAILABLE);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	ck_assert_uint_eq(bench.decision.pending_ns, 0);
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(candidate_by_either_threshold_holds)
{
	begin((struct trigger_rule){
		.has_percent = true, .percent = 70, .has_delta = true, .delta = 50, .for_ns = 2 * S, .history = 10 });
	next(10);
	ck_assert_reason(next(20), TRIGGER_PENDING);
	ck_assert_int_eq(bench.decision.candidate_reason, TRIGGER_ABOVE_AVERAGE);
	ck_assert_reason(next(80), TRIGGER_PENDING);
	ck_assert_int_eq(bench.decision.candidate_reason, TRIGGER_ABOVE_PERCENT);
	ck_assert_fires(next(80));
	end();
}
END_TEST

START_TEST(cooldown_ends_at_its_very_nanosecond)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 10 * S });
	ck_assert_fires(next(71));
	ck_assert_int_eq(bench.decision.phase, TRIGGER_IN_COOLDOWN);
	ck_assert_uint_eq(bench.decision.cooldown_left_ns, 10 * S);
	ck_assert_reason(after(10 * S - 1, 71), TRIGGER_COOLDOWN);
	ck_assert_uint_eq(bench.decision.cooldown_left_ns, 1);
	ck_assert_fires(after(1, 71));
	end();
}
END_TEST

START_TEST(cooldown_that_is_over_arms_again)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 10 * S });
	next(71);
	ck_assert_reason(after(9 * S, 1), TRIGGER_WITHIN_BOUNDS);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_IN_COOLDOWN);
	ck_assert_reason(after(S, 1), TRIGGER_WITHIN_BOUNDS);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	ck_assert_uint_eq(bench.decision.cooldown_left_ns, 0);
	ck_assert_uint_eq(memory().cooldown_until.ns, 0);
	end();
}
END_TEST

START_TEST(without_cooldown_it_fires_every_time)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	for (int i = 0; i < 5; i++)
		ck_assert_fires(next(71));
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	ck_assert_uint_eq(memory().fired, 5);
	end();
}
END_TEST

START_TEST(hold_begins_anew_with_a_firing_and_runs_in_the_cooldown)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .for_ns = 2 * S });
	next(71);
	next(71);
	ck_assert_fires(next(71));
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_fires(next(71));
	end();

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .for_ns = 2 * S, .cooldown_ns = 3 * S });
	next(71);
	next(71);
	ck_assert_fires(next(71));
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_IN_COOLDOWN);
	ck_assert_reason(next(71), TRIGGER_COOLDOWN);
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(count_limit_is_reached_exactly_and_the_period_rolls_over)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .count = 2, .count_period_ns = 60 * S });
	ck_assert_fires(next(71)); /* the period begins here */
	ck_assert_fires(after(20 * S, 71));
	ck_assert_reason(after(39 * S, 71), TRIGGER_COUNT_LIMIT);
	ck_assert_reason(after(S - 1, 71), TRIGGER_COUNT_LIMIT);
	ck_assert_uint_eq(memory().count, 2);
	ck_assert_fires(after(1, 71));
	ck_assert_uint_eq(memory().count, 1);
	ck_assert_uint_eq(memory().count_since.ns, wall_ns());
	ck_assert_uint_eq(memory().fired, 3);
	ck_assert_reason(after(60 * S, 1), TRIGGER_WITHIN_BOUNDS);
	ck_assert_uint_eq(memory().count, 0);
	ck_assert_uint_eq(memory().count_since.ns, 0);
	end();
}
END_TEST

START_TEST(count_without_a_period_is_for_ever)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .count = 1 });
	ck_assert_fires(next(71));
	ck_assert_reason(after(1000000 * S, 71), TRIGGER_COUNT_LIMIT);
	restart(1000000 * S);
	ck_assert_reason(next(71), TRIGGER_COUNT_LIMIT);
	end();
}
END_TEST

START_TEST(count_and_its_period_survive_a_restart)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .count = 1, .count_period_ns = 100 * S });
	ck_assert_fires(next(71));
	restart(60 * S);
	step(true, 71);
	ck_assert_int_eq(bench.decision.reason, TRIGGER_COUNT_LIMIT);
	ck_assert_reason(after(40 * S - 1, 71), TRIGGER_COUNT_LIMIT);
	ck_assert_fires(after(1, 71));
	end();
}
END_TEST

START_TEST(full_disk_only_withholds)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 9 * S, .count = 1 });
	bench.disk_full = true;
	ck_assert_reason(next(71), TRIGGER_DISK_BUDGET);
	ck_assert(bench.decision.candidate);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	ck_assert_reason(next(71), TRIGGER_DISK_BUDGET);
	bench.disk_full = false;
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(rearm_below_waits_for_the_value_to_come_down)
{
	begin((struct trigger_rule){
		.has_percent = true, .percent = 70, .has_maximum = true, .maximum = 90, .rearm = TRIGGER_REARM_BELOW });
	ck_assert_fires(next(71));
	ck_assert_int_eq(bench.decision.phase, TRIGGER_DISARMED);
	ck_assert_reason(next(71), TRIGGER_NOT_REARMED);
	ck_assert_reason(next(95), TRIGGER_ABOVE_MAXIMUM);
	ck_assert_reason(next_unavailable(), TRIGGER_UNAVAILABLE);
	ck_assert_reason(next(71), TRIGGER_NOT_REARMED); /* neither of those came down */
	ck_assert_reason(next(70), TRIGGER_WITHIN_BOUNDS);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_ARMED);
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(rearm_below_may_happen_within_the_cooldown)
{
	begin((struct trigger_rule){ .has_percent = true,
				     .percent = 70,
				     .has_minimum = true,
				     .minimum = 10,
				     .cooldown_ns = 3 * S,
				     .rearm = TRIGGER_REARM_BELOW });
	next(71);
	ck_assert_reason(next(5), TRIGGER_BELOW_MINIMUM);
	ck_assert_reason(next(71), TRIGGER_COOLDOWN);
	ck_assert_fires(next(71));
	ck_assert_reason(after(4 * S, 71), TRIGGER_NOT_REARMED);
	restart(S);
	ck_assert_reason(next(71), TRIGGER_NOT_REARMED); /* an earlier life fired */
	end();
}
END_TEST

START_TEST(rearm_high_water_needs_more_than_ever_before)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .rearm = TRIGGER_REARM_HIGH_WATER });
	ck_assert_fires(next(75));
	ck_assert_int_eq(bench.decision.phase, TRIGGER_DISARMED);
	ck_assert_reason(next(75), TRIGGER_NOT_REARMED);
	next(10);
	ck_assert_reason(next(74), TRIGGER_NOT_REARMED);
	ck_assert_fires(next(75.001));
	ck_assert_double_eq(memory().high_water, 75.001);
	restart(S);
	ck_assert_reason(next(75.001), TRIGGER_NOT_REARMED);
	ck_assert_fires(next(80));
	end();
}
END_TEST

START_TEST(high_water_is_the_highest_firing_not_the_last)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	next(90);
	next(80);
	ck_assert_double_eq(memory().high_water, 90);
	end();
}
END_TEST

START_TEST(first_reason_that_applies_is_given)
{
	begin((struct trigger_rule){ .has_percent = true,
				     .percent = 70,
				     .for_ns = S,
				     .cooldown_ns = 2 * S,
				     .rearm = TRIGGER_REARM_BELOW,
				     .count = 1 });
	next(71);
	ck_assert_fires(next(71));
	bench.disk_full = true;
	ck_assert_reason(after(S / 2, 71), TRIGGER_PENDING);
	ck_assert_reason(after(S / 2, 71), TRIGGER_COOLDOWN);
	ck_assert_reason(after(S, 71), TRIGGER_NOT_REARMED);
	next(1);
	next(71);
	ck_assert_reason(next(71), TRIGGER_COUNT_LIMIT);
	bench.rule.count = 2;
	ck_assert_reason(next(71), TRIGGER_DISK_BUDGET);
	bench.disk_full = false;
	ck_assert_fires(next(71));
	end();
}
END_TEST

START_TEST(every_reason_is_counted)
{
	uint32_t reasons[TRIGGER_REASONS];

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 2 * S });
	next_unavailable();
	next(71);
	next(71);
	next(1);
	next(71);
	trigger_reasons(bench.state, reasons);
	ck_assert_uint_eq(reasons[TRIGGER_UNAVAILABLE], 1);
	ck_assert_uint_eq(reasons[TRIGGER_ABOVE_PERCENT], 2);
	ck_assert_uint_eq(reasons[TRIGGER_COOLDOWN], 1);
	ck_assert_uint_eq(reasons[TRIGGER_WITHIN_BOUNDS], 1);
	end();
}
END_TEST

START_TEST(wall_clock_that_is_set_does_not_move_a_cooldown)
{
	const int64_t steps[] = { 3600, -3600, 86400 * 365, -86400 };

	for (size_t i = 0; i < 4; i++) {
		begin((struct trigger_rule){ .has_percent = true,
					     .percent = 70,
					     .cooldown_ns = 100 * S,
					     .count = 2,
					     .count_period_ns = 200 * S });
		ck_assert_fires(next(71));
		bench.wall_ahead_ns += (uint64_t)(steps[i] * (int64_t)S);
		ck_assert_reason(after(50 * S, 71), TRIGGER_COOLDOWN);
		ck_assert_uint_eq(bench.decision.cooldown_left_ns, 50 * S);
		ck_assert_uint_eq(memory().cooldown_until.ns, wall_ns() + 50 * S); /* what is remembered follows it */
		ck_assert_uint_eq(memory().count_since.ns, wall_ns() - 50 * S);
		restart(49 * S);
		step(true, 71);
		ck_assert_int_eq(bench.decision.reason, TRIGGER_COOLDOWN);
		ck_assert_fires(after(S, 71));
		ck_assert_reason(after(99 * S, 71), TRIGGER_COOLDOWN);
		ck_assert_fires(after(S, 71)); /* and the period is over too: 200 s since the first */
		ck_assert_uint_eq(memory().count, 1);
		end();
	}
}
END_TEST

START_TEST(slow_wall_clock_is_no_reason_to_remember_anew)
{
	struct trigger_memory before;

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 1000 * S });
	next(71);
	before = memory();
	for (int i = 0; i < 100; i++) {
		bench.wall_ahead_ns += NS_PER_MS;
		next(1);
	}
	ck_assert(trigger_memory_equal(&before, &(struct trigger_memory){ .cooldown_until = memory().cooldown_until,
									  .count_since = before.count_since,
									  .count = 1,
									  .fired = 1,
									  .high_water = 71 }));
	end();
}
END_TEST

START_TEST(restart_in_the_middle_of_a_cooldown_resumes_it)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 100 * S });
	ck_assert_fires(next(71));
	restart(30 * S);
	ck_assert_uint_eq(memory().fired, 1);
	step(true, 71);
	ck_assert_int_eq(bench.decision.reason, TRIGGER_COOLDOWN);
	ck_assert_uint_eq(bench.decision.cooldown_left_ns, 70 * S);
	ck_assert_reason(after(70 * S - 1, 71), TRIGGER_COOLDOWN);
	ck_assert_fires(after(1, 71));
	restart(100 * S);
	step(true, 71);
	ck_assert_fires(TRIGGER_ABOVE_PERCENT); /* it was over in between */
	end();
}
END_TEST

START_TEST(remembered_cooldown_is_never_longer_than_the_rules_own)
{
	begin((struct trigger_rule){
		.has_percent = true, .percent = 70, .cooldown_ns = 10 * S, .count = 1, .count_period_ns = 20 * S });
	const struct trigger_memory never = {
		.cooldown_until = { UINT64_MAX }, .count_since = { UINT64_MAX }, .count = 1, .fired = 1
	};

	ck_assert_int_eq(trigger_restore(bench.state, &never), 0);
	step(true, 71);
	ck_assert_int_eq(bench.decision.reason, TRIGGER_COOLDOWN);
	ck_assert_uint_eq(bench.decision.cooldown_left_ns, 10 * S);
	ck_assert_uint_eq(memory().cooldown_until.ns, wall_ns() + 10 * S);
	ck_assert_reason(after(10 * S, 71), TRIGGER_COUNT_LIMIT);
	ck_assert_fires(after(10 * S, 71));
	end();
}
END_TEST

START_TEST(remembered_cooldown_goes_when_the_rule_has_none_any_more)
{
	begin((struct trigger_rule){ .has_percent = true, .percent = 70 });
	const struct trigger_memory kept = { .cooldown_until = { wall_ns() + 100 * S }, .fired = 1 };

	ck_assert_int_eq(trigger_restore(bench.state, &kept), 0);
	ck_assert_fires(next(71));
	end();
}
END_TEST

static TCase *holding_back(void)
{
	TCase *tcase = tcase_create("holding_back");

	tcase_add_test(tcase, candidate_must_hold_for_exactly_so_long);
	tcase_add_test(tcase, anything_but_a_candidate_ends_the_hold);
	tcase_add_test(tcase, candidate_by_either_threshold_holds);
	tcase_add_test(tcase, cooldown_ends_at_its_very_nanosecond);
	tcase_add_test(tcase, cooldown_that_is_over_arms_again);
	tcase_add_test(tcase, without_cooldown_it_fires_every_time);
	tcase_add_test(tcase, hold_begins_anew_with_a_firing_and_runs_in_the_cooldown);
	tcase_add_test(tcase, count_limit_is_reached_exactly_and_the_period_rolls_over);
	tcase_add_test(tcase, count_without_a_period_is_for_ever);
	tcase_add_test(tcase, full_disk_only_withholds);
	tcase_add_test(tcase, rearm_below_waits_for_the_value_to_come_down);
	tcase_add_test(tcase, rearm_below_may_happen_within_the_cooldown);
	tcase_add_test(tcase, rearm_high_water_needs_more_than_ever_before);
	tcase_add_test(tcase, high_water_is_the_highest_firing_not_the_last);
	tcase_add_test(tcase, first_reason_that_applies_is_given);
	tcase_add_test(tcase, every_reason_is_counted);
	return tcase;
}

/* ---- windows that overlap: ten to a second ---- */

static void begin_sliding(struct trigger_rule rule)
{
	begin(rule);
	bench.step_ns = S / 10;
}

START_TEST(windows_of_two_firings_do_not_overlap)
{
	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70 });
	ck_assert_fires(slide(71));
	for (int i = 0; i < 9; i++)
		ck_assert_reason(slide(71), TRIGGER_PENDING);
	ck_assert_fires(slide(71));
	slide(1); /* another burst */
	ck_assert_reason(slide(90), TRIGGER_PENDING);
	ck_assert_uint_eq(memory().fired, 2);
	end();
}
END_TEST

START_TEST(value_that_rises_through_the_range_below_the_maximum_does_not_fire)
{
	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70, .has_maximum = true, .maximum = 90 });
	slide(60);
	ck_assert_reason(slide(71), TRIGGER_PENDING); /* on its way up */
	ck_assert_reason(slide(80), TRIGGER_PENDING);
	ck_assert_reason(slide(99), TRIGGER_ABOVE_MAXIMUM);
	for (int i = 0; i < 9; i++)
		ck_assert_reason(slide(80), TRIGGER_ABOVE_MAXIMUM); /* and down */
	ck_assert_fires(slide(80));
	end();

	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70, .has_maximum = true, .maximum = 90 });
	slide(60);
	slide(71);
	ck_assert_fires(slide(71)); /* it rises no more */
	end();

	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70, .has_maximum = true, .maximum = 90 });
	for (int i = 0; i < 10; i++)
		ck_assert_reason(slide(71 + i), TRIGGER_PENDING);
	ck_assert_fires(slide(81)); /* for a window's length */
	end();
}
END_TEST

START_TEST(every_window_within_for_must_be_a_candidate)
{
	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70, .for_ns = S });
	for (int i = 0; i < 9; i++)
		ck_assert_reason(slide(71), TRIGGER_PENDING);
	ck_assert_reason(slide(70), TRIGGER_WITHIN_BOUNDS);
	for (int i = 0; i < 10; i++)
		ck_assert_reason(slide(71), TRIGGER_PENDING);
	ck_assert_fires(slide(71));
	end();
}
END_TEST

START_TEST(average_excludes_the_window_that_the_one_under_test_overlaps)
{
	begin_sliding((struct trigger_rule){ .has_delta = true, .delta = 50, .history = 4, .warmup = 1 });
	ck_assert_reason(next(10), TRIGGER_WARMING_UP);
	ck_assert_reason(slide(40), TRIGGER_WARMING_UP); /* a part of it is under test */
	ck_assert_reason(after(S * 9 / 10, 12), TRIGGER_WITHIN_BOUNDS);
	ck_assert_double_eq(bench.decision.average, 10);
	ck_assert_fires(slide(15)); /* 12 is not history yet */
	ck_assert_double_eq(bench.decision.average, 10);
	after(S * 9 / 10, 12);
	ck_assert_double_eq(bench.decision.average, 11);
	end();
}
END_TEST

START_TEST(window_counts_once_for_what_came_nearest_to_a_firing)
{
	uint32_t reasons[TRIGGER_REASONS];

	begin_sliding((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 2 * S });
	slide(50);
	ck_assert_fires(slide(71));
	ck_assert(bench.decision.counted && bench.decision.counted_reason == TRIGGER_ABOVE_PERCENT);
	slide(71);
	after(S / 10 * 7, 1); /* the end of the window that fired */
	ck_assert(!bench.decision.counted);
	slide(71);
	after(S / 10 * 9, 1); /* of one that was a candidate for a while */
	ck_assert(bench.decision.counted && bench.decision.counted_reason == TRIGGER_COOLDOWN);
	after(S, 1);
	trigger_reasons(bench.state, reasons);
	ck_assert_uint_eq(reasons[TRIGGER_ABOVE_PERCENT], 1);
	ck_assert_uint_eq(reasons[TRIGGER_COOLDOWN], 1);
	ck_assert_uint_eq(reasons[TRIGGER_WITHIN_BOUNDS], 1);
	end();
}
END_TEST

static TCase *overlapping(void)
{
	TCase *tcase = tcase_create("overlapping");

	tcase_add_test(tcase, windows_of_two_firings_do_not_overlap);
	tcase_add_test(tcase, value_that_rises_through_the_range_below_the_maximum_does_not_fire);
	tcase_add_test(tcase, every_window_within_for_must_be_a_candidate);
	tcase_add_test(tcase, average_excludes_the_window_that_the_one_under_test_overlaps);
	tcase_add_test(tcase, window_counts_once_for_what_came_nearest_to_a_firing);
	return tcase;
}

static TCase *lives(void)
{
	TCase *tcase = tcase_create("lives");

	tcase_add_test(tcase, count_and_its_period_survive_a_restart);
	tcase_add_test(tcase, wall_clock_that_is_set_does_not_move_a_cooldown);
	tcase_add_test(tcase, slow_wall_clock_is_no_reason_to_remember_anew);
	tcase_add_test(tcase, restart_in_the_middle_of_a_cooldown_resumes_it);
	tcase_add_test(tcase, remembered_cooldown_is_never_longer_than_the_rules_own);
	tcase_add_test(tcase, remembered_cooldown_goes_when_the_rule_has_none_any_more);
	return tcase;
}

Suite *trigger_firing_suite(void)
{
	Suite *suite = suite_create("trigger_firing");

	suite_add_tcase(suite, holding_back());
	suite_add_tcase(suite, overlapping());
	suite_add_tcase(suite, lives());
	return suite;
}
