/*
 * check_sampler_tick.c: ticks that allocate nothing and open nothing, and the answers to the cold
 * side. Ticks are taken in the test's own thread.
 */
#include "sampler_rig.h"
#include "torture.h"
#include "ring_targets.h"
#include "samplers_tick.h"

#include <errno.h>
#include <sys/resource.h>

Suite *sampler_tick_suite(void);

static struct sampler_rig rig;

static void setup(void)
{
	rig_begin(&rig);
}

static void teardown(void)
{
	rig_end(&rig);
}

START_TEST(a_tick_allocates_nothing_and_opens_nothing)
{
	struct child children[3] = { child_start(), child_start(), child_start() };
	struct rlimit limit, none;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	for (int i = 0; i < 3; i++)
		rig_add_process(&rig, i, children[i].pid, NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0); /* from here on nothing can be opened */

	unsigned long before = torture_allocations();
	for (int i = 0; i < 50; i++)
		samplers_tick(rig.samplers);
	unsigned long between = torture_allocations();
	child_exit(&children[2]); /* a zombie still is a process */
	waitpid(children[2].pid, NULL, 0);
	unsigned long after = torture_allocations();
	for (int i = 0; i < 50; i++)
		samplers_tick(rig.samplers);
	unsigned long end = torture_allocations();

	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_uint_eq(between, before);
	ck_assert_uint_eq(end, after);
	rig_answers(&rig, &rig.watched[2].sampled, SAMPLER_GONE);

	struct stats stats;

	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
	ck_assert_uint_eq(stats.failed_reads, 0);
	ck_assert_uint_eq(stats.gone_targets, 1);
	ck_assert_uint_eq(stats.total_snapshots, 100);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.ticks, 100);
	ck_assert_uint_eq(rig.seen.described, 3);
	for (int i = 0; i < 2; i++)
		child_reap(&children[i]);
}
END_TEST

/* The name of a target as a reader knows it now. */
static const char *name_of(uint32_t id)
{
	static struct ring_targets targets;
	struct target target;

	rig_read_ring(&rig);
	ring_targets_read(rig.ring, &targets);
	ck_assert(ring_targets_find(&targets, id, &target));

	return target.comm;
}

START_TEST(a_target_that_is_called_something_else_is_described_anew)
{
	static const char *const names[] = { "one", "two", "three", "four" };
	struct child child = child_start();
	struct target what;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	rig_add_process(&rig, 0, child.pid, NULL);
	what = rig.watched[0].what;
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.described, 1);

	/* Of two between two ticks the later; the sampler allocates nothing for them. */
	for (size_t i = 0; i < 4; i++) {
		for (size_t k = i ? i - 1 : 0; k <= i; k++) {
			what.comm = names[k];
			ck_assert_int_eq(sampler_target_describe_anew(&rig.watched[0].sampled, &what), 0);
		}
		child_do(&child, 'b');
		unsigned long before = torture_allocations();
		samplers_tick(rig.samplers);
		ck_assert_uint_eq(torture_allocations(), before);
		ck_assert_str_eq(name_of(what.id), names[i]);
		ck_assert_uint_eq(rig.seen.described, i + 2);
	}

	/* Two more that have not been taken when it ends. */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(sampler_target_describe_anew(&rig.watched[0].sampled, &what), 0);
	torture_arm(1);
	int r = sampler_target_describe_anew(&rig.watched[0].sampled, &what);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	child_reap(&child);
}
END_TEST

START_TEST(what_a_process_did_is_in_the_next_tick)
{
	struct child child = child_start();

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	rig_add_process(&rig, 0, child.pid, NULL);
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	uint64_t cpu = rig_value(&rig, 0, SAMPLE_CPU), memory = rig_value(&rig, 0, SAMPLE_MEMORY);

	child_do(&child, 'b');
	child_do(&child, 'm');
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_ge(rig_value(&rig, 0, SAMPLE_CPU), cpu + BURNT_NS);
	ck_assert_uint_ge(rig_value(&rig, 0, SAMPLE_MEMORY), memory + TOUCHED_BYTES / 2);
	ck_assert_uint_eq(rig_value(&rig, 0, SAMPLE_CPU), (uint64_t)cpu_of(child.pid));
	child_reap(&child);
}
END_TEST

