/*
 * status.c: spikewatch status: the daemon's health, then a table of rules on targets, sorted by
 * distance to firing.
 *
 * The document is parsed even for --json, so that the output is always JSON without control
 * characters. Cells of the table are made twice, for the widths and for printing; a table that is
 * too wide cuts names, never figures.
 */
#include "cli/base/client.h"
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/selection.h"
#include "lib/model/sample.h"
#include "lib/rules/metric.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- members of the answer ---- */

/* The first element of the array called key, or NULL. */
static const struct json_node *answer_first(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_ARRAY ? found->first : NULL;
}

/* Whether the member called key is true. */
static bool answer_is_true(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_BOOL && found->boolean;
}

/* A time in nanoseconds, a number of bytes, for people. Return buf. */
static const char *answer_duration(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_duration(buf, UNITS_TEXT_MAX, answer_whole(node, key));
}

static const char *answer_bytes(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_bytes(buf, UNITS_TEXT_MAX, answer_whole(node, key));
}

/* ---- health: figures, then a paragraph for each problem, then what is switched off ---- */

/* On stdout, in lines of at most width characters. */
__attribute__((format(printf, 2, 3))) static void put_paragraph(size_t width, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	output_wrap(text, width, stdout);
}

static void print_figures(const struct json_node *root, size_t width)
{
	const struct json_node *daemon = answer_member(root, "daemon"), *sampler = answer_member(root, "sampler"),
			       *ring = answer_member(root, "ring"), *found = answer_member(root, "discovery"),
			       *incidents = answer_member(root, "incidents");
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], text[64];
	uintmax_t threads = (uintmax_t)answer_whole(sampler, "threads");
	bool idle = answer_whole(sampler, "idle_interval_ns") > 0;
	uintmax_t open = (uintmax_t)answer_whole(incidents, "open");
	uintmax_t pending = (uintmax_t)answer_whole(incidents, "pending");

	put_paragraph(width, "spikewatchd %.32s, pid %ju, up %s: %s of a core, %s, %ju fds",
		      ANSWER_TEXT(daemon, "version", text), (uintmax_t)answer_whole(daemon, "pid"),
		      answer_duration(daemon, "uptime_ns", a),
		      units_format_percent(b, UNITS_TEXT_MAX, answer_number(daemon, "cpu_percent", NAN)),
		      answer_bytes(daemon, "memory_bytes", c), (uintmax_t)answer_whole(daemon, "open_fds"));
	*text = '\0';
	if (threads > 1)
		snprintf(text, sizeof(text), ", with %ju threads", threads);
	put_paragraph(width, "watches %ju targets (and %ju members of groups) of %ju processes, every %s%s%s%s",
		      (uintmax_t)answer_whole(found, "targets"), (uintmax_t)answer_whole(found, "members"),
		      (uintmax_t)answer_whole(found, "processes"), answer_duration(sampler, "interval_ns", a),
		      idle ? ", those that sleep at least every " : "",
		      idle ? answer_duration(sampler, "idle_interval_ns", b) : "", text);
	put_paragraph(width, "captured %s, woken %s late, reading all targets takes %s",
		      units_format_percent(a, UNITS_TEXT_MAX, answer_number(sampler, "capture_percent", NAN)),
		      answer_duration(sampler, "mean_sleep_error_ns", b),
		      answer_duration(sampler, "mean_collection_ns", c));
	*text = '\0';
	if (pending > open)
		snprintf(text, sizeof(text), ", %ju being written", pending - open);
	put_paragraph(width, "the ring holds %s in %s; incidents: %ju sealed, %ju open%s, %ju merged",
		      answer_duration(ring, "history_ns", a), answer_bytes(ring, "size_bytes", b),
		      (uintmax_t)answer_whole(incidents, "sealed"), open, text,
		      (uintmax_t)answer_whole(incidents, "merged"));
}

