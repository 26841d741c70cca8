/*
 * view.c: sections, one function each. Pictures and JSON are made of the same columns (struct pictures).
 */
#include "view.h"

#include "exhibits.h"
#include "incident_json.h"
#include "json.h"
#include "output.h"
#include "scope.h"
#include "story.h"
#include "table.h"
#include "units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_SHOWN 8
#define MAPS_SHOWN 8
#define TARGETS_SHOWN 20
#define TEXT_WIDTH_MAX 100               /* longer lines are hard to read */
#define PEAK_WINDOW_NS (100 * NS_PER_MS) /* below that, the grain of the kernel's accounting shows */
#define PEAK_WINDOW_MAX (60 * NS_PER_S)

/* What is plotted: CPU in the unit that suits the incident, memory in bytes. */
struct pictures {
	struct series_columns cpu, memory;
	uint64_t window_ns; /* of the peaks of CPU */
	enum plot_unit cpu_unit;
	double cpu_scale; /* cores to cpu_unit */
	double *values;   /* all four, for free(3) */
};

static void free_pictures(struct pictures *pictures)
{
	free(pictures->values);
}

int view_load(int incidentfd, struct view *ret)
{
	incidentload_glance(incidentfd, &ret->incident, &ret->glance);
	if (functions_load(incidentfd, HOTLIST_IN_SAMPLES, &ret->functions) < 0 ||
	    functions_load(incidentfd, HOTLIST_IN_BYTES, &ret->memory_functions) < 0)
		return -ENOMEM;
	return incidentload_samples(incidentfd, ret->incident.wall, &ret->samples);
}

/* ---- pictures ---- */

/* What made memory grow comes first then. */
static bool of_memory(const struct incident *incident)
{
	return strncmp(incident->rule.metric, "memory", strlen("memory")) == 0 ||
	       strcmp(incident->rule.metric, "faults") == 0;
}

static bool of_limit(const struct incident *incident)
{
	return incident->limits.cpu != UINT64_MAX && incident->limits.cpu > 0;
}

/* Percent where there is something to be a percentage of, unless the rule thinks in cores. */
static void choose_unit(const struct incident *incident, struct pictures *pictures)
{
	pictures->cpu_unit = PLOT_PERCENT;
	if (strcmp(incident->rule.metric, "cpu") == 0 && strcmp(incident->rule.of, "core") == 0) {
		pictures->cpu_scale = 100;
	} else if (of_limit(incident) && strcmp(incident->rule.metric, "cpu_cores") != 0) {
		pictures->cpu_scale = 100 * 1e9 / (double)incident->limits.cpu;
	} else {
		pictures->cpu_unit = PLOT_CORES;
		pictures->cpu_scale = 1;
	}
}

static uint64_t peak_window(const struct view *view)
{
	const struct incident_rule *rule = &view->incident.rule;
	uint64_t window_ns = PEAK_WINDOW_NS;

	if (strncmp(rule->metric, "cpu", 3) == 0 && rule->window_ns > 0 && rule->window_ns <= PEAK_WINDOW_MAX)
		window_ns = rule->window_ns;
	return window_ns > view->samples.series.grain_ns ? window_ns : view->samples.series.grain_ns;
}

/* The time that is shown: what was recorded, the trigger included. */
static void time_range(const struct view *view, struct series_columns *ret)
{
	const struct series *series = &view->samples.series;
	const struct slice_coverage *coverage = &view->incident.coverage;
	int64_t first = series->points[0].at_ns, last = series->points[series->count - 1].at_ns;
	int64_t most = (int64_t)(3600 * NS_PER_S);

	ret->known_to_ns = last;
	if (coverage->got_from_ns < first && coverage->got_from_ns > first - most)
		first = coverage->got_from_ns;
	if (coverage->got_to_ns > last && coverage->got_to_ns < last + most) {
		last = coverage->got_to_ns;
		/* Looked at until the end and not written again: unchanged. */
		if (!coverage->gone)
			ret->known_to_ns = last;
	}
	ret->from_ns = first < 0 ? first : 0;
	ret->to_ns = last > ret->from_ns ? last : ret->from_ns + 1;
}

