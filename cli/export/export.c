/*
 * export.c: spikewatch export writes an incident in a form that other programs read (a table of
 * forms), or restores the directory from a page of spikewatch report.
 *
 * Samples are written as they are read, so memory does not grow with their number. Two forms need a
 * first walk: gvisor for the targets and the start, perfetto because it shows no times below zero.
 * A row of a gVisor stream is a tick of all targets, while samples.tsv has a row per target: rows
 * are one tick until a target comes again, or more than half an interval has passed.
 *
 * A page is restored into a temporary directory, which is renamed when all files are in it. Names
 * are not trusted: report_file_next accepts only those of an incident's files, and files are
 * created, never opened.
 */

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/export/export.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/profiles.h"
#include "cli/incident/series.h"
#include "cli/report/report.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/incident/manifest.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A larger page is not read. */
#define RESTORE_PAGE_MAX ((size_t)2 << 30)

static const char command[] = "spikewatch export";

/* EXPORTING_NOTHING: there are no samples, explained on stderr. */
static int walk_samples(const struct exporting *exporting,
			int (*row)(void *, const struct sample_walk *, const struct sample_walk_row *), void *ctx,
			struct sample_walk *ret)
{
	const struct sample_walk_visit visit = { .row = row, .ctx = ctx };
	int rc = sample_walk_run(exporting->fd, exporting->incident->wall, &visit, ret);

	if (rc == 0)
		export_note_loss(exporting, ret);
	if (rc != -ENOENT)
		return rc;
	fprintf(stderr, "%s: the incident has no " INCIDENT_SAMPLES_FILE "\n", command);
	return EXPORTING_NOTHING;
}

/* The wall clock goes on while the machine is suspended, unlike that of rows. holes: of all of the incident. */
static uint64_t wall_of(const struct exporting *exporting, const struct series_holes *holes, uint32_t writer,
			int64_t at_ns)
{
	uint64_t wall_ns = exporting->incident->wall.ns + (uint64_t)at_ns;

	for (size_t i = 0; i < holes->count; i++) {
		const struct series_hole *hole = &holes->hole[i];

		if (hole->suspended_ns == 0 || hole->writer != writer)
			continue;
		if (hole->to_ns <= 0 && at_ns < hole->to_ns)
			wall_ns -= hole->suspended_ns;
		if (hole->to_ns > 0 && at_ns >= hole->to_ns)
			wall_ns += hole->suspended_ns;
	}
	return wall_ns;
}

/* ---- csv: RFC 4180, a header with units ---- */

/* Text that a spreadsheet would take for a formula gets an apostrophe before it. */
static void put_csv_text(FILE *out, const char *text)
{
	char shown[4 * 256 + 1];

	text_escape(shown, sizeof(shown), text, strlen(text));
	fputc('"', out);
	if (*shown && strchr("=+-@", *shown))
		fputc('\'', out);
	for (const char *at = shown; *at; at++) {
		if (*at == '"')
			fputc('"', out);
		fputc(*at, out);
	}
	fputc('"', out);
}

/*
 * How much of the time since the target's row before lies in holes: also in one that other rows
 * ended, because this target slept on. The walk has read no later hole yet.
 */
static int64_t unsampled_before(const struct sample_walk *walk, const struct sample_walk_row *row)
{
	int64_t all_ns = 0;

	for (size_t i = walk->holes.count; i > 0; i--) {
		const struct series_hole *hole = &walk->holes.hole[i - 1];
		int64_t from_ns = hole->from_ns > row->before_ns ? hole->from_ns : row->before_ns;
		int64_t to_ns = hole->to_ns < row->at_ns ? hole->to_ns : row->at_ns;

		if (hole->writer != walk->targets[row->target].writer)
			continue;
		if (hole->to_ns <= row->before_ns)
			break;
		if (hole->missed_slots > 0 && to_ns > from_ns)
			all_ns += to_ns - from_ns;
	}
	return all_ns;
}

struct csv {
	const struct exporting *exporting;
	struct sample_walk first; /* all holes, if there are suspends */
};

static void csv_release(struct csv *csv)
{
	sample_walk_release(&csv->first);
}

static int csv_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	const struct csv *csv = ctx;
	const struct exporting *exporting = csv->exporting;

	fprintf(exporting->out, "%lld,%llu,", (long long)row->at_ns,
		(unsigned long long)wall_of(exporting, &csv->first.holes, walk->targets[row->target].writer,
					    row->at_ns));
	put_csv_text(exporting->out, walk->targets[row->target].name);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		fputc(',', exporting->out);
		if (sample_has(&row->sample, (enum sample_field)f))
			fprintf(exporting->out, "%llu", (unsigned long long)row->sample.value[f]);
	}
	fprintf(exporting->out, ",%lld\r\n", (long long)unsampled_before(walk, row));
	return 0;
}

/* Whether a hole lies between two rows of a target, so that the second of them tells of it. */
static bool is_between_rows(const struct sample_walk *walk, const struct series_hole *hole)
{
	for (size_t t = 0; t < walk->count; t++)
		if (walk->targets[t].writer == hole->writer && walk->targets[t].last_ns > hole->from_ns)
			return hole->to_ns > walk->from_ns;
	return false;
}

