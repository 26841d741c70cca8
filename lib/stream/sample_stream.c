/*
 * sample_stream.c: columns are made from the field table, so that a new field of a sample is a new
 * column without a change here. The JSON writer is sticky, so only its last call is checked. What a
 * reader does not know reads as empty: unknown columns are left out, an object of another kind is an
 * empty target.
 */
#include "lib/stream/sample_stream.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

_Static_assert(SAMPLE_FIELDS <= STREAM_COLUMNS_MAX, "every field has a column");

void columns_of_samples(struct stream_column ret[static SAMPLE_FIELDS])
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info(f);

		ret[f] = (struct stream_column){ info->name, info->unit, sample_kind_name(info->kind), info->source };
	}
}

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
	json_key(writer, key);
	printable_json(writer, text);
}

static void put_target(struct json_writer *writer, const struct target *target, uint32_t looker)
{
	json_begin_object(writer);
	put_text(writer, "kind", target_kind_name(target->kind));
	put_text(writer, "name", target->name);
	put_text(writer, "entry", target->entry);
	put_text(writer, "key", target->key);
	if (target->kind == TARGET_PROCESS) {
		json_key(writer, "pid");
		json_i64(writer, target->pid);
		json_key(writer, "start_ticks");
		json_u64(writer, target->start_ticks);
		put_text(writer, "comm", target->comm);
		put_text(writer, "cmdline", target->cmdline);
	}
	put_text(writer, "cgroup", target->cgroup);
	if (target->container && *target->container)
		put_text(writer, "container", target->container);
	if (looker > 0) {
		json_key(writer, "writer");
		json_u64(writer, looker);
	}
	json_end_object(writer);
}

int columns_target_json(const struct target *target, uint32_t looker, struct buffer *buffer)
{
	struct json_writer *writer;
	size_t before = buffer->len;
	int r;

	r = json_writer_new(sink_buffer(buffer), false, &writer);
	if (r < 0)
		return r;

	put_target(writer, target, looker);
	r = json_writer_close(writer); /* the first error of all of the above */
	if (r < 0) {
		buffer->len = before;
		return r;
	}
	buffer->len--; /* the newline that ends a document */
	return 0;
}

int sample_stream_hole(struct stream_writer *stream_writer, const struct sampling_hole *hole, uint32_t writer,
		       mono_t start)
{
	int64_t from_ns = mono_diff(hole->from, start), to_ns = mono_diff(hole->to, start);
	char json[200], number[32] = "", suspended[48] = "";

	if (writer > 0)
		snprintf(number, sizeof(number), ",\"writer\":%u", writer);
	if (hole->suspended_ns > 0)
		snprintf(suspended, sizeof(suspended), ",\"suspended_ns\":%ju", (uintmax_t)hole->suspended_ns);
	int len = snprintf(json, sizeof(json), "{\"from_ns\":%jd,\"time_ns\":%jd,\"missed_slots\":%ju%s%s}",
			   (intmax_t)(from_ns > 0 ? from_ns : 0), (intmax_t)(to_ns > 0 ? to_ns : 0),
			   (uintmax_t)hole->missed_slots, suspended, number);

	return stream_note(stream_writer, "GAP", json, (size_t)len);
}

/* Start times above it are no whole numbers in a double, and no clock has ticked so often. */
#define TICKS_MAX 9e15

static const char *text_of(const struct json_node *object, const char *key)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_STRING ? node->text : "";
}

double target_json_number(const struct json_node *object, const char *key, double max)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_NUMBER && node->number >= 0 && node->number <= max ? node->number : 0;
}

struct target target_json_read(const struct json_node *object, uint32_t id)
{
	struct target target = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)target_json_number(object, "pid", INT32_MAX),
		.start_ticks = (uint64_t)target_json_number(object, "start_ticks", TICKS_MAX),
		.entry = text_of(object, "entry"),
		.name = text_of(object, "name"),
		.key = text_of(object, "key"),
		.comm = text_of(object, "comm"),
		.cmdline = text_of(object, "cmdline"),
		.cgroup = text_of(object, "cgroup"),
		.container = text_of(object, "container"),
	};

	for (unsigned kind = TARGET_PROCESS; kind <= TARGET_GROUP; kind++)
		if (strcmp(text_of(object, "kind"), target_kind_name((enum target_kind)kind)) == 0)
			target.kind = (enum target_kind)kind;
	return target;
}

/* ---- rows ---- */

static unsigned field_named(const char *name)
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (strcmp(name, sample_field_info(f)->name) == 0)
			return f;
	return SAMPLE_FIELDS;
}

