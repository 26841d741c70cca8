/*
 * stream_reader.c: three layers. Lines of ours are cut out of the input (struct line_splitter);
 * columns and rows are read from them (struct columns, struct row_window); and
 * they become streams again (struct stream_reader). The repair of a stream is a reader, which keeps
 * the overall checksum of what it has read, and the writer's closing lines.
 *
 * Lines. A line of the input may hold anything: a logger's own prefix before ours, two lines of ours
 * that lost the newline between them, a foreign line that never ends. So the prefix is searched
 * everywhere. From the first one on, the line is tried as a whole; if its checksum does not agree, it
 * is tried in parts, each up to the next prefix. Both passes are linear, so no input is slow. Complete
 * lines are examined in place. What is left of a piece of input is kept, up to one line of the
 * greatest legal length; when that is full, everything before the last place where a line of ours can
 * still begin is given up.
 *
 * Columns. In our own format a description carries the number of its column, so every line helps by
 * itself: a lost column header is made up for by the descriptions, a lost description costs the
 * description and not the name. In gVisor's format descriptions have only an order, and a lost one
 * would shift the others. So they are held until the column header has given the names; if that is
 * lost, until a row shows that there are as many of them as values.
 *
 * Rows are accounted for as in an anti-replay window: the highest number seen, and one bit for each of
 * the 64 at and below it. A step of more than one is a loss, a number below with its bit clear is a
 * late row and no loss after all, everything else is a copy. So nothing grows with the input, and no
 * row is handed out twice.
 *
 * Streams. What is known of the current stream is one struct, zeroed when the next stream begins:
 *
 *     nothing --first line--> open --ADLER32--> closed --line of another stream--> open ...
 *
 * Another stream shows by its START_TIME, which FORMAT has too, so that either may be lost. Where both
 * were lost before, the number of its next row in FORMAT tells: numbers do not step back within a
 * stream. In gVisor's format, which has no such numbers and no repeated headers, a description after
 * the column header begins another stream.
 *
 * Repair. Where anything but the last line is damaged the stream is left as it is: a closing checksum
 * says that all of it is as it was written.
 */
#include "lib/stream/stream.h"
#include "lib/stream/stream_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line whose checksum agrees; valid during the call. */
struct framed_line {
	const char *content; /* without prefix and checksum; not terminated */
	size_t len;
	size_t framed_len; /* with the checksum, which follows the content in memory; without newline */
	uint32_t adler;    /* of the content */
	bool closing;      /* STREAM_CLOSING: adler is the number it says, not its own; len is framed_len */
	bool ended;        /* by a newline or by another line of ours: what follows is not the rest of it */
};

/* A non-zero return stops and is returned. */
struct line_events {
	int (*line)(void *ctx, const struct framed_line *line);
	/* Carries a prefix of ours, but is damaged; why is static text. */
	int (*damaged)(void *ctx, const char *why);
	void *ctx;
};

struct line_splitter {
	struct line_events events;
	bool format_known; /* by the first good line: from then on, lines of the other format are foreign */
	enum stream_format format;
	uint64_t line; /* of the input, the current one, from 1; 0 before the first byte */
	uint64_t foreign_lines;
	bool prefix_seen; /* somewhere in the input */

	bool inside;       /* the current line has bytes */
	bool prefixed;     /* and a prefix */
	bool foreign_text; /* and other bytes */
	size_t len;        /* kept of it */
	char data[STREAM_LINE_MAX];
};

/*
 * Longer descriptions in STREAM_GVISOR are not kept until the column header says which column they
 * are of.
 */
#define HELD_JSON_MAX 511

struct held_description {
	char name[STREAM_NAME_MAX + 1];
	char json[HELD_JSON_MAX + 1];
};

/* {0}: nothing is known. */
struct columns {
	size_t count;   /* 0: not known */
	bool named;     /* by the column header */
	uint32_t known; /* bit per column: it has a description */

	/*
	 * What the last call has found out: bit per column. json may be NULL, and is valid until
	 * the next call.
	 */
	uint32_t news;
	char names[STREAM_COLUMNS_MAX][STREAM_NAME_MAX + 1];
	const char *json[STREAM_COLUMNS_MAX];

	size_t held_count; /* STREAM_GVISOR: descriptions seen */
	struct held_description held[STREAM_COLUMNS_MAX];
};

/* A value to copy. values beyond columns, and those whose bit in mask is 0, are 0. */
struct parsed_row {
	uint64_t seq; /* from 1; 0 in STREAM_GVISOR, whose rows have no numbers */
	uint64_t time_ns;
	uint32_t target; /* 0 in STREAM_GVISOR */
	uint32_t mask;
	size_t columns; /* 1 .. STREAM_COLUMNS_MAX */
	uint64_t values[STREAM_COLUMNS_MAX];
};

/* So far back, rows that are missing can still arrive. */
#define LATE_ROWS_MAX 63

