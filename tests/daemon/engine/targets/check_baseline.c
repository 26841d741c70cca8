/*
 * check_baseline.c: how things were a moment ago, over a /proc made of files whose figures are
 * known.
 */
#include "daemon/engine/targets/baseline.h"
#include "scene.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <sys/stat.h>

Suite *baseline_suite(void);

static char root[64];
static int procfd;
static struct baseline *baseline;
static mono_t now;

static void setup(void)
{
	scene_directory(root);
	procfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(baseline_new(procfd, true, NULL, &baseline), 0);
	now = (mono_t){ NS_PER_S };
}

static void teardown(void)
{
	baseline_free(baseline);
	close(procfd);
	scene_remove(root);
}

/* A process of one thread that has used so many ticks, as files. */
static void appear(int pid, uint64_t start, unsigned ticks)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%d", root, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%d/task", root, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%d/task/%d", root, pid, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			snprintf(path, sizeof(path), "%s/%d/stat", root, pid);
		else
			snprintf(path, sizeof(path), "%s/%d/task/%d/stat", root, pid, pid);
		scene_write(path, "%d (app) S 1 1 1 0 -1 0 10 0 0 0 %u 0 0 0 20 0 1 0 %llu 1000000 100 0\n", pid, ticks,
			    (unsigned long long)start);
	}
	snprintf(path, sizeof(path), "%s/%d/smaps", root, pid);
	scene_write(path,
		    "00400000-00401000 rw-p 00000000 00:00 0  /opt/app\nSize: 4 kB\nRss: %u kB\nPss: 4 kB\n"
		    "Private_Dirty: 4 kB\nSwap: 0 kB\n",
		    ticks);
}

static struct procfs_stat stat_of(int pid, uint64_t start, unsigned ticks)
{
	return (struct procfs_stat){ .pid = pid, .start_ticks = start, .user_ticks = ticks, .threads = 1 };
}

/* One scan that meets one process, watched. What baseline_met said. */
static bool scan(int pid, uint64_t start, unsigned ticks)
{
	struct procfs_stat stat = stat_of(pid, start, ticks);

	now.ns += NS_PER_S;
	baseline_scan_begin(baseline, now);
	bool ran = baseline_met(baseline, &stat);
	baseline_update(baseline, &stat, now, true, ran);
	baseline_scan_end(baseline);

	return ran;
}

static struct thread_baseline threads_of(int pid)
{
	struct thread_baseline threads;
	struct maps_snapshot *maps;

	baseline_copy(baseline, pid, &threads, &maps);
	free(maps);

	return threads;
}

START_TEST(the_last_two_snapshots_tell_what_a_thread_did)
{
	appear(10, 500, 100);
	ck_assert(scan(10, 500, 100));
	appear(10, 500, 130);
	ck_assert(scan(10, 500, 130));

	struct thread_baseline threads = threads_of(10);
	uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);

	ck_assert_ptr_nonnull(threads.older);
	ck_assert_uint_eq(threads.newer->count, 1);
	ck_assert_uint_eq(threads.newer->records[0].cpu_ns - threads.older->records[0].cpu_ns, 30 * tick_ns);
	ck_assert_uint_eq(threads.newer->taken.ns - threads.older->taken.ns, NS_PER_S);
	thread_baseline_release(&threads);
}
END_TEST

START_TEST(a_process_that_did_not_run_costs_nothing_and_its_snapshot_holds)
{
	appear(10, 500, 100);
	scan(10, 500, 100);

	bool ran = scan(10, 500, 100); /* the second of two lists of all processes takes its memory */
	unsigned long before = torture_allocations();
	ran = scan(10, 500, 100) || ran;
	unsigned long after = torture_allocations();

	ck_assert(!ran);
	ck_assert_uint_eq(after, before);

	struct thread_baseline threads = threads_of(10);

	ck_assert_ptr_null(threads.older);
	ck_assert_uint_eq(threads.newer->valid_until.ns, now.ns);
	ck_assert_uint_eq(threads.newer->taken.ns, now.ns - 2 * NS_PER_S);
	thread_baseline_release(&threads);
}
END_TEST

