/*
 * salvage_columns.h: what is known of the columns of a stream, from descriptions and column headers of which
 * any may be lost. Used by salvage.h only.
 */
#ifndef SPIKEWATCH_SALVAGE_COLUMNS_H
#define SPIKEWATCH_SALVAGE_COLUMNS_H

#include "stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer descriptions in STREAM_GVISOR are not kept until the column header says which column they are of. */
#define SALVAGE_COLUMNS_JSON_MAX 511

struct salvage_columns_held {
	char name[STREAM_NAME_MAX + 1];
	char json[SALVAGE_COLUMNS_JSON_MAX + 1];
};

/* {0}: nothing is known. */
struct salvage_columns {
	size_t count;   /* 0: not known */
	bool named;     /* by the column header */
	uint32_t known; /* bit per column: it has a description */

	/* What the last call has found out: bit per column. json may be NULL, and is valid until the next call. */
	uint32_t news;
	char names[STREAM_COLUMNS_MAX][STREAM_NAME_MAX + 1];
	const char *json[STREAM_COLUMNS_MAX];

	size_t held_count; /* STREAM_GVISOR: descriptions seen */
	struct salvage_columns_held held[STREAM_COLUMNS_MAX];
};

/*
 * What follows META: name, tab, description. False if it makes no sense. text must stay valid while the news
 * are told.
 */
bool salvage_columns_describe(struct salvage_columns *columns, enum stream_format format, const char *text);

/* What follows the cells for number, time and target in the column header: names. False if they make no sense. */
bool salvage_columns_name(struct salvage_columns *columns, enum stream_format format, const char *text);

/* A row has count values: may it be read? If how many columns there are is not known yet, it may tell. */
bool salvage_columns_fit(struct salvage_columns *columns, enum stream_format format, size_t count);

#endif
