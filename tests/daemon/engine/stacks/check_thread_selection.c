/* check_thread_selection.c: which of the watched processes get events of their own. */
#include "daemon/engine/stacks/thread_events.h"
#include "torture.h"
#include "lib/proc/procfs.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *thread_selection_suite(void);

static struct thread_selection *thread_selection;

/* The set as it was handed on last, and how often. */
static uint32_t set[THREAD_SELECTION_MAX];
static size_t count, calls;

static void end_scan(void)
{
	const uint32_t *pids;
	size_t pid_count;

	if (!thread_selection_end(thread_selection, &pids, &pid_count))
		return;
	if (pid_count > THREAD_SELECTION_MAX)
		abort(); /* no assertion: see torture.h */
	memcpy(set, pids, pid_count * sizeof(set[0]));
	count = pid_count;
	calls++;
}

static void setup(void)
{
	count = calls = 0;
	ck_assert_int_eq(thread_selection_new(&thread_selection), 0);
}

static void teardown(void)
{
	thread_selection_free(thread_selection);
}

static void meet(int32_t pid, uint64_t start_ticks, uint64_t cpu_ticks, bool watched)
{
	struct procfs_stat stat = {
		.pid = pid,
		.start_ticks = start_ticks,
		.user_ticks = cpu_ticks / 2,
		.system_ticks = cpu_ticks - cpu_ticks / 2,
	};

	thread_selection_met(thread_selection, &stat, watched);
}

static bool has(uint32_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (set[i] == pid)
			return true;
	return false;
}

START_TEST(watched_processes_are_followed_and_others_are_not)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 0, true);
	meet(8, 1, 50, false);
	meet(9, 1, 0, true);
	end_scan();
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(set[0], 7);
	ck_assert_uint_eq(set[1], 9);
}
END_TEST

START_TEST(a_set_that_did_not_change_is_not_handed_on_again)
{
	for (int scan = 0; scan < 5; scan++) {
		thread_selection_begin(thread_selection);
		meet(7, 1, (uint64_t)scan, true);
		end_scan();
	}
	ck_assert_uint_eq(calls, 1);
}
END_TEST

START_TEST(nothing_watched_from_the_beginning_is_not_handed_on)
{
	thread_selection_begin(thread_selection);
	end_scan();
	ck_assert_uint_eq(calls, 0);
}
END_TEST

START_TEST(who_sleeps_stays_although_nobody_asked_whether_it_is_watched)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	end_scan();
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, false);
	meet(8, 1, 3, true);
	end_scan();
	ck_assert_uint_eq(count, 2);
	ck_assert(has(7));
}
END_TEST

START_TEST(who_is_gone_is_left_out)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	meet(8, 1, 3, true);
	end_scan();
	thread_selection_begin(thread_selection);
	meet(8, 1, 3, true);
	end_scan();
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(set[0], 8);
	thread_selection_begin(thread_selection);
	end_scan();
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(calls, 3);
}
END_TEST

START_TEST(another_process_of_the_same_number_is_another_set)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	end_scan();
	thread_selection_begin(thread_selection);
	meet(7, 2, 0, true);
	end_scan();
	ck_assert_uint_eq(calls, 2);
	ck_assert_uint_eq(count, 1);
	/* And it is not watched because the former one was. */
	thread_selection_begin(thread_selection);
	meet(7, 3, 0, false);
	end_scan();
	ck_assert_uint_eq(count, 0);
}
END_TEST

/* pid i uses use(i) ticks between two scans. */
static void scan_many(unsigned number, int32_t many, uint64_t (*use)(int32_t))
{
	thread_selection_begin(thread_selection);
	for (int32_t pid = 1; pid <= many; pid++)
		meet(pid, 1, number * use(pid), true);
	end_scan();
}

static uint64_t high_numbers_are_busy(int32_t pid)
{
	return pid > 300 ? 100 : pid % 2 ? 10 : 0;
}

static uint64_t one_of_the_first_is_a_little_busier(int32_t pid)
{
	return pid == 2 ? 12 : 10;
}

static uint64_t one_of_the_first_is_much_busier(int32_t pid)
{
	return pid == 2 ? 40 : 10;
}

