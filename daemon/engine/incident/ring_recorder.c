/*
 * ring_recorder.c: events of the ring to lines of a stream.
 *
 * The native format has a row for each record: a target at its own time. The gVisor format has no
 * targets: a row is a tick, with the last known values of all targets side by side, and is written
 * at the end of the tick.
 */
#include "daemon/engine/incident/ring_recorder.h"

#include "lib/model/target.h"
#include "lib/stream/sample_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum sample_field gvisor_fields[RECORDER_GVISOR_FIELDS] = {
	SAMPLE_CPU, SAMPLE_CPU_USER, SAMPLE_CPU_SYSTEM, SAMPLE_MEMORY, SAMPLE_THREADS, SAMPLE_MINOR_FAULTS,
};

const enum sample_field *recorder_gvisor_fields(void)
{
	return gvisor_fields;
}

#define COLUMN_NAME_BYTES 128

struct recorder {
	struct recorder_options options;
	struct ring_cursor *cursor;
	struct stream_writer *writer;
	struct recorder_counts counts;
	bool over; /* the tick after `until` has begun: a hole before it may reach into the recording */
	uint32_t over_writer;
	bool done;
	/* gVisor */
	uint32_t ids[RECORDER_GVISOR_TARGETS];
	uint64_t values[STREAM_COLUMNS_MAX];
	uint32_t mask;
	char names[STREAM_COLUMNS_MAX][COLUMN_NAME_BYTES];
};

static size_t build_columns(struct recorder *recorder, struct stream_column *columns)
{
	size_t count = 0;

	if (recorder->options.format == STREAM_SPIKEWATCH) {
		columns_of_samples(columns);
		return SAMPLE_FIELDS;
	}

	assert(recorder->options.name_count && recorder->options.name_count <= RECORDER_GVISOR_TARGETS);
	for (size_t i = 0; i < recorder->options.name_count; i++) {
		for (size_t f = 0; f < RECORDER_GVISOR_FIELDS; f++, count++) {
			const struct sample_field_info *info = sample_field_info(gvisor_fields[f]);

			snprintf(recorder->names[count], COLUMN_NAME_BYTES, "/%s/%s", recorder->options.names[i],
				 info->name);
			columns[count] = (struct stream_column){
				.name = recorder->names[count],
				.unit = info->unit,
				.kind = sample_kind_name(info->kind),
				.description = info->source,
			};
		}
	}

	return count;
}

int recorder_new(struct ring_cursor *cursor, struct sink sink, const struct recorder_options *options,
		 struct recorder **ret)
{
	struct recorder *recorder = calloc(1, sizeof *recorder);
	struct stream_column columns[STREAM_COLUMNS_MAX];
	int r;

	if (!recorder)
		return -ENOMEM;

	recorder->options = *options;
	recorder->cursor = cursor;

	struct stream_options stream = {
		.format = options->format,
		.columns = columns,
		.column_count = build_columns(recorder, columns),
		.start = options->start_wall,
	};

	r = stream_writer_new(sink, &stream, &recorder->writer);
	if (r < 0) {
		free(recorder);
		return r;
	}
	*ret = recorder;

	return 0;
}

/* ---- events ---- */

static uint64_t since_start(const struct recorder *recorder, mono_t at)
{
	int64_t ns = mono_diff(at, recorder->options.start);

	return ns > 0 ? (uint64_t)ns : 0;
}

static int on_target(struct recorder *recorder, const struct target *target, uint32_t writer)
{
	struct buffer json = { 0 };
	int r;

	recorder->counts.targets++;
	if (recorder->options.format == STREAM_GVISOR) {
		for (size_t i = 0; i < recorder->options.name_count; i++)
			if (strcmp(target->name, recorder->options.names[i]) == 0)
				recorder->ids[i] = target->id;
		return 0;
	}

	r = columns_target_json(target, writer, &json);
	if (r == 0)
		r = stream_target(recorder->writer, target->id, json.data, json.len);
	buffer_release(&json);

	return r;
}

static void keep_values(struct recorder *recorder, uint32_t id, const struct sample *sample)
{
	recorder->counts.estimated |= sample_has(sample, SAMPLE_CPU_ESTIMATED);
	sample_window_cover_sample(sample, &recorder->counts.coverage);
	for (size_t i = 0; i < recorder->options.name_count; i++) {
		if (recorder->ids[i] != id)
			continue;
		for (size_t f = 0; f < RECORDER_GVISOR_FIELDS; f++) {
			if (!sample_has(sample, gvisor_fields[f]))
				continue;
			recorder->values[i * RECORDER_GVISOR_FIELDS + f] = sample->value[gvisor_fields[f]];
			recorder->mask |= 1u << (i * RECORDER_GVISOR_FIELDS + f);
		}
	}
}

static int put_row(struct recorder *recorder, mono_t at, uint32_t id, const uint64_t *values, uint32_t mask)
{
	if (recorder->options.max_bytes && stream_bytes(recorder->writer) >= recorder->options.max_bytes) {
		recorder->counts.dropped++;
		return 0;
	}

	recorder->counts.rows++;

	return stream_row(recorder->writer, since_start(recorder, at), id, values, mask);
}

