/*
 * check_children.c: children that behave, children that flee, and what becomes of both when the
 * process that started them is killed.
 */
#include "daemon/engine/base/children.h"

#include "lib/base/base.h"
#include "scene.h"
#include "skip.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *children_suite(void);

static char directory[64];
static int dirfd_of;

static void setup(void)
{
	scene_directory(directory);
	dirfd_of = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd_of, 0);
}

static void teardown(void)
{
	close(dirfd_of);
	scene_remove(directory);
}

static char *const no_environment[] = { "PATH=/usr/bin:/bin", NULL };

/* /bin/sh -c script, in the directory. more: of options, may be NULL. */
static int start_shell(const char *script, const struct child_options *more, struct child *ret)
{
	char *words[] = { "/bin/sh", "-c", (char *)(uintptr_t)script, NULL };
	struct child_descriptor descriptors[] = { { dirfd_of, CHILD_DIRECTORY } };
	struct child_options options = more ? *more : (struct child_options){ 0 };

	options.words = words;
	options.environment = no_environment;
	if (options.descriptor_count == 0) {
		options.descriptors = descriptors;
		options.descriptor_count = 1;
	}
	return child_start(&options, ret);
}

static struct child_end wait_for_end(struct child *child)
{
	struct child_end end = { 0 };
	struct pollfd polled = { .fd = child->fd, .events = POLLIN };

	ck_assert_int_eq(poll(&polled, 1, 60000), 1);
	ck_assert(child_ended(child, &end));
	child_close(child);
	return end;
}

static char *said(const char *name)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	return scene_read(path);
}

