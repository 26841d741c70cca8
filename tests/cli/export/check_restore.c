/*
 * check_restore.c: a page becomes the directory again that it was made of; pages that are cut,
 * changed or none.
 */
#include "incidentmade.h"
#include "lib/incident/manifest.h"
#include "cli/base/options.h"
#include "cli/report/report_file.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

#include <check.h>
#include <dirent.h>
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

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_file(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* A page with the incident's files, but for those that are larger than limit_bytes. */
static void write_page(uint64_t limit_bytes)
{
	struct sink sink = sink_buffer(&page);
	struct dirent **entries;
	int count = scandirat(incidentfd, ".", &entries, is_file, by_name), put = 0;

	ck_assert_int_gt(count, 4);
	buffer_release(&page);
	ck_assert_int_eq(report_file_begin(&sink, INCIDENTMADE_ID), 0);
	for (int i = 0; i < count; i++) {
		struct buffer file = { 0 };

		ck_assert_int_eq(whole_file_read(incidentfd, entries[i]->d_name, &file), 0);
		if (file.len <= limit_bytes) {
			ck_assert_int_eq(report_file_put(&sink, entries[i]->d_name, file.data, file.len), 0);
			put++;
		}
		buffer_release(&file);
		free(entries[i]);
	}
	free(entries);
	ck_assert_int_eq(report_file_end(&sink, (uint64_t)put), 0);
	save_page(page.len);
}

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

/* What it says goes nowhere. */
static int run(const char *from, const char *to)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) }, code;

	fflush(stdout);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	code = restore_page(from, to);
	fflush(stdout);
	dup2(saved[0], STDOUT_FILENO);
	dup2(saved[1], STDERR_FILENO);
	close(saved[0]);
	close(saved[1]);
	close(null);
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
	char *at = memmem(page.data, page.len, "data-name=\"threads.tsv\"", 23);
	AUTO_CLOSE int out = -1;

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
	char *at = memmem(page.data, page.len, "data-name=\"smaps.tsv\"", 21);
	AUTO_CLOSE int out = -1;

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
