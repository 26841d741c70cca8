/*
 * series.c: every figure is a walk over neighbouring samples (a segment), added to the columns it
 * touches.
 *
 * Invariant: a segment whose right end is after a gap, or whose counter stepped back, adds nothing:
 * what is not known is neither zero nor a guess.
 *
 * Rejected: drawing counters as straight lines between samples. An idle second followed by a burst
 * of 10 ms would become a second of one percent.
 */
#include "cli/incident/series.h"

#include "cli/incident/incident_load.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Rows of further targets are passed over and counted. */
#define SAMPLE_WALK_TARGETS_MAX 20000

/* More are not kept: 500 s at 1 kHz. */
#define SERIES_POINTS_MAX 500000

/*
 * peaks.c: one entry per target, found by a table of open addressing. A window begins with a sample
 * and ends with the first one that is late enough; the next begins there. So a burst may be cut in
 * two by a window's end, and its peak be seen up to half too low when it is shorter than the
 * window; who wants it exactly records the target by itself.
 */

#define SLOTS (2 * PEAKS_TARGETS_MAX)

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "a mask finds the slot");

static int peaks_grow(struct peaks *peaks)
{
	size_t cap = peaks->cap ? 2 * peaks->cap : 64;
	struct peaks_target *target;

	if (!peaks->slot)
		peaks->slot = calloc(SLOTS, sizeof(*peaks->slot));
	if (!peaks->slot)
		return -ENOMEM;
	if (peaks->count < peaks->cap)
		return 0;
	target = realloc(peaks->target, cap * sizeof(*target));
	if (!target)
		return -ENOMEM;
	peaks->target = target;
	peaks->cap = cap;
	return 0;
}

/* *ret NULL: it is one too many. 0 or -ENOMEM. */
static int peaks_find(struct peaks *peaks, uint32_t id, struct peaks_target **ret)
{
	uint32_t at = id * 2654435761u & (SLOTS - 1);
	int r = peaks_grow(peaks);

	if (r < 0)
		return r;
	for (; peaks->slot[at]; at = (at + 1) & (SLOTS - 1)) {
		*ret = &peaks->target[peaks->slot[at] - 1];
		if ((*ret)->id == id)
			return 0;
	}
	*ret = NULL;
	peaks->cut |= peaks->count == PEAKS_TARGETS_MAX;
	if (peaks->count == PEAKS_TARGETS_MAX)
		return 0;
	*ret = &peaks->target[peaks->count++];
	**ret = (struct peaks_target){ .id = id };
	peaks->slot[at] = (uint32_t)peaks->count;
	return 0;
}

int peaks_declare(struct peaks *peaks, uint32_t id, const char *json, size_t len)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	const struct json_node *name;
	struct peaks_target *target;
	int r = peaks_find(peaks, id, &target);

	if (r < 0 || !target || target->name[0])
		return r;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	name = json_member(json_root(document), "name");
	if (name && name->type == JSON_STRING)
		incident_text(target->name, sizeof(target->name), name->text);
	return 0;
}

static void add_cpu(struct peaks_target *target, int64_t at_ns, uint64_t cpu)
{
	int64_t passed = at_ns - target->begun_ns;
	double cores;

	/* A counter that steps back began anew. */
	if (target->begun && cpu >= target->begun_cpu && passed >= 0) {
		if (passed < PEAKS_WINDOW_NS)
			return;
		cores = (double)(cpu - target->begun_cpu) / (double)passed;
		if (!target->has_cpu || cores > target->cpu_cores)
			target->cpu_cores = cores;
		target->has_cpu = true;
	}
	target->begun = true;
	target->begun_ns = at_ns;
	target->begun_cpu = cpu;
}

