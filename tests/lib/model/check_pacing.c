/*
 * check_pacing.c: schedule, CPU budget, sampling period, idle back-off, token bucket, rate limit
 * and condition, on a clock that the tests move. Overload sampling: check_overload_sampling.c.
 */
#include "lib/model/pacing.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <check.h>

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* ---- schedule ---- */

#define MS NS_PER_MS
#define INTERVAL (10 * MS)
#define START (1000 * NS_PER_S)

static struct stats stats;
static struct schedule schedule;

static mono_t at(uint64_t ns)
{
	return (mono_t){ START + ns };
}

static void begin_schedule(void)
{
	stats = (struct stats){ 0 };
	schedule_init(&schedule, &stats, at(0), INTERVAL);
}

static void tick(uint64_t wake_ns, uint64_t done_ns)
{
	schedule_wake(&schedule, at(wake_ns));
	schedule_done(&schedule, at(done_ns), false);
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

START_TEST(slots_that_are_put_off_are_made_up_for_or_missed)
{
	tick(0, MS);
	schedule_put_off(&schedule, 3);
	ck_assert_uint_eq(schedule.until.ns, at(4 * INTERVAL).ns);
	ck_assert_uint_eq(deadline(), INTERVAL);
	ck_assert_uint_eq(stats.total_slots, 1);
	schedule_make_up(&schedule);
	schedule_make_up(&schedule);
	ck_assert_uint_eq(stats.total_snapshots, 3);
	ck_assert_uint_eq(stats.past_snapshots, 2);
	tick(4 * INTERVAL + MS, 4 * INTERVAL + 2 * MS); /* late by that */
	ck_assert_uint_eq(stats.total_sleep_timing_error, MS);
	ck_assert_uint_eq(stats.missed_slots, 1);
	ck_assert_uint_eq(stats.total_snapshots, 4);
	ck_assert_uint_eq(stats.total_slots, 5);
	ck_assert_uint_eq(deadline(), 5 * INTERVAL);
	ck_assert_uint_eq((stats.cheap_last_collection_nanos - stats.cheap_start_nanos) / INTERVAL + 1,
			  stats.total_slots);
}
END_TEST

START_TEST(slots_that_pass_in_a_collection_may_be_made_up_for_afterwards)
{
	schedule_wake(&schedule, at(0));
	schedule_done(&schedule, at(2 * INTERVAL + MS), true);
	ck_assert_uint_eq(stats.total_slots, 1);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(deadline(), INTERVAL);
	schedule_make_up(&schedule);
	ck_assert_uint_eq(stats.total_snapshots, 2);
	tick(3 * INTERVAL, 3 * INTERVAL + MS);
	ck_assert_uint_eq(stats.missed_slots, 1); /* the second was not */
	ck_assert_uint_eq(stats.total_slots, 4);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
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
	schedule_done(&schedule, mono_add(until, MS), false);
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
	schedule_done(&schedule, (mono_t){ START - 6 * MS }, false);
	ck_assert_uint_eq(stats.total_slots, 2);
	ck_assert_uint_eq(stats.missed_slots, 0);
	ck_assert_uint_eq(stats.total_collection_timing_error, MS);
	ck_assert_uint_eq(stats.total_sleep_timing_error, 15 * MS);
	ck_assert_uint_eq(deadline(), 2 * INTERVAL);
}
END_TEST

/* ---- CPU budget: down fast and up slowly, without swinging ---- */

static const struct cpu_use unused;

/*
 * Runs periods of one second at a share of one core, in which backing off is said to save that much;
 * returns the last factor.
 */
static uint32_t run_saving(struct cpu_budget *cpu_budget, unsigned periods, double share, double saved)
{
	uint32_t factor = cpu_budget->factor;

	for (unsigned i = 0; i < periods; i++) {
		struct cpu_use used = cpu_budget->used;

		used.cpu_ns += (uint64_t)(share * 1e9);
		used.saved_ns += (uint64_t)(saved * 1e9);
		factor = cpu_budget_step(cpu_budget, mono_add(cpu_budget->since, NS_PER_S), &used, 0);
	}

	return factor;
}

static uint32_t run_periods(struct cpu_budget *cpu_budget, unsigned periods, double share)
{
	return run_saving(cpu_budget, periods, share, 0);
}

/*
 * A second of a process that needs `rest` of a core beside sampling, and `all` for the samples of all
 * slots at factor 1, 1,000 of them, and gets no more than there is. The part of the slots that it took.
 */
static double run_short(struct cpu_budget *cpu_budget, double rest, double all, double there_is, double quota)
{
	struct cpu_use used = cpu_budget->used;
	double wanted = all / cpu_budget->factor, left = there_is - rest;
	double sampling = wanted < left ? wanted : left;
	uint64_t slots = 1000 / cpu_budget->factor;

	used.cpu_ns += (uint64_t)((rest + sampling) * 1e9);
	used.sampling_ns += (uint64_t)(sampling * 1e9);
	used.slots += slots;
	used.snapshots += (uint64_t)((double)slots * sampling / wanted);
	cpu_budget_step(cpu_budget, mono_add(cpu_budget->since, NS_PER_S), &used, quota);

	return sampling / wanted;
}

START_TEST(stays_at_one_within_the_budget)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 5 }, &(struct cpu_use){ .cpu_ns = 100 });
	ck_assert_uint_eq(run_periods(&cpu_budget, 100, 0.10), 1);
	ck_assert(!cpu_budget_due(&cpu_budget, mono_add(cpu_budget.since, NS_PER_S - 1)));
	ck_assert(cpu_budget_due(&cpu_budget, mono_add(cpu_budget.since, NS_PER_S)));
}
END_TEST

