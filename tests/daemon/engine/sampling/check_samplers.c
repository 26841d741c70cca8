/*
 * check_samplers.c: several sampler threads as one: which gets what, what comes back, and what they
 * say together.
 */
#include "children.h"
#include "lib/ring/ring.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "scene.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/source/source.h"

#include <errno.h>
#include <poll.h>

Suite *samplers_suite(void);

#define TARGETS_MAX 40
#define THREADS_MAX 8

static struct ring *ring;
static struct samplers *samplers;
static struct sampler_target targets[TARGETS_MAX];
static uint32_t target_count;
static int procfd;

static void setup(void)
{
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
	memset(targets, 0, sizeof(targets));
	target_count = 0;
	ring = NULL;
	samplers = NULL;
}

static void teardown(void)
{
	samplers_free(samplers);
	for (uint32_t i = 0; i < target_count; i++)
		sampler_target_release(&targets[i]);
	ring_free(ring);
	close(procfd);
}

static const struct sampler_options *options_of(uint32_t capacity, uint64_t interval_ns)
{
	static struct sampler_options options;

	options = (struct sampler_options){
		.source = { .capacity = capacity, .heartbeat_ns = 50 * NS_PER_MS, .interval_ns = interval_ns }
	};
	return &options;
}

static void make(unsigned threads, uint32_t capacity, uint64_t interval_ns)
{
	const struct ring_options ring_options = { .size_bytes = 8 << 20, .heartbeat_ns = 50 * NS_PER_MS };

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(samplers_new(options_of(capacity, interval_ns), threads, ring, &samplers), 0);
}

static struct sampler_target *describe(enum target_kind kind, pid_t pid)
{
	struct sampler_target *target = &targets[target_count++];
	struct target what = { .id = target_count, .kind = kind, .pid = pid, .entry = "e", .name = "n", .key = "k" };

	what.comm = what.cmdline = what.cgroup = "";
	ck_assert_uint_le(target_count, TARGETS_MAX);
	ck_assert_int_eq(sampler_target_describe(target, &what), 0);
	return target;
}

static struct sampler_target *add_group(void)
{
	struct sampler_target *target = describe(TARGET_GROUP, 0);

	ck_assert_int_eq(source_entry_group(target, &target->entry), 0);
	ck_assert(samplers_add(samplers, target));
	return target;
}

static struct sampler_target *add_process(pid_t pid, struct sampler_target *group)
{
	struct sampler_target *target = describe(TARGET_PROCESS, pid);

	target->group = group;
	ck_assert_int_eq(source_entry_process(procfd, pid, 0, true, target, &target->entry), 0);
	ck_assert(samplers_add(samplers, target));
	return target;
}

static void answers(const struct sampler_target *target, enum sampler_return why)
{
	struct sampler_target *returned = NULL;
	enum sampler_return got = 0;

	ck_assert(samplers_returned(samplers, &returned, &got));
	ck_assert_ptr_eq(returned, target);
	ck_assert_int_eq(got, why);
}

static void answers_no_more(void)
{
	struct sampler_target *returned;
	enum sampler_return why;

	ck_assert(!samplers_returned(samplers, &returned, &why));
}

/* ---- which sampler gets what ---- */

START_TEST(a_budget_is_worth_as_many_threads_as_it_has_cores)
{
	ck_assert_uint_eq(samplers_worth(10, 64), 1);
	ck_assert_uint_eq(samplers_worth(100, 64), 1);
	ck_assert_uint_eq(samplers_worth(101, 64), 2);
	ck_assert_uint_eq(samplers_worth(350, 64), 4);
	ck_assert_uint_eq(samplers_worth(350, 2), 2);
	ck_assert_uint_eq(samplers_worth(1600, 64), 16);
	ck_assert_uint_eq(samplers_worth(5000, 64), SAMPLERS_MAX);
	ck_assert_uint_eq(samplers_worth(0, 64), 1);
	ck_assert_uint_eq(samplers_worth(400, 0), 1);
}
END_TEST