START_TEST(snapshots_of_a_process_that_is_not_watched_stay)
{
	struct procfs_stat stat = stat_of(10, 500, 100), stranger = stat_of(11, 500, 100);

	appear(10, 500, 100);
	scan(10, 500, 100);
	now.ns += NS_PER_S;
	baseline_scan_begin(baseline, now);
	ck_assert(!baseline_met(baseline, &stat));
	baseline_update(baseline, &stat, now, false, false);
	baseline_update(baseline, &stranger, now, false, false); /* never watched */
	baseline_scan_end(baseline);

	struct thread_baseline threads = threads_of(10);

	ck_assert_ptr_nonnull(threads.newer);
	thread_baseline_release(&threads);
	threads = threads_of(11);
	ck_assert_ptr_null(threads.newer);
}
END_TEST

START_TEST(a_process_that_no_scan_met_is_forgotten)
{
	appear(10, 500, 100);
	scan(10, 500, 100);
	baseline_scan_begin(baseline, now);
	baseline_scan_end(baseline);

	struct thread_baseline threads = threads_of(10);
	struct busy_snapshot busy = { 0 };

	ck_assert_ptr_null(threads.newer);
	ck_assert_int_eq(baseline_copy_busy(baseline, &busy), 0);
	ck_assert_uint_eq(busy.count, 0);
	busy_snapshot_release(&busy);
}
END_TEST

START_TEST(a_scan_that_is_not_ended_changes_nothing)
{
	struct busy_snapshot busy = { 0 };

	appear(10, 500, 100);
	scan(10, 500, 100);
	baseline_scan_begin(baseline, now); /* and breaks off */
	scan(10, 500, 100);

	struct thread_baseline threads = threads_of(10);

	ck_assert_ptr_nonnull(threads.newer);
	thread_baseline_release(&threads);
	ck_assert_int_eq(baseline_copy_busy(baseline, &busy), 0);
	ck_assert_uint_eq(busy.count, 1);
	busy_snapshot_release(&busy);
}
END_TEST

START_TEST(a_reused_pid_starts_afresh)
{
	appear(10, 500, 100);
	scan(10, 500, 100);
	appear(10, 900, 5);
	ck_assert(scan(10, 900, 5));

	struct thread_baseline threads = threads_of(10);

	ck_assert_ptr_null(threads.older);
	ck_assert_uint_eq(threads.newer->records[0].start_ticks, 900);
	thread_baseline_release(&threads);
}
END_TEST

START_TEST(mappings_are_read_seldom)
{
	struct thread_baseline threads;
	struct maps_snapshot *maps;

	appear(10, 500, 100);
	scan(10, 500, 100);
	appear(10, 500, 200);
	scan(10, 500, 200); /* a second later */
	baseline_copy(baseline, 10, &threads, &maps);
	ck_assert_ptr_nonnull(maps);
	ck_assert_uint_eq(maps->records[0].rss_bytes, 100 * 1024);
	thread_baseline_release(&threads);
	free(maps);

	now.ns += 60 * NS_PER_S;
	scan(10, 500, 201);
	baseline_copy(baseline, 10, &threads, &maps);
	ck_assert_uint_eq(maps->records[0].rss_bytes, 200 * 1024);
	thread_baseline_release(&threads);
	free(maps);
}
END_TEST

START_TEST(threads_of_what_ran_are_looked_at_between_scans_that_are_far_apart)
{
	struct procfs_stat stat = stat_of(10, 500, 100);
	struct thread_baseline threads;
	uint64_t scanned_ns;

	appear(10, 500, 100);
	scan(10, 500, 100);
	scanned_ns = now.ns;
	now.ns += NS_PER_S;
	baseline_update(baseline, &stat, now, true, true);
	threads = threads_of(10);
	ck_assert_uint_eq(threads.newer->taken.ns, scanned_ns);
	thread_baseline_release(&threads);

	now.ns += 6 * NS_PER_S;
	baseline_update(baseline, &stat, now, true, false); /* it has not run */
	baseline_update(baseline, &stat, now, true, true);
	threads = threads_of(10);
	ck_assert_uint_eq(threads.newer->taken.ns, now.ns);
	ck_assert_uint_eq(threads.older->taken.ns, scanned_ns);
	thread_baseline_release(&threads);
}
END_TEST

