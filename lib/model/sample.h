/*
 * sample.h: what one look at a target yields, and what the sampler knows of its own work.
 */
#ifndef SPIKEWATCH_LIB_MODEL_SAMPLE_H
#define SPIKEWATCH_LIB_MODEL_SAMPLE_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A sample: raw counters and gauges, each of which may be unavailable.
 *
 * SAMPLE_FIELD_TABLE is the only list of fields. Ring records, stream columns, their units and
 * kinds are all made from it, so they cannot drift apart. Numbers are positions in a mask that is
 * stored on disk: append, never reorder.
 *
 * Kinds: a COUNTER only grows (a reader treats a step back as "counter restarted"), a GAUGE is a
 * value at that moment, a LIMIT is a gauge that says what 100 % is.
 *
 * Values are raw: rates and percentages are computed by readers, over windows of their choice.
 */

// clang-format off
/*      identifier          name                 unit        kind     what and where from */
#define SAMPLE_FIELD_TABLE(X)                                                                                          \
	X(CPU,               "cpu",               "ns",       COUNTER, \
	  "CPU time: process CPU clock; cpuacct.usage; cpu.stat usage_usec") \
	X(CPU_USER,          "cpu_user",          "ns",       COUNTER, \
	  "user CPU time: stat utime (clock ticks); cpuacct.stat; cpu.stat") \
	X(CPU_SYSTEM,        "cpu_system",        "ns",       COUNTER, \
	  "system CPU time: stat stime (clock ticks); cpuacct.stat; cpu.stat") \
	X(MEMORY,            "memory",            "bytes",    GAUGE, \
	  "statm resident; memory.usage_in_bytes; memory.current") \
	X(MEMORY_PEAK,       "memory_peak",       "bytes",    GAUGE, \
	  "high-water mark: VmHWM; memory.max_usage_in_bytes; memory.peak") \
	X(WORKING_SET,       "working_set",       "bytes",    GAUGE, \
	  "cgroup memory less inactive_file of memory.stat") \
	X(THREADS,           "threads",           "count",    GAUGE,   "stat num_threads") \
	X(FDS,               "fds",               "count",    GAUGE,   "open descriptors: entries of /proc/<pid>/fd") \
	X(MINOR_FAULTS,      "minor_faults",      "count",    COUNTER, \
	  "stat minflt; memory.stat pgfault less pgmajfault") \
	X(MAJOR_FAULTS,      "major_faults",      "count",    COUNTER, "stat majflt; memory.stat pgmajfault") \
	X(PERIODS,           "periods",           "count",    COUNTER, \
	  "CPU quota periods elapsed: cpu.stat nr_periods") \
	X(THROTTLED_PERIODS, "throttled_periods", "count",    COUNTER, "of them throttled: cpu.stat nr_throttled") \
	X(THROTTLED,         "throttled",         "ns",       COUNTER, \
	  "time throttled, all CPUs: cpu.stat throttled_usec, throttled_time") \
	X(PIDS,              "pids",              "count",    GAUGE,   "tasks in the cgroup: pids.current") \
	X(CPU_PRESSURE,      "cpu_pressure",      "ns",       COUNTER, "cpu.pressure: some total") \
	X(MEMORY_PRESSURE,   "memory_pressure",   "ns",       COUNTER, "memory.pressure: some total") \
	X(IO_PRESSURE,       "io_pressure",       "ns",       COUNTER, "io.pressure: some total") \
	X(CPU_LIMIT,         "cpu_limit",         "ns/s",     LIMIT,   "effective CPU limit: 1e9 is one core") \
	X(MEMORY_LIMIT,      "memory_limit",      "bytes",    LIMIT,   "effective memory limit") \
	X(PROCESSES,         "processes",         "count",    GAUGE,   "processes summed in a group target") \
	X(STATE,             "state",             "code",     GAUGE, \
	  "stat state letter, as its ASCII code: R S D Z T ...") \
	X(CPU_WAIT,          "cpu_wait",          "ns",       COUNTER, \
	  "time that its threads were runnable and had no CPU, from the scheduler's switches") \
	X(FILES_READ,        "files_read",        "ns",       GAUGE, \
	  "of a cgroup whose cpu is the scheduler's own: when all else was read (CLOCK_MONOTONIC)") \
	X(CPU_ESTIMATED,     "cpu_estimated",     "count",    COUNTER, \
	  "of a group: processes that ended of which its cpu has an estimate; unavailable: of none") \
	X(CPU_LATE,          "cpu_late",          "ns",       GAUGE, \
	  "of a group: its cpu has become more by processes that ended up to so long before; unavailable: by none")

enum sample_field {
#define X(identifier, name, unit, kind, source) SAMPLE_##identifier,
	SAMPLE_FIELD_TABLE(X)
#undef X
	SAMPLE_FIELDS /* how many there are */
};
// clang-format on

_Static_assert(SAMPLE_FIELDS <= 32, "the mask of a sample has 32 bits");

enum sample_kind { SAMPLE_COUNTER, SAMPLE_GAUGE, SAMPLE_LIMIT };

/*
 * A value to copy. value[f] means something only while mask has the bit of f: otherwise f is
 * unavailable.
 */
struct sample {
	uint32_t mask;
	uint64_t value[SAMPLE_FIELDS];
};