START_TEST(a_target_goes_to_the_thread_with_the_fewest)
{
	make(3, 100, NS_PER_S);
	for (unsigned i = 0; i < 7; i++)
		ck_assert_uint_eq(add_group()->thread, i % 3);
	samplers_tick(samplers);
	answers_no_more();

	/* Two leave the second: the next two go there. */
	ck_assert(samplers_remove(samplers, &targets[1]));
	ck_assert(samplers_remove(samplers, &targets[4]));
	samplers_tick(samplers);
	answers(&targets[1], SAMPLER_REMOVED);
	answers(&targets[4], SAMPLER_REMOVED);
	answers_no_more();
	ck_assert_uint_eq(add_group()->thread, 1);
	ck_assert_uint_eq(add_group()->thread, 1);
	ck_assert_uint_eq(add_group()->thread, 1);
	ck_assert_uint_eq(add_group()->thread, 2);
}
END_TEST

START_TEST(members_go_where_their_group_is)
{
	struct child child = child_start();
	struct sampler_target *first, *second;

	make(2, 100, NS_PER_S);
	first = add_group();
	second = add_group();
	ck_assert_uint_eq(first->thread, 0);
	ck_assert_uint_eq(second->thread, 1);
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(add_process(child.pid, second)->thread, 1);
	samplers_tick(samplers);
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(add_group()->thread, 0);
	child_reap(&child);
}
END_TEST

START_TEST(there_are_not_more_than_the_capacity_on_all_together)
{
	make(2, 3, NS_PER_S);
	for (int i = 0; i < 5; i++)
		add_group();
	samplers_tick(samplers);
	answers(&targets[3], SAMPLER_REFUSED);
	answers(&targets[4], SAMPLER_REFUSED);
	answers_no_more();

	ck_assert(samplers_remove(samplers, &targets[0]));
	samplers_tick(samplers);
	answers(&targets[0], SAMPLER_REMOVED);
	ck_assert_uint_eq(add_group()->thread, 0);
	samplers_tick(samplers);
	answers_no_more();
	add_group();
	answers(&targets[6], SAMPLER_REFUSED);

	/* More room from now on. */
	ck_assert_int_eq(samplers_retune(samplers, options_of(4, NS_PER_S)), 0);
	add_group();
	samplers_tick(samplers);
	answers_no_more();
}
END_TEST

START_TEST(one_that_was_refused_can_be_asked_for_and_answers_twice)
{
	make(2, 1, NS_PER_S);
	add_group();
	add_group();
	ck_assert(samplers_remove(samplers, &targets[1]));
	samplers_tick(samplers);
	answers(&targets[1], SAMPLER_REFUSED);
	answers(&targets[1], SAMPLER_REMOVED);
	answers_no_more();
	ck_assert(samplers_remove(samplers, &targets[0]));
	samplers_tick(samplers);
	answers(&targets[0], SAMPLER_REMOVED);

	/* It counts once, not twice: there is room for one and not for two. */
	add_group();
	answers_no_more();
	add_group();
	answers(&targets[3], SAMPLER_REFUSED);
}
END_TEST

START_TEST(what_ends_comes_back_from_every_thread)
{
	struct child children[6];
	struct sampler_target *returned;
	enum sampler_return why;
	unsigned gone = 0;

	make(3, 100, NS_PER_S);
	for (int i = 0; i < 6; i++) {
		children[i] = child_start();
		add_process(children[i].pid, NULL);
	}
	samplers_tick(samplers);
	answers_no_more();
	for (int i = 0; i < 6; i++)
		child_reap(&children[i]);
	samplers_tick(samplers);
	while (samplers_returned(samplers, &returned, &why)) {
		ck_assert_int_eq(why, SAMPLER_GONE);
		gone |= 1u << (returned - targets);
	}
	ck_assert_uint_eq(gone, 0x3f);

	/* None has any: it begins with the first again. */
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(add_group()->thread, i);
}
END_TEST

/* ---- what they say ---- */

