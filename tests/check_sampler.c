/*
 * check_sampler.c: ticks that allocate nothing and open nothing, answers to the cold side, and what happens when a reader does not
 * read. Ticks are taken in the test's own thread wherever that shows the same.
 */
#include "children.h"
#include "ring.h"
#include "sampler.h"
#include "scene.h"
#include "torture.h"

#include <errno.h>
#include <sys/resource.h>

Suite *sampler_suite(void);

#define TARGETS_MAX 4

/* One target as the cold side keeps it. */
struct watched {
	struct sampler_target sampled;
	struct target what;
};

static struct ring *ring;
static struct sampler *sampler;
static struct ring_cursor *cursor;
static struct watched watched[TARGETS_MAX];
static int procfd;

/* What a reader of the ring has seen so far. */
static struct {
	uint64_t ticks, ends, described, samples;
	uint64_t gone[TARGETS_MAX + 1];
	enum ring_gone_reason reason;
	struct sample last[TARGETS_MAX + 1]; /* by id */
	uint64_t holes;                      /* lapped, damaged, ticks whose number is not the next */
} seen;

static void setup(void)
{
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
	memset(&seen, 0, sizeof(seen));
	memset(watched, 0, sizeof(watched));
	ring = NULL;
	sampler = NULL;
	cursor = NULL;
}

static void teardown(void)
{
	ring_cursor_free(cursor);
	sampler_free(sampler);
	for (int i = 0; i < TARGETS_MAX; i++)
		sampler_target_release(&watched[i].sampled);
	ring_free(ring);
	close(procfd);
}

static void make(uint64_t interval_ns, uint32_t capacity, uint64_t ring_bytes, uint32_t page_bytes)
{
	struct ring_options ring_options = { .size_bytes = ring_bytes,
					     .page_bytes = page_bytes,
					     .heartbeat_ns = 50 * NS_PER_MS };
	struct sampler_options options = {
		.source = { .capacity = capacity, .heartbeat_ns = 50 * NS_PER_MS },
		.interval_ns = interval_ns,
	};

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(sampler_new(&options, ring, &sampler), 0);
}

/* Makes target number i + 1 of an entry that exists, and hands it over. */
static struct sampler_target *add(int i, const char *name)
{
	struct watched *target = &watched[i];

	target->what.id = (uint32_t)i + 1;
	target->what.entry = target->what.name = target->what.key = name;
	target->what.comm = target->what.cmdline = target->what.cgroup = "";
	ck_assert_int_eq(sampler_target_describe(&target->sampled, &target->what), 0);
	ck_assert(sampler_add(sampler, &target->sampled));

	return &target->sampled;
}

static struct sampler_target *add_process(int i, pid_t pid, struct sampler_target *group)
{
	struct watched *target = &watched[i];

	target->what.kind = TARGET_PROCESS;
	target->what.pid = pid;
	target->sampled.group = group;
	ck_assert_int_eq(source_entry_process(procfd, pid, 0, true, &target->sampled, &target->sampled.entry), 0);

	return add(i, "process");
}

static struct sampler_target *add_group(int i)
{
	watched[i].what.kind = TARGET_GROUP;
	ck_assert_int_eq(source_entry_group(&watched[i].sampled, &watched[i].sampled.entry), 0);

	return add(i, "group");
}

static void answers(const struct sampler_target *target, enum sampler_return why)
{
	struct sampler_target *returned = NULL;
	enum sampler_return got = 0;

	ck_assert(sampler_returned(sampler, &returned, &got));
	ck_assert_ptr_eq(returned, target);
	ck_assert_int_eq(got, why);
}

static void answers_no_more(void)
{
	struct sampler_target *returned;
	enum sampler_return why;

	ck_assert(!sampler_returned(sampler, &returned, &why));
}

static void note(const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		seen.holes += event->tick != seen.ticks++;
		break;
	case RING_EVENT_TICK_END:
		seen.ends++;
		break;
	case RING_EVENT_TARGET:
		seen.described++;
		break;
	case RING_EVENT_SAMPLE:
		seen.samples++;
		seen.last[event->id] = *event->sample;
		break;
	case RING_EVENT_GONE:
		seen.gone[event->id]++;
		seen.reason = event->reason;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		seen.holes++;
		break;
	}
}

static void read_ring(void)
{
	struct ring_event event;
	int r;

	if (!cursor)
		ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while ((r = ring_cursor_next(cursor, &event)) == 0)
		note(&event);
	ck_assert_int_eq(r, RING_EMPTY);
}

