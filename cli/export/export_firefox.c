/*
 * export_firefox.c: the processed profile format of the Firefox Profiler: src/types/profile.ts and
 * docs-developer/CHANGELOG-formats.md of github.com/firefox-devtools/profiler.
 *
 * Each target has a main thread, which its counters belong to. Threads in which stacks were sampled
 * follow, unless they are such a main thread.
 *
 * A counter is a column of differences; rows of all targets are kept and sorted by target. A target
 * that does not run has no row until its heartbeat, and the CPU time of that row was used shortly
 * before it: a point of 0 is inserted there, so that it is not drawn over the whole pause.
 *
 * Strings, functions and mappings keep the numbers that they have in the pprof profile. A location
 * becomes one frame per function inlined there, or a frame of a function named after its mapping.
 *
 * A pprof profile tells only the phase of a sample, not its time. So the samples of a thread are
 * spread evenly over their phase: how often a stack was seen is right, the order within the phase
 * is not, and "extra" of the profile says so.
 */
#include "cli/export/export.h"

#include "cli/incident/profiles.h"
#include "cli/incident/series.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/profile/pprof.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Further rows are left out. */
#define FIREFOX_COUNTERS_ROWS_MAX ((size_t)4 << 20)

struct counter_point {
	size_t order; /* in the file */
	uint32_t target;
	bool has_cpu, has_memory, gap;
	int64_t at_ns;
	uint64_t cpu_ns, memory_bytes;
};

/* {0} is empty and legal. */
struct firefox_counters {
	struct sample_walk walk; /* the targets */
	struct counter_point *points;
	size_t count, cap;
	int64_t from_ns, to_ns; /* of the rows, since the firing; 0, 0 without any */
	bool cut;               /* there were more */
};

/* Of the format: a viewer takes this version and older ones. */
#define FORMAT_VERSION 70

/* The "type" of the markers' data: what, rule, value and unit. */
#define MARKER "spikewatch"

/* ---- counters ---- */

static void firefox_counters_release(struct firefox_counters *counters)
{
	sample_walk_release(&counters->walk);
	free(counters->points);
	*counters = (struct firefox_counters){ .cut = false };
}

