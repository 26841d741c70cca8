/* check_metric.c: two observations make one number, or none. */
#include "lib/rules/metric.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <check.h>
#include <string.h>

Suite *metric_suite(void);

static const struct metric_machine machine = { .cores = 4, .memory_bytes = 8000 };

static struct metric_point point(uint64_t ms)
{
	return (struct metric_point){ .time = { ms * NS_PER_MS } };
}

/* The value of a metric over half a second in which one field goes from a to b. */
static bool moved(enum metric metric, enum metric_of of, enum sample_field field, uint64_t a, uint64_t b, double *ret)
{
	struct metric_point from = point(1000), to = point(1500);

	sample_set(&from.sample, field, a);
	sample_set(&to.sample, field, b);
	return metric_value(metric, of, &machine, &from, &to, ret);
}

START_TEST(names_lead_back_to_their_metric)
{
	for (int i = 0; i < METRICS; i++) {
		enum metric metric;

		ck_assert(metric_by_name(metric_name((enum metric)i), &metric));
		ck_assert_int_eq((int)metric, i);
		ck_assert_uint_gt(strlen(metric_what(metric)), 0);
	}
	ck_assert_int_eq(metric_unit(METRIC_CPU), UNIT_PERCENT);
	ck_assert_int_eq(metric_unit(METRIC_FAULTS), UNIT_PER_SECOND);
	ck_assert_str_eq(metric_of_name(METRIC_OF_LIMIT), "limit");
	ck_assert_str_eq(metric_of_name(METRIC_OF_CORE), "core");
	ck_assert_str_eq(metric_of_name(METRIC_OF_MACHINE), "machine");
}
END_TEST

START_TEST(unknown_name_is_no_metric)
{
	enum metric metric = METRIC_FDS;

	ck_assert(!metric_by_name("cpus", &metric));
	ck_assert(!metric_by_name("", &metric));
	ck_assert_int_eq(metric, METRIC_FDS);
}
END_TEST

/* clang-format off */
static const struct {
	enum metric metric;
	enum metric_of of;
	enum sample_field field;
	uint64_t from, to;
	double value;
} moves[] = {
	{ METRIC_CPU,             METRIC_OF_MACHINE, SAMPLE_CPU,             0, 500000000, 25 },
	{ METRIC_CPU,             METRIC_OF_CORE,    SAMPLE_CPU,             0, 500000000, 100 },
	/* no limit: the machine */
	{ METRIC_CPU,             METRIC_OF_LIMIT,   SAMPLE_CPU,             0, 500000000, 25 },
	{ METRIC_CPU,             METRIC_OF_CORE,    SAMPLE_CPU,             7, 7, 0 },
	{ METRIC_CPU_CORES,       METRIC_OF_LIMIT,   SAMPLE_CPU,             1, 750000001, 1.5 },
	{ METRIC_MEMORY,          METRIC_OF_LIMIT,   SAMPLE_MEMORY,          9, 2000, 25 },
	{ METRIC_MEMORY,          METRIC_OF_MACHINE, SAMPLE_MEMORY,          9, 4000, 50 },
	{ METRIC_MEMORY_BYTES,    METRIC_OF_LIMIT,   SAMPLE_MEMORY,          9, 2000, 2000 },
	{ METRIC_MEMORY_PEAK,     METRIC_OF_LIMIT,   SAMPLE_MEMORY,          9000, 2000, 2000 },
	{ METRIC_THREADS,         METRIC_OF_LIMIT,   SAMPLE_THREADS,         9, 3, 3 },
	{ METRIC_FDS,             METRIC_OF_LIMIT,   SAMPLE_FDS,             9, 3, 3 },
	{ METRIC_PIDS,            METRIC_OF_LIMIT,   SAMPLE_PIDS,            9, 3, 3 },
	{ METRIC_CPU_WAIT,        METRIC_OF_LIMIT,   SAMPLE_CPU_WAIT,        0, 1250000000, 250 },
	{ METRIC_CPU_PRESSURE,    METRIC_OF_LIMIT,   SAMPLE_CPU_PRESSURE,    0, 50000000, 10 },
	{ METRIC_MEMORY_PRESSURE, METRIC_OF_LIMIT,   SAMPLE_MEMORY_PRESSURE, 0, 500000000, 100 },
	{ METRIC_IO_PRESSURE,     METRIC_OF_LIMIT,   SAMPLE_IO_PRESSURE,     5, 5, 0 },
};
/* clang-format on */