static uint64_t value(int i, enum sample_field field)
{
	ck_assert(sample_has(&seen.last[i + 1], field));

	return seen.last[i + 1].value[field];
}

START_TEST(a_tick_allocates_nothing_and_opens_nothing)
{
	struct child children[3] = { child_start(), child_start(), child_start() };
	struct rlimit limit, none;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	for (int i = 0; i < 3; i++)
		add_process(i, children[i].pid, NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0); /* from here on nobody can open anything */

	unsigned long before = torture_allocations();
	for (int i = 0; i < 50; i++)
		sampler_tick(sampler);
	unsigned long between = torture_allocations();
	child_exit(&children[2]); /* a zombie still is a process */
	waitpid(children[2].pid, NULL, 0);
	unsigned long after = torture_allocations();
	for (int i = 0; i < 50; i++)
		sampler_tick(sampler);
	unsigned long end = torture_allocations();

	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_uint_eq(between, before);
	ck_assert_uint_eq(end, after);
	answers(&watched[2].sampled, SAMPLER_GONE);

	struct stats stats;

	ck_assert_int_eq(ring_stats(ring, &stats), 0);
	ck_assert_uint_eq(stats.failed_reads, 0);
	ck_assert_uint_eq(stats.gone_targets, 1);
	ck_assert_uint_eq(stats.total_snapshots, 100);
	read_ring();
	ck_assert_uint_eq(seen.ticks, 100);
	ck_assert_uint_eq(seen.described, 3);
	for (int i = 0; i < 2; i++)
		child_reap(&children[i]);
}
END_TEST

START_TEST(what_a_process_did_is_in_the_next_tick)
{
	struct child child = child_start();

	make(NS_PER_MS, 8, 1 << 20, 16384);
	add_process(0, child.pid, NULL);
	sampler_tick(sampler);
	read_ring();
	uint64_t cpu = value(0, SAMPLE_CPU), memory = value(0, SAMPLE_MEMORY);

	child_do(&child, 'b');
	child_do(&child, 'm');
	sampler_tick(sampler);
	read_ring();
	ck_assert_uint_ge(value(0, SAMPLE_CPU), cpu + BURNT_NS);
	ck_assert_uint_ge(value(0, SAMPLE_MEMORY), memory + TOUCHED_BYTES / 2);
	ck_assert_uint_eq(value(0, SAMPLE_CPU), (uint64_t)cpu_of(child.pid));
	child_reap(&child);
}
END_TEST

START_TEST(removing_is_answered_once)
{
	struct child child = child_start();
	struct sampler_target *target;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	target = add_process(0, child.pid, NULL);
	sampler_tick(sampler);
	answers_no_more();
	ck_assert(sampler_remove(sampler, target));
	answers_no_more();
	sampler_tick(sampler);
	answers(target, SAMPLER_REMOVED);
	sampler_tick(sampler);
	answers_no_more();
	read_ring();
	ck_assert_uint_eq(seen.gone[1], 1);
	ck_assert_int_eq(seen.reason, RING_GONE_UNWATCHED);
	child_reap(&child);
}
END_TEST

START_TEST(a_target_that_is_gone_comes_back_and_removing_it_is_answered_too)
{
	struct child child = child_start();
	struct sampler_target *target;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	target = add_process(0, child.pid, NULL);
	sampler_tick(sampler);
	child_reap(&child);
	sampler_tick(sampler);
	ck_assert(sampler_remove(sampler, target)); /* asked for before the answer was read */
	sampler_tick(sampler);
	answers(target, SAMPLER_GONE);
	answers(target, SAMPLER_REMOVED);
	answers_no_more();
	read_ring();
	ck_assert_uint_eq(seen.gone[1], 1);
	ck_assert_int_eq(seen.reason, RING_GONE_EXITED);
}
END_TEST

START_TEST(a_full_source_refuses_and_removing_is_answered_all_the_same)
{
	struct child child = child_start();
	struct sampler_target *second;

	make(NS_PER_MS, 1, 1 << 20, 16384);
	add_process(0, child.pid, NULL);
	second = add_process(1, child.pid, NULL);
	ck_assert(sampler_remove(sampler, second));
	sampler_tick(sampler);
	answers(second, SAMPLER_REFUSED);
	answers(second, SAMPLER_REMOVED);
	answers_no_more();
	read_ring();
	ck_assert_uint_eq(seen.described, 1);
	ck_assert_uint_eq(seen.gone[2], 0);
	child_reap(&child);
}
END_TEST

