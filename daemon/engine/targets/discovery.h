/*
 * discovery.h: the thread that finds targets. At every rescan it walks /proc and the cgroup tree,
 * matches what it meets with the entries of the configuration (matcher.h) and updates the target
 * table. It also refreshes effective limits, and keeps the baselines that captures are compared
 * with (baseline.h).
 *
 * Between scans it reads events of processes from the kernel (process_events.h), where that is
 * permitted, and looks at just those processes: from an exec to the target it takes some
 * milliseconds. Scans are the safety net, and all there is where events cannot be read.
 *
 * A scan looks only at processes that have run since the last one, if no entry goes by what changes
 * otherwise (the cgroup), and if CPU clocks of processes can be read. Where events report all that
 * a scan could find (entries by name, program, pid or path of a cgroup; nothing lost), scans are so
 * far apart that they take at most 1/500 of a core, but at most ten rescan intervals.
 *
 * Scans never take more than 1/50 of a core: on a host with very many processes the interval is
 * stretched. The same holds for looks between scans, but for a burst: processes that come faster
 * are looked at late, and after a second of that those that wait are left to a scan.
 *
 * Queries of other threads, and a reload, are answered between two processes of a running scan, and
 * while files of a process are read: such a read may block in the kernel.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_DISCOVERY_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_DISCOVERY_H

#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/process_events.h"
#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup.h"
#include "lib/config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct discovery;

struct discovery_options {
	struct target_table_options target_table;
	struct stack_recorder *stacks; /* is told which processes are watched; must outlive the thread; NULL: none */
	struct process_events_options listen;
	const char *unit_bus; /* D-Bus address of systemd itself; NULL: the system bus of this machine */
};

/*
 * Without the scheduler's sums the CPU time of members of a group that ended is an estimate, from exit records and
 * what their parents have waited for: so many clock ticks may be lacking for each parent.
 */
#define DISCOVERY_LACK_TICKS 4u

struct discovery_state {
	struct target_table_counts target_table;
	uint64_t scans;
	uint64_t scan_interval_ns;         /* from the end of a scan to the next, as of now */
	uint64_t last_scan_ns;             /* how long the last one took */
	uint64_t processes;                /* on the host, as of the last scan */
	uint64_t unchanged;                /* of them had not run since the scan before, and were not looked at */
	int32_t reading;                   /* the process whose files are being read now, which may block; 0: none */
	uint64_t unreadable;               /* of them hidden from us (hidepid, another user's) in the last scan */
	bool listened;                     /* the source of events was chosen; what follows is not valid before */
	enum process_events_source source; /* of events between scans */
	bool exit_totals;                  /* with what a process used in all, when it ends */
	char source_why[PROCESS_EVENTS_REASON_MAX]; /* why it is not a better one; "" */
	uint64_t events;                            /* read */
	uint64_t overruns;                          /* times that the kernel dropped some: each is followed by a scan */
	uint64_t cgroups_heard;                     /* new cgroups that events reported */
	uint64_t looks;                             /* at a single process, after its event */
	uint64_t missed;   /* processes that ended before they were looked at; some left an exit record */
	uint64_t dropped;  /* processes that were dropped before they were looked at */
	uint64_t credited; /* of the missed: counted in a group, by their exit records */
	uint64_t late;     /* looked at late, or left to a scan, because the CPU share was used up */
	uint64_t storms;   /* times that those that had waited a second were left to a scan */
	bool held_off;     /* processes wait for CPU share */
	bool units_wanted; /* an entry selects units */
	struct unit_bus_state units;
	uint64_t unlabelled;        /* containers whose labels cannot be read; 0 if no entry selects by label */
	const char *unlabelled_why; /* of one of them; static text */
	int error; /* -errno: the last scan was not finished: it may have missed targets, and has removed none */
};

/* What is known of a unit. */
struct unit_report {
	char name[UNIT_NAME_MAX + 1];
	char cgroup[512]; /* cut */
	struct unit_facts facts;
};

/* Either may be NULL. */
struct unit_visitor {
	void (*unit)(void *ctx, const struct unit_report *unit);
	/* There is no unit of this name, and no other target of the entry that selects it. */
	void (*missing)(void *ctx, const char *name, const char *why);
	void *ctx;
};

/* Of discovery_reload. */
enum { DISCOVERY_FOLLOWS = 1 };

