/* check_proc_events.c: messages as a kernel (6.18) sent them, and the same cut off and bent. */
#include "lib/proc/procfs.h"
#include "lib/base/base.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *proc_events_suite(void);

#define FAMILY 23

static _Alignas(8) uint8_t message[4096];
static size_t message_len;
static struct procevent event;
static int error;

static void load(const char *name)
{
	char path[128];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/proc_events/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	len = read(fd, message, sizeof(message));
	close(fd);
	ck_assert_int_gt(len, 0);
	message_len = (size_t)len;
	event = (struct procevent){ 0 };
	error = 1;
}

static int connector(const char *name)
{
	load(name);
	return proc_events_connector(message, message_len, &event, &error);
}

static int taskstats(const char *name)
{
	load(name);
	return proc_events_taskstats(message, message_len, FAMILY, &event, &error);
}

START_TEST(the_connector_tells_what_processes_do)
{
	static const struct {
		const char *name;
		enum procevent_kind kind;
	} kinds[] = {
		{ "fork", PROCEVENT_FORK },
		{ "exec", PROCEVENT_EXEC },
		{ "comm", PROCEVENT_COMM },
		{ "exit", PROCEVENT_EXIT },
	};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		int32_t pid;

		/* comm may have been a thread's: made a process's */
		load(kinds[i].name);
		if (kinds[i].kind != PROCEVENT_FORK)
			memcpy(message + 52, message + 56, 4);
		ck_assert_int_eq(proc_events_connector(message, message_len, &event, &error), PROC_EVENTS_EVENT);
		ck_assert_int_eq(event.kind, kinds[i].kind);
		memcpy(&pid, message + (kinds[i].kind == PROCEVENT_FORK ? 64 : 56), sizeof(pid));
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(event.pid, pid);
	}
	ck_assert_int_eq(connector("fork"), PROC_EVENTS_EVENT);
	ck_assert_int_gt(event.ppid, 0);
	ck_assert_int_ne(event.ppid, event.pid);
}
END_TEST

START_TEST(what_threads_do_is_left_out)
{
	ck_assert_int_eq(connector("thread"), PROC_EVENTS_OTHER);
	load("exit");
	message[52] ^= 1;
	ck_assert_int_eq(proc_events_connector(message, message_len, &event, &error), PROC_EVENTS_OTHER);
}
END_TEST

START_TEST(the_answer_to_listening_says_whether_it_is_allowed)
{
	const uint32_t refused = EPERM;

	ck_assert_int_eq(connector("answer"), PROC_EVENTS_ANSWER);
	ck_assert_int_eq(error, 0);
	memcpy(message + 52, &refused, sizeof(refused));
	ck_assert_int_eq(proc_events_connector(message, message_len, &event, &error), PROC_EVENTS_ANSWER);
	ck_assert_int_eq(error, -EPERM);
}
END_TEST

START_TEST(an_exit_record_has_all_that_the_process_used)
{
	ck_assert_int_eq(taskstats("totals"), PROC_EVENTS_EVENT);
	ck_assert_int_eq(event.kind, PROCEVENT_TOTALS);
	ck_assert_int_gt(event.pid, 0);
	ck_assert_int_gt(event.ppid, 0);
	ck_assert(!event.totals.threads);
	ck_assert_str_eq(event.totals.comm, "true");
	ck_assert_uint_gt(event.totals.cpu_ns, 0);
	ck_assert_uint_eq(event.totals.user_ns + event.totals.system_ns, event.totals.cpu_ns);
	ck_assert_uint_gt(event.totals.minor_faults, 0);
	ck_assert_uint_ge(event.totals.elapsed_ns, event.totals.cpu_ns / 2);
}
END_TEST

START_TEST(threads_that_ended_before_are_in_the_exit_record)
{
	ck_assert_int_eq(taskstats("totals_of_threads"), PROC_EVENTS_EVENT);
	ck_assert(event.totals.threads);
	ck_assert_str_eq(event.totals.comm, "python3");
	ck_assert_uint_gt(event.totals.cpu_ns, 0);
}
END_TEST

START_TEST(of_a_thread_that_is_not_the_last_there_is_no_exit_record)
{
	load("totals");
	/*
	 * netlink's head, generic netlink's, that of the aggregate, the pid, and of the statistics;
	 * ac_flag
	 */
	message[16 + 4 + 4 + 8 + 4 + 8] &= (uint8_t)~0x20;
	ck_assert_int_eq(proc_events_taskstats(message, message_len, FAMILY, &event, &error), PROC_EVENTS_OTHER);
}
END_TEST

