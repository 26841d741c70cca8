/*
 * exportrows.c: rows go out as they come in, so memory does not grow with their number.
 *
 * A gVisor stream has no targets: a row is a tick, with all of them side by side. In samples.tsv each has a row at its own time; rows are
 * one tick until a target comes again, or more than half an interval has passed.
 */
#include "exportrows.h"

#include "json.h"
#include "jsonmember.h"
#include "recorder.h"
#include "samplewalk.h"
#include "scope.h"
#include "stream.h"
#include "text.h"

#include <errno.h>
#include <string.h>

/* Nothing to write: said here. Other errors are the caller's to say. */
static int lacks_samples(int rc)
{
	if (rc != -ENOENT)
		return rc;
	fprintf(stderr, "spikewatch export: the incident has no " INCIDENT_SAMPLES_FILE "\n");
	return EXPORTING_NOTHING;
}

static int run(const struct exporting *exporting,
	       int (*row)(void *, const struct samplewalk *, const struct samplewalk_row *), void *ctx,
	       struct samplewalk *ret)
{
	const struct samplewalk_visit visit = { .row = row, .ctx = ctx };

	return lacks_samples(samplewalk_run(exporting->fd, exporting->incident->wall, &visit, ret));
}

static uint64_t wall_of(const struct exporting *exporting, const struct samplewalk_row *row)
{
	return exporting->incident->wall.ns + (uint64_t)row->at_ns;
}

/* ---- csv ---- */

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

static int csv_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	const struct exporting *exporting = ctx;

	fprintf(exporting->out, "%lld,%llu,", (long long)row->at_ns, (unsigned long long)wall_of(exporting, row));
	put_csv_text(exporting->out, walk->targets[row->target].name);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		fputc(',', exporting->out);
		if (sample_has(&row->sample, (enum sample_field)f))
			fprintf(exporting->out, "%llu", (unsigned long long)row->sample.value[f]);
	}
	fputs("\r\n", exporting->out);
	return 0;
}

int exportrows_csv(const struct exporting *exporting)
{
	AUTO(samplewalk_release) struct samplewalk walk = { 0 };

	fputs("since_firing[ns],wall[ns],target", exporting->out);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info((enum sample_field)f);

		fprintf(exporting->out, ",%s[%s]", info->name, info->unit);
	}
	fputs("\r\n", exporting->out);
	return run(exporting, csv_row, (void *)(uintptr_t)exporting, &walk);
}

/* ---- json ---- */

static void put_column(struct json_writer *json, const char *name, const char *unit, const char *kind)
{
	json_begin_object(json);
	jsonmember_text(json, "name", name);
	jsonmember_text(json, "unit", unit);
	jsonmember_text(json, "kind", kind);
	json_end_object(json);
}

static void put_head(struct json_writer *json, const struct incident *incident)
{
	jsonmember_text(json, "incident", incident->id);
	json_key(json, "fired_ns");
	json_u64(json, incident->wall.ns);
	json_key(json, "columns");
	json_begin_array(json);
	put_column(json, "since_firing", "ns", "time");
	put_column(json, "target", "index", "target");
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info((enum sample_field)f);

		put_column(json, info->name, info->unit, sample_kind_name(info->kind));
	}
	json_end_array(json);
}

static int json_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
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

static void put_targets(struct json_writer *json, const struct samplewalk *walk)
{
	json_key(json, "targets");
	json_begin_array(json);
	for (size_t i = 0; i < walk->count; i++) {
		json_begin_object(json);
		jsonmember_text(json, "name", walk->targets[i].name);
		jsonmember_text(json, "kind", walk->targets[i].kind);
		json_key(json, "pid");
		if (walk->targets[i].pid)
			json_i64(json, walk->targets[i].pid);
		else
			json_null(json);
		json_end_object(json);
	}
	json_end_array(json);
	json_key(json, "rows_lost");
	json_u64(json, walk->report.rows_lost);
}

