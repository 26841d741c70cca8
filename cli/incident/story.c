/*
 * story.c: one function per sentence. Sentences without content are left out, but whether something
 * was lost is always told.
 */
#include "cli/incident/story.h"

#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "lib/base/units.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

/* "182.4 %", "1.50 cores", "300 MiB", "12", "1234 /s"; unit as in incident_rule. */
static const char *story_value(const char *unit, double value, char *buf, size_t cap)
{
	return units_format(buf, cap, units_by_name(unit), value, UNITS_COLUMN);
}

/* The value above the average at which it fires, but not below its minimum. */
static double above_average(const struct incident_rule *rule)
{
	const struct trigger_rule *thresholds = &rule->thresholds;
	double level = rule->average * (100 + thresholds->delta) / 100;

	return thresholds->has_minimum && thresholds->minimum > level ? thresholds->minimum : level;
}

bool story_threshold(const struct incident_rule *rule, double *ret)
{
	const struct trigger_rule *thresholds = &rule->thresholds;

	if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_AVERAGE)) == 0 && rule->has_average &&
	    thresholds->has_delta)
		*ret = above_average(rule);
	else if (thresholds->has_percent)
		*ret = thresholds->percent;
	else
		return false;
	return isfinite(*ret);
}

const char *story_comparison(const struct incident_rule *rule, char *buf, size_t cap)
{
	char value[64], threshold[64];
	double level;

	if (!rule->has_value)
		snprintf(buf, cap, "-");
	else if (!story_threshold(rule, &level))
		snprintf(buf, cap, "%s", story_value(rule->unit, rule->value, value, sizeof(value)));
	else
		/* A rule on the average fires also if the value is equal. */
		snprintf(buf, cap, "%s %s %s", story_value(rule->unit, rule->value, value, sizeof(value)),
			 rule->value > level   ? ">"
			 : rule->value < level ? "<"
					       : "=",
			 story_value(rule->unit, level, threshold, sizeof(threshold)));
	return buf;
}

const char *story_time(wall_t wall, bool precise, char *buf, size_t cap)
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	char day[40] = "", zone[16] = "";
	struct tm local;

	if (localtime_r(&seconds, &local)) {
		strftime(day, sizeof(day), "%Y-%m-%d %H:%M:%S", &local);
		strftime(zone, sizeof(zone), "%z", &local);
	}
	if (precise)
		snprintf(buf, cap, "%s.%03u%s", day, (unsigned)(wall.ns % NS_PER_S / NS_PER_MS), zone);
	else
		snprintf(buf, cap, "%s%s", day, zone);
	return buf;
}

static enum metric_of of_by_name(const char *name)
{
	for (unsigned of = METRIC_OF_LIMIT; of <= METRIC_OF_MACHINE; of++) {
		if (strcmp(name, metric_of_name((enum metric_of)of)) == 0)
			return (enum metric_of)of;
	}
	return METRIC_OF_LIMIT;
}

static bool is_below(const struct incident_rule *rule)
{
	return strcmp(rule->reason, trigger_reason_name(TRIGGER_BELOW_PERCENT)) == 0;
}

bool story_above(const struct incident *incident, const struct series *series, struct series_above *ret)
{
	const struct incident_rule *rule = &incident->rule;
	struct series_rule search = { .of = of_by_name(rule->of), .window_ns = rule->window_ns };

	if (is_below(rule) || rule->window_ns == 0 || rule->window_ns > DAY_NS ||
	    !story_threshold(rule, &search.threshold) || !metric_by_name(rule->metric, &search.metric))
		return false;
	/* The machine's size is recorded where it is the limit. */
	if (incident->limits.cpu_is_machine)
		search.machine.cores = (double)incident->limits.cpu / 1e9;
	if (incident->limits.memory_is_machine)
		search.machine.memory_bytes = incident->limits.memory_bytes;
	return series_above(series, &search, ret);
}

/* ---- sentences ---- */

