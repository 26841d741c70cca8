/*
 * stream_writer.c: composes the lines of a stream.
 *
 * Lines are composed in place, at the end of one buffer that goes to the sink in one write when it is
 * full:
 *
 *     begin (prefix) --> the caller puts the content --> end (checksum, newline)
 *
 * The overall checksum covers the lines without their prefixes, so it cannot be taken over the buffer
 * as a whole. It is not computed a second time either: the checksum of each content is combined into
 * it. The buffer has room for one ordinary line beyond flush_bytes. Only a longer one makes it grow,
 * and it never shrinks, so a line that was put once can be put again without memory.
 *
 * No single lost line makes the rest unreadable: FORMAT and START_TIME both identify the stream, every
 * META has the number of its column, the column header alone suffices to read rows, and all of them
 * come again every repeat_rows. Targets are kept as the lines they were declared with, to be repeated.
 *
 * Most cells of a row are those of the last row of the same target. Its text is kept, for so many targets as
 * fit a cache of the CPU; it is copied as a whole, and what changed is written over the copy.
 */
#include "lib/stream/stream.h"
#include "lib/stream/stream_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

/* Empty line, prefix, checksum (its digits take up whole words), newline, empty line. */
#define LINE_FRAME 64

#define PREFIX_ROOM 16

/* A CRC line, for which there is always room. */
#define CRC_ROOM (LINE_FRAME + 64 + 5 * TEXT_NUMBER_ROOM)

_Static_assert(sizeof("\n" STREAM_PREFIX_GVISOR STREAM_CHECKSUM_MARK "\n\n") + TEXT_NUMBER_ROOM <= LINE_FRAME,
	       "the frame of a line fits");
_Static_assert(sizeof(STREAM_PREFIX) <= PREFIX_ROOM && sizeof(STREAM_PREFIX_GVISOR) <= PREFIX_ROOM, "prefixes fit");

static char *put_bytes(char *out, const char *data, size_t len)
{
	memcpy(out, data, len);
	return out + len;
}

static char *put_text(char *out, const char *text)
{
	return put_bytes(out, text, strlen(text));
}

/* The buffer in which lines are composed. */
struct stream_lines {
	struct sink sink;
	char prefix[PREFIX_ROOM]; /* copied whole */
	size_t prefix_len;
	size_t flush_bytes;
	int error;                 /* the first one of the sink: sticky */
	char *data;                /* what is not written yet */
	size_t len, cap;           /* len 0: nothing since the last flush */
	size_t content;            /* where the content of the line being composed begins */
	uint32_t adler;            /* overall, up to `unsummed` */
	size_t unsummed;           /* where the checksum of the last line begins; 0: all is in adler */
	bool checked;              /* a CRC line ends each flush */
	struct stream_block block; /* of the next CRC line */
	uint64_t flushed_bytes;
};

static int grow(struct stream_lines *lines, size_t cap)
{
	char *data = realloc(lines->data, cap);

	if (!data)
		return -ENOMEM;
	lines->data = data;
	lines->cap = cap;
	return 0;
}

/*
 * Contents of up to room bytes never allocate later. 0 or -ENOMEM.
 */
static int stream_lines_init(struct stream_lines *lines, struct sink sink, const char *prefix, size_t flush_bytes,
			     size_t room)
{
	*lines = (struct stream_lines){
		.sink = sink,
		.prefix_len = strlen(prefix),
		.flush_bytes = flush_bytes,
		.adler = CHECKSUM_ADLER32_EMPTY,
	};
	memcpy(lines->prefix, prefix, lines->prefix_len);
	return grow(lines, flush_bytes + room + LINE_FRAME + CRC_ROOM);
}

static void stream_lines_release(struct stream_lines *lines)
{
	free(lines->data);
	lines->data = NULL;
}

/*
 * The checksum of the last line and its newline. Not when they are put: what was just stored in pieces can not
 * be loaded in one before all of them are in the cache.
 */
static void sum_last_checksum(struct stream_lines *lines)
{
	if (lines->unsummed)
		lines->adler =
			checksum_adler32(lines->adler, lines->data + lines->unsummed, lines->len - lines->unsummed);
	lines->unsummed = 0;
}

