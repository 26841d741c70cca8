/*
 * sample_stream.h: samples and targets as a stream holds them: one column for each field of a sample,
 * a target as one JSON object. Every writer and every reader of samples in a stream (the window of an
 * incident, a recording) uses this module, so that all agree. Nothing that is read is trusted.
 */
#ifndef SPIKEWATCH_LIB_STREAM_SAMPLE_STREAM_H
#define SPIKEWATCH_LIB_STREAM_SAMPLE_STREAM_H

#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The columns of a stream of samples: column i is field i, so that the mask and values of a sample
 * are those of a row. All text is static.
 */
void columns_of_samples(struct stream_column ret[static SAMPLE_FIELDS]);

/*
 * Appends a target as one JSON object on one line, without newline and without tab: what
 * stream_target takes. Bytes of its strings that are no UTF-8, or that would act on a terminal, are
 * replaced by U+FFFD. writer: the number of its writer (ring.h); 0 is left out. 0, -ENOMEM, -EFBIG beyond buffer->max.
 */
int columns_target_json(const struct target *target, uint32_t writer, struct buffer *buffer);

/*
 * Writes a hole of this writer as a GAP remark; start: what the times of rows count from. 0 or the
 * stream's first error.
 */
int sample_stream_hole(struct stream_writer *stream_writer, const struct sampling_hole *hole, uint32_t writer,
		       mono_t start);

/*
 * The target that an object describes. What is missing or of the wrong type is empty, 0 or, for the
 * kind, a process. Strings belong to the document.
 */
struct target target_json_read(const struct json_node *object, uint32_t id);

/* A member that is a number from 0 to max, else 0. */
double target_json_number(const struct json_node *object, const char *key, double max);

/* A row; read it with the functions below. Valid during the call that hands it out. */
struct sample_row {
	uint32_t target;  /* number of its declaration. 0: of all targets that have columns (STREAM_GVISOR) */
	uint64_t time_ns; /* since the start of its stream */
	const struct sample_stream *stream;
	const uint64_t *values;
	uint32_t mask;
};

/* A stretch without ticks of one writer, as in struct sampling_hole. */
struct sample_hole {
	const struct sample_stream *stream;
	uint64_t from_ns, to_ns; /* since the start of its stream */
	uint64_t missed_slots, suspended_ns;
	uint32_t writer;
};

/*
 * Reads the object of a GAP remark; stream is not set. 0; -ENOMEM; SAMPLE_STREAM_LOSS: what it tells
 * of was sampled, and is lost.
 */
enum { SAMPLE_STREAM_LOSS = 1 };
int sample_stream_hole_read(const char *json, size_t len, struct sample_hole *ret);

/*
 * What is handed out; any may be NULL. A non-zero return stops and is returned by the reader.
 * Strings are valid during the call.
 */
struct sample_stream_events {
	/* The first stream of the input begins, or another one: targets of before are not meant any more. */
	int (*start)(void *ctx, wall_t start);
	/* A declaration, which is repeated with the headers; json as columns_target_json writes it. */
	int (*target)(void *ctx, uint32_t id, const char *json, size_t len);
	/*
	 * STREAM_GVISOR: a column "/web/cpu" makes a target "web". *ret_id: its number, which belongs
	 * to this name alone; 0: it gets none, and its column is left out.
	 */
	int (*column_target)(void *ctx, const char *name, uint32_t *ret_id);
	int (*row)(void *ctx, const struct sample_row *row);
	/* A target ended; json: {"target":3,...}. */
	int (*gone)(void *ctx, const char *json, size_t len);
	/* Samples may be missing between the rows before and after, of every target. */
	int (*gap)(void *ctx);
	/*
	 * The sampler took none between two times, as sample_stream_hole writes it: nothing is missing
	 * of what there was, and CPU time between the rows before and after is of all that time. Times
	 * count from `start` of the stream. NULL: counts as a gap.
	 */
	int (*hole)(void *ctx, const struct sample_hole *hole);
	/* As in struct stream_reader_events; with lost rows a gap follows. */
	void (*damage)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	void (*progress)(void *ctx, uint64_t bytes);
	void *ctx;
};

/* The decoder of rows. In the caller's storage: set events, the rest is this module's. */
struct sample_stream {
	struct sample_stream_events events;
	bool started;
	wall_t start;
	unsigned field[STREAM_COLUMNS_MAX];  /* of a sample, in this column; SAMPLE_FIELDS: none that is known */
	uint32_t target[STREAM_COLUMNS_MAX]; /* STREAM_GVISOR: whose; else 0 */
};

/*
 * A reader whose lines go through stream, which must outlive it; feed, finish and free it as any
 * other (stream.h). 0 or -ENOMEM.
 */
int sample_stream_reader(struct sample_stream *stream, struct stream_reader **ret);

/* The sample of a target in a row: id is row->target, or one of column_target. */
void sample_row_sample(const struct sample_row *row, uint32_t id, struct sample *ret);

/*
 * When a row was taken, from a moment on. False: the stream does not say, or more than a day off,
 * which is nonsense in the file of an incident and would overflow arithmetic later.
 */
bool sample_row_since(const struct sample_row *row, wall_t moment, int64_t *ret_ns);

/* The same of a hole. */
bool sample_hole_since(const struct sample_hole *hole, wall_t moment, int64_t *ret_from_ns, int64_t *ret_to_ns);

#endif