int exportrows_json(const struct exporting *exporting)
{
	AUTO(samplewalk_release) struct samplewalk walk = { 0 };
	struct json_writer *json;
	int closed, rc = json_writer_new(exporting->sink, false, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	put_head(json, exporting->incident);
	json_key(json, "rows");
	json_begin_array(json);
	rc = run(exporting, json_row, json, &walk);
	json_end_array(json);
	put_targets(json, &walk);
	json_end_object(json);
	closed = json_writer_close(json);
	return rc ? rc : closed;
}

/* ---- gvisor ---- */

/* A name of a column, its end included. */
#define NAME_BYTES 256

struct gvisor {
	const struct exporting *exporting;
	struct stream_writer *writer;
	char names[STREAM_COLUMNS_MAX][NAME_BYTES];
	size_t targets;
	int64_t first_ns; /* the first row of all */
	bool any;
	/* The tick that is being gathered. */
	int64_t tick_ns;
	uint32_t seen; /* a bit for each target */
	uint64_t values[STREAM_COLUMNS_MAX];
	uint32_t mask;
};

static int first_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	struct gvisor *gvisor = ctx;

	(void)walk;
	if (!gvisor->any || row->at_ns < gvisor->first_ns)
		gvisor->first_ns = row->at_ns;
	gvisor->any = true;
	return 0;
}

/* "/web/812/cpu": what the format cannot have in a name becomes "_". */
static void name_column(char ret[static NAME_BYTES], const char *target, const char *field)
{
	char shown[80];

	text_escape(shown, sizeof(shown), target, strlen(target));
	for (char *at = shown; *at; at++)
		if (*at == '[' || *at == ']')
			*at = '_';
	snprintf(ret, NAME_BYTES, "/%s/%s", shown, field);
}

/* Two targets may be called the same, cut to this length: their place tells them apart. */
static void name_target(const struct samplewalk *walk, size_t at, char ret[static 64])
{
	snprintf(ret, 64, "%.50s", walk->targets[at].name[0] ? walk->targets[at].name : "?");
	for (size_t i = 0; i < at; i++) {
		if (strncmp(walk->targets[i].name, walk->targets[at].name, 50) != 0)
			continue;
		snprintf(ret, 64, "%.50s#%u", walk->targets[at].name, (unsigned)at + 1);
		return;
	}
}

static int begin_gvisor(struct gvisor *gvisor, const struct samplewalk *walk)
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
		fprintf(stderr, "spikewatch export: gvisor has room for %u targets; the other %zu are left out\n",
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

static int gvisor_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
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

int exportrows_gvisor(const struct exporting *exporting)
{
	AUTO(samplewalk_release) struct samplewalk first = { 0 };
	AUTO(samplewalk_release) struct samplewalk second = { 0 };
	struct gvisor gvisor = { .exporting = exporting };
	int closed, rc = run(exporting, first_row, &gvisor, &first);

	if (rc != 0)
		return rc;
	if (!gvisor.any) {
		fprintf(stderr, "spikewatch export: there is no sample in " INCIDENT_SAMPLES_FILE "\n");
		return EXPORTING_NOTHING;
	}
	rc = begin_gvisor(&gvisor, &first);
	if (rc < 0)
		return rc;
	rc = run(exporting, gvisor_row, &gvisor, &second);
	if (rc == 0)
		rc = end_tick(&gvisor);
	closed = stream_close(gvisor.writer);
	return rc ? rc : closed;
}

bool exportrows_ran_ns(int64_t since_ns, uint64_t cpu_ns, uint64_t interval_ns, int64_t *ret_ns)
{
	uint64_t ran_ns = cpu_ns > interval_ns ? cpu_ns : interval_ns;

	if (interval_ns == 0 || since_ns <= 0 || (uint64_t)since_ns <= 2 * ran_ns)
		return false;
	*ret_ns = (int64_t)ran_ns;
	return true;
}
