/*
 * check_sampler.c: what a sampler thread is made of: the queue of commands, the handoff of options,
 * the timer and the CPU budget that several threads share.
 */
#include "daemon/engine/sampling/sampler.c"

#include "samplers_tick.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

Suite *sampler_suite(void);

void samplers_tick(struct samplers *samplers)
{
	for (unsigned i = 0; i < samplers->count; i++) {
		struct sampler *sampler = samplers->threads[i].sampler;

		take_tick(sampler, clock_mono(&sampler->deadline_timer.clock));
	}
}

/* ---- spsc_queue ---- */

#define ITEMS 1000000u

static struct spsc_queue *queue_make(uint32_t capacity)
{
	struct spsc_queue *spsc_queue = NULL;

	ck_assert_int_eq(spsc_queue_new(capacity, &spsc_queue), 0);

	return spsc_queue;
}

static bool queue_put(struct spsc_queue *spsc_queue, uint32_t what)
{
	return spsc_queue_put(spsc_queue, (struct spsc_queue_item){ what, (void *)(uintptr_t)(what * 3ul) });
}

static void queue_takes(struct spsc_queue *spsc_queue, uint32_t what)
{
	struct spsc_queue_item item = { 0 };

	ck_assert(spsc_queue_take(spsc_queue, &item));
	ck_assert_uint_eq(item.what, what);
	ck_assert_ptr_eq(item.pointer, (void *)(uintptr_t)(what * 3ul));
}

START_TEST(first_in_first_out)
{
	struct spsc_queue *spsc_queue = queue_make(8);

	for (uint32_t i = 1; i <= 5; i++)
		ck_assert(queue_put(spsc_queue, i));
	for (uint32_t i = 1; i <= 5; i++)
		queue_takes(spsc_queue, i);
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(empty_gives_nothing_and_touches_nothing)
{
	struct spsc_queue *spsc_queue = queue_make(2);
	struct spsc_queue_item item = { 7, &item };

	ck_assert(!spsc_queue_take(spsc_queue, &item));
	ck_assert_uint_eq(item.what, 7);
	ck_assert_ptr_eq(item.pointer, &item);
	queue_put(spsc_queue, 1);
	queue_takes(spsc_queue, 1);
	ck_assert(!spsc_queue_take(spsc_queue, &item));
	spsc_queue_free(spsc_queue);
	spsc_queue_free(NULL);
}
END_TEST

START_TEST(full_refuses_and_keeps_what_it_has)
{
	struct spsc_queue *spsc_queue = queue_make(4);

	for (uint32_t i = 1; i <= 4; i++) {
		ck_assert(spsc_queue_room(spsc_queue));
		ck_assert(queue_put(spsc_queue, i));
	}
	ck_assert(!spsc_queue_room(spsc_queue));
	ck_assert(!queue_put(spsc_queue, 5));
	queue_takes(spsc_queue, 1);
	ck_assert(spsc_queue_room(spsc_queue));
	ck_assert(queue_put(spsc_queue, 6));
	for (uint32_t i = 2; i <= 4; i++)
		queue_takes(spsc_queue, i);
	queue_takes(spsc_queue, 6);
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(goes_round_and_round)
{
	struct spsc_queue *spsc_queue = queue_make(4);
	uint32_t in = 0, out = 0;

	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 3; i++)
			ck_assert(queue_put(spsc_queue, in++));
		for (int i = 0; i < 3; i++)
			queue_takes(spsc_queue, out++);
	}
	spsc_queue_free(spsc_queue);
}
END_TEST

START_TEST(holds_one_when_it_is_made_for_one)
{
	struct spsc_queue *spsc_queue = queue_make(1);

	ck_assert(queue_put(spsc_queue, 1));
	ck_assert(!queue_put(spsc_queue, 2));
	queue_takes(spsc_queue, 1);
	ck_assert(queue_put(spsc_queue, 3));
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

	spsc_queue = queue_make(16);
	unsigned long before = torture_allocations();
	struct spsc_queue_item item;

	for (uint32_t i = 0; i < 16; i++)
		queue_put(spsc_queue, i);
	while (spsc_queue_take(spsc_queue, &item))
		continue;
	ck_assert_uint_eq(torture_allocations(), before);
	spsc_queue_free(spsc_queue);
}
END_TEST

/*
 * What the item points to was written before it was handed over, and is seen so by the thread that
 * takes it.
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
	struct spsc_queue *spsc_queue =
		queue_make(64); /* fewer than payloads: none is written again before it was read */
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

/* ---- option_handoff ---- */