/* Which rows were seen. {0}: none. */
struct row_window {
	uint64_t highest;
	uint64_t seen; /* bit n: row highest - n */
};

/* ---- lines ---- */

#define PREFIX_LEN_MAX (sizeof(STREAM_PREFIX_GVISOR) - 1)

_Static_assert(sizeof(STREAM_PREFIX) <= sizeof(STREAM_PREFIX_GVISOR), "the longer of the prefixes");

static const char *const prefixes[] = { [STREAM_SPIKEWATCH] = STREAM_PREFIX, [STREAM_GVISOR] = STREAM_PREFIX_GVISOR };

/* Zeroes all but data. */
static void lines_init(struct line_splitter *lines, const struct line_events *events)
{
	memset(lines, 0, offsetof(struct line_splitter, data));
	lines->events = *events;
}

/* The first prefix in [p, end): NULL, or where it is and of which format. */
static const char *find_prefix(const struct line_splitter *lines, const char *p, const char *end,
			       enum stream_format *ret_format)
{
	const char *first = NULL;

	for (enum stream_format f = STREAM_SPIKEWATCH; f <= STREAM_GVISOR; f++) {
		size_t len = strlen(prefixes[f]);

		if ((lines->format_known && f != lines->format) || (size_t)(end - p) < len)
			continue;
		const char *found =
			memcmp(p, prefixes[f], len) == 0 ? p : memmem(p, (size_t)(end - p), prefixes[f], len);
		if (found && (!first || found < first)) {
			first = found;
			*ret_format = f;
		}
	}
	return first;
}

/* The checksum "5fe4a3d1" between p and end, exactly as the writer writes it. */
static bool parse_checksum(const char *p, const char *end, uint32_t *ret)
{
	uint64_t value;

	if (text_parse_hex(p, end, &value) != end || value > UINT32_MAX || (*p == '0' && end - p > 1))
		return false;
	*ret = (uint32_t)value;
	return true;
}

/* Reads "content\t0x5fe4a3d1". NULL: it is whole; else what is wrong with it. */
static const char *verify(const char *p, const char *end, struct framed_line *ret)
{
	size_t mark_len = strlen(STREAM_CHECKSUM_MARK), closing_len = strlen(STREAM_CLOSING);
	size_t len = (size_t)(end - p);
	uint32_t adler;

	if (len > closing_len && memcmp(p, STREAM_CLOSING, closing_len) == 0) {
		if (!parse_checksum(p + closing_len, end, &adler))
			return "the overall checksum is not a number";
		*ret = (struct framed_line){
			.content = p, .len = len, .framed_len = len, .adler = adler, .closing = true
		};
		return NULL;
	}

	const char *mark = memrchr(p, '\t', len);
	if (!mark || (size_t)(end - mark) <= mark_len || memcmp(mark, STREAM_CHECKSUM_MARK, mark_len) != 0 ||
	    !parse_checksum(mark + mark_len, end, &adler))
		return "no checksum at its end";
	if (checksum_adler32(CHECKSUM_ADLER32_EMPTY, p, (size_t)(mark - p)) != adler)
		return "its checksum differs";
	*ret = (struct framed_line){ .content = p, .len = (size_t)(mark - p), .framed_len = len, .adler = adler };
	return NULL;
}

static int hand_out(struct line_splitter *lines, enum stream_format format, struct framed_line *line, bool ended)
{
	line->ended = ended;
	lines->format = format;
	lines->format_known = true;
	return lines->events.line(lines->events.ctx, line);
}

/* [p, end) begins with a prefix. Hands out each line of ours in it. */
static int take_parts(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format, next_format;
	struct framed_line line;
	int r = 0;

	p = find_prefix(lines, p, end, &format);
	while (!r && p) {
		const char *content = p + strlen(prefixes[format]);
		const char *next = find_prefix(lines, content, end, &next_format);
		const char *why = verify(content, next ? next : end, &line);

		r = why ? lines->events.damaged(lines->events.ctx, why) : hand_out(lines, format, &line, ended || next);
		p = next;
		format = next_format;
	}
	return r;
}

/* A whole line, or what is left of it. */
static int take(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format;
	struct framed_line line;

	if (end > p && end[-1] == '\r')
		end--;
	const char *first = find_prefix(lines, p, end, &format);
	lines->foreign_text |= (first ? first : end) > p;
	if (!first)
		return 0;

	lines->prefixed = lines->prefix_seen = true;
	if (!verify(first + strlen(prefixes[format]), end, &line))
		return hand_out(lines, format, &line, ended);
	return take_parts(lines, first, end, ended);
}

static void keep_from(struct line_splitter *lines, const char *p)
{
	lines->len -= (size_t)(p - lines->data);
	memmove(lines->data, p, lines->len);
}

/*
 * No newline within the greatest legal length: takes the parts that are complete and gives up what
 * cannot be part of a line of ours any more. What stays begins at the last prefix, so that many
 * prefixes without newline are not moved again and again.
 */
