/*
 * sample_window.h: the samples of one target over the window of an incident: what becomes samples.tsv. Kept in memory in a
 * compact form (a changed field costs two to five bytes, an unchanged one none), within a stated number of bytes.
 *
 * The window is [fired - before, fired + after]. What is outside is dropped silently, what is inside but does not fit
 * is dropped and counted. Fed in the order of the ring; time comes as an argument.
 */
#ifndef SPIKEWATCH_LIB_INCIDENT_SAMPLE_WINDOW_H
#define SPIKEWATCH_LIB_INCIDENT_SAMPLE_WINDOW_H

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice;

struct slice_options {
	mono_t fired;
	uint64_t before_ns;
	uint64_t after_ns;
	size_t max_bytes; /* of memory for samples. 0: 8 MiB */
};

/* A hole: the reader was overtaken, or pages were damaged. */
struct slice_gap {
	mono_t at; /* of the first tick after it */
	uint64_t lost_pages;
};

/* How much of the window there is. Times are relative to the firing, in nanoseconds: before it is negative. */
struct slice_coverage {
	uint64_t want_before_ns, want_after_ns;
	int64_t got_from_ns, got_to_ns; /* first and last tick; both 0 with no tick at all */
	uint64_t ticks_expected;        /* slots of the whole window */
	uint64_t ticks_got;
	double capture_rate; /* ticks got, of the slots between the first and the last; 0 .. 1; 0 with no tick */
	uint64_t samples, samples_dropped;
	uint64_t gaps, lost_pages;
	bool gone; /* the target ended within the window */
	int64_t gone_ns;
};

/* The extremes of what was seen. */
struct slice_peaks {
	bool has_cpu;
	double cpu_cores; /* the highest over any run of samples of at least cpu_window_ns, as short as there is */
	uint64_t cpu_window_ns;
	bool has_memory;
	uint64_t memory_bytes;
	bool has_memory_peak;
	uint64_t memory_peak_bytes; /* what came and went between samples included: high-water marks that rose */
};

/* 0 or -ENOMEM. *options is copied. */
int slice_new(const struct slice_options *options, struct slice **ret);
void slice_free(struct slice *slice);

/* A tick was taken, whether or not the target changed: what coverage is computed from. */
void slice_tick(struct slice *slice, mono_t at);

/* A sample. Never fails: without memory it is dropped and counted. Times may step back by a little. */
void slice_add(struct slice *slice, mono_t at, const struct sample *sample);

/* Ticks are missing before `at`. */
void slice_gap(struct slice *slice, mono_t at, uint64_t lost_pages);

/* The target ended. */
void slice_gone(struct slice *slice, mono_t at);

/* Is the window over at now. */
bool slice_done(const struct slice *slice, mono_t now);

/* interval_ns: of the sampler, > 0. */
void slice_coverage(const struct slice *slice, uint64_t interval_ns, struct slice_coverage *ret);

/*
 * cpu_window_ns: the grain of the CPU peak; shorter than 100 ms says little, because the kernel charges CPU time by
 * the tick.
 */
void slice_peaks(const struct slice *slice, uint64_t cpu_window_ns, struct slice_peaks *ret);

/* Bytes of memory taken for samples. */
size_t slice_bytes(const struct slice *slice);

/* Calls sample for each in order, until it returns non-zero, which is returned. */
int slice_visit(const struct slice *slice, int (*visit)(void *ctx, mono_t at, const struct sample *sample), void *ctx);

/*
 * Writes rows, GAP notes where ticks are missing, and a GONE note into a stream whose columns are columns_of_samples
 * and whose START_TIME is the wall clock at `start`. The target must have been declared; nothing is closed.
 * 0 or the writer's first error.
 */
int slice_write(const struct slice *slice, struct stream_writer *writer, uint32_t target, mono_t start);

/* The moment the window begins: a good `start`. */
mono_t slice_start(const struct slice *slice);

#endif
