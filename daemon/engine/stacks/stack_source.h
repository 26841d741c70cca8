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

struct stack_recorder_faults;

/*
 * For who looks at the rings, any thread: what samples until now stand for is settled; what one of
 * ring number `ring` and of time_ns does; and how many faults were counted.
 */
void stack_recorder_faults_settle(struct stack_recorder_faults *faults);
uint64_t stack_recorder_faults_weigh(struct stack_recorder_faults *faults, unsigned ring, uint64_t time_ns);
void stack_recorder_faults_sum_up(struct stack_recorder_faults *faults, uint64_t from_ns, uint64_t to_ns,
				  struct overload_sampling_summary *ret);

/* All events of a kind; that of STACK_FILE_BOOK are the side rings. */
struct stack_recorder_kind {
	bool on;
	bool followed; /* by events on threads; else everybody's */
	bool apart;    /* its rings have no events: followed, or stack_recorder_faults.h's */
	struct perf_events_wanted wanted;
	struct perf_record_format format;  /* of the rings */
	struct perf_record_format written; /* of snapshots: with a period in any case */
	uint64_t ring_bytes;
	struct perf_events *rings; /* status.cpus of them */
};

struct stack_recorder {
	struct stack_recorder_status status; /* but for what is below: as it was opened */
	struct stack_recorder_kind kinds[STACK_FILE_STREAM_KINDS];
	int proc_fd;
	bool proc_owned;
	uint64_t opened_ns;
	uint64_t opened_busy_ns; /* of all CPUs since boot, at opened_ns; 0: not known */
	int wake_fd;
	struct stack_recorder_faults *faults; /* NULL: there are no samples of them */
	pthread_t thread;
	bool running;

	/* the thread's alone */
	struct thread_events *threads; /* NULL: nothing can be followed, or need be */
	struct thread_events_output outputs[STACK_FILE_STREAM_KINDS];
	size_t output_count;

	pthread_mutex_t lock; /* of all below, and of emptying the side rings */
	bool stopping, follow_changed;
	uint32_t *follow; /* what stack_recorder_follow was given last, in its order */
	size_t follow_count;
	struct thread_events_status followed;
	uint64_t followed_units; /* units_per_second of those */
	struct thread_events_note *notes;
	size_t note_count, note_cap;
	bool take_notes;
	struct mapping_history *book;
	struct perf_merge pending, kept; /* records of the side rings that are not in the book yet */
	void *scratch;
	uint64_t side_lost, side_wakeups;
};

/* A process that samples hit. */
struct stack_recorder_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* of its first sample */
	uint32_t stacks;  /* how many of its samples have them; more of what is followed */
};

/* Of side rings, and of all that the book writes. */
#define STACK_RECORDER_FORMAT ((struct perf_record_format){ .sample_type = PERF_RECORD_FRAME_POINTERS })

/* units_per_second of a kind's samples. Takes the lock. */
uint64_t stack_recorder_units(struct stack_recorder *recorder, enum stack_file_stream_kind kind);

/* ---- stack_recorder.c ---- */

/*
 * Everything that the side rings hold goes into the book, in the order of time over all CPUs. What
 * came within the last moment, whose predecessors from other CPUs may still be on their way, waits
 * for the next time. Takes the lock.
 */
void stack_recorder_drain(struct stack_recorder *recorder);

/* ---- stack recorder_seed.c ---- */

/*
 * Looks up in /proc what the book does not know of these threads, and of those they were forked
 * from. Takes the lock.
 */
void stack_recorder_look_up(struct stack_recorder *recorder, const struct stack_recorder_hit *hits, size_t count);

#endif
