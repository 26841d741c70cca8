/*
 * statusview.c: rows are nodes of the answer, sorted; their cells are made twice, once to find the widths and once to print. A table
 * that is too wide gives up characters of names, never of figures.
 */
#include "statusview.h"

#include "answer.h"
#include "metrictext.h"
#include "output.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum column { TARGET, RULE, VALUE, THRESHOLD, AVERAGE, WHY, COLUMNS };

#define CELL_MAX 128
#define GAP 2

/* Names are cut to this before anything else gives way. */
#define NAME_MIN 8

struct row {
	const struct json_node *target, *rule;
	double nearness; /* distance to firing as a part of the threshold; negative: beyond it */
	size_t order;
};

struct cells {
	char text[COLUMNS][CELL_MAX];
};

bool statusview_wanted(const struct statusquery *query, const struct json_node *target, const struct json_node *rule)
{
	return statusquery_wants(query, answer_text(target, "name"), answer_text(target, "entry"),
				 answer_text(rule, "rule"));
}

/* ---- a row's cells ---- */

static enum metric_unit unit_of(const struct json_node *rule)
{
	enum metric metric;

	return metric_by_name(answer_text(rule, "metric"), &metric) ? metric_unit(metric) : METRIC_COUNT;
}

static const char *value(const struct json_node *rule, const char *key, char *buf, size_t cap)
{
	double number = answer_number(rule, key, NAN);

	snprintf(buf, cap, "-");

	return isfinite(number) ? metrictext_value(unit_of(rule), number, buf, cap) : buf;
}

/* The one in force; while there is none, what is configured. */
static void put_threshold(const struct json_node *rule, char *buf, size_t cap)
{
	double delta = answer_number(rule, "delta_percent", NAN);
	char text[UNITS_TEXT_MAX];

	value(rule, isfinite(answer_number(rule, "threshold", NAN)) ? "threshold" : "percent", buf, cap);
	if (strcmp(buf, "-") == 0 && isfinite(delta))
		snprintf(buf, cap, "+%s", units_format_percent(text, UNITS_TEXT_MAX, delta));
}

/* What its last window lacked. */
static void put_lack(const struct json_node *rule, const char *reason, char *buf, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	double threshold = answer_number(rule, "threshold", NAN), distance = answer_number(rule, "distance", NAN);

	if (!*reason)
		snprintf(buf, cap, "no window has ended yet");
	else if (answer_is_true(rule, "fires"))
		snprintf(buf, cap, "fired");
	else if (strcmp(reason, "warming-up") == 0)
		snprintf(buf, cap, "warming up %ju/%ju",
			 (uintmax_t)answer_whole(answer_member(rule, "reasons"), reason),
			 (uintmax_t)answer_whole(rule, "warmup"));
	else if (strcmp(reason, "below-minimum") == 0)
		snprintf(buf, cap, "below minimum %s", value(rule, "minimum", a, sizeof(a)));
	else if (strcmp(reason, "above-maximum") == 0)
		snprintf(buf, cap, "above maximum %s", value(rule, "maximum", a, sizeof(a)));
	else if (strcmp(reason, "within-bounds") == 0 && threshold > 0 && distance >= 0)
		snprintf(buf, cap, "within bounds, %s below",
			 units_format_percent(a, UNITS_TEXT_MAX, 100 * distance / threshold));
	else if (strcmp(reason, "pending") == 0)
		snprintf(buf, cap, "pending %s of %s", answer_duration(rule, "pending_ns", a),
			 answer_duration(rule, "for_ns", b));
	else if (strcmp(reason, "cooldown") == 0)
		snprintf(buf, cap, "cooldown, %s left", answer_duration(rule, "cooldown_left_ns", a));
	else if (strcmp(reason, "count-limit") == 0)
		snprintf(buf, cap, "count limit, %ju of %ju", (uintmax_t)answer_whole(rule, "count"),
			 (uintmax_t)answer_whole(rule, "count_limit"));
	else if (strcmp(reason, "disk-budget") == 0)
		snprintf(buf, cap, "no room for an incident");
	else
		text_escape(buf, cap, reason, strlen(reason));
}

/* And what the rule waits for besides. */
static void put_why(const struct json_node *rule, char *buf, size_t cap)
{
	const char *reason = answer_text(rule, "reason");
	char left[UNITS_TEXT_MAX];
	size_t len;

	put_lack(rule, reason, buf, cap);
	len = strlen(buf);
	if (strcmp(reason, "cooldown") != 0 && strcmp(answer_text(rule, "phase"), "cooldown") == 0)
		snprintf(buf + len, cap - len, "; cooldown %s", answer_duration(rule, "cooldown_left_ns", left));
}

