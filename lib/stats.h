/*
 * stats.h: what the sampler knows of its own work, and the verdicts drawn from it.
 *
 * The first eight names are those that gVisor's profiling metrics print in their STATS line; the rest are ours.
 * All are totals since the sampler started, except collection_rate. Times in nanoseconds.
 *
 * Several sampler threads have counters of their own; those of a ring are all of theirs in one (stats_merge). The second column says how: SUM;
 * MOST, the greatest; FIRST, the smallest that is not zero. Slots are those of every thread: with four threads four elapse in an interval,
 * and the capture rate stays what was taken of what elapsed.
 */
#ifndef SPIKEWATCH_STATS_H
#define SPIKEWATCH_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// clang-format off
#define STATS_FIELD_TABLE(X)                                                                                   \
	X(collection_rate,                MOST,  "the interval in force")                                              \
	X(cheap_start_nanos,              FIRST, "monotonic time of the first slot")                                   \
	X(cheap_last_collection_nanos,    MOST,  "monotonic time of the last slot that elapsed")                       \
	X(total_snapshots,                SUM,   "ticks taken")                                                        \
	X(total_sleep_timing_error,       SUM,   "sum of |wake-up - deadline|")                                        \
	X(total_collection_timing_error,  SUM,   "sum of the time spent collecting")                                   \
	X(num_backoff_sleeps,             SUM,   "sleeps because a blocking reader held the next page")                \
	X(total_backoff_sleep,            SUM,   "time of those sleeps")                                               \
	X(total_slots,                    SUM,   "slots that elapsed on the clock, taken or not")                      \
	X(missed_slots,                   SUM,   "slots that were skipped because they had passed")                    \
	X(skipped_reads,                  SUM,   "reads saved because a target had not run, or hardly")                           \
	X(failed_reads,                   SUM,   "reads that failed although the target exists")                       \
	X(gone_targets,                   SUM,   "targets that vanished")                                              \
	X(lost_records,                   SUM,   "records that did not fit because no page was free")                  \
	X(records,                        SUM,   "records written to the ring")                                        \
	X(bytes,                          SUM,   "bytes written to the ring")                                          \
	X(own_cpu,                        SUM,   "CPU time of the sampler thread")                                     \
	X(saved_looks,                    SUM,   "looks at processes that were idle, saved by taking them less often") \
	X(threads,                        SUM,   "sampler threads that these are the counters of; 0: one")
// clang-format on

struct stats {
#define X(name, kind, meaning) uint64_t name;
	STATS_FIELD_TABLE(X)
#undef X
};

/* Adds the counters of another thread to *sum, which may be all zero. */
void stats_merge(struct stats *sum, const struct stats *other);

/* Each condition has its own threshold; see stats_verdicts. */
enum verdict_kind { VERDICT_CAPTURE_RATE, VERDICT_SLEEP_ERROR, VERDICT_COLLECTION, VERDICT_BACKOFF, VERDICT_KINDS };

struct verdict {
	bool bad;
	double ratio;       /* capture rate; mean error / interval; mean collection / interval; backoff / run time */
	double threshold;   /* the value it is held against: 0.99, 0.10, 0.10, 0.05 */
	const char *what;   /* "capture rate", ...: static text */
	const char *cause;  /* likely cause, a sentence: static text */
	const char *remedy; /* what to do about it, a sentence: static text */
};

/*
 * Judges the work done between two states of the counters (*since may be all zero: since the start) into
 * ret[VERDICT_KINDS]. Capture rate = snapshots / slots elapsed on the clock, so it falls when slots are missed.
 * Means are held against the interval in force in *now. With no slot elapsed nothing is bad.
 */
void stats_verdicts(const struct stats *now, const struct stats *since, struct verdict ret[VERDICT_KINDS]);

/* Writes the counters as one line of JSON without newline into buf; the length, 0 if cap is too small (2 KiB is enough). */
size_t stats_to_json(const struct stats *stats, char *buf, size_t cap);

#endif
