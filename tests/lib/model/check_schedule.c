/* Deadlines, skipped slots and backoff, on a clock that the tests move. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <check.h>

#include <math.h>

#define MS NS_PER_MS
#define INTERVAL (10 * MS)
#define START (1000 * NS_PER_S)

static struct stats stats;
static struct schedule schedule;

static mono_t at(uint64_t ns)
{
	return (mono_t){ START + ns };
}

static void begin(void)
{
	stats = (struct stats){ 0 };
	schedule_init(&schedule, &stats, at(0), INTERVAL);
}

static void tick(uint64_t wake_ns, uint64_t done_ns)
{
	schedule_wake(&schedule, at(wake_ns));
	schedule_done(&schedule, at(done_ns));
}

static uint64_t deadline(void)
{
	return schedule_deadline(&schedule).ns - START;
}

START_TEST(the_first_slot_is_the_start)
{
	ck_assert_uint_eq(deadline(), 0);
	ck_assert_uint_eq(stats.collection_rate, INTERVAL);
	ck_assert_uint_eq(stats.cheap_start_nanos, START);
	ck_assert_uint_eq(stats.total_slots, 0);
}
END_TEST

START_TEST(deadlines_stay_on_the_grid_however_late_the_wake_ups)
{
	for (uint64_t slot = 0; slot < 1000; slot++) {
		uint64_t late = slot * 7919 % (9 * MS);

		ck_assert_uint_eq(deadline(), slot * INTERVAL);
		tick(deadline() + late, deadline() + late + MS / 2);
	}
	ck_assert_uint_eq(stats.total_snapshots, 1000);
	ck_assert_uint_eq(stats.total_slots, 1000);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(stats.cheap_last_collection_nanos, START + 999 * INTERVAL);
}
END_TEST

START_TEST(slots_slept_through_are_skipped_and_not_made_up_for)
{
	tick(0, MS);

	/*
	 * Should have woken at 10; wakes at 47: slots 10, 20 and 30 are gone, 40 can still be
	 * taken.
	 */
	tick(47 * MS, 48 * MS);
	ck_assert_uint_eq(stats.missed_slots, 3);
	ck_assert_uint_eq(stats.total_snapshots, 2);
	ck_assert_uint_eq(stats.total_slots, 5);
	ck_assert_uint_eq(stats.cheap_last_collection_nanos, START + 40 * MS);
	ck_assert_uint_eq(deadline(), 50 * MS);
}
END_TEST

START_TEST(slots_that_pass_while_collecting_are_skipped)
{
	tick(0, 35 * MS);
	ck_assert_uint_eq(stats.missed_slots, 3);
	ck_assert_uint_eq(stats.total_slots, 4);
	ck_assert_uint_eq(deadline(), 40 * MS);
}
END_TEST

START_TEST(a_slot_that_begins_as_the_collection_ends_is_missed)
{
	tick(0, INTERVAL);
	ck_assert_uint_eq(stats.missed_slots, 1);
	ck_assert_uint_eq(deadline(), 2 * INTERVAL);
}
END_TEST

START_TEST(timing_errors_add_up_in_both_directions)
{
	tick(3 * MS, 4 * MS);
	tick(8 * MS, 9 * MS);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 5 * MS);
	ck_assert_uint_eq(stats.total_collection_timing_error, 2 * MS);
}
END_TEST

START_TEST(waking_early_takes_the_slot_once)
{
	tick(0, MS);
	tick(8 * MS, 9 * MS);
	ck_assert_uint_eq(deadline(), 2 * INTERVAL);
	ck_assert_uint_eq(stats.total_slots, 2);
	ck_assert_uint_eq(stats.total_snapshots, 2);
	ck_assert_uint_eq(stats.missed_slots, 0);
}
END_TEST

START_TEST(the_capture_rate_comes_from_the_clock)
{
	/* Every other slot is slept through. */
	for (uint64_t i = 0; i < 100; i++)
		tick(i * 2 * INTERVAL, i * 2 * INTERVAL + MS);
	ck_assert_uint_eq(stats.total_snapshots, 100);
	ck_assert_uint_eq(stats.total_slots, 199);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	ck_assert_uint_eq((stats.cheap_last_collection_nanos - stats.cheap_start_nanos) / INTERVAL + 1,
			  stats.total_slots);
}
END_TEST

