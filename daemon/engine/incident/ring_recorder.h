/*
 * ring_recorder.h: from the ring straight into a stream. A recorder writes what a cursor delivers:
 * with a blocking cursor nothing is lost, and the sampler slows down while the stream's sink is
 * slow; with a lossy one pages that the sampler overwrote first are counted. Every call may wait for
 * the disk.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_RING_RECORDER_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_RING_RECORDER_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/incident/sample_window.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- a recorder: everything that a cursor delivers, into a stream ---- */

struct recorder;

/* A gVisor stream has the columns of all targets side by side: so many fit. */
#define RECORDER_GVISOR_FIELDS 6u
#define RECORDER_GVISOR_TARGETS (STREAM_COLUMNS_MAX / RECORDER_GVISOR_FIELDS)

/* So many writers of a ring are told apart; those beyond count as one of them. */
#define RECORDER_WRITERS 16u

/* The fields of a target in a gVisor stream, in the order of the columns. */
const enum sample_field *recorder_gvisor_fields(void);

struct recorder_options {
	enum stream_format format;
	mono_t start; /* what the times of rows count from */
	wall_t start_wall;
	/* STREAM_GVISOR: the targets in order, as in target.name; must outlive the recorder. */
	const char *const *names;
	size_t name_count;  /* 1 .. RECORDER_GVISOR_TARGETS; else ignored */
	mono_t until;       /* the recording ends with the first tick after this; 0: never */
	uint64_t max_bytes; /* of the stream: rows beyond are dropped and counted; 0: no limit */
};

struct recorder_counts {
	uint64_t ticks, rows;
	uint64_t targets;                       /* seen */
	uint64_t gone;                          /* of them ended */
	uint64_t dropped;                       /* rows beyond max_bytes */
	bool estimated;                         /* of a sum in them CPU_ESTIMATED is known */
	struct sample_window_coverage coverage; /* gaps, lost_pages, and what is counted of holes */
	struct {
		uint64_t ticks;
		struct sample_window_span span;
	} writers[RECORDER_WRITERS]; /* of each, up to `until` */
};

/*
 * Writes the headers. cursor stays the caller's and must outlive the recorder. 0; -ENOMEM; -errno
 * of the sink.
 */
int recorder_new(struct ring_cursor *cursor, struct sink sink, const struct recorder_options *options,
		 struct recorder **ret);

/*
 * Writes whatever is published, up to `until`. 0 when it has caught up; the sink's first error
 * (sticky). May block in the sink.
 */
int recorder_pump(struct recorder *recorder);

/* Hands buffered lines to the sink. */
int recorder_flush(struct recorder *recorder);

/* Totals so far. */
void recorder_counts(const struct recorder *recorder, struct recorder_counts *ret);

/*
 * Pumps, writes the STATS line and the closing checksum, frees. interval_ns: of the sampler, if `until` is over: then
 * the recording has the hole in which it ends, if it does (sample_window_ends_in_hole); else 0. *ret, unless ret is
 * NULL: the totals, also with an error. The first error. recorder may be NULL (0; *ret is not changed).
 */
int recorder_close(struct recorder *recorder, const struct stats *stats, uint64_t interval_ns,
		   struct recorder_counts *ret);

#endif
