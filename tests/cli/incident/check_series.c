/*
 * check_series.c: what is read from samples: bursts are kept, silence is silence, gaps are unknown.
 */
#include "lib/base/base.h"
#include "torture.h"
#include "lib/model/sample.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/incident/series.c"

#define MS INT64_C(1000000)

static void add_point(struct series *series, int64_t at_ms, uint64_t cpu_ms, uint64_t memory, uint64_t peak,
		      bool after_gap)
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
	add_point(series, 0, 100, 10, 10, false);
	add_point(series, 1010, 110, 10, 10, false);
	add_point(series, 1020, 120, 10, 50, false);
	add_point(series, 2000, 120, 10, 50, false);
}

#define COLUMNS 4
static double column_peak[COLUMNS], column_mean[COLUMNS];
static bool column_hole[COLUMNS];

static struct series_columns columns_of(int64_t from_ms, int64_t to_ms)
{
	return (struct series_columns){ from_ms * MS, to_ms * MS,  to_ms * MS, COLUMNS,
					column_peak,  column_mean, column_hole };
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
	near(column_mean[0], 0);
	near(column_mean[1], 0);
	near(column_mean[2], 0.04);
	near(column_peak[2], 1);
	near(column_peak[3], 0);
}
END_TEST

START_TEST(counter_stands_still_until_shortly_before_the_sample)
{
	AUTO(series_release) struct series series = { 0 };
	struct sample sample;

	burst(&series);
	ck_assert_uint_eq(series.grain_ns, 10 * MS);
	ck_assert(series_at(&series, 1000 * MS, 0, &sample));
	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 100000000);
	ck_assert(series_at(&series, 1005 * MS, 0, &sample));
	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 105000000);
	ck_assert(!series_at(&series, -1, 0, &sample));
	ck_assert(series_at(&series, 9000 * MS, 0, &sample));
}
END_TEST

START_TEST(gap_is_unknown)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	struct sample sample;

	add_point(&series, 0, 0, 10, 10, false);
	add_point(&series, 1000, 500, 10, 10, false);
	add_point(&series, 3000, 2500, 30, 30, true);
	add_point(&series, 4000, 2500, 30, 30, false);
	series_cpu(&series, 100 * MS, &columns);
	near(column_mean[0], 0.5);
	ck_assert(isnan(column_mean[1]) && isnan(column_mean[2]));
	ck_assert(isnan(column_peak[1]) && isnan(column_peak[2]));
	near(column_mean[3], 0);
	ck_assert(!series_at(&series, 2000 * MS, 0, &sample));
}
END_TEST

static void add_hole(struct series *series, int64_t from_ms, int64_t to_ms, uint64_t missed_slots)
{
	const struct series_hole hole = { .from_ns = from_ms * MS, .to_ns = to_ms * MS, .missed_slots = missed_slots };

	ck_assert_int_eq(holes_add(&series->holes, &hole), 0);
}

/* 10 ms apart, half a core; from 1,000 to 3,010 ms a hole, in which 1.5 cores are used. */
static void series_with_hole(struct series *series)
{
	uint64_t cpu_ms = 0;

	for (int64_t at = 0; at <= 1000; at += 10, cpu_ms += 5)
		add_point(series, at, cpu_ms, 10, 10, false);
	add_hole(series, 1000, 3010, 200);
	cpu_ms += 3010;
	for (int64_t at = 3010; at <= 4000; at += 10, cpu_ms += 5)
		add_point(series, at, cpu_ms, 20, 20, false);
}

