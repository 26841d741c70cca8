/*
 * ring_recorder.h: from the ring straight into a stream. A recorder writes what a cursor delivers:
 * with a blocking cursor nothing is lost, and the sampler slows down while the stream's sink is
 * slow. A full recording is the samples.tsv of an incident of all targets, written through a lossy
 * cursor: pages that the sampler overwrote first are counted. Every call may wait for the disk.
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
	struct sample_window_coverage coverage; /* gaps, lost_pages, and what is counted of holes */
	mono_t first, last;                     /* ticks; 0 with none */
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
 * Pumps, writes the STATS line and the closing checksum, frees. The first error. NULL is fine (0).
 */
int recorder_close(struct recorder *recorder, const struct stats *stats);

/* ---- a full recording ---- */

struct full_recording;

struct full_recording_options {
	const struct ring *ring; /* must outlive it */
	mono_t fired;
	wall_t wall; /* of fired */
	uint64_t before_ns, after_ns;
	uint64_t max_bytes; /* of the file; samples beyond are dropped and counted. 0: no limit */
};

/*
 * Makes samples.tsv in dirfd and writes what the ring holds of the window by now. 0; -ENOMEM;
 * -errno, and then there is no such file. dirfd stays the caller's and must outlive it.
 */
int full_recording_open(const struct full_recording_options *options, int dirfd, struct full_recording **ret);

/* Writes what was sampled since. 0; -errno: the first error, also from all later calls. */
int full_recording_follow(struct full_recording *recording);

/*
 * Follows once more, ends the file, frees. 0: *ret, how much of the window there is, and the size
 * of the file; -errno: the first error, and the file is removed.
 */
int full_recording_close(struct full_recording *recording, struct sample_window_coverage *ret, uint64_t *ret_bytes);

/*
 * How large the file would be, within a hundred bytes, if it were opened and closed now. 0;
 * -ENOMEM. Costs as much as writing it without a disk.
 */
int full_recording_bytes(const struct full_recording_options *options, uint64_t *ret_bytes);

/* Frees it and removes the file. NULL is fine. */
void full_recording_abort(struct full_recording *recording);
CLEANUP(full_recording, abort);

#endif
