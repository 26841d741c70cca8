/*
 * stack_capture.h: the stacks of an incident, from the rings to its files. Functions get their
 * names from spikewatch-symbolize, a process of its own without privileges and with little time:
 * what goes wrong there costs the names, or the stacks, and never the incident. On the incident
 * worker's thread.
 *
 *     rule fires  ─▶ stack_capture_secure: what the rings hold of the time before
 *     window over ─▶ stack_capture_write: what came since ─▶ one stack file and the files that it
 *                    refers to ─▶ spikewatch-symbolize ─▶ files of the incident
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_CAPTURE_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_CAPTURE_H

#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the worker does while spikewatch-symbolize runs. */
struct symbolizer_waiting {
	/* Called ten times a second. NULL: let it go on; else kill it now, and why (static), for the incident. */
	const char *(*why_stop)(void *ctx);
	/* Runs a step that may wait for the disk, and returns after it. NULL: it is simply called. */
	void (*on_disk)(void *ctx, void (*step)(void *argument), void *argument);
	void *ctx;
};

/*
 * The spikewatch-symbolize that belongs to this program: beside it, or where it is installed.
 * False: there is none. ret: cap bytes.
 */
bool symbolizer_find(char *ret, size_t cap);

struct stack_capture;

struct stack_copy;

/* {0}: nothing. */
struct stack_held {
	size_t bytes;                     /* of records */
	size_t copies, captures;          /* with records; that wait */
	struct stack_copy *all;           /* with records, the latest first */
	struct stack_capture *with_files; /* all, the latest first */
	struct stack_capture *early;      /* that for which spikewatch-symbolize runs already; NULL: none */
};

struct stack_capture_options {
	struct stack_recorder *recorder;
	int procfd;             /* of the proc root */
	const char *symbolizer; /* path of the program */
	uint64_t before_ns;     /* how far back */
	mono_t until;           /* the last moment, however late it is written; 0: until it is */
	uint64_t spike_from_ns; /* begin of the rule's window */
	const char *cgroup;     /* processes in it and below are part of the target; NULL: of no cgroup */
	mono_t fired;
	wall_t wall; /* of fired */
	/*
	 * What all waiting captures hold of the rings, added up here. Those of one second share one copy.
	 * The first copy of an owner may take all that the rings can hold, half of it where other owners
	 * have some, the second a quarter of that, the third a ninth, ...; beyond it the oldest samples are
	 * left out, and the incident says so. NULL: as if there were no others.
	 */
	struct stack_held *held;
	uint64_t owner; /* see struct incident_request */
	/* A copy of /proc/kallsyms for all waiting captures (stack_capture_prepare); -1: none. NULL: none ever. */
	int *kernel_symbols;
};

/*
 * Reads the rings. Options are copied, what they point to must outlive the capture. NULL: they
 * could not be read, info says why.
 */
struct stack_capture *stack_capture_secure(const struct stack_capture_options *options, struct incident *info);

/*
 * What can be done while the window is still open: what was read is compressed, and the kernel lists
 * its symbols, which takes up to 0.1 s. They are copied, some 5 MB, unless *kernel_symbols is a
 * descriptor already, which the caller closes. If no other capture waits and there is time,
 * spikewatch-symbolize is started: it reads the files of what was there at the firing, and waits for
 * stack_capture_write, with 128 MB at most. dirfd: the one that will be written to; -1: it is not.
 */
void stack_capture_prepare(struct stack_capture *capture, int dirfd);

/*
 * The processes that were part of the target at any time, beside those of its cgroup: tables of
 * functions are about them.
 */
struct stack_capture_members {
	bool everyone; /* every process is */
	const struct target_member *members;
	size_t count;
};

/*
 * Reads the rings once more, runs spikewatch-symbolize and writes the files into the directory; the
 * outcome is added to info. If reading the mapped files kills the program, it is run again without
 * reading any: twice 30 s at most. waiting: what to do meanwhile, or NULL. capture is freed.
 */
void stack_capture_write(struct stack_capture *capture, const struct stack_capture_members *members, int dirfd,
			 const struct symbolizer_waiting *waiting, struct incident *info);

/* NULL is fine. */
void stack_capture_free(struct stack_capture *capture);

#endif
