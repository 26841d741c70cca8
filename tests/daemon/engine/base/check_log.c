/*
 * check_log.c: entries as a journal receives them, lines as a terminal shows them; and that a slow
 * reader does not block the daemon.
 */
#include "journal.h"
#include "daemon/engine/base/log.h"
#include "scene.h"
#include "lib/base/base.h"

#include <errno.h>

Suite *log_suite(void);

#define HOSTILE "x\nPRIORITY=0\nFORGED=1\n\x1b[2J\xc2\x9b\xff"

static struct scene_log log_file;
static struct journal journal;

static void setup(void)
{
	log_file = scene_log_catch();
	journal = journal_open();
}

static void teardown(void)
{
	journal_close(&journal);
	scene_log_release(&log_file);
}

START_TEST(an_entry_carries_its_fields)
{
	double rate = 0.9876, value = 93.6;
	struct log_about about = {
		.message = MESSAGE_CAPTURE_RATE_LOW,
		.state = "end",
		.rule = "cpu-hot",
		.target = "web/1",
		.incident = "20261120T121707.646Z-web-cpu-hot",
		.metric = "cpu",
		.thread = "sampler",
		.value = &value,
		.capture_rate = &rate,
		.count = 3,
		.lasted_ns = 2 * NS_PER_S,
		.error = -ENOSPC,
	};
	log_about(LOG_WARNING, &about, "so %s", "it is");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "so it is");
	journal_expect(&journal, "PRIORITY", "4");
	journal_expect(&journal, "SYSLOG_IDENTIFIER", "scene");
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_CAPTURE_RATE_LOW));
	journal_expect(&journal, "SPIKEWATCH_STATE", "end");
	journal_expect(&journal, "SPIKEWATCH_RULE", "cpu-hot");
	journal_expect(&journal, "SPIKEWATCH_TARGET", "web/1");
	journal_expect(&journal, "SPIKEWATCH_INCIDENT", "20261120T121707.646Z-web-cpu-hot");
	journal_expect(&journal, "SPIKEWATCH_METRIC", "cpu");
	journal_expect(&journal, "SPIKEWATCH_THREAD", "sampler");
	journal_expect(&journal, "SPIKEWATCH_VALUE", "93.6");
	journal_expect(&journal, "CAPTURE_RATE", "0.9876");
	journal_expect(&journal, "SPIKEWATCH_COUNT", "3");
	journal_expect(&journal, "SPIKEWATCH_LASTED_USEC", "2000000");
	journal_expect(&journal, "ERRNO", "28");
	ck_assert_uint_eq(journal.count, 15);
	ck_assert(!journal_next(&journal));
}
END_TEST

START_TEST(what_is_not_known_is_no_field)
{
	log_about(LOG_INFO, &(struct log_about){ .rule = "r" }, "line");
	ck_assert(journal_next(&journal));
	ck_assert_uint_eq(journal.count, 4);
	log_line(LOG_INFO, "line");
	ck_assert(journal_next(&journal));
	ck_assert_uint_eq(journal.count, 3);
	log_line(LOG_DEBUG, "line");
	ck_assert(!journal_next(&journal));
}
END_TEST

START_TEST(a_hostile_name_forges_no_field)
{
	struct log_about about = { .message = MESSAGE_TARGET_FOUND, .target = HOSTILE, .rule = "r" };
	log_about(LOG_INFO, &about, "target %s found", HOSTILE);
	ck_assert(journal_next(&journal));
	ck_assert_uint_eq(journal.count, 6);
	ck_assert_ptr_null(journal_field(&journal, "FORGED"));
	journal_expect(&journal, "PRIORITY", "6");
	journal_expect(&journal, "SPIKEWATCH_TARGET", HOSTILE);
	journal_expect(&journal, "MESSAGE", "target x\\x0aPRIORITY=0\\x0aFORGED=1\\x0a\\x1b[2J\\xc2\\x9b\\xff found");
}
END_TEST

START_TEST(a_hostile_name_forges_no_line)
{
	log_open("scene", NULL);
	log_line(LOG_WARNING, "target %s found", HOSTILE);

	char *text = scene_log_text(&log_file);

	ck_assert_str_eq(text,
			 "scene: warning: target x\\x0aPRIORITY=0\\x0aFORGED=1\\x0a\\x1b[2J\\xc2\\x9b\\xff found\n");
	free(text);
}
END_TEST

START_TEST(names_of_units_and_of_people_are_left_as_they_are)
{
	log_line(LOG_INFO, "dev-disk-by\\x2duuid.service, caf\xc3\xa9");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "dev-disk-by\\x2duuid.service, caf\xc3\xa9");
}
END_TEST

