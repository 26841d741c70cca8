/*
 * thread_snapshot.h: how much CPU each thread of a process had used at a moment. The difference of two tells who was
 * busy between them. Costs 5 µs per thread: taken about once a second, of processes that ran.
 */
#ifndef SPIKEWATCH_THREAD_SNAPSHOT_H
#define SPIKEWATCH_THREAD_SNAPSHOT_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Threads beyond are counted, not listed: 64 bytes each. */
#define THREAD_SNAPSHOT_MAX 1024

struct thread_record {
	int32_t tid;
	char state;           /* R S D Z T ... */
	char name[16];        /* NUL-terminated; may hold any byte */
	uint64_t start_ticks; /* tells a reused tid */
	uint64_t cpu_ns;      /* schedstat, or user + system where that is missing */
	uint64_t user_ns;     /* stat, in clock ticks of 10 ms */
	uint64_t system_ns;
};

struct thread_snapshot {
	mono_t taken;
	mono_t valid_until; /* nothing ran from `taken` until then: what is said holds for all of that time */
	size_t count;       /* records, sorted by tid */
	size_t unlisted;    /* threads beyond THREAD_SNAPSHOT_MAX */
	struct thread_record records[];
};

/* For free(3). 0; -ESRCH: gone; -ENOMEM; -errno. start_ticks as in piddir_open. */
int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret);

/* What was this thread's record: same tid and start time; NULL if it was not there. */
const struct thread_record *thread_snapshot_find(const struct thread_snapshot *snapshot,
						 const struct thread_record *thread);

/*
 * The last two snapshots of a process, so that there is one that is old enough at any moment. {0} is empty and legal.
 */
struct thread_baseline {
	struct thread_snapshot *older;
	struct thread_snapshot *newer;
};

/* Takes over snapshot, frees the oldest. */
void thread_baseline_add(struct thread_baseline *baseline, struct thread_snapshot *snapshot);

/* The process has not run from the last snapshot until now: that stands for now as well. */
void thread_baseline_still(struct thread_baseline *baseline, mono_t now);

/*
 * The younger snapshot that is at least min_age_ns old, or else the oldest there is, NULL if there is none; *ret_at:
 * the moment it stands for.
 */
const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at);

/* Frees both; empty again. */
void thread_baseline_release(struct thread_baseline *baseline);

#endif
