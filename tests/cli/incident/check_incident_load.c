/*
 * check_incident_load.c: incidents as the daemon writes them, and damaged ones.
 */
#include "lib/incident/incident.h"
#include "cli/incident/incident_load.h"
#include "daemon/engine/incident/spool.h"
#include "incidentmade.h"
#include "skip.h"
#include "lib/incident/manifest.h"
#include "lib/base/base.h"
#include "torture.h"
#include "cli/incident/series.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/stream/stream.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[300];
static int dirfd_of_test = -1;

static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
}

static void tear_down(void)
{
	close(dirfd_of_test);
	incidentmade_remove(path);
}

/* Writes the usual incident and opens it. */
static int made(const struct incidentmade_options *options)
{
	static const struct incidentmade_options usual;
	int fd;

	incidentmade_write(dirfd_of_test, options ? options : &usual);
	fd = incident_load_open(dirfd_of_test, options && options->name ? options->name : INCIDENTMADE_ID);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void replace(int fd, const char *name, const char *text)
{
	int file = openat(fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
	close(file);
}

static void glance_says(int fd, const char *why)
{
	struct incident_load_glance glance;
	struct incident incident;

	incident_load_glance(fd, &incident, &glance);
	ck_assert(glance.damaged);
	ck_assert_msg(strstr(glance.why, why), "\"%s\" does not say \"%s\"", glance.why, why);
}

START_TEST(whole_incident_is_read)
{
	AUTO_CLOSE int fd = made(NULL);
	AUTO(incident_samples_release) struct incident_samples samples = { 0 };
	struct incident_load_glance glance;
	struct incident incident;
	size_t fired = 0;

	incident_load_glance(fd, &incident, &glance);
	ck_assert(glance.readable && !glance.damaged);
	ck_assert_uint_gt(glance.bytes, 1000);
	ck_assert_str_eq(incident.rule.name, "cpu-high");

	ck_assert_int_eq(incident_samples_load(fd, incident.wall, &samples), 0);
	ck_assert_int_eq(samples.error, 0);
	ck_assert(stream_reader_whole(&samples.report));
	ck_assert_int_eq(samples.series.points[0].at_ns, -INT64_C(10000000000));
	ck_assert_int_eq(samples.series.points[samples.series.count - 1].at_ns, INT64_C(5000000000));
	ck_assert_uint_eq(samples.series.grain_ns, 10000000);
	while (samples.series.points[fired].at_ns < 0)
		fired++;
	ck_assert_int_eq(samples.series.points[fired].at_ns, 0);
	ck_assert_uint_eq(samples.series.points[fired].sample.value[SAMPLE_CPU], 320000000);
	ck_assert(!samples.gone && !samples.cut && samples.dropped == 0);
}
END_TEST

START_TEST(gap_and_end_of_the_target_are_known)
{
	AUTO_CLOSE int fd = made(&(struct incidentmade_options){ .gap = true, .gone = true });
	AUTO(incident_samples_release) struct incident_samples samples = { 0 };
	double peak, mean;
	const struct series_columns at_gap = {
		-INT64_C(5000000000), -INT64_C(4999000000), -INT64_C(4999000000), 1, &peak, &mean, NULL
	};
	size_t gaps = 0;

	ck_assert_int_eq(incident_samples_load(fd, INCIDENTMADE_WALL, &samples), 0);
	ck_assert(samples.gone);
	for (size_t i = 0; i < samples.series.count; i++)
		gaps += samples.series.points[i].after_gap;
	ck_assert_uint_eq(gaps, 1);
	series_memory(&samples.series, &at_gap);
	ck_assert(isnan(peak) && isnan(mean));
}
END_TEST

START_TEST(names_are_listed_oldest_first_and_others_passed_over)
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };

	mkdirat(dirfd_of_test, "20261120T031502.123Z-b-r-2", 0700);
	mkdirat(dirfd_of_test, "20251120T031502.123Z-a-r-1", 0700);
	mkdirat(dirfd_of_test, ".20261120T031502.123Z-c-r-3", 0700);
	mkdirat(dirfd_of_test, "lost+found", 0700);
	mkdirat(dirfd_of_test, "20261120T031502.123Z-\033[31m-r-3", 0700);
	ck_assert_int_eq(symlinkat("/", dirfd_of_test, "20261120T031502.123Z-link-r-4"), 0);
	replace(dirfd_of_test, "20261120T031502.123Z-file-r-5", "");

	ck_assert_int_eq(incident_load_list(dirfd_of_test, &names), 0);
	ck_assert_uint_eq(names.count, 2);
	ck_assert_str_eq(names.name[0], "20251120T031502.123Z-a-r-1");
	ck_assert_str_eq(names.name[1], "20261120T031502.123Z-b-r-2");
}
END_TEST

