/*
 * series.c: one walk over samples.tsv serves every reader: it keeps a table of the targets, found
 * by number in a map, notes the peaks of each, and hands out the rows.
 *
 * The CPU peaks of all targets are taken over windows that follow one another: one ends with the
 * first sample that is late enough. So a shorter burst may be split, and its peak be up to half too
 * low; the series of one target has it exactly.
 *
 * A picture is a row of columns. Each pair of neighbouring samples (a segment) is added to the
 * columns it touches. Invariant: a segment that ends after a gap, or whose counter stepped back,
 * adds nothing, and a column that lies in a hole has no value: what is not known is neither zero nor
 * a guess. A hole shorter than half a column is not seen; its CPU time is spread over the hole.
 *
 * Rejected: counters as straight lines between samples. An idle second followed by a burst of 10 ms
 * would become a second of one percent.
 */
#include "cli/incident/series.h"

#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/incident/incident.h"
#include "lib/stream/sample_stream.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Further bytes are not read: a sparse file may claim terabytes. */
#define FILE_BYTES_MAX ((uint64_t)1 << 30)

/* Rows of further targets are dropped. */
#define TARGETS_MAX 20000

/* Further targets have no peaks. */
#define PEAKS_MAX 16384

/* Further points are not kept: 500 s at 1 kHz. */
#define POINTS_MAX 500000

/* Further holes count as gaps. */
#define HOLES_MAX 500000

/* ---- holes ---- */

