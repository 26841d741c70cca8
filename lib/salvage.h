/*
 * salvage.h: reads a stream (stream.h) out of anything: skips what is not ours, reports and skips what is damaged, and
 * always says what was recovered and what was lost. Fed in pieces of any size; never keeps more than one line and the
 * names of the columns. docs/stream-format.md has the format and what is verified in which order.
 *
 * Both formats are read; the first good line decides which one this input holds. Streams that follow one
 * another are told apart by their START_TIME and read one after the other. Rows are handed out once each:
 * copies of a row are counted, and one that comes up to 63 rows late is handed out late. Streams written at the
 * same time into one log are not told apart.
 */
#ifndef SPIKEWATCH_SALVAGE_H
#define SPIKEWATCH_SALVAGE_H

#include "clock.h"
#include "stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct salvage;

/*
 * What is handed out; any may be NULL. Strings are valid during the call and terminated. A non-zero return
 * stops and is returned, by this call and every later one.
 *
 * Headers may be lost: rows then come before the columns have names, or without START_TIME. Headers are also
 * repeated: a target is handed out each time.
 */
struct salvage_events {
	/*
	 * A column is called so; json is its description, or NULL while only its name is known. The last call
	 * for an index counts. A new stream begins with new columns.
	 */
	int (*column)(void *ctx, size_t index, const char *name, const char *json);
	/* Once per stream. */
	int (*start_time)(void *ctx, wall_t start);
	int (*target)(void *ctx, uint32_t id, const char *json, size_t len);
	/* seq counts from 1 in each stream. target is 0 in STREAM_GVISOR. values beyond report.columns are 0. */
	int (*row)(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);
	/* Any kind of line that this version does not know, too. */
	int (*note)(void *ctx, const char *kind, const char *json, size_t len);
	int (*stats)(void *ctx, const char *json, size_t len);
	/*
	 * A line of ours that was thrown away, rows that are missing, a closing checksum that differs: line
	 * counts from 1; why is static text.
	 */
	int (*damage)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	void *ctx;
};

struct salvage_report {
	enum stream_format format;
	bool ours;                            /* at least one line carries our prefix */
	bool complete;                        /* the closing checksum line was there, of every stream */
	bool checksum_ok;                     /* and it agrees. It cannot if a line was lost, or came out of order */
	size_t columns;                       /* of the last stream; 0: not known */
	uint64_t streams;                     /* that followed one another */
	uint64_t lines;                       /* of the input */
	uint64_t foreign_lines;               /* not ours, skipped; empty lines are not counted */
	uint64_t damaged_lines;               /* carry our prefix but fail their checksum or make no sense */
	uint64_t duplicate_lines;             /* copies, skipped */
	uint64_t late_rows;                   /* handed out out of order */
	uint64_t rows;                        /* recovered */
	uint64_t rows_lost;                   /* known to be missing, by their numbers (STREAM_GVISOR has none) */
	uint32_t adler;                       /* of the last stream so far, as its closing line would say it */
	uint64_t first_time_ns, last_time_ns; /* least and greatest of the rows of the last stream; 0 with no rows */
};

/* Whole: ours, complete, checksum_ok, nothing damaged or lost. */
bool salvage_whole(const struct salvage_report *report);

/* 0 or -ENOMEM. *events is copied. */
int salvage_new(const struct salvage_events *events, struct salvage **ret);
/* 0 or what an event returned. */
int salvage_feed(struct salvage *salvage, const char *data, size_t len);
/* The end of the input. As salvage_feed; *ret is always set. */
int salvage_finish(struct salvage *salvage, struct salvage_report *ret);
/* NULL is fine. */
void salvage_free(struct salvage *salvage);

#endif