/* The clock was set back before the second, and forward before the third. */
START_TEST(incidents_are_in_the_order_in_which_they_came_whatever_the_clock_said)
{
	static const char *const order[] = { "20261120T031502.123Z-a-r-1", "19700101T000001.000Z-b-r-1",
					     "20380101T000000.000Z-c-r-1", "20261120T031503.123Z-d-r-1",
					     "20261120T031504.123Z-e-r-1" };
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	const char *found;

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		mkdirat(dirfd_of_test, order[i], 0700);
	/* d and e came together, or were not noted yet. */
	for (int noted = 0; noted < 2; noted++) {
		replace(dirfd_of_test, SPOOL_AGES_FILE,
			noted ? "spikewatch ages 1\t9\n19700101T000001.000Z-b-r-1\t2\n20261120T031502.123Z-a-r-1\t1\n"
				"20261120T031503.123Z-d-r-1\t4\n20261120T031504.123Z-e-r-1\t4\n"
				"20380101T000000.000Z-c-r-1\t3\n"
			      : "spikewatch ages 1\t9\n19700101T000001.000Z-b-r-1\t2\n20261120T031502.123Z-a-r-1\t1\n"
				"gone\t7\n\n20380101T000000.000Z-c-r-1\t3\nno line\n");
		ck_assert_int_eq(incident_load_list(dirfd_of_test, &names), 0);
		ck_assert_uint_eq(names.count, ARRAY_LEN(order));
		for (size_t i = 0; i < ARRAY_LEN(order); i++)
			ck_assert_str_eq(names.name[i], order[i]);
		ck_assert_int_eq(incident_load_find(&names, "last", &found), 0);
		ck_assert_str_eq(found, order[4]);
		incident_load_names_release(&names);
	}
}
END_TEST

START_TEST(found_by_name_beginning_or_part)
{
	char list[][INCIDENT_NAME_MAX + 1] = { "20251120T031502.123Z-a-r-1", "20261120T031502.123Z-b-r-1",
					       "20261120T031502.123Z-b-r-12" };
	struct incident_load_names names = { .name = list, .count = 3 }, none = { 0 };
	const char *found;

	ck_assert_int_eq(incident_load_find(&names, "last", &found), 0);
	ck_assert_ptr_eq(found, list[2]);
	ck_assert_int_eq(incident_load_find(&names, "2025", &found), 0);
	ck_assert_ptr_eq(found, list[0]);
	ck_assert_int_eq(incident_load_find(&names, "-a-", &found), 0);
	ck_assert_ptr_eq(found, list[0]);
	/* A whole name is meant even if it begins another. */
	ck_assert_int_eq(incident_load_find(&names, list[1], &found), 0);
	ck_assert_ptr_eq(found, list[1]);
	ck_assert_int_eq(incident_load_find(&names, "2026", &found), INCIDENT_LOAD_MANY);
	ck_assert_ptr_eq(found, list[2]);
	ck_assert_int_eq(incident_load_find(&names, "z", &found), INCIDENT_LOAD_NONE);
	ck_assert_int_eq(incident_load_find(&names, "", &found), INCIDENT_LOAD_NONE);
	ck_assert_int_eq(incident_load_find(&none, "last", &found), INCIDENT_LOAD_NONE);
}
END_TEST

START_TEST(missing_files_are_named)
{
	AUTO_CLOSE int fd = made(NULL);

	ck_assert_int_eq(unlinkat(fd, "threads.tsv", 0), 0);
	glance_says(fd, "threads.tsv is missing");
	ck_assert_int_eq(unlinkat(fd, MANIFEST_NAME, 0), 0);
	glance_says(fd, "MANIFEST is missing");
	ck_assert_int_eq(unlinkat(fd, INCIDENT_FILE, 0), 0);
	glance_says(fd, "incident.json is missing");
}
END_TEST

