/*
 * check_sampler_retune.c: a sampler takes on new options, between ticks of the test's own and in
 * its thread, and shows that it lives.
 */
#include "sampler_rig.h"
#include "skip.h"
#include "torture.h"
#include "samplers_tick.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

Suite *sampler_retune_suite(void);

static struct sampler_rig rig;

static void setup(void)
{
	rig_begin(&rig);
}

static void teardown(void)
{
	rig_end(&rig);
}

static struct sampler_options options;

static void begin(uint64_t interval_ns, uint32_t capacity, uint64_t ring_bytes, uint32_t page_bytes)
{
	rig_make(&rig, interval_ns, capacity, ring_bytes, page_bytes);
	options = (struct sampler_options){
		.source = { .capacity = capacity, .heartbeat_ns = rig.heartbeat_ns, .interval_ns = interval_ns }
	};
}

static void retune(void)
{
	ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
}

static struct stats stats_now(void)
{
	struct stats stats;

	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);

	return stats;
}

START_TEST(everything_is_in_force_from_the_next_tick_on)
{
	struct child child = child_start();
	struct ring_info info;

	begin(10 * NS_PER_S, 8, 1 << 20, 16384);
	options.source.peak_interval_ns = UINT64_MAX;
	retune();
	rig_add_process(&rig, 0, child.pid, NULL);
	samplers_tick(rig.samplers);
	ck_assert_uint_eq(stats_now().collection_rate, 10 * NS_PER_S);
	rig_read_ring(&rig);
	ck_assert(!sample_has(&rig.seen.last[1], SAMPLE_FDS));

	options.source.interval_ns = 20 * NS_PER_S;
	options.source.heartbeat_ns = 3 * NS_PER_S;
	options.source.fds_interval_ns = NS_PER_MS;
	retune();
	ck_assert_int_eq(source_entry_reopen(rig.watched[0].sampled.entry, rig.procfd, child.pid, 0, &options.source),
			 0);
	ck_assert_uint_ne(ring_interval_ns(rig.ring), 20 * NS_PER_S); /* not before the tick */
	samplers_tick(rig.samplers);
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(ring_interval_ns(rig.ring), 20 * NS_PER_S);
	ck_assert_uint_eq(info.heartbeat_ns, 3 * NS_PER_S);
	ck_assert_uint_eq(stats_now().collection_rate, 20 * NS_PER_S);
	rig_read_ring(&rig);
	ck_assert_uint_ge(rig_value(&rig, 0, SAMPLE_FDS), 2);
	child_reap(&child);
}
END_TEST

START_TEST(of_several_that_were_posted_between_two_ticks_the_last_one_counts)
{
	begin(NS_PER_MS, 8, 1 << 20, 16384);
	for (uint64_t i = 1; i <= 5; i++) {
		options.source.interval_ns = i * NS_PER_S;
		retune();
	}
	samplers_tick(rig.samplers);
	ck_assert_uint_eq(ring_interval_ns(rig.ring), 5 * NS_PER_S);
	ck_assert_uint_eq(stats_now().collection_rate, 5 * NS_PER_S);
}
END_TEST

START_TEST(a_tick_that_takes_new_options_allocates_nothing_and_opens_nothing)
{
	struct child children[3] = { child_start(), child_start(), child_start() };
	struct rlimit limit, none;
	unsigned long ticking = 0;

	begin(NS_PER_MS, 3, 1 << 20, 16384);
	for (int i = 0; i < 3; i++)
		rig_add_process(&rig, i, children[i].pid, NULL);
	samplers_tick(rig.samplers);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	for (uint32_t i = 0; i < 50; i++) {
		options.source.capacity = 1 + i % 10;
		options.source.heartbeat_ns = (1 + i % 3) * NS_PER_MS;
		options.source.peak_interval_ns = i % 2 ? UINT64_MAX : 0;
		options.source.fds_interval_ns = i % 4 / 2;
		options.source.interval_ns = (1 + i % 7) * NS_PER_MS;
		options.cpu_budget_percent = i % 5;
		retune();
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
		unsigned long before = torture_allocations();
		samplers_tick(rig.samplers);
		samplers_tick(rig.samplers);
		ticking += torture_allocations() - before;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	}
	ck_assert_uint_eq(ticking, 0);
	ck_assert_uint_eq(stats_now().failed_reads, 0);
	ck_assert_uint_eq(stats_now().total_snapshots, 101);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.ticks, 101);
	ck_assert_uint_eq(rig.seen.described, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(rig.seen.gone[i + 1], 0);
		child_reap(&children[i]);
	}
}
END_TEST