START_TEST(one_period_above_the_budget_is_forgiven)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_HOT - 1, 0.5), 1);
		ck_assert_uint_eq(run_periods(&cpu_budget, 1, 0.05), 1);
	}
}
END_TEST

START_TEST(doubles_while_above_the_budget_up_to_a_limit)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_HOT, 0.11), 2);
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_HOT, 0.11), 4);
	ck_assert_uint_eq(run_periods(&cpu_budget, 50, 0.5), CPU_BUDGET_FACTOR_MAX);
}
END_TEST

START_TEST(halves_only_after_calm_periods_in_a_row)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	run_periods(&cpu_budget, 2 * CPU_BUDGET_HOT, 0.2);
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run_periods(&cpu_budget, 1, 0.06), 4);
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run_periods(&cpu_budget, 1, 0.03), 2);
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_CALM, 0.03), 1);
}
END_TEST

START_TEST(does_not_swing_when_half_the_interval_would_not_fit)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	run_periods(&cpu_budget, CPU_BUDGET_HOT, 0.16);
	ck_assert_uint_eq(run_periods(&cpu_budget, 100, 0.08), 2);
}
END_TEST

START_TEST(it_backs_off_before_it_is_slower_and_is_faster_before_it_looks_at_all)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	cpu_budget.may_back_off = true;
	ck_assert_uint_eq(run_periods(&cpu_budget, CPU_BUDGET_HOT - 1, 0.2), 1);
	ck_assert(!cpu_budget.backs_off);
	ck_assert_uint_eq(run_periods(&cpu_budget, 1, 0.2), 1);
	ck_assert(cpu_budget.backs_off);
	ck_assert_uint_eq(run_saving(&cpu_budget, CPU_BUDGET_HOT, 0.11, 0.03), 2);
	ck_assert_uint_eq(run_saving(&cpu_budget, CPU_BUDGET_CALM, 0.03, 0.03), 1);
	ck_assert(cpu_budget.backs_off);
	ck_assert_uint_eq(run_saving(&cpu_budget, CPU_BUDGET_CALM - 1, 0.03, 0.03), 1);
	ck_assert(cpu_budget.backs_off);
	run_saving(&cpu_budget, 1, 0.03, 0.03);
	ck_assert(!cpu_budget.backs_off);
}
END_TEST

START_TEST(it_goes_on_backing_off_while_all_looks_would_not_fit)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	cpu_budget.may_back_off = true;
	run_periods(&cpu_budget, CPU_BUDGET_HOT, 0.11);
	run_saving(&cpu_budget, 200, 0.02, 0.09);
	ck_assert(cpu_budget.backs_off);
	ck_assert_uint_eq(cpu_budget.factor, 1);
}
END_TEST

/* The same, where sampling takes `own` and what others make it do the rest. */
static uint32_t run_beside(struct cpu_budget *cpu_budget, unsigned periods, double own, double others, double quota)
{
	uint32_t factor = cpu_budget->factor;

	for (unsigned i = 0; i < periods; i++) {
		struct cpu_use used = cpu_budget->used;

		used.cpu_ns += (uint64_t)((own + others) * 1e9);
		used.sampling_ns += (uint64_t)(own * 1e9);
		used.others_ns += (uint64_t)(others * 1e9);
		factor = cpu_budget_step(cpu_budget, mono_add(cpu_budget->since, NS_PER_S), &used, quota);
	}

	return factor;
}

