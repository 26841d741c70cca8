/* check_recent_pids.c: who waits to be looked at, and who came and went. Time is made up. */
#include "daemon/engine/targets/process_news.h"
#include "torture.h"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>

Suite *recent_pids_suite(void);

#define DELAY (2 * NS_PER_MS)

static struct recent_pids *recent_pids;
static mono_t now;

static void setup(void)
{
	now = (mono_t){ NS_PER_S };
	ck_assert_int_eq(recent_pids_new(&recent_pids), 0);
}

static void teardown(void)
{
	recent_pids_free(recent_pids);
}

static struct newcomer *began(int32_t pid, enum newcomer_news news)
{
	return recent_pids_began(recent_pids, pid, news, now);
}

static struct newcomer *due(void)
{
	return recent_pids_due(recent_pids, DELAY, now);
}

START_TEST(who_begins_is_due_after_the_delay_and_once)
{
	mono_t next;

	began(7, NEWCOMER_FORKED);
	ck_assert(recent_pids_next(recent_pids, DELAY, &next));
	ck_assert_uint_eq(next.ns, now.ns + DELAY);
	now = mono_add(now, DELAY - 1);
	ck_assert_ptr_null(due());
	now = mono_add(now, 1);
	ck_assert_int_eq(due()->pid, 7);
	ck_assert_ptr_null(due());
	ck_assert(!recent_pids_next(recent_pids, DELAY, &next));
}
END_TEST

START_TEST(who_was_met_before_is_known)
{
	began(7, NEWCOMER_FORKED);
	ck_assert(!began(7, NEWCOMER_EXECUTED)->met);
	recent_pids_find(recent_pids, 7)->state = NEWCOMER_MET;
	ck_assert(began(7, NEWCOMER_EXECUTED)->met);
	ck_assert(began(7, NEWCOMER_RENAMED)->met);
	ck_assert(!began(7, NEWCOMER_FORKED)->met);
}
END_TEST

START_TEST(who_executes_waits_anew_and_is_known_to_be_young)
{
	mono_t born = now;
	struct newcomer *newcomer;

	began(7, NEWCOMER_FORKED);
	began(8, NEWCOMER_FORKED);
	now = mono_add(now, DELAY - 1);
	newcomer = began(7, NEWCOMER_EXECUTED);
	ck_assert(newcomer->forked && newcomer->executed);
	ck_assert_uint_eq(newcomer->born.ns, born.ns);
	now = mono_add(now, 1);
	ck_assert_int_eq(due()->pid, 8);
	ck_assert_ptr_null(due());
	now = mono_add(now, DELAY);
	ck_assert_int_eq(due()->pid, 7);
}
END_TEST

START_TEST(who_changed_its_name_says_so_until_it_was_looked_at)
{
	ck_assert(!began(10, NEWCOMER_FORKED)->renamed);
	ck_assert(began(10, NEWCOMER_RENAMED)->renamed);
	now = mono_add(now, DELAY);
	due()->renamed = false;
	ck_assert(began(10, NEWCOMER_EXECUTED)->renamed);
	ck_assert(recent_pids_ended(recent_pids, 10, now)->renamed);
	ck_assert(!recent_pids_ended(recent_pids, 11, now)->renamed);
	ck_assert_ptr_null(began(11, NEWCOMER_RENAMED));
	ck_assert(recent_pids_find(recent_pids, 11)->renamed);
	ck_assert(!began(12, NEWCOMER_FORKED)->renamed);
}
END_TEST

START_TEST(who_ends_while_he_waits_was_missed)
{
	began(7, NEWCOMER_FORKED);
	ck_assert(recent_pids_ended(recent_pids, 7, now)->missed);
	recent_pids_ended(recent_pids, 7, now);
	ck_assert_uint_eq(recent_pids_missed(recent_pids), 1);
	now = mono_add(now, DELAY);
	ck_assert_ptr_null(due());
}
END_TEST

START_TEST(who_was_met_was_not_missed)
{
	began(7, NEWCOMER_FORKED)->state = NEWCOMER_MET;
	ck_assert(!recent_pids_ended(recent_pids, 7, now)->missed);
	ck_assert_uint_eq(recent_pids_missed(recent_pids), 0);
}
END_TEST

