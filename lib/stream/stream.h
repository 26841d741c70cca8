/*
 * stream.h: the checksummed line stream: text that can be cut out of a log full of other programs'
 * lines. A writer, a reader that recovers what is there, and a repair of streams whose writer died.
 * docs/stream-format.md has the format, and the order in which a reader must verify it. This module
 * frames bytes: what a column means is sample_stream.h's.
 *
 * A row costs no allocation. `make bench` measures how many bytes of text a core writes and reads.
 */
#ifndef SPIKEWATCH_LIB_STREAM_STREAM_H
#define SPIKEWATCH_LIB_STREAM_STREAM_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * STREAM_GVISOR is the format of the profiling metrics of gVisor and of its tools. It has one
 * target per stream, no remarks and no missing values: target declarations and notes are dropped,
 * the target of a row is ignored (columns are named for what they measure, like "/web/cpu"), an
 * unavailable value repeats the last one of its column (0 before the first), headers are written
 * once, and of several STATS only the last is written, by stream_close.
 */
enum stream_format { STREAM_SPIKEWATCH, STREAM_GVISOR };

#define STREAM_COLUMNS_MAX 32
#define STREAM_NAME_MAX 127 /* bytes of a column's name: a reader keeps the names of all columns */
#define STREAM_KIND_MAX 31  /* bytes of the kind of a note */

/*
 * A column of the rows. All strings must outlive the writer and hold no control characters; names
 * differ from one another and are neither empty nor, for STREAM_GVISOR, hold a "[".
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
 * Writes the headers (they may be buffered). 0; -ENOMEM; -EINVAL; what the sink returned. The
 * sink's ctx must outlive the writer.
 *
 * Errors of the sink are sticky: every later call returns the first one and writes nothing. -EINVAL
 * (text that would break the format: control characters, a line above 64 KiB) and -ENOMEM refuse
 * one line, and the stream goes on without it.
 */
int stream_writer_new(struct sink sink, const struct stream_options *options, struct stream_writer **ret);

/*
 * Declares a target that rows refer to: id > 0; json: one object on one line, without tab. It is
 * repeated with the headers until stream_target_gone; with more targets than repeat_rows / 16 they
 * take turns. Declaring it again replaces it.
 */
int stream_target(struct stream_writer *writer, uint32_t id, const char *json, size_t len);
int stream_target_gone(struct stream_writer *writer, uint32_t id);

/*
 * One row: time since start in ns, target, one value per column; a column whose bit in mask is 0 is
 * left empty.
 */
int stream_row(struct stream_writer *writer, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);

/*
 * Remarks in the data: kind ("GAP", ...) in capitals and "_", json one line. The reader hands them
 * out.
 */
int stream_note(struct stream_writer *writer, const char *kind, const char *json, size_t len);

/* One STATS line; json one line. */
int stream_stats(struct stream_writer *writer, const char *json, size_t len);

/* Hands what is buffered to the sink, in one write. */
int stream_flush(struct stream_writer *writer);

/* Bytes written so far, headers and checksums included. */
uint64_t stream_bytes(const struct stream_writer *writer);

/*
 * Writes the number of rows and the overall checksum, flushes, frees. The first error of the
 * writer's life. NULL is fine (0).
 */
int stream_close(struct stream_writer *writer);

/*
 * The reader takes any input: it skips foreign lines, reports and skips damaged ones, and always
 * reports what was recovered and what was lost. It never keeps more than one line and the names of
 * the columns.
 *
 * Both formats are read; the first good line decides which one this input holds. Streams that
 * follow one another are told apart by their START_TIME and read one after the other. Rows are
 * handed out once each: copies of a row are counted, and one that comes late is handed out late,
 * unless more than 4,096 separate ranges of rows are missing. Streams written at the same time into
 * one log are not told apart.
 */

struct stream_reader;

/*
 * What is handed out; any may be NULL. Strings are valid during the call and terminated. A non-zero
 * return stops and is returned, by this call and every later one.
 *
 * Headers may be lost: rows then come before the columns have names, or without START_TIME. Headers
 * are also repeated: a target is handed out each time.
 */