/* The last one that begins before at_ns; NULL: none. */
static const struct series_hole *hole_before(const struct series_holes *holes, int64_t at_ns)
{
	size_t low = 0, high = holes->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (holes->hole[middle].from_ns < at_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &holes->hole[low - 1] : NULL;
}

/* The one that a moment lies in, its ends excluded; NULL: none. */
static const struct series_hole *hole_at(const struct series_holes *holes, int64_t at_ns)
{
	const struct series_hole *hole = hole_before(holes, at_ns);

	return hole && hole->to_ns > at_ns ? hole : NULL;
}

bool series_moved_since(const struct series_holes *holes, uint32_t writer, int64_t from_ns, int64_t to_ns,
			int64_t grain_ns, int64_t *ret_ns)
{
	const struct series_hole *hole = hole_before(holes, to_ns);
	int64_t slot_ns;

	*ret_ns = to_ns - from_ns > grain_ns ? to_ns - grain_ns : from_ns;
	while (hole && hole->writer != writer)
		hole = hole > holes->hole ? hole - 1 : NULL;
	if (!hole || hole->to_ns <= from_ns)
		return false;
	/* The tick that ends it takes less than a slot; in a later one the target was seen unchanged before. */
	slot_ns = (hole->to_ns - hole->from_ns) / ((int64_t)hole->missed_slots + 1);
	if (to_ns - hole->to_ns >= slot_ns || hole->from_ns >= *ret_ns)
		return false;
	*ret_ns = hole->from_ns > from_ns ? hole->from_ns : from_ns;
	return true;
}

static void holes_release(struct series_holes *holes)
{
	free(holes->hole);
	*holes = (struct series_holes){ 0 };
}

/* 0; -ENOMEM. In the order of their beginnings, too: one writer's do not overlap. */
static int holes_add(struct series_holes *holes, const struct series_hole *hole)
{
	size_t at = holes->count;

	if (vector_reserve(&holes->hole, &holes->cap, holes->count + 1, sizeof(*holes->hole)) < 0)
		return -ENOMEM;
	for (; at > 0 && holes->hole[at - 1].from_ns > hole->from_ns; at--)
		holes->hole[at] = holes->hole[at - 1];
	holes->hole[at] = *hole;
	holes->count++;
	return 0;
}

/* ---- one series ---- */

enum { SERIES_FULL = 1 };

/* A sample that is older than the last is moved to its time. 0; SERIES_FULL; -ENOMEM. */
static int series_add(struct series *series, const struct series_point *point)
{
	struct series_point *last;

	if (series->count == POINTS_MAX)
		return SERIES_FULL;
	if (vector_reserve(&series->points, &series->cap, series->count + 1, sizeof(*series->points)) < 0)
		return -ENOMEM;

	series->points[series->count] = *point;
	if (series->count++ == 0)
		return 0;
	last = &series->points[series->count - 2];
	if (point->at_ns <= last->at_ns) {
		last[1].at_ns = last->at_ns;
	} else {
		uint64_t distance = (uint64_t)point->at_ns - (uint64_t)last->at_ns;

		if (series->grain_ns == 0 || distance < series->grain_ns)
			series->grain_ns = distance;
	}
	return 0;
}

static void series_release(struct series *series)
{
	free(series->points);
	holes_release(&series->holes);
	*series = (struct series){ 0 };
}

/* ---- the walk ---- */

struct walking {
	const struct sample_walk_visit *visit;
	struct sample_walk walk;
	struct pair_map index; /* id -> place in walk.targets */
	wall_t fired;
};

/* 0 and *ret; 1: there are too many; -ENOMEM. */
static int find_target(struct walking *walking, uint32_t id, size_t *ret)
{
	struct sample_walk *walk = &walking->walk;
	uint32_t at;

	if (!pair_map_get(&walking->index, id, 0, &at)) {
		if (walk->count == TARGETS_MAX)
			return 1;
		at = (uint32_t)walk->count;
		if (vector_reserve(&walk->targets, &walk->cap, walk->count + 1, sizeof(*walk->targets)) < 0)
			return -ENOMEM;
		pair_map_put(&walking->index, id, 0, at);
		if (!pair_map_get(&walking->index, id, 0, &at))
			return -ENOMEM;
		walk->targets[walk->count++] = (struct sample_walk_target){ .id = id };
	}
	*ret = at;
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
	struct sample_walk_target *target;
	size_t at;
	int r = find_target(walking, id, &at);

	if (r != 0)
		return r < 0 ? r : 0;
	target = &walking->walk.targets[at];
	if (target->name[0])
		return 0;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	copy_text(json_member(json_root(document), "name"), target->name, sizeof(target->name));
	copy_text(json_member(json_root(document), "kind"), target->kind, sizeof(target->kind));
	target->pid = (int32_t)target_json_number(json_root(document), "pid", INT32_MAX);
	target->writer = (uint32_t)target_json_number(json_root(document), "writer", UINT32_MAX);
	return 0;
}

static void note_cpu_peak(struct target_peak *peak, int64_t at_ns, uint64_t cpu)
{
	int64_t passed = at_ns - peak->begun_ns;
	double cores;

	/* A counter that stepped back began anew. */
	if (peak->begun && cpu >= peak->begun_cpu && passed >= 0) {
		if (passed < PEAKS_WINDOW_NS)
			return;
		cores = (double)(cpu - peak->begun_cpu) / (double)passed;
		if (!peak->has_cpu || cores > peak->cpu_cores)
			peak->cpu_cores = cores;
		peak->has_cpu = true;
	}
	peak->begun = true;
	peak->begun_ns = at_ns;
	peak->begun_cpu = cpu;
}

static void note_peak(struct target_peak *peak, const struct sample_walk_row *row)
{
	uint64_t memory_bytes = row->sample.value[SAMPLE_MEMORY];

	if (row->gap)
		peak->begun = false; /* no window reaches over it */
	if (sample_has(&row->sample, SAMPLE_CPU))
		note_cpu_peak(peak, row->at_ns, row->sample.value[SAMPLE_CPU]);
	if (!sample_has(&row->sample, SAMPLE_MEMORY))
		return;
	if (!peak->has_memory || memory_bytes > peak->memory_bytes)
		peak->memory_bytes = memory_bytes;
	peak->has_memory = true;
}

static int take_row(struct walking *walking, struct sample_walk_row *row)
{
	struct sample_walk *walk = &walking->walk;
	struct sample_walk_target *target = &walk->targets[row->target];

	row->gap = target->gap;
	target->gap = false;
	row->before_ns = target->rows > 0 ? target->last_ns : row->at_ns;
	target->last_ns = row->at_ns;
	target->rows++;
	if (walk->rows == 0 || row->at_ns < walk->from_ns)
		walk->from_ns = row->at_ns;
	if (walk->rows == 0 || row->at_ns > walk->to_ns)
		walk->to_ns = row->at_ns;
	walk->rows++;
	note_peak(&target->peak, row);
	return walking->visit->row ? walking->visit->row(walking->visit->ctx, walk, row) : 0;
}

static int on_row(void *ctx, const struct sample_row *from)
{
	struct walking *walking = ctx;
	struct sample_walk_row row = { .target = 0 };
	int r = find_target(walking, from->target, &row.target);

	if (r < 0)
		return r;
	if (r > 0 || !sample_row_since(from, walking->fired, &row.at_ns)) {
		walking->walk.dropped++;
		return 0;
	}
	sample_row_sample(from, from->target, &row.sample);
	return take_row(walking, &row);
}

static int on_gap(void *ctx)
{
	struct walking *walking = ctx;

	for (size_t i = 0; i < walking->walk.count; i++)
		walking->walk.targets[i].gap = true;
	return 0;
}

static int on_hole(void *ctx, const struct sample_hole *from)
{
	struct walking *walking = ctx;
	struct series_hole hole = { .missed_slots = from->missed_slots,
				    .suspended_ns = from->suspended_ns,
				    .writer = from->writer };

	if (walking->walk.holes.count == HOLES_MAX ||
	    !sample_hole_since(from, walking->fired, &hole.from_ns, &hole.to_ns))
		return on_gap(ctx);
	return holes_add(&walking->walk.holes, &hole);
}

static int on_gone(void *ctx, const char *json, size_t len)
{
	struct walking *walking = ctx;

	(void)json;
	(void)len;
	walking->walk.gone = true;
	return 0;
}

static void walking_release(struct walking *walking)
{
	sample_walk_release(&walking->walk);
	pair_map_release(&walking->index);
}

/*
 * Reads the file to its end, an error, or a visit that stops. *ret_error: what ended it. 0, and
 * then the walk's report is set; -ENOMEM; what a visit returned.
 */
static int walk_file(struct walking *walking, int fd, int *ret_error)
{
	struct sample_stream stream = {
		.events = { .target = on_target,
			    .row = on_row,
			    .gone = on_gone,
			    .gap = on_gap,
			    .hole = on_hole,
			    .ctx = walking },
	};
	AUTO(stream_reader_freep) struct stream_reader *stream_reader = NULL;
	int r = sample_stream_reader(&stream, &stream_reader);

	if (r < 0)
		return r;
	*ret_error = stream_read_fd(stream_reader, fd, FILE_BYTES_MAX);
	if (*ret_error == -ENOMEM)
		return -ENOMEM;
	return stream_reader_finish(stream_reader, &walking->walk.report);
}

int sample_walk_run(int incidentfd, wall_t fired, const struct sample_walk_visit *visit, struct sample_walk *ret)
{
	AUTO_CLOSE int fd = incident_load_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	AUTO(walking_release) struct walking walking = { .visit = visit, .fired = fired };
	int error = 0, r = fd < 0 ? fd : walk_file(&walking, fd, &error);

	if (r == 0)
		r = error;
	if (r != 0)
		return r;
	*ret = walking.walk;
	walking.walk = (struct sample_walk){ 0 };
	return 0;
}

void sample_walk_release(struct sample_walk *walk)
{
	free(walk->targets);
	holes_release(&walk->holes);
	*walk = (struct sample_walk){ 0 };
}

/* ---- the samples of one target, and the peaks of all ---- */

static int keep_first_target(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct incident_samples *samples = ctx;
	const struct series_point point = { .at_ns = row->at_ns, .after_gap = row->gap, .sample = row->sample };
	int r;

	if (walk->rows == 1)
		samples->first = row->target;
	if (row->target != samples->first)
		return 0;
	r = series_add(&samples->series, &point);
	samples->cut |= r == SERIES_FULL;
	return r < 0 ? r : 0;
}

/* The holes of a target's writer, when all are known. 0 or -ENOMEM. */
static int take_holes(const struct sample_walk *walk, size_t target, struct series *series)
{
	int r = 0;

	for (size_t i = 0; r == 0 && target < walk->count && i < walk->holes.count; i++)
		if (walk->holes.hole[i].writer == walk->targets[target].writer)
			r = holes_add(&series->holes, &walk->holes.hole[i]);
	return r;
}

static int compare_peaks(const void *a, const void *b)
{
	const struct peaks_target *x = a, *y = b;
	double x_cores = x->has_cpu ? x->cpu_cores : -1, y_cores = y->has_cpu ? y->cpu_cores : -1;

	if (x_cores != y_cores)
		return x_cores > y_cores ? -1 : 1;
	if (x->memory_bytes != y->memory_bytes)
		return x->memory_bytes > y->memory_bytes ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/* 0 or -ENOMEM. */
static int take_peaks(const struct sample_walk *walk, struct peaks *ret)
{
	size_t count = walk->count < PEAKS_MAX ? walk->count : PEAKS_MAX;
	struct peaks peaks = { .count = count, .cut = walk->count > count };

	peaks.target = calloc(count + 1, sizeof(*peaks.target));
	if (!peaks.target)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct sample_walk_target *from = &walk->targets[i];
		struct peaks_target *to = &peaks.target[i];

		*to = (struct peaks_target){ .id = from->id,
					     .has_cpu = from->peak.has_cpu,
					     .has_memory = from->peak.has_memory,
					     .cpu_cores = from->peak.cpu_cores,
					     .memory_bytes = from->peak.memory_bytes };
		incident_text(to->name, sizeof(to->name), from->name);
	}
	qsort(peaks.target, count, sizeof(*peaks.target), compare_peaks);
	*ret = peaks;
	return 0;
}

int incident_samples_load(int incidentfd, wall_t fired, struct incident_samples *ret)
{
	AUTO_CLOSE int fd = incident_load_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	AUTO(incident_samples_release) struct incident_samples samples = { .error = fd < 0 ? fd : 0 };
	const struct sample_walk_visit visit = { .row = keep_first_target, .ctx = &samples };
	AUTO(walking_release) struct walking walking = { .visit = &visit, .fired = fired };
	int r = fd < 0 ? 0 : walk_file(&walking, fd, &samples.error);

	if (r == 0)
		r = take_peaks(&walking.walk, &samples.peaks);
	if (r == 0)
		r = take_holes(&walking.walk, samples.first, &samples.series);
	if (r < 0)
		return r;
	/* What could be read before an I/O error is shown. */
	output_incomplete(INCIDENT_SAMPLES_FILE, samples.error);
	if (samples.series.count > 0)
		samples.error = 0;
	samples.report = walking.walk.report;
	samples.dropped = walking.walk.dropped;
	samples.gone = walking.walk.gone;
	*ret = samples;
	samples = (struct incident_samples){ 0 };
	return 0;
}

void incident_samples_release(struct incident_samples *samples)
{
	series_release(&samples->series);
	free(samples->peaks.target);
	samples->peaks = (struct peaks){ 0 };
}

/* ---- the busiest targets: a second walk, when the peaks are known ---- */

static int keep_busiest(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row)
{
	struct busiest_targets *busiest = ctx;
	const struct series_point point = { .at_ns = row->at_ns, .after_gap = row->gap, .sample = row->sample };

	for (size_t i = 0; i < busiest->count; i++)
		if (busiest->member[i].target->id == walk->targets[row->target].id) {
			int r = series_add(&busiest->member[i].series, &point);

			return r < 0 ? r : 0;
		}
	return 0;
}

int busiest_targets_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct busiest_targets *ret)
{
	AUTO(sample_walk_release) struct sample_walk walk = { 0 };
	const struct sample_walk_visit visit = { .row = keep_busiest, .ctx = ret };

	*ret = (struct busiest_targets){ .count = peaks->count };
	if (ret->count > BUSIEST_TARGETS_MAX)
		ret->count = BUSIEST_TARGETS_MAX;
	for (size_t i = 0; i < ret->count; i++)
		ret->member[i].target = &peaks->target[i];
	int r = sample_walk_run(incidentfd, fired, &visit, &walk);

	for (size_t i = 0; r == 0 && i < ret->count; i++)
		for (size_t t = 0; r == 0 && t < walk.count; t++)
			if (walk.targets[t].id == ret->member[i].target->id)
				r = take_holes(&walk, t, &ret->member[i].series);
	if (r != -ENOMEM)
		return 0;
	busiest_targets_release(ret);
	return -ENOMEM;
}