START_TEST(what_a_hole_hides_is_no_spike)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	double cores;

	series_with_hole(&series);
	series_cpu(&series, 100 * MS, &columns);
	near(column_mean[0], 0.5);
	ck_assert(isnan(column_mean[1]) && isnan(column_peak[1]) && column_hole[1]);
	ck_assert(isnan(column_mean[2]) && isnan(column_peak[2]) && column_hole[2]);
	ck_assert(!column_hole[0] && !column_hole[3]);
	ck_assert_double_lt(column_peak[3], 0.52); /* no window of 100 ms reaches into it */
	ck_assert_double_gt(column_mean[3], 0.49);
	ck_assert(!series_hole_cpu(&series, &series.holes.hole[0], 3000 * MS, &cores));
	ck_assert(series_hole_cpu(&series, &series.holes.hole[0], 4000 * MS, &cores));
	ck_assert_double_eq_tol(cores, 3015.0 / 2010, 1e-6);

	series_memory(&series, &columns);
	ck_assert(isnan(column_mean[1]) && column_hole[1]);
	near(column_mean[0], 10);
	near(column_mean[3], 19.9); /* the first 10 ms of it lie in the hole */
}
END_TEST

START_TEST(no_window_of_a_rule_is_told_from_a_hole)
{
	const struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 500 * MS, .threshold = 0.6 };
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	struct series_above above = { .ns = 1 };

	series_with_hole(&series);
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_uint_eq(above.ns, 0);
	series_metric(&series, &rule, &columns);
	near(column_peak[0], 0.5);
	ck_assert(isnan(column_peak[1]) && isnan(column_peak[2]));
	near(column_peak[3], 0.5);
}
END_TEST

START_TEST(a_missed_slot_is_averaged_and_not_blanked)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 400);
	uint64_t cpu_ms = 0;

	/* A core, all the time; of three slots the third is missed. */
	for (int64_t at = 0; at <= 400; at += 10, cpu_ms += 10) {
		if (at % 30 == 20)
			continue;
		add_point(&series, at, cpu_ms, 10, 10, false);
		if (at % 30 == 0 && at > 0)
			add_hole(&series, at - 20, at, 1);
	}
	series_cpu(&series, 10 * MS, &columns);
	for (size_t i = 0; i < COLUMNS; i++) {
		near(column_mean[i], 1);
		near(column_peak[i], 1);
		ck_assert(!column_hole[i]);
	}
}
END_TEST

START_TEST(a_target_seen_unchanged_after_a_hole_moved_after_it)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	int64_t since;

	add_point(&series, 0, 0, 10, 10, false);
	add_point(&series, 10, 0, 10, 10, false);
	add_hole(&series, 100, 2100, 199);
	add_point(&series, 3500, 10, 10, 10, false); /* ticks from 2,100 ms on had no record */
	series_cpu(&series, 10 * MS, &columns);
	near(column_mean[3], 0.01);
	near(column_mean[2], 0);
	ck_assert(column_hole[0] && column_hole[1]);

	/* Of another writer; before; and in the tick that ends it, which takes its time. */
	ck_assert(!series_moved_since(&series.holes, 1, 50 * MS, 2101 * MS, 10 * MS, &since));
	ck_assert_int_eq(since, 2091 * MS);
	ck_assert(!series_moved_since(&series.holes, 0, 50 * MS, 90 * MS, 10 * MS, &since));
	ck_assert(series_moved_since(&series.holes, 0, 50 * MS, 2105 * MS, MS, &since));
	ck_assert_int_eq(since, 100 * MS);
	ck_assert(series_moved_since(&series.holes, 0, 102 * MS, 2105 * MS, MS, &since));
	ck_assert_int_eq(since, 102 * MS);
	/* The sampler was stopped in the middle of a tick, after other targets were read. */
	ck_assert(series_moved_since(&series.holes, 0, 90 * MS, 2095 * MS, 10 * MS, &since));
	ck_assert_int_eq(since, 100 * MS);
}
END_TEST

START_TEST(counter_that_steps_back_is_unknown)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);

	add_point(&series, 0, 500, 10, 10, false);
	add_point(&series, 1000, 100, 10, 10, false);
	add_point(&series, 2000, 200, 10, 10, false);
	series_cpu(&series, 1000 * MS, &columns);
	ck_assert(isnan(column_mean[0]));
	near(column_mean[1], 0.1);
}
END_TEST