static int keep_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct firefox_counters *counters = ctx;
	const struct sample *sample = &row->sample;

	(void)walk;
	if (counters->count == FIREFOX_COUNTERS_ROWS_MAX) {
		counters->cut = true;
		return 0;
	}
	if (vector_reserve(&counters->points, &counters->cap, counters->count + 1, sizeof(*counters->points)) < 0)
		return -ENOMEM;
	if (counters->count == 0 || row->at_ns < counters->from_ns)
		counters->from_ns = row->at_ns;
	if (counters->count == 0 || row->at_ns > counters->to_ns)
		counters->to_ns = row->at_ns;
	counters->points[counters->count] = (struct counter_point){
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

static int by_target_and_time(const void *a, const void *b)
{
	const struct counter_point *left = a, *right = b;

	if (left->target != right->target)
		return left->target < right->target ? -1 : 1;
	if (left->at_ns != right->at_ns)
		return left->at_ns < right->at_ns ? -1 : 1;
	return left->order < right->order ? -1 : left->order > right->order;
}

/* 0; -ENOENT: there is no samples.tsv; -ENOMEM; -errno: *ret is {0}. To be released. */
static int firefox_counters_load(int incidentfd, const struct incident *incident, struct firefox_counters *ret)
{
	struct firefox_counters counters = { .cut = false };
	const struct sample_walk_visit visit = { .row = keep_row, .ctx = &counters };
	int rc = sample_walk_run(incidentfd, incident->wall, &visit, &counters.walk);

	*ret = (struct firefox_counters){ .cut = false };
	if (rc < 0) {
		firefox_counters_release(&counters);
		return rc;
	}
	if (counters.count > 0)
		qsort(counters.points, counters.count, sizeof(*counters.points), by_target_and_time);
	*ret = counters;
	return 0;
}

/* The pid of a target, which is text in a profile; one of its own for what is no process. */
static void target_pid(const struct firefox_counters *counters, size_t target, char ret[static 32])
{
	if (counters->walk.targets[target].pid)
		snprintf(ret, 32, "%d", counters->walk.targets[target].pid);
	else
		snprintf(ret, 32, "target-%zu", target + 1);
}

/* What is written of each point: its time, and by how much the counter moved. */
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

/* The points of one target. */
struct counter_span {
	const struct firefox_counters *counters;
	size_t target, first, count;
	uint64_t interval_ns;
	int64_t zero_ns;
};

/* In milliseconds of CPU time; per millisecond that is cores. */
static void put_cpu(const struct counter_span *span, struct columns *columns)
{
	const struct counter_point *points = span->counters->points + span->first;
	const struct counter_point *last = NULL;

	for (size_t i = 0; i < span->count; i++) {
		const struct counter_point *point = &points[i];
		bool follows = last && !point->gap && point->cpu_ns >= last->cpu_ns;
		int64_t ran_ns;

		if (!point->has_cpu)
			continue;
		if (follows) {
			const struct export_step step = { .holes = &span->counters->walk.holes,
							  .writer = span->counters->walk.targets[span->target].writer,
							  .interval_ns = span->interval_ns,
							  .from_ns = last->at_ns,
							  .to_ns = point->at_ns,
							  .cpu_ns = point->cpu_ns - last->cpu_ns };

			if (export_ran_ns(&step, &ran_ns))
				put_point(columns, point->at_ns - ran_ns, 0);
		}
		put_point(columns, point->at_ns, follows ? (double)(point->cpu_ns - last->cpu_ns) / 1e6 : 0);
		last = point;
	}
}

static void put_memory(const struct counter_span *span, struct columns *columns)
{
	const struct counter_point *points = span->counters->points + span->first;
	uint64_t before = 0;

	for (size_t i = 0; i < span->count; i++) {
		if (!points[i].has_memory)
			continue;
		put_point(columns, points[i].at_ns, (double)points[i].memory_bytes - (double)before);
		before = points[i].memory_bytes;
	}
}

struct row {
	const char *source, *unit, *label;
};

static const struct kind {
	const char *name, *category, *description, *graph, *unit, *color, *label;
	unsigned weight;
	void (*put)(const struct counter_span *span, struct columns *columns);
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
	json_member_array(json, "tooltipRows");
	for (size_t i = 0; i < ARRAY_LEN(kind->rows) && kind->rows[i].source; i++) {
		json_begin_object(json);
		json_member_text(json, "type", "value");
		json_member_text(json, "source", kind->rows[i].source);
		json_member_object(json, "format");
		json_member_text(json, "unit", kind->rows[i].unit);
		json_end_object(json);
		json_member_text(json, "label", kind->rows[i].label);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_display(const struct kind *kind, struct json_writer *json)
{
	json_member_object(json, "display");
	json_member_text(json, "graphType", kind->graph);
	json_member_text(json, "unit", kind->unit);
	json_member_text(json, "color", kind->color);
	json_member_null(json, "markerSchemaLocation");
	json_member_u64(json, "sortWeight", kind->weight);
	json_member_text(json, "label", kind->label);
	put_rows(kind, json);
	json_end_object(json);
}

static void put_counter_samples(const struct counter_span *span, const struct kind *kind, struct json_writer *json)
{
	struct columns columns = { .times = json, .zero_ns = span->zero_ns };

	json_member_object(json, "samples");
	json_member_array(json, "time");
	kind->put(span, &columns);
	json_end_array(json);
	columns = (struct columns){ .counts = json, .zero_ns = span->zero_ns };
	json_member_array(json, "count");
	kind->put(span, &columns);
	json_end_array(json);
	json_member_u64(json, "length", columns.length);
	json_end_object(json);
}

static void put_counter(const struct counter_span *span, const struct kind *kind, struct json_writer *json)
{
	struct columns columns = { .zero_ns = span->zero_ns };
	char pid[32];

	kind->put(span, &columns);
	if (columns.length == 0)
		return;
	target_pid(span->counters, span->target, pid);
	json_begin_object(json);
	json_member_text(json, "name", kind->name);
	json_member_text(json, "category", kind->category);
	json_member_text(json, "description", kind->description);
	json_member_text(json, "pid", pid);
	json_member_u64(json, "mainThreadIndex", span->target);
	put_counter_samples(span, kind, json);
	put_display(kind, json);
	json_end_object(json);
}

/* The main thread of target i is thread i; times are since zero_ns, which is since the firing. */
static void firefox_counters_put(const struct firefox_counters *counters, const struct incident *incident,
				 int64_t zero_ns, struct json_writer *json)
{
	struct counter_span span = { .counters = counters,
				     .interval_ns = incident->cost.interval_ns,
				     .zero_ns = zero_ns };

	json_member_array(json, "counters");
	for (size_t i = 0; i < counters->count; i += span.count) {
		span.first = i;
		span.target = counters->points[i].target;
		for (span.count = 0;
		     i + span.count < counters->count && counters->points[i + span.count].target == span.target;)
			span.count++;
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
			put_counter(&span, &kinds[k], json);
	}
	json_end_array(json);
}

/* ---- the tables that all threads of a profile share, made from a pprof profile ---- */

/* Categories of frames: places in profile.meta.categories. */
enum firefox_stacks_category { FIREFOX_STACKS_OTHER, FIREFOX_STACKS_USER, FIREFOX_STACKS_KERNEL };

/* {0}: without stacks; strings may be added to it. */
struct firefox_stacks {
	struct pprof_read *reader; /* NULL: there is no profile */
	const struct pprof_read_profile *profile;
	uint32_t *frame_first; /* of each location: its outermost function first */
	uint32_t frame_count;
	int32_t *resources; /* of each function: a mapping; -1: none */
	struct intern stacks;
	struct intern strings; /* behind those of the profile */
};

/* A node of the tree of stacks. Compared as bytes: no padding. */
struct node {
	uint32_t prefix; /* number of the node above; 0: a root */
	uint32_t frame;
};

/* Counts frames, and finds what each function is in. */
static int index_profile(struct firefox_stacks *stacks)
{
	const struct pprof_read_profile *profile = stacks->profile;

	stacks->frame_first = calloc((size_t)profile->location_count + 1, sizeof(*stacks->frame_first));
	stacks->resources = calloc((size_t)profile->function_count + 1, sizeof(*stacks->resources));
	if (!stacks->frame_first || !stacks->resources)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->function_count; i++)
		stacks->resources[i] = -1;
	for (uint32_t i = 0; i < profile->location_count; i++) {
		const struct pprof_read_location *location = &profile->locations[i];

		stacks->frame_first[i] = stacks->frame_count;
		stacks->frame_count += location->line_count ? location->line_count : 1;
		for (uint32_t n = 0; n < location->line_count; n++) {
			uint32_t function = profile->lines[location->line_first + n].function;

			if (function && location->mapping)
				stacks->resources[function - 1] = (int32_t)location->mapping - 1;
		}
	}
	return 0;
}

static void firefox_stacks_release(struct firefox_stacks *stacks)
{
	intern_release(&stacks->stacks);
	intern_release(&stacks->strings);
	free(stacks->frame_first);
	free(stacks->resources);
	pprof_read_free(stacks->reader);
	*stacks = (struct firefox_stacks){ 0 };
}

/* Reads the file. As stack_fold_open; on failure *ret is {0}. To be released. */
static int firefox_stacks_load(int incidentfd, bool memory, struct firefox_stacks *ret)
{
	AUTO(firefox_stacks_release) struct firefox_stacks stacks = { 0 };
	int rc = stack_fold_open(incidentfd, memory, &stacks.reader);

	*ret = (struct firefox_stacks){ 0 };
	if (rc < 0)
		return rc;
	stacks.profile = pprof_read_profile(stacks.reader);
	rc = index_profile(&stacks);
	if (rc < 0)
		return rc;
	*ret = stacks;
	stacks = (struct firefox_stacks){ 0 };
	return 0;
}

static uint32_t profile_strings(const struct firefox_stacks *stacks)
{
	return stacks->profile ? stacks->profile->string_count : 0;
}

/* The place of a string that is added if need be. 0 or -ENOMEM. */
static int firefox_stacks_string(struct firefox_stacks *stacks, const char *text, uint32_t *ret)
{
	struct intern_budget budget = { 0 };
	uint32_t number;
	int rc = intern_put(&stacks->strings, &budget, text, strlen(text), &number);

	if (rc == 0)
		*ret = profile_strings(stacks) + number - 1;
	return rc < 0 ? rc : 0;
}

/* The place of a sample's stack in stackTable; -1: it has no frame. 0 or -ENOMEM. */
static int firefox_stacks_stack(struct firefox_stacks *stacks, const struct pprof_read_sample *sample, int64_t *ret)
{
	const struct pprof_read_profile *profile = stacks->profile;
	struct intern_budget budget = { 0 };
	uint32_t number = 0;

	for (uint32_t i = sample->frame_count; i > 0; i--) {
		uint32_t location = profile->frames[sample->frame_first + i - 1];
		uint32_t count = profile->locations[location].line_count;

		for (uint32_t n = 0; n < (count ? count : 1); n++) {
			const struct node node = { number, stacks->frame_first[location] + n };
			int rc = intern_put(&stacks->stacks, &budget, &node, sizeof(node), &number);

			if (rc < 0)
				return rc;
		}
	}
	*ret = (int64_t)number - 1;
	return 0;
}

/* What a column holds: in every row the same, or something of the frame. */
enum table_value { NOTHING, NO, ZERO, MINUS_ONE, ONE, FRAME_DEPTH, FRAME_CATEGORY, FRAME_FUNCTION, FRAME_LINE };

struct table_column {
	const char *key;
	enum table_value value;
};

static void put_constant(struct json_writer *json, enum table_value value)
{
	if (value == NOTHING)
		json_null(json);
	else if (value == NO)
		json_bool(json, false);
	else
		json_i64(json, value == ZERO ? 0 : value == ONE ? 1 : -1);
}

static void put_constants(struct json_writer *json, uint32_t rows, const struct table_column *columns, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		json_member_array(json, columns[i].key);
		for (uint32_t row = 0; row < rows; row++)
			put_constant(json, columns[i].value);
		json_end_array(json);
	}
}

static void end_table(struct json_writer *json, uint32_t length)
{
	json_member_u64(json, "length", length);
	json_end_object(json);
}

static void put_stacks(const struct firefox_stacks *stacks, struct json_writer *json)
{
	uint32_t count = stacks->stacks.count;
	size_t len;

	json_member_object(json, "stackTable");
	json_member_array(json, "frame");
	for (uint32_t i = 1; i <= count; i++)
		json_u64(json, ((const struct node *)intern_get(&stacks->stacks, i, &len))->frame);
	json_end_array(json);
	json_member_array(json, "prefixOffset");
	for (uint32_t i = 1; i <= count; i++) {
		uint32_t prefix = ((const struct node *)intern_get(&stacks->stacks, i, &len))->prefix;

		json_u64(json, prefix ? i - prefix : 0);
	}
	json_end_array(json);
	end_table(json, count);
}

static enum firefox_stacks_category category_of(const struct pprof_read_profile *profile, uint32_t mapping)
{
	static const char kernel[] = "[kernel";
	const struct pprof_read_text *file;

	if (mapping == 0)
		return FIREFOX_STACKS_OTHER;
	file = &profile->strings[profile->mappings[mapping - 1].file];
	if (file->len >= strlen(kernel) && memcmp(file->at, kernel, strlen(kernel)) == 0)
		return FIREFOX_STACKS_KERNEL;
	return FIREFOX_STACKS_USER;
}

/*
 * A frame is a location and one of its functions. depth: which, the outermost first. Functions of
 * the profile are followed by one for each mapping, [0] for none.
 */
static void put_frame_value(const struct pprof_read_profile *profile, const struct pprof_read_location *location,
			    uint32_t depth, enum table_value value, struct json_writer *json)
{
	static const struct pprof_read_line unknown;
	const struct pprof_read_line *line =
		location->line_count ? &profile->lines[location->line_first + location->line_count - 1 - depth]
				     : &unknown;

	if (value == FRAME_DEPTH)
		json_u64(json, depth < UINT8_MAX ? depth : UINT8_MAX);
	else if (value == FRAME_CATEGORY)
		json_u64(json, category_of(profile, location->mapping));
	else if (value == FRAME_FUNCTION)
		json_u64(json,
			 line->function ? line->function - 1 : (uint64_t)profile->function_count + location->mapping);
	else if (value == FRAME_LINE && line->line > 0)
		json_i64(json, line->line);
	else
		put_constant(json, value == FRAME_LINE ? NOTHING : value);
}

static void put_frame_column(const struct firefox_stacks *stacks, const struct table_column *column,
			     struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;

	json_member_array(json, column->key);
	for (uint32_t i = 0; profile && i < profile->location_count; i++)
		for (uint32_t depth = 0; depth == 0 || depth < profile->locations[i].line_count; depth++)
			put_frame_value(profile, &profile->locations[i], depth, column->value, json);
	json_end_array(json);
}

static void put_frames(const struct firefox_stacks *stacks, struct json_writer *json)
{
	static const struct table_column columns[] = {
		{ "address", MINUS_ONE },        { "lib", MINUS_ONE },
		{ "inlineDepth", FRAME_DEPTH },  { "category", FRAME_CATEGORY },
		{ "subcategory", ZERO },         { "func", FRAME_FUNCTION },
		{ "nativeSymbol", NOTHING },     { "innerWindowID", ZERO },
		{ "line", FRAME_LINE },          { "column", NOTHING },
		{ "originalLocation", NOTHING },
	};

	json_member_object(json, "frameTable");
	for (size_t i = 0; i < ARRAY_LEN(columns); i++)
		put_frame_column(stacks, &columns[i], json);
	end_table(json, stacks->frame_count);
}

/* "[libc.so.6]". */
static int name_mapping(struct firefox_stacks *stacks, uint32_t mapping, uint32_t *ret)
{
	const struct pprof_read_text *file;
	char name[300];
	size_t len;

	if (mapping == 0)
		return firefox_stacks_string(stacks, "?", ret);
	file = &stacks->profile->strings[stacks->profile->mappings[mapping - 1].file];
	for (len = 0; len < file->len && len < 250 && file->at[file->len - 1 - len] != '/'; len++)
		;
	if (len > 0 && file->at[file->len - len] == '[')
		snprintf(name, sizeof(name), "%.*s", (int)len, file->at + file->len - len);
	else
		snprintf(name, sizeof(name), "[%.*s]", (int)len, len ? file->at + file->len - len : "");
	return firefox_stacks_string(stacks, name, ret);
}

static int put_names(struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;
	int rc = 0;

	json_member_array(json, "name");
	for (uint32_t i = 0; profile && i < profile->function_count; i++)
		json_u64(json, profile->functions[i].name);
	for (uint32_t i = 0; profile && i <= profile->mapping_count && rc == 0; i++) {
		uint32_t string = 0;

		rc = name_mapping(stacks, i, &string);
		json_u64(json, string);
	}
	json_end_array(json);
	return rc;
}

static void put_resource_of_functions(const struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;

	json_member_array(json, "resource");
	for (uint32_t i = 0; profile && i < profile->function_count; i++)
		json_i64(json, stacks->resources[i]);
	for (uint32_t i = 0; profile && i <= profile->mapping_count; i++)
		json_i64(json, (int64_t)i - 1);
	json_end_array(json);
}

/* One source per function that has a file; equal ones are not merged. */
static void put_sources_of_functions(const struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;
	uint64_t source = 0;

	json_member_array(json, "source");
	for (uint32_t i = 0; profile && i < profile->function_count; i++) {
		if (profile->functions[i].file)
			json_u64(json, source++);
		else
			json_null(json);
	}
	for (uint32_t i = 0; profile && i <= profile->mapping_count; i++)
		json_null(json);
	json_end_array(json);
}

static int put_functions(struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;
	static const struct table_column flags[] = { { "isJS", NO }, { "relevantForJS", NO } };
	static const struct table_column places[] = { { "lineNumber", NOTHING },
						      { "columnNumber", NOTHING },
						      { "originalLocation", NOTHING } };
	uint32_t count = profile ? profile->function_count + profile->mapping_count + 1 : 0;
	int rc;

	json_member_object(json, "funcTable");
	rc = put_names(stacks, json);
	put_constants(json, count, flags, ARRAY_LEN(flags));
	put_resource_of_functions(stacks, json);
	put_sources_of_functions(stacks, json);
	put_constants(json, count, places, ARRAY_LEN(places));
	end_table(json, count);
	return rc;
}

static void put_resources(const struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;
	static const struct table_column columns[] = { { "host", NOTHING }, { "type", ONE /* a library */ } };
	uint32_t count = profile ? profile->mapping_count : 0;

	json_member_object(json, "resourceTable");
	json_member_array(json, "name");
	for (uint32_t i = 0; i < count; i++)
		json_u64(json, profile->mappings[i].file);
	json_end_array(json);
	put_constants(json, count, columns, ARRAY_LEN(columns));
	end_table(json, count);
}

static void put_sources(const struct firefox_stacks *stacks, struct json_writer *json)
{
	const struct pprof_read_profile *profile = stacks->profile;
	static const struct table_column columns[] = {
		{ "id", NOTHING },           { "startLine", ONE },   { "startColumn", ONE },
		{ "sourceMapURL", NOTHING }, { "content", NOTHING },
	};
	uint32_t count = 0;

	json_member_object(json, "sources");
	json_member_array(json, "filename");
	for (uint32_t i = 0; profile && i < profile->function_count; i++) {
		if (!profile->functions[i].file)
			continue;
		json_u64(json, profile->functions[i].file);
		count++;
	}
	json_end_array(json);
	put_constants(json, count, columns, ARRAY_LEN(columns));
	end_table(json, count);
}

static void put_empty(struct json_writer *json, const char *key, const struct table_column *columns, size_t count)
{
	json_member_object(json, key);
	put_constants(json, 0, columns, count);
	end_table(json, 0);
}

static int put_strings(const struct firefox_stacks *stacks, struct json_writer *json)
{
	int rc = 0;

	json_member_array(json, "stringArray");
	for (uint32_t i = 0; i < profile_strings(stacks) && rc == 0; i++) {
		AUTO_FREE char *text = strndup(stacks->profile->strings[i].len ? stacks->profile->strings[i].at : "",
					       stacks->profile->strings[i].len);

		if (!text)
			rc = -ENOMEM;
		else
			printable_json(json, text);
	}
	for (uint32_t i = 1; i <= stacks->strings.count; i++)
		printable_json(json, intern_text(&stacks->strings, i));
	json_end_array(json);
	return rc;
}

/*
 * The member "shared", after all stacks and strings are there. 0 or -ENOMEM; errors of writing stay
 * in the writer.
 */
static int firefox_stacks_put(struct firefox_stacks *stacks, struct json_writer *json)
{
	static const struct table_column symbols[] = {
		{ "libIndex", 0 }, { "address", 0 }, { "name", 0 }, { "functionSize", 0 }
	};
	static const struct table_column places[] = { { "source", 0 }, { "line", 0 }, { "column", 0 } };
	int rc, strings;

	json_member_object(json, "shared");
	put_stacks(stacks, json);
	put_frames(stacks, json);
	rc = put_functions(stacks, json);
	put_resources(stacks, json);
	put_empty(json, "nativeSymbols", symbols, ARRAY_LEN(symbols));
	put_sources(stacks, json);
	put_empty(json, "sourceLocationTable", places, ARRAY_LEN(places));
	strings = put_strings(stacks, json); /* functions have added theirs */
	json_end_object(json);
	return rc < 0 ? rc : strings;
}

/* ---- meta: mostly that all is symbolised and nothing is from a browser ---- */

static void put_category(struct json_writer *json, const char *name, const char *color)
{
	json_begin_object(json);
	json_member_text(json, "name", name);
	json_member_text(json, "color", color);
	json_member_array(json, "subcategories");
	json_string(json, "Other");
	json_end_array(json);
	json_end_object(json);
}

static void put_categories(struct json_writer *json)
{
	/* In the order of enum firefox_stacks_category. */
	json_member_array(json, "categories");
	put_category(json, "Other", "grey");
	put_category(json, "User", "yellow");
	put_category(json, "Kernel", "orange");
	json_end_array(json);
}

static void put_schema(struct json_writer *json)
{
	static const struct {
		const char *key, *label, *format;
	} fields[] = {
		{ "what", "What", "string" },
		{ "rule", "Rule", "string" },
		{ "value", "Value", "decimal" },
		{ "unit", "Unit", "string" },
	};

	json_member_array(json, "markerSchema");
	json_begin_object(json);
	json_member_text(json, "name", MARKER);
	json_member_text(json, "tableLabel", "{marker.data.what}: {marker.data.rule}");
	json_member_text(json, "chartLabel", "{marker.data.what}");
	json_member_array(json, "display");
	json_string(json, "marker-chart");
	json_string(json, "marker-table");
	json_string(json, "timeline-overview");
	json_end_array(json);
	json_member_array(json, "fields");
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		json_begin_object(json);
		json_member_text(json, "key", fields[i].key);
		json_member_text(json, "label", fields[i].label);
		json_member_text(json, "format", fields[i].format);
		json_end_object(json);
	}
	json_end_array(json);
	json_end_object(json);
	json_end_array(json);
}

