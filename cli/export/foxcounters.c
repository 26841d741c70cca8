/*
 * foxcounters.c: a counter is a column of differences. Rows of all targets are kept, then sorted by target.
 *
 * A target that did not run has no row until its heartbeat: the CPU time of the row after such a pause was used shortly before it, so a
 * point without any is put there; else it would look like a little over all of the pause.
 */
#include "foxcounters.h"

#include "exportrows.h"
#include "jsonmember.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct foxcounters_point {
	size_t order;
	uint32_t target;
	bool has_cpu, has_memory, gap;
	int64_t at_ns;
	uint64_t cpu_ns, memory_bytes;
};

static int keep(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	struct foxcounters *counters = ctx;
	const struct sample *sample = &row->sample;

	(void)walk;
	if (counters->count == FOXCOUNTERS_ROWS_MAX) {
		counters->cut = true;
		return 0;
	}
	if (counters->count == counters->cap) {
		size_t cap = counters->cap ? 2 * counters->cap : 1024;
		struct foxcounters_point *points = realloc(counters->points, cap * sizeof(*points));

		if (!points)
			return -ENOMEM;
		counters->points = points;
		counters->cap = cap;
	}
	if (counters->count == 0 || row->at_ns < counters->from_ns)
		counters->from_ns = row->at_ns;
	if (counters->count == 0 || row->at_ns > counters->to_ns)
		counters->to_ns = row->at_ns;
	counters->points[counters->count] = (struct foxcounters_point){
		.order = counters->count,
		.target = (uint32_t)row->target,
		.has_cpu = sample_has(sample, SAMPLE_CPU),
		.has_memory = sample_has(sample, SAMPLE_MEMORY),
		.gap = row->gap,
		.at_ns = row->at_ns,
		.cpu_ns = sample->value[SAMPLE_CPU],
		.memory_bytes = sample->value[SAMPLE_MEMORY],
	};
	counters->count++;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct foxcounters_point *left = a, *right = b;

	if (left->target != right->target)
		return left->target < right->target ? -1 : 1;
	if (left->at_ns != right->at_ns)
		return left->at_ns < right->at_ns ? -1 : 1;
	return left->order < right->order ? -1 : left->order > right->order;
}

int foxcounters_load(int incidentfd, const struct incident *incident, struct foxcounters *ret)
{
	struct foxcounters counters = { .cut = false };
	const struct samplewalk_visit visit = { .row = keep, .ctx = &counters };
	int rc = samplewalk_run(incidentfd, incident->wall, &visit, &counters.walk);

	*ret = (struct foxcounters){ .cut = false };
	if (rc < 0) {
		foxcounters_release(&counters);
		return rc;
	}
	if (counters.count > 0)
		qsort(counters.points, counters.count, sizeof(*counters.points), compare);
	*ret = counters;
	return 0;
}

void foxcounters_release(struct foxcounters *counters)
{
	samplewalk_release(&counters->walk);
	free(counters->points);
	*counters = (struct foxcounters){ .cut = false };
}

void foxcounters_pid(const struct foxcounters *counters, size_t target, char ret[static 32])
{
	if (counters->walk.targets[target].pid)
		snprintf(ret, 32, "%d", counters->walk.targets[target].pid);
	else
		snprintf(ret, 32, "target-%zu", target + 1);
}

/* ---- the columns ---- */

/* What is written of each point: when, and by how much the counter moved. */
struct columns {
	struct json_writer *times, *counts; /* one of them is NULL: columns are written one after the other */
	int64_t zero_ns;
	uint64_t length;
};

static void put_point(struct columns *columns, int64_t at_ns, double count)
{
	columns->length++;
	if (columns->times)
		json_double(columns->times, at_ns > columns->zero_ns ? (double)(at_ns - columns->zero_ns) / 1e6 : 0);
	if (columns->counts)
		json_double(columns->counts, count);
}

/* In milliseconds of CPU time: by the millisecond that is cores. */
static void put_cpu(const struct foxcounters_point *points, size_t count, uint64_t interval_ns, struct columns *columns)
{
	const struct foxcounters_point *last = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct foxcounters_point *point = &points[i];
		bool follows = last && !point->gap && point->cpu_ns >= last->cpu_ns;
		int64_t ran_ns;

		if (!point->has_cpu)
			continue;
		if (follows &&
		    exportrows_ran_ns(point->at_ns - last->at_ns, point->cpu_ns - last->cpu_ns, interval_ns, &ran_ns))
			put_point(columns, point->at_ns - ran_ns, 0);
		put_point(columns, point->at_ns, follows ? (double)(point->cpu_ns - last->cpu_ns) / 1e6 : 0);
		last = point;
	}
}

static void put_memory(const struct foxcounters_point *points, size_t count, uint64_t interval_ns,
		       struct columns *columns)
{
	uint64_t before = 0;

