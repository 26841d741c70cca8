/*
 * match.h: does a process or a cgroup belong to a target entry of the configuration? Pure: facts come as arguments.
 */
#ifndef SPIKEWATCH_MATCH_H
#define SPIKEWATCH_MATCH_H

#include "config.h"
#include "container.h"

#include <stdbool.h>
#include <stdint.h>

/* What an entry has to know of a process before it can decide. */
enum match_need { MATCH_COMM = 1, MATCH_EXE = 2, MATCH_CMDLINE = 4, MATCH_CGROUP = 8, MATCH_CONTAINER = 16 };

/* A process as far as it is known: NULL is "not known" and matches nothing. */
struct match_facts {
	int32_t pid;
	const char *comm;
	const char *exe;                   /* path of the executable; " (deleted)" is not part of it */
	const char *cmdline;               /* arguments, joined by spaces */
	const char *cgroup;                /* path below the hierarchy's root */
	uint64_t trees;                    /* that it belongs to (kinship.h): for whoever numbers them */
	const struct container *container; /* that it is in, with its labels */
};

struct match;

/* Compiles an entry, which must outlive it. 0; -ENOMEM; -EINVAL: the expression does not compile. */
int match_new(const struct config_target *entry, struct match **ret);
void match_free(struct match *match);

/* Bits of match_need. 0 for entries by pid, and for entries whose targets are cgroups found by their path. */
unsigned match_needs(const struct match *match);

/* Whether this entry is decided by looking at cgroups alone (selector cgroup, unit or containers, per cgroup). */
bool match_is_by_path(const struct match *match);

/*
 * Whether a process matches. pidfile_pid: what the entry's pid file says now, 0 if nothing (only looked at for entries by pid
 * file). Entries by path never match a process.
 */
bool match_process(const struct match *match, const struct match_facts *facts, int32_t pidfile_pid);

/* Whether a cgroup matches an entry by cgroup, unit or container; false for all others. container: that it is, NULL: none. */
bool match_cgroup(const struct match *match, const char *path, const struct container *container);

/* Whether the glob of an entry by unit means a unit of this name. A backslash in either is a backslash. */
bool match_unit_name(const char *glob, const char *name);

#endif