START_TEST(memory_between_samples_is_seen_by_its_mark)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 2000);

	burst(&series);
	series_memory(&series, &columns);
	near(column_peak[0], 10);
	near(column_peak[2], 50);
	near(column_mean[2], 10);
	/* The mark stays where it is; the memory is gone. */
	near(column_mean[3], 10);
}
END_TEST

START_TEST(time_above_the_threshold_is_that_of_the_burst)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 10 * MS, .threshold = 0.5 };
	struct series_above above = { .ns = 7 };

	ck_assert(!series_above(&series, &rule, &above));
	ck_assert_uint_eq(above.ns, 7);
	burst(&series);
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_uint_eq(above.ns, 20 * MS);
	rule.threshold = 2;
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_uint_eq(above.ns, 0);
}
END_TEST

START_TEST(time_above_goes_on_while_nothing_new_is_to_be_read)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 50 * MS, .threshold = 0.1 };
	struct series_above above = { .ns = 7 };

	for (int64_t ms = 0; ms <= 10; ms++)
		add_point(&series, ms, (uint64_t)ms, 10, 10, false);
	add_point(&series, 200, 10, 10, 10, false);
	/* The burst, of which a tenth of the window is enough. */
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_uint_eq(above.ns, 10 * MS);
}
END_TEST

/* A core for 3.8 s: the average over a second is above 70 % for 3.4 s, the picture for all of them. */
START_TEST(a_burst_is_above_for_as_long_as_it_is)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 1000 * MS, .threshold = 0.7 };
	struct series_above above;
	uint64_t cpu_ms = 0;

	for (int64_t ms = -10000; ms <= 8000; ms += 10) {
		cpu_ms += ms > -800 && ms <= 3000 ? 10 : 0;
		add_point(&series, ms, cpu_ms, 10, 10, false);
	}
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_msg(llabs((long long)above.ns - 3800 * MS) <= 100 * MS, "%ju ms", (uintmax_t)(above.ns / MS));
	ck_assert(above.has_before);
	ck_assert_double_lt(above.before, 0.001);
	/* It goes on until the end of the recording. */
	series.count -= 500;
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_msg(llabs((long long)above.ns - 3800 * MS) <= 100 * MS, "%ju ms", (uintmax_t)(above.ns / MS));
	/* Half of each 100 ms: no moment is above 40 % of a core, and each window is. */
	series.count = 0;
	rule.threshold = 0.4;
	cpu_ms = 0;
	for (int64_t ms = 0; ms <= 4000; ms += 10) {
		cpu_ms += ms % 100 < 50 ? 10 : 0;
		add_point(&series, ms, cpu_ms, 10, 10, false);
	}
	ck_assert(series_above(&series, &rule, &above));
	ck_assert_uint_gt(above.ns, 3800 * MS);
}
END_TEST

/* A tenth of a core; in five seconds it becomes a whole one. */
START_TEST(the_average_before_is_that_before_the_rise)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = 1000 * MS, .threshold = 0.9 };
	struct series_above above;
	double cpu_ms = 0;

	for (int64_t ms = -20000; ms <= 3000; ms += 10) {
		cpu_ms += 10 * (ms < -5000 ? 0.1 : ms < 0 ? 0.1 + 0.9 * (double)(ms + 5000) / 5000 : 1);
		add_point(&series, ms, (uint64_t)cpu_ms, 10, 10, false);
	}
	ck_assert(series_above(&series, &rule, &above));
	ck_assert(above.has_before);
	ck_assert_double_eq_tol(above.before, 0.1, 0.02);
	/* It was above from the first moment on. */
	rule.threshold = 0.05;
	ck_assert(series_above(&series, &rule, &above));
	ck_assert(!above.has_before);
}
END_TEST

START_TEST(time_that_steps_back_is_straightened)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 100);

	add_point(&series, 100, 0, 10, 10, false);
	add_point(&series, 50, 10, 10, 10, false);
	add_point(&series, 100, 20, 10, 10, false);
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
	ck_assert(isnan(column_peak[0]) && isnan(column_mean[COLUMNS - 1]));
	series_memory(&series, &columns);
	ck_assert(isnan(column_peak[0]) && isnan(column_mean[COLUMNS - 1]));
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
	ck_assert(isnan(column_mean[2]));
	series_release(&series);
}
END_TEST

