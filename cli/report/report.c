/*
 * report.c: spikewatch report: one page that holds the incident, draws it, and gives its files
 * back.
 */
#include "cli/report/report.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/series.h"
#include "cli/incident/story.h"
#include "cli/incident/view.h"
#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/stream/stream.h"

#include "cli/report/page.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORT_FILE_FORMAT 1

/* No line has more points: what lies closer together is one, with its highest value. */
#define REPORT_DATA_POINTS_MAX 6000

/*
 * report_file.c: the page is searched for lines that begin in one particular way. A mark is read
 * strictly, in the one form in which it is written: anything else is damage. The page may have been
 * through programs that end lines with CR LF.
 *
 * Rejected: a parser of HTML. The page is ours, and what has been changed by an editor of HTML is
 * not bit for bit any more.
 */

#define MARK "<script type=\"application/octet-stream;base64\" data-spikewatch=\""
#define CLOSE "</script>"
#define HEAD_MAX 512 /* no mark is longer */

_Static_assert(sizeof(MARK) + MANIFEST_NAME_MAX + REPORT_FILE_INCIDENT_MAX + 100 < HEAD_MAX, "room for a mark");

/* ---- into a page ---- */

__attribute__((format(printf, 2, 3))) static int file_put_line(const struct sink *sink, const char *format, ...)
{
	char line[HEAD_MAX];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return sink_write(sink, line, (size_t)len);
}

/* The letters of manifest_name_ok, but longer. */
static bool incident_ok(const char *name, size_t len)
{
	if (len == 0 || len > REPORT_FILE_INCIDENT_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' &&
		    c != '.' && c != '-')
			return false;
	}
	return true;
}

int report_file_begin(const struct sink *sink, const char *incident)
{
	return file_put_line(sink, "\n" MARK "begin\" data-format=\"%d\" data-incident=\"%s\">" CLOSE "\n",
			     REPORT_FILE_FORMAT, incident_ok(incident, strlen(incident)) ? incident : "");
}

int report_file_put(const struct sink *sink, const char *name, const void *data, size_t len)
{
	int rc;

	if (!manifest_name_ok(name))
		return -EINVAL;
	rc = file_put_line(sink, MARK "file\" data-name=\"%s\" data-bytes=\"%zu\" data-crc32=\"%08x\">\n", name, len,
			   checksum_crc32(CHECKSUM_CRC32_EMPTY, data, len));
	if (rc < 0)
		return rc;
	rc = base64_write(sink, data, len);
	return rc < 0 ? rc : file_put_line(sink, CLOSE "\n");
}

int report_file_end(const struct sink *sink, uint64_t count)
{
	return file_put_line(sink, MARK "end\" data-files=\"%ju\">" CLOSE "\n", (uintmax_t)count);
}

/* ---- out of it ---- */

/* A piece of text that is being read. */
struct span {
	const char *at, *end;
};

/* Moves behind literal, if it stands there. */
static bool skip(struct span *span, const char *literal)
{
	size_t len = strlen(literal);

	if ((size_t)(span->end - span->at) < len || memcmp(span->at, literal, len) != 0)
		return false;
	span->at += len;
	return true;
}

static bool take_u64(struct span *span, uint64_t *ret)
{
	const char *end = text_parse_u64(span->at, span->end, ret);

	if (!end)
		return false;
	span->at = end;
	return true;
}

static bool take_crc32(struct span *span, uint32_t *ret)
{
	const char *end = span->end - span->at > 8 ? span->at + 8 : span->end;
	uint64_t value;

	if (text_parse_hex(span->at, end, &value) != end || end - span->at != 8)
		return false;
	span->at = end;
	*ret = (uint32_t)value;
	return true;
}

/* Up to the quote, which is left. */
static size_t until_quote(const struct span *span)
{
	const char *quote = memchr(span->at, '"', (size_t)(span->end - span->at));

	return quote ? (size_t)(quote - span->at) : 0;
}

static bool take_name(struct span *span, char ret[static MANIFEST_NAME_MAX + 1])
{
	size_t len = until_quote(span);

	if (len == 0 || len > MANIFEST_NAME_MAX || memchr(span->at, '\0', len))
		return false;
	memcpy(ret, span->at, len);
	ret[len] = '\0';
	span->at += len;
	return manifest_name_ok(ret);
}

/*
 * Searches for a mark at the beginning of a line, and moves behind it. False: there is none any
 * more.
 */
static bool find_mark(struct report_file *files)
{
	static const size_t len = sizeof(MARK) - 1;

	while (files->at < files->end) {
		const char *newline =
			files->at[0] == '\n' ? files->at : memchr(files->at, '\n', (size_t)(files->end - files->at));
		const char *line = newline ? newline + 1 : files->end;

		files->at = line;
		if ((size_t)(files->end - line) >= len && memcmp(line, MARK, len) == 0) {
			files->at = line + len;
			return true;
		}
	}
	return false;
}

