/*
 * hookproc.h: one command while it runs: its process, what it writes, and what is to be said of it. The hooks' thread's (hooks.c), which
 * decides when it is ended.
 */
#ifndef SPIKEWATCH_HOOKPROC_H
#define SPIKEWATCH_HOOKPROC_H

#include "clock.h"
#include "hookplan.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Of the memory that output is read with. */
#define HOOKPROC_PIECE_BYTES 65536u

enum hookproc_phase {
	HOOKPROC_RUNNING,
	HOOKPROC_TOLD, /* has got SIGTERM */
	HOOKPROC_KILLED,
};

/* In the caller's storage; hookproc_start fills it in. */
struct hookproc {
	const struct hookplan_command *command;
	struct incident_capture *record; /* is kept up to date */
	int dirfd;                       /* of the incident's draft */
	enum hookproc_phase phase;
	pid_t pid;            /* and the id of its group */
	int pidfd, out, file; /* -1: none, no more, not yet */
	mono_t began, deadline;
	bool stopped; /* the daemon's end is why it was told to end */
	bool cut;
	int write_error;
};

struct hookproc_options {
	const struct hookplan_command *command;
	int dirfd;
	const char *pid, *rule, *target; /* for placeholders and environment; safe already */
	uint64_t max_file_bytes;
	mono_t now;
};

/* record: already hookplan_record. 0; -errno: nothing runs, and ret need not be released. */
int hookproc_start(const struct hookproc_options *options, struct incident_capture *record, struct hookproc *ret);

/* Takes what it has written into its file. piece: memory for it. whole: until there is nothing more, else one piece. */
void hookproc_take(struct hookproc *proc, char *piece, bool whole);

/* Says in the record how it has ended. */
void hookproc_judge(struct hookproc *proc, const siginfo_t *how);

/* Closes what is open. */
void hookproc_release(struct hookproc *proc);

#endif
