/* Descriptors and memory as sinks; each write and each allocation fails once. */
#include "lib/base/io.h"

#include "torture.h"

#include <check.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(a_zeroed_buffer_grows_byte_by_byte)
{
	struct buffer buffer = { 0 };

	for (int i = 0; i < 10000; i++) {
		char c = (char)('a' + i % 26);

		ck_assert_int_eq(buffer_append(&buffer, &c, 1), 0);
	}
	ck_assert_uint_eq(buffer.len, 10000);
	for (int i = 0; i < 10000; i++)
		ck_assert_int_eq(buffer.data[i], 'a' + i % 26);
	buffer_release(&buffer);
}
END_TEST

START_TEST(a_released_buffer_is_empty_and_usable)
{
	struct buffer buffer = { .max = 8 };

	ck_assert_int_eq(buffer_append(&buffer, "12345678", 8), 0);
	buffer_release(&buffer);
	ck_assert_ptr_eq(buffer.data, NULL);
	ck_assert_uint_eq(buffer.len, 0);
	ck_assert_int_eq(buffer_append(&buffer, "1234567890", 10), -EFBIG);
	ck_assert_int_eq(buffer_append(&buffer, "abc", 3), 0);
	ck_assert_mem_eq(buffer.data, "abc", 3);
	buffer_release(&buffer);
	buffer_release(&buffer);
}
END_TEST

START_TEST(beyond_the_maximum_nothing_is_appended)
{
	struct buffer buffer = { .max = 10 };

	ck_assert_int_eq(buffer_append(&buffer, "123456", 6), 0);
	ck_assert_int_eq(buffer_append(&buffer, "78901", 5), -EFBIG);
	ck_assert_uint_eq(buffer.len, 6);
	ck_assert_int_eq(buffer_append(&buffer, "7890", 4), 0);
	ck_assert_mem_eq(buffer.data, "1234567890", 10);
	ck_assert_int_eq(buffer_append(&buffer, "", 0), 0);
	buffer_release(&buffer);
}
END_TEST

START_TEST(an_impossible_length_is_refused)
{
	char data[8] = "1234567";
	struct buffer buffer = { .data = data, .len = sizeof(data), .cap = sizeof(data) };

	ck_assert_int_eq(buffer_append(&buffer, data, SIZE_MAX - 3), -ENOMEM);
	ck_assert_uint_eq(buffer.len, sizeof(data));
}
END_TEST

START_TEST(without_memory_the_buffer_is_as_before)
{
	struct buffer buffer = { 0 };
	char large[1000] = { 0 };
	int r;

	torture_arm(1);
	r = buffer_append(&buffer, "abc", 3);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(buffer.len, 0);

	ck_assert_int_eq(buffer_append(&buffer, "abc", 3), 0);
	torture_arm(1);
	r = buffer_append(&buffer, large, sizeof(large));
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(buffer.len, 3);
	ck_assert_mem_eq(buffer.data, "abc", 3);
	buffer_release(&buffer);
}
END_TEST

START_TEST(memory_and_file_are_sinks_of_one_type)
{
	struct buffer buffer = { 0 };
	int pipefd[2];
	char got[6];

	ck_assert_int_eq(pipe(pipefd), 0);

	const struct sink sinks[] = { sink_buffer(&buffer), sink_fd(&pipefd[1]) };

	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(sink_write(&sinks[i], "abc", 3), 0);
		ck_assert_int_eq(sink_write(&sinks[i], "", 0), 0);
		ck_assert_int_eq(sink_write(&sinks[i], "def", 3), 0);
	}
	ck_assert_mem_eq(buffer.data, "abcdef", 6);
	ck_assert_int_eq(read(pipefd[0], got, 6), 6);
	ck_assert_mem_eq(got, "abcdef", 6);
	buffer_release(&buffer);
	close(pipefd[0]);
	close(pipefd[1]);
}
END_TEST