void busiest_targets_release(struct busiest_targets *busiest)
{
	for (size_t i = 0; i < busiest->count; i++)
		series_release(&busiest->member[i].series);
	busiest->count = 0;
}

/* ---- the state at a moment ---- */

/* When the target began to change on its way to point i > 0. */
static int64_t moved_since(const struct series *series, size_t i)
{
	uint32_t writer = series->holes.count > 0 ? series->holes.hole[0].writer : 0;
	int64_t since;

	series_moved_since(&series->holes, writer, series->points[i - 1].at_ns, series->points[i].at_ns,
			   (int64_t)series->grain_ns, &since);
	return since;
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
static void interpolate(const struct series *series, size_t i, int64_t at_ns, struct sample *ret)
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

/*
 * The state at a moment, counters as described in series.h. hint: the earliest point that it may be
 * taken from. False: it is not known.
 */
static bool series_at(const struct series *series, int64_t at_ns, size_t hint, struct sample *ret)
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
	interpolate(series, i, at_ns, ret);
	return true;
}

/*
 * When a window begins that is to begin at at_ns: a counter is known at the ends of a hole. False: the
 * window is not known.
 */
static bool window_start(const struct series *series, int64_t at_ns, uint64_t window_ns, int64_t *ret_ns)
{
	const struct series_hole *hole = hole_at(&series->holes, at_ns);

	if (hole && hole->to_ns - hole->from_ns >= (int64_t)window_ns)
		return false;
	*ret_ns = hole ? hole->from_ns : at_ns;
	return true;
}