START_TEST(what_others_make_it_do_leaves_most_of_the_budget_to_sampling)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	cpu_budget.may_back_off = true;
	ck_assert_uint_eq(run_beside(&cpu_budget, 50, 0.07, 2, 0), 1);
	ck_assert(!cpu_budget.backs_off);
	ck_assert_double_gt(cpu_budget.share, 2);

	/* That is kept to, */
	ck_assert_uint_eq(run_beside(&cpu_budget, CPU_BUDGET_HOT, 0.08, 2, 0), 1);
	ck_assert(cpu_budget.backs_off);
	ck_assert_uint_eq(run_beside(&cpu_budget, CPU_BUDGET_HOT, 0.08, 2, 0), 2);
	/* and it comes back while they go on, when twice as many samples leave a quarter. */
	ck_assert_uint_eq(run_beside(&cpu_budget, CPU_BUDGET_CALM, 0.026, 2, 0), 2);
	ck_assert_uint_eq(run_beside(&cpu_budget, CPU_BUDGET_CALM, 0.024, 2, 0), 1);
	ck_assert_uint_eq(run_beside(&cpu_budget, CPU_BUDGET_CALM, 0.04, 2, 0), 1);
	ck_assert(!cpu_budget.backs_off);
}
END_TEST

START_TEST(under_a_quota_what_others_make_it_do_counts_in_full)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	ck_assert_uint_eq(run_beside(&cpu_budget, 1, 0.01, 0.04, 0.12), 1);
	ck_assert_uint_gt(run_beside(&cpu_budget, 1, 0.01, 0.06, 0.12), 1);
}
END_TEST

START_TEST(without_a_budget_never_interferes)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 0, (mono_t){ 0 }, &unused);
	cpu_budget.may_back_off = true;
	ck_assert_uint_eq(run_periods(&cpu_budget, 10, 3.0), 1);
	ck_assert(!cpu_budget.backs_off);
	ck_assert(cpu_budget.share > 2.9);
}
END_TEST

START_TEST(a_clock_that_stands_still_is_harmless)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 7 }, &unused);
	ck_assert_uint_eq(cpu_budget_step(&cpu_budget, (mono_t){ 7 }, &(struct cpu_use){ .cpu_ns = 1000 }, 0), 1);
	ck_assert_uint_eq(cpu_budget_step(&cpu_budget, (mono_t){ 3 }, &(struct cpu_use){ .cpu_ns = 1000 }, 0), 1);
}
END_TEST

START_TEST(a_budget_that_is_far_exceeded_is_kept_at_once)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	for (unsigned i = 0; i < CPU_BUDGET_HOT; i++)
		run_short(&cpu_budget, 0.02, 0.6, 1, 0);
	ck_assert_uint_eq(cpu_budget.factor, 8); /* 0.6 / 8 + 0.02 fits into 0.1, 0.6 / 4 does not */
	for (unsigned i = 0; i < 60; i++)
		ck_assert_double_eq(run_short(&cpu_budget, 0.02, 0.6, 1, 0), 1);
	ck_assert_uint_eq(cpu_budget.factor, 8);
}
END_TEST

/* Five percent of a core for what would take thirty: settled in a period, without a missed slot. */
START_TEST(settles_under_a_quota_at_a_rate_that_it_can_keep)
{
	struct cpu_budget cpu_budget;
	uint32_t settled;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	ck_assert_double_le(run_short(&cpu_budget, 0.01, 0.3, 0.05, 0.05), 0.2);
	settled = cpu_budget.factor;
	ck_assert_uint_ge(settled, 16);
	for (unsigned i = 0; i < 60; i++)
		ck_assert_double_eq(run_short(&cpu_budget, 0.01, 0.3, 0.05, 0.05), 1);
	ck_assert_uint_eq(cpu_budget.factor, settled);

	/* The quota is lifted. */
	for (unsigned i = 0; i < 10 * CPU_BUDGET_CALM; i++)
		run_short(&cpu_budget, 0.01, 0.3, 1, 0);
	ck_assert_uint_eq(cpu_budget.factor, 8); /* half the interval would not leave enough */
}
END_TEST

