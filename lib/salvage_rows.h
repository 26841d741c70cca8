/*
 * salvage_rows.h: the rows of a stream: their text read, and which of them are missing, late or copies. Used by
 * salvage.h only.
 */
#ifndef SPIKEWATCH_SALVAGE_ROWS_H
#define SPIKEWATCH_SALVAGE_ROWS_H

#include "stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value to copy. values beyond columns, and those whose bit in mask is 0, are 0. */
struct salvage_row {
	uint64_t seq; /* from 1; 0 in STREAM_GVISOR, whose rows have no numbers */
	uint64_t time_ns;
	uint32_t target; /* 0 in STREAM_GVISOR */
	uint32_t mask;
	size_t columns; /* 1 .. STREAM_COLUMNS_MAX */
	uint64_t values[STREAM_COLUMNS_MAX];
};

/* Reads the content of a row's line, without checksum. False if it makes no sense; *ret is then undefined. */
bool salvage_rows_parse(enum stream_format format, const char *p, size_t len, struct salvage_row *ret);

/* So far back, rows that are missing can still arrive. */
#define SALVAGE_ROWS_LATE 63

/* Which rows were seen. {0}: none. */
struct salvage_rows {
	uint64_t highest;
	uint64_t seen; /* bit n: row highest - n */
};

/* Was this row seen, or is it too old to tell. */
bool salvage_rows_is_copy(const struct salvage_rows *rows, uint64_t seq);

/* The stream has had `upto` > highest rows. Returns how many of them, at the end, were not seen. */
uint64_t salvage_rows_advance(struct salvage_rows *rows, uint64_t upto);

/* Marks a row that is no copy and not above highest. */
void salvage_rows_mark(struct salvage_rows *rows, uint64_t seq);

#endif
