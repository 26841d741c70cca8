/*
 * check_incident_worker.c: the order in which the worker takes its jobs, what it may take in the
 * middle of another, and what a work waits for before it is sealed.
 */
#include "daemon/engine/incident/incident_worker.c"

#include <check.h>

Suite *incident_worker_suite(void);

static struct job_queue queue;
static struct incident_work works[6];
static struct job *jobs[6];

static void setup(void)
{
	queue_init(&queue);
	for (int i = 0; i < 6; i++) {
		works[i] = (struct incident_work){ .seal = { .kind = JOB_SEAL, .work = &works[i] } };
		jobs[i] = &works[i].seal;
	}
}

static void teardown(void)
{
	queue_release(&queue);
}

/* The number of the next one; -1: there is none, and it is the end. */
static int next(void)
{
	struct clock clock = real_clock();
	struct job *job = NULL;
	int r = queue_next(&queue, &clock, (mono_t){ 0 }, &job);

	ck_assert_int_ne(r, QUEUE_DUE);

	return r == 0 ? (int)(job->work - works) : -1;
}

START_TEST(what_is_urgent_comes_before_what_was_put_earlier)
{
	queue_put(&queue, jobs[0], JOB_LAST);
	queue_put(&queue, jobs[1], JOB_URGENT);
	queue_put(&queue, jobs[2], JOB_LAST);
	queue_put(&queue, jobs[3], JOB_URGENT);
	queue_put(&queue, jobs[4], JOB_FIRST);
	queue_stop(&queue);
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
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_put(&queue, jobs[1], JOB_LAST);
	queue_put(&queue, jobs[2], JOB_URGENT);
	queue_put(&queue, jobs[3], JOB_LAST);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(what_is_queued_is_not_queued_twice)
{
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_put(&queue, jobs[0], JOB_URGENT);
	ck_assert_int_eq(next(), 0);
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(in_the_middle_of_another_only_urgent_ones_are_taken)
{
	ck_assert_ptr_null(queue_next_urgent(&queue));
	queue_put(&queue, jobs[0], JOB_LAST);
	ck_assert_ptr_null(queue_next_urgent(&queue));
	queue_put(&queue, jobs[1], JOB_URGENT);
	ck_assert_ptr_eq(queue_next_urgent(&queue), jobs[1]);
	ck_assert_ptr_null(queue_next_urgent(&queue));
	ck_assert(!queue_stopping(&queue));
	queue_stop(&queue);
	ck_assert(queue_stopping(&queue));
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(a_work_is_sealed_when_it_was_handed_over_and_waits_for_nothing)
{
	work_await(&queue, &works[0]);
	work_await(&queue, &works[0]);
	work_hand_over(&queue, &works[0]);
	work_finished(&queue, &works[0]);
	ck_assert_ptr_null(queue.first);
	work_finished(&queue, &works[0]);
	ck_assert_ptr_eq(queue.first, jobs[0]);
	ck_assert_ptr_null(queue_next_urgent(&queue)); /* sealing can wait */
	work_hand_over(&queue, &works[1]);             /* waits for nothing */
	work_await(&queue, &works[2]);
	work_finished(&queue, &works[2]); /* not handed over yet */
	work_hand_over(&queue, &works[2]);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(a_stop_is_due_at_once_for_what_was_to_come_later)
{
	struct clock clock = real_clock();
	mono_t later = mono_add(clock_mono(&clock), 3600 * NS_PER_S);
	struct job *job;

	ck_assert_int_eq(queue_next(&queue, &clock, clock_mono(&clock), &job), QUEUE_DUE);
	queue_put(&queue, jobs[0], JOB_LAST);
	ck_assert_int_eq(queue_next(&queue, &clock, later, &job), 0);
	queue_stop(&queue);
	ck_assert_int_eq(queue_next(&queue, &clock, later, &job), QUEUE_DUE);
	ck_assert_int_eq(next(), -1);
}
END_TEST

Suite *incident_worker_suite(void)
{
	Suite *suite = suite_create("incident_worker");
	TCase *tcase = tcase_create("queue");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_urgent_comes_before_what_was_put_earlier);
	tcase_add_test(tcase, what_comes_last_is_last_also_behind_urgent_ones_that_were_alone);
	tcase_add_test(tcase, what_is_queued_is_not_queued_twice);
	tcase_add_test(tcase, in_the_middle_of_another_only_urgent_ones_are_taken);
	tcase_add_test(tcase, a_work_is_sealed_when_it_was_handed_over_and_waits_for_nothing);
	tcase_add_test(tcase, a_stop_is_due_at_once_for_what_was_to_come_later);
	suite_add_tcase(suite, tcase);

	return suite;
}
