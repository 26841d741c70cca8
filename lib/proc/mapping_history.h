/*
 * mapping_history.h: what is mapped where in each of many processes, and what its threads are
 * called, kept up to date by perf records in the order of their time. Bounded: what does not fit is
 * dropped and counted, and is then not found.
 *
 * The kernel tells of mappings that are made, not of those that are removed: a mapping stays until
 * another takes its place, its process starts another program, or another process gets its number.
 * Those of a process that has ended stay while there is room.
 */
#ifndef SPIKEWATCH_LIB_PROC_MAPPING_HISTORY_H
#define SPIKEWATCH_LIB_PROC_MAPPING_HISTORY_H

#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <stddef.h>
#include <stdint.h>

/*
 * mapping_history_limits.h: how much an mapping history may hold, and what it says of it.
 */

/* Zero is the default. */
struct mapping_history_limits {
	size_t max_lives;    /* 65,536 */
	size_t max_bytes;    /* 16 MiB; all it takes from the heap */
	size_t max_mappings; /* 4,096; of one life, the oldest go first */
	size_t max_names;    /* 1,024; names of threads, of one life, the oldest go first */
	uint64_t keep_ns;    /* 120 s; a life that has ended is kept this long */
};

/* The first three are what there is now, the others count since it was made. */
struct mapping_history_stats {
	uint64_t lives, mappings, bytes;
	uint64_t evicted; /* ended lives that went before their time, to make room */
	uint64_t dropped; /* mappings, names and lives that found no room, or no memory */
};

/*
 * mapping_history.h: who had which files mapped at which addresses, and when. Fed with what the
 * kernel reports (comm, mmap2, fork, exit) and, for processes that were there before, with their
 * /proc/<pid>/maps. Keeps those that have exited for a while, because the samples of them are older
 * than the question. Pure, bounded; not for two threads at once.
 *
 * A process is a row of lives: a fork(2) or execve(2) begins one, an execve(2) or exit ends it.
 * Only what can be executed is kept. Times are those of the records: CLOCK_MONOTONIC, ns; 0 is
 * "since before anybody looked".
 */

struct mapping_history;

/* One mapping at one time. The texts stay valid until the next call that changes the book. */
struct mapping_history_place {
	uint64_t start, end, offset;
	struct perf_record_file file;
	const char *path;
	bool running; /* this life has not ended, as far as the book knows */
};

/* 0; -ENOMEM. *ret belongs to the caller: mapping_history_free. */
int mapping_history_new(const struct mapping_history_limits *limits, struct mapping_history **ret);
/* NULL is fine. */
void mapping_history_free(struct mapping_history *book);

/*
 * Takes a record: COMM, MMAP2, FORK and EXIT; others are ignored. What does not fit is dropped and
 * counted.
 */
void mapping_history_feed(struct mapping_history *book, const struct perf_record *record);

/*
 * Whether everything that pid had mapped at time_ns is known. If not, seed it: with its own
 * /proc/<pid>/maps or, when it is gone, with those of *ret_parent (if that is not 0), which it was
 * forked from and whose mappings it had.
 */
bool mapping_history_knows(const struct mapping_history *book, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent);

/*
 * comm (may be NULL) and maps (the text of /proc/<pid>/maps, len bytes) of a process as it is at
 * now_ns. Nothing that is known already is changed; lines that cannot be read are skipped.
 */
void mapping_history_seed(struct mapping_history *book, uint32_t pid, const char *comm, const char *maps, size_t len,
			  uint64_t now_ns);

/* The name of a thread, now. Only if it has none. */
void mapping_history_seed_thread(struct mapping_history *book, uint32_t pid, uint32_t tid, const char *comm);

/* Whether the name of this thread, at this time, is known. */
bool mapping_history_knows_thread(const struct mapping_history *book, uint32_t pid, uint32_t tid, uint64_t time_ns);

/*
 * When the life began that pid was in at time_ns: what was found in it before still is, unless it
 * was mapped anew. 0: unknown.
 */
uint64_t mapping_history_began(const struct mapping_history *book, uint32_t pid, uint64_t time_ns);

/* What pid had mapped at address, at time_ns. False: nothing is known of it. */
bool mapping_history_find(const struct mapping_history *book, uint32_t pid, uint64_t time_ns, uint64_t address,
			  struct mapping_history_place *ret);

/* Frees what ended more than keep_ns before now_ns. */
void mapping_history_expire(struct mapping_history *book, uint64_t now_ns);

/*
 * Writes records that tell from_ns .. to_ns of the count processes in pids, process by process,
 * each in order of time:
 *   FORK (ppid 0 if unknown) where a life begins by fork: what this pid had before is gone, nothing
 *   is inherited
 *   COMM with PERF_RECORD_MISC_COMM_EXEC where a life begins by execve: the same
 *   COMM of a process or a thread, MMAP2 (one for all that is mapped, also what was inherited), EXIT
 *   (tid == pid)
 * Each write is one record. A mapping holds until another overlaps it, as far as that one reaches.
 * 0 or what the sink returned.
 */
int mapping_history_write(const struct mapping_history *book, const uint32_t *pids, size_t count, uint64_t from_ns,
			  uint64_t to_ns, const struct sink *sink);

/* What there is and what was lost. */
void mapping_history_stats(const struct mapping_history *book, struct mapping_history_stats *ret);

#endif
