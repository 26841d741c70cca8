/* healthview.c: figures first, then a paragraph for each thing that is wrong, then what is off. */
#include "healthview.h"

#include "answer.h"
#include "output.h"
#include "scope.h"

#include <inttypes.h>
#include <math.h>

static void say_figures(const struct json_node *root, size_t width, FILE *file)
{
	const struct json_node *daemon = answer_member(root, "daemon"), *sampler = answer_member(root, "sampler"),
			       *ring = answer_member(root, "ring"), *found = answer_member(root, "discovery"),
			       *incidents = answer_member(root, "incidents");
	char line[512], a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], c[UNITS_TEXT_MAX], text[64];
	uintmax_t threads = (uintmax_t)answer_whole(sampler, "threads");
	bool idle = answer_whole(sampler, "idle_interval_ns") > 0;

	snprintf(line, sizeof(line), "spikewatchd %.32s, pid %ju, up %s: %s of a core, %s, %ju fds",
		 ANSWER_TEXT(daemon, "version", text), (uintmax_t)answer_whole(daemon, "pid"),
		 answer_duration(daemon, "uptime_ns", a),
		 units_format_percent(b, UNITS_TEXT_MAX, answer_number(daemon, "cpu_percent", NAN)),
		 answer_bytes(daemon, "memory_bytes", c), (uintmax_t)answer_whole(daemon, "open_fds"));
	output_wrap(line, width, file);
	*text = '\0';
	if (threads > 1)
		snprintf(text, sizeof(text), ", with %ju threads", threads);
	snprintf(line, sizeof(line), "watches %ju targets (and %ju members of groups) of %ju processes, every %s%s%s%s",
		 (uintmax_t)answer_whole(found, "targets"), (uintmax_t)answer_whole(found, "members"),
		 (uintmax_t)answer_whole(found, "processes"), answer_duration(sampler, "interval_ns", a),
		 idle ? ", those that are idle every " : "",
		 idle ? answer_duration(sampler, "idle_interval_ns", b) : "", text);
	output_wrap(line, width, file);
	snprintf(line, sizeof(line), "captured %s, woken %s late, a look at all takes %s",
		 units_format_percent(a, UNITS_TEXT_MAX, answer_number(sampler, "capture_percent", NAN)),
		 answer_duration(sampler, "mean_sleep_error_ns", b), answer_duration(sampler, "mean_collection_ns", c));
	output_wrap(line, width, file);
	snprintf(line, sizeof(line), "the ring holds %s in %s; incidents: %ju sealed, %ju open, %ju merged",
		 answer_duration(ring, "history_ns", a), answer_bytes(ring, "size_bytes", b),
		 (uintmax_t)answer_whole(incidents, "sealed"), (uintmax_t)answer_whole(incidents, "open"),
		 (uintmax_t)answer_whole(incidents, "merged"));
	output_wrap(line, width, file);
}

/* Nothing if the configuration does not want them. */
static void say_stacks(const struct json_node *stacks, size_t width, FILE *file)
{
	char line[512], memory[UNITS_TEXT_MAX], why[200];

	if (!answer_is_true(stacks, "recorded")) {
		snprintf(line, sizeof(line), "no stacks: %s", ANSWER_TEXT(stacks, "why", why));
		if (*answer_text(stacks, "why"))
			output_wrap(line, width, file);
		return;
	}
	snprintf(line, sizeof(line), "stacks of %s%s, %ju times a second; %ju processes have events of their own%s; %s",
		 answer_is_true(stacks, "everybody") ? "everybody" : "what is watched",
		 answer_is_true(stacks, "page_faults") ? ", page faults too" : "",
		 (uintmax_t)answer_whole(stacks, "frequency"), (uintmax_t)answer_whole(stacks, "followed_processes"),
		 answer_is_true(stacks, "dwarf") ? ", with registers and stack" : "",
		 answer_bytes(stacks, "memory_bytes", memory));
	output_wrap(line, width, file);
	if (*answer_text(stacks, "limits"))
		output_wrap(ANSWER_TEXT(stacks, "limits", why), width, file);
}

static void say_verdict(const struct json_node *verdict, size_t width, FILE *file)
{
	double threshold = answer_number(verdict, "threshold", NAN);
	char line[1024], what[64], cause[256], remedy[256], a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];

	snprintf(line, sizeof(line), "! %s: %s over the whole run, at %s %s expected%s. %s %s",
		 ANSWER_TEXT(verdict, "what", what),
		 units_format_percent(a, UNITS_TEXT_MAX, 100 * answer_number(verdict, "ratio", NAN)),
		 threshold > 0.5 ? "least" : "most", units_format_percent(b, UNITS_TEXT_MAX, 100 * threshold),
		 answer_is_true(verdict, "bad_now") ? ", and bad right now" : "", ANSWER_TEXT(verdict, "cause", cause),
		 ANSWER_TEXT(verdict, "remedy", remedy));
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
	{ "discovery", "cold", "processes are read without descriptors of their own: raise LimitNOFILE", NULL },
	{ "discovery", "unreadable", "processes may not be looked at (hidepid, or another user's)", NULL },
	{ "discovery", "unlabelled", "containers are selected by no labels, since theirs cannot be read",
	  "unlabelled_why" },
	{ "health", "lost_log_entries", "entries of the log were lost: the journal did not take them in time", NULL },
	{ "incidents", "failed", "incidents could not be written; the log says why", NULL },
	{ "incidents", "refused", "firings were refused because too many incidents were open", NULL },
};

