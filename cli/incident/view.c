/*
 * view.c: sections, one function each. Pictures and JSON are made of the same columns (struct pictures).
 */
#include "view.h"

#include "exhibits.h"
#include "incident_json.h"
#include "json.h"
#include "jsonmember.h"
#include "output.h"
#include "pictures.h"
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
#define TEXT_WIDTH_MAX 100 /* longer lines are hard to read */

/* What is plotted: CPU in the unit that suits the incident, memory in bytes. */
struct pictures {
	struct series_columns cpu, memory;
	struct picture cpu_picture;
	double *values; /* all four, for free(3) */
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
	if (incidentload_samples(incidentfd, ret->incident.wall, &ret->samples) < 0)
		return -ENOMEM;
	ret->samples.unfinished = ret->glance.open;
	return 0;
}

/* ---- pictures ---- */

/* 0; -ENOMEM. Without samples, or with those of all targets, there are no columns. */
static int make_pictures(const struct view *view, const struct plot_style *style, struct pictures *ret)
{
	const struct series *series = &view->samples.series;
	size_t columns = plot_columns(style);

	*ret = (struct pictures){ .values = NULL };
	pictures_cpu(&view->incident, series, &ret->cpu_picture);
	if (series->count == 0 || incident_of_everything(&view->incident))
		return 0;
	ret->values = calloc(columns * 4, sizeof(double));
	if (!ret->values)
		return -ENOMEM;

	pictures_range(&view->incident, series, &ret->cpu);
	ret->cpu.count = columns;
	ret->memory = ret->cpu;
	ret->cpu.peak = ret->values;
	ret->cpu.mean = ret->values + columns;
	ret->memory.peak = ret->values + columns * 2;
	ret->memory.mean = ret->values + columns * 3;
	series_cpu(series, ret->cpu_picture.window_ns, &ret->cpu);
	series_memory(series, &ret->memory);
	for (size_t i = 0; i < columns * 2; i++)
		ret->values[i] *= ret->cpu_picture.scale;
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

static void draw(const struct series_columns *columns, const struct picture *picture, const struct plot_style *style,
		 FILE *file)
{
	struct plot plot = {
		.title = picture->title,
		.unit = picture->unit,
		.peak = columns->peak,
		.mean = columns->mean,
		.columns = columns->count,
		.from_s = (double)columns->from_ns / 1e9,
		.to_s = (double)columns->to_ns / 1e9,
		.trigger = true,
		.levels = picture->levels,
	};

	if (!any(columns))
		return;
	memcpy(plot.level, picture->level, sizeof(plot.level));
	fputc('\n', file);
	plot_draw(&plot, style, file);
}

static void draw_cpu(const struct pictures *pictures, const struct plot_style *style, FILE *file)
{
	struct picture picture = pictures->cpu_picture;
	size_t len = strlen(picture.title);
	char window[64];

	snprintf(picture.title + len, sizeof(picture.title) - len, " (peaks: over %s)",
		 units_format_duration(window, sizeof(window), picture.window_ns));
	draw(&pictures->cpu, &picture, style, file);
}

static void draw_memory(const struct incident *incident, const struct pictures *pictures,
			const struct plot_style *style, FILE *file)
{
	struct picture picture;

	pictures_memory(incident, &picture);
	draw(&pictures->memory, &picture, style, file);
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
	char text[64];

	fprintf(file, "\nRecording\n  %ju of %ju ticks of %s, capture rate %.1f %%, %ju samples%s\n",
		(uintmax_t)coverage->ticks_got, (uintmax_t)coverage->ticks_expected,
		units_format_duration(text, sizeof(text), cost->interval_ns), coverage->capture_rate * 100,
		(uintmax_t)coverage->samples, incident_of_everything(&view->incident) ? "" : " of this target");
	/* Not of this incident: of all the time since the sampler began. */
	fprintf(file, "  the sampler so far: %.2f %% of a core, %s late on average, %ju slots missed\n",
		cost->cpu_percent, units_format_duration(text, sizeof(text), cost->mean_sleep_error_ns),
		(uintmax_t)cost->missed_slots);
	if (view->samples.cut || view->samples.outside)
		fprintf(file, "  not all samples are shown: there are too many, or their times make no sense\n");
}

static void print_open(const struct incident *incident, FILE *file)
{
	char time[64];

	fprintf(file,
		"BEING WRITTEN since %s: this is what there is so far.\nSamples and pictures come when "
		"its window is over.\n\n",
		story_time(incident->wall, false, time, sizeof(time)));
}

/* What made memory grow comes first then. */
static bool of_memory(const struct incident *incident)
{
	return strncmp(incident->rule.metric, "memory", strlen("memory")) == 0 ||
	       strcmp(incident->rule.metric, "faults") == 0;
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
	if (view->glance.open)
		print_open(incident, file);
	if (view->glance.damaged)
		fprintf(file, "DAMAGED: %s. See spikewatch verify.\n\n", view->glance.why);
	if (view->glance.readable)
		output_wrap(words, width, file);
	draw_cpu(&pictures, style, file);
	draw_memory(incident, &pictures, style, file);
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
	if (!view->glance.open)
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
	json_u64(json, pictures->cpu_picture.window_ns);
	put_columns(json, pictures->cpu_picture.unit == PLOT_CORES ? "cpu_cores" : "cpu_percent", &pictures->cpu);
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
		jsonmember_text(json, "name", target->name);
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
	jsonmember_bool(json, "open", view->glance.open);
	json_key(json, "damaged");
	json_bool(json, view->glance.damaged);
	if (view->glance.damaged)
		jsonmember_text(json, "why", view->glance.why);
	jsonmember_text(json, "summary", words);
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