static void put_cells(const struct row *row, struct cells *ret)
{
	const char *target = answer_text(row->target, "name"), *rule = answer_text(row->rule, "rule");

	text_escape(ret->text[TARGET], CELL_MAX, target, strlen(target));
	text_escape(ret->text[RULE], CELL_MAX, rule, strlen(rule));
	value(row->rule, "value", ret->text[VALUE], CELL_MAX);
	put_threshold(row->rule, ret->text[THRESHOLD], CELL_MAX);
	value(row->rule, "average", ret->text[AVERAGE], CELL_MAX);
	put_why(row->rule, ret->text[WHY], CELL_MAX);
}

/* ---- the table ---- */

/* Those of one target are one after the other in the answer, and stay so while they are equally near. */
static int compare(const void *a, const void *b)
{
	const struct row *left = a, *right = b;

	if (left->nearness != right->nearness)
		return left->nearness < right->nearness ? -1 : 1;

	return left->order < right->order ? -1 : left->order > right->order;
}

static double nearness(const struct json_node *rule)
{
	double threshold = answer_number(rule, "threshold", NAN), distance = answer_number(rule, "distance", NAN);

	if (!isfinite(threshold) || !isfinite(distance))
		return INFINITY;

	return threshold > 0 ? distance / threshold : distance;
}

/* NULL with *ret_count 0: none; with another: no memory. */
static struct row *collect(const struct json_node *root, const struct statusquery *query, size_t *ret_count)
{
	struct row *rows = NULL;
	size_t all = 0, count = 0;

	for (const struct json_node *t = answer_first(root, "targets"); t; t = t->next)
		for (const struct json_node *r = answer_first(t, "rules"); r; r = r->next)
			all++;
	*ret_count = all;
	if (all == 0 || !(rows = calloc(all, sizeof(*rows))))
		return NULL;

	for (const struct json_node *t = answer_first(root, "targets"); t; t = t->next)
		for (const struct json_node *r = answer_first(t, "rules"); r; r = r->next)
			if (statusview_wanted(query, t, r)) {
				rows[count] = (struct row){ t, r, nearness(r), count };
				count++;
			}
	qsort(rows, count, sizeof(*rows), compare);
	*ret_count = count;

	return rows;
}

static size_t characters(const char *text)
{
	return output_characters(text, strlen(text));
}

/* Takes from the wider of the two names until the table fits. */
static void shrink(size_t widths[COLUMNS], size_t width)
{
	size_t total = (COLUMNS - 1) * GAP;

	for (size_t i = 0; i < COLUMNS; i++)
		total += widths[i];
	while (total > width && (widths[TARGET] > NAME_MIN || widths[RULE] > NAME_MIN)) {
		widths[widths[TARGET] > widths[RULE] ? TARGET : RULE]--;
		total--;
	}
	if (total > width && widths[WHY] > NAME_MIN)
		widths[WHY] -= total - width < widths[WHY] - NAME_MIN ? total - width : widths[WHY] - NAME_MIN;
}

/* Bytes of the first so many characters. */
static size_t first_characters(const char *text, size_t count)
{
	size_t at = 0;

	while (text[at] && (count > 0 || ((unsigned char)text[at] & 0xC0) == 0x80))
		count -= ((unsigned char)text[at++] & 0xC0) != 0x80;

	return at;
}

/*
 * A name in fewer characters than it has. Of a cgroup's path the last part says most, and that most at its beginning; of other targets
 * the end is what tells them apart, of rules the beginning.
 */
static void put_cut(enum column column, const char *text, size_t width, FILE *file)
{
	const char *from = column == TARGET && *text == '/' ? strrchr(text, '/') + 1 : text;
	size_t wide = characters(from);

	if (wide <= width)
		fprintf(file, "%s%*s", from, (int)(width - wide), "");
	else if (column == TARGET && from == text)
		fprintf(file, "..%s", text + first_characters(text, wide - width + 2));
	else
		fprintf(file, "%.*s..", (int)first_characters(from, width - 2), from);
}

static void put_cell(enum column column, const char *text, size_t width, FILE *file)
{
	size_t wide = characters(text);
	int space = wide < width ? (int)(width - wide) : 0;

	if (wide > width)
		put_cut(column, text, width, file);
	else if (column == WHY)
		fputs(text, file);
	else if (column >= VALUE)
		fprintf(file, "%*s%s", space, "", text);
	else
		fprintf(file, "%s%*s", text, space, "");
	fprintf(file, "%*s%s", column == WHY ? 0 : GAP, "", column == WHY ? "\n" : "");
}