/* Compiles the configuration's selectors. 0; -ENOMEM; -errno. */
int discovery_new(const struct discovery_options *options, struct discovery **ret);

/*
 * One scan in the calling thread. Not while the thread runs. 0, also when it ran out of descriptors
 * (discovery_state.error); -ENOMEM; -errno: the proc root cannot be read.
 */
int discovery_scan(struct discovery *discovery);

/*
 * Replaces the configuration, also while the thread runs. Targets of entries that config has too
 * (config_target_same) stay: id, samples, no gap. Those of the others leave, groups with their
 * members; new groups are there at once, other new targets after the next scan, for which the
 * thread is woken (without the thread: the caller scans), and which reads limits again. A smaller
 * max_targets removes no target, but admits none until there is room. proc_root and cgroup_root are
 * ignored.
 *
 * 0: the old configuration is no longer referred to. DISCOVERY_FOLLOWS: the thread is in a read that
 * takes its time, and goes over to config after it; until then it uses the old one: see
 * discovery_progress. -ENOMEM, -errno: nothing has changed. For one thread at a time.
 */
int discovery_reload(struct discovery *discovery, const struct config *config);

/*
 * Starts the thread, unless it runs; it begins with a scan. Events are subscribed to, if that is
 * wanted and possible, after that scan, or first: then a process that is started from now on is
 * reported. 0 or -errno.
 */
int discovery_start(struct discovery *discovery, bool subscribe_first);

/* The result of the first scan: not over, or not begun. */
enum { DISCOVERY_SCANNING = 1 };

struct discovery_progress {
	/*
	 * The liveness timestamp of the thread: at most a second old while it waits, and updated at every
	 * process and cgroup that a scan meets; constant while the thread does not run.
	 */
	mono_t pulse;
	int32_t reading; /* the process whose files are being read, which may block; 0: none */
	int first;       /* the result of the thread's first scan: as discovery_scan; or DISCOVERY_SCANNING */
	int first_fd;    /* owned by discovery; readable when that scan is over */
	/* That is in use. No other one is, but the last that discovery_reload was called with may come to be. */
	const struct config *config;
};

/* As of now. Any thread, never blocks. */
struct discovery_progress discovery_progress(const struct discovery *discovery);

/*
 * Stops the thread and waits for its end, 5 s at most if it blocks in a read of /proc. Harmless if
 * it is not running. True: it has ended. False: it is blocked, and may return at any time: all that
 * was given to discovery_new, and the configuration, must stay valid until the process ends, or
 * until a later call, which does not wait, returns true.
 */
bool discovery_stop(struct discovery *discovery);

/*
 * The sampler's threads must not run. Stops the thread first, and frees nothing if that returns
 * false. NULL is fine.
 */
void discovery_free(struct discovery *discovery);

/*
 * Queries. While the thread hangs in a read of a file that does not answer, each says after 50 ms
 * (those for evidence, which are about processes, 2 s), and then at once, that it does not know.
 */

/*
 * At most cap pids of the processes of a target: its own, or the members of a group; none of a
 * cgroup (see its cgroup.procs). Their number. Any thread.
 */
size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap);

/*
 * target_table_query_members for other threads; -EBUSY: not known. Waits, 2 s at most, until the processes that were
 * there at as_of have been looked at, as far as events tell of them; { 0 }: does not wait.
 */
int discovery_members(struct discovery *discovery, uint32_t target_id, mono_t as_of, uint64_t since_ns,
		      struct target_member **ret, size_t *ret_count);

/* The effective limits of a target as last read. False: it is gone, or they are not known. Any thread. */
bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cgroup_limits *ret);

/* baseline_copy and baseline_copy_busy for other threads. */
void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps);
int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret);

/*
 * What systemd says of the unit that this cgroup belongs to. False: not known, or not asked for,
 * because no entry selects it. Any thread.
 */
bool discovery_unit(struct discovery *discovery, const char *cgroup, struct unit_report *ret);

/*
 * All known units. Arguments are valid during the call, in which discovery must not be queried. Any
 * thread.
 */
void discovery_visit_units(struct discovery *discovery, const struct unit_visitor *visitor);

/* Any thread. While the thread hangs, as it was before. */
void discovery_state(struct discovery *discovery, struct discovery_state *ret);

#endif