START_TEST(backoff_grows_by_an_eighth_up_to_its_maximum)
{
	double factor = 1.0;

	for (int i = 0; i < 100; i++) {
		uint64_t sleep_ns = schedule_backoff(&schedule, at(0)).ns - START;

		ck_assert_double_le(fabs((double)sleep_ns - factor * (double)INTERVAL), 1.0);
		factor = fmin(factor * 1.125, 256.0);
	}
	ck_assert_uint_eq(schedule_backoff(&schedule, at(0)).ns - START, 256 * INTERVAL);
	ck_assert_uint_eq(stats.num_backoff_sleeps, 101);
}
END_TEST

START_TEST(backoff_falls_back_once_the_reader_keeps_up)
{
	for (int i = 0; i < 10; i++)
		schedule_backoff(&schedule, at(0));
	tick(0, MS);
	ck_assert_uint_eq(schedule_backoff(&schedule, at(5 * MS)).ns, at(5 * MS + INTERVAL).ns);
}
END_TEST

START_TEST(backoff_sleeps_are_counted_and_are_no_timing_error)
{
	mono_t until = schedule_backoff(&schedule, at(0));

	until = schedule_backoff(&schedule, until);
	ck_assert_uint_eq(stats.num_backoff_sleeps, 2);
	ck_assert_uint_eq(stats.total_backoff_sleep, INTERVAL + INTERVAL * 9 / 8);
	ck_assert_uint_eq(stats.total_backoff_sleep, until.ns - START);

	schedule_wake(&schedule, mono_add(until, MS));
	ck_assert_uint_eq(stats.total_sleep_timing_error, MS);
}
END_TEST

START_TEST(slots_that_pass_in_backoff_are_missed)
{
	mono_t until = schedule_backoff(&schedule, at(0));

	until = schedule_backoff(&schedule, until); /* 21.25 ms */
	schedule_wake(&schedule, until);
	schedule_done(&schedule, mono_add(until, MS));
	ck_assert_uint_eq(stats.missed_slots, 2);
	ck_assert_uint_eq(stats.total_slots, 3);
	ck_assert_uint_eq(deadline(), 30 * MS);
}
END_TEST

START_TEST(slots_of_a_backoff_that_the_end_cuts_off_are_missed)
{
	tick(0, MS);
	schedule_backoff(&schedule, at(INTERVAL));
	schedule_stop(&schedule, at(4 * INTERVAL + MS));
	ck_assert_uint_eq(stats.total_slots, 4);
	ck_assert_uint_eq(stats.missed_slots, 3);
}
END_TEST

START_TEST(an_end_before_the_deadline_misses_nothing)
{
	tick(0, MS);
	schedule_stop(&schedule, at(2 * MS));
	ck_assert_uint_eq(stats.total_slots, 1);
	ck_assert_uint_eq(stats.missed_slots, 0);
}
END_TEST

START_TEST(a_new_interval_starts_a_new_grid_and_keeps_the_counters)
{
	tick(0, MS);
	tick(INTERVAL, INTERVAL + MS);
	schedule_set_interval(&schedule, at(13 * MS), 4 * MS);
	ck_assert_uint_eq(stats.collection_rate, 4 * MS);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(deadline(), 17 * MS);

	tick(17 * MS, 18 * MS);
	tick(26 * MS, 27 * MS);
	ck_assert_uint_eq(stats.missed_slots, 1);
	ck_assert_uint_eq(stats.total_slots, 5);
	ck_assert_uint_eq(deadline(), 29 * MS);
	ck_assert_uint_eq(stats.cheap_start_nanos, START);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 5 * MS);
}
END_TEST

START_TEST(changing_the_interval_hides_no_missed_slot_and_loses_none)
{
	tick(0, MS);
	schedule_set_interval(&schedule, at(35 * MS), 100 * MS);
	ck_assert_uint_eq(stats.missed_slots, 2);
	ck_assert_uint_eq(stats.total_slots, 3);
	ck_assert_uint_eq(deadline(), 35 * MS); /* that of 30 ms is still to be taken */
	tick(36 * MS, 37 * MS);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 26 * MS);
	ck_assert_uint_eq(stats.missed_slots, 2);
	ck_assert_uint_eq(stats.total_slots, 4);
	ck_assert_uint_eq(deadline(), 135 * MS);
}
END_TEST