START_TEST(value_is_what_the_table_says)
{
	double value = -1;

	ck_assert(moved(moves[_i].metric, moves[_i].of, moves[_i].field, moves[_i].from, moves[_i].to, &value));
	ck_assert_double_eq(value, moves[_i].value);
}
END_TEST

START_TEST(missing_field_makes_it_unavailable)
{
	for (int i = 0; i < METRICS; i++) {
		struct metric_point from = point(1000), to = point(2000);
		double value = -1;

		ck_assert(!metric_value((enum metric)i, METRIC_OF_LIMIT, &machine, &from, &to, &value));
		ck_assert_double_eq(value, -1);
	}
}
END_TEST

START_TEST(counter_missing_at_the_beginning_makes_it_unavailable)
{
	struct metric_point from = point(1000), to = point(2000);
	double value = -1;

	sample_set(&to.sample, SAMPLE_CPU, 5);
	ck_assert(!metric_value(METRIC_CPU, METRIC_OF_CORE, &machine, &from, &to, &value));
	ck_assert_double_eq(value, -1);
}
END_TEST

START_TEST(counter_that_stepped_back_is_unavailable)
{
	double value = -1;

	ck_assert(!moved(METRIC_CPU, METRIC_OF_CORE, SAMPLE_CPU, 2, 1, &value));
	ck_assert(!moved(METRIC_CPU_CORES, METRIC_OF_CORE, SAMPLE_CPU, 2, 1, &value));
	ck_assert(!moved(METRIC_IO_PRESSURE, METRIC_OF_CORE, SAMPLE_IO_PRESSURE, 2, 1, &value));
	ck_assert_double_eq(value, -1);
}
END_TEST

