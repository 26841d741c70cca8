/*
 * check_sampler.c: what a sampler thread is made of: the queue of commands, the handoff of options,
 * the timer, the CPU budget that several threads share, and real-time priority where it is allowed,
 * the reason where it is not, and the watch over it.
 */
#include "daemon/engine/sampling/sampler.c"

#include "own_cgroups.h"
#include "samplers_tick.h"
#include "skip.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

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

/* Works for six periods, where the clock of the whole process stands for a thread that does all the work. */
static void work_for_another(double percent, enum samplers_charge charge)
{
	uint32_t followers;
	bool over;

	budget_begin(percent);
	budget_charge(&leader, charge, CLOCK_PROCESS_CPUTIME_ID);
	budget_restart(&leader, percent, false, (mono_t){ BEGIN });
	for (uint64_t period = 1; period <= 6; period++) {
		budget_work();
		look_after(period, &over, &followers);
		ck_assert(over);
	}
	ck_assert_uint_eq(budget_slowdown(&leader), 1);
}

/* Nothing is left that counts. */
START_TEST(what_is_exempt_does_not_count)
{
	work_for_another(TOO_LITTLE, SAMPLERS_CHARGE_NOTHING);
	ck_assert_double_eq(budget_share(&leader), 0);
}
END_TEST

/* It is in the share, which is above the budget. */
START_TEST(what_others_make_it_do_slows_nothing_down)
{
	const double percent = 0.01; /* 0.1 ms of a second; work takes more than that */

	work_for_another(percent, SAMPLERS_CHARGE_PART);
	ck_assert_double_gt(budget_share(&leader), percent / 100);
}
END_TEST

/* ---- scheduling: as the kernel says, for the thread of the test ---- */

static struct own_cgroups own_cgroups;

static struct scheduling tested_scheduling;

static mono_t after(uint64_t seconds)
{
	return (mono_t){ BEGIN + seconds * NS_PER_S };
}

static void scheduling_stop(void)
{
	scheduling_end(&tested_scheduling);
}

/* False: this machine does not let it have the priority. */
static bool starts_real_time(void)
{
	scheduling_start(&tested_scheduling, CONFIG_SCHEDULING_AUTO, after(0));
	return scheduling_class_of(&tested_scheduling) == SCHEDULING_REAL_TIME ||
	       skip_because("no real-time priority here: %s",
			    scheduling_reason_text(scheduling_reason_of(&tested_scheduling)));
}

/* What the kernel says must be what the module says. */
static void assert_state(enum scheduling_class class, enum scheduling_reason reason)
{
	struct sched_param param;

	ck_assert_str_eq(scheduling_class_name(scheduling_class_of(&tested_scheduling)), scheduling_class_name(class));
	ck_assert_int_eq(scheduling_reason_of(&tested_scheduling), reason);
	ck_assert_int_eq(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK,
			 class == SCHEDULING_REAL_TIME ? SCHED_FIFO : SCHED_OTHER);
	ck_assert_int_eq(sched_getparam(0, &param), 0);
	ck_assert_int_eq(param.sched_priority, class == SCHEDULING_REAL_TIME);
}

/* A normal thread: with a short slice, if this kernel has it. */
static void assert_normal(enum scheduling_reason reason)
{
	struct sched_attributes found = { 0 };

	ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &found, (unsigned)sizeof found, 0), 0);
	assert_state(found.runtime == SLICE_SHORT_NS ? SCHEDULING_SHORT_SLICE : SCHEDULING_NORMAL, reason);
}

static rlim_t run_limit(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_RTTIME, &limit), 0);
	return limit.rlim_cur;
}

/* No CAP_SYS_NICE from here on, and RLIMIT_RTPRIO of so much. */
static bool give_up_privileges(rlim_t priority)
{
	struct rlimit limit = { priority, priority };

	if (geteuid() != 0 || setrlimit(RLIMIT_RTPRIO, &limit) < 0)
		return skip_because("only root with CAP_SYS_RESOURCE can set the limit and give up the privilege");

	ck_assert_int_eq(setuid(65534), 0);
	return true;
}

START_TEST(a_sampler_has_real_time_priority_and_its_children_have_not)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	ck_assert_uint_eq(run_limit(), SCHEDULING_RUN_MAX_NS / NS_PER_US);

	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(sched_getscheduler(0));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), SCHED_OTHER);
}
END_TEST

