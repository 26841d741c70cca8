/*
 * replayview.c: lines and tables of a replay. Each part has its text and its JSON side by side, from the same values.
 */
#include "replayview.h"

#include "incident.h"
#include "json.h"
#include "jsonmember.h"
#include "metrictext.h"
#include "output.h"
#include "scope.h"
#include "story.h"
#include "units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Shorter inputs are read in a moment. */
#define PROGRESS_BYTES_MIN (16u << 20)

static void pad(size_t printed, size_t width)
{
	printf("%*s", printed < width ? (int)(width - printed) + 2 : 2, "");
}

/* ---- the whole ---- */

int replayview_open(struct replayview *view, bool json, bool summary)
{
	*view = (struct replayview){ .summary = summary, .progress = isatty(STDERR_FILENO) == 1 };
	if (!json)
		return 0;
	if (output_json_new(&view->json) < 0)
		return -ENOMEM;
	json_begin_object(view->json);
	jsonmember_array(view->json, "sources");
	return 0;
}

void replayview_close(struct replayview *view)
{
	if (view->json)
		json_end_object(view->json);
	output_json_release(&view->json);
	view->json = NULL;
}

/* ---- progress ---- */

static void clear_progress(struct replayview *view)
{
	if (view->shown_percent > 0)
		fputs("\r\033[K", stderr);
	view->shown_percent = 0;
}

void replayview_progress(struct replayview *view, uint64_t done_bytes, uint64_t size_bytes)
{
	unsigned percent;

	if (!view->progress || size_bytes < PROGRESS_BYTES_MIN)
		return;
	percent = (unsigned)(100.0 * (double)done_bytes / (double)size_bytes);
	if (percent <= view->shown_percent || percent > 100)
		return;
	fprintf(stderr, "\rreplaying: %u %%", percent);
	view->shown_percent = percent;
}

/* ---- sources ---- */

void replayview_source(struct replayview *view, const struct replaysource *source)
{
	view->path = source->path;
	view->troubles = 0;
	view->headed = false;
	if (!view->json)
		return;
	json_begin_object(view->json);
	jsonmember_text(view->json, "path", source->path);
	jsonmember_text(view->json, "kind", replaysource_kind_name(source->kind));
	if (!view->summary)
		jsonmember_array(view->json, "firings");
}

static void begin_warning(struct replayview *view)
{
	clear_progress(view);
	fputs("spikewatch replay: warning: ", stderr);
	output_escaped(stderr, view->path);
	fputs(": ", stderr);
}

void replayview_trouble(struct replayview *view, uint64_t line, uint64_t rows_lost, const char *why)
{
	if (view->troubles++ >= REPLAYVIEW_TROUBLES_MAX)
		return;
	begin_warning(view);
	if (line > 0)
		fprintf(stderr, "line %ju: ", (uintmax_t)line);
	fputs(why, stderr);
	if (rows_lost > 0)
		fprintf(stderr, " (%ju %s lost)", (uintmax_t)rows_lost, rows_lost == 1 ? "row" : "rows");
	fputc('\n', stderr);
}

static void warn_of_rest(struct replayview *view, const struct tape_summary *summary)
{
	if (view->troubles > REPLAYVIEW_TROUBLES_MAX) {
		begin_warning(view);
		fprintf(stderr, "and %ju more\n", (uintmax_t)(view->troubles - REPLAYVIEW_TROUBLES_MAX));
	}
	if (summary->nameless > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples of targets that nothing describes were passed over\n",
			(uintmax_t)summary->nameless);
	}
	if (summary->late > 0) {
		begin_warning(view);
		fprintf(stderr, "%ju samples that came too late, or at absurd times, were passed over\n",
			(uintmax_t)summary->late);
	}
}

static void put_source_end(struct json_writer *json, const struct replayview *view, const struct tape_summary *summary)
{
	if (!view->summary)
		json_end_array(json);
	if (summary->any) {
		jsonmember_u64(json, "from", summary->from.ns);
		jsonmember_u64(json, "to", summary->to.ns);
	}
	jsonmember_u64(json, "ticks", summary->ticks);
	jsonmember_u64(json, "samples", summary->samples);
	jsonmember_u64(json, "targets", summary->targets);
	jsonmember_u64(json, "gaps", summary->gaps);
	jsonmember_u64(json, "troubles", view->troubles);
	jsonmember_u64(json, "samples_passed_over", summary->nameless + summary->late);
	json_end_object(json);
}