static int make_room(struct line_splitter *lines)
{
	const char *end = lines->data + lines->len, *keep = end - (PREFIX_LEN_MAX - 1), *last = NULL;
	enum stream_format format;
	const char *first = find_prefix(lines, lines->data, end, &format);
	int r = 0;

	for (const char *p = first; p; p = find_prefix(lines, p + 1, end, &format))
		last = p;
	lines->prefixed |= first != NULL;
	lines->prefix_seen |= first != NULL;
	lines->foreign_text |= first != lines->data;

	if (last > first)
		r = take_parts(lines, first, last, true);
	else if (first == lines->data)
		r = lines->events.damaged(lines->events.ctx, "it is too long");
	if (last > lines->data)
		keep = last;
	keep_from(lines, keep);
	return r;
}

static int keep(struct line_splitter *lines, const char *data, size_t len)
{
	while (len) {
		int r = lines->len < sizeof(lines->data) ? 0 : make_room(lines);

		if (r)
			return r;
		size_t room = sizeof(lines->data) - lines->len;
		size_t n = len < room ? len : room;
		memcpy(lines->data + lines->len, data, n);
		lines->len += n;
		data += n;
		len -= n;
	}
	return 0;
}

/* The current line is over: [p, end) is what there is of it. */
static int end_line(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	int r = take(lines, p, end, ended);

	lines->foreign_lines += lines->foreign_text && !lines->prefixed;
	lines->inside = lines->prefixed = lines->foreign_text = false;
	lines->len = 0;
	return r;
}

/* 0 or what an event returned. How the input is cut into pieces makes no difference. */
static int lines_feed(struct line_splitter *lines, const char *data, size_t len)
{
	const char *end = data + len;
	int r = 0;

	while (!r && data < end) {
		const char *newline = memchr(data, '\n', (size_t)(end - data));
		const char *stop = newline ? newline : end;
		bool in_place = newline && !lines->len && (size_t)(stop - data) <= sizeof(lines->data);

		lines->line += !lines->inside;
		lines->inside = true;
		if (in_place)
			r = end_line(lines, data, stop, true);
		else
			r = keep(lines, data, (size_t)(stop - data));
		if (!r && newline && !in_place)
			r = end_line(lines, lines->data, lines->data + lines->len, true);
		data = newline ? newline + 1 : end;
	}
	return r;
}

/* The end of the input: what there is of a last line without newline. */
static int lines_finish(struct line_splitter *lines)
{
	return lines->inside ? end_line(lines, lines->data, lines->data + lines->len, false) : 0;
}

/* ---- columns ---- */

/* json: NULL if there is none. */
static void learn(struct columns *columns, size_t index, const char *name, size_t len, const char *json)
{
	char *known = columns->names[index];
	uint32_t bit = 1u << index;
	bool same = strlen(known) == len && memcmp(known, name, len) == 0;

	if (same && (columns->known & bit || !json))
		return;
	memcpy(known, name, len);
	known[len] = '\0';
	columns->json[index] = json;
	columns->known = json ? columns->known | bit : columns->known & ~bit;
	columns->news |= bit;
}

static bool hold(struct columns *columns, const char *name, size_t len, const char *json)
{
	struct held_description *held = &columns->held[columns->held_count];

	if (columns->held_count == STREAM_COLUMNS_MAX)
		return false;
	columns->held_count++;
	memcpy(held->name, name, len);
	held->name[len] = '\0';
	held->json[0] = '\0';
	if (strlen(json) <= HELD_JSON_MAX)
		memcpy(held->json, json, strlen(json) + 1);
	return true;
}

/*
 * What follows META: name, tab, description. False if it makes no sense. text must stay valid while
 * the news are told.
 */
/* "cpu\t{\"column\":0,\"unit\":\"ns\",\"kind\":\"counter\",\"description\":\"CPU time\"}" */
static bool columns_describe(struct columns *columns, enum stream_format format, const char *text)
{
	static const char member[] = "{\"column\":";
	size_t len = strcspn(text, "\t");
	const char *json = text + len + 1;
	uint64_t index;

	columns->news = 0;
	if (!len || len > STREAM_NAME_MAX || !text[len])
		return false;
	if (format == STREAM_GVISOR)
		return hold(columns, text, len, json);

	if (strncmp(json, member, strlen(member)) != 0 ||
	    !text_parse_u64(json + strlen(member), json + strlen(json), &index) || index >= STREAM_COLUMNS_MAX)
		return false;
	learn(columns, index, text, len, json);
	return true;
}

/* How many names there are up to end; 0 if one of them, or their number, makes no sense. */
static size_t count_names(const char *text, const char *end)
{
	size_t n = 0;

	for (const char *p = text; p <= end; n++) {
		size_t len = strcspn(p, "\t");

		if (!len || len > STREAM_NAME_MAX)
			return 0;
		p += len + 1;
	}
	return n <= STREAM_COLUMNS_MAX ? n : 0;
}