static bool skip_newline(struct span *span)
{
	skip(span, "\r");
	return skip(span, "\n");
}

/* What stands behind a mark's first word; the rest of the text. */
static struct span rate_limit(const struct report_file *files)
{
	return (struct span){ files->at, files->end };
}

int report_file_start(struct report_file *files, const char *text, size_t len)
{
	struct span span;
	uint64_t format;
	size_t name;

	*files = (struct report_file){ .at = text, .end = text + len };
	if (!find_mark(files))
		return -ENOENT;
	span = rate_limit(files);
	if (!skip(&span, "begin\" data-format=\"") || !take_u64(&span, &format))
		return -ENOENT;
	if (format != REPORT_FILE_FORMAT)
		return -EPROTONOSUPPORT;
	if (!skip(&span, "\" data-incident=\""))
		return 0;
	name = until_quote(&span);
	if (incident_ok(span.at, name)) {
		memcpy(files->incident, span.at, name);
		files->incident[name] = '\0';
	}
	return 0;
}

/* The end mark. */
static int read_end(const struct report_file *files, struct span span)
{
	uint64_t count;

	if (!take_u64(&span, &count) || !skip(&span, "\">" CLOSE) || count != files->count)
		return -ENODATA;
	return REPORT_FILE_END;
}

/* Nothing of base64 has a "<". */
static int read_file(struct report_file *files, struct span span, struct report_file_entry *ret)
{
	struct report_file_entry entry;
	const char *close;

	files->count++;
	if (!take_name(&span, entry.name) || !skip(&span, "\" data-bytes=\"") || !take_u64(&span, &entry.size_bytes) ||
	    !skip(&span, "\" data-crc32=\"") || !take_crc32(&span, &entry.crc32) || !skip(&span, "\">") ||
	    !skip_newline(&span))
		return -EBADMSG;
	close = memchr(span.at, '<', (size_t)(span.end - span.at));
	if (!close)
		return -EBADMSG;
	entry.text = span.at;
	entry.text_len = (size_t)(close - span.at);
	span.at = close;
	if (!skip(&span, CLOSE))
		return -EBADMSG;
	/* A newline before the next mark is where it is searched from. */
	files->at = span.at;
	*ret = entry;
	return 0;
}

int report_file_next(struct report_file *files, struct report_file_entry *ret)
{
	struct span span;

	if (!find_mark(files))
		return -ENODATA;
	span = rate_limit(files);
	if (skip(&span, "end\" data-files=\""))
		return read_end(files, span);
	if (skip(&span, "file\" data-name=\""))
		return read_file(files, span, ret);
	files->count++;
	return -EBADMSG;
}

int report_file_get(const struct report_file_entry *entry, struct buffer *buffer)
{
	size_t before = buffer->len;
	int rc;

	/* The letters say how much memory is asked for, not the number. */
	if (entry->size_bytes > entry->text_len)
		return -EBADMSG;
	rc = base64_read(entry->text, entry->text_len, buffer);
	if (rc < 0)
		return rc;
	if (buffer->len - before != entry->size_bytes ||
	    checksum_crc32(CHECKSUM_CRC32_EMPTY, buffer->data ? buffer->data + before : "", buffer->len - before) !=
		    entry->crc32)
		return -EBADMSG;
	return 0;
}

/*
 * base64.c: three bytes are four letters. Both directions work on pieces of fixed size, so that
 * memory is asked for once per piece and not once per byte.
 */

#define LINE_BYTES (BASE64_LINE / 4 * 3)
#define PIECE 3072

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Up to three bytes. */
static void put_group(char out[static 4], const unsigned char *data, size_t len)
{
	uint32_t bits = (uint32_t)data[0] << 16 | (len > 1 ? (uint32_t)data[1] << 8 : 0) | (len > 2 ? data[2] : 0u);

	out[0] = letters[bits >> 18];
	out[1] = letters[bits >> 12 & 63];
	out[2] = len > 1 ? letters[bits >> 6 & 63] : '=';
	out[3] = len > 2 ? letters[bits & 63] : '=';
}

int base64_write(const struct sink *sink, const void *data, size_t len)
{
	const unsigned char *at = data;

	while (len > 0) {
		char line[BASE64_LINE + 1];
		size_t take = len < LINE_BYTES ? len : LINE_BYTES, used = 0;
		int rc;

		for (size_t i = 0; i < take; i += 3, used += 4)
			put_group(line + used, at + i, take - i);
		line[used++] = '\n';
		rc = sink_write(sink, line, used);
		if (rc < 0)
			return rc;
		at += take;
		len -= take;
	}
	return 0;
}

