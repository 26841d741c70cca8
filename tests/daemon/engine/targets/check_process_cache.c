/* check_process_cache.c: who need not be looked at again. What clocks say is made up. */
#include "daemon/engine/targets/matcher.h"
#include "torture.h"

#include <check.h>
#include <errno.h>

Suite *process_cache_suite(void);

static struct process_cache *process_cache;

static void setup(void)
{
	ck_assert_int_eq(process_cache_new(&process_cache), 0);
	process_cache_begin(process_cache); /* the first: of the pids below none is in its turn */
}

static void teardown(void)
{
	process_cache_free(process_cache);
}

static void enter(int32_t pid, uint64_t cpu_ns)
{
	struct process_cache_record record = {
		.pid = pid, .start_ticks = (uint64_t)pid + 5, .cpu_ticks = 7, .cpu_ns = cpu_ns, .watches = 2
	};

	process_cache_enter(process_cache, &record);
}

START_TEST(who_has_not_run_is_as_he_was)
{
	const struct process_cache_record *record;

	ck_assert_ptr_null(process_cache_meet(process_cache, 18, 1000));
	enter(18, 1000);
	process_cache_end(process_cache);
	process_cache_begin(process_cache);
	ck_assert_ptr_null(process_cache_meet(process_cache, 19, 1000));
	record = process_cache_meet(process_cache, 18, 1000);
	ck_assert_ptr_null(record); /* in the second of sixteen scans he is looked at in any case */
	enter(18, 1000);
	process_cache_begin(process_cache);
	record = process_cache_meet(process_cache, 18, 1000);
	ck_assert_ptr_nonnull(record);
	ck_assert_uint_eq(record->start_ticks, 23);
	ck_assert_uint_eq(record->cpu_ticks, 7);
	ck_assert_uint_eq(record->watches, 2);
}
END_TEST

START_TEST(who_has_run_or_says_nothing_is_looked_at)
{
	enter(21, 1000);
	ck_assert_ptr_null(process_cache_meet(process_cache, 21, 1001));
	ck_assert_ptr_null(process_cache_meet(process_cache, 21, 999));
	ck_assert_ptr_null(process_cache_meet(process_cache, 21, 0));
	ck_assert_ptr_nonnull(process_cache_meet(process_cache, 21, 1000));
	enter(21, 2000);
	ck_assert_ptr_null(process_cache_meet(process_cache, 21, 1000));
	ck_assert_ptr_nonnull(process_cache_meet(process_cache, 21, 2000));
	ck_assert_uint_eq(process_cache_count(process_cache), 1);
}
END_TEST

START_TEST(everybody_is_looked_at_once_in_sixteen_scans)
{
	unsigned looked = 0;

	enter(21, 1000);
	for (unsigned i = 0; i < PROCESS_CACHE_TURNS; i++) {
		process_cache_begin(process_cache);
		if (!process_cache_meet(process_cache, 21, 1000)) {
			looked++;
			enter(21, 1000);
		}
		process_cache_end(process_cache);
	}
	ck_assert_uint_eq(looked, 1);
}
END_TEST

START_TEST(who_is_gone_is_forgotten_and_the_others_are_not)
{
	for (int32_t pid = 1; pid <= 1000; pid++)
		enter(pid, 1000);
	ck_assert_uint_eq(process_cache_count(process_cache), 1000);
	process_cache_begin(process_cache);
	process_cache_begin(process_cache);
	for (int32_t pid = 1; pid <= 1000; pid += 2)
		if (!process_cache_meet(process_cache, pid, 1000))
			enter(pid, 1000);
	process_cache_end(process_cache);
	ck_assert_uint_eq(process_cache_count(process_cache), 500);
	for (int32_t pid = 1; pid <= 1000; pid++)
		if ((uint32_t)pid % PROCESS_CACHE_TURNS != 3)
			ck_assert(!process_cache_meet(process_cache, pid, 1000) == (pid % 2 == 0));
	process_cache_clear(process_cache);
	ck_assert_uint_eq(process_cache_count(process_cache), 0);
	ck_assert_ptr_null(process_cache_meet(process_cache, 21, 1000));
}
END_TEST

START_TEST(there_is_an_end_to_what_is_remembered)
{
	for (int32_t pid = 1; pid <= (int32_t)PROCESS_CACHE_MAX + 1000; pid++)
		enter(pid, 1000);
	ck_assert_uint_eq(process_cache_count(process_cache), PROCESS_CACHE_MAX);
	ck_assert_ptr_nonnull(process_cache_meet(process_cache, 21, 1000));
	ck_assert_ptr_null(process_cache_meet(process_cache, (int32_t)PROCESS_CACHE_MAX + 900, 1000));
}
END_TEST

START_TEST(without_memory_nobody_is_remembered_wrongly)
{
	struct process_cache *other;
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = process_cache_new(&other);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	process_cache_free(other);
	for (int32_t pid = 1; pid <= 128; pid++)
		enter(pid, 1000);
	torture_arm(1);
	enter(129, 1000);
	ck_assert(torture_disarm());
	ck_assert_ptr_null(process_cache_meet(process_cache, 129, 1000));
	ck_assert_ptr_nonnull(process_cache_meet(process_cache, 128, 1000));
	process_cache_begin(process_cache);
	torture_arm(1);
	process_cache_end(process_cache);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(process_cache_count(process_cache), 0);
}
END_TEST

Suite *process_cache_suite(void)
{
	Suite *suite = suite_create("process_cache");
	TCase *tcase = tcase_create("census");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, who_has_not_run_is_as_he_was);
	tcase_add_test(tcase, who_has_run_or_says_nothing_is_looked_at);
	tcase_add_test(tcase, everybody_is_looked_at_once_in_sixteen_scans);
	tcase_add_test(tcase, who_is_gone_is_forgotten_and_the_others_are_not);
	tcase_add_test(tcase, there_is_an_end_to_what_is_remembered);
	tcase_add_test(tcase, without_memory_nobody_is_remembered_wrongly);
	suite_add_tcase(suite, tcase);

	return suite;
}
