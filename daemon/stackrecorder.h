/*
 * stackrecorder.h: the CPU profile of the last seconds, always at hand: one overwriting perf ring per CPU that nobody reads until an incident
 * asks, and beside it a thread that keeps book of who had which files mapped (addressbook.h).
 *
 * All functions but stackrecorder_status belong to one thread. Needs CAP_PERFMON (or CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1),
 * and CAP_IPC_LOCK or kernel.perf_event_mlock_kb for the rings.
 */
#ifndef SPIKEWATCH_STACKRECORDER_H
#define SPIKEWATCH_STACKRECORDER_H

#include "addressbook.h"
#include "perfrecord.h"
#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stackrecorder;

/* Zero is the default. */
struct stackrecorder_options {
	uint32_t frequency;  /* 99; samples per second of each CPU */
	uint64_t ring_bytes; /* 1 MiB; of each CPU, rounded up to a power of two */
	uint64_t
		max_memory_bytes; /* 64 MiB; rings and book. Rings are halved until they fit into three quarters of it */
	int proc_fd;              /* of /proc, borrowed, must outlive it; 0: /proc is opened */
};

#define STACKRECORDER_REASON_MAX 200

/*
 * Opens events and rings and starts the thread. 0; -ENOMEM; -errno, and then reason, of STACKRECORDER_REASON_MAX bytes, says it for people:
 * "perf_event_open: Permission denied; kernel.perf_event_paranoid is 2". A CPU that is offline is left out; one that comes later is not
 * sampled. *ret belongs to the caller: stackrecorder_close.
 */
int stackrecorder_open(const struct stackrecorder_options *options, struct stackrecorder **ret, char *reason);

/* Ends the thread and gives everything back. NULL is fine. */
void stackrecorder_close(struct stackrecorder *recorder);

/* A file that samples of a snapshot were in. */
struct stackrecorder_file {
	struct perfrecord_file file;
	const char *path;    /* as its process saw it: below /proc/<pid>/root; in the snapshot */
	uint32_t pid;        /* one that had it mapped, and still has if any of them does, as far as the book knows */
	uint64_t start, end; /* of that mapping: /proc/<pid>/map_files/<start>-<end> */
	uint64_t frames;     /* how often: they are sorted by it, most first */
};

/* {0} is empty. */
struct stackrecorder_snapshot {
	struct buffer records; /* ordered by time, as stackfile.h wants them: of the book, then SAMPLE and LOST */
	struct stackrecorder_file *files;
	size_t file_count;
	uint32_t *pids; /* of the samples, ascending, without 0 */
	size_t pid_count;
	uint64_t from_ns, to_ns; /* what was asked for, and not after it was taken */
	uint64_t covered_ns;     /* from here on every CPU's ring held everything; >= from_ns */
	uint64_t samples;
	uint64_t lost;       /* by the kernel's count, in what was recovered */
	uint64_t left_out;   /* bytes of records that did not fit into max_bytes, or samples that made no sense */
	uint64_t unmapped;   /* processes in pids of which nothing is known: they came and went unseen */
	uint64_t paused_ns;  /* the longest that one CPU's output was paused */
	unsigned cpus, torn; /* rings read, and those whose oldest records made no sense */
	struct buffer paths;
};

/*
 * What the rings hold of from_ns .. to_ns (CLOCK_MONOTONIC; to_ns UINT64_MAX: until now), merged, with what the book knows of the processes in
 * it; of those that run since before the recorder, their /proc/<pid>/maps and comm is read now. max_bytes (0: 64 MiB) bounds the records.
 * Recording goes on; nothing is consumed, a second snapshot may overlap. Cost: a copy of the rings, one after the other, each paused for the
 * while. 0; -ENOMEM; -errno. *ret belongs to the caller: stackrecorder_snapshot_release.
 */
int stackrecorder_snapshot(struct stackrecorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			   struct stackrecorder_snapshot *ret);

/* {0} is fine. */
void stackrecorder_snapshot_release(struct stackrecorder_snapshot *snapshot);

struct stackrecorder_status {
	unsigned cpus;         /* that are sampled */
	unsigned cpus_missing; /* online when it was opened, and refused (or gone meanwhile) */
	uint32_t frequency;    /* as asked for, or what the kernel allows (kernel.perf_event_max_sample_rate) */
	uint64_t period_ns;    /* between two samples of a busy CPU */
	uint64_t sample_type;  /* perfrecord_format */
	uint64_t ring_bytes;   /* of each CPU, as it came out */
	uint64_t memory_bytes; /* all rings */
	uint64_t side_lost;    /* records of mappings that the kernel had no room for: the thread came too late */
	uint64_t side_wakeups; /* of the thread */
	bool build_ids;        /* the kernel (5.12) says build ids */
	struct addressbook_stats book;
};

/* Any thread. */
void stackrecorder_status(struct stackrecorder *recorder, struct stackrecorder_status *ret);

#endif
