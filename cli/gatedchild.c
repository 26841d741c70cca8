/*
 * gatedchild.c: the child says that it is there, and reads a byte before it calls execvp(3). If the parent dies or gives up, the
 * connection ends, and the child with it.
 */
#include "gatedchild.h"

#include "scope.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between two looks: a wait that a signal could slip past would not end. */
#define NAP_NS 20000000L

/* What a shell says when there is no such command. */
#define NOT_STARTED 127

/* As it will be called when it runs: until then a watcher would see our own name. */
static void take_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	prctl(PR_SET_NAME, slash && slash[1] ? slash + 1 : program);
}

__attribute__((noreturn)) static void begin(const char *who, char *const *words, int gate)
{
	char go;

	take_name(words[0]);
	if (write(gate, "", 1) != 1 || read(gate, &go, 1) != 1)
		_exit(NOT_STARTED);
	signal(SIGPIPE, SIG_DFL);
	execvp(words[0], words);
	fprintf(stderr, "%s: %s: %s\n", who, words[0], strerror(errno));
	_exit(NOT_STARTED);
}

int gatedchild_fork(const char *who, char *const *words, struct gatedchild *ret)
{
	int gate[2];
	char ready;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0)
		return -errno;

	pid_t pid = fork();

	if (pid == 0) {
		close(gate[1]);
		begin(who, words, gate[0]);
	}
	close(gate[0]);
	if (pid < 0) {
		close(gate[1]);
		return -errno;
	}
	(void)!read(gate[1], &ready, 1); /* if it has died, whoever waits for it is told */
	*ret = (struct gatedchild){ .pid = pid, .gate = gate[1] };

	return 0;
}

int gatedchild_open(struct gatedchild *child)
{
	int gate = TAKE_FD(child->gate);
	int r = gate >= 0 && send(gate, "", 1, MSG_NOSIGNAL) < 0 ? -errno : 0;

	if (gate >= 0)
		close(gate);

	return r;
}

bool gatedchild_ended(const struct gatedchild *child)
{
	siginfo_t ended = { 0 };

	return child->pid && waitid(P_PID, (id_t)child->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       ended.si_pid == child->pid;
}

int gatedchild_wait(struct gatedchild *child, const volatile int *signal)
{
	if (child->gate >= 0)
		close(TAKE_FD(child->gate));
	for (int sent = 0; child->pid;) {
		pid_t ended = waitpid(child->pid, &child->status, WNOHANG);

		if (ended != 0) {
			child->pid = 0;
			break;
		}
		if (*signal && *signal != sent)
			kill(child->pid, sent = *signal);
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
	}
	if (WIFEXITED(child->status))
		return WEXITSTATUS(child->status);

	return 128 + WTERMSIG(child->status);
}
