/*
 * recorder.h: a reader of the ring that writes everything it is delivered into a stream. With a blocking cursor nothing is lost: while
 * the stream's sink is slow the sampler backs off.
 */
#ifndef SPIKEWATCH_RECORDER_H
#define SPIKEWATCH_RECORDER_H

#include "ring.h"
#include "sink.h"
#include "stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recorder;

/* A gVisor stream has one row per tick and the columns of all targets side by side: so many fit. */
#define RECORDER_GVISOR_FIELDS 6u
#define RECORDER_GVISOR_TARGETS (STREAM_COLUMNS_MAX / RECORDER_GVISOR_FIELDS)

/* Which fields of a sample these are, RECORDER_GVISOR_FIELDS of them in the order of the columns. */
const enum sample_field *recorder_gvisor_fields(void);

struct recorder_options {
	enum stream_format format;
	mono_t start; /* what the times of rows count from */
	wall_t start_wall;
	const char *const
		*names;     /* STREAM_GVISOR: the targets in order, as in target.name; must outlive the recorder */
	size_t name_count;  /* 1 .. RECORDER_GVISOR_TARGETS; else ignored */
	mono_t until;       /* ticks after this end the recording; 0: nothing does */
	uint64_t max_bytes; /* of the stream: rows beyond are dropped and counted; 0: no limit */
};

struct recorder_counts {
	uint64_t ticks, rows;
	uint64_t targets;       /* seen */
	uint64_t gone;          /* of them ended */
	uint64_t dropped;       /* rows beyond max_bytes */
	uint64_t gaps;          /* holes: the cursor was overtaken, or pages were damaged, */
	uint64_t damaged_pages; /* so many in all */
	mono_t first, last;     /* ticks; 0 with none */
};

/* Writes the headers. cursor stays the caller's and must outlive the recorder. 0; -ENOMEM; -errno of the sink. */
int recorder_new(struct ring_cursor *cursor, struct sink sink, const struct recorder_options *options,
		 struct recorder **ret);

/* Writes whatever is published, up to `until`. 0 when it has caught up; the sink's first error (sticky). May block in the sink. */
int recorder_pump(struct recorder *recorder);

/* Hands buffered lines to the sink. */
int recorder_flush(struct recorder *recorder);

/* Whether `until` has been passed: there will be no more. */
bool recorder_done(const struct recorder *recorder);

/* Totals so far. */
void recorder_counts(const struct recorder *recorder, struct recorder_counts *ret);

/* Pumps, writes the STATS line and the closing checksum, frees. The first error. NULL is fine (0). */
int recorder_close(struct recorder *recorder, const struct stats *stats);

#endif