static void put_entry(struct json_writer *json, const char *label, const char *value)
{
	json_begin_object(json);
	json_member_text(json, "label", label);
	json_member_text(json, "format", "string");
	json_member_text(json, "value", value);
	json_end_object(json);
}

static void put_extra(struct json_writer *json, const struct incident *incident)
{
	json_member_array(json, "extra");
	json_begin_object(json);
	json_member_text(json, "label", "Incident");
	json_member_array(json, "entries");
	put_entry(json, "Id", incident->id);
	put_entry(json, "Host", incident->hostname);
	put_entry(json, "Target", incident->target.name);
	put_entry(json, "Rule", incident->rule.name);
	put_entry(json, "Times of stacks",
		  "Known is whether before the spike or during it; within that they are spread evenly.");
	json_end_array(json);
	json_end_object(json);
	json_end_array(json);
}

static void put_origin(struct json_writer *json, const struct incident *incident)
{
	json_member_text(json, "product", "Spikewatch");
	json_member_text(json, "importedFrom", "Spikewatch");
	json_member_text(json, "platform", "X11");
	json_member_text(json, "oscpu", incident->kernel);
	json_member_bool(json, "symbolicated", true);
	json_member_bool(json, "symbolicationNotSupported", true);
	json_member_bool(json, "usesOnlyOneStackType", true);
	json_member_bool(json, "sourceCodeIsNotOnSearchfox", true);
}

