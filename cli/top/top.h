/*
 * top.h: the table of spikewatch top as lines of text: which columns fit, how wide they are, and a row's cells in them. Pure, but for the
 * locale, which says how wide a character is.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_H
#define SPIKEWATCH_CLI_TOP_TOP_H

#include "cli/top/top_data.h"

#include <stdbool.h>
#include <stddef.h>

enum toptext_column {
	TOPTEXT_TARGET,
	TOPTEXT_CPU,
	TOPTEXT_CPU_MINUTE,
	TOPTEXT_CPU_PEAK,
	TOPTEXT_MEMORY,
	TOPTEXT_MEMORY_MINUTE,
	TOPTEXT_MEMORY_PEAK,
	TOPTEXT_DISTANCE,
	TOPTEXT_RULES,
	TOPTEXT_COLUMNS
};

struct toptext {
	bool utf8;
	size_t width[TOPTEXT_COLUMNS]; /* in characters; 0: not shown */
};

/* A line never needs more bytes. */
#define TOPTEXT_LINE_MAX 4096

/*
 * What fits into `width` characters (0: all of everything) of these rows; utf8: blocks are drawn, and other scripts are shown. Names of
 * at most `longest` characters (toptext_longest) are the widest there are.
 */
void toptext_plan(size_t width, bool utf8, size_t longest, struct toptext *ret);

/* Characters of the longest name. */
size_t toptext_longest(const struct toptable_list *list, bool utf8);

/* The heads of the columns. Returns line (TOPTEXT_LINE_MAX bytes), as all below. */
const char *toptext_heads(const struct toptext *text, char *line);

/* A row. */
const char *toptext_row(const struct toptext *text, const struct toptable *table, const struct toptable_row *row,
			char *line);

/*
 * text made harmless, in so many characters or fewer: cut at its end, or, tail, at its front, and marked. Returns how many it takes. out has
 * room for TOPTEXT_LINE_MAX bytes.
 */
size_t toptext_fit(const char *text, size_t width, bool utf8, bool tail, char *out);

/* Values as small pictures, one character each: from bottom to top of the range; what is not known is a space. */
void toptext_spark(const double *values, size_t count, double bottom, double top, bool utf8, char *out, size_t cap);

#endif