struct sample_field_info {
	const char *name; /* stable, lower case: a stream column */
	const char *unit; /* "ns", "bytes", "count", "ns/s", "code" */
	enum sample_kind kind;
	const char *source; /* for people: what it is, where it is read */
};

/* Never fails for field < SAMPLE_FIELDS; the text is static. */
const struct sample_field_info *sample_field_info(enum sample_field field);

/* "counter", "gauge" or "limit". */
const char *sample_kind_name(enum sample_kind kind);

static inline bool sample_has(const struct sample *sample, enum sample_field field)
{
	return (sample->mask >> field) & 1u;
}

static inline void sample_set(struct sample *sample, enum sample_field field, uint64_t value)
{
	sample->mask |= 1u << field;
	sample->value[field] = value;
}

/* The fields whose values differ, of those that b has. */
static inline uint32_t sample_difference(const struct sample *a, const struct sample *b)
{
	uint32_t changed = 0;

	for (uint32_t left = b->mask; left != 0; left &= left - 1) {
		unsigned field = (unsigned)__builtin_ctz(left);
		changed |= (uint32_t)(a->value[field] != b->value[field]) << field;
	}
	return changed;
}

static inline void sample_unset(struct sample *sample, enum sample_field field)
{
	sample->mask &= ~(1u << field);
}

/*
 * A hole: the sampler missed slots between two of its ticks, because it was stopped, had no CPU, or
 * waited. What a target used meanwhile is known as a sum only. Or the machine was suspended between
 * them: nothing ran then, and the clock of from and to stood still.
 */
struct sampling_hole {
	mono_t from, to;       /* the two ticks */
	uint64_t missed_slots; /* 0: it is one because of the next alone */
	uint64_t suspended_ns; /* 0: it was not */
};

/* What is more than an interval between two ticks, of a part of a hole that is so long. */
static inline uint64_t sampling_hole_unsampled_ns(const struct sampling_hole *hole, int64_t part_ns)
{
	return (uint64_t)part_ns / (hole->missed_slots + 1) * hole->missed_slots;
}

/*
 * The first eight names are those that gVisor's profiling metrics print in their STATS line; the
 * rest are ours. All are totals since the sampler started, except collection_rate. Times in
 * nanoseconds.
 *
 * Each sampler thread has counters of its own; those of a ring are all of them merged
 * (stats_merge). The second column says how: SUM; MOST, the greatest; FIRST, the smallest that is
 * not zero. threads and real_time are not totals. Slots are those of every thread: with four threads
 * four elapse in an interval, and the capture rate stays what was taken of what elapsed.
 */

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
	X(skipped_reads,                  SUM,   "reads saved because a target had not run, or hardly") \
	X(failed_reads,                   SUM,   "reads that failed although the target exists")                       \
	X(gone_targets,                   SUM,   "targets that vanished")                                              \
	X(lost_records,                   SUM,   "records that did not fit because no page was free")                  \
	X(records,                        SUM,   "records written to the ring")                                        \
	X(bytes,                          SUM,   "bytes written to the ring")                                          \
	X(own_cpu,                        SUM,   "CPU time of the sampler thread")                                     \
	X(saved_looks,                    SUM,   "looks at processes that were idle, saved by taking them less often") \
	X(threads,                        SUM,   "sampler threads that these are the counters of; 0: one")             \
	X(missed_time,                    SUM,   "time of missed slots")                                               \
	X(run_delay,                      SUM,   "time that the sampler thread waited for a CPU (schedstat)")          \
	X(starved,                        SUM,   "of run_delay, what made it miss slots")                              \
	X(stopped,                        SUM,   "time of missed slots in which it neither ran nor waited for a CPU")  \
	X(throttled,                      MOST,  "time that the CPU quota stopped the daemon's cgroup, of all CPUs")   \
	X(stolen,                         MOST,  "time that the hypervisor took CPUs away, of all CPUs")               \
	X(real_time,                      SUM,   "sampler threads that have real-time priority now")            \
	X(past_snapshots,                 SUM,   "of total_snapshots, ticks put together afterwards")
// clang-format on

struct stats {
#define X(name, kind, meaning) uint64_t name;
	STATS_FIELD_TABLE(X)
#undef X
};

/* Ticks that the sampler woke up for: each has an error of its wake-up. */
static inline uint64_t stats_woken(const struct stats *stats)
{
	return stats->total_snapshots - stats->past_snapshots;
}

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
	uint64_t cause_ns;  /* for how long it lasted in the time judged, of all threads; 0: not measured */
	const char *remedy; /* what to do about it, a sentence: static text */
};

/*
 * Judges the work done between two states of the counters (*since may be all zero: since the start)
 * into ret[VERDICT_KINDS]. Capture rate = snapshots / slots elapsed on the clock, so it falls when
 * slots are missed. Means are held against the interval in force in *now. With no slot elapsed
 * nothing is bad. The cause of a low capture rate or of late wake-ups is that which took the most
 * time: a CPU quota, a stop of the process, a slow reader, busy CPUs, the collection itself.
 */
void stats_verdicts(const struct stats *now, const struct stats *since, struct verdict ret[VERDICT_KINDS]);

/*
 * Writes the counters as one line of JSON without newline into buf; the length, 0 if cap is too
 * small (2 KiB is enough).
 */
size_t stats_to_json(const struct stats *stats, char *buf, size_t cap);

#endif
