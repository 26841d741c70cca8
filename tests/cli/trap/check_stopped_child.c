/*
 * check_stopped_child.c: commands that wait at the gate, run, cannot be run, and are seen to end
 * whatever our own parent has done with SIGCHLD.
 */
#include "cli/trap/child.h"

#include "program.h"

#include <sys/stat.h>

Suite *stopped_child_suite(void);

static struct stopped_child start(const char *const *words)
{
	struct stopped_child child = { .gate = -1 };

	ck_assert_int_eq(stopped_child_fork("check", (char *const *)words, &child), 0);

	return child;
}

#define START(...) start((const char *const[]){ __VA_ARGS__, NULL })

static void open_and_wait_for_end(struct stopped_child *child)
{
	ck_assert_int_eq(stopped_child_open(child), 0);
	scene_wait_for(stopped_child_ended(child));
}

START_TEST(it_begins_when_the_gate_opens)
{
	char directory[64], path[96];

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/began", directory);
	struct stopped_child child = START("/bin/sh", "-c", "echo began >\"$0\"; exit 7", path);

	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert(!stopped_child_ended(&child));
	open_and_wait_for_end(&child);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert(!stopped_child_failed(&child));
	ck_assert_int_eq(stopped_child_wait(&child), 7);
	scene_remove(directory);
}
END_TEST

START_TEST(what_never_began_does_not_begin)
{
	char directory[64], path[96];

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/began", directory);
	struct stopped_child child = START("/bin/touch", path);

	ck_assert_int_eq(stopped_child_wait(&child), 127);
	ck_assert_int_ne(access(path, F_OK), 0);
	scene_remove(directory);
}
END_TEST

START_TEST(what_cannot_be_started_says_so)
{
	struct stopped_child child = START("/nowhere/program");

	open_and_wait_for_end(&child);
	ck_assert(stopped_child_failed(&child));
	ck_assert_int_eq(stopped_child_wait(&child), 127);

	child = START("/etc/passwd");
	open_and_wait_for_end(&child);
	ck_assert(stopped_child_failed(&child));
	ck_assert_int_eq(stopped_child_wait(&child), 126);
}
END_TEST

/* SIGCHLD is the 17th: the lowest bit of the fifth digit from the right. */
START_TEST(it_is_seen_to_end_where_sigchld_is_ignored)
{
	signal(SIGCHLD, SIG_IGN);
	struct stopped_child child = START("/bin/grep", "-Eq", "^SigIgn:.*[13579bdf][0-9a-f]{4}$", "/proc/self/status");

	open_and_wait_for_end(&child);
	ck_assert_int_eq(stopped_child_wait(&child), 0); /* what was asked of it, it was left */
}
END_TEST

START_TEST(a_signal_that_ends_it_is_in_the_code)
{
	struct stopped_child child = START("/bin/sh", "-c", "kill -9 $$");

	open_and_wait_for_end(&child);
	ck_assert_int_eq(stopped_child_wait(&child), 128 + SIGKILL);
	ck_assert(!stopped_child_ended(&child));
}
END_TEST

Suite *stopped_child_suite(void)
{
	Suite *suite = suite_create("stopped_child");
	TCase *tcase = tcase_create("command");

	tcase_add_test(tcase, it_begins_when_the_gate_opens);
	tcase_add_test(tcase, what_never_began_does_not_begin);
	tcase_add_test(tcase, what_cannot_be_started_says_so);
	tcase_add_test(tcase, it_is_seen_to_end_where_sigchld_is_ignored);
	tcase_add_test(tcase, a_signal_that_ends_it_is_in_the_code);
	suite_add_tcase(suite, tcase);

	return suite;
}
