/*
 * toptext.c: one table of columns says in which order they are given up when the line is short, and how they grow when it is long. Names
 * are cut, figures never.
 */
#include "toptext.h"

#include "scope.h"
#include "text.h"
#include "units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define CELL_MAX 1024
#define SPARK_MIN 10
#define SPARK_WIDE 20 /* where the line may be as long as it likes */
#define NAME_MIN 12
#define RULES_MIN 18
#define RULES_MAX 60

struct column {
	const char *head;
	unsigned order; /* the first ones stay longest */
	size_t width;
	bool left; /* text; figures stand to the right */
};

static const struct column columns[TOPTEXT_COLUMNS] = {
	[TOPTEXT_TARGET] = { "TARGET", 0, NAME_MIN, true },
	[TOPTEXT_CPU] = { "CPU", 1, 7, false },
	[TOPTEXT_CPU_MINUTE] = { "LAST MINUTE", 4, SPARK_MIN, true },
	[TOPTEXT_CPU_PEAK] = { "PEAK", 6, 7, false },
	[TOPTEXT_MEMORY] = { "MEMORY", 2, 9, false },
	[TOPTEXT_MEMORY_MINUTE] = { "LAST MINUTE", 8, SPARK_MIN, true },
	[TOPTEXT_MEMORY_PEAK] = { "PEAK", 7, 9, false },
	[TOPTEXT_DISTANCE] = { "DIST", 3, 5, false },
	[TOPTEXT_RULES] = { "RULES", 5, RULES_MIN, true },
};

/* Those that a minute can be cut into. */
static const size_t sparks[] = { 10, 12, 15, 20, 30, 60 };

/* ---- texts of strangers ---- */

/* The next character of text, harmless text that is: its bytes and the columns it takes. */
static size_t step(const char *text, size_t *ret_wide)
{
	mbstate_t state = { 0 };
	wchar_t wide;
	size_t len = mbrtowc(&wide, text, strlen(text), &state);
	int columns_taken;

	*ret_wide = 1;
	if (len == 0 || len > strlen(text))
		return 1;
	columns_taken = wcwidth(wide);
	*ret_wide = columns_taken < 0 ? 1 : (size_t)columns_taken;
	return len;
}

static size_t measure(const char *text)
{
	size_t total = 0, wide;

	for (size_t at = 0; text[at];) {
		at += step(text + at, &wide);
		total += wide;
	}
	return total;
}

/* In a locale without them, other characters than those of ASCII would be nonsense. */
static void make_harmless(const char *text, bool utf8, char *out, size_t cap)
{
	text_escape(out, cap, text, strlen(text));
	for (char *at = out; !utf8 && *at; at++)
		if ((unsigned char)*at >= 0x80)
			*at = '?';
}

/* Bytes of the longest beginning of text that takes at most width columns. */
static size_t beginning(const char *text, size_t width, size_t *ret_wide)
{
	size_t at = 0, total = 0, wide;

	while (text[at]) {
		size_t len = step(text + at, &wide);

		if (total + wide > width)
			break;
		total += wide;
		at += len;
	}
	*ret_wide = total;
	return at;
}

size_t toptext_fit(const char *text, size_t width, bool utf8, bool tail, char *out)
{
	char harmless[CELL_MAX];
	size_t whole, total, len, wide;

	make_harmless(text, utf8, harmless, sizeof(harmless));
	whole = measure(harmless);
	if (whole <= width) {
		snprintf(out, TOPTEXT_LINE_MAX, "%s", harmless);
		return whole;
	}
	if (width < 3) {
		len = beginning(harmless, width, &total);
		snprintf(out, TOPTEXT_LINE_MAX, "%.*s", (int)len, harmless);
		return total;
	}
	if (!tail) {
		len = beginning(harmless, width - 2, &total);
		snprintf(out, TOPTEXT_LINE_MAX, "%.*s..", (int)len, harmless);
		return total + 2;
	}
	len = 0;
	for (total = whole; total > width - 2; total -= wide)
		len += step(harmless + len, &wide);
	snprintf(out, TOPTEXT_LINE_MAX, "..%s", harmless + len);
	return total + 2;
}