static const char *held_json(const struct columns *columns, const char *name, size_t len)
{
	for (size_t i = 0; i < columns->held_count; i++) {
		const struct held_description *held = &columns->held[i];

		if (strlen(held->name) == len && memcmp(held->name, name, len) == 0)
			return *held->json ? held->json : NULL;
	}
	return NULL;
}

/*
 * What follows the cells for number, time and target in the column header: names. False if they
 * make no sense.
 */
/* "cpu\tmemory", and in gVisor's format "cpu\tmemory\tChecksum" */
static bool columns_name(struct columns *columns, enum stream_format format, const char *text)
{
	const char *last = strrchr(text, '\t'), *end = text + strlen(text);

	columns->news = 0;
	if (format == STREAM_GVISOR && last && strcmp(last, "\tChecksum") == 0)
		end = last;
	size_t n = count_names(text, end);
	if (!n)
		return false;

	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(text, "\t");

		learn(columns, i, text, len, held_json(columns, text, len));
		text += len + 1;
	}
	columns->count = n;
	columns->named = true;
	return true;
}

/*
 * A row has count values: may it be read? If how many columns there are is not known yet, it may
 * tell.
 */
static bool columns_fit(struct columns *columns, enum stream_format format, size_t count)
{
	columns->news = 0;
	if (columns->count || (format == STREAM_GVISOR && columns->held_count != count))
		return columns->count == count;

	columns->count = count;
	for (size_t i = 0; i < columns->held_count; i++)
		learn(columns, i, columns->held[i].name, strlen(columns->held[i].name),
		      *columns->held[i].json ? columns->held[i].json : NULL);
	return true;
}

/* ---- rows ---- */

#define WINDOW_ROWS (LATE_ROWS_MAX + 1)

/*
 * "1184\t\t52": reads cells, the first of them into ret[0], and returns how many there are; 0 if
 * they make no sense or are more than max. Bit n of *ret_mask: cell n is not empty. Empty cells are
 * left alone.
 */
static size_t parse_cells(const char *p, const char *end, size_t max, uint64_t *ret, uint32_t *ret_mask)
{
	uint32_t mask = 0;

	for (size_t n = 0; n < max; n++, p++) {
		if (p < end && *p != '\t') {
			p = text_parse_u64(p, end, &ret[n]);
			mask |= 1u << n;
		}
		if (!p || (p < end && *p != '\t'))
			return 0;
		if (p == end) {
			*ret_mask = mask;
			return n + 1;
		}
	}
	return 0;
}

/* A number and the tab behind it. */
static const char *parse_leading(const char *p, const char *end, uint64_t *ret)
{
	p = p ? text_parse_u64(p, end, ret) : NULL;
	return p && p < end && *p == '\t' ? p + 1 : NULL;
}

/*
 * Reads the content of a row's line, without checksum. False if it makes no sense; *ret is then
 * undefined.
 */
/*
 * Sample lines: "17\t250000000\t3\t1184\t\t52" (number, time, target, values);
 * in gVisor's format "250000000\t1184\t52" (time, values, none of them empty).
 */
static bool row_parse(enum stream_format format, const char *p, size_t len, struct parsed_row *ret)
{
	bool gvisor = format == STREAM_GVISOR;
	const char *end = p + len;
	uint64_t seq = 0, target = 0;

	memset(ret, 0, sizeof(*ret));
	if (!gvisor)
		p = parse_leading(p, end, &seq);
	p = parse_leading(p, end, &ret->time_ns);
	if (!gvisor)
		p = parse_leading(p, end, &target);
	if (!p || (!gvisor && !seq) || target > UINT32_MAX)
		return false;

	ret->seq = seq;
	ret->target = (uint32_t)target;
	ret->columns = parse_cells(p, end, STREAM_COLUMNS_MAX, ret->values, &ret->mask);
	return ret->columns && (!gvisor || ret->mask == UINT32_MAX >> (STREAM_COLUMNS_MAX - ret->columns));
}

/* Was this row seen, or is it too old to tell. */
static bool stream_reader_rows_is_copy(const struct row_window *rows, uint64_t seq)
{
	uint64_t back = rows->highest - seq;

	if (seq > rows->highest)
		return false;
	return back >= WINDOW_ROWS || (rows->seen >> back & 1);
}

/* The stream has had `upto` > highest rows. Returns how many of them, at the end, were not seen. */
static uint64_t row_window_advance(struct row_window *rows, uint64_t upto)
{
	uint64_t step = upto - rows->highest;

	rows->seen = step < WINDOW_ROWS ? rows->seen << step : 0;
	rows->highest = upto;
	return step;
}

/* Marks a row that is no copy and not above highest. */
static void row_window_mark(struct row_window *rows, uint64_t seq)
{
	rows->seen |= 1ULL << (rows->highest - seq);
}

