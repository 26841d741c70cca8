/* check_whole_file.c: a small file is the old one or the new one. */
#include "lib/base/base.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *whole_file_suite(void);

static char directory[64];
static int at = -1;

static void make_directory(void)
{
	snprintf(directory, sizeof(directory), "/tmp/spikewatch-wholefile-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	at = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(at, 0);
}

static void remove_directory(void)
{
	static const char *const names[] = { "state", ".state.tmp", "link", "fifo" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unlinkat(at, names[i], 0);
	close(at);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void assert_holds(const char *text)
{
	AUTO(buffer_release) struct buffer buffer = { 0 };

	ck_assert_int_eq(whole_file_read(at, "state", &buffer), 0);
	ck_assert_uint_eq(buffer.len, strlen(text));
	ck_assert_mem_eq(buffer.data, text, buffer.len);
}

START_TEST(reads_what_was_written)
{
	AUTO(buffer_release) struct buffer buffer = { 0 };

	ck_assert_int_eq(whole_file_read(at, "state", &buffer), -ENOENT);
	ck_assert_int_eq(whole_file_replace(at, "state", "one", 3, WHOLE_FILE_DURABLE), 0);
	assert_holds("one");
	ck_assert_int_eq(whole_file_replace(at, "state", "", 0, WHOLE_FILE_DURABLE), 0);
	ck_assert_int_eq(whole_file_read(at, "state", &buffer), 0);
	ck_assert_uint_eq(buffer.len, 0);
	ck_assert_int_eq(faccessat(at, ".state.tmp", F_OK, 0), -1);
}
END_TEST

START_TEST(reads_no_more_than_allowed)
{
	AUTO(buffer_release) struct buffer exact = { .max = 5 };
	AUTO(buffer_release) struct buffer less = { .max = 4 };

	ck_assert_int_eq(whole_file_replace(at, "state", "12345", 5, WHOLE_FILE_DURABLE), 0);
	ck_assert_int_eq(whole_file_read(at, "state", &exact), 0);
	ck_assert_int_eq(whole_file_read(at, "state", &less), -EFBIG);
}
END_TEST

START_TEST(refuses_what_is_no_regular_file)
{
	AUTO(buffer_release) struct buffer buffer = { 0 };

	ck_assert_int_eq(mkfifoat(at, "fifo", 0600), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", at, "link"), 0);
	ck_assert_int_eq(whole_file_read(at, "fifo", &buffer), -EINVAL); /* and does not wait for a writer */
	ck_assert_int_eq(whole_file_read(at, "link", &buffer), -ELOOP);
	ck_assert_int_eq(whole_file_read(at, ".", &buffer), -EINVAL);
}
END_TEST

START_TEST(leftover_of_a_killed_process_is_in_nobodys_way)
{
	AUTO_CLOSE int fd = openat(at, ".state.tmp", O_CREAT | O_WRONLY | O_CLOEXEC, 0400);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(whole_file_replace(at, "state", "new", 3, WHOLE_FILE_DURABLE), 0);
	assert_holds("new");
}
END_TEST

START_TEST(name_that_is_too_long_is_refused)
{
	char name[252];

	memset(name, 'n', sizeof(name));
	name[251] = '\0';
	ck_assert_int_eq(whole_file_replace(at, name, "", 0, WHOLE_FILE_DURABLE), -ENAMETOOLONG);
}
END_TEST

/*
 * Replaces the file in a process that may write only so many bytes to one; returns what
 * whole_file_replace did.
 */
static int replace_limited(rlim_t bytes, const char *text)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct rlimit limit = { bytes, bytes };

		signal(SIGXFSZ, SIG_IGN);
		if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
			_exit(255);
		_exit(-whole_file_replace(at, "state", text, strlen(text), WHOLE_FILE_DURABLE));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

START_TEST(write_that_fails_leaves_the_old_file_whole)
{
	const char *text = "something new";

	ck_assert_int_eq(whole_file_replace(at, "state", "old", 3, WHOLE_FILE_DURABLE), 0);
	for (size_t bytes = 0; bytes < strlen(text); bytes++) {
		ck_assert_int_eq(replace_limited(bytes, text), -EFBIG);
		assert_holds("old");
		ck_assert_int_eq(faccessat(at, ".state.tmp", F_OK, 0), -1);
	}
	ck_assert_int_eq(replace_limited(strlen(text), text), 0);
	assert_holds(text);
}
END_TEST

START_TEST(file_that_cannot_be_replaced_is_an_error)
{
	ck_assert_int_eq(mkdirat(at, "state", 0700), 0);
	ck_assert_int_eq(whole_file_replace(at, "state", "x", 1, WHOLE_FILE_DURABLE), -EISDIR);
	ck_assert_int_eq(faccessat(at, ".state.tmp", F_OK, 0), -1);
	ck_assert_int_eq(unlinkat(at, "state", AT_REMOVEDIR), 0);
	ck_assert_int_eq(whole_file_replace(-1, "state", "x", 1, WHOLE_FILE_DURABLE), -EBADF);
}
END_TEST

Suite *whole_file_suite(void)
{
	Suite *suite = suite_create("whole_file");
	TCase *tcase = tcase_create("wholefile");

	tcase_add_checked_fixture(tcase, make_directory, remove_directory);
	tcase_add_test(tcase, reads_what_was_written);
	tcase_add_test(tcase, reads_no_more_than_allowed);
	tcase_add_test(tcase, refuses_what_is_no_regular_file);
	tcase_add_test(tcase, leftover_of_a_killed_process_is_in_nobodys_way);
	tcase_add_test(tcase, name_that_is_too_long_is_refused);
	tcase_add_test(tcase, write_that_fails_leaves_the_old_file_whole);
	tcase_add_test(tcase, file_that_cannot_be_replaced_is_an_error);
	suite_add_tcase(suite, tcase);
	return suite;
}