static const char *metric_subject(const char *metric)
{
	static const char *const words[][2] = {
		{ "cpu", "CPU use" },
		{ "cpu_cores", "CPU use" },
		{ "memory", "memory use" },
		{ "memory_bytes", "memory use" },
		{ "memory_peak", "the memory peak" },
		{ "threads", "the number of threads" },
		{ "fds", "the number of open descriptors" },
		{ "faults", "the rate of page faults" },
		{ "throttled", "the share of throttled CPU periods" },
		{ "pids", "the number of tasks" },
		{ "cpu_wait", "the time without a CPU" },
		{ "cpu_pressure", "CPU pressure" },
		{ "memory_pressure", "memory pressure" },
		{ "io_pressure", "I/O pressure" },
	};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(metric, words[i][0]) == 0)
			return words[i][1];
	}
	return "a metric";
}

static void tell_target(const struct incident_target *target, FILE *file)
{
	output_escaped(file, target->name[0] ? target->name : "an unknown target");
	if (target->kind == TARGET_PROCESS && target->comm[0] &&
	    strncmp(target->name, target->comm, strlen(target->comm)) != 0) {
		fputs(" (", file);
		output_escaped(file, target->comm);
		fputs(")", file);
	}
}

static void tell_value(const struct incident_rule *rule, FILE *file)
{
	char text[64];

	fputs(story_value(rule->unit, rule->value, text, sizeof(text)), file);
	if (strcmp(rule->of, "limit") == 0)
		fputs(" of its limit", file);
	else if (strcmp(rule->of, "core") == 0)
		fputs(" of one core", file);
	else if (strcmp(rule->of, "machine") == 0)
		fputs(" of the machine", file);
	if (rule->window_ns > 0)
		fprintf(file, " over %s", units_format_duration(text, sizeof(text), rule->window_ns));
}

static void tell_rule(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	const struct incident_rule *rule = &incident->rule;
	struct series_above above;
	char text[64], average[64];
	double level;

	fputs(": rule ", file);
	output_escaped(file, rule->name);
	if (!story_threshold(rule, &level))
		fputs(" fired.", file);
	else if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_AVERAGE)) == 0)
		fprintf(file, " fires %.0f %% above the %s before (%s), from %s on.", rule->thresholds.delta,
			trigger_usual_name(rule->thresholds.usual),
			story_value(rule->unit, rule->average, average, sizeof(average)),
			story_value(rule->unit, level, text, sizeof(text)));
	else if (story_above(incident, &samples->series, &above) && above.has_before)
		fprintf(file, " fires above %s; the average before it rose was %s.",
			story_value(rule->unit, level, text, sizeof(text)),
			story_value(rule->unit, above.before, average, sizeof(average)));
	else
		fprintf(file, " fires %s %s.", is_below(rule) ? "below" : "above",
			story_value(rule->unit, level, text, sizeof(text)));
}

static uint64_t recovered_ns(const struct incident *incident)
{
	return incident->coverage.got_from_ns < 0 ? (uint64_t)-incident->coverage.got_from_ns : 0;
}

static void tell_what(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	const struct incident_rule *rule = &incident->rule;
	char text[64];

	fprintf(file, "On %s, ", story_time(incident->wall, true, text, sizeof(text)));
	if (incident->kind == INCIDENT_RECOVERED) {
		fprintf(file, "the daemon died. This is what its ring held of all targets, the last %s.",
			units_format_duration(text, sizeof(text), recovered_ns(incident)));
	} else if (incident->kind == INCIDENT_STORM) {
		fprintf(file,
			"rules began to fire more often than incidents are opened. In %s %ju firings opened none of "
			"their own; here they are counted.",
			units_format_duration(text, sizeof(text),
					      (uint64_t)mono_diff(incident->window_to, incident->window_from)),
			(uintmax_t)incident->merged_total);
	} else if (incident->kind == INCIDENT_MANUAL) {
		fputs("a record of ", file);
		if (incident_of_everything(incident))
			fputs("all targets", file);
		else
			tell_target(&incident->target, file);
		fputs(" was asked for by hand.", file);
	} else if (!rule->has_value) {
		fputs("rule ", file);
		output_escaped(file, rule->name[0] ? rule->name : "(unknown)");
		fputs(" fired on ", file);
		tell_target(&incident->target, file);
		fputs("; the value is not known.", file);
	} else {
		fprintf(file, "%s of ", metric_subject(rule->metric));
		tell_target(&incident->target, file);
		fputs(" was ", file);
		tell_value(rule, file);
		tell_rule(incident, samples, file);
	}
}