/* ---- streams ---- */

#define FORMAT_VERSION 1

/* Of one read(2). */
#define READ_BYTES 65536

static const char other_version[] = "it is in another version of the format";

enum stream_phase { STREAM_NOTHING, STREAM_OPEN, STREAM_CLOSED };

struct stream_state {
	enum stream_phase phase;
	bool unreadable; /* of another version */
	bool start_known, has_row;
	wall_t start;
	uint32_t adler; /* of all lines so far */
	struct row_window rows;
	struct parsed_row last_row;
	struct columns columns;
};

struct stream_reader {
	struct stream_reader_events events;
	struct stream_reader_report report;
	int stopped; /* what an event returned */
	uint64_t streams_closed, streams_agreeing;
	struct stream_state stream;
	struct line_splitter lines;
	size_t text_len; /* of the line before, unless it was a row */
	char text[STREAM_LINE_MAX + 1];
};

static bool is_gvisor(const struct stream_reader *stream_reader)
{
	return stream_reader->lines.format == STREAM_GVISOR;
}

/* ---- what is wrong ---- */

static int tell_damage(struct stream_reader *stream_reader, uint64_t rows_lost, const char *why)
{
	const struct stream_reader_events *events = &stream_reader->events;

	return events->damage ? events->damage(events->ctx, stream_reader->lines.line, rows_lost, why) : 0;
}

static int damaged(void *ctx, const char *why)
{
	struct stream_reader *stream_reader = ctx;

	stream_reader->report.damaged_lines++;
	return tell_damage(stream_reader, 0, why);
}

static int duplicate(struct stream_reader *stream_reader)
{
	stream_reader->report.duplicate_lines++;
	return 0;
}

/* ---- streams ---- */

static void begin_stream(struct stream_reader *stream_reader)
{
	stream_reader->stream = (struct stream_state){ .phase = STREAM_OPEN, .adler = CHECKSUM_ADLER32_EMPTY };
	stream_reader->report.streams++;
	stream_reader->report.first_time_ns = 0;
	stream_reader->report.last_time_ns = 0;
}

/*
 * The overall checksum goes on over the line, its checksum and its newline (which may have become
 * something else).
 */
static void add_to_checksum(struct stream_reader *stream_reader, const struct framed_line *line)
{
	struct stream_state *stream = &stream_reader->stream;

	stream->adler = checksum_adler32_combine(stream->adler, line->adler, line->len);
	stream->adler = checksum_adler32(stream->adler, line->content + line->len, line->framed_len - line->len);
	stream->adler = checksum_adler32(stream->adler, "\n", 1);
}

static int learn_start(struct stream_reader *stream_reader, wall_t start)
{
	struct stream_state *stream = &stream_reader->stream;

	if (stream->start_known)
		return 0;
	stream->start_known = true;
	stream->start = start;
	return stream_reader->events.start_time ? stream_reader->events.start_time(stream_reader->events.ctx, start)
						: 0;
}

static int take_closing(struct stream_reader *stream_reader, const struct framed_line *line)
{
	struct stream_state *stream = &stream_reader->stream;

	if (stream->phase == STREAM_CLOSED)
		return duplicate(stream_reader);
	if (stream->phase == STREAM_NOTHING)
		begin_stream(stream_reader);

	bool agrees = line->adler == stream->adler;
	if (!agrees && !line->ended)
		return damaged(stream_reader, "it is cut short");
	stream->phase = STREAM_CLOSED;
	stream_reader->streams_closed++;
	stream_reader->streams_agreeing += agrees;
	return agrees ? 0
		      : tell_damage(stream_reader, 0,
				    "the overall checksum differs: not every line was recovered in order");
}

/* ---- columns ---- */

static int tell_columns(struct stream_reader *stream_reader)
{
	const struct columns *columns = &stream_reader->stream.columns;
	const struct stream_reader_events *events = &stream_reader->events;
	int r = 0;

	for (size_t i = 0; !r && events->column && i < STREAM_COLUMNS_MAX; i++)
		if (columns->news >> i & 1)
			r = events->column(events->ctx, i, columns->names[i], columns->json[i]);
	return r;
}

static int take_meta(struct stream_reader *stream_reader, const char *text)
{
	if (!columns_describe(&stream_reader->stream.columns, stream_reader->lines.format, text))
		return damaged(stream_reader, "it describes no column");
	return tell_columns(stream_reader);
}

static int take_columns(struct stream_reader *stream_reader, const char *text)
{
	if (!columns_name(&stream_reader->stream.columns, stream_reader->lines.format, text))
		return damaged(stream_reader, "it names no columns");
	return tell_columns(stream_reader);
}

/* ---- rows ---- */

