/* check_clocks.c: threads are started without signals, and waited for with a limit. */
#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"

#include <check.h>
#include <signal.h>
#include <stdatomic.h>

Suite *clocks_suite(void);

struct seen {
	sigset_t mask;
	atomic_bool may_end;
};

static void *look(void *ctx)
{
	struct seen *seen = ctx;

	pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
	while (!atomic_load(&seen->may_end))
		sched_yield();

	return NULL;
}

START_TEST(signals_are_blocked_in_it_and_as_before_in_the_caller)
{
	struct seen seen = { .may_end = true };
	sigset_t before, after;
	pthread_t thread;

	sigemptyset(&before);
	sigaddset(&before, SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ck_assert_int_eq(thread_start(&thread, look, &seen), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int number = 1; number < 32; number++) {
		ck_assert_int_eq(sigismember(&after, number), number == SIGUSR1);
		if (number != SIGKILL && number != SIGSTOP)
			ck_assert_msg(sigismember(&seen.mask, number) == 1, "signal %d", number);
	}
}
END_TEST

START_TEST(the_wait_for_its_end_is_limited)
{
	struct seen seen = { .may_end = false };
	pthread_t thread;

	ck_assert_int_eq(thread_start(&thread, look, &seen), 0);
	ck_assert(!thread_join_within(thread, 0));
	ck_assert(!thread_join_within(thread, 20 * NS_PER_MS));
	atomic_store(&seen.may_end, true);
	ck_assert(thread_join_within(thread, 60 * NS_PER_S));
}
END_TEST

Suite *clocks_suite(void)
{
	Suite *suite = suite_create("clocks");
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, signals_are_blocked_in_it_and_as_before_in_the_caller);
	tcase_add_test(tcase, the_wait_for_its_end_is_limited);
	suite_add_tcase(suite, tcase);

	return suite;
}
