/*
 * matcher.h: the target entries of a configuration, compiled, and what all of them together have to
 * know of a process; with entries that have a tree also who descends from whom (process_tree.h), as
 * far as it was told.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_MATCHER_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_MATCHER_H

#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"
#include "lib/model/target.h"
#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * process_tree.h: who descends from whom, and so to which trees (up to 64, by number) a process
 * belongs: to those that it is the root of, and to all of its ancestors'. It is told what is heard
 * (a fork, an end) and what is met (a look at a process); either alone will do. Pure.
 *
 * Once in a tree means in it until the end: a process that executes something else stays, so does
 * one whose parent ends (it is handed to init, or another ancestor), and a child is in it from its
 * fork on. A process is (pid, start time): one that has the pid of another has none of its trees.
 *
 * What cannot be known: the ancestors of a process that was never heard nor met before its parent
 * had ended.
 *
 * Bounded: processes beyond PROCESS_TREE_MAX are not remembered, and counted. Cost: a look-up; a
 * new root costs its descendants.
 */

/* Trees are bits. */
#define PROCESS_TREE_TREES 64u

/*
 * Processes, those that ended lately included: 3.9 MiB, of which only what was used once is taken.
 */
#define PROCESS_TREE_MAX 65536u

/*
 * So many that ended are remembered, for news of their children that come after those of their end.
 */
#define PROCESS_TREE_ENDED_MAX 1024u

struct process_tree;

/* A process as it was met. */
struct process_tree_process {
	int32_t pid;
	int32_t ppid; /* at this moment; 0: it has none */
	uint64_t start_ticks;
};

/*
 * scanned.h: a process as a scan of /proc meets it: its stat, and whatever else is asked for, read
 * when it is. Reused from process to process: it holds all the room.
 */

/* Text of a command line that is looked at; what a description keeps is far shorter. */
#define PROCESS_FACTS_CMDLINE_MAX 8192u

struct process_facts {
	int procfd;
	const struct cgroup_mounts *mounts;
	struct containers *containers;            /* NULL: nobody asks for them */
	struct unlocked_section unlocked_section; /* where its files are read */
	mono_t now;
	struct match_facts facts; /* what is known; point into the room below */
	struct procfs_stat stat;
	uint64_t arguments_at; /* where its arguments begin: another place after an execution; 0: we may not know */
	unsigned asked;        /* bits of match_need that were read, or tried */
	struct container container;
	char text[1024], comm[64], exe[4096], cgroup[4096], cmdline[PROCESS_FACTS_CMDLINE_MAX];
};

/*
 * Whether such an error says nothing about the process that was looked at: out of descriptors, out
 * of memory, -ECANCELED of outside.
 */
bool process_facts_starved(ssize_t error);

/*
 * Meets process pid. procfd, mounts, containers, outside and now are set. 0; -ESRCH: it is gone;
 * -errno: it may not be looked at, or see process_facts_starved.
 */
int process_facts_meet(struct process_facts *process_facts, int32_t pid);

/*
 * Reads of needs (bits of match_need) what was not asked for yet. What cannot be read stays NULL in
 * the facts. 0, or an error of process_facts_starved.
 */
int process_facts_ask(struct process_facts *process_facts, unsigned needs);

struct matcher {
	const struct config_target *entries; /* the configuration's, which must outlive this */
	size_t count;
	struct match **matches;            /* one per entry */
	int32_t *pidfile_pids;             /* one per entry: what its pid file says */
	bool *verdicts;                    /* one per entry: see matcher_judge */
	unsigned needs;                    /* bits of match_need */
	bool unannounced;                  /* what an entry goes by may change without news: see matcher.c */
	bool by_path;                      /* an entry's targets are cgroups that are found by their path */
	bool by_container;                 /* an entry selects containers */
	bool by_label;                     /* and asks for labels */
	bool outside;                      /* an entry has only what is in no cgroup of those before it */
	uint64_t *trees;                   /* one per entry: its bit, 0 without a tree */
	struct process_tree *process_tree; /* NULL: no entry has a tree */
	const struct unit_table *units; /* what else units are called, beside their cgroups' names; NULL: not known */
};

/* 0; -ENOMEM; -EINVAL: an expression does not compile. */
int matcher_new(const struct config *config, struct matcher **ret);

/* Before the configuration. NULL is fine. */
void matcher_free(struct matcher *matcher);
CLEANUP(matcher, free);

/* Reads all pid files anew. True: one says something else than before. */
bool matcher_read_pidfiles(struct matcher *matcher);

/*
 * Takes over what matcher before, which is in force so far, knows of units, and of the trees of
 * entries that both have. Both configurations are still there.
 */
void matcher_succeed(struct matcher *matcher, struct matcher *before);

/*
 * A process that was looked at, with all that the entries need: says in its facts which trees it is
 * in.
 */
void matcher_meet(struct matcher *matcher, struct process_facts *process_facts);

/* Whether a process is of entry i, by itself or by descent (facts.trees). */
bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts);

/* The same for all entries, into verdicts. */
void matcher_judge(struct matcher *matcher, const struct match_facts *facts);

/* Whether it is of entry i by descent alone. */
bool matcher_descends(const struct matcher *matcher, size_t i, const struct match_facts *facts);

/* What was heard: forks and ends of processes. */
void matcher_forked(struct matcher *matcher, int32_t ppid, int32_t pid);
void matcher_ended(struct matcher *matcher, int32_t pid);

/* Whether a process that nobody looked at, or else its parent, was in the tree of entry i. */
bool matcher_was_in_tree(const struct matcher *matcher, size_t i, int32_t pid, int32_t ppid);

/*
 * A scan of all processes begins; it is over. True: it has met descendants before their ancestors,
 * so another would find more.
 */
void matcher_scan_begin(struct matcher *matcher);
bool matcher_scan_end(struct matcher *matcher);

/* Whether somebody came into a tree after he was met: a scan would find him. Tells it once. */
bool matcher_is_behind(struct matcher *matcher);

/*
 * Whether a cgroup is of entry i, whose targets are found by their path; false for other entries.
 * container: that it is, or NULL.
 */
bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path, const struct container *container);

/* The same for any entry. */
bool matcher_any_cgroup(const struct matcher *matcher, const char *path, const struct container *container);

#endif
