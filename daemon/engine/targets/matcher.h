/*
 * matcher.h: the target entries of a configuration, compiled; the facts of a process that they
 * need; and for entries with "tree" the process tree: to which trees a process belongs, which are
 * those that it is the root of, and all of its ancestors'. The tree is updated by events (fork,
 * exit) and by scans; either alone will do.
 *
 * Once in a tree a process stays in it until its end: also if it executes something else, or if its
 * parent ends (it is reparented to init, or another ancestor); a child is in it from its fork on. A
 * process is (pid, start time): one that reuses a pid is in none of the trees of the one before.
 * Not known: the ancestors of a process that had no event and was not met before its parent ended.
 *
 * For one thread at a time.
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

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a command line, for matching; what a description keeps is far shorter. */
#define PROCESS_FACTS_CMDLINE_MAX 8192u

/* A process as a scan meets it: its stat, and other files when they are asked for. Reused. */
struct process_facts {
	int procfd;
	const struct cgroup_mounts *mounts;
	struct containers *containers;            /* NULL: no process has any */
	struct unlocked_section unlocked_section; /* in which its files are read */
	mono_t now;
	struct match_facts facts; /* what is known; points to the texts below */
	struct procfs_stat stat;
	uint64_t arguments_at; /* address of its arguments: another one after an exec; 0: not permitted to read */
	unsigned asked;        /* bits of match_need that were read, or tried */
	bool unanswered;       /* its command line could not be had: that says nothing about it */
	bool executing;        /* unanswered, as it executes: it will have one soon */
	struct container container;
	char text[1024], comm[64], exe[4096], cgroup[4096], cmdline[PROCESS_FACTS_CMDLINE_MAX];
};

/*
 * Whether such an error says nothing about the process: out of descriptors, out of memory,
 * -ECANCELED of the unlocked section.
 */
static inline bool process_facts_starved(ssize_t error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ECANCELED;
}

/*
 * Reads those of needs (bits of match_need) that were not asked for yet. What cannot be read is
 * NULL in the facts. 0, or an error of process_facts_starved.
 */
int process_facts_ask(struct process_facts *process_facts, unsigned needs);

struct process_tree;

/*
 * Whether a process is of an entry: not; by an ancestor alone (facts.trees); by itself; not known, because what it
 * selects by did not come in time: a process that was of it still is.
 */
enum matcher_verdict { MATCHER_NOT, MATCHER_DESCENDS, MATCHER_ITSELF, MATCHER_UNKNOWN };

struct matcher {
	const struct config_target *entries; /* the configuration's, which must outlive this */
	size_t count;
	struct match **matches;            /* one per entry */
	int32_t *pidfile_pids;             /* one per entry: what its pid file says */
	enum matcher_verdict *verdicts;    /* one per entry, on the process of the last matcher_look */
	unsigned needs;                    /* bits of match_need */
	bool unannounced;                  /* what an entry selects by may change without an event */
	bool by_path;                      /* an entry's targets are cgroups that are found by their path */
	bool by_container;                 /* an entry selects containers */
	bool by_label;                     /* and their labels */
	bool outside;                      /* an entry has only what is in no cgroup of those before it */
	uint64_t *trees;                   /* one per entry: its bit, 0 without a tree */
	struct process_tree *process_tree; /* NULL: no entry has a tree */
	const struct unit_table *units;    /* names of units that their cgroups do not have; NULL: not known */
};

/* 0; -ENOMEM; -EINVAL: an expression does not compile. */
int matcher_new(const struct config *config, struct matcher **ret);

/* Before the configuration. NULL is fine. */
void matcher_free(struct matcher *matcher);
CLEANUP(matcher, free);

/*
 * Takes over from the matcher in force the table of units, and the trees of entries that both have.
 * Both configurations are still valid.
 */
void matcher_succeed(struct matcher *matcher, struct matcher *before);

/*
 * Looks at process pid: reads its stat and what the entries need, updates the process tree and sets
 * verdicts. procfd, mounts, containers, unlocked_section and now are set. 0; -ESRCH: it is gone;
 * -errno: not permitted, or see process_facts_starved.
 */
int matcher_look(struct matcher *matcher, struct process_facts *process_facts, int32_t pid);

/* Whether a process is of entry i, by itself or by descent (facts.trees). */
bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts);

/* Updates the process tree by a fork or an exit; other events change nothing. */
void matcher_event(struct matcher *matcher, const struct procevent *event);

/* Whether a process that was never looked at, or else its parent, was in the tree of entry i. */
bool matcher_was_in_tree(const struct matcher *matcher, size_t i, int32_t pid, int32_t ppid);

/*
 * A scan of all processes begins: reads the pid files again, in the section. 1: one has changed; 0;
 * -ECANCELED: the section's, and the matcher may be gone.
 */
int matcher_scan_begin(struct matcher *matcher, const struct unlocked_section *section);

/*
 * Whether a process came into a tree after it was met (descendants before their ancestors): a scan
 * would find it. True once. scanned: a scan is over, and what it has not met is forgotten.
 */
bool matcher_take_belated(struct matcher *matcher, bool scanned);

/*
 * Whether a cgroup is of entry i, whose targets are found by their path; false for other entries.
 * container: that it is, or NULL.
 */
bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path, const struct container *container);

#endif