/* To a hundredth of a second in the first minute, then to a second. */
static void tell_unit(const struct incident *incident, FILE *file)
{
	const struct incident_unit *unit = &incident->unit;
	uint64_t grain_ns = unit->running_ns < 60 * NS_PER_S ? 10 * NS_PER_MS : NS_PER_S;
	bool restarted = unit->has_restarts && unit->restarts > 0;
	char text[64];

	if (!incident->has_unit || (!unit->has_running && !restarted))
		return;
	fputs(" Its unit, ", file);
	output_escaped(file, unit->name);
	fputs(",", file);
	if (unit->has_running)
		fprintf(file, " was started %s before",
			units_format_duration(text, sizeof(text), unit->running_ns - unit->running_ns % grain_ns));
	if (restarted)
		fprintf(file, "%s restarted %ju %s by systemd", unit->has_running ? "," : " was",
			(uintmax_t)unit->restarts, unit->restarts == 1 ? "time" : "times");
	fputs(".", file);
}

/* Further labels are counted. */
#define LABELS_TOLD 12u

static void tell_labels(const struct labels *labels, FILE *file)
{
	uintmax_t told = 0, all = (uintmax_t)labels->count + labels->left_out;

	if (labels->count == 0)
		return;
	fputs(" Its container is labelled", file);
	for (const char *key = labels_next(labels, NULL); key && told < LABELS_TOLD; key = labels_next(labels, key)) {
		fputs(told++ ? ", " : " ", file);
		output_escaped(file, key);
		fputs("=", file);
		output_escaped(file, labels_value(key));
	}
	if (told < all)
		fprintf(file, " and %ju more", all - told);
	fputs(".", file);
}

/* brief: of a limit that is the machine's the share is not told. */
static void tell_peaks(const struct incident *incident, bool brief, FILE *file)
{
	const struct sample_window_peaks *peaks = &incident->peaks;
	uint64_t memory = peaks->has_memory_peak ? peaks->memory_peak_bytes : peaks->memory_bytes;
	char text[64], limit[64];

	if (peaks->has_cpu) {
		fprintf(file, " It used at most %.2f cores", peaks->cpu_cores);
		if (peaks->cpu_window_ns > 0)
			fprintf(file, " over %s", units_format_duration(text, sizeof(text), peaks->cpu_window_ns));
	}
	if (peaks->has_memory || peaks->has_memory_peak) {
		fprintf(file, "%s peaked at %s", peaks->has_cpu ? "; memory" : " Its memory",
			units_format(text, sizeof(text), UNIT_BYTES, (double)memory, UNITS_COLUMN));
		if (incident->limits.memory_bytes != UINT64_MAX && incident->limits.memory_bytes > 0 &&
		    !(brief && incident->limits.memory_is_machine))
			fprintf(file, ", %.1f %% of %s", (double)memory * 100 / (double)incident->limits.memory_bytes,
				units_format(limit, sizeof(limit), UNIT_BYTES, (double)incident->limits.memory_bytes,
					     UNITS_COLUMN));
	}
	if (peaks->has_cpu || peaks->has_memory || peaks->has_memory_peak)
		fputs(".", file);
}

/* Of members of a group: what is uncertain in its CPU time. */
static void tell_ended(const struct incident *incident, FILE *file)
{
	char text[64];

	if (strcmp(incident->ended_cpu, INCIDENT_ENDED_SEEN) == 0)
		fputs(" Its CPU time is an estimate: of members that ended it has what they were seen to use.", file);
	else if (incident->ended_cpu[0] && incident->has_ended_cpu_lack)
		fprintf(file,
			" Its CPU time is an estimate: of members that ended up to %s may be missing for each parent.",
			units_format_duration(text, sizeof(text), incident->ended_cpu_lack_ns));
}