START_TEST(a_long_line_is_cut_at_a_character)
{
	char line[3000];
	for (size_t shift = 0; shift < 3; shift++) { /* the border falls on each byte of the character */
		memset(line, 'a', shift);
		for (size_t i = shift; i + 3 < sizeof(line); i += 3)
			memcpy(line + i, "\xe2\x82\xac", 4);
		log_line(LOG_INFO, "%s", line);
		ck_assert(journal_next(&journal));

		const struct journal_field *message = journal_field(&journal, "MESSAGE");

		ck_assert_uint_ge(message->len, LOG_LINE_MAX - 8);
		ck_assert_uint_lt(message->len, LOG_LINE_MAX);
		ck_assert_str_eq(message->value + message->len - 6, "\xe2\x82\xac...");
		ck_assert_mem_eq(message->value, line, message->len - 3);
	}
}
END_TEST

START_TEST(the_longest_line_of_a_stranger_is_bounded_too)
{
	char name[4096];
	struct log_about about = { .target = name };
	memset(name, 0x1b, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	log_about(LOG_INFO, &about, "%s", name);
	ck_assert(journal_next(&journal));
	ck_assert_uint_le(journal_field(&journal, "MESSAGE")->len, 3584);
	ck_assert_uint_le(journal_field(&journal, "SPIKEWATCH_TARGET")->len, 1024);
}
END_TEST

START_TEST(a_journal_that_does_not_read_loses_entries_and_hears_how_many)
{
	const uint64_t sent = 3000,
		       before = log_lost(); /* more than net.unix.max_dgram_qlen and the send buffer hold */
	uint64_t got = 0, lost;
	char count[32];
	for (uint64_t i = 0; i < sent; i++)
		log_line(LOG_INFO, "line %llu", (unsigned long long)i);
	lost = log_lost() - before;
	ck_assert_uint_gt(lost, 0);
	while (journal_next(&journal))
		got++;
	ck_assert_uint_eq(got + lost, sent);

	log_line(LOG_INFO, "the next");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_ENTRIES_LOST));
	snprintf(count, sizeof(count), "%llu", (unsigned long long)lost);
	journal_expect(&journal, "SPIKEWATCH_COUNT", count);
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "the next");
	log_line(LOG_INFO, "and the next");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "and the next");
}
END_TEST

START_TEST(a_journal_that_comes_back_is_found_again)
{
	close(journal.fd);
	log_line(LOG_INFO, "no reader");
	unlink(journal.path);
	log_line(LOG_INFO, "no journal");

	char *text = scene_log_text(&log_file); /* systemd reads it, if it still does */

	ck_assert_str_eq(text, "<6>no reader\n<6>no journal\n");
	free(text);
	journal_listen(&journal);
	log_line(LOG_INFO, "again");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "again");
}
END_TEST

/* Makes standard error a pipe; its other end in *ret. */
static void to_pipe(int *ret)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	close(ends[1]);
	*ret = ends[0];
}

START_TEST(a_pipe_that_is_not_read_loses_lines_and_hears_how_many)
{
	const uint64_t before = log_lost();
	char text[1 << 17] = "", expected[128];
	int fd;

	log_open("scene", NULL);
	to_pipe(&fd);
	for (int i = 0; i < 5000; i++)
		log_line(LOG_INFO, "a line that is long enough to fill a pipe with some of its kind");
	ck_assert_uint_gt(log_lost(), before);
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	log_line(LOG_INFO, "the next");
	memset(text, 0, sizeof(text));
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	snprintf(expected, sizeof(expected),
		 "scene: warning: %llu entries were lost: the reader was too slow\nscene: the next\n",
		 (unsigned long long)(log_lost() - before));
	ck_assert_str_eq(text, expected);
	close(fd);
}
END_TEST

/* What the pipe holds: lines that end in a number, in order. How many; *ret: how many are said to be lost. */
static uint64_t read_numbered(int fd, uint64_t *ret_lost)
{
	static char text[1 << 20];
	uint64_t count = 0, number, lost;
	size_t len = 0;
	ssize_t got;

	*ret_lost = 0;
	while ((got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = '\0';
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
		if (sscanf(line, "scene: warning: %ju entries were lost", &lost) == 1)
			*ret_lost += lost;
		if (sscanf(line, "scene: a line that is long enough to fill a pipe: %ju", &number) != 1)
			continue;
		ck_assert_uint_ge(number, count);
		count++;
	}

	return count;
}

static void log_numbered(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		log_line(LOG_INFO, "a line that is long enough to fill a pipe: %ju %0100d", (uintmax_t)i, 0);
}

/* In a child. A byte into logged when all lines are. */
_Noreturn static void log_and_stop(uint64_t lines, int logged)
{
	if (log_start() < 0)
		_exit(1);
	log_numbered(lines);
	_exit(write(logged, "", 1) == 1 && log_stop(100 * NS_PER_S) ? 0 : 2);
}

/* Nothing reads until all lines are logged, and a while longer. How many arrive. */
static uint64_t log_into_idle_pipe(uint64_t lines, uint64_t *ret_lost)
{
	int fd, logged[2];
	uint64_t count;
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe2(logged, O_CLOEXEC), 0);
	log_open("scene", NULL);
	to_pipe(&fd);
	pid = fork();
	if (pid == 0) {
		close(fd);
		log_and_stop(lines, logged[1]);
	}
	dup2(log_file.file, STDERR_FILENO);
	close(logged[1]);
	ck_assert_int_eq(read(logged[0], &byte, 1), 1);
	close(logged[0]);
	nanosleep(&(struct timespec){ .tv_nsec = 100 * NS_PER_MS }, NULL);
	count = read_numbered(fd, ret_lost);
	close(fd);

	int how = 0;

	ck_assert_int_eq(waitpid(pid, &how, 0), pid);
	ck_assert_int_eq(how, 0);

	return count;
}