/* Nothing of an older daemon, or if files are what the configuration wants. */
static void print_cpu_time(const struct json_node *cpu_time, size_t width)
{
	char why[256];

	if (strcmp(answer_text(cpu_time, "source"), "kernel") == 0)
		put_paragraph(
			width, "CPU time of %ju processes and %ju cgroups from the scheduler (%ju switches a second)",
			(uintmax_t)answer_whole(cpu_time, "watched"), (uintmax_t)answer_whole(cpu_time, "cgroups"),
			(uintmax_t)answer_whole(cpu_time, "switches_per_second"));
	else if (*answer_text(cpu_time, "why"))
		put_paragraph(width, "CPU time from files, not from the scheduler: %s",
			      ANSWER_TEXT(cpu_time, "why", why));
	if (answer_whole(cpu_time, "coarse_rules") > 0)
		put_paragraph(
			width,
			"! rules on cgroups with windows shorter than two reads of their files: %ju. Their windows "
			"reach from read to read",
			(uintmax_t)answer_whole(cpu_time, "coarse_rules"));
}

/* Nothing if the configuration does not want them. */
static void print_stacks(const struct json_node *stacks, size_t width)
{
	char memory[UNITS_TEXT_MAX], why[200];

	if (!answer_is_true(stacks, "recorded")) {
		if (*answer_text(stacks, "why"))
			put_paragraph(width, "no stacks: %s", ANSWER_TEXT(stacks, "why", why));
		return;
	}
	put_paragraph(width, "stacks of %s%s, %ju times a second; %ju processes have events of their own%s; %s",
		      answer_is_true(stacks, "everybody") ? "all processes" : "watched processes",
		      answer_is_true(stacks, "page_faults") ? ", page faults too" : "",
		      (uintmax_t)answer_whole(stacks, "frequency"),
		      (uintmax_t)answer_whole(stacks, "followed_processes"),
		      answer_is_true(stacks, "dwarf") ? ", with registers and stack" : "",
		      answer_bytes(stacks, "memory_bytes", memory));
	if (*answer_text(stacks, "limits"))
		output_wrap(ANSWER_TEXT(stacks, "limits", why), width, stdout);
}

static void print_verdict(const struct json_node *verdict, size_t width)
{
	double threshold = answer_number(verdict, "threshold", NAN);
	char what[64], cause[256], remedy[256], a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];

	put_paragraph(width, "! %s: %s over the whole run, at %s %s expected%s. %s %s",
		      ANSWER_TEXT(verdict, "what", what),
		      units_format_percent(a, UNITS_TEXT_MAX, 100 * answer_number(verdict, "ratio", NAN)),
		      threshold > 0.5 ? "least" : "most", units_format_percent(b, UNITS_TEXT_MAX, 100 * threshold),
		      answer_is_true(verdict, "bad_now") ? ", and bad right now" : "",
		      ANSWER_TEXT(verdict, "cause", cause), ANSWER_TEXT(verdict, "remedy", remedy));
}

/* Counters that should be zero. */
static const struct {
	const char *section, *key, *text, *why;
} alarms[] = {
	{ "sampler", "lost_records", "records did not fit into the ring: enlarge ring.size", NULL },
	{ "ring", "unjudged_pages", "pages were never judged, the sampler was faster: enlarge ring.size", NULL },
	{ "discovery", "refused", "targets exceed sampling.max_targets and are not watched", NULL },
	{ "discovery", "failed", "targets cannot be opened", "failed_why" },
	{ "discovery", "cold", "processes are read without descriptors of their own: raise LimitNOFILE", NULL },
	{ "discovery", "unreadable", "processes cannot be read (hidepid, or owned by another user)", NULL },
	{ "discovery", "unlabelled", "containers are not selected by labels, because theirs cannot be read",
	  "unlabelled_why" },
	{ "health", "lost_log_entries", "entries of the log were lost: the journal did not take them in time", NULL },
	{ "health", "unanswered_reads",
	  "files of watched programs did not answer: what they have is missing in incidents", NULL },
	{ "health", "readers_left_behind", "processes of the daemon wait for such files, and cannot be ended", NULL },
	{ "incidents", "failed", "incidents could not be written; the log says why", NULL },
	{ "incidents", "refused", "firings opened no incident of their own: incidents of kind storm count them", NULL },
};

/* Minutes: one may be on its way to the disk. */
#define HISTORY_BEHIND 1

