/*
 * Any bytes, read at once and in pieces: both readings must be the same, and the report must hold
 * together.
 */
#include "lib/base/compress.h"
#include "lib/stream/stream_reader.c"
#include "lib/base/base.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reading {
	uint32_t adler; /* of everything handed out */
	uint64_t rows;
	struct stream_reader_report report;
};

static void add(struct reading *reading, const void *data, size_t len)
{
	reading->adler = checksum_adler32(reading->adler, data, len);
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	assert(index < STREAM_COLUMNS_MAX && *name && strlen(name) <= STREAM_NAME_MAX);
	add(ctx, &index, sizeof(index));
	add(ctx, name, strlen(name));
	add(ctx, json ? json : "", json ? strlen(json) : 0);
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	add(ctx, &start, sizeof(start));
	return 0;
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	assert(id && strlen(json) == len);
	add(ctx, &id, sizeof(id));
	add(ctx, json, len);
	return 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct reading *reading = ctx;
	uint64_t head[] = { seq, time_ns, target, mask };

	assert(seq);
	reading->rows++;
	add(reading, head, sizeof(head));
	add(reading, values, STREAM_COLUMNS_MAX * sizeof(*values));
	return 0;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	assert(*kind && strlen(kind) <= STREAM_KIND_MAX && strlen(json) == len);
	add(ctx, kind, strlen(kind));
	add(ctx, json, len);
	return 0;
}

static int on_stats(void *ctx, const char *json, size_t len)
{
	assert(strlen(json) == len);
	add(ctx, json, len);
	return 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	assert(line && *why);
	add(ctx, &line, sizeof(line));
	add(ctx, &rows_lost, sizeof(rows_lost));
	return 0;
}

static void read_in_steps(struct reading *ret, const uint8_t *data, size_t size, size_t step)
{
	const struct stream_reader_events events = {
		on_column, on_start_time, on_target, on_row, on_note, on_stats, on_damage, NULL, ret,
	};
	struct stream_reader *stream_reader;

	memset(ret, 0, sizeof(*ret));
	if (stream_reader_new(&events, &stream_reader) < 0)
		return;
	for (size_t at = 0; at < size; at += step)
		feed_reader(stream_reader, (const char *)data + at, size - at < step ? size - at : step);
	stream_reader_finish(stream_reader, &ret->report);
	stream_reader_free(stream_reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reading whole, pieces;

	read_in_steps(&whole, data, size, size + 1);
	read_in_steps(&pieces, data, size, size ? data[size / 2] % 61 + 1 : 1);
	assert(memcmp(&whole, &pieces, sizeof(whole)) == 0);

	const struct stream_reader_report *report = &whole.report;
	assert(report->rows == whole.rows && report->columns <= STREAM_COLUMNS_MAX);
	assert(report->first_time_ns <= report->last_time_ns);
	assert(!report->checksum_ok || report->complete);
	assert(!report->complete || report->ours);
	assert(report->foreign_lines <= report->lines && report->lines <= size);
	assert(report->rows_unchecked <= report->rows);
	assert(!stream_reader_whole(report) || (report->checksum_ok && !report->rows_lost && !report->damaged_lines));
	assert(!stream_reader_whole(report) || (!report->crc_differs && !report->rows_unchecked));
	return 0;
}
