/*
 * stack_recorder.h: which of the watched processes get events of their own (stack_recorder_follow):
 * all, or the busiest if they are many. Fed by the scans of discovery, under whose lock it stands.
 * Where nobody asks there is none: all but thread_selection_new take NULL, and do nothing.
 *
 * 	thread_selection_begin ─▶ thread_selection_met for every process ─▶ thread_selection_end: the
 *  set, handed on if it is another than before
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_RECORDER_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_RECORDER_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/pacing.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/profile/stack_file.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * stack_recorder.h: who burned the CPU and who touched new memory in the last seconds, always at
 * hand: overwriting perf rings, one per CPU and kind of sample, that nobody reads until an incident
 * asks; and beside them a thread that keeps book of who had which files mapped (mapping_history.h).
 *
 * 	everybody's events  one per CPU, call chains by frame pointers; of page faults with registers and
 *  a copy of the stack if `dwarf`.
 * 	                    Take CAP_PERFMON (or CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1)
 * 	followed            one per thread and CPU of the processes of stack_recorder_follow, with what
 *                      they start; with registers and stack
 * 	                    if `dwarf`. Without the privilege they are all there is: of processes that may be traced, user
 *                      stacks only
 *
 * Where page faults come faster than they may be counted, the samples stand for all of them
 * (stack_recorder_faults.h).
 *
 * Rings take CAP_IPC_LOCK, or room in kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK. All functions
 * but stack_recorder_status and stack_recorder_follow belong to one thread.
 */

#define STACK_RECORDER_REASON_MAX 200

struct stack_recorder;

/* Zero is the default. */
struct stack_recorder_options {
	/*
	 * 99; samples per second of each CPU that is busy, of each kind; of page faults: while
	 * there are 100,000 a second, each of 1,011 of them
	 */
	uint32_t frequency;
	uint64_t before_ns; /* 15 s; what rings of automatic size have to hold of a CPU that is busy */
	/*
	 * 0: by before_ns. Of each CPU's ring of everybody's CPU samples, rounded up to a power of
	 * two
	 */
	uint64_t ring_bytes;
	/*
	 * 64 MiB; book and rings, which get three quarters: those of stacks are halved first, then
	 * all others: see stack_recorder_plan.c
	 */
	uint64_t max_memory_bytes;
	uint32_t stack_bytes; /* 8192; what is copied of a followed thread's stack, 1 KiB to 32 KiB, a multiple of 8 */
	/*
	 * followed threads with registers and stack. What cannot be afforded falls back to frame
	 * pointers
	 */
	bool dwarf;
	bool cycles;         /* CPU samples by the hardware's cycles where it has them */
	bool without_faults; /* no samples of page faults */
	bool followed_only;  /* as without the privilege; for tests */
	int proc_fd;         /* of /proc, borrowed, must outlive it; 0: /proc is opened */
};

/*
 * Opens events and rings and starts the thread. 0; -ENOMEM; -errno, and then reason, of
 * STACK_RECORDER_REASON_MAX bytes, says it for people: "perf_event_open: Permission denied;
 * kernel.perf_event_paranoid is 2". Where only everybody's events are not allowed it is 0, and
 * reason says why they are not; else "". A CPU that is offline is left out; one that comes later is
 * not sampled. *ret belongs to the caller: stack_recorder_close.
 */
int stack_recorder_open(const struct stack_recorder_options *options, struct stack_recorder **ret, char *reason);

/* Ends the thread and gives everything back. NULL is fine. */
void stack_recorder_close(struct stack_recorder *recorder);
CLEANUP(stack_recorder, close);

/* A file that samples of a snapshot were in. */
struct stack_recorder_file {
	struct perf_record_file file;
	const char *path;    /* as its process saw it: below /proc/<pid>/root; in the snapshot */
	uint32_t pid;        /* one that had it mapped, and still has if any of them does, as far as the book knows */
	uint64_t start, end; /* of that mapping: /proc/<pid>/map_files/<start>-<end> */
	/*
	 * How often in call chains, and how many stacks there are of processes that have it mapped,
	 * those of followed ones counting as 16: they are sorted by the sum, most first.
	 */
	uint64_t frames, stacks;
};

