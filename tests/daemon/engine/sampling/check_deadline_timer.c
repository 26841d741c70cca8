/* check_deadline_timer.c: waiting that ends when it is called, in time and with a pulse. */
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/sampling/sampler.h"
#include "lib/base/base.h"
#include "lib/config/config.h"

#include <check.h>
#include <pthread.h>

Suite *deadline_timer_suite(void);

static struct deadline_timer deadline_timer;

static void setup(void)
{
	deadline_timer = (struct deadline_timer){ .clock = real_clock() };
}

static mono_t now(void)
{
	return clock_mono(&deadline_timer.clock);
}

START_TEST(it_sleeps_until_then_and_not_less)
{
	static const enum config_wait waits[] = { CONFIG_WAIT_SLEEP, CONFIG_WAIT_YIELD, CONFIG_WAIT_SPIN };

	for (int i = 0; i < 3; i++) {
		mono_t until = mono_add(now(), 3 * NS_PER_MS);

		deadline_timer_wait(&deadline_timer, until, waits[i]);
		ck_assert_int_ge(mono_diff(now(), until), 0);
	}
}
END_TEST

START_TEST(a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse)
{
	mono_t before = now();

	deadline_timer_sleep(&deadline_timer, before);
	ck_assert_uint_ge(deadline_timer_pulse(&deadline_timer).ns, before.ns);
	ck_assert_uint_le(deadline_timer_pulse(&deadline_timer).ns, now().ns);
}
END_TEST

START_TEST(who_was_called_does_not_wait_until_the_call_is_answered)
{
	mono_t far = mono_add(now(), 3600 * NS_PER_S);

	deadline_timer_call(&deadline_timer);
	deadline_timer_sleep(&deadline_timer, far);
	deadline_timer_wait(&deadline_timer, far, CONFIG_WAIT_SPIN);
	deadline_timer_wait(&deadline_timer, far, CONFIG_WAIT_YIELD);
	deadline_timer_answer(&deadline_timer);

	mono_t near = mono_add(now(), NS_PER_MS);

	deadline_timer_sleep(&deadline_timer, near);
	ck_assert_int_ge(mono_diff(now(), near), 0);
}
END_TEST

static void *sleep_long(void *unused)
{
	deadline_timer_sleep(&deadline_timer, mono_add(now(), 3600 * NS_PER_S));
	return unused;
}

START_TEST(a_long_sleep_has_a_pulse_and_ends_when_it_is_called)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_long, NULL), 0);
	for (int i = 0; i < 3; i++) {
		uint64_t before = deadline_timer_pulse(&deadline_timer).ns;

		while (deadline_timer_pulse(&deadline_timer).ns == before) /* the suite's time limit bounds it */
			real_clock_sleep_until(mono_add(now(), NS_PER_MS));
	}
	deadline_timer_call(&deadline_timer);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

Suite *deadline_timer_suite(void)
{
	Suite *suite = suite_create("deadline_timer");
	TCase *tcase = tcase_create("waiting");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, it_sleeps_until_then_and_not_less);
	tcase_add_test(tcase, a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse);
	tcase_add_test(tcase, who_was_called_does_not_wait_until_the_call_is_answered);
	tcase_add_test(tcase, a_long_sleep_has_a_pulse_and_ends_when_it_is_called);
	suite_add_tcase(suite, tcase);

	return suite;
}