int peaks_add(struct peaks *peaks, uint32_t id, int64_t at_ns, const struct sample *sample)
{
	struct peaks_target *target;
	int r = peaks_find(peaks, id, &target);

	if (r < 0 || !target)
		return r;
	if (sample_has(sample, SAMPLE_CPU))
		add_cpu(target, at_ns, sample->value[SAMPLE_CPU]);
	if (sample_has(sample, SAMPLE_MEMORY)) {
		if (!target->has_memory || sample->value[SAMPLE_MEMORY] > target->memory_bytes)
			target->memory_bytes = sample->value[SAMPLE_MEMORY];
		target->has_memory = true;
	}
	return 0;
}

void peaks_gap(struct peaks *peaks)
{
	for (size_t i = 0; i < peaks->count; i++)
		peaks->target[i].begun = false;
}

static int compare(const void *a, const void *b)
{
	const struct peaks_target *x = a, *y = b;
	double x_cores = x->has_cpu ? x->cpu_cores : -1, y_cores = y->has_cpu ? y->cpu_cores : -1;

	if (x_cores != y_cores)
		return x_cores > y_cores ? -1 : 1;
	if (x->memory_bytes != y->memory_bytes)
		return x->memory_bytes > y->memory_bytes ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

void peaks_sort(struct peaks *peaks)
{
	if (peaks->count > 1)
		qsort(peaks->target, peaks->count, sizeof(*peaks->target), compare);
}

void peaks_release(struct peaks *peaks)
{
	free(peaks->target);
	free(peaks->slot);
	*peaks = (struct peaks){ 0 };
}

/*
 * sample_walk.c: rows name their target by a number that the stream has declared; the place of the
 * last few is found without a search, because targets come in the same order tick after tick.
 */

struct walking {
	const struct sample_walk_visit *visit;
	struct sample_walk walk;
	bool *gaps; /* of each target: something is missing before its next row */
	size_t gaps_cap;
	size_t hint;
	wall_t fired;
};

static int grow(struct walking *walking)
{
	struct sample_walk *walk = &walking->walk;
	size_t cap = walk->cap ? 2 * walk->cap : 16;
	struct sample_walk_target *targets;
	bool *gaps;

	if (walk->count < walk->cap)
		return 0;
	targets = realloc(walk->targets, cap * sizeof(*targets));
	if (!targets)
		return -ENOMEM;
	walk->targets = targets;
	gaps = realloc(walking->gaps, cap * sizeof(*gaps));
	if (!gaps)
		return -ENOMEM;
	walking->gaps = gaps;
	walk->cap = cap;
	return 0;
}

/* 0 and *ret; 1: there are too many; -ENOMEM. */
static int find(struct walking *walking, uint32_t id, size_t *ret)
{
	struct sample_walk *walk = &walking->walk;
	int rc;

	for (size_t i = 0; i < walk->count; i++) {
		size_t at = (walking->hint + i) % walk->count;

		if (walk->targets[at].id != id)
			continue;
		walking->hint = at + 1;
		*ret = at;
		return 0;
	}
	if (walk->count == SAMPLE_WALK_TARGETS_MAX)
		return 1;
	rc = grow(walking);
	if (rc < 0)
		return rc;
	walk->targets[walk->count] = (struct sample_walk_target){ .id = id };
	walking->gaps[walk->count] = false;
	*ret = walk->count++;
	walking->hint = walk->count;
	return 0;
}

static void copy_text(const struct json_node *node, char *ret, size_t cap)
{
	if (node && node->type == JSON_STRING)
		incident_text(ret, cap, node->text);
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	struct walking *walking = ctx;
	AUTO(json_document_freep) struct json_document *document = NULL;
	const struct json_node *pid;
	struct sample_walk_target *target;
	size_t at;
	int rc = find(walking, id, &at);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	target = &walking->walk.targets[at];
	if (target->name[0])
		return 0;
	rc = json_parse(json, len, NULL, &document, NULL);
	if (rc < 0)
		return rc == -ENOMEM ? rc : 0;
	copy_text(json_member(json_root(document), "name"), target->name, sizeof(target->name));
	copy_text(json_member(json_root(document), "kind"), target->kind, sizeof(target->kind));
	pid = json_member(json_root(document), "pid");
	if (pid && pid->type == JSON_NUMBER && pid->number >= 1 && pid->number <= INT32_MAX)
		target->pid = (int32_t)pid->number;
	return 0;
}

static int sample_walk_on_row(void *ctx, const struct sample_row *from)
{
	struct walking *walking = ctx;
	struct sample_walk_row row = { .target = 0 };
	int rc = find(walking, from->target, &row.target);

	if (rc < 0)
		return rc;
	if (rc > 0 || !sample_row_since(from, walking->fired, &row.at_ns)) {
		walking->walk.unlocked_section++;
		return 0;
	}
	sample_row_sample(from, from->target, &row.sample);
	row.gap = walking->gaps[row.target];
	walking->gaps[row.target] = false;
	walking->walk.targets[row.target].rows++;
	walking->walk.rows++;
	return walking->visit->row ? walking->visit->row(walking->visit->ctx, &walking->walk, &row) : 0;
}

static int on_gap(void *ctx)
{
	struct walking *walking = ctx;

	for (size_t i = 0; i < walking->walk.count; i++)
		walking->gaps[i] = true;
	return 0;
}

static void release_walking(struct walking *walking)
{
	sample_walk_release(&walking->walk);
	free(walking->gaps);
}

int sample_walk_run(int incidentfd, wall_t fired, const struct sample_walk_visit *visit, struct sample_walk *ret)
{
	AUTO_CLOSE int fd = incident_load_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	AUTO(release_walking) struct walking walking = { .visit = visit, .fired = fired };
	struct sample_stream stream = {
		.events = { .target = on_target, .row = sample_walk_on_row, .gap = on_gap, .ctx = &walking },
	};
	AUTO(stream_reader_freep) struct stream_reader *stream_reader = NULL;
	int rc = fd < 0 ? fd : sample_stream_reader(&stream, &stream_reader);

	if (rc < 0)
		return rc;
	rc = stream_read_fd(stream_reader, fd, INCIDENT_LOAD_SAMPLES_MAX);
	if (rc == 0)
		rc = stream_reader_finish(stream_reader, &walking.walk.report);
	if (rc != 0)
		return rc;
	*ret = walking.walk;
	walking.walk = (struct sample_walk){ 0 };
	return 0;
}

void sample_walk_release(struct sample_walk *walk)
{
	free(walk->targets);
	*walk = (struct sample_walk){ 0 };
}

/* crowd.c: another walk over the samples, when peaks.h has told who is worth looking at. */

static int on_row(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct busiest_targets *busiest_targets = ctx;
	struct series_point point = { .at_ns = row->at_ns, .sample = row->sample, .after_gap = row->gap };
	uint32_t id = walk->targets[row->target].id;

	for (size_t i = 0; i < busiest_targets->count; i++)
		if (busiest_targets->member[i].target->id == id) {
			int rc = series_add(&busiest_targets->member[i].series, &point);

			return rc < 0 ? rc : 0;
		}
	return 0;
}

int busiest_targets_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct busiest_targets *ret)
{
	AUTO(sample_walk_release) struct sample_walk walk = { .count = 0 };
	const struct sample_walk_visit visit = { .row = on_row, .ctx = ret };
	int rc;

	*ret = (struct busiest_targets){ .count = peaks->count < BUSIEST_TARGETS_MAX ? peaks->count
										     : BUSIEST_TARGETS_MAX };
	for (size_t i = 0; i < ret->count; i++)
		ret->member[i].target = &peaks->target[i];
	rc = sample_walk_run(incidentfd, fired, &visit, &walk);
	if (rc != -ENOMEM)
		return 0;
	busiest_targets_release(ret);
	return rc;
}