/* The line that begins at lines->content ends. Returns the CRC-32 of its content. */
static uint32_t finish_line(struct stream_lines *lines, char *end)
{
	const char *content = lines->data + lines->content;
	size_t len = (size_t)(end - content);
	uint32_t adler = checksum_adler32(CHECKSUM_ADLER32_EMPTY, content, len);
	uint32_t crc = lines->checked ? checksum_crc32(CHECKSUM_CRC32_EMPTY, content, len) : 0;
	char *p = text_put_hex(put_text(end, STREAM_CHECKSUM_MARK), adler);

	*p++ = '\n';
	sum_last_checksum(lines);
	lines->adler = checksum_adler32_combine(lines->adler, adler, len);
	lines->unsummed = (size_t)(end - lines->data);
	lines->len = (size_t)(p - lines->data);
	return crc;
}

static char *begin_line(struct stream_lines *lines)
{
	char *p = lines->data + lines->len;

	if (!lines->len)
		*p++ = '\n';
	memcpy(p, lines->prefix, PREFIX_ROOM);
	p += lines->prefix_len;
	lines->content = (size_t)(p - lines->data);
	return p;
}

/* {"first_row":1,"rows":4,"rows_crc":437977852,"lines":9,"lines_crc":1873151559} */
static void put_crc(struct stream_lines *lines)
{
	const struct stream_block *block = &lines->block;

	if (!lines->checked || lines->error || (!block->rows && !block->lines))
		return;
	char *p = put_text(begin_line(lines), STREAM_CRC_KIND "\t{" STREAM_CRC_FIRST_ROW);
	p = put_text(text_put_u64(p, block->first_row), "," STREAM_CRC_ROWS);
	p = put_text(text_put_u64(p, block->rows), "," STREAM_CRC_ROWS_SUM);
	p = put_text(text_put_u64(p, block->rows_sum), "," STREAM_CRC_LINES);
	p = put_text(text_put_u64(p, block->lines), "," STREAM_CRC_LINES_SUM);
	finish_line(lines, put_text(text_put_u64(p, block->lines_sum), "}"));
	lines->block = (struct stream_block){ .first_row = block->first_row + block->rows };
}

/* Hands what is buffered to the sink, in one write. 0 or the sink's first error. */
static int write_lines(struct stream_lines *lines)
{
	if (!lines->len) /* always so after an error */
		return lines->error;

	sum_last_checksum(lines);
	lines->data[lines->len++] = '\n';
	lines->error = sink_write(&lines->sink, lines->data, lines->len);
	lines->flushed_bytes += lines->len;
	lines->len = 0;
	return lines->error;
}

static int stream_lines_flush(struct stream_lines *lines)
{
	put_crc(lines);
	return write_lines(lines);
}

/* Room for a line at the end of the buffer. */
static int reserve(struct stream_lines *lines, size_t bytes)
{
	if (bytes > STREAM_LINE_MAX)
		return -EINVAL;
	bytes += CRC_ROOM;
	if (lines->len + bytes <= lines->cap)
		return 0;

	int r = stream_lines_flush(lines);
	return r || bytes <= lines->cap ? r : grow(lines, bytes);
}

/*
 * Begins a line: up to room bytes of content may be put at *ret, then stream_lines_end with their
 * end. Nothing else may be called in between. 0; -EINVAL above STREAM_LINE_MAX; -ENOMEM; the sink's
 * first error.
 */
static int stream_lines_begin(struct stream_lines *lines, size_t room, char **ret)
{
	int r = lines->error ? lines->error : reserve(lines, room + LINE_FRAME);

	if (r < 0)
		return r;
	*ret = begin_line(lines);
	return 0;
}

/* 0 or the sink's first error. */
static int stream_lines_end(struct stream_lines *lines, char *end)
{
	lines->block.lines_sum += finish_line(lines, end);
	lines->block.lines++;
	return lines->len < lines->flush_bytes ? 0 : stream_lines_flush(lines);
}