START_TEST(of_whom_only_the_end_was_heard_nothing_is_counted)
{
	ck_assert(!recent_pids_ended(recent_pids, 7, now)->missed);
	ck_assert_uint_eq(recent_pids_missed(recent_pids), 0);
}
END_TEST

START_TEST(news_that_come_after_the_end_are_of_one_who_was_missed)
{
	recent_pids_ended(recent_pids, 7, now);
	ck_assert_ptr_null(began(7, NEWCOMER_FORKED));
	ck_assert_ptr_null(began(7, NEWCOMER_EXECUTED));
	ck_assert_uint_eq(recent_pids_missed(recent_pids), 1);
	ck_assert_ptr_null(due());
}
END_TEST

START_TEST(a_pid_that_is_used_again_is_another)
{
	recent_pids_ended(recent_pids, 7, now);
	now = mono_add(now, NS_PER_S);
	ck_assert_ptr_nonnull(began(7, NEWCOMER_FORKED));
	ck_assert_int_eq(recent_pids_find(recent_pids, 7)->state, NEWCOMER_WAITING);
}
END_TEST

START_TEST(the_oldest_is_forgotten_for_the_newest)
{
	for (int32_t pid = 1; pid <= (int32_t)RECENT_PIDS_MAX + 10; pid++)
		began(pid, NEWCOMER_FORKED);
	ck_assert_uint_eq(recent_pids_dropped(recent_pids), 10);
	ck_assert_ptr_null(recent_pids_find(recent_pids, 10));
	now = mono_add(now, DELAY);
	for (int32_t pid = 11; pid <= (int32_t)RECENT_PIDS_MAX + 10; pid++)
		ck_assert_int_eq(due()->pid, pid);
	ck_assert_ptr_null(due());
}
END_TEST

START_TEST(those_who_are_given_up_are_still_missed_when_they_end)
{
	began(7, NEWCOMER_FORKED);
	began(8, NEWCOMER_FORKED)->state = NEWCOMER_MET;
	ck_assert_uint_eq(recent_pids_give_up(recent_pids), 1);
	now = mono_add(now, DELAY);
	ck_assert_ptr_null(due());
	recent_pids_ended(recent_pids, 7, now);
	ck_assert_uint_eq(recent_pids_missed(recent_pids), 1);
}
END_TEST

/* Pids that share a bucket come and go in all orders. */
START_TEST(chains_hold)
{
	uint32_t random = 1;

	for (int i = 0; i < 100000; i++) {
		int32_t pid = (int32_t)(1 + (random >> 8) % 8 * RECENT_PIDS_MAX + (random >> 20) % 3);

		random = random * 1664525u + 1013904223u;
		if (random >> 31)
			recent_pids_ended(recent_pids, pid, now);
		else
			began(pid, NEWCOMER_FORKED);
		now = mono_add(now, NS_PER_MS);
		ck_assert_int_eq(recent_pids_find(recent_pids, pid)->pid, pid);
		if (i % 7 == 0)
			due();
	}
}
END_TEST

START_TEST(without_memory_there_are_none)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct recent_pids *made = NULL;

		torture_arm(n);
		int r = recent_pids_new(&made);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		recent_pids_free(made);
	}
}
END_TEST

Suite *recent_pids_suite(void)
{
	Suite *suite = suite_create("recent_pids");
	TCase *tests = tcase_create("newcomers");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, who_begins_is_due_after_the_delay_and_once);
	tcase_add_test(tests, who_executes_waits_anew_and_is_known_to_be_young);
	tcase_add_test(tests, who_was_met_before_is_known);
	tcase_add_test(tests, who_changed_its_name_says_so_until_it_was_looked_at);
	tcase_add_test(tests, who_ends_while_he_waits_was_missed);
	tcase_add_test(tests, who_was_met_was_not_missed);
	tcase_add_test(tests, of_whom_only_the_end_was_heard_nothing_is_counted);
	tcase_add_test(tests, news_that_come_after_the_end_are_of_one_who_was_missed);
	tcase_add_test(tests, a_pid_that_is_used_again_is_another);
	tcase_add_test(tests, the_oldest_is_forgotten_for_the_newest);
	tcase_add_test(tests, those_who_are_given_up_are_still_missed_when_they_end);
	tcase_add_test(tests, chains_hold);
	tcase_add_test(tests, without_memory_there_are_none);
	suite_add_tcase(suite, tests);

	return suite;
}
