/*
 * stack_recorder.h: call stacks of what ran and of what touched new memory in the last seconds,
 * always at hand: overwriting perf rings, one per CPU and kind of sample, that are only read when
 * an incident asks; and beside them a thread that keeps the mapping history
 * (lib/proc/mapping_history.h) from the kernel's side-band records.
 *
 * system-wide events  one per CPU, call chains by frame pointers; those of page faults with
 *                     registers and a copy of the stack if `dwarf`. They take CAP_PERFMON (or
 *                     CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1)
 * per-thread events   one per thread and CPU of the processes of stack_recorder_follow and of their
 *                     children; with registers and stack if `dwarf`. Without the privilege they are
 *                     all there is: of processes that may be traced, user stacks only
 *
 * Where page faults come faster than they may be counted, the samples stand for all of them.
 *
 * Rings take CAP_IPC_LOCK, or room in kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK. All functions
 * but stack_recorder_status, stack_recorder_follow and stack_recorder_keep belong to one thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_RECORDER_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_RECORDER_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/pacing.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STACK_RECORDER_REASON_MAX 200

struct stack_recorder;

/* Zero is the default. */
struct stack_recorder_options {
	uint32_t frequency;  /* 99; samples a second of each busy CPU and kind; of page faults each 1,011th */
	uint64_t before_ns;  /* 15 s; what rings of automatic size have to hold of a busy CPU */
	uint64_t ring_bytes; /* by before_ns; of each CPU's system-wide CPU samples, rounded up to a power of two */
	uint64_t max_memory_bytes; /* 64 MiB; an eighth for the mapping history, three quarters for the rings */
	uint32_t stack_bytes;      /* 8192; copied of a followed thread's stack, 1 KiB to 32 KiB, a multiple of 8 */
	bool dwarf;                /* registers and stack where there is room for them, else frame pointers */
	bool cycles;               /* CPU samples by the hardware's cycles where it has them */
	bool without_faults;       /* no samples of page faults */
	bool followed_only;        /* as without the privilege; for tests */
	int proc_fd;               /* of /proc, borrowed, must outlive it; 0: /proc is opened */
	const char *cgroup_root;   /* where cgroup v2 is mounted: samples say their cgroup; NULL: nowhere */
};

/*
 * Opens events and rings and starts the thread. 0; -ENOMEM; -errno, and then reason, of
 * STACK_RECORDER_REASON_MAX bytes, is a message: "perf_event_open: Permission denied;
 * kernel.perf_event_paranoid is 2". Where only system-wide events are not allowed it is 0, and
 * reason says why; else "". A CPU that is offline is left out; one that comes online later is not
 * sampled. *ret belongs to the caller: stack_recorder_close.
 */
int stack_recorder_open(const struct stack_recorder_options *options, struct stack_recorder **ret, char *reason);

/* Ends the thread, closes the events and frees everything. NULL is fine. */
void stack_recorder_close(struct stack_recorder *recorder);
CLEANUP(stack_recorder, close);

/* A file that samples of a snapshot were in. */
struct stack_recorder_file {
	struct perf_record_file file;
	const char *path;    /* as its process saw it: below /proc/<pid>/root; in the snapshot */
	uint32_t pid;        /* one that had it mapped; one that still runs, if any is known to */
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
	uint64_t left_out;    /* bytes of records that did not fit into max_bytes, or could not be decoded */
	uint64_t paused_ns;   /* the longest that one CPU's output was paused */
	unsigned rings, torn; /* read, and those whose oldest records could not be decoded */
};

/* A cgroup of v2 that samples of a process were in. */
struct stack_recorder_place {
	uint32_t pid;
	uint64_t cgroup; /* its inode */
};

/* {0} is empty. */
struct stack_recorder_snapshot {
	struct stack_recorder_stream streams[STACK_FILE_STREAM_KINDS]; /* side-band records first */
	size_t stream_count;
	struct stack_recorder_file *files;
	size_t file_count;
	uint32_t *pids; /* of the samples, ascending, without 0 */
	size_t pid_count;
	bool *inside;                        /* of each of pids: see stack_recorder_find_inside; NULL: not asked for */
	struct stack_recorder_place *places; /* by pid, each once; of a process that moved, more than one */
	size_t place_count;
	/*
	 * Of pids, ascending: in v2, or if that is the root the cpu controller's, or "/". Of one that
	 * has ended, that of the process that it was forked from, if that runs, and so on.
	 */
	struct stack_file_cgroup *cgroups;
	size_t cgroup_count;
	uint64_t from_ns, to_ns;                 /* what was asked for, and not after it was taken */
	struct overload_sampling_summary faults; /* how many of all page faults were counted */
	uint64_t unmapped;                       /* processes in pids whose mappings are not known */
	struct buffer paths;                     /* texts of files and cgroups */
};

