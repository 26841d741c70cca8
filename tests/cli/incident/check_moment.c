/* check_moment.c: moments as people type them, around changes of the clock, and what is none. */
#include "cli/incident/incident_load.h"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Suite *moment_suite(void);

/* 2026-11-20 03:15:02.123 UTC */
#define NOW_NS UINT64_C(1795144502123000000)
#define S NS_PER_S

static const wall_t now = { NOW_NS };

static void zone(const char *name)
{
	setenv("TZ", name, 1);
	tzset();
}

static void is(const char *text, uint64_t ns)
{
	wall_t wall = { 1 };
	int rc = moment_parse(text, now, &wall);

	ck_assert_msg(rc == 0, "\"%s\": %s", text, strerror(-rc));
	ck_assert_msg(wall.ns == ns, "\"%s\" is %llu, not %llu", text, (unsigned long long)wall.ns,
		      (unsigned long long)ns);
}

START_TEST(durations_are_so_long_ago)
{
	is("2h", NOW_NS - 2 * 3600 * S);
	is("90s", NOW_NS - 90 * S);
	is("0", NOW_NS);
	is("now", NOW_NS);
	is("36500d", 0);
}
END_TEST

START_TEST(days_begin_at_local_midnight)
{
	zone("UTC");
	is("today", UINT64_C(1795132800) * S);
	is("yesterday", (UINT64_C(1795132800) - 86400) * S);
	is("2026-11-20", UINT64_C(1795132800) * S);
	zone("ABC-14"); /* fourteen hours east: 17:15 of that day */
	is("today", (UINT64_C(1795132800) - 14 * 3600) * S);
	zone("ABC8"); /* eight west: still the day before */
	is("today", (UINT64_C(1795132800) - 86400 + 8 * 3600) * S);
}
END_TEST

START_TEST(times_are_local_unless_they_say_otherwise)
{
	zone("ABC-2");
	is("2026-11-20T05:15", UINT64_C(1795144500) * S);
	is("2026-11-20 05:15:02", UINT64_C(1795144502) * S);
	is("2026-11-20T05:15:02.5", UINT64_C(1795144502) * S + S / 2);
	is("2026-11-20T03:15:02.123Z", NOW_NS);
	is("2026-11-20T03:15:02.123456789123Z", UINT64_C(1795144502123456789));
	is("2026-11-19T22:15:02-05:00", UINT64_C(1795144502) * S);
	is("2026-11-20T08:45:02+0530", UINT64_C(1795144502) * S);
	is("20261120T031502.123Z", NOW_NS);
}
END_TEST

START_TEST(a_day_may_have_23_hours)
{
	wall_t spring = { UINT64_C(1774800000) * S }, wall; /* 2026-03-29 16:00 UTC, the day the clocks went forward */

	zone("CET-1CEST,M3.5.0,M10.5.0/3");
	ck_assert_int_eq(moment_parse("today", spring, &wall), 0);
	ck_assert_uint_eq(wall.ns, UINT64_C(1774738800) * S); /* 23:00 UTC the day before: still winter */
	ck_assert_int_eq(moment_parse("2026-03-29T12:00", spring, &wall), 0);
	ck_assert_uint_eq(wall.ns, UINT64_C(1774778400) * S); /* 10:00 UTC: summer */
}
END_TEST

START_TEST(what_is_no_moment_is_refused)
{
	static const char *const bad[] = {
		"",
		"tomorrow",
		"2",
		"2 hours",
		"-2h",
		"2026",
		"2026-11",
		"2026-13-01",
		"2026-00-10",
		"2026-02-30",
		"2026-11-31",
		"2026-11-20T",
		"2026-11-20T3:15",
		"2026-11-20T25:00",
		"2026-11-20T10:61",
		"2026-11-20T10:10:61",
		"2026-11-20T10:10:10.",
		"2026-11-20T10:10x",
		"2026-11-20T10:10:10Zx",
		"2026-11-20T10:10:10+25:00",
		"2026-11-20T10:10:10+1",
		"2026-1120",
		"2026-11-20x",
		"20261120T031502.123Z-web-cpu-1",
		"\x1b[31m",
	};
	wall_t wall = { 7 };

	zone("UTC");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(moment_parse(bad[i], now, &wall) == -EINVAL, "\"%s\" was taken", bad[i]);
	ck_assert_int_eq(moment_parse("1969-12-31", now, &wall), -ERANGE);
	ck_assert_uint_eq(wall.ns, 7);
}
END_TEST

Suite *moment_suite(void)
{
	Suite *suite = suite_create("moment");
	TCase *tcase = tcase_create("moment");

	tcase_add_test(tcase, durations_are_so_long_ago);
	tcase_add_test(tcase, days_begin_at_local_midnight);
	tcase_add_test(tcase, times_are_local_unless_they_say_otherwise);
	tcase_add_test(tcase, a_day_may_have_23_hours);
	tcase_add_test(tcase, what_is_no_moment_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
