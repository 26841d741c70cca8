/*
 * check_option_handoff.c: options on their way to another thread: the latest win, and no memory is
 * lost or freed by the wrong side.
 */
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "lib/source/source.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

Suite *option_handoff_suite(void);

static struct option_handoff_box box;

static void setup(void)
{
	box = (struct option_handoff_box){ 0 };
}

static void teardown(void)
{
	option_handoff_release(&box);
}

static void post(uint64_t interval_ns)
{
	struct sampler_options options = { .source = { .capacity = 10, .interval_ns = interval_ns } };

	ck_assert_int_eq(option_handoff_post(&box, &options), 0);
}

START_TEST(what_is_posted_is_taken_once)
{
	ck_assert_ptr_null(option_handoff_take(&box));
	post(1);

	struct option_handoff *option_handoff = option_handoff_take(&box);

	ck_assert_ptr_nonnull(option_handoff);
	ck_assert_uint_eq(option_handoff->options.source.interval_ns, 1);
	ck_assert_ptr_nonnull(option_handoff->room);
	ck_assert_ptr_null(option_handoff_take(&box));
	option_handoff_return(&box, option_handoff);
}
END_TEST

START_TEST(of_several_the_last_one_counts)
{
	post(1);
	post(2);
	post(3);

	struct option_handoff *option_handoff = option_handoff_take(&box);

	ck_assert_uint_eq(option_handoff->options.source.interval_ns, 3);
	ck_assert_ptr_null(option_handoff_take(&box));
	option_handoff_return(&box, option_handoff);
}
END_TEST

START_TEST(a_second_one_may_come_back_before_the_first_was_collected)
{
	struct option_handoff *first, *second;

	post(1);
	first = option_handoff_take(&box);
	post(2);
	second = option_handoff_take(&box);
	option_handoff_return(&box, first);
	option_handoff_return(&box, second);
	post(3); /* frees both; the sanitizers and the count of allocations tell */
	ck_assert_ptr_null(atomic_load(&box.spent));
}
END_TEST

START_TEST(taking_and_returning_allocate_nothing)
{
	post(1);

	unsigned long before = torture_allocations();

	option_handoff_return(&box, option_handoff_take(&box));
	ck_assert_uint_eq(torture_allocations(), before);
}
END_TEST

START_TEST(without_memory_the_one_before_still_counts)
{
	struct sampler_options options = { .source = { .capacity = 10, .interval_ns = 2 } };
	bool injected = true;

	for (long n = 1; injected; n++) {
		post(1);
		torture_arm(n);
		int r = option_handoff_post(&box, &options);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);

		struct option_handoff *option_handoff = option_handoff_take(&box);

		ck_assert_uint_eq(option_handoff->options.source.interval_ns, injected ? 1 : 2);
		option_handoff_return(&box, option_handoff);
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
		struct option_handoff *option_handoff = option_handoff_take(&box);

		if (!option_handoff && over)
			return NULL;
		if (!option_handoff)
			continue;
		if (option_handoff->options.source.interval_ns <= *last || !option_handoff->room)
			return NULL; /* *last shows it */
		*last = option_handoff->options.source.interval_ns;
		option_handoff_return(&box, option_handoff);
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

Suite *option_handoff_suite(void)
{
	Suite *suite = suite_create("option_handoff");
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