/* Numbers tell copies apart; without them, the same values at the same nanosecond. */
static bool is_copy(const struct stream_reader *stream_reader, const struct parsed_row *row)
{
	const struct stream_state *stream = &stream_reader->stream;
	const struct parsed_row *last = &stream->last_row;

	if (row->seq)
		return stream_reader_rows_is_copy(&stream->rows, row->seq);
	return stream->has_row && row->time_ns == last->time_ns &&
	       memcmp(row->values, last->values, sizeof(row->values)) == 0;
}

static int tell_lost(struct stream_reader *stream_reader, uint64_t lost)
{
	uint64_t *sum = &stream_reader->report.rows_lost;

	if (!lost)
		return 0;
	if (__builtin_add_overflow(*sum, lost, sum))
		*sum = UINT64_MAX;
	return tell_damage(stream_reader, lost, "rows are missing before it");
}

/* Not a copy. */
static int account_row(struct stream_reader *stream_reader, uint64_t seq)
{
	struct row_window *rows = &stream_reader->stream.rows;
	bool late = seq <= rows->highest;
	uint64_t lost = late ? 0 : row_window_advance(rows, seq) - 1;

	row_window_mark(rows, seq);
	stream_reader->report.late_rows += late;
	stream_reader->report.rows_lost -= late;
	return tell_lost(stream_reader, lost);
}

static int hand_out_row(struct stream_reader *stream_reader, const struct parsed_row *row)
{
	struct stream_reader_report *report = &stream_reader->report;
	struct stream_state *stream = &stream_reader->stream;

	if (!stream->has_row || row->time_ns < report->first_time_ns)
		report->first_time_ns = row->time_ns;
	if (!stream->has_row || row->time_ns > report->last_time_ns)
		report->last_time_ns = row->time_ns;
	stream->has_row = true;
	stream->last_row = *row;
	report->rows++;
	if (!stream_reader->events.row)
		return 0;
	return stream_reader->events.row(stream_reader->events.ctx, row->seq, row->time_ns, row->target, row->values,
					 row->mask);
}

static int take_row(struct stream_reader *stream_reader, const struct framed_line *line)
{
	struct stream_state *stream = &stream_reader->stream;
	struct parsed_row row;

	stream_reader->text_len = 0;
	if (!row_parse(stream_reader->lines.format, line->content, line->len, &row))
		return damaged(stream_reader, "it is no row");
	if (is_copy(stream_reader, &row))
		return duplicate(stream_reader);
	if (stream->phase == STREAM_NOTHING ||
	    (stream->phase == STREAM_CLOSED && (!row.seq || row.seq > stream->rows.highest)))
		begin_stream(stream_reader);
	add_to_checksum(stream_reader, line);

	if (stream->unreadable)
		return damaged(stream_reader, other_version);
	if (!columns_fit(&stream->columns, stream_reader->lines.format, row.columns))
		return damaged(stream_reader, "it does not have the columns of the stream");
	if (!row.seq)
		row.seq = stream->rows.highest + 1;
	int r = tell_columns(stream_reader);
	if (!r)
		r = account_row(stream_reader, row.seq);
	return r ? r : hand_out_row(stream_reader, &row);
}

/* ---- headers and remarks: each function takes what follows the kind, terminated ---- */

/* The number behind a member of one of our own objects, which hold no spaces: {"column":3,…}. */
static bool json_number(const char *json, const char *member, uint64_t *ret)
{
	const char *p = strstr(json, member);

	return p && text_parse_u64(p + strlen(member), json + strlen(json), ret);
}

static bool parse_number(const char *text, uint64_t *ret)
{
	const char *end = text + strlen(text);

	return text_parse_u64(text, end, ret) == end;
}

/* start_ns means the same in every version, so that streams can be told apart. */
static int take_format(struct stream_reader *stream_reader, const char *json)
{
	struct stream_state *stream = &stream_reader->stream;
	uint64_t version, start, columns;
	int r = json_number(json, "\"start_ns\":", &start) ? learn_start(stream_reader, (wall_t){ start }) : 0;

	stream->unreadable = !json_number(json, "\"version\":", &version) || version != FORMAT_VERSION;
	if (stream->unreadable)
		return r ? r : damaged(stream_reader, other_version);
	if (!stream->columns.count && json_number(json, "\"columns\":", &columns) && columns <= STREAM_COLUMNS_MAX)
		stream->columns.count = columns;
	return r;
}

static int take_start_time(struct stream_reader *stream_reader, const char *text)
{
	uint64_t start;

	return parse_number(text, &start) ? learn_start(stream_reader, (wall_t){ start })
					  : damaged(stream_reader, "it is no time");
}

static int take_target(struct stream_reader *stream_reader, const char *text)
{
	const char *end = text + strlen(text), *p;
	uint64_t id;

	p = text_parse_u64(text, end, &id);
	if (!p || *p != '\t' || !id || id > UINT32_MAX)
		return damaged(stream_reader, "it declares no target");
	if (!stream_reader->events.target)
		return 0;
	return stream_reader->events.target(stream_reader->events.ctx, (uint32_t)id, p + 1, (size_t)(end - p - 1));
}