void busiest_targets_release(struct busiest_targets *busiest_targets)
{
	for (size_t i = 0; i < busiest_targets->count; i++)
		series_release(&busiest_targets->member[i].series);
	*busiest_targets = (struct busiest_targets){ .count = 0 };
}

/* A column of which less than this share is known is a gap. */
#define KNOWN_SHARE 0.2

int series_add(struct series *series, const struct series_point *point)
{
	struct series_point *last = series->count ? &series->points[series->count - 1] : NULL;
	uint64_t distance = 0;

	if (series->count == SERIES_POINTS_MAX)
		return SERIES_FULL;
	if (series->count == series->cap) {
		size_t cap = series->cap ? series->cap * 2 : 256;
		struct series_point *points = realloc(series->points, cap * sizeof(*points));

		if (!points)
			return -ENOMEM;
		series->points = points;
		series->cap = cap;
		last = series->count ? &points[series->count - 1] : NULL;
	}

	series->points[series->count] = *point;
	if (last && point->at_ns <= last->at_ns)
		series->points[series->count].at_ns = last->at_ns;
	else if (last)
		distance = (uint64_t)point->at_ns - (uint64_t)last->at_ns;
	if (distance > 0 && (series->grain_ns == 0 || distance < series->grain_ns))
		series->grain_ns = distance;
	series->count++;
	return 0;
}

