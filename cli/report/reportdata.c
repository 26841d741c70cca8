/*
 * reportdata.c: lines over one grid of time, so that a time is said once and zooming is the same in all pictures.
 *
 * Values are rounded to what can be seen: it halves the page.
 */
#include "reportdata.h"

#include "crowd.h"
#include "htmltext.h"
#include "incident_json.h"
#include "json.h"
#include "jsonmember.h"
#include "output.h"
#include "pictures.h"
#include "scope.h"
#include "story.h"
#include "units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MIN 64
#define CROWD_POINTS_MAX 1500 /* of each of several targets */

/* What is being written: the grid, and room for one picture. */
struct drawing {
	struct json_writer *json;
	const struct view *view;
	struct series_columns columns;
	double *values; /* peak and mean */
};

static void free_drawing(struct drawing *drawing)
{
	free(drawing->values);
}

static int make_columns(struct drawing *drawing, const struct series *series, size_t most)
{
	const struct incident *incident = &drawing->view->incident;
	uint64_t grain = series->grain_ns, span;
	size_t count;

	pictures_range(incident, series, &drawing->columns);
	if (incident->cost.interval_ns > grain)
		grain = incident->cost.interval_ns;
	span = (uint64_t)drawing->columns.to_ns - (uint64_t)drawing->columns.from_ns;
	count = grain ? (size_t)(span / grain < most ? span / grain : most) : POINTS_MIN;
	count = count > POINTS_MIN ? count : POINTS_MIN;
	drawing->values = calloc(count * 2, sizeof(double));
	if (!drawing->values)
		return -ENOMEM;
	drawing->columns.count = count;
	drawing->columns.peak = drawing->values;
	drawing->columns.mean = drawing->values + count;
	return 0;
}

static void put_text(struct json_writer *json, const char *key, const char *text)
{
	json_key(json, key);
	json_string(json, text);
}

/* Bytes and other large numbers are whole; percentages have two decimals, cores four. */
static void put_value(struct json_writer *json, double value, double steps)
{
	double scaled = value * steps;

	if (!isfinite(value))
		json_null(json);
	else if (scaled < 0 || scaled > 9e15)
		json_double(json, value);
	else if (steps > 1)
		json_double(json, (double)(int64_t)(scaled + 0.5) / steps);
	else
		json_i64(json, (int64_t)(scaled + 0.5));
}

static void put_values(struct json_writer *json, const double *values, size_t count, const struct picture *picture)
{
	double steps = picture->unit == PLOT_BYTES ? 1 : picture->unit == PLOT_CORES ? 1e4 : 1e2;

	json_key(json, "values");
	json_begin_array(json);
	for (size_t i = 0; i < count; i++)
		put_value(json, values[i] * picture->scale, steps);
	json_end_array(json);
}

/* kind: "area" is what was measured, "line" what a rule makes of it. */
static void put_line(struct drawing *drawing, const char *name, const char *kind, const double *values,
		     const struct picture *picture)
{
	json_begin_object(drawing->json);
	jsonmember_text(drawing->json, "name", name);
	put_text(drawing->json, "kind", kind);
	put_values(drawing->json, values, drawing->columns.count, picture);
	json_end_object(drawing->json);
}

static void begin_picture(struct json_writer *json, const char *id, const struct picture *picture)
{
	static const char *const units[] = {
		[PLOT_PERCENT] = "percent", [PLOT_CORES] = "cores", [PLOT_BYTES] = "bytes", [PLOT_COUNT] = "count"
	};

	json_begin_object(json);
	put_text(json, "id", id);
	put_text(json, "title", picture->title);
	put_text(json, "unit", units[picture->unit]);
	json_key(json, "levels");
	json_begin_array(json);
	for (size_t i = 0; i < picture->levels; i++) {
		json_begin_object(json);
		put_text(json, "name", picture->level[i].name);
		json_key(json, "value");
		json_double(json, picture->level[i].value);
		json_end_object(json);
	}
	json_end_array(json);
	json_key(json, "lines");
	json_begin_array(json);
}

static void end_picture(struct json_writer *json)
{
	json_end_array(json);
	json_end_object(json);
}

/* ---- of one target ---- */

static uint64_t step_of(const struct series_columns *columns)
{
	return (uint64_t)(columns->to_ns - columns->from_ns) / columns->count;
}

/* What a rule saw at each moment; where points lie further apart than its window, the most it saw since the last one. */
static void window_of_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns)
{
	const struct series_rule rule = { .metric = METRIC_CPU_CORES, .window_ns = window_ns };

	if (step_of(columns) < window_ns)
		series_metric(series, &rule, columns);
}

