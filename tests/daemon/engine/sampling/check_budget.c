/*
 * check_budget.c: the one that leads measures, the others do as it says; what is exempt is not
 * counted.
 */
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"
#include "lib/model/pacing.h"

#include <check.h>

Suite *budget_suite(void);

#define BEGIN (100 * NS_PER_S)
/* So little that whatever this process does is too much, and so much that nothing is. */
#define TOO_LITTLE 1e-9
#define PLENTY 1e9

static struct budget leader, follower;

static void begin(double percent)
{
	leader = (struct budget){ 0 };
	follower = (struct budget){ .leader = &leader };
	budget_restart(&leader, percent, (mono_t){ BEGIN });
	budget_restart(&follower, percent, (mono_t){ BEGIN });
}

/* Until the CPU clock of the process has moved on. */
static void work(void)
{
	uint64_t before = real_clock_process_cpu();

	for (long i = 0; i < 1000000000 && real_clock_process_cpu() < before + NS_PER_MS; i++)
		;
}

/* A look of each after so many periods. The leader's factor. */
static uint32_t look_after(uint64_t periods, bool *ret_over, uint32_t *ret_follower)
{
	mono_t now = { BEGIN + periods * CPU_BUDGET_PERIOD_NS };
	uint32_t factor;

	*ret_over = budget_look(&leader, now, &factor);
	ck_assert_int_eq(budget_look(&follower, now, ret_follower), *ret_over);
	ck_assert_uint_eq(budget_slowdown(&leader), factor);
	ck_assert_uint_eq(budget_slowdown(&follower), *ret_follower);

	return factor;
}

START_TEST(those_that_follow_are_as_slow_as_the_one_that_leads)
{
	uint32_t factor = 1, followers;
	bool over;

	begin(TOO_LITTLE);
	ck_assert_uint_eq(look_after(0, &over, &followers), 1);
	ck_assert(!over);
	for (uint64_t period = 1; period <= 4; period++) {
		work();
		factor = look_after(period, &over, &followers);
		ck_assert(over);
		ck_assert_uint_eq(followers, factor);
		ck_assert_uint_eq(factor, 1u << period / CPU_BUDGET_HOT);
	}
	ck_assert(budget_share(&leader) > 0);
	ck_assert(budget_share(&follower) == 0); /* only the one that leads measures */
}
END_TEST

/* The period of one that follows ends by its own clock, and it learns of the factor at once. */
START_TEST(a_factor_is_in_force_before_the_next_period)
{
	mono_t soon = { BEGIN + CPU_BUDGET_PERIOD_NS - 1 }, later = { BEGIN + 2 * CPU_BUDGET_PERIOD_NS };
	uint32_t factor;

	begin(TOO_LITTLE);
	for (uint64_t period = 1; period <= CPU_BUDGET_HOT; period++) {
		work();
		ck_assert(budget_look(&leader, (mono_t){ BEGIN + period * CPU_BUDGET_PERIOD_NS }, &factor));
	}
	ck_assert_uint_eq(factor, 2);
	ck_assert(!budget_look(&follower, soon, &factor));
	ck_assert_uint_eq(factor, 2);
	ck_assert(budget_look(&follower, later, &factor));
	ck_assert(!budget_look(&follower, later, &factor)); /* another one has begun */
}
END_TEST

START_TEST(within_the_budget_nobody_is_slow)
{
	uint32_t followers;
	bool over;

	begin(PLENTY);
	for (uint64_t period = 1; period <= 5; period++) {
		work();
		ck_assert_uint_eq(look_after(period, &over, &followers), 1);
		ck_assert_uint_eq(followers, 1);
	}
}
END_TEST

START_TEST(a_restart_forgets_the_slowdown_and_what_was_spent)
{
	uint32_t followers;
	bool over;

	begin(TOO_LITTLE);
	for (uint64_t period = 1; period <= 4; period++) {
		work();
		look_after(period, &over, &followers);
	}
	ck_assert_uint_gt(budget_slowdown(&leader), 1);
	budget_restart(&leader, 0, (mono_t){ BEGIN + 4 * CPU_BUDGET_PERIOD_NS });
	ck_assert_uint_eq(budget_slowdown(&leader), 1);
	for (uint64_t period = 5; period <= 9; period++) {
		work();
		ck_assert_uint_eq(look_after(period, &over, &followers), 1); /* without a limit */
		ck_assert_uint_eq(followers, 1);
	}
}
END_TEST

/*
 * The clock of the whole process stands for a thread that does all the work: nothing is left that
 * counts.
 */
START_TEST(what_is_exempt_does_not_count)
{
	uint32_t followers;
	bool over;

	begin(TOO_LITTLE);
	budget_exempt(&leader, CLOCK_PROCESS_CPUTIME_ID);
	budget_restart(&leader, TOO_LITTLE, (mono_t){ BEGIN });
	for (uint64_t period = 1; period <= 6; period++) {
		work();
		look_after(period, &over, &followers);
		ck_assert(over);
	}
	ck_assert_uint_eq(budget_slowdown(&leader), 1);
	ck_assert_double_eq(budget_share(&leader), 0);
}
END_TEST

Suite *budget_suite(void)
{
	Suite *suite = suite_create("budget");
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, those_that_follow_are_as_slow_as_the_one_that_leads);
	tcase_add_test(tcase, a_factor_is_in_force_before_the_next_period);
	tcase_add_test(tcase, within_the_budget_nobody_is_slow);
	tcase_add_test(tcase, a_restart_forgets_the_slowdown_and_what_was_spent);
	tcase_add_test(tcase, what_is_exempt_does_not_count);
	suite_add_tcase(suite, tcase);

	return suite;
}