START_TEST(changed_files_are_named)
{
	AUTO_CLOSE int fd = made(NULL);

	replace(fd, "smaps.tsv", "longer or shorter");
	glance_says(fd, "smaps.tsv has another size");
	replace(fd, INCIDENT_FILE, "{\"format\": ");
	glance_says(fd, "incident.json is damaged");
}
END_TEST

START_TEST(links_and_fifos_are_not_read)
{
	AUTO_CLOSE int fd = made(NULL);
	AUTO(buffer_release) struct buffer text = { 0 };
	AUTO(incident_samples_release) struct incident_samples samples = { 0 };

	ck_assert_int_eq(unlinkat(fd, "threads.tsv", 0), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", fd, "threads.tsv"), 0);
	ck_assert_int_eq(incident_load_capture(fd, "threads.tsv", &text), -EBADMSG);
	glance_says(fd, "threads.tsv is no plain file");

	ck_assert_int_eq(unlinkat(fd, INCIDENT_SAMPLES_FILE, 0), 0);
	ck_assert_int_eq(mkfifoat(fd, INCIDENT_SAMPLES_FILE, 0600), 0);
	ck_assert_int_eq(incident_samples_load(fd, INCIDENTMADE_WALL, &samples), 0);
	ck_assert_int_eq(samples.error, -EBADMSG);

	ck_assert_int_eq(unlinkat(fd, INCIDENT_FILE, 0), 0);
	ck_assert_int_eq(mkfifoat(fd, INCIDENT_FILE, 0600), 0);
	glance_says(fd, "incident.json is damaged");
}
END_TEST

START_TEST(incident_that_is_a_link_is_not_followed)
{
	ck_assert_int_eq(symlinkat("/tmp", dirfd_of_test, INCIDENTMADE_ID), 0);
	ck_assert_int_lt(incident_load_open(dirfd_of_test, INCIDENTMADE_ID), 0);
}
END_TEST

START_TEST(huge_captures_are_cut)
{
	AUTO_CLOSE int fd = made(NULL);
	AUTO(buffer_release) struct buffer text = { 0 };

	AUTO_CLOSE int file = openat(fd, "threads.tsv", O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(ftruncate(file, (off_t)1 << 40), 0);
	ck_assert_int_eq(incident_load_capture(fd, "threads.tsv", &text), 0);
	ck_assert_uint_eq(text.len, INCIDENT_LOAD_CAPTURE_MAX);
}
END_TEST

START_TEST(samples_at_absurd_times_are_dropped)
{
	AUTO_CLOSE int fd = made(NULL);
	AUTO(incident_samples_release) struct incident_samples samples = { 0 };

	ck_assert_int_eq(incident_samples_load(fd, (wall_t){ UINT64_MAX }, &samples), 0);
	ck_assert_uint_eq(samples.series.count, 0);
	ck_assert_uint_gt(samples.dropped, 0);
}
END_TEST

START_TEST(every_prefix_of_the_samples_is_a_clean_prefix)
{
	AUTO_CLOSE int fd = made(NULL);
	AUTO_CLOSE int file = openat(fd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CLOEXEC);
	size_t before = SIZE_MAX;
	struct stat st;

	ck_assert_int_eq(fstat(file, &st), 0);
	/* The closing line is followed by its newline and an empty line, which are no loss. */
	for (off_t len = st.st_size - 3; len >= 0; len -= 37) {
		AUTO(incident_samples_release) struct incident_samples samples = { 0 };

		ck_assert_int_eq(ftruncate(file, len), 0);
		ck_assert_int_eq(incident_samples_load(fd, INCIDENTMADE_WALL, &samples), 0);
		ck_assert(!stream_reader_whole(&samples.report));
		ck_assert_uint_le(samples.series.count, before);
		before = samples.series.count;
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	AUTO_CLOSE int fd = made(NULL);
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct incident_samples samples = { 0 };
		struct incident_load_names names = { 0 };
		int rc, listed;

		torture_arm(n);
		rc = incident_samples_load(fd, INCIDENTMADE_WALL, &samples);
		listed = rc == 0 ? incident_load_list(dirfd_of_test, &names) : 0;
		injected = torture_disarm();
		ck_assert(injected ? rc == -ENOMEM || listed == -ENOMEM : rc == 0 && listed == 0);
		incident_samples_release(&samples);
		incident_load_names_release(&names);
	}
}
END_TEST

START_TEST(directory_is_the_option_or_a_default)
{
	char buf[200], small[4];

	setenv("SPIKEWATCH_DIR", "/from/environment", 1);
	ck_assert_int_eq(incident_load_directory("/said", buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/said");
	ck_assert_int_eq(incident_load_directory(NULL, buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/from/environment");
	ck_assert_int_eq(incident_load_directory(NULL, small, sizeof(small)), -ENAMETOOLONG);
	unsetenv("SPIKEWATCH_DIR");
	if (access("/var/lib/spikewatch/incidents", R_OK) == 0)
		SKIP_TEST("/var/lib/spikewatch/incidents can be read: it comes before the user's own directory");
	setenv("XDG_STATE_HOME", "/state", 1);
	ck_assert_int_eq(incident_load_directory(NULL, buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/state/spikewatch/incidents");
	setenv("XDG_STATE_HOME", "relative", 1);
	setenv("HOME", "/home/me", 1);
	ck_assert_int_eq(incident_load_directory(NULL, buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/home/me/.local/state/spikewatch/incidents");
}
END_TEST

/* ---- moments, around changes of the clock ---- */

/* 2026-11-20 03:15:02.123 UTC */
#define NOW_NS UINT64_C(1795144502123000000)
#define S NS_PER_S

static const wall_t now = { NOW_NS };

static void set_zone(const char *name)
{
	setenv("TZ", name, 1);
	tzset();
}

static void moment_is(const char *text, uint64_t ns)
{
	wall_t wall = { 1 };
	int rc = moment_parse(text, now, &wall);

	ck_assert_msg(rc == 0, "\"%s\": %s", text, strerror(-rc));
	ck_assert_msg(wall.ns == ns, "\"%s\" is %llu, not %llu", text, (unsigned long long)wall.ns,
		      (unsigned long long)ns);
}

START_TEST(durations_are_so_long_ago)
{
	moment_is("2h", NOW_NS - 2 * 3600 * S);
	moment_is("90s", NOW_NS - 90 * S);
	moment_is("0", NOW_NS);
	moment_is("now", NOW_NS);
	moment_is("36500d", 0);
}
END_TEST

START_TEST(days_begin_at_local_midnight)
{
	set_zone("UTC");
	moment_is("today", UINT64_C(1795132800) * S);
	moment_is("yesterday", (UINT64_C(1795132800) - 86400) * S);
	moment_is("2026-11-20", UINT64_C(1795132800) * S);
	set_zone("ABC-14"); /* fourteen hours east: 17:15 of that day */
	moment_is("today", (UINT64_C(1795132800) - 14 * 3600) * S);
	set_zone("ABC8"); /* eight west: still the day before */
	moment_is("today", (UINT64_C(1795132800) - 86400 + 8 * 3600) * S);
}
END_TEST

START_TEST(times_are_local_unless_they_say_otherwise)
{
	set_zone("ABC-2");
	moment_is("2026-11-20T05:15", UINT64_C(1795144500) * S);
	moment_is("2026-11-20 05:15:02", UINT64_C(1795144502) * S);
	moment_is("2026-11-20T05:15:02.5", UINT64_C(1795144502) * S + S / 2);
	moment_is("2026-11-20T03:15:02.123Z", NOW_NS);
	moment_is("2026-11-20T03:15:02.123456789123Z", UINT64_C(1795144502123456789));
	moment_is("2026-11-19T22:15:02-05:00", UINT64_C(1795144502) * S);
	moment_is("2026-11-20T08:45:02+0530", UINT64_C(1795144502) * S);
	moment_is("20261120T031502.123Z", NOW_NS);
}
END_TEST

START_TEST(a_day_may_have_23_hours)
{
	wall_t spring = { UINT64_C(1774800000) * S }, wall; /* 2026-03-29 16:00 UTC, the day the clocks went forward */

	set_zone("CET-1CEST,M3.5.0,M10.5.0/3");
	ck_assert_int_eq(moment_parse("today", spring, &wall), 0);
	ck_assert_uint_eq(wall.ns, UINT64_C(1774738800) * S); /* 23:00 UTC the day before: still winter */
	ck_assert_int_eq(moment_parse("2026-03-29T12:00", spring, &wall), 0);
	ck_assert_uint_eq(wall.ns, UINT64_C(1774778400) * S); /* 10:00 UTC: summer */
}
END_TEST

START_TEST(other_texts_are_refused)
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

	set_zone("UTC");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(moment_parse(bad[i], now, &wall) == -EINVAL, "\"%s\" was taken", bad[i]);
	ck_assert_int_eq(moment_parse("1969-12-31", now, &wall), -ERANGE);
	ck_assert_uint_eq(wall.ns, 7);
}
END_TEST

/* ---- incidents picked by a command: what cannot be opened is counted or explained ---- */

/* As an unprivileged user, in a process of its own. */
static int count_hidden(int dirfd)
{
	pid_t pid = fork();
	int status = 0;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct incident_load_names names = { 0 };

		if (geteuid() == 0 && setuid(65534) < 0)
			_exit(99);
		_exit(incident_load_list(dirfd, &names) < 0 ? 98 : (int)incident_pick_hidden("check", dirfd, &names));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));

	return WEXITSTATUS(status);
}

START_TEST(incidents_without_permission_are_counted)
{
	char picked[300];
	AUTO_CLOSE int dirfd = incidentmade_directory(picked, sizeof(picked));

	ck_assert_int_eq(chmod(picked, 0755), 0);
	incidentmade_write(dirfd, &(struct incidentmade_options){ 0 });
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0755, 0), 0);
	ck_assert_int_eq(count_hidden(dirfd), 0);
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0, 0), 0);
	ck_assert_int_eq(count_hidden(dirfd), 1);
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0755, 0), 0);
	incidentmade_remove(picked);
}
END_TEST

START_TEST(the_directory_is_the_one_that_was_given)
{
	char buf[INCIDENT_LOAD_PATH_MAX];

	ck_assert_int_eq(incident_pick_directory("check", "/some/where", buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/some/where");
}
END_TEST

Suite *incident_load_suite(void);

Suite *incident_load_suite(void)
{
	Suite *suite = suite_create("incident_load");
	TCase *tcase = tcase_create("incidentload");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, whole_incident_is_read);
	tcase_add_test(tcase, gap_and_end_of_the_target_are_known);
	tcase_add_test(tcase, names_are_listed_oldest_first_and_others_passed_over);
	tcase_add_test(tcase, incidents_are_in_the_order_in_which_they_came_whatever_the_clock_said);
	tcase_add_test(tcase, found_by_name_beginning_or_part);
	tcase_add_test(tcase, missing_files_are_named);
	tcase_add_test(tcase, changed_files_are_named);
	tcase_add_test(tcase, links_and_fifos_are_not_read);
	tcase_add_test(tcase, incident_that_is_a_link_is_not_followed);
	tcase_add_test(tcase, huge_captures_are_cut);
	tcase_add_test(tcase, samples_at_absurd_times_are_dropped);
	tcase_add_test(tcase, every_prefix_of_the_samples_is_a_clean_prefix);
	tcase_add_test(tcase, every_allocation_may_fail);
	tcase_add_test(tcase, directory_is_the_option_or_a_default);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("moment");
	tcase_add_test(tcase, durations_are_so_long_ago);
	tcase_add_test(tcase, days_begin_at_local_midnight);
	tcase_add_test(tcase, times_are_local_unless_they_say_otherwise);
	tcase_add_test(tcase, a_day_may_have_23_hours);
	tcase_add_test(tcase, other_texts_are_refused);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("pick");
	tcase_add_test(tcase, incidents_without_permission_are_counted);
	tcase_add_test(tcase, the_directory_is_the_one_that_was_given);
	suite_add_tcase(suite, tcase);
	return suite;
}
