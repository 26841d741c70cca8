/* check_handover.c: what goes in comes out, once and in order, also between two threads. */
#include "daemon/engine/sampling/sampler.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

Suite *handover_suite(void);

#define ITEMS 1000000u

static struct handover *make(uint32_t capacity)
{
	struct handover *handover = NULL;

	ck_assert_int_eq(handover_new(capacity, &handover), 0);

	return handover;
}

static bool put(struct handover *handover, uint32_t what)
{
	return handover_put(handover, (struct handover_item){ what, (void *)(uintptr_t)(what * 3ul) });
}

static void takes(struct handover *handover, uint32_t what)
{
	struct handover_item item = { 0 };

	ck_assert(handover_take(handover, &item));
	ck_assert_uint_eq(item.what, what);
	ck_assert_ptr_eq(item.pointer, (void *)(uintptr_t)(what * 3ul));
}

START_TEST(first_in_first_out)
{
	struct handover *handover = make(8);

	for (uint32_t i = 1; i <= 5; i++)
		ck_assert(put(handover, i));
	for (uint32_t i = 1; i <= 5; i++)
		takes(handover, i);
	handover_free(handover);
}
END_TEST

START_TEST(empty_gives_nothing_and_touches_nothing)
{
	struct handover *handover = make(2);
	struct handover_item item = { 7, &item };

	ck_assert(!handover_take(handover, &item));
	ck_assert_uint_eq(item.what, 7);
	ck_assert_ptr_eq(item.pointer, &item);
	put(handover, 1);
	takes(handover, 1);
	ck_assert(!handover_take(handover, &item));
	handover_free(handover);
	handover_free(NULL);
}
END_TEST

START_TEST(full_refuses_and_keeps_what_it_has)
{
	struct handover *handover = make(4);

	for (uint32_t i = 1; i <= 4; i++) {
		ck_assert(handover_room(handover));
		ck_assert(put(handover, i));
	}
	ck_assert(!handover_room(handover));
	ck_assert(!put(handover, 5));
	takes(handover, 1);
	ck_assert(handover_room(handover));
	ck_assert(put(handover, 6));
	for (uint32_t i = 2; i <= 4; i++)
		takes(handover, i);
	takes(handover, 6);
	handover_free(handover);
}
END_TEST

START_TEST(goes_round_and_round)
{
	struct handover *handover = make(4);
	uint32_t in = 0, out = 0;

	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 3; i++)
			ck_assert(put(handover, in++));
		for (int i = 0; i < 3; i++)
			takes(handover, out++);
	}
	handover_free(handover);
}
END_TEST

START_TEST(holds_one_when_it_is_made_for_one)
{
	struct handover *handover = make(1);

	ck_assert(put(handover, 1));
	ck_assert(!put(handover, 2));
	takes(handover, 1);
	ck_assert(put(handover, 3));
	handover_free(handover); /* what is inside is forgotten */
}
END_TEST

START_TEST(only_making_it_allocates)
{
	struct handover *handover = NULL;

	torture_arm(1);
	int r = handover_new(16, &handover);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_ptr_null(handover);

	handover = make(16);
	unsigned long before = torture_allocations();
	struct handover_item item;

	for (uint32_t i = 0; i < 16; i++)
		put(handover, i);
	while (handover_take(handover, &item))
		continue;
	ck_assert_uint_eq(torture_allocations(), before);
	handover_free(handover);
}
END_TEST

/* What the item points to was written before it was handed over, and is seen so by whoever takes it. */
static uint32_t payload[256];

static void *produce(void *argument)
{
	for (uint32_t i = 0; i < ITEMS;) {
		if (!handover_room(argument)) {
			sched_yield();
			continue;
		}
		payload[i % 256] = i;
		i += handover_put(argument, (struct handover_item){ i, &payload[i % 256] });
	}

	return NULL;
}

START_TEST(two_threads_lose_nothing)
{
	struct handover *handover = make(64); /* fewer than payloads: none is written again before it was read */
	struct handover_item item;
	uint32_t wrong = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, produce, handover), 0);
	for (uint32_t i = 0; i < ITEMS;) {
		if (!handover_take(handover, &item)) {
			sched_yield();
			continue;
		}
		wrong += item.what != i || *(uint32_t *)item.pointer != i;
		i++;
	}
	pthread_join(thread, NULL);
	ck_assert_uint_eq(wrong, 0);
	ck_assert(!handover_take(handover, &item));
	handover_free(handover);
}
END_TEST

Suite *handover_suite(void)
{
	Suite *suite = suite_create("handover");
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
