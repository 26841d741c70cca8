/*
 * stackrecorder_inside.h: what the recorder's files share: its thread and its snapshots.
 */
#ifndef SPIKEWATCH_STACKRECORDER_INSIDE_H
#define SPIKEWATCH_STACKRECORDER_INSIDE_H

#include "perfevents.h"
#include "perfmerge.h"
#include "stackrecorder.h"

#include <pthread.h>

struct stackrecorder {
	struct stackrecorder_status status; /* but for side_lost, side_wakeups and book: as it was opened */
	struct perfevents *samples, *side;  /* status.cpus of each */
	int proc_fd;
	bool proc_owned;
	uint64_t opened_ns;
	int stop_fd;
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* of all below, and of emptying the side rings */
	struct addressbook *book;
	struct perfmerge pending, kept; /* records of the side rings that are not in the book yet */
	void *scratch;
	uint64_t side_lost, side_wakeups;
};

/* A process that samples hit. */
struct stackrecorder_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* of its first sample */
};

#define STACKRECORDER_FORMAT ((struct perfrecord_format){ .sample_type = PERFRECORD_FRAME_POINTERS })

/*
 * Everything that the side rings hold goes into the book, in the order of time over all CPUs. What came within the last moment, whose
 * predecessors from other CPUs may still be on their way, waits for the next time. Takes the lock.
 */
void stackrecorder_drain(struct stackrecorder *recorder);

/* Looks up in /proc what the book does not know of these threads, and of those they were forked from. Takes the lock. */
void stackrecorder_look_up(struct stackrecorder *recorder, const struct stackrecorder_hit *hits, size_t count);

/* Counts into snapshot->files what files the user frames of the samples in merge were in. Takes the lock. 0 or -ENOMEM. */
int stackrecorder_count_files(struct stackrecorder *recorder, const struct perfmerge *merge,
			      struct stackrecorder_snapshot *snapshot);

#endif