/* Holes at the edges, too, are told of: what is missing there looks like nothing. */
static void tell_untold_holes(const struct sample_walk *walk)
{
	for (size_t i = 0; i < walk->holes.count; i++) {
		const struct series_hole *hole = &walk->holes.hole[i];

		if (hole->missed_slots > 0 && !is_between_rows(walk, hole))
			fprintf(stderr,
				"%s: the sampling has a hole from %.3f s to %.3f s since the firing, which no row "
				"tells of\n",
				command, (double)hole->from_ns / 1e9, (double)hole->to_ns / 1e9);
	}
}

static int export_rows_csv(const struct exporting *exporting)
{
	AUTO(sample_walk_release) struct sample_walk walk = { 0 };
	AUTO(csv_release) struct csv csv = { .exporting = exporting };
	int rc = exporting->incident->coverage.suspends > 0 ? walk_samples(exporting, NULL, NULL, &csv.first) : 0;

	if (rc != 0)
		return rc;
	fputs("since_firing[ns],wall[ns],target", exporting->out);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info((enum sample_field)f);

		fprintf(exporting->out, ",%s[%s]", info->name, info->unit);
	}
	fputs(",unsampled_before[ns]\r\n", exporting->out);
	rc = walk_samples(exporting, csv_row, &csv, &walk);
	if (rc == 0)
		tell_untold_holes(&walk);
	return rc;
}

/* ---- json: one object with columns, rows as arrays, and targets ---- */

static void put_column(struct json_writer *json, const char *name, const char *unit, const char *kind)
{
	json_begin_object(json);
	json_member_text(json, "name", name);
	json_member_text(json, "unit", unit);
	json_member_text(json, "kind", kind);
	json_end_object(json);
}

static void put_head(struct json_writer *json, const struct incident *incident)
{
	json_member_text(json, "incident", incident->id);
	json_member_u64(json, "fired_ns", incident->wall.ns);
	json_member_array(json, "columns");
	put_column(json, "since_firing", "ns", "time");
	put_column(json, "target", "index", "target");
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info((enum sample_field)f);

		put_column(json, info->name, info->unit, sample_kind_name(info->kind));
	}
	json_end_array(json);
}

static int json_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct json_writer *json = ctx;

	(void)walk;
	json_begin_array(json);
	json_i64(json, row->at_ns);
	json_u64(json, row->target);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		if (sample_has(&row->sample, (enum sample_field)f))
			json_u64(json, row->sample.value[f]);
		else
			json_null(json);
	}
	return json_end_array(json);
}