static void put_line(const struct cells *cells, const size_t widths[COLUMNS], FILE *file)
{
	for (enum column column = 0; column < COLUMNS; column++)
		put_cell(column, cells->text[column], widths[column], file);
}

/* How often each reason was given, in lines of their own. */
static void put_counts(const struct json_node *rule, size_t width, FILE *file)
{
	const struct json_node *reasons = answer_member(rule, "reasons");
	char item[CELL_MAX], key[64];
	uintmax_t fired = answer_whole(rule, "fired");
	size_t used = (size_t)fprintf(file, "    fired %ju time%s", fired, fired == 1 ? "" : "s");
	const char *mark = ";";

	for (const struct json_node *r = reasons ? reasons->first : NULL; r; r = r->next) {
		if (!r->key || r->type != JSON_NUMBER)
			continue;
		text_escape(key, sizeof(key), r->key, r->key_len);
		snprintf(item, sizeof(item), "%s %.0f", key, r->number);
		fputs(mark, file);
		if (used + characters(item) + 2 >= width)
			used = (size_t)fprintf(file, "\n    ") - 1;
		else
			fputc(' ', file);
		fputs(item, file);
		used += characters(item) + 2;
		mark = ",";
	}
	fputc('\n', file);
}

/* Those of its container, below the first of its rows. */
static void put_labels(const struct json_node *target, size_t width, FILE *file)
{
	const struct json_node *labels = answer_member(target, "labels");
	uintmax_t more = answer_whole(target, "labels_left_out");
	size_t used = 4;

	if (!labels || labels->type != JSON_OBJECT || (!labels->first && more == 0))
		return;
	fputs("    labels", file);
	used += strlen("labels");
	for (const struct json_node *label = labels->first; label; label = label->next) {
		char item[CELL_MAX], key[CELL_MAX / 2], value[CELL_MAX / 2];

		text_escape(key, sizeof(key), label->key, label->key_len);
		text_escape(value, sizeof(value), label->text ? label->text : "", label->text_len);
		snprintf(item, sizeof(item), "%s=%s", key, value);
		if (used + characters(item) + 1 >= width) {
			fputs("\n   ", file);
			used = 3;
		}
		fprintf(file, " %s", item);
		used += characters(item) + 1;
	}
	if (more > 0)
		fprintf(file, " and %ju more", more);
	fputc('\n', file);
}

static void print(const struct row *rows, size_t count, bool counts, size_t width, FILE *file)
{
	static const struct cells head = { { "TARGET", "RULE", "VALUE", "THRESHOLD", "AVERAGE", "WHY" } };
	size_t widths[COLUMNS];
	struct cells cells;

	for (size_t k = 0; k < COLUMNS; k++)
		widths[k] = strlen(head.text[k]);
	for (size_t i = 0; i < count; i++) {
		put_cells(&rows[i], &cells);
		for (size_t k = 0; k < COLUMNS; k++)
			widths[k] = characters(cells.text[k]) > widths[k] ? characters(cells.text[k]) : widths[k];
	}
	shrink(widths, width);

	put_line(&head, widths, file);
	for (size_t i = 0; i < count; i++) {
		put_cells(&rows[i], &cells);
		put_line(&cells, widths, file);
		if (counts)
			put_counts(rows[i].rule, width, file);
		if (counts && (i == 0 || rows[i - 1].target != rows[i].target))
			put_labels(rows[i].target, width, file);
	}
}

ssize_t statusview_rules(const struct json_node *root, const struct statusquery *query, size_t width, FILE *file)
{
	uint64_t farther = answer_whole(root, "farther"), left_out = answer_whole(root, "left_out");
	size_t count, shown;
	AUTO_FREE struct row *rows = collect(root, query, &count);

	if (!rows && count > 0)
		return -ENOMEM;

	shown = query->nearest > 0 && count > query->nearest ? query->nearest : count;
	if (shown > 0)
		print(rows, shown, statusquery_chooses(query), width, file);
	if (shown < count || farther > 0)
		fprintf(file, "... and %ju more: --rows 0 shows all, names of targets and rules show some\n",
			(uintmax_t)(count - shown + farther));
	if (left_out > 0)
		fprintf(file, "The daemon left %ju out: its answer would have been too large.\n", (uintmax_t)left_out);

	return (ssize_t)count;
}