/*
 * What the rings hold of from_ns .. to_ns (CLOCK_MONOTONIC; to_ns UINT64_MAX: until now), merged,
 * with the mapping history of the processes in it; for those that run since before the recorder,
 * /proc/<pid>/maps and comm are read now. max_bytes (0: 64 MiB) bounds the records. Recording goes
 * on; nothing is consumed, a second snapshot may overlap. Cost: a copy of the rings, one after the
 * other, each paused meanwhile. 0; -ENOMEM; -errno. *ret belongs to the caller:
 * stack_recorder_snapshot_release.
 */
int stack_recorder_snapshot(struct stack_recorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			    struct stack_recorder_snapshot *ret);

/*
 * Sets snapshot->inside: which of pids are in this cgroup, of any hierarchy, or below it. Samples say
 * it of their process where the perf_event controller is in v2 (Linux 5.7); of others that have
 * ended it is known as far as is known which processes they were forked from, by the first of
 * these that runs. 0 or -ENOMEM.
 */
int stack_recorder_find_inside(struct stack_recorder *recorder, const char *cgroup,
			       struct stack_recorder_snapshot *snapshot);

/* {0} is fine. */
void stack_recorder_snapshot_release(struct stack_recorder_snapshot *snapshot);

/*
 * Replaces the set of processes whose threads, and those of what they start, have events of their
 * own; the recorder's thread opens and closes them soon after. Room: 256 processes, and 4096
 * descriptors or a quarter of RLIMIT_NOFILE; each thread takes one for each CPU and kind of event.
 * A process is followed as a whole or not, the first ones first; those that did not fit are in the
 * status and are tried again when the set changes. With system-wide events and without `dwarf`
 * nothing is followed. Any thread. 0 or -ENOMEM.
 */
int stack_recorder_follow(struct stack_recorder *recorder, const uint32_t *pids, size_t count);

/*
 * How far back questions will go: to before_ns before a firing, asked after_ns after it and up to 30
 * s late. What processes that ended earlier had mapped is forgotten, and sooner where its share of
 * the memory is full: the status counts those. Any thread. At first 15 s each.
 */
void stack_recorder_keep(struct stack_recorder *recorder, uint64_t before_ns, uint64_t after_ns);

struct stack_recorder_status {
	bool system_wide;    /* there are system-wide events; if not, the reason of stack_recorder_open says why */
	bool dwarf;          /* followed threads have registers and stack */
	bool kernel;         /* call chains have the kernel's part */
	int faults_error;    /* why there are no samples of them any more on some CPU: -errno; 0: there are */
	bool faults, cycles; /* there are samples of page faults; CPU samples are by the hardware's cycles */
	char large_pages[STACK_RECORDER_REASON_MAX]; /* why a large page counts as a small one; "": it does not */
	uint64_t large_pages_off_ns; /* when there were last too many page faults to see large ones; 0: never */
	char limits[STACK_RECORDER_REASON_MAX]; /* what was asked for and cannot be had, and why; "" if nothing */
	unsigned followed_processes, followed_threads; /* now, not counting what they started since */
	unsigned not_followed; /* processes that were asked for, run, and have no events: no room or not allowed */
	unsigned cpus;         /* that are sampled */
	unsigned cpus_missing; /* online when it was opened, and refused (or gone meanwhile) */
	uint64_t opened_ns;    /* recording began; CLOCK_MONOTONIC */
	uint32_t frequency;    /* as asked for, or what the kernel allows (kernel.perf_event_max_sample_rate) */
	uint64_t ring_bytes;   /* of each CPU, all kinds together */
	uint64_t memory_bytes; /* all rings */
	uint64_t side_lost;    /* side-band records that were dropped: the thread came too late */
	uint64_t side_wakeups; /* of the thread */
	bool build_ids;        /* the kernel (5.12) reports build ids */
	struct mapping_history_stats history;
};

/* Any thread. */
void stack_recorder_status(struct stack_recorder *recorder, struct stack_recorder_status *ret);

#endif
