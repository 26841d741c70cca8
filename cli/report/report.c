/*
 * report.c: spikewatch report writes one page that shows the incident and holds its files.
 *
 * The page draws one JSON object, described in docs/report.md. All its lines share one grid of
 * time, so that times are written once and all pictures zoom together; values are rounded to what
 * can be seen, which halves the page. What is in the files (tables, stacks) is not repeated.
 * The data follow the files, because they list those that had to be left out.
 *
 * The fixed parts of the page are arrays written by the build; a build without npm has none, and no
 * report command.
 */
#include "cli/report/report.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/profiles.h"
#include "cli/incident/series.h"
#include "cli/incident/story.h"
#include "cli/incident/view.h"
#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/stream/stream.h"

#include "cli/report/page.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- text in HTML ---- */

/* The replacement of a character that has a meaning in HTML or cannot be seen; 0: it stays. */
static size_t escape_character(uint32_t code, char *buf, size_t cap)
{
	if (code < 0x20 || code == 0x7f)
		return (size_t)snprintf(buf, cap, "\\x%02x", (unsigned)code);
	if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
		return (size_t)snprintf(buf, cap, "&#%u;", (unsigned)code);
	if (text_is_hidden(code))
		return (size_t)snprintf(buf, cap, "\\u{%x}", (unsigned)code);
	return 0;
}

/*
 * Escapes what has a meaning in HTML. Control characters, bytes that are not UTF-8, and characters
 * that are invisible or change the direction of others become \xNN or \u{NNNN}. A backslash stays,
 * so that text that was escaped before is not escaped twice.
 */
static int write_html(const struct sink *sink, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		char buf[16];
		uint32_t code = 0;
		size_t taken = text_decode(at, (size_t)(end - at), &code), used;
		int rc;

		if (taken == 0)
			used = (size_t)snprintf(buf, sizeof(buf), "\\x%02x", (unsigned)(unsigned char)*at);
		else
			used = escape_character(code, buf, sizeof(buf));
		taken = taken ? taken : 1;
		rc = used ? sink_write(sink, buf, used) : sink_write(sink, at, taken);
		if (rc < 0)
			return rc;
		at += taken;
	}
	return 0;
}

static int write_escaped_json(void *ctx, const void *data, size_t len)
{
	const struct sink *inner = ctx;
	const char *at = data, *end = at + len;

	while (at < end) {
		const char *tag = memchr(at, '<', (size_t)(end - at));
		size_t plain = (size_t)((tag ? tag : end) - at);
		int rc = plain ? sink_write(inner, at, plain) : 0;

		if (rc == 0 && tag)
			rc = sink_write(inner, "\\u003c", 6);
		if (rc < 0)
			return rc;
		at += plain + (tag ? 1 : 0);
	}
	return 0;
}

struct sink report_json_sink(const struct sink *inner)
{
	return (struct sink){ .write = write_escaped_json, .ctx = (void *)(uintptr_t)inner };
}

static int put_text(const struct sink *sink, const char *text)
{
	return sink_write(sink, text, strlen(text));
}

/* ---- the fixed parts of the page ---- */

enum report_page_part {
	PART_TITLE, /* before the title */
	PART_STORY, /* before the words */
	PART_DATA,  /* before the data and the files */
	PART_END,
	PARTS,
};

/* Each array ends with a byte that does not count: none is empty. */
#define PART(bytes) \
	{ \
		bytes, sizeof(bytes) - 1 \
	}

static const struct {
	const unsigned char *data;
	size_t len;
} parts[PARTS] = {
	[PART_TITLE] = PART(report_page_0),
	[PART_STORY] = PART(report_page_1),
	[PART_DATA] = PART(report_page_2),
	[PART_END] = PART(report_page_3),
};

bool report_page_built(void)
{
	return parts[PART_TITLE].len > 0;
}

static int put_part(enum report_page_part part, const struct sink *sink)
{
	return sink_write(sink, parts[part].data, parts[part].len);
}

int report_page_begin(const struct sink *sink, const char *title, const char *words)
{
	int rc = put_part(PART_TITLE, sink);

	if (rc == 0)
		rc = write_html(sink, title, strlen(title));
	if (rc == 0)
		rc = put_part(PART_STORY, sink);
	if (rc == 0)
		rc = write_html(sink, words, strlen(words));
	return rc == 0 ? put_part(PART_DATA, sink) : rc;
}

int report_page_end(const struct sink *sink)
{
	int rc = put_text(sink, "</script>\n");

	return rc == 0 ? put_part(PART_END, sink) : rc;
}

/* ---- the data ---- */

/* Points of a line; what lies closer together is one point, with its highest value. */
#define POINTS_MIN 64
#define POINTS_MAX 6000
#define BUSIEST_TARGETS_POINTS_MAX 1500 /* of each of several targets */

/* A file of the incident that the page does not hold. */
struct absent_file {
	char name[64];
	uint64_t bytes;
	char why[96]; /* printable */
};

#define FILES_MAX 64