static int stream_lines_end_row(struct stream_lines *lines, char *end)
{
	lines->block.rows_sum += finish_line(lines, end);
	lines->block.rows++;
	return lines->len < lines->flush_bytes ? 0 : stream_lines_flush(lines);
}

/* One line that is no row. 0; -EINVAL: longer than STREAM_LINE_MAX; -ENOMEM; the sink's first error. */
static int stream_lines_put(struct stream_lines *lines, const char *content, size_t len)
{
	char *p;
	int r = stream_lines_begin(lines, len, &p);

	return r < 0 ? r : stream_lines_end(lines, put_bytes(p, content, len));
}

/* Puts the last CRC line and the overall checksum, and flushes. 0; -ENOMEM; the sink's first error. */
static int stream_lines_close(struct stream_lines *lines)
{
	char *p;
	int r = stream_lines_begin(lines, CRC_ROOM + strlen(STREAM_CLOSING), &p);

	if (r < 0)
		return r;
	put_crc(lines);
	sum_last_checksum(lines);
	p = text_put_hex(put_text(begin_line(lines), STREAM_CLOSING), lines->adler);
	*p++ = '\n';
	lines->len = (size_t)(p - lines->data);
	return write_lines(lines);
}

/* How many rows there were. */
static int stream_lines_put_end(struct stream_lines *lines, uint64_t rows)
{
	char *p;
	int r = stream_lines_begin(lines, 16 + TEXT_NUMBER_ROOM, &p);

	return r < 0 ? r : stream_lines_end(lines, text_put_u64(put_text(p, "END\t"), rows));
}

int stream_rest_close(const struct stream_rest *rest, struct sink sink)
{
	AUTO(stream_lines_release) struct stream_lines lines = { 0 };
	int r = stream_lines_init(&lines, sink, STREAM_PREFIX, STREAM_LINE_MAX, 16 + TEXT_NUMBER_ROOM);

	if (r < 0)
		return r;
	lines.adler = rest->adler;
	lines.checked = rest->checked;
	lines.block = rest->block;
	r = rest->counted ? 0 : stream_lines_put_end(&lines, rest->rows);

	return r < 0 ? r : stream_lines_close(&lines);
}

/* Bytes put so far. */
static uint64_t stream_lines_bytes(const struct stream_lines *lines)
{
	return lines->flushed_bytes + lines->len;
}

#define REPEAT_ROWS_DEFAULT 1000
#define FLUSH_BYTES_DEFAULT ((size_t)64 << 10)

/*
 * At most so many targets per row are repeated with the headers: many targets would otherwise
 * outweigh the rows.
 */
#define ROWS_PER_REPEATED_TARGET 16

#define ROW_ROOM ((3 + STREAM_COLUMNS_MAX) * (size_t)(1 + TEXT_NUMBER_ROOM) + COPY_BYTES)

/* Cells are copied in pieces of this size: as many as needed, whole. */
#define COPY_BYTES 32u

/* Powers of two: at first, and for many targets. 1 KiB each, of which a row touches less than half. */
#define RECENT_ROWS_MIN 32u
#define RECENT_ROWS_MAX 512u

/* The cells of the last row of a target: cell i is text[begins[i]] to text[begins[i + 1]], with its tab. */
struct recent_row {
	bool used;
	uint32_t target, mask;
	uint16_t begins[STREAM_COLUMNS_MAX + 1];
	uint64_t values[STREAM_COLUMNS_MAX]; /* 0 where unavailable */
	char text[STREAM_COLUMNS_MAX * (1 + TEXT_NUMBER_ROOM) + COPY_BYTES];
};

struct target_line {
	uint32_t id;
	size_t len;
	char *content;
};

struct stream_writer {
	struct stream_lines lines;
	enum stream_format format;
	struct stream_column columns[STREAM_COLUMNS_MAX];
	size_t column_count;
	wall_t start;
	uint32_t repeat_rows;
	uint64_t rows;

	struct target_line *targets;
	size_t target_count, target_cap;
	size_t target_turn; /* the next to be repeated */

