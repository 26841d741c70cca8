/* check_trigger.c: every boundary of a judgement, and what holds a candidate back, without a clock. */
#include "torture.h"
#include "clock.h"
#include "trigger.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <string.h>

Suite *trigger_suite(void);

#define S NS_PER_S

/* One rule on one target, a window a second, and the wall clock this far ahead. */
static struct {
	struct trigger_rule rule;
	struct trigger_state *state;
	struct trigger_decision decision;
	uint64_t now_ns, wall_ahead_ns;
	bool disk_full;
} bench;

static void begin(struct trigger_rule rule)
{
	memset(&bench, 0, sizeof(bench));
	bench.rule = rule;
	if (bench.rule.history == 0)
		bench.rule.history = 10;
	bench.now_ns = 1000 * S;
	bench.wall_ahead_ns = 1000000 * S;
	ck_assert_int_eq(trigger_state_new(&bench.rule, &bench.state), 0);
}

static void end(void)
{
	trigger_state_free(bench.state);
	bench.state = NULL;
}

static uint64_t wall_ns(void)
{
	return bench.now_ns + bench.wall_ahead_ns;
}

static void step(bool available, double value)
{
	trigger_step(bench.state, &bench.rule, (mono_t){ bench.now_ns }, (wall_t){ wall_ns() }, available, value,
		     !bench.disk_full, &bench.decision);
}

/* Judges a window that ends ns after the last one. */
static enum trigger_reason after(uint64_t ns, double value)
{
	bench.now_ns += ns;
	step(true, value);
	return bench.decision.reason;
}

static enum trigger_reason next(double value)
{
	return after(S, value);
}

static enum trigger_reason next_unavailable(void)
{
	bench.now_ns += S;
	step(false, 99);
	return bench.decision.reason;
}

static struct trigger_memory memory(void)
{
	struct trigger_memory memory;

	trigger_memory(bench.state, &memory);
	return memory;
}

/* The daemon starts again after so many nanoseconds, with a new monotonic clock. */
static void restart(uint64_t pause_ns)
{
	struct trigger_memory kept = memory();

	trigger_state_free(bench.state);
	ck_assert_int_eq(trigger_state_new(&bench.rule, &bench.state), 0);
	trigger_restore(bench.state, &kept);
	bench.wall_ahead_ns = wall_ns() + pause_ns - 5 * S;
	bench.now_ns = 5 * S;
}

#define ck_assert_fires(reason_) \
	do { \
		ck_assert_int_eq((int)(reason_), bench.decision.reason); \
		ck_assert(bench.decision.fires &&bench.decision.candidate); \
	} while (0)

#define ck_assert_reason(reason_, expected_) \
	do { \
		ck_assert_str_eq(trigger_reason_name(reason_), trigger_reason_name(expected_)); \
		ck_assert(!bench.decision.fires); \
	} while (0)

/* clang-format off */
/* One value after four windows of 50 each: judged by thresholds of 0, which means not configured. */
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

/* The average of a ring of any length, at every position, after several times around, is the one by definition. */
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

START_TEST(average_forgets_a_huge_value_without_a_trace)
{
	begin((struct trigger_rule){ .history = 7 });
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
	begin((struct trigger_rule){ .history = 1000 });
	for (int i = 0; i < 200000; i++)
		next(i % 2 ? 1e6 : 0.1);
	ck_assert_double_eq_tol(bench.decision.average, 500000.05, 1e-6);
	end();
}
END_TEST

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

START_TEST(target_that_vanished_does_not_hold)
{
	begin((struct trigger_rule){
		.has_percent = true, .percent = 70, .for_ns = 2 * S, .warmup = 1, .cooldown_ns = 9 * S });
	next(1);
	next(71);
	trigger_target_gone(bench.state);
	ck_assert_reason(next(71), TRIGGER_WARMING_UP);
	ck_assert(!bench.decision.has_average);
	ck_assert_reason(next(71), TRIGGER_PENDING);
	ck_assert_double_eq(bench.decision.average, 71);
	next(71);
	ck_assert_fires(next(71));
	trigger_target_gone(bench.state);
	next(71);
	next(71);
	ck_assert_int_eq(bench.decision.phase, TRIGGER_IN_COOLDOWN);
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
	const uint64_t *reasons;

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = 2 * S });
	next_unavailable();
	next(71);
	next(71);
	next(1);
	next(71);
	reasons = trigger_reasons(bench.state);
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
	trigger_restore(bench.state, &(struct trigger_memory){ .cooldown_until = { UINT64_MAX },
							       .count_since = { UINT64_MAX },
							       .count = 1,
							       .fired = 1 });
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
	trigger_restore(bench.state, &(struct trigger_memory){ .cooldown_until = { wall_ns() + 100 * S }, .fired = 1 });
	ck_assert_fires(next(71));
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

START_TEST(step_allocates_nothing)
{
	unsigned long before;

	begin((struct trigger_rule){ .has_percent = true, .percent = 70, .cooldown_ns = S, .history = 3 });
	before = torture_allocations();
	for (int i = 0; i < 20; i++) {
		bench.now_ns += S;
		step(true, i * 10);
	}
	ck_assert_uint_eq(torture_allocations(), before);
	end();
}
END_TEST

START_TEST(state_that_gets_no_memory_says_so)
{
	struct trigger_rule rule = { .history = 5 };
	struct trigger_state *state = NULL;
	int r;

	torture_arm(1);
	r = trigger_state_new(&rule, &state);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_ptr_null(state);
	trigger_state_free(NULL);
}
END_TEST

START_TEST(names_are_stable)
{
	static const char *const reasons[] = { "unavailable",   "warming-up",    "below-minimum", "above-maximum",
					       "above-percent", "above-average", "within-bounds", "pending",
					       "cooldown",      "not-re-armed",  "count-limit",   "disk-budget" };

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
	tcase_add_test(tcase, average_forgets_a_huge_value_without_a_trace);
	tcase_add_test(tcase, average_does_not_drift);
	tcase_add_test(tcase, distance_is_to_the_lowest_threshold);
	tcase_add_test(tcase, rule_without_thresholds_has_no_distance);
	return tcase;
}

static TCase *holding_back(void)
{
	TCase *tcase = tcase_create("holding_back");

	tcase_add_test(tcase, candidate_must_hold_for_exactly_so_long);
	tcase_add_test(tcase, anything_but_a_candidate_ends_the_hold);
	tcase_add_test(tcase, candidate_by_either_threshold_holds);
	tcase_add_test(tcase, target_that_vanished_does_not_hold);
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

static TCase *lives(void)
{
	TCase *tcase = tcase_create("lives");

	tcase_add_test(tcase, count_and_its_period_survive_a_restart);
	tcase_add_test(tcase, wall_clock_that_is_set_does_not_move_a_cooldown);
	tcase_add_test(tcase, slow_wall_clock_is_no_reason_to_remember_anew);
	tcase_add_test(tcase, restart_in_the_middle_of_a_cooldown_resumes_it);
	tcase_add_test(tcase, remembered_cooldown_is_never_longer_than_the_rules_own);
	tcase_add_test(tcase, remembered_cooldown_goes_when_the_rule_has_none_any_more);
	tcase_add_test(tcase, step_allocates_nothing);
	tcase_add_test(tcase, state_that_gets_no_memory_says_so);
	tcase_add_test(tcase, names_are_stable);
	return tcase;
}

Suite *trigger_suite(void)
{
	Suite *suite = suite_create("trigger");

	suite_add_tcase(suite, judgement());
	suite_add_tcase(suite, holding_back());
	suite_add_tcase(suite, lives());
	return suite;
}