static struct option_handoff_box handoff_box;

static void handoff_setup(void)
{
	handoff_box = (struct option_handoff_box){ 0 };
}

static void handoff_teardown(void)
{
	option_handoff_release(&handoff_box);
}

static void handoff_post(uint64_t interval_ns)
{
	struct sampler_options options = { .source = { .capacity = 10, .interval_ns = interval_ns } };

	ck_assert_int_eq(option_handoff_post(&handoff_box, &options), 0);
}

START_TEST(what_is_posted_is_taken_once)
{
	ck_assert_ptr_null(option_handoff_take(&handoff_box));
	handoff_post(1);

	struct option_handoff *option_handoff = option_handoff_take(&handoff_box);

	ck_assert_ptr_nonnull(option_handoff);
	ck_assert_uint_eq(option_handoff->options.source.interval_ns, 1);
	ck_assert_ptr_nonnull(option_handoff->room);
	ck_assert_ptr_null(option_handoff_take(&handoff_box));
	option_handoff_return(&handoff_box, option_handoff);
}
END_TEST

START_TEST(of_several_the_last_one_counts)
{
	handoff_post(1);
	handoff_post(2);
	handoff_post(3);

	struct option_handoff *option_handoff = option_handoff_take(&handoff_box);

	ck_assert_uint_eq(option_handoff->options.source.interval_ns, 3);
	ck_assert_ptr_null(option_handoff_take(&handoff_box));
	option_handoff_return(&handoff_box, option_handoff);
}
END_TEST

START_TEST(a_second_one_may_come_back_before_the_first_was_collected)
{
	struct option_handoff *first, *second;

	handoff_post(1);
	first = option_handoff_take(&handoff_box);
	handoff_post(2);
	second = option_handoff_take(&handoff_box);
	option_handoff_return(&handoff_box, first);
	option_handoff_return(&handoff_box, second);
	handoff_post(3); /* frees both; the sanitizers and the count of allocations tell */
	ck_assert_ptr_null(atomic_load(&handoff_box.spent));
}
END_TEST

START_TEST(taking_and_returning_allocate_nothing)
{
	handoff_post(1);

	unsigned long before = torture_allocations();

	option_handoff_return(&handoff_box, option_handoff_take(&handoff_box));
	ck_assert_uint_eq(torture_allocations(), before);
}
END_TEST

START_TEST(without_memory_the_one_before_still_counts)
{
	struct sampler_options options = { .source = { .capacity = 10, .interval_ns = 2 } };
	bool injected = true;

	for (long n = 1; injected; n++) {
		handoff_post(1);
		torture_arm(n);
		int r = option_handoff_post(&handoff_box, &options);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);

		struct option_handoff *option_handoff = option_handoff_take(&handoff_box);

		ck_assert_uint_eq(option_handoff->options.source.interval_ns, injected ? 1 : 2);
		option_handoff_return(&handoff_box, option_handoff);
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
		struct option_handoff *option_handoff = option_handoff_take(&handoff_box);

		if (!option_handoff && over)
			return NULL;
		if (!option_handoff)
			continue;
		if (option_handoff->options.source.interval_ns <= *last || !option_handoff->room)
			return NULL; /* *last shows it */
		*last = option_handoff->options.source.interval_ns;
		option_handoff_return(&handoff_box, option_handoff);
	}
}

START_TEST(two_threads_hand_over_many)
{
	pthread_t thread;
	uint64_t last = 0;

	atomic_store(&posted_all, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_all, &last), 0);
	for (uint64_t i = 1; i <= POSTS; i++)
		handoff_post(i);
	atomic_store(&posted_all, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(last, POSTS);
}
END_TEST

/* ---- deadline_timer ---- */

static struct deadline_timer tested_timer;

static void timer_setup(void)
{
	tested_timer = (struct deadline_timer){ .clock = real_clock() };
}

static mono_t timer_now(void)
{
	return clock_mono(&tested_timer.clock);
}

START_TEST(it_sleeps_until_then_and_not_less)
{
	static const enum config_wait waits[] = { CONFIG_WAIT_SLEEP, CONFIG_WAIT_YIELD, CONFIG_WAIT_SPIN };

	for (int i = 0; i < 3; i++) {
		mono_t until = mono_add(timer_now(), 3 * NS_PER_MS);

		deadline_timer_wait(&tested_timer, until, waits[i], UINT64_MAX);
		ck_assert_int_ge(mono_diff(timer_now(), until), 0);
	}
}
END_TEST

