/*
 * stack_source.h: what the recorder lends to stack_snapshot.c while it reads the rings: the rings
 * of each kind, the mapping history with its lock, the /proc descriptor, and what page faults stand
 * for. For that file alone; on the thread that owns the recorder.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_SOURCE_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_SOURCE_H

#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/model/pacing.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <pthread.h>

/* All events of a kind; those of STACK_FILE_SIDEBAND are the side-band rings. Constant. */
struct stack_source_kind {
	bool on;
	bool followed; /* by events on threads; else system-wide */
	bool apart;    /* its rings have no event of their own: per-thread events or page faults write to them */
	struct perf_events_wanted wanted;
	struct perf_record_format format;  /* of the rings */
	struct perf_record_format written; /* of snapshots: always with a period */
	uint64_t ring_bytes;
	struct perf_events *rings; /* one for each CPU */
};

/* All constant while the recorder is open, but for what history holds. */
struct stack_source {
	struct stack_recorder *recorder;
	const struct stack_source_kind *kinds; /* STACK_FILE_STREAM_KINDS of them */
	unsigned cpus;
	uint64_t opened_ns;
	int proc_fd;
	pthread_mutex_t *lock; /* to be held for every call of history */
	struct mapping_history *history;
};

/* A thread that samples hit. */
struct stack_source_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* of its first sample */
	uint32_t stacks;  /* how many of its samples have them; more of what is followed */
};

/* What it lends; valid as long as the recorder. */
struct stack_source stack_source_of(struct stack_recorder *recorder);

/* The units_per_second of a kind's samples. Takes the lock. */
uint64_t stack_source_units(const struct stack_source *source, enum stack_file_stream_kind kind);

/*
 * Empties the side-band rings into the history, then looks up in /proc what it does not know of
 * these threads, sorted by pid, and of the processes they were forked from. Takes the lock.
 */
void stack_source_look_up(const struct stack_source *source, const struct stack_source_hit *hits, size_t count);

/*
 * Page faults from from_ns to to_ns: how many were counted, of how many. From now on samples until
 * now have their final weight. Zero if they are not sampled.
 */
void stack_source_faults(const struct stack_source *source, uint64_t from_ns, uint64_t to_ns,
			 struct overload_sampling_summary *ret);

/* How many page faults a sample of time_ns in the ring of this number stands for. */
uint64_t stack_source_fault_weight(const struct stack_source *source, unsigned ring, uint64_t time_ns);

#endif