/* A first period that is lost to the first scan; then the interval is found at once, and kept. */
START_TEST(under_a_quota_it_begins_with_the_longest_interval_and_finds_one_that_fits)
{
	static const struct {
		double rest, all, quota;
		uint32_t factor;
	} cases[] = {
		{ 0.002, 0.3, 0.05, 32 }, /* 0.3 / 32 + 0.002 is within three quarters of 0.025, 0.3 / 16 is not */
		{ 0.002, 3.0, 0.05, CPU_BUDGET_FACTOR_MAX },
		{ 0.002, 0.01, 0.05, 1 },
		{ 0.01, 0.3, 0.5, 1 }, /* more than twice the budget: no reason to begin slowly */
	};
	struct cpu_budget cpu_budget;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		double quota = cases[i].quota;

		cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
		cpu_budget_begin(&cpu_budget, quota);
		ck_assert_uint_eq(cpu_budget.factor, quota < 0.2 ? CPU_BUDGET_FACTOR_MAX : 1);
		if (quota >= 0.2)
			continue;
		run_short(&cpu_budget, quota * 0.9, cases[i].all, quota, quota);
		ck_assert_uint_eq(cpu_budget.factor, CPU_BUDGET_FACTOR_MAX);
		run_short(&cpu_budget, cases[i].rest, cases[i].all, quota, quota);
		ck_assert_uint_eq(cpu_budget.factor, cases[i].factor);
		for (unsigned k = 0; k < 60; k++)
			run_short(&cpu_budget, cases[i].rest, cases[i].all, quota, quota);
		ck_assert_uint_eq(cpu_budget.factor, cases[i].factor);
	}
}
END_TEST

START_TEST(a_quota_counts_only_where_it_is_less_than_the_budget)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, &unused);
	ck_assert_double_eq(cpu_budget_allowed(&cpu_budget, 0), 0.1);
	ck_assert_double_eq(cpu_budget_allowed(&cpu_budget, 4), 0.1);
	ck_assert_double_eq(cpu_budget_allowed(&cpu_budget, 0.05), 0.025);
	cpu_budget_init(&cpu_budget, 0, (mono_t){ 0 }, &unused);
	ck_assert_double_le(cpu_budget_allowed(&cpu_budget, 0.05), 0); /* the interval is as asked for */
}
END_TEST

/* ---- sampling period: samples stand for all that is counted, in however short stretches ---- */

#define PERIOD 1011u

/*
 * count things in each stretch, so many times; what the samples stand for. *ret_samples: how many
 * there were.
 */
static uint64_t stretches(struct sampling_period *phase, uint64_t count, unsigned times, uint64_t *ret_samples)
{
	uint64_t stood_for = 0;

	*ret_samples = 0;
	for (unsigned i = 0; i < times; i++) {
		uint64_t period = sampling_period_next(phase), each = sampling_period_end(phase, period, count);

		ck_assert_uint_gt(period, 0);
		ck_assert_uint_le(period, PERIOD);
		ck_assert_int_eq(each == 0, count < period);
		*ret_samples += count / period;
		stood_for += each * (count / period);
	}
	return stood_for;
}

START_TEST(all_that_is_counted_is_stood_for_or_carried)
{
	for (uint64_t count = 0; count < 5 * PERIOD; count += 7) {
		struct sampling_period phase = { .period = PERIOD };
		uint64_t samples, stood_for = stretches(&phase, count, 100, &samples);

		/* but for those of which there are too few to speak of */
		if (count >= PERIOD / 16)
			ck_assert_uint_eq(stood_for + phase.carry, 100 * count);
		else
			ck_assert_uint_eq(stood_for, 0);
		ck_assert_uint_le(phase.carry, 2 * PERIOD);
		/* no more samples than four times as many as without breaks */
		ck_assert_uint_le(samples, 4 * (100 * count / PERIOD + 1));
	}
}
END_TEST

START_TEST(few_things_in_each_stretch_have_samples_too)
{
	struct sampling_period phase = { .period = PERIOD };
	uint64_t samples, stood_for = stretches(&phase, 160, 60, &samples);

	ck_assert_uint_ge(samples, 8);
	ck_assert_uint_le(samples, 20);
	ck_assert_uint_gt(stood_for, 8 * PERIOD);
}
END_TEST