START_TEST(without_memory_for_its_holes_a_picture_is_unknown_and_says_so)
{
	AUTO(series_release) struct series series = { 0 };
	struct series_columns columns = columns_of(0, 4000);
	unsigned blank = 0;

	series_with_hole(&series);
	ck_assert_int_eq(output_code(EXIT_SUCCESS), EXIT_SUCCESS);
	torture_arm(2);
	series_cpu(&series, 100 * MS, &columns);
	ck_assert(torture_disarm());
	for (size_t i = 0; i < COLUMNS; i++)
		blank += isnan(column_mean[i]) && isnan(column_peak[i]);
	ck_assert_uint_eq(blank, COLUMNS);
	ck_assert_int_ne(output_code(EXIT_SUCCESS), EXIT_SUCCESS);
}
END_TEST

/* ---- peaks: rows of many targets, honest and hostile ---- */

static int ignore_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	(void)ctx;
	(void)walk;
	(void)row;
	return 0;
}

static const struct sample_walk_visit ignore = { .row = ignore_row };
static struct walking walking = { .visit = &ignore };
static struct peaks peaks;

static void tear_down(void)
{
	walking_release(&walking);
	free(peaks.target);
	peaks = (struct peaks){ 0 };
}

static int add(uint32_t id, int64_t at_ms, uint64_t cpu_ms, uint64_t memory)
{
	struct sample_walk_row row = { .at_ns = at_ms * MS };
	int r = find_target(&walking, id, &row.target);

	sample_set(&row.sample, SAMPLE_CPU, cpu_ms * (uint64_t)MS);
	sample_set(&row.sample, SAMPLE_MEMORY, memory);
	return r == 0 ? take_row(&walking, &row) : r;
}

static int declare(uint32_t id, const char *json)
{
	return on_target(&walking, id, json, strlen(json));
}

static const struct target_peak *first_peak(void)
{
	return &walking.walk.targets[0].peak;
}

START_TEST(the_busiest_comes_first_with_its_name)
{
	ck_assert_int_eq(declare(1, "{\"name\":\"idle\"}"), 0);
	ck_assert_int_eq(declare(7, "{\"name\":\"busy\"}"), 0);
	for (int t = 0; t <= 1000; t += 10) {
		ck_assert_int_eq(add(1, t, 5, 100), 0);
		ck_assert_int_eq(add(7, t, t < 500 ? 0 : (uint64_t)(t - 500) * 2, (uint64_t)t), 0);
	}
	ck_assert_int_eq(take_peaks(&walking.walk, &peaks), 0);
	ck_assert_uint_eq(peaks.count, 2);
	ck_assert_str_eq(peaks.target[0].name, "busy");
	ck_assert_double_eq_tol(peaks.target[0].cpu_cores, 2, 1e-9);
	ck_assert_uint_eq(peaks.target[0].memory_bytes, 1000);
	ck_assert_str_eq(peaks.target[1].name, "idle");
	ck_assert_double_eq_tol(peaks.target[1].cpu_cores, 0, 1e-9);
}
END_TEST

START_TEST(no_peak_is_seen_over_a_gap_or_a_counter_that_began_anew)
{
	ck_assert_int_eq(add(1, 0, 1000, 0), 0);
	on_gap(&walking);
	ck_assert_int_eq(add(1, 200, 9000, 0), 0);
	ck_assert_int_eq(add(1, 400, 10, 0), 0);
	ck_assert(!first_peak()->has_cpu);
	ck_assert_int_eq(add(1, 600, 110, 0), 0);
	ck_assert_double_eq_tol(first_peak()->cpu_cores, 0.5, 1e-9);
}
END_TEST

START_TEST(shorter_than_the_grain_is_no_window)
{
	ck_assert_int_eq(add(1, 0, 0, 0), 0);
	ck_assert_int_eq(add(1, 4, 4, 0), 0); /* a whole core for a tick of the scheduler */
	ck_assert_int_eq(add(1, 100, 10, 0), 0);
	ck_assert_double_eq_tol(first_peak()->cpu_cores, 0.1, 1e-9);
}
END_TEST