bool series_hole_cpu(const struct series *series, const struct series_hole *hole, int64_t known_to_ns,
		     double *ret_cores)
{
	struct sample from, to;

	/* A recording may end in it. */
	if (hole->to_ns > known_to_ns || !series_at(series, hole->from_ns, 0, &from) ||
	    !series_at(series, hole->to_ns, 0, &to) || !sample_has(&from, SAMPLE_CPU) || !sample_has(&to, SAMPLE_CPU) ||
	    to.value[SAMPLE_CPU] < from.value[SAMPLE_CPU])
		return false;
	*ret_cores = (double)(to.value[SAMPLE_CPU] - from.value[SAMPLE_CPU]) / (double)(hole->to_ns - hole->from_ns);
	return true;
}

/* ---- columns ---- */

/* A column of which less than this share is known is a gap. */
#define KNOWN_SHARE 0.2

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
static void spread_rate(const struct series_columns *columns, double *known, int64_t from_ns, int64_t to_ns,
			double rate)
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

static void raise_peak(const struct series_columns *columns, int64_t at_ns, double value)
{
	size_t column = column_of(columns, at_ns);

	if (column < columns->count && !(columns->peak[column] >= value))
		columns->peak[column] = value;
}

/* NULL without memory: the picture is then one gap. */
static double *begin_columns(const struct series_columns *columns)
{
	double *known;

	for (size_t i = 0; i < columns->count; i++) {
		columns->mean[i] = 0;
		columns->peak[i] = NAN;
	}
	known = calloc(columns->count ? columns->count : 1, sizeof(double));
	if (!known)
		output_incomplete("a picture", -ENOMEM);
	return known;
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
		/* A single sample in a wide gap has a peak only. */
		if (isnan(columns->mean[i]) && !isnan(columns->peak[i]))
			columns->mean[i] = columns->peak[i];
	}
}