/* 0 to 63; -1: no letter. */
static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_space(char c)
{
	return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* What was read of a group. */
struct source_group {
	uint32_t bits;
	unsigned letters, padding;
};

static bool take_letter(struct source_group *group, char c)
{
	int value = value_of(c);

	if (c == '=') {
		if (group->letters < 2 || group->letters + group->padding >= 4)
			return false;
		group->padding++;
		return true;
	}
	if (value < 0 || group->padding > 0)
		return false;
	group->bits = group->bits << 6 | (uint32_t)value;
	group->letters++;
	return true;
}

/* The bytes of a whole group: one to three; 0: it does not end as it should. */
static size_t end_group(const struct source_group *group, unsigned char out[static 3])
{
	uint32_t bits = group->bits << 6 * group->padding;

	out[0] = (unsigned char)(bits >> 16);
	out[1] = (unsigned char)(bits >> 8);
	out[2] = (unsigned char)bits;
	if ((group->padding > 0 && out[2]) || (group->padding > 1 && out[1]))
		return 0;
	return 3 - group->padding;
}

int base64_read(const char *text, size_t len, struct buffer *buffer)
{
	struct source_group group = { .letters = 0 };
	unsigned char piece[PIECE];
	size_t used = 0;
	bool ended = false;
	int rc;

	for (size_t i = 0; i < len; i++) {
		size_t count;

		if (is_space(text[i]))
			continue;
		if (ended || !take_letter(&group, text[i]))
			return -EBADMSG;
		if (group.letters + group.padding < 4)
			continue;
		count = end_group(&group, piece + used);
		if (count == 0)
			return -EBADMSG;
		ended = group.padding > 0;
		group = (struct source_group){ .letters = 0 };
		used += count;
		if (used > sizeof(piece) - 3) {
			rc = buffer_append(buffer, piece, used);
			if (rc < 0)
				return rc;
			used = 0;
		}
	}
	if (group.letters > 0)
		return -EBADMSG;
	return used > 0 ? buffer_append(buffer, piece, used) : 0;
}

/*
 * html_text.c: a character at a time. A backslash stays as it is: what was escaped before would
 * else be escaped again.
 */

/* What stands for a character that must not stand there itself; 0: it may. */
static size_t replace(uint32_t code, char *buf, size_t cap)
{
	if (code < 0x20 || code == 0x7f)
		return (size_t)snprintf(buf, cap, "\\x%02x", (unsigned)code);
	if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
		return (size_t)snprintf(buf, cap, "&#%u;", (unsigned)code);
	if (text_is_hidden(code))
		return (size_t)snprintf(buf, cap, "\\u{%x}", (unsigned)code);
	return 0;
}

int html_text_write(const struct sink *sink, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		char buf[16];
		uint32_t code = 0;
		size_t taken = text_decode(at, (size_t)(end - at), &code), used;
		int rc;

		if (taken == 0)
			used = (size_t)snprintf(buf, sizeof(buf), "\\x%02x", (unsigned)(unsigned char)*at);
		else
			used = replace(code, buf, sizeof(buf));
		taken = taken ? taken : 1;
		rc = used ? sink_write(sink, buf, used) : sink_write(sink, at, taken);
		if (rc < 0)
			return rc;
		at += taken;
	}
	return 0;
}

static int write_json(void *ctx, const void *data, size_t len)
{
	const struct sink *inner = ctx;
	const char *at = data, *end = at + len;

	while (at < end) {
		const char *tag = memchr(at, '<', (size_t)(end - at));
		size_t plain = (size_t)((tag ? tag : end) - at);
		int rc = plain ? sink_write(inner, at, plain) : 0;

		if (rc == 0 && tag)
			rc = sink_write(inner, "\\u003c", 6);
		if (rc < 0)
			return rc;
		at += plain + (tag ? 1 : 0);
	}
	return 0;
}

struct sink html_text_json(const struct sink *inner)
{
	return (struct sink){ .write = write_json, .ctx = (void *)(uintptr_t)inner };
}

/*
 * report_data.c: lines over one grid of time, so that a time is said once and zooming is the same
 * in all pictures.
 *
 * Values are rounded to what can be seen: it halves the page.
 */

#define POINTS_MIN 64
#define BUSIEST_TARGETS_POINTS_MAX 1500 /* of each of several targets */

/* What is being written: the grid, and room for one picture. */
struct drawing {
	struct json_writer *json;
	const struct view *view;
	struct series_columns columns;
	double *values; /* peak and mean */
};