static void put_holes(struct json_writer *json, const struct sample_walk *walk)
{
	json_member_array(json, "holes");
	for (size_t i = 0; i < walk->holes.count; i++) {
		const struct series_hole *hole = &walk->holes.hole[i];

		json_begin_object(json);
		json_member_i64(json, "from_ns", hole->from_ns);
		json_member_i64(json, "to_ns", hole->to_ns);
		json_member_u64(json, "missed_slots", hole->missed_slots);
		json_member_u64(json, "suspended_ns", hole->suspended_ns);
		json_member_array(json, "targets");
		for (size_t t = 0; t < walk->count; t++)
			if (walk->targets[t].writer == hole->writer)
				json_u64(json, t);
		json_end_array(json);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_targets(struct json_writer *json, const struct sample_walk *walk)
{
	json_member_array(json, "targets");
	for (size_t i = 0; i < walk->count; i++) {
		json_begin_object(json);
		json_member_text(json, "name", walk->targets[i].name);
		json_member_text(json, "kind", walk->targets[i].kind);
		json_key(json, "pid");
		if (walk->targets[i].pid)
			json_i64(json, walk->targets[i].pid);
		else
			json_null(json);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_u64(json, "rows_lost", walk->report.rows_lost);
}

static int export_rows_json(const struct exporting *exporting)
{
	AUTO(sample_walk_release) struct sample_walk walk = { 0 };
	struct json_writer *json;
	int closed, rc = json_writer_new(exporting->sink, false, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	put_head(json, exporting->incident);
	json_member_array(json, "rows");
	rc = walk_samples(exporting, json_row, json, &walk);
	json_end_array(json);
	put_targets(json, &walk);
	put_holes(json, &walk);
	json_end_object(json);
	closed = json_writer_close(json);
	return rc ? rc : closed;
}

/* ---- gvisor: a stream for gVisor's tools, of the first RECORDER_GVISOR_TARGETS targets ---- */

/* A name of a column, its end included. */
#define NAME_BYTES 256

struct gvisor {
	const struct exporting *exporting;
	struct stream_writer *writer;
	char names[STREAM_COLUMNS_MAX][NAME_BYTES];
	size_t targets;
	int64_t first_ns; /* the first row of all */
	/* The tick that is being gathered. */
	int64_t tick_ns;
	uint32_t seen; /* a bit for each target */
	uint64_t values[STREAM_COLUMNS_MAX];
	uint32_t mask;
};

/* "/web/812/cpu"; brackets, which a name cannot have, become "_". */
static void name_column(char ret[static NAME_BYTES], const char *target, const char *field)
{
	char shown[80];

	text_escape(shown, sizeof(shown), target, strlen(target));
	for (char *at = shown; *at; at++)
		if (*at == '[' || *at == ']')
			*at = '_';
	snprintf(ret, NAME_BYTES, "/%s/%s", shown, field);
}

/* Of targets whose names are equal when cut, the later ones get a number. */
static void name_target(const struct sample_walk *walk, size_t at, char ret[static 64])
{
	snprintf(ret, 64, "%.50s", walk->targets[at].name[0] ? walk->targets[at].name : "?");
	for (size_t i = 0; i < at; i++) {
		if (strncmp(walk->targets[i].name, walk->targets[at].name, 50) != 0)
			continue;
		snprintf(ret, 64, "%.50s#%u", walk->targets[at].name, (unsigned)at + 1);
		return;
	}
}

static int begin_gvisor(struct gvisor *gvisor, const struct sample_walk *walk)
{
	const enum sample_field *fields = recorder_gvisor_fields();
	struct stream_column columns[STREAM_COLUMNS_MAX];
	struct stream_options options = {
		.format = STREAM_GVISOR,
		.columns = columns,
		.start = { gvisor->exporting->incident->wall.ns + (uint64_t)gvisor->first_ns },
	};

	gvisor->targets = walk->count < RECORDER_GVISOR_TARGETS ? walk->count : RECORDER_GVISOR_TARGETS;
	if (gvisor->targets < walk->count)
		fprintf(stderr, "%s: gvisor has room for %u targets; the other %zu are left out\n", command,
			RECORDER_GVISOR_TARGETS, walk->count - gvisor->targets);
	for (size_t i = 0; i < gvisor->targets; i++) {
		char name[64];

		name_target(walk, i, name);
		for (size_t f = 0; f < RECORDER_GVISOR_FIELDS; f++) {
			const struct sample_field_info *info = sample_field_info(fields[f]);
			size_t at = options.column_count++;

			name_column(gvisor->names[at], name, info->name);
			columns[at] = (struct stream_column){ gvisor->names[at], info->unit,
							      sample_kind_name(info->kind), info->source };
		}
	}
	return stream_writer_new(gvisor->exporting->sink, &options, &gvisor->writer);
}

static int end_tick(struct gvisor *gvisor)
{
	if (gvisor->seen == 0)
		return 0;
	gvisor->seen = 0;
	return stream_row(gvisor->writer, (uint64_t)(gvisor->tick_ns - gvisor->first_ns), 0, gvisor->values,
			  gvisor->mask);
}

static int gvisor_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct gvisor *gvisor = ctx;
	const enum sample_field *fields = recorder_gvisor_fields();
	uint64_t half_ns = gvisor->exporting->incident->cost.interval_ns / 2;
	int rc = 0;

	(void)walk;
	if (row->target >= gvisor->targets)
		return 0;
	if ((gvisor->seen >> row->target & 1u) || row->at_ns - gvisor->tick_ns > (int64_t)half_ns)
		rc = end_tick(gvisor);
	if (gvisor->seen == 0)
		gvisor->tick_ns = row->at_ns;
	gvisor->seen |= 1u << row->target;
	for (size_t f = 0; f < RECORDER_GVISOR_FIELDS; f++) {
		size_t at = row->target * RECORDER_GVISOR_FIELDS + f;

		if (!sample_has(&row->sample, fields[f]))
			continue;
		gvisor->values[at] = row->sample.value[fields[f]];
		gvisor->mask |= 1u << at;
	}
	return rc;
}

static int export_rows_gvisor(const struct exporting *exporting)
{
	AUTO(sample_walk_release) struct sample_walk first = { 0 };
	AUTO(sample_walk_release) struct sample_walk second = { 0 };
	struct gvisor gvisor = { .exporting = exporting };
	int closed, rc = walk_samples(exporting, NULL, NULL, &first);

	if (rc != 0)
		return rc;
	gvisor.first_ns = first.from_ns;
	if (first.rows == 0) {
		fprintf(stderr, "%s: there is no sample in " INCIDENT_SAMPLES_FILE "\n", command);
		return EXPORTING_NOTHING;
	}
	if (first.holes.count > 0)
		fprintf(stderr,
			"%s: gvisor cannot say that the sampling has %zu %s%s; a reader spreads CPU time over the time "
			"between two rows\n",
			command, first.holes.count, first.holes.count == 1 ? "hole" : "holes",
			exporting->incident->coverage.suspends > 0 ? ", suspends of the machine among them" : "");
	rc = begin_gvisor(&gvisor, &first);
	if (rc < 0)
		return rc;
	rc = walk_samples(exporting, gvisor_row, &gvisor, &second);
	if (rc == 0)
		rc = end_tick(&gvisor);
	closed = stream_close(gvisor.writer);
	return rc ? rc : closed;
}

/* ---- what the forms with graphs share ---- */

bool export_ran_ns(const struct export_step *step, int64_t *ret_ns)
{
	uint64_t ran_ns = step->cpu_ns > step->interval_ns ? step->cpu_ns : step->interval_ns;
	int64_t since_ns = step->to_ns - step->from_ns, moved_ns;

	if (series_moved_since(step->holes, step->writer, step->from_ns, step->to_ns, (int64_t)step->interval_ns,
			       &moved_ns)) {
		*ret_ns = step->to_ns - moved_ns;
		return moved_ns > step->from_ns;
	}
	if (step->interval_ns == 0 || since_ns <= 0 || (uint64_t)since_ns <= 2 * ran_ns)
		return false;
	*ret_ns = (int64_t)ran_ns;
	return true;
}

/* ---- perfetto: the JSON of the Trace Event Format ---- */

/* For what has no pid: above the kernel's PID_MAX_LIMIT. */
#define PID_INCIDENT 4194305
#define PID_HOLES 4194306 /* only a tid */
#define PID_TARGETS 4194307

/* Of a target, between two rows. */
struct last {
	bool has;
	int64_t at_ns;
	uint64_t cpu_ns;
};

struct trace {
	const struct incident *incident;
	struct json_writer *json;
	int64_t from_ns, to_ns; /* of all rows, since the firing */
	struct last *last;      /* of each target */
	size_t last_count;
	const struct series_holes *holes; /* of the first walk: all */
};

/* In microseconds since the first row; not negative. */
static double trace_time(const struct trace *trace, int64_t at_ns)
{
	int64_t since = at_ns - trace->from_ns;

	return since > 0 ? (double)since / 1e3 : 0;
}

static int64_t pid_of(const struct sample_walk *walk, size_t target)
{
	return walk->targets[target].pid ? walk->targets[target].pid : PID_TARGETS + (int64_t)target;
}

/* The object stays open. */
static void begin_event(struct json_writer *json, const char *phase, const char *name, int64_t pid, double ts)
{
	json_begin_object(json);
	json_member_text(json, "ph", phase);
	json_member_text(json, "name", name);
	json_member_i64(json, "pid", pid);
	json_member_i64(json, "tid", pid);
	json_member_double(json, "ts", ts);
}

static void put_counter(const struct trace *trace, int64_t pid, int64_t at_ns, const char *name, double value)
{
	begin_event(trace->json, "C", name, pid, trace_time(trace, at_ns));
	json_member_object(trace->json, "args");
	json_member_double(trace->json, "value", value);
	json_end_object(trace->json);
	json_end_object(trace->json);
}

/* CPU is drawn from the row before to this one: a counter holds from its event on. */
static void put_cpu(const struct trace *trace, struct last *last, int64_t pid, uint32_t writer,
		    const struct sample_walk_row *row)
{
	uint64_t cpu_ns = row->sample.value[SAMPLE_CPU];
	const struct export_step step = { .holes = trace->holes,
					  .writer = writer,
					  .interval_ns = trace->incident->cost.interval_ns,
					  .from_ns = last->at_ns,
					  .to_ns = row->at_ns,
					  .cpu_ns = cpu_ns - last->cpu_ns };
	int64_t since = row->at_ns - last->at_ns, ran_ns;

	if (last->has && !row->gap && since > 0 && cpu_ns >= last->cpu_ns) {
		if (export_ran_ns(&step, &ran_ns)) {
			put_counter(trace, pid, last->at_ns, "cpu (cores)", 0);
			last->at_ns = row->at_ns - ran_ns;
			since = ran_ns;
		}
		put_counter(trace, pid, last->at_ns, "cpu (cores)", (double)(cpu_ns - last->cpu_ns) / (double)since);
	}
	*last = (struct last){ true, row->at_ns, cpu_ns };
}

static int write_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	static const struct {
		enum sample_field field;
		const char *name;
	} gauges[] = {
		{ SAMPLE_MEMORY, "memory (bytes)" },
		{ SAMPLE_WORKING_SET, "working set (bytes)" },
		{ SAMPLE_THREADS, "threads" },
		{ SAMPLE_FDS, "descriptors" },
	};
	struct trace *trace = ctx;
	int64_t pid = pid_of(walk, row->target);

	if (row->target >= trace->last_count)
		return 0;
	if (sample_has(&row->sample, SAMPLE_CPU))
		put_cpu(trace, &trace->last[row->target], pid, walk->targets[row->target].writer, row);
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
		if (sample_has(&row->sample, gauges[i].field))
			put_counter(trace, pid, row->at_ns, gauges[i].name, (double)row->sample.value[gauges[i].field]);
	return 0;
}

static void put_trace_name(const struct trace *trace, const char *what, int64_t pid, const char *name)
{
	begin_event(trace->json, "M", what, pid, 0);
	json_member_object(trace->json, "args");
	json_member_text(trace->json, "name", name[0] ? name : "?");
	json_end_object(trace->json);
	json_end_object(trace->json);
}

static void put_names(const struct trace *trace, const struct sample_walk *walk)
{
	put_trace_name(trace, "process_name", PID_INCIDENT, trace->incident->id);
	put_trace_name(trace, "thread_name", PID_INCIDENT, "phases");
	for (size_t i = 0; i < walk->count; i++)
		put_trace_name(trace, "process_name", pid_of(walk, i), walk->targets[i].name);
}

static void put_slice(const struct trace *trace, const char *name, int64_t from_ns, int64_t to_ns)
{
	double from = trace_time(trace, from_ns), to = trace_time(trace, to_ns);

	if (to <= from)
		return;
	begin_event(trace->json, "X", name, PID_INCIDENT, from);
	json_member_text(trace->json, "cat", "phase");
	json_member_double(trace->json, "dur", to - from);
	json_end_object(trace->json);
}

/* On a line of their own: they overlap the phases. */
static void put_trace_holes(const struct trace *trace)
{
	for (size_t i = 0; i < trace->holes->count; i++) {
		const struct series_hole *hole = &trace->holes->hole[i];
		double from = trace_time(trace, hole->from_ns), to = trace_time(trace, hole->to_ns);
		char name[EXPORT_HOLE_NAME_MAX];

		json_begin_object(trace->json);
		json_member_text(trace->json, "ph", "X");
		json_member_text(trace->json, "name", export_hole_name(trace->incident, trace->to_ns, hole, name));
		json_member_i64(trace->json, "pid", PID_INCIDENT);
		json_member_i64(trace->json, "tid", PID_HOLES);
		json_member_double(trace->json, "ts", from);
		json_member_text(trace->json, "cat", "hole");
		json_member_double(trace->json, "dur", to - from);
		json_end_object(trace->json);
	}
}

static void put_phases(const struct trace *trace)
{
	const struct incident *incident = trace->incident;
	int64_t window_ns = mono_diff(incident->window_from, incident->mono);

	if (window_ns > 0 || window_ns < trace->from_ns)
		window_ns = 0;
	put_slice(trace, "before", trace->from_ns, window_ns);
	put_slice(trace, "window of the rule", window_ns, 0);
	put_slice(trace, "after", 0, trace->to_ns);
	begin_event(trace->json, "i", incident->rule.name[0] ? incident->rule.name : "fired", PID_INCIDENT,
		    trace_time(trace, 0));
	json_member_text(trace->json, "cat", "firing");
	json_member_text(trace->json, "s", "g");
	json_end_object(trace->json);
}

static int write_events(struct trace *trace, int fd)
{
	AUTO(sample_walk_release) struct sample_walk walk = { 0 };
	const struct sample_walk_visit visit = { .row = write_row, .ctx = trace };
	int rc;

	json_member_array(trace->json, "traceEvents");
	rc = sample_walk_run(fd, trace->incident->wall, &visit, &walk);
	if (rc == 0) {
		put_names(trace, &walk);
		put_phases(trace);
		put_trace_holes(trace);
	}
	json_end_array(trace->json);
	return rc;
}

static int write_trace(struct trace *trace, const struct exporting *exporting)
{
	int closed, rc = json_writer_new(exporting->sink, false, &trace->json);

	if (rc < 0)
		return rc;
	json_begin_object(trace->json);
	rc = write_events(trace, exporting->fd);
	json_member_text(trace->json, "displayTimeUnit", "ms");
	json_member_object(trace->json, "otherData");
	json_member_text(trace->json, "incident", trace->incident->id);
	json_member_text(trace->json, "hostname", trace->incident->hostname);
	json_member_text(trace->json, "version", trace->incident->version);
	json_end_object(trace->json);
	json_end_object(trace->json);
	closed = json_writer_close(trace->json);
	return rc ? rc : closed;
}

/*
 * Counters ("C") of each target; the time before, in the window of the rule, and after as slices
 * ("X"); the firing ("i"); names ("M"). Events need no order.
 */
static int export_trace_write(const struct exporting *exporting)
{
	AUTO(sample_walk_release) struct sample_walk walk = { 0 };
	struct trace trace = { .incident = exporting->incident };
	const struct sample_walk_visit visit = { .row = NULL };
	AUTO_FREE struct last *last = NULL;
	int rc = sample_walk_run(exporting->fd, exporting->incident->wall, &visit, &walk);

	if (rc == -ENOENT || (rc == 0 && walk.rows == 0)) {
		fprintf(stderr, "%s: the incident has no samples\n", command);
		return EXPORTING_NOTHING;
	}
	if (rc < 0)
		return rc;
	export_note_loss(exporting, &walk);
	last = calloc(walk.count, sizeof(*last));
	if (!last)
		return -ENOMEM;
	trace.from_ns = walk.from_ns;
	trace.to_ns = walk.to_ns;
	trace.last = last;
	trace.last_count = walk.count;
	trace.holes = &walk.holes;
	return write_trace(&trace, exporting);
}

/* ---- restoring a page ---- */

struct restoring {
	const char *path;
	int dirfd;
	uint64_t files, bytes;
	bool trouble;
};

/* Returns EXIT_TROUBLE. */
static int restore_complain(const char *what, const char *why)
{
	output_complain(command, what, why);
	return EXIT_TROUBLE;
}

static void note_trouble(struct restoring *restoring, const char *what, const char *why)
{
	restore_complain(what, why);
	restoring->trouble = true;
}

/* A regular file is taken for a page, because incidents are directories. */
static bool restore_is_page(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int write_file(int dirfd, const char *name, const struct buffer *bytes)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	int rc = fd < 0 ? -errno : sink_write_all(fd, bytes->data ? bytes->data : "", bytes->len);

	if (rc == 0 && close(TAKE_FD(fd)) < 0)
		rc = -errno;
	return rc;
}

/* 0, also of a damaged file, which is reported and left out; -ENOMEM; -errno of writing. */
static int restore_file(struct restoring *restoring, const struct report_file_entry *entry)
{
	AUTO(buffer_release) struct buffer bytes = { 0 };
	int rc = report_file_get(entry, &bytes);

	if (rc == -EBADMSG) {
		note_trouble(restoring, entry->name, "damaged, not restored");
		return 0;
	}
	if (rc == 0)
		rc = write_file(restoring->dirfd, entry->name, &bytes);
	if (rc < 0)
		return rc;
	restoring->files++;
	restoring->bytes += bytes.len;
	return 0;
}

static int restore_files(struct restoring *restoring, struct report_file *page)
{
	struct report_file_entry entry;
	int rc = 0;

	while (rc >= 0 && rc != REPORT_FILE_END) {
		rc = report_file_next(page, &entry);
		if (rc == 0) {
			rc = restore_file(restoring, &entry);
			if (rc < 0)
				return rc;
		} else if (rc == -EBADMSG) {
			note_trouble(restoring, restoring->path, "a file in it is damaged, not restored");
			rc = 0;
		} else if (rc == -ENODATA) {
			note_trouble(restoring, restoring->path, "it was cut off, or changed: files may be missing");
		}
	}
	return 0;
}

static void on_fault(void *ctx, const char *name, enum manifest_fault fault)
{
	note_trouble(ctx, name, manifest_fault_name(fault));
}

/* Files may be missing from the page, or were damaged before it was made. */
static void verify_restored(struct restoring *restoring)
{
	int rc = manifest_verify(restoring->dirfd, on_fault, restoring);

	if (rc < 0)
		note_trouble(restoring, MANIFEST_NAME, rc == -ENOENT ? "missing" : "damaged");
}

static void remove_files(int dirfd, struct report_file page, const char *directory)
{
	struct report_file_entry entry;
	int rc = 0;

	while (rc == 0 || rc == -EBADMSG) {
		rc = report_file_next(&page, &entry);
		if (rc == 0)
			unlinkat(dirfd, entry.name, 0);
	}
	rmdir(directory);
}

static int restore_into(struct restoring *restoring, struct report_file *page, const char *temporary,
			const char *directory)
{
	const struct report_file from = *page;
	AUTO_CLOSE int dirfd = -1;
	int rc;

	if (mkdir(temporary, 0750) < 0)
		return restore_complain(temporary, strerror(errno));
	dirfd = open(temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	restoring->dirfd = dirfd;
	rc = dirfd < 0 ? -errno : restore_files(restoring, page);
	if (rc == 0 && rename(temporary, directory) < 0)
		rc = -errno;
	if (rc < 0) {
		remove_files(dirfd, from, temporary);
		return rc == -ENOMEM ? output_no_memory() : restore_complain(directory, strerror(-rc));
	}
	verify_restored(restoring);
	printf("Restored: ");
	output_escaped(stdout, directory);
	printf(", %ju files, %ju bytes\n", (uintmax_t)restoring->files, (uintmax_t)restoring->bytes);
	return restoring->trouble ? EXIT_TROUBLE : EXIT_OK;
}

/* place: directory without trailing slashes. False: it cannot be a directory's name. */
static bool name_places(const char *directory, char place[static INCIDENT_LOAD_PATH_MAX],
			char temporary[static INCIDENT_LOAD_PATH_MAX])
{
	size_t len = strlen(directory);

	while (len > 1 && directory[len - 1] == '/')
		len--;
	return len > 0 &&
	       snprintf(place, INCIDENT_LOAD_PATH_MAX, "%.*s", (int)len, directory) < INCIDENT_LOAD_PATH_MAX &&
	       snprintf(temporary, INCIDENT_LOAD_PATH_MAX, "%.*s.tmp-%d", (int)len, directory, (int)getpid()) <
		       INCIDENT_LOAD_PATH_MAX;
}

static int restore_text(const char *path, const char *directory, const struct buffer *text)
{
	struct restoring restoring = { .path = path };
	char place[INCIDENT_LOAD_PATH_MAX], temporary[INCIDENT_LOAD_PATH_MAX];
	struct report_file page;
	struct stat st;
	int rc = report_file_start(&page, text->data ? text->data : "", text->len);

	if (rc < 0) {
		restore_complain(path, rc == -ENOENT ? "neither an incident nor a report of one"
						     : "a report of a later version of spikewatch");
		return EXIT_USAGE;
	}
	if (!directory && !page.incident[0])
		return restore_complain(path, "it does not hold the name of the incident: use --output DIR");
	if (!name_places(directory ? directory : page.incident, place, temporary))
		return restore_complain(directory, "not a name for a directory");
	if (lstat(place, &st) == 0)
		return restore_complain(place, "already exists");
	return restore_into(&restoring, &page, temporary, place);
}

/*
 * directory NULL: the incident's name, in the working directory. Returns the code to exit with:
 * EXIT_TROUBLE: what is not damaged or missing was restored; EXIT_USAGE: it is no report.
 */
static int restore_page(const char *path, const char *directory)
{
	AUTO(buffer_release) struct buffer text = { .max = RESTORE_PAGE_MAX };
	int rc = incident_load_whole(AT_FDCWD, path, &text);

	if (rc == -ENOMEM)
		return output_no_memory();
	if (rc < 0)
		return restore_complain(path, strerror(-rc));
	return restore_text(path, directory, &text);
}

/* ---- the command ---- */

/* Of text that is escaped at a time. The daemon writes folded stacks of some MiB. */
#define FOLDED_PIECE ((size_t)512)
#define FOLDED_MAX ((size_t)256 << 20)

/* Larger profiles are damaged, packed or not. */
#define PROFILE_MAX ((size_t)256 << 20)

/* A file of the incident as it is. */
static int copy_file(const struct exporting *exporting, const char *name)
{
	AUTO_CLOSE int fd = incident_load_open_file(exporting->fd, name);
	char piece[16384];
	ssize_t len;

	if (fd == -ENOENT) {
		fprintf(stderr, "%s: the incident has no %s: no stacks were recorded\n", command, name);
		return EXPORTING_NOTHING;
	}
	if (fd < 0)
		return fd;
	while ((len = read(fd, piece, sizeof(piece))) != 0) {
		if (len < 0 && errno != EINTR)
			return -errno;
		if (len > 0 && fwrite(piece, 1, (size_t)len, exporting->out) != (size_t)len)
			return 0; /* the stream keeps the error */
	}
	return 0;
}

/* ---- pprof, of the target alone ---- */

/* The wire type of a submessage: a field of another type and the number of a sample is none. */
#define FIELD_BYTES 2

/* Of a field of a protobuf message: "at" is behind it. The profile was read once, and is whole. */
struct field {
	const uint8_t *from, *at;
	uint64_t number;
	unsigned type;
};

static uint64_t take_varint(const uint8_t **at)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		value |= (uint64_t)(**at & 0x7f) << shift;
		if (*(*at)++ < 0x80)
			break;
	}
	return value;
}

static void next_field(struct field *field)
{
	uint64_t tag;

	field->from = field->at;
	tag = take_varint(&field->at);
	field->number = tag >> 3;
	field->type = (unsigned)(tag & 7);
	switch (field->type) {
	case 0:
		take_varint(&field->at);
		break;
	case 1:
		field->at += 8;
		break;
	case FIELD_BYTES:
		tag = take_varint(&field->at);
		field->at += tag;
		break;
	default:
		field->at += 4;
	}
}

/* The fields of a profile but for the samples of other processes. 0; -EBADMSG; -ENOMEM. */
static int keep_target(const struct pprof_read_profile *profile, const struct buffer *whole, struct buffer *ret)
{
	const uint8_t *end = (const uint8_t *)whole->data + whole->len;
	struct field field = { .at = (const uint8_t *)whole->data };
	uint32_t sample = 0;
	int r = 0;

	while (r == 0 && field.at < end) {
		next_field(&field);
		if (field.at > end || field.at <= field.from)
			return -EBADMSG;
		if (field.number == PROFILE_SAMPLE && field.type == FIELD_BYTES) {
			if (sample >= profile->sample_count)
				return -EBADMSG;
			if (!stack_fold_is_target(profile, &profile->samples[sample++]))
				continue;
		}
		r = buffer_append(ret, field.from, (size_t)(field.at - field.from));
	}
	return r;
}

static int export_pprof(const struct exporting *exporting)
{
	AUTO(buffer_release) struct buffer file = { .max = PROFILE_MAX };
	AUTO(buffer_release) struct buffer whole = { 0 };
	AUTO(buffer_release) struct buffer target = { 0 };
	AUTO(pprof_read_freep) struct pprof_read *reader = NULL;
	const char *name = stack_fold_profile(exporting->memory);
	int r = exporting->machine ? -ENOENT : incident_load_whole(exporting->fd, name, &file);

	if (r == -ENOENT)
		return copy_file(exporting, name);
	if (r == 0)
		r = deflate_gunzip(file.data, file.len, PROFILE_MAX, &whole);
	if (r == 0)
		r = pprof_read_new(whole.data, whole.len, NULL, &reader);
	if (r == 0)
		r = keep_target(pprof_read_profile(reader), &whole, &target);
	return r == 0 ? deflate_gzip(target.data, target.len, &exporting->sink) : r;
}

/* ---- folded ---- */

/* Escaped as it was written: an incident that was sent to us may hold anything. */
static void put_folded_line(const char *line, size_t len, FILE *out)
{
	char piece[4 * FOLDED_PIECE + 1];

	for (size_t at = 0; at < len;) {
		size_t take = len - at < FOLDED_PIECE ? len - at : FOLDED_PIECE, back = 0;

		/* Pieces end between characters. */
		while (at + take < len && back < 3 && ((unsigned char)line[at + take - back] & 0xC0) == 0x80)
			back++;
		take -= back;
		fwrite(piece, 1, text_escape_again(piece, sizeof(piece), line + at, take), out);
		at += take;
	}
}

/* The file of the incident is of all processes, and does not say whose a line is. */
static int read_folded(const struct exporting *exporting, struct buffer *ret)
{
	unsigned phases = 1u << FUNCTION_TABLE_BEFORE | 1u << FUNCTION_TABLE_DURING | STACK_FOLD_TARGET;
	int r = exporting->machine ? -ENOENT : stack_fold_read(exporting->fd, exporting->memory, phases, ret);

	if (r != -ENOENT)
		return r;
	ret->max = FOLDED_MAX;
	r = incident_load_whole(exporting->fd, stack_fold_folded(exporting->memory), ret);
	if (r == 0 && !exporting->machine)
		fprintf(stderr, "%s: the incident has no %s: stacks are those of all processes\n", command,
			stack_fold_profile(exporting->memory));
	return r;
}

static int export_folded(const struct exporting *exporting)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	int r = read_folded(exporting, &text);

	if (r == -ENOENT)
		return copy_file(exporting, stack_fold_folded(exporting->memory)); /* says so */
	if (r < 0)
		return r;
	for (size_t at = 0; at < text.len;) {
		const char *newline = memchr(text.data + at, '\n', text.len - at);
		size_t len = newline ? (size_t)(newline - text.data) - at : text.len - at;

		put_folded_line(text.data + at, len, exporting->out);
		if (newline)
			fputc('\n', exporting->out);
		at += len + 1;
	}
	return 0;
}

