/*
 * statusview.c: rows are nodes of the answer, sorted; their cells are made twice, once to find the widths and once to print. A table
 * that is too wide gives up characters of names, never of figures.
 */
#include "statusview.h"

#include "metrictext.h"
#include "output.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <fnmatch.h>
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

/* ---- the answer ---- */

/* Of nothing, nothing. */
static const struct json_node *member(const struct json_node *node, const char *key)
{
	return node ? json_member(node, key) : NULL;
}

double statusview_number(const struct json_node *node, const char *key, double otherwise)
{
	const struct json_node *found = member(node, key);

	return found && found->type == JSON_NUMBER ? found->number : otherwise;
}

const char *statusview_text(const struct json_node *node, const char *key)
{
	const struct json_node *found = member(node, key);

	return found && found->type == JSON_STRING ? found->text : "";
}

static bool is_true(const struct json_node *node, const char *key)
{
	const struct json_node *found = member(node, key);

	return found && found->type == JSON_BOOL && found->boolean;
}

/* What cannot be a count or a time becomes 0. */
static uint64_t whole(const struct json_node *node, const char *key)
{
	double number = statusview_number(node, key, 0);

	return number > 0 && number < 1e19 ? (uint64_t)number : 0;
}

static const struct json_node *first_of(const struct json_node *node, const char *key)
{
	const struct json_node *found = member(node, key);

	return found && found->type == JSON_ARRAY ? found->first : NULL;
}

bool statusview_wanted(const struct statusview_filter *filter, const struct json_node *target,
		       const struct json_node *rule)
{
	for (size_t i = 0; i < filter->count; i++) {
		const char *name = filter->names[i];

		if (fnmatch(name, statusview_text(target, "name"), 0) == 0 ||
		    fnmatch(name, statusview_text(target, "entry"), 0) == 0 ||
		    fnmatch(name, statusview_text(rule, "rule"), 0) == 0)
			return true;
	}

	return filter->count == 0;
}

/* ---- how it is ---- */

#define TEXT(node, key, buf) \
	(text_escape(buf, sizeof(buf), statusview_text(node, key), strlen(statusview_text(node, key))), buf)

static const char *duration(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_duration(buf, UNITS_TEXT_MAX, whole(node, key));
}

static const char *bytes(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_bytes(buf, UNITS_TEXT_MAX, whole(node, key));
}

static const char *percent(double value, char buf[UNITS_TEXT_MAX])
{
	return units_format_percent(buf, UNITS_TEXT_MAX, value);
}

static void say_figures(const struct json_node *root, size_t width, FILE *file)
{
	const struct json_node *daemon = member(root, "daemon"), *sampler = member(root, "sampler"),
			       *ring = member(root, "ring"), *found = member(root, "discovery"),
			       *incidents = member(root, "incidents");
	char line[512], a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], text[64];

	snprintf(line, sizeof(line), "spikewatchd %.32s, pid %ju, up %s: %s of a core, %s, %ju fds",
		 TEXT(daemon, "version", text), (uintmax_t)whole(daemon, "pid"), duration(daemon, "uptime_ns", a),
		 percent(statusview_number(daemon, "cpu_percent", NAN), b), bytes(daemon, "memory_bytes", c),
		 (uintmax_t)whole(daemon, "open_fds"));
	output_wrap(line, width, file);
	snprintf(line, sizeof(line), "watches %ju targets (and %ju members of groups) of %ju processes, every %s",
		 (uintmax_t)whole(found, "targets"), (uintmax_t)whole(found, "members"),
		 (uintmax_t)whole(found, "processes"), duration(sampler, "interval_ns", a));
	output_wrap(line, width, file);
	snprintf(line, sizeof(line), "captured %s, woken %s late, a look at all takes %s",
		 percent(statusview_number(sampler, "capture_percent", NAN), a),
		 duration(sampler, "mean_sleep_error_ns", b), duration(sampler, "mean_collection_ns", c));
	output_wrap(line, width, file);
	snprintf(line, sizeof(line), "the ring holds %s in %s; incidents: %ju sealed, %ju open, %ju merged",
		 duration(ring, "history_ns", a), bytes(ring, "size_bytes", b), (uintmax_t)whole(incidents, "sealed"),
		 (uintmax_t)whole(incidents, "open"), (uintmax_t)whole(incidents, "merged"));
	output_wrap(line, width, file);
}

