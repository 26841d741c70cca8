/* target_table.h: what others ask about a target by its id. */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_TABLE_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_TABLE_H

#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/target_limits.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * target_table.h: every target that is watched, from the moment it is found until the sampler has
 * given it back.
 *
 *              target_table_process, _cgroup            sweep: not seen any more
 *     (none) ──────────────────────────▶ WATCHED ─────────────────────────▶ LEAVING ──┐
 *                                           │ the sampler found it gone        │      │ the sampler's answer
 *                                           └──────────────────────────────────┴──────┴──▶ freed
 *
 * Belongs to one thread at a time (discovery's lock). A process is (pid, start time): a reused pid
 * is a new target.
 *
 * A reload keeps the targets of the entries that the new configuration has too, and makes all
 * others LEAVING: members before their group, because the sampler must never lose a group that has
 * members. What finds the queue to the sampler full is asked for again by target_table_collect.
 */

struct target_table;

struct target_table_options {
	const struct config *config; /* must outlive the target table, as all of these */
	struct samplers *samplers;
	const struct cgroup_mounts *mounts;
	struct containers *containers; /* for names; NULL: nothing is told of containers */
	struct metric_machine machine;
	int procfd;
	bool own_proc;            /* procfd is the real /proc of this pid namespace: CPU clocks can be asked */
	void (*alive)(void *ctx); /* called often during what takes long; may be NULL */
	void *alive_ctx;
};

struct target_table_entry; /* target_table_entry.h */

/*
 * Where the limits of a process or a cgroup come from; see target table_limits.h. {0}: nowhere yet.
 */
struct target_table_membership {
	struct target_limits_line *line; /* held; NULL: not known */
	mono_t met, asked; /* of a process: when a refresh met it first, when it was last asked where it is */
	uint32_t runs;     /* source_entry_runs then */
	uint32_t version;  /* of the line, when the sampler was told */
	bool news;         /* it was heard to do something since */
};

/* What the target table knows of a target; for visitors. Strings live as long as the target. */
struct target_table_target {
	struct sampler_target sampled;
	struct target what; /* strings inside are owned here, but for what.entry, which is the entry's */
	struct target_table_entry *entry;
	struct target_table_target *group;    /* the sum it is counted in, or NULL */
	struct target_table_target *next;     /* in its bucket */
	struct target_table_target *next_pid; /* of a process: in the bucket of its pid */
	uint64_t seen;                        /* the last scan that met it */
	uint64_t arguments_at;                /* of a process, when it was described */
	bool names_group;                     /* what it is called is what its group is called */
	bool leaving;                         /* its removal was asked for */
	bool unlent;                          /* a group that the sampler has yet to be given */
	uint32_t reading;                     /* what it was opened for: see target_table_reopen */
	uint32_t runs, heat, idle_scans;      /* of a process: see target_table_tiers.h */
	struct target_table_membership membership;
	bool ended;              /* see target table_events.h */
	bool moved;              /* ended, as far as its entry is concerned: what comes counts elsewhere */
	struct sum_counters end; /* what it had used by then, if it ended */
};

struct target_table_counts {
	size_t targets; /* watched now, members of groups not counted */
	size_t members;
	size_t leaving;       /* of both: the sampler was asked for them back */
	size_t processes;     /* of both, entries that are processes */
	size_t cold;          /* of them without descriptors, as of the last scan, and recent pids since */
	uint64_t found, left; /* ever */
	uint64_t refused;     /* beyond max_targets */
	uint64_t failed; /* could not be opened: a cgroup -EMFILE also where what is left is reserved (descriptors.h) */
	int last_error;  /* of the last that could not be opened */
};

/* A process as the scan met it. */
struct process_observation {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t arguments_at; /* see scanned.h */
	const char *comm, *cmdline, *cgroup;
	bool descends; /* selected by what it descends from, not by what it is */
	bool whole;    /* it has just begun: a group counts all that it used so far */
	/*
	 * It was counted elsewhere until then: a group counts what is beyond. NULL: what it uses
	 * from now on.
	 */
	const struct sample *since;
};

/* Makes the groups of the configuration (entries per group) too. 0 or -ENOMEM. */
int target_table_new(const struct target_table_options *options, struct target_table **ret);

/*
 * From now on config is in force, and the one before is not referred to any more; indices of
 * entries are config's. Targets of entries that both have stay; all others are asked to leave; new
 * groups are made. 0; -ENOMEM: nothing has changed.
 */
int target_table_reload(struct target_table *target_table, const struct config *config);

/* The sampler must be gone or stopped for good. NULL is fine. */
void target_table_free(struct target_table *target_table);

/* Conditions (positive returns). */
enum { TARGET_TABLE_ENDED = 1 };

/*
 * A process of entry was seen in scan number `scan`: it is watched, or counted in its group, from
 * now on. 0; TARGET_TABLE_ENDED: it is not, because it has ended meanwhile; -ENOMEM.
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
 * The container whose own cgroup this is is called something else now: so are the targets that are
 * it, or in it. 0 or -ENOMEM: some keep their names.
 */
int target_table_rename_container(struct target_table *target_table, const char *cgroup);

/* Lets go of all that was not seen in this scan. */
void target_table_sweep(struct target_table *target_table, uint64_t scan);

/*
 * Before a scan: frees what the sampler gave back, and asks again for what found the queue to the
 * sampler full. What is refused or fails from now on is counted for the next sweep.
 */
void target_table_collect(struct target_table *target_table);

/*
 * Whether the queue to the sampler was full for something since target_table_collect: another scan
 * soon would help.
 */
bool target_table_owes(const struct target_table *target_table);

/*
 * Opens, for targets that were opened for a configuration that read less of a process, what the one
 * in force reads.
 */
void target_table_reopen(struct target_table *target_table);

/* Reads effective limits anew for every target, as it is due: see target table_limits.h. */
void target_table_refresh_limits(struct target_table *target_table, mono_t now);

/*
 * The same in slices of half a millisecond of work, between which anything may be done with the
 * target table: *part is 0 to begin with, and its. What comes to be watched or is configured
 * meanwhile may wait for the next time. False: that was the last one, and groups have what their
 * members share.
 */
bool target_table_refresh_some_limits(struct target_table *target_table, mono_t now, unsigned *part);

/* As of now. */
void target_table_counts(const struct target_table *target_table, struct target_table_counts *ret);

/* Visits every target and member until visit returns non-zero, which is returned. */
int target_table_visit(struct target_table *target_table, int (*visit)(void *ctx, struct target_table_target *target),
		       void *ctx);

/*
 * target table_events.h: the target table between two scans: single processes that begin, turn into
 * something else and end.
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

/* Targets whose end was told and that the sampler has yet to find gone. */
size_t target_table_ended(const struct target_table *target_table);

/*
 * A process is not of this entry (any more): it leaves, if it is watched for it. Cheap if it is
 * not. now: its counters, up to which its group counts it; without any, up to where the sampler saw
 * it last. True: it was.
 */
bool target_table_unmatch(struct target_table *target_table, size_t entry, const struct process_observation *seen,
			  const struct sample *now);

/* How many targets a process is. */
size_t target_table_watches(const struct target_table *target_table, int32_t pid, uint64_t start_ticks);

/* A process was met as it was before: all its targets count as seen in this scan. */
void target_table_still(struct target_table *target_table, int32_t pid, uint64_t start_ticks, uint64_t scan);

/*
 * Whether a process is watched for this entry as a target of its own and was called something else
 * than comm when it was met: as another program, which deserves a target of its own.
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
 * A process that is watched for this entry is called that from now on, and so is a group by pid
 * whose root it is: in the ring, and so for all who read it. Does nothing if it is not watched, or
 * is called that. 0; -ENOMEM: it keeps its names.
 */
int target_table_describe(struct target_table *target_table, size_t entry, const struct process_observation *seen);

/* Whether pid is watched for any entry. */
bool target_table_knows(const struct target_table *target_table, int32_t pid);

/* Whether pid is a member of this entry's group. */
bool target_table_is_member(const struct target_table *target_table, size_t entry, int32_t pid);

/* An end, of which the news may be late: another process may have the pid. */
struct target_table_ending {
	int32_t pid;
	uint64_t start_ticks; /* of the one that ended; 0: not known */
	uint64_t alive_ticks; /* of the one that has the pid and lives on, which is not the one that ended; 0: none */
	const char *comm; /* of the one that ended; NULL: not known. A watched process of another name is another one */
	struct sample counters;
};

/* A process ended with these counters; each target ends once. True: it is watched. */
bool target_table_end(struct target_table *target_table, const struct target_table_ending *ending);

/*
 * A process that never was a member ended, and its counters belong to this entry's group. False:
 * the entry has none.
 */
bool target_table_credit(struct target_table *target_table, size_t entry, const struct sample *counters);

/*
 * target_table_entry.h: a target entry of the configuration as the target table knows it: it
 * outlives the configuration as long as one of its targets has not left, and over a reload it stays
 * the same object as long as the configuration has the same entry.
 */

struct target_table_entry {
	char *name;
	uint32_t number;                   /* its own for life: targets are found by it */
	struct target_table_target *group; /* the sum that is its target; NULL if its targets are others */
	struct cgroup_limits limits;       /* of a group */
	struct cgroup_limits merged;       /* of a group: what its members share, as far as they were asked */
	uint64_t merged_line;              /* the number of the last that was merged */
	bool dismissed;                    /* the configuration has it no more: its targets leave */
	bool planned;                      /* of a configuration that is not in force yet */
	size_t holders;
};

/* Copies name. The caller holds it. NULL: no memory. */
struct target_table_entry *target_table_entry_new(const char *name, uint32_t number);

/* One holder less; the last one frees it (not its group, which holds it). NULL is fine. */
void target_table_entry_drop(struct target_table_entry *entry);

/*
 * target_table_list.h: the entries of one configuration, as the target table knows them; made
 * beside the list that is in force.
 */

/* By index in config->targets. */
struct target_table_list {
	struct target_table_entry **entries;
	size_t count;
};

/* The last that were given away; they are never used again. */
struct target_table_numbers {
	uint32_t target, entry;
};

/*
 * target_table_target.h: makes and frees what the target table watches, and finds it by what it is.
 */

/* A power of two; chains stay short up to the 10,000 targets of the default. */
#define TARGET_TABLE_BUCKETS 4096u

struct target_table_table {
	struct target_table_target *buckets[TARGET_TABLE_BUCKETS];
	struct target_table_target *pids[TARGET_TABLE_BUCKETS]; /* processes, by pid */
};

/*
 * A process that was met for an entry, which is config in the configuration; a cgroup. container:
 * that it is in, or NULL. The id is still to come. NULL: no memory.
 */
struct target_table_target *target_table_target_cgroup(struct target_table_entry *entry,
						       const struct config_target *config, const char *path,
						       const struct container *container);

/* Must be in no table, and not lent. */
void target_table_target_free(struct target_table_target *target);

/*
 * target_table_tiers.h: which processes keep descriptors open and which are cold (source.h), where
 * there are not enough for all.
 *
 * Nobody is cold while there are enough (descriptors.h). Else recent pids are cold to begin with,
 * and after each scan descriptors are handed on: a cold process that ran at least three times since
 * the scan before, and clearly more often than the warm one that ran least and longest ago, takes
 * over from that one by the next scan. Whatever descriptors are free go to cold ones, the busiest
 * first. Cgroups are never cold: for those that could not be opened processes make room, and none
 * becomes warm meanwhile.
 */

/* Zeroed is the right start. */
struct target_table_tiers {
	bool uneven;       /* some process is cold, or may be */
	size_t unopened;   /* cgroups for which there were no descriptors, in the running scan */
	size_t making_way; /* and in the last one */
};

/*
 * target table_inside.h: what the target table's files share: target_table.c, target
 * table_events.c, target_table_tiers.c.
 */

/*
 * What the sampler gave back and is not freed yet: see target_table_fetch. A millisecond's work,
 * and more than a tick brings but in a storm.
 */
#define TARGET_TABLE_BACK_MAX 64u

struct target_table_back {
	struct sampler_target *sampled;
	enum sampler_return why;
};

struct target_table {
	struct target_table_options options;
	struct target_table_table table;
	struct target_table_list list; /* of the configuration in force */
	struct target_table_counts counts;
	uint64_t refused, failed; /* in the running scan */
	bool starved;             /* out of descriptors, in the running scan */
	bool owing;               /* the queue was full for a removal or a group */
	bool crowded;             /* the queue was full for anything, in the running scan */
	bool unopened;            /* targets were opened for less than is read now */
	uint32_t reading;         /* what they are opened for: counts the reloads that read more */
	struct target_table_tiers tiers;
	struct target_table_numbers numbers;
	struct target_limits *limits;
	struct target_table_back back[TARGET_TABLE_BACK_MAX];
	size_t back_count;
	size_t ended; /* targets whose end was told and that are not back */
};

/*
 * target table_limits.h: the effective limits of a target of the target table, and what a group has
 * of its members'.
 *
 * A refresh reads what each cgroup says anew, and who is in them has it at once. Which cgroup a
 * process is in it asks
 *   - those that it meets for the first time, and in their first ten seconds, when managers move what
 *     they start;
 *   - those that were heard to begin or execute something;
 *   - those that ran noticeably since they were last asked: a rule of a share of a limit looks at
 *     them;
 *   - all others every half minute, each at a moment of its own.
 * So a process that is moved in its sleep has the limits of where it was for half a minute and one
 * refresh at most.
 */

/* For whoever wants to know. Where nothing is known they are unavailable. */
void target_table_limits_of(const struct target_table *target_table, const struct target_table_target *target,
			    struct cgroup_limits *ret);

/* At most cap pids of a target: its own, or its members'; 0 for a cgroup. How many. */
size_t target_table_query_pids(struct target_table *target_table, uint32_t id, int32_t *pids, size_t cap);

/* False: there is no such target. */
bool target_table_query_limits(struct target_table *target_table, uint32_t id, struct cgroup_limits *ret);

#endif
