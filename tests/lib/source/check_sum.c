/* check_sum.c: members come and go, and no counter of the sum steps back. */
#include "lib/source/source.c"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <check.h>

Suite *sum_suite(void);

static struct sample member(uint64_t cpu, uint64_t memory)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu);
	sample_set(&sample, SAMPLE_MEMORY, memory);
	sample_set(&sample, SAMPLE_STATE, 'S');
	sample_set(&sample, SAMPLE_MEMORY_PEAK, memory);
	sample_set(&sample, SAMPLE_CPU_LIMIT, 1);
	return sample;
}

static void expect(struct sum *sum, uint64_t cpu, uint64_t memory, uint64_t members)
{
	struct sample sample = { .mask = UINT32_MAX >> (32 - SAMPLE_FIELDS) };

	sum_sample(sum, &sample);
	ck_assert_uint_eq(sample.mask, 1u << SAMPLE_CPU | 1u << SAMPLE_MEMORY | 1u << SAMPLE_PROCESSES);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU], cpu);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], memory);
	ck_assert_uint_eq(sample.value[SAMPLE_PROCESSES], members);
	ck_assert(!sum->changed);
}

START_TEST(the_sum_of_nobody_is_no_process)
{
	struct sum sum = { 0 };
	struct sample sample;

	sum_sample(&sum, &sample);
	ck_assert_uint_eq(sample.mask, 1u << SAMPLE_PROCESSES);
	ck_assert_uint_eq(sample.value[SAMPLE_PROCESSES], 0);
}
END_TEST

START_TEST(counters_count_from_joining_and_stay)
{
	struct sum sum = { 0 };
	struct sum_part a;
	struct sum_part b;
	struct sample sample = member(1000, 10);

	sum_join(&sum, &a, &sample, false);
	expect(&sum, 0, 10, 1);
	sample = member(5000, 7);
	sum_join(&sum, &b, &sample, false);
	expect(&sum, 0, 17, 2);
	sample = member(1100, 20);
	sum_update(&sum, &a, &sample);
	expect(&sum, 100, 27, 2);
	sum_leave(&sum, &a);
	expect(&sum, 100, 7, 1);
	sample = member(5005, 1);
	sum_update(&sum, &b, &sample);
	sum_leave(&sum, &b);
	expect(&sum, 105, 0, 0);
}
END_TEST

START_TEST(one_that_joins_as_a_whole_counts_from_its_beginning)
{
	struct sum sum = { 0 };
	struct sum_part part = { 0 };
	struct sample sample = member(1000, 10);

	sum_join(&sum, &part, &sample, true);
	expect(&sum, 1000, 10, 1);
	sample = member(1010, 10);
	sum_update(&sum, &part, &sample);
	sum_leave(&sum, &part);
	expect(&sum, 1010, 0, 0);
	ck_assert_uint_eq(part.value[0], 1010);
}
END_TEST

START_TEST(one_that_has_begun_before_counts_from_there)
{
	struct sum sum = { 0 };
	struct sum_part part = { 0 };
	struct sample since = member(900, 10), now = member(1000, 10);

	sample_set(&now, SAMPLE_MINOR_FAULTS, 7); /* of which nothing was known */
	sum_begin(&part, &since, &now);
	sum_join(&sum, &part, &now, true);
	ck_assert_uint_eq(sum.value[3], 0);
	sample_unset(&now, SAMPLE_MINOR_FAULTS);
	sum_update(&sum, &part, &now);
	ck_assert_uint_eq(sum.value[0], 100);
	sum_leave(&sum, &part);
	ck_assert_uint_eq(sum.value[0], 100);
}
END_TEST

START_TEST(what_is_credited_is_in_the_counters_alone)
{
	static const uint64_t credit[SUM_COUNTERS] = { 30 };
	struct sum sum = { 0 };
	struct sum_part part;
	struct sample sample = member(1000, 10);

	sum_join(&sum, &part, &sample, false);
	sum_add_usage(&sum, credit);
	expect(&sum, 30, 10, 1);
}
END_TEST

START_TEST(what_is_kept_are_the_counters_that_there_are)
{
	static const enum sample_field counters[] = { SAMPLE_CPU, SAMPLE_CPU_USER, SAMPLE_CPU_SYSTEM,
						      SAMPLE_MINOR_FAULTS, SAMPLE_MAJOR_FAULTS };
	struct sample sample = member(5, 6), back = { 0 };
	struct sum_counters kept;

	sum_keep(&kept, &sample);
	sum_kept(&kept, &back);
	ck_assert_uint_eq(back.mask, 1u << SAMPLE_CPU);
	ck_assert_uint_eq(back.value[SAMPLE_CPU], 5);
	for (size_t i = 0; i < ARRAY_LEN(counters); i++)
		sample_set(&sample, counters[i], 100 + i);
	back = (struct sample){ 0 };
	sum_keep(&kept, &sample);
	sum_kept(&kept, &back);
	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		ck_assert(sample_has(&back, counters[i]));
		ck_assert_uint_eq(back.value[counters[i]], 100 + i);
	}
	ck_assert(!sample_has(&back, SAMPLE_MEMORY));
}
END_TEST

START_TEST(a_member_that_steps_back_is_not_counted_twice)
{
	struct sum sum = { 0 };
	struct sum_part part;
	struct sample sample = member(1000, 10);

	sum_join(&sum, &part, &sample, false);
	for (uint64_t round = 1; round <= 3; round++) {
		sample = member(1000 + 10 * round, 10);
		sum_update(&sum, &part, &sample);
		expect(&sum, 10 * round, 10, 1);
		sample = member(995 + 10 * round, 10);
		sum_update(&sum, &part, &sample);
		expect(&sum, 10 * round, 10, 1);
	}
}
END_TEST

START_TEST(a_gauge_needs_every_member)
{
	struct sum sum = { 0 };
	struct sum_part a;
	struct sum_part b;
	struct sample with = member(1, 2);
	struct sample without = member(1, 2);
	struct sample sample;

	sample_set(&with, SAMPLE_FDS, 5);
	sum_join(&sum, &a, &with, false);
	sum_join(&sum, &b, &without, false);
	sum_sample(&sum, &sample);
	ck_assert(!sample_has(&sample, SAMPLE_FDS));
	sample_set(&without, SAMPLE_FDS, 6);
	sum_update(&sum, &b, &without);
	sum_sample(&sum, &sample);
	ck_assert(sample_has(&sample, SAMPLE_FDS) && sample.value[SAMPLE_FDS] == 11);
	sample_unset(&with, SAMPLE_FDS);
	sum_update(&sum, &a, &with);
	sum_leave(&sum, &a);
	sum_sample(&sum, &sample);
	ck_assert(sample_has(&sample, SAMPLE_FDS) && sample.value[SAMPLE_FDS] == 6);
}
END_TEST

Suite *sum_suite(void)
{
	Suite *suite = suite_create("sum");
	TCase *tcase = tcase_create("sum");

	tcase_add_test(tcase, the_sum_of_nobody_is_no_process);
	tcase_add_test(tcase, counters_count_from_joining_and_stay);
	tcase_add_test(tcase, one_that_joins_as_a_whole_counts_from_its_beginning);
	tcase_add_test(tcase, one_that_has_begun_before_counts_from_there);
	tcase_add_test(tcase, what_is_credited_is_in_the_counters_alone);
	tcase_add_test(tcase, what_is_kept_are_the_counters_that_there_are);
	tcase_add_test(tcase, a_member_that_steps_back_is_not_counted_twice);
	tcase_add_test(tcase, a_gauge_needs_every_member);
	suite_add_tcase(suite, tcase);

	return suite;
}
