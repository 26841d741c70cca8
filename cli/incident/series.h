/*
 * series.h: the samples of the busiest of many targets, each as a series of its own: of incidents
 * that hold all targets. Nothing in the samples is trusted.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_SERIES_H
#define SPIKEWATCH_CLI_INCIDENT_SERIES_H

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/rules/metric.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * peaks.h: which of many targets did most: the highest CPU use and the most memory of each, from
 * rows as they come. Pure, and bounded: nothing in the rows is trusted.
 */

/* More targets are not told apart: they are counted. */
#define PEAKS_TARGETS_MAX 16384u

/* CPU is taken over at least so long: below, the grain of the kernel's accounting shows. */
#define PEAKS_WINDOW_NS 100000000

struct peaks_target {
	uint32_t id;
	char name[128]; /* "" until it is known; may hold any byte */
	bool has_cpu, has_memory;
	double cpu_cores; /* the most over PEAKS_WINDOW_NS or more */
	uint64_t memory_bytes;
	/* Where the window that is being looked at began. */
	bool begun;
	int64_t begun_ns;
	uint64_t begun_cpu;
};

/* {0} is empty and legal. */
struct peaks {
	struct peaks_target *target;
	size_t count, cap;
	uint32_t *slot; /* index + 1 into target, by id; 0: free */
	bool cut;       /* there were more targets */
};

/*
 * A target's name, out of its declaration (columns.h): one JSON object. What is none is passed
 * over. 0 or -ENOMEM.
 */
int peaks_declare(struct peaks *peaks, uint32_t id, const char *json, size_t len);

/* A sample of a target. 0 or -ENOMEM. */
int peaks_add(struct peaks *peaks, uint32_t id, int64_t at_ns, const struct sample *sample);

/* Samples are missing: no window reaches over this. */
void peaks_gap(struct peaks *peaks);

/* Most CPU first, then most memory. No samples may be added after this. */
void peaks_sort(struct peaks *peaks);

/* Frees. */
void peaks_release(struct peaks *peaks);

/*
 * sample_walk.h: the samples of an incident, row after row, of all its targets. Nothing in the file
 * is trusted: damaged lines are passed over and counted.
 */

struct sample_walk_target {
	uint32_t id;    /* in the file */
	char name[256]; /* "": not known; may hold any byte */
	char kind[16];  /* "process", "cgroup", "group"; "": not known */
	int32_t pid;    /* 0: none */
	uint64_t rows;
};

struct sample_walk_row {
	size_t target; /* place in targets */
	int64_t at_ns; /* since the firing */
	bool gap;      /* samples of this target may be missing before this one */
	struct sample sample;
};

/* What was seen. */
struct sample_walk {
	struct sample_walk_target *targets; /* in the order in which they were met */
	size_t count, cap;
	uint64_t rows;
	uint64_t unlocked_section; /* rows at absurd times, or of too many targets: passed over */
	struct stream_reader_report report;
};

struct sample_walk_visit {
	/* May be NULL. Non-zero stops the walk and is returned. walk: so far. */
	int (*row)(void *ctx, const struct sample_walk *walk, const struct sample_walk_row *row);
	void *ctx;
};

/*
 * Reads samples.tsv of an incident that fired then. 0 and *ret, to be released; -ENOENT: there is
 * none; -ENOMEM; -errno; what row returned. *ret is set on success only.
 */
int sample_walk_run(int incidentfd, wall_t fired, const struct sample_walk_visit *visit, struct sample_walk *ret);

/* {0} is fine. */
void sample_walk_release(struct sample_walk *walk);

/*
 * series.h: the samples of one target around a trigger, and what can be read from them: CPU and
 * memory by columns of time, and how long a rule's metric was above its threshold. Pure.
 *
 * A target that did not change has no samples until its heartbeat. So a counter stands still from
 * one sample to shortly (one grain) before the next, and moves only then; a gauge keeps its value
 * until the next sample.
 */

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
 * CPU in cores. mean: over the column; peak: the highest over any window_ns that ends in the
 * column, at least the mean; a window that reaches into a gap does not count.
 */
void series_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns);

/*
 * Memory in bytes. peak: the largest sample or, where the high-water mark rose between two samples,
 * that mark.
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
 * Time for which the metric over the window that ended there was above the threshold: in all of the
 * series. False: it was never available.
 */
bool series_above(const struct series *series, const struct series_rule *rule, uint64_t *ret_ns);

/*
 * The rule's metric over the window that ends where a column ends, as both peak and mean; threshold
 * is not looked at.
 */
void series_metric(const struct series *series, const struct series_rule *rule, const struct series_columns *columns);

/* More lines in one picture are hard to tell apart. */
#define BUSIEST_TARGETS_MAX 8

struct busiest_targets_member {
	const struct peaks_target *target; /* belongs to the peaks that busiest_targets_load was given */
	struct series series;
};

/* {0} is empty and legal. */
struct busiest_targets {
	struct busiest_targets_member member[BUSIEST_TARGETS_MAX];
	size_t count;
};

/*
 * Reads samples.tsv for the first of peaks (sorted), which must outlive *ret. fired: as in
 * incident.json. 0, also if the file cannot be read or not to its end; -ENOMEM. *ret is to be
 * released.
 */
int busiest_targets_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct busiest_targets *ret);
void busiest_targets_release(struct busiest_targets *busiest_targets);

#endif