/* 0; -ENOMEM. Without samples, or with those of all targets, there are no columns. */
static int make_pictures(const struct view *view, const struct plot_style *style, struct pictures *ret)
{
	const struct series *series = &view->samples.series;
	size_t columns = plot_columns(style);

	*ret = (struct pictures){ .window_ns = peak_window(view) };
	choose_unit(&view->incident, ret);
	if (series->count == 0 || incident_of_everything(&view->incident))
		return 0;
	ret->values = calloc(columns * 4, sizeof(double));
	if (!ret->values)
		return -ENOMEM;

	time_range(view, &ret->cpu);
	ret->cpu.count = columns;
	ret->memory = ret->cpu;
	ret->cpu.peak = ret->values;
	ret->cpu.mean = ret->values + columns;
	ret->memory.peak = ret->values + columns * 2;
	ret->memory.mean = ret->values + columns * 3;
	series_cpu(series, ret->window_ns, &ret->cpu);
	series_memory(series, &ret->memory);
	for (size_t i = 0; i < columns * 2; i++)
		ret->values[i] *= ret->cpu_scale;
	return 0;
}

static bool any(const struct series_columns *columns)
{
	for (size_t i = 0; i < columns->count; i++) {
		if (!isnan(columns->peak[i]))
			return true;
	}
	return false;
}

static void add_level(struct plot *plot, const char *name, double value)
{
	if (plot->levels < PLOT_LEVELS_MAX)
		plot->level[plot->levels++] = (struct plot_level){ name, value };
}

static void draw(const struct series_columns *columns, const struct plot *plot, const struct plot_style *style,
		 FILE *file)
{
	struct plot whole = *plot;

	if (!any(columns))
		return;
	whole.peak = columns->peak;
	whole.mean = columns->mean;
	whole.columns = columns->count;
	whole.from_s = (double)columns->from_ns / 1e9;
	whole.to_s = (double)columns->to_ns / 1e9;
	whole.trigger = true;
	fputc('\n', file);
	plot_draw(&whole, style, file);
}

static void draw_cpu(const struct view *view, const struct pictures *pictures, const struct plot_style *style,
		     FILE *file)
{
	const struct incident *incident = &view->incident;
	const char *metric = incident->rule.metric;
	struct plot plot = { .unit = pictures->cpu_unit };
	char title[160], window[64];
	double threshold;
	bool core = strcmp(incident->rule.of, "core") == 0;

	snprintf(title, sizeof(title), "CPU, %s (peaks: over %s)",
		 pictures->cpu_unit == PLOT_CORES     ? "cores"
		 : strcmp(metric, "cpu") == 0 && core ? "percent of one core"
		 : incident->limits.cpu_is_machine    ? "percent of the machine"
						      : "percent of the limit",
		 units_format_duration(window, sizeof(window), pictures->window_ns));
	plot.title = title;
	/* The machine is no threshold of this picture unless it is the limit. */
	if (story_threshold(&incident->rule, &threshold) &&
	    (strcmp(metric, "cpu_cores") == 0 ||
	     (strcmp(metric, "cpu") == 0 &&
	      (strcmp(incident->rule.of, "machine") != 0 || incident->limits.cpu_is_machine))))
		add_level(&plot, "threshold", threshold);
	if (of_limit(incident))
		add_level(&plot, "limit", (double)incident->limits.cpu / 1e9 * pictures->cpu_scale);
	draw(&pictures->cpu, &plot, style, file);
}

static void draw_memory(const struct view *view, const struct pictures *pictures, const struct plot_style *style,
			FILE *file)
{
	const struct incident *incident = &view->incident;
	uint64_t limit = incident->limits.memory_bytes;
	struct plot plot = { .title = "Memory", .unit = PLOT_BYTES };
	double threshold;

	if (story_threshold(&incident->rule, &threshold)) {
		if (strncmp(incident->rule.metric, "memory_", 7) == 0 && strcmp(incident->rule.unit, "bytes") == 0)
			add_level(&plot, "threshold", threshold);
		else if (strcmp(incident->rule.metric, "memory") == 0 && limit != UINT64_MAX)
			add_level(&plot, "threshold", threshold / 100 * (double)limit);
	}
	if (limit != UINT64_MAX)
		add_level(&plot, "limit", (double)limit);
	draw(&pictures->memory, &plot, style, file);
}

/* ---- sections of text ---- */

static int write_words(const struct view *view, char **ret)
{
	size_t len;
	FILE *file = open_memstream(ret, &len);

	if (!file)
		return -ENOMEM;
	story_tell(&view->incident, &view->samples, file);
	return fclose(file) == 0 ? 0 : -ENOMEM;
}

