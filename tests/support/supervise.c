/*
 * supervise.c: the supervisor is the subreaper of everything that the tests start: a process whose
 * parent ends becomes its child, whatever its session is. So it needs to know no process but its
 * own children: it kills these by id until it has none, which is safe, because the id of a child is
 * not used again before it has been waited for. Descendants become children on the way.
 *
 * What is made for a while is noted when it is made: calls of mkdtemp, mkstemp and mkdir from the
 * tests and from what they are linked with pass through here (-Wl,--wrap), and append the path to a
 * file without a name that all forks share.
 */
#include "supervise.h"

#include "lib/base/io.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* linux/magic.h */
#define CGROUP_V1_MAGIC 0x27e0eb
#define CGROUP_V2_MAGIC 0x63677270

#define NAP_NS 5000000
/*
 * What is ending by itself gets so many naps before it is killed; what was killed, so many before
 * it is given up: it hangs in the kernel.
 */
#define NAPS_TO_END 200
#define NAPS_TO_DIE 4000

static int notes = -1; /* paths, one a line */

char *__real_mkdtemp(char *template);
char *__wrap_mkdtemp(char *template);
int __real_mkstemp(char *template);
int __wrap_mkstemp(char *template);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);

/* ---- noting ---- */

/* One write, so that lines of different processes do not mix. */
void supervise_note(const char *path)
{
	char line[PATH_MAX + 1];
	int before = errno, len = snprintf(line, sizeof(line), "%s\n", path);

	if (notes >= 0 && path[0] == '/' && len > 0 && (size_t)len < sizeof(line) &&
	    write(notes, line, (size_t)len) != len)
		fprintf(stderr, "supervise: %s is not noted: %s\n", path, strerror(errno));
	errno = before;
}

char *__wrap_mkdtemp(char *template)
{
	char *path = __real_mkdtemp(template);

	if (path)
		supervise_note(path);

	return path;
}

int __wrap_mkstemp(char *template)
{
	int fd = __real_mkstemp(template);

	if (fd >= 0)
		supervise_note(template);

	return fd;
}

static bool is_cgroup(const char *path)
{
	struct statfs found;

	return statfs(path, &found) == 0 && (found.f_type == CGROUP_V1_MAGIC || found.f_type == CGROUP_V2_MAGIC);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	int r = __real_mkdir(path, mode);

	if (r == 0 && notes >= 0 && is_cgroup(path))
		supervise_note(path);

	return r;
}

/* ---- processes ---- */

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512] = "";
	pid_t parent = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (read(fd, text, sizeof(text) - 1) > 0) {
		const char *name_end = strrchr(text, ')');

		if (!name_end || sscanf(name_end, ") %*c %d", &parent) != 1)
			parent = -1;
	}
	close(fd);

	return parent;
}

static void say_left(pid_t pid)
{
	char path[64], words[200] = "";

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, words, sizeof(words) - 1);

	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i + 1 < len; i++)
		if (!isprint((unsigned char)words[i]))
			words[i] = ' ';
	fprintf(stderr, "supervise: killed what the tests left: %d %s\n", pid, words);
}

/* Kills all children that there are now. */
static void kill_children(bool say)
{
	DIR *dir = opendir("/proc");

	for (struct dirent *item; dir && (item = readdir(dir));) {
		pid_t pid = (pid_t)strtol(item->d_name, NULL, 10);

		if (pid <= 0 || parent_of(pid) != getpid())
			continue;
		if (say)
			say_left(pid);
		kill(pid, SIGKILL);
	}
	if (dir)
		closedir(dir);
}

/* Waits for all that have ended. False: no children are left. */
static bool reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		;

	return pid == 0;
}

/* patient: what is ending by itself may. */
static void end_all(bool patient)
{
	for (int naps = 0; patient && naps < NAPS_TO_END && reap(); naps++)
		nap();
	for (int naps = 0; naps < NAPS_TO_DIE && reap(); naps++) {
		kill_children(patient && naps == 0);
		nap();
	}
	if (reap())
		fprintf(stderr, "supervise: processes of the tests cannot be killed\n");
}

/* ---- what was noted ---- */

static void remove_cgroup(const char *path)
{
	for (int naps = 0; naps < NAPS_TO_END && rmdir(path) < 0 && errno == EBUSY; naps++)
		nap();
}

static void remove_noted(const char *path)
{
	struct stat status;

	if (lstat(path, &status) < 0)
		return;
	if (S_ISDIR(status.st_mode) && is_cgroup(path))
		remove_cgroup(path);
	else if (S_ISDIR(status.st_mode))
		directory_tree_remove(AT_FDCWD, path);
	else
		unlink(path);
}

/* The last first: cgroups are removed before those that they are in. */
static void remove_all(void)
{
	off_t len = lseek(notes, 0, SEEK_END);
	char *text = len > 0 ? calloc(1, (size_t)len + 1) : NULL;

	if (text && pread(notes, text, (size_t)len, 0) == len)
		for (char *end = text + len; end > text;) {
			*--end = '\0';
			while (end > text && end[-1] != '\n')
				end--;
			remove_noted(end);
		}
	free(text);
	close(notes);
	notes = -1;
}

/* ---- the run ---- */

static bool make_tmpdir(void)
{
	const char *base = getenv("TMPDIR");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/spikewatch-check.XXXXXX", base && *base == '/' ? base : "/tmp");
	/* Some tests are another user for a while. */
	return mkdtemp(path) && chmod(path, 0711) == 0 && setenv("TMPDIR", path, 1) == 0;
}

/* 0: it has ended, with *ret_status; else the signal that came first. */
static int await(pid_t child, const sigset_t *signals, int *ret_status)
{
	for (;;) {
		siginfo_t info = { 0 };
		int signal = sigwaitinfo(signals, &info);

		if (signal > 0 && signal != SIGCHLD)
			return signal;
		/* Several may have ended for one SIGCHLD, orphans among them. */
		for (pid_t pid; (pid = waitpid(-1, ret_status, WNOHANG)) > 0;)
			if (pid == child)
				return 0;
	}
}

int supervise(int (*body)(int argc, char **argv), int argc, char **argv)
{
	sigset_t signals, before;
	int status = 0;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGCHLD);
	notes = memfd_create("notes", MFD_CLOEXEC);
	if (notes < 0 || fcntl(notes, F_SETFL, O_APPEND) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
	    sigprocmask(SIG_BLOCK, &signals, &before) < 0 || !make_tmpdir()) {
		perror("supervise");
		return 1;
	}
	fflush(NULL);

	pid_t supervisor = getpid(), child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != supervisor)
			_exit(1);
		sigprocmask(SIG_SETMASK, &before, NULL);
		exit(body(argc, argv));
	}

	int signal = child < 0 ? 0 : await(child, &signals, &status);

	end_all(signal == 0);
	remove_all();
	if (signal)
		fprintf(stderr, "supervise: ended by %s\n", strsignal(signal));
	if (child < 0)
		return 1;

	return signal ? 128 + signal : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
