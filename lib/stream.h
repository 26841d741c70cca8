/*
 * stream.h: writes the checksummed line stream: text that can be cut out of a log full of other programs' lines.
 * The format, and the order in which a reader must verify it, are in docs/stream-format.md; salvage.h reads it.
 * This module frames bytes: it does not know what a column means.
 *
 * A row costs no allocation and, with ten values, some 120 ns: 1 GB/s of text on one core.
 */
#ifndef SPIKEWATCH_STREAM_H
#define SPIKEWATCH_STREAM_H

#include "clock.h"
#include "sink.h"

#include <stddef.h>
#include <stdint.h>

/*
 * STREAM_GVISOR is what the profiling metrics of gVisor look like and its tools read. It knows one target per
 * stream, no remarks and no missing values: target declarations and notes are dropped, the target of a row is
 * ignored (columns are named for what they measure, like "/web/cpu"), an unavailable value repeats the last one
 * of its column (0 before the first), headers are written once, and of several STATS only the last is written,
 * by stream_close.
 */
enum stream_format { STREAM_SPIKEWATCH, STREAM_GVISOR };

#define STREAM_COLUMNS_MAX 32
#define STREAM_NAME_MAX 127 /* bytes of a column's name: a reader keeps the names of all columns */
#define STREAM_KIND_MAX 31  /* bytes of the kind of a note */

/*
 * A column of the rows. All strings must outlive the writer and hold no control characters; names differ from
 * one another and are neither empty nor, for STREAM_GVISOR, hold a "[".
 */
struct stream_column {
	const char *name;
	const char *unit;
	const char *kind; /* "counter", "gauge", "limit" */
	const char *description;
};

struct stream_options {
	enum stream_format format;
	const struct stream_column *columns; /* copied shallowly */
	size_t column_count;                 /* 1 .. STREAM_COLUMNS_MAX */
	wall_t start;         /* START_TIME; times of rows count from here. Tells streams in one log apart */
	uint32_t repeat_rows; /* headers are repeated after so many rows; 0: 1,000 */
	size_t flush_bytes;   /* buffered up to here; 0: 64 KiB */
};

struct stream_writer;

/*
 * Writes the headers (they may be buffered). 0; -ENOMEM; -EINVAL; what the sink returned. The sink's ctx must
 * outlive the writer.
 *
 * Errors of the sink are sticky: every later call returns the first one and writes nothing. -EINVAL (text that
 * would break the format: control characters, a line above 64 KiB) and -ENOMEM refuse one line, and the stream
 * goes on without it.
 */
int stream_writer_new(struct sink sink, const struct stream_options *options, struct stream_writer **ret);

/*
 * Declares a target that rows refer to: id > 0; json: one object on one line, without tab. It is repeated with
 * the headers until stream_target_gone; with more targets than repeat_rows / 16 they take turns. Declaring it
 * again replaces it.
 */
int stream_target(struct stream_writer *writer, uint32_t id, const char *json, size_t len);
int stream_target_gone(struct stream_writer *writer, uint32_t id);

/*
 * One row: time since start in ns, target, one value per column; a column whose bit in mask is 0 is left empty.
 */
int stream_row(struct stream_writer *writer, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);

/* Remarks in the data: kind ("GAP", ...) in capitals and "_", json one line. The reader hands them out. */
int stream_note(struct stream_writer *writer, const char *kind, const char *json, size_t len);

/* One STATS line; json one line. */
int stream_stats(struct stream_writer *writer, const char *json, size_t len);

/* Hands what is buffered to the sink, in one write. */
int stream_flush(struct stream_writer *writer);

/* Rows written so far, and bytes (headers and checksums included). */
uint64_t stream_rows(const struct stream_writer *writer);
uint64_t stream_bytes(const struct stream_writer *writer);

/*
 * Writes the number of rows and the overall checksum, flushes, frees. The first error of the writer's life.
 * NULL is fine (0).
 */
int stream_close(struct stream_writer *writer);

#endif