/* The number that a child has written; waits for it. */
static pid_t pid_in(const char *name)
{
	pid_t pid = 0;

	for (int naps = 0; naps < SCENE_NAPS && pid <= 0; naps++) {
		char *text = said(name);

		pid = text && strchr(text, '\n') ? (pid_t)strtol(text, NULL, 10) : 0;
		free(text);
		if (pid <= 0)
			scene_nap();
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

static bool lives(pid_t pid)
{
	char path[64], state = 'X';
	char *text;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	text = scene_read(path);
	if (text && strrchr(text, ')'))
		state = strrchr(text, ')')[2];
	free(text);
	return state != 'Z' && state != 'X';
}

START_TEST(how_it_ended_is_told)
{
	struct child child;
	struct child_end end;

	ck_assert_int_eq(start_shell("exit 7", NULL, &child), 0);
	ck_assert_int_gt(child.pid, 0);
	end = wait_for_end(&child);
	ck_assert_int_eq(end.code, CLD_EXITED);
	ck_assert_int_eq(end.status, 7);

	ck_assert_int_eq(start_shell("sleep 1000", NULL, &child), 0);
	ck_assert(!child_ended(&child, &end));
	child_signal(&child, SIGTERM);
	end = wait_for_end(&child);
	ck_assert_int_eq(end.code, CLD_KILLED);
	ck_assert_int_eq(end.status, SIGTERM);
}
END_TEST

START_TEST(a_signal_that_comes_too_late_changes_nothing_of_its_end)
{
	for (int i = 0; i < 100; i++) {
		struct child child;

		ck_assert_int_eq(start_shell("exit 7", NULL, &child), 0);
		for (int more = 0; more < i; more++)
			child_signal(&child, 0);
		ck_assert_int_eq(wait_for_end(&child).status, 7);
	}
}
END_TEST

START_TEST(what_cannot_be_started_says_why)
{
	char *words[] = { "/proc/nonexistent/program", NULL };
	struct child child;
	struct child_options options = { .words = words, .environment = no_environment };
	struct child_descriptor closed[] = { { 999, 3 } };

	ck_assert_int_eq(child_start(&options, &child), -ENOENT);
	options.descriptors = closed;
	options.descriptor_count = 1;
	ck_assert_int_eq(child_start(&options, &child), -EBADF);
	words[0] = directory;
	options.descriptor_count = 0;
	ck_assert_int_eq(child_start(&options, &child), -EACCES);
}
END_TEST

START_TEST(it_has_the_descriptors_that_it_was_given_and_no_others)
{
	AUTO_CLOSE int high = fcntl(dirfd_of, F_DUPFD, 700);
	AUTO_CLOSE int out = openat(dirfd_of, "out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct child_descriptor descriptors[] = {
		{ dirfd_of, CHILD_DIRECTORY }, { out, STDOUT_FILENO }, { high, 7 }, { out, 5 }
	};
	struct child_options options = { .descriptors = descriptors, .descriptor_count = 4 };
	struct child child;

	ck_assert_int_ge(high, 700);
	ck_assert_int_eq(
		start_shell("n=0; while test $n -lt 900; do test -e /proc/$$/fd/$n && echo $n; n=$((n+1)); done;"
			    "pwd; cat /proc/self/oom_score_adj",
			    &options, &child),
		0);
	ck_assert_int_eq(wait_for_end(&child).status, 0);

	char *text = said("out"), expected[200];

	snprintf(expected, sizeof expected, "0\n1\n2\n5\n7\n%s\n0\n", directory);
	ck_assert_str_eq(text, expected);
	free(text);
}
END_TEST

START_TEST(hundreds_of_descriptors_arrive_in_their_order)
{
	struct child_descriptor descriptors[400];
	struct child_options options = { .descriptors = descriptors, .descriptor_count = ARRAY_LEN(descriptors) };
	struct child child;
	char name[16];

	for (int i = 0; i < 400; i++) {
		snprintf(name, sizeof name, "f%d", i);
		descriptors[i].fd = openat(dirfd_of, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		descriptors[i].as = 3 + i;
	}
	ck_assert_int_eq(
		start_shell("for f in /proc/$$/fd/*; do readlink $f; done > /proc/$$/fd/402", &options, &child), 0);
	for (int i = 0; i < 400; i++)
		close(descriptors[i].fd);
	ck_assert_int_eq(wait_for_end(&child).status, 0);

	char *text = said("f399");

	for (int i = 0; i < 400; i++) {
		snprintf(name, sizeof name, "/f%d\n", i);
		ck_assert_ptr_nonnull(strstr(text, name));
	}
	free(text);
}
END_TEST

static int add_up(const void *argument, size_t len)
{
	const uint8_t *bytes = argument;
	int sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += bytes[i];
	return write(5, "written", 7) == 7 && write(4, "", 1) < 0 && errno == EBADF ? sum % 251 : 255;
}

START_TEST(a_function_runs_in_a_process_of_its_own)
{
	static uint8_t bytes[100000];
	AUTO_CLOSE int out = openat(dirfd_of, "out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct child_descriptor descriptors[] = { { out, 5 } };
	struct child_options options = { .run = add_up,
					 .argument = bytes,
					 .argument_len = sizeof bytes,
					 .descriptors = descriptors,
					 .descriptor_count = 1,
					 .rights = CHILD_CAPABILITIES };
	struct child child;
	int sum = 0;

	for (size_t i = 0; i < sizeof bytes; i++)
		sum += bytes[i] = (uint8_t)(i * 7);
	ck_assert_int_eq(child_start(&options, &child), 0);
	ck_assert_int_eq(wait_for_end(&child).status, sum % 251);

	char *text = said("out");

	ck_assert_str_eq(text, "written");
	free(text);
}
END_TEST

/* A sleeper in a session of its own, whose parents have ended, which goes on writing. */
#define FLEES \
	"setsid sh -c 'trap \"\" TERM HUP INT; (setsid sh -c \"" \
	"echo \\$\\$ > fled; while :; do echo still here >> written; sleep 0.01; done\" &) ' &" \
	"while ! test -s fled; do sleep 0.01; done; "

static off_t written(void)
{
	struct stat st;

	return fstatat(dirfd_of, "written", &st, 0) == 0 ? st.st_size : -1;
}

START_TEST(what_flees_ends_with_its_child)
{
	struct child child;
	pid_t fled;

	ck_assert_int_eq(start_shell(FLEES "exit 3", NULL, &child), 0);
	ck_assert_int_eq(wait_for_end(&child).status, 3);
	fled = pid_in("fled");
	ck_assert(!lives(fled)); /* at once: the end is told when all have ended */
}
END_TEST

START_TEST(what_flees_ends_with_its_connection)
{
	struct child child;
	pid_t fled;

	ck_assert_int_eq(start_shell(FLEES "sleep 1000", NULL, &child), 0);
	fled = pid_in("fled");
	ck_assert(lives(fled));
	child_close(&child);
	scene_wait_for(!lives(fled));
}
END_TEST

START_TEST(the_end_of_one_is_not_the_end_of_another)
{
	struct child one, other;
	struct child_end end;
	pid_t fled;

	ck_assert_int_eq(start_shell(FLEES "sleep 1000", NULL, &one), 0);
	fled = pid_in("fled");
	ck_assert_int_eq(start_shell("setsid sleep 1000 & exit 0", NULL, &other), 0);
	wait_for_end(&other);
	ck_assert(lives(fled));
	ck_assert(!child_ended(&one, &end));
	child_close(&one);
	scene_wait_for(!lives(fled));
}
END_TEST

/* A recorder that has started a child which flees, and has a lock that the child's minder holds. */
static pid_t start_recorder(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;

	int lock = openat(dirfd_of, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct child_descriptor descriptors[] = { { dirfd_of, CHILD_DIRECTORY }, { lock, CHILD_HOLDS } };
	struct child_options options = { .descriptors = descriptors, .descriptor_count = 2 };
	struct child child;

	if (flock(lock, LOCK_EX) < 0 || start_shell(FLEES "sleep 1000", &options, &child) < 0)
		_exit(1);
	for (;;)
		pause();
}

START_TEST(nothing_outlives_a_recorder_that_is_killed_by_a_second_and_the_lock_is_kept_until_then)
{
	struct timespec second = { .tv_sec = 1 };
	pid_t recorder = start_recorder(), fled = pid_in("fled");
	AUTO_CLOSE int lock = openat(dirfd_of, "lock", O_RDWR | O_CLOEXEC);
	off_t bytes;

	scene_wait_for(written() > 0);
	ck_assert(lives(fled));
	ck_assert_int_lt(flock(lock, LOCK_EX | LOCK_NB), 0);
	kill(recorder, SIGKILL);
	waitpid(recorder, NULL, 0);
	/* It can be had when nothing writes any more, and not before. */
	ck_assert_int_eq(flock(lock, LOCK_EX), 0);
	ck_assert(!lives(fled));
	bytes = written();
	ck_assert_int_gt(bytes, 0);
	nanosleep(&second, NULL);
	ck_assert_int_eq(written(), bytes);
}
END_TEST

/* The minder of the only child, by the list of the keeper's children. */
static pid_t parent_of(pid_t pid)
{
	char path[64];
	char *text;
	int parent = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	text = scene_read(path);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(sscanf(strrchr(text, ')') + 2, "%*c %d", &parent), 1);
	free(text);
	return parent;
}

START_TEST(what_a_killed_minder_leaves_ends_too)
{
	struct child child;
	pid_t fled;

	ck_assert_int_eq(start_shell(FLEES "sleep 1000", NULL, &child), 0);
	fled = pid_in("fled");
	kill(parent_of(child.pid), SIGKILL);
	ck_assert_int_eq(wait_for_end(&child).status, SIGKILL);
	scene_wait_for(!lives(fled));
}
END_TEST

/* Of /proc/PID/status, in a file "status". */
static uint64_t status_field(const char *name)
{
	char *text = said("status"), *at = text ? strstr(text, name) : NULL;

	ck_assert_msg(at, "no %s", name);
	uint64_t value = strtoull(at + strlen(name), NULL, 16);

	free(text);
	return value;
}

START_TEST(a_command_has_no_capability_no_new_privileges_and_a_filter)
{
	struct child_options options = {
		.limits = { .address_space_bytes = 1 << 28, .cpu_seconds = 7, .file_bytes = 1 << 20, .files = 64 }
	};
	static const char *const sets[] = { "CapInh:", "CapPrm:", "CapEff:", "CapAmb:" };
	struct child child;
	char *text;

	ck_assert_int_eq(start_shell("cat /proc/self/status > status; ulimit -v > v; ulimit -t > t; ulimit -f > f;"
				     "ulimit -n > n; ulimit -c > c",
				     &options, &child),
			 0);
	ck_assert_int_eq(wait_for_end(&child).status, 0);
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		ck_assert_uint_eq(status_field(sets[i]), 0);
	if (geteuid() == 0)
		ck_assert_uint_eq(status_field("CapBnd:"), 0);
	ck_assert_uint_eq(status_field("NoNewPrivs:"), 1);
	ck_assert_uint_eq(status_field("Seccomp:"), 2);
	static const char *const limits[][2] = {
		{ "v", "262144\n" }, { "t", "7\n" }, { "f", "2048\n" }, { "n", "64\n" }, { "c", "0\n" }
	};
	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		text = said(limits[i][0]);
		if (*limits[i][0] != 'v' || !strstr(text, "unlimited")) /* with a sanitizer */
			ck_assert_str_eq(text, limits[i][1]);
		free(text);
	}
}
END_TEST

/* Numbers of what went wrong. */
static int tries(const void *argument, size_t len)
{
	const pid_t parent = getppid();
	char byte;
	struct iovec here = { &byte, 1 }, there = { &byte, 1 };

	(void)argument;
	(void)len;
	if (syscall(SYS_process_vm_writev, parent, &here, 1, &there, 1, 0) >= 0 || errno != EPERM)
		return 1;
	if (syscall(SYS_process_vm_readv, parent, &here, 1, &there, 1, 0) >= 0 || errno != EPERM)
		return 2;
	if (syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, parent, 0, 0) >= 0 || errno != EPERM)
		return 3;
	if (syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */) >= 0 || errno != EPERM)
		return 4;
	if (syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0) >= 0 || errno != EPERM)
		return 5;
	if (syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0) >= 0 || errno != EPERM)
		return 6;
	if (syscall(SYS_bpf, 0, NULL, 0) >= 0 || errno != EPERM)
		return 7;

	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid > 0 && waitpid(pid, NULL, 0) == pid ? 0 : 8;
}

