/*
 * check_fair_mutex.c: a waiter gets the mutex at the next yield, not when the scheduler happens
 * to feel like it.
 */
#include "scene.h"
#include "daemon/engine/targets/fair_mutex.h"

#include <errno.h>
#include <stdatomic.h>

Suite *fair_mutex_suite(void);

static struct fair_mutex fair_mutex;
static _Atomic unsigned served;

static void *ask(void *argument)
{
	fair_mutex_enter(&fair_mutex);
	atomic_fetch_add(&served, 1);
	fair_mutex_leave(&fair_mutex);

	return argument;
}

/* A thread that holds the gate while another holds the lock waits for the lock. */
static bool somebody_waits(void)
{
	if (pthread_mutex_trylock(&fair_mutex.gate) == EBUSY)
		return true;

	pthread_mutex_unlock(&fair_mutex.gate);

	return false;
}

START_TEST(one_yield_serves_who_waits)
{
	pthread_t thread;

	fair_mutex_init(&fair_mutex);
	fair_mutex_enter(&fair_mutex);
	for (unsigned round = 1; round <= 100; round++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, ask, NULL), 0);
		scene_wait_for(somebody_waits());
		ck_assert_uint_eq(atomic_load(&served), round - 1);
		fair_mutex_yield(&fair_mutex);
		ck_assert_uint_eq(atomic_load(&served), round);
		pthread_join(thread, NULL);
	}
	fair_mutex_leave(&fair_mutex);
	fair_mutex_release(&fair_mutex);
}
END_TEST

START_TEST(yielding_to_nobody_returns)
{
	fair_mutex_init(&fair_mutex);
	fair_mutex_enter(&fair_mutex);
	for (int i = 0; i < 1000; i++)
		fair_mutex_yield(&fair_mutex);
	ck_assert_int_eq(pthread_mutex_trylock(&fair_mutex.lock), EBUSY);
	fair_mutex_leave(&fair_mutex);
	fair_mutex_release(&fair_mutex);
}
END_TEST

Suite *fair_mutex_suite(void)
{
	Suite *suite = suite_create("fair_mutex");
	TCase *tcase = tcase_create("turns");

	tcase_add_test(tcase, one_yield_serves_who_waits);
	tcase_add_test(tcase, yielding_to_nobody_returns);
	suite_add_tcase(suite, tcase);

	return suite;
}