START_TEST(errors_of_the_descriptor_come_back)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), closed = -1, pipefd[2];
	struct sink sink = sink_fd(&full);

	ck_assert_int_ge(full, 0);
	ck_assert_int_eq(sink_write(&sink, "x", 1), -ENOSPC);
	close(full);

	sink = sink_fd(&closed);
	ck_assert_int_eq(sink_write(&sink, "x", 1), -EBADF);

	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe(pipefd), 0);
	close(pipefd[0]);
	ck_assert_int_eq(sink_write_all(pipefd[1], "x", 1), -EPIPE);
	close(pipefd[1]);
}
END_TEST

struct drain {
	int fd;
	size_t len;
	unsigned sum;
};

static void *drain(void *argument)
{
	struct drain *drain = argument;
	unsigned char buf[777];
	ssize_t n;

	while ((n = read(drain->fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			drain->sum = drain->sum * 31 + buf[i];
		drain->len += (size_t)n;
	}
	return NULL;
}

START_TEST(a_full_non_blocking_pipe_is_waited_for)
{
	static unsigned char data[1 << 20];
	unsigned sum = 0;
	int pipefd[2];
	pthread_t thread;

	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] = (unsigned char)(i * 7 + i / 251);
		sum = sum * 31 + data[i];
	}
	ck_assert_int_eq(pipe2(pipefd, O_NONBLOCK | O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(pipefd[0], F_SETFL, 0), 0);

	struct drain reader = { .fd = pipefd[0] };

	ck_assert_int_eq(pthread_create(&thread, NULL, drain, &reader), 0);
	ck_assert_int_eq(sink_write_all(pipefd[1], data, sizeof(data)), 0);
	close(pipefd[1]);
	pthread_join(thread, NULL);
	close(pipefd[0]);
	ck_assert_uint_eq(reader.len, sizeof(data));
	ck_assert_uint_eq(reader.sum, sum);
}
END_TEST

START_TEST(the_failing_sink_of_the_tests_fails_where_it_should)
{
	long left = 5;
	struct sink sink = torture_sink(&left);

	ck_assert_int_eq(sink_write(&sink, "abc", 3), 0);
	ck_assert_int_eq(sink_write(&sink, "def", 3), -EIO);
	ck_assert_int_eq(sink_write(&sink, "g", 1), -EIO);
}
END_TEST

START_TEST(torture_fails_the_allocation_it_was_told_to)
{
	void *volatile got[4]; /* volatile: a compiler may remove memory that is not read */
	unsigned long before = torture_allocations();

	torture_arm(3);
	for (int i = 0; i < 4; i++)
		got[i] = malloc(8);
	ck_assert(torture_disarm());
	ck_assert_ptr_ne(got[0], NULL);
	ck_assert_ptr_ne(got[1], NULL);
	ck_assert_ptr_eq(got[2], NULL);
	ck_assert_ptr_ne(got[3], NULL);
	ck_assert_uint_ge(torture_allocations() - before, 4);
	for (int i = 0; i < 4; i++)
		free(got[i]);

	torture_arm(100);
	got[0] = strdup("x");
	ck_assert(!torture_disarm());
	free(got[0]);
}
END_TEST

Suite *sink_suite(void);
Suite *sink_suite(void)
{
	Suite *suite = suite_create("sink");
	TCase *tc = tcase_create("sink");

	tcase_add_test(tc, a_zeroed_buffer_grows_byte_by_byte);
	tcase_add_test(tc, a_released_buffer_is_empty_and_usable);
	tcase_add_test(tc, beyond_the_maximum_nothing_is_appended);
	tcase_add_test(tc, an_impossible_length_is_refused);
	tcase_add_test(tc, without_memory_the_buffer_is_as_before);
	tcase_add_test(tc, memory_and_file_are_sinks_of_one_type);
	tcase_add_test(tc, errors_of_the_descriptor_come_back);
	tcase_add_test(tc, a_full_non_blocking_pipe_is_waited_for);
	tcase_add_test(tc, the_failing_sink_of_the_tests_fails_where_it_should);
	tcase_add_test(tc, torture_fails_the_allocation_it_was_told_to);
	suite_add_tcase(suite, tc);
	return suite;
}