static void tell_duration(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	const struct sample_window_coverage *coverage = &incident->coverage;
	char time[64], all[64];
	struct series_above above;
	uint64_t span = (uint64_t)coverage->got_to_ns - (uint64_t)coverage->got_from_ns;

	if (!story_above(incident, &samples->series, &above) || coverage->got_to_ns <= coverage->got_from_ns)
		return;
	fprintf(file, " It was above that for %s of the %s recorded.",
		units_format_duration(time, sizeof(time), above.ns), units_format_duration(all, sizeof(all), span));
}

/* What waited less than this part of the time in which it was runnable is not told of. */
#define WAITING_TOLD_PERCENT 20
#define WAITING_TOLD_NS (50 * NS_PER_MS)

/* How long it ran and waited for a CPU from the window's beginning on. False: not known, or not worth telling. */
static bool waited_for_cpu(const struct incident *incident, const struct series *series, uint64_t *ret_cpu_ns,
			   uint64_t *ret_wait_ns)
{
	int64_t from_ns = -mono_diff(incident->window_to, incident->window_from);
	const struct sample *first = NULL, *last = NULL;

	for (size_t i = 0; i < series->count; i++) {
		const struct series_point *point = &series->points[i];

		if (point->at_ns < from_ns || !sample_has(&point->sample, SAMPLE_CPU_WAIT) ||
		    !sample_has(&point->sample, SAMPLE_CPU))
			continue;
		first = first ? first : &point->sample;
		last = &point->sample;
	}
	if (!first || last->value[SAMPLE_CPU] < first->value[SAMPLE_CPU] ||
	    last->value[SAMPLE_CPU_WAIT] < first->value[SAMPLE_CPU_WAIT])
		return false;
	*ret_cpu_ns = last->value[SAMPLE_CPU] - first->value[SAMPLE_CPU];
	*ret_wait_ns = last->value[SAMPLE_CPU_WAIT] - first->value[SAMPLE_CPU_WAIT];
	return *ret_wait_ns >= WAITING_TOLD_NS &&
	       *ret_wait_ns * 100 >= (*ret_cpu_ns + *ret_wait_ns) * WAITING_TOLD_PERCENT;
}

/* The other half of a spike: it wanted to run, and others did. */
static void tell_waiting(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	uint64_t cpu_ns, wait_ns;
	char ran[64], waited[64];

	if (!waited_for_cpu(incident, &samples->series, &cpu_ns, &wait_ns))
		return;
	fprintf(file,
		" From the beginning of the window on it waited for a CPU for %s, and ran for %s: others took it, "
		"or its quota did.",
		units_format_duration(waited, sizeof(waited), wait_ns),
		units_format_duration(ran, sizeof(ran), cpu_ns));
}

static void tell_gone(const struct incident *incident, FILE *file)
{
	char text[64];
	int64_t ns = incident->coverage.gone_ns;

	if (!incident->coverage.gone)
		return;
	fprintf(file, " The target ended %s %s the trigger.",
		units_format_duration(text, sizeof(text), ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns),
		ns < 0 ? "before" : "after");
}

bool story_holes(const struct sample_window_coverage *coverage, uint64_t longest_ns, char *buf, size_t cap)
{
	char all[64], longest[64], holes[160] = "", suspended[96] = "";

	units_format_duration(longest, sizeof(longest), coverage->longest_hole_ns);
	if (coverage->holes == 1)
		snprintf(holes, sizeof(holes), "the sampling has 1 hole of %s", longest);
	else if (coverage->holes > 1)
		snprintf(holes, sizeof(holes), "the sampling has %ju holes, %s in all, the longest %s",
			 (uintmax_t)coverage->holes, units_format_duration(all, sizeof(all), coverage->unsampled_ns),
			 longest);
	if (coverage->longest_hole_ns < longest_ns)
		*holes = '\0';
	if (coverage->suspends > 0)
		snprintf(suspended, sizeof(suspended), "the machine was suspended%s for %s%s",
			 coverage->suspends > 1 ? " several times," : "",
			 units_format_duration(all, sizeof(all), coverage->suspended_ns),
			 coverage->suspends > 1 ? " in all" : "");
	snprintf(buf, cap, "%s%s%s", holes, *holes && *suspended ? ", and " : "", suspended);
	return *buf != '\0';
}

