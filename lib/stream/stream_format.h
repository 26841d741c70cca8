/*
 * stream_format.h: the frame of a stream's lines: prefix, content, checksum, and the buffer in which
 * they are composed. For the modules of the stream only.
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

struct stream_lines {
	struct sink sink;
	const char *prefix;
	size_t prefix_len;
	size_t flush_bytes;
	int error;                 /* the first one of the sink: sticky */
	char *data;                /* what is not written yet */
	size_t len, cap;           /* len 0: nothing since the last flush */
	size_t content;            /* where the content of the line being composed begins */
	uint32_t adler;            /* overall */
	bool checked;              /* a CRC line ends each flush */
	struct stream_block block; /* of the next CRC line */
	uint64_t flushed_bytes;
};

/*
 * prefix must outlive lines. Contents of up to room bytes never allocate later. 0 or -ENOMEM.
 */
int stream_lines_init(struct stream_lines *lines, struct sink sink, const char *prefix, size_t flush_bytes,
		      size_t room);
void stream_lines_release(struct stream_lines *lines);

/* One line that is no row. 0; -EINVAL: longer than STREAM_LINE_MAX; -ENOMEM; the sink's first error. */
int stream_lines_put(struct stream_lines *lines, const char *content, size_t len);

/* Puts the last CRC line and the overall checksum, and flushes. 0; -ENOMEM; the sink's first error. */
int stream_lines_close(struct stream_lines *lines);

#endif
