/*
 * baseline.h: how things were a moment ago: per-thread CPU and mappings of watched processes, CPU
 * of every process of the host. Captures are compared with these, which is how an incident knows
 * what a thread did *before* the trigger.
 *
 * Fed by the scans of discovery, under whose lock everything here stands. A process that did not
 * run since the last scan costs nothing: its last snapshot still holds. Each scan has a budget of
 * threads and of mappings; what does not fit is served by the next.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_BASELINE_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_BASELINE_H

#include "daemon/engine/targets/fair_mutex.h"
#include "lib/base/base.h"
#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * busy_snapshot.h: how much CPU every process of the machine had used at a moment: the difference
 * of two names the neighbours that were busy. Built by whoever scans /proc anyway, or taken by a
 * scan of its own (3 µs per process).
 */

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

/*
 * Reads stat of every process below procfd and calls visit until it returns non-zero, which is
 * returned. The stat's comm is valid during the call. 0; -errno: the proc root cannot be read.
 */
int busy_snapshot_scan(int procfd, int (*visit)(void *ctx, const struct procfs_stat *stat), void *ctx);

/*
 * maps_snapshot.h: what memory a process had mapped at a moment, summed by what is mapped (path or
 * [heap], [stack], [anon], and permissions). Reading smaps makes the kernel walk all page tables of
 * the process: some milliseconds per GiB resident, in which it cannot change its mappings. So this
 * is taken seldom: once when a target appears, and when an incident is written.
 */

/* Different names beyond are summed into one record called "[other]". */
#define MAPS_SNAPSHOT_MAX 512

struct maps_record {
	char name[112];      /* cut at the front: the end of a path says more; may hold any byte but NUL */
	char permissions[5]; /* "rw-p" */
	uint32_t mappings;
	uint64_t rss_bytes;
	uint64_t pss_bytes;
	uint64_t private_dirty_bytes;
	uint64_t swap_bytes;
};

struct maps_snapshot {
	mono_t taken;
	size_t count; /* unsorted */
	struct maps_record records[];
};

/*
 * For free(3). 0; -ESRCH: gone; -EACCES: not allowed to look; -ENOENT: the kernel has no smaps;
 * -ENOMEM; -errno.
 */
int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct maps_snapshot **ret);

/* The record of the same name and permissions, NULL if there is none. */
const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like);

/*
 * thread_snapshot.h: how much CPU each thread of a process had used at a moment. The difference of
 * two tells who was busy between them. Costs 5 µs per thread: taken about once a second, of
 * processes that ran.
 */

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

/* For free(3). 0; -ESRCH: gone; -ENOMEM; -errno. start_ticks as in pid_directory_open. */
int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret);

/* What was this thread's record: same tid and start time; NULL if it was not there. */
const struct thread_record *thread_snapshot_find(const struct thread_snapshot *snapshot,
						 const struct thread_record *thread);

/*
 * The last two snapshots of a process, so that there is one that is old enough at any moment. {0}
 * is empty and legal.
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
 * The younger snapshot that is at least min_age_ns old, or else the oldest there is, NULL if there
 * is none; *ret_at: the moment it stands for.
 */
const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at);

/* Frees both; empty again. */
void thread_baseline_release(struct thread_baseline *baseline);

struct baseline;

/* procfd must outlive it. with_maps: mappings too. 0 or -ENOMEM. */
int baseline_new(int procfd, bool with_maps, struct baseline **ret);
void baseline_free(struct baseline *baseline);

/* Where threads and mappings are read; nowhere else than under the lock at first. */
void baseline_set_section(struct baseline *baseline, struct unlocked_section unlocked_section);

/* Mappings too from now on, or no longer: then those that are there are dropped. */
void baseline_set_maps(struct baseline *baseline, bool with_maps);

/* A scan begins. */
void baseline_scan_begin(struct baseline *baseline, mono_t now);

/* The scan met this process. True: it is new, or has run since the last scan. */
bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat);

/* And it is watched: snapshots are taken as needed. ran: what baseline_met said. */
void baseline_watched(struct baseline *baseline, const struct procfs_stat *stat, bool ran);

/*
 * Nobody asked whether it is watched, because it did not run: if it has snapshots they still hold.
 */
void baseline_unchanged(struct baseline *baseline, const struct procfs_stat *stat);

/*
 * Whether a snapshot of a watched process is still to be taken, although it may not have run, and
 * this scan has the budget for it.
 */
bool baseline_owes(const struct baseline *baseline, int32_t pid);

/* The scan is over: what it did not meet is forgotten. */
void baseline_scan_end(struct baseline *baseline);

/*
 * Copies what there is of a process; both are left empty (NULL) if there is nothing. The caller's
 * to release and free.
 */
void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps);

/*
 * Copies the CPU times of all processes as of the last whole scan. 0 or -ENOMEM (*ret is then
 * empty).
 */
int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret);

#endif