void replayview_source_end(struct replayview *view, const struct replaysource *source,
			   const struct tape_summary *summary)
{
	char text[64];

	clear_progress(view);
	warn_of_rest(view, summary);
	if (view->json) {
		put_source_end(view->json, view, summary);
		return;
	}
	if (view->headed)
		putchar('\n');
	output_escaped(stdout, source->path);
	if (!summary->any) {
		fputs(": no samples\n", stdout);
		return;
	}
	printf(": %s, ", replaysource_kind_name(source->kind));
	fputs(units_format_duration(text, sizeof(text), summary->to.ns - summary->from.ns), stdout);
	printf(" from %s, ", story_time(summary->from, true, text, sizeof(text)));
	printf("%ju %s, %ju samples", (uintmax_t)summary->targets, summary->targets == 1 ? "target" : "targets",
	       (uintmax_t)summary->samples);
	if (summary->gaps > 0)
		printf(", %ju %s", (uintmax_t)summary->gaps, summary->gaps == 1 ? "gap" : "gaps");
	putchar('\n');
}

/* ---- firings ---- */

const char *replayview_threshold(const struct config_rule *rule, double value, char *buf, size_t cap)
{
	uint64_t bytes = value > 0 && value < 1e18 ? (uint64_t)value : 0;
	unsigned unit = 0;
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

	if (metric_unit(rule->metric) != METRIC_BYTES) {
		for (int digits = 1; digits <= 17; digits++) {
			snprintf(buf, cap, "%.*g", digits, value);
			if (strtod(buf, NULL) == value && !strchr(buf, 'e'))
				return buf;
		}
		snprintf(buf, cap, "%.9f", value);
		return buf;
	}
	for (; unit + 1 < ARRAY_LEN(units) && bytes > 0 && bytes % 1024 == 0; unit++)
		bytes /= 1024;
	snprintf(buf, cap, "%ju%s", (uintmax_t)bytes, units[unit]);
	return buf;
}

static bool by_average(const struct evaluator_firing *firing)
{
	return firing->decision->candidate_reason == TRIGGER_ABOVE_AVERAGE;
}

static double level_of(const struct evaluator_firing *firing)
{
	return by_average(firing) ? firing->decision->average * (100 + firing->effective->delta) / 100
				  : firing->effective->percent;
}

/* The minimum is what it had to reach: it is above the level. */
static bool by_minimum(const struct evaluator_firing *firing)
{
	return firing->effective->has_minimum && firing->effective->minimum > level_of(firing);
}

/* What the value was held against. */
static double threshold_of(const struct evaluator_firing *firing)
{
	return by_minimum(firing) ? firing->effective->minimum : level_of(firing);
}

/* "93.8% > 80%", "147 MiB >= 132 MiB, above the average of 88.2 MiB", "102 MiB >= 64 MiB, the minimum; the average was 6.54 MiB" */
static void print_why(const struct evaluator_firing *firing)
{
	enum metric_unit unit = metric_unit(firing->rule->metric);
	bool minimum = by_minimum(firing), average = by_average(firing);
	char text[64];

	fputs(metrictext_value(unit, firing->decision->value, text, sizeof(text)), stdout);
	fputs(minimum || average ? " >= " : " > ", stdout);
	fputs(metrictext_value(unit, threshold_of(firing), text, sizeof(text)), stdout);
	if (minimum)
		fputs(", the minimum", stdout);
	if (average)
		printf("%s%s", minimum ? "; the average was " : ", above the average of ",
		       metrictext_value(unit, firing->decision->average, text, sizeof(text)));
	putchar('\n');
}

static void put_firing(struct json_writer *json, const struct evaluator_firing *firing)
{
	const struct trigger_decision *decision = firing->decision;

	json_begin_object(json);
	jsonmember_u64(json, "wall", firing->wall.ns);
	jsonmember_u64(json, "mono", firing->to.ns);
	jsonmember_u64(json, "window_ns", (uint64_t)mono_diff(firing->to, firing->from));
	jsonmember_text(json, "rule", firing->rule->name);
	jsonmember_text(json, "target", firing->target->name);
	jsonmember_text(json, "key", firing->target->key);
	jsonmember_text(json, "reason", trigger_reason_name(decision->reason));
	jsonmember_text(json, "unit", incident_unit_name(metric_unit(firing->rule->metric)));
	jsonmember_double(json, "value", decision->value);
	jsonmember_double(json, "threshold", threshold_of(firing));
	if (decision->has_average)
		jsonmember_double(json, "average", decision->average);
	json_end_object(json);
}

