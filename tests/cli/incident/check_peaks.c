/* check_peaks.c: who did most, among rows of many targets, honest and hostile. */
#include "cli/incident/series.h"
#include "torture.h"
#include "lib/model/sample.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *peaks_suite(void);

#define MS INT64_C(1000000)

static struct peaks peaks;

static void tear_down(void)
{
	peaks_release(&peaks);
}

static int add(uint32_t id, int64_t at_ms, uint64_t cpu_ms, uint64_t memory)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_ms * (uint64_t)MS);
	sample_set(&sample, SAMPLE_MEMORY, memory);

	return peaks_add(&peaks, id, at_ms * MS, &sample);
}

static int declare(uint32_t id, const char *json)
{
	return peaks_declare(&peaks, id, json, strlen(json));
}

START_TEST(the_busiest_comes_first_with_its_name)
{
	ck_assert_int_eq(declare(1, "{\"name\":\"idle\"}"), 0);
	ck_assert_int_eq(declare(7, "{\"name\":\"busy\"}"), 0);
	for (int t = 0; t <= 1000; t += 10) {
		ck_assert_int_eq(add(1, t, 5, 100), 0);
		ck_assert_int_eq(add(7, t, t < 500 ? 0 : (uint64_t)(t - 500) * 2, (uint64_t)t), 0);
	}
	peaks_sort(&peaks);
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
	peaks_gap(&peaks);
	ck_assert_int_eq(add(1, 200, 9000, 0), 0);
	ck_assert_int_eq(add(1, 400, 10, 0), 0);
	ck_assert(!peaks.target[0].has_cpu);
	ck_assert_int_eq(add(1, 600, 110, 0), 0);
	ck_assert_double_eq_tol(peaks.target[0].cpu_cores, 0.5, 1e-9);
}
END_TEST

START_TEST(shorter_than_the_grain_is_no_window)
{
	ck_assert_int_eq(add(1, 0, 0, 0), 0);
	ck_assert_int_eq(add(1, 4, 4, 0), 0); /* a whole core for a tick of the scheduler */
	ck_assert_int_eq(add(1, 100, 10, 0), 0);
	ck_assert_double_eq_tol(peaks.target[0].cpu_cores, 0.1, 1e-9);
}
END_TEST

START_TEST(names_that_are_none_are_passed_over)
{
	ck_assert_int_eq(declare(1, "no json"), 0);
	ck_assert_int_eq(declare(1, "{\"name\":7}"), 0);
	ck_assert_int_eq(declare(1, "[]"), 0);
	ck_assert_str_eq(peaks.target[0].name, "");
	ck_assert_int_eq(declare(1, "{\"name\":\"late\"}"), 0);
	ck_assert_int_eq(declare(1, "{\"name\":\"later\"}"), 0);
	ck_assert_str_eq(peaks.target[0].name, "late");
}
END_TEST

START_TEST(more_targets_than_there_is_room_for_are_left_out)
{
	for (uint32_t id = 1; id <= PEAKS_TARGETS_MAX + 10; id++)
		ck_assert_int_eq(add(id * 65536, 0, 0, id), 0); /* ids that want the same slots */
	ck_assert_uint_eq(peaks.count, PEAKS_TARGETS_MAX);
	ck_assert(peaks.cut);
	ck_assert_int_eq(add(65536, 1, 0, 1u << 30), 0);
	peaks_sort(&peaks);
	ck_assert_uint_eq(peaks.target[0].memory_bytes, 1u << 30);
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
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		peaks_release(&peaks);
	}
}
END_TEST

Suite *peaks_suite(void)
{
	Suite *suite = suite_create("peaks");
	TCase *tcase = tcase_create("peaks");

	tcase_add_checked_fixture(tcase, NULL, tear_down);
	tcase_add_test(tcase, the_busiest_comes_first_with_its_name);
	tcase_add_test(tcase, no_peak_is_seen_over_a_gap_or_a_counter_that_began_anew);
	tcase_add_test(tcase, shorter_than_the_grain_is_no_window);
	tcase_add_test(tcase, names_that_are_none_are_passed_over);
	tcase_add_test(tcase, more_targets_than_there_is_room_for_are_left_out);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