static int on_sample(struct recorder *recorder, const struct ring_event *event)
{
	if (recorder->options.format == STREAM_GVISOR) {
		keep_values(recorder, event->id, event->sample);
		return 0;
	}

	return put_row(recorder, event->time, event->id, event->sample->value, event->sample->mask);
}

static int on_tick_end(struct recorder *recorder, mono_t at)
{
	if (recorder->options.format != STREAM_GVISOR)
		return 0;

	return put_row(recorder, at, 0, recorder->values, recorder->mask);
}

static int on_gone(struct recorder *recorder, const struct ring_event *event)
{
	char json[96];
	int len = snprintf(json, sizeof json, "{\"target\":%u,\"time_ns\":%llu}", event->id,
			   (unsigned long long)since_start(recorder, event->time));
	int r;

	recorder->counts.gone++;
	if (recorder->options.format == STREAM_GVISOR)
		return 0;

	r = stream_note(recorder->writer, "GONE", json, (size_t)len);

	return r < 0 ? r : stream_target_gone(recorder->writer, event->id);
}

static int on_loss(struct recorder *recorder, const struct ring_event *event)
{
	char json[64];
	int len = snprintf(json, sizeof json, "{\"lost_pages\":%llu}", (unsigned long long)event->lost_pages);

	recorder->counts.coverage.gaps++;
	recorder->counts.coverage.lost_pages += event->lost_pages;

	return stream_note(recorder->writer, "GAP", json, (size_t)len);
}

static int put_hole(struct recorder *recorder, const struct sampling_hole *put, uint32_t writer)
{
	struct recorder_counts *counts = &recorder->counts;
	struct sampling_hole hole = *put;

	if (writer > 0)
		hole.suspended_ns = 0; /* all writers have the same */
	if (recorder->options.until.ns && mono_diff(hole.to, recorder->options.until) > 0)
		hole.to = recorder->options.until;
	sample_window_cover_hole(&hole, &counts->coverage, &counts->writers[writer % RECORDER_WRITERS].span);

	return sample_stream_hole(recorder->writer, put, writer, recorder->options.start);
}

static int on_tick(struct recorder *recorder, mono_t at, uint32_t writer)
{
	struct recorder_counts *counts = &recorder->counts;
	struct sample_window_span *span = &counts->writers[writer % RECORDER_WRITERS].span;

	if (recorder->options.until.ns && mono_diff(at, recorder->options.until) > 0) {
		recorder->over = true;
		recorder->over_writer = writer;
		return 0;
	}

	if (counts->writers[writer % RECORDER_WRITERS].ticks++ == 0)
		span->first = at;
	else
		span->tick_ns = (uint64_t)mono_diff(at, span->last);
	span->last = at;
	counts->ticks++;

	return 0;
}

/* The record of a hole comes with the tick after it: so what was recorded has it unless the tick has not come. */
static int put_last_holes(struct recorder *recorder, uint64_t interval_ns)
{
	struct sampling_hole hole;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < RECORDER_WRITERS; i++) {
		const struct sample_window_span *span = &recorder->counts.writers[i].span;

		if (recorder->over && i == recorder->over_writer % RECORDER_WRITERS)
			continue;
		if (sample_window_ends_in_hole(span, recorder->options.until, interval_ns, &hole))
			r = put_hole(recorder, &hole, i);
	}

	return r;
}

static int on_event(struct recorder *recorder, const struct ring_event *event)
{
	if (recorder->over && event->type != RING_EVENT_HOLE) {
		recorder->done = true;
		return 0;
	}
	switch (event->type) {
	case RING_EVENT_TICK:
		return on_tick(recorder, event->time, event->writer);
	case RING_EVENT_HOLE:
		return put_hole(recorder, &event->hole, event->writer);
	case RING_EVENT_SAMPLE:
		return on_sample(recorder, event);
	case RING_EVENT_TARGET:
		return on_target(recorder, &event->target, event->writer);
	case RING_EVENT_GONE:
		return on_gone(recorder, event);
	case RING_EVENT_TICK_END:
		return on_tick_end(recorder, event->time);
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		return on_loss(recorder, event);
	}

	return 0;
}

int recorder_pump(struct recorder *recorder)
{
	struct ring_event event;
	int r = 0;

	while (!recorder->done && (r = ring_cursor_next(recorder->cursor, &event)) == 0) {
		r = on_event(recorder, &event);
		if (r < 0)
			return r;
	}

	return r < 0 ? r : 0;
}

int recorder_flush(struct recorder *recorder)
{
	return stream_flush(recorder->writer);
}

void recorder_counts(const struct recorder *recorder, struct recorder_counts *ret)
{
	*ret = recorder->counts;
}

int recorder_close(struct recorder *recorder, const struct stats *stats, uint64_t interval_ns,
		   struct recorder_counts *ret)
{
	char json[2048];
	int r, closed;

	if (!recorder)
		return 0;

	r = recorder_pump(recorder);
	if (r == 0 && interval_ns > 0)
		r = put_last_holes(recorder, interval_ns);
	if (ret)
		*ret = recorder->counts;
	if (r == 0)
		r = stream_stats(recorder->writer, json, stats_to_json(stats, json, sizeof json));
	closed = stream_close(recorder->writer);
	free(recorder);

	return r < 0 ? r : closed;
}