	uint64_t last[STREAM_COLUMNS_MAX]; /* gVisor: the last available values */
	struct buffer stats;               /* gVisor: what stream_close writes */
	uint64_t time_high;                /* the last time, without its last eight digits; 0: none */
	size_t time_len;
	char time_text[TEXT_NUMBER_ROOM];
	struct recent_row *recent; /* by target */
	uint32_t recent_rows;
};

/* A JSON string; control characters have been refused before. */
static char *put_json_string(char *out, const char *text)
{
	*out++ = '"';
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			*out++ = '\\';
		*out++ = *text;
	}
	*out++ = '"';
	return out;
}

static bool is_line_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20)
			return false;
	return true;
}

/* A kind, a tab, and one line of JSON. */
static int put_remark(struct stream_writer *writer, const char *kind, const char *json, size_t len)
{
	char *p;

	if (!is_line_text(json, len))
		return -EINVAL;
	int r = stream_lines_begin(&writer->lines, STREAM_KIND_MAX + 1 + len, &p);
	if (r < 0)
		return r;

	p = put_text(p, kind);
	*p++ = '\t';
	return stream_lines_end(&writer->lines, put_bytes(p, json, len));
}

/* ---- headers ---- */

static int put_format(struct stream_writer *writer)
{
	char *p;
	int r = stream_lines_begin(&writer->lines, 128 + 3 * TEXT_NUMBER_ROOM, &p);

	if (r < 0)
		return r;
	p = put_text(p, "FORMAT\t{\"name\":\"spikewatch-stream\",\"version\":1,\"start_ns\":");
	p = put_text(text_put_u64(p, writer->start.ns), ",\"columns\":");
	p = put_text(text_put_u64(p, writer->column_count), ",\"next_row\":");
	p = put_text(text_put_u64(p, writer->rows + 1), "," STREAM_CRC_ANNOUNCED "}");
	return stream_lines_end(&writer->lines, p);
}

static int put_start_time(struct stream_writer *writer)
{
	char *p;
	int r = stream_lines_begin(&writer->lines, 32 + TEXT_NUMBER_ROOM, &p);

	return r < 0 ? r
		     : stream_lines_end(&writer->lines, text_put_u64(put_text(p, "START_TIME\t"), writer->start.ns));
}

static char *put_meta_json(char *p, const struct stream_column *column, size_t index)
{
	p = text_put_u64(put_text(p, "{\"column\":"), index);
	p = put_json_string(put_text(p, ",\"unit\":"), column->unit);
	p = put_json_string(put_text(p, ",\"kind\":"), column->kind);
	p = put_json_string(put_text(p, ",\"description\":"), column->description);
	return put_text(p, "}");
}

/*
 * protojson of gVisor's MetricMetadata: what is at its default is left out, what is unknown would
 * be refused.
 */
static char *put_meta_gvisor(char *p, const struct stream_column *column)
{
	p = put_json_string(put_text(p, "{\"name\":"), column->name);
	p = put_json_string(put_text(p, ",\"description\":"), column->description);
	if (strcmp(column->kind, "counter") == 0)
		p = put_text(p, ",\"cumulative\":true");
	if (strcmp(column->unit, "ns") == 0)
		p = put_text(p, ",\"units\":\"UNITS_NANOSECONDS\"");
	return put_text(p, "}");
}

static int put_meta(struct stream_writer *writer, size_t index)
{
	const struct stream_column *column = &writer->columns[index];
	size_t text =
		2 * strlen(column->name) + strlen(column->unit) + strlen(column->kind) + strlen(column->description);
	char *p;
	int r = stream_lines_begin(&writer->lines, 128 + TEXT_NUMBER_ROOM + 2 * text, &p);

	if (r < 0)
		return r;
	p = put_text(put_text(p, "META\t"), column->name);
	*p++ = '\t';
	p = writer->format == STREAM_GVISOR ? put_meta_gvisor(p, column) : put_meta_json(p, column, index);
	return stream_lines_end(&writer->lines, p);
}

