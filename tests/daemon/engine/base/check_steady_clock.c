/* check_steady_clock.c: when the time of day is believed. */
#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"

#include <check.h>

Suite *steady_clock_suite(void);

#define HOUR (3600 * NS_PER_S)
#define DAY (24 * HOUR)
#define TODAY (20000 * DAY)

static struct steady_clock clock_;

static void setup(void)
{
	clock_ = (struct steady_clock){ 0 };
}

/* At so much time since boot, with a clock that is ahead of what it was by step. */
static uint64_t look(uint64_t up_ns, int64_t step_ns)
{
	return steady_clock_look(&clock_, (mono_t){ up_ns }, (wall_t){ TODAY + up_ns + (uint64_t)step_ns }).ns;
}

START_TEST(it_is_believed_after_an_hour)
{
	ck_assert_uint_eq(look(NS_PER_S, 0), 0);
	ck_assert_uint_eq(look(HOUR, 0), 0);
	ck_assert_uint_eq(look(HOUR + NS_PER_S, 0), TODAY + HOUR + NS_PER_S);
}
END_TEST

START_TEST(a_step_begins_the_hour_anew)
{
	static const int64_t steps[] = { (int64_t)(40 * DAY), -(int64_t)(40 * DAY), (int64_t)(61 * NS_PER_S) };

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		setup();
		look(0, 0);
		ck_assert_uint_ne(look(2 * HOUR, 0), 0);
		ck_assert_uint_eq(look(2 * HOUR + 1, steps[i]), 0);
		ck_assert_uint_eq(look(3 * HOUR, steps[i]), 0);
		ck_assert_uint_ne(look(3 * HOUR + 1, steps[i]), 0);
	}
}
END_TEST

START_TEST(small_corrections_are_no_steps)
{
	look(0, 0);
	for (int64_t i = 1; i < 100; i++)
		look(HOUR + (uint64_t)i, i * (int64_t)(59 * NS_PER_S));
	ck_assert_uint_ne(look(HOUR + 100, 100 * (int64_t)(59 * NS_PER_S)), 0);
}
END_TEST

Suite *steady_clock_suite(void)
{
	Suite *suite = suite_create("steady_clock");
	TCase *tcase = tcase_create("steadyclock");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, it_is_believed_after_an_hour);
	tcase_add_test(tcase, a_step_begins_the_hour_anew);
	tcase_add_test(tcase, small_corrections_are_no_steps);
	suite_add_tcase(suite, tcase);

	return suite;
}