/* A line for each entry of "notify"; one that fails is a problem. */
static void print_notify(const struct json_node *incidents, size_t width)
{
	for (const struct json_node *way = answer_first(incidents, "notify"); way; way = way->next) {
		uintmax_t failed = (uintmax_t)(answer_whole(way, "failed") + answer_whole(way, "dropped"));
		uintmax_t limited = (uintmax_t)answer_whole(way, "limited");
		char name[80], why[200], more[128] = "";
		int len = 0;

		if (answer_whole(way, "pending") > 0)
			len = snprintf(more, sizeof(more), ", %ju waiting", (uintmax_t)answer_whole(way, "pending"));
		if (limited > 0)
			snprintf(more + len, sizeof(more) - (size_t)len, ", %ju left out (max_per_hour)", limited);
		ANSWER_TEXT(way, "name", name);
		if (answer_is_true(way, "failing"))
			put_paragraph(width, "! notify %s fails: %s; %ju sent, %ju given up%s", name,
				      ANSWER_TEXT(way, "why", why), (uintmax_t)answer_whole(way, "sent"), failed, more);
		else
			put_paragraph(width, "notify %s: %ju sent, %ju given up%s", name,
				      (uintmax_t)answer_whole(way, "sent"), failed, more);
	}
}

static void print_alarms(const struct json_node *root, size_t width)
{
	char why[200];

	for (size_t i = 0; i < ARRAY_LEN(alarms); i++) {
		const struct json_node *section = answer_member(root, alarms[i].section);
		uint64_t count = answer_whole(section, alarms[i].key);

		if (count == 0)
			continue;
		put_paragraph(width, "! %ju %s%s%s", (uintmax_t)count, alarms[i].text, alarms[i].why ? ": " : "",
			      alarms[i].why ? ANSWER_TEXT(section, alarms[i].why, why) : "");
	}
}

static void print_silent_threads(const struct json_node *health, size_t width)
{
	char silence[UNITS_TEXT_MAX], thread[64], where[96];

	for (const struct json_node *silent = answer_first(health, "silent_threads"); silent; silent = silent->next) {
		snprintf(where, sizeof(where), ": it is blocked in a read of the files of process %" PRIu64,
			 answer_whole(silent, "pid"));
		put_paragraph(width, "! the thread %s has given no sign of life for %s%s",
			      ANSWER_TEXT(silent, "thread", thread), answer_duration(silent, "silent_ns", silence),
			      answer_whole(silent, "pid") ? where : "");
	}
}

/* Missing privileges. Not an alarm: they may be missing on purpose. */
static void print_lacks(const struct json_node *daemon, size_t width)
{
	char needs[64], off[256];

	for (const struct json_node *lack = answer_first(daemon, "lacks"); lack; lack = lack->next)
		put_paragraph(width, "without %s: no %s", ANSWER_TEXT(lack, "needs", needs),
			      ANSWER_TEXT(lack, "off", off));
}

static void print_units(const struct json_node *units, size_t width)
{
	char name[300], why[200];

	if (answer_is_true(units, "wanted") && strcmp(answer_text(units, "source"), "cgroups") == 0)
		put_paragraph(width, "units: by the names of their cgroups only: %s", ANSWER_TEXT(units, "why", why));
	for (const struct json_node *unit = answer_first(units, "missing"); unit; unit = unit->next)
		put_paragraph(width, "! no unit %s: %s", ANSWER_TEXT(unit, "name", name),
			      ANSWER_TEXT(unit, "why", why));
}

/* Not an alarm: what they are for may come yet. */
static void print_unmatched(const struct json_node *discovery, size_t width)
{
	uint64_t more = answer_whole(discovery, "unmatched_entries");
	char entry[80], since[64];

	for (const struct json_node *row = answer_first(discovery, "unmatched"); row; row = row->next, more--)
		put_paragraph(width, "entry %s has matched nothing for %s", ANSWER_TEXT(row, "entry", entry),
			      units_format_duration(since, sizeof(since), answer_whole(row, "since_ns")));
	if (answer_first(discovery, "unmatched") && more > 0)
		put_paragraph(width, "%ju more match%s nothing", (uintmax_t)more, more == 1 ? "es" : "");
}

