/*
 * salvage_lines.h: cuts the lines of a stream (stream_lines.h) out of anything and verifies each by its own
 * checksum. What they say is salvage.h's. Used by that module only.
 */
#ifndef SPIKEWATCH_SALVAGE_LINES_H
#define SPIKEWATCH_SALVAGE_LINES_H

#include "stream.h"
#include "stream_lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line whose checksum agrees; valid during the call. */
struct salvage_line {
	const char *content; /* without prefix and checksum; not terminated */
	size_t len;
	size_t framed_len; /* with the checksum, which follows the content in memory; without newline */
	uint32_t adler;    /* of the content */
	bool closing;      /* STREAM_CLOSING: adler is the number it says, not its own; len is framed_len */
	bool ended;        /* by a newline or by another line of ours: what follows is not the rest of it */
};

/* A non-zero return stops and is returned. */
struct salvage_lines_events {
	int (*line)(void *ctx, const struct salvage_line *line);
	/* Carries a prefix of ours, but is damaged; why is static text. */
	int (*damaged)(void *ctx, const char *why);
	void *ctx;
};

struct salvage_lines {
	struct salvage_lines_events events;
	bool format_known; /* by the first good line: from then on, lines of the other format are foreign */
	enum stream_format format;
	uint64_t line; /* of the input, the current one, from 1; 0 before the first byte */
	uint64_t foreign_lines;
	bool prefix_seen; /* somewhere in the input */

	bool inside;       /* the current line has bytes */
	bool prefixed;     /* and a prefix */
	bool foreign_text; /* and other bytes */
	size_t len;        /* kept of it */
	char data[STREAM_LINE_MAX];
};

/* Zeroes all but data. */
void salvage_lines_init(struct salvage_lines *lines, const struct salvage_lines_events *events);

/* 0 or what an event returned. How the input is cut into pieces makes no difference. */
int salvage_lines_feed(struct salvage_lines *lines, const char *data, size_t len);
/* The end of the input: what there is of a last line without newline. */
int salvage_lines_finish(struct salvage_lines *lines);

#endif
