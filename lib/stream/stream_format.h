/*
 * stream_format.h: the frame of a stream's lines: prefix, content, checksum, and the buffer in which
 * they are composed. For the modules of the stream only.
 */
#ifndef SPIKEWATCH_LIB_STREAM_STREAM_FORMAT_H
#define SPIKEWATCH_LIB_STREAM_STREAM_FORMAT_H

#include "lib/stream/stream.h"
#include "lib/base/io.h"

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

struct stream_lines {
	struct sink sink;
	const char *prefix;
	size_t prefix_len;
	size_t flush_bytes;
	int error;       /* the first one of the sink: sticky */
	char *data;      /* what is not written yet */
	size_t len, cap; /* len 0: nothing since the last flush */
	size_t content;  /* where the content of the line being composed begins */
	uint32_t adler;  /* overall */
	uint64_t flushed_bytes;
};

/*
 * prefix must outlive lines. Contents of up to room bytes never allocate later. 0 or -ENOMEM.
 */
int stream_lines_init(struct stream_lines *lines, struct sink sink, const char *prefix, size_t flush_bytes,
		      size_t room);
void stream_lines_release(struct stream_lines *lines);

/* One line. 0; -EINVAL: longer than STREAM_LINE_MAX; -ENOMEM; the sink's first error. */
int stream_lines_put(struct stream_lines *lines, const char *content, size_t len);

/* Puts the overall checksum and flushes. 0; -ENOMEM; the sink's first error. */
int stream_lines_close(struct stream_lines *lines);

#endif