static void blank_column(const struct series_columns *columns, size_t at)
{
	columns->mean[at] = columns->peak[at] = NAN;
	if (columns->hole)
		columns->hole[at] = true;
}

/*
 * What lies in long holes is not known; nor is a column with a suspend one stretch of time. Without
 * memory no column is known.
 */
static void blank_holes(const struct series *series, const struct series_columns *columns)
{
	double width = column_ns(columns);
	AUTO_FREE double *within = NULL;

	for (size_t i = 0; columns->hole && i < columns->count; i++)
		columns->hole[i] = false;
	if (series->holes.count == 0)
		return;
	within = calloc(columns->count ? columns->count : 1, sizeof(double));
	if (!within) {
		output_incomplete("the holes of a picture", -ENOMEM);
		for (size_t i = 0; i < columns->count; i++)
			columns->mean[i] = columns->peak[i] = NAN;
		return;
	}
	for (size_t h = 0; h < series->holes.count; h++) {
		const struct series_hole *hole = &series->holes.hole[h];
		double from = (double)(hole->from_ns - columns->from_ns), to = (double)(hole->to_ns - columns->from_ns);

		if (hole->suspended_ns > 0 && to > 0 && to < width * (double)columns->count)
			blank_column(columns, (size_t)(to / width));
		if (to - from < width / 2 || to <= 0 || hole->missed_slots == 0)
			continue;
		for (size_t i = from > 0 ? (size_t)(from / width) : 0; i < columns->count && (double)i * width < to;
		     i++) {
			double begin = fmax(from, (double)i * width), end = fmin(to, (double)(i + 1) * width);

			within[i] += end - begin;
			if (within[i] < width / 2)
				continue;
			blank_column(columns, i);
		}
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

	spread_rate(columns, known, a->at_ns, since, 0);
	if (b->at_ns > since)
		spread_rate(columns, known, since, b->at_ns, used / (double)(b->at_ns - since));
}

void series_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns)
{
	AUTO_FREE double *known = begin_columns(columns);
	size_t unbroken = 0; /* first point since the last gap */

	for (size_t i = 1; known && i < series->count; i++) {
		const struct series_point *b = &series->points[i];
		struct sample then;
		int64_t from_ns;

		if (!cpu_moved(b - 1, b)) {
			unbroken = i;
			continue;
		}
		cpu_segment(series, i, columns, known);
		if (window_start(series, b->at_ns - (int64_t)window_ns, window_ns, &from_ns) &&
		    series_at(series, from_ns, unbroken, &then) && sample_has(&then, SAMPLE_CPU))
			/* A window that ends at the edge of two columns belongs to the first. */
			raise_peak(columns, b->at_ns - 1,
				   (double)(b->sample.value[SAMPLE_CPU] - then.value[SAMPLE_CPU]) /
					   (double)(b->at_ns - from_ns));
	}
	if (known && series->count > 0)
		spread_rate(columns, known, series->points[series->count - 1].at_ns, columns->known_to_ns, 0);
	end_columns(columns, known);
	blank_holes(series, columns);
}