static int put_column_header(struct stream_writer *writer)
{
	bool gvisor = writer->format == STREAM_GVISOR;
	char *p;
	int r = stream_lines_begin(&writer->lines, 64 + STREAM_COLUMNS_MAX * (1 + STREAM_NAME_MAX), &p);

	if (r < 0)
		return r;
	p = put_text(p, gvisor ? "Time (ns)" : "Seq\tTime (ns)\tTarget");
	for (size_t i = 0; i < writer->column_count; i++) {
		*p++ = '\t';
		p = put_text(p, writer->columns[i].name);
	}
	return stream_lines_end(&writer->lines, gvisor ? put_text(p, "\tChecksum") : p);
}

/* Either FORMAT or START_TIME tells which stream this is, so losing one of them does no harm. */
static int put_headers(struct stream_writer *writer)
{
	bool gvisor = writer->format == STREAM_GVISOR;
	int r = gvisor ? 0 : put_format(writer);

	if (!r && !gvisor)
		r = put_start_time(writer);
	for (size_t i = 0; !r && i < writer->column_count; i++)
		r = put_meta(writer, i);
	if (!r && gvisor)
		r = put_start_time(writer);
	return r ? r : put_column_header(writer);
}

static int repeat_headers(struct stream_writer *writer)
{
	size_t most = writer->repeat_rows / ROWS_PER_REPEATED_TARGET + 1;
	int r = put_headers(writer);

	for (size_t i = 0; !r && i < most && i < writer->target_count; i++) {
		const struct target_line *line = &writer->targets[writer->target_turn++ % writer->target_count];

		r = stream_lines_put(&writer->lines, line->content, line->len);
	}
	return r;
}

/* ---- life ---- */

static bool is_column(const struct stream_options *options, size_t index)
{
	const struct stream_column *column = &options->columns[index];
	const char *texts[] = { column->name, column->unit, column->kind, column->description };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (!texts[i] || !is_line_text(texts[i], strlen(texts[i])))
			return false;
	for (size_t i = 0; i < index; i++)
		if (strcmp(options->columns[i].name, column->name) == 0)
			return false;
	if (options->format == STREAM_GVISOR && strchr(column->name, '['))
		return false;
	return *column->name && strlen(column->name) <= STREAM_NAME_MAX;
}

static void writer_free(struct stream_writer **writer)
{
	struct stream_writer *w = *writer;

	if (!w)
		return;
	for (size_t i = 0; i < w->target_count; i++)
		free(w->targets[i].content);
	free(w->targets);
	free(w->recent);
	buffer_release(&w->stats);
	stream_lines_release(&w->lines);
	free(w);
}

int stream_writer_new(struct sink sink, const struct stream_options *options, struct stream_writer **ret)
{
	if (!options->column_count || options->column_count > STREAM_COLUMNS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < options->column_count; i++)
		if (!is_column(options, i))
			return -EINVAL;

	AUTO(writer_free) struct stream_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return -ENOMEM;
	writer->format = options->format;
	memcpy(writer->columns, options->columns, options->column_count * sizeof(*options->columns));
	writer->column_count = options->column_count;
	writer->start = options->start;
	writer->repeat_rows = options->repeat_rows ? options->repeat_rows : REPEAT_ROWS_DEFAULT;
	writer->recent = calloc(RECENT_ROWS_MIN, sizeof(*writer->recent));
	writer->recent_rows = RECENT_ROWS_MIN;
	if (!writer->recent)
		return -ENOMEM;

	int r = stream_lines_init(&writer->lines, sink,
				  options->format == STREAM_GVISOR ? STREAM_PREFIX_GVISOR : STREAM_PREFIX,
				  options->flush_bytes ? options->flush_bytes : FLUSH_BYTES_DEFAULT, ROW_ROOM);
	writer->lines.checked = options->format == STREAM_SPIKEWATCH;
	writer->lines.block.first_row = 1;
	if (!r)
		r = put_headers(writer);
	if (r < 0)
		return r;

	*ret = TAKE(writer);
	return 0;
}

static int put_end(struct stream_writer *writer)
{
	if (writer->format != STREAM_GVISOR)
		return stream_lines_put_end(&writer->lines, writer->rows);

	return writer->stats.len ? put_remark(writer, "STATS", writer->stats.data, writer->stats.len) : 0;
}