static void say_verdict(const struct json_node *verdict, size_t width, FILE *file)
{
	double threshold = statusview_number(verdict, "threshold", NAN);
	char line[1024], what[64], cause[256], remedy[256], a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];

	snprintf(line, sizeof(line), "! %s: %s over the whole run, at %s %s expected%s. %s %s",
		 TEXT(verdict, "what", what), percent(100 * statusview_number(verdict, "ratio", NAN), a),
		 threshold > 0.5 ? "least" : "most", percent(100 * threshold, b),
		 is_true(verdict, "bad_now") ? ", and bad right now" : "", TEXT(verdict, "cause", cause),
		 TEXT(verdict, "remedy", remedy));
	output_wrap(line, width, file);
}

/* Counters that should be zero. */
static const struct {
	const char *section, *key, *text, *why;
} alarms[] = {
	{ "sampler", "lost_records", "records did not fit into the ring: enlarge ring.size", NULL },
	{ "ring", "unjudged_pages", "pages were never judged, the sampler was faster: enlarge ring.size", NULL },
	{ "discovery", "refused", "targets match beyond sampling.max_targets and are not watched", NULL },
	{ "discovery", "failed", "targets cannot be opened", "failed_why" },
	{ "discovery", "unreadable", "processes may not be looked at (hidepid, or another user's)", NULL },
	{ "incidents", "failed", "incidents could not be written; the log says why", NULL },
	{ "incidents", "refused", "firings were refused because too many incidents were open", NULL },
};

static void say_alarms(const struct json_node *root, size_t width, FILE *file)
{
	char line[512], why[200];

	for (size_t i = 0; i < ARRAY_LEN(alarms); i++) {
		const struct json_node *section = member(root, alarms[i].section);
		uint64_t count = whole(section, alarms[i].key);

		if (count == 0)
			continue;
		snprintf(line, sizeof(line), "! %ju %s%s%s", (uintmax_t)count, alarms[i].text,
			 alarms[i].why ? ": " : "", alarms[i].why ? TEXT(section, alarms[i].why, why) : "");
		output_wrap(line, width, file);
	}
}

/* What it may not do. No alarm: it may be meant so. */
static void say_lacks(const struct json_node *daemon, size_t width, FILE *file)
{
	char line[512], needs[64], off[256];

	for (const struct json_node *lack = first_of(daemon, "lacks"); lack; lack = lack->next) {
		snprintf(line, sizeof(line), "without %s: no %s", TEXT(lack, "needs", needs), TEXT(lack, "off", off));
		output_wrap(line, width, file);
	}
}

void statusview_health(const struct json_node *root, size_t width, FILE *file)
{
	const struct json_node *daemon = member(root, "daemon"), *found = member(root, "discovery");
	char line[512], why[200];

	say_figures(root, width, file);
	if (whole(daemon, "slowdown") > 1) {
		snprintf(line, sizeof(line), "! sampling %ju times slower than configured, to keep sampling.cpu_budget",
			 (uintmax_t)whole(daemon, "slowdown"));
		output_wrap(line, width, file);
	}
	for (const struct json_node *v = first_of(member(root, "sampler"), "verdicts"); v; v = v->next)
		if (is_true(v, "bad") || is_true(v, "bad_now"))
			say_verdict(v, width, file);
	if (*statusview_text(found, "unfinished_why")) {
		snprintf(line, sizeof(line), "! new targets are not found: %s", TEXT(found, "unfinished_why", why));
		output_wrap(line, width, file);
	}
	say_alarms(root, width, file);
	say_lacks(daemon, width, file);
}

/* ---- a row's cells ---- */

static enum metric_unit unit_of(const struct json_node *rule)
{
	enum metric metric;

	return metric_by_name(statusview_text(rule, "metric"), &metric) ? metric_unit(metric) : METRIC_COUNT;
}

static const char *value(const struct json_node *rule, const char *key, char *buf, size_t cap)
{
	double number = statusview_number(rule, key, NAN);

	snprintf(buf, cap, "-");

	return isfinite(number) ? metrictext_value(unit_of(rule), number, buf, cap) : buf;
}

/* The one in force; while there is none, what is configured. */
static void put_threshold(const struct json_node *rule, char *buf, size_t cap)
{
	double delta = statusview_number(rule, "delta_percent", NAN);
	char text[UNITS_TEXT_MAX];

	value(rule, isfinite(statusview_number(rule, "threshold", NAN)) ? "threshold" : "percent", buf, cap);
	if (strcmp(buf, "-") == 0 && isfinite(delta))
		snprintf(buf, cap, "+%s", percent(delta, text));
}

