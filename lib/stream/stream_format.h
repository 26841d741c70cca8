/*
 * stream_format.h: the frame of a stream's lines: prefix, content, checksum; and how a stream ends
 * that its writer left open. For the modules of the stream only.
 */
#ifndef SPIKEWATCH_LIB_STREAM_STREAM_FORMAT_H
#define SPIKEWATCH_LIB_STREAM_STREAM_FORMAT_H

#include "lib/stream/stream.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What every line begins with, tab included. */
#define STREAM_PREFIX "SPIKEWATCH\t"
#define STREAM_PREFIX_GVISOR "GVISOR_METRICS\t"

/*
 * What is between content and checksum, and what the closing line begins with instead of having a
 * checksum of its own.
 */
#define STREAM_CHECKSUM_MARK "\t0x"
#define STREAM_CLOSING "ADLER32\t0x"

#define STREAM_LINE_MAX 65536 /* bytes of a line, prefix and checksum included: a reader keeps one line */

/* The members of a CRC line. FORMAT announces them, so that a lost one is missed. */
#define STREAM_CRC_KIND "CRC"
#define STREAM_CRC_ANNOUNCED "\"crc\":32"
#define STREAM_CRC_FIRST_ROW "\"first_row\":"
#define STREAM_CRC_ROWS "\"rows\":"
#define STREAM_CRC_ROWS_SUM "\"rows_crc\":"
#define STREAM_CRC_LINES "\"lines\":"
#define STREAM_CRC_LINES_SUM "\"lines_crc\":"

/*
 * What a CRC line says of the lines since the one before it. A sum is that of the CRC-32 of each
 * content, modulo 2^32, so that it does not depend on the order in which lines arrive.
 */
struct stream_block {
	uint64_t first_row, rows;
	uint64_t lines; /* that are neither rows nor CRC lines */
	uint32_t rows_sum, lines_sum;
};

/* What a stream that its writer left open has up to its last whole line. */
struct stream_rest {
	uint32_t adler;            /* overall */
	bool checked;              /* it has CRC lines */
	struct stream_block block; /* of the last CRC line, which is missing */
	uint64_t rows;             /* ever */
	bool counted;              /* the line that says so is there */
};

/* Writes what is missing at the end. 0; -ENOMEM; the sink's first error. */
int stream_rest_close(const struct stream_rest *rest, struct sink sink);

#endif