START_TEST(capacity_grows_and_shrinks_under_its_targets)
{
	struct child child = child_start();

	begin(NS_PER_MS, 2, 1 << 20, 16384);
	for (int i = 0; i < 3; i++)
		rig_add_process(&rig, i, child.pid, NULL);
	samplers_tick(rig.samplers);
	rig_answers(&rig, &rig.watched[2].sampled, SAMPLER_REFUSED);

	options.source.capacity = 4;
	retune();
	ck_assert(samplers_add(rig.samplers, &rig.watched[2].sampled));
	rig_add_process(&rig, 3, child.pid, NULL);
	rig_add_process(&rig, 4, child.pid, NULL);
	samplers_tick(rig.samplers);
	rig_answers(&rig, &rig.watched[4].sampled, SAMPLER_REFUSED);
	rig_answers_no_more(&rig);

	options.source.capacity = 1;
	retune();
	ck_assert(samplers_add(rig.samplers, &rig.watched[4].sampled));
	samplers_tick(rig.samplers);
	rig_answers(&rig, &rig.watched[4].sampled, SAMPLER_REFUSED);
	rig_answers_no_more(&rig);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.described, 4);
	ck_assert_uint_eq(rig.seen.gone[1] + rig.seen.gone[2] + rig.seen.gone[3] + rig.seen.gone[4], 0);
	child_reap(&child);
}
END_TEST

/* KiB of this process. */
static uint64_t locked_kib(void)
{
	char text[4096];
	FILE *file = fopen("/proc/self/status", "re");
	size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
	const char *line;

	ck_assert_uint_gt(len, 0);
	fclose(file);
	text[len] = '\0';
	line = strstr(text, "VmLck:");
	ck_assert_ptr_nonnull(line);
	return strtoull(line + 6, NULL, 10);
}

#define TABLE_ENTRIES (64u << 10) /* of which each has 40 bytes at least */
#define TABLE_KIB (TABLE_ENTRIES * 40 / 1024)

START_TEST(what_a_tick_goes_through_is_locked_also_when_there_is_more_of_it)
{
	struct ring_options ring = { .size_bytes = 1 << 20, .page_bytes = 16384, .heartbeat_ns = rig.heartbeat_ns };
	uint64_t before = locked_kib(), first;
	void *room = mmap(NULL, 8u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool may = mlock2(room, 8u << 20, MLOCK_ONFAULT) == 0;

	munmap(room, 8u << 20);
	if (!may)
		SKIP_TEST("memory may not be locked here");

	options = (struct sampler_options){
		.lock_memory = true,
		.source = { .capacity = TABLE_ENTRIES, .heartbeat_ns = rig.heartbeat_ns, .interval_ns = NS_PER_MS }
	};
	ck_assert_int_eq(ring_create_anonymous(&ring, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, rig.ring, &rig.samplers), 0);
	first = locked_kib();
	ck_assert_uint_ge(first, before + TABLE_KIB);

	options.source.capacity = 2 * TABLE_ENTRIES;
	retune();
	samplers_tick(rig.samplers);
	ck_assert_uint_ge(locked_kib(), before + 2 * TABLE_KIB);

#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed */
	options.source.capacity = 16;
	retune();
	samplers_tick(rig.samplers);
	retune();
	ck_assert_uint_lt(locked_kib(), first);
#endif
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
	bool injected = true;

	begin(NS_PER_MS, 8, 1 << 20, 16384);
	samplers_tick(rig.samplers);
	for (long n = 1; injected; n++) {
		options.source.interval_ns = (uint64_t)(1 + n) * NS_PER_S;
		torture_arm(n);
		int r = samplers_retune(rig.samplers, &options);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		samplers_tick(rig.samplers);
		ck_assert_uint_eq(stats_now().collection_rate, injected ? NS_PER_MS : options.source.interval_ns);
	}
}
END_TEST

START_TEST(the_cpu_budget_begins_anew_only_if_interval_or_budget_changed)
{
	begin(NS_PER_MS, 1, 1 << 20, 16384);
	options.cpu_budget_percent = 0.001;
	retune();
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for(samplers_state(rig.samplers).slowdown > 1);
	samplers_stop(rig.samplers);

	uint32_t slowdown = samplers_state(rig.samplers).slowdown;

	options.source.capacity = 5;
	retune();
	samplers_tick(rig.samplers);
	ck_assert_uint_eq(samplers_state(rig.samplers).slowdown, slowdown);
	ck_assert_uint_eq(stats_now().collection_rate, slowdown * NS_PER_MS);
	options.cpu_budget_percent = 0;
	retune();
	samplers_tick(rig.samplers);
	ck_assert_uint_eq(samplers_state(rig.samplers).slowdown, 1);
	ck_assert_uint_eq(stats_now().collection_rate, NS_PER_MS);
}
END_TEST

START_TEST(a_long_sleep_is_no_reason_to_wait_for_a_short_interval)
{
	begin(3600 * NS_PER_S, 8, 1 << 20, 16384);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for((rig_read_ring(&rig), rig.seen.ticks == 1));
	options.source.interval_ns = NS_PER_MS;
	retune();
	scene_wait_for((rig_read_ring(&rig), rig.seen.ticks > 20));

	struct stats stats = stats_now();

	ck_assert_uint_eq(stats.collection_rate, NS_PER_MS);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);

	/* And back: what sleeps an hour from now on does so after one more tick. */
	options.source.interval_ns = 3600 * NS_PER_S;
	retune();
	scene_wait_for(stats_now().collection_rate == 3600 * NS_PER_S);
	samplers_stop(rig.samplers);
	stats = stats_now();
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);
}
END_TEST

