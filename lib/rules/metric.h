/*
 * metric.h: what a rule can look at. A metric turns two observations of a target, one window apart,
 * into one real number, or into "unavailable". Pure.
 */
#ifndef SPIKEWATCH_LIB_RULES_METRIC_H
#define SPIKEWATCH_LIB_RULES_METRIC_H

#include "lib/base/base.h"
#include "lib/base/units.h"
#include "lib/model/sample.h"

#include <stdbool.h>

/* clang-format off */
/*      identifier       name                unit        what it is */
#define METRIC_TABLE(X) \
	X(CPU,             "cpu",             PERCENT,    "CPU used, of the effective CPU limit") \
	X(CPU_CORES,       "cpu_cores",       CORES,      "CPU used, in cores") \
	X(MEMORY,          "memory",          PERCENT, \
	  "memory used at the end of the window, of the effective limit") \
	X(MEMORY_BYTES,    "memory_bytes",    BYTES,      "memory used at the end of the window") \
	X(MEMORY_PEAK,     "memory_peak",     BYTES, \
	  "most memory used within the window, between samples included") \
	X(THREADS,         "threads",         COUNT,      "threads") \
	X(FDS,             "fds",             COUNT,      "open file descriptors") \
	X(FAULTS,          "faults",          PER_SECOND, "page faults, minor and major") \
	X(THROTTLED,       "throttled",       PERCENT,    "CPU quota periods in which the cgroup was throttled") \
	X(PIDS,            "pids",            COUNT,      "tasks in the cgroup") \
	X(CPU_WAIT,        "cpu_wait",        PERCENT, \
	  "time in which its threads could run and had no CPU; 100 % is one thread all the time") \
	X(CPU_PRESSURE,    "cpu_pressure",    PERCENT,    "time in which some task waited for a CPU") \
	X(MEMORY_PRESSURE, "memory_pressure", PERCENT,    "time in which some task waited for memory") \
	X(IO_PRESSURE,     "io_pressure",     PERCENT,    "time in which some task waited for I/O")
/* clang-format on */

enum metric {
#define X(identifier, name, unit, what) METRIC_##identifier,
	METRIC_TABLE(X)
#undef X
		METRICS
};

/*
 * The fields of a sample that the metric compares between the two ends of a window, as a mask: 0 for
 * those that only look at its end, and for memory_peak.
 */
uint32_t metric_counters(enum metric metric);

/* What a percentage is of. Only cpu and memory look at it. */
enum metric_of { METRIC_OF_LIMIT, METRIC_OF_CORE, METRIC_OF_MACHINE };

/* The machine, for METRIC_OF_MACHINE and where a target has no limit. */
struct metric_machine {
	double cores;          /* online CPUs */
	uint64_t memory_bytes; /* MemTotal */
};

/*
 * A target as seen at a moment. peak_bytes: most memory seen since the previous observation that
 * was handed to metric_value, that one included (metric_peak, from sample to sample).
 */
struct metric_point {
	mono_t time;
	mono_t read; /* of a cgroup whose CPU time is known in each tick: of all its other counters; 0: as time */
	struct sample sample;
	uint64_t peak_bytes;
};

/* As the configuration spells it; static text. */
const char *metric_name(enum metric metric);

/* What its thresholds are measured in. */
enum unit_kind metric_unit(enum metric metric);

/* One line for people; static text. */
const char *metric_what(enum metric metric);

/* true and *ret, or false if there is no such metric. */
bool metric_by_name(const char *name, enum metric *ret);

/* "limit", "core", "machine". */
const char *metric_of_name(enum metric_of of);

/*
 * The value of a metric over the window from *from to *to. True and *ret, or false: unavailable (a
 * field is missing in either, a counter stepped back, the window has no length, a percentage of a
 * limit that is unknown or zero). Percentages: 100 is all of it. Of the target's limit falls back
 * to the machine when the target has none (the field is unavailable or UINT64_MAX). Of a core has a
 * meaning for cpu only.
 */
bool metric_value(enum metric metric, enum metric_of of, const struct metric_machine *machine,
		  const struct metric_point *from, const struct metric_point *to, double *ret);

/*
 * Most memory known to have been used after *from was taken and up to *to: what *to uses, and its
 * high-water mark if that moved in between. A mark that fell was reset (sampling.reset_peaks) and
 * counts as the peak since. 0: nothing known.
 */
uint64_t metric_peak(const struct sample *from, const struct sample *to);

#endif