void series_release(struct series *series)
{
	free(series->points);
	*series = (struct series){ 0 };
}

/* When the target began to change on its way to point i > 0. */
static int64_t moved_since(const struct series *series, size_t i)
{
	int64_t from = series->points[i - 1].at_ns, grain = (int64_t)series->grain_ns;
	int64_t to = series->points[i].at_ns;

	return to - from > grain ? to - grain : from;
}

/* Index of the last point no later than at, from hint on; count: none. */
static size_t point_before(const struct series *series, int64_t at_ns, size_t hint)
{
	size_t low = hint, high = series->count;

	if (low >= series->count || series->points[low].at_ns > at_ns)
		return series->count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (series->points[middle].at_ns <= at_ns)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Between point i and its successor. */
static void between(const struct series *series, size_t i, int64_t at_ns, struct sample *ret)
{
	const struct series_point *a = &series->points[i], *b = a + 1;
	int64_t since = moved_since(series, i + 1);
	double share;

	*ret = a->sample;
	if (at_ns <= since || b->at_ns <= since)
		return;
	share = (double)(at_ns - since) / (double)(b->at_ns - since);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		uint64_t from = a->sample.value[f], to = b->sample.value[f];

		if (sample_field_info(f)->kind == SAMPLE_COUNTER && sample_has(&a->sample, f) &&
		    sample_has(&b->sample, f) && to > from)
			ret->value[f] = from + (uint64_t)((double)(to - from) * share);
	}
}

static bool at_from(const struct series *series, int64_t at_ns, size_t hint, struct sample *ret)
{
	size_t i = point_before(series, at_ns, hint);

	if (i == series->count)
		return false;
	if (i + 1 == series->count || series->points[i].at_ns == at_ns) {
		*ret = series->points[i].sample;
		return true;
	}
	if (series->points[i + 1].after_gap)
		return false;
	between(series, i, at_ns, ret);
	return true;
}

bool series_at(const struct series *series, int64_t at_ns, struct sample *ret)
{
	return at_from(series, at_ns, 0, ret);
}

/* ---- columns ---- */

static double column_ns(const struct series_columns *columns)
{
	return (double)(columns->to_ns - columns->from_ns) / (double)columns->count;
}

/* The column of a moment; columns->count: outside. */
static size_t column_of(const struct series_columns *columns, int64_t at_ns)
{
	size_t column;

	if (at_ns < columns->from_ns || at_ns > columns->to_ns)
		return columns->count;
	column = (size_t)((double)(at_ns - columns->from_ns) / column_ns(columns));
	return column < columns->count ? column : columns->count - 1;
}

