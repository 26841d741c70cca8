/*
 * history.c: spikewatch history: what the daemon kept of each minute, as a table of targets with a
 * small picture each, minute by minute of one target, as JSON, or as a page of HTML.
 *
 * The files are read once from the oldest to the newest, a block in memory at a time; what is kept
 * is a summary for each target, so that a month takes no more memory than an hour. Minutes of one
 * target, or those of the first targets of a page up to a limit, are kept in a second pass. Holes
 * are never filled in: a minute that is not there is drawn as such, with the reason as far as the
 * files tell it.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/minutes/minute_file.h"

#include "history_page.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "spikewatch history"
#define SINCE "2h" /* the default */

#define SEGMENT_BYTES_MAX ((size_t)64 << 20)

/* Targets of their own; thousands of short processes in a month are summed beyond it. */
#define SUMMARIES_MAX 20000u

#define COLUMNS_MAX 240u /* of a picture */

/* A gap at the end of the interval that is only the minute which is not over yet, and the one that is being written. */
#define PERIODS_BEHIND 3u

/* ---- what was read ---- */

struct summary {
	struct map_node node; /* by name */
	unsigned kind;
	const char *name, *entry, *comm;
	bool has_cpu, has_memory; /* known in one minute at least */
	uint64_t cpu_ns, memory_bytes, throttled_ns;
	uint32_t peak_milli, targets;
	wall_t peak_at;
	uint64_t minutes, incidents;
	float *peaks;       /* of each column, in cores; below 0: not known there, or no row */
	struct cell *cells; /* of each point, for a page; NULL: they are not kept */
};

/* A target's minute on a page. */
struct cell {
	bool has_row, has_cpu, has_memory;
	uint32_t mean_milli, peak_milli; /* thousandths of a core */
	uint32_t memory_kib, throttled_ms;
};

enum gap_reason { GAP_STOPPED, GAP_UNSAMPLED, GAP_UNWRITTEN, GAP_DAMAGED, GAP_UNKNOWN };

struct gap {
	wall_t from, to;
	enum gap_reason reason;
	uint64_t minutes; /* GAP_UNWRITTEN: so many */
};

struct happening {
	wall_t at; /* the minute */
	const char *id, *target;
};

/* A minute of the one target that is shown. */
struct point {
	wall_t begin;
	uint64_t period_ns, span_ns, sampled_ns;
	bool has_row;
	struct minute_row row;
	uint32_t others; /* targets that are summed in this minute */
};

struct history {
	const char *directory;
	wall_t since, until;
	const char *pattern;  /* of targets; NULL: all */
	const char *only;     /* name of the one whose minutes are kept; NULL: none is */
	struct history *page; /* its summaries get their cells from this pass; NULL: nothing of it */
	size_t columns;
	bool covered[COLUMNS_MAX]; /* columns of which something was recorded */
	struct arena arena;
	struct map map;
	struct summary **summaries;
	size_t summary_count, summary_cap;
	uint64_t left_out; /* rows without a summary */
	struct gap *gaps;
	size_t gap_count, gap_cap;
	struct happening *happenings;
	size_t happening_count, happening_cap;
	bool keeps_points;
	struct point *points;
	size_t point_count, point_cap;
	uint64_t minutes, partly, span_ns, unsampled_ns, period_ns, peak_ns;
	size_t damaged, damaged_bytes;
	bool damage_before, has_last;
	wall_t last_end;
	uint64_t last_number;
	size_t files;
};

static void history_release(struct history *history)
{
	for (size_t i = 0; i < history->summary_count; i++)
		free(history->summaries[i]->cells);
	free(history->summaries);
	map_release(&history->map);
	arena_release(&history->arena);
	free(history->gaps);
	free(history->happenings);
	free(history->points);
	*history = (struct history){ 0 };
}

static bool matches(const struct history *history, const struct minute_row *row)
{
	if (history->only)
		return row->kind != MINUTE_OTHERS && strcmp(history->only, row->name) == 0;
	return !history->pattern || (row->kind != MINUTE_OTHERS && (fnmatch(history->pattern, row->name, 0) == 0 ||
								    fnmatch(history->pattern, row->entry, 0) == 0 ||
								    fnmatch(history->pattern, row->comm, 0) == 0));
}

static struct summary *find_summary(const struct history *history, uint64_t hash, const struct minute_row *row)
{
	for (struct map_node *node = map_first(&history->map, hash); node; node = map_next(node)) {
		struct summary *summary = MAP_ENTRY(node, struct summary, node);

		if (strcmp(summary->name, row->name) == 0 &&
		    (summary->kind == MINUTE_OTHERS) == (row->kind == MINUTE_OTHERS))
			return summary;
	}
	return NULL;
}

static const char *keep(struct history *history, const char *text)
{
	return arena_copy(&history->arena, text, strlen(text));
}

/* NULL: no memory. Beyond SUMMARIES_MAX it is that of the others. */
static struct summary *summary_of(struct history *history, const struct minute_row *row)
{
	static const struct minute_row others = { .kind = MINUTE_OTHERS, .name = "", .entry = "", .comm = "" };
	uint64_t hash = map_hash(row->name, strlen(row->name));
	struct summary *summary = find_summary(history, hash, row);

	if (summary)
		return summary;
	if (history->summary_count >= SUMMARIES_MAX && row->kind != MINUTE_OTHERS) {
		history->left_out++;
		return summary_of(history, &others);
	}
	summary = arena_alloc(&history->arena, sizeof(*summary));
	if (!summary || map_reserve(&history->map, history->map.count + 1) < 0 ||
	    vector_reserve(&history->summaries, &history->summary_cap, history->summary_count + 1,
			   sizeof(*history->summaries)) < 0)
		return NULL;
	summary->kind = row->kind;
	summary->name = keep(history, row->name);
	summary->entry = keep(history, row->entry);
	summary->comm = keep(history, row->comm);
	summary->peaks = arena_alloc(&history->arena, history->columns * sizeof(*summary->peaks));
	if (!summary->name || !summary->entry || !summary->comm || !summary->peaks)
		return NULL;
	for (size_t i = 0; i < history->columns; i++)
		summary->peaks[i] = -1;
	map_insert(&history->map, &summary->node, hash);
	history->summaries[history->summary_count++] = summary;
	return summary;
}

static size_t column_of(const struct history *history, wall_t at)
{
	uint64_t length = history->until.ns - history->since.ns,
		 into = at.ns > history->since.ns ? at.ns - history->since.ns : 0;
	size_t column = (size_t)((double)into / (double)length * (double)history->columns);

	return column < history->columns ? column : history->columns - 1;
}

