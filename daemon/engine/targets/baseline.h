/*
 * baseline.h: snapshots of CPU use and memory, and those of a moment ago: CPU per thread and
 * mappings of watched processes, CPU of every process of the host. Captures are compared with these,
 * so that an incident can say what a thread did *before* the trigger.
 *
 * Baselines are updated by the scans of discovery, under its lock. A process that has not run since
 * the last scan costs nothing: its last snapshot is still valid. Each scan has a budget of threads
 * and of mappings; what does not fit is left to the next.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_BASELINE_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_BASELINE_H

#include "daemon/engine/base/foreign.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "lib/base/base.h"
#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * How much CPU time every process of the machine had used at a moment: the difference of two names
 * the busy ones. Built by a scan of discovery, or by one of its own (3 µs per process).
 */

struct busy_record {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t cpu_ticks; /* user + system */
};

struct busy_snapshot {
	mono_t taken;
	size_t count, room;
	size_t left_out;             /* processes, beyond the limit or for lack of memory */
	struct busy_record *records; /* sorted by pid */
};

/* Frees its memory; empty and legal again. */
static inline void busy_snapshot_release(struct busy_snapshot *snapshot)
{
	free(snapshot->records);
	*snapshot = (struct busy_snapshot){ 0 };
}

/* The record with this pid and start time, or NULL. */
const struct busy_record *busy_snapshot_find(const struct busy_snapshot *snapshot, int32_t pid, uint64_t start_ticks);

/*
 * Reads stat of every process below procfd and calls visit until it returns non-zero, which is
 * returned. The stat's comm is valid during the call. 0; -errno: the proc root cannot be read.
 */
int busy_snapshot_scan(int procfd, int (*visit)(void *ctx, const struct procfs_stat *stat), void *ctx);

/*
 * How much CPU time each thread of a process had used at a moment: the difference of two names the
 * busy ones. Costs 5 µs per thread: taken about once a second, of processes that ran.
 */

struct thread_record {
	int32_t tid;
	char state;           /* R S D Z T ... */
	char name[16];        /* NUL-terminated; may hold any byte */
	uint64_t start_ticks; /* tells a reused tid */
	uint64_t cpu_ns;      /* schedstat, or user + system where that is missing */
	uint64_t wait_ns;     /* schedstat: runnable, but not running; UINT64_MAX: not known */
	uint64_t user_ns;     /* stat, in clock ticks of 10 ms */
	uint64_t system_ns;
};

struct thread_snapshot {
	mono_t taken;
	mono_t valid_until; /* no thread ran from `taken` until then */
	size_t count;       /* records, sorted by tid */
	size_t unlisted;    /* threads beyond THREAD_SNAPSHOT_MAX */
	struct thread_record records[];
};

/* For free(3). 0; -ESRCH: gone; -ENOMEM; -errno. start_ticks as in pid_directory_open. */
int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret);

/* The record with the tid and start time of *thread, or NULL. */
const struct thread_record *thread_snapshot_find(const struct thread_snapshot *snapshot,
						 const struct thread_record *thread);

/* The last two snapshots of a process, so that one is old enough at any moment. {0} is empty. */
struct thread_baseline {
	struct thread_snapshot *older;
	struct thread_snapshot *newer;
};

/*
 * The younger snapshot that is at least min_age_ns old, or else the oldest; NULL if there is none.
 * *ret_at: the moment that it is valid for, nearest to that age.
 */
const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at);

/* Frees both; empty again. */
void thread_baseline_release(struct thread_baseline *baseline);

/*
 * The memory that a process had mapped at a moment, summed by what is mapped (path
 * or [heap], [stack], [anon], and permissions).
 *
 * The kernel holds the process' mmap lock while it reads a page table: meanwhile the process can
 * neither map memory nor, on older kernels, take a page fault. No part of this holds the lock for
 * longer than half a millisecond or so, and the process gets the lock between two parts.
 */

/* Different names beyond are summed into one record called "[other]". */
#define MAPS_SNAPSHOT_MAX 512

struct maps_record {
	char name[112];      /* cut at the front; may hold any byte but NUL */
	char permissions[5]; /* "rw-p" */
	uint32_t mappings;
	uint64_t rss_bytes;
	uint64_t swap_bytes;
	uint64_t pss_bytes;           /* 0 if by_pages */
	uint64_t private_dirty_bytes; /* 0 if by_pages */
};

struct maps_snapshot {
	mono_t taken;
	bool by_pages;   /* the process is too large for smaps */
	bool left_out;   /* too large to be read in the CPU time: there are no records */
	uint64_t cpu_ns; /* CPU time that it took */
	size_t count;    /* unsorted */
	struct maps_record records[];
};

/*
 * Of the memory of a small process smaps says all; of a larger one the page tables are read,
 * which takes 15 ns a page by PAGEMAP_SCAN (Linux 6.7) and 50 ns by /proc/<pid>/pagemap. cpu_ns: of
 * the child that reads at most. *ret is for free(3). 0; -ESRCH: gone; -EACCES: not allowed to look;
 * -ENOENT: the kernel has no such files; -ENOMEM; -errno; -ETIMEDOUT, -EBUSY: as in foreign.h.
 */
int maps_snapshot_take(enum foreign_lane lane, int procfd, int32_t pid, uint64_t start_ticks, mono_t now,
		       uint64_t cpu_ns, struct maps_snapshot **ret);

/* The record of the same name and permissions, NULL if there is none. */
const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like);

struct baseline;

/*
 * procfd must outlive it. with_maps: mappings too. section: in which threads and mappings are read;
 * NULL: none. 0 or -ENOMEM.
 */
int baseline_new(int procfd, bool with_maps, const struct unlocked_section *section, struct baseline **ret);
void baseline_free(struct baseline *baseline);

/* Whether mappings are read from now on; if not, those there are dropped. */
void baseline_set_maps(struct baseline *baseline, bool with_maps);

/* A scan begins. */
void baseline_scan_begin(struct baseline *baseline, mono_t now);

/* The scan met this process. True: it is new, or has run since the last scan. */
bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat);

/*
 * After that. watched: takes snapshots as needed (ran: what baseline_met returned). Else snapshots
 * that there are of it remain valid. Also between scans, of one that ran: then its threads are looked at again
 * if the last scan was some seconds ago.
 */
void baseline_update(struct baseline *baseline, const struct procfs_stat *stat, mono_t now, bool watched, bool ran);

/* Whether a snapshot is to be taken even if the process has not run, and the budget allows it. */
bool baseline_owes(const struct baseline *baseline, int32_t pid);

/* The scan is over: forgets processes that it did not meet. */
void baseline_scan_end(struct baseline *baseline);

/* Copies those of a process, for the caller to release and free; empty and NULL if none. */
void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps);

/* Copies the last whole busy snapshot. 0; -ENOMEM: *ret is empty. */
int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret);

#endif