START_TEST(the_counters_are_those_of_all)
{
	struct stats sum, own, header, merged = { 0 };

	make(3, 100, 10 * NS_PER_S);
	for (int i = 0; i < 4; i++)
		add_group();
	ck_assert_int_eq(samplers_thread_stats(samplers, 0, &own), -ENOENT);
	for (int i = 0; i < 5; i++)
		samplers_tick(samplers);
	ck_assert_int_eq(ring_stats(ring, &header), 0);
	ck_assert_uint_eq(header.threads, 3);
	ck_assert_uint_eq(header.total_snapshots, 15);
	ck_assert_uint_eq(header.collection_rate, 10 * NS_PER_S);
	ck_assert_uint_gt(header.records, 4);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(samplers_thread_stats(samplers, i, &own), 0);
		ck_assert_uint_eq(own.total_snapshots, 5);
		ck_assert_uint_eq(own.threads, 1);
		stats_merge(&merged, &own);
	}
	ck_assert_int_eq(memcmp(&merged, &header, sizeof(merged)), 0);
	ck_assert_int_eq(samplers_thread_stats(samplers, 3, &own), -ENOENT);
	samplers_stats(samplers, &sum);
	ck_assert_uint_eq(sum.total_snapshots, 15);
	ck_assert_uint_eq(sum.records, header.records);
}
END_TEST

START_TEST(the_pulse_is_that_of_the_one_that_was_seen_least_recently)
{
	struct ring_info info;
	mono_t before;

	make(3, 100, NS_PER_S);
	before = samplers_state(samplers).pulse;
	samplers_tick(samplers);
	ring_info(ring, &info);
	/* That of the last began after the first had ended. */
	ck_assert_int_gt(mono_diff(samplers_state(samplers).pulse, before), 0);
	ck_assert_int_le(mono_diff(samplers_state(samplers).pulse, info.last_tick), 0);
	/* They ticked one after the other. */
	ck_assert_uint_eq(samplers_state(samplers).pulses[0].ns, samplers_state(samplers).pulse.ns);
	for (unsigned i = 1; i < 3; i++)
		ck_assert_int_gt(mono_diff(samplers_state(samplers).pulses[i], samplers_state(samplers).pulses[i - 1]),
				 0);
}
END_TEST

/* ---- threads ---- */

/* Time of the first tick of each writer, by its number. */
static void first_ticks(mono_t first[THREADS_MAX])
{
	struct ring_cursor *cursor;
	struct ring_event event;

	memset(first, 0, THREADS_MAX * sizeof(first[0]));
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0)
		if (event.type == RING_EVENT_TICK && !first[event.writer].ns)
			first[event.writer] = event.time;
	ring_cursor_free(cursor);
}

START_TEST(they_tick_in_turn)
{
	mono_t first[THREADS_MAX], start;
	struct timespec now;

	make(4, 100, 200 * NS_PER_MS);
	clock_gettime(CLOCK_MONOTONIC, &now);
	start.ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
	ck_assert_int_eq(samplers_start(samplers), 0);
	scene_wait_for((first_ticks(first), first[0].ns && first[1].ns && first[2].ns && first[3].ns));
	samplers_stop(samplers);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_ge(mono_diff(first[i], start), (int64_t)(i * 50 * NS_PER_MS));
}
END_TEST

/*
 * Whether the last sample of each target has the CPU time that its process has used. Counts who
 * wrote them.
 */
static bool all_are_exact(const struct child *children, unsigned count, unsigned *ret_writers)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t last[TARGETS_MAX] = { 0 };
	bool exact = true;

	*ret_writers = 0;
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_SAMPLE)
			continue;
		ck_assert_uint_eq(event.writer, targets[event.id - 1].thread);
		last[event.id - 1] = event.sample->value[SAMPLE_CPU];
		*ret_writers |= 1u << event.writer;
	}
	ring_cursor_free(cursor);
	for (unsigned i = 0; i < count; i++)
		exact = exact && last[i] == (uint64_t)cpu_of(children[i].pid);
	return exact;
}