static void free_drawing(struct drawing *drawing)
{
	free(drawing->values);
}

static int make_columns(struct drawing *drawing, const struct series *series, size_t most)
{
	const struct incident *incident = &drawing->view->incident;
	uint64_t grain = series->grain_ns, span;
	size_t count;

	pictures_range(incident, series, &drawing->columns);
	if (incident->cost.interval_ns > grain)
		grain = incident->cost.interval_ns;
	span = (uint64_t)drawing->columns.to_ns - (uint64_t)drawing->columns.from_ns;
	count = grain ? (size_t)(span / grain < most ? span / grain : most) : POINTS_MIN;
	count = count > POINTS_MIN ? count : POINTS_MIN;
	drawing->values = calloc(count * 2, sizeof(double));
	if (!drawing->values)
		return -ENOMEM;
	drawing->columns.count = count;
	drawing->columns.peak = drawing->values;
	drawing->columns.mean = drawing->values + count;
	return 0;
}

static void data_put_text(struct json_writer *json, const char *key, const char *text)
{
	json_key(json, key);
	json_string(json, text);
}

/* Bytes and other large numbers are whole; percentages have two decimals, cores four. */
static void put_value(struct json_writer *json, double value, double steps)
{
	double scaled = value * steps;

	if (!isfinite(value))
		json_null(json);
	else if (scaled < 0 || scaled > 9e15)
		json_double(json, value);
	else if (steps > 1)
		json_double(json, (double)(int64_t)(scaled + 0.5) / steps);
	else
		json_i64(json, (int64_t)(scaled + 0.5));
}

static void put_values(struct json_writer *json, const double *values, size_t count, const struct picture *picture)
{
	double steps = picture->unit == PLOT_BYTES ? 1 : picture->unit == PLOT_CORES ? 1e4 : 1e2;

	json_member_array(json, "values");
	for (size_t i = 0; i < count; i++)
		put_value(json, values[i] * picture->scale, steps);
	json_end_array(json);
}

/* kind: "area" is what was measured, "line" what a rule makes of it. */
static void put_line(struct drawing *drawing, const char *name, const char *kind, const double *values,
		     const struct picture *picture)
{
	json_begin_object(drawing->json);
	json_member_text(drawing->json, "name", name);
	data_put_text(drawing->json, "kind", kind);
	put_values(drawing->json, values, drawing->columns.count, picture);
	json_end_object(drawing->json);
}

static void begin_picture(struct json_writer *json, const char *id, const struct picture *picture)
{
	static const char *const units[] = {
		[PLOT_PERCENT] = "percent", [PLOT_CORES] = "cores", [PLOT_BYTES] = "bytes", [PLOT_COUNT] = "count"
	};

	json_begin_object(json);
	data_put_text(json, "id", id);
	data_put_text(json, "title", picture->title);
	data_put_text(json, "unit", units[picture->unit]);
	json_member_array(json, "levels");
	for (size_t i = 0; i < picture->levels; i++) {
		json_begin_object(json);
		data_put_text(json, "name", picture->level[i].name);
		json_member_double(json, "value", picture->level[i].value);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_array(json, "lines");
}

static void end_picture(struct json_writer *json)
{
	json_end_array(json);
	json_end_object(json);
}

/* ---- of one target ---- */

static uint64_t step_of(const struct series_columns *columns)
{
	return (uint64_t)(columns->to_ns - columns->from_ns) / columns->count;
}

/*
 * What a rule saw at each moment; where points lie further apart than its window, the most it saw
 * since the last one.
 */
static void window_of_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns)
{
	const struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = window_ns };

	if (step_of(columns) < window_ns)
		series_metric(series, &rule, columns);
}

