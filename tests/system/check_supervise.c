/*
 * check_supervise.c: tests that leave a process, files and cgroups behind, and end, crash or are
 * interrupted.
 */
#include "supervise.h"

#include "lib/cgroup/cgroup_mounts.h"
#include "scene.h"

#include <errno.h>
#include <sys/stat.h>

Suite *supervise_suite(void);

enum ending { ENDS, CRASHES, IS_INTERRUPTED, IS_TERMINATED, HANGS_UP };

static const struct {
	enum ending ending;
	int signal, code;
} endings[] = {
	{ ENDS, 0, 7 },
	{ CRASHES, 0, 128 + SIGKILL },
	{ IS_INTERRUPTED, SIGINT, 128 + SIGINT },
	{ IS_TERMINATED, SIGTERM, 128 + SIGTERM },
	{ HANGS_UP, SIGHUP, 128 + SIGHUP },
};

/* What the body has left, for the test. */
struct left {
	pid_t orphan, child;
	char directory[64], file[64], noted[80], tmpdir[256], cgroup[300];
};

static int report[2]; /* a pipe */
static enum ending ending;

/* In a cgroup of its own where one may be made, with another inside; "" if not. */
static void leave_cgroups(struct left *left)
{
	struct cgroup_mounts *mounts;
	char inner[sizeof(left->cgroup) + 8], procs[sizeof(left->cgroup) + 24];
	bool v2;

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	const char *hierarchy = cgroup_mounts_controller(mounts, CGROUP_CPUACCT, &v2);

	if (!hierarchy)
		hierarchy = cgroup_mounts_v2(mounts);
	snprintf(left->cgroup, sizeof(left->cgroup), "%s/check-supervise-%d", hierarchy ? hierarchy : "", getpid());
	snprintf(inner, sizeof(inner), "%s/inner", left->cgroup);
	if (!hierarchy || mkdir(left->cgroup, 0755) < 0)
		left->cgroup[0] = '\0';
	else if (mkdir(inner, 0755) == 0) {
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", inner);
		scene_write(procs, "%d\n", left->orphan);
	}
	cgroup_mounts_free(mounts);
}

/*
 * A shell in a session of its own, whose parent has ended, that waits for a file which never comes.
 */
static pid_t leave_orphan(const char *directory)
{
	pid_t orphan = 0;
	int told[2];
	char file[80];

	snprintf(file, sizeof(file), "%s/never", directory);
	ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
	if (fork() == 0) {
		setsid();
		signal(SIGHUP, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		orphan = fork();
		if (orphan == 0) {
			execl("/bin/sh", "sh", "-c", "while ! [ -e \"$0\" ]; do sleep 0.05; done", file, (char *)NULL);
			_exit(1);
		}
		_exit(write(told[1], &orphan, sizeof(orphan)) != sizeof(orphan));
	}
	ck_assert_int_eq(read(told[0], &orphan, sizeof(orphan)), (ssize_t)sizeof(orphan));

	return orphan;
}

static int leave(int argc, char **argv)
{
	struct left left = { .directory = "/tmp/check_left.XXXXXX", .file = "/tmp/check_left.XXXXXX" };
	char path[300];

	(void)argc;
	(void)argv;
	ck_assert_ptr_nonnull(mkdtemp(left.directory));
	snprintf(path, sizeof(path), "%s/inside", left.directory);
	scene_write(path, "text");
	ck_assert_int_ge(mkstemp(left.file), 0);
	snprintf(left.noted, sizeof(left.noted), "%s.noted", left.file);
	supervise_note(left.noted);
	scene_write(left.noted, "text");
	snprintf(left.tmpdir, sizeof(left.tmpdir), "%s", getenv("TMPDIR"));
	snprintf(path, sizeof(path), "%s/of-a-program", left.tmpdir);
	scene_write(path, "text");
	left.orphan = leave_orphan(left.directory);
	leave_cgroups(&left);
	left.child = fork();
	if (left.child == 0)
		for (;;)
			pause();
	ck_assert_int_eq(write(report[1], &left, sizeof(left)), (ssize_t)sizeof(left));
	if (ending == ENDS)
		return 7;
	if (ending == CRASHES)
		raise(SIGKILL);
	for (;;)
		pause();
}

static void expect_gone(const char *path)
{
	ck_assert_msg(access(path, F_OK) < 0 && errno == ENOENT, "%s is still there", path);
}

START_TEST(nothing_is_left)
{
	struct left left;
	int status = 0;

	ending = endings[_i].ending;
	ck_assert_int_eq(pipe2(report, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0)
		_exit(supervise(leave, 0, NULL));
	ck_assert_int_eq(read(report[0], &left, sizeof(left)), (ssize_t)sizeof(left));
	/* It was all there, unless it has ended by then. */
	if (endings[_i].signal) {
		ck_assert_int_eq(kill(left.orphan, 0), 0);
		ck_assert_int_eq(access(left.directory, F_OK), 0);
		ck_assert_int_eq(kill(pid, endings[_i].signal), 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), endings[_i].code);

	ck_assert(kill(left.orphan, 0) < 0 && errno == ESRCH);
	ck_assert(kill(left.child, 0) < 0 && errno == ESRCH);
	expect_gone(left.directory);
	expect_gone(left.file);
	expect_gone(left.noted);
	expect_gone(left.tmpdir);
	if (left.cgroup[0])
		expect_gone(left.cgroup);
}
END_TEST

Suite *supervise_suite(void)
{
	Suite *suite = suite_create("supervise");
	TCase *tcase = tcase_create("endings");

	tcase_add_loop_test(tcase, nothing_is_left, 0, (int)(sizeof(endings) / sizeof(endings[0])));
	suite_add_tcase(suite, tcase);

	return suite;
}
