/* check_sleeper.c: waiting that ends when it is called, in time and with a pulse. */
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/sampling/sampler.h"
#include "lib/base/base.h"
#include "lib/config/config.h"

#include <check.h>
#include <pthread.h>

Suite *sleeper_suite(void);

static struct sleeper sleeper;

static void setup(void)
{
	sleeper = (struct sleeper){ .clock = realclock() };
}

static mono_t now(void)
{
	return clock_mono(&sleeper.clock);
}

START_TEST(it_sleeps_until_then_and_not_less)
{
	static const enum config_wait waits[] = { CONFIG_WAIT_SLEEP, CONFIG_WAIT_YIELD, CONFIG_WAIT_SPIN };

	for (int i = 0; i < 3; i++) {
		mono_t until = mono_add(now(), 3 * NS_PER_MS);

		sleeper_wait(&sleeper, until, waits[i]);
		ck_assert_int_ge(mono_diff(now(), until), 0);
	}
}
END_TEST

START_TEST(a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse)
{
	mono_t before = now();

	sleeper_sleep(&sleeper, before);
	ck_assert_uint_ge(sleeper_pulse(&sleeper).ns, before.ns);
	ck_assert_uint_le(sleeper_pulse(&sleeper).ns, now().ns);
}
END_TEST

START_TEST(who_was_called_does_not_wait_until_the_call_is_answered)
{
	mono_t far = mono_add(now(), 3600 * NS_PER_S);

	sleeper_call(&sleeper);
	sleeper_sleep(&sleeper, far);
	sleeper_wait(&sleeper, far, CONFIG_WAIT_SPIN);
	sleeper_wait(&sleeper, far, CONFIG_WAIT_YIELD);
	sleeper_answer(&sleeper);

	mono_t near = mono_add(now(), NS_PER_MS);

	sleeper_sleep(&sleeper, near);
	ck_assert_int_ge(mono_diff(now(), near), 0);
}
END_TEST

static void *sleep_long(void *unused)
{
	sleeper_sleep(&sleeper, mono_add(now(), 3600 * NS_PER_S));
	return unused;
}

START_TEST(a_long_sleep_has_a_pulse_and_ends_when_it_is_called)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_long, NULL), 0);
	for (int i = 0; i < 3; i++) {
		uint64_t before = sleeper_pulse(&sleeper).ns;

		while (sleeper_pulse(&sleeper).ns == before) /* the suite's time limit bounds it */
			realclock_sleep_until(mono_add(now(), NS_PER_MS));
	}
	sleeper_call(&sleeper);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

Suite *sleeper_suite(void)
{
	Suite *suite = suite_create("sleeper");
	TCase *tcase = tcase_create("waiting");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, it_sleeps_until_then_and_not_less);
	tcase_add_test(tcase, a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse);
	tcase_add_test(tcase, who_was_called_does_not_wait_until_the_call_is_answered);
	tcase_add_test(tcase, a_long_sleep_has_a_pulse_and_ends_when_it_is_called);
	suite_add_tcase(suite, tcase);

	return suite;
}
