/*
 * hookspawn.c: vfork(2), because fork(2) would make every page of the daemon copy-on-write: the thread that samples would take a fault
 * for each that it writes to. Until it becomes the program, the child shares our memory: it calls nothing but the kernel.
 *
 * Rejected: posix_spawn(3), which cannot set limits, the signal for the death of the parent, or the score for the killer of the
 * out-of-memory.
 */
#include "hookspawn.h"

#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a login has; the daemon's own is much higher, and some programs go through all descriptors that there may be. */
#define FILES_MAX 1024

/* The daemon is the last that the kernel kills for want of memory; what it starts is a program like others. */
static void be_killable(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, "0", 1);
	close(fd);
}

static void set_limits(uint64_t max_file_bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > FILES_MAX) {
		limit.rlim_cur = FILES_MAX;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_max > max_file_bytes) {
		limit = (struct rlimit){ max_file_bytes, max_file_bytes };
		setrlimit(RLIMIT_FSIZE, &limit);
	}
	limit = (struct rlimit){ 0, 0 };
	setrlimit(RLIMIT_CORE, &limit);
}

static void reset_signals(void)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };

	for (int number = 1; number < NSIG; number++)
		sigaction(number, &standard, NULL); /* refused for two of them, and for those of the C library */
}

/* Returns only if that failed. */
static int become(const struct hookspawn_options *options, int null, int out)
{
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	reset_signals();
	set_limits(options->max_file_bytes);
	be_killable();
	if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
	    fchdir(options->dirfd) < 0)
		return errno;

	/* All should be closed by exec: this is for what a library has forgotten. */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(options->words[0], options->words, options->environment);

	return errno;
}

int hookspawn(const struct hookspawn_options *options, pid_t *ret)
{
	/* Above the three, so that none of them is overwritten before it is used. */
	AUTO_CLOSE int out = fcntl(options->out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	AUTO_CLOSE int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
	AUTO_CLOSE int null = first < 0 ? -1 : fcntl(first, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	volatile int error = 0;
	pid_t pid;

	if (out < 0 || null < 0)
		return -errno;

	pid = vfork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		error = become(options, null, out);
		_exit(127);
	}
	if (error == 0) {
		*ret = pid;
		return 0;
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;

	return -error;
}