START_TEST(four_threads_have_the_exact_times_of_all)
{
	struct child children[12];
	struct stats stats, sum;
	struct ring_info info;
	unsigned writers;

	make(4, 100, 2 * NS_PER_MS);
	ck_assert_int_eq(samplers_start(samplers), 0);
	for (int i = 0; i < 12; i++) {
		children[i] = child_start();
		add_process(children[i].pid, NULL);
	}
	for (int i = 0; i < 12; i += 3)
		child_do(&children[i], 'b');
	scene_wait_for(all_are_exact(children, 12, &writers));
	samplers_stop(samplers);
	ck_assert(all_are_exact(children, 12, &writers));
	ck_assert_uint_eq(writers, 0xf);

	/* After the end nothing is missing in what the ring says. */
	samplers_stats(samplers, &sum);
	samplers_free(samplers);
	samplers = NULL;
	ring_info(ring, &info);
	ck_assert_int_eq(ring_stats(ring, &stats), 0);
	ck_assert_int_eq(memcmp(&stats, &sum, sizeof(stats)), 0);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	ck_assert_uint_eq(info.ticks, stats.total_snapshots + 4); /* and the last look of each */
	for (int i = 0; i < 12; i++)
		child_reap(&children[i]);
}
END_TEST

static bool all_are_slow(unsigned threads, uint64_t interval_ns)
{
	bool slow = true;

	for (unsigned i = 0; i < threads; i++) {
		struct stats stats = { 0 };

		samplers_thread_stats(samplers, i, &stats);
		slow = slow && stats.collection_rate == interval_ns * samplers_state(samplers).slowdown;
	}
	return slow;
}

START_TEST(one_budget_slows_all_of_them_down)
{
	struct sampler_options options = { .source = { .capacity = 1, .interval_ns = NS_PER_MS } };

	options.cpu_budget_percent = 0.001;
	ck_assert_int_eq(ring_create_anonymous(&(struct ring_options){ 0 }, &ring), 0);
	ck_assert_int_eq(samplers_new(&options, 3, ring, &samplers), 0);
	ck_assert_uint_eq(samplers_state(samplers).slowdown, 1);
	ck_assert_int_eq(samplers_start(samplers), 0);
	scene_wait_for(samplers_state(samplers).slowdown > 1);
	scene_wait_for(all_are_slow(3, NS_PER_MS));
	ck_assert(samplers_state(samplers).cpu_share > 0);

	/* Without a limit all of them are themselves again, and the ring knows the interval. */
	options.cpu_budget_percent = 0;
	options.source.interval_ns = 2 * NS_PER_MS;
	ck_assert_int_eq(samplers_retune(samplers, &options), 0);
	scene_wait_for(samplers_state(samplers).slowdown == 1 && all_are_slow(3, 2 * NS_PER_MS));
	samplers_stop(samplers);
	ck_assert_uint_eq(ring_interval_ns(ring), 2 * NS_PER_MS);
}
END_TEST

static uint64_t pages_claimed(void)
{
	struct ring_info info;

	ring_info(ring, &info);
	return info.next_seq;
}

static unsigned backed_off(void)
{
	struct stats stats;
	unsigned threads = 0;

	for (unsigned i = 0; i < 3; i++)
		threads += samplers_thread_stats(samplers, i, &stats) == 0 && stats.num_backoff_sleeps > 0;
	return threads;
}

static void drain(struct ring_cursor *cursor)
{
	struct ring_event event;

	while (ring_cursor_next(cursor, &event) == 0)
		ck_assert(event.type != RING_EVENT_LAPPED && event.type != RING_EVENT_DAMAGED);
}

