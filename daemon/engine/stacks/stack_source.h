/* stack_source.h: what the files of stack_recorder share. */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_SOURCE_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_SOURCE_H

#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/stacks/thread_events.h"
#include "lib/model/pacing.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <poll.h>
#include <pthread.h>

struct stackrecorder_faults;

/*
 * For who looks at the rings, any thread: what samples until now stand for is settled; what one of ring number `ring` and of time_ns does; and how many
 * faults were counted.
 */
void stackrecorder_faults_settle(struct stackrecorder_faults *faults);
uint64_t stackrecorder_faults_weigh(struct stackrecorder_faults *faults, unsigned ring, uint64_t time_ns);
void stackrecorder_faults_sum_up(struct stackrecorder_faults *faults, uint64_t from_ns, uint64_t to_ns,
				 struct thinning_summary *ret);

/* All events of a kind; that of STACKFILE_BOOK are the side rings. */
struct stackrecorder_kind {
	bool on;
	bool followed; /* by events on threads; else everybody's */
	bool apart;    /* its rings have no events: followed, or stackrecorder_faults.h's */
	struct perfevents_wanted wanted;
	struct perfrecord_format format;  /* of the rings */
	struct perfrecord_format written; /* of snapshots: with a period in any case */
	uint64_t ring_bytes;
	struct perfevents *rings; /* status.cpus of them */
};

struct stackrecorder {
	struct stackrecorder_status status; /* but for what is below: as it was opened */
	struct stackrecorder_kind kinds[STACKFILE_STREAM_KINDS];
	int proc_fd;
	bool proc_owned;
	uint64_t opened_ns;
	uint64_t opened_busy_ns; /* of all CPUs since boot, at opened_ns; 0: not known */
	int wake_fd;
	struct stackrecorder_faults *faults; /* NULL: there are no samples of them */
	pthread_t thread;
	bool running;

	/* the thread's alone */
	struct perfthreads *threads; /* NULL: nothing can be followed, or need be */
	struct perfthreads_output outputs[STACKFILE_STREAM_KINDS];
	size_t output_count;

	pthread_mutex_t lock; /* of all below, and of emptying the side rings */
	bool stopping, follow_changed;
	uint32_t *follow; /* what stackrecorder_follow was given last, in its order */
	size_t follow_count;
	struct perfthreads_status followed;
	uint64_t followed_units; /* units_per_second of those */
	struct perfthreads_note *notes;
	size_t note_count, note_cap;
	bool take_notes;
	struct addressbook *book;
	struct perfmerge pending, kept; /* records of the side rings that are not in the book yet */
	void *scratch;
	uint64_t side_lost, side_wakeups;
};

/* A process that samples hit. */
struct stackrecorder_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* of its first sample */
	uint32_t stacks;  /* how many of its samples have them; more of what is followed */
};

/* Of side rings, and of all that the book writes. */
#define STACKRECORDER_FORMAT ((struct perfrecord_format){ .sample_type = PERFRECORD_FRAME_POINTERS })

/* units_per_second of a kind's samples. Takes the lock. */
uint64_t stackrecorder_units(struct stackrecorder *recorder, enum stackfile_stream_kind kind);

/* ---- stackrecorder.c ---- */

/*
 * Everything that the side rings hold goes into the book, in the order of time over all CPUs. What came within the last moment, whose
 * predecessors from other CPUs may still be on their way, waits for the next time. Takes the lock.
 */
void stackrecorder_drain(struct stackrecorder *recorder);

/* ---- stackrecorder_seed.c ---- */

/* Looks up in /proc what the book does not know of these threads, and of those they were forked from. Takes the lock. */
void stackrecorder_look_up(struct stackrecorder *recorder, const struct stackrecorder_hit *hits, size_t count);

#endif
