/*
 * stackstreams.c: a cursor in each stream with the record that is next there, and the earliest of them is next; they are at most five. Before,
 * the followed streams are gone through for when each thread was sampled first and last.
 */
#include "stackstreams.h"

#include "pairmap.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>

struct cursor {
	const struct stackfile_stream *stream;
	struct perfrecord_format format;
	const uint8_t *at, *end;
	struct perfrecord record; /* the next one, if there is one */
	bool there;
};

/* When a thread was sampled by events of its own. */
struct span {
	uint64_t first_ns, last_ns;
};

struct spans {
	struct pairmap threads; /* pid, tid -> index */
	struct span *all;
	size_t count, cap;
};

struct stackstreams {
	struct cursor cursors[STACKFILE_STREAM_KINDS]; /* by kind */
	struct spans spans[STACKFILE_STREAM_KINDS];    /* by kind of the stream that they keep samples out of */
	uint64_t broken;
};

/* The stream of events of their own that goes with one of everybody's; STACKFILE_STREAM_KINDS: none. */
static enum stackfile_stream_kind followed_of(enum stackfile_stream_kind kind)
{
	return kind == STACKFILE_CPU      ? STACKFILE_CPU_FOLLOWED
	       : kind == STACKFILE_FAULTS ? STACKFILE_FAULTS_FOLLOWED
					  : STACKFILE_STREAM_KINDS;
}

/* 0; -EINVAL: of a format that is not read. *broken: the stream ended in the middle. */
static int advance(struct cursor *cursor, bool *broken)
{
	int r;

	cursor->there = false;
	*broken = false;
	if (cursor->at >= cursor->end)
		return 0;
	r = perfrecord_decode(&cursor->format, cursor->at, (size_t)(cursor->end - cursor->at), &cursor->record);
	if (r == -EBADMSG) {
		*broken = true;
		cursor->at = cursor->end;
		return 0;
	}
	if (r < 0)
		return r;
	cursor->at += cursor->record.size;
	cursor->there = true;

	return 0;
}

static struct span *span_of(const struct spans *spans, const struct perfrecord *record)
{
	uint32_t index;

	return pairmap_get(&spans->threads, record->pid, record->tid, &index) ? &spans->all[index] : NULL;
}

static int spans_add(struct spans *spans, const struct perfrecord *record)
{
	struct span *span = span_of(spans, record);

	if (span != NULL) {
		span->last_ns = record->time_ns > span->last_ns ? record->time_ns : span->last_ns;
		return 0;
	}
	if (spans->count == spans->cap) {
		size_t cap = spans->cap > 0 ? 2 * spans->cap : 64;
		struct span *grown = reallocarray(spans->all, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		spans->all = grown;
		spans->cap = cap;
	}
	spans->all[spans->count] = (struct span){ record->time_ns, record->time_ns };
	pairmap_put(&spans->threads, record->pid, record->tid, (uint32_t)spans->count);
	spans->count++;

	return span_of(spans, record) != NULL ? 0 : -ENOMEM;
}

static int read_spans(struct cursor cursor, struct spans *spans)
{
	bool broken;
	int r = advance(&cursor, &broken);

	for (; r == 0 && cursor.there; r = advance(&cursor, &broken)) {
		if (cursor.record.type == PERF_RECORD_SAMPLE)
			r = spans_add(spans, &cursor.record);
		if (r < 0)
			return r;
	}

	return r;
}

static int begin(struct stackstreams *streams, const struct stackfile *file)
{
	bool broken;
	int r = 0;

	for (uint32_t i = 0; i < file->head->streams && r == 0; i++) {
		const struct stackfile_stream *stream = &file->streams[i];
		struct cursor *cursor = &streams->cursors[stream->kind];

		*cursor = (struct cursor){
			.stream = stream,
			.format = { stream->sample_type, stream->regs_user },
			.at = file->records[i],
			.end = file->records[i] + stream->record_bytes,
		};
	}
	for (int kind = 0; kind < STACKFILE_STREAM_KINDS && r == 0; kind++) {
		enum stackfile_stream_kind followed = followed_of((enum stackfile_stream_kind)kind);

		if (followed < STACKFILE_STREAM_KINDS)
			r = read_spans(streams->cursors[followed], &streams->spans[kind]);
	}
	for (int kind = 0; kind < STACKFILE_STREAM_KINDS && r == 0; kind++) {
		r = advance(&streams->cursors[kind], &broken);
		streams->broken += broken;
	}

	return r;
}

int stackstreams_new(const struct stackfile *file, struct stackstreams **ret)
{
	struct stackstreams *streams = calloc(1, sizeof(*streams));
	int r = streams != NULL ? begin(streams, file) : -ENOMEM;

	if (r < 0) {
		stackstreams_free(streams);
		return r;
	}
	*ret = streams;

	return 0;
}

void stackstreams_free(struct stackstreams *streams)
{
	if (streams == NULL)
		return;
	for (size_t i = 0; i < ARRAY_LEN(streams->spans); i++) {
		pairmap_release(&streams->spans[i].threads);
		free(streams->spans[i].all);
	}
	free(streams);
}

bool stackstreams_next(struct stackstreams *streams, struct perfrecord *ret, const struct stackfile_stream **ret_stream)
{
	struct cursor *first = NULL;
	bool broken;

	for (size_t i = 0; i < ARRAY_LEN(streams->cursors); i++) {
		struct cursor *cursor = &streams->cursors[i];

		if (cursor->there && (first == NULL || cursor->record.time_ns < first->record.time_ns))
			first = cursor;
	}
	if (first == NULL)
		return false;
	*ret = first->record;
	*ret_stream = first->stream;
	/* The format was good for the record before. */
	if (advance(first, &broken) < 0)
		first->there = false;
	streams->broken += broken;

	return true;
}

bool stackstreams_counts(const struct stackstreams *streams, const struct perfrecord *sample,
			 const struct stackfile_stream *stream)
{
	const struct span *span = span_of(&streams->spans[stream->kind], sample);

	return span == NULL || sample->time_ns < span->first_ns || sample->time_ns > span->last_ns;
}

uint64_t stackstreams_broken(const struct stackstreams *streams)
{
	return streams->broken;
}