START_TEST(each_backs_off_by_itself_and_stopping_does_not_wait_for_a_reader)
{
	struct ring_options ring_options = { .size_bytes = 17 * 4096, .page_bytes = 4096 };
	struct ring_cursor *cursor;
	uint64_t claimed;

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(samplers_new(options_of(10, NS_PER_MS), 3, ring, &samplers), 0);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, getpid(), 0, NULL, &cursor), 0);
	ck_assert_int_eq(samplers_start(samplers), 0);
	scene_wait_for(pages_claimed() >= 14);
	for (int i = 0; i < 600; i++) /* a page is full after 120 ticks at the latest */
		nap();

	/* What a thread counts while it is held it says with its next tick. */
	scene_wait_for((drain(cursor), backed_off() == 3));
	claimed = pages_claimed();
	scene_wait_for(pages_claimed() >= claimed + 10);
	samplers_stop(samplers);
	drain(cursor);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(an_alarm_goes_off_once_after_the_tick_it_is_set_for)
{
	struct pollfd alarm = { .events = POLLIN };
	struct timespec clock;
	uint64_t times;

	make(2, 4, 5 * NS_PER_MS);
	alarm.fd = samplers_open_alarm(samplers);
	ck_assert_int_ge(alarm.fd, 0);
	ck_assert_int_eq(samplers_start(samplers), 0);
	ck_assert_int_eq(poll(&alarm, 1, 50), 0); /* it was not set */

	clock_gettime(CLOCK_MONOTONIC, &clock);
	mono_t at = { (uint64_t)clock.tv_sec * NS_PER_S + (uint64_t)clock.tv_nsec + 30 * NS_PER_MS };
	samplers_set_alarm(samplers, at, at);
	ck_assert_int_eq(poll(&alarm, 1, 10000), 1);
	clock_gettime(CLOCK_MONOTONIC, &clock);
	ck_assert_uint_ge((uint64_t)clock.tv_sec * NS_PER_S + (uint64_t)clock.tv_nsec, at.ns);
	ck_assert_int_eq(read(alarm.fd, &times, sizeof(times)), sizeof(times));
	ck_assert_uint_eq(times, 1);
	ck_assert_int_eq(poll(&alarm, 1, 50), 0);
}
END_TEST

START_TEST(they_start_and_stop_again_and_again)
{
	struct ring_info info;

	make(3, 8, 10 * NS_PER_S);
	for (uint64_t i = 1; i <= 3; i++) {
		ck_assert_int_eq(samplers_start(samplers), 0);
		samplers_stop(samplers);
		samplers_stop(samplers);
		ring_info(ring, &info);
		ck_assert_uint_ge(info.ticks, 3 * i);
	}
}
END_TEST

START_TEST(each_allocation_may_fail)
{
	const struct sampler_options *options = options_of(10, NS_PER_S);
	bool injected = true;

	ck_assert_int_eq(ring_create_anonymous(&(struct ring_options){ 0 }, &ring), 0);
	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = samplers_new(options, 3, ring, &samplers);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}

	struct sampler_options other = *options;

	other.source.interval_ns = NS_PER_MS;
	injected = true;
	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = samplers_retune(samplers, &other);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		samplers_tick(samplers);

		struct stats stats;

		ck_assert_int_eq(ring_stats(ring, &stats), 0);
		ck_assert_uint_eq(stats.collection_rate, injected ? NS_PER_S : NS_PER_MS);
	}
}
END_TEST

Suite *samplers_suite(void)
{
	Suite *suite = suite_create("samplers");
	TCase *shares = tcase_create("shares");
	TCase *threads = tcase_create("threads");

	tcase_add_checked_fixture(shares, setup, teardown);
	tcase_add_test(shares, a_budget_is_worth_as_many_threads_as_it_has_cores);
	tcase_add_test(shares, a_target_goes_to_the_thread_with_the_fewest);
	tcase_add_test(shares, members_go_where_their_group_is);
	tcase_add_test(shares, there_are_not_more_than_the_capacity_on_all_together);
	tcase_add_test(shares, one_that_was_refused_can_be_asked_for_and_answers_twice);
	tcase_add_test(shares, what_ends_comes_back_from_every_thread);
	tcase_add_test(shares, the_counters_are_those_of_all);
	tcase_add_test(shares, the_pulse_is_that_of_the_one_that_was_seen_least_recently);
	tcase_add_test(shares, each_allocation_may_fail);
	suite_add_tcase(suite, shares);
	tcase_add_checked_fixture(threads, setup, teardown);
	tcase_add_test(threads, they_tick_in_turn);
	tcase_add_test(threads, four_threads_have_the_exact_times_of_all);
	tcase_add_test(threads, one_budget_slows_all_of_them_down);
	tcase_add_test(threads, each_backs_off_by_itself_and_stopping_does_not_wait_for_a_reader);
	tcase_add_test(threads, an_alarm_goes_off_once_after_the_tick_it_is_set_for);
	tcase_add_test(threads, they_start_and_stop_again_and_again);
	suite_add_tcase(suite, threads);

	return suite;
}