static int add_row(struct history *history, const struct minute *minute, const struct minute_row *row)
{
	struct summary *summary = summary_of(history, row);
	size_t first = column_of(history, minute->begin);
	size_t last = column_of(history, (wall_t){ minute->begin.ns + minute->period_ns - 1 });
	float peak = (float)row->cpu_peak_milli / 1000;

	if (!summary)
		return -ENOMEM;
	summary->minutes++;
	summary->cpu_ns += row->cpu_ns;
	summary->throttled_ns += row->throttled_ns;
	if (row->memory_bytes > summary->memory_bytes)
		summary->memory_bytes = row->memory_bytes;
	if (row->targets > summary->targets)
		summary->targets = row->targets;
	if (row->has_cpu && (!summary->has_cpu || row->cpu_peak_milli > summary->peak_milli)) {
		summary->peak_milli = row->cpu_peak_milli;
		summary->peak_at = minute->begin;
	}
	summary->has_cpu |= row->has_cpu;
	summary->has_memory |= row->has_memory;
	for (size_t i = first; row->has_cpu && i <= last; i++)
		if (peak > summary->peaks[i])
			summary->peaks[i] = peak;
	return 0;
}

static int add_happening(struct history *history, const struct minute *minute, const struct minute_incident *incident)
{
	static const struct minute_row all = { .name = "", .entry = "", .comm = "" };
	const struct minute_row *row = incident->row < minute->row_count ? &minute->rows[incident->row] : &all;
	struct happening *happening;

	if ((history->pattern || history->only) && (row == &all || !matches(history, row)))
		return 0;
	if (row != &all) {
		struct summary *summary = summary_of(history, row);

		if (!summary)
			return -ENOMEM;
		summary->incidents++;
	}
	if (vector_reserve(&history->happenings, &history->happening_cap, history->happening_count + 1,
			   sizeof(*history->happenings)) < 0)
		return -ENOMEM;
	happening = &history->happenings[history->happening_count++];
	*happening = (struct happening){ minute->begin, keep(history, incident->id), keep(history, row->name) };
	return happening->id && happening->target ? 0 : -ENOMEM;
}

static int add_gap(struct history *history, wall_t from, wall_t to, enum gap_reason reason, uint64_t minutes)
{
	if (vector_reserve(&history->gaps, &history->gap_cap, history->gap_count + 1, sizeof(*history->gaps)) < 0)
		return -ENOMEM;
	history->gaps[history->gap_count++] = (struct gap){ from, to, reason, minutes };
	return 0;
}

/* What lies between the minute before and this one. */
static int add_gap_before(struct history *history, const struct minute *minute)
{
	wall_t from = history->has_last ? history->last_end : history->since;
	enum gap_reason reason = minute->number == 0 ? GAP_STOPPED : history->has_last ? GAP_UNSAMPLED : GAP_UNKNOWN;
	uint64_t missing = 0;

	if (history->has_last && minute->number > history->last_number + 1) {
		missing = minute->number - history->last_number - 1;
		reason = GAP_UNWRITTEN;
	}
	if (history->damage_before)
		reason = GAP_DAMAGED;
	history->damage_before = false;
	if (minute->begin.ns <= from.ns || from.ns < history->since.ns)
		return 0;
	/* The first minute of the interval may have begun before it. */
	if (!history->has_last && minute->begin.ns - from.ns < minute->period_ns)
		return 0;
	return add_gap(history, from, minute->begin, reason, missing);
}

static int add_point(struct history *history, const struct minute *minute)
{
	struct point *point;

	if (vector_reserve(&history->points, &history->point_cap, history->point_count + 1, sizeof(*history->points)) <
	    0)
		return -ENOMEM;
	point = &history->points[history->point_count++];
	*point = (struct point){ .begin = minute->begin,
				 .period_ns = minute->period_ns,
				 .span_ns = minute->span_ns,
				 .sampled_ns = minute->span_ns - minute->unsampled_ns };
	for (size_t i = 0; i < minute->row_count; i++) {
		const struct minute_row *row = &minute->rows[i];

		if (row->kind == MINUTE_OTHERS)
			point->others = row->targets;
		if (!history->only || !matches(history, row))
			continue;
		/* A process that executed another program under the same name. */
		if (point->has_row) {
			point->row.has_cpu |= row->has_cpu;
			point->row.has_memory |= row->has_memory;
			point->row.cpu_ns += row->cpu_ns;
			point->row.throttled_ns += row->throttled_ns;
			if (row->cpu_peak_milli > point->row.cpu_peak_milli)
				point->row.cpu_peak_milli = row->cpu_peak_milli;
			if (row->memory_bytes > point->row.memory_bytes)
				point->row.memory_bytes = row->memory_bytes;
			continue;
		}
		point->has_row = true;
		point->row = *row;
		point->row.name = point->row.entry = point->row.comm = NULL; /* the block's */
	}
	return 0;
}

/* Rows of one name are summed, as in a point. */
static void add_cells(struct history *page, size_t point, const struct minute *minute)
{
	for (size_t i = 0; i < minute->row_count && point < page->point_count; i++) {
		const struct minute_row *row = &minute->rows[i];
		const struct summary *summary = find_summary(page, map_hash(row->name, strlen(row->name)), row);
		struct cell *cell = summary && summary->cells ? &summary->cells[point] : NULL;

		if (!cell)
			continue;
		cell->has_row = true;
		cell->has_cpu |= row->has_cpu;
		cell->has_memory |= row->has_memory;
		if (minute->span_ns)
			cell->mean_milli += (uint32_t)((double)row->cpu_ns * 1000 / (double)minute->span_ns + 0.5);
		if (row->cpu_peak_milli > cell->peak_milli)
			cell->peak_milli = row->cpu_peak_milli;
		if (row->memory_bytes / 1024 > cell->memory_kib)
			cell->memory_kib = (uint32_t)(row->memory_bytes / 1024);
		cell->throttled_ms += (uint32_t)(row->throttled_ns / NS_PER_MS);
	}
}

static int add_minute(struct history *history, struct minute *minute)
{
	size_t first = column_of(history, minute->begin);
	size_t last = column_of(history, (wall_t){ minute->begin.ns + minute->period_ns - 1 });
	int r = add_gap_before(history, minute);

	if (minute->unsampled_ns > minute->span_ns)
		minute->unsampled_ns = minute->span_ns;
	/* Two daemons can have had a part of the same minute. */
	if (!history->has_last || minute->begin.ns + minute->period_ns != history->last_end.ns) {
		history->minutes++;
		history->partly += minute->span_ns - minute->unsampled_ns < minute->period_ns - minute->period_ns / 10;
	}
	history->has_last = true;
	history->last_end.ns = minute->begin.ns + minute->period_ns;
	history->last_number = minute->number;
	history->span_ns += minute->span_ns;
	history->unsampled_ns += minute->unsampled_ns;
	history->period_ns = minute->period_ns;
	history->peak_ns = minute->peak_ns;
	for (size_t i = first; i <= last; i++)
		history->covered[i] = true;
	for (size_t i = 0; r == 0 && i < minute->row_count; i++)
		if (matches(history, &minute->rows[i]))
			r = add_row(history, minute, &minute->rows[i]);
	for (size_t i = 0; r == 0 && i < minute->incident_count; i++)
		r = add_happening(history, minute, &minute->incidents[i]);
	if (history->page)
		add_cells(history->page, history->point_count, minute);
	return r == 0 && history->keeps_points ? add_point(history, minute) : r;
}