static const struct form {
	const char *name;
	int (*write)(const struct exporting *exporting);
	bool binary;
	bool has_stacks; /* takes --memory and --machine */
} forms[] = {
	{ "csv", export_rows_csv, false, false },         { "json", export_rows_json, false, false },
	{ "gvisor", export_rows_gvisor, false, false },   { "pprof", export_pprof, true, true },
	{ "folded", export_folded, false, true },         { "firefox", export_firefox_write, false, true },
	{ "perfetto", export_trace_write, false, false },
};

static int wrong_usage(const char *name, const char *why)
{
	fprintf(stderr, "%s: %s %s\nTry '%s --help'.\n", command, name, why, command);
	return EXIT_USAGE;
}

static const struct form *find_form(const char *name)
{
	const char *names[ARRAY_LEN(forms)], *nearest;

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		names[i] = forms[i].name;
		if (name && strcmp(name, forms[i].name) == 0)
			return &forms[i];
	}
	fprintf(stderr, "%s: ", command);
	if (name) {
		fprintf(stderr, "--format \"");
		output_escaped(stderr, name);
		fprintf(stderr, "\" is not known; ");
	}
	nearest = name ? options_nearest(name, names, ARRAY_LEN(names)) : NULL;
	if (nearest)
		fprintf(stderr, "did you mean %s?", nearest);
	else
		fprintf(stderr, "--format is one of csv, json, gvisor, pprof, folded, firefox, perfetto");
	fprintf(stderr, "\nTry '%s --help'.\n", command);
	return NULL;
}

