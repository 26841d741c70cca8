/*
 * target_table.h: every target that is watched, from the moment it is found until the sampler has
 * given it back; and their effective limits.
 *
 *              target_table_process, _cgroup            sweep: not seen in the scan
 *     (none) ──────────────────────────▶ WATCHED ─────────────────────────▶ LEAVING ──┐
 *                                           │ the sampler found it gone        │      │ its answer
 *                                           └──────────────────────────────────┴──────┴──▶ freed
 *
 * For one thread at a time (discovery's lock). A process is (pid, start time): a reused pid is a
 * new target.
 *
 * A reload keeps the targets of the entries that the new configuration has too, and makes all
 * others LEAVING: members before their group, because the sampler must never lose a group that has
 * members. What finds the queue to the sampler full is asked for again by target_table_collect.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_TABLE_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_TABLE_H

#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/targets/containers.h"
#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct target_table;

struct target_table_options {
	const struct config *config; /* must outlive the target table, as all of these */
	struct samplers *samplers;
	const struct cgroup_mounts *mounts;
	struct containers *containers; /* NULL: targets have no containers */
	struct metric_machine machine;
	int procfd;
	bool own_proc;                    /* procfd is the real /proc of this pid namespace: CPU clocks can be read */
	struct kernel_accounts *accounts; /* of CPU time; NULL: there are none */
	void (*alive)(void *ctx);         /* called often during long work; may be NULL */
	void *alive_ctx;
	void (*ran)(void *ctx, const struct target *process); /* since the last refresh of limits; may be NULL */
};

struct target_limits_line;
struct target_table_entry;

/* Where the limits of a target come from. {0}: not known yet. */
struct target_membership {
	struct target_limits_line *line; /* held; NULL: limits are not known */
	mono_t met, asked;               /* by a refresh: first, and when its cgroup was last read */
	uint32_t runs;                   /* source_entry_runs then */
	uint32_t refreshed_runs;         /* and in the last refresh of limits */
	uint32_t version;                /* of the line, when the sampler was told */
	bool event;                      /* it executed something since */
	bool gated;                      /* the sampler was told of the line's gate */
};

/* A target, for visitors. */
struct target_table_target {
	struct sampler_target sampled;
	struct target what; /* its strings are owned here, but for what.entry, which is the entry's */
	struct target_table_entry *entry;
	struct target_table_target *group; /* that it is a member of, or NULL */
	bool leaving;                      /* its removal was asked for */
	/* The table's own: */
	struct map_node node, pid_node;
	TAILQ_ENTRY(target_table_target) all;
	uint64_t seen;         /* the last scan that met it */
	uint64_t arguments_at; /* of a process, when it was described */
	uint32_t account;      /* of its CPU time in the kernel; CPU_ACCOUNT_NONE */
	uint32_t losses;       /* accounts that have lost a run */
	mono_t lost_at;        /* the last of them, when that was noticed */
	bool names_group;      /* its name is that of its group */
	bool unlent;           /* a group that the sampler has yet to be given */
	uint32_t reading;      /* what it was opened for */
	uint32_t runs, heat, idle_scans;
	uint64_t round; /* the last refresh of limits that passed it */
	struct target_membership membership;
	bool ended; /* an event said so, with these counters */
	enum source_end end_known;
	bool moved; /* it left its entry: what comes counts elsewhere */
	struct sum_counters end;
};

/* Entries that match nothing are counted beyond so many. */
#define TARGET_TABLE_UNMATCHED_MAX 16

struct target_table_unmatched {
	char entry[65];
	mono_t since; /* when the last left, or the entry came */
};

