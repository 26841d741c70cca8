/*
 * check_crew.c: suites that fail, crash, leave, cannot be made or are killed: none of them is lost,
 * in the number that is returned and in what is said.
 */
#include "crew.h"

#include "scene.h"
#include "lib/base/base.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *crew_suite(void);

static char directory[64], path[128];

/* ---- suites ---- */

START_TEST(passes)
{
	printf("words of one that passes\n");
}
END_TEST

START_TEST(fails)
{
	ck_abort_msg("what is wrong");
}
END_TEST

START_TEST(crashes)
{
	raise(SIGSEGV);
}
END_TEST

START_TEST(hangs)
{
	for (;;)
		pause();
}
END_TEST

/* Without a process of its own, a test takes the suite's with it. */
START_TEST(leaves)
{
	_exit(0);
}
END_TEST

static Suite *suite_of(const char *name, const TTest *test)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);

	tcase_add_test(tcase, test);
	tcase_set_timeout(tcase, 1);
	suite_add_tcase(suite, tcase);

	return suite;
}

static Suite *make_good(void)
{
	return suite_of("good", passes);
}

static Suite *make_bad(void)
{
	return suite_of("bad", fails);
}

/* Fails once, as if something ran beside it. */
START_TEST(fails_once)
{
	char mark[160];

	snprintf(mark, sizeof(mark), "%s.once", path);
	int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_msg(fd < 0, "only now");
}
END_TEST

static Suite *make_unsteady(void)
{
	return suite_of("unsteady", fails_once);
}

static Suite *make_crashing(void)
{
	return suite_of("crashing", crashes);
}

static Suite *make_hanging(void)
{
	return suite_of("hanging", hangs);
}

static Suite *make_leaving(void)
{
	return suite_of("leaving", leaves);
}

/* The process of the suite itself ends before there are any tests. */
static Suite *make_early_end(void)
{
	_exit(0);
}

static Suite *make_killed(void)
{
	raise(SIGKILL);

	return NULL;
}

static const struct crew_suite all[] = {
	{ .name = "good", .make = make_good },
	{ .name = "bad", .make = make_bad },
	{ .name = "crashing", .make = make_crashing, .early = true },
	{ .name = "hanging", .make = make_hanging },
	{ .name = "early_end", .make = make_early_end },
	{ .name = "killed", .make = make_killed, .alone = true },
	{ .name = "good_too", .make = make_good, .alone = true },
};

/* ---- */

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/said", directory);
	setenv("CK_FORK", "yes", 1);
	setenv("CK_VERBOSITY", "normal", 1);
	unsetenv("CK_RUN_SUITE");
	unsetenv("CK_RUN_CASE");
}

static void teardown(void)
{
	scene_remove(directory);
}

/* What a crew returned; what it said, for free(3). */
static int run(const struct crew_suite *suites, size_t count, int jobs, char **ret_said)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (freopen(path, "w", stdout) == NULL)
			_exit(99);

		int failed = crew_run(suites, count, jobs);

		fflush(stdout);
		_exit(failed < 0 ? 98 : failed);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	*ret_said = scene_read(path);
	ck_assert_ptr_nonnull(*ret_said);

	return WEXITSTATUS(status);
}

static void expect(const char *said, const char *part)
{
	ck_assert_msg(strstr(said, part) != NULL, "expected %s in:\n%s", part, said);
}

START_TEST(no_suite_is_lost)
{
	AUTO_FREE char *said = NULL;

	ck_assert_int_eq(run(all, ARRAY_LEN(all), _i, &said), 5);
	/* two that pass, one that fails, and four that are errors */
	expect(said, "\n28%: Checks: 7, Failures: 1, Errors: 4\n");
	expect(said, "bad:fails:0: what is wrong");
	expect(said, "crashing:crashes:0: ");
	expect(said, "Test timeout expired");
	expect(said, "early_end: the suite did not come to its end: exit code 0\n");
	expect(said, "killed: the suite did not come to its end: signal 9\n");
	expect(said, "words of one that passes\n");

	/* said when it has ended, and once more after the closing line */
	const char *closing = strstr(said, "28%: Checks");

	ck_assert(strstr(said, "what is wrong") < closing);
	expect(closing, "what is wrong");
	expect(closing, "killed: ");
}
END_TEST

