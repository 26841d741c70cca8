/*
 * check_file_writer.c: a file that is whole at every moment, directories that are not there, and
 * what is left behind.
 */
#include "daemon/service/health/file_writer.h"

#include "scene.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/base/units.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

Suite *file_writer_suite(void);

/* A disk that blocks. */
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

static int replace_on_disk(int dirfd, const char *name, const void *data, size_t len, enum whole_file_kind kind)
{
	pthread_mutex_lock(&disk);
	pthread_mutex_unlock(&disk);
	return whole_file_replace(dirfd, name, data, len, kind);
}

#define whole_file_replace replace_on_disk
#include "daemon/service/health/file_writer.c"
#undef whole_file_replace

static void disk_block(void)
{
	pthread_mutex_lock(&disk);
}

static void disk_unblock(void)
{
	pthread_mutex_unlock(&disk);
}

static char directory[64], path[96], temporary[112];
static struct file_writer *writer;
static const struct file_writer_options options = { .kind = WHOLE_FILE_PUBLIC,
						    .transient = true,
						    .patience_ns = 2 * NS_PER_S };

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/spikewatch.prom", directory);
	snprintf(temporary, sizeof(temporary), "%s/.spikewatch.prom.tmp", directory);
	ck_assert_int_eq(file_writer_new(path, &options, &writer), 0);
}

static void teardown(void)
{
	file_writer_free(writer);
	scene_remove(directory);
}

static int put(const char *page)
{
	struct buffer text = { 0 };

	ck_assert_int_eq(buffer_append(&text, page, strlen(page)), 0);
	int r = file_writer_put(writer, &text);

	ck_assert_ptr_null(text.data);
	ck_assert_uint_eq(text.len, 0);

	return r;
}

START_TEST(a_public_file_is_readable_by_all)
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

START_TEST(temporary_file_of_a_killed_writer_is_replaced)
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
	scene_wait_for((r = put("two\n")) != FILE_WRITER_BUSY);
	ck_assert_int_eq(r, -ENOENT);
	ck_assert_int_eq(mkdir(directory, 0755), 0);
	scene_wait_for(put("three\n") <= 0 && scene_says(path, "three\n"));
	scene_wait_for((r = put("four\n")) != FILE_WRITER_BUSY);
	ck_assert_int_eq(r, 0);
}
END_TEST

START_TEST(what_is_a_directory_is_left_alone)
{
	int r = 0;

	ck_assert_int_eq(mkdir(path, 0755), 0);
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for((r = put("two\n")) != FILE_WRITER_BUSY);
	ck_assert_int_eq(r, -EISDIR);
	file_writer_free(writer);
	writer = NULL;
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

START_TEST(nothing_is_left_behind)
{
	ck_assert_int_eq(put("one\n"), 0);
	scene_wait_for(scene_says(path, "one\n"));
	file_writer_free(writer);
	writer = NULL;
	ck_assert_int_lt(access(path, F_OK), 0);
	ck_assert_int_lt(access(temporary, F_OK), 0);
}
END_TEST

START_TEST(the_last_text_of_a_file_that_stays_is_written)
{
	static const struct file_writer_options durable = { .make_directory = true, .patience_ns = 10 * NS_PER_S };
	struct clock clock = real_clock();
	struct file_writer *other;
	char deep[128];

	snprintf(deep, sizeof(deep), "%s/a/b/state", directory);
	ck_assert_int_eq(file_writer_new(deep, &durable, &other), 0);
	for (int i = 0; i < 10; i++) {
		struct buffer text = { 0 };

		ck_assert_int_eq(buffer_append(&text, "0123456789" + i, 1), 0);
		ck_assert_int_eq(file_writer_wait(other, mono_add(clock_mono(&clock), 10 * NS_PER_S)), 0);
		ck_assert_int_eq(file_writer_put(other, &text), 0);
	}
	file_writer_free(other);
	ck_assert(scene_says(deep, "9"));
}
END_TEST

START_TEST(owner_of_a_writer_that_blocks_goes_on)
{
	static const struct file_writer_options hasty = { .patience_ns = 50 * NS_PER_MS };
	struct clock clock = real_clock();
	char blocked[128], file[160];
	struct buffer text = { 0 };
	struct file_writer *other;

	snprintf(blocked, sizeof(blocked), "%s/blocked", directory);
	snprintf(file, sizeof(file), "%s/file", blocked);
	ck_assert_int_eq(mkdir(blocked, 0755), 0);
	ck_assert_int_eq(file_writer_new(file, &hasty, &other), 0);
	disk_block();
	ck_assert_int_eq(buffer_append(&text, "1", 1), 0);
	ck_assert_int_eq(file_writer_put(other, &text), 0);
	ck_assert_int_eq(file_writer_wait(other, mono_add(clock_mono(&clock), 50 * NS_PER_MS)), FILE_WRITER_BUSY);
	ck_assert_int_eq(file_writer_result(other), FILE_WRITER_BUSY);
	ck_assert_int_eq(buffer_append(&text, "2", 1), 0);
	ck_assert_int_eq(file_writer_put(other, &text), FILE_WRITER_BUSY);
	file_writer_free(other); /* left to its thread */
	disk_unblock();
	scene_wait_for(scene_says(file, "1"));
}
END_TEST

START_TEST(names_that_are_none_are_refused)
{
	static const char *const names[] = { "x.prom", "", "/", "/tmp/", "/tmp/.", "/.." };
	struct file_writer *other = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_msg(file_writer_new(names[i], &options, &other) == -EINVAL, "%s", names[i]);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct file_writer *other = NULL;

		torture_arm(n);
		int r = file_writer_new(path, &options, &other);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		file_writer_free(other);
	}
}
END_TEST

Suite *file_writer_suite(void)
{
	Suite *suite = suite_create("file_writer");
	TCase *tcase = tcase_create("file");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_public_file_is_readable_by_all);
	tcase_add_test(tcase, a_page_is_whole_at_every_moment);
	tcase_add_test(tcase, temporary_file_of_a_killed_writer_is_replaced);
	tcase_add_test(tcase, a_link_is_not_followed);
	tcase_add_test(tcase, a_failure_is_said_with_the_next_page_and_tried_again);
	tcase_add_test(tcase, what_is_a_directory_is_left_alone);
	tcase_add_test(tcase, nothing_is_left_behind);
	tcase_add_test(tcase, the_last_text_of_a_file_that_stays_is_written);
	tcase_add_test(tcase, owner_of_a_writer_that_blocks_goes_on);
	tcase_add_test(tcase, names_that_are_none_are_refused);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