struct stream_reader_events {
	/*
	 * A column is called so; json is its description, or NULL while only its name is known. The
	 * last call for an index counts. A new stream begins with new columns.
	 */
	int (*column)(void *ctx, size_t index, const char *name, const char *json);
	/* Once per stream. */
	int (*start_time)(void *ctx, wall_t start);
	int (*target)(void *ctx, uint32_t id, const char *json, size_t len);
	/*
	 * seq counts from 1 in each stream. target is 0 in STREAM_GVISOR. values beyond
	 * report.columns are 0.
	 */
	int (*row)(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);
	/* Any kind of line that this version does not know, too. */
	int (*note)(void *ctx, const char *kind, const char *json, size_t len);
	int (*stats)(void *ctx, const char *json, size_t len);
	/*
	 * A line of ours that was thrown away, rows that are missing, a closing checksum that
	 * differs: line counts from 1; why is static text.
	 */
	int (*damage)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	/* stream_read_fd has read so many bytes more. */
	void (*progress)(void *ctx, uint64_t bytes);
	void *ctx;
};

struct stream_reader_report {
	enum stream_format format;
	bool ours;                /* at least one line carries our prefix */
	bool complete;            /* the closing checksum line was there, of every stream */
	bool checksum_ok;         /* and it agrees. It cannot if a line was lost, or came out of order */
	size_t columns;           /* of the last stream; 0: not known */
	uint64_t streams;         /* that followed one another */
	uint64_t lines;           /* of the input */
	uint64_t foreign_lines;   /* not ours, skipped; empty lines are not counted */
	uint64_t damaged_lines;   /* carry our prefix but fail their checksum or make no sense */
	uint64_t duplicate_lines; /* copies, skipped */
	uint64_t late_rows;       /* handed out out of order */
	uint64_t rows;            /* recovered */
	uint64_t rows_lost;       /* known to be missing, by their numbers (STREAM_GVISOR has none) */
	uint64_t crc_differs;     /* CRC lines that do not agree, or are missing */
	uint64_t rows_unchecked;  /* of rows: no CRC line vouches for them, in streams that have CRC lines */
	uint32_t adler;           /* of the last stream so far, as its closing line would say it */
	uint64_t first_time_ns, last_time_ns; /* least and greatest of the rows of the last stream; 0 with no rows */
};

/* Whole: ours, complete, checksum_ok, no line damaged, lost or unchecked. */
static inline bool stream_reader_whole(const struct stream_reader_report *report)
{
	return report->ours && report->complete && report->checksum_ok && !report->damaged_lines &&
	       !report->rows_lost && !report->crc_differs && !report->rows_unchecked;
}

/* 0 or -ENOMEM. *events is copied. */
int stream_reader_new(const struct stream_reader_events *events, struct stream_reader **ret);
/*
 * Reads fd from its offset on, up to its end or max bytes; the next call goes on from there. 0;
 * -errno of read(2); -ENOMEM; what an event returned. What came before an error was handed out.
 */
int stream_read_fd(struct stream_reader *stream_reader, int fd, uint64_t max);
/* The end of the input. 0 or what an event returned; *ret is always set. */
int stream_reader_finish(struct stream_reader *stream_reader, struct stream_reader_report *ret);
/* NULL is fine. */
void stream_reader_free(struct stream_reader *stream_reader);
CLEANUP(stream_reader, free);

/*
 * The stream has its end already, holds none of ours, is damaged in more than its last line, or is
 * gVisor's: it is as it was.
 */
enum { STREAM_REPAIR_LEFT = 1 };

/*
 * fd: a plain file, for reading and writing, without another writer. Removes a last line that has no
 * end, and appends the number of rows and the overall checksum. 0; STREAM_REPAIR_LEFT;
 * -ENOMEM; -errno: what was appended may be a part. Reads the file once.
 */
int stream_repair(int fd);

#endif
