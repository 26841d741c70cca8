/* check_tuning.c: options on their way to another thread: the latest win, and no memory is lost or freed by the wrong side. */
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "lib/source/source.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

Suite *tuning_suite(void);

static struct tuning_box box;

static void setup(void)
{
	box = (struct tuning_box){ 0 };
}

static void teardown(void)
{
	tuning_release(&box);
}

static void post(uint64_t interval_ns)
{
	struct sampler_options options = { .source = { .capacity = 10 }, .interval_ns = interval_ns };

	ck_assert_int_eq(tuning_post(&box, &options), 0);
}

START_TEST(what_is_posted_is_taken_once)
{
	ck_assert_ptr_null(tuning_take(&box));
	post(1);

	struct tuning *tuning = tuning_take(&box);

	ck_assert_ptr_nonnull(tuning);
	ck_assert_uint_eq(tuning->options.interval_ns, 1);
	ck_assert_ptr_nonnull(tuning->room);
	ck_assert_ptr_null(tuning_take(&box));
	tuning_return(&box, tuning);
}
END_TEST

START_TEST(of_several_the_last_one_counts)
{
	post(1);
	post(2);
	post(3);

	struct tuning *tuning = tuning_take(&box);

	ck_assert_uint_eq(tuning->options.interval_ns, 3);
	ck_assert_ptr_null(tuning_take(&box));
	tuning_return(&box, tuning);
}
END_TEST

START_TEST(a_second_one_may_come_back_before_the_first_was_collected)
{
	struct tuning *first, *second;

	post(1);
	first = tuning_take(&box);
	post(2);
	second = tuning_take(&box);
	tuning_return(&box, first);
	tuning_return(&box, second);
	post(3); /* frees both; the sanitizers and the count of allocations tell */
	ck_assert_ptr_null(atomic_load(&box.spent));
}
END_TEST

START_TEST(taking_and_returning_allocate_nothing)
{
	post(1);

	unsigned long before = torture_allocations();

	tuning_return(&box, tuning_take(&box));
	ck_assert_uint_eq(torture_allocations(), before);
}
END_TEST

START_TEST(without_memory_the_one_before_still_counts)
{
	struct sampler_options options = { .source = { .capacity = 10 }, .interval_ns = 2 };
	bool injected = true;

	for (long n = 1; injected; n++) {
		post(1);
		torture_arm(n);
		int r = tuning_post(&box, &options);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);

		struct tuning *tuning = tuning_take(&box);

		ck_assert_uint_eq(tuning->options.interval_ns, injected ? 1 : 2);
		tuning_return(&box, tuning);
	}
}
END_TEST

#define POSTS 20000

static _Atomic bool posted_all;

static void *take_all(void *ret_last)
{
	uint64_t *last = ret_last;

	for (;;) {
		bool over = atomic_load(&posted_all);
		struct tuning *tuning = tuning_take(&box);

		if (!tuning && over)
			return NULL;
		if (!tuning)
			continue;
		if (tuning->options.interval_ns <= *last || !tuning->room)
			return NULL; /* *last shows it */
		*last = tuning->options.interval_ns;
		tuning_return(&box, tuning);
	}
}

START_TEST(two_threads_hand_over_many)
{
	pthread_t thread;
	uint64_t last = 0;

	atomic_store(&posted_all, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_all, &last), 0);
	for (uint64_t i = 1; i <= POSTS; i++)
		post(i);
	atomic_store(&posted_all, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(last, POSTS);
}
END_TEST

Suite *tuning_suite(void)
{
	Suite *suite = suite_create("tuning");
	TCase *tcase = tcase_create("box");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_posted_is_taken_once);
	tcase_add_test(tcase, of_several_the_last_one_counts);
	tcase_add_test(tcase, a_second_one_may_come_back_before_the_first_was_collected);
	tcase_add_test(tcase, taking_and_returning_allocate_nothing);
	tcase_add_test(tcase, without_memory_the_one_before_still_counts);
	tcase_add_test(tcase, two_threads_hand_over_many);
	suite_add_tcase(suite, tcase);

	return suite;
}