/* What is written where. */
struct job {
	const struct form *form;
	int fd;
	bool memory, machine;
};

/* Says what the samples lack. False: nothing. */
static bool tell_loss(const struct export_loss *loss)
{
	const struct stream_reader_report *report = &loss->report;
	bool whole = !loss->known || stream_reader_whole(report);

	if (!whole)
		fprintf(stderr,
			"%s: " INCIDENT_SAMPLES_FILE
			" is damaged: %ju rows recovered, %ju known to be lost, %ju damaged "
			"lines%s\n",
			command, (uintmax_t)report->rows, (uintmax_t)report->rows_lost,
			(uintmax_t)report->damaged_lines,
			!report->complete                            ? ", and it was cut off"
			: report->damaged_lines || report->rows_lost ? ""
								     : ", but its checksums do not agree");
	if (loss->dropped > 0)
		fprintf(stderr, "%s: %ju rows at impossible times, or of too many targets, are left out\n", command,
			(uintmax_t)loss->dropped);
	return !whole || loss->dropped > 0;
}

/* Nothing that failed is kept; what was made of damaged samples is. */
static int write_job(void *ctx, FILE *out, bool *keep)
{
	const struct job *job = ctx;
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	struct export_loss loss = { .known = false };
	struct exporting exporting = {
		.fd = job->fd,
		.incident = incident,
		.out = out,
		.sink = output_sink(out),
		.memory = job->memory,
		.machine = job->machine,
		.loss = &loss,
	};
	int rc = incident ? incident_json_read(job->fd, incident) : -ENOMEM;

	if (rc < 0) {
		fprintf(stderr, "%s: " INCIDENT_FILE ": %s\n", command, rc == -EBADMSG ? "damaged" : strerror(-rc));
		return EXIT_TROUBLE;
	}
	rc = job->form->write(&exporting);
	if (rc == -ENOMEM)
		return output_no_memory();
	/* output_file_write reports an error of the output. */
	if (rc < 0 && !ferror(out))
		fprintf(stderr, "%s: %s: %s\n", command, job->form->name, rc == -EBADMSG ? "damaged" : strerror(-rc));
	*keep = rc == 0;
	return tell_loss(&loss) || rc != 0 ? EXIT_TROUBLE : EXIT_OK;
}