START_TEST(the_first_stretch_has_the_period_itself)
{
	struct sampling_period phase = { .period = PERIOD };

	ck_assert_uint_eq(sampling_period_next(&phase), PERIOD);
	ck_assert_uint_eq(sampling_period_end(&phase, PERIOD, 3 * PERIOD + 11), PERIOD);
	ck_assert_uint_eq(sampling_period_next(&phase), PERIOD - 11);
	ck_assert_uint_eq(sampling_period_end(&phase, PERIOD - 11, PERIOD - 12), 0);
	ck_assert_uint_eq(phase.carry, PERIOD - 1);
	/* what is carried waits for a sample that is not too early */
	ck_assert_uint_eq(sampling_period_next(&phase), PERIOD / 4);
	ck_assert_uint_eq(sampling_period_end(&phase, PERIOD / 4, PERIOD / 4 + 1), PERIOD - 1 + PERIOD / 4);
	ck_assert_uint_eq(phase.carry, 1);
}
END_TEST

START_TEST(the_period_is_no_shorter_than_a_sixteenth)
{
	struct sampling_period phase = { .period = PERIOD, .carry = 5 * PERIOD };

	ck_assert_uint_eq(sampling_period_next(&phase), PERIOD / 16);
	ck_assert_uint_eq(sampling_period_end(&phase, PERIOD / 16, 3), 0);
	ck_assert_uint_eq(phase.carry, 2 * PERIOD);
	ck_assert_uint_eq(sampling_period_next(&phase), PERIOD / 16);
}
END_TEST

START_TEST(the_shortest_period_is_one)
{
	struct sampling_period phase = { .period = 1 };

	ck_assert_uint_eq(sampling_period_next(&phase), 1);
	ck_assert_uint_eq(sampling_period_end(&phase, 1, 5), 1);
	ck_assert_uint_eq(phase.carry, 0);
}
END_TEST

/* ---- idle back-off: the pauses of the writer, and the bound that readers rely on ---- */

#define S NS_PER_S

START_TEST(a_pause_is_an_eighth_of_the_rest_and_no_more_than_the_longest)
{
	static const struct idle_backoff paces[] = { { 10 * MS, 100 * MS },
						     { MS, 70 * MS },
						     { 100 * NS_PER_US, S },
						     { 3 * MS, 10 * MS },
						     { 10 * MS, 19 * MS } };

	for (size_t p = 0; p < ARRAY_LEN(paces); p++) {
		uint64_t longest = 0;

		for (uint64_t ticks = 0; ticks < 20000; ticks += 7) {
			uint64_t still = ticks * paces[p].interval_ns;
			uint64_t wait = idle_backoff_wait_ns(&paces[p], still, (uint32_t)ticks, (uint32_t)p);

			ck_assert(wait == 0 || wait > paces[p].interval_ns);
			if (wait > 0) /* and the next tick, half an interval later, is still in time */
				ck_assert_uint_le(wait + paces[p].interval_ns / 2,
						  idle_backoff_bound_ns(still, paces[p].idle_ns));
			longest = wait > longest ? wait : longest;
		}
		ck_assert_uint_eq(longest > 0, paces[p].idle_ns >= 2 * paces[p].interval_ns);
	}
}
END_TEST

START_TEST(without_a_longer_interval_every_tick_is_for_all)
{
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 10 * MS, 0 }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 10 * MS, 10 * MS }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 200 * MS, 100 * MS }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 0, 100 * MS }, S, 1, 1), 0);
}
END_TEST

START_TEST(phases_are_spread_and_kept)
{
	const struct idle_backoff pace = { 10 * MS, 100 * MS };
	unsigned looks[100] = { 0 };

	for (uint32_t phase = 0; phase < 40; phase++)
		for (uint32_t tick = 0; tick < 100;) {
			uint64_t wait = idle_backoff_wait_ns(&pace, 10 * S, tick, phase);

			looks[tick]++;
			tick += wait == 0 ? 1 : (uint32_t)((wait + 5 * MS) / (10 * MS));
		}
	for (unsigned tick = 10; tick < 100; tick++)
		ck_assert_uint_eq(looks[tick], 4);
}
END_TEST

START_TEST(a_reader_knows_as_much_as_follows)
{
	mono_t at = { 10 * S }, since = { 10 * S };

	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, at, 100 * MS).ns, at.ns);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 80 * MS), 100 * MS).ns, at.ns + 70 * MS);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 8 * S), 100 * MS).ns, at.ns + 7900 * MS);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 8 * S), 0).ns, at.ns + 8 * S);
	/* A record that says nothing new says when it was seen. */
	ck_assert_uint_eq(idle_backoff_seen_at(mono_add(at, 8 * S), &since, mono_add(at, 8 * S + 50 * MS), 100 * MS).ns,
			  at.ns + 8 * S);
	/* Without a time of the last change, it is taken to be long ago. */
	ck_assert_uint_eq(idle_backoff_seen_at(at, NULL, mono_add(at, 80 * MS), 100 * MS).ns, at.ns);
	ck_assert_uint_eq(idle_backoff_seen_at(at, NULL, mono_add(at, 120 * MS), 100 * MS).ns, at.ns + 20 * MS);
	/* A tick from before the record. */
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_sub(at, S), 100 * MS).ns, at.ns);
}
END_TEST

