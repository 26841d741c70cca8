/*
 * matcher.h: the target entries of a configuration, compiled, and what all of them together have to know of a process; with entries that have a
 * tree also who descends from whom (kinship.h), as far as it was told.
 */
#ifndef SPIKEWATCH_MATCHER_H
#define SPIKEWATCH_MATCHER_H

#include "config.h"
#include "kinship.h"
#include "match.h"
#include "scanned.h"
#include "unittable.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct matcher {
	const struct config_target *entries; /* the configuration's, which must outlive this */
	size_t count;
	struct match **matches;        /* one per entry */
	int32_t *pidfile_pids;         /* one per entry: what its pid file says */
	bool *verdicts;                /* one per entry: see matcher_judge */
	unsigned needs;                /* bits of match_need */
	bool unannounced;              /* what an entry goes by may change without news: see matcher.c */
	bool by_path;                  /* an entry's targets are cgroups that are found by their path */
	bool by_container;             /* an entry selects containers */
	bool by_label;                 /* and asks for labels */
	uint64_t *trees;               /* one per entry: its bit, 0 without a tree */
	struct kinship *kinship;       /* NULL: no entry has a tree */
	const struct unittable *units; /* what else units are called, beside their cgroups' names; NULL: not known */
};

/* 0; -ENOMEM; -EINVAL: an expression does not compile. */
int matcher_new(const struct config *config, struct matcher **ret);

/* Before the configuration. NULL is fine. */
void matcher_free(struct matcher *matcher);

/* Reads all pid files anew. True: one says something else than before. */
bool matcher_read_pidfiles(struct matcher *matcher);

/* Takes over what matcher before, which is in force so far, knows of units, and of the trees of entries that both have. Both configurations are still there. */
void matcher_succeed(struct matcher *matcher, struct matcher *before);

/* A process that was looked at, with all that the entries need: says in its facts which trees it is in. */
void matcher_meet(struct matcher *matcher, struct scanned *scanned);

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

/* A scan of all processes begins; it is over. True: it has met descendants before their ancestors, so another would find more. */
void matcher_scan_begin(struct matcher *matcher);
bool matcher_scan_end(struct matcher *matcher);

/* Whether somebody came into a tree after he was met: a scan would find him. Tells it once. */
bool matcher_is_behind(struct matcher *matcher);

/* Whether a cgroup is of entry i, whose targets are found by their path; false for other entries. container: that it is, or NULL. */
bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path, const struct container *container);

/* The same for any entry. */
bool matcher_any_cgroup(const struct matcher *matcher, const char *path, const struct container *container);

#endif
