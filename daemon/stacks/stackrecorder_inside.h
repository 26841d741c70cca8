/*
 * stackrecorder_inside.h: what the recorder's files share: its events, its thread and its snapshots.
 */
#ifndef SPIKEWATCH_STACKRECORDER_INSIDE_H
#define SPIKEWATCH_STACKRECORDER_INSIDE_H

#include "perfevents.h"
#include "perfmerge.h"
#include "perfthreads.h"
#include "stackrecorder.h"
#include "stackrecorder_faults.h"
#include "stackrecorder_plan.h"

#include <pthread.h>

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

/* ---- stackrecorder_events.c ---- */

/* Finds out what is allowed, plans, and opens rings and everybody's events. 0; -errno and then reason. */
int stackrecorder_open_events(struct stackrecorder *recorder, const struct stackrecorder_options *options,
			      char *reason);

/* What was opened, or a part of it. */
void stackrecorder_close_events(struct stackrecorder *recorder);

/* ---- stackrecorder_follow.c ---- */

/* Ready to follow, if anything can be. 0 or -ENOMEM. */
int stackrecorder_open_follow(struct stackrecorder *recorder);
void stackrecorder_close_follow(struct stackrecorder *recorder);

/* What side rings told of beginnings and ends, for the thread. Under the lock. */
void stackrecorder_note(struct stackrecorder *recorder, const struct perfrecord *record);

/* Of the thread, each time it wakes: follows another set, if there is one, and leaves those that have exited. look: at all of them. */
void stackrecorder_reconcile(struct stackrecorder *recorder, bool look);

/* ---- stackrecorder_cycles.c ---- */

/* The time that all CPUs together were busy since boot, from the text of /proc/stat. 0: it does not say. */
uint64_t stackrecorder_busy_ns(const char *text, size_t len, long ticks_per_second);
uint64_t stackrecorder_busy_now(int proc_fd);

/* Cycles for each second of busy_ns; 0: too short to say. */
uint64_t stackrecorder_cycles_per_second(uint64_t cycles, uint64_t busy_ns);

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

/* ---- stackrecorder_cgroups.c ---- */

/*
 * The cgroup that stands for a process, in the text of /proc/<pid>/cgroup, of len bytes: that of the v2 hierarchy, unless there is none or it is the
 * root; else the cpu controller's, else "/". Terminated, into path of cap bytes. False: no cgroups, or too long.
 */
bool stackrecorder_cgroup_of(const char *text, size_t len, char *path, size_t cap);

/*
 * The cgroups of snapshot->pids that run, into snapshot->cgroups and their texts into snapshot->paths; what the texts' addresses are is said by
 * stackrecorder_settle_cgroups, when paths does not grow any more. 0 or -ENOMEM.
 */
int stackrecorder_look_up_cgroups(const struct stackrecorder *recorder, struct stackrecorder_snapshot *snapshot);
void stackrecorder_settle_cgroups(struct stackrecorder_snapshot *snapshot);

/* ---- stackrecorder_files.c ---- */

struct stackrecorder_tally;

/* For snapshot->files. *ret is the caller's: stackrecorder_tally_free. 0 or -ENOMEM. */
int stackrecorder_tally_new(struct stackrecorder *recorder, struct stackrecorder_snapshot *snapshot,
			    struct stackrecorder_tally **ret);

/* Counts what files the user frames of samples were in. Takes the lock. 0 or -ENOMEM. */
int stackrecorder_tally_samples(struct stackrecorder_tally *tally, const struct perfrecord_format *format,
				const struct perfmerge *merge);

/* Adds the file of an MMAP2 record of the book's, of a process with so many stacks. 0 or -ENOMEM. */
int stackrecorder_tally_mapping(struct stackrecorder_tally *tally, const struct perfrecord *record, uint64_t stacks);

/* Sorts them, and says their paths: snapshot->paths must not grow any more. */
void stackrecorder_tally_finish(struct stackrecorder_tally *tally);
void stackrecorder_tally_free(struct stackrecorder_tally *tally);

#endif