size_t toptext_longest(const struct toptable_list *list, bool utf8)
{
	char harmless[CELL_MAX];
	size_t longest = 0;

	for (size_t i = 0; i < list->count; i++) {
		make_harmless(list->row[i]->name, utf8, harmless, sizeof(harmless));
		if (measure(harmless) > longest)
			longest = measure(harmless);
	}
	return longest;
}

/* ---- columns ---- */

/* Gives `column` up to `most` characters of what is left; returns what then is left. */
static size_t grow(struct toptext *text, enum toptext_column column, size_t most, size_t left)
{
	size_t width = text->width[column], more = most > width ? most - width : 0;

	if (width == 0)
		return left;
	more = more < left ? more : left;
	text->width[column] += more;
	return left - more;
}

/* As far as there is room for the next width a minute can be cut into. */
static size_t grow_spark(struct toptext *text, enum toptext_column column, size_t most, size_t left)
{
	for (size_t i = 0; i < ARRAY_LEN(sparks); i++) {
		size_t width = text->width[column];

		if (width > 0 && sparks[i] > width && sparks[i] <= most && sparks[i] - width <= left) {
			left -= sparks[i] - width;
			text->width[column] = sparks[i];
		}
	}
	return left;
}

static void plan_endless(size_t longest, struct toptext *text)
{
	for (size_t i = 0; i < TOPTEXT_COLUMNS; i++)
		text->width[i] = columns[i].width;
	text->width[TOPTEXT_TARGET] = longest > NAME_MIN ? longest : NAME_MIN;
	text->width[TOPTEXT_CPU_MINUTE] = text->width[TOPTEXT_MEMORY_MINUTE] = SPARK_WIDE;
	text->width[TOPTEXT_RULES] = CELL_MAX;
}

void toptext_plan(size_t width, bool utf8, size_t longest, struct toptext *ret)
{
	struct toptext text = { .utf8 = utf8 };
	size_t left = width;

	if (width == 0) {
		plan_endless(longest < TOPTEXT_NAME_MAX ? longest : TOPTEXT_NAME_MAX, &text);
		*ret = text;
		return;
	}
	text.width[TOPTEXT_TARGET] = width < NAME_MIN ? width : NAME_MIN;
	left -= text.width[TOPTEXT_TARGET];
	for (unsigned order = 1; order < TOPTEXT_COLUMNS; order++) {
		for (size_t i = 0; i < TOPTEXT_COLUMNS; i++) {
			if (columns[i].order != order || left < columns[i].width + 1)
				continue;
			text.width[i] = columns[i].width;
			left -= columns[i].width + 1;
		}
	}
	left = grow(&text, TOPTEXT_TARGET, longest < 32 ? longest : 32, left);
	left = grow_spark(&text, TOPTEXT_CPU_MINUTE, 20, left);
	left = grow_spark(&text, TOPTEXT_MEMORY_MINUTE, 20, left);
	left = grow(&text, TOPTEXT_RULES, 36, left);
	left = grow(&text, TOPTEXT_TARGET, longest, left);
	left = grow_spark(&text, TOPTEXT_CPU_MINUTE, 60, left);
	left = grow_spark(&text, TOPTEXT_MEMORY_MINUTE, 60, left);
	grow(&text, TOPTEXT_RULES, RULES_MAX, left);
	*ret = text;
}

/* ---- cells ---- */