static const struct series_hole *longest_hole(const struct series_holes *holes)
{
	const struct series_hole *longest = NULL;

	for (size_t i = 0; i < holes->count; i++) {
		const struct series_hole *hole = &holes->hole[i];

		if (hole->missed_slots > 0 &&
		    (!longest || hole->to_ns - hole->from_ns > longest->to_ns - longest->from_ns))
			longest = hole;
	}
	return longest;
}

/* Further ones are summed up. */
#define SUSPENDS_TOLD_MAX 3

/* When, and what the times mean then. */
static void tell_suspends(const struct series_holes *holes, FILE *file)
{
	unsigned told = 0;

	for (size_t i = 0; i < holes->count; i++) {
		const struct series_hole *hole = &holes->hole[i];
		char text[64], when[64];

		if (hole->suspended_ns == 0)
			continue;
		if (told++ == SUSPENDS_TOLD_MAX)
			break;
		fprintf(file, " The machine was suspended for %s, %s %s it fired.",
			units_format_duration(text, sizeof(text), hole->suspended_ns),
			units_format_duration(when, sizeof(when), (uint64_t)llabs(hole->to_ns)),
			hole->to_ns <= 0 ? "before" : "after");
	}
	if (told > SUSPENDS_TOLD_MAX)
		fputs(" It was so again later.", file);
	if (told > 0)
		fputs(" All times here leave that out.", file);
}

/* Whether the recording ends in a hole. */
static bool ends_in_hole(const struct series *series, const struct sample_window_coverage *coverage)
{
	int64_t last_ns = series->count > 0 ? series->points[series->count - 1].at_ns : coverage->got_to_ns;

	last_ns = last_ns > coverage->got_to_ns ? last_ns : coverage->got_to_ns;
	for (size_t i = 0; i < series->holes.count; i++)
		if (series->holes.hole[i].missed_slots > 0 && series->holes.hole[i].to_ns > last_ns)
			return true;
	return false;
}

static void tell_holes(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	const struct sample_window_coverage *coverage = &incident->coverage;
	const struct series_hole *longest = longest_hole(&samples->series.holes);
	uint64_t window_ns = (uint64_t)mono_diff(incident->window_to, incident->window_from);
	char text[192];

	if (incident->kind == INCIDENT_RULE && incident->window_unsampled_ns > 0 &&
	    incident->window_unsampled_ns * 2 >= window_ns)
		fprintf(file,
			" The sampler took nothing in %s of the window that was judged: the value is the average of "
			"all of it.",
			units_format_duration(text, sizeof(text), incident->window_unsampled_ns));
	tell_suspends(&samples->series.holes, file);
	if (coverage->longest_hole_ns < STORY_HOLE_NS)
		return;

	struct sample_window_coverage sampling = *coverage;

	sampling.suspends = 0;
	story_holes(&sampling, STORY_HOLE_NS, text, sizeof(text));
	fprintf(file, " %c%s", toupper((unsigned char)*text), text + 1);
	if (longest)
		fprintf(file, ", from %s %s it fired",
			units_format_duration(text, sizeof(text), (uint64_t)llabs(longest->from_ns)),
			longest->from_ns < 0 ? "before" : "after");
	if (!ends_in_hole(&samples->series, coverage))
		fputs(": what was used in it is known as a sum only.", file);
	else if (coverage->holes == 1)
		fputs(". No tick came after it, and what was used in it is not known.", file);
	else
		fputs(": what was used in it is known as a sum only. No tick came after the last one, and what was "
		      "used in that is not known.",
		      file);
}

