/*
 * salvage_lines.h hands over lines that are good in themselves; here they become a stream again. What is known
 * of the current stream is one struct, zeroed when the next stream begins:
 *
 *     nothing ──first line──▶ open ──ADLER32──▶ closed ──line of another stream──▶ open …
 *
 * Another stream shows by its START_TIME, which FORMAT says too, so that either may be lost. Where both were
 * lost before, the number of its next row in FORMAT tells: numbers do not step back within a stream. In
 * gVisor's format, which has no such numbers and no repeated headers, a description after the column header
 * begins another stream.
 */
#include "salvage.h"

#include "checksum.h"
#include "salvage_columns.h"
#include "salvage_lines.h"
#include "salvage_rows.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 1

static const char other_version[] = "it is in another version of the format";

enum stream_phase { STREAM_NOTHING, STREAM_OPEN, STREAM_CLOSED };

struct stream_state {
	enum stream_phase phase;
	bool unreadable; /* of another version */
	bool start_known, has_row;
	wall_t start;
	uint32_t adler; /* of all lines so far */
	struct salvage_rows rows;
	struct salvage_row last_row;
	struct salvage_columns columns;
};

struct salvage {
	struct salvage_events events;
	struct salvage_report report;
	int stopped; /* what an event returned */
	uint64_t streams_closed, streams_agreeing;
	struct stream_state stream;
	struct salvage_lines lines;
	size_t text_len; /* of the line before, unless it was a row */
	char text[STREAM_LINE_MAX + 1];
};

static bool is_gvisor(const struct salvage *salvage)
{
	return salvage->lines.format == STREAM_GVISOR;
}

/* ---- what is wrong ---- */

static int tell_damage(struct salvage *salvage, uint64_t rows_lost, const char *why)
{
	const struct salvage_events *events = &salvage->events;

	return events->damage ? events->damage(events->ctx, salvage->lines.line, rows_lost, why) : 0;
}

static int damaged(void *ctx, const char *why)
{
	struct salvage *salvage = ctx;

	salvage->report.damaged_lines++;
	return tell_damage(salvage, 0, why);
}

static int duplicate(struct salvage *salvage)
{
	salvage->report.duplicate_lines++;
	return 0;
}

/* ---- streams ---- */

static void begin_stream(struct salvage *salvage)
{
	salvage->stream = (struct stream_state){ .phase = STREAM_OPEN, .adler = CHECKSUM_ADLER32_EMPTY };
	salvage->report.streams++;
	salvage->report.first_time_ns = 0;
	salvage->report.last_time_ns = 0;
}

/* The overall checksum goes on over the line, its checksum and its newline (which may have become something else). */
static void add_to_checksum(struct salvage *salvage, const struct salvage_line *line)
{
	struct stream_state *stream = &salvage->stream;

	stream->adler = checksum_adler32_combine(stream->adler, line->adler, line->len);
	stream->adler = checksum_adler32(stream->adler, line->content + line->len, line->framed_len - line->len);
	stream->adler = checksum_adler32(stream->adler, "\n", 1);
}

static int learn_start(struct salvage *salvage, wall_t start)
{
	struct stream_state *stream = &salvage->stream;

	if (stream->start_known)
		return 0;
	stream->start_known = true;
	stream->start = start;
	return salvage->events.start_time ? salvage->events.start_time(salvage->events.ctx, start) : 0;
}

static int take_closing(struct salvage *salvage, const struct salvage_line *line)
{
	struct stream_state *stream = &salvage->stream;

	if (stream->phase == STREAM_CLOSED)
		return duplicate(salvage);
	if (stream->phase == STREAM_NOTHING)
		begin_stream(salvage);

	bool agrees = line->adler == stream->adler;
	if (!agrees && !line->ended)
		return damaged(salvage, "it is cut short");
	stream->phase = STREAM_CLOSED;
	salvage->streams_closed++;
	salvage->streams_agreeing += agrees;
	return agrees ? 0
		      : tell_damage(salvage, 0, "the overall checksum differs: not every line was recovered in order");
}

/* ---- columns ---- */

static int tell_columns(struct salvage *salvage)
{
	const struct salvage_columns *columns = &salvage->stream.columns;
	const struct salvage_events *events = &salvage->events;
	int r = 0;

	for (size_t i = 0; !r && events->column && i < STREAM_COLUMNS_MAX; i++)
		if (columns->news >> i & 1)
			r = events->column(events->ctx, i, columns->names[i], columns->json[i]);
	return r;
}

static int take_meta(struct salvage *salvage, const char *text)
{
	if (!salvage_columns_describe(&salvage->stream.columns, salvage->lines.format, text))
		return damaged(salvage, "it describes no column");
	return tell_columns(salvage);
}

