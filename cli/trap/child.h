/*
 * child.h: a command that is forked, and has its pid and name, before it is executed: so that it
 * can be watched from its first instruction on.
 */
#ifndef SPIKEWATCH_CLI_TRAP_CHILD_H
#define SPIKEWATCH_CLI_TRAP_CHILD_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>

/* {.gate = -1} is none, and legal. */
struct stopped_child {
	pid_t pid; /* 0: none, or waited for */
	int gate;  /* our end, until it was waited for */
	int status;
};

/*
 * Forks. Call it before any thread is started. words end with NULL and are looked up in $PATH; who,
 * such as "spikewatch trap", begins the message if that fails. 0 or -errno.
 */
int stopped_child_fork(const char *who, char *const *words, struct stopped_child *ret);

/* Lets it call execvp(3). 0 or -errno. */
int stopped_child_open(struct stopped_child *child);

/* Whether execvp(3) failed, which the child has printed. Once, after stopped_child_ended. */
static inline bool stopped_child_failed(const struct stopped_child *child)
{
	char failed;

	return child->gate >= 0 && recv(child->gate, &failed, 1, MSG_DONTWAIT) == 1;
}

/* Whether it has ended. It is not reaped: its total usage can still be read. */
static inline bool stopped_child_ended(const struct stopped_child *child)
{
	siginfo_t ended = { 0 };

	return child->pid && waitid(P_PID, (id_t)child->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       ended.si_pid == child->pid;
}

/*
 * Waits for its end; one that was not let go ends now. Signals that this process was sent alone
 * (interruption_to_pass_on) are passed on to it. Returns its exit code, as a shell does: 128 and
 * the signal that ended it; 127: no such program, 126: it could not be executed.
 */
int stopped_child_wait(struct stopped_child *child);

#endif
