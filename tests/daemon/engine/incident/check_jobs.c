/*
 * check_jobs.c: the order in which jobs come out, and what a worker may take in the middle of
 * another.
 */
#include "daemon/engine/incident/incident_worker.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"

#include <check.h>

Suite *jobs_suite(void);

static struct jobs jobs;
static struct job all[6];

static void setup(void)
{
	jobs_init(&jobs);
	for (int i = 0; i < 6; i++)
		all[i] = (struct job){ .kind = i };
}

static void teardown(void)
{
	jobs_release(&jobs);
}

/* The kind of the next one; -1: there is none, and it is the end. */
static int next(void)
{
	struct clock clock = real_clock();
	struct job *job = NULL;
	int r = jobs_next(&jobs, &clock, (mono_t){ 0 }, &job);

	ck_assert_int_ne(r, JOBS_DUE);

	return r == 0 ? job->kind : -1;
}

START_TEST(what_is_urgent_comes_before_what_was_put_earlier)
{
	jobs_put(&jobs, &all[0], JOBS_LAST);
	jobs_put(&jobs, &all[1], JOBS_URGENT);
	jobs_put(&jobs, &all[2], JOBS_LAST);
	jobs_put(&jobs, &all[3], JOBS_URGENT);
	jobs_put(&jobs, &all[4], JOBS_FIRST);
	jobs_stop(&jobs);
	ck_assert_int_eq(next(), 4);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(what_comes_last_is_last_also_behind_urgent_ones_that_were_alone)
{
	jobs_put(&jobs, &all[0], JOBS_URGENT);
	jobs_put(&jobs, &all[1], JOBS_LAST);
	jobs_put(&jobs, &all[2], JOBS_URGENT);
	jobs_put(&jobs, &all[3], JOBS_LAST);
	jobs_stop(&jobs);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(in_the_middle_of_another_only_urgent_ones_are_taken)
{
	ck_assert_ptr_null(jobs_urgent(&jobs));
	jobs_put(&jobs, &all[0], JOBS_LAST);
	ck_assert_ptr_null(jobs_urgent(&jobs));
	jobs_put(&jobs, &all[1], JOBS_URGENT);
	ck_assert_ptr_eq(jobs_urgent(&jobs), &all[1]);
	ck_assert_ptr_null(jobs_urgent(&jobs));
	ck_assert(!jobs_stopping(&jobs));
	jobs_stop(&jobs);
	ck_assert(jobs_stopping(&jobs));
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(one_that_was_put_back_is_not_urgent)
{
	struct jobs_pending pending = { 0 };

	jobs_put(&jobs, &all[0], JOBS_URGENT);
	ck_assert_int_eq(next(), 0);
	jobs_begin(&jobs, &pending);
	ck_assert(jobs_park(&jobs, &pending, &all[0]));
	jobs_finish(&jobs, &pending);
	ck_assert_ptr_null(jobs_urgent(&jobs));
	jobs_stop(&jobs);
	ck_assert_int_eq(next(), 0);
}
END_TEST

Suite *jobs_suite(void)
{
	Suite *suite = suite_create("jobs");
	TCase *tcase = tcase_create("jobs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_urgent_comes_before_what_was_put_earlier);
	tcase_add_test(tcase, what_comes_last_is_last_also_behind_urgent_ones_that_were_alone);
	tcase_add_test(tcase, in_the_middle_of_another_only_urgent_ones_are_taken);
	tcase_add_test(tcase, one_that_was_put_back_is_not_urgent);
	suite_add_tcase(suite, tcase);

	return suite;
}
