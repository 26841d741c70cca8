/* check_spsc_queue.c: what goes in comes out, once and in order, also between two threads. */
#include "daemon/engine/sampling/sampler.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

Suite *spsc_queue_suite(void);

#define ITEMS 1000000u

static struct spsc_queue *make(uint32_t capacity)
{
	struct spsc_queue *spsc_queue = NULL;

	ck_assert_int_eq(spsc_queue_new(capacity, &spsc_queue), 0);

	return spsc_queue;
}

static bool put(struct spsc_queue *spsc_queue, uint32_t what)
{
	return spsc_queue_put(spsc_queue, (struct spsc_queue_item){ what, (void *)(uintptr_t)(what * 3ul) });
}

static void takes(struct spsc_queue *spsc_queue, uint32_t what)
{
	struct spsc_queue_item item = { 0 };

	ck_assert(spsc_queue_take(spsc_queue, &item));
	ck_assert_uint_eq(item.what, what);
	ck_assert_ptr_eq(item.pointer, (void *)(uintptr_t)(what * 3ul));
}

START_TEST(first_in_first_out)
{
	struct spsc_queue *spsc_queue = make(8);

	for (uint32_t i = 1; i <= 5; i++)
		ck_assert(put(spsc_queue, i));
	for (uint32_t i = 1; i <= 5; i++)
		takes(spsc_queue, i);
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(empty_gives_nothing_and_touches_nothing)
{
	struct spsc_queue *spsc_queue = make(2);
	struct spsc_queue_item item = { 7, &item };

	ck_assert(!spsc_queue_take(spsc_queue, &item));
	ck_assert_uint_eq(item.what, 7);
	ck_assert_ptr_eq(item.pointer, &item);
	put(spsc_queue, 1);
	takes(spsc_queue, 1);
	ck_assert(!spsc_queue_take(spsc_queue, &item));
	spsc_queue_free(spsc_queue);
	spsc_queue_free(NULL);
}
END_TEST

START_TEST(full_refuses_and_keeps_what_it_has)
{
	struct spsc_queue *spsc_queue = make(4);

	for (uint32_t i = 1; i <= 4; i++) {
		ck_assert(spsc_queue_room(spsc_queue));
		ck_assert(put(spsc_queue, i));
	}
	ck_assert(!spsc_queue_room(spsc_queue));
	ck_assert(!put(spsc_queue, 5));
	takes(spsc_queue, 1);
	ck_assert(spsc_queue_room(spsc_queue));
	ck_assert(put(spsc_queue, 6));
	for (uint32_t i = 2; i <= 4; i++)
		takes(spsc_queue, i);
	takes(spsc_queue, 6);
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(goes_round_and_round)
{
	struct spsc_queue *spsc_queue = make(4);
	uint32_t in = 0, out = 0;

	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 3; i++)
			ck_assert(put(spsc_queue, in++));
		for (int i = 0; i < 3; i++)
			takes(spsc_queue, out++);
	}
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(holds_one_when_it_is_made_for_one)
{
	struct spsc_queue *spsc_queue = make(1);

	ck_assert(put(spsc_queue, 1));
	ck_assert(!put(spsc_queue, 2));
	takes(spsc_queue, 1);
	ck_assert(put(spsc_queue, 3));
	spsc_queue_free(spsc_queue); /* what is inside is forgotten */
}
END_TEST

START_TEST(only_making_it_allocates)
{
	struct spsc_queue *spsc_queue = NULL;

	torture_arm(1);
	int r = spsc_queue_new(16, &spsc_queue);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_ptr_null(spsc_queue);

	spsc_queue = make(16);
	unsigned long before = torture_allocations();
	struct spsc_queue_item item;

	for (uint32_t i = 0; i < 16; i++)
		put(spsc_queue, i);
	while (spsc_queue_take(spsc_queue, &item))
		continue;
	ck_assert_uint_eq(torture_allocations(), before);
	spsc_queue_free(spsc_queue);
}
END_TEST

/*
 * What the item points to was written before it was handed over, and is seen so by whoever takes
 * it.
 */
static uint32_t payload[256];

static void *produce(void *argument)
{
	for (uint32_t i = 0; i < ITEMS;) {
		if (!spsc_queue_room(argument)) {
			sched_yield();
			continue;
		}
		payload[i % 256] = i;
		i += spsc_queue_put(argument, (struct spsc_queue_item){ i, &payload[i % 256] });
	}

	return NULL;
}

START_TEST(two_threads_lose_nothing)
{
	struct spsc_queue *spsc_queue = make(64); /* fewer than payloads: none is written again before it was read */
	struct spsc_queue_item item;
	uint32_t wrong = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, produce, spsc_queue), 0);
	for (uint32_t i = 0; i < ITEMS;) {
		if (!spsc_queue_take(spsc_queue, &item)) {
			sched_yield();
			continue;
		}
		wrong += item.what != i || *(uint32_t *)item.pointer != i;
		i++;
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(wrong, 0);
	ck_assert(!spsc_queue_take(spsc_queue, &item));
	spsc_queue_free(spsc_queue);
}
END_TEST

Suite *spsc_queue_suite(void)
{
	Suite *suite = suite_create("spsc_queue");
	TCase *tcase = tcase_create("queue");

	tcase_add_test(tcase, first_in_first_out);
	tcase_add_test(tcase, empty_gives_nothing_and_touches_nothing);
	tcase_add_test(tcase, full_refuses_and_keeps_what_it_has);
	tcase_add_test(tcase, goes_round_and_round);
	tcase_add_test(tcase, holds_one_when_it_is_made_for_one);
	tcase_add_test(tcase, only_making_it_allocates);
	tcase_add_test(tcase, two_threads_lose_nothing);
	suite_add_tcase(suite, tcase);

	return suite;
}