/*
 * Memory at a point, or the high-water mark if it rose since the point before and is higher. False:
 * not known.
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
			raise_peak(columns, a->at_ns, (double)most);
		if (sample_has(&a->sample, SAMPLE_MEMORY) && !(b && b->after_gap))
			spread_rate(columns, known, a->at_ns, until, (double)a->sample.value[SAMPLE_MEMORY]);
	}
	end_columns(columns, known);
	blank_holes(series, columns);
}

/* ---- above the threshold ---- */

/* Moments of a series that are evaluated, at most: in a minute less than a millisecond apart. */
#define ABOVE_STEPS 100000

/* False: it is not known. i: last point by at_ns; unbroken: first point since a gap. */
static bool metric_at(const struct series *series, const struct series_rule *rule, int64_t at_ns, size_t i,
		      size_t unbroken, double *ret)
{
	struct metric_point from = { .time = { 0 } }, to = { .time = { 0 } };
	int64_t from_ns;

	if (hole_at(&series->holes, at_ns) ||
	    !window_start(series, at_ns - (int64_t)rule->window_ns, rule->window_ns, &from_ns))
		return false;
	memory_of(series, i, &to.peak_bytes);
	to.time.ns = (uint64_t)(at_ns - from_ns);

	return series_at(series, at_ns, i, &to.sample) && series_at(series, from_ns, unbroken, &from.sample) &&
	       metric_value(rule->metric, rule->of, &rule->machine, &from, &to, ret);
}

