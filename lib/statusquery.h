/*
 * statusquery.h: what somebody wants to know of a daemon's status: all of it, what concerns some targets and rules, the rows that are nearest to
 * firing, or all but targets. Both ends of the control socket know it: as a question, and as a line of words (docs/status.md). Pure.
 */
#ifndef SPIKEWATCH_STATUSQUERY_H
#define SPIKEWATCH_STATUSQUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0}: everything. Globs are those of fnmatch(3). */
struct statusquery {
	bool brief;         /* no targets */
	uint64_t nearest;   /* so many rows that are nearest to firing; 0: all */
	const char *target; /* glob of the target's name or of its entry's; NULL: any */
	const char *rule;   /* glob of the rule's name; NULL: any */
	char *const *names; /* globs, one of which must match the target, its entry or the rule */
	size_t name_count;  /* 0: any */
};

#define STATUSQUERY_LINE_MAX 512
#define STATUSQUERY_NAMES_MAX 64

/* More are not kept in mind at a time. */
#define STATUSQUERY_NEAREST_MAX 1000

/* A question that was read, with its texts. Not to be moved: the query points into it. */
struct statusquery_line {
	struct statusquery query;
	char *names[STATUSQUERY_NAMES_MAX];
	char text[STATUSQUERY_LINE_MAX];
};

/*
 * Reads words separated by blanks: `brief`, `nearest=N`, `target=GLOB`, `rule=GLOB`, `name=GLOB` (any number). In a glob %XX is a byte; the last of equal
 * words counts. 0; -EINVAL: a word is none of these, a value is empty, or N is no number from 1 to STATUSQUERY_NEAREST_MAX; -E2BIG: too long, or too
 * many names. *ret is undefined after an error.
 */
int statusquery_parse(const char *line, struct statusquery_line *ret);

/* Writes what statusquery_parse reads as the same. 0; -E2BIG: it does not fit into cap bytes, or has too many names; -EINVAL: as above. */
int statusquery_format(const struct statusquery *query, char *buf, size_t cap);

/* Whether a rule on a target of an entry is asked for; of `nearest` it knows nothing. */
bool statusquery_wants(const struct statusquery *query, const char *target, const char *entry, const char *rule);

/* Whether it asks for some targets and rules only. */
bool statusquery_chooses(const struct statusquery *query);

#endif