START_TEST(a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse)
{
	mono_t before = timer_now();

	deadline_timer_sleep(&tested_timer, before);
	ck_assert_uint_ge(deadline_timer_pulse(&tested_timer).ns, before.ns);
	ck_assert_uint_le(deadline_timer_pulse(&tested_timer).ns, timer_now().ns);
}
END_TEST

START_TEST(who_was_called_does_not_wait_until_the_call_is_answered)
{
	mono_t far = mono_add(timer_now(), 3600 * NS_PER_S);

	deadline_timer_call(&tested_timer);
	deadline_timer_sleep(&tested_timer, far);
	deadline_timer_wait(&tested_timer, far, CONFIG_WAIT_SPIN, UINT64_MAX);
	deadline_timer_wait(&tested_timer, far, CONFIG_WAIT_YIELD, UINT64_MAX);
	deadline_timer_answer(&tested_timer);

	mono_t near = mono_add(timer_now(), NS_PER_MS);

	deadline_timer_sleep(&tested_timer, near);
	ck_assert_int_ge(mono_diff(timer_now(), near), 0);
}
END_TEST

static void *sleep_long(void *unused)
{
	deadline_timer_sleep(&tested_timer, mono_add(timer_now(), 3600 * NS_PER_S));
	return unused;
}

START_TEST(a_long_sleep_has_a_pulse_and_ends_when_it_is_called)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_long, NULL), 0);
	for (int i = 0; i < 3; i++) {
		uint64_t before = deadline_timer_pulse(&tested_timer).ns;

		while (deadline_timer_pulse(&tested_timer).ns == before) /* the suite's time limit bounds it */
			real_clock_sleep_until(mono_add(timer_now(), NS_PER_MS));
	}
	deadline_timer_call(&tested_timer);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* ---- budget ---- */

#define BEGIN (100 * NS_PER_S)
/* So little that whatever this process does is too much, and so much that nothing is. */
#define TOO_LITTLE 1e-9
#define PLENTY 1e9

static struct budget leader, follower;

static void budget_begin(double percent)
{
	static const struct stats stats;

	leader = (struct budget){ .stats = &stats };
	follower = (struct budget){ .leader = &leader, .stats = &stats };
	budget_restart(&leader, percent, false, (mono_t){ BEGIN });
	budget_restart(&follower, percent, false, (mono_t){ BEGIN });
}

/* Until the CPU clock of the process has moved on. */
static void budget_work(void)
{
	uint64_t before = real_clock_process_cpu();

	for (long i = 0; i < 1000000000 && real_clock_process_cpu() < before + NS_PER_MS; i++)
		;
}

/* A look of each after so many periods. The leader's factor. */
static uint32_t look_after(uint64_t periods, bool *ret_over, uint32_t *ret_follower)
{
	mono_t now = { BEGIN + periods * CPU_BUDGET_PERIOD_NS };
	uint32_t factor;

	*ret_over = budget_look(&leader, now, 0, &factor);
	ck_assert_int_eq(budget_look(&follower, now, 0, ret_follower), *ret_over);
	ck_assert_uint_eq(budget_slowdown(&leader), factor);
	ck_assert_uint_eq(budget_slowdown(&follower), *ret_follower);

	return factor;
}

START_TEST(those_that_follow_are_as_slow_as_the_one_that_leads)
{
	uint32_t factor = 1, followers;
	bool over;

	budget_begin(TOO_LITTLE);
	ck_assert_uint_eq(look_after(0, &over, &followers), 1);
	ck_assert(!over);
	for (uint64_t period = 1; period <= 4; period++) {
		budget_work();
		factor = look_after(period, &over, &followers);
		ck_assert(over);
		ck_assert_uint_eq(followers, factor);
		ck_assert_int_eq(factor > 1, period >= CPU_BUDGET_HOT);
	}
	ck_assert(budget_share(&leader) > 0);
	ck_assert(budget_share(&follower) == 0); /* only the one that leads measures */
}
END_TEST

/* The period of one that follows ends by its own clock, and it learns of the factor at once. */
START_TEST(a_factor_is_in_force_before_the_next_period)
{
	mono_t soon = { BEGIN + CPU_BUDGET_PERIOD_NS - 1 }, later = { BEGIN + 2 * CPU_BUDGET_PERIOD_NS };
	uint32_t factor, led;

	budget_begin(TOO_LITTLE);
	for (uint64_t period = 1; period <= CPU_BUDGET_HOT; period++) {
		budget_work();
		ck_assert(budget_look(&leader, (mono_t){ BEGIN + period * CPU_BUDGET_PERIOD_NS }, 0, &factor));
	}
	led = factor;
	ck_assert_uint_gt(led, 1);
	ck_assert(!budget_look(&follower, soon, 0, &factor));
	ck_assert_uint_eq(factor, led);
	ck_assert(budget_look(&follower, later, 0, &factor));
	ck_assert(!budget_look(&follower, later, 0, &factor)); /* another one has begun */
}
END_TEST