static void say_alarms(const struct json_node *root, size_t width, FILE *file)
{
	char line[512], why[200];

	for (size_t i = 0; i < ARRAY_LEN(alarms); i++) {
		const struct json_node *section = answer_member(root, alarms[i].section);
		uint64_t count = answer_whole(section, alarms[i].key);

		if (count == 0)
			continue;
		snprintf(line, sizeof(line), "! %ju %s%s%s", (uintmax_t)count, alarms[i].text,
			 alarms[i].why ? ": " : "", alarms[i].why ? ANSWER_TEXT(section, alarms[i].why, why) : "");
		output_wrap(line, width, file);
	}
}

static void say_disk(const struct json_node *incidents, size_t width, FILE *file)
{
	if (answer_is_true(incidents, "disk_short"))
		output_wrap(
			"! too little disk space for incidents (incidents.min_free): rules do not fire until there is "
			"more",
			width, file);
	if (answer_is_true(incidents, "memory_unsaved"))
		output_wrap("! cooldowns and counts cannot be saved and would not survive a restart; the log says why",
			    width, file);
}

static void say_silent(const struct json_node *health, size_t width, FILE *file)
{
	char line[256], a[UNITS_TEXT_MAX], thread[64];

	for (const struct json_node *silent = answer_first(health, "silent_threads"); silent; silent = silent->next) {
		snprintf(line, sizeof(line), "! the thread %s has given no sign of life for %s",
			 ANSWER_TEXT(silent, "thread", thread), answer_duration(silent, "silent_ns", a));
		if (answer_whole(silent, "pid"))
			snprintf(line + strlen(line), sizeof(line) - strlen(line),
				 ": it hangs in a read of the files of process %" PRIu64, answer_whole(silent, "pid"));
		output_wrap(line, width, file);
	}
}

/* What it may not do. No alarm: it may be meant so. */
static void say_lacks(const struct json_node *daemon, size_t width, FILE *file)
{
	char line[512], needs[64], off[256];

	for (const struct json_node *lack = answer_first(daemon, "lacks"); lack; lack = lack->next) {
		snprintf(line, sizeof(line), "without %s: no %s", ANSWER_TEXT(lack, "needs", needs),
			 ANSWER_TEXT(lack, "off", off));
		output_wrap(line, width, file);
	}
}

static void say_units(const struct json_node *units, size_t width, FILE *file)
{
	char line[640], name[300], why[200];

	if (answer_is_true(units, "wanted") && strcmp(answer_text(units, "source"), "cgroups") == 0) {
		snprintf(line, sizeof(line), "units: by the names of their cgroups only: %s",
			 ANSWER_TEXT(units, "why", why));
		output_wrap(line, width, file);
	}
	for (const struct json_node *unit = answer_first(units, "missing"); unit; unit = unit->next) {
		snprintf(line, sizeof(line), "! no unit %s: %s", ANSWER_TEXT(unit, "name", name),
			 ANSWER_TEXT(unit, "why", why));
		output_wrap(line, width, file);
	}
}

void healthview_print(const struct json_node *root, size_t width, FILE *file)
{
	const struct json_node *daemon = answer_member(root, "daemon"), *found = answer_member(root, "discovery");
	char line[512], why[200];

	say_figures(root, width, file);
	say_stacks(answer_member(root, "stacks"), width, file);
	say_units(answer_member(root, "units"), width, file);
	if (answer_whole(daemon, "slowdown") > 1) {
		snprintf(line, sizeof(line), "! sampling %ju times slower than configured, to keep sampling.cpu_budget",
			 (uintmax_t)answer_whole(daemon, "slowdown"));
		output_wrap(line, width, file);
	}
	for (const struct json_node *v = answer_first(answer_member(root, "sampler"), "verdicts"); v; v = v->next)
		if (answer_is_true(v, "bad") || answer_is_true(v, "bad_now"))
			say_verdict(v, width, file);
	if (*answer_text(found, "unfinished_why")) {
		snprintf(line, sizeof(line), "! new targets are not found: %s",
			 ANSWER_TEXT(found, "unfinished_why", why));
		output_wrap(line, width, file);
	}
	say_disk(answer_member(root, "incidents"), width, file);
	say_alarms(root, width, file);
	say_silent(answer_member(root, "health"), width, file);
	say_lacks(daemon, width, file);
}
