/*
 * series.h: the samples of an incident (samples.tsv): row by row, as the series of one target with
 * the peaks of all, or as the series of the busiest targets; and what can be computed from a
 * series: CPU, memory and a rule's metric by columns of time, and for how long the metric was above
 * its threshold. Nothing in the file is trusted: damaged lines are skipped and counted.
 *
 * A target that did not change has no samples until its heartbeat. So a counter stands still from
 * one sample to shortly (one grain) before the next, and moves only then; a gauge keeps its value
 * until the next sample. In a hole, where the sampler missed its ticks, a counter may have moved at any
 * time: only its average is known.
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

/* ---- holes ---- */

/* The ticks of one writer on both sides of slots that it missed. Times are since the firing. */
struct series_hole {
	int64_t from_ns, to_ns;              /* to > from */
	uint64_t missed_slots, suspended_ns; /* one of them > 0 */
	uint32_t writer;
};

/* In the order of their ends. {0} is empty and legal. */
struct series_holes {
	struct series_hole *hole;
	size_t count, cap;
};

/*
 * Since when a counter can have moved that differs in two samples of a target: the beginning of the
 * hole that the second one ends, else grain_ns before that. Holes of other writers are passed over.
 * Whether it is such a hole.
 */
bool series_moved_since(const struct series_holes *holes, uint32_t writer, int64_t from_ns, int64_t to_ns,
			int64_t grain_ns, int64_t *ret_ns);

/* ---- row by row ---- */

/* CPU peaks are taken over at least so long: below, the grain of the kernel's accounting shows. */
#define PEAKS_WINDOW_NS 100000000

struct target_peak {
	bool has_cpu, has_memory;
	double cpu_cores; /* the most over PEAKS_WINDOW_NS or more */
	uint64_t memory_bytes;
	/* Where the present window began. */
	bool begun;
	int64_t begun_ns;
	uint64_t begun_cpu;
};

struct sample_walk_target {
	uint32_t id;     /* in the file */
	char name[256];  /* "": not known; may hold any byte */
	char kind[16];   /* "process", "cgroup", "group"; "": not known */
	int32_t pid;     /* 0: none */
	uint32_t writer; /* whose holes count */
	uint64_t rows;
	int64_t last_ns; /* of the last row */
	bool gap;        /* samples may be missing before its next row */
	struct target_peak peak;
};

struct sample_walk_row {
	size_t target;     /* place in targets */
	int64_t at_ns;     /* since the firing */
	bool gap;          /* samples of this target may be missing before this one */
	int64_t before_ns; /* of this target's row before; at_ns: there is none */
	struct sample sample;
};

struct sample_walk {
	struct sample_walk_target *targets; /* in the order in which they were met */
	size_t count, cap;
	uint64_t rows;
	int64_t from_ns, to_ns;    /* of the rows, since the firing; 0 without any */
	uint64_t dropped;          /* rows at absurd times, or of too many targets */
	bool gone;                 /* a target ended */
	struct series_holes holes; /* so far: one may overlap rows before it */
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
void sample_walk_release(struct sample_walk *walk);

/* ---- the series of one target, and the peaks of all ---- */

struct series_point {
	int64_t at_ns;  /* since the trigger; negative before it */
	bool after_gap; /* samples are missing before this one */
	struct sample sample;
};

/* {0} is empty and legal. */
struct series {
	struct series_point *points; /* at_ns never steps back */
	size_t count, cap;
	struct series_holes holes; /* of its writer */
	uint64_t grain_ns;         /* the shortest distance of two samples; 0: fewer than two */
};

/* A picture of so many columns. */
struct series_columns {
	int64_t from_ns, to_ns; /* to > from */
	int64_t known_to_ns;    /* the target was sampled until then, whether or not it changed */
	size_t count;
	double *peak, *mean; /* count each; NAN: unknown */
	bool *hole;          /* count; set where the column is unknown because it lies in a hole. May be NULL */
};

struct peaks_target {
	uint32_t id;
	char name[128]; /* cut; "": not known; may hold any byte */
	bool has_cpu, has_memory;
	double cpu_cores;
	uint64_t memory_bytes;
};

/* {0} is empty and legal. */
struct peaks {
	struct peaks_target *target; /* most CPU first, then most memory */
	size_t count;
	bool cut; /* there were more targets */
};

struct incident_samples {
	int error;                          /* 0, or -errno of opening and reading: there are none */
	struct stream_reader_report report; /* if error is 0 */
	size_t first;                       /* place of the target with the first row, */
	struct series series;               /* whose samples these are; an incident of one target has no other */
	struct peaks peaks;                 /* of all targets */
	uint64_t dropped;                   /* rows at absurd times, or of too many targets */
	bool cut;                           /* the series is longer than what is kept */
	bool gone;                          /* a target ended */
	bool unfinished; /* set by the caller: the incident is still being written, and what is missing is not lost */
};

/*
 * Reads samples.tsv. fired: as in incident.json. 0 (see ret->error); -ENOMEM. *ret is to be
 * released, and set on success only.
 */
int incident_samples_load(int incidentfd, wall_t fired, struct incident_samples *ret);
void incident_samples_release(struct incident_samples *samples);

/* ---- the series of the busiest targets ---- */

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
 * Reads samples.tsv for the first of peaks (sorted), which must outlive *ret. 0, also if the file
 * cannot be read to its end; -ENOMEM. *ret is to be released.
 */
int busiest_targets_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct busiest_targets *ret);
void busiest_targets_release(struct busiest_targets *busiest);

/* ---- figures of a series ---- */

/*
 * CPU in cores. mean: over the column; peak: the highest over any window_ns that ends in the
 * column, at least the mean. A window that reaches into a gap, or into a hole of its length or more,
 * does not count; one that begins in a shorter hole begins with that.
 */
void series_cpu(const struct series *series, uint64_t window_ns, const struct series_columns *columns);

/*
 * Memory in bytes. peak: the largest sample or, where the high-water mark rose between two samples,
 * that mark.
 */
void series_memory(const struct series *series, const struct series_columns *columns);

/* The average over a hole, in cores. known_to_ns: as in struct series_columns. False: not known. */
bool series_hole_cpu(const struct series *series, const struct series_hole *hole, int64_t known_to_ns,
		     double *ret_cores);

/* What series_above and series_metric compute. */
struct series_rule {
	enum metric metric;
	enum metric_of of;
	struct metric_machine machine;
	uint64_t window_ns;
	double threshold;
};

/* How a metric was above its threshold. */
struct series_above {
	uint64_t ns;     /* for how long, in all */
	bool has_before; /* there is a time before it began to rise, of a window or more */
	double before;   /* the metric's average over that time */
};

/*
 * Of a metric over a window the time counts that lies in a window above the threshold, without the
 * parts at its edges in which the target was not: a burst counts as long as it is, and as a picture
 * shows it. False: the metric was never available.
 */
bool series_above(const struct series *series, const struct series_rule *rule, struct series_above *ret);

/* peak and mean: the rule's metric over the window that ends with the column. */
void series_metric(const struct series *series, const struct series_rule *rule, const struct series_columns *columns);

#endif
