/*
 * top.h: the table of spikewatch top as lines of text: which columns fit, how wide they are, and a
 * row's cells in them. Pure, but for the locale, which says how wide a character is.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_H
#define SPIKEWATCH_CLI_TOP_TOP_H

#include "cli/top/top_data.h"

#include <stdbool.h>
#include <stddef.h>

enum top_text_column {
	TOP_TEXT_TARGET,
	TOP_TEXT_CPU,
	TOP_TEXT_CPU_MINUTE,
	TOP_TEXT_CPU_PEAK,
	TOP_TEXT_MEMORY,
	TOP_TEXT_MEMORY_MINUTE,
	TOP_TEXT_MEMORY_PEAK,
	TOP_TEXT_DISTANCE,
	TOP_TEXT_RULES,
	TOP_TEXT_COLUMNS
};

struct top_text {
	bool utf8;
	size_t width[TOP_TEXT_COLUMNS]; /* in characters; 0: not shown */
};

/* A line never needs more bytes. */
#define TOP_TEXT_LINE_MAX 4096

/*
 * What fits into `width` characters (0: all of everything) of these rows; utf8: blocks are drawn,
 * and other scripts are shown. Names of at most `longest` characters (top_text_longest) are the
 * widest there are.
 */
void top_text_plan(size_t width, bool utf8, size_t longest, struct top_text *ret);

/* Characters of the longest name. */
size_t top_text_longest(const struct top_table_list *list, bool utf8);

/* The heads of the columns. Returns line (TOP_TEXT_LINE_MAX bytes), as all below. */
const char *top_text_heads(const struct top_text *text, char *line);

/* A row. */
const char *top_text_row(const struct top_text *text, const struct top_table *table, const struct top_table_row *row,
			 char *line);

/*
 * text made harmless, in so many characters or fewer: cut at its end, or, tail, at its front, and
 * marked. Returns how many it takes. out has room for TOP_TEXT_LINE_MAX bytes.
 */
size_t top_text_fit(const char *text, size_t width, bool utf8, bool tail, char *out);

/*
 * Values as small pictures, one character each: from bottom to top of the range; what is not known
 * is a space.
 */
void top_text_spark(const double *values, size_t count, double bottom, double top, bool utf8, char *out, size_t cap);

#endif
