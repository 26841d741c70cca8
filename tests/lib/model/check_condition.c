/* check_condition.c: what is bad for a while is said when it begins, gets worse and is over. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>

Suite *condition_suite(void);

#define CALM_NS (30 * NS_PER_S)

static struct condition condition;
static mono_t now;

static void setup(void)
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

Suite *condition_suite(void)
{
	Suite *suite = suite_create("condition");
	TCase *tcase = tcase_create("turns");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, begins_worsens_and_ends_once_each);
	tcase_add_test(tcase, the_next_episode_knows_nothing_of_the_one_before);
	tcase_add_test(tcase, what_comes_and_goes_goes_on);
	tcase_add_test(tcase, without_patience_it_ends_at_the_first_good_look);
	tcase_add_test(tcase, levels_grow_with_each_factor);
	tcase_add_test(tcase, turns_have_names);
	suite_add_tcase(suite, tcase);

	return suite;
}