int stream_close(struct stream_writer *closing)
{
	AUTO(writer_free) struct stream_writer *writer = closing;

	if (!writer)
		return 0;
	/* Without memory for the last remark the checksum is written all the same. */
	int r = put_end(writer);
	int closed = stream_lines_close(&writer->lines);
	return closed < 0 ? closed : r;
}

int stream_flush(struct stream_writer *writer)
{
	return stream_lines_flush(&writer->lines);
}

/* ---- content ---- */

static struct target_line *find_target(struct stream_writer *writer, uint32_t id)
{
	for (size_t i = 0; i < writer->target_count; i++)
		if (writer->targets[i].id == id)
			return &writer->targets[i];
	return NULL;
}

static int reserve_target(struct stream_writer *writer)
{
	if (writer->target_count < writer->target_cap)
		return 0;

	size_t cap = writer->target_cap ? 2 * writer->target_cap : 16;
	struct target_line *targets = reallocarray(writer->targets, cap, sizeof(*targets));
	if (!targets)
		return -ENOMEM;
	writer->targets = targets;
	writer->target_cap = cap;
	return 0;
}

/* Without memory for more there are as many as before. */
static void reserve_recent(struct stream_writer *writer)
{
	uint32_t rows = 2 * writer->recent_rows;

	if (writer->target_count <= writer->recent_rows || rows > RECENT_ROWS_MAX)
		return;
	struct recent_row *recent = calloc(rows, sizeof(*recent));
	if (!recent)
		return;
	free(writer->recent);
	writer->recent = recent;
	writer->recent_rows = rows;
}

int stream_target(struct stream_writer *writer, uint32_t id, const char *json, size_t len)
{
	if (writer->lines.error || writer->format == STREAM_GVISOR)
		return writer->lines.error;
	if (!id || !is_line_text(json, len))
		return -EINVAL;

	AUTO_FREE char *content = malloc(sizeof("TARGET\t") + TEXT_NUMBER_ROOM + 1 + len);
	if (!content)
		return -ENOMEM;
	char *p = text_put_u64(put_text(content, "TARGET\t"), id);
	*p++ = '\t';
	p = put_bytes(p, json, len);
	size_t content_len = (size_t)(p - content);

	struct target_line *line = find_target(writer, id);
	if (line && line->len == content_len && memcmp(line->content, content, content_len) == 0)
		return 0;
	int r = reserve_target(writer);
	if (!r)
		r = stream_lines_put(&writer->lines, content, content_len);
	if (r < 0)
		return r;

	if (!line)
		line = &writer->targets[writer->target_count++];
	else
		free(line->content);
	*line = (struct target_line){ .id = id, .len = content_len, .content = TAKE(content) };
	reserve_recent(writer);
	return 0;
}

int stream_target_gone(struct stream_writer *writer, uint32_t id)
{
	struct target_line *line = find_target(writer, id);

	if (line) {
		free(line->content);
		*line = writer->targets[--writer->target_count];
	}
	return writer->lines.error;
}

static char *put_cell(char *p, bool available, uint64_t value)
{
	*p++ = '\t';
	return available ? text_put_u64(p, value) : p;
}

/* May write up to COPY_BYTES more than len, and read as many. */
static inline char *copy_text(char *out, const char *text, size_t len)
{
	for (size_t at = 0; at < len; at += COPY_BYTES)
		memcpy(out + at, text + at, COPY_BYTES);
	return out + len;
}

/* Every cell, which is then kept. */
static char *put_all_cells(struct recent_row *recent, size_t columns, char *out, const uint64_t *values, uint32_t mask)
{
	char *p = out;

	for (size_t i = 0; i < columns; i++) {
		bool available = mask >> i & 1;

		recent->begins[i] = (uint16_t)(p - out);
		recent->values[i] = available ? values[i] : 0;
		p = put_cell(p, available, values[i]);
	}
	recent->begins[columns] = (uint16_t)(p - out);
	recent->mask = mask;
	copy_text(recent->text, out, (size_t)(p - out));
	return p;
}

