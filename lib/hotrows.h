/*
 * hotrows.h: reads the tables that hotlist.h writes. Nothing in them is trusted.
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

/* A column that is not there is empty, or 0. Numbers are in the unit of the table. */
struct hotrows_row {
	struct hotrows_name function; /* empty: the row is of a thread */
	struct hotrows_name module, thread, process;
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES];
	uint64_t self_ns;     /* during; of samples */
	uint64_t self_faults; /* during; of bytes */
	int64_t tid, pid;     /* of the top thread */
	uint64_t top_amount;  /* of it */
};

/* Walks the text, which must stay. */
struct hotrows {
	const char *at, *end;
	unsigned char columns[16]; /* what each of them is */
	size_t column_count;
	enum hotlist_unit unit;
	uint64_t sum[HOTLIST_PHASES];          /* of all functions; 0, 0 if it does not say so */
	uint64_t more_functions, more_threads; /* left out, as far as remarks before this row say so */
};

/* Reads the header and the remark below it. False: this is no such table. */
bool hotrows_start(struct hotrows *rows, const char *text, size_t len);

/*
 * The next row, of a function or of a thread. Those that name neither, or have something else than numbers where they
 * belong, are passed over, and so are remarks. False: the end.
 */
bool hotrows_next(struct hotrows *rows, struct hotrows_row *ret);

#endif