struct absent_files {
	struct absent_file file[FILES_MAX];
	size_t count;
};

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
	double steps = picture->unit == UNIT_BYTES ? 1 : picture->unit == UNIT_CORES ? 1e4 : 1e2;

	json_member_array(json, "values");
	for (size_t i = 0; i < count; i++)
		put_value(json, values[i] * picture->scale, steps);
	json_end_array(json);
}

/* kind: "area" for what was measured, "line" for what a rule computes from it. */
static void put_line(struct drawing *drawing, const char *name, const char *kind, const double *values,
		     const struct picture *picture)
{
	json_begin_object(drawing->json);
	json_member_text(drawing->json, "name", name);
	json_member_text(drawing->json, "kind", kind);
	put_values(drawing->json, values, drawing->columns.count, picture);
	json_end_object(drawing->json);
}

static void begin_picture(struct json_writer *json, const char *id, const struct picture *picture)
{
	json_begin_object(json);
	json_member_text(json, "id", id);
	json_member_text(json, "title", picture->title);
	json_member_text(json, "unit", units_name(picture->unit));
	json_member_array(json, "levels");
	for (size_t i = 0; i < picture->levels; i++) {
		json_begin_object(json);
		json_member_text(json, "name", picture->level[i].name);
		json_member_double(json, "value", picture->level[i].value);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_array(json, "lines");
}

static void end_picture(struct json_writer *json)
{
	json_end_array(json);
	json_end_object(json);
}

static uint64_t step_of(const struct series_columns *columns)
{
	return (uint64_t)(columns->to_ns - columns->from_ns) / columns->count;
}

/*
 * Makes CPU columns (series_cpu) what a rule saw at each moment; where points lie further apart
 * than its window, they stay the highest value since the point before.
 */
static void cpu_by_window(const struct series *series, uint64_t window_ns, const struct series_columns *columns)
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
	cpu_by_window(series, picture.window_ns, &drawing->columns);
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
	json_member_object(drawing->json, "time");
	json_member_i64(drawing->json, "from_ns", drawing->columns.from_ns);
	json_member_i64(drawing->json, "to_ns", drawing->columns.to_ns);
	json_member_i64(drawing->json, "points", (int64_t)drawing->columns.count);
	json_end_object(drawing->json);
}

/* Of what is drawn; "cpu" is the average over it, in the unit of the picture of CPU. */
static void put_holes(struct drawing *drawing)
{
	const struct series *series = &drawing->view->samples.series;
	struct series_columns range = { 0 };
	struct picture picture;

	pictures_cpu(&drawing->view->incident, series, &picture);
	if (series->count > 0)
		pictures_range(&drawing->view->incident, series, &range);
	json_member_array(drawing->json, "holes");
	for (size_t i = 0; i < series->holes.count; i++) {
		const struct series_hole *hole = &series->holes.hole[i];
		double cores;

		json_begin_object(drawing->json);
		json_member_i64(drawing->json, "from_ns", hole->from_ns);
		json_member_i64(drawing->json, "to_ns", hole->to_ns);
		json_member_u64(drawing->json, "suspended_ns", hole->suspended_ns);
		json_key(drawing->json, "cpu");
		put_value(drawing->json,
			  series_hole_cpu(series, hole, range.known_to_ns, &cores) ? cores * picture.scale : NAN, 1e2);
		json_end_object(drawing->json);
	}
	json_end_array(drawing->json);
}

static int put_one_target(struct drawing *drawing)
{
	int rc = make_columns(drawing, &drawing->view->samples.series, POINTS_MAX);

	if (rc < 0)
		return rc;
	put_time(drawing);
	put_holes(drawing);
	json_member_array(drawing->json, "plots");
	/* What fired is on the first screen. */
	put_metric(drawing);
	if (strncmp(drawing->view->incident.rule.metric, "memory", strlen("memory")) == 0)
		put_memory(drawing);
	put_cpu(drawing);
	if (strncmp(drawing->view->incident.rule.metric, "memory", strlen("memory")) != 0)
		put_memory(drawing);
	json_end_array(drawing->json);
	return 0;
}

static void put_busiest(struct drawing *drawing, const struct busiest_targets *busiest_targets, const char *id,
			const struct picture *picture)
{
	begin_picture(drawing->json, id, picture);
	for (size_t i = 0; i < busiest_targets->count; i++) {
		const struct busiest_targets_member *member = &busiest_targets->member[i];

		if (member->series.count == 0)
			continue;
		drawing->columns.known_to_ns = member->series.points[member->series.count - 1].at_ns;
		if (picture->unit == UNIT_BYTES) {
			series_memory(&member->series, &drawing->columns);
		} else {
			series_cpu(&member->series, picture->window_ns, &drawing->columns);
			cpu_by_window(&member->series, picture->window_ns, &drawing->columns);
		}
		put_line(drawing, member->target->name[0] ? member->target->name : "?", "line", drawing->columns.peak,
			 picture);
	}
	end_picture(drawing->json);
}

static void free_busiest_targets(struct busiest_targets **busiest_targets)
{
	if (*busiest_targets)
		busiest_targets_release(*busiest_targets);
	free(*busiest_targets);
}