/* ---- token bucket ---- */

#define SHARE 50u
#define ROOM (NS_PER_S / SHARE)

START_TEST(what_a_second_gives_may_be_taken_at_once)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, ROOM, at(0));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(0)));
	token_bucket_take(&token_bucket, 1, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(0)));
}
END_TEST

START_TEST(what_was_taken_in_advance_is_paid_for_by_time)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, ROOM + NS_PER_MS, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(49 * NS_PER_MS)));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(50 * NS_PER_MS)));
}
END_TEST

START_TEST(over_long_it_is_no_more_than_the_share)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));
	uint64_t taken = 0;

	for (uint64_t ms = 0; ms < 10000; ms++)
		if (!token_bucket_is_spent(&token_bucket, at(ms * NS_PER_MS))) {
			token_bucket_take(&token_bucket, NS_PER_MS, at(ms * NS_PER_MS));
			taken += NS_PER_MS;
		}
	ck_assert_uint_le(taken, ROOM + 10 * ROOM + NS_PER_MS);
	ck_assert_uint_ge(taken, 10 * ROOM);
}
END_TEST

START_TEST(no_wait_is_longer_than_a_second)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, UINT64_MAX, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(NS_PER_S - SHARE)));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(NS_PER_S)));
}
END_TEST

START_TEST(a_calm_of_any_length_fills_it_and_no_more)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, 2 * ROOM, at(0));
	token_bucket_take(&token_bucket, 0, at(3600 * NS_PER_S));
	token_bucket_take(&token_bucket, ROOM, at(3600 * NS_PER_S));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(3600 * NS_PER_S)));
	token_bucket_take(&token_bucket, 1, at(3600 * NS_PER_S));
	ck_assert(token_bucket_is_spent(&token_bucket, at(3600 * NS_PER_S)));
}
END_TEST

/* ---- rate limit ---- */

#define GAP NS_PER_MS

START_TEST(what_comes_alone_is_heard_at_once_and_so_is_what_comes_next)
{
	struct rate_limit rate_limit = { 0 };

	ck_assert(rate_limit_allows(&rate_limit, at(0)));
	rate_limit_event(&rate_limit, GAP, at(0));
	ck_assert(rate_limit_allows(&rate_limit, at(0)));
	rate_limit_event(&rate_limit, GAP, at(GAP));
	ck_assert(rate_limit_allows(&rate_limit, at(GAP)));
}
END_TEST

START_TEST(what_comes_thick_and_fast_is_heard_every_so_often)
{
	struct rate_limit rate_limit = { 0 };

	rate_limit_event(&rate_limit, GAP, at(0));
	rate_limit_event(&rate_limit, GAP, at(GAP - 1));
	ck_assert(!rate_limit_allows(&rate_limit, at(GAP - 1)));
	ck_assert(!rate_limit_allows(&rate_limit, at(2 * GAP - 2)));
	ck_assert(rate_limit_allows(&rate_limit, at(2 * GAP - 1)));
	ck_assert_uint_eq(rate_limit.until.ns, at(2 * GAP - 1).ns);
}
END_TEST

START_TEST(after_a_calm_it_is_heard_at_once_again)
{
	struct rate_limit rate_limit = { 0 };

	rate_limit_event(&rate_limit, GAP, at(0));
	rate_limit_event(&rate_limit, GAP, at(1));
	rate_limit_event(&rate_limit, GAP, at(NS_PER_S));
	ck_assert(rate_limit_allows(&rate_limit, at(NS_PER_S)));
}
END_TEST

/* ---- condition ---- */

#define CALM_NS (30 * NS_PER_S)

static struct condition condition;
static mono_t now;

static void begin_condition(void)
{
	condition = (struct condition){ 0 };
	now = (mono_t){ 100 * NS_PER_S };
}

static enum condition_turn look(unsigned level, uint64_t after_s)
{
	now = mono_add(now, after_s * NS_PER_S);