void toptext_spark(const double *values, size_t count, double bottom, double top, bool utf8, char *out, size_t cap)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { "_", ".", ":", "-", "=", "+", "*", "#" };
	size_t levels = ARRAY_LEN(blocks), len = 0;

	*out = '\0';
	for (size_t i = 0; i < count && len + 4 <= cap; i++) {
		double part = top > bottom ? (values[i] - bottom) / (top - bottom) : 0;
		size_t level = part <= 0 ? 0 : part >= 1 ? levels - 1 : (size_t)(part * (double)levels);
		const char *mark = isnan(values[i]) ? " " : (utf8 ? blocks : ascii)[level];

		len += (size_t)snprintf(out + len, cap - len, "%s", mark);
	}
}

/* From nothing to the highest of the minute, or a tenth of a core: what is less is no mountain. */
static void put_cpu_minute(const struct toptable *table, const struct toptable_row *row, size_t width, bool utf8,
			   char *out)
{
	double values[TOPTABLE_SECONDS], top = 0.1;

	toptable_history(table, row, TOPTABLE_CPU_CORES, values, width);
	for (size_t i = 0; i < width; i++)
		top = values[i] > top ? values[i] : top;
	toptext_spark(values, width, 0, top, utf8, out, CELL_MAX);
}

/* From the lowest of the minute to the highest, or a tenth of that: what moves less is flat. */
static void put_memory_minute(const struct toptable *table, const struct toptable_row *row, size_t width, bool utf8,
			      char *out)
{
	double values[TOPTABLE_SECONDS], top = 0, bottom = INFINITY;

	toptable_history(table, row, TOPTABLE_MEMORY_BYTES, values, width);
	for (size_t i = 0; i < width; i++) {
		top = values[i] > top ? values[i] : top;
		bottom = values[i] < bottom ? values[i] : bottom;
	}
	if (bottom + top / 10 > top)
		top = bottom + top / 10;
	toptext_spark(values, width, bottom, top, utf8, out, CELL_MAX);
}

static void put_cores(double cores, char *out)
{
	double percent = 100 * cores;

	if (isnan(cores))
		snprintf(out, CELL_MAX, "-");
	else
		snprintf(out, CELL_MAX, percent < 9999.95 ? "%.1f%%" : "%.0f%%", percent);
}

static void put_bytes(bool known, uint64_t bytes, char *out)
{
	if (known)
		units_format_bytes(out, UNITS_TEXT_MAX, bytes);
	else
		snprintf(out, CELL_MAX, "-");
}

static void put_distance(const struct toptable_row *row, char *out)
{
	double percent = 100 * row->nearness;

	if (!isfinite(percent))
		snprintf(out, CELL_MAX, "-");
	else if (percent < -999.5)
		snprintf(out, CELL_MAX, "%.0fx", percent > -99900 ? percent / 100 : -999);
	else
		snprintf(out, CELL_MAX, "%.0f%%", percent == 0 ? 0 : percent);
}

