/* check_turnstile.c: whoever waits has his turn at the next yield, not when the scheduler happens to feel like it. */
#include "scene.h"
#include "daemon/engine/targets/fair_mutex.h"

#include <errno.h>
#include <stdatomic.h>

Suite *turnstile_suite(void);

static struct turnstile turnstile;
static _Atomic unsigned served;

static void *ask(void *argument)
{
	turnstile_enter(&turnstile);
	atomic_fetch_add(&served, 1);
	turnstile_leave(&turnstile);

	return argument;
}

/* Whoever has the gate while somebody is inside waits to be let in. */
static bool somebody_waits(void)
{
	if (pthread_mutex_trylock(&turnstile.gate) == EBUSY)
		return true;

	pthread_mutex_unlock(&turnstile.gate);

	return false;
}

START_TEST(one_yield_serves_who_waits)
{
	pthread_t thread;

	turnstile_init(&turnstile);
	turnstile_enter(&turnstile);
	for (unsigned round = 1; round <= 100; round++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, ask, NULL), 0);
		scene_wait_for(somebody_waits());
		ck_assert_uint_eq(atomic_load(&served), round - 1);
		turnstile_yield(&turnstile);
		ck_assert_uint_eq(atomic_load(&served), round);
		pthread_join(thread, NULL);
	}
	turnstile_leave(&turnstile);
	turnstile_release(&turnstile);
}
END_TEST

START_TEST(yielding_to_nobody_returns)
{
	turnstile_init(&turnstile);
	turnstile_enter(&turnstile);
	for (int i = 0; i < 1000; i++)
		turnstile_yield(&turnstile);
	ck_assert_int_eq(pthread_mutex_trylock(&turnstile.lock), EBUSY);
	turnstile_leave(&turnstile);
	turnstile_release(&turnstile);
}
END_TEST

Suite *turnstile_suite(void)
{
	Suite *suite = suite_create("turnstile");
	TCase *tcase = tcase_create("turns");

	tcase_add_test(tcase, one_yield_serves_who_waits);
	tcase_add_test(tcase, yielding_to_nobody_returns);
	suite_add_tcase(suite, tcase);

	return suite;
}
