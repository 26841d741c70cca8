/*
 * selection.h: what a client asks of the status of a daemon (everything, what concerns some targets
 * and rules, the rows that are nearest to firing, or all but targets), which both ends of the control
 * socket know as a question and as a line of words (docs/status.md); and whether a process or cgroup
 * belongs to a target entry. Pure.
 */
#ifndef SPIKEWATCH_LIB_CONFIG_SELECTION_H
#define SPIKEWATCH_LIB_CONFIG_SELECTION_H

#include "lib/config/config.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether every ) outside of sets ends what a ( began, or is escaped. */
bool text_regex_is_balanced(const char *pattern);

/* What an entry has to know of a process before it can decide. */
enum match_need { MATCH_COMM = 1, MATCH_EXE = 2, MATCH_CMDLINE = 4, MATCH_CGROUP = 8, MATCH_CONTAINER = 16 };

/* A process as far as it is known: NULL is "not known" and matches nothing. */
struct match_facts {
	int32_t pid;
	const char *comm;
	const char *exe;                   /* path of the executable; " (deleted)" is not part of it */
	const char *cmdline;               /* arguments, joined by spaces */
	const char *cgroup;                /* path below the hierarchy's root */
	uint64_t trees;                    /* that it belongs to, numbered as in process_tree.h */
	const struct container *container; /* that it is in, with its labels */
};

struct match;

/*
 * Compiles an entry, which must outlive it. 0; -ENOMEM; -EINVAL: the expression does not compile.
 */
int match_new(const struct config_target *entry, struct match **ret);
void match_free(struct match *match);

/*
 * Bits of match_need. 0 for entries by pid, and for entries whose targets are cgroups found by
 * their path.
 */
unsigned match_needs(const struct match *match);

/*
 * Whether this entry is decided by looking at cgroups alone (selector cgroup, unit or containers,
 * per cgroup).
 */
bool match_is_by_path(const struct match *match);

/*
 * Whether a process matches. pidfile_pid: what the entry's pid file says now, 0 if nothing (only
 * looked at for entries by pid file). Entries by path never match a process.
 */
bool match_process(const struct match *match, const struct match_facts *facts, int32_t pidfile_pid);

/*
 * Whether the cgroup of these facts is one that the entry selects, or below one; false for entries
 * that are not by path. Entries with "outside" do not select that of which this is true for an
 * entry before them.
 */
bool match_contains(const struct match *match, const struct match_facts *facts);

/*
 * Whether a cgroup matches an entry by cgroup, unit or container; false for all others. container:
 * that it is, NULL: none.
 */
bool match_cgroup(const struct match *match, const char *path, const struct container *container);

/*
 * Whether the glob of an entry by unit means a unit of this name. A backslash in either is a
 * backslash; "!(a*|b*)" is what matches none of these (fnmatch(3), FNM_EXTMATCH).
 */
bool match_unit_name(const char *glob, const char *name);

/* {0}: everything. Globs are those of fnmatch(3). */
struct status_query {
	bool brief;         /* no targets */
	uint64_t nearest;   /* so many rows that are nearest to firing; 0: all */
	const char *target; /* glob of the target's name or of its entry's; NULL: any */
	const char *rule;   /* glob of the rule's name; NULL: any */
	char *const *names; /* globs, one of which must match the target, its entry or the rule */
	size_t name_count;  /* 0: any */
};

#define STATUS_QUERY_LINE_MAX 512
#define STATUS_QUERY_NAMES_MAX 64

/* More are not kept in mind at a time. */
#define STATUS_QUERY_NEAREST_MAX 1000

/* A question that was read, with its texts. Not to be moved: the query points into it. */
struct status_query_line {
	struct status_query query;
	char *names[STATUS_QUERY_NAMES_MAX];
	char text[STATUS_QUERY_LINE_MAX];
};

/*
 * Reads words separated by blanks: `brief`, `nearest=N`, `target=GLOB`, `rule=GLOB`, `name=GLOB`
 * (any number). In a glob %XX is a byte; the last of equal words counts. 0; -EINVAL: a word is none
 * of these, a value is empty, or N is no number from 1 to STATUS_QUERY_NEAREST_MAX; -E2BIG: too
 * long, or too many names. *ret is undefined after an error.
 */
int status_query_parse(const char *line, struct status_query_line *ret);

/*
 * Writes what status_query_parse reads as the same. 0; -E2BIG: it does not fit into cap bytes, or
 * has too many names; -EINVAL: as above.
 */
int status_query_format(const struct status_query *query, char *buf, size_t cap);

/* Whether a rule on a target of an entry is asked for; of `nearest` it knows nothing. */
bool status_query_wants(const struct status_query *query, const char *target, const char *entry, const char *rule);

/* Whether it asks for some targets and rules only. */
static inline bool status_query_chooses(const struct status_query *query)
{
	return query->target || query->rule || query->name_count > 0;
}

#endif