START_TEST(a_thread_that_ends_its_sampling_is_a_normal_one)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	scheduling_stop();
	ck_assert_int_eq(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
}
END_TEST

START_TEST(it_has_none_if_the_configuration_does_not_want_it)
{
	scheduling_start(&tested_scheduling, CONFIG_SCHEDULING_NORMAL, after(0));
	assert_normal(SCHEDULING_CONFIGURED);
	scheduling_change(&tested_scheduling, CONFIG_SCHEDULING_AUTO, after(1));
	ck_assert_int_ne(scheduling_reason_of(&tested_scheduling), SCHEDULING_CONFIGURED);
	scheduling_change(&tested_scheduling, CONFIG_SCHEDULING_NORMAL, after(2));
	assert_normal(SCHEDULING_CONFIGURED);
}
END_TEST

START_TEST(without_the_privilege_it_says_what_it_takes)
{
	if (!give_up_privileges(0))
		SKIP_TEST("%s", skip_reason);

	scheduling_start(&tested_scheduling, CONFIG_SCHEDULING_AUTO, after(0));
	assert_normal(SCHEDULING_UNPRIVILEGED);
	ck_assert_ptr_ne(strstr(scheduling_reason_text(SCHEDULING_UNPRIVILEGED), "LimitRTPRIO=1"), NULL);
}
END_TEST

/* As in the service. */
START_TEST(the_limit_of_priority_alone_is_enough_to_have_it_and_to_go_back)
{
	if (!give_up_privileges(1) || !starts_real_time())
		SKIP_TEST("%s", skip_reason);
	for (unsigned i = 0; i < 3; i++) {
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
		scheduling_change(&tested_scheduling, CONFIG_SCHEDULING_NORMAL, after(i));
		assert_normal(SCHEDULING_CONFIGURED);
		scheduling_change(&tested_scheduling, CONFIG_SCHEDULING_AUTO, after(i));
	}
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
}
END_TEST

static void make_cgroups(void)
{
	own_cgroups_make(&own_cgroups, "scheduling");
}

static void remove_own(void)
{
	own_cgroups_remove(&own_cgroups);
}

START_TEST(a_cgroup_without_real_time_run_time_is_named)
{
	struct cgroup_mounts *mounts;
	bool v2 = true;
	char path[600];

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);

	const char *dir = cgroup_mounts_controller(mounts, CGROUP_CPU, &v2);

	snprintf(path, sizeof path, "%s%s/cpu.rt_runtime_us", dir ? dir : "", own_cgroups.name);
	cgroup_mounts_free(mounts);
	if (!dir || v2 || own_cgroups.count == 0 || access(path, R_OK) < 0)
		SKIP_TEST("no cgroup v1 with cpu.rt_runtime_us here");

	ck_assert_int_eq(own_cgroups_add(&own_cgroups, "none"), 0);
	own_cgroups_join(&own_cgroups, "none", getpid());
	scheduling_start(&tested_scheduling, CONFIG_SCHEDULING_AUTO, after(0));
	assert_normal(SCHEDULING_REFUSED);
}
END_TEST

START_TEST(a_run_without_a_sleep_ends_the_priority_and_not_the_process)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	time_t limit = time(NULL) + 60;

	while (scheduling_class_of(&tested_scheduling) == SCHEDULING_REAL_TIME && time(NULL) < limit)
		continue;
	assert_normal(SCHEDULING_ENDLESS);

	/* It gets it back, with the whole limit, when the time is over. */
	scheduling_look(&tested_scheduling, after(1), 0, 0.1);
	scheduling_look(&tested_scheduling, after(60), 0, 0.1);
	assert_normal(SCHEDULING_ENDLESS);
	scheduling_look(&tested_scheduling, after(61), 0, 0.1);
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	ck_assert_uint_eq(run_limit(), SCHEDULING_RUN_MAX_NS / NS_PER_US);
}
END_TEST

/* Seconds of so much CPU, in percent. */
static void run_seconds(uint64_t *second, uint64_t seconds, uint64_t percent)
{
	for (uint64_t i = 0; i < seconds; i++) {
		++*second;
		scheduling_look(&tested_scheduling, after(*second), tested_scheduling.cpu_ns + percent * NS_PER_S / 100,
				0.1);
	}
}