/* A series evaluated in steps: between two points the value changes too, because its window moves. */
struct steps {
	int64_t first_ns, step_ns; /* step i is at first_ns + (i + 1) * step_ns */
	size_t count;
	double *value; /* NAN: not known */
	/* Of rates: */
	bool *within, *hot; /* it lies in a window above the threshold; it is above it by itself */
};

static void steps_release(struct steps *steps)
{
	free(steps->value);
	free(steps->within);
}

static bool steps_begin(const struct series *series, struct steps *ret)
{
	int64_t first = series->count ? series->points[0].at_ns : 0;
	int64_t last = series->count ? series->points[series->count - 1].at_ns : 0;
	int64_t step = (last - first) / ABOVE_STEPS;

	if (step < (int64_t)series->grain_ns)
		step = (int64_t)series->grain_ns;
	if (step <= 0)
		return false;
	*ret = (struct steps){ .first_ns = first, .step_ns = step, .count = (size_t)((last - first) / step) };
	ret->value = calloc(ret->count + 1, sizeof(*ret->value));
	ret->within = calloc(2 * ret->count + 2, sizeof(*ret->within));
	ret->hot = ret->within + ret->count + 1;
	if (!ret->value || !ret->within)
		output_incomplete("the time above the threshold", -ENOMEM);
	return ret->value && ret->within;
}

/* The value at each step. */
static void evaluate(const struct series *series, const struct series_rule *rule, struct steps *steps)
{
	size_t point = 0, unbroken = 0;

	for (size_t i = 0; i < steps->count; i++) {
		int64_t at = steps->first_ns + (int64_t)(i + 1) * steps->step_ns;

		for (; point + 1 < series->count && series->points[point + 1].at_ns <= at; point++)
			if (series->points[point + 1].after_gap)
				unbroken = point + 1;
		if (!metric_at(series, rule, at, point, unbroken, &steps->value[i]))
			steps->value[i] = NAN;
	}
}

/* Marks the moments at which a rate was above the threshold in a tenth of the window around them. */
static void find_hot(const struct series *series, const struct series_rule *rule, struct steps *steps)
{
	struct series_rule brief = *rule;
	size_t width;

	brief.window_ns = rule->window_ns / 10;
	if (brief.window_ns < (uint64_t)steps->step_ns)
		brief.window_ns = (uint64_t)steps->step_ns;
	width = (size_t)(brief.window_ns / (uint64_t)steps->step_ns);
	evaluate(series, &brief, steps);
	for (size_t i = width / 2; i < steps->count; i++)
		steps->hot[i - width / 2] = steps->value[i] > rule->threshold;
}

