/*
 * roster.h: every target that is watched, from the moment it is found until the sampler has given it back.
 *
 *              roster_process, _cgroup            sweep: not seen any more
 *     (none) ──────────────────────────▶ WATCHED ─────────────────────────▶ LEAVING ──┐
 *                                           │ the sampler found it gone        │      │ the sampler's answer
 *                                           └──────────────────────────────────┴──────┴──▶ freed
 *
 * Belongs to one thread at a time (discovery's lock). A process is (pid, start time): a reused pid is a new target.
 *
 * A reload keeps the targets of the entries that the new configuration has too, and makes all others LEAVING: members before their
 * group, because the sampler must never lose a group that has members. What finds the queue to the sampler full is asked for again by roster_collect.
 */
#ifndef SPIKEWATCH_ROSTER_H
#define SPIKEWATCH_ROSTER_H

#include "cgmount.h"
#include "config.h"
#include "cglimits.h"
#include "clock.h"
#include "containers.h"
#include "samplers.h"
#include "sum.h"

#include <stddef.h>
#include <stdint.h>

struct roster;

struct roster_options {
	const struct config *config; /* must outlive the roster, as all of these */
	struct samplers *samplers;
	const struct cgroup_mounts *mounts;
	struct containers *containers; /* for names; NULL: nothing is told of containers */
	struct metric_machine machine;
	int procfd;
	bool own_proc;            /* procfd is the real /proc of this pid namespace: CPU clocks can be asked */
	void (*alive)(void *ctx); /* called often during what takes long; may be NULL */
	void *alive_ctx;
};

struct roster_entry; /* roster_entry.h */

/* Where the limits of a process or a cgroup come from; see roster_limits.h. {0}: nowhere yet. */
struct roster_membership {
	struct limitscache_line *line; /* held; NULL: not known */
	mono_t met, asked; /* of a process: when a refresh met it first, when it was last asked where it is */
	uint32_t runs;     /* source_entry_runs then */
	uint32_t version;  /* of the line, when the sampler was told */
	bool news;         /* it was heard to do something since */
};

/* What the roster knows of a target; for visitors. Strings live as long as the target. */
struct roster_target {
	struct sampler_target sampled;
	struct target what; /* strings inside are owned here, but for what.entry, which is the entry's */
	struct roster_entry *entry;
	struct roster_target *group;     /* the sum it is counted in, or NULL */
	struct roster_target *next;      /* in its bucket */
	struct roster_target *next_pid;  /* of a process: in the bucket of its pid */
	uint64_t seen;                   /* the last scan that met it */
	uint64_t arguments_at;           /* of a process, when it was described */
	bool names_group;                /* what it is called is what its group is called */
	bool leaving;                    /* its removal was asked for */
	bool unlent;                     /* a group that the sampler has yet to be given */
	uint32_t reading;                /* what it was opened for: see roster_reopen */
	uint32_t runs, heat, idle_scans; /* of a process: see roster_tiers.h */
	struct roster_membership membership;
	bool ended;              /* see roster_events.h */
	bool moved;              /* ended, as far as its entry is concerned: what comes counts elsewhere */
	struct sum_counters end; /* what it had used by then, if it ended */
};

struct roster_counts {
	size_t targets; /* watched now, members of groups not counted */
	size_t members;
	size_t leaving;       /* of both: the sampler was asked for them back */
	size_t processes;     /* of both, entries that are processes */
	size_t cold;          /* of them without descriptors, as of the last scan, and newcomers since */
	uint64_t found, left; /* ever */
	uint64_t refused;     /* beyond max_targets */
	uint64_t failed; /* could not be opened: a cgroup -EMFILE also where what is left is reserved (descriptors.h) */
	int last_error;  /* of the last that could not be opened */
};

/* A process as the scan met it. */
struct roster_sighting {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t arguments_at; /* see scanned.h */
	const char *comm, *cmdline, *cgroup;
	bool descends; /* selected by what it descends from, not by what it is */
	bool whole;    /* it has just begun: a group counts all that it used so far */
	/* It was counted elsewhere until then: a group counts what is beyond. NULL: what it uses from now on. */
	const struct sample *since;
};

/* Makes the groups of the configuration (entries per group) too. 0 or -ENOMEM. */
int roster_new(const struct roster_options *options, struct roster **ret);

/*
 * From now on config is in force, and the one before is not referred to any more; indices of entries are config's. Targets of entries
 * that both have stay; all others are asked to leave; new groups are made. 0; -ENOMEM: nothing has changed.
 */
int roster_reload(struct roster *roster, const struct config *config);

/* The sampler must be gone or stopped for good. NULL is fine. */
void roster_free(struct roster *roster);

/* Conditions (positive returns). */
enum { ROSTER_ENDED = 1 };

/*
 * A process of entry was seen in scan number `scan`: it is watched, or counted in its group, from now on. 0; ROSTER_ENDED: it is not, because it has
 * ended meanwhile; -ENOMEM.
 */
int roster_process(struct roster *roster, size_t entry, const struct roster_sighting *seen, uint64_t scan);

/* Whether such a process is watched already; it then counts as seen. Saves reading what only a new target needs. */
bool roster_process_known(struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks, uint64_t scan);

/* The same for a cgroup. */
int roster_cgroup(struct roster *roster, size_t entry, const char *path, uint64_t scan);

/* The container whose own cgroup this is is called something else now: so are the targets that are it, or in it. 0 or -ENOMEM: some keep their names. */
int roster_rename_container(struct roster *roster, const char *cgroup);

/* Lets go of all that was not seen in this scan. */
void roster_sweep(struct roster *roster, uint64_t scan);

/*
 * Before a scan: frees what the sampler gave back, and asks again for what found the queue to the sampler full. What is refused or fails from now
 * on is counted for the next sweep.
 */
void roster_collect(struct roster *roster);

/* Whether the queue to the sampler was full for something since roster_collect: another scan soon would help. */
bool roster_owes(const struct roster *roster);

/* Opens, for targets that were opened for a configuration that read less of a process, what the one in force reads. */
void roster_reopen(struct roster *roster);

/* Reads effective limits anew for every target, as it is due: see roster_limits.h. */
void roster_refresh_limits(struct roster *roster, mono_t now);

/*
 * The same in slices of half a millisecond of work, between which anything may be done with the roster: *part is 0 to begin with, and its. What comes to be
 * watched or is configured meanwhile may wait for the next time. False: that was the last one, and groups have what their members share.
 */
bool roster_refresh_some_limits(struct roster *roster, mono_t now, unsigned *part);

/* As of now. */
void roster_counts(const struct roster *roster, struct roster_counts *ret);

/* Visits every target and member until visit returns non-zero, which is returned. */
int roster_visit(struct roster *roster, int (*visit)(void *ctx, struct roster_target *target), void *ctx);

#endif