START_TEST(a_longer_interval_does_not_put_off_the_next_slot)
{
	tick(0, MS);
	for (uint64_t i = 2; i < 10; i++) {
		schedule_set_interval(&schedule, at(i * MS), 1000 * i * MS);
		ck_assert_uint_eq(deadline(), INTERVAL);
	}
	tick(INTERVAL, 11 * MS);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 0);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(stats.total_slots, 2);
	ck_assert_uint_eq(deadline(), INTERVAL + 9000 * MS);
}
END_TEST

START_TEST(a_backoff_that_a_new_interval_ends_counts_for_as_long_as_it_lasted)
{
	schedule_backoff(&schedule, at(0));
	schedule_backoff(&schedule, at(INTERVAL)); /* until 21.25 ms */
	schedule_set_interval(&schedule, at(15 * MS), 2 * MS);
	ck_assert_uint_eq(stats.total_backoff_sleep, 15 * MS);
	ck_assert_uint_eq(stats.missed_slots, 1);
	ck_assert_uint_eq(deadline(), 15 * MS);
	schedule_wake(&schedule, at(15 * MS));
	ck_assert_uint_eq(stats.total_sleep_timing_error, 0);
	ck_assert_uint_eq(schedule_backoff(&schedule, at(16 * MS)).ns, at(18 * MS).ns);
}
END_TEST

START_TEST(a_clock_that_jumps_far_costs_missed_slots_and_no_time)
{
	uint64_t years = 100ULL * 365 * 86400 * NS_PER_S;

	tick(0, MS);
	tick(years + 3 * MS, years + 4 * MS);
	ck_assert_uint_eq(stats.total_slots, years / INTERVAL + 1);
	ck_assert_uint_eq(stats.missed_slots, years / INTERVAL - 1);
	ck_assert_uint_eq(deadline(), years + INTERVAL);
}
END_TEST

START_TEST(a_clock_that_steps_back_is_just_early)
{
	tick(0, MS);
	schedule_wake(&schedule, (mono_t){ START - 5 * MS });
	schedule_done(&schedule, (mono_t){ START - 6 * MS });
	ck_assert_uint_eq(stats.total_slots, 2);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(stats.total_collection_timing_error, MS);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 15 * MS);
	ck_assert_uint_eq(deadline(), 2 * INTERVAL);
}
END_TEST

Suite *schedule_suite(void);
Suite *schedule_suite(void)
{
	Suite *suite = suite_create("schedule");
	TCase *tc = tcase_create("pacer");

	tcase_add_checked_fixture(tc, begin, NULL);
	tcase_add_test(tc, the_first_slot_is_the_start);
	tcase_add_test(tc, deadlines_stay_on_the_grid_however_late_the_wake_ups);
	tcase_add_test(tc, slots_slept_through_are_skipped_and_not_made_up_for);
	tcase_add_test(tc, slots_that_pass_while_collecting_are_skipped);
	tcase_add_test(tc, a_slot_that_begins_as_the_collection_ends_is_missed);
	tcase_add_test(tc, timing_errors_add_up_in_both_directions);
	tcase_add_test(tc, waking_early_takes_the_slot_once);
	tcase_add_test(tc, the_capture_rate_comes_from_the_clock);
	tcase_add_test(tc, backoff_grows_by_an_eighth_up_to_its_maximum);
	tcase_add_test(tc, backoff_falls_back_once_the_reader_keeps_up);
	tcase_add_test(tc, backoff_sleeps_are_counted_and_are_no_timing_error);
	tcase_add_test(tc, slots_that_pass_in_backoff_are_missed);
	tcase_add_test(tc, slots_of_a_backoff_that_the_end_cuts_off_are_missed);
	tcase_add_test(tc, an_end_before_the_deadline_misses_nothing);
	tcase_add_test(tc, a_new_interval_starts_a_new_grid_and_keeps_the_counters);
	tcase_add_test(tc, changing_the_interval_hides_no_missed_slot_and_loses_none);
	tcase_add_test(tc, a_longer_interval_does_not_put_off_the_next_slot);
	tcase_add_test(tc, a_backoff_that_a_new_interval_ends_counts_for_as_long_as_it_lasted);
	tcase_add_test(tc, a_clock_that_jumps_far_costs_missed_slots_and_no_time);
	tcase_add_test(tc, a_clock_that_steps_back_is_just_early);
	suite_add_tcase(suite, tc);
	return suite;
}