/* How many steps of [from, to) count. */
static size_t count_stretch(const struct steps *steps, double threshold, size_t from, size_t to)
{
	size_t count = 0, first = from, last = to;

	while (first < last && !steps->hot[first])
		first++;
	while (last > first && !steps->hot[last - 1])
		last--;
	if (last > first)
		return last - first;
	/* No moment of it says so alone. */
	for (size_t i = from; i < to; i++)
		count += steps->value[i] > threshold;
	return count;
}

static uint64_t time_above(struct steps *steps, const struct series_rule *rule)
{
	size_t width = (size_t)(rule->window_ns / (uint64_t)steps->step_ns), count = 0, marked = 0;

	if (metric_counters(rule->metric) == 0) {
		for (size_t i = 0; i < steps->count; i++)
			count += steps->value[i] > rule->threshold;
		return count * (uint64_t)steps->step_ns;
	}
	for (size_t i = 0; i < steps->count; i++) {
		size_t from = i + 1 > width ? i + 1 - width : 0;

		if (!(steps->value[i] > rule->threshold))
			continue;
		for (from = from > marked ? from : marked; from <= i; from++)
			steps->within[from] = true;
		marked = i + 1;
	}
	for (size_t i = 0; i < steps->count; i++) {
		size_t from = i;

		while (i < steps->count && steps->within[i])
			i++;
		if (i > from)
			count += count_stretch(steps, rule->threshold, from, i);
	}
	return count * (uint64_t)steps->step_ns;
}

/* ---- what was before ---- */

/* It rises from where it exceeds the usual by this share of the way to the threshold. */
#define RISE 0.1

static int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* The median of the known values of the first count steps. False: there are none. */
static bool median_of(const struct steps *steps, size_t count, double *ret)
{
	AUTO_FREE double *sorted = calloc(count + 1, sizeof(*sorted));
	size_t known = 0;

	if (!sorted)
		output_incomplete("the average before", -ENOMEM);
	for (size_t i = 0; sorted && i < count; i++)
		if (!isnan(steps->value[i]))
			sorted[known++] = steps->value[i];
	if (known == 0)
		return false;
	qsort(sorted, known, sizeof(*sorted), compare_doubles);
	*ret = sorted[known / 2];
	return true;
}

/* The average before the rise to the value at the firing, if it is known of a window or more. */
static void average_before(const struct steps *steps, const struct series_rule *rule, struct series_above *ret)
{
	size_t end = steps->first_ns < 0 ? (size_t)(-steps->first_ns / steps->step_ns) : 0, known = 0;
	double usual, sum = 0;

	end = end < steps->count ? end : steps->count;
	while (end > 0 && !(steps->value[end - 1] <= rule->threshold))
		end--;
	if (!median_of(steps, end, &usual) || usual > rule->threshold)
		return;
	while (end > 0 && !(steps->value[end - 1] <= usual + RISE * (rule->threshold - usual)))
		end--;
	for (size_t i = 0; i < end; i++)
		if (!isnan(steps->value[i])) {
			sum += steps->value[i];
			known++;
		}
	ret->has_before = known > 0 && known * (uint64_t)steps->step_ns >= rule->window_ns;
	ret->before = ret->has_before ? sum / (double)known : 0;
}

bool series_above(const struct series *series, const struct series_rule *rule, struct series_above *ret)
{
	AUTO(steps_release) struct steps steps = { 0 };
	struct series_above above = { 0 };
	bool available = false;

	if (!steps_begin(series, &steps))
		return false;
	if (metric_counters(rule->metric) != 0)
		find_hot(series, rule, &steps);
	evaluate(series, rule, &steps);
	for (size_t i = 0; i < steps.count && !available; i++)
		available = !isnan(steps.value[i]);
	if (!available)
		return false;
	above.ns = time_above(&steps, rule);
	average_before(&steps, rule, &above);
	*ret = above;
	return true;
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
		    !metric_at(series, rule, at, i, unbroken, &value))
			value = NAN;
		columns->peak[c] = columns->mean[c] = value;
	}
}
