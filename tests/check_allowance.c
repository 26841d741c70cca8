/* check_allowance.c: a share of a core, and who takes more than that. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>
#include <stdlib.h>

Suite *allowance_suite(void);

#define SHARE 50u
#define ROOM (NS_PER_S / SHARE)

static mono_t at(uint64_t ns)
{
	return (mono_t){ 100 * NS_PER_S + ns };
}

START_TEST(what_a_second_gives_may_be_taken_at_once)
{
	struct allowance allowance = allowance_of(SHARE, at(0));

	allowance_take(&allowance, ROOM, at(0));
	ck_assert(!allowance_is_spent(&allowance, at(0)));
	allowance_take(&allowance, 1, at(0));
	ck_assert(allowance_is_spent(&allowance, at(0)));
}
END_TEST

START_TEST(what_was_taken_in_advance_is_paid_for_by_time)
{
	struct allowance allowance = allowance_of(SHARE, at(0));

	allowance_take(&allowance, ROOM + NS_PER_MS, at(0));
	ck_assert(allowance_is_spent(&allowance, at(49 * NS_PER_MS)));
	ck_assert(!allowance_is_spent(&allowance, at(50 * NS_PER_MS)));
}
END_TEST

START_TEST(over_long_it_is_no_more_than_the_share)
{
	struct allowance allowance = allowance_of(SHARE, at(0));
	uint64_t taken = 0;

	for (uint64_t ms = 0; ms < 10000; ms++)
		if (!allowance_is_spent(&allowance, at(ms * NS_PER_MS))) {
			allowance_take(&allowance, NS_PER_MS, at(ms * NS_PER_MS));
			taken += NS_PER_MS;
		}
	ck_assert_uint_le(taken, ROOM + 10 * ROOM + NS_PER_MS);
	ck_assert_uint_ge(taken, 10 * ROOM);
}
END_TEST

START_TEST(nobody_waits_longer_than_a_second)
{
	struct allowance allowance = allowance_of(SHARE, at(0));

	allowance_take(&allowance, UINT64_MAX, at(0));
	ck_assert(allowance_is_spent(&allowance, at(NS_PER_S - SHARE)));
	ck_assert(!allowance_is_spent(&allowance, at(NS_PER_S)));
}
END_TEST

START_TEST(a_calm_of_any_length_fills_it_and_no_more)
{
	struct allowance allowance = allowance_of(SHARE, at(0));

	allowance_take(&allowance, 2 * ROOM, at(0));
	allowance_take(&allowance, 0, at(3600 * NS_PER_S));
	allowance_take(&allowance, ROOM, at(3600 * NS_PER_S));
	ck_assert(!allowance_is_spent(&allowance, at(3600 * NS_PER_S)));
	allowance_take(&allowance, 1, at(3600 * NS_PER_S));
	ck_assert(allowance_is_spent(&allowance, at(3600 * NS_PER_S)));
}
END_TEST

Suite *allowance_suite(void)
{
	Suite *suite = suite_create("allowance");
	TCase *tcase = tcase_create("allowance");

	tcase_add_test(tcase, what_a_second_gives_may_be_taken_at_once);
	tcase_add_test(tcase, what_was_taken_in_advance_is_paid_for_by_time);
	tcase_add_test(tcase, over_long_it_is_no_more_than_the_share);
	tcase_add_test(tcase, nobody_waits_longer_than_a_second);
	tcase_add_test(tcase, a_calm_of_any_length_fills_it_and_no_more);
	suite_add_tcase(suite, tcase);

	return suite;
}
