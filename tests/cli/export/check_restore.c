/*
 * check_restore.c: a page becomes the directory again that it was made of; pages that are cut,
 * changed or none.
 */
#include "incidentmade.h"
#include "lib/incident/manifest.h"
#include "cli/base/options.h"
#include "cli/report/report.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "skip.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/export/export.c"

Suite *restore_suite(void);

static char path[300], page_path[400], out_path[400];
static int dirfd_of_test = -1, incidentfd = -1;
static struct buffer page;

static void save_page(size_t len)
{
	int fd = open(page_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(sink_write_all(fd, page.data, len), 0);
	close(fd);
}

/* What is said meanwhile goes nowhere. */
static void be_quiet(int saved[static 2])
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	fflush(stdout);
	saved[0] = dup(STDOUT_FILENO);
	saved[1] = dup(STDERR_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	close(null);
}

static void speak_again(const int saved[static 2])
{
	fflush(stdout);
	dup2(saved[0], STDOUT_FILENO);
	dup2(saved[1], STDERR_FILENO);
	close(saved[0]);
	close(saved[1]);
}

/* The incident's page, without files that are larger than limit_bytes; none if it cannot be made here. */
static void write_page(uint64_t limit_bytes)
{
	char incident[400], limit[32];
	char *words[] = { "report", incident, "-o", page_path, "--max-file", limit, NULL };
	int saved[2], code;

	if (!report_page_built())
		return;
	snprintf(incident, sizeof(incident), "%s/%s", path, INCIDENTMADE_ID);
	snprintf(limit, sizeof(limit), "%juB", (uintmax_t)limit_bytes);
	be_quiet(saved);
	code = report_command((int)ARRAY_LEN(words) - 1, words);
	speak_again(saved);
	ck_assert_int_eq(code, EXIT_OK);
	buffer_release(&page);
	ck_assert_int_eq(whole_file_read(dirfd_of_test, "page.html", &page), 0);
}

#define NEED_PAGE() \
	do { \
		if (!report_page_built()) \
			SKIP_TEST("this build has no reports: there was no npm"); \
	} while (0)

static void set_up(void)
{
	static const struct incidentmade_options usual;

	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	snprintf(page_path, sizeof(page_path), "%s/page.html", path);
	snprintf(out_path, sizeof(out_path), "%s/out", path);
	incidentmade_write(dirfd_of_test, &usual);
	incidentfd = openat(dirfd_of_test, INCIDENTMADE_ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	write_page(1 << 30);
}

static void tear_down(void)
{
	close(incidentfd);
	close(dirfd_of_test);
	buffer_release(&page);
	incidentmade_remove(path);
}

static int run(const char *from, const char *to)
{
	int saved[2], code;

	be_quiet(saved);
	code = restore_page(from, to);
	speak_again(saved);
	return code;
}

static int open_out(void)
{
	return open(out_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void is_same(int out, const char *name)
{
	struct buffer was = { 0 }, is = { 0 };

	ck_assert_int_eq(whole_file_read(incidentfd, name, &was), 0);
	ck_assert_int_eq(whole_file_read(out, name, &is), 0);
	ck_assert_uint_eq(is.len, was.len);
	ck_assert_mem_eq(is.data, was.data, was.len);
	buffer_release(&was);
	buffer_release(&is);
}

START_TEST(the_directory_is_as_it_was)
{
	static const char *const names[] = { "incident.json", "samples.tsv", "threads.tsv", "smaps.tsv",
					     MANIFEST_NAME };
	AUTO_CLOSE int out = -1;

	NEED_PAGE();
	ck_assert(restore_is_page(page_path));
	ck_assert(!restore_is_page(path));
	ck_assert_int_eq(run(page_path, out_path), EXIT_OK);
	out = open_out();
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		is_same(out, names[i]);
	ck_assert_int_eq(manifest_verify(out, NULL, NULL), 0);
	/* What is there is never overwritten. */
	ck_assert_int_eq(run(page_path, out_path), EXIT_TROUBLE);
	ck_assert_int_eq(manifest_verify(out, NULL, NULL), 0);
}
END_TEST

START_TEST(without_a_name_it_gets_the_name_of_the_incident)
{
	char before[4096], there[500];
	int code;

	NEED_PAGE();
	ck_assert_ptr_nonnull(getcwd(before, sizeof(before)));
	snprintf(there, sizeof(there), "%s/elsewhere", path);
	ck_assert_int_eq(mkdir(there, 0700), 0);
	ck_assert_int_eq(chdir(there), 0);
	code = run(page_path, NULL);
	ck_assert_int_eq(chdir(before), 0);
	ck_assert_int_eq(code, EXIT_OK);
	snprintf(there, sizeof(there), "%s/elsewhere/%s/MANIFEST", path, INCIDENTMADE_ID);
	ck_assert_int_eq(access(there, R_OK), 0);
	/* Deeper than what is removed after the test. */
	snprintf(there, sizeof(there), "%s/elsewhere", path);
	incidentmade_remove(there);
}
END_TEST

START_TEST(a_file_that_was_left_out_is_named)
{
	AUTO_CLOSE int out = -1;
	struct stat st;

	NEED_PAGE();
	ck_assert_int_eq(fstatat(incidentfd, "samples.tsv", &st, 0), 0);
	write_page((uint64_t)st.st_size - 1);
	ck_assert_int_eq(run(page_path, out_path), EXIT_TROUBLE);
	out = open_out();
	ck_assert_int_lt(faccessat(out, "samples.tsv", F_OK, 0), 0);
	is_same(out, "incident.json");
}
END_TEST

START_TEST(of_a_damaged_page_the_rest_is_restored)
{
	char *at;
	AUTO_CLOSE int out = -1;

	NEED_PAGE();
	at = memmem(page.data, page.len, "data-name=\"threads.tsv\"", 23);
	ck_assert_ptr_nonnull(at);
	at = memchr(at, '\n', 200);
	at[5] = at[5] == 'A' ? 'B' : 'A';
	save_page(page.len);
	ck_assert_int_eq(run(page_path, out_path), EXIT_TROUBLE);
	out = open_out();
	ck_assert_int_lt(faccessat(out, "threads.tsv", F_OK, 0), 0);
	is_same(out, "samples.tsv");
	is_same(out, "smaps.tsv");
}
END_TEST

START_TEST(of_a_page_that_was_cut_the_rest_is_restored)
{
	char *at;
	AUTO_CLOSE int out = -1;

	NEED_PAGE();
	at = memmem(page.data, page.len, "data-name=\"smaps.tsv\"", 21);
	save_page((size_t)(at - page.data) + 100);
	ck_assert_int_eq(run(page_path, out_path), EXIT_TROUBLE);
	out = open_out();
	is_same(out, "samples.tsv");
	ck_assert_int_lt(faccessat(out, "smaps.tsv", F_OK, 0), 0);
}
END_TEST

START_TEST(a_file_that_is_no_report_leaves_nothing_behind)
{
	static const char text[] = "<!DOCTYPE html>\n<p>hello\n";

	buffer_release(&page);
	ck_assert_int_eq(buffer_append(&page, text, sizeof(text) - 1), 0);
	save_page(page.len);
	ck_assert_int_eq(run(page_path, out_path), EXIT_USAGE);
	ck_assert_int_eq(run("/nowhere/page.html", out_path), EXIT_TROUBLE);
	ck_assert_int_lt(open_out(), 0);
}
END_TEST

START_TEST(a_directory_that_cannot_be_written_leaves_nothing)
{
	char nowhere[500];

	NEED_PAGE();
	snprintf(nowhere, sizeof(nowhere), "%s/page.html/out", path);
	ck_assert_int_eq(run(page_path, nowhere), EXIT_TROUBLE);
	ck_assert_int_eq(run(page_path, ""), EXIT_TROUBLE);
	ck_assert_int_eq(run(page_path, "/"), EXIT_TROUBLE);
}
END_TEST

Suite *restore_suite(void)
{
	Suite *suite = suite_create("restore");
	TCase *tcase = tcase_create("restore");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_directory_is_as_it_was);
	tcase_add_test(tcase, without_a_name_it_gets_the_name_of_the_incident);
	tcase_add_test(tcase, a_file_that_was_left_out_is_named);
	tcase_add_test(tcase, of_a_damaged_page_the_rest_is_restored);
	tcase_add_test(tcase, of_a_page_that_was_cut_the_rest_is_restored);
	tcase_add_test(tcase, a_file_that_is_no_report_leaves_nothing_behind);
	tcase_add_test(tcase, a_directory_that_cannot_be_written_leaves_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