int export_command(int argc, char **argv)
{
	const char *directory = NULL, *format = NULL, *output = "-";
	bool memory = false, machine = false;
	const struct option_spec options[] = {
		{ 'f', "format", OPTION_TEXT, "FORMAT",
		  "csv, json, gvisor: the samples; perfetto: the samples as a trace", &format },
		{ 0, "memory", OPTION_FLAG, NULL, "pprof, folded, firefox: of memory, not of CPU", &memory },
		{ 0, "machine", OPTION_FLAG, NULL, "the same: of all processes, not of the target's", &machine },
		{ 'o', "output", OPTION_TEXT, "FILE", "where to write; - for the standard output, the default",
		  &output },
		OPTION_DIRECTORY(&directory),
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "ID|PATH",
		.summary = "Writes an incident in a form that other programs read.",
		.description =
			"Also pprof, folded: the profile of stacks; firefox: it and the samples, for the Firefox\n"
			"Profiler (profiler.firefox.com, Load a profile from file).\n"
			"A page of spikewatch report, without a format, becomes the incident's directory "
			"again.\n" INCIDENT_PICK_HELP,
		.example = "spikewatch export last --format firefox -o spike.json\n"
			   "spikewatch export last --format folded | flamegraph.pl > spike.svg",
		.exits = "0 written, 1 not found, it does not have that, or its samples are damaged (but written),\n"
			 "2 wrong usage, or no incident",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	const struct form *form;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (!format && restore_is_page(argv[first]))
		return restore_page(argv[first], strcmp(output, "-") == 0 ? NULL : output);
	form = find_form(format);
	if (!form)
		return EXIT_USAGE;
	if ((memory || machine) && !form->has_stacks)
		return wrong_usage(form->name, "has no stacks: this is for pprof, folded and firefox");
	if (form->binary && strcmp(output, "-") == 0 && isatty(STDOUT_FILENO))
		return wrong_usage(form->name, "does not write to a terminal: use --output FILE");
	rc = incident_pick(command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENT_PICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return output_file_write(&(struct output_file){
		.command = command,
		.path = output,
		.write = write_job,
		.ctx = &(struct job){ form, fd, memory, machine },
	});
}