/* Of four columns from first on, in four bits. */
static inline uint32_t changed_of_four(const uint64_t *now, const uint64_t *before)
{
	return (uint32_t)(now[0] != before[0]) | (uint32_t)(now[1] != before[1]) << 1 |
	       (uint32_t)(now[2] != before[2]) << 2 | (uint32_t)(now[3] != before[3]) << 3;
}

static uint32_t changed_cells(const struct recent_row *recent, size_t columns, const uint64_t *values)
{
	uint32_t changed = 0;
	size_t i = 0;

	for (; i + 4 <= columns; i += 4)
		changed |= changed_of_four(values + i, recent->values + i) << i;
	for (; i < columns; i++)
		changed |= (uint32_t)(values[i] != recent->values[i]) << i;
	return changed & recent->mask;
}

static struct recent_row *recent_of(const struct stream_writer *writer, uint32_t target)
{
	return &writer->recent[target & (writer->recent_rows - 1)];
}

/* Of many targets, the last row of one is not in the first cache any more. */
static void fetch_recent(const struct stream_writer *writer, uint32_t target)
{
	const struct recent_row *recent = recent_of(writer, target);

	__builtin_prefetch(recent);
	__builtin_prefetch(&recent->begins[STREAM_COLUMNS_MAX]);
	for (size_t i = 0; i < writer->column_count; i += 8)
		__builtin_prefetch(&recent->values[i]);
	for (size_t i = 0; i < 128; i += 64)
		__builtin_prefetch(&recent->text[i], 1);
}

/* The least and the greatest number of so many digits. */
static const struct {
	uint64_t least, greatest;
} numbers_of_width[] = {
	[1] = { 0, 9 },
	{ 10, 99 },
	{ 100, 999 },
	{ 1000, 9999 },
	{ 10000, 99999 },
	{ 100000, 999999 },
	{ 1000000, 9999999 },
	{ 10000000, 99999999 },
	{ 100000000, 999999999 },
	{ 1000000000, 9999999999 },
	{ 10000000000, 99999999999 },
	{ 100000000000, 999999999999 },
	{ 1000000000000, 9999999999999 },
	{ 10000000000000, 99999999999999 },
	{ 100000000000000, 999999999999999 },
	{ 1000000000000000, 9999999999999999 },
};

static void put_word(char *out, char *kept, uint64_t word)
{
	word = htole64(word);
	memcpy(out, &word, sizeof(word));
	memcpy(kept, &word, sizeof(word));
}

/*
 * Writes value over the number of cell i, in the copy at out and in what is kept, if it has as many digits
 * and at most 16. Whole words are stored: what stands behind a short number is restored, and the digits before
 * the last eight are as a rule as they were.
 */
static bool change_cell(struct recent_row *recent, unsigned i, char *out, uint64_t value)
{
	unsigned begin = recent->begins[i] + 1, width = recent->begins[i + 1] - begin;
	char *kept = recent->text + begin;

	if (width >= ARRAY_LEN(numbers_of_width) || value < numbers_of_width[width].least ||
	    value > numbers_of_width[width].greatest)
		return false;

	uint64_t high = value / TEXT_EIGHT_DIGITS, digits = text_eight_digits((uint32_t)(value % TEXT_EIGHT_DIGITS));

	out += begin;
	if (width <= 8) {
		uint64_t behind;

		memcpy(&behind, kept + width, sizeof(behind));
		put_word(out, kept, digits >> 8 * (8 - width));
		memcpy(out + width, &behind, sizeof(behind));
		memcpy(kept + width, &behind, sizeof(behind));
	} else {
		if (high != recent->values[i] / TEXT_EIGHT_DIGITS)
			put_word(out, kept, text_eight_digits((uint32_t)high) >> 8 * (16 - width));
		put_word(out + width - 8, kept + width - 8, digits);
	}
	recent->values[i] = value;
	return true;
}