START_TEST(within_the_budget_nobody_is_slow)
{
	uint32_t followers;
	bool over;

	budget_begin(PLENTY);
	for (uint64_t period = 1; period <= 5; period++) {
		budget_work();
		ck_assert_uint_eq(look_after(period, &over, &followers), 1);
		ck_assert_uint_eq(followers, 1);
	}
}
END_TEST

START_TEST(a_restart_forgets_the_slowdown_and_what_was_spent)
{
	uint32_t followers;
	bool over;

	budget_begin(TOO_LITTLE);
	for (uint64_t period = 1; period <= 4; period++) {
		budget_work();
		look_after(period, &over, &followers);
	}
	ck_assert_uint_gt(budget_slowdown(&leader), 1);
	budget_restart(&leader, 0, false, (mono_t){ BEGIN + 4 * CPU_BUDGET_PERIOD_NS });
	ck_assert_uint_eq(budget_slowdown(&leader), 1);
	for (uint64_t period = 5; period <= 9; period++) {
		budget_work();
		ck_assert_uint_eq(look_after(period, &over, &followers), 1); /* without a limit */
		ck_assert_uint_eq(followers, 1);
	}
}
END_TEST

/*
 * The clock of the whole process stands for a thread that does all the budget_work: nothing is left
 * that counts.
 */
START_TEST(what_is_exempt_does_not_count)
{
	uint32_t followers;
	bool over;

	budget_begin(TOO_LITTLE);
	budget_exempt(&leader, CLOCK_PROCESS_CPUTIME_ID);
	budget_restart(&leader, TOO_LITTLE, false, (mono_t){ BEGIN });
	for (uint64_t period = 1; period <= 6; period++) {
		budget_work();
		look_after(period, &over, &followers);
		ck_assert(over);
	}
	ck_assert_uint_eq(budget_slowdown(&leader), 1);
	ck_assert_double_eq(budget_share(&leader), 0);
}
END_TEST

Suite *sampler_suite(void)
{
	Suite *suite = suite_create("sampler");
	TCase *tcase;

	tcase = tcase_create("spsc_queue");
	tcase_add_test(tcase, first_in_first_out);
	tcase_add_test(tcase, empty_gives_nothing_and_touches_nothing);
	tcase_add_test(tcase, full_refuses_and_keeps_what_it_has);
	tcase_add_test(tcase, goes_round_and_round);
	tcase_add_test(tcase, holds_one_when_it_is_made_for_one);
	tcase_add_test(tcase, only_making_it_allocates);
	tcase_add_test(tcase, two_threads_lose_nothing);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("option_handoff");
	tcase_add_checked_fixture(tcase, handoff_setup, handoff_teardown);
	tcase_add_test(tcase, what_is_posted_is_taken_once);
	tcase_add_test(tcase, of_several_the_last_one_counts);
	tcase_add_test(tcase, a_second_one_may_come_back_before_the_first_was_collected);
	tcase_add_test(tcase, taking_and_returning_allocate_nothing);
	tcase_add_test(tcase, without_memory_the_one_before_still_counts);
	tcase_add_test(tcase, two_threads_hand_over_many);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("deadline_timer");
	tcase_add_checked_fixture(tcase, timer_setup, NULL);
	tcase_add_test(tcase, it_sleeps_until_then_and_not_less);
	tcase_add_test(tcase, a_time_that_has_passed_is_not_waited_for_and_leaves_a_pulse);
	tcase_add_test(tcase, who_was_called_does_not_wait_until_the_call_is_answered);
	tcase_add_test(tcase, a_long_sleep_has_a_pulse_and_ends_when_it_is_called);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("budget");
	tcase_add_test(tcase, those_that_follow_are_as_slow_as_the_one_that_leads);
	tcase_add_test(tcase, a_factor_is_in_force_before_the_next_period);
	tcase_add_test(tcase, within_the_budget_nobody_is_slow);
	tcase_add_test(tcase, a_restart_forgets_the_slowdown_and_what_was_spent);
	tcase_add_test(tcase, what_is_exempt_does_not_count);
	suite_add_tcase(suite, tcase);

	return suite;
}