START_TEST(members_are_counted_in_their_group_and_not_shown)
{
	struct child children[2] = { child_start(), child_start() };
	struct sampler_target *group, *first, *second;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	group = add_group(0);
	first = add_process(1, children[0].pid, group);
	second = add_process(2, children[1].pid, group);
	sampler_tick(sampler);
	read_ring();
	ck_assert_uint_eq(seen.described, 1);
	ck_assert_uint_eq(value(0, SAMPLE_PROCESSES), 2);
	uint64_t cpu = value(0, SAMPLE_CPU);

	child_do(&children[0], 'b');
	child_do(&children[1], 'b');
	sampler_tick(sampler);
	read_ring();
	ck_assert_uint_ge(value(0, SAMPLE_CPU), cpu + 2 * BURNT_NS);
	cpu = value(0, SAMPLE_CPU);

	sampler_remove(sampler, first);
	sampler_tick(sampler);
	answers(first, SAMPLER_REMOVED);
	child_reap(&children[1]);
	sampler_tick(sampler);
	answers(second, SAMPLER_GONE);
	sampler_tick(sampler);
	read_ring();
	ck_assert_uint_eq(value(0, SAMPLE_PROCESSES), 0);
	ck_assert_uint_ge(value(0, SAMPLE_CPU), cpu); /* a sum never steps back */
	ck_assert_uint_eq(seen.gone[1] + seen.gone[2] + seen.gone[3], 0);
	ck_assert_uint_eq(seen.described, 1);
	child_reap(&children[0]);
}
END_TEST

START_TEST(a_full_queue_says_so_and_every_command_in_it_is_answered)
{
	unsigned queued = 0, answered = 0;
	struct sampler_target *returned;
	enum sampler_return why;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	while (queued < 100000 && sampler_remove(sampler, &watched[0].sampled))
		queued++;
	ck_assert_uint_gt(queued, 1000);
	ck_assert_uint_lt(queued, 100000);
	for (int i = 0; i < 100; i++)
		sampler_tick(sampler); /* nobody takes the answers yet */
	for (int i = 0; i < 2; i++) {
		while (sampler_returned(sampler, &returned, &why))
			answered += why == SAMPLER_REMOVED;
		sampler_tick(sampler);
	}
	ck_assert_uint_eq(answered, queued);
}
END_TEST

START_TEST(slots_that_have_passed_are_skipped_not_made_up)
{
	struct stats stats;

	make(NS_PER_MS, 8, 1 << 20, 16384);
	sampler_tick(sampler);
	for (int i = 0; i < 10; i++)
		nap();
	sampler_tick(sampler);
	ck_assert_int_eq(ring_stats(ring, &stats), 0);
	ck_assert_uint_eq(stats.total_snapshots, 2);
	ck_assert_uint_ge(stats.missed_slots, 8);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	read_ring();
	ck_assert_uint_eq(seen.ticks, 2);
}
END_TEST

static uint64_t pages_claimed(void)
{
	struct ring_info info;

	ring_info(ring, &info);

	return info.next_seq;
}

static uint64_t backoff_sleeps(void)
{
	struct stats stats;

	ck_assert_int_eq(ring_stats(ring, &stats), 0);

	return stats.num_backoff_sleeps;
}

START_TEST(a_reader_that_does_not_read_makes_it_back_off_and_loses_nothing)
{
	struct child children[2] = { child_start(), child_start() };
	struct stats stats;

	make(NS_PER_MS, 8, 8 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, getpid(), 0, NULL, &cursor), 0);
	add_process(0, children[0].pid, NULL);
	add_process(1, children[1].pid, NULL);
	ck_assert_int_eq(sampler_start(sampler), 0);
	/* A tick is at least 32 bytes: the ring is full sooner or later, and stays so. */
	scene_wait_for(pages_claimed() >= 5);
	child_do(&children[0], 'b');
	for (int i = 0; i < 100; i++)
		nap();
	uint64_t claimed = pages_claimed();
	child_do(&children[1], 'b');
	child_do(&children[1], 'm');
	ck_assert_uint_le(claimed, 7);

	/* The reader wakes up. */
	scene_wait_for((read_ring(), backoff_sleeps() > 0));
	scene_wait_for((read_ring(), value(0, SAMPLE_CPU) == (uint64_t)cpu_of(children[0].pid) &&
					     value(1, SAMPLE_CPU) == (uint64_t)cpu_of(children[1].pid)));
	scene_wait_for((read_ring(), pages_claimed() > 14));
	sampler_stop(sampler);
	read_ring();
	ck_assert_uint_eq(seen.holes, 0);
	ck_assert_uint_eq(seen.ticks, seen.ends);
	ck_assert_uint_eq(seen.described, 2);
	ck_assert_int_eq(ring_stats(ring, &stats), 0);
	ck_assert_uint_eq(stats.lost_records, 0);
	ck_assert_uint_gt(stats.total_backoff_sleep, 0);
	ck_assert_uint_gt(stats.missed_slots, 0);
	child_reap(&children[0]);
	child_reap(&children[1]);
}
END_TEST