START_TEST(window_without_length_is_unavailable)
{
	struct metric_point from = point(1000), to = point(1000);
	double value;

	sample_set(&to.sample, SAMPLE_MEMORY, 1);
	ck_assert(!metric_value(METRIC_MEMORY_BYTES, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	to.time.ns--;
	ck_assert(!metric_value(METRIC_MEMORY_BYTES, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	to.time.ns += 2;
	ck_assert(metric_value(METRIC_MEMORY_BYTES, METRIC_OF_LIMIT, &machine, &from, &to, &value));
}
END_TEST

START_TEST(percent_is_of_the_limit_at_the_end)
{
	struct metric_point from = point(0), to = point(1000);
	double value;

	sample_set(&from.sample, SAMPLE_CPU, 0);
	sample_set(&from.sample, SAMPLE_CPU_LIMIT, 4 * NS_PER_S);
	sample_set(&to.sample, SAMPLE_CPU, 250 * NS_PER_MS);
	sample_set(&to.sample, SAMPLE_CPU_LIMIT, 500 * NS_PER_MS);
	ck_assert(metric_value(METRIC_CPU, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, 50);

	sample_set(&to.sample, SAMPLE_MEMORY, 10);
	sample_set(&to.sample, SAMPLE_MEMORY_LIMIT, 40);
	ck_assert(metric_value(METRIC_MEMORY, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, 25);
}
END_TEST

START_TEST(limit_of_zero_is_unavailable_and_an_unknown_one_the_machine)
{
	struct metric_point from = point(0), to = point(1000);
	double value = -1;

	sample_set(&from.sample, SAMPLE_CPU, 0);
	sample_set(&to.sample, SAMPLE_CPU, NS_PER_S);
	sample_set(&to.sample, SAMPLE_CPU_LIMIT, 0);
	ck_assert(!metric_value(METRIC_CPU, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, -1);

	sample_set(&to.sample, SAMPLE_CPU_LIMIT, UINT64_MAX);
	ck_assert(metric_value(METRIC_CPU, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, 25);

	ck_assert(!metric_value(METRIC_CPU, METRIC_OF_MACHINE, &(struct metric_machine){ 0 }, &from, &to, &value));
}
END_TEST

START_TEST(memory_of_a_core_is_unavailable)
{
	double value;

	ck_assert(!moved(METRIC_MEMORY, METRIC_OF_CORE, SAMPLE_MEMORY, 1, 1, &value));
}
END_TEST

/* clang-format off */
static const struct {
	uint64_t memory, seen, mark_from, mark_to; /* mark 0: unavailable */
	double peak;
} peaks[] = {
	{ 50,  0,   0,   0,  50 },
	{ 50, 80,   0,   0,  80 },
	{ 50, 40,   0,   0,  50 },
	{ 50, 40, 100, 100,  50 }, /* the mark is older than the window */
	{ 50, 40, 100, 101, 101 }, /* it rose */
	{ 50, 40, 100,  90,  90 }, /* it was reset, and rose again */
	{ 50, 95, 100,  90,  95 },
	{ 50, 40,   0, 500,  50 }, /* it is not known when it was made */
	{ 50, 40, 500,   0,  50 },
};
/* clang-format on */

START_TEST(peak_is_the_most_that_is_known_of_the_window)
{
	struct metric_point from = point(0), to = point(1000);
	double value;

	to.peak_bytes = peaks[_i].seen;
	sample_set(&from.sample, SAMPLE_MEMORY, 1);
	sample_set(&to.sample, SAMPLE_MEMORY, peaks[_i].memory);
	if (peaks[_i].mark_from)
		sample_set(&from.sample, SAMPLE_MEMORY_PEAK, peaks[_i].mark_from);
	if (peaks[_i].mark_to)
		sample_set(&to.sample, SAMPLE_MEMORY_PEAK, peaks[_i].mark_to);
	ck_assert(metric_value(METRIC_MEMORY_PEAK, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, peaks[_i].peak);
}
END_TEST

static bool throttled(uint64_t periods, uint64_t of_them, double *ret)
{
	struct metric_point from = point(0), to = point(1000);

	sample_set(&from.sample, SAMPLE_PERIODS, 100);
	sample_set(&from.sample, SAMPLE_THROTTLED_PERIODS, 10);
	sample_set(&to.sample, SAMPLE_PERIODS, periods);
	sample_set(&to.sample, SAMPLE_THROTTLED_PERIODS, of_them);
	return metric_value(METRIC_THROTTLED, METRIC_OF_LIMIT, &machine, &from, &to, ret);
}

START_TEST(throttled_is_a_share_of_the_periods_that_elapsed)
{
	double value;

	ck_assert(throttled(110, 14, &value));
	ck_assert_double_eq(value, 40);
	ck_assert(throttled(100, 10, &value));
	ck_assert_double_eq(value, 0);
	/* read while a period ended */
	ck_assert(throttled(110, 21, &value));
	ck_assert_double_eq(value, 100);
	ck_assert(throttled(100, 11, &value));
	ck_assert_double_eq(value, 0);
	ck_assert(!throttled(99, 10, &value));
	ck_assert(!throttled(101, 9, &value));
}
END_TEST

START_TEST(faults_are_both_kinds_per_second)
{
	struct metric_point from = point(0), to = point(500);
	double value;

	sample_set(&from.sample, SAMPLE_MINOR_FAULTS, 10);
	sample_set(&to.sample, SAMPLE_MINOR_FAULTS, 40);
	ck_assert(!metric_value(METRIC_FAULTS, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	sample_set(&from.sample, SAMPLE_MAJOR_FAULTS, 1);
	sample_set(&to.sample, SAMPLE_MAJOR_FAULTS, 6);
	ck_assert(metric_value(METRIC_FAULTS, METRIC_OF_LIMIT, &machine, &from, &to, &value));
	ck_assert_double_eq(value, 70);
}
END_TEST

Suite *metric_suite(void)
{
	Suite *suite = suite_create("metric");
	TCase *tcase = tcase_create("metric");

	tcase_add_test(tcase, names_lead_back_to_their_metric);
	tcase_add_test(tcase, unknown_name_is_no_metric);
	tcase_add_loop_test(tcase, value_is_what_the_table_says, 0, (int)(sizeof(moves) / sizeof(moves[0])));
	tcase_add_test(tcase, missing_field_makes_it_unavailable);
	tcase_add_test(tcase, counter_missing_at_the_beginning_makes_it_unavailable);
	tcase_add_test(tcase, counter_that_stepped_back_is_unavailable);
	tcase_add_test(tcase, window_without_length_is_unavailable);
	tcase_add_test(tcase, percent_is_of_the_limit_at_the_end);
	tcase_add_test(tcase, limit_of_zero_is_unavailable_and_an_unknown_one_the_machine);
	tcase_add_test(tcase, memory_of_a_core_is_unavailable);
	tcase_add_loop_test(tcase, peak_is_the_most_that_is_known_of_the_window, 0,
			    (int)(sizeof(peaks) / sizeof(peaks[0])));
	tcase_add_test(tcase, throttled_is_a_share_of_the_periods_that_elapsed);
	tcase_add_test(tcase, faults_are_both_kinds_per_second);
	suite_add_tcase(suite, tcase);
	return suite;
}