static int put_everything(struct drawing *drawing, int incidentfd)
{
	static const struct picture cpu = { .title = "CPU of the busiest targets, cores",
					    .unit = UNIT_CORES,
					    .scale = 1,
					    .window_ns = PEAKS_WINDOW_NS };
	static const struct picture memory = { .title = "Memory of the busiest targets",
					       .unit = UNIT_BYTES,
					       .scale = 1 };
	const struct view *view = drawing->view;
	AUTO(free_busiest_targets) struct busiest_targets *busiest_targets = calloc(1, sizeof(*busiest_targets));
	int rc = busiest_targets
			 ? busiest_targets_load(incidentfd, view->incident.wall, &view->samples.peaks, busiest_targets)
			 : -ENOMEM;

	if (rc == 0)
		rc = make_columns(drawing, &view->samples.series, BUSIEST_TARGETS_POINTS_MAX);
	if (rc < 0)
		return rc;
	put_time(drawing);
	put_holes(drawing);
	json_member_array(drawing->json, "plots");
	put_busiest(drawing, busiest_targets, "cpu", &cpu);
	put_busiest(drawing, busiest_targets, "memory", &memory);
	json_end_array(drawing->json);
	return 0;
}

static void put_targets(struct json_writer *json, const struct peaks *peaks)
{
	json_member_array(json, "targets");
	for (size_t i = 0; i < peaks->count && i < 100; i++) {
		const struct peaks_target *target = &peaks->target[i];

		json_begin_object(json);
		json_member_text(json, "name", target->name);
		json_member_double(json, "cpu_cores", target->has_cpu ? target->cpu_cores : NAN);
		json_key(json, "memory_bytes");
		put_value(json, target->has_memory ? (double)target->memory_bytes : NAN, 1);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_i64(json, "targets_total", (int64_t)peaks->count);
}

static void put_absent(struct json_writer *json, const struct absent_files *absent)
{
	json_member_array(json, "absent");
	for (size_t i = 0; i < absent->count; i++) {
		json_begin_object(json);
		json_member_text(json, "name", absent->file[i].name);
		json_member_i64(json, "bytes", (int64_t)absent->file[i].bytes);
		json_member_text(json, "why", absent->file[i].why);
		json_end_object(json);
	}
	json_end_array(json);
}

/* How samples.tsv could be read. */
static void put_samples(struct json_writer *json, const struct incident_samples *samples)
{
	const struct stream_reader_report *report = &samples->report;

	json_member_object(json, "samples");
	json_member_text(json, "error",
			 samples->error == 0         ? ""
			 : samples->error == -ENOENT ? "there is no file"
						     : strerror(-samples->error));
	json_member_i64(json, "rows_lost", samples->error ? 0 : (int64_t)report->rows_lost);
	json_member_i64(json, "damaged_lines", samples->error ? 0 : (int64_t)report->damaged_lines);
	json_member_bool(json, "complete", samples->error || report->complete);
	json_member_bool(json, "cut", samples->cut || samples->dropped);
	json_end_object(json);
}

/* ---- packages of the programs in the stacks ---- */

/*
 * Which package would bring debug symbols is known where the incident was recorded: by the lists
 * of files that dpkg keeps. A line of them is a path; paths of merged /usr may be listed without it.
 */
#define PACKAGE_LISTS "/var/lib/dpkg/info"
#define PACKAGE_PATHS_MAX 256
#define PACKAGE_LIST_MAX ((size_t)16 << 20)

struct packaged {
	char *path;
	char package[128]; /* "": not known */
};

struct packages {
	struct packaged of[PACKAGE_PATHS_MAX]; /* by path, without "/usr" */
	size_t count;
	int dirfd;
};

static const char *without_usr(const char *path)
{
	return strncmp(path, "/usr/", 5) == 0 ? path + 4 : path;
}

static int by_packaged_path(const void *a, const void *b)
{
	const struct packaged *x = a, *y = b;

	return strcmp(without_usr(x->path), without_usr(y->path));
}

static void packages_release(struct packages *packages)
{
	for (size_t i = 0; i < packages->count; i++)
		free(packages->of[i].path);
	if (packages->dirfd >= 0)
		close(packages->dirfd);
}

static void add_packaged_path(struct packages *packages, const char *path, size_t len)
{
	char *copy;

	if (len == 0 || *path != '/' || packages->count == PACKAGE_PATHS_MAX || memchr(path, '\0', len))
		return;
	for (size_t i = 0; i < packages->count; i++)
		if (strlen(packages->of[i].path) == len && memcmp(packages->of[i].path, path, len) == 0)
			return;
	copy = strndup(path, len);
	if (copy)
		packages->of[packages->count++].path = copy;
}

/* The mapped files of a profile. */
static void add_profile_paths(struct packages *packages, int incidentfd, bool memory)
{
	AUTO(pprof_read_freep) struct pprof_read *reader = NULL;
	const struct pprof_read_profile *profile;

	if (stack_fold_open(incidentfd, memory, &reader) < 0)
		return;
	profile = pprof_read_profile(reader);
	for (uint32_t i = 0; i < profile->mapping_count; i++) {
		const struct pprof_read_text *file = &profile->strings[profile->mappings[i].file];

		add_packaged_path(packages, file->at, file->len);
	}
}

/* "postgresql-15.list", "libc6:amd64.list": of a package. */
static int read_package_list(void *ctx, const char *name)
{
	struct packages *packages = ctx;
	AUTO(buffer_release) struct buffer text = { .max = PACKAGE_LIST_MAX };
	size_t len = strlen(name), name_len = strcspn(name, ":");
	struct packaged key;

	if (len < 6 || strcmp(name + len - 5, ".list") != 0 || whole_file_read(packages->dirfd, name, &text) < 0 ||
	    buffer_append(&text, "", 1) < 0)
		return 0;
	if (name_len == len)
		name_len -= strlen(".list");
	for (char *line = text.data, *end; *line; line = end) {
		struct packaged *found;

		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		key.path = line;
		found = bsearch(&key, packages->of, packages->count, sizeof(key), by_packaged_path);
		if (found)
			snprintf(found->package, sizeof(found->package), "%.*s", (int)name_len, name);
	}
	return 0;
}

/* Of what runs in a container the files are other ones. */
static bool is_of_this_machine(const struct incident *incident)
{
	char name[256] = "";

	return !incident->has_container && gethostname(name, sizeof(name) - 1) == 0 &&
	       strcmp(name, incident->hostname) == 0;
}

static void put_packages(struct json_writer *json, const struct incident *incident, int incidentfd)
{
	AUTO(packages_release) struct packages packages = { .dirfd = -1 };

	json_member_object(json, "packages");
	if (is_of_this_machine(incident))
		packages.dirfd = open(PACKAGE_LISTS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (packages.dirfd >= 0) {
		add_profile_paths(&packages, incidentfd, false);
		add_profile_paths(&packages, incidentfd, true);
		qsort(packages.of, packages.count, sizeof(packages.of[0]), by_packaged_path);
		directory_list_each(packages.dirfd, read_package_list, &packages);
	}
	for (size_t i = 0; i < packages.count; i++)
		if (packages.of[i].package[0])
			json_member_text(json, packages.of[i].path, packages.of[i].package);
	json_end_object(json);
}

static void put_story(struct json_writer *json, const struct view *view, const char *words)
{
	const struct incident_rule *rule = &view->incident.rule;
	char change[VIEW_MEMORY_CHANGE_MAX];
	AUTO_FREE char *headline = NULL;
	size_t len;
	FILE *file = view->glance.readable ? open_memstream(&headline, &len) : NULL;
	double threshold;
	struct series_above above;

	if (file)
		view_headline(view, file);
	if (file && fclose(file) != 0)
		output_incomplete("the headline", -ENOMEM);
	json_member_bool(json, "damaged", view->glance.damaged);
	json_member_text(json, "why", view->glance.damaged ? view->glance.why : "");
	json_member_text(json, "headline", headline ? headline : "");
	json_member_text(json, "summary", words);
	json_member_text(json, "advice", view->functions.advice);
	json_member_text(json, "memory_change", view_memory_change(view, change) ? change : "");
	json_member_bool(json, "everything", incident_of_everything(&view->incident));
	json_member_double(json, "threshold", story_threshold(rule, &threshold) ? threshold : NAN);
	json_key(json, "above_ns");
	put_value(json, story_above(&view->incident, &view->samples.series, &above) ? (double)above.ns : NAN, 1);
	put_samples(json, &view->samples);
}

/* Everything but the incident itself, as an object, which is ended on errors too. */
static int write_data_object(struct drawing *drawing, int incidentfd, const struct absent_files *absent,
			     const char *words)
{
	const struct view *view = drawing->view;
	struct json_writer *json = drawing->json;
	int rc = 0;

	json_begin_object(json);
	put_story(json, view, words);
	put_packages(json, &view->incident, incidentfd);
	put_targets(json, &view->samples.peaks);
	view_put_members(view, json);
	put_absent(json, absent);
	if (view->samples.series.count > 0)
		rc = incident_of_everything(&view->incident) ? put_everything(drawing, incidentfd)
							     : put_one_target(drawing);
	json_end_object(json);
	return rc;
}

/* The sentences of spikewatch show, into *ret, for free(3). 0 or -ENOMEM. */
static int make_words(const struct view *view, char **ret)
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

static int make_data_object(const struct view *view, int incidentfd, const struct absent_files *absent,
			    const char *words, struct buffer *ret)
{
	AUTO(free_drawing) struct drawing drawing = { .view = view };
	int rc = json_writer_new(sink_buffer(ret), false, &drawing.json), closed;

	if (rc < 0)
		return rc;
	rc = write_data_object(&drawing, incidentfd, absent, words);
	closed = json_writer_close(drawing.json);
	return rc < 0 ? rc : closed;
}

/* view: loaded from incidentfd. No "<" is written. 0; -ENOMEM; what the sink returned. */
static int write_data(const struct view *view, int incidentfd, const struct absent_files *absent, const char *words,
		      const struct sink *sink)
{
	AUTO(buffer_release) struct buffer incident = { 0 }, rest = { 0 };
	struct sink safe = report_json_sink(sink);
	char head[64];
	int rc = incident_json_write(&view->incident, sink_buffer(&incident));

	if (rc == 0)
		rc = make_data_object(view, incidentfd, absent, words, &rest);
	if (rc < 0)
		return rc;

	/* incident.json, without its newline, becomes a member of the other document. */
	snprintf(head, sizeof(head), "{\"format\":%d,\"incident\":", REPORT_DATA_FORMAT);
	rc = sink_write(&safe, head, strlen(head));
	if (rc == 0)
		rc = sink_write(&safe, incident.data, incident.len - 1);
	if (rc == 0)
		rc = sink_write(&safe, ",", 1);
	return rc == 0 ? sink_write(&safe, rest.data + 1, rest.len - 1) : rc;
}

/* ---- marks of embedded files ---- */

/*
 * Lines that begin as a mark does are read strictly, in the one form in which they are written:
 * anything else is damage, except for CR LF, which mail programs make of ends of lines. Rejected: a
 * parser of HTML, since a page saved by an HTML editor no longer holds the files bit for bit.
 */

#define FORMAT 1

#define MARK "<script type=\"application/octet-stream;base64\" data-spikewatch=\""
#define CLOSE "</script>"
#define MARK_MAX 512

_Static_assert(sizeof(MARK) + MANIFEST_NAME_MAX + REPORT_FILE_INCIDENT_MAX + 100 < MARK_MAX, "room for a mark");

/* ---- base64 ---- */

#define BASE64_LINE 76 /* letters */
#define BASE64_LINE_BYTES (BASE64_LINE / 4 * 3)
#define BASE64_PIECE 3072 /* decoded bytes are appended so many at a time */

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void encode_group(char out[static 4], const unsigned char *data, size_t len)
{
	uint32_t bits = (uint32_t)data[0] << 16 | (len > 1 ? (uint32_t)data[1] << 8 : 0) | (len > 2 ? data[2] : 0u);

	out[0] = letters[bits >> 18];
	out[1] = letters[bits >> 12 & 63];
	out[2] = len > 1 ? letters[bits >> 6 & 63] : '=';
	out[3] = len > 2 ? letters[bits & 63] : '=';
}

/* Lines as in RFC 4648, section 4; nothing for no bytes. 0 or what the sink returned. */
static int base64_write(const struct sink *sink, const void *data, size_t len)
{
	const unsigned char *at = data;

	while (len > 0) {
		char line[BASE64_LINE + 1];
		size_t take = len < BASE64_LINE_BYTES ? len : BASE64_LINE_BYTES, used = 0;
		int rc;

		for (size_t i = 0; i < take; i += 3, used += 4)
			encode_group(line + used, at + i, take - i);
		line[used++] = '\n';
		rc = sink_write(sink, line, used);
		if (rc < 0)
			return rc;
		at += take;
		len -= take;
	}
	return 0;
}

/* -1: no letter. */
static int letter_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_white_space(char c)
{
	return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* Four letters, as far as they were read. */
struct base64_group {
	uint32_t bits;
	unsigned letters, padding;
};

static bool base64_take_letter(struct base64_group *group, char c)
{
	int value = letter_value(c);

	if (c == '=') {
		if (group->letters < 2 || group->letters + group->padding >= 4)
			return false;
		group->padding++;
		return true;
	}
	if (value < 0 || group->padding > 0)
		return false;
	group->bits = group->bits << 6 | (uint32_t)value;
	group->letters++;
	return true;
}

/* How many bytes a whole group stands for: one to three; 0: unused bits are set. */
static size_t decode_group(const struct base64_group *group, unsigned char out[static 3])
{
	uint32_t bits = group->bits << 6 * group->padding;

	out[0] = (unsigned char)(bits >> 16);
	out[1] = (unsigned char)(bits >> 8);
	out[2] = (unsigned char)bits;
	if ((group->padding > 0 && out[2]) || (group->padding > 1 && out[1]))
		return 0;
	return 3 - group->padding;
}

/*
 * Appends what text stands for; white space is skipped. 0; -EBADMSG: other letters, padding at the
 * wrong place, or unused bits that are not zero; -ENOMEM; -EFBIG beyond buffer->max. After an error
 * a part may have been appended.
 */
static int base64_read(const char *text, size_t len, struct buffer *buffer)
{
	struct base64_group group = { .letters = 0 };
	unsigned char piece[BASE64_PIECE];
	size_t used = 0;
	bool ended = false;
	int rc;

	for (size_t i = 0; i < len; i++) {
		size_t count;

		if (is_white_space(text[i]))
			continue;
		if (ended || !base64_take_letter(&group, text[i]))
			return -EBADMSG;
		if (group.letters + group.padding < 4)
			continue;
		count = decode_group(&group, piece + used);
		if (count == 0)
			return -EBADMSG;
		ended = group.padding > 0;
		group = (struct base64_group){ .letters = 0 };
		used += count;
		if (used > sizeof(piece) - 3) {
			rc = buffer_append(buffer, piece, used);
			if (rc < 0)
				return rc;
			used = 0;
		}
	}
	if (group.letters > 0)
		return -EBADMSG;
	return used > 0 ? buffer_append(buffer, piece, used) : 0;
}

/* ---- files into a page ---- */

__attribute__((format(printf, 2, 3))) static int write_line(const struct sink *sink, const char *format, ...)
{
	char line[MARK_MAX];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return sink_write(sink, line, (size_t)len);
}

/* The letters of manifest_name_ok, but longer. */
static bool incident_ok(const char *name, size_t len)
{
	if (len == 0 || len > REPORT_FILE_INCIDENT_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' &&
		    c != '.' && c != '-')
			return false;
	}
	return true;
}

/*
 * incident: its name; one that is not allowed is left empty. 0 or what the sink returned; so do the
 * others.
 */
static int report_file_begin(const struct sink *sink, const char *incident)
{
	return write_line(sink, "\n" MARK "begin\" data-format=\"%d\" data-incident=\"%s\">" CLOSE "\n", FORMAT,
			  incident_ok(incident, strlen(incident)) ? incident : "");
}

/* name: one of manifest_name_ok, else -EINVAL. */
static int report_file_put(const struct sink *sink, const char *name, const void *data, size_t len)
{
	int rc;

	if (!manifest_name_ok(name))
		return -EINVAL;
	rc = write_line(sink, MARK "file\" data-name=\"%s\" data-bytes=\"%zu\" data-crc32=\"%08x\">\n", name, len,
			checksum_crc32(CHECKSUM_CRC32_EMPTY, data, len));
	if (rc < 0)
		return rc;
	rc = base64_write(sink, data, len);
	return rc < 0 ? rc : write_line(sink, CLOSE "\n");
}

/* count: of the files that were put. */
static int report_file_end(const struct sink *sink, uint64_t count)
{
	return write_line(sink, MARK "end\" data-files=\"%ju\">" CLOSE "\n", (uintmax_t)count);
}

/* ---- files out of a page ---- */

struct span {
	const char *at, *end;
};

/* Moves behind literal, if it stands there. */
static bool skip_literal(struct span *span, const char *literal)
{
	size_t len = strlen(literal);

	if ((size_t)(span->end - span->at) < len || memcmp(span->at, literal, len) != 0)
		return false;
	span->at += len;
	return true;
}

static bool take_number(struct span *span, uint64_t *ret)
{
	const char *end = text_parse_u64(span->at, span->end, ret);

	if (!end)
		return false;
	span->at = end;
	return true;
}

static bool take_crc32(struct span *span, uint32_t *ret)
{
	const char *end = span->end - span->at > 8 ? span->at + 8 : span->end;
	uint64_t value;

	if (text_parse_hex(span->at, end, &value) != end || end - span->at != 8)
		return false;
	span->at = end;
	*ret = (uint32_t)value;
	return true;
}

/* Length up to the quote; 0: there is none. */
static size_t until_quote(const struct span *span)
{
	const char *quote = memchr(span->at, '"', (size_t)(span->end - span->at));

	return quote ? (size_t)(quote - span->at) : 0;
}

static bool take_name(struct span *span, char ret[static MANIFEST_NAME_MAX + 1])
{
	size_t len = until_quote(span);

	if (len == 0 || len > MANIFEST_NAME_MAX || memchr(span->at, '\0', len))
		return false;
	memcpy(ret, span->at, len);
	ret[len] = '\0';
	span->at += len;
	return manifest_name_ok(ret);
}

/* Moves behind the next mark at the beginning of a line. False: there is none. */
static bool find_mark(struct report_file *files)
{
	static const size_t len = sizeof(MARK) - 1;

	while (files->at < files->end) {
		const char *newline =
			files->at[0] == '\n' ? files->at : memchr(files->at, '\n', (size_t)(files->end - files->at));
		const char *line = newline ? newline + 1 : files->end;

		files->at = line;
		if ((size_t)(files->end - line) >= len && memcmp(line, MARK, len) == 0) {
			files->at = line + len;
			return true;
		}
	}
	return false;
}

static bool skip_newline(struct span *span)
{
	skip_literal(span, "\r");
	return skip_literal(span, "\n");
}

/* The text from the walk's position on. */
static struct span rest_of(const struct report_file *files)
{
	return (struct span){ files->at, files->end };
}

int report_file_start(struct report_file *files, const char *text, size_t len)
{
	struct span span;
	uint64_t format;
	size_t name;

	*files = (struct report_file){ .at = text, .end = text + len };
	if (!find_mark(files))
		return -ENOENT;
	span = rest_of(files);
	if (!skip_literal(&span, "begin\" data-format=\"") || !take_number(&span, &format))
		return -ENOENT;
	if (format != FORMAT)
		return -EPROTONOSUPPORT;
	if (!skip_literal(&span, "\" data-incident=\""))
		return 0;
	name = until_quote(&span);
	if (incident_ok(span.at, name)) {
		memcpy(files->incident, span.at, name);
		files->incident[name] = '\0';
	}
	return 0;
}

static int read_end_mark(const struct report_file *files, struct span span)
{
	uint64_t count;

	if (!take_number(&span, &count) || !skip_literal(&span, "\">" CLOSE) || count != files->count)
		return -ENODATA;
	return REPORT_FILE_END;
}

/* A file ends at the first "<", which base64 does not have. */
static int read_file_mark(struct report_file *files, struct span span, struct report_file_entry *ret)
{
	struct report_file_entry entry;
	const char *close;

	files->count++;
	if (!take_name(&span, entry.name) || !skip_literal(&span, "\" data-bytes=\"") ||
	    !take_number(&span, &entry.size_bytes) || !skip_literal(&span, "\" data-crc32=\"") ||
	    !take_crc32(&span, &entry.crc32) || !skip_literal(&span, "\">") || !skip_newline(&span))
		return -EBADMSG;
	close = memchr(span.at, '<', (size_t)(span.end - span.at));
	if (!close)
		return -EBADMSG;
	entry.text = span.at;
	entry.text_len = (size_t)(close - span.at);
	span.at = close;
	if (!skip_literal(&span, CLOSE))
		return -EBADMSG;
	/* The next mark is searched for from a newline. */
	files->at = span.at;
	*ret = entry;
	return 0;
}

int report_file_next(struct report_file *files, struct report_file_entry *ret)
{
	struct span span;

	if (!find_mark(files))
		return -ENODATA;
	span = rest_of(files);
	if (skip_literal(&span, "end\" data-files=\""))
		return read_end_mark(files, span);
	if (skip_literal(&span, "file\" data-name=\""))
		return read_file_mark(files, span, ret);
	files->count++;
	return -EBADMSG;
}

int report_file_get(const struct report_file_entry *entry, struct buffer *buffer)
{
	size_t before = buffer->len;
	int rc;

	/* Memory is bounded by what is there, not by what the mark says. */
	if (entry->size_bytes > entry->text_len)
		return -EBADMSG;
	rc = base64_read(entry->text, entry->text_len, buffer);
	if (rc < 0)
		return rc;
	if (buffer->len - before != entry->size_bytes ||
	    checksum_crc32(CHECKSUM_CRC32_EMPTY, buffer->data ? buffer->data + before : "", buffer->len - before) !=
		    entry->crc32)
		return -EBADMSG;
	return 0;
}

/* ---- the files of an incident ---- */

struct files {
	int dirfd;
	uint64_t limit_bytes;
	char name[FILES_MAX][MANIFEST_NAME_MAX + 1]; /* to be embedded */
	size_t count;
	struct absent_files absent; /* more than FILES_MAX are not listed */
};

static void leave_out(struct files *files, const char *name, uint64_t bytes, const char *why)
{
	struct absent_file *file = &files->absent.file[files->absent.count];

	if (files->absent.count == FILES_MAX)
		return;
	incident_text(file->name, sizeof(file->name), name);
	incident_text(file->why, sizeof(file->why), why);
	file->bytes = bytes;
	files->absent.count++;
}

static int list_file(void *ctx, const char *name)
{
	struct files *files = ctx;
	struct stat st;

	if (fstatat(files->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		leave_out(files, name, 0, strerror(-output_incomplete(name, -errno)));
	else if (!S_ISREG(st.st_mode))
		leave_out(files, name, 0, "not a plain file");
	else if (!manifest_name_ok(name))
		leave_out(files, name, (uint64_t)st.st_size, "no file of an incident has such a name");
	else if ((uint64_t)st.st_size > files->limit_bytes)
		leave_out(files, name, (uint64_t)st.st_size, "too large for a page");
	else if (files->count == FILES_MAX)
		leave_out(files, name, (uint64_t)st.st_size, "there are too many files");
	else
		incident_text(files->name[files->count++], sizeof(files->name[0]), name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* A file that cannot be read is left out, and the page goes on. */
static int put_file(struct files *files, const char *name, const struct sink *sink, uint64_t *count)
{
	AUTO(buffer_release) struct buffer bytes = { .max = files->limit_bytes };
	int rc = incident_load_whole(files->dirfd, name, &bytes);

	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		leave_out(files, name, 0, strerror(-rc));
		return 0;
	}
	++*count;
	return report_file_put(sink, name, bytes.data ? bytes.data : "", bytes.len);
}

static int put_files(struct files *files, const char *id, const struct sink *sink)
{
	uint64_t count = 0;
	int rc = report_file_begin(sink, id);

	for (size_t i = 0; rc == 0 && i < files->count; i++)
		rc = put_file(files, files->name[i], sink, &count);
	return rc == 0 ? report_file_end(sink, count) : rc;
}

static int put_page(const struct view *view, struct files *files, const struct sink *sink)
{
	const char *id = view->incident.id[0] ? view->incident.id : "an incident without a name";
	AUTO_FREE char *words = NULL;
	int rc = make_words(view, &words);

	if (rc == 0)
		rc = report_page_begin(sink, id, words);
	if (rc == 0)
		rc = put_files(files, view->incident.id, sink);
	if (rc == 0)
		rc = put_text(sink, REPORT_DATA_BEGIN);
	if (rc == 0)
		rc = write_data(view, files->dirfd, &files->absent, words, sink);
	return rc == 0 ? report_page_end(sink) : rc;
}

/*
 * Files of more than file_bytes_max, and what is no regular file, are left out and listed in *ret,
 * which is set unless memory ran out. 0; -ENOMEM; -errno; what the sink returned.
 */
static int write_report(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
			struct absent_files *ret)
{
	AUTO_FREE struct files *files = calloc(1, sizeof(*files));
	int rc;

	if (!files)
		return -ENOMEM;
	files->dirfd = incidentfd;
	files->limit_bytes = file_bytes_max;
	rc = directory_list_each(incidentfd, list_file, files);
	qsort(files->name, files->count, sizeof(files->name[0]), by_name);
	if (rc == 0)
		rc = put_page(view, files, sink);
	*ret = files->absent;
	return rc;
}

/* ---- the command ---- */

/* No browser would open a page with a core dump in it. */
#define FILE_BYTES_MAX ((uint64_t)32 << 20)

struct job {
	struct view view;
	int incidentfd;
	uint64_t file_bytes_max;
	struct absent_files absent;
};

/* The page of a damaged incident is kept. */
static int write_page(void *ctx, FILE *file, bool *keep)
{
	struct job *job = ctx;
	struct sink sink = output_sink(file);
	int rc = write_report(&job->view, job->incidentfd, job->file_bytes_max, &sink, &job->absent);

	*keep = rc == 0;
	if (rc == 0)
		return job->view.glance.damaged ? EXIT_TROUBLE : EXIT_OK;
	if (ferror(file)) /* output_file_write reports it */
		return EXIT_TROUBLE;
	if (rc == -ENOMEM)
		return output_no_memory();
	fprintf(stderr, "spikewatch report: %s\n", strerror(-rc));
	return EXIT_TROUBLE;
}

/* Nothing for standard output or a device. */
static void print_written(const char *path, const struct absent_files *absent)
{
	char size[64];
	struct stat st;

	if (strcmp(path, "-") == 0 || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	fputs("Written: ", stdout);
	output_escaped(stdout, path);
	printf(", %s\n", units_format(size, sizeof(size), UNIT_BYTES, (double)st.st_size, UNITS_COLUMN));
	for (size_t i = 0; i < absent->count; i++) {
		fputs("Not in it: ", stdout);
		output_escaped(stdout, absent->file[i].name);
		printf(": %s\n", absent->file[i].why);
	}
}

static int report_incident(int fd, const char *path, uint64_t file_bytes_max)
{
	AUTO_FREE struct job *job = calloc(1, sizeof(*job));
	char named[INCIDENT_NAME_MAX + sizeof("incident.html")];
	struct output_file out;
	int rc;

	if (!job)
		return output_no_memory();
	job->incidentfd = fd;
	job->file_bytes_max = file_bytes_max;
	rc = view_load(fd, &job->view);
	if (rc < 0)
		return output_no_memory();
	if (!path) {
		/* An id that was tampered with must not name another directory. */
		snprintf(named, sizeof(named), "%s.html",
			 incident_name_ok(job->view.incident.id) ? job->view.incident.id : "incident");
		path = named;
	}
	out = (struct output_file){ .command = "spikewatch report", .path = path, .write = write_page, .ctx = job };
	rc = output_file_write(&out);
	incident_samples_release(&job->view.samples);
	if (out.kept)
		print_written(path, &job->absent);
	return rc;
}

static int refuse_unbuilt(void)
{
	fputs("spikewatch report: this spikewatch was built without npm, so it has no reports; everything else works.\n"
	      "spikewatch show prints the same as text, and spikewatch export writes the files.\n",
	      stderr);
	return EXIT_TROUBLE;
}

int report_command(int argc, char **argv)
{
	const char *directory = NULL, *path = NULL;
	uint64_t file_bytes_max = FILE_BYTES_MAX;
	const struct option_spec options[] = {
		{ 'o', "output", OPTION_TEXT, "FILE", "where to; default: ID.html, here; -: standard output", &path },
		{ 0, "max-file", OPTION_SIZE, "SIZE", "leave out larger files; default 32MiB", &file_bytes_max },
		OPTION_DIRECTORY(&directory),
	};
	const struct options_usage usage = {
		.command = "spikewatch report",
		.operands = "ID|PATH",
		.summary = "Writes one incident as a page of HTML that opens anywhere, offline.",
		.description =
			INCIDENT_PICK_HELP "\nThe page holds the incident's files; spikewatch export restores them.",
		.example = "spikewatch report last -o ticket-4711.html",
		.exits = "0 written, 1 not found, damaged (but written), or built without npm, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (!report_page_built())
		return refuse_unbuilt();
	rc = incident_pick(usage.command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENT_PICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return report_incident(fd, path, file_bytes_max);
}