/* Adds rate x time to each column that [from, to] touches; time goes to `known`. */
static void spread(const struct series_columns *columns, double *known, int64_t from_ns, int64_t to_ns, double rate)
{
	double width = column_ns(columns);
	double from = (double)(from_ns - columns->from_ns), to = (double)(to_ns - columns->from_ns);
	double end = width * (double)columns->count;

	if (from < 0)
		from = 0;
	if (to > end)
		to = end;
	for (size_t i = (size_t)(from / width); from < to && i < columns->count; i++) {
		double edge = width * (double)(i + 1) < to ? width * (double)(i + 1) : to;

		if (edge > from) {
			columns->mean[i] += rate * (edge - from);
			known[i] += edge - from;
			from = edge;
		}
	}
}

static void raise_to(const struct series_columns *columns, int64_t at_ns, double value)
{
	size_t column = column_of(columns, at_ns);

	if (column < columns->count && !(columns->peak[column] >= value))
		columns->peak[column] = value;
}

/* NULL without memory: the picture is then one gap. */
static double *begin_columns(const struct series_columns *columns)
{
	for (size_t i = 0; i < columns->count; i++) {
		columns->mean[i] = 0;
		columns->peak[i] = NAN;
	}
	return calloc(columns->count ? columns->count : 1, sizeof(double));
}

/* Sums become means, gaps become unknown, no peak is below its mean. */
static void end_columns(const struct series_columns *columns, const double *known)
{
	for (size_t i = 0; i < columns->count; i++) {
		if (!known || known[i] < column_ns(columns) * KNOWN_SHARE)
			columns->mean[i] = NAN;
		else
			columns->mean[i] /= known[i];
		if (!(columns->peak[i] >= columns->mean[i]) && !isnan(columns->mean[i]))
			columns->peak[i] = columns->mean[i];
		/* A peak alone is knowledge too: one sample in a wide gap. */
		if (isnan(columns->mean[i]) && !isnan(columns->peak[i]))
			columns->mean[i] = columns->peak[i];
	}
}

static bool cpu_moved(const struct series_point *a, const struct series_point *b)
{
	return !b->after_gap && sample_has(&a->sample, SAMPLE_CPU) && sample_has(&b->sample, SAMPLE_CPU) &&
	       b->sample.value[SAMPLE_CPU] >= a->sample.value[SAMPLE_CPU];
}

static void cpu_segment(const struct series *series, size_t i, const struct series_columns *columns, double *known)
{
	const struct series_point *a = &series->points[i - 1], *b = &series->points[i];
	int64_t since = moved_since(series, i);
	double used = (double)(b->sample.value[SAMPLE_CPU] - a->sample.value[SAMPLE_CPU]);

	spread(columns, known, a->at_ns, since, 0);
	if (b->at_ns > since)
		spread(columns, known, since, b->at_ns, used / (double)(b->at_ns - since));
}

void series_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns)
{
	AUTO_FREE double *known = begin_columns(columns);
	size_t unbroken = 0; /* first point since the last gap */

	for (size_t i = 1; known && i < series->count; i++) {
		const struct series_point *b = &series->points[i];
		struct sample then;

		if (!cpu_moved(b - 1, b)) {
			unbroken = i;
			continue;
		}
		cpu_segment(series, i, columns, known);
		if (at_from(series, b->at_ns - (int64_t)window_ns, unbroken, &then) && sample_has(&then, SAMPLE_CPU))
			/* A window ends in the column that ends where it does. */
			raise_to(columns, b->at_ns - 1,
				 (double)(b->sample.value[SAMPLE_CPU] - then.value[SAMPLE_CPU]) / (double)window_ns);
	}
	if (known && series->count > 0)
		spread(columns, known, series->points[series->count - 1].at_ns, columns->known_to_ns, 0);
	end_columns(columns, known);
}

/*
 * The most memory this point tells of: its own, or what a high-water mark that rose since the point
 * before says.
 */