/* What its last window lacked. */
static void put_lack(const struct json_node *rule, const char *reason, char *buf, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	double threshold = statusview_number(rule, "threshold", NAN),
	       distance = statusview_number(rule, "distance", NAN);

	if (!*reason)
		snprintf(buf, cap, "no window has ended yet");
	else if (is_true(rule, "fires"))
		snprintf(buf, cap, "fired");
	else if (strcmp(reason, "warming-up") == 0)
		snprintf(buf, cap, "warming up %ju/%ju", (uintmax_t)whole(member(rule, "reasons"), reason),
			 (uintmax_t)whole(rule, "warmup"));
	else if (strcmp(reason, "below-minimum") == 0)
		snprintf(buf, cap, "below minimum %s", value(rule, "minimum", a, sizeof(a)));
	else if (strcmp(reason, "above-maximum") == 0)
		snprintf(buf, cap, "above maximum %s", value(rule, "maximum", a, sizeof(a)));
	else if (strcmp(reason, "within-bounds") == 0 && threshold > 0 && distance >= 0)
		snprintf(buf, cap, "within bounds, %s below", percent(100 * distance / threshold, a));
	else if (strcmp(reason, "pending") == 0)
		snprintf(buf, cap, "pending %s of %s", duration(rule, "pending_ns", a), duration(rule, "for_ns", b));
	else if (strcmp(reason, "cooldown") == 0)
		snprintf(buf, cap, "cooldown, %s left", duration(rule, "cooldown_left_ns", a));
	else if (strcmp(reason, "count-limit") == 0)
		snprintf(buf, cap, "count limit, %ju of %ju", (uintmax_t)whole(rule, "count"),
			 (uintmax_t)whole(rule, "count_limit"));
	else if (strcmp(reason, "disk-budget") == 0)
		snprintf(buf, cap, "no room for an incident");
	else
		text_escape(buf, cap, reason, strlen(reason));
}

/* And what the rule waits for besides. */
static void put_why(const struct json_node *rule, char *buf, size_t cap)
{
	const char *reason = statusview_text(rule, "reason");
	char left[UNITS_TEXT_MAX];
	size_t len;

	put_lack(rule, reason, buf, cap);
	len = strlen(buf);
	if (strcmp(reason, "cooldown") != 0 && strcmp(statusview_text(rule, "phase"), "cooldown") == 0)
		snprintf(buf + len, cap - len, "; cooldown %s", duration(rule, "cooldown_left_ns", left));
}

static void put_cells(const struct row *row, struct cells *ret)
{
	const char *target = statusview_text(row->target, "name"), *rule = statusview_text(row->rule, "rule");

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
	double threshold = statusview_number(rule, "threshold", NAN),
	       distance = statusview_number(rule, "distance", NAN);

	if (!isfinite(threshold) || !isfinite(distance))
		return INFINITY;

	return threshold > 0 ? distance / threshold : distance;
}

/* NULL with *ret_count 0: none; with another: no memory. */
static struct row *collect(const struct json_node *root, const struct statusview_filter *filter, size_t *ret_count)
{
	struct row *rows = NULL;
	size_t all = 0, count = 0;

	for (const struct json_node *t = first_of(root, "targets"); t; t = t->next)
		for (const struct json_node *r = first_of(t, "rules"); r; r = r->next)
			all++;
	*ret_count = all;
	if (all == 0 || !(rows = calloc(all, sizeof(*rows))))
		return NULL;

	for (const struct json_node *t = first_of(root, "targets"); t; t = t->next)
		for (const struct json_node *r = first_of(t, "rules"); r; r = r->next)
			if (statusview_wanted(filter, t, r)) {
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
	const struct json_node *reasons = member(rule, "reasons");
	char item[CELL_MAX], key[64];
	uintmax_t fired = whole(rule, "fired");
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
	}
}

ssize_t statusview_rules(const struct json_node *root, const struct statusview_filter *filter, size_t max, size_t width,
			 FILE *file)
{
	size_t count, shown;
	AUTO_FREE struct row *rows = collect(root, filter, &count);

	if (!rows && count > 0)
		return -ENOMEM;

	shown = max > 0 && count > max ? max : count;
	if (shown > 0)
		print(rows, shown, filter->count > 0, width, file);
	if (shown < count)
		fprintf(file, "... and %zu more: --rows 0 shows all, names of targets and rules show some\n",
			count - shown);
	if (whole(root, "left_out") > 0)
		fprintf(file, "The daemon left %ju out: its answer would have been too large.\n",
			(uintmax_t)whole(root, "left_out"));

	return (ssize_t)count;
}
