/*
 * mapping_history.h: which files each process had mapped at which addresses, and when. Fed with
 * what the kernel reports (perf's COMM, MMAP2, FORK, EXIT) and, for processes that were there
 * before, with their /proc/<pid>/maps. Processes that have exited are kept for a while, because
 * their samples are older than the question. Pure, bounded; not for two threads at once.
 *
 * A process is a row of lifetimes: a fork(2) or execve(2) begins one, an execve(2) or exit ends it.
 * Only executable mappings are kept. Times are those of the records: CLOCK_MONOTONIC, ns; 0 means
 * since before the history began.
 */
#ifndef SPIKEWATCH_LIB_PROC_MAPPING_HISTORY_H
#define SPIKEWATCH_LIB_PROC_MAPPING_HISTORY_H

#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero is the default. */
struct mapping_history_limits {
	size_t max_lifetimes; /* 65,536 */
	size_t max_bytes;     /* 16 MiB of the heap, beside hash tables of a fixed size */
	size_t max_mappings;  /* 4,096; of one lifetime, the oldest go first */
	size_t max_names;     /* 1,024; names of threads, of one lifetime, the oldest go first */
};

/* The first three are what there is now, the others count since it was made. */
struct mapping_history_stats {
	uint64_t lifetimes, mappings, bytes;
	uint64_t evicted; /* ended lifetimes that were freed early, to make room */
	uint64_t dropped; /* mappings, names and lifetimes for which there was no room, or no memory */
};

struct mapping_history;

/* One mapping at one time. The texts stay valid until the history changes. */
struct mapping_history_place {
	uint64_t start, end, offset;
	struct perf_record_file file;
	const char *path;
	bool running; /* this lifetime has not ended, as far as is known */
};

/* 0; -ENOMEM. *ret belongs to the caller: mapping_history_free. */
int mapping_history_new(const struct mapping_history_limits *limits, struct mapping_history **ret);

/* NULL is fine. */
void mapping_history_free(struct mapping_history *history);

/* Applies a COMM, MMAP2, FORK or EXIT record. What does not fit is dropped and counted. */
void mapping_history_feed(struct mapping_history *history, const struct perf_record *record);

/*
 * Whether everything that pid had mapped at time_ns is known. If not, seed it: with its own
 * /proc/<pid>/maps or, when it is gone, with those of *ret_parent (if that is not 0), which it was
 * forked from and whose mappings it had.
 */
bool mapping_history_knows(const struct mapping_history *history, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent);

/*
 * comm (may be NULL) and maps (the text of /proc/<pid>/maps, len bytes) of a process as it is at
 * now_ns. Nothing that is known already is changed; lines that cannot be parsed are skipped.
 */
void mapping_history_seed(struct mapping_history *history, uint32_t pid, const char *comm, const char *maps, size_t len,
			  uint64_t now_ns);

/* The name of a thread, now. Only if it has none. */
void mapping_history_seed_thread(struct mapping_history *history, uint32_t pid, uint32_t tid, const char *comm);

/* Whether the name of this thread, at this time, is known. */
bool mapping_history_knows_thread(const struct mapping_history *history, uint32_t pid, uint32_t tid, uint64_t time_ns);

/* 0 is unknown. */
struct mapping_history_origin {
	uint32_t parent;   /* the process that it was forked from */
	uint64_t began_ns; /* when this lifetime did */
};

/* Of the lifetime of pid at time_ns. */
struct mapping_history_origin mapping_history_origin(const struct mapping_history *history, uint32_t pid,
						     uint64_t time_ns);

/* What pid had mapped at address, at time_ns. False: nothing is known of it. */
bool mapping_history_find(const struct mapping_history *history, uint32_t pid, uint64_t time_ns, uint64_t address,
			  struct mapping_history_place *ret);

/* Frees what ended before before_ns: no question will be about that time. */
void mapping_history_expire(struct mapping_history *history, uint64_t before_ns);

/*
 * Writes records that describe from_ns .. to_ns of a process, in order of time:
 *   FORK (ppid 0 if unknown) where a lifetime begins by fork: nothing of what this pid had mapped
 *   before holds, and nothing is inherited
 *   COMM with PERF_RECORD_MISC_COMM_EXEC where a lifetime begins by execve: the same
 *   COMM of a process or a thread, MMAP2 (one for each mapping, also inherited ones), EXIT (tid ==
 *   pid)
 * Each write is one record. A mapping holds until another overlaps it, as far as that one reaches.
 * 0 or what the sink returned.
 */
int mapping_history_write(const struct mapping_history *history, uint32_t pid, uint64_t from_ns, uint64_t to_ns,
			  const struct sink *sink);

/* What there is and what was lost. */
void mapping_history_stats(const struct mapping_history *history, struct mapping_history_stats *ret);

#endif
