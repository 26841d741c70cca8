/*
 * busy_snapshot.h: how much CPU every process of the machine had used at a moment: the difference of two names the
 * neighbours that were busy. Built by whoever scans /proc anyway, or taken by a scan of its own (3 µs per process).
 */
#ifndef SPIKEWATCH_BUSY_SNAPSHOT_H
#define SPIKEWATCH_BUSY_SNAPSHOT_H

#include "clock.h"
#include "procfs.h"

#include <stddef.h>
#include <stdint.h>

/* Processes beyond are left out: 24 bytes each. */
#define BUSY_SNAPSHOT_MAX 16384

struct busy_record {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t cpu_ticks; /* user + system */
};

struct busy_snapshot {
	mono_t taken;
	size_t count, room;
	size_t left_out;
	struct busy_record *records; /* sorted by pid after busy_snapshot_end */
};

/* Empties it, keeping its memory. {0} is legal. */
void busy_snapshot_begin(struct busy_snapshot *snapshot, mono_t now);

/* Adds a process. 0 or -ENOMEM (it is then left out and counted). */
int busy_snapshot_add(struct busy_snapshot *snapshot, const struct procfs_stat *stat);

/* It is complete: it can be searched from now on. */
void busy_snapshot_end(struct busy_snapshot *snapshot);

/* Frees its memory; empty and legal again. */
void busy_snapshot_release(struct busy_snapshot *snapshot);

/* What was this process's record: same pid and start time; NULL if it was not there. */
const struct busy_record *busy_snapshot_find(const struct busy_snapshot *snapshot, int32_t pid, uint64_t start_ticks);

/* Copies one into another, whose memory is used again. 0 or -ENOMEM (*to is then empty). */
int busy_snapshot_copy(struct busy_snapshot *to, const struct busy_snapshot *from);

/*
 * Reads stat of every process below procfd and calls visit until it returns non-zero, which is returned. The stat's
 * comm is valid during the call. 0; -errno: the proc root cannot be read.
 */
int busy_snapshot_scan(int procfd, int (*visit)(void *ctx, const struct procfs_stat *stat), void *ctx);

#endif