START_TEST(removing_is_answered_once)
{
	struct child child = child_start();
	struct sampler_target *target;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	target = rig_add_process(&rig, 0, child.pid, NULL);
	samplers_tick(rig.samplers);
	rig_answers_no_more(&rig);
	ck_assert(samplers_remove(rig.samplers, target));
	rig_answers_no_more(&rig);
	samplers_tick(rig.samplers);
	rig_answers(&rig, target, SAMPLER_REMOVED);
	samplers_tick(rig.samplers);
	rig_answers_no_more(&rig);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.gone[1], 1);
	ck_assert_int_eq(rig.seen.reason, RING_GONE_UNWATCHED);
	child_reap(&child);
}
END_TEST

START_TEST(a_target_that_is_gone_comes_back_and_removing_it_is_answered_too)
{
	struct child child = child_start();
	struct sampler_target *target;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	target = rig_add_process(&rig, 0, child.pid, NULL);
	samplers_tick(rig.samplers);
	child_reap(&child);
	samplers_tick(rig.samplers);
	ck_assert(samplers_remove(rig.samplers, target)); /* asked for before the answer was read */
	samplers_tick(rig.samplers);
	rig_answers(&rig, target, SAMPLER_GONE);
	rig_answers(&rig, target, SAMPLER_REMOVED);
	rig_answers_no_more(&rig);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.gone[1], 1);
	ck_assert_int_eq(rig.seen.reason, RING_GONE_EXITED);
}
END_TEST

START_TEST(a_full_source_refuses_and_removing_is_answered_all_the_same)
{
	struct child child = child_start();
	struct sampler_target *second;

	rig_make(&rig, NS_PER_MS, 1, 1 << 20, 16384);
	rig_add_process(&rig, 0, child.pid, NULL);
	second = rig_add_process(&rig, 1, child.pid, NULL);
	ck_assert(samplers_remove(rig.samplers, second));
	samplers_tick(rig.samplers);
	rig_answers(&rig, second, SAMPLER_REFUSED);
	rig_answers(&rig, second, SAMPLER_REMOVED);
	rig_answers_no_more(&rig);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.described, 1);
	ck_assert_uint_eq(rig.seen.gone[2], 0);
	child_reap(&child);
}
END_TEST

START_TEST(members_are_counted_in_their_group_and_not_shown)
{
	struct child children[2] = { child_start(), child_start() };
	struct sampler_target *group, *first, *second;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	group = rig_add_group(&rig, 0);
	first = rig_add_process(&rig, 1, children[0].pid, group);
	second = rig_add_process(&rig, 2, children[1].pid, group);
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.described, 1);
	ck_assert_uint_eq(rig_value(&rig, 0, SAMPLE_PROCESSES), 2);
	uint64_t cpu = rig_value(&rig, 0, SAMPLE_CPU);

	child_do(&children[0], 'b');
	child_do(&children[1], 'b');
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_ge(rig_value(&rig, 0, SAMPLE_CPU), cpu + 2 * BURNT_NS);
	cpu = rig_value(&rig, 0, SAMPLE_CPU);

	samplers_remove(rig.samplers, first);
	samplers_tick(rig.samplers);
	rig_answers(&rig, first, SAMPLER_REMOVED);
	child_reap(&children[1]);
	samplers_tick(rig.samplers);
	rig_answers(&rig, second, SAMPLER_GONE);
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig_value(&rig, 0, SAMPLE_PROCESSES), 0);
	ck_assert_uint_ge(rig_value(&rig, 0, SAMPLE_CPU), cpu); /* a sum never steps back */
	ck_assert_uint_eq(rig.seen.gone[1] + rig.seen.gone[2] + rig.seen.gone[3], 0);
	ck_assert_uint_eq(rig.seen.described, 1);
	child_reap(&children[0]);
}
END_TEST