	return condition_step(&condition, level, now, CALM_NS);
}

START_TEST(begins_worsens_and_ends_once_each)
{
	ck_assert_int_eq(look(0, 1), CONDITION_SAME);
	ck_assert_int_eq(look(1, 1), CONDITION_BEGINS);
	ck_assert_int_eq(look(1, 1), CONDITION_SAME);
	ck_assert_int_eq(look(3, 1), CONDITION_WORSENS);
	ck_assert_int_eq(look(2, 1), CONDITION_SAME);
	ck_assert_int_eq(look(3, 1), CONDITION_SAME);
	ck_assert_int_eq(look(0, 29), CONDITION_SAME);
	ck_assert_int_eq(look(0, 1), CONDITION_ENDS);
	ck_assert_uint_eq(condition.times, 5);
	ck_assert_uint_eq(condition_lasted_ns(&condition), 4 * NS_PER_S);
	ck_assert_int_eq(look(0, 100), CONDITION_SAME);
}
END_TEST

START_TEST(the_next_episode_knows_nothing_of_the_one_before)
{
	look(3, 1);
	look(0, 31);
	ck_assert_int_eq(look(1, 1), CONDITION_BEGINS);
	ck_assert_uint_eq(condition.times, 1);
	ck_assert_int_eq(look(2, 1), CONDITION_WORSENS);
	ck_assert_uint_eq(condition_lasted_ns(&condition), NS_PER_S);
}
END_TEST

START_TEST(what_comes_and_goes_goes_on)
{
	ck_assert_int_eq(look(1, 1), CONDITION_BEGINS);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(look(0, 20), CONDITION_SAME);
		ck_assert_int_eq(look(1, 9), CONDITION_SAME);
	}
	ck_assert_uint_eq(condition_lasted_ns(&condition), 2900 * NS_PER_S);
}
END_TEST

START_TEST(without_patience_it_ends_at_the_first_good_look)
{
	ck_assert_int_eq(condition_step(&condition, 1, now, 0), CONDITION_BEGINS);
	ck_assert_int_eq(condition_step(&condition, 0, now, 0), CONDITION_ENDS);
}
END_TEST

START_TEST(levels_grow_with_each_factor)
{
	ck_assert_uint_eq(condition_level(0, 2), 0);
	ck_assert_uint_eq(condition_level(1, 2), 1);
	ck_assert_uint_eq(condition_level(3, 2), 2);
	ck_assert_uint_eq(condition_level(4, 2), 3);
	ck_assert_uint_eq(condition_level(99, 10), 2);
	ck_assert_uint_eq(condition_level(UINT64_MAX, 2), 64);
}
END_TEST

START_TEST(turns_have_names)
{
	ck_assert_ptr_null(condition_state(CONDITION_SAME));
	ck_assert_str_eq(condition_state(CONDITION_BEGINS), "begin");
	ck_assert_str_eq(condition_state(CONDITION_WORSENS), "change");
	ck_assert_str_eq(condition_state(CONDITION_ENDS), "end");
}
END_TEST