static size_t put_waiting(const struct toptable_verdict *verdict, char *out, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	int len;

	if (verdict->wait == TOPTABLE_PENDING)
		len = snprintf(out, cap, "%.100s pending %s of %s", verdict->rule,
			       units_format_duration(a, sizeof(a), verdict->for_ns),
			       units_format_duration(b, sizeof(b), verdict->for_whole_ns));
	else
		/* Whole seconds: nobody reads more of what runs down. */
		len = snprintf(
			out, cap, "%.100s cooling %s", verdict->rule,
			units_format_duration(a, sizeof(a), (verdict->left_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S));
	return len < 0 ? 0 : (size_t)len < cap ? (size_t)len : cap - 1;
}

/* What waits, else the nearest rule's name. */
static void put_rules(const struct toptable_row *row, char *out)
{
	size_t kept = row->waiting_count < TOPTABLE_WAITING_MAX ? row->waiting_count : TOPTABLE_WAITING_MAX, len = 0;

	if (row->gone) {
		snprintf(out, CELL_MAX, "(ended)");
		return;
	}
	for (size_t i = 0; i < kept; i++) {
		if (i > 0)
			len += (size_t)snprintf(out + len, CELL_MAX - len, ", ");
		len += put_waiting(&row->waiting[i], out + len, CELL_MAX - len - 2);
	}
	if (kept < row->waiting_count)
		snprintf(out + len, CELL_MAX - len, ", +%zu", row->waiting_count - kept);
	if (kept == 0)
		snprintf(out, CELL_MAX, "%s", row->nearest ? row->nearest : "-");
}

static void put_cell(const struct toptext *text, const struct toptable *table, const struct toptable_row *row,
		     enum toptext_column column, char out[CELL_MAX])
{
	switch (column) {
	case TOPTEXT_TARGET:
		snprintf(out, CELL_MAX, "%s", row->name);
		break;
	case TOPTEXT_CPU:
		put_cores(row->cpu_cores, out);
		break;
	case TOPTEXT_CPU_MINUTE:
		put_cpu_minute(table, row, text->width[column], text->utf8, out);
		break;
	case TOPTEXT_CPU_PEAK:
		put_cores(row->cpu_peak, out);
		break;
	case TOPTEXT_MEMORY:
		put_bytes(row->has_memory && !row->gone, row->memory_bytes, out);
		break;
	case TOPTEXT_MEMORY_MINUTE:
		put_memory_minute(table, row, text->width[column], text->utf8, out);
		break;
	case TOPTEXT_MEMORY_PEAK:
		put_bytes(row->memory_peak_bytes > 0, row->memory_peak_bytes, out);
		break;
	case TOPTEXT_DISTANCE:
		put_distance(row, out);
		break;
	case TOPTEXT_RULES:
		put_rules(row, out);
		break;
	case TOPTEXT_COLUMNS:
		break;
	}
}

/* ---- lines ---- */

/* Sparks are ours and fit; in a locale without UTF-8 they are ASCII. */
static size_t append(const struct toptext *text, enum toptext_column column, const char *cell, char *line, size_t len)
{
	char fitted[TOPTEXT_LINE_MAX];
	size_t width = text->width[column];
	bool last = true;
	size_t wide = toptext_fit(cell, width, text->utf8, column == TOPTEXT_TARGET, fitted);
	int space = wide < width ? (int)(width - wide) : 0;
	int written;

	for (size_t i = (size_t)column + 1; i < TOPTEXT_COLUMNS; i++)
		last = last && text->width[i] == 0;
	if (columns[column].left)
		written = snprintf(line + len, TOPTEXT_LINE_MAX - len, "%s%s%*s", len > 0 ? " " : "", fitted,
				   last ? 0 : space, "");
	else
		written =
			snprintf(line + len, TOPTEXT_LINE_MAX - len, "%s%*s%s", len > 0 ? " " : "", space, "", fitted);
	if (written < 0)
		return len;
	return len + (size_t)written < TOPTEXT_LINE_MAX ? len + (size_t)written : TOPTEXT_LINE_MAX - 1;
}

const char *toptext_heads(const struct toptext *text, char *line)
{
	size_t len = 0;

	*line = '\0';
	for (size_t i = 0; i < TOPTEXT_COLUMNS; i++) {
		const char *head = columns[i].head;

		if (strlen(head) > text->width[i] && i != TOPTEXT_TARGET && text->width[i] > 0)
			head = "MINUTE";
		if (text->width[i] > 0)
			len = append(text, (enum toptext_column)i, head, line, len);
	}
	return line;
}

const char *toptext_row(const struct toptext *text, const struct toptable *table, const struct toptable_row *row,
			char *line)
{
	char cell[CELL_MAX];
	size_t len = 0;

	*line = '\0';
	for (size_t i = 0; i < TOPTEXT_COLUMNS; i++) {
		if (text->width[i] == 0)
			continue;
		put_cell(text, table, row, (enum toptext_column)i, cell);
		len = append(text, (enum toptext_column)i, cell, line, len);
	}
	return line;
}