/* ---- threads and their stacks ---- */

/* With more samples, all of a stack are one sample, which has their weight. */
#define SPREAD_MAX 200000

#define DAY_NS (INT64_C(86400) * 1000000000)

/* A stack of a thread in a phase. */
struct part {
	uint32_t thread; /* place in threads */
	uint32_t order;
	bool during;
	int64_t stack;
	uint64_t count;
	double weight;
};

struct thread {
	const char *name, *process; /* may hold any byte */
	size_t name_len, process_len;
	char pid[32];
	int64_t tid;
	bool main;
	size_t first, count; /* of parts */
};

struct firefox_export {
	const struct exporting *exporting;
	const struct incident *incident;
	struct firefox_counters counters;
	struct firefox_stacks stacks;
	struct thread *threads;
	size_t thread_count, thread_cap;
	struct part *parts;
	size_t part_count;
	int value, counted; /* of a sample: its weight, how many it stands for; -1: there is none */
	bool spread;
	int64_t zero_ns, window_ns, end_ns; /* since the firing */
	uint32_t marker;                    /* string */
	struct json_writer *json;
};

static void firefox_export_release(struct firefox_export *export)
{
	firefox_counters_release(&export->counters);
	firefox_stacks_release(&export->stacks);
	free(export->threads);
	free(export->parts);
}