static bool is_in(const struct history *history, const struct minute *minute)
{
	return minute->period_ns > 0 && minute->begin.ns + minute->period_ns > history->since.ns &&
	       minute->begin.ns < history->until.ns;
}

/* What a daemon is writing at this moment looks torn: only what other blocks follow is damage. */
static int add_text(struct history *history, const struct buffer *text, bool newest)
{
	struct minute_scan scan = {
		.data = text->data, .len = text->len, .from = history->since, .until = history->until
	};
	struct minute_block block;
	int r;

	while ((r = minute_block_next(&scan, &block)) == 0 || r == MINUTE_DAMAGED) {
		if (r == MINUTE_DAMAGED) {
			history->damage_before = true;
			continue;
		}
		for (size_t i = 0; r == 0 && i < block.count; i++)
			if (is_in(history, &block.minutes[i]))
				r = add_minute(history, &block.minutes[i]);
		minute_block_release(&block);
		if (r < 0)
			return r;
	}
	if (newest && scan.damaged == 1 && scan.whole + scan.damaged_bytes == scan.len)
		return r < 0 ? r : 0;
	history->damaged += scan.damaged;
	history->damaged_bytes += scan.damaged_bytes;
	return r < 0 ? r : 0;
}

/* ---- the files ---- */

#define NAME_BYTES 64

struct listing {
	char (*names)[NAME_BYTES];
	size_t count, cap;
};

