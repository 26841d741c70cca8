/*
 * following.h: which of the watched processes get events of their own (stackrecorder_follow): all, or the busiest if they are many. Fed by the
 * scans of discovery, under whose lock it stands. Where nobody asks there is none: all but following_new take NULL, and do nothing.
 *
 *	following_begin ─▶ following_met for every process ─▶ following_end: the set, handed on if it is another than before
 */
#ifndef SPIKEWATCH_FOLLOWING_H
#define SPIKEWATCH_FOLLOWING_H

#include "procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So many at a time: each of their threads takes descriptors on every CPU. */
#define FOLLOWING_MAX 256u

/* Processes among which those are chosen; more are not looked at. */
#define FOLLOWING_CANDIDATES_MAX 16384u

struct following;

/* Takes the whole set, ascending; the pids are its for the call. */
typedef void following_take(void *ctx, const uint32_t *pids, size_t count);

/* 0 or -ENOMEM. */
int following_new(following_take *take, void *ctx, struct following **ret);

/* Its memory. */
void following_free(struct following *following);

/* A scan begins; it may follow one that was given up. */
void following_begin(struct following *following);

/*
 * The scan met this process. watched: it is a target, or belongs to one. False may also mean that nobody asked, because it did not run since the last
 * scan: who was watched then still is.
 */
void following_met(struct following *following, const struct procfs_stat *stat, bool watched);

/* The scan is over: who was not met is gone. */
void following_end(struct following *following);

/* What is watched is another by now: nobody is until the next scan says so. */
void following_forget(struct following *following);

#endif
