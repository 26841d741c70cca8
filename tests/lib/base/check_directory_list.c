/* check_directory_list.c: reading descriptors to their end, and the names in a directory. */
#include "lib/base/io.h"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Suite *directory_list_suite(void);

struct seen {
	int count;
	bool odd;
	int stop_after;
};

static int see(void *ctx, const char *name)
{
	struct seen *seen = ctx;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		seen->odd = true;

	return ++seen->count == seen->stop_after ? 7 : 0;
}

static int temporary_directory(char *path)
{
	snprintf(path, 64, "/tmp/check_dirlist.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(path));

	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

START_TEST(lists_every_name_once_and_again)
{
	char path[64];
	AUTO_CLOSE int fd = temporary_directory(path);
	struct seen seen = { 0 };

	for (int i = 0; i < 300; i++) {
		char name[16];

		snprintf(name, sizeof name, "n%d", i);
		close(openat(fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	ck_assert_int_eq(directory_list_each(fd, see, &seen), 0);
	ck_assert_int_eq(seen.count, 300);
	ck_assert(!seen.odd);
	ck_assert_int_eq(directory_list_each(fd, see, &seen), 0); /* the descriptor's position was not touched */
	ck_assert_int_eq(seen.count, 600);
	for (int i = 0; i < 300; i++) {
		char name[16];

		snprintf(name, sizeof name, "n%d", i);
		ck_assert_int_eq(unlinkat(fd, name, 0), 0);
	}
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(stops_when_the_visitor_says_so)
{
	AUTO_CLOSE int fd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct seen seen = { .stop_after = 3 };

	ck_assert_int_eq(directory_list_each(fd, see, &seen), 7);
	ck_assert_int_eq(seen.count, 3);
}
END_TEST

START_TEST(what_is_no_directory_is_refused)
{
	AUTO_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct seen seen = { 0 };

	ck_assert_int_eq(directory_list_each(fd, see, &seen), -ENOTDIR);
	ck_assert_int_eq(seen.count, 0);
}
END_TEST

START_TEST(reads_over_short_reads_up_to_the_room)
{
	int ends[2];
	char text[8];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], "abc", 3), 3);
	ck_assert_int_eq(write(ends[1], "defgh", 5), 5);
	close(ends[1]);
	ck_assert_int_eq(fd_read_all(ends[0], text, 5), 5);
	ck_assert_mem_eq(text, "abcde", 5);
	ck_assert_int_eq(fd_read_all(ends[0], text, sizeof text), 3);
	ck_assert_mem_eq(text, "fgh", 3);
	ck_assert_int_eq(fd_read_all(ends[0], text, sizeof text), 0);
	close(ends[0]);
	ck_assert_int_eq(fd_read_all(ends[0], text, sizeof text), -EBADF);
}
END_TEST

Suite *directory_list_suite(void)
{
	Suite *suite = suite_create("directory_list");
	TCase *tcase = tcase_create("dirlist");

	tcase_add_test(tcase, lists_every_name_once_and_again);
	tcase_add_test(tcase, stops_when_the_visitor_says_so);
	tcase_add_test(tcase, what_is_no_directory_is_refused);
	tcase_add_test(tcase, reads_over_short_reads_up_to_the_room);
	suite_add_tcase(suite, tcase);

	return suite;
}