START_TEST(a_full_queue_says_so_and_every_command_in_it_is_answered)
{
	unsigned queued = 0, answered = 0;
	struct sampler_target *returned;
	enum sampler_return why;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	while (queued < 100000 && samplers_remove(rig.samplers, &rig.watched[0].sampled))
		queued++;
	ck_assert_uint_gt(queued, 1000);
	ck_assert_uint_lt(queued, 100000);
	for (int i = 0; i < 100; i++)
		samplers_tick(rig.samplers); /* the answers are not taken yet */
	for (int i = 0; i < 2; i++) {
		while (samplers_returned(rig.samplers, &returned, &why))
			answered += why == SAMPLER_REMOVED;
		samplers_tick(rig.samplers);
	}
	ck_assert_uint_eq(answered, queued);
}
END_TEST

START_TEST(what_did_not_fit_is_shown_when_there_is_room_again)
{
	struct child child = child_start();
	struct stats stats;

	rig.heartbeat_ns = 3600 * NS_PER_S; /* a target that does not change is not written again by itself */
	rig_make(&rig, NS_PER_MS, TARGETS_MAX, 17 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(rig.ring, getpid(), 0, NULL, &rig.cursor), 0);
	while (rig_pages_claimed(&rig) < 15)
		samplers_tick(rig.samplers);
	for (int i = 0; i < TARGETS_MAX; i++)
		rig_add_process(&rig, i, child.pid, NULL);
	samplers_tick(rig.samplers); /* all at once: room for them was not asked for */
	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
	ck_assert_uint_gt(stats.lost_records, 0);
	rig_read_ring(&rig);
	ck_assert_uint_lt(rig.seen.described, TARGETS_MAX);
	for (int i = 0; i < 5; i++) {
		samplers_tick(rig.samplers);
		rig_read_ring(&rig);
	}
	ck_assert_uint_eq(rig.seen.described, TARGETS_MAX);
	ck_assert_uint_eq(rig.seen.holes, 0);
	child_reap(&child);
}
END_TEST

START_TEST(slots_that_have_passed_are_skipped_not_made_up)
{
	struct stats stats;

	rig_make(&rig, NS_PER_MS, 8, 1 << 20, 16384);
	samplers_tick(rig.samplers);
	for (int i = 0; i < 10; i++)
		nap();
	samplers_tick(rig.samplers);
	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
	ck_assert_uint_eq(stats.total_snapshots, 2);
	ck_assert_uint_ge(stats.missed_slots, 8);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.ticks, 2);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options options = { .source = { .capacity = 4, .interval_ns = NS_PER_MS } };
	bool injected = true;

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	for (long n = 1; injected; n++) {
		rig.samplers = NULL;
		torture_arm(n);
		int r = samplers_new(&options, 1, rig.ring, &rig.samplers);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(injected == !rig.samplers);
	}
}
END_TEST

Suite *sampler_tick_suite(void)
{
	Suite *suite = suite_create("sampler_tick");
	TCase *tcase = tcase_create("ticks");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_tick_allocates_nothing_and_opens_nothing);
	tcase_add_test(tcase, a_target_that_is_called_something_else_is_described_anew);
	tcase_add_test(tcase, what_a_process_did_is_in_the_next_tick);
	tcase_add_test(tcase, removing_is_answered_once);
	tcase_add_test(tcase, a_target_that_is_gone_comes_back_and_removing_it_is_answered_too);
	tcase_add_test(tcase, a_full_source_refuses_and_removing_is_answered_all_the_same);
	tcase_add_test(tcase, members_are_counted_in_their_group_and_not_shown);
	tcase_add_test(tcase, a_full_queue_says_so_and_every_command_in_it_is_answered);
	tcase_add_test(tcase, what_did_not_fit_is_shown_when_there_is_room_again);
	tcase_add_test(tcase, slots_that_have_passed_are_skipped_not_made_up);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