static void put_cpu(struct drawing *drawing)
{
	const struct incident *incident = &drawing->view->incident;
	const struct series *series = &drawing->view->samples.series;
	struct picture picture;
	char name[128], text[64];

	pictures_cpu(incident, series, &picture);
	series_cpu(series, picture.window_ns, &drawing->columns);
	begin_picture(drawing->json, "cpu", &picture);
	snprintf(name, sizeof(name), "each %s", units_format_duration(text, sizeof(text), step_of(&drawing->columns)));
	put_line(drawing, name, "area", drawing->columns.mean, &picture);
	window_of_cpu(series, picture.window_ns, &drawing->columns);
	snprintf(name, sizeof(name),
		 strncmp(incident->rule.metric, "cpu", 3) == 0 ? "over %s, as the rule sees it" : "over %s",
		 units_format_duration(text, sizeof(text), picture.window_ns));
	put_line(drawing, name, "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_memory(struct drawing *drawing)
{
	struct picture picture;

	pictures_memory(&drawing->view->incident, &picture);
	series_memory(&drawing->view->samples.series, &drawing->columns);
	begin_picture(drawing->json, "memory", &picture);
	put_line(drawing, "memory", "area", drawing->columns.mean, &picture);
	put_line(drawing, "peak, between samples included", "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_metric(struct drawing *drawing)
{
	struct series_rule rule;
	struct picture picture;
	char name[128], text[64];

	if (!pictures_metric(&drawing->view->incident, &picture, &rule))
		return;
	series_metric(&drawing->view->samples.series, &rule, &drawing->columns);
	begin_picture(drawing->json, "metric", &picture);
	snprintf(name, sizeof(name), "over %s, as the rule sees it",
		 units_format_duration(text, sizeof(text), rule.window_ns));
	put_line(drawing, name, "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_time(struct drawing *drawing)
{
	json_member_object(drawing->json, "time");
	json_member_i64(drawing->json, "from_ns", drawing->columns.from_ns);
	json_member_i64(drawing->json, "to_ns", drawing->columns.to_ns);
	json_member_i64(drawing->json, "points", (int64_t)drawing->columns.count);
	json_end_object(drawing->json);
}

static int put_one(struct drawing *drawing)
{
	int rc = make_columns(drawing, &drawing->view->samples.series, REPORT_DATA_POINTS_MAX);

	if (rc < 0)
		return rc;
	put_time(drawing);
	json_member_array(drawing->json, "plots");
	put_cpu(drawing);
	put_memory(drawing);
	put_metric(drawing);
	json_end_array(drawing->json);
	return 0;
}

/* ---- of everything ---- */

static void put_crowd(struct drawing *drawing, const struct busiest_targets *busiest_targets, const char *id,
		      const struct picture *picture)
{
	begin_picture(drawing->json, id, picture);
	for (size_t i = 0; i < busiest_targets->count; i++) {
		const struct busiest_targets_member *member = &busiest_targets->member[i];

		if (member->series.count == 0)
			continue;
		drawing->columns.known_to_ns = member->series.points[member->series.count - 1].at_ns;
		if (picture->unit == PLOT_BYTES) {
			series_memory(&member->series, &drawing->columns);
		} else {
			series_cpu(&member->series, picture->window_ns, &drawing->columns);
			window_of_cpu(&member->series, picture->window_ns, &drawing->columns);
		}
		put_line(drawing, member->target->name[0] ? member->target->name : "?", "line", drawing->columns.peak,
			 picture);
	}
	end_picture(drawing->json);
}

static void free_crowd(struct busiest_targets **busiest_targets)
{
	if (*busiest_targets)
		busiest_targets_release(*busiest_targets);
	free(*busiest_targets);
}

static int put_everything(struct drawing *drawing, int incidentfd)
{
	static const struct picture cpu = { .title = "CPU of the busiest targets, cores",
					    .unit = PLOT_CORES,
					    .scale = 1,
					    .window_ns = PEAKS_WINDOW_NS };
	static const struct picture memory = { .title = "Memory of the busiest targets",
					       .unit = PLOT_BYTES,
					       .scale = 1 };
	const struct view *view = drawing->view;
	AUTO(free_crowd) struct busiest_targets *busiest_targets = calloc(1, sizeof(*busiest_targets));
	int rc = busiest_targets
			 ? busiest_targets_load(incidentfd, view->incident.wall, &view->samples.peaks, busiest_targets)
			 : -ENOMEM;

	if (rc == 0)
		rc = make_columns(drawing, &view->samples.series, BUSIEST_TARGETS_POINTS_MAX);
	if (rc < 0)
		return rc;
	put_time(drawing);
	json_member_array(drawing->json, "plots");
	put_crowd(drawing, busiest_targets, "cpu", &cpu);
	put_crowd(drawing, busiest_targets, "memory", &memory);
	json_end_array(drawing->json);
	return 0;
}

/* ---- the rest ---- */

static void put_targets(struct json_writer *json, const struct peaks *peaks)
{
	json_member_array(json, "targets");
	for (size_t i = 0; i < peaks->count && i < 100; i++) {
		const struct peaks_target *target = &peaks->target[i];

		json_begin_object(json);
		json_member_text(json, "name", target->name);
		json_member_double(json, "cpu_cores", target->has_cpu ? target->cpu_cores : NAN);
		json_key(json, "memory_bytes");
		put_value(json, target->has_memory ? (double)target->memory_bytes : NAN, 1);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_i64(json, "targets_total", (int64_t)peaks->count);
}

static void data_put_files(struct json_writer *json, const struct report_data_files *files)
{
	json_member_array(json, "absent");
	for (size_t i = 0; i < files->absent_count; i++) {
		json_begin_object(json);
		json_member_text(json, "name", files->absent[i].name);
		json_member_i64(json, "bytes", (int64_t)files->absent[i].bytes);
		json_member_text(json, "why", files->absent[i].why);
		json_end_object(json);
	}
	json_end_array(json);
}

/* What became of samples.tsv on the way here. */
static void put_samples(struct json_writer *json, const struct incident_load_samples *samples)
{
	const struct stream_reader_report *report = &samples->report;

	json_member_object(json, "samples");
	data_put_text(json, "error",
		      samples->error == 0         ? ""
		      : samples->error == -ENOENT ? "there is no file"
						  : strerror(-samples->error));
	json_member_i64(json, "rows_lost", samples->error ? 0 : (int64_t)report->rows_lost);
	json_member_i64(json, "damaged_lines", samples->error ? 0 : (int64_t)report->damaged_lines);
	json_member_bool(json, "complete", samples->error || report->complete);
	json_member_bool(json, "cut", samples->cut || samples->unlocked_section);
	json_end_object(json);
}

static void put_story(struct json_writer *json, const struct view *view, const char *words)
{
	const struct incident_rule *rule = &view->incident.rule;
	double threshold;
	uint64_t above_ns;

	json_member_bool(json, "damaged", view->glance.damaged);
	json_member_text(json, "why", view->glance.damaged ? view->glance.why : "");
	json_member_text(json, "summary", words);
	json_member_bool(json, "everything", incident_of_everything(&view->incident));
	json_member_double(json, "threshold", story_threshold(rule, &threshold) ? threshold : NAN);
	json_key(json, "above_ns");
	put_value(json, story_above(&view->incident, &view->samples.series, &above_ns) ? (double)above_ns : NAN, 1);
	put_samples(json, &view->samples);
}

static int write_rest(struct drawing *drawing, int incidentfd, const struct report_data_files *files, const char *words)
{
	const struct view *view = drawing->view;
	struct json_writer *json = drawing->json;
	int rc = 0;

	json_begin_object(json);
	put_story(json, view, words);
	put_targets(json, &view->samples.peaks);
	data_put_files(json, files);
	if (view->samples.series.count > 0)
		rc = incident_of_everything(&view->incident) ? put_everything(drawing, incidentfd) : put_one(drawing);
	json_end_object(json);
	return rc;
}

/* The words of show about it, into *ret, for free(3). 0 or -ENOMEM. */
static int report_data_words(const struct view *view, char **ret)
{
	size_t len;
	FILE *file = open_memstream(ret, &len);

	if (!file)
		return -ENOMEM;
	if (view->glance.readable)
		story_tell(&view->incident, &view->samples, file);
	else
		fputs("What happened is not known: incident.json cannot be read.", file);
	return fclose(file) == 0 ? 0 : -ENOMEM;
}

static int make_rest(const struct view *view, int incidentfd, const struct report_data_files *files, struct buffer *ret)
{
	AUTO(free_drawing) struct drawing drawing = { .view = view };
	AUTO_FREE char *words = NULL;
	int rc = report_data_words(view, &words), closed;

	if (rc == 0)
		rc = json_writer_new(sink_buffer(ret), false, &drawing.json);
	if (rc < 0)
		return rc;
	rc = write_rest(&drawing, incidentfd, files, words);
	/*
	 * An object that is not ended cannot be: write_rest ends it also when memory has run out.
	 */
	closed = json_writer_close(drawing.json);
	return rc < 0 ? rc : closed;
}

/* view: loaded from incidentfd. No "<" is written. 0; -ENOMEM; what the sink returned. */
static int report_data_write(const struct view *view, int incidentfd, const struct report_data_files *files,
			     const struct sink *sink)
{
	AUTO(buffer_release) struct buffer incident = { 0 }, rate_limit = { 0 };
	struct sink safe = html_text_json(sink);
	char head[64];
	int rc = incident_json_write(&view->incident, sink_buffer(&incident));

	if (rc == 0)
		rc = make_rest(view, incidentfd, files, &rate_limit);
	if (rc < 0)
		return rc;

	/*
	 * Two documents become one: incident.json as it is, without its newline, as a member of the
	 * other.
	 */
	snprintf(head, sizeof(head), "{\"format\":%d,\"incident\":", REPORT_DATA_FORMAT);
	rc = sink_write(&safe, head, strlen(head));
	if (rc == 0)
		rc = sink_write(&safe, incident.data, incident.len - 1);
	if (rc == 0)
		rc = sink_write(&safe, ",", 1);
	return rc == 0 ? sink_write(&safe, rate_limit.data + 1, rate_limit.len - 1) : rc;
}

/*
 * report_page.c: the only file that knows the bundle of uPlot, d3-flame-graph and the program
 * around them: an array that the build writes.
 */

#define PART(bytes) \
	{ \
		bytes, sizeof(bytes) - 1 \
	}

/* Each array ends with a byte that does not count: none is empty. */
static const struct {
	const unsigned char *data;
	size_t len;
} parts[REPORT_PAGE_PARTS] = {
	[REPORT_PAGE_TITLE] = PART(report_page_0),
	[REPORT_PAGE_STORY] = PART(report_page_1),
	[REPORT_PAGE_DATA] = PART(report_page_2),
	[REPORT_PAGE_END] = PART(report_page_3),
};

bool report_page_built(void)
{
	return parts[REPORT_PAGE_TITLE].len > 0;
}

int report_page_write(enum report_page_part part, const struct sink *sink)
{
	assert(part < REPORT_PAGE_PARTS);
	return sink_write(sink, parts[part].data, parts[part].len);
}

/*
 * report_html.c: files are read one after the other; the data come after them, because they say
 * which of them are not there.
 */

/* The files of an incident. */
struct files {
	int dirfd;
	uint64_t limit_bytes;
	char name[REPORT_DATA_ABSENT_MAX][MANIFEST_NAME_MAX + 1];
	size_t count;
	struct report_data_files said;
};

/*
 * Why it is not in the page. More than there is room for are not said: an incident has no so many
 * files.
 */
static void leave_out(struct files *files, const char *name, uint64_t bytes, const char *why)
{
	struct report_data_files *said = &files->said;
	struct report_data_absent *absent = &said->absent[said->absent_count];

	if (said->absent_count == REPORT_DATA_ABSENT_MAX)
		return;
	incident_text(absent->name, sizeof(absent->name), name);
	incident_text(absent->why, sizeof(absent->why), why);
	absent->bytes = bytes;
	said->absent_count++;
}

static int look_at(void *ctx, const char *name)
{
	struct files *files = ctx;
	struct stat st;

	if (fstatat(files->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		leave_out(files, name, 0, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		leave_out(files, name, 0, "not a plain file");
	else if (!manifest_name_ok(name))
		leave_out(files, name, (uint64_t)st.st_size, "no file of an incident has such a name");
	else if ((uint64_t)st.st_size > files->limit_bytes)
		leave_out(files, name, (uint64_t)st.st_size, "too large for a page");
	else if (files->count == REPORT_DATA_ABSENT_MAX)
		leave_out(files, name, (uint64_t)st.st_size, "there are too many files");
	else
		incident_text(files->name[files->count++], sizeof(files->name[0]), name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* ---- the page ---- */

/* A file that cannot be read is left out: what follows is still worth having. */
static int put_file(struct files *files, const char *name, const struct sink *sink, uint64_t *count)
{
	AUTO(buffer_release) struct buffer bytes = { .max = files->limit_bytes };
	int rc = incident_load_whole(files->dirfd, name, &bytes);

	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		leave_out(files, name, 0, strerror(-rc));
		return 0;
	}
	++*count;
	return report_file_put(sink, name, bytes.data ? bytes.data : "", bytes.len);
}

static int put_files(struct files *files, const char *id, const struct sink *sink)
{
	uint64_t count = 0;
	int rc = report_file_begin(sink, id);

	for (size_t i = 0; rc == 0 && i < files->count; i++)
		rc = put_file(files, files->name[i], sink, &count);
	return rc == 0 ? report_file_end(sink, count) : rc;
}

static int put_text(const struct sink *sink, const char *text)
{
	return sink_write(sink, text, strlen(text));
}

static int put_data(const struct view *view, struct files *files, const struct sink *sink)
{
	int rc = put_files(files, view->incident.id, sink);

	if (rc == 0)
		rc = put_text(sink, "<script type=\"application/json\" id=\"report-data\">\n");
	if (rc == 0)
		rc = report_data_write(view, files->dirfd, &files->said, sink);
	return rc == 0 ? put_text(sink, "</script>\n") : rc;
}

static int put_page(const struct view *view, struct files *files, const struct sink *sink)
{
	const char *id = view->incident.id[0] ? view->incident.id : "an incident without a name";
	AUTO_FREE char *words = NULL;
	int rc = report_data_words(view, &words);

	if (rc == 0)
		rc = report_page_write(REPORT_PAGE_TITLE, sink);
	if (rc == 0)
		rc = html_text_write(sink, id, strlen(id));
	if (rc == 0)
		rc = report_page_write(REPORT_PAGE_STORY, sink);
	if (rc == 0)
		rc = html_text_write(sink, words, strlen(words));
	if (rc == 0)
		rc = report_page_write(REPORT_PAGE_DATA, sink);
	if (rc == 0)
		rc = put_data(view, files, sink);
	return rc == 0 ? report_page_write(REPORT_PAGE_END, sink) : rc;
}

int report_html_write(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
		      struct report_data_files *ret)
{
	AUTO_FREE struct files *files = calloc(1, sizeof(*files));
	int rc;

	if (!files)
		return -ENOMEM;
	files->dirfd = incidentfd;
	files->limit_bytes = file_bytes_max;
	rc = directory_list_each(incidentfd, look_at, files);
	qsort(files->name, files->count, sizeof(files->name[0]), by_name);
	if (rc == 0)
		rc = put_page(view, files, sink);
	*ret = files->said;
	return rc;
}

/* A page with a core dump in it would not be opened by any browser. */
#define FILE_BYTES_MAX ((uint64_t)32 << 20)

/* What is written. */
struct job {
	struct view view;
	int incidentfd;
	uint64_t file_bytes_max;
	struct report_data_files left_out;
};

/* A page that shows damage is kept. */
static int write_page(void *ctx, FILE *file, bool *keep)
{
	struct job *job = ctx;
	struct sink sink = output_sink(file);
	int rc = report_html_write(&job->view, job->incidentfd, job->file_bytes_max, &sink, &job->left_out);

	*keep = rc == 0;
	if (rc == 0)
		return job->view.glance.damaged ? EXIT_TROUBLE : EXIT_OK;
	if (ferror(file)) /* which is said of the file */
		return EXIT_TROUBLE;
	if (rc == -ENOMEM)
		return output_no_memory();
	fprintf(stderr, "spikewatch report: %s\n", strerror(-rc));
	return EXIT_TROUBLE;
}

/* Progress is for people who watch. */
static void say_where(const char *path, const struct report_data_files *left_out)
{
	char size[64];
	struct stat st;

	if (strcmp(path, "-") == 0 || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	fputs("Written: ", stdout);
	output_escaped(stdout, path);
	printf(", %s\n", plot_value(PLOT_BYTES, (double)st.st_size, size, sizeof(size)));
	for (size_t i = 0; i < left_out->absent_count; i++) {
		fputs("Not in it: ", stdout);
		output_escaped(stdout, left_out->absent[i].name);
		printf(": %s\n", left_out->absent[i].why);
	}
}

static int report(int fd, const char *path, uint64_t file_bytes_max)
{
	AUTO_FREE struct job *job = calloc(1, sizeof(*job));
	char named[INCIDENT_NAME_MAX + sizeof("incident.html")];
	struct output_file out;
	int rc;

	if (!job)
		return output_no_memory();
	job->incidentfd = fd;
	job->file_bytes_max = file_bytes_max;
	rc = view_load(fd, &job->view);
	if (rc < 0)
		return output_no_memory();
	if (!path) {
		/* An id that was tampered with must not lead elsewhere. */
		snprintf(named, sizeof(named), "%s.html",
			 incident_name_ok(job->view.incident.id) ? job->view.incident.id : "incident");
		path = named;
	}
	out = (struct output_file){ .command = "spikewatch report", .path = path, .write = write_page, .ctx = job };
	rc = output_file_write(&out);
	incident_load_samples_release(&job->view.samples);
	if (out.kept)
		say_where(path, &job->left_out);
	return rc;
}

static int refuse_unbuilt(void)
{
	fputs("spikewatch report: this spikewatch was built without reports: there was no npm then. Everything else "
	      "works;\n"
	      "spikewatch show says the same in text, and spikewatch export hands out its files.\n",
	      stderr);
	return EXIT_TROUBLE;
}

int report_command(int argc, char **argv)
{
	const char *directory = NULL, *path = NULL;
	uint64_t file_bytes_max = FILE_BYTES_MAX;
	const struct option_spec options[] = {
		{ 'o', "output", OPTION_TEXT, "FILE", "where to; default: ID.html, here; -: standard output", &path },
		{ 0, "max-file", OPTION_SIZE, "SIZE", "leave out larger files; default 32MiB", &file_bytes_max },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
	};
	const struct options_usage usage = {
		.command = "spikewatch report",
		.operands = "ID|PATH",
		.summary = "Writes one incident as a page of HTML that opens anywhere, offline.",
		.description =
			INCIDENT_PICK_HELP "\nThe page holds the incident's files; spikewatch export restores them.",
		.example = "spikewatch report last -o ticket-4711.html",
		.exits = "0 written, 1 not found, damaged (but written), or built without npm, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (!report_page_built())
		return refuse_unbuilt();
	rc = incident_pick(usage.command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENT_PICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return report(fd, path, file_bytes_max);
}