static int add_name(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	size_t len = strlen(name);

	if (len >= NAME_BYTES || *name == '.' || len < 9 || strcmp(name + len - 8, ".minutes") != 0)
		return 0;
	if (vector_reserve(&listing->names, &listing->cap, listing->count + 1, sizeof(*listing->names)) < 0)
		return -ENOMEM;
	memcpy(listing->names[listing->count++], name, len + 1);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* 0; -ENOENT: there is no such directory; -errno. A file that is removed meanwhile is none. */
static int read_directory(struct history *history)
{
	AUTO_CLOSE int dirfd = open(history->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct listing listing = { 0 };
	int r = dirfd < 0 ? -errno : directory_list_each(dirfd, add_name, &listing);

	if (listing.count > 0)
		qsort(listing.names, listing.count, sizeof(*listing.names), compare_names);
	for (size_t i = 0; r == 0 && i < listing.count; i++) {
		AUTO(buffer_release) struct buffer text = { .max = SEGMENT_BYTES_MAX };

		r = whole_file_read(dirfd, listing.names[i], &text);
		if (r == -ENOENT) {
			r = 0;
			continue;
		}
		if (r < 0) {
			r = r == -ENOMEM ? r : output_incomplete(listing.names[i], r) && false;
			continue;
		}
		history->files++;
		r = add_text(history, &text, i + 1 == listing.count);
	}
	free(listing.names);
	if (r == 0 && history->has_last && history->last_end.ns < history->until.ns &&
	    history->until.ns - history->last_end.ns > PERIODS_BEHIND * history->period_ns)
		r = add_gap(history, history->last_end, history->until,
			    history->damage_before ? GAP_DAMAGED : GAP_UNKNOWN, 0);
	return r;
}

/* ---- order ---- */

enum order { BY_CPU, BY_PEAK, BY_MEMORY, BY_THROTTLED, BY_INCIDENTS };

static const char *const order_names[] = { "cpu", "peak", "memory", "throttled", "incidents" };

static enum order order; /* for compare_summaries alone: qsort(3) hands on no context */

static double rank(const struct summary *summary)
{
	switch (order) {
	case BY_PEAK:
		return summary->peak_milli;
	case BY_MEMORY:
		return (double)summary->memory_bytes;
	case BY_THROTTLED:
		return (double)summary->throttled_ns;
	case BY_INCIDENTS:
		return (double)summary->incidents;
	case BY_CPU:
		break;
	}
	return (double)summary->cpu_ns;
}

/* The others come last. */
static int compare_summaries(const void *a, const void *b)
{
	const struct summary *x = *(const struct summary *const *)a, *y = *(const struct summary *const *)b;

	if ((x->kind == MINUTE_OTHERS) != (y->kind == MINUTE_OTHERS))
		return x->kind == MINUTE_OTHERS ? 1 : -1;
	if (rank(x) != rank(y))
		return rank(x) > rank(y) ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void sort_summaries(struct history *history)
{
	if (history->summary_count > 1)
		qsort(history->summaries, history->summary_count, sizeof(struct summary *), compare_summaries);
}

/* ---- words ---- */

/* strftime(3) of local time, into a buffer of 64. format: a literal. */
#define LOCAL_TIME(wall, format, buf) (strftime((buf), 64, (format), local_tm((wall), &(struct tm){ 0 })) ? (buf) : "?")

static const struct tm *local_tm(wall_t wall, struct tm *tm)
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);

	return localtime_r(&seconds, tm) ? tm : gmtime_r(&(time_t){ 0 }, tm);
}

static bool same_day(wall_t a, wall_t b)
{
	char x[64], y[64];

	return strcmp(LOCAL_TIME(a, "%F", x), LOCAL_TIME(b, "%F", y)) == 0;
}

/* Minutes of less than one are a test's. */
static const char *clock_time(const struct history *history, wall_t wall, char buf[64])
{
	bool short_ones = history->period_ns != 0 && history->period_ns < 60 * NS_PER_S;

	return short_ones ? LOCAL_TIME(wall, "%H:%M:%S", buf) : LOCAL_TIME(wall, "%H:%M", buf);
}

static const char *moment(const struct history *history, wall_t wall, char buf[64])
{
	return same_day(history->since, history->until) ? clock_time(history, wall, buf)
							: LOCAL_TIME(wall, "%m-%d %H:%M", buf);
}

static void describe_gap(const struct gap *gap, char *buf, size_t cap)
{
	switch (gap->reason) {
	case GAP_STOPPED:
		snprintf(buf, cap, "spikewatchd was not running");
		break;
	case GAP_UNSAMPLED:
		snprintf(buf, cap, "nothing was sampled: suspended, stopped, or history was off");
		break;
	case GAP_UNWRITTEN:
		snprintf(buf, cap, "%ju minutes could not be written", (uintmax_t)gap->minutes);
		break;
	case GAP_DAMAGED:
		snprintf(buf, cap, "the file is damaged there");
		break;
	case GAP_UNKNOWN:
		snprintf(buf, cap, "nothing was recorded");
	}
}

/* "-" stands for what is not known. */
static const char *percent(bool known, double cores, char buf[UNITS_TEXT_MAX])
{
	return known ? units_format(buf, UNITS_TEXT_MAX, UNIT_PERCENT, cores * 100, UNITS_NARROW) : "-";
}

static const char *bytes(bool known, uint64_t value, char buf[UNITS_TEXT_MAX])
{
	return known ? units_format(buf, UNITS_TEXT_MAX, UNIT_BYTES, (double)value, UNITS_NARROW) : "-";
}

static const char *seconds(uint64_t ns, char buf[UNITS_TEXT_MAX])
{
	if (ns == 0)
		snprintf(buf, UNITS_TEXT_MAX, "-");
	else
		snprintf(buf, UNITS_TEXT_MAX, ns < 100 * NS_PER_S ? "%.1fs" : "%.0fs", (double)ns / NS_PER_S);
	return buf;
}

/* "all/812 python3", "others (1240)"; with more characters than width what is after the last slash: "812 python3". */
static void label_of(const struct summary *summary, char *buf, size_t cap, size_t width)
{
	const char *name = summary->name, *slash = strrchr(name, '/');
	size_t comm = *summary->comm ? 1 + strlen(summary->comm) : 0;
	size_t len;

	if (summary->kind == MINUTE_OTHERS) {
		snprintf(buf, cap, "others (up to %u)", summary->targets);
		return;
	}
	if (strlen(name) + comm > width && slash && slash[1])
		name = slash + 1;
	len = text_escape(buf, cap, name, strlen(name));
	if (*summary->comm && len + 2 < cap) {
		buf[len++] = ' ';
		text_escape(buf + len, cap - len, summary->comm, strlen(summary->comm));
	}
}

/* Mean over the time that was recorded. */
static double mean_cores(const struct history *history, const struct summary *summary)
{
	return history->span_ns ? (double)summary->cpu_ns / (double)history->span_ns : 0;
}

static void print_heading(const struct history *history)
{
	char from[64], to[64], text[UNITS_TEXT_MAX];
	uint64_t all = history->period_ns
			       ? (history->until.ns - history->since.ns + history->period_ns / 2) / history->period_ns
			       : 0;

	output_escaped(stdout, history->directory);
	printf(":\n%s to %s", LOCAL_TIME(history->since, "%a %F %H:%M", from),
	       same_day(history->since, history->until) ? LOCAL_TIME(history->until, "%H:%M", to)
							: LOCAL_TIME(history->until, "%a %F %H:%M", to));
	printf(": %ju of %ju minutes recorded", (uintmax_t)history->minutes,
	       (uintmax_t)(all > history->minutes ? all : history->minutes));
	if (history->partly)
		printf(", %ju of them in part", (uintmax_t)history->partly);
	if (history->unsampled_ns >= NS_PER_S)
		printf(" (%s unsampled)", units_format_duration(text, sizeof(text), history->unsampled_ns));
	printf("\n");
}

static void print_damage(const struct history *history)
{
	if (history->damaged)
		printf("DAMAGED: %zu %s, %zu bytes, cannot be read; what follows is whole.\n", history->damaged,
		       history->damaged == 1 ? "block" : "blocks", history->damaged_bytes);
}

#define GAPS_SHOWN 3u

/* The longest ones; minute by minute they stand in their place. */
static void print_gaps(const struct history *history)
{
	for (size_t i = 0; i < history->gap_count && i < GAPS_SHOWN; i++) {
		const struct gap *gap = &history->gaps[i];
		char from[64], to[64], why[96];

		describe_gap(gap, why, sizeof(why));
		printf("  %s to %s  %s\n", moment(history, gap->from, from), moment(history, gap->to, to), why);
	}
	if (history->gap_count > GAPS_SHOWN)
		printf("  and %zu more gaps\n", history->gap_count - GAPS_SHOWN);
}

/* ---- the table ---- */

static const char *const utf8_steps[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const ascii_steps[] = { "_", ".", "-", "=", "+", "*", "#", "@" };

#define STEPS 8

static void print_spark(const struct history *history, const struct summary *summary, bool utf8)
{
	double top = (double)summary->peak_milli / 1000;

	for (size_t i = 0; i < history->columns; i++) {
		double value = summary->peaks[i];
		int step = top > 0 ? (int)(value / top * (STEPS - 1) + 0.5) : 0;

		if (!history->covered[i])
			fputs(utf8 ? "·" : "?", stdout);
		else if (value < 0)
			fputc(' ', stdout);
		else
			fputs((utf8 ? utf8_steps : ascii_steps)[step < STEPS ? step : STEPS - 1], stdout);
	}
}

/* Columns of the table but for the first and the last. */
#define FIGURES_WIDTH 44u

static size_t label_width(const struct plot_style *style)
{
	return style->width < 100 ? 19 : 32;
}

static void print_row(const struct history *history, const struct summary *summary, const struct plot_style *style)
{
	char label[4 * MINUTE_TEXT_MAX + 80], text[UNITS_TEXT_MAX], at[64];

	label_of(summary, label, sizeof(label), label_width(style));
	output_fit(label, label_width(style), OUTPUT_PAD_RIGHT | OUTPUT_CUT_DOTS, stdout);
	printf(" %6s", percent(summary->has_cpu, mean_cores(history, summary), text));
	printf(" %6s", percent(summary->has_cpu, (double)summary->peak_milli / 1000, text));
	printf(" %-11s", summary->has_cpu ? moment(history, summary->peak_at, at) : "-");
	printf(" %6s", bytes(summary->has_memory, summary->memory_bytes, text));
	printf(" %6s", seconds(summary->throttled_ns, text));
	if (summary->incidents)
		printf(" %3ju ", (uintmax_t)summary->incidents);
	else
		printf("   - ");
	print_spark(history, summary, style->utf8);
	printf("\n");
}

static void print_table_header(const struct history *history, const struct plot_style *style)
{
	char from[64], to[64];
	const char *begin = LOCAL_TIME(history->since, "%H:%M", from), *end = LOCAL_TIME(history->until, "%H:%M", to);
	size_t width = history->columns;

	printf("\n%-*s %6s %6s %-11s %6s %6s %3s ", (int)label_width(style), "TARGET", "CPU", "PEAK", "AT", "MEMORY",
	       "THROTT", "INC");
	printf("%s%*s\n", begin, width > strlen(begin) ? (int)(width - strlen(begin)) : 0, end);
}

static void print_happenings(const struct history *history, size_t limit)
{
	size_t first = limit && history->happening_count > limit ? history->happening_count - limit : 0;
	char at[64];

	if (history->happening_count == 0)
		return;
	printf("\nINCIDENTS (spikewatch show ID)%s\n", first ? ", the newest" : "");
	for (size_t i = first; i < history->happening_count; i++) {
		printf("  %s  ", moment(history, history->happenings[i].at, at));
		output_escaped(stdout, history->happenings[i].id);
		printf("\n");
	}
}

static void print_legend(const struct history *history)
{
	char window[UNITS_TEXT_MAX];

	printf("\nCPU: mean, of a core; PEAK: most over any %s; MEMORY: most; THROTT: time throttled.\n"
	       "Pictures: peaks, up to each one's own PEAK; blank: none known; dots: not recorded.\n",
	       units_format_duration(window, sizeof(window), history->peak_ns));
}

static void print_table(const struct history *history, const struct plot_style *style, size_t limit)
{
	size_t shown = limit && history->summary_count > limit ? limit : history->summary_count;
	bool others =
		shown < history->summary_count && history->summaries[history->summary_count - 1]->kind == MINUTE_OTHERS;

	print_table_header(history, style);
	for (size_t i = 0; i < shown; i++)
		print_row(history, history->summaries[i], style);
	if (others)
		print_row(history, history->summaries[history->summary_count - 1], style);
	if (shown + others < history->summary_count)
		printf("and %zu more targets (-n 0: all)\n", history->summary_count - shown - others);
	print_happenings(history, limit ? 5 : 0);
	print_legend(history);
}

/* ---- minute by minute ---- */

#define POINT_FIGURES 40u

static void print_bar(const struct point *point, double top, size_t width, bool utf8)
{
	double mean = point->span_ns ? (double)point->row.cpu_ns / (double)point->span_ns : 0;
	double peak = (double)point->row.cpu_peak_milli / 1000;
	size_t solid = top > 0 ? (size_t)(mean / top * (double)width + 0.5) : 0;
	size_t shaded = top > 0 ? (size_t)(peak / top * (double)width + 0.5) : 0;

	for (size_t i = 0; i < width && (i < solid || i < shaded); i++)
		fputs(i < solid ? (utf8 ? "█" : "#") : (utf8 ? "░" : ":"), stdout);
}

static void print_point(const struct history *history, const struct point *point, double top,
			const struct plot_style *style)
{
	double mean = point->span_ns ? (double)point->row.cpu_ns / (double)point->span_ns : 0;
	char at[64], text[UNITS_TEXT_MAX];
	size_t width = style->width > POINT_FIGURES + 12 ? style->width - POINT_FIGURES - 1 : 12;
	bool partly = point->sampled_ns < point->period_ns - point->period_ns / 10;

	printf("%-8s ", clock_time(history, point->begin, at));
	if (!point->has_row) {
		printf(point->others ? "no row: it was not there, or is one of %u that are summed" : "not there",
		       point->others);
		printf("\n");
		return;
	}
	printf("%7s", percent(point->row.has_cpu, mean, text));
	printf(" %7s", percent(point->row.has_cpu, (double)point->row.cpu_peak_milli / 1000, text));
	printf(" %7s", bytes(point->row.has_memory, point->row.memory_bytes, text));
	printf(" %6s ", seconds(point->row.throttled_ns, text));
	if (partly)
		printf("(%.3g s) ", (double)point->sampled_ns / NS_PER_S);
	print_bar(point, top, partly && width > 20 ? width - 10 : width, style->utf8);
	printf("\n");
}

static void print_date(wall_t at)
{
	char text[64];

	printf("%s\n", LOCAL_TIME(at, "%A %F", text));
}

/* Gaps and incidents stand where they belong. */
static void print_minutes(const struct history *history, const struct plot_style *style)
{
	const struct summary *summary = history->summaries[0];
	double top = (double)summary->peak_milli / 1000;
	char text[UNITS_TEXT_MAX];
	size_t gap = 0, happening = 0;

	printf("\n");
	output_escaped(stdout, summary->name);
	printf(": %s", target_kind_name((enum target_kind)summary->kind));
	if (*summary->comm) {
		printf(" ");
		output_escaped(stdout, summary->comm);
	}
	printf(" of entry ");
	output_escaped(stdout, summary->entry);
	if (summary->has_cpu) {
		printf("; CPU %s of a core", percent(true, mean_cores(history, summary), text));
		printf(", peak %s", percent(true, top, text));
	} else {
		printf("; CPU not known");
	}
	printf(", memory %s\n\n", summary->has_memory ? bytes(true, summary->memory_bytes, text) : "not known");
	printf("%-8s %7s %7s %7s %6s %s%s\n", "TIME", "CPU", "PEAK", "MEMORY", "THROTT", "0 to ",
	       percent(summary->has_cpu, top, text));
	for (size_t i = 0; i < history->point_count; i++) {
		const struct point *point = &history->points[i];

		for (; gap < history->gap_count && history->gaps[gap].from.ns <= point->begin.ns &&
		       history->gaps[gap].to.ns <= point->begin.ns;
		     gap++) {
			char from[64], to[64], why[96];

			describe_gap(&history->gaps[gap], why, sizeof(why));
			printf("%s to %s  %s\n", moment(history, history->gaps[gap].from, from),
			       moment(history, history->gaps[gap].to, to), why);
		}
		if (i == 0 || !same_day(history->points[i - 1].begin, point->begin))
			print_date(point->begin);
		print_point(history, point, top, style);
		for (; happening < history->happening_count && history->happenings[happening].at.ns == point->begin.ns;
		     happening++) {
			printf("         incident ");
			output_escaped(stdout, history->happenings[happening].id);
			printf("\n");
		}
	}
	for (; gap < history->gap_count; gap++) {
		char from[64], to[64], why[96];

		describe_gap(&history->gaps[gap], why, sizeof(why));
		printf("%s to %s  %s\n", moment(history, history->gaps[gap].from, from),
		       moment(history, history->gaps[gap].to, to), why);
	}
}

/* ---- JSON ---- */

static const char *reason_name(enum gap_reason reason)
{
	static const char *const names[] = { "stopped", "unsampled", "unwritten", "damaged", "unknown" };

	return names[reason];
}

static void json_known(struct json_writer *json, const char *key, bool known, uint64_t value)
{
	if (known)
		json_member_u64(json, key, value);
	else
		json_member_null(json, key);
}

static void json_targets(const struct history *history, struct json_writer *json)
{
	json_member_array(json, "targets");
	for (size_t i = 0; i < history->summary_count; i++) {
		const struct summary *summary = history->summaries[i];
		bool others = summary->kind == MINUTE_OTHERS;

		json_begin_object(json);
		json_member_text(json, "name", summary->name);
		json_member_text(json, "entry", summary->entry);
		json_member_text(json, "comm", summary->comm);
		json_member_text(json, "kind", others ? "others" : target_kind_name((enum target_kind)summary->kind));
		json_member_u64(json, "targets", summary->targets);
		json_member_u64(json, "minutes", summary->minutes);
		json_known(json, "cpu_ns", summary->has_cpu, summary->cpu_ns);
		json_member_double(json, "cpu_cores", summary->has_cpu ? mean_cores(history, summary) : NAN);
		json_member_double(json, "cpu_peak_cores", summary->has_cpu ? (double)summary->peak_milli / 1000 : NAN);
		json_known(json, "cpu_peak_time_ns", summary->has_cpu, summary->peak_at.ns);
		json_known(json, "memory_peak_bytes", summary->has_memory, summary->memory_bytes);
		json_member_u64(json, "throttled_ns", summary->throttled_ns);
		json_member_u64(json, "incidents", summary->incidents);
		json_end_object(json);
	}
	json_end_array(json);
}

static void json_minutes(const struct history *history, struct json_writer *json)
{
	json_member_array(json, "minutes");
	for (size_t i = 0; i < history->point_count; i++) {
		const struct point *point = &history->points[i];

		json_begin_object(json);
		json_member_u64(json, "time_ns", point->begin.ns);
		json_member_u64(json, "period_ns", point->period_ns);
		json_member_u64(json, "recorded_ns", point->span_ns);
		json_member_u64(json, "sampled_ns", point->sampled_ns);
		json_member_bool(json, "present", point->has_row);
		json_member_u64(json, "others", point->others);
		if (point->has_row) {
			json_member_u64(json, "seen_ns", point->row.seen_ns);
			json_member_double(json, "cpu_ns", point->row.has_cpu ? (double)point->row.cpu_ns : NAN);
			json_member_double(json, "cpu_peak_cores",
					   point->row.has_cpu ? (double)point->row.cpu_peak_milli / 1000 : NAN);
			json_member_double(json, "memory_peak_bytes",
					   point->row.has_memory ? (double)point->row.memory_bytes : NAN);
			json_member_u64(json, "throttled_ns", point->row.throttled_ns);
			json_member_double(json, "throttled_percent", (double)point->row.throttled_permille / 10);
		}
		json_end_object(json);
	}
	json_end_array(json);
}

static void json_history(const struct history *history, struct json_writer *json)
{
	json_begin_object(json);
	json_member_text(json, "directory", history->directory);
	json_member_u64(json, "since_ns", history->since.ns);
	json_member_u64(json, "until_ns", history->until.ns);
	json_member_u64(json, "recorded_minutes", history->minutes);
	json_member_u64(json, "recorded_ns", history->span_ns);
	json_member_u64(json, "unsampled_ns", history->unsampled_ns);
	json_member_u64(json, "peak_window_ns", history->peak_ns);
	json_member_u64(json, "damaged_blocks", history->damaged);
	json_member_u64(json, "damaged_bytes", history->damaged_bytes);
	json_member_array(json, "gaps");
	for (size_t i = 0; i < history->gap_count; i++) {
		json_begin_object(json);
		json_member_u64(json, "from_ns", history->gaps[i].from.ns);
		json_member_u64(json, "to_ns", history->gaps[i].to.ns);
		json_member_text(json, "why", reason_name(history->gaps[i].reason));
		json_end_object(json);
	}
	json_end_array(json);
	json_member_array(json, "incidents");
	for (size_t i = 0; i < history->happening_count; i++) {
		json_begin_object(json);
		json_member_u64(json, "time_ns", history->happenings[i].at.ns);
		json_member_text(json, "target", history->happenings[i].target);
		json_member_text(json, "id", history->happenings[i].id);
		json_end_object(json);
	}
	json_end_array(json);
	json_targets(history, json);
	if (history->only)
		json_minutes(history, json);
	json_end_object(json);
}

/* ---- a page of HTML ---- */

/* Text as it was escaped for a terminal, and for HTML. */
static void html_text(FILE *file, const char *text)
{
	char clean[4 * MINUTE_TEXT_MAX + 80];

	text_escape(clean, sizeof(clean), text, strlen(text));
	for (const char *at = clean; *at; at++) {
		switch (*at) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc(*at, file);
		}
	}
}

/* A bar for each column, up to the target's own peak; what was not recorded is grey from top to bottom. */
static void html_picture(FILE *file, const struct history *history, const struct summary *summary)
{
	double top = (double)summary->peak_milli / 1000;

	fprintf(file, "<svg viewBox=\"0 0 %zu 28\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
		history->columns);
	fputs("<path class=\"bar\" d=\"", file);
	for (size_t i = 0; i < history->columns; i++)
		if (history->covered[i] && top > 0 && summary->peaks[i] > 0)
			fprintf(file, "M%zu.5 28v-%.0f", i, (double)summary->peaks[i] / top * 27 + 1);
	fputs("\"/><path class=\"hole\" d=\"", file);
	for (size_t i = 0; i < history->columns; i++)
		if (!history->covered[i])
			fprintf(file, "M%zu.5 28v-28", i);
	fputs("\"/></svg>", file);
}

static const char *page_bytes(uint64_t value, char buf[UNITS_TEXT_MAX])
{
	return units_format(buf, UNITS_TEXT_MAX, UNIT_BYTES, (double)value, UNITS_READING);
}

/* As readCell() of page.html reads them: "mean,peak,memory,throttled", what is not known is empty; "-": no row. */
static void html_cells(FILE *file, const struct history *history, const struct cell *cells)
{
	fputs(" data-cells=\"", file);
	for (size_t i = 0; i < history->point_count; i++) {
		const struct cell *cell = &cells[i];

		fputs(i ? " " : "", file);
		if (!cell->has_row) {
			fputc('-', file);
			continue;
		}
		if (cell->has_cpu)
			fprintf(file, "%u,%u,", cell->mean_milli, cell->peak_milli);
		else
			fputs(",,", file);
		if (cell->has_memory)
			fprintf(file, "%u", cell->memory_kib);
		if (cell->throttled_ms)
			fprintf(file, ",%u", cell->throttled_ms);
	}
	fputc('"', file);
}

static void html_row(FILE *file, const struct history *history, const struct summary *summary)
{
	char label[4 * MINUTE_TEXT_MAX + 80], text[UNITS_TEXT_MAX], at[64];

	label_of(summary, label, sizeof(label), SIZE_MAX);
	fputs("<tr data-name=\"", file);
	html_text(file, summary->name);
	fputc('"', file);
	if (summary->cells)
		html_cells(file, history, summary->cells);
	fputs("><td>", file);
	html_text(file, label);
	fprintf(file, "<td data-label=\"CPU\">%s", percent(summary->has_cpu, mean_cores(history, summary), text));
	fprintf(file, "<td data-label=\"peak\">%s",
		percent(summary->has_cpu, (double)summary->peak_milli / 1000, text));
	fprintf(file, "<td data-label=\"at\">%s", summary->has_cpu ? moment(history, summary->peak_at, at) : "-");
	fprintf(file, "<td data-label=\"memory\">%s",
		summary->has_memory ? page_bytes(summary->memory_bytes, text) : "-");
	fprintf(file, "<td data-label=\"throttled\">%s", seconds(summary->throttled_ns, text));
	fprintf(file, "<td data-label=\"incidents\">%ju<td>", (uintmax_t)summary->incidents);
	html_picture(file, history, summary);
	fputs("</tr>\n", file);
}

static double whole_seconds(wall_t at)
{
	return (double)(at.ns / NS_PER_MS) / 1000;
}

/* Where the local time's distance from UTC changes: "TIME:SECONDS", to the next quarter of an hour. */
static void html_zones(FILE *file, const struct history *history)
{
	long offset = 0;
	bool first = true;

	for (wall_t at = history->since; at.ns < history->until.ns; at.ns += 900 * NS_PER_S) {
		struct tm tm;

		local_tm(at, &tm);
		if (first || tm.tm_gmtoff != offset)
			fprintf(file, "%s%.3f:%ld", first ? "" : " ", whole_seconds(at), tm.tm_gmtoff);
		first = false;
		offset = tm.tm_gmtoff;
	}
}

/*
 * As readSection() of page.html reads it: times in seconds, those of minutes since "since", with what
 * was sampled of them.
 */
static void html_section(FILE *file, const struct history *history)
{
	fprintf(file, "<section data-since=\"%.3f\" data-until=\"%.3f\" data-period=\"%.3f\" data-zones=\"",
		whole_seconds(history->since), whole_seconds(history->until), (double)history->period_ns / NS_PER_S);
	html_zones(file, history);
	fputs("\" data-minutes=\"", file);
	for (size_t i = 0; i < history->point_count; i++) {
		const struct point *point = &history->points[i];

		fprintf(file, "%s%.10g", i ? " " : "", whole_seconds(point->begin) - whole_seconds(history->since));
		if (point->sampled_ns < point->period_ns)
			fprintf(file, ":%.4g", (double)point->sampled_ns / NS_PER_S);
	}
	fputs("\">\n", file);
}

static void html_lists(FILE *file, const struct history *history)
{
	char from[64], to[64], why[96];

	if (history->happening_count > 0)
		fputs("<h2>Incidents</h2>\n<ul>\n", file);
	for (size_t i = 0; i < history->happening_count; i++) {
		fprintf(file, "<li data-at=\"%.3f\" data-target=\"", whole_seconds(history->happenings[i].at));
		html_text(file, history->happenings[i].target);
		fprintf(file, "\">%s: <code>", moment(history, history->happenings[i].at, from));
		html_text(file, history->happenings[i].id);
		fputs("</code></li>\n", file);
	}
	fputs(history->happening_count > 0 ? "</ul>\n" : "", file);
	if (history->gap_count > 0)
		fputs("<h2>Not recorded</h2>\n<ul>\n", file);
	for (size_t i = 0; i < history->gap_count; i++) {
		const struct gap *gap = &history->gaps[i];

		describe_gap(gap, why, sizeof(why));
		fprintf(file, "<li data-from=\"%.3f\" data-to=\"%.3f\" data-why=\"%s\">", whole_seconds(gap->from),
			whole_seconds(gap->to), why);
		fprintf(file, "%s to %s: %s</li>\n", moment(history, gap->from, from), moment(history, gap->to, to),
			why);
	}
	fputs(history->gap_count > 0 ? "</ul>\n" : "", file);
}

static void html_history(FILE *file, const struct history *history)
{
	char from[64], to[64], window[UNITS_TEXT_MAX];
	size_t with_cells = 0;

	while (with_cells < history->summary_count && history->summaries[with_cells]->cells)
		with_cells++;
	html_section(file, history);
	fprintf(file, "<h1>%s to %s</h1>\n<p class=\"muted\">", LOCAL_TIME(history->since, "%a %F %H:%M", from),
		same_day(history->since, history->until) ? LOCAL_TIME(history->until, "%H:%M", to)
							 : LOCAL_TIME(history->until, "%a %F %H:%M", to));
	fprintf(file, "%s; ", LOCAL_TIME(history->since, "UTC%z", from));
	html_text(file, history->directory);
	fprintf(file, ": %ju minutes recorded", (uintmax_t)history->minutes);
	if (history->partly)
		fprintf(file, ", %ju of them in part", (uintmax_t)history->partly);
	if (history->damaged)
		fprintf(file, ". <strong>Damaged: %zu blocks, %zu bytes.</strong>", history->damaged,
			history->damaged_bytes);
	if (with_cells < history->summary_count)
		fprintf(file, ". The minutes of the first %zu targets are in this page, of the others their sums",
			with_cells);
	fputs(".</p>\n<div class=\"panel\"></div>\n<div class=\"scroll\"><table class=\"targets\">"
	      "<tr><th>target<th>CPU, mean<th>peak<th>at<th>memory<th>throttled<th>incidents<th>peaks</tr>\n",
	      file);
	for (size_t i = 0; i < history->summary_count; i++)
		html_row(file, history, history->summaries[i]);
	fprintf(file,
		"</table></div>\n<p class=\"muted\">CPU is of a core, peaks are over any %s, memory is the most. Small "
		"pictures: peaks, up to each one's own.</p>\n",
		units_format_duration(window, sizeof(window), history->peak_ns));
	html_lists(file, history);
	fputs("</section>\n", file);
}

/* ---- the command ---- */

struct request {
	wall_t since, until;
	const char *target;
	size_t limit;
	bool has_limit, several;
	struct json_writer *json;
	FILE *html;
	const char *directory; /* the value of -d, or NULL */
	struct plot_style style;
};

/* The one target that is meant: named exactly, or the only one that matches. NULL: none, or several. */
static const char *the_target(const struct history *history)
{
	const char *found = NULL;
	size_t count = 0;

	for (size_t i = 0; history->pattern && i < history->summary_count; i++) {
		const struct summary *summary = history->summaries[i];

		if (strcmp(summary->name, history->pattern) == 0)
			return summary->name;
		found = summary->name;
		count++;
	}
	return count == 1 ? found : NULL;
}

static void prepare(const struct request *request, const char *directory, struct history *ret)
{
	size_t taken = label_width(&request->style) + FIGURES_WIDTH + 2;
	size_t columns = request->style.width > taken + 8 ? request->style.width - taken : 8;

	*ret = (struct history){
		.directory = directory,
		.since = request->since,
		.until = request->until,
		.pattern = request->target,
		.columns = columns < COLUMNS_MAX && !request->html ? columns : COLUMNS_MAX,
	};
}

static void print_text(struct history *history, const struct request *request)
{
	size_t room = request->style.lines > 18 ? request->style.lines - 14 : 4;
	size_t limit = request->has_limit ? request->limit : isatty(STDOUT_FILENO) ? room : 0;

	print_heading(history);
	print_damage(history);
	if (history->summary_count == 0) {
		print_gaps(history);
		if (request->target && history->minutes) {
			printf("No target is called ");
			output_escaped(stdout, request->target);
			printf(".\n");
		}
		return;
	}
	if (history->only) {
		print_minutes(history, &request->style);
		return;
	}
	print_gaps(history);
	print_table(history, &request->style, limit);
}

/* Of a page, all targets together: about 20 bytes each. */
#define CELLS_MAX 300000u

/* The minutes of as many of the first targets as CELLS_MAX allows. 0; -errno. */
static int read_cells(const struct request *request, struct history *history)
{
	AUTO(history_release) struct history second = { 0 };
	size_t kept;
	int r;

	prepare(request, history->directory, &second);
	second.keeps_points = true;
	r = read_directory(&second); /* the times of the minutes */
	if (r < 0 || second.point_count == 0)
		return r;
	kept = CELLS_MAX / second.point_count;
	kept = kept == 0 ? 1 : kept < history->summary_count ? kept : history->summary_count;
	history->points = second.points;
	history->point_count = second.point_count;
	second.points = NULL;
	for (size_t i = 0; i < kept; i++) {
		history->summaries[i]->cells = calloc(history->point_count, sizeof(struct cell));
		if (!history->summaries[i]->cells)
			return -ENOMEM;
	}
	history_release(&second);
	prepare(request, history->directory, &second);
	second.page = history;
	second.keeps_points = true;
	return read_directory(&second);
}

/* Of one directory. The code to exit with. */
static int show_directory(const char *directory, bool must_be_there, const struct request *request)
{
	AUTO(history_release) struct history history = { 0 }, one = { 0 };
	struct history *shown = &history;
	const char *only;
	int r;

	prepare(request, directory, &history);
	r = read_directory(&history);
	if (r == -ENOENT && !must_be_there) {
		if (!request->json && !request->html) {
			printf("There is no history in ");
			output_escaped(stdout, directory);
			printf(": spikewatchd writes one while \"history\" is enabled.\n");
		}
		return EXIT_OK;
	}
	if (r < 0) {
		output_complain(COMMAND, directory, strerror(-r));
		return EXIT_TROUBLE;
	}
	only = request->html ? NULL : the_target(&history);
	if (only) {
		prepare(request, directory, &one);
		one.only = only;
		one.keeps_points = true;
		r = read_directory(&one);
		if (r < 0)
			return output_no_memory();
		shown = &one;
	}
	sort_summaries(shown);
	if (request->html && read_cells(request, shown) < 0)
		return output_no_memory();
	if (request->json)
		json_history(shown, request->json);
	else if (request->html)
		html_history(request->html, shown);
	else
		print_text(shown, request);
	if (shown->damaged)
		return EXIT_TROUBLE;
	return request->target && shown->summary_count == 0 ? EXIT_TROUBLE : EXIT_OK;
}

/* "history" beside a directory of incidents. */
static int beside(const char *incidents, char *buf, size_t cap)
{
	size_t len = strlen(incidents);

	while (len > 1 && incidents[len - 1] == '/')
		len--;
	while (len > 0 && incidents[len - 1] != '/')
		len--;
	return (size_t)snprintf(buf, cap, "%.*shistory", (int)len, incidents) < cap ? 0 : -ENAMETOOLONG;
}

static int show_places(const char *option, const struct request *request)
{
	struct incident_load_places places;
	char path[INCIDENT_LOAD_PATH_MAX + 16];
	int code = EXIT_OK;

	if (option)
		return show_directory(option, true, request);
	if (incident_load_places(NULL, &places) < 0)
		return incident_pick_directory(COMMAND, NULL, path, sizeof(path)) < 0 ? EXIT_TROUBLE : EXIT_OK;
	for (size_t i = 0; i < places.count; i++) {
		int rc = beside(places.path[i], path, sizeof(path)) < 0 ? EXIT_TROUBLE : EXIT_OK;

		if (i > 0 && !request->json && !request->html)
			printf("\n");
		if (rc == EXIT_OK)
			rc = show_directory(path, false, request);
		code = rc != EXIT_OK ? rc : code;
	}
	return code;
}

/* For output_file_write. */
static int write_page(void *ctx, FILE *file, bool *keep)
{
	struct request *request = ctx;
	int code;

	fwrite(page_head, 1, sizeof(page_head), file);
	request->html = file;
	code = show_places(request->directory, request);
	fputs("</body></html>\n", file);
	*keep = true;

	return code;
}

static int read_moment(const char *option, const char *text, wall_t now, wall_t *ret)
{
	char why[200];

	if (moment_parse(text, now, ret) == 0)
		return 0;
	snprintf(why, sizeof(why), "%s: \"%.60s\" is no time; " MOMENT_EXPECTED, option, text);
	options_wrong(COMMAND, why);
	return -EINVAL;
}

static bool read_order(const char *by)
{
	for (size_t i = 0; i < ARRAY_LEN(order_names); i++) {
		if (strcmp(by, order_names[i]) != 0)
			continue;
		order = (enum order)i;
		return true;
	}
	return false;
}

int history_command(int argc, char **argv)
{
	const char *directory = NULL, *since = SINCE, *until = "now", *by = order_names[BY_CPU], *page = NULL;
	uint64_t limit = UINT64_MAX;
	bool json = false;
	AUTO(json_writer_closep) struct json_writer *writer = NULL;
	const struct option_spec options[] = {
		{ 0, "since", OPTION_TEXT, "TIME", "from then on: 2h (the default), yesterday, 2026-11-20T03:15",
		  &since },
		{ 0, "until", OPTION_TEXT, "TIME", "up to then; now by default", &until },
		{ 'b', "by", OPTION_TEXT, "WHAT", "order: cpu (the default), peak, memory, throttled, incidents", &by },
		{ 'n', "limit", OPTION_NUMBER, "COUNT", "so many targets; 0: all. A screenful on a terminal", &limit },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where the history is; see below", &directory },
		{ 0, "json", OPTION_FLAG, NULL, "as a JSON array, one object for each directory", &json },
		{ 0, "html", OPTION_TEXT, "FILE", "a page of HTML, with each minute; - is the standard output", &page },
	};
	const struct options_usage usage = {
		.command = COMMAND,
		.operands = "[TARGET]",
		.summary = "What targets used, minute by minute: looking back.",
		.description =
			"Without TARGET, or if several match (* and ? match anything; of names, commands, entries):\n"
			"a summary of each. With one: its minutes, and the incidents in them.\n"
			"The daemon need not run. DIR is by default \"history\" beside the incidents: see\n"
			"spikewatch list --help. What was not recorded is said, with the reason.",
		.example = "spikewatch history --since yesterday --until today\n"
			   "spikewatch history --since 03:00 --by memory\n"
			   "spikewatch history --since 6h system.slice/nginx.service",
		.exits = "0 shown, 1 no such target or something is damaged or unreadable, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = 1,
	};
	wall_t now = { (uint64_t)time(NULL) * NS_PER_S };
	struct request request = { 0 };
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (!read_order(by))
		return options_wrong(COMMAND, "--by: expected cpu, peak, memory, throttled or incidents");
	if (read_moment("--since", since, now, &request.since) < 0 ||
	    read_moment("--until", until, now, &request.until) < 0)
		return EXIT_USAGE;
	if (request.until.ns <= request.since.ns)
		return options_wrong(COMMAND, "--until is not after --since");
	request.target = first < argc ? argv[first] : NULL;
	request.has_limit = limit != UINT64_MAX;
	request.limit = (size_t)limit;
	request.directory = directory;
	plot_style_detect(stdout, &request.style);
	if (json && page)
		return options_wrong(COMMAND, "expected one of --json and --html");
	if (page) {
		struct output_file out = { .command = COMMAND, .path = page, .write = write_page, .ctx = &request };

		return output_file_write(&out);
	}
	if (json && output_json_new(&writer) < 0)
		return output_no_memory();
	request.json = writer;
	if (json)
		json_begin_array(writer);
	else if (request.target)
		output_page();
	code = show_places(directory, &request);
	if (json)
		json_end_array(writer);
	return code;
}