void replayview_firing(struct replayview *view, const struct evaluator_firing *firing)
{
	char text[64];

	if (view->summary)
		return;
	if (view->json) {
		put_firing(view->json, firing);
		return;
	}
	clear_progress(view);
	if (!view->headed)
		printf("%-28s  %-14s  %-18s  %s\n", "When", "Rule", "Target", "Why");
	view->headed = true;
	printf("%-28s  ", story_time(firing->wall, true, text, sizeof(text)));
	pad(output_escaped(stdout, firing->rule->name), 14);
	pad(output_escaped(stdout, firing->target->name), 18);
	print_why(firing);
}

/* ---- rules ---- */

static void put_miss(struct json_writer *json, const struct rehearsal_miss *miss)
{
	json_key(json, "nearest_miss");
	if (!miss->known) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	jsonmember_u64(json, "wall", miss->wall.ns);
	jsonmember_text(json, "target", miss->target);
	jsonmember_double(json, "value", miss->value);
	jsonmember_double(json, "threshold", miss->value + miss->distance);
	jsonmember_double(json, "distance", miss->distance);
	json_end_object(json);
}

static void put_rule(struct json_writer *json, const struct rehearsal_rule *row)
{
	char text[256];

	json_begin_object(json);
	jsonmember_text(json, "name", row->rule->name);
	jsonmember_text(json, "metric", metric_name(row->rule->metric));
	jsonmember_text(json, "unit", incident_unit_name(metric_unit(row->rule->metric)));
	jsonmember_u64(json, "windows", row->windows);
	jsonmember_u64(json, "fired", row->fired);
	jsonmember_u64(json, "held_back", rehearsal_held_back(row));
	json_key(json, "reasons");
	json_begin_object(json);
	for (unsigned reason = 0; reason < TRIGGER_REASONS; reason++)
		if (row->reasons[reason] > 0)
			jsonmember_u64(json, trigger_reason_name((enum trigger_reason)reason), row->reasons[reason]);
	json_end_object(json);
	put_miss(json, &row->miss);
	if (rehearsal_obstacle(row, text, sizeof(text)))
		jsonmember_text(json, "not_judged", text);
	if (rehearsal_remark(row, text, sizeof(text)))
		jsonmember_text(json, "remark", text);
	json_end_object(json);
}

static void print_miss(const struct rehearsal_rule *row)
{
	enum metric_unit unit = metric_unit(row->rule->metric);
	const struct rehearsal_miss *miss = &row->miss;
	char text[64];

	if (!miss->known) {
		fputs("-\n", stdout);
		return;
	}
	fputs(metrictext_value(unit, miss->value, text, sizeof(text)), stdout);
	printf(" of %s, ", metrictext_value(unit, miss->value + miss->distance, text, sizeof(text)));
	output_escaped(stdout, miss->target);
	printf(", %s\n", story_time(miss->wall, true, text, sizeof(text)));
}

static void print_rule(const struct rehearsal_rule *row)
{
	char text[256];

	pad(output_escaped(stdout, row->rule->name), 14);
	if (rehearsal_obstacle(row, text, sizeof(text))) {
		printf("not judged: %s\n", text);
		return;
	}
	printf("%7ju  %5ju  %9ju  ", (uintmax_t)row->windows, (uintmax_t)row->fired,
	       (uintmax_t)rehearsal_held_back(row));
	print_miss(row);
	if (rehearsal_remark(row, text, sizeof(text)))
		printf("%-14s  (%s)\n", "", text);
}

void replayview_rules(struct replayview *view, const struct rehearsal_rule *rules, size_t count)
{
	if (view->json) {
		json_end_array(view->json); /* of sources */
		jsonmember_array(view->json, "rules");
		for (size_t i = 0; i < count; i++)
			put_rule(view->json, &rules[i]);
		json_end_array(view->json);
		return;
	}
	printf("\n%-14s  %7s  %5s  %9s  %s\n", "Rule", "Windows", "Fired", "Held back", "Nearest miss");
	for (size_t i = 0; i < count; i++)
		print_rule(&rules[i]);
}

/* ---- variants ---- */

static void put_variant(struct json_writer *json, const struct whatif_variant *variant,
			const struct rehearsal_rule *row)
{
	json_begin_object(json);
	jsonmember_text(json, "rule", row->rule->name);
	jsonmember_text(json, "key", variant->key);
	jsonmember_text(json, "value", variant->value);
	jsonmember_u64(json, "windows", row->windows);
	jsonmember_u64(json, "fired", row->fired);
	jsonmember_u64(json, "held_back", rehearsal_held_back(row));
	if (row->first_known)
		jsonmember_u64(json, "first", row->first.ns);
	json_end_object(json);
}

