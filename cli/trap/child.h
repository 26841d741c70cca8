/*
 * child.h: a command that is there, with its pid and its name, before it begins: it waits at a gate
 * until whoever watches it is ready.
 */
#ifndef SPIKEWATCH_CLI_TRAP_CHILD_H
#define SPIKEWATCH_CLI_TRAP_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* {.gate = -1} is none, and legal. */
struct stopped_child {
	pid_t pid; /* 0: none, or waited for */
	int gate;  /* our end, until it was waited for */
	int status;
};

/*
 * Forks. Call it before any thread is started. words end with NULL and are looked up in $PATH; who
 * asks for it, such as "spikewatch trap", stands before the message if that fails. 0 or -errno.
 */
int stopped_child_fork(const char *who, char *const *words, struct stopped_child *ret);

/* It may begin. 0 or -errno. */
int stopped_child_open(struct stopped_child *child);

/* It has said that it could not be started. Tells it once, and only after stopped_child_ended. */
bool stopped_child_failed(const struct stopped_child *child);

/* It has ended. It is not reaped: what it has used in all can still be read. */
bool stopped_child_ended(const struct stopped_child *child);

/*
 * Waits for its end; one that never began does not begin any more. What we are told to end by
 * (interruption.h) it is sent too. Returns its exit code: as of a shell 128 and the signal that
 * ended it; 127: there is no such program, 126: it could not be started.
 */
int stopped_child_wait(struct stopped_child *child);

#endif
