/*
 * diff.h: the same things seen twice, on side A and on side B, with the numbers of both: which have
 * grown, which have shrunk, which are on one side only. Pure.
 */
#ifndef SPIKEWATCH_CLI_DIFF_DIFF_H
#define SPIKEWATCH_CLI_DIFF_DIFF_H

#include "lib/base/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum contrast_side { CONTRAST_A, CONTRAST_B, CONTRAST_SIDES };

/* Numbers of one thing on one side: self and total, resident and swapped. */
#define CONTRAST_MEASURES 2

/* The same name and place is the same thing. */
struct contrast_row {
	const char *name, *place;   /* as they were added; of the contrast */
	bool there[CONTRAST_SIDES]; /* else its amounts are 0 */
	uint64_t amount[CONTRAST_SIDES][CONTRAST_MEASURES];
};

/* {0} is empty and legal. The caller sets shares, ranked, and what describes a side. */
struct contrast {
	bool shares;     /* amounts count as percent of their side's sum, not as they are */
	unsigned ranked; /* growth is that of the first so many measures together; 0: 1 */

	bool known[CONTRAST_SIDES];        /* it was looked at; else nothing is compared */
	uint64_t sum[CONTRAST_SIDES];      /* of everything, whether in a row or not; for shares */
	uint64_t left_out[CONTRAST_SIDES]; /* that are not in the rows */

	struct contrast_row *rows;
	size_t count, cap;
	struct intern keys;
};

/*
 * A thing, or more of it: amounts are added up. Neither name nor place holds a NUL. Not after
 * contrast_sort. 0 or -ENOMEM.
 */
struct contrast_key {
	const char *name, *place; /* need no NUL */
	size_t name_len, place_len;
};
int contrast_add(struct contrast *contrast, enum contrast_side side, const struct contrast_key *key,
		 const uint64_t amount[static CONTRAST_MEASURES]);

/* Percent of all of its side, or the amount. 0 of a side that has nothing. */
double contrast_value(const struct contrast *contrast, const struct contrast_row *row, enum contrast_side side,
		      unsigned measure);

/*
 * By how much it has grown from A to B: in points, or in the unit of the amounts; less than 0: it
 * has shrunk.
 */
double contrast_growth(const struct contrast *contrast, const struct contrast_row *row, unsigned measure);

/* That of all that is ranked. */
double contrast_rank(const struct contrast *contrast, const struct contrast_row *row);

/* The row's rank shows. */
bool contrast_changed(const struct contrast *contrast, const struct contrast_row *row);

/* What has grown most first, what has shrunk most last; equals by name and place. Cost: n log n. */
void contrast_sort(struct contrast *contrast);

/*
 * Of the sorted rows, the at most max that have changed most: the first *ret_head and the last
 * *ret_tail. Returns how many have changed in all.
 */
size_t contrast_choose(const struct contrast *contrast, size_t max, size_t *ret_head, size_t *ret_tail);

/* Frees everything; {0} then. */
void contrast_release(struct contrast *contrast);

#endif