static void print_capture(const struct incident *incident, int incidentfd, const char *name, const char *title,
			  const char *columns, size_t rows, const struct plot_style *style, FILE *file)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];
		AUTO(buffer_release) struct buffer text = { .max = INCIDENTLOAD_CAPTURE_MAX };

		if (strcmp(capture->name, name) != 0 || !capture->file[0] || strchr(capture->file, '/'))
			continue;
		if (incidentload_capture(incidentfd, capture->file, &text) < 0 || text.len == 0)
			continue;
		fprintf(file, "\n%s\n", title);
		table_print(text.data, text.len, columns, rows, style->width, file);
	}
}

/* Of everything: who did most. */
static void print_targets(const struct peaks *peaks, FILE *file)
{
	char cpu[64], memory[64];
	size_t shown = peaks->count < TARGETS_SHOWN ? peaks->count : TARGETS_SHOWN;

	if (shown == 0)
		return;
	fprintf(file, "\nTargets by their peaks (CPU over 100 ms or more)\n  %12s  %10s  target\n", "cpu", "memory");
	for (size_t i = 0; i < shown; i++) {
		const struct peaks_target *target = &peaks->target[i];

		plot_value(PLOT_CORES, target->cpu_cores, cpu, sizeof(cpu));
		plot_value(PLOT_BYTES, (double)target->memory_bytes, memory, sizeof(memory));
		fprintf(file, "  %12s  %10s  ", target->has_cpu ? cpu : "-", target->has_memory ? memory : "-");
		output_escaped(file, target->name[0] ? target->name : "?");
		fputc('\n', file);
	}
	if (peaks->count > shown || peaks->cut)
		fprintf(file, "  ... and %s%zu more\n", peaks->cut ? "at least " : "", peaks->count - shown);
}

static void print_limit(const char *what, bool known, const char *value, bool machine, const char *from, FILE *file)
{
	fprintf(file, "  %s: %s", what, known ? value : "not known");
	if (known && machine) {
		fputs(" (the machine)", file);
	} else if (known && from[0]) {
		fputs(" (", file);
		output_escaped(file, from);
		fputs(")", file);
	}
	fputc('\n', file);
}

static void print_limits(const struct cglimits *limits, FILE *file)
{
	char cpu[64], memory[64];

	fprintf(file, "\nLimits\n");
	plot_value(PLOT_CORES, (double)limits->cpu / 1e9, cpu, sizeof(cpu));
	plot_value(PLOT_BYTES, (double)limits->memory_bytes, memory, sizeof(memory));
	print_limit("CPU", limits->cpu != UINT64_MAX, cpu, limits->cpu_is_machine, limits->cpu_from, file);
	print_limit("memory", limits->memory_bytes != UINT64_MAX, memory, limits->memory_is_machine,
		    limits->memory_from, file);
}

static void print_recording(const struct view *view, FILE *file)
{
	const struct slice_coverage *coverage = &view->incident.coverage;
	const struct incident_cost *cost = &view->incident.cost;
	char a[64], b[64];

	fprintf(file, "\nRecording\n  %ju of %ju ticks, capture rate %.1f %%, %ju samples%s\n",
		(uintmax_t)coverage->ticks_got, (uintmax_t)coverage->ticks_expected, coverage->capture_rate * 100,
		(uintmax_t)coverage->samples, incident_of_everything(&view->incident) ? "" : " of this target");
	fprintf(file, "  every %s, %.2f %% of one core, %s late on average, %ju slots missed\n",
		units_format_duration(a, sizeof(a), cost->interval_ns), cost->cpu_percent,
		units_format_duration(b, sizeof(b), cost->mean_sleep_error_ns), (uintmax_t)cost->missed_slots);
	if (view->samples.cut || view->samples.outside)
		fprintf(file, "  not all samples are shown: there are too many, or their times make no sense\n");
}