static void print_outcome(const char *what, const struct rehearsal_rule *row)
{
	char text[64];

	printf("  %-24s  %5ju  %9ju  %s\n", what, (uintmax_t)row->fired, (uintmax_t)rehearsal_held_back(row),
	       row->first_known ? story_time(row->first, true, text, sizeof(text)) : "-");
}

void replayview_whatif(struct replayview *view, const struct whatif *whatif, const struct rehearsal_rule *base,
		       const struct rehearsal_rule *const *outcomes)
{
	if (view->json)
		jsonmember_array(view->json, "what_if");
	for (size_t i = 0; i < whatif->count; i++) {
		const struct whatif_variant *variant = &whatif->variants[i];
		char what[128];

		if (view->json) {
			put_variant(view->json, variant, &outcomes[i][variant->rule]);
			continue;
		}
		if (i == 0 || variant[-1].rule != variant->rule) {
			fputs("\nWhat if: rule ", stdout);
			output_escaped(stdout, base[variant->rule].rule->name);
			printf("\n  %-24s  %5s  %9s  %s\n", "", "Fired", "Held back", "First");
			print_outcome("as it is", &base[variant->rule]);
		}
		snprintf(what, sizeof(what), "%s %s", variant->key, variant->value);
		print_outcome(what, &outcomes[i][variant->rule]);
	}
	if (view->json)
		json_end_array(view->json);
}

/* ---- proposals ---- */

static bool is_proposal(const struct replayview_proposal *proposal)
{
	return proposal->fits && proposal->answer.known;
}

static void put_proposal(struct json_writer *json, const struct replayview_proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;

	json_begin_object(json);
	jsonmember_text(json, "rule", proposal->rule->name);
	jsonmember_double(json, "per_day", proposal->per_day);
	jsonmember_u64(json, "wanted", proposal->wanted);
	jsonmember_bool(json, "known", is_proposal(proposal));
	if (is_proposal(proposal)) {
		jsonmember_text(json, "key",
				metric_unit(proposal->rule->metric) == METRIC_PERCENT ? "percent" : "above");
		jsonmember_double(json, "threshold", answer->threshold);
		jsonmember_double(json, "highest", answer->highest);
		json_key(json, "fired");
		if (proposal->replayed)
			json_u64(json, proposal->fired);
		else
			json_null(json);
	}
	json_end_object(json);
}

static void print_proposal(const struct replayview_proposal *proposal)
{
	const struct suggestion_answer *answer = &proposal->answer;
	enum metric_unit unit = metric_unit(proposal->rule->metric);
	char text[64];

	pad(output_escaped(stdout, proposal->rule->name), 14);
	if (!is_proposal(proposal)) {
		puts(proposal->fits ? "nothing to go by: it never had a value that could fire"
				    : "nothing to propose: it has no threshold of its own, or its for is too long");
		return;
	}
	printf("%6.6g  ", proposal->per_day);
	pad((size_t)printf("%s %s", unit == METRIC_PERCENT ? "percent" : "above",
			   replayview_threshold(proposal->rule, answer->threshold, text, sizeof(text))),
	    22);
	if (proposal->replayed)
		printf("%5ju  ", (uintmax_t)proposal->fired);
	else
		printf("%5s  ", "?");
	puts(metrictext_value(unit, answer->highest, text, sizeof(text)));
}

void replayview_proposals(struct replayview *view, const struct replayview_proposal *proposals, size_t count,
			  uint64_t span_ns)
{
	char span[64];

	if (view->json) {
		jsonmember_array(view->json, "suggestions");
		for (size_t i = 0; i < count; i++)
			put_proposal(view->json, &proposals[i]);
		json_end_array(view->json);
		return;
	}
	printf("\nThresholds that fire so often; %s were replayed\n",
	       units_format_duration(span, sizeof(span), span_ns));
	printf("%-14s  %6s  %-22s  %5s  %s\n", "Rule", "A day", "Threshold", "Fired", "Highest seen");
	for (size_t i = 0; i < count; i++)
		if (i == 0 || is_proposal(&proposals[i]) || proposals[i].rule != proposals[i - 1].rule)
			print_proposal(&proposals[i]);
}