/* The cells of a row of this target: those of its last row, and what changed written over them. */
static char *put_cells(struct stream_writer *writer, uint32_t target, char *p, const uint64_t *values, uint32_t mask)
{
	struct recent_row *recent = recent_of(writer, target);
	size_t columns = writer->column_count;

	if (!recent->used || recent->target != target || recent->mask != mask) {
		recent->used = true;
		recent->target = target;
		return put_all_cells(recent, columns, p, values, mask);
	}
	char *end = copy_text(p, recent->text, recent->begins[columns]);

	for (uint32_t changed = changed_cells(recent, columns, values); changed; changed &= changed - 1) {
		unsigned i = (unsigned)__builtin_ctz(changed);

		if (!change_cell(recent, i, p, values[i])) /* all that follow are elsewhere */
			return put_all_cells(recent, columns, p, values, mask);
	}
	return end;
}

/* A time, in which the digits before the last eight are as a rule those of the last row. */
static char *put_time(struct stream_writer *writer, char *p, uint64_t time_ns)
{
	uint64_t high = time_ns / TEXT_EIGHT_DIGITS;

	if (!high)
		return text_put_u64(p, time_ns);
	if (high != writer->time_high) {
		writer->time_high = high;
		writer->time_len = (size_t)(text_put_u64(writer->time_text, high) - writer->time_text);
	}
	memcpy(p, writer->time_text, sizeof(writer->time_text));
	p += writer->time_len;

	uint64_t digits = htole64(text_eight_digits((uint32_t)(time_ns % TEXT_EIGHT_DIGITS)));

	return put_bytes(p, (const char *)&digits, sizeof(digits));
}

static char *put_cells_gvisor(struct stream_writer *writer, char *p, const uint64_t *values, uint32_t mask)
{
	for (size_t i = 0; i < writer->column_count; i++)
		if (mask >> i & 1)
			writer->last[i] = values[i];
	return put_cells(writer, 0, p, writer->last, UINT32_MAX);
}

int stream_row(struct stream_writer *writer, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	bool gvisor = writer->format == STREAM_GVISOR;
	bool repeat = !gvisor && writer->rows && writer->rows % writer->repeat_rows == 0;
	int r = repeat ? repeat_headers(writer) : 0;
	char *p;

	if (r < 0)
		return r;
	if (writer->recent_rows > RECENT_ROWS_MIN)
		fetch_recent(writer, target);
	r = stream_lines_begin(&writer->lines, ROW_ROOM, &p);
	if (r < 0)
		return r;

	writer->rows++;
	if (gvisor)
		return stream_lines_end_row(&writer->lines,
					    put_cells_gvisor(writer, put_time(writer, p, time_ns), values, mask));

	p = text_put_u64(p, writer->rows);
	*p++ = '\t';
	p = put_time(writer, p, time_ns);
	*p++ = '\t';
	p = text_put_u64(p, target);
	return stream_lines_end_row(&writer->lines, put_cells(writer, target, p, values, mask));
}

static bool is_note_kind(const char *kind)
{
	static const char *const ours[] = { "FORMAT", "META", "TARGET",  "START_TIME",
					    "STATS",  "END",  "ADLER32", STREAM_CRC_KIND };

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (strcmp(kind, ours[i]) == 0)
			return false;
	size_t len = strspn(kind, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	return len && !kind[len] && len <= STREAM_KIND_MAX;
}

int stream_note(struct stream_writer *writer, const char *kind, const char *json, size_t len)
{
	if (writer->lines.error || writer->format == STREAM_GVISOR)
		return writer->lines.error;
	return is_note_kind(kind) ? put_remark(writer, kind, json, len) : -EINVAL;
}

int stream_stats(struct stream_writer *writer, const char *json, size_t len)
{
	if (writer->lines.error || writer->format != STREAM_GVISOR)
		return writer->lines.error ? writer->lines.error : put_remark(writer, "STATS", json, len);
	if (!is_line_text(json, len) || len > STREAM_LINE_MAX / 2)
		return -EINVAL;

	/* gVisor's reader refuses a second one. */
	struct buffer stats = { 0 };
	int r = buffer_append(&stats, json, len);
	if (r < 0)
		return r;
	buffer_release(&writer->stats);
	writer->stats = stats;
	return 0;
}

uint64_t stream_bytes(const struct stream_writer *writer)
{
	return stream_lines_bytes(&writer->lines);
}
