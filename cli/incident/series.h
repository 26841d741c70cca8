/*
 * series.h: the samples of one target around a trigger, and what can be read from them: CPU and memory by columns of time, and
 * how long a rule's metric was above its threshold. Pure.
 *
 * A target that did not change has no samples until its heartbeat. So a counter stands still from one sample to shortly
 * (one grain) before the next, and moves only then; a gauge keeps its value until the next sample.
 */
#ifndef SPIKEWATCH_SERIES_H
#define SPIKEWATCH_SERIES_H

#include "metric.h"
#include "sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More are not kept: 500 s at 1 kHz. */
#define SERIES_POINTS_MAX 500000

/* Positive return of series_add. */
enum { SERIES_FULL = 1 };

struct series_point {
	int64_t at_ns;  /* since the trigger; negative before it */
	bool after_gap; /* samples are missing before this one */
	struct sample sample;
};

/* {0} is empty and legal. */
struct series {
	struct series_point *points; /* at_ns never steps back */
	size_t count, cap;
	uint64_t grain_ns; /* the shortest distance of two samples; 0: fewer than two */
};

/* A picture of so many columns. */
struct series_columns {
	int64_t from_ns, to_ns; /* to > from */
	int64_t known_to_ns;    /* the target was looked at until then, whether or not it changed */
	size_t count;
	double *peak, *mean; /* count each; NAN: unknown */
};

/* Adds a sample; one that is older than the last is moved to its time. 0; SERIES_FULL; -ENOMEM. */
int series_add(struct series *series, const struct series_point *point);
void series_release(struct series *series);

/* The state at a moment: counters as described above. False: nothing is known of that moment. */
bool series_at(const struct series *series, int64_t at_ns, struct sample *ret);

/*
 * CPU in cores. mean: over the column; peak: the highest over any window_ns that ends in the column, at least the mean; a
 * window that reaches into a gap does not count.
 */
void series_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns);

/*
 * Memory in bytes. peak: the largest sample or, where the high-water mark rose between two samples, that mark.
 */
void series_memory(const struct series *series, const struct series_columns *columns);

/* What is looked for by series_above. */
struct series_rule {
	enum metric metric;
	enum metric_of of;
	struct metric_machine machine;
	uint64_t window_ns;
	double threshold;
};

/*
 * Time for which the metric over the window that ended there was above the threshold: in all of the series. False: it was never
 * available.
 */
bool series_above(const struct series *series, const struct series_rule *rule, uint64_t *ret_ns);

/*
 * The rule's metric over the window that ends where a column ends, as both peak and mean; threshold is not looked at.
 */
void series_metric(const struct series *series, const struct series_rule *rule, const struct series_columns *columns);

#endif