static int take_stats(struct stream_reader *stream_reader, const char *json)
{
	return stream_reader->events.stats ? stream_reader->events.stats(stream_reader->events.ctx, json, strlen(json))
					   : 0;
}

static int take_end(struct stream_reader *stream_reader, const char *text)
{
	uint64_t rows;

	if (!parse_number(text, &rows) || rows < stream_reader->stream.rows.highest)
		return damaged(stream_reader, "it is no number of rows");
	return tell_lost(stream_reader, row_window_advance(&stream_reader->stream.rows, rows));
}

static int take_note(struct stream_reader *stream_reader, const char *text)
{
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	const char *json = text + len + (text[len] == '\t');
	char kind[STREAM_KIND_MAX + 1];

	if (!len || len > STREAM_KIND_MAX || (text[len] && text[len] != '\t') || is_gvisor(stream_reader))
		return damaged(stream_reader, "it is of no known kind");
	memcpy(kind, text, len);
	kind[len] = '\0';
	return stream_reader->events.note
		       ? stream_reader->events.note(stream_reader->events.ctx, kind, json, strlen(json))
		       : 0;
}

/* once: two of them in a row are copies. */
struct kind {
	const char *name;
	int (*take)(struct stream_reader *stream_reader, const char *content);
	bool once;
};

// clang-format off
static const struct kind kinds[] = {
	{ "FORMAT",                 take_format,     true },
	{ "START_TIME",             take_start_time, true },
	{ "META",                   take_meta,       true },
	{ "TARGET",                 take_target,     true },
	{ "Seq\tTime (ns)\tTarget", take_columns,    true },
	{ "Time (ns)",              take_columns,    true },
	{ "END",                    take_end,        true },
	{ "STATS",                  take_stats,      false },
};
// clang-format on

static const struct kind *find_kind(const char *text)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t len = strlen(kinds[i].name);

		if (strncmp(text, kinds[i].name, len) == 0 && text[len] == '\t')
			return &kinds[i];
	}
	return NULL;
}

static bool begins_stream(const struct stream_reader *stream_reader, const struct kind *kind, const char *content)
{
	const struct stream_state *stream = &stream_reader->stream;
	uint64_t start, next_row = UINT64_MAX;

	if (stream->phase == STREAM_NOTHING)
		return true;
	if (is_gvisor(stream_reader) &&
	    (stream->phase == STREAM_CLOSED || (kind && kind->take == take_meta && stream->columns.named)))
		return true;
	if (kind && kind->take == take_format) {
		if (!json_number(content, "\"start_ns\":", &start))
			return false;
		json_number(content, "\"next_row\":", &next_row);
	} else if (!kind || kind->take != take_start_time || !parse_number(content, &start)) {
		return false;
	}
	if (stream->start_known)
		return start != stream->start.ns;
	return stream->phase == STREAM_CLOSED || next_row <= stream->rows.highest;
}

static int take_text(struct stream_reader *stream_reader, const struct framed_line *line)
{
	char *text = stream_reader->text;

	if (memchr(line->content, '\0', line->len))
		return damaged(stream_reader, "it holds a NUL");
	bool copy = line->len == stream_reader->text_len && memcmp(text, line->content, line->len) == 0;
	memcpy(text, line->content, line->len);
	text[line->len] = '\0';
	stream_reader->text_len = line->len;

	const struct kind *kind = find_kind(text);
	if (copy && kind && kind->once)
		return duplicate(stream_reader);
	const char *content = kind ? text + strlen(kind->name) + 1 : text;
	if (begins_stream(stream_reader, kind, content))
		begin_stream(stream_reader);
	if (stream_reader->stream.phase == STREAM_CLOSED)
		return duplicate(stream_reader);
	add_to_checksum(stream_reader, line);

	if (stream_reader->stream.unreadable && !(kind && kind->take == take_format))
		return damaged(stream_reader, other_version);
	return kind ? kind->take(stream_reader, content) : take_note(stream_reader, text);
}

static int take_line(void *ctx, const struct framed_line *line)
{
	struct stream_reader *stream_reader = ctx;

	if (line->closing)
		return take_closing(stream_reader, line);
	if (line->len && *line->content >= '0' && *line->content <= '9')
		return take_row(stream_reader, line);
	return take_text(stream_reader, line);
}

/* ---- life ---- */

bool stream_reader_whole(const struct stream_reader_report *report)
{
	return report->ours && report->complete && report->checksum_ok && !report->damaged_lines && !report->rows_lost;
}

int stream_reader_new(const struct stream_reader_events *events, struct stream_reader **ret)
{
	struct stream_reader *stream_reader = calloc(1, sizeof(*stream_reader));

	if (!stream_reader)
		return -ENOMEM;
	stream_reader->events = *events;
	lines_init(&stream_reader->lines, &(struct line_events){ take_line, damaged, stream_reader });
	*ret = stream_reader;
	return 0;
}

