/*
 * thread_events.h: perf events on the threads of some processes, as many as there is room for;
 * closed and opened as the set changes. Child processes inherit the events of a followed one, which
 * is known from fork notes: they get none of their own, which would count them twice. For one
 * thread at a time. And the choice of those processes, made by another thread.
 *
 * A process is followed as a whole or not at all. Events of one that has exited stay while a
 * descendant runs.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_THREAD_EVENTS_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_THREAD_EVENTS_H

#include "daemon/engine/base/perf_events.h"
#include "lib/base/base.h"
#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thread_events;

/* What each thread gets on each CPU. Both borrowed. */
struct thread_events_output {
	const struct perf_events_wanted *wanted;
	const struct perf_events *rings; /* one for each CPU */
};

/* A process or thread began, or a process ended, by its first thread. */
struct thread_events_note {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint32_t pid, tid, ppid, ptid;
	bool ended;
};

struct thread_events_options {
	int proc_fd;                                /* of /proc, borrowed */
	const struct thread_events_output *outputs; /* borrowed; the notes come from the first */
	size_t output_count;
	unsigned cpus;
	unsigned max_events, max_processes;
	struct clock clock;
	/* Has thread_events_note called for all that happened until now. */
	void (*catch_up)(void *ctx);
	/* A process has its events now; its threads. */
	void (*opened)(void *ctx, uint32_t pid, const uint32_t *tids, size_t count);
	void *ctx;
};

struct thread_events_status {
	unsigned processes;    /* of the set, that have events */
	unsigned threads;      /* that have events of their own */
	unsigned events;       /* descriptors */
	unsigned not_followed; /* of the set, that run and have none: no room, or not allowed */
	int error;             /* why the last of those was not: -errno, -ENOSPC: no room; 0: none */
};

/* 0 or -ENOMEM. *ret belongs to the caller: thread_events_free. */
int thread_events_new(const struct thread_events_options *options, struct thread_events **ret);

/* Closes all events. NULL is fine. */
void thread_events_free(struct thread_events *threads);

/*
 * Replaces the set, in the order of importance if not all have room. Those that could not be
 * followed before are tried again.
 */
void thread_events_follow(struct thread_events *threads, const uint32_t *pids, size_t count);

/* In the order of time. */
void thread_events_note(struct thread_events *threads, const struct thread_events_note *note);

/*
 * Closes events of processes that have exited, if no descendant runs. look: checks all of them, not
 * only those that notes reported. Whether there were any.
 */
bool thread_events_sweep(struct thread_events *threads, bool look);

/* Enables or disables all events of a kind, also inherited ones and those that are opened later. */
void thread_events_switch(struct thread_events *threads, enum perf_events_kind kind, bool on);

/* What all events of an output have counted, which have `cycles`, and for how long. */
void thread_events_count(const struct thread_events *threads, size_t output, uint64_t *cycles, uint64_t *running_ns);

/* As of now. */
void thread_events_status(const struct thread_events *threads, struct thread_events_status *ret);

/*
 * Which of the watched processes get events of their own
 * (stack_recorder_follow): all, or the busiest if they are many. Fed by the scans of discovery,
 * under whose lock it is. Where no per-thread events are wanted there is none: all but
 * thread_selection_new take NULL and do nothing.
 *
 *   thread_selection_begin ─▶ thread_selection_met for every process ─▶ thread_selection_end: the
 *   set, if it has changed
 */

/* Processes in the set: each of their threads takes descriptors on every CPU. */
#define THREAD_SELECTION_MAX 256u

/* Processes among which those are chosen; more are not looked at. */
#define THREAD_SELECTION_CANDIDATES_MAX 16384u

struct thread_selection;

/* 0 or -ENOMEM. */
int thread_selection_new(struct thread_selection **ret);

/* Frees it. */
void thread_selection_free(struct thread_selection *selection);

/* A scan begins; it may follow one that was given up. */
void thread_selection_begin(struct thread_selection *selection);

/*
 * The scan met this process. watched: it is a target, or belongs to one. False may also mean that
 * it was not looked at, because it did not run since the last scan: then it is watched if it was.
 */
void thread_selection_met(struct thread_selection *selection, const struct procfs_stat *stat, bool watched);

/*
 * The scan is over: a process that was not met is gone. True: the set has changed; *ret_pids, valid
 * until the next call, is all of it, ascending.
 */
bool thread_selection_end(struct thread_selection *selection, const uint32_t **ret_pids, size_t *ret_count);

/* The set of watched processes has changed: none is watched until the next scan says so. */
void thread_selection_forget(struct thread_selection *selection);

#endif