START_TEST(options_that_came_before_the_start_are_those_it_starts_with)
{
	begin(3600 * NS_PER_S, 8, 1 << 20, 16384);
	options.source.interval_ns = NS_PER_MS;
	retune();
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for((rig_read_ring(&rig), rig.seen.ticks > 5));
	samplers_stop(rig.samplers);
	ck_assert_uint_eq(stats_now().collection_rate, NS_PER_MS);
}
END_TEST

/* Fills the ring in front of a reader that does not read. */
static void begin_held(uint64_t then_ns)
{
	begin(NS_PER_MS, 8, 6 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(rig.ring, getpid(), 0, NULL, &rig.cursor), 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for(rig_pages_claimed(&rig) >= 4);
	for (int i = 0; i < 50; i++)
		nap();
	options.source.interval_ns = then_ns;
	retune();
}

START_TEST(who_is_held_by_a_reader_takes_new_options_too)
{

	begin_held(3600 * NS_PER_S);
	scene_wait_for((ring_interval_ns(rig.ring) == 3600 * NS_PER_S));
	rig_read_ring(&rig);
	options.source.interval_ns = NS_PER_MS; /* it may be in a backoff of an hour and more by now */
	retune();
	uint64_t ticks = rig.seen.ticks;

	scene_wait_for((rig_read_ring(&rig), rig.seen.ticks > ticks + 5));
	samplers_stop(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);

	struct stats stats;

	samplers_stats(rig.samplers, &stats);
	ck_assert_uint_lt(stats.total_backoff_sleep, 1800 * NS_PER_S); /* what was slept, not what was meant to be */
	ck_assert_uint_eq(stats.lost_records, 0);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
}
END_TEST

static void sees_pulses(int count)
{
	for (int i = 0; i < count; i++) {
		uint64_t before = samplers_state(rig.samplers).pulse.ns;

		scene_wait_for(samplers_state(rig.samplers).pulse.ns > before);
	}
}

START_TEST(there_is_a_pulse_in_sleep_and_in_backoff)
{
	begin(3600 * NS_PER_S, 8, 1 << 20, 16384);
	ck_assert_uint_gt(samplers_state(rig.samplers).pulse.ns, 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for((rig_read_ring(&rig), rig.seen.ticks == 1));
	sees_pulses(5);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.ticks, 1);
	samplers_stop(rig.samplers);
	uint64_t pulse = samplers_state(rig.samplers).pulse.ns;

	for (int i = 0; i < 5; i++)
		scene_nap();
	ck_assert_uint_eq(samplers_state(rig.samplers).pulse.ns, pulse); /* a stopped one has none */
	teardown();

	setup();
	begin_held(3600 * NS_PER_S);
	sees_pulses(5);
	samplers_stop(rig.samplers);
}
END_TEST

#define ROUNDS 400

/* Many new options, by one thread, while another one lets targets come and go. */
static void *retune_often(void *ret_failed)
{
	struct sampler_options often = options;
	_Atomic bool *failed = ret_failed;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		often.source.interval_ns = (1 + i % 4) * 200 * NS_PER_US;
		often.wait = (enum config_wait)(i % 3);
		often.source.capacity = 8 + i % 90;
		often.source.heartbeat_ns = (1 + i % 20) * NS_PER_MS;
		often.source.fds_interval_ns = i % 2 ? NS_PER_MS : 0;
		often.source.peak_interval_ns = i % 3 ? NS_PER_MS : UINT64_MAX;
		often.cpu_budget_percent = i % 50 ? 0 : 90;
		if (samplers_retune(rig.samplers, &often) < 0)
			*failed = true;
		if (i % 8 == 0)
			nap();
	}

	return NULL;
}