/* A piece of the input, of any size. 0 or what an event returned. */
static int feed_reader(struct stream_reader *stream_reader, const char *data, size_t len)
{
	if (!stream_reader->stopped)
		stream_reader->stopped = lines_feed(&stream_reader->lines, data, len);
	return stream_reader->stopped;
}

int stream_read_fd(struct stream_reader *stream_reader, int fd, uint64_t max)
{
	const struct stream_reader_events *events = &stream_reader->events;
	AUTO_FREE char *piece = malloc(READ_BYTES);

	if (!piece)
		return -ENOMEM;
	while (max > 0) {
		ssize_t len = read(fd, piece, max < READ_BYTES ? max : READ_BYTES);

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		int r = feed_reader(stream_reader, piece, (size_t)len);
		if (r != 0)
			return r;
		if (events->progress)
			events->progress(events->ctx, (uint64_t)len);
		max -= (uint64_t)len;
	}
	return 0;
}

int stream_reader_finish(struct stream_reader *stream_reader, struct stream_reader_report *ret)
{
	struct stream_reader_report *report = &stream_reader->report;

	if (!stream_reader->stopped)
		stream_reader->stopped = lines_finish(&stream_reader->lines);
	report->format = stream_reader->lines.format;
	report->ours = stream_reader->lines.prefix_seen;
	report->lines = stream_reader->lines.line;
	report->adler = stream_reader->stream.adler;
	report->foreign_lines = stream_reader->lines.foreign_lines;
	report->columns = stream_reader->stream.columns.count;
	report->complete = report->streams && stream_reader->streams_closed == report->streams;
	report->checksum_ok = report->complete && stream_reader->streams_agreeing == report->streams;
	*ret = *report;
	return stream_reader->stopped;
}

void stream_reader_free(struct stream_reader *stream_reader)
{
	free(stream_reader);
}

/*
 * Behind the last newline, before which the number of rows may already be; 0: there is none within
 * the length of a line. -errno.
 */
static off_t find_end(int fd, char *piece, bool *ret_counted)
{
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > STREAM_LINE_MAX ? size - STREAM_LINE_MAX : 0;
	ssize_t len = size < 0 ? -1 : pread(fd, piece, STREAM_LINE_MAX, from);
	const char *newline;

	if (len < 0)
		return -errno;
	newline = memrchr(piece, '\n', (size_t)len);

	if (!newline)
		return 0;
	*ret_counted = memmem(piece, (size_t)(newline - piece), STREAM_PREFIX "END\t", strlen(STREAM_PREFIX "END\t"));

	return from + (newline - piece) + 1;
}

/* Reads the file up to end. 0; -errno; -EIO: it is shorter by now. */
static int read_up_to(struct stream_reader *stream_reader, int fd, off_t end)
{
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;

	int r = stream_read_fd(stream_reader, fd, (uint64_t)end);
	return r == 0 && lseek(fd, 0, SEEK_CUR) != end ? -EIO : r;
}

static bool is_closable(const struct stream_reader_report *report)
{
	return report->ours && report->streams == 1 && !report->complete && report->format == STREAM_SPIKEWATCH &&
	       report->damaged_lines == 0 && report->duplicate_lines == 0 && report->foreign_lines == 0 &&
	       report->rows_lost == 0;
}

static void release_lines(struct stream_lines *lines)
{
	stream_lines_release(lines);
}

static int append_end(int fd, const struct stream_reader_report *report, bool counted)
{
	AUTO(release_lines) struct stream_lines lines = { 0 };
	char text[40];
	int len = snprintf(text, sizeof(text), "END\t%ju", (uintmax_t)report->rows);
	int r = stream_lines_init(&lines, sink_fd(&fd), STREAM_PREFIX, STREAM_LINE_MAX, sizeof(text));

	if (r < 0)
		return r;
	lines.adler = report->adler;
	r = counted ? 0 : stream_lines_put(&lines, text, (size_t)len);

	return r < 0 ? r : stream_lines_close(&lines);
}

int stream_repair(int fd)
{
	static const struct stream_reader_events nothing;
	AUTO(stream_reader_freep) struct stream_reader *stream_reader = NULL;
	AUTO_FREE char *piece = malloc(STREAM_LINE_MAX);
	struct stream_reader_report report;
	bool counted = false;
	off_t end = piece ? find_end(fd, piece, &counted) : -ENOMEM;
	int r = end < 0 ? (int)end : stream_reader_new(&nothing, &stream_reader);

	if (r == 0)
		r = read_up_to(stream_reader, fd, end);
	if (r == 0)
		r = stream_reader_finish(stream_reader, &report);
	if (r < 0)
		return r;
	if (!is_closable(&report))
		return STREAM_REPAIR_LEFT;
	if (ftruncate(fd, end) < 0 || lseek(fd, end, SEEK_SET) < 0)
		return -errno;

	return append_end(fd, &report, counted);
}
