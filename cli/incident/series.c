/*
 * series.c: every figure is a walk over neighbouring samples (a segment), added to the columns it touches.
 *
 * Invariant: a segment whose right end is after a gap, or whose counter stepped back, adds nothing: what is not known is neither zero nor
 * a guess.
 *
 * Rejected: drawing counters as straight lines between samples. An idle second followed by a burst of 10 ms would become a second
 * of one percent.
 */
#include "series.h"

#include "scope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

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

/* The most memory this point tells of: its own, or what a high-water mark that rose since the point before says. */
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

/* Whether the metric over the window that ends at at_ns is known; i: last point by then; unbroken: first since a gap. */
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
