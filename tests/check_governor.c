/* check_governor.c: the interval follows the CPU budget, down fast and up slowly, without swinging. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>

Suite *governor_suite(void);

/* Runs periods of one second at a share of one core; returns the last factor. */
static uint32_t run(struct governor *governor, unsigned periods, double share)
{
	uint32_t factor = governor->factor;

	for (unsigned i = 0; i < periods; i++)
		factor = governor_step(governor, mono_add(governor->since, NS_PER_S),
				       governor->cpu_ns + (uint64_t)(share * 1e9));

	return factor;
}

START_TEST(stays_at_one_within_the_budget)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 5 }, 100);
	ck_assert_uint_eq(run(&governor, 100, 0.10), 1);
	ck_assert(!governor_due(&governor, mono_add(governor.since, NS_PER_S - 1)));
	ck_assert(governor_due(&governor, mono_add(governor.since, NS_PER_S)));
}
END_TEST

START_TEST(one_period_above_the_budget_is_forgiven)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 0 }, 0);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_eq(run(&governor, GOVERNOR_HOT - 1, 0.5), 1);
		ck_assert_uint_eq(run(&governor, 1, 0.05), 1);
	}
}
END_TEST

START_TEST(doubles_while_above_the_budget_up_to_a_limit)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 0 }, 0);
	ck_assert_uint_eq(run(&governor, GOVERNOR_HOT, 0.11), 2);
	ck_assert_uint_eq(run(&governor, GOVERNOR_HOT, 0.11), 4);
	ck_assert_uint_eq(run(&governor, 50, 0.5), GOVERNOR_FACTOR_MAX);
}
END_TEST

START_TEST(halves_only_after_calm_periods_in_a_row)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 0 }, 0);
	run(&governor, 2 * GOVERNOR_HOT, 0.2);
	ck_assert_uint_eq(run(&governor, GOVERNOR_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run(&governor, 1, 0.06), 4);
	ck_assert_uint_eq(run(&governor, GOVERNOR_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run(&governor, 1, 0.03), 2);
	ck_assert_uint_eq(run(&governor, GOVERNOR_CALM, 0.03), 1);
}
END_TEST

START_TEST(does_not_swing_when_half_the_interval_would_not_fit)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 0 }, 0);
	run(&governor, GOVERNOR_HOT, 0.16);
	ck_assert_uint_eq(run(&governor, 100, 0.08), 2);
}
END_TEST

START_TEST(without_a_budget_never_interferes)
{
	struct governor governor;

	governor_init(&governor, 0, (mono_t){ 0 }, 0);
	ck_assert_uint_eq(run(&governor, 10, 3.0), 1);
	ck_assert(governor.share > 2.9);
}
END_TEST

START_TEST(a_clock_that_stands_still_is_harmless)
{
	struct governor governor;

	governor_init(&governor, 10, (mono_t){ 7 }, 0);
	ck_assert_uint_eq(governor_step(&governor, (mono_t){ 7 }, 1000), 1);
	ck_assert_uint_eq(governor_step(&governor, (mono_t){ 3 }, 1000), 1);
}
END_TEST

Suite *governor_suite(void)
{
	Suite *suite = suite_create("governor");
	TCase *tcase = tcase_create("governor");

	tcase_add_test(tcase, stays_at_one_within_the_budget);
	tcase_add_test(tcase, one_period_above_the_budget_is_forgiven);
	tcase_add_test(tcase, doubles_while_above_the_budget_up_to_a_limit);
	tcase_add_test(tcase, halves_only_after_calm_periods_in_a_row);
	tcase_add_test(tcase, does_not_swing_when_half_the_interval_would_not_fit);
	tcase_add_test(tcase, without_a_budget_never_interferes);
	tcase_add_test(tcase, a_clock_that_stands_still_is_harmless);
	suite_add_tcase(suite, tcase);

	return suite;
}