	(void)interval_ns;
	for (size_t i = 0; i < count; i++) {
		if (!points[i].has_memory)
			continue;
		put_point(columns, points[i].at_ns, (double)points[i].memory_bytes - (double)before);
		before = points[i].memory_bytes;
	}
}

/* ---- the counters ---- */

struct row {
	const char *source, *unit, *label;
};

static const struct kind {
	const char *name, *category, *description, *graph, *unit, *color, *label;
	unsigned weight;
	void (*put)(const struct foxcounters_point *points, size_t count, uint64_t interval_ns,
		    struct columns *columns);
	struct row rows[2];
} kinds[] = {
	{ "CPU",
	  "CPU",
	  "CPU time used, in milliseconds",
	  "line-rate",
	  "percent",
	  "blue",
	  "CPU",
	  10,
	  put_cpu,
	  { { "rate", "percent", "of one core" } } },
	{ "Memory",
	  "Memory",
	  "Resident memory, in bytes",
	  "line-accumulated",
	  "bytes",
	  "orange",
	  "Memory",
	  20,
	  put_memory,
	  { { "accumulated", "bytes", "above the least in the graph" },
	    { "count-range", "bytes", "range in the graph" } } },
};

static void put_rows(const struct kind *kind, struct json_writer *json)
{
	json_key(json, "tooltipRows");
	json_begin_array(json);
	for (size_t i = 0; i < sizeof(kind->rows) / sizeof(kind->rows[0]) && kind->rows[i].source; i++) {
		json_begin_object(json);
		jsonmember_text(json, "type", "value");
		jsonmember_text(json, "source", kind->rows[i].source);
		json_key(json, "format");
		json_begin_object(json);
		jsonmember_text(json, "unit", kind->rows[i].unit);
		json_end_object(json);
		jsonmember_text(json, "label", kind->rows[i].label);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_display(const struct kind *kind, struct json_writer *json)
{
	json_key(json, "display");
	json_begin_object(json);
	jsonmember_text(json, "graphType", kind->graph);
	jsonmember_text(json, "unit", kind->unit);
	jsonmember_text(json, "color", kind->color);
	json_key(json, "markerSchemaLocation");
	json_null(json);
	json_key(json, "sortWeight");
	json_u64(json, kind->weight);
	jsonmember_text(json, "label", kind->label);
	put_rows(kind, json);
	json_end_object(json);
}

/* What a counter is made of. */
struct part {
	const struct foxcounters *counters;
	size_t target, first, count;
	uint64_t interval_ns;
	int64_t zero_ns;
};

static void put_samples(const struct part *part, const struct kind *kind, struct json_writer *json)
{
	const struct foxcounters_point *points = part->counters->points + part->first;
	struct columns columns = { .times = json, .zero_ns = part->zero_ns };

	json_key(json, "samples");
	json_begin_object(json);
	json_key(json, "time");
	json_begin_array(json);
	kind->put(points, part->count, part->interval_ns, &columns);
	json_end_array(json);
	columns = (struct columns){ .counts = json, .zero_ns = part->zero_ns };
	json_key(json, "count");
	json_begin_array(json);
	kind->put(points, part->count, part->interval_ns, &columns);
	json_end_array(json);
	json_key(json, "length");
	json_u64(json, columns.length);
	json_end_object(json);
}

static void put_counter(const struct part *part, const struct kind *kind, struct json_writer *json)
{
	struct columns columns = { .zero_ns = part->zero_ns };
	char pid[32];

	kind->put(part->counters->points + part->first, part->count, part->interval_ns, &columns);
	if (columns.length == 0)
		return;
	foxcounters_pid(part->counters, part->target, pid);
	json_begin_object(json);
	jsonmember_text(json, "name", kind->name);
	jsonmember_text(json, "category", kind->category);
	jsonmember_text(json, "description", kind->description);
	jsonmember_text(json, "pid", pid);
	json_key(json, "mainThreadIndex");
	json_u64(json, part->target);
	put_samples(part, kind, json);
	put_display(kind, json);
	json_end_object(json);
}

void foxcounters_put(const struct foxcounters *counters, const struct incident *incident, int64_t zero_ns,
		     struct json_writer *json)
{
	struct part part = { .counters = counters, .interval_ns = incident->cost.interval_ns, .zero_ns = zero_ns };

	json_key(json, "counters");
	json_begin_array(json);
	for (size_t i = 0; i < counters->count; i += part.count) {
		part.first = i;
		part.target = counters->points[i].target;
		for (part.count = 0;
		     i + part.count < counters->count && counters->points[i + part.count].target == part.target;)
			part.count++;
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			put_counter(&part, &kinds[k], json);
	}
	json_end_array(json);
}
