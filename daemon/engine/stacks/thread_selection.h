/*
 * thread_selection.h: which of the watched processes get events of their own
 * (stack_recorder_follow): all, or the busiest if they are many. Fed by the scans of discovery,
 * under whose lock it is. Where no per-thread events are wanted there is none: all but
 * thread_selection_new take NULL and do nothing.
 *
 *   thread_selection_begin ─▶ thread_selection_met for every process ─▶ thread_selection_end: the
 *   set, if it has changed
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_THREAD_SELECTION_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_THREAD_SELECTION_H

#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