Suite *pacing_suite(void);
Suite *pacing_suite(void)
{
	Suite *suite = suite_create("pacing");
	TCase *tcase;

	tcase = tcase_create("schedule");
	tcase_add_checked_fixture(tcase, begin_schedule, NULL);
	tcase_add_test(tcase, the_first_slot_is_the_start);
	tcase_add_test(tcase, deadlines_stay_on_the_grid_however_late_the_wake_ups);
	tcase_add_test(tcase, slots_slept_through_are_skipped_and_not_made_up_for);
	tcase_add_test(tcase, slots_that_pass_while_collecting_are_skipped);
	tcase_add_test(tcase, a_slot_that_begins_as_the_collection_ends_is_missed);
	tcase_add_test(tcase, timing_errors_add_up_in_both_directions);
	tcase_add_test(tcase, waking_early_takes_the_slot_once);
	tcase_add_test(tcase, slots_that_are_put_off_are_made_up_for_or_missed);
	tcase_add_test(tcase, slots_that_pass_in_a_collection_may_be_made_up_for_afterwards);
	tcase_add_test(tcase, the_capture_rate_comes_from_the_clock);
	tcase_add_test(tcase, backoff_grows_by_an_eighth_up_to_its_maximum);
	tcase_add_test(tcase, backoff_falls_back_once_the_reader_keeps_up);
	tcase_add_test(tcase, backoff_sleeps_are_counted_and_are_no_timing_error);
	tcase_add_test(tcase, slots_that_pass_in_backoff_are_missed);
	tcase_add_test(tcase, slots_of_a_backoff_that_the_end_cuts_off_are_missed);
	tcase_add_test(tcase, an_end_before_the_deadline_misses_nothing);
	tcase_add_test(tcase, a_new_interval_starts_a_new_grid_and_keeps_the_counters);
	tcase_add_test(tcase, changing_the_interval_hides_no_missed_slot_and_loses_none);
	tcase_add_test(tcase, a_longer_interval_does_not_put_off_the_next_slot);
	tcase_add_test(tcase, a_backoff_that_a_new_interval_ends_counts_for_as_long_as_it_lasted);
	tcase_add_test(tcase, a_clock_that_jumps_far_costs_missed_slots_and_no_time);
	tcase_add_test(tcase, a_clock_that_steps_back_is_just_early);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("cpu_budget");
	tcase_add_test(tcase, stays_at_one_within_the_budget);
	tcase_add_test(tcase, one_period_above_the_budget_is_forgiven);
	tcase_add_test(tcase, doubles_while_above_the_budget_up_to_a_limit);
	tcase_add_test(tcase, halves_only_after_calm_periods_in_a_row);
	tcase_add_test(tcase, does_not_swing_when_half_the_interval_would_not_fit);
	tcase_add_test(tcase, it_backs_off_before_it_is_slower_and_is_faster_before_it_looks_at_all);
	tcase_add_test(tcase, it_goes_on_backing_off_while_all_looks_would_not_fit);
	tcase_add_test(tcase, what_others_make_it_do_leaves_most_of_the_budget_to_sampling);
	tcase_add_test(tcase, under_a_quota_what_others_make_it_do_counts_in_full);
	tcase_add_test(tcase, without_a_budget_never_interferes);
	tcase_add_test(tcase, a_clock_that_stands_still_is_harmless);
	tcase_add_test(tcase, a_budget_that_is_far_exceeded_is_kept_at_once);
	tcase_add_test(tcase, settles_under_a_quota_at_a_rate_that_it_can_keep);
	tcase_add_test(tcase, under_a_quota_it_begins_with_the_longest_interval_and_finds_one_that_fits);
	tcase_add_test(tcase, a_quota_counts_only_where_it_is_less_than_the_budget);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("sampling_period");
	tcase_add_test(tcase, all_that_is_counted_is_stood_for_or_carried);
	tcase_add_test(tcase, few_things_in_each_stretch_have_samples_too);
	tcase_add_test(tcase, the_first_stretch_has_the_period_itself);
	tcase_add_test(tcase, the_period_is_no_shorter_than_a_sixteenth);
	tcase_add_test(tcase, the_shortest_period_is_one);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("idle_backoff");
	tcase_add_test(tcase, a_pause_is_an_eighth_of_the_rest_and_no_more_than_the_longest);
	tcase_add_test(tcase, without_a_longer_interval_every_tick_is_for_all);
	tcase_add_test(tcase, phases_are_spread_and_kept);
	tcase_add_test(tcase, a_reader_knows_as_much_as_follows);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("token_bucket");
	tcase_add_test(tcase, what_a_second_gives_may_be_taken_at_once);
	tcase_add_test(tcase, what_was_taken_in_advance_is_paid_for_by_time);
	tcase_add_test(tcase, over_long_it_is_no_more_than_the_share);
	tcase_add_test(tcase, no_wait_is_longer_than_a_second);
	tcase_add_test(tcase, a_calm_of_any_length_fills_it_and_no_more);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("rate_limit");
	tcase_add_test(tcase, what_comes_alone_is_heard_at_once_and_so_is_what_comes_next);
	tcase_add_test(tcase, what_comes_thick_and_fast_is_heard_every_so_often);
	tcase_add_test(tcase, after_a_calm_it_is_heard_at_once_again);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("condition");
	tcase_add_checked_fixture(tcase, begin_condition, NULL);
	tcase_add_test(tcase, begins_worsens_and_ends_once_each);
	tcase_add_test(tcase, the_next_episode_knows_nothing_of_the_one_before);
	tcase_add_test(tcase, what_comes_and_goes_goes_on);
	tcase_add_test(tcase, without_patience_it_ends_at_the_first_good_look);
	tcase_add_test(tcase, levels_grow_with_each_factor);
	tcase_add_test(tcase, turns_have_names);
	suite_add_tcase(suite, tcase);

	return suite;
}