START_TEST(it_starts_and_stops_again_and_again)
{
	struct ring_info info;

	make(10 * NS_PER_S, 8, 1 << 20, 16384);
	for (uint64_t i = 1; i <= 5; i++) {
		ring_info(ring, &info);
		uint64_t ticks = info.ticks;

		ck_assert_int_eq(sampler_start(sampler), 0);
		scene_wait_for((ring_info(ring, &info), info.ticks > ticks));
		sampler_stop(sampler);
		sampler_stop(sampler);
	}
	read_ring();
	ck_assert_uint_eq(seen.holes, 0);
	ck_assert_uint_eq(seen.ticks, seen.ends);
}
END_TEST

START_TEST(a_run_of_no_length_has_seen_its_targets)
{
	struct child child = child_start();

	make(10 * NS_PER_S, 8, 1 << 20, 16384);
	add_process(0, child.pid, NULL);
	ck_assert_int_eq(sampler_start(sampler), 0);
	sampler_stop(sampler);
	read_ring();
	ck_assert_uint_ge(seen.samples, 1);
	child_reap(&child);
}
END_TEST

START_TEST(stopping_does_not_wait_for_a_reader)
{
	make(NS_PER_MS, 8, 5 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, getpid(), 0, NULL, &cursor), 0);
	ck_assert_int_eq(sampler_start(sampler), 0);
	scene_wait_for(pages_claimed() >= 3);
	for (int i = 0; i < 50; i++)
		nap();
	sampler_stop(sampler);
	read_ring();
	ck_assert_uint_eq(seen.holes, 0);
}
END_TEST

START_TEST(a_budget_that_is_exceeded_lengthens_the_interval)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options options = { .source = { .capacity = 1 },
					   .interval_ns = NS_PER_MS,
					   .cpu_budget_percent = 0.001 };
	struct stats stats;

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(sampler_new(&options, ring, &sampler), 0);
	ck_assert_uint_eq(sampler_slowdown(sampler), 1);
	ck_assert_int_eq(sampler_start(sampler), 0);
	scene_wait_for(sampler_slowdown(sampler) > 1);
	scene_wait_for((ring_stats(ring, &stats), stats.collection_rate > options.interval_ns));
	sampler_stop(sampler);
	ck_assert(sampler_cpu_share(sampler) > 0);
	ck_assert_int_eq(ring_stats(ring, &stats), 0);
	ck_assert_uint_eq(stats.collection_rate, options.interval_ns * sampler_slowdown(sampler));
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options options = { .source = { .capacity = 4 }, .interval_ns = NS_PER_MS };
	bool injected = true;

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	for (long n = 1; injected; n++) {
		sampler = NULL;
		torture_arm(n);
		int r = sampler_new(&options, ring, &sampler);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(injected == !sampler);
	}
}
END_TEST

Suite *sampler_suite(void)
{
	Suite *suite = suite_create("sampler");
	TCase *tcase = tcase_create("ticks");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_tick_allocates_nothing_and_opens_nothing);
	tcase_add_test(tcase, what_a_process_did_is_in_the_next_tick);
	tcase_add_test(tcase, removing_is_answered_once);
	tcase_add_test(tcase, a_target_that_is_gone_comes_back_and_removing_it_is_answered_too);
	tcase_add_test(tcase, a_full_source_refuses_and_removing_is_answered_all_the_same);
	tcase_add_test(tcase, members_are_counted_in_their_group_and_not_shown);
	tcase_add_test(tcase, a_full_queue_says_so_and_every_command_in_it_is_answered);
	tcase_add_test(tcase, slots_that_have_passed_are_skipped_not_made_up);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("thread");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_reader_that_does_not_read_makes_it_back_off_and_loses_nothing);
	tcase_add_test(tcase, it_starts_and_stops_again_and_again);
	tcase_add_test(tcase, a_run_of_no_length_has_seen_its_targets);
	tcase_add_test(tcase, stopping_does_not_wait_for_a_reader);
	tcase_add_test(tcase, a_budget_that_is_exceeded_lengthens_the_interval);
	suite_add_tcase(suite, tcase);

	return suite;
}