START_TEST(what_a_slow_reader_does_not_take_is_kept_for_it)
{
	uint64_t lost;

	ck_assert_uint_eq(log_into_idle_pipe(1500, &lost), 1500); /* 230 KB: three times what the pipe holds */
	ck_assert_uint_eq(lost, 0);
}
END_TEST

START_TEST(what_is_beyond_the_queue_is_counted)
{
	uint64_t lost, count = log_into_idle_pipe(20000, &lost);

	ck_assert_uint_lt(count, 20000);
	ck_assert_uint_gt(count, 1500);
	ck_assert_uint_eq(count + lost, 20000);
}
END_TEST

START_TEST(a_reader_that_never_reads_does_not_keep_the_end_waiting)
{
	int fd;
	pid_t pid;
	int how = 0;

	log_open("scene", NULL);
	to_pipe(&fd);
	pid = fork();
	if (pid == 0) {
		if (log_start() < 0)
			_exit(1);
		log_numbered(20000);
		_exit(log_stop(100 * NS_PER_MS) ? 2 : (log_numbered(10), 0));
	}
	dup2(log_file.file, STDERR_FILENO);
	ck_assert_int_eq(waitpid(pid, &how, 0), pid);
	ck_assert_int_eq(how, 0);
	close(fd);
}
END_TEST

START_TEST(entries_through_the_thread_are_whole)
{
	struct log_about about = { .message = MESSAGE_RULE_FIRED, .rule = "cpu-hot", .target = "two\nlines" };

	ck_assert_int_eq(log_start(), 0);
	log_about(LOG_WARNING, &about, "so %s", "it is");
	ck_assert(log_stop(10 * NS_PER_S));
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "so it is");
	journal_expect(&journal, "PRIORITY", "4");
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_RULE_FIRED));
	journal_expect(&journal, "SPIKEWATCH_RULE", "cpu-hot");
	journal_expect(&journal, "SPIKEWATCH_TARGET", "two\nlines");
}
END_TEST

START_TEST(a_command_waits_for_its_reader)
{
	const int lines = 3000;
	char text[4096];
	int fd, seen = 0;
	ssize_t got;

	log_open("scene", &(struct log_options){ .may_block = true });
	to_pipe(&fd);

	pid_t pid = fork();

	if (pid == 0) {
		close(fd);
		for (int i = 0; i < lines; i++)
			log_line(LOG_INFO, "a line that is long enough to fill a pipe with some of its kind");
		_exit(0);
	}
	dup2(log_file.file, STDERR_FILENO);
	nanosleep(&(struct timespec){ .tv_nsec = 100 * NS_PER_MS }, NULL); /* longer than an entry waits */
	while ((got = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < got; i++)
			seen += text[i] == '\n';
	close(fd);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(seen, lines);
}
END_TEST

Suite *log_suite(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("journal");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_entry_carries_its_fields);
	tcase_add_test(tcase, what_is_not_known_is_no_field);
	tcase_add_test(tcase, a_hostile_name_forges_no_field);
	tcase_add_test(tcase, a_hostile_name_forges_no_line);
	tcase_add_test(tcase, names_of_units_and_of_people_are_left_as_they_are);
	tcase_add_test(tcase, a_long_line_is_cut_at_a_character);
	tcase_add_test(tcase, the_longest_line_of_a_stranger_is_bounded_too);
	tcase_add_test(tcase, a_journal_that_does_not_read_loses_entries_and_hears_how_many);
	tcase_add_test(tcase, a_journal_that_comes_back_is_found_again);
	tcase_add_test(tcase, a_pipe_that_is_not_read_loses_lines_and_hears_how_many);
	tcase_add_test(tcase, what_a_slow_reader_does_not_take_is_kept_for_it);
	tcase_add_test(tcase, what_is_beyond_the_queue_is_counted);
	tcase_add_test(tcase, a_reader_that_never_reads_does_not_keep_the_end_waiting);
	tcase_add_test(tcase, entries_through_the_thread_are_whole);
	tcase_add_test(tcase, a_command_waits_for_its_reader);
	suite_add_tcase(suite, tcase);

	return suite;
}