static void print_health(const struct json_node *root, size_t width)
{
	const struct json_node *daemon = answer_member(root, "daemon"), *found = answer_member(root, "discovery"),
			       *incidents = answer_member(root, "incidents"),
			       *storm = answer_member(incidents, "storm"), *sampler = answer_member(root, "sampler");
	char why[200], since[UNITS_TEXT_MAX], late[UNITS_TEXT_MAX];

	print_figures(root, width);
	print_cpu_time(answer_member(root, "cpu_time"), width);
	print_stacks(answer_member(root, "stacks"), width);
	print_units(answer_member(root, "units"), width);
	print_unmatched(answer_member(root, "discovery"), width);
	if (answer_number(daemon, "backing_off_ns", NAN) >= 0)
		put_paragraph(
			width,
			"! for %s, to keep sampling.cpu_budget, processes that sleep are looked at less often: the "
			"onset of a spike may be seen up to %s late",
			answer_duration(daemon, "backing_off_ns", since),
			answer_duration(sampler,
					answer_whole(sampler, "idle_interval_ns") > 0 ? "idle_interval_ns"
										      : "interval_ns",
					late));
	if (answer_whole(daemon, "slowdown") > 1)
		put_paragraph(width, "! sampling %ju times slower than configured, to keep sampling.cpu_budget",
			      (uintmax_t)answer_whole(daemon, "slowdown"));
	for (const struct json_node *v = answer_first(answer_member(root, "sampler"), "verdicts"); v; v = v->next)
		if (answer_is_true(v, "bad") || answer_is_true(v, "bad_now"))
			print_verdict(v, width);
	if (*answer_text(found, "unfinished_why"))
		put_paragraph(width, "! new targets are not found: %s", ANSWER_TEXT(found, "unfinished_why", why));
	if (answer_is_true(incidents, "disk_short"))
		put_paragraph(width, "! too little disk space for incidents (incidents.min_free): rules do not fire "
				     "until there is more");
	if (answer_whole(storm, "firings") > 0)
		put_paragraph(
			width,
			"! for %s more rules fire than incidents are opened: %ju firings of %ju rules and targets "
			"are counted, and will be in an incident of kind storm",
			answer_duration(storm, "since_ns", since), (uintmax_t)answer_whole(storm, "firings"),
			(uintmax_t)answer_whole(storm, "rules_and_targets"));
	if (answer_is_true(incidents, "memory_unsaved"))
		put_paragraph(width, "! cooldowns and counts cannot be saved and would not survive a restart; the log "
				     "says why");
	if (answer_whole(answer_member(root, "history"), "waiting") +
		    answer_whole(answer_member(root, "history"), "lost") >
	    HISTORY_BEHIND)
		put_paragraph(width, "! the history is behind: %ju minutes wait to be written, %ju were given up (%s)",
			      (uintmax_t)answer_whole(answer_member(root, "history"), "waiting"),
			      (uintmax_t)answer_whole(answer_member(root, "history"), "lost"),
			      ANSWER_TEXT(answer_member(root, "history"), "why", why));
	print_notify(incidents, width);
	print_alarms(root, width);
	print_silent_threads(answer_member(root, "health"), width);
	print_lacks(daemon, width);
}

/* ---- the table ---- */

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

/* Whether a rule on a target, both from the answer, is wanted. */
static bool is_wanted(const struct status_query *query, const struct json_node *target, const struct json_node *rule)
{
	return status_query_wants(query, answer_text(target, "name"), answer_text(target, "entry"),
				  answer_text(rule, "rule"));
}

static enum unit_kind unit_of(const struct json_node *rule)
{
	enum metric metric;

	return metric_by_name(answer_text(rule, "metric"), &metric) ? metric_unit(metric) : UNIT_COUNT;
}