static bool memory_of(const struct series *series, size_t i, uint64_t *ret)
{
	const struct sample *now = &series->points[i].sample;
	const struct sample *then = i > 0 ? &series->points[i - 1].sample : NULL;
	uint64_t most = 0;
	bool any = sample_has(now, SAMPLE_MEMORY);

	if (any)
		most = now->value[SAMPLE_MEMORY];
	if (then && sample_has(now, SAMPLE_MEMORY_PEAK) && sample_has(then, SAMPLE_MEMORY_PEAK) &&
	    now->value[SAMPLE_MEMORY_PEAK] > then->value[SAMPLE_MEMORY_PEAK]) {
		any = true;
		if (now->value[SAMPLE_MEMORY_PEAK] > most)
			most = now->value[SAMPLE_MEMORY_PEAK];
	}
	*ret = most;
	return any;
}

void series_memory(const struct series *series, const struct series_columns *columns)
{
	AUTO_FREE double *known = begin_columns(columns);

	for (size_t i = 0; known && i < series->count; i++) {
		const struct series_point *a = &series->points[i], *b = i + 1 < series->count ? a + 1 : NULL;
		int64_t until = b ? b->at_ns : columns->known_to_ns;
		uint64_t most;

		if (memory_of(series, i, &most))
			raise_to(columns, a->at_ns, (double)most);
		if (sample_has(&a->sample, SAMPLE_MEMORY) && !(b && b->after_gap))
			spread(columns, known, a->at_ns, until, (double)a->sample.value[SAMPLE_MEMORY]);
	}
	end_columns(columns, known);
}

/* ---- above the threshold ---- */

/* Moments looked at in a series at most: less than a millisecond apart in a minute. */
#define ABOVE_STEPS 100000

/*
 * Whether the metric over the window that ends at at_ns is known; i: last point by then; unbroken:
 * first since a gap.
 */
static bool value_at(const struct series *series, const struct series_rule *rule, int64_t at_ns, size_t i,
		     size_t unbroken, double *ret)
{
	struct metric_point from = { .time = { 0 } }, to = { .time = { rule->window_ns } };

	memory_of(series, i, &to.peak_bytes);

	return at_from(series, at_ns, i, &to.sample) &&
	       at_from(series, at_ns - (int64_t)rule->window_ns, unbroken, &from.sample) &&
	       metric_value(rule->metric, rule->of, &rule->machine, &from, &to, ret);
}

/* In steps, because between two points the value changes too: its window moves on. */
bool series_above(const struct series *series, const struct series_rule *rule, uint64_t *ret_ns)
{
	int64_t first = series->count ? series->points[0].at_ns : 0;
	int64_t last = series->count ? series->points[series->count - 1].at_ns : 0;
	int64_t step = (last - first) / ABOVE_STEPS;
	size_t i = 0, unbroken = 0;
	bool available = false;
	uint64_t above = 0;

	if (step < (int64_t)series->grain_ns)
		step = (int64_t)series->grain_ns;
	for (int64_t at = first + step; step > 0 && at <= last; at += step) {
		double value;

		for (; i + 1 < series->count && series->points[i + 1].at_ns <= at; i++)
			if (series->points[i + 1].after_gap)
				unbroken = i + 1;
		if (!value_at(series, rule, at, i, unbroken, &value))
			continue;
		available = true;
		if (value > rule->threshold)
			above += (uint64_t)step;
	}
	if (available)
		*ret_ns = above;
	return available;
}

void series_metric(const struct series *series, const struct series_rule *rule, const struct series_columns *columns)
{
	size_t i = 0, unbroken = 0;

	for (size_t c = 0; c < columns->count; c++) {
		int64_t at = columns->from_ns + (int64_t)(column_ns(columns) * (double)(c + 1));
		double value;

		for (; i + 1 < series->count && series->points[i + 1].at_ns <= at; i++)
			if (series->points[i + 1].after_gap)
				unbroken = i + 1;
		if (at > columns->known_to_ns || !series->count || series->points[0].at_ns > at ||
		    !value_at(series, rule, at, i, unbroken, &value))
			value = NAN;
		columns->peak[c] = columns->mean[c] = value;
	}
}
