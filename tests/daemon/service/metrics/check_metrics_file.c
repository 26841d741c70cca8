/*
 * check_metrics_file.c: a page that is whole at every moment, directories that are not there, and
 * what is left behind.
 */
#include "daemon/service/metrics/metrics_server.h"

#include "scene.h"
#include "torture.h"
#include "lib/base/io.h"

#include <errno.h>
#include <sys/stat.h>

Suite *metrics_file_suite(void);

static char directory[64], path[96], temporary[112];
static struct metrics_file *metrics_file;

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/spikewatch.prom", directory);
	snprintf(temporary, sizeof(temporary), "%s/.spikewatch.prom.tmp", directory);
	ck_assert_int_eq(metrics_file_new(path, &metrics_file), 0);
}

static void teardown(void)
{
	metrics_file_free(metrics_file);
	scene_remove(directory);
}

static int put(const char *page)
{
	struct buffer text = { 0 };

	ck_assert_int_eq(buffer_append(&text, page, strlen(page)), 0);
	int r = metrics_file_put(metrics_file, &text);

	ck_assert_ptr_null(text.data);
	ck_assert_uint_eq(text.len, 0);

	return r;
}

START_TEST(a_page_is_there_for_everybody_to_read)
{
	struct stat st;

	umask(077);
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for(scene_says(path, "one\n"));
	scene_wait_for(put("two\n") == 0);
	scene_wait_for(scene_says(path, "two\n"));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0644);
	ck_assert_int_eq(st.st_size, 4);
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

/* A reader sees one of the two, never a part. */
START_TEST(a_page_is_whole_at_every_moment)
{
	static char a[100001], b[50001];
	bool seen_a = false, seen_b = false;

	memset(a, 'a', sizeof(a) - 1);
	memset(b, 'b', sizeof(b) - 1);
	ck_assert_int_eq(put(a), 0);
	scene_wait_for(access(path, F_OK) == 0);
	for (int i = 0; i < 3000 && !(i > 300 && seen_a && seen_b); i++) {
		ck_assert_int_ge(put(i % 2 ? a : b), 0);
		char *text = scene_read(path);

		ck_assert_ptr_nonnull(text);
		ck_assert(strcmp(text, a) == 0 || strcmp(text, b) == 0);
		seen_a = seen_a || *text == 'a';
		seen_b = seen_b || *text == 'b';
		free(text);
	}
	ck_assert(seen_a && seen_b);
}
END_TEST

START_TEST(what_a_killed_one_left_is_in_nobodys_way)
{
	scene_write(temporary, "a part of");
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for(scene_says(path, "one\n"));
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

/* The name in between is no way to another file. */
START_TEST(a_link_is_not_followed)
{
	char other[96];

	snprintf(other, sizeof(other), "%s/other", directory);
	scene_write(other, "precious");
	ck_assert_int_eq(symlink(other, temporary), 0);
	ck_assert_int_eq(symlink(other, path), 0);
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for(scene_says(path, "one\n"));
	ck_assert(scene_says(other, "precious"));
}
END_TEST

START_TEST(a_failure_is_said_with_the_next_page_and_tried_again)
{
	int r = 0;

	scene_remove(directory);
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for((r = put("two\n")) != METRICS_FILE_BUSY);
	ck_assert_int_eq(r, -ENOENT);
	ck_assert_int_eq(mkdir(directory, 0755), 0);
	scene_wait_for(put("three\n") <= 0 && scene_says(path, "three\n"));
	scene_wait_for((r = put("four\n")) != METRICS_FILE_BUSY);
	ck_assert_int_eq(r, 0);
}
END_TEST

START_TEST(what_is_a_directory_is_left_alone)
{
	int r = 0;

	ck_assert_int_eq(mkdir(path, 0755), 0);
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for((r = put("two\n")) != METRICS_FILE_BUSY);
	ck_assert_int_eq(r, -EISDIR);
	metrics_file_free(metrics_file);
	metrics_file = NULL;
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

START_TEST(nothing_is_left_behind)
{
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for(scene_says(path, "one\n"));
	metrics_file_free(metrics_file);
	metrics_file = NULL;
	ck_assert_int_lt(access(path, F_OK), 0);
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

START_TEST(names_that_are_none_are_refused)
{
	static const char *const names[] = { "x.prom", "", "/", "/tmp/", "/tmp/.", "/.." };
	struct metrics_file *other = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_msg(metrics_file_new(names[i], &other) == -EINVAL, "%s", names[i]);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct metrics_file *other = NULL;

		torture_arm(n);
		int r = metrics_file_new(path, &other);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		metrics_file_free(other);
	}
}
END_TEST

Suite *metrics_file_suite(void)
{
	Suite *suite = suite_create("metrics_file");
	TCase *tcase = tcase_create("file");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_page_is_there_for_everybody_to_read);
	tcase_add_test(tcase, a_page_is_whole_at_every_moment);
	tcase_add_test(tcase, what_a_killed_one_left_is_in_nobodys_way);
	tcase_add_test(tcase, a_link_is_not_followed);
	tcase_add_test(tcase, a_failure_is_said_with_the_next_page_and_tried_again);
	tcase_add_test(tcase, what_is_a_directory_is_left_alone);
	tcase_add_test(tcase, nothing_is_left_behind);
	tcase_add_test(tcase, names_that_are_none_are_refused);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
