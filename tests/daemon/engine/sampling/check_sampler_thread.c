/*
 * check_sampler_thread.c: the thread: readers that do not read, starts and stops, a budget that is
 * exceeded.
 */
#include "sampler_rig.h"
#include "lib/model/sample.h"
#include "skip.h"

#include <sys/wait.h>

Suite *sampler_thread_suite(void);

static struct sampler_rig rig;

static void setup(void)
{
	rig_begin(&rig);
}

static void teardown(void)
{
	rig_end(&rig);
}

START_TEST(a_reader_that_does_not_read_makes_it_back_off_and_loses_nothing)
{
	struct child children[2] = { child_start(), child_start() };
	struct stats stats;

	rig_make(&rig, NS_PER_MS, 8, 8 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(rig.ring, getpid(), 0, NULL, &rig.cursor), 0);
	rig_add_process(&rig, 0, children[0].pid, NULL);
	rig_add_process(&rig, 1, children[1].pid, NULL);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	/* A tick is at least 32 bytes: the ring is full sooner or later, and stays so. */
	scene_wait_for(rig_pages_claimed(&rig) >= 5);
	child_do(&children[0], 'b');
	for (int i = 0; i < 100; i++)
		nap();
	uint64_t claimed = rig_pages_claimed(&rig);
	child_do(&children[1], 'b');
	child_do(&children[1], 'm');
	ck_assert_uint_le(claimed, 7);

	/* The reader wakes up. */
	scene_wait_for((rig_read_ring(&rig), rig_backoff_sleeps(&rig) > 0));
	scene_wait_for(
		(rig_read_ring(&rig), rig_value(&rig, 0, SAMPLE_CPU) == (uint64_t)cpu_of(children[0].pid) &&
					      rig_value(&rig, 1, SAMPLE_CPU) == (uint64_t)cpu_of(children[1].pid)));
	scene_wait_for((rig_read_ring(&rig), rig_pages_claimed(&rig) > 14));
	samplers_stop(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);
	ck_assert_uint_eq(rig.seen.ticks, rig.seen.ends);
	ck_assert_uint_eq(rig.seen.described, 2);
	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
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

	rig_make(&rig, 10 * NS_PER_S, 8, 1 << 20, 16384);
	for (uint64_t i = 1; i <= 5; i++) {
		ring_info(rig.ring, &info);
		uint64_t ticks = info.ticks;

		ck_assert_int_eq(samplers_start(rig.samplers), 0);
		scene_wait_for((ring_info(rig.ring, &info), info.ticks > ticks));
		samplers_stop(rig.samplers);
		samplers_stop(rig.samplers);
	}
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);
	ck_assert_uint_eq(rig.seen.ticks, rig.seen.ends);
}
END_TEST

START_TEST(a_run_of_no_length_has_seen_its_targets)
{
	struct child child = child_start();

	rig_make(&rig, 10 * NS_PER_S, 8, 1 << 20, 16384);
	rig_add_process(&rig, 0, child.pid, NULL);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	samplers_stop(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_ge(rig.seen.samples, 1);
	child_reap(&child);
}
END_TEST

START_TEST(stopping_does_not_wait_for_a_reader)
{
	rig_make(&rig, NS_PER_MS, 8, 5 * 4096, 4096);
	ck_assert_int_eq(ring_cursor_new_blocking(rig.ring, getpid(), 0, NULL, &rig.cursor), 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for(rig_pages_claimed(&rig) >= 3);
	for (int i = 0; i < 50; i++)
		nap();
	samplers_stop(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.holes, 0);
}
END_TEST

/* Of the samplers in a child, which runs until it is asked to end. */
static struct stats stats_of_stopped(uint64_t stopped_ms)
{
	int fds[2], status;
	struct stats stats = { 0 };

	rig_make(&rig, 10 * NS_PER_MS, 8, 1 << 20, 16384);
	ck_assert_int_eq(pipe(fds), 0);

	pid_t child = fork();

	if (child == 0) {
		char end;

		ck_assert_int_eq(samplers_start(rig.samplers), 0);
		while (ring_stats(rig.ring, &stats) < 0 || stats.total_snapshots < 20)
			nap();
		ck_assert_int_eq(write(fds[1], "", 1), 1);
		raise(SIGSTOP);
		for (uint64_t slots = stats.total_slots; stats.total_slots < slots + 50; ring_stats(rig.ring, &stats))
			nap();
		samplers_stop(rig.samplers);
		samplers_stats(rig.samplers, &stats);
		end = (char)(write(fds[1], &stats, sizeof stats) != sizeof stats);
		_exit(end);
	}

	char ready;

	ck_assert_int_eq(read(fds[0], &ready, 1), 1);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	usleep((useconds_t)stopped_ms * 1000);
	kill(child, SIGCONT);
	ck_assert_int_eq(read(fds[0], &stats, sizeof stats), (int)sizeof stats);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	close(fds[0]);
	close(fds[1]);
	return stats;
}

START_TEST(a_process_that_was_stopped_is_told_from_one_that_waited_for_a_cpu)
{
	static const struct stats nothing;
	struct stats stats = stats_of_stopped(1000);
	struct verdict verdicts[VERDICT_KINDS];

	if (stats.run_delay == 0)
		SKIP_TEST("the kernel does not say how long a thread waited for a CPU");
	ck_assert_uint_ge(stats.missed_slots, 98);
	ck_assert_uint_ge(stats.stopped, 900 * NS_PER_MS);
	stats_verdicts(&stats, &nothing, verdicts);
	ck_assert(verdicts[VERDICT_CAPTURE_RATE].bad);
	ck_assert_msg(strstr(verdicts[VERDICT_CAPTURE_RATE].cause, "SIGSTOP"), "%s",
		      verdicts[VERDICT_CAPTURE_RATE].cause);
	ck_assert_uint_ge(verdicts[VERDICT_CAPTURE_RATE].cause_ns, 900 * NS_PER_MS);
}
END_TEST

START_TEST(a_budget_that_is_exceeded_lengthens_the_interval)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options options = { .source = { .capacity = 1, .interval_ns = NS_PER_MS },
					   .cpu_budget_percent = 0.001 };
	struct stats stats;

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, rig.ring, &rig.samplers), 0);
	ck_assert_uint_eq(samplers_state(rig.samplers).slowdown, 1);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	scene_wait_for(samplers_state(rig.samplers).slowdown > 1);
	scene_wait_for((ring_stats(rig.ring, &stats), stats.collection_rate > options.source.interval_ns));
	samplers_stop(rig.samplers);
	ck_assert(samplers_state(rig.samplers).cpu_share > 0);
	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
	ck_assert_uint_eq(stats.collection_rate, options.source.interval_ns * samplers_state(rig.samplers).slowdown);
}
END_TEST

Suite *sampler_thread_suite(void)
{
	Suite *suite = suite_create("sampler_thread");
	TCase *tcase = tcase_create("thread");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_reader_that_does_not_read_makes_it_back_off_and_loses_nothing);
	tcase_add_test(tcase, it_starts_and_stops_again_and_again);
	tcase_add_test(tcase, a_run_of_no_length_has_seen_its_targets);
	tcase_add_test(tcase, stopping_does_not_wait_for_a_reader);
	tcase_add_test(tcase, a_process_that_was_stopped_is_told_from_one_that_waited_for_a_cpu);
	tcase_add_test(tcase, a_budget_that_is_exceeded_lengthens_the_interval);
	suite_add_tcase(suite, tcase);

	return suite;
}