START_TEST(a_thread_that_exceeds_its_budget_loses_it_for_longer_each_time)
{
	uint64_t second = 0;

	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	/* The CPU budget needs two periods to make the interval longer. */
	for (unsigned i = 0; i < 10; i++) {
		run_seconds(&second, SCHEDULING_PERIODS - 1, 11);
		run_seconds(&second, 1, 10);
	}
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	for (uint64_t pause = 60; pause <= 240; pause *= 2) {
		run_seconds(&second, SCHEDULING_PERIODS, 11);
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, pause - 1, 1);
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, 1, 6); /* too much for its return */
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, 1, 5);
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	}
}
END_TEST

START_TEST(without_a_budget_half_a_core_is_the_limit)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	for (uint64_t i = 1; i <= 10; i++)
		scheduling_look(&tested_scheduling, after(i), i * NS_PER_S / 2, 0);
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	for (uint64_t i = 11; i <= 13; i++)
		scheduling_look(&tested_scheduling, after(i), i * NS_PER_S, 16);
	assert_normal(SCHEDULING_COSTLY);
}
END_TEST

/* In the place of the kernel's. */
static void say_run_delay(uint64_t ns)
{
	char text[64];
	int len = snprintf(text, sizeof text, "5 %llu 1\n", (unsigned long long)ns);

	ck_assert_int_eq(ftruncate(tested_scheduling.schedstat, 0), 0);
	ck_assert_int_eq(pwrite(tested_scheduling.schedstat, text, (size_t)len, 0), len);
}

START_TEST(priority_that_does_not_help_is_given_up)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	close(tested_scheduling.schedstat);
	tested_scheduling.schedstat = memfd_create("schedstat", MFD_CLOEXEC);
	ck_assert_int_ge(tested_scheduling.schedstat, 0);
	for (uint64_t i = 1; i <= SCHEDULING_PERIODS; i++) {
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
		say_run_delay(i * 6 * NS_PER_S / 10);
		ck_assert_uint_eq(scheduling_run_delay(&tested_scheduling), i * 6 * NS_PER_S / 10);
		scheduling_look(&tested_scheduling, after(i), 0, 0.1);
	}
	assert_normal(SCHEDULING_HELD);
}
END_TEST

/* RLIMIT_CPU, which is the user's, sends the same signal. */
START_TEST(a_limit_of_cpu_time_ends_the_process_as_ever)
{
	scheduling_start(&tested_scheduling, CONFIG_SCHEDULING_NORMAL, after(0));
	raise(SIGXCPU);
	ck_abort_msg("still there");
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
	tcase_add_test(tcase, what_others_make_it_do_slows_nothing_down);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("scheduling");
	tcase_add_checked_fixture(tcase, NULL, scheduling_stop);
	tcase_add_unchecked_fixture(tcase, make_cgroups, remove_own);
	tcase_add_test(tcase, a_sampler_has_real_time_priority_and_its_children_have_not);
	tcase_add_test(tcase, a_thread_that_ends_its_sampling_is_a_normal_one);
	tcase_add_test(tcase, it_has_none_if_the_configuration_does_not_want_it);
	tcase_add_test(tcase, without_the_privilege_it_says_what_it_takes);
	tcase_add_test(tcase, the_limit_of_priority_alone_is_enough_to_have_it_and_to_go_back);
	tcase_add_test(tcase, a_cgroup_without_real_time_run_time_is_named);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("watch over priority");
	tcase_add_checked_fixture(tcase, NULL, scheduling_stop);
	tcase_add_test(tcase, a_run_without_a_sleep_ends_the_priority_and_not_the_process);
	tcase_add_test(tcase, a_thread_that_exceeds_its_budget_loses_it_for_longer_each_time);
	tcase_add_test(tcase, without_a_budget_half_a_core_is_the_limit);
	tcase_add_test(tcase, priority_that_does_not_help_is_given_up);
	tcase_add_test_raise_signal(tcase, a_limit_of_cpu_time_ends_the_process_as_ever, SIGXCPU);
	suite_add_tcase(suite, tcase);

	return suite;
}