START_TEST(another_family_is_nothing_to_us)
{
	load("totals");
	ck_assert_int_eq(proc_events_taskstats(message, message_len, FAMILY + 1, &event, &error), PROC_EVENTS_OTHER);
}
END_TEST

START_TEST(the_number_of_a_family_is_read)
{
	uint16_t family = 0;

	load("family");
	ck_assert_int_eq(proc_events_family(message, message_len, &family), 0);
	ck_assert_uint_ge(family, 16);
	load("no_family");
	ck_assert_int_eq(proc_events_family(message, message_len, &family), -ENOENT);
}
END_TEST

/* Every prefix, whatever its head says of the length. */
START_TEST(a_message_that_is_cut_off_is_refused)
{
	static const char *const names[] = { "fork", "exec", "exit", "totals", "totals_of_threads" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		load(names[i]);
		for (uint32_t len = 0; len < message_len; len++) {
			uint8_t *exact = malloc(len + 1);
			uint16_t family;

			memcpy(exact, message, len);
			ck_assert_int_eq(proc_events_connector(exact, len, &event, &error), -EBADMSG);
			ck_assert_int_eq(proc_events_taskstats(exact, len, FAMILY, &event, &error), -EBADMSG);
			ck_assert_int_lt(proc_events_family(exact, len, &family), 0);
			if (len >= sizeof(len)) {
				memcpy(exact, &len, sizeof(len));
				(void)proc_events_connector(exact, len, &event, &error);
				(void)proc_events_taskstats(exact, len, FAMILY, &event, &error);
			}
			free(exact);
		}
	}
}
END_TEST

START_TEST(a_length_that_is_more_than_there_is_is_refused)
{
	load("exec");
	message[32] = message[33] = 0xff; /* of the connector's message */
	ck_assert_int_eq(proc_events_connector(message, message_len, &event, &error), -EBADMSG);
	ck_assert_int_eq(connector("lying_length"), -EBADMSG);
	ck_assert_int_eq(taskstats("attribute_too_long"), -EBADMSG);
}
END_TEST

START_TEST(a_record_of_perf_is_the_same_news)
{
	struct perf_record record = { .type = PERF_RECORD_FORK, .pid = 7, .tid = 7, .fork.ppid = 3 };

	ck_assert_int_eq(proc_events_perf(&record, &event), PROC_EVENTS_EVENT);
	ck_assert_int_eq(event.kind, PROCEVENT_FORK);
	ck_assert_int_eq(event.pid, 7);
	ck_assert_int_eq(event.ppid, 3);
	record.tid = 8;
	ck_assert_int_eq(proc_events_perf(&record, &event), PROC_EVENTS_OTHER);
	record = (struct perf_record){ .type = PERF_RECORD_COMM, .pid = 7, .tid = 7, .comm.exec = true };
	ck_assert_int_eq(proc_events_perf(&record, &event), PROC_EVENTS_EVENT);
	ck_assert_int_eq(event.kind, PROCEVENT_EXEC);
	record.comm.exec = false;
	proc_events_perf(&record, &event);
	ck_assert_int_eq(event.kind, PROCEVENT_COMM);
	record.type = PERF_RECORD_EXIT;
	proc_events_perf(&record, &event);
	ck_assert_int_eq(event.kind, PROCEVENT_EXIT);
	record.type = PERF_RECORD_MMAP2;
	ck_assert_int_eq(proc_events_perf(&record, &event), PROC_EVENTS_OTHER);
}
END_TEST

Suite *proc_events_suite(void)
{
	Suite *suite = suite_create("proc_events");
	TCase *decoding = tcase_create("decoding");

	tcase_add_test(decoding, the_connector_tells_what_processes_do);
	tcase_add_test(decoding, what_threads_do_is_left_out);
	tcase_add_test(decoding, the_answer_to_listening_says_whether_it_is_allowed);
	tcase_add_test(decoding, an_exit_record_has_all_that_the_process_used);
	tcase_add_test(decoding, threads_that_ended_before_are_in_the_exit_record);
	tcase_add_test(decoding, of_a_thread_that_is_not_the_last_there_is_no_exit_record);
	tcase_add_test(decoding, another_family_is_nothing_to_us);
	tcase_add_test(decoding, the_number_of_a_family_is_read);
	tcase_add_test(decoding, a_message_that_is_cut_off_is_refused);
	tcase_add_test(decoding, a_length_that_is_more_than_there_is_is_refused);
	tcase_add_test(decoding, a_record_of_perf_is_the_same_news);
	suite_add_tcase(suite, decoding);

	return suite;
}