static void put_cpu(struct drawing *drawing)
{
	const struct incident *incident = &drawing->view->incident;
	const struct series *series = &drawing->view->samples.series;
	struct picture picture;
	char name[128], text[64];

	pictures_cpu(incident, series, &picture);
	series_cpu(series, picture.window_ns, &drawing->columns);
	begin_picture(drawing->json, "cpu", &picture);
	snprintf(name, sizeof(name), "each %s", units_format_duration(text, sizeof(text), step_of(&drawing->columns)));
	put_line(drawing, name, "area", drawing->columns.mean, &picture);
	window_of_cpu(series, picture.window_ns, &drawing->columns);
	snprintf(name, sizeof(name),
		 strncmp(incident->rule.metric, "cpu", 3) == 0 ? "over %s, as the rule sees it" : "over %s",
		 units_format_duration(text, sizeof(text), picture.window_ns));
	put_line(drawing, name, "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_memory(struct drawing *drawing)
{
	struct picture picture;

	pictures_memory(&drawing->view->incident, &picture);
	series_memory(&drawing->view->samples.series, &drawing->columns);
	begin_picture(drawing->json, "memory", &picture);
	put_line(drawing, "memory", "area", drawing->columns.mean, &picture);
	put_line(drawing, "peak, between samples included", "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_metric(struct drawing *drawing)
{
	struct series_rule rule;
	struct picture picture;
	char name[128], text[64];

	if (!pictures_metric(&drawing->view->incident, &picture, &rule))
		return;
	series_metric(&drawing->view->samples.series, &rule, &drawing->columns);
	begin_picture(drawing->json, "metric", &picture);
	snprintf(name, sizeof(name), "over %s, as the rule sees it",
		 units_format_duration(text, sizeof(text), rule.window_ns));
	put_line(drawing, name, "line", drawing->columns.peak, &picture);
	end_picture(drawing->json);
}

static void put_time(struct drawing *drawing)
{
	json_key(drawing->json, "time");
	json_begin_object(drawing->json);
	jsonmember_i64(drawing->json, "from_ns", drawing->columns.from_ns);
	jsonmember_i64(drawing->json, "to_ns", drawing->columns.to_ns);
	jsonmember_i64(drawing->json, "points", (int64_t)drawing->columns.count);
	json_end_object(drawing->json);
}

static int put_one(struct drawing *drawing)
{
	int rc = make_columns(drawing, &drawing->view->samples.series, REPORTDATA_POINTS_MAX);

	if (rc < 0)
		return rc;
	put_time(drawing);
	json_key(drawing->json, "plots");
	json_begin_array(drawing->json);
	put_cpu(drawing);
	put_memory(drawing);
	put_metric(drawing);
	json_end_array(drawing->json);
	return 0;
}

/* ---- of everything ---- */

static void put_crowd(struct drawing *drawing, const struct crowd *crowd, const char *id, const struct picture *picture)
{
	begin_picture(drawing->json, id, picture);
	for (size_t i = 0; i < crowd->count; i++) {
		const struct crowd_member *member = &crowd->member[i];

		if (member->series.count == 0)
			continue;
		drawing->columns.known_to_ns = member->series.points[member->series.count - 1].at_ns;
		if (picture->unit == PLOT_BYTES) {
			series_memory(&member->series, &drawing->columns);
		} else {
			series_cpu(&member->series, picture->window_ns, &drawing->columns);
			window_of_cpu(&member->series, picture->window_ns, &drawing->columns);
		}
		put_line(drawing, member->target->name[0] ? member->target->name : "?", "line", drawing->columns.peak,
			 picture);
	}
	end_picture(drawing->json);
}

static void free_crowd(struct crowd **crowd)
{
	if (*crowd)
		crowd_release(*crowd);
	free(*crowd);
}

static int put_everything(struct drawing *drawing, int incidentfd)
{
	static const struct picture cpu = { .title = "CPU of the busiest targets, cores",
					    .unit = PLOT_CORES,
					    .scale = 1,
					    .window_ns = PEAKS_WINDOW_NS };
	static const struct picture memory = { .title = "Memory of the busiest targets",
					       .unit = PLOT_BYTES,
					       .scale = 1 };
	const struct view *view = drawing->view;
	AUTO(free_crowd) struct crowd *crowd = calloc(1, sizeof(*crowd));
	int rc = crowd ? crowd_load(incidentfd, view->incident.wall, &view->samples.peaks, crowd) : -ENOMEM;

	if (rc == 0)
		rc = make_columns(drawing, &view->samples.series, CROWD_POINTS_MAX);
	if (rc < 0)
		return rc;
	put_time(drawing);
	json_key(drawing->json, "plots");
	json_begin_array(drawing->json);
	put_crowd(drawing, crowd, "cpu", &cpu);
	put_crowd(drawing, crowd, "memory", &memory);
	json_end_array(drawing->json);
	return 0;
}

/* ---- the rest ---- */

static void put_targets(struct json_writer *json, const struct peaks *peaks)
{
	json_key(json, "targets");
	json_begin_array(json);
	for (size_t i = 0; i < peaks->count && i < 100; i++) {
		const struct peaks_target *target = &peaks->target[i];

		json_begin_object(json);
		jsonmember_text(json, "name", target->name);
		json_key(json, "cpu_cores");
		json_double(json, target->has_cpu ? target->cpu_cores : NAN);
		json_key(json, "memory_bytes");
		put_value(json, target->has_memory ? (double)target->memory_bytes : NAN, 1);
		json_end_object(json);
	}
	json_end_array(json);
	jsonmember_i64(json, "targets_total", (int64_t)peaks->count);
}

static void put_files(struct json_writer *json, const struct reportdata_files *files)
{
	json_key(json, "absent");
	json_begin_array(json);
	for (size_t i = 0; i < files->absent_count; i++) {
		json_begin_object(json);
		jsonmember_text(json, "name", files->absent[i].name);
		jsonmember_i64(json, "bytes", (int64_t)files->absent[i].bytes);
		jsonmember_text(json, "why", files->absent[i].why);
		json_end_object(json);
	}
	json_end_array(json);
}

/* What became of samples.tsv on the way here. */
static void put_samples(struct json_writer *json, const struct incidentload_samples *samples)
{
	const struct salvage_report *report = &samples->report;

	json_key(json, "samples");
	json_begin_object(json);
	put_text(json, "error",
		 samples->error == 0         ? ""
		 : samples->error == -ENOENT ? "there is no file"
					     : strerror(-samples->error));
	jsonmember_i64(json, "rows_lost", samples->error ? 0 : (int64_t)report->rows_lost);
	jsonmember_i64(json, "damaged_lines", samples->error ? 0 : (int64_t)report->damaged_lines);
	json_key(json, "complete");
	json_bool(json, samples->error || report->complete);
	json_key(json, "cut");
	json_bool(json, samples->cut || samples->outside);
	json_end_object(json);
}

static void put_story(struct json_writer *json, const struct view *view, const char *words)
{
	const struct incident_rule *rule = &view->incident.rule;
	double threshold;
	uint64_t above_ns;

	json_key(json, "damaged");
	json_bool(json, view->glance.damaged);
	jsonmember_text(json, "why", view->glance.damaged ? view->glance.why : "");
	jsonmember_text(json, "summary", words);
	json_key(json, "everything");
	json_bool(json, incident_of_everything(&view->incident));
	json_key(json, "threshold");
	json_double(json, story_threshold(rule, &threshold) ? threshold : NAN);
	json_key(json, "above_ns");
	put_value(json, story_above(&view->incident, &view->samples.series, &above_ns) ? (double)above_ns : NAN, 1);
	put_samples(json, &view->samples);
}

static int write_rest(struct drawing *drawing, int incidentfd, const struct reportdata_files *files, const char *words)
{
	const struct view *view = drawing->view;
	struct json_writer *json = drawing->json;
	int rc = 0;

	json_begin_object(json);
	put_story(json, view, words);
	put_targets(json, &view->samples.peaks);
	put_files(json, files);
	if (view->samples.series.count > 0)
		rc = incident_of_everything(&view->incident) ? put_everything(drawing, incidentfd) : put_one(drawing);
	json_end_object(json);
	return rc;
}

int reportdata_words(const struct view *view, char **ret)
{
	size_t len;
	FILE *file = open_memstream(ret, &len);

	if (!file)
		return -ENOMEM;
	if (view->glance.readable)
		story_tell(&view->incident, &view->samples, file);
	else
		fputs("What happened is not known: incident.json cannot be read.", file);
	return fclose(file) == 0 ? 0 : -ENOMEM;
}

static int make_rest(const struct view *view, int incidentfd, const struct reportdata_files *files, struct buffer *ret)
{
	AUTO(free_drawing) struct drawing drawing = { .view = view };
	AUTO_FREE char *words = NULL;
	int rc = reportdata_words(view, &words), closed;

	if (rc == 0)
		rc = json_writer_new(sink_buffer(ret), false, &drawing.json);
	if (rc < 0)
		return rc;
	rc = write_rest(&drawing, incidentfd, files, words);
	/* An object that is not ended cannot be: write_rest ends it also when memory has run out. */
	closed = json_writer_close(drawing.json);
	return rc < 0 ? rc : closed;
}

int reportdata_write(const struct view *view, int incidentfd, const struct reportdata_files *files,
		     const struct sink *sink)
{
	AUTO(buffer_release) struct buffer incident = { 0 }, rest = { 0 };
	struct sink safe = htmltext_json(sink);
	char head[64];
	int rc = incident_json_write(&view->incident, sink_buffer(&incident));

	if (rc == 0)
		rc = make_rest(view, incidentfd, files, &rest);
	if (rc < 0)
		return rc;

	/* Two documents become one: incident.json as it is, without its newline, as a member of the other. */
	snprintf(head, sizeof(head), "{\"format\":%d,\"incident\":", REPORTDATA_FORMAT);
	rc = sink_write(&safe, head, strlen(head));
	if (rc == 0)
		rc = sink_write(&safe, incident.data, incident.len - 1);
	if (rc == 0)
		rc = sink_write(&safe, ",", 1);
	return rc == 0 ? sink_write(&safe, rest.data + 1, rest.len - 1) : rc;
}
