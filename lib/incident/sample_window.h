/*
 * sample_window.h: the samples of one target over the window of an incident: what becomes
 * samples.tsv. Kept in memory in a compact form (a changed field costs two to five bytes, an
 * unchanged one none), within a stated number of bytes.
 *
 * The window is [fired - before, fired + after]. What is outside is dropped silently, what is
 * inside but does not fit is dropped and counted. Fed in the order of the ring; time comes as an
 * argument.
 */
#ifndef SPIKEWATCH_LIB_INCIDENT_SAMPLE_WINDOW_H
#define SPIKEWATCH_LIB_INCIDENT_SAMPLE_WINDOW_H

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sample_window;

struct sample_window_options {
	mono_t fired;
	uint64_t before_ns;
	uint64_t after_ns;
	size_t max_bytes; /* of memory for samples. 0: 8 MiB */
	/* What all windows that share it have, at most shared_max; must outlive them. NULL: no such limit. */
	_Atomic size_t *shared_bytes;
	size_t shared_max;
};

/*
 * How much of the window there is. Times are relative to the firing, in nanoseconds: before it is
 * negative.
 */
struct sample_window_coverage {
	uint64_t want_before_ns, want_after_ns;
	int64_t got_from_ns, got_to_ns; /* first and last tick; both 0 with no tick at all */
	uint64_t ticks_expected;        /* slots of the whole window */
	uint64_t ticks_got;
	double capture_rate; /* ticks got, of the slots between the first and the last; 0 .. 1; 0 with no tick */
	uint64_t samples, samples_dropped;
	uint64_t gaps, lost_pages;       /* holes, and losses of the reader; pages in those */
	uint64_t holes;                  /* of the gaps: slots that the sampler missed (struct sampling_hole), */
	uint64_t missed_slots;           /* so many in all, */
	uint64_t unsampled_ns;           /* over so long: what is more than an interval between two ticks; */
	uint64_t longest_hole_ns;        /* the longest, from tick to tick */
	uint64_t suspends, suspended_ns; /* of the machine, which no time above counts: so often, so long in all */
	uint64_t onset_late_ns; /* the longest pause between two looks by back-off in which the target ran; 0: none */
	uint64_t cpu_late_ns;   /* the most that a row says of itself: SAMPLE_CPU_LATE; 0: none does */
	bool gone;              /* the target ended within the window */
	int64_t gone_ns;
};

/* The extremes of what was seen. */
struct sample_window_peaks {
	bool has_cpu;
	double cpu_cores; /* the highest over cpu_window_ns that end with a sample */
	uint64_t cpu_window_ns;
	bool has_memory;
	uint64_t memory_bytes;
	bool has_memory_peak;
	uint64_t memory_peak_bytes; /* what came and went between samples included: high-water marks that rose */
};

/* 0 or -ENOMEM. *options is copied. */
int sample_window_new(const struct sample_window_options *options, struct sample_window **ret);
void sample_window_free(struct sample_window *window);
CLEANUP(sample_window, free);

/*
 * A tick was taken, whether or not the target changed: what coverage is computed from. idle_ns: as the
 * event has it (ring.h).
 */
void sample_window_tick(struct sample_window *window, mono_t at, uint64_t idle_ns);

/*
 * A sample. Never fails: without memory it is dropped and counted. Times may step back by a little.
 */
void sample_window_add(struct sample_window *window, mono_t at, const struct sample *sample);

/* A hole of the target's writer. Comes before the samples of the tick that ends it. */
void sample_window_hole(struct sample_window *window, const struct sampling_hole *hole);

/* Ticks that were taken are missing before `at`. */
void sample_window_gap(struct sample_window *window, mono_t at, uint64_t lost_pages);

/* The target ended. */
void sample_window_gone(struct sample_window *window, mono_t at);

/*
 * Whether the window is over at now, to be asked when all ticks until then were told. Then it has
 * the hole in which it ends, if it does (see sample_window_ends_in_hole). interval_ns: of the sampler, > 0.
 */
bool sample_window_end(struct sample_window *window, mono_t now, uint64_t interval_ns);

/* interval_ns: as before. */
void sample_window_coverage(const struct sample_window *window, uint64_t interval_ns,
			    struct sample_window_coverage *ret);

/* Of what is covered. With no ticks, and with no holes, ns is 0. */
struct sample_window_span {
	mono_t first, last;           /* ticks */
	mono_t first_hole, last_hole; /* the beginning of the first, and the end of the last */
	uint64_t tick_ns;             /* between the last two ticks; 0: there are none, or one */
};

/*
 * Whether what ends at `to` ends in a hole: false, and *ret is not changed, if no more than one tick that is late is
 * missing there. To be asked when all ticks until `to` were told, as the record of such a hole comes with the next
 * tick. interval_ns: of the sampler, > 0.
 */
bool sample_window_ends_in_hole(const struct sample_window_span *span, mono_t to, uint64_t interval_ns,
				struct sampling_hole *ret);

/*
 * Sets what follows from want_before_ns, want_after_ns, ticks_got, and the span: slots of a hole before the first
 * tick, or behind the last, were missed as well.
 */
void sample_window_cover_ticks(mono_t fired, const struct sample_window_span *span, uint64_t interval_ns,
			       struct sample_window_coverage *coverage);

/* What a row says of itself. */
static inline void sample_window_cover_sample(const struct sample *sample, struct sample_window_coverage *coverage)
{
	if (sample_has(sample, SAMPLE_CPU_LATE) && sample->value[SAMPLE_CPU_LATE] > coverage->cpu_late_ns)
		coverage->cpu_late_ns = sample->value[SAMPLE_CPU_LATE];
}

/* Counts a hole. span may be NULL. */
void sample_window_cover_hole(const struct sampling_hole *hole, struct sample_window_coverage *coverage,
			      struct sample_window_span *span);

/*
 * cpu_window_ns: the grain of the CPU peak; shorter than 100 ms says little, because the kernel
 * charges CPU time by the tick.
 */
void sample_window_peaks(const struct sample_window *window, uint64_t cpu_window_ns, struct sample_window_peaks *ret);

/*
 * Writes rows, GAP notes where ticks are missing or were lost, and a GONE note into a stream whose columns are
 * columns_of_samples and whose START_TIME is the wall clock at the window's start (fired - before_ns, not before
 * 0). The target must have been declared; nothing is closed. 0 or the writer's first error.
 */
int sample_window_write(const struct sample_window *window, struct stream_writer *writer, uint32_t target);

#endif