START_TEST(of_too_many_the_busiest_are_followed)
{
	scan_many(0, 400, high_numbers_are_busy);
	scan_many(1, 400, high_numbers_are_busy);
	scan_many(2, 400, high_numbers_are_busy);
	ck_assert_uint_eq(count, THREAD_SELECTION_MAX);
	for (uint32_t pid = 301; pid <= 400; pid++)
		ck_assert_msg(has(pid), "%u is busy and not followed", pid);
	for (size_t i = 1; i < count; i++)
		ck_assert_uint_lt(set[i - 1], set[i]);
}
END_TEST

START_TEST(of_too_many_those_that_are_followed_stay_unless_another_is_clearly_busier)
{
	/* 2 is not among the first chosen. */
	scan_many(0, 400, high_numbers_are_busy);
	scan_many(1, 400, high_numbers_are_busy);
	thread_selection_forget(thread_selection);
	thread_selection_begin(thread_selection);
	for (int32_t pid = 3; pid <= 400; pid++)
		meet(pid, 1, 0, true);
	end_scan();
	scan_many(0, 400, one_of_the_first_is_a_little_busier);
	scan_many(1, 400, one_of_the_first_is_a_little_busier);
	ck_assert(!has(2));
	scan_many(2, 400, one_of_the_first_is_much_busier);
	ck_assert(has(2));
}
END_TEST

START_TEST(what_was_watched_is_forgotten_on_demand)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	end_scan();
	thread_selection_forget(thread_selection);
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, false);
	end_scan();
	ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(a_scan_that_was_given_up_changes_nothing)
{
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	end_scan();
	thread_selection_begin(thread_selection);
	meet(8, 1, 3, true);
	thread_selection_begin(thread_selection);
	meet(7, 1, 3, true);
	end_scan();
	ck_assert_uint_eq(calls, 1);
}
END_TEST

START_TEST(there_are_never_more_candidates_than_stated)
{
	scan_many(1, (int32_t)THREAD_SELECTION_CANDIDATES_MAX + 100, high_numbers_are_busy);
	ck_assert_uint_eq(count, THREAD_SELECTION_MAX);
}
END_TEST

static int make_and_use(void)
{
	const uint32_t *pids;
	size_t pid_count;
	struct thread_selection *made;
	struct procfs_stat stat = { .start_ticks = 1 };
	int r = thread_selection_new(&made);

	if (r < 0)
		return r;
	thread_selection_begin(made);
	for (stat.pid = 1; stat.pid < 200; stat.pid++)
		thread_selection_met(made, &stat, true);
	if (thread_selection_end(made, &pids, &pid_count))
		count = pid_count;
	thread_selection_free(made);
	return count == 199 ? 0 : -ENOMEM;
}

START_TEST(without_memory_as_many_are_followed_as_there_is_room_for)
{
	bool injected = true;
	long n;

	for (n = 1; injected; n++) {
		torture_arm(n);
		int r = make_and_use();
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	ck_assert_int_gt(n, 3);
}
END_TEST

Suite *thread_selection_suite(void)
{
	Suite *suite = suite_create("thread_selection");
	TCase *tcase = tcase_create("following");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, watched_processes_are_followed_and_others_are_not);
	tcase_add_test(tcase, a_set_that_did_not_change_is_not_handed_on_again);
	tcase_add_test(tcase, nothing_watched_from_the_beginning_is_not_handed_on);
	tcase_add_test(tcase, who_sleeps_stays_although_nobody_asked_whether_it_is_watched);
	tcase_add_test(tcase, who_is_gone_is_left_out);
	tcase_add_test(tcase, another_process_of_the_same_number_is_another_set);
	tcase_add_test(tcase, of_too_many_the_busiest_are_followed);
	tcase_add_test(tcase, of_too_many_those_that_are_followed_stay_unless_another_is_clearly_busier);
	tcase_add_test(tcase, what_was_watched_is_forgotten_on_demand);
	tcase_add_test(tcase, a_scan_that_was_given_up_changes_nothing);
	tcase_add_test(tcase, there_are_never_more_candidates_than_stated);
	tcase_add_test(tcase, without_memory_as_many_are_followed_as_there_is_room_for);
	suite_add_tcase(suite, tcase);
	return suite;
}