/* Adds an item to the list of losses. */
__attribute__((format(printf, 3, 4))) static void add_lost(FILE *file, unsigned *count, const char *format, ...)
{
	va_list args;

	fputs((*count)++ == 0 ? " Lost: " : ", ", file);
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
}

/* Why samples are missing although what there is of the file is undamaged; NULL: none are, by incident.json. */
static const char *why_samples_ended(const struct incident *incident)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, "samples") == 0 &&
		    incident->captures[i].status == INCIDENT_CAPTURE_FAILED)
			return incident->captures[i].why;

	return NULL;
}

/* More are listed as evidence alone. */
#define INCOMPLETE_TOLD 3

/* Of files beside the samples. Whether any lacks something, or failed. */
static bool tell_incomplete(const struct incident *incident, FILE *file)
{
	unsigned count = 0;

	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (strcmp(capture->name, "samples") == 0 || capture->status == INCIDENT_CAPTURE_SKIPPED ||
		    (capture->status == INCIDENT_CAPTURE_OK && !capture->why[0]))
			continue;
		if (count++ >= INCOMPLETE_TOLD)
			continue;
		fputs(count == 1 ? " Incomplete: " : ", ", file);
		output_escaped(file, capture->file[0] ? capture->file : capture->name);
		fputs(" (", file);
		output_escaped(file, capture->why[0] ? capture->why : incident_capture_status_name(capture->status));
		fputs(")", file);
	}
	if (count > INCOMPLETE_TOLD)
		fprintf(file, " and %u more", count - INCOMPLETE_TOLD);
	if (count > 0)
		fputs(".", file);
	return count > 0;
}

/* Of the samples themselves. */
static void tell_lost_samples(const struct incident *incident, const struct incident_samples *samples, unsigned *count,
			      FILE *file)
{
	const struct stream_reader_report *report = &samples->report;
	const char *why = why_samples_ended(incident);

	if (samples->error == -ENOENT && why) {
		add_lost(file, count, "the samples (");
		output_escaped(file, why);
		fputc(')', file);
		return;
	}
	if (samples->error) {
		add_lost(file, count, "the samples (%s)",
			 samples->error == -ENOENT ? "there is no file" : strerror(-samples->error));
		return;
	}
	if (report->rows_lost || report->damaged_lines)
		add_lost(file, count, "%ju rows to damage of the file", (uintmax_t)report->rows_lost);
	else if (!report->complete)
		add_lost(file, count, "the end of the samples, which were cut off");
	else if (report->crc_differs || !report->checksum_ok)
		add_lost(file, count,
			 "lines that were changed, doubled or removed: a checksum of the file does not agree");
	else if (report->rows_unchecked)
		add_lost(file, count, "the checksums of %ju rows", (uintmax_t)report->rows_unchecked);
	else if (why) {
		add_lost(file, count, "the later samples (");
		output_escaped(file, why);
		fputc(')', file);
	}
}

/* nothing: also say that nothing was lost, and where the recording begins. */
static void tell_lost(const struct incident *incident, const struct incident_samples *samples, bool nothing, FILE *file)
{
	const struct sample_window_coverage *coverage = &incident->coverage;
	uint64_t gaps = coverage->gaps > coverage->holes ? coverage->gaps - coverage->holes : 0;
	unsigned count = 0;
	char text[64];

	if (samples->unfinished)
		return;
	tell_lost_samples(incident, samples, &count, file);
	if (gaps)
		add_lost(file, &count, "%ju %s of ticks that the reader did not get in time", (uintmax_t)gaps,
			 gaps == 1 ? "stretch" : "stretches");
	if (coverage->samples_dropped)
		add_lost(file, &count, "%ju samples for which there was no room", (uintmax_t)coverage->samples_dropped);
	if (coverage->capture_rate > 0 && coverage->capture_rate < 0.99)
		add_lost(file, &count, "%.1f %% of the ticks", (1 - coverage->capture_rate) * 100);
	if (count > 0)
		fputs(".", file);
	count += tell_incomplete(incident, file);
	if (!nothing)
		return;
	if (count == 0 && coverage->longest_hole_ns < STORY_HOLE_NS && !samples->dropped && !samples->cut)
		fputs(" Nothing was lost.", file);
	if (coverage->want_before_ns < DAY_NS &&
	    coverage->got_from_ns > -(int64_t)coverage->want_before_ns + (int64_t)NS_PER_S)
		fprintf(file, " The recording begins %s %s it fired.",
			units_format_duration(text, sizeof(text), (uint64_t)llabs(coverage->got_from_ns)),
			coverage->got_from_ns < 0 ? "before" : "after");
}