/* "/web/cpu": the column of target "web". */
static int on_gvisor_column(struct sample_stream *stream, size_t index, const char *name)
{
	const char *slash = strrchr(name, '/');
	AUTO_FREE char *owner = strndup(name + 1, (size_t)(slash - name) - (slash > name));

	if (!owner)
		return -ENOMEM;
	uint32_t id = 0;
	int r = stream->events.column_target(stream->events.ctx, owner, &id);

	stream->field[index] = id != 0 ? field_named(slash + 1) : SAMPLE_FIELDS;
	stream->target[index] = id;
	return r;
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct sample_stream *stream = ctx;

	(void)json;
	if (index >= STREAM_COLUMNS_MAX)
		return 0;
	if (name[0] == '/' && stream->events.column_target)
		return on_gvisor_column(stream, index, name);
	stream->field[index] = field_named(name);
	stream->target[index] = 0;
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	struct sample_stream *stream = ctx;

	stream->started = true;
	stream->start = start;
	return stream->events.start ? stream->events.start(stream->events.ctx, start) : 0;
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	const struct sample_stream_events *events = &((struct sample_stream *)ctx)->events;

	return events->target ? events->target(events->ctx, id, json, len) : 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	const struct sample_stream *stream = ctx;
	const struct sample_row row = { target, time_ns, stream, values, mask };

	(void)seq;
	return stream->events.row ? stream->events.row(stream->events.ctx, &row) : 0;
}

/* In a double, times are whole numbers of at most 128 ns up to here: thirty years. */
#define TIME_MAX_NS 1e18

int sample_stream_hole_read(const char *json, size_t len, struct sample_hole *ret)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	int r = json_parse(json, len, NULL, &document, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : SAMPLE_STREAM_LOSS;

	const struct json_node *object = json_root(document);

	ret->from_ns = (uint64_t)target_json_number(object, "from_ns", TIME_MAX_NS);
	ret->to_ns = (uint64_t)target_json_number(object, "time_ns", TIME_MAX_NS);
	ret->missed_slots = (uint64_t)target_json_number(object, "missed_slots", TIME_MAX_NS);
	ret->suspended_ns = (uint64_t)target_json_number(object, "suspended_ns", TIME_MAX_NS);
	ret->writer = (uint32_t)target_json_number(object, "writer", UINT32_MAX);
	return ret->missed_slots + ret->suspended_ns > 0 && ret->to_ns > ret->from_ns ? 0 : SAMPLE_STREAM_LOSS;
}

static int on_gap(const struct sample_stream *stream, const char *json, size_t len)
{
	const struct sample_stream_events *events = &stream->events;
	struct sample_hole hole = { .stream = stream };
	int r = events->hole ? sample_stream_hole_read(json, len, &hole) : SAMPLE_STREAM_LOSS;

	if (r < 0)
		return r;
	if (r == 0)
		return events->hole(events->ctx, &hole);
	return events->gap ? events->gap(events->ctx) : 0;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	const struct sample_stream_events *events = &((struct sample_stream *)ctx)->events;

	if (strcmp(kind, "GAP") == 0)
		return on_gap(ctx, json, len);
	return strcmp(kind, "GONE") == 0 && events->gone ? events->gone(events->ctx, json, len) : 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	const struct sample_stream_events *events = &((struct sample_stream *)ctx)->events;

	if (events->damage)
		events->damage(events->ctx, line, rows_lost, why);
	return rows_lost > 0 && events->gap ? events->gap(events->ctx) : 0;
}

static void on_progress(void *ctx, uint64_t bytes)
{
	const struct sample_stream_events *events = &((struct sample_stream *)ctx)->events;

	if (events->progress)
		events->progress(events->ctx, bytes);
}

int sample_stream_reader(struct sample_stream *stream, struct stream_reader **ret)
{
	const struct stream_reader_events events = {
		.column = on_column,
		.start_time = on_start_time,
		.target = on_target,
		.row = on_row,
		.note = on_note,
		.damage = on_damage,
		.progress = on_progress,
		.ctx = stream,
	};

	*stream = (struct sample_stream){ .events = stream->events };
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		stream->field[c] = SAMPLE_FIELDS;
	return stream_reader_new(&events, ret);
}

void sample_row_sample(const struct sample_row *row, uint32_t id, struct sample *ret)
{
	const struct sample_stream *stream = row->stream;
	uint32_t owner = row->target != 0 ? 0 : id;

	*ret = (struct sample){ 0 };
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		if ((row->mask >> c & 1u) && stream->field[c] < SAMPLE_FIELDS && stream->target[c] == owner)
			sample_set(ret, stream->field[c], row->values[c]);
}

#define SINCE_MAX_NS (INT64_C(86400) * 1000000000)

static bool time_since(const struct sample_stream *stream, uint64_t time_ns, wall_t moment, int64_t *ret_ns)
{
	uint64_t at = stream->start.ns + time_ns;
	int64_t since = (int64_t)(at - moment.ns);

	if (!stream->started || at < time_ns || since > SINCE_MAX_NS || since < -SINCE_MAX_NS)
		return false;
	*ret_ns = since;
	return true;
}

bool sample_row_since(const struct sample_row *row, wall_t moment, int64_t *ret_ns)
{
	return time_since(row->stream, row->time_ns, moment, ret_ns);
}

bool sample_hole_since(const struct sample_hole *hole, wall_t moment, int64_t *ret_from_ns, int64_t *ret_to_ns)
{
	int64_t from_ns;

	if (!time_since(hole->stream, hole->from_ns, moment, &from_ns) ||
	    !time_since(hole->stream, hole->to_ns, moment, ret_to_ns))
		return false;
	*ret_from_ns = from_ns;
	return true;
}