START_TEST(what_fails_beside_others_and_not_alone_is_told_and_does_not_count)
{
	static const struct crew_suite three[] = { { .name = "unsteady", .make = make_unsteady },
						   { .name = "bad", .make = make_bad },
						   { .name = "good", .make = make_good } };
	AUTO_FREE char *said = NULL;

	ck_assert_int_eq(run(three, 3, 2, &said), 1);
	expect(said, "unsteady failed beside other suites: once more, alone\n");
	expect(said, "\nUnsteady, failed beside other suites and not alone: 1\n");
	expect(strstr(said, "\nUnsteady, "), "fails_once:0: only now");
	expect(said, "\n66%: Checks: 3, Failures: 1, Errors: 0\n");
	expect(strstr(said, "66%: "), "bad:fails:0: what is wrong");
	ck_assert_ptr_null(strstr(strstr(said, "66%: "), "only now"));
}
END_TEST

START_TEST(alone_or_with_many_others_nothing_is_unsteady)
{
	static const struct crew_suite one[] = { { .name = "unsteady", .make = make_unsteady } };
	static const struct crew_suite many[] = { { .name = "a", .make = make_bad },
						  { .name = "b", .make = make_bad },
						  { .name = "c", .make = make_bad },
						  { .name = "unsteady", .make = make_unsteady } };
	AUTO_FREE char *said = NULL, *more = NULL;
	char mark[160];

	ck_assert_int_eq(run(one, 1, 1, &said), 1);
	ck_assert_ptr_null(strstr(said, "nsteady, failed"));
	snprintf(mark, sizeof(mark), "%s.once", path);
	ck_assert_int_eq(unlink(mark), 0);
	ck_assert_int_eq(run(many, 4, 2, &more), 4);
	ck_assert_ptr_null(strstr(more, "once more"));
}
END_TEST

START_TEST(without_forks_a_suite_that_leaves_is_an_error)
{
	static const struct crew_suite two[] = { { .name = "leaving", .make = make_leaving },
						 { .name = "good", .make = make_good } };
	AUTO_FREE char *said = NULL;

	setenv("CK_FORK", "no", 1);
	ck_assert_int_eq(run(two, 2, 2, &said), 1);
	expect(said, "leaving: the suite did not come to its end: exit code 0\n");
	expect(said, "50%: Checks: 2, Failures: 0, Errors: 1\n");
}
END_TEST

START_TEST(only_the_suites_that_are_asked_for_run)
{
	AUTO_FREE char *said = NULL;

	setenv("CK_RUN_SUITE", "good", 1);
	ck_assert_int_eq(run(all, 2, 2, &said), 0);
	expect(said, "\n100%: Checks: 1, Failures: 0, Errors: 0\n");
}
END_TEST

START_TEST(no_jobs_is_one)
{
	AUTO_FREE char *said = NULL;

	ck_assert_int_eq(run(all, 2, _i, &said), 1);
	expect(said, "50%: Checks: 2, Failures: 1, Errors: 0\n");
}
END_TEST

/* Told to end, it ends its suites and what their tests started. */
START_TEST(nothing_is_left_of_a_crew_that_was_killed)
{
	int words[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe2(words, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		static const struct crew_suite one[] = { { .name = "hanging", .make = make_hanging } };

		setenv("CK_TIMEOUT_MULTIPLIER", "600", 1); /* of a second */
		close(words[0]);
		_exit(crew_run(one, 1, 1) == 0);
	}
	close(words[1]);
	usleep(200000); /* the test runs by then, or it does not yet: nothing must be left in either case */
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);

	/* the end of the pipe comes when the last writer has closed it */
	struct pollfd end = { .fd = words[0], .events = POLLIN };

	ck_assert_int_eq(poll(&end, 1, 30000), 1);
	ck_assert_int_eq(read(words[0], &byte, 1), 0);
	close(words[0]);
}
END_TEST

Suite *crew_suite(void)
{
	Suite *suite = suite_create("crew");
	TCase *tcase = tcase_create("crew");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, no_suite_is_lost, 1, 4);
	tcase_add_test(tcase, what_fails_beside_others_and_not_alone_is_told_and_does_not_count);
	tcase_add_test(tcase, alone_or_with_many_others_nothing_is_unsteady);
	tcase_add_test(tcase, without_forks_a_suite_that_leaves_is_an_error);
	tcase_add_test(tcase, only_the_suites_that_are_asked_for_run);
	tcase_add_loop_test(tcase, no_jobs_is_one, -1, 1);
	tcase_add_test(tcase, nothing_is_left_of_a_crew_that_was_killed);
	suite_add_tcase(suite, tcase);

	return suite;
}