static const char *value(const struct json_node *rule, const char *key, char *buf, size_t cap)
{
	double number = answer_number(rule, key, NAN);

	snprintf(buf, cap, "-");

	return isfinite(number) ? units_format(buf, cap, unit_of(rule), number, UNITS_READING) : buf;
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

/* What was there below the threshold; "": nothing in particular. */
static const char *describe_bounds(const struct json_node *rule)
{
	const struct json_node *burst = answer_member(rule, "burst");

	if (!burst)
		return "";
	return strcmp(answer_text(burst, "why"), "too-short") == 0 ? "burst too short, " : "burst badly placed, ";
}

/* The last burst that no window showed, in a line of its own. */
static void put_burst(const struct json_node *rule)
{
	const struct json_node *burst = answer_member(rule, "burst");
	char length[UNITS_TEXT_MAX], ago[UNITS_TEXT_MAX], height[UNITS_TEXT_MAX], best[UNITS_TEXT_MAX];

	if (!burst)
		return;
	units_format(height, sizeof(height), unit_of(rule), answer_number(burst, "value", 0), UNITS_READING);
	units_format(best, sizeof(best), unit_of(rule), answer_number(burst, "best_window", 0), UNITS_READING);
	printf("    %s ago a burst of %s at %s: %s in the window\n", answer_duration(burst, "ended_ago_ns", ago),
	       answer_duration(burst, "length_ns", length), height, best);
}

/* Why the last window did not fire. */
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
		snprintf(buf, cap, "%s%s below", describe_bounds(rule),
			 units_format_percent(a, UNITS_TEXT_MAX, 100 * distance / threshold));
	else if (strcmp(reason, "pending") == 0 && answer_whole(rule, "for_ns") == 0)
		snprintf(buf, cap, "pending, of the window that fired or still rising");
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

/* The reason, and a cooldown if there is another reason too. */
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

/* Its CPU time is, and the rule is about that and has a value. */
static bool is_estimate(const struct row *row)
{
	enum metric metric;

	return answer_whole(row->target, "cpu_estimated") > 0 && isfinite(answer_number(row->rule, "value", NAN)) &&
	       metric_by_name(answer_text(row->rule, "metric"), &metric) &&
	       (metric == METRIC_CPU || metric == METRIC_CPU_CORES);
}

static void put_cells(const struct row *row, struct cells *ret)
{
	const char *target = answer_text(row->target, "name"), *rule = answer_text(row->rule, "rule");
	char *figure = ret->text[VALUE];

	text_escape(ret->text[TARGET], CELL_MAX, target, strlen(target));
	text_escape(ret->text[RULE], CELL_MAX, rule, strlen(rule));
	*figure = '~';
	value(row->rule, "value", is_estimate(row) ? figure + 1 : figure, CELL_MAX - 1);
	put_threshold(row->rule, ret->text[THRESHOLD], CELL_MAX);
	value(row->rule, "average", ret->text[AVERAGE], CELL_MAX);
	put_why(row->rule, ret->text[WHY], CELL_MAX);
}

/*
 * Those of one target are one after the other in the answer, and stay so while they are equally
 * near.
 */
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
static struct row *collect(const struct json_node *root, const struct status_query *query, size_t *ret_count)
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
			if (is_wanted(query, t, r)) {
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

/* Leaves the average out, and then takes from the wider of the two names, until the table fits. */
static void shrink(size_t widths[COLUMNS], size_t width)
{
	size_t total = (COLUMNS - 1) * GAP;

	for (size_t i = 0; i < COLUMNS; i++)
		total += widths[i];
	if (total > width) {
		total -= widths[AVERAGE] + GAP;
		widths[AVERAGE] = 0;
	}
	while (total > width && (widths[TARGET] > NAME_MIN || widths[RULE] > NAME_MIN)) {
		widths[widths[TARGET] > widths[RULE] ? TARGET : RULE]--;
		total--;
	}
	if (total > width && widths[WHY] > NAME_MIN)
		widths[WHY] -= total - width < widths[WHY] - NAME_MIN ? total - width : widths[WHY] - NAME_MIN;
}

/*
 * A name in fewer characters than it has. Of a cgroup's path the last part says most, and that most
 * at its beginning; of other targets the end is what tells them apart, of rules the beginning.
 */
static void put_cut(enum column column, const char *text, size_t width)
{
	const char *from = column == TARGET && *text == '/' ? strrchr(text, '/') + 1 : text;
	size_t wide = characters(from);

	if (wide > width && column == TARGET && from == text)
		printf("..%s", text + output_prefix(text, wide - width + 2));
	else
		output_fit(from, width, OUTPUT_PAD_RIGHT | OUTPUT_CUT_DOTS, stdout);
}

static void put_cell(enum column column, const char *text, size_t width)
{
	if (width == 0)
		return;
	if (characters(text) > width)
		put_cut(column, text, width);
	else if (column == WHY)
		fputs(text, stdout);
	else
		output_fit(text, width, column >= VALUE ? OUTPUT_PAD_LEFT : OUTPUT_PAD_RIGHT, stdout);
	printf("%*s%s", column == WHY ? 0 : GAP, "", column == WHY ? "\n" : "");
}

static void put_line(const struct cells *cells, const size_t widths[COLUMNS])
{
	for (enum column column = 0; column < COLUMNS; column++)
		put_cell(column, cells->text[column], widths[column]);
}

/* How often each reason was given, in lines of their own. */
static void put_counts(const struct json_node *rule, size_t width)
{
	const struct json_node *reasons = answer_member(rule, "reasons");
	char item[CELL_MAX], key[64];
	uintmax_t fired = answer_whole(rule, "fired");
	size_t used = (size_t)printf("    fired %ju time%s", fired, fired == 1 ? "" : "s");
	const char *mark = ";";

	for (const struct json_node *r = reasons ? reasons->first : NULL; r; r = r->next) {
		if (!r->key || r->type != JSON_NUMBER)
			continue;
		text_escape(key, sizeof(key), r->key, r->key_len);
		snprintf(item, sizeof(item), "%s %.0f", key, r->number);
		fputs(mark, stdout);
		if (used + characters(item) + 2 >= width)
			used = (size_t)printf("\n    ") - 1;
		else
			putchar(' ');
		fputs(item, stdout);
		used += characters(item) + 2;
		mark = ",";
	}
	putchar('\n');
}

/* Those of its container, below the first of its rows. */
static void put_labels(const struct json_node *target, size_t width)
{
	const struct json_node *labels = answer_member(target, "labels");
	uintmax_t more = answer_whole(target, "labels_left_out");
	size_t used = 4;

	if (!labels || labels->type != JSON_OBJECT || (!labels->first && more == 0))
		return;
	fputs("    labels", stdout);
	used += strlen("labels");
	for (const struct json_node *label = labels->first; label; label = label->next) {
		char item[CELL_MAX], key[CELL_MAX / 2], value[CELL_MAX / 2];

		text_escape(key, sizeof(key), label->key, label->key_len);
		text_escape(value, sizeof(value), label->text ? label->text : "", label->text_len);
		snprintf(item, sizeof(item), "%s=%s", key, value);
		if (used + characters(item) + 1 >= width) {
			fputs("\n   ", stdout);
			used = 3;
		}
		printf(" %s", item);
		used += characters(item) + 1;
	}
	if (more > 0)
		printf(" and %ju more", more);
	putchar('\n');
}

static void view_print(const struct row *rows, size_t count, bool counts, size_t width)
{
	static const struct cells head = { { "TARGET", "RULE", "VALUE", "THRESHOLD", "AVERAGE", "WHY" } };
	size_t widths[COLUMNS], estimates = 0;
	struct cells cells;

	for (size_t k = 0; k < COLUMNS; k++)
		widths[k] = strlen(head.text[k]);
	for (size_t i = 0; i < count; i++) {
		put_cells(&rows[i], &cells);
		for (size_t k = 0; k < COLUMNS; k++)
			widths[k] = characters(cells.text[k]) > widths[k] ? characters(cells.text[k]) : widths[k];
	}
	shrink(widths, width);

	put_line(&head, widths);
	for (size_t i = 0; i < count; i++) {
		put_cells(&rows[i], &cells);
		put_line(&cells, widths);
		estimates += is_estimate(&rows[i]);
		if (counts)
			put_burst(rows[i].rule);
		if (counts)
			put_counts(rows[i].rule, width);
		if (counts && (i == 0 || rows[i - 1].target != rows[i].target))
			put_labels(rows[i].target, width);
	}
	if (estimates > 0)
		puts("~ an estimate: what processes that ended had used is not known exactly");
}

/*
 * The table, nearest to firing first, and with names the counts of each row. At most query->nearest
 * rows (0: all); says how many more there are, with those that the daemon left out. Returns how
 * many rows match; -ENOMEM.
 */
static ssize_t print_rules(const struct json_node *root, const struct status_query *query, size_t width)
{
	uint64_t farther = answer_whole(root, "farther"), left_out = answer_whole(root, "left_out");
	size_t count, shown;
	AUTO_FREE struct row *rows = collect(root, query, &count);

	if (!rows && count > 0)
		return -ENOMEM;

	shown = query->nearest > 0 && count > query->nearest ? query->nearest : count;
	if (shown > 0)
		view_print(rows, shown, status_query_chooses(query), width);
	if (shown < count || farther > 0)
		printf("... and %ju more: --rows 0 shows all, names of targets and rules show some\n",
		       (uintmax_t)(count - shown + farther));
	if (left_out > 0)
		printf("The daemon left %ju out: its answer would have been too large.\n", (uintmax_t)left_out);

	return (ssize_t)count;
}

#define ROWS_DEFAULT 40

struct request {
	const char *socket; /* NULL: where daemons are by default */
	bool json;
	struct status_query query;
};

/* ---- JSON ---- */

static void emit(struct json_writer *json, const struct json_node *node);

static void emit_member(struct json_writer *json, const struct json_node *node)
{
	if (node->key)
		json_key(json, node->key);
	emit(json, node);
}

static void emit_number(struct json_writer *json, const struct json_node *node)
{
	const char *end = node->text + node->text_len;
	uint64_t number;

	/* Of a double the last digits would be lost. */
	if (text_parse_u64(node->text, end, &number) == end)
		json_u64(json, number);
	else
		json_double(json, node->number);
}

/* As deep as limits.depth. */
static void emit(struct json_writer *json, const struct json_node *node)
{
	const struct json_node *child = node->first;

	switch (node->type) {
	case JSON_NULL:
		json_null(json);
		break;
	case JSON_BOOL:
		json_bool(json, node->boolean);
		break;
	case JSON_NUMBER:
		emit_number(json, node);
		break;
	case JSON_STRING:
		printable_json(json, node->text);
		break;
	case JSON_ARRAY:
		json_begin_array(json);
		for (; child; child = child->next)
			emit_member(json, child);
		json_end_array(json);
		break;
	case JSON_OBJECT:
		json_begin_object(json);
		for (; child; child = child->next)
			emit_member(json, child);
		json_end_object(json);
		break;
	}
}

static bool is_array(const struct json_node *node, const char *key)
{
	return node->type == JSON_ARRAY && node->key && strcmp(node->key, key) == 0;
}

/* A target with those of its rules that are wanted. */
static void emit_target(struct json_writer *json, const struct json_node *target, const struct status_query *query)
{
	json_begin_object(json);
	for (const struct json_node *member = target->first; member; member = member->next) {
		if (!is_array(member, "rules")) {
			emit_member(json, member);
			continue;
		}
		json_member_array(json, "rules");
		for (const struct json_node *rule = member->first; rule; rule = rule->next)
			if (is_wanted(query, target, rule))
				emit(json, rule);
		json_end_array(json);
	}
	json_end_object(json);
}

static bool any_wanted(const struct json_node *target, const struct status_query *query)
{
	const struct json_node *rules = json_member(target, "rules");

	for (const struct json_node *rule = rules ? rules->first : NULL; rule; rule = rule->next)
		if (is_wanted(query, target, rule))
			return true;
	return false;
}

/* Returns how many targets are in it. */
static size_t emit_targets(struct json_writer *json, const struct json_node *targets, const struct status_query *query)
{
	size_t count = 0;

	json_member_array(json, "targets");
	for (const struct json_node *target = targets->first; target; target = target->next) {
		if (target->type != JSON_OBJECT || !any_wanted(target, query))
			continue;
		emit_target(json, target, query);
		count++;
	}
	json_end_array(json);
	return count;
}

/* ---- the command ---- */

static int nothing_matches(void)
{
	fprintf(stderr, "spikewatch status: no rule and no judged target has this name.\n");
	return EXIT_TROUBLE;
}

static int print_json(const struct json_node *root, const struct status_query *query)
{
	AUTO(json_writer_closep) struct json_writer *json = NULL;
	size_t targets = 0;

	if (output_json_new(&json) < 0)
		return output_no_memory();

	json_begin_object(json);
	for (const struct json_node *member = root->first; member; member = member->next) {
		if (is_array(member, "targets"))
			targets += emit_targets(json, member, query);
		else
			emit_member(json, member);
	}
	json_end_object(json);
	return targets > 0 || !status_query_chooses(query) || query->brief ? EXIT_OK : nothing_matches();
}

static int print_text(const struct json_node *root, const struct status_query *query)
{
	struct plot_style style;
	ssize_t rows;

	plot_style_detect(stdout, &style);
	print_health(root, style.width);
	if (query->brief)
		return EXIT_OK;
	putchar('\n');
	rows = print_rules(root, query, style.width);
	if (rows < 0)
		return output_no_memory();
	if (rows == 0 && status_query_chooses(query))
		return nothing_matches();
	if (rows == 0)
		printf("No rule looks at any target yet.\n");
	return EXIT_OK;
}

static int print(const struct json_node *root, const struct request *request)
{
	const char *error = answer_text(root, "error");

	if (!json_member(root, "daemon")) {
		fprintf(stderr, "spikewatch status: the answer is not that of a known spikewatchd: ");
		output_escaped(stderr, *error ? error : "it does not describe itself");
		fputc('\n', stderr);
		return EXIT_TROUBLE;
	}
	return request->json ? print_json(root, &request->query) : print_text(root, &request->query);
}

/* A query that is too long for the line is asked without names, and filtered here. */
static void write_request(const struct status_query *query, char *buf, size_t cap)
{
	const struct status_query all = { .brief = query->brief };
	struct status_query asked = *query;
	size_t len = (size_t)snprintf(buf, cap, "status ");

	if (asked.nearest > STATUS_QUERY_NEAREST_MAX)
		asked.nearest = 0;
	if (status_query_format(&asked, buf + len, cap - len) < 0)
		status_query_format(&all, buf + len, cap - len);
	if (buf[len] == '\0')
		buf[len - 1] = '\0';
}

static int ask_and_print(const struct request *request)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	char line[STATUS_QUERY_LINE_MAX];
	struct ask ask = { .command = "spikewatch status", .socket = request->socket, .request = line };
	int code;

	write_request(&request->query, line, sizeof(line) - 1);
	code = ask_daemon(&ask, &document);

	return code == EXIT_OK ? print(json_root(document), request) : code;
}

int status_command(int argc, char **argv)
{
	struct request request = { 0 };
	uint64_t rows = UINT64_MAX;
	const struct option_spec options[] = {
		{ 's', "socket", OPTION_TEXT, "PATH", "the daemon's; see below", &request.socket },
		{ 'n', "rows", OPTION_NUMBER, "N", "only this many, the nearest to firing; 0 all (40; JSON: all)",
		  &rows },
		{ 't', "target", OPTION_TEXT, "NAME", "of targets or entries called so; * and ? match anything",
		  &request.query.target },
		{ 'r', "rule", OPTION_TEXT, "NAME", "of rules called so", &request.query.rule },
		{ 'b', "brief", OPTION_FLAG, NULL, "only the daemon, no targets", &request.query.brief },
		{ 0, "json", OPTION_FLAG, NULL, "everything, as JSON", &request.json },
	};
	const struct options_usage usage = {
		.command = "spikewatch status",
		.operands = "[TARGET|RULE...]",
		.summary = "Says how the daemon is, and why each rule did or did not fire.",
		.description = "Rules nearest to firing come first. With names (of targets, of their entries, or\n"
			       "of rules; * and ? stand for anything) only those, and how often each reason was\n"
			       "given. PATH is by default /run/spikewatch/control; for others than root first the\n"
			       "same below $XDG_RUNTIME_DIR or ~/.cache. It is always beside the ring.",
		.example = "spikewatch status 'postgres*'\n"
			   "spikewatch status --json | jq .sampler.capture_percent",
		.exits = "0 answered, 1 no daemon or no such name, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	request.query.nearest = rows == UINT64_MAX ? request.json ? 0 : ROWS_DEFAULT : rows;
	request.query.names = argv + first;
	request.query.name_count = (size_t)(argc - first);
	return ask_and_print(&request);
}