START_TEST(mappings_of_few_are_read_in_one_scan_and_all_get_their_turn)
{
	size_t with_maps = 0;

	for (int pid = 10; pid < 15; pid++)
		appear(pid, 500, 100);
	for (int scans = 1; scans <= 3; scans++) {
		now.ns += NS_PER_S;
		baseline_scan_begin(baseline, now);
		for (int pid = 10; pid < 15; pid++) {
			struct procfs_stat stat = stat_of(pid, 500, 100);

			baseline_update(baseline, &stat, now, true, baseline_met(baseline, &stat));
		}
		baseline_scan_end(baseline);
		with_maps = 0;
		for (int pid = 10; pid < 15; pid++) {
			struct thread_baseline threads;
			struct maps_snapshot *maps;

			baseline_copy(baseline, pid, &threads, &maps);
			with_maps += maps != NULL;
			thread_baseline_release(&threads);
			free(maps);
		}
		ck_assert_uint_le(with_maps, 2 * (size_t)scans);
	}
	ck_assert_uint_eq(with_maps, 5);
}
END_TEST

START_TEST(mappings_are_owed_only_while_there_is_cpu_time_left_for_them)
{
	for (int pid = 10; pid < 13; pid++)
		appear(pid, 500, 100);
	baseline_scan_begin(baseline, now);
	for (int pid = 10; pid < 13; pid++) {
		struct procfs_stat stat = stat_of(pid, 500, 100);

		baseline_update(baseline, &stat, now, true, baseline_met(baseline, &stat));
	}
	ck_assert(!baseline_owes(baseline, 12));
	baseline_scan_end(baseline);

	now.ns += NS_PER_S;
	baseline_scan_begin(baseline, now);
	ck_assert(baseline_owes(baseline, 12));
	ck_assert(!baseline_owes(baseline, 10));
}
END_TEST

START_TEST(when_there_are_too_many_threads_they_take_turns)
{
	uint64_t taken[2] = { 0 };

	for (unsigned round = 0; round < 4; round++) {
		now.ns += NS_PER_S;
		baseline_scan_begin(baseline, now);
		for (int pid = 10; pid < 12; pid++) {
			struct procfs_stat stat = stat_of(pid, 500, 100 + round);

			stat.threads = 1500; /* two of them are more than a scan has time for */
			appear(pid, 500, 100 + round);
			baseline_update(baseline, &stat, now, true, baseline_met(baseline, &stat));
		}
		baseline_scan_end(baseline);
		for (int i = 0; i < 2; i++) {
			struct thread_baseline threads = threads_of(10 + i);

			taken[i] += threads.newer && threads.newer->taken.ns == now.ns;
			thread_baseline_release(&threads);
		}
	}
	ck_assert_uint_eq(taken[0], 2);
	ck_assert_uint_eq(taken[1], 2);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	appear(10, 500, 100);
	for (long n = 1; injected; n++) {
		baseline_free(baseline);
		ck_assert_int_eq(baseline_new(procfd, true, NULL, &baseline), 0);
		torture_arm(n);
		scan(10, 500, 100);
		injected = torture_disarm();
		scan(10, 500, 101); /* and goes on */

		struct thread_baseline threads = threads_of(10);

		ck_assert_ptr_nonnull(threads.newer);
		thread_baseline_release(&threads);
	}
	torture_arm(1);
	struct baseline *none = NULL;
	int r = baseline_new(procfd, true, NULL, &none);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	baseline_free(NULL);
}
END_TEST

Suite *baseline_suite(void)
{
	Suite *suite = suite_create("baseline");
	TCase *tcase = tcase_create("scans");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_last_two_snapshots_tell_what_a_thread_did);
	tcase_add_test(tcase, a_process_that_did_not_run_costs_nothing_and_its_snapshot_holds);
	tcase_add_test(tcase, snapshots_of_a_process_that_is_not_watched_stay);
	tcase_add_test(tcase, a_process_that_no_scan_met_is_forgotten);
	tcase_add_test(tcase, a_scan_that_is_not_ended_changes_nothing);
	tcase_add_test(tcase, a_reused_pid_starts_afresh);
	tcase_add_test(tcase, mappings_are_read_seldom);
	tcase_add_test(tcase, threads_of_what_ran_are_looked_at_between_scans_that_are_far_apart);
	tcase_add_test(tcase, mappings_of_few_are_read_in_one_scan_and_all_get_their_turn);
	tcase_add_test(tcase, mappings_are_owed_only_while_there_is_cpu_time_left_for_them);
	tcase_add_test(tcase, when_there_are_too_many_threads_they_take_turns);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
