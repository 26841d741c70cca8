/*
 * stream.h: writes the checksummed line stream: text that can be cut out of a log full of other programs' lines.
 * The format, and the order in which a reader must verify it, are in docs/stream-format.md; salvage.h reads it.
 * This module frames bytes: it does not know what a column means.
 */
#ifndef SPIKEWATCH_STREAM_H
#define SPIKEWATCH_STREAM_H

#include "clock.h"
#include "sink.h"

#include <stddef.h>
#include <stdint.h>

enum stream_format { STREAM_SPIKEWATCH, STREAM_GVISOR };

/* A column of the rows. Strings must outlive the writer and hold neither tab nor newline. */
struct stream_column {
	const char *name;
	const char *unit;
	const char *kind; /* "counter", "gauge", "limit" */
	const char *description;
};

#define STREAM_COLUMNS_MAX 32

struct stream_options {
	enum stream_format format;
	const struct stream_column *columns; /* copied shallowly */
	size_t column_count;                 /* 1 .. STREAM_COLUMNS_MAX */
	wall_t start;                        /* START_TIME; times of rows count from here */
	uint32_t repeat_rows;                /* headers are repeated after so many rows; 0: 1,000 */
	size_t flush_bytes;                  /* buffered up to here; 0: 64 KiB */
};

struct stream_writer;

/* Writes the headers (they may be buffered). 0; -ENOMEM; -EINVAL. The sink's ctx must outlive the writer. */
int stream_writer_new(struct sink sink, const struct stream_options *options, struct stream_writer **ret);

/*
 * Declares a target that rows refer to: id > 0; json: one object on one line, without tab. It is repeated with the headers until
 * stream_target_gone. 0, -ENOMEM or the first error.
 */
int stream_target(struct stream_writer *writer, uint32_t id, const char *json, size_t len);
int stream_target_gone(struct stream_writer *writer, uint32_t id);

/*
 * One row: time since start in ns, target, one value per column; a column whose bit in mask is 0 is left empty.
 * 0 or the first error (sticky).
 */
int stream_row(struct stream_writer *writer, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);

/* Remarks in the data: kind ("GAP", ...) in capitals, json one line. The reader hands them out. */
int stream_note(struct stream_writer *writer, const char *kind, const char *json, size_t len);

/* One STATS line; json one line. */
int stream_stats(struct stream_writer *writer, const char *json, size_t len);

/* Hands what is buffered to the sink. 0 or the first error. */
int stream_flush(struct stream_writer *writer);

/* Rows written so far, and bytes (headers and checksums included) handed to the writer. */
uint64_t stream_rows(const struct stream_writer *writer);
uint64_t stream_bytes(const struct stream_writer *writer);

/* Writes the overall checksum, flushes, frees. The first error of the writer's life. NULL is fine (0). */
int stream_close(struct stream_writer *writer);

#endif