static int add_thread(struct firefox_export *export, const struct thread *thread, uint32_t *ret)
{
	if (vector_reserve(&export->threads, &export->thread_cap, export->thread_count + 1, sizeof(*export->threads)) <
	    0)
		return -ENOMEM;
	*ret = (uint32_t) export->thread_count;
	export->threads[export->thread_count++] = *thread;
	return 0;
}

static int add_targets(struct firefox_export *export)
{
	for (size_t i = 0; i < export->counters.walk.count; i++) {
		const struct sample_walk_target *target = &export->counters.walk.targets[i];
		struct thread thread = { .name = target->name,
					 .name_len = strlen(target->name),
					 .process = target->name,
					 .process_len = strlen(target->name),
					 .tid = target->pid ? target->pid : (int64_t)i,
					 .main = true };
		uint32_t place;
		int rc;

		target_pid(&export->counters, i, thread.pid);
		rc = add_thread(export, &thread, &place);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void take_label(const struct firefox_export *export, const struct pprof_read_sample *sample, const char *key,
		       const char **ret, size_t *ret_len)
{
	const struct pprof_read_label *label = pprof_read_label(export->stacks.profile, sample, key);
	const struct pprof_read_text *text = label ? &export->stacks.profile->strings[label->text] : NULL;

	*ret = text && text->len ? text->at : "?";
	*ret_len = text && text->len ? text->len : 1;
}

static int64_t number_label(const struct firefox_export *export, const struct pprof_read_sample *sample,
			    const char *key)
{
	const struct pprof_read_label *label = pprof_read_label(export->stacks.profile, sample, key);

	return label ? label->number : 0;
}

/* Samples of a thread mostly follow one another: the search begins at the end. */
static int find_thread(struct firefox_export *export, const struct pprof_read_sample *sample, uint32_t *ret)
{
	int64_t pid = number_label(export, sample, "process_id");
	struct thread thread = { .tid = number_label(export, sample, "thread_id") };

	snprintf(thread.pid, sizeof(thread.pid), "%lld", (long long)pid);
	for (size_t i = export->thread_count; i > 0; i--) {
		if (export->threads[i - 1].tid != thread.tid || strcmp(export->threads[i - 1].pid, thread.pid) != 0)
			continue;
		*ret = (uint32_t)(i - 1);
		return 0;
	}
	thread.main = thread.tid == pid;
	take_label(export, sample, "thread", &thread.name, &thread.name_len);
	take_label(export, sample, "process", &thread.process, &thread.process_len);
	return add_thread(export, &thread, ret);
}

static int compare_parts(const void *a, const void *b)
{
	const struct part *left = a, *right = b;

	if (left->thread != right->thread)
		return left->thread < right->thread ? -1 : 1;
	if (left->during != right->during)
		return right->during ? -1 : 1;
	return left->order < right->order ? -1 : left->order > right->order;
}

static int add_part(struct firefox_export *export, uint32_t order, uint64_t *total)
{
	const struct pprof_read_sample *sample = &export->stacks.profile->samples[order];
	struct part part = { .order = order,
			     .during = stack_fold_phase(export->stacks.profile, sample) == FUNCTION_TABLE_DURING,
			     .count = 1,
			     .weight = 1 };
	int rc = find_thread(export, sample, &part.thread);

	if (rc == 0)
		rc = firefox_stacks_stack(&export->stacks, sample, &part.stack);
	if (rc < 0)
		return rc;
	if (export->counted >= 0 && sample->values[export->counted] > 0)
		part.count = (uint64_t)sample->values[export->counted];
	if (export->value >= 0)
		part.weight = (double)sample->values[export->value] / (export->exporting->memory ? 1 : 1e6);
	else
		part.weight = (double)part.count;
	*total = part.count > SPREAD_MAX ? SPREAD_MAX + 1 : *total + part.count;
	export->spread &= *total <= SPREAD_MAX;
	export->parts[export->part_count++] = part;
	return 0;
}

static int add_stacks(struct firefox_export *export)
{
	const struct pprof_read_profile *profile = export->stacks.profile;
	uint64_t total = 0;
	int rc = 0;

	if (!profile || profile->sample_count == 0)
		return 0;
	if (export->exporting->memory)
		export->value = pprof_read_value(profile, "memory", "bytes");
	else
		export->value = pprof_read_value(profile, "cpu", "nanoseconds");
	export->counted = pprof_read_value(profile, export->exporting->memory ? "faults" : "samples", "count");
	export->spread = !export->exporting->memory; /* faults are too many, and worth different sums */
	export->parts = calloc(profile->sample_count, sizeof(*export->parts));
	if (!export->parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->sample_count && rc == 0; i++)
		if (export->exporting->machine || stack_fold_is_target(profile, &profile->samples[i]))
			rc = add_part(export, i, &total);
	qsort(export->parts, export->part_count, sizeof(*export->parts), compare_parts);
	for (size_t i = export->part_count; i > 0; i--) {
		export->threads[export->parts[i - 1].thread].first = i - 1;
		export->threads[export->parts[i - 1].thread].count++;
	}
	return rc;
}

/* ---- times ---- */

static void set_times(struct firefox_export *export)
{
	const struct pprof_read_profile *profile = export->stacks.profile;
	int64_t from = profile ? profile->time_ns - (int64_t) export->incident->wall.ns : 0;

	export->zero_ns = export->counters.from_ns;
	export->end_ns = export->counters.to_ns;
	export->window_ns = mono_diff(export->incident->window_from, export->incident->mono);
	if (profile && profile->time_ns > 0 && from > -DAY_NS && from < DAY_NS) {
		export->zero_ns = from < export->zero_ns || export->counters.count == 0 ? from : export->zero_ns;
		if (profile->duration_ns > 0 && profile->duration_ns < DAY_NS &&
		    from + profile->duration_ns > export->end_ns)
			export->end_ns = from + profile->duration_ns;
	}
	if (export->window_ns > 0 || export->window_ns < export->zero_ns)
		export->window_ns = 0;
	if (export->window_ns < export->zero_ns)
		export->window_ns = export->zero_ns;
	if (export->end_ns < export->window_ns)
		export->end_ns = export->window_ns;
}

/* Milliseconds since the beginning of the profile. */
static double since_zero(const struct firefox_export *export, int64_t at_ns)
{
	return (double)(at_ns - export->zero_ns) / 1e6;
}

enum column { COLUMN_STACK, COLUMN_TIME, COLUMN_WEIGHT };

/* One value for each sample of the parts of one phase. Returns how many. */
static uint64_t put_phase(const struct firefox_export *export, const struct part *parts, size_t count,
			  enum column column)
{
	int64_t from = parts->during ? export->window_ns : export->zero_ns,
		to = parts->during ? export->end_ns : export->window_ns;
	uint64_t total = 0, done = 0;

	for (size_t i = 0; i < count; i++)
		total += export->spread ? parts[i].count : 1;
	for (size_t i = 0; i < count; i++) {
		uint64_t times = export->spread ? parts[i].count : 1;

		for (uint64_t n = 0; n < times; n++, done++) {
			if (column == COLUMN_TIME)
				json_double(export->json,
					    since_zero(export, from) + since_zero(export, to - from + export->zero_ns) *
									       (double)done / (double)total);
			else if (column == COLUMN_WEIGHT)
				json_double(export->json, parts[i].weight / (double)times);
			else if (parts[i].stack < 0)
				json_null(export->json);
			else
				json_i64(export->json, parts[i].stack);
		}
	}
	return total;
}

static uint64_t put_column(const struct firefox_export *export, const struct thread *thread, const char *key,
			   enum column column)
{
	const struct part *parts = export->parts + thread->first;
	size_t before = 0;
	uint64_t length = 0;

	json_member_array(export->json, key);
	while (before < thread->count && !parts[before].during)
		before++;
	if (before > 0)
		length += put_phase(export, parts, before, column);
	if (before < thread->count)
		length += put_phase(export, parts + before, thread->count - before, column);
	json_end_array(export->json);
	return length;
}

static void put_samples(const struct firefox_export *export, const struct thread *thread)
{
	uint64_t length;

	json_member_object(export->json, "samples");
	length = put_column(export, thread, "stack", COLUMN_STACK);
	put_column(export, thread, "time", COLUMN_TIME);
	put_column(export, thread, "weight", COLUMN_WEIGHT);
	json_member_text(export->json, "weightType",
			 export->value < 0           ? "samples"
			 : export->exporting->memory ? "bytes"
						     : "tracing-ms");
	json_member_i64(export->json, "length", (int64_t)length);
	json_end_object(export->json);
}

/* ---- markers: the window of the rule, the firing, and the holes of the sampling ---- */

struct marker {
	char what[EXPORT_HOLE_NAME_MAX];
	double from, to; /* in the unit of the profile; equal: an instant */
};

/* A column: of each marker, one of them. */
enum marker_column { MARKER_NAME, MARKER_START, MARKER_END, MARKER_PHASE, MARKER_CATEGORY };

static void put_marker_column(const struct firefox_export *export, const char *key, enum marker_column column,
			      const struct marker *markers, size_t count)
{
	json_member_array(export->json, key);
	for (size_t i = 0; i < count; i++)
		json_double(export->json, column == MARKER_NAME    ? export->marker
					  : column == MARKER_START ? markers[i].from
					  : column == MARKER_END   ? markers[i].to
					  : column == MARKER_PHASE ? markers[i].to > markers[i].from
								   : FIREFOX_STACKS_OTHER);
	json_end_array(export->json);
}

static void put_marker_data(const struct firefox_export *export, const char *what)
{
	json_begin_object(export->json);
	json_member_text(export->json, "type", MARKER);
	json_member_text(export->json, "what", what);
	json_member_text(export->json, "rule", export->incident->rule.name);
	if (export->incident->rule.has_value)
		json_member_double(export->json, "value", export->incident->rule.value);
	json_member_text(export->json, "unit", export->incident->rule.unit);
	json_end_object(export->json);
}

static void put_empty_column(struct json_writer *json, const char *key)
{
	json_member_array(json, key);
	json_end_array(json);
}

/* Further holes have no marker. */
#define HOLE_MARKERS_MAX 1000

static void put_markers(const struct firefox_export *export, bool has)
{
	const struct series_holes *holes = &export->counters.walk.holes;
	struct marker markers[2 + HOLE_MARKERS_MAX] = {
		{ "the window of the rule", since_zero(export, export->window_ns), since_zero(export, 0) },
		{ "fired", since_zero(export, 0), since_zero(export, 0) },
	};
	size_t count = has ? 2 : 0;

	for (size_t i = 0; has && i < holes->count && i < HOLE_MARKERS_MAX; i++) {
		struct marker *marker = &markers[count++];

		export_hole_name(export->incident, export->counters.walk.to_ns, &holes->hole[i], marker->what);
		marker->from = since_zero(export, holes->hole[i].from_ns);
		marker->to = since_zero(export, holes->hole[i].to_ns);
	}
	json_member_object(export->json, "markers");
	json_member_array(export->json, "data");
	for (size_t i = 0; i < count; i++)
		put_marker_data(export, markers[i].what);
	json_end_array(export->json);
	put_marker_column(export, "name", MARKER_NAME, markers, count);
	put_marker_column(export, "startTime", MARKER_START, markers, count);
	put_marker_column(export, "endTime", MARKER_END, markers, count);
	put_marker_column(export, "phase", MARKER_PHASE, markers, count);
	put_marker_column(export, "category", MARKER_CATEGORY, markers, count);
	json_member_i64(export->json, "length", (int64_t)count);
	json_end_object(export->json);
}

static int put_cut_text(struct json_writer *json, const char *key, const char *text, size_t len)
{
	AUTO_FREE char *copy = strndup(text, len);

	if (!copy)
		return -ENOMEM;
	json_member_text(json, key, copy);
	return 0;
}

static int put_thread(const struct firefox_export *export, size_t at)
{
	const struct thread *thread = &export->threads[at];
	int rc;

	json_begin_object(export->json);
	json_member_text(export->json, "processType", "default");
	json_member_i64(export->json, "processStartupTime", 0);
	json_member_null(export->json, "processShutdownTime");
	json_member_i64(export->json, "registerTime", 0);
	json_member_null(export->json, "unregisterTime");
	put_empty_column(export->json, "pausedRanges");
	json_member_bool(export->json, "showMarkersInTimeline", at == 0);
	rc = put_cut_text(export->json, "name", thread->name, thread->name_len);
	json_member_bool(export->json, "isMainThread", thread->main);
	if (rc == 0)
		rc = put_cut_text(export->json, "processName", thread->process, thread->process_len);
	json_member_text(export->json, "pid", thread->pid);
	json_member_i64(export->json, "tid", thread->tid);
	put_samples(export, thread);
	put_markers(export, at == 0 && export->zero_ns <= 0);
	json_end_object(export->json);
	return rc;
}

static void put_meta(const struct firefox_export *export)
{
	const struct incident *incident = export->incident;
	const struct pprof_read_profile *profile = export->stacks.profile;
	struct json_writer *json = export->json;
	uint64_t interval_ns = incident->cost.interval_ns;

	if (profile && profile->period > 0 && !export->exporting->memory)
		interval_ns = (uint64_t)profile->period;
	json_member_object(json, "meta");
	json_member_double(json, "interval", interval_ns ? (double)interval_ns / 1e6 : 1);
	json_member_double(json, "startTime", (double)incident->wall.ns / 1e6 + (double)export->zero_ns / 1e6);
	json_member_i64(json, "profilingStartTime", 0);
	json_member_double(json, "profilingEndTime", (double)(export->end_ns - export->zero_ns) / 1e6);
	json_member_i64(json, "processType", 0);
	json_member_i64(json, "stackwalk", profile != NULL);
	json_member_i64(json, "version", 36); /* of the unprocessed format, which this is not */
	json_member_i64(json, "preprocessedProfileVersion", FORMAT_VERSION);
	put_origin(json, incident);
	put_categories(json);
	put_schema(json);
	put_extra(json, incident);
	json_end_object(json);
}

static int put_profile(struct firefox_export *export)
{
	int rc = 0, shared;

	json_begin_object(export->json);
	put_meta(export);
	put_empty_column(export->json, "libs");
	put_empty_column(export->json, "pages");
	firefox_counters_put(&export->counters, export->incident, export->zero_ns, export->json);
	json_member_array(export->json, "threads");
	for (size_t i = 0; i < export->thread_count && rc == 0; i++)
		rc = put_thread(export, i);
	json_end_array(export->json);
	shared = firefox_stacks_put(&export->stacks, export->json);
	json_end_object(export->json);
	return rc ? rc : shared;
}

static int load_incident(struct firefox_export *export)
{
	const struct exporting *exporting = export->exporting;
	int samples = firefox_counters_load(exporting->fd, export->incident, &export->counters);
	int stacks = firefox_stacks_load(exporting->fd, exporting->memory, &export->stacks);

	if (samples == -ENOENT && stacks == -ENOENT) {
		fprintf(stderr, "spikewatch export: the incident has neither samples nor stacks\n");
		return EXPORTING_NOTHING;
	}
	if (samples < 0 && samples != -ENOENT)
		return samples;
	if (stacks < 0 && stacks != -ENOENT)
		return stacks;
	if (samples == 0)
		export_note_loss(exporting, &export->counters.walk);
	if (export->counters.cut)
		fprintf(stderr, "spikewatch export: there are more samples than %zu; the rest is left out\n",
			FIREFOX_COUNTERS_ROWS_MAX);
	return 0;
}

int export_firefox_write(const struct exporting *exporting)
{
	AUTO(firefox_export_release)
	struct firefox_export export = {
		.exporting = exporting, .incident = exporting->incident, .value = -1, .counted = -1
	};
	int closed, rc = load_incident(&export);

	if (rc == 0)
		rc = add_targets(&export);
	if (rc == 0)
		rc = add_stacks(&export);
	if (rc == 0)
		rc = firefox_stacks_string(&export.stacks, MARKER, &export.marker);
	if (rc == 0)
		rc = json_writer_new(exporting->sink, false, &export.json);
	if (rc != 0)
		return rc;
	set_times(&export);
	rc = put_profile(&export);
	closed = json_writer_close(export.json);
	return rc ? rc : closed;
}