struct target_table_counts {
	struct target_table_unmatched unmatched[TARGET_TABLE_UNMATCHED_MAX]; /* by their order in the configuration */
	size_t unmatched_entries;                                            /* all of them */
	size_t targets; /* watched now, members of groups not counted */
	size_t members;
	size_t leaving;       /* of both: asked back from the sampler */
	size_t processes;     /* of both, entries that are processes */
	size_t cold;          /* of them with closed descriptors, as of the last scan, and new ones since */
	uint64_t found, left; /* ever */
	uint64_t refused;     /* beyond max_targets */
	uint64_t failed;      /* could not be opened; a cgroup -EMFILE also if only reserved descriptors are left */
	int last_error;       /* of the last that could not be opened */
	size_t ended;         /* an event told of their end, and they are not back yet */
	bool owing; /* the queue to the sampler was full since target_table_collect: another scan soon would help */
};

/* A process as the scan met it. */
struct process_observation {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t arguments_at; /* see struct process_facts */
	const char *comm, *cmdline, *cgroup;
	bool descends;              /* selected by an ancestor, not by itself */
	bool whole;                 /* it has just begun: a group counts all that it has used */
	const struct sample *since; /* counted elsewhere so far: a group counts what is beyond; NULL: from now on */
};

/* Makes the groups of the configuration (entries per group) too. 0 or -ENOMEM. */
int target_table_new(const struct target_table_options *options, struct target_table **ret);

/*
 * Puts config into force; the one before is no longer referred to, and indices of entries are
 * config's. Targets of entries that both have stay; all others are asked back; new groups are made.
 * 0; -ENOMEM: nothing has changed.
 */
int target_table_reload(struct target_table *target_table, const struct config *config);

/* The sampler must be gone or stopped for good. NULL is fine. */
void target_table_free(struct target_table *target_table);

/*
 * Gives processes that have none an account in the kernel, while those are on, and takes all back while
 * they are off. A part of them: true: call again soon.
 */
bool target_table_keep_accounts(struct target_table *target_table);

/* Conditions (positive returns). */
enum { TARGET_TABLE_ENDED = 1 };

/*
 * Scan number `scan` met a process of entry: watches it from now on, or counts it in its group. 0;
 * TARGET_TABLE_ENDED: not done, it has ended meanwhile; -ENOMEM.
 */
int target_table_process(struct target_table *target_table, size_t entry, const struct process_observation *seen,
			 uint64_t scan);

/*
 * Whether such a process is watched already; it then counts as seen. Saves reading what only a new
 * target needs.
 */
bool target_table_process_known(struct target_table *target_table, size_t entry, int32_t pid, uint64_t start_ticks,
				uint64_t scan);

/* The same for a cgroup. */
int target_table_cgroup(struct target_table *target_table, size_t entry, const char *path, uint64_t scan);

/*
 * The container of this cgroup has another name, or other labels: renames the targets that are it,
 * or in it. 0 or -ENOMEM: some keep their names.
 */
int target_table_rename_container(struct target_table *target_table, const char *cgroup);

/* After a whole scan: asks back all that it has not seen. */
void target_table_sweep(struct target_table *target_table, uint64_t scan);

/*
 * Before a scan: frees what the sampler gave back, asks again for what found the queue to the
 * sampler full, and opens what the configuration in force reads of processes and the one before did
 * not. What is refused or fails from now on is counted for the next sweep.
 */
void target_table_collect(struct target_table *target_table);

/*
 * Refreshes effective limits, in slices of half a millisecond of work, between which anything may
 * be done with the target table; *part is 0 at first, and the table's own. Targets and entries that
 * come meanwhile may wait for the next refresh. False: that was the last slice, and groups have
 * what their members share.
 */
bool target_table_refresh_some_limits(struct target_table *target_table, mono_t now, unsigned *part);

/* As of now. */
void target_table_counts(const struct target_table *target_table, struct target_table_counts *ret);

/* Visits every target and member until visit returns non-zero, which is returned. */
int target_table_visit(struct target_table *target_table, int (*visit)(void *ctx, struct target_table_target *target),
		       void *ctx);