START_TEST(many_new_options_while_targets_come_and_go)
{
	struct child child = child_start();
	struct sampler_target *returned;
	enum sampler_return why;
	_Atomic bool failed = false;
	pthread_t thread;
	unsigned removed = 0, refused = 0;
	struct stats stats;

	begin(NS_PER_MS, 100, 4 << 20, 16384);
	struct sampler_target *group = rig_add_group(&rig, 0);

	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, retune_often, &failed), 0);
	for (int i = 1; i < 60; i++) {
		struct sampler_target *target = rig_add_process(&rig, i, child.pid, i % 3 ? NULL : group);

		ck_assert_int_eq(source_entry_reopen(target->entry, rig.procfd, child.pid, 0, &options.source), 0);
		if (i % 5 == 0)
			nap();
	}
	for (int i = 1; i < 60; i++)
		ck_assert(samplers_remove(rig.samplers, &rig.watched[i].sampled));
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int naps = 0; removed < 59 && naps < SCENE_NAPS; naps++) {
		while (samplers_returned(rig.samplers, &returned, &why)) {
			removed += why == SAMPLER_REMOVED;
			refused += why == SAMPLER_REFUSED;
		}
		scene_nap();
	}
	ck_assert_uint_eq(removed, 59);
	ck_assert_uint_le(refused, 59);
	ck_assert(!failed);
	samplers_stop(rig.samplers);
	samplers_stats(rig.samplers, &stats);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	ck_assert_uint_eq(stats.failed_reads, 0);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);
	ck_assert_uint_eq(rig.seen.ticks, rig.seen.ends);
	child_reap(&child);
}
END_TEST

Suite *sampler_retune_suite(void)
{
	Suite *suite = suite_create("sampler_retune");
	TCase *tcase = tcase_create("retune");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, everything_is_in_force_from_the_next_tick_on);
	tcase_add_test(tcase, of_several_that_were_posted_between_two_ticks_the_last_one_counts);
	tcase_add_test(tcase, a_tick_that_takes_new_options_allocates_nothing_and_opens_nothing);
	tcase_add_test(tcase, capacity_grows_and_shrinks_under_its_targets);
	tcase_add_test(tcase, what_a_tick_goes_through_is_locked_also_when_there_is_more_of_it);
	tcase_add_test(tcase, without_memory_nothing_changes);
	tcase_add_test(tcase, the_cpu_budget_begins_anew_only_if_interval_or_budget_changed);
	tcase_add_test(tcase, a_long_sleep_is_no_reason_to_wait_for_a_short_interval);
	tcase_add_test(tcase, options_that_came_before_the_start_are_those_it_starts_with);
	tcase_add_test(tcase, who_is_held_by_a_reader_takes_new_options_too);
	tcase_add_test(tcase, there_is_a_pulse_in_sleep_and_in_backoff);
	tcase_add_test(tcase, many_new_options_while_targets_come_and_go);
	suite_add_tcase(suite, tcase);

	return suite;
}