/* Samples of one kind. */
struct stack_recorder_stream {
	struct stack_file_stream head; /* record_bytes is that of records */
	struct buffer records;         /* ordered by time; see stack_file.h */
	uint64_t samples;
	uint64_t left_out;    /* bytes of records that did not fit into max_bytes, or samples that made no sense */
	uint64_t paused_ns;   /* the longest that one CPU's output was paused */
	unsigned rings, torn; /* read, and those whose oldest records made no sense */
};

/* {0} is empty. */
struct stack_recorder_snapshot {
	struct stack_recorder_stream streams[STACK_FILE_STREAM_KINDS]; /* the book's first */
	size_t stream_count;
	struct stack_recorder_file *files;
	size_t file_count;
	uint32_t *pids; /* of the samples, ascending, without 0 */
	size_t pid_count;
	/*
	 * of pids that still run, ascending; as /proc/<pid>/cgroup has it: see stack
	 * recorder_cgroups.c which line
	 */
	struct stack_file_cgroup *cgroups;
	size_t cgroup_count;
	uint64_t from_ns, to_ns; /* what was asked for, and not after it was taken */
	struct overload_sampling_summary
		faults;      /* how many of all page faults were counted; the samples stand for all of them */
	uint64_t unmapped;   /* processes in pids of which nothing is known: they came and went unseen */
	struct buffer paths; /* texts of files and cgroups */
};

/*
 * What the rings hold of from_ns .. to_ns (CLOCK_MONOTONIC; to_ns UINT64_MAX: until now), merged,
 * with what the book knows of the processes in it; of those that run since before the recorder,
 * their /proc/<pid>/maps and comm is read now. max_bytes (0: 64 MiB) bounds the records. Recording
 * goes on; nothing is consumed, a second snapshot may overlap. Cost: a copy of the rings, one after
 * the other, each paused for the while. 0; -ENOMEM; -errno. *ret belongs to the caller:
 * stack_recorder_snapshot_release.
 */
int stack_recorder_snapshot(struct stack_recorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			    struct stack_recorder_snapshot *ret);

/* {0} is fine. */
void stack_recorder_snapshot_release(struct stack_recorder_snapshot *snapshot);

/*
 * From now on the threads of these processes have events of their own, and so has what they start;
 * replaces the set. The recorder's thread opens and closes them soon after; the same set in the
 * same order again changes nothing. 256 processes, 4096 descriptors and no more than a quarter of
 * RLIMIT_NOFILE: each thread takes one for each CPU and kind of event. A process is followed as a
 * whole or not; those that come first are tried first, and what did not fit is in the status, and
 * tried again when the set changes. A process that was started by a followed one has inherited its
 * events and takes none of its own until that one leaves the set. Where everybody's events are
 * there and `dwarf` is not, nothing is followed. Any thread. 0 or -ENOMEM.
 */
int stack_recorder_follow(struct stack_recorder *recorder, const uint32_t *pids, size_t count);

struct stack_recorder_status {
	bool everybody;      /* has everybody's events; if not, the reason of stack_recorder_open says why */
	bool dwarf;          /* followed threads have registers and stack */
	bool kernel;         /* call chains have the kernel's part */
	int faults_error;    /* why there are no samples of them any more on some CPU: -errno; 0: there are */
	bool faults, cycles; /* there are samples of page faults; CPU samples are by the hardware's cycles */
	/* what was asked for and is not so, and why, for people; "" if nothing */
	char limits[STACK_RECORDER_REASON_MAX];
	unsigned followed_processes, followed_threads; /* at present, not counting what they started since */
	unsigned not_followed; /* processes that were asked for, run, and have no events: no room or not allowed */
	unsigned cpus;         /* that are sampled */
	unsigned cpus_missing; /* online when it was opened, and refused (or gone meanwhile) */
	uint64_t opened_ns;    /* recording began; CLOCK_MONOTONIC */
	uint32_t frequency;    /* as asked for, or what the kernel allows (kernel.perf_event_max_sample_rate) */
	uint64_t ring_bytes;   /* of each CPU, all kinds together, as it came out */
	uint64_t memory_bytes; /* all rings */
	uint64_t side_lost;    /* records of mappings that the kernel had no room for: the thread came too late */
	uint64_t side_wakeups; /* of the thread */
	bool build_ids;        /* the kernel (5.12) says build ids */
	struct mapping_history_stats book;
};

