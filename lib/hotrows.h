/*
 * hotrows.h: reads the table that hotlist.h writes. Nothing in it is trusted.
 *
 * Columns are found by their names in the header, so more of them, or another order, do no harm.
 */
#ifndef SPIKEWATCH_HOTROWS_H
#define SPIKEWATCH_HOTROWS_H

#include "hotlist.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the text, as they are there: text_escape was used when they were written, if nobody has changed them. */
struct hotrows_name {
	const char *text;
	size_t len;
};

/* A column that is not there is empty, or 0. */
struct hotrows_row {
	struct hotrows_name function, module, thread;
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES];
	uint64_t self_ns;     /* during */
	int64_t tid;          /* of the top thread */
	uint64_t top_samples; /* of it */
};

/* Walks the text, which must stay. */
struct hotrows {
	const char *at, *end;
	unsigned char columns[16]; /* what each of them is */
	size_t column_count;
	uint64_t samples[HOTLIST_PHASES]; /* of all functions; 0, 0 if it does not say so */
};

/* Reads the header and the remark below it. False: this is no such table. */
bool hotrows_start(struct hotrows *rows, const char *text, size_t len);

/* The next row; those without a function, or with something else than numbers where they belong, are passed over. False: the end. */
bool hotrows_next(struct hotrows *rows, struct hotrows_row *ret);

#endif
