/*
 * children.h: processes that end with what they were started for. All that the recorder starts
 * (commands, the symboliser, readers of foreign files) is started by this.
 *
 *     this process ──▶ keeper ──▶ minder ──▶ the child ──▶ what it starts, wherever that goes
 *           └──────── a connection ──┘
 *
 * A child is its connection. When that is closed, by child_close or because this process has ended,
 * however it did, the minder kills the child and all its descendants, those in sessions or process
 * groups of their own too, within milliseconds. The same happens to the descendants when the child
 * itself has ended. Only what waits in the kernel for a disk or a network cannot be ended so; it
 * ends when it wakes up.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_CHILDREN_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_CHILDREN_H

#include "daemon/engine/base/sandbox.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* At once; of each, words, environment and argument together. */
#define CHILDREN_MAX 64
#define CHILD_PAYLOAD_MAX 262144

/* What a child may do. Supplementary groups stay. */
enum child_rights {
	CHILD_NONE,         /* sandbox_command(): no capability, no_new_privs, a filter */
	CHILD_CAPABILITIES, /* what this process had when the keeper was started */
};

/* A descriptor that is handed over, a copy: the caller's stays open. */
struct child_descriptor {
	int fd;
	int as; /* its number in the child, or one of: */
};

#define CHILD_DIRECTORY (-1) /* its working directory, instead of that of the keeper */
#define CHILD_HOLDS (-2)     /* kept open, by the minder, until all of it have ended: for locks */

#define CHILD_DESCRIPTORS_MAX 1024

struct child_options {
	/* A program, its arguments and environment, each with NULL at the end, or ... */
	char *const *words;
	char *const *environment;
	/* ... a function of this program, in a process with one thread: it returns the exit code. */
	int (*run)(const void *argument, size_t len);
	const void *argument;
	size_t argument_len;

	/* It gets no others, but for /dev/null as 0, 1 and 2 where these are not among them. */
	const struct child_descriptor *descriptors;
	size_t descriptor_count;

	enum child_rights rights;
	struct sandbox_limits limits;
	int oom_score_adj; /* -1000 to 1000; 0: as any other program */
};

/* One that was started. {-1} is none. */
struct child {
	int fd; /* poll(2): readable when it has ended; the caller's for nothing else */
	pid_t pid;
};

/* How it ended: si_code (CLD_EXITED, CLD_KILLED, CLD_DUMPED) and si_status of waitid(2). */
struct child_end {
	int32_t code, status;
};

/*
 * Starts the keeper, a copy of this process, unless it runs. Early: the keeper keeps the
 * capabilities and the memory that this process has by then, and none of its descriptors; later
 * sandbox_recorder() forbids it. child_start does it otherwise. 0 or -errno.
 */
int children_begin(void);

/*
 * Starts a child in a process group of its own, with signals as in a login. Takes about a
 * millisecond. Any thread. 0: *ret is the caller's, for child_close; -errno: nothing runs, -EAGAIN:
 * CHILDREN_MAX do already, otherwise of execve(2), sandbox_command() and so on.
 */
int child_start(const struct child_options *options, struct child *ret);

/*
 * Sends a signal to its process group; SIGKILL also to all its descendants. Never waits, and
 * nothing happens if it has ended.
 */
void child_signal(const struct child *child, int signal);

/*
 * Whether it has ended, and all its descendants, which may take until a second after it; never
 * waits. True: *ret; of one that can no longer be asked SIGKILL.
 */
bool child_ended(const struct child *child, struct child_end *ret);

/* Kills what is left of it; does not wait for that. */
void child_close(struct child *child);

#endif
