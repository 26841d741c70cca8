/*
 * check_sampling_period.c: counting that stops and restarts all the time, and samples that stand for all of it
 * nevertheless.
 */
#include "lib/model/pacing.h"

#include <check.h>

Suite *sampling_period_suite(void);

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

Suite *sampling_period_suite(void)
{
	Suite *suite = suite_create("sampling_period");
	TCase *tcase = tcase_create("sampling_period");

	tcase_add_test(tcase, all_that_is_counted_is_stood_for_or_carried);
	tcase_add_test(tcase, few_things_in_each_stretch_have_samples_too);
	tcase_add_test(tcase, the_first_stretch_has_the_period_itself);
	tcase_add_test(tcase, the_period_is_no_shorter_than_a_sixteenth);
	tcase_add_test(tcase, the_shortest_period_is_one);
	suite_add_tcase(suite, tcase);
	return suite;
}