static int take_columns(struct salvage *salvage, const char *text)
{
	if (!salvage_columns_name(&salvage->stream.columns, salvage->lines.format, text))
		return damaged(salvage, "it names no columns");
	return tell_columns(salvage);
}

/* ---- rows ---- */

/* Numbers tell copies apart; without them, the same values at the same nanosecond. */
static bool is_copy(const struct salvage *salvage, const struct salvage_row *row)
{
	const struct stream_state *stream = &salvage->stream;
	const struct salvage_row *last = &stream->last_row;

	if (row->seq)
		return salvage_rows_is_copy(&stream->rows, row->seq);
	return stream->has_row && row->time_ns == last->time_ns &&
	       memcmp(row->values, last->values, sizeof(row->values)) == 0;
}

static int tell_lost(struct salvage *salvage, uint64_t lost)
{
	uint64_t *sum = &salvage->report.rows_lost;

	if (!lost)
		return 0;
	if (__builtin_add_overflow(*sum, lost, sum))
		*sum = UINT64_MAX;
	return tell_damage(salvage, lost, "rows are missing before it");
}

/* Not a copy. */
static int account_row(struct salvage *salvage, uint64_t seq)
{
	struct salvage_rows *rows = &salvage->stream.rows;
	bool late = seq <= rows->highest;
	uint64_t lost = late ? 0 : salvage_rows_advance(rows, seq) - 1;

	salvage_rows_mark(rows, seq);
	salvage->report.late_rows += late;
	salvage->report.rows_lost -= late;
	return tell_lost(salvage, lost);
}

static int hand_out_row(struct salvage *salvage, const struct salvage_row *row)
{
	struct salvage_report *report = &salvage->report;
	struct stream_state *stream = &salvage->stream;

	if (!stream->has_row || row->time_ns < report->first_time_ns)
		report->first_time_ns = row->time_ns;
	if (!stream->has_row || row->time_ns > report->last_time_ns)
		report->last_time_ns = row->time_ns;
	stream->has_row = true;
	stream->last_row = *row;
	report->rows++;
	if (!salvage->events.row)
		return 0;
	return salvage->events.row(salvage->events.ctx, row->seq, row->time_ns, row->target, row->values, row->mask);
}

