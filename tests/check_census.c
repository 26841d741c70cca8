/* check_census.c: who need not be looked at again. What clocks say is made up. */
#include "daemon/engine/targets/matcher.h"
#include "torture.h"

#include <check.h>
#include <errno.h>

Suite *census_suite(void);

static struct census *census;

static void setup(void)
{
	ck_assert_int_eq(census_new(&census), 0);
	census_begin(census); /* the first: of the pids below none is in its turn */
}

static void teardown(void)
{
	census_free(census);
}

static void enter(int32_t pid, uint64_t cpu_ns)
{
	struct census_record record = {
		.pid = pid, .start_ticks = (uint64_t)pid + 5, .cpu_ticks = 7, .cpu_ns = cpu_ns, .watches = 2
	};

	census_enter(census, &record);
}

START_TEST(who_has_not_run_is_as_he_was)
{
	const struct census_record *record;

	ck_assert_ptr_null(census_meet(census, 18, 1000));
	enter(18, 1000);
	census_end(census);
	census_begin(census);
	ck_assert_ptr_null(census_meet(census, 19, 1000));
	record = census_meet(census, 18, 1000);
	ck_assert_ptr_null(record); /* in the second of sixteen scans he is looked at in any case */
	enter(18, 1000);
	census_begin(census);
	record = census_meet(census, 18, 1000);
	ck_assert_ptr_nonnull(record);
	ck_assert_uint_eq(record->start_ticks, 23);
	ck_assert_uint_eq(record->cpu_ticks, 7);
	ck_assert_uint_eq(record->watches, 2);
}
END_TEST

START_TEST(who_has_run_or_says_nothing_is_looked_at)
{
	enter(21, 1000);
	ck_assert_ptr_null(census_meet(census, 21, 1001));
	ck_assert_ptr_null(census_meet(census, 21, 999));
	ck_assert_ptr_null(census_meet(census, 21, 0));
	ck_assert_ptr_nonnull(census_meet(census, 21, 1000));
	enter(21, 2000);
	ck_assert_ptr_null(census_meet(census, 21, 1000));
	ck_assert_ptr_nonnull(census_meet(census, 21, 2000));
	ck_assert_uint_eq(census_count(census), 1);
}
END_TEST

START_TEST(everybody_is_looked_at_once_in_sixteen_scans)
{
	unsigned looked = 0;

	enter(21, 1000);
	for (unsigned i = 0; i < CENSUS_TURNS; i++) {
		census_begin(census);
		if (!census_meet(census, 21, 1000)) {
			looked++;
			enter(21, 1000);
		}
		census_end(census);
	}
	ck_assert_uint_eq(looked, 1);
}
END_TEST

START_TEST(who_is_gone_is_forgotten_and_the_others_are_not)
{
	for (int32_t pid = 1; pid <= 1000; pid++)
		enter(pid, 1000);
	ck_assert_uint_eq(census_count(census), 1000);
	census_begin(census);
	census_begin(census);
	for (int32_t pid = 1; pid <= 1000; pid += 2)
		if (!census_meet(census, pid, 1000))
			enter(pid, 1000);
	census_end(census);
	ck_assert_uint_eq(census_count(census), 500);
	for (int32_t pid = 1; pid <= 1000; pid++)
		if ((uint32_t)pid % CENSUS_TURNS != 3)
			ck_assert(!census_meet(census, pid, 1000) == (pid % 2 == 0));
	census_clear(census);
	ck_assert_uint_eq(census_count(census), 0);
	ck_assert_ptr_null(census_meet(census, 21, 1000));
}
END_TEST

START_TEST(there_is_an_end_to_what_is_remembered)
{
	for (int32_t pid = 1; pid <= (int32_t)CENSUS_MAX + 1000; pid++)
		enter(pid, 1000);
	ck_assert_uint_eq(census_count(census), CENSUS_MAX);
	ck_assert_ptr_nonnull(census_meet(census, 21, 1000));
	ck_assert_ptr_null(census_meet(census, (int32_t)CENSUS_MAX + 900, 1000));
}
END_TEST

START_TEST(without_memory_nobody_is_remembered_wrongly)
{
	struct census *other;
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = census_new(&other);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	census_free(other);
	for (int32_t pid = 1; pid <= 128; pid++)
		enter(pid, 1000);
	torture_arm(1);
	enter(129, 1000);
	ck_assert(torture_disarm());
	ck_assert_ptr_null(census_meet(census, 129, 1000));
	ck_assert_ptr_nonnull(census_meet(census, 128, 1000));
	census_begin(census);
	torture_arm(1);
	census_end(census);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(census_count(census), 0);
}
END_TEST

Suite *census_suite(void)
{
	Suite *suite = suite_create("census");
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