START_TEST(a_command_cannot_reach_into_other_processes_but_can_start_some)
{
	struct child_options options = { .run = tries };
	struct child child;

	ck_assert_int_eq(child_start(&options, &child), 0);
	ck_assert_int_eq(wait_for_end(&child).status, 0);
}
END_TEST

START_TEST(beyond_so_many_it_is_refused_and_room_comes_back)
{
	static struct child many[CHILDREN_MAX + 1];
	struct child_end end;
	int r = 0;

	for (size_t i = 0; i < CHILDREN_MAX; i++)
		ck_assert_int_eq(start_shell("sleep 1000", NULL, &many[i]), 0);
	ck_assert_int_eq(start_shell("sleep 1000", NULL, &many[CHILDREN_MAX]), -EAGAIN);
	child_signal(&many[0], SIGKILL);
	end = wait_for_end(&many[0]);
	ck_assert_int_eq(end.status, SIGKILL);
	scene_wait_for((r = start_shell("sleep 1000", NULL, &many[0])) == 0);
	for (size_t i = 0; i < CHILDREN_MAX; i++)
		child_close(&many[i]);
}
END_TEST

START_TEST(words_that_are_too_long_are_refused)
{
	char *text = calloc(1, CHILD_PAYLOAD_MAX + 1);
	char *words[] = { "/bin/echo", text, NULL };
	struct child_options options = { .words = words, .environment = no_environment };
	struct child child;

	memset(text, 'x', CHILD_PAYLOAD_MAX);
	ck_assert_int_eq(child_start(&options, &child), -E2BIG);
	text[100000] = '\0';
	ck_assert_int_eq(child_start(&options, &child), 0);
	ck_assert_int_eq(wait_for_end(&child).status, 0);
	free(text);
}
END_TEST