static int take_row(struct salvage *salvage, const struct salvage_line *line)
{
	struct stream_state *stream = &salvage->stream;
	struct salvage_row row;

	salvage->text_len = 0;
	if (!salvage_rows_parse(salvage->lines.format, line->content, line->len, &row))
		return damaged(salvage, "it is no row");
	if (is_copy(salvage, &row))
		return duplicate(salvage);
	if (stream->phase == STREAM_NOTHING ||
	    (stream->phase == STREAM_CLOSED && (!row.seq || row.seq > stream->rows.highest)))
		begin_stream(salvage);
	add_to_checksum(salvage, line);

	if (stream->unreadable)
		return damaged(salvage, other_version);
	if (!salvage_columns_fit(&stream->columns, salvage->lines.format, row.columns))
		return damaged(salvage, "it does not have the columns of the stream");
	if (!row.seq)
		row.seq = stream->rows.highest + 1;
	int r = tell_columns(salvage);
	if (!r)
		r = account_row(salvage, row.seq);
	return r ? r : hand_out_row(salvage, &row);
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
static int take_format(struct salvage *salvage, const char *json)
{
	struct stream_state *stream = &salvage->stream;
	uint64_t version, start, columns;
	int r = json_number(json, "\"start_ns\":", &start) ? learn_start(salvage, (wall_t){ start }) : 0;

	stream->unreadable = !json_number(json, "\"version\":", &version) || version != FORMAT_VERSION;
	if (stream->unreadable)
		return r ? r : damaged(salvage, other_version);
	if (!stream->columns.count && json_number(json, "\"columns\":", &columns) && columns <= STREAM_COLUMNS_MAX)
		stream->columns.count = columns;
	return r;
}

static int take_start_time(struct salvage *salvage, const char *text)
{
	uint64_t start;

	return parse_number(text, &start) ? learn_start(salvage, (wall_t){ start }) : damaged(salvage, "it is no time");
}

static int take_target(struct salvage *salvage, const char *text)
{
	const char *end = text + strlen(text), *p;
	uint64_t id;

	p = text_parse_u64(text, end, &id);
	if (!p || *p != '\t' || !id || id > UINT32_MAX)
		return damaged(salvage, "it declares no target");
	if (!salvage->events.target)
		return 0;
	return salvage->events.target(salvage->events.ctx, (uint32_t)id, p + 1, (size_t)(end - p - 1));
}

static int take_stats(struct salvage *salvage, const char *json)
{
	return salvage->events.stats ? salvage->events.stats(salvage->events.ctx, json, strlen(json)) : 0;
}

static int take_end(struct salvage *salvage, const char *text)
{
	uint64_t rows;

	if (!parse_number(text, &rows) || rows < salvage->stream.rows.highest)
		return damaged(salvage, "it is no number of rows");
	return tell_lost(salvage, salvage_rows_advance(&salvage->stream.rows, rows));
}

static int take_note(struct salvage *salvage, const char *text)
{
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	const char *json = text + len + (text[len] == '\t');
	char kind[STREAM_KIND_MAX + 1];

	if (!len || len > STREAM_KIND_MAX || (text[len] && text[len] != '\t') || is_gvisor(salvage))
		return damaged(salvage, "it is of no known kind");
	memcpy(kind, text, len);
	kind[len] = '\0';
	return salvage->events.note ? salvage->events.note(salvage->events.ctx, kind, json, strlen(json)) : 0;
}

/* once: two of them in a row are copies. */
struct kind {
	const char *name;
	int (*take)(struct salvage *salvage, const char *rest);
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

static bool begins_stream(const struct salvage *salvage, const struct kind *kind, const char *rest)
{
	const struct stream_state *stream = &salvage->stream;
	uint64_t start, next_row = UINT64_MAX;

	if (stream->phase == STREAM_NOTHING)
		return true;
	if (is_gvisor(salvage) &&
	    (stream->phase == STREAM_CLOSED || (kind && kind->take == take_meta && stream->columns.named)))
		return true;
	if (kind && kind->take == take_format) {
		if (!json_number(rest, "\"start_ns\":", &start))
			return false;
		json_number(rest, "\"next_row\":", &next_row);
	} else if (!kind || kind->take != take_start_time || !parse_number(rest, &start)) {
		return false;
	}
	if (stream->start_known)
		return start != stream->start.ns;
	return stream->phase == STREAM_CLOSED || next_row <= stream->rows.highest;
}

static int take_text(struct salvage *salvage, const struct salvage_line *line)
{
	char *text = salvage->text;

	if (memchr(line->content, '\0', line->len))
		return damaged(salvage, "it holds a NUL");
	bool copy = line->len == salvage->text_len && memcmp(text, line->content, line->len) == 0;
	memcpy(text, line->content, line->len);
	text[line->len] = '\0';
	salvage->text_len = line->len;

	const struct kind *kind = find_kind(text);
	if (copy && kind && kind->once)
		return duplicate(salvage);
	const char *rest = kind ? text + strlen(kind->name) + 1 : text;
	if (begins_stream(salvage, kind, rest))
		begin_stream(salvage);
	if (salvage->stream.phase == STREAM_CLOSED)
		return duplicate(salvage);
	add_to_checksum(salvage, line);

	if (salvage->stream.unreadable && !(kind && kind->take == take_format))
		return damaged(salvage, other_version);
	return kind ? kind->take(salvage, rest) : take_note(salvage, text);
}

static int take_line(void *ctx, const struct salvage_line *line)
{
	struct salvage *salvage = ctx;

	if (line->closing)
		return take_closing(salvage, line);
	if (line->len && *line->content >= '0' && *line->content <= '9')
		return take_row(salvage, line);
	return take_text(salvage, line);
}

/* ---- life ---- */

bool salvage_whole(const struct salvage_report *report)
{
	return report->ours && report->complete && report->checksum_ok && !report->damaged_lines && !report->rows_lost;
}

int salvage_new(const struct salvage_events *events, struct salvage **ret)
{
	struct salvage *salvage = calloc(1, sizeof(*salvage));

	if (!salvage)
		return -ENOMEM;
	salvage->events = *events;
	salvage_lines_init(&salvage->lines, &(struct salvage_lines_events){ take_line, damaged, salvage });
	*ret = salvage;
	return 0;
}

int salvage_feed(struct salvage *salvage, const char *data, size_t len)
{
	if (!salvage->stopped)
		salvage->stopped = salvage_lines_feed(&salvage->lines, data, len);
	return salvage->stopped;
}

int salvage_finish(struct salvage *salvage, struct salvage_report *ret)
{
	struct salvage_report *report = &salvage->report;

	if (!salvage->stopped)
		salvage->stopped = salvage_lines_finish(&salvage->lines);
	report->format = salvage->lines.format;
	report->ours = salvage->lines.prefix_seen;
	report->lines = salvage->lines.line;
	report->adler = salvage->stream.adler;
	report->foreign_lines = salvage->lines.foreign_lines;
	report->columns = salvage->stream.columns.count;
	report->complete = report->streams && salvage->streams_closed == report->streams;
	report->checksum_ok = report->complete && salvage->streams_agreeing == report->streams;
	*ret = *report;
	return salvage->stopped;
}

void salvage_free(struct salvage *salvage)
{
	free(salvage);
}