START_TEST(names_that_are_none_are_passed_over)
{
	ck_assert_int_eq(declare(1, "no json"), 0);
	ck_assert_int_eq(declare(1, "{\"name\":7}"), 0);
	ck_assert_int_eq(declare(1, "[]"), 0);
	ck_assert_str_eq(walking.walk.targets[0].name, "");
	ck_assert_int_eq(declare(1, "{\"name\":\"late\"}"), 0);
	ck_assert_int_eq(declare(1, "{\"name\":\"later\"}"), 0);
	ck_assert_str_eq(walking.walk.targets[0].name, "late");
}
END_TEST

START_TEST(more_targets_than_there_is_room_for_are_left_out)
{
	for (uint32_t id = 1; id <= PEAKS_MAX + 10; id++)
		ck_assert_int_eq(add(id * 65536, 0, 0, id), 0); /* ids that hash alike */
	ck_assert_int_eq(add(65536, 1, 0, 1u << 30), 0);
	ck_assert_int_eq(take_peaks(&walking.walk, &peaks), 0);
	ck_assert_uint_eq(peaks.count, PEAKS_MAX);
	ck_assert(peaks.cut);
	ck_assert_uint_eq(peaks.target[0].memory_bytes, 1u << 30);
}
END_TEST

START_TEST(rows_of_too_many_targets_are_counted)
{
	struct sample_row row = { 0 };

	for (uint32_t id = 1; id <= TARGETS_MAX; id++)
		ck_assert_int_eq(add(id, 0, 0, id), 0);
	row.target = TARGETS_MAX + 1;
	ck_assert_int_eq(on_row(&walking, &row), 0);
	ck_assert_uint_eq(walking.walk.dropped, 1);
	ck_assert_uint_eq(walking.walk.count, TARGETS_MAX);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = declare(1, "{\"name\":\"x\"}");
		for (uint32_t id = 1; r == 0 && id < 200; id++)
			r = add(id, 0, 0, 0);
		if (r == 0)
			r = take_peaks(&walking.walk, &peaks);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		tear_down();
	}
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
	tcase_add_test(tcase, what_a_hole_hides_is_no_spike);
	tcase_add_test(tcase, no_window_of_a_rule_is_told_from_a_hole);
	tcase_add_test(tcase, a_missed_slot_is_averaged_and_not_blanked);
	tcase_add_test(tcase, a_target_seen_unchanged_after_a_hole_moved_after_it);
	tcase_add_test(tcase, counter_that_steps_back_is_unknown);
	tcase_add_test(tcase, memory_between_samples_is_seen_by_its_mark);
	tcase_add_test(tcase, time_above_the_threshold_is_that_of_the_burst);
	tcase_add_test(tcase, time_above_goes_on_while_nothing_new_is_to_be_read);
	tcase_add_test(tcase, a_burst_is_above_for_as_long_as_it_is);
	tcase_add_test(tcase, the_average_before_is_that_before_the_rise);
	tcase_add_test(tcase, time_that_steps_back_is_straightened);
	tcase_add_test(tcase, empty_series_is_a_gap);
	tcase_add_test(tcase, allocations_that_fail_leave_a_gap_or_an_error);
	tcase_add_test(tcase, without_memory_for_its_holes_a_picture_is_unknown_and_says_so);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("peaks");
	tcase_add_checked_fixture(tcase, NULL, tear_down);
	tcase_add_test(tcase, the_busiest_comes_first_with_its_name);
	tcase_add_test(tcase, no_peak_is_seen_over_a_gap_or_a_counter_that_began_anew);
	tcase_add_test(tcase, shorter_than_the_grain_is_no_window);
	tcase_add_test(tcase, names_that_are_none_are_passed_over);
	tcase_add_test(tcase, more_targets_than_there_is_room_for_are_left_out);
	tcase_add_test(tcase, rows_of_too_many_targets_are_counted);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