/*
 * Between two scans: single processes that begin, turn into something else and end.
 *
 * What a member of a group used between its last sample and its end is added to its group when the
 * sampler gives it back. So that nothing is told too late: first target_table_fetch, then all ends
 * that are known, then target_table_settle.
 */

/*
 * Takes from the sampler what it gave back, up to a bound. True: there is something for
 * target_table_settle.
 */
bool target_table_fetch(struct target_table *target_table);

/* Frees what was fetched; credits to groups what is known of ends. */
void target_table_settle(struct target_table *target_table);

/*
 * A process is not, or no longer, of this entry: it leaves if it is watched for it; cheap if not.
 * now: its counters, up to which its group counts it; with an empty mask, up to its last sample.
 * True: it was watched.
 */
bool target_table_unmatch(struct target_table *target_table, size_t entry, const struct process_observation *seen,
			  const struct sample *now);

/* How many targets a process is. */
size_t target_table_watches(const struct target_table *target_table, int32_t pid, uint64_t start_ticks);

/* An unchanged process: all its targets count as seen in this scan. */
void target_table_still(struct target_table *target_table, int32_t pid, uint64_t start_ticks, uint64_t scan);

/*
 * Whether a process is watched for this entry as a target of its own and had another name than comm
 * when it was met: it was another program, and becomes a new target.
 */
bool target_table_was_other(const struct target_table *target_table, size_t entry, int32_t pid, uint64_t start_ticks,
			    const char *comm);

/*
 * Whether a process is watched for this entry under another name than it has now, or has executed
 * something since. Looks at comm and arguments_at alone.
 */
bool target_table_is_outdated(const struct target_table *target_table, size_t entry,
			      const struct process_observation *seen);

/*
 * Gives a process that is watched for this entry, and a group by pid whose root it is, this
 * description, also in the ring. Does nothing if it is not watched, or has it. 0; -ENOMEM: nothing
 * changed.
 */
int target_table_describe(struct target_table *target_table, size_t entry, const struct process_observation *seen);

/* Whether pid is watched for any entry. */
bool target_table_knows(const struct target_table *target_table, int32_t pid);

/* Whether pid is a member of this entry's group. */
bool target_table_is_member(const struct target_table *target_table, size_t entry, int32_t pid);

/* The end of a process. The event may be late: another process may have the pid. */
struct target_table_ending {
	int32_t pid;
	uint64_t start_ticks; /* of the one that ended; 0: not known */
	uint64_t alive_ticks; /* of the process that has the pid and lives, which is another one; 0: none */
	const char *comm;     /* of the one that ended; NULL: not known. A target of another name is another process */
	struct sample counters;
	enum source_end known; /* of the CPU time in them */
};

/* A process ended with these counters; each target ends once. True: it is watched. */
bool target_table_end(struct target_table *target_table, const struct target_table_ending *ending);

/*
 * A process that never was a member ended, when says which and when it began and ended, and its
 * counters belong to this entry's group; NULL: counters of members that ended before. False: the
 * entry has none.
 */
bool target_table_credit(struct target_table *target_table, size_t entry, const struct target_member *when,
			 const struct sample *counters, enum source_end known);

/* At most cap pids of a target: its own, or its members'; 0 for a cgroup. Their number. */
size_t target_table_query_pids(struct target_table *target_table, uint32_t id, int32_t *pids, size_t cap);

/*
 * The processes that were part of a group at any time since since_ns (CLOCK_MONOTONIC), as far as
 * they are remembered: of those that have ended or left, the last 65,536 of all groups. 0 and
 * *ret, of *ret_count, the caller's; -ENOMEM.
 */
int target_table_query_members(struct target_table *target_table, uint32_t id, uint64_t since_ns,
			       struct target_member **ret, size_t *ret_count);

/* Where no limits are known they are unavailable. False: there is no such target. */
bool target_table_query_limits(struct target_table *target_table, uint32_t id, struct cgroup_limits *ret);

#endif