int view_text(const struct view *view, int incidentfd, const struct plot_style *style, FILE *file)
{
	const struct incident *incident = &view->incident;
	size_t width = style->width < TEXT_WIDTH_MAX ? style->width : TEXT_WIDTH_MAX;
	AUTO(free_pictures) struct pictures pictures = { 0 };
	AUTO_FREE char *words = NULL;

	if (make_pictures(view, style, &pictures) < 0 || write_words(view, &words) < 0)
		return -ENOMEM;

	output_escaped(file, incident->id[0] ? incident->id : "(an incident without a name)");
	fputs("\n\n", file);
	if (view->glance.damaged)
		fprintf(file, "DAMAGED: %s. See spikewatch verify.\n\n", view->glance.why);
	if (view->glance.readable)
		output_wrap(words, width, file);
	draw_cpu(view, &pictures, style, file);
	draw_memory(view, &pictures, style, file);
	if (incident_of_everything(incident))
		print_targets(&view->samples.peaks, file);
	if (of_memory(incident))
		functions_print(&view->memory_functions, incident, style, file);
	print_capture(incident, incidentfd, "threads", "Busiest threads",
		      "pid tid name state cpu_ms cpu_percent user_ms system_ms since_ms remark", THREADS_SHOWN, style,
		      file);
	functions_print(&view->functions, incident, style, file);
	if (!of_memory(incident))
		functions_print(&view->memory_functions, incident, style, file);
	print_capture(incident, incidentfd, "smaps", "What grew",
		      "rss_growth_bytes rss_bytes swap_bytes permissions mapping pid", MAPS_SHOWN, style, file);
	exhibits_growth(incident, incidentfd, MAPS_SHOWN, style->width, file);
	print_limits(&incident->limits, file);
	print_recording(view, file);
	exhibits_list(incident, file);
	return 0;
}

/* ---- JSON ---- */

static void put_values(struct json_writer *json, const char *key, const double *values, size_t count)
{
	json_key(json, key);
	json_begin_array(json);
	for (size_t i = 0; i < count; i++)
		json_double(json, values[i]); /* NAN is written as null */
	json_end_array(json);
}

static void put_columns(struct json_writer *json, const char *key, const struct series_columns *columns)
{
	json_key(json, key);
	json_begin_object(json);
	put_values(json, "peak", columns->peak, columns->count);
	put_values(json, "mean", columns->mean, columns->count);
	json_end_object(json);
}

static void put_series(struct json_writer *json, const struct pictures *pictures)
{
	json_key(json, "series");
	if (pictures->cpu.count == 0) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	json_key(json, "from_ns");
	json_i64(json, pictures->cpu.from_ns);
	json_key(json, "to_ns");
	json_i64(json, pictures->cpu.to_ns);
	json_key(json, "peak_window_ns");
	json_u64(json, pictures->window_ns);
	put_columns(json, pictures->cpu_unit == PLOT_CORES ? "cpu_cores" : "cpu_percent", &pictures->cpu);
	put_columns(json, "memory_bytes", &pictures->memory);
	json_end_object(json);
}

static void put_targets(struct json_writer *json, const struct peaks *peaks)
{
	json_key(json, "targets");
	json_begin_array(json);
	for (size_t i = 0; i < peaks->count; i++) {
		const struct peaks_target *target = &peaks->target[i];

		json_begin_object(json);
		output_json_text(json, "name", target->name);
		json_key(json, "cpu_cores");
		json_double(json, target->has_cpu ? target->cpu_cores : NAN);
		json_key(json, "memory_bytes");
		if (target->has_memory)
			json_u64(json, target->memory_bytes);
		else
			json_null(json);
		json_end_object(json);
	}
	json_end_array(json);
}

/* Everything but the incident itself, as an object. */
static int write_rest(const struct view *view, const struct pictures *pictures, const char *words, struct buffer *ret)
{
	struct json_writer *json;
	int rc = json_writer_new(sink_buffer(ret), true, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	json_key(json, "damaged");
	json_bool(json, view->glance.damaged);
	if (view->glance.damaged)
		output_json_text(json, "why", view->glance.why);
	output_json_text(json, "summary", words);
	put_series(json, pictures);
	put_targets(json, &view->samples.peaks);
	functions_json(&view->functions, json);
	functions_json(&view->memory_functions, json);
	json_end_object(json);
	return json_writer_close(json);
}

int view_json(const struct view *view, const struct plot_style *style)
{
	AUTO(buffer_release) struct buffer incident = { 0 }, rest = { 0 };
	AUTO(free_pictures) struct pictures pictures = { 0 };
	AUTO_FREE char *words = NULL;

	if (make_pictures(view, style, &pictures) < 0 || write_words(view, &words) < 0 ||
	    incident_json_write(&view->incident, sink_buffer(&incident)) < 0 ||
	    write_rest(view, &pictures, words, &rest) < 0)
		return -ENOMEM;

	/* Two documents become one: incident.json as it is, without its newline, as the first member of the other. */
	printf("{\n\"incident\": %.*s,", (int)incident.len - 1, incident.data);
	fwrite(rest.data + 1, 1, rest.len - 1, stdout);
	return 0;
}