/* The list may be shorter than the count: then requests beyond it count as firings. */
static void tell_merged(const struct incident *incident, FILE *file)
{
	uint64_t asked = 0, fired = incident->merged_total;

	for (size_t i = 0; i < incident->merged_count && fired > 0; i++) {
		asked += incident->merged[i].kind == INCIDENT_MANUAL;
		fired -= incident->merged[i].kind == INCIDENT_MANUAL;
	}
	if (fired > 0)
		fprintf(file, " %ju more %s on it fell into this time and %s part of this incident.", (uintmax_t)fired,
			fired == 1 ? "firing" : "firings", fired == 1 ? "is" : "are");
	if (asked > 0)
		fprintf(file, " It was also asked for by hand%s.", asked > 1 ? ", more than once" : "");
}

void story_tell(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	tell_what(incident, samples, file);
	if (incident->kind == INCIDENT_STORM)
		return;
	tell_unit(incident, file);
	tell_labels(&incident->labels, file);
	tell_duration(incident, samples, file);
	tell_peaks(incident, false, file);
	tell_ended(incident, file);
	tell_waiting(incident, samples, file);
	tell_gone(incident, file);
	tell_merged(incident, file);
	tell_holes(incident, samples, file);
	tell_lost(incident, samples, true, file);
}

/* As it stands behind the target's name, without the value. */
static void tell_reason(const struct incident *incident, FILE *file)
{
	char text[64];

	if (incident->kind == INCIDENT_RECOVERED)
		fprintf(file, "the last %s before the daemon died",
			units_format_duration(text, sizeof(text), recovered_ns(incident)));
	else if (incident->kind == INCIDENT_MANUAL)
		fputs("recorded because it was asked for", file);
	else if (incident->kind == INCIDENT_STORM)
		fprintf(file, "%ju firings opened no incident of their own", (uintmax_t)incident->merged_total);
	else
		fputs("its rule fired", file);
}

void story_headline(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	const struct incident_rule *rule = &incident->rule;
	char text[64];
	double level;
	struct series_above above;

	if (incident_of_everything(incident))
		fputs("all targets", file);
	else
		tell_target(&incident->target, file);
	fputs(": ", file);
	if (incident->kind != INCIDENT_RULE || !rule->has_value) {
		tell_reason(incident, file);
		return;
	}
	fprintf(file, "%s was ", metric_subject(rule->metric));
	tell_value(rule, file);
	if (!story_threshold(rule, &level))
		return;
	fprintf(file, ", %s %s", is_below(rule) ? "below" : "above",
		story_value(rule->unit, level, text, sizeof(text)));
	if (story_above(incident, &samples->series, &above) && above.ns > 0)
		fprintf(file, " for %s", units_format_duration(text, sizeof(text), above.ns));
}

void story_tell_rest(const struct incident *incident, const struct incident_samples *samples, FILE *file)
{
	if (incident->kind == INCIDENT_STORM)
		return;
	tell_peaks(incident, true, file);
	tell_ended(incident, file);
	tell_waiting(incident, samples, file);
	tell_gone(incident, file);
	tell_merged(incident, file);
	tell_holes(incident, samples, file);
	tell_lost(incident, samples, false, file);
}