/* Any thread. */
void stack_recorder_status(struct stack_recorder *recorder, struct stack_recorder_status *ret);

/*
 * stack_recorder_faults.h: the events that sample page faults, and that they cost no more than they
 * may: switched off for a while where there are too many, and what the samples stand for then. The
 * recorder's.
 */

/*
 * The faults that all CPUs together have handled, in the text of /proc/vmstat. False: it does not
 * say.
 */
bool stack_recorder_faults_total(const char *text, size_t len, uint64_t *ret);

/*
 * How many samples of events wake whoever waits for them, and in what time they may come: what
 * struct overload_sampling_options wants.
 */
struct overload_sampling_options stack_recorder_faults_limits(uint64_t period);

/*
 * stack_recorder_plan.h: how large which rings are. Pure.
 */

struct stack_recorder_plan {
	uint64_t ring_bytes
		[STACK_FILE_STREAM_KINDS]; /* of each CPU, powers of two; STACK_FILE_BOOK: the side ring. 0: none */
	bool dwarf;                        /* those of followed threads have room for stacks */
};

struct stack_recorder_needs {
	const struct stack_recorder_options *options;
	unsigned cpus;
	uint32_t frequency;
	bool everybody; /* there are everybody's events: followed ones only for dwarf */
	bool dwarf;     /* asked for, and possible here */
	uint64_t most;  /* bytes of all CPUs; 0: three quarters of options->max_memory_bytes */
};

/* The most memory that recorder and rings may take; and what of it rings may. */
uint64_t stack_recorder_plan_memory(const struct stack_recorder_options *options);

/* All rings of a CPU together. */
uint64_t stack_recorder_plan_bytes(const struct stack_recorder_plan *plan);

/*
 * The largest rings that fit. 0; -ENOSPC: not even the smallest do, and then reason, of
 * STACK_RECORDER_REASON_MAX bytes, says it for people. A plan that the kernel has no room for is
 * followed by the one with needs->most one less than it took.
 */
int stack_recorder_plan(const struct stack_recorder_needs *needs, struct stack_recorder_plan *ret, char *reason);

/*
 * stack recorder_inside.h: what the recorder's files share: its events, its thread and its
 * snapshots.
 */

/* ---- stack recorder_cycles.c ---- */

/*
 * The time that all CPUs together were busy since boot, from the text of /proc/stat. 0: it does not
 * say.
 */
uint64_t stack_recorder_busy_ns(const char *text, size_t len, long ticks_per_second);

/* Cycles for each second of busy_ns; 0: too short to say. */
uint64_t stack_recorder_cycles_per_second(uint64_t cycles, uint64_t busy_ns);

/* ---- stack recorder_cgroups.c ---- */

/*
 * The cgroup that stands for a process, in the text of /proc/<pid>/cgroup, of len bytes: that of
 * the v2 hierarchy, unless there is none or it is the root; else the cpu controller's, else "/".
 * Terminated, into path of cap bytes. False: no cgroups, or too long.
 */
bool stack_recorder_cgroup_of(const char *text, size_t len, char *path, size_t cap);

/* So many at a time: each of their threads takes descriptors on every CPU. */
#define THREAD_SELECTION_MAX 256u

/* Processes among which those are chosen; more are not looked at. */
#define THREAD_SELECTION_CANDIDATES_MAX 16384u

struct thread_selection;

/* Takes the whole set, ascending; the pids are its for the call. */
typedef void thread_selection_take(void *ctx, const uint32_t *pids, size_t count);

/* 0 or -ENOMEM. */
int thread_selection_new(thread_selection_take *take, void *ctx, struct thread_selection **ret);

/* Its memory. */
void thread_selection_free(struct thread_selection *thread_selection);

/* A scan begins; it may follow one that was given up. */
void thread_selection_begin(struct thread_selection *thread_selection);

/*
 * The scan met this process. watched: it is a target, or belongs to one. False may also mean that
 * nobody asked, because it did not run since the last scan: who was watched then still is.
 */
void thread_selection_met(struct thread_selection *thread_selection, const struct procfs_stat *stat, bool watched);

/* The scan is over: who was not met is gone. */
void thread_selection_end(struct thread_selection *thread_selection);

/* What is watched is another by now: nobody is until the next scan says so. */
void thread_selection_forget(struct thread_selection *thread_selection);

#endif