/* From here on sendmsg(2) to this descriptor fails, as to a minder that has ended. */
static int refuse_messages(int fd)
{
	struct sock_filter statements[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)), /* its lower half */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ECONNRESET),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = ARRAY_LEN(statements), .filter = statements };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Its minder, which lives, waits for the order; it is not -ETIMEDOUT that ends both. */
START_TEST(an_order_that_cannot_be_sent_is_not_waited_for)
{
	const char *words[] = { "/bin/true", NULL };
	struct child_options options = { .words = (char *const *)(uintptr_t)words, .environment = no_environment };
	struct child child;
	int status;
	pid_t pid;

	ck_assert_int_eq(children_begin(), 0);
	pid = fork();
	if (pid == 0) {
		int next = dup(STDERR_FILENO); /* the number that the connection is going to have */

		close(next);
		if (refuse_messages(next) < 0)
			_exit(100);
		_exit(-child_start(&options, &child));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 100)
		SKIP_TEST("no seccomp filter is allowed here");
	ck_assert_msg(WEXITSTATUS(status) == EINVAL, "%s", strerror(WEXITSTATUS(status)));
	ck_assert_int_eq(child_start(&options, &child), 0);
	ck_assert_int_eq(wait_for_end(&child).status, 0);
}
END_TEST

Suite *children_suite(void)
{
	Suite *suite = suite_create("children");
	TCase *tcase = tcase_create("children");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, how_it_ended_is_told);
	tcase_add_test(tcase, a_signal_that_comes_too_late_changes_nothing_of_its_end);
	tcase_add_test(tcase, what_cannot_be_started_says_why);
	tcase_add_test(tcase, it_has_the_descriptors_that_it_was_given_and_no_others);
	tcase_add_test(tcase, hundreds_of_descriptors_arrive_in_their_order);
	tcase_add_test(tcase, a_function_runs_in_a_process_of_its_own);
	tcase_add_test(tcase, what_flees_ends_with_its_child);
	tcase_add_test(tcase, what_flees_ends_with_its_connection);
	tcase_add_test(tcase, the_end_of_one_is_not_the_end_of_another);
	tcase_add_test(tcase, nothing_outlives_a_recorder_that_is_killed_by_a_second_and_the_lock_is_kept_until_then);
	tcase_add_test(tcase, what_a_killed_minder_leaves_ends_too);
	tcase_add_test(tcase, a_command_has_no_capability_no_new_privileges_and_a_filter);
	tcase_add_test(tcase, a_command_cannot_reach_into_other_processes_but_can_start_some);
	tcase_add_test(tcase, beyond_so_many_it_is_refused_and_room_comes_back);
	tcase_add_test(tcase, words_that_are_too_long_are_refused);
	tcase_add_test(tcase, an_order_that_cannot_be_sent_is_not_waited_for);
	suite_add_tcase(suite, tcase);
	return suite;
}
