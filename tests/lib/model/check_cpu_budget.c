/*
 * check_cpu_budget.c: the interval follows the CPU budget, down fast and up slowly, without
 * swinging.
 */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>

Suite *cpu_budget_suite(void);

/* Runs periods of one second at a share of one core; returns the last factor. */
static uint32_t run(struct cpu_budget *cpu_budget, unsigned periods, double share)
{
	uint32_t factor = cpu_budget->factor;

	for (unsigned i = 0; i < periods; i++)
		factor = cpu_budget_step(cpu_budget, mono_add(cpu_budget->since, NS_PER_S),
					 cpu_budget->cpu_ns + (uint64_t)(share * 1e9));

	return factor;
}

START_TEST(stays_at_one_within_the_budget)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 5 }, 100);
	ck_assert_uint_eq(run(&cpu_budget, 100, 0.10), 1);
	ck_assert(!cpu_budget_due(&cpu_budget, mono_add(cpu_budget.since, NS_PER_S - 1)));
	ck_assert(cpu_budget_due(&cpu_budget, mono_add(cpu_budget.since, NS_PER_S)));
}
END_TEST

START_TEST(one_period_above_the_budget_is_forgiven)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, 0);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_HOT - 1, 0.5), 1);
		ck_assert_uint_eq(run(&cpu_budget, 1, 0.05), 1);
	}
}
END_TEST

START_TEST(doubles_while_above_the_budget_up_to_a_limit)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, 0);
	ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_HOT, 0.11), 2);
	ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_HOT, 0.11), 4);
	ck_assert_uint_eq(run(&cpu_budget, 50, 0.5), CPU_BUDGET_FACTOR_MAX);
}
END_TEST

START_TEST(halves_only_after_calm_periods_in_a_row)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, 0);
	run(&cpu_budget, 2 * CPU_BUDGET_HOT, 0.2);
	ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run(&cpu_budget, 1, 0.06), 4);
	ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_CALM - 1, 0.03), 4);
	ck_assert_uint_eq(run(&cpu_budget, 1, 0.03), 2);
	ck_assert_uint_eq(run(&cpu_budget, CPU_BUDGET_CALM, 0.03), 1);
}
END_TEST

START_TEST(does_not_swing_when_half_the_interval_would_not_fit)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 0 }, 0);
	run(&cpu_budget, CPU_BUDGET_HOT, 0.16);
	ck_assert_uint_eq(run(&cpu_budget, 100, 0.08), 2);
}
END_TEST

START_TEST(without_a_budget_never_interferes)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 0, (mono_t){ 0 }, 0);
	ck_assert_uint_eq(run(&cpu_budget, 10, 3.0), 1);
	ck_assert(cpu_budget.share > 2.9);
}
END_TEST

START_TEST(a_clock_that_stands_still_is_harmless)
{
	struct cpu_budget cpu_budget;

	cpu_budget_init(&cpu_budget, 10, (mono_t){ 7 }, 0);
	ck_assert_uint_eq(cpu_budget_step(&cpu_budget, (mono_t){ 7 }, 1000), 1);
	ck_assert_uint_eq(cpu_budget_step(&cpu_budget, (mono_t){ 3 }, 1000), 1);
}
END_TEST

Suite *cpu_budget_suite(void)
{
	Suite *suite = suite_create("cpu_budget");
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
