/*
 * check_series.c: what is read from samples: bursts are kept, silence is silence, gaps are unknown.
 */
#include "lib/base/base.h"
#include "cli/incident/series.h"
#include "torture.h"
#include "lib/model/sample.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <errno.h>
#include <math.h>

#define MS INT64_C(1000000)

static void add(struct series *series, int64_t at_ms, uint64_t cpu_ms, uint64_t memory, uint64_t peak, bool after_gap)
{
	struct series_point point = { .at_ns = at_ms * MS, .after_gap = after_gap };

	sample_set(&point.sample, SAMPLE_CPU, cpu_ms * 1000000);
	sample_set(&point.sample, SAMPLE_MEMORY, memory);
	sample_set(&point.sample, SAMPLE_MEMORY_PEAK, peak);
	ck_assert_int_eq(series_add(series, &point), 0);
}

/* One second of silence, then 20 ms of CPU in the two ticks before 1,020 ms, then silence. */
static void burst(struct series *series)
{
	add(series, 0, 100, 10, 10, false);
	add(series, 1010, 110, 10, 10, false);
	add(series, 1020, 120, 10, 50, false);
	add(series, 2000, 120, 10, 50, false);
}

#define COLUMNS 4
static double peak[COLUMNS], mean[COLUMNS];

static struct series_columns columns_of(int64_t from_ms, int64_t to_ms)
{
	return (struct series_columns){ from_ms * MS, to_ms * MS, to_ms * MS, COLUMNS, peak, mean };
}

static void near(double value, double expected)
{
	ck_assert_double_eq_tol(value, expected, 1e-6);
}

START_TEST(burst_after_silence_is_not_smeared)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 2000);

	burst(&series);
	series_cpu(&series, 20 * MS, &columns);
	near(mean[0], 0);
	near(mean[1], 0);
	near(mean[2], 0.04);
	near(peak[2], 1);
	near(peak[3], 0);
}
END_TEST

START_TEST(counter_stands_still_until_shortly_before_the_sample)
{
	AUTO(series_release) struct series series = { 0 };
	struct sample sample;

	burst(&series);
	ck_assert_uint_eq(series.grain_ns, 10 * MS);
	ck_assert(series_at(&series, 1000 * MS, &sample));
	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 100000000);
	ck_assert(series_at(&series, 1005 * MS, &sample));
	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 105000000);
	ck_assert(!series_at(&series, -1, &sample));
	ck_assert(series_at(&series, 9000 * MS, &sample));
}
END_TEST

START_TEST(gap_is_unknown)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	struct sample sample;

	add(&series, 0, 0, 10, 10, false);
	add(&series, 1000, 500, 10, 10, false);
	add(&series, 3000, 2500, 30, 30, true);
	add(&series, 4000, 2500, 30, 30, false);
	series_cpu(&series, 100 * MS, &columns);
	near(mean[0], 0.5);
	ck_assert(isnan(mean[1]) && isnan(mean[2]));
	ck_assert(isnan(peak[1]) && isnan(peak[2]));
	near(mean[3], 0);
	ck_assert(!series_at(&series, 2000 * MS, &sample));
}
END_TEST

START_TEST(counter_that_steps_back_is_unknown)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);

	add(&series, 0, 500, 10, 10, false);
	add(&series, 1000, 100, 10, 10, false);
	add(&series, 2000, 200, 10, 10, false);
	series_cpu(&series, 1000 * MS, &columns);
	ck_assert(isnan(mean[0]));
	near(mean[1], 0.1);
}
END_TEST

START_TEST(memory_between_samples_is_seen_by_its_mark)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 2000);

	burst(&series);
	series_memory(&series, &columns);
	near(peak[0], 10);
	near(peak[2], 50);
	near(mean[2], 10);
	/* The mark stays where it is; the memory is gone. */
	near(mean[3], 10);
}
END_TEST

START_TEST(time_above_the_threshold_is_that_of_the_burst)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 10 * MS, .threshold = 0.5 };
	uint64_t ns = 7;

	ck_assert(!series_above(&series, &rule, &ns));
	ck_assert_uint_eq(ns, 7);
	burst(&series);
	ck_assert(series_above(&series, &rule, &ns));
	ck_assert_uint_eq(ns, 20 * MS);
	rule.threshold = 2;
	ck_assert(series_above(&series, &rule, &ns));
	ck_assert_uint_eq(ns, 0);
}
END_TEST

START_TEST(time_above_goes_on_while_nothing_new_is_to_be_read)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 50 * MS, .threshold = 0.1 };
	uint64_t ns = 7;

	for (int64_t ms = 0; ms <= 10; ms++)
		add(&series, ms, (uint64_t)ms, 10, 10, false);
	add(&series, 200, 10, 10, 10, false);
	/* From the end of the first window until less than 5 ms of the burst are in it. */
	ck_assert(series_above(&series, &rule, &ns));
	ck_assert_uint_eq(ns, 5 * MS);
}
END_TEST

START_TEST(time_that_steps_back_is_straightened)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 100);

	add(&series, 100, 0, 10, 10, false);
	add(&series, 50, 10, 10, 10, false);
	add(&series, 100, 20, 10, 10, false);
	ck_assert_int_eq(series.points[1].at_ns, 100 * MS);
	series_cpu(&series, 10 * MS, &columns);
	series_memory(&series, &columns);
}
END_TEST

START_TEST(empty_series_is_a_gap)
{
	struct series series = { 0 };
	struct series_columns columns = columns_of(0, 100);

	series_cpu(&series, 10 * MS, &columns);
	ck_assert(isnan(peak[0]) && isnan(mean[COLUMNS - 1]));
	series_memory(&series, &columns);
	ck_assert(isnan(peak[0]) && isnan(mean[COLUMNS - 1]));
}
END_TEST

START_TEST(allocations_that_fail_leave_a_gap_or_an_error)
{
	struct series series = { 0 };
	struct series_columns columns = columns_of(0, 2000);
	struct series_point point = { 0 };
	int rc;

	torture_arm(1);
	rc = series_add(&series, &point);
	ck_assert(torture_disarm());
	ck_assert_int_eq(rc, -ENOMEM);
	burst(&series);
	torture_arm(1);
	series_cpu(&series, 10 * MS, &columns);
	ck_assert(torture_disarm());
	ck_assert(isnan(mean[2]));
	series_release(&series);
}
END_TEST

Suite *series_suite(void);

Suite *series_suite(void)
{
	Suite *suite = suite_create("series");
	TCase *tcase = tcase_create("series");

	tcase_add_test(tcase, burst_after_silence_is_not_smeared);
	tcase_add_test(tcase, counter_stands_still_until_shortly_before_the_sample);
	tcase_add_test(tcase, gap_is_unknown);
	tcase_add_test(tcase, counter_that_steps_back_is_unknown);
	tcase_add_test(tcase, memory_between_samples_is_seen_by_its_mark);
	tcase_add_test(tcase, time_above_the_threshold_is_that_of_the_burst);
	tcase_add_test(tcase, time_above_goes_on_while_nothing_new_is_to_be_read);
	tcase_add_test(tcase, time_that_steps_back_is_straightened);
	tcase_add_test(tcase, empty_series_is_a_gap);
	tcase_add_test(tcase, allocations_that_fail_leave_a_gap_or_an_error);
	suite_add_tcase(suite, tcase);
	return suite;
}
