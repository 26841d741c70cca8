/*
 * metric.c: two observations in, one real number out.
 *
 * Every counter is compared by difference, and a difference below zero is "unavailable", never a
 * huge number: counters of a group step back when one of its processes ends. A limit is taken at
 * the end of the window, because it is the one that applies from now on. Nothing is clamped: 101 %
 * of a quota is what the kernel granted.
 *
 * Rejected: guessing a missing limit for anything but the machine itself. A percentage of a guess
 * would fire rules.
 */
#include "lib/rules/metric.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct {
	const char *name;
	enum unit_kind unit;
	const char *what;
} metrics[METRICS] = {
#define X(identifier, name, unit, what) [METRIC_##identifier] = { name, UNIT_##unit, what },
	METRIC_TABLE(X)
#undef X
};
/* clang-format on */

const char *metric_name(enum metric metric)
{
	return metrics[metric].name;
}

enum unit_kind metric_unit(enum metric metric)
{
	return metrics[metric].unit;
}

const char *metric_what(enum metric metric)
{
	return metrics[metric].what;
}

bool metric_by_name(const char *name, enum metric *ret)
{
	for (size_t i = 0; i < METRICS; i++) {
		if (strcmp(metrics[i].name, name) == 0) {
			*ret = (enum metric)i;
			return true;
		}
	}
	return false;
}

const char *metric_of_name(enum metric_of of)
{
	static const char *const names[] = {
		[METRIC_OF_LIMIT] = "limit",
		[METRIC_OF_CORE] = "core",
		[METRIC_OF_MACHINE] = "machine",
	};
	return names[of];
}

#define BIT(field) (1u << SAMPLE_##field)

uint32_t metric_counters(enum metric metric)
{
	static const uint32_t counters[METRICS] = {
		[METRIC_CPU] = BIT(CPU),
		[METRIC_CPU_CORES] = BIT(CPU),
		[METRIC_FAULTS] = BIT(MINOR_FAULTS) | BIT(MAJOR_FAULTS),
		[METRIC_THROTTLED] = BIT(PERIODS) | BIT(THROTTLED_PERIODS),
		[METRIC_CPU_WAIT] = BIT(CPU_WAIT),
		[METRIC_CPU_PRESSURE] = BIT(CPU_PRESSURE),
		[METRIC_MEMORY_PRESSURE] = BIT(MEMORY_PRESSURE),
		[METRIC_IO_PRESSURE] = BIT(IO_PRESSURE),
	};
	return counters[metric];
}

uint64_t metric_peak(const struct sample *from, const struct sample *to)
{
	uint64_t peak = sample_has(to, SAMPLE_MEMORY) ? to->value[SAMPLE_MEMORY] : 0;

	if (!sample_has(from, SAMPLE_MEMORY_PEAK) || !sample_has(to, SAMPLE_MEMORY_PEAK))
		return peak;

	/*
	 * A mark that rose was made in between; one that fell was reset in between and has been
	 * made since.
	 */
	if (to->value[SAMPLE_MEMORY_PEAK] != from->value[SAMPLE_MEMORY_PEAK] && to->value[SAMPLE_MEMORY_PEAK] > peak)
		peak = to->value[SAMPLE_MEMORY_PEAK];
	return peak;
}

/* How far a counter has come; false if it is missing or has stepped back. */
static bool counted(const struct metric_point *from, const struct metric_point *to, enum sample_field field,
		    double *ret)
{
	if (!sample_has(&from->sample, field) || !sample_has(&to->sample, field))
		return false;
	if (to->sample.value[field] < from->sample.value[field])
		return false;

	*ret = (double)(to->sample.value[field] - from->sample.value[field]);
	return true;
}

static double length_ns(const struct metric_point *from, const struct metric_point *to, enum sample_field field)
{
	if (field != SAMPLE_CPU && from->read.ns > 0 && to->read.ns > from->read.ns)
		return (double)mono_diff(to->read, from->read);
	return (double)mono_diff(to->time, from->time);
}

static bool gauge(const struct metric_point *to, enum sample_field field, double *ret)
{
	if (!sample_has(&to->sample, field))
		return false;

	*ret = (double)to->sample.value[field];
	return true;
}

/* Nanoseconds counted per nanosecond of the window, times scale. */
static bool time_share(const struct metric_point *from, const struct metric_point *to, enum sample_field field,
		       double scale, double *ret)
{
	double ns;

	if (!counted(from, to, field, &ns))
		return false;

	*ret = ns / length_ns(from, to, field) * scale;
	return true;
}

/*
 * The limit in units of `unit`, or the machine's where none is known: UINT64_MAX is how limits say
 * "not known".
 */
static double limit_or(const struct metric_point *to, enum sample_field field, double unit, double machine)
{
	if (!sample_has(&to->sample, field) || to->sample.value[field] == UINT64_MAX)
		return machine;
	return (double)to->sample.value[field] / unit;
}

static bool percent_of(double value, double whole, double *ret)
{
	if (!(whole > 0))
		return false;

	*ret = value / whole * 100;
	return true;
}

static bool cpu_percent(enum metric_of of, const struct metric_machine *machine, const struct metric_point *from,
			const struct metric_point *to, double *ret)
{
	double cores;

	if (!time_share(from, to, SAMPLE_CPU, 1, &cores))
		return false;

	switch (of) {
	case METRIC_OF_LIMIT:
		return percent_of(cores, limit_or(to, SAMPLE_CPU_LIMIT, (double)NS_PER_S, machine->cores), ret);
	case METRIC_OF_CORE:
		return percent_of(cores, 1, ret);
	case METRIC_OF_MACHINE:
		return percent_of(cores, machine->cores, ret);
	}
	return false;
}

static bool memory_percent(enum metric_of of, const struct metric_machine *machine, const struct metric_point *to,
			   double *ret)
{
	double total = (double)machine->memory_bytes;
	double bytes;

	if (!gauge(to, SAMPLE_MEMORY, &bytes))
		return false;

	switch (of) {
	case METRIC_OF_LIMIT:
		return percent_of(bytes, limit_or(to, SAMPLE_MEMORY_LIMIT, 1, total), ret);
	case METRIC_OF_MACHINE:
		return percent_of(bytes, total, ret);
	case METRIC_OF_CORE:
		return false; /* a core has no memory */
	}
	return false;
}

static bool memory_peak(const struct metric_point *from, const struct metric_point *to, double *ret)
{
	uint64_t peak = metric_peak(&from->sample, &to->sample);

	if (!sample_has(&to->sample, SAMPLE_MEMORY))
		return false;

	*ret = (double)(to->peak_bytes > peak ? to->peak_bytes : peak);
	return true;
}

static bool faults(const struct metric_point *from, const struct metric_point *to, double *ret)
{
	double minor, major;

	if (!counted(from, to, SAMPLE_MINOR_FAULTS, &minor) || !counted(from, to, SAMPLE_MAJOR_FAULTS, &major))
		return false;

	*ret = (minor + major) / length_ns(from, to, SAMPLE_MINOR_FAULTS) * (double)NS_PER_S;
	return true;
}

static bool throttled(const struct metric_point *from, const struct metric_point *to, double *ret)
{
	double periods, of_them;

	if (!counted(from, to, SAMPLE_PERIODS, &periods) || !counted(from, to, SAMPLE_THROTTLED_PERIODS, &of_them))
		return false;

	/* Periods only elapse while the cgroup runs: none elapsed means that none was throttled. */
	/* The kernel prints the two without a lock: one that ends between them is counted in the second only. */
	if (of_them > periods)
		of_them = periods;
	*ret = periods > 0 ? of_them / periods * 100 : 0;
	return true;
}

bool metric_value(enum metric metric, enum metric_of of, const struct metric_machine *machine,
		  const struct metric_point *from, const struct metric_point *to, double *ret)
{
	if (mono_diff(to->time, from->time) <= 0)
		return false;

	switch (metric) {
	case METRIC_CPU:
		return cpu_percent(of, machine, from, to, ret);
	case METRIC_CPU_CORES:
		return time_share(from, to, SAMPLE_CPU, 1, ret);
	case METRIC_MEMORY:
		return memory_percent(of, machine, to, ret);
	case METRIC_MEMORY_BYTES:
		return gauge(to, SAMPLE_MEMORY, ret);
	case METRIC_MEMORY_PEAK:
		return memory_peak(from, to, ret);
	case METRIC_THREADS:
		return gauge(to, SAMPLE_THREADS, ret);
	case METRIC_FDS:
		return gauge(to, SAMPLE_FDS, ret);
	case METRIC_FAULTS:
		return faults(from, to, ret);
	case METRIC_THROTTLED:
		return throttled(from, to, ret);
	case METRIC_PIDS:
		return gauge(to, SAMPLE_PIDS, ret);
	case METRIC_CPU_WAIT:
		return time_share(from, to, SAMPLE_CPU_WAIT, 100, ret);
	case METRIC_CPU_PRESSURE:
		return time_share(from, to, SAMPLE_CPU_PRESSURE, 100, ret);
	case METRIC_MEMORY_PRESSURE:
		return time_share(from, to, SAMPLE_MEMORY_PRESSURE, 100, ret);
	case METRIC_IO_PRESSURE:
		return time_share(from, to, SAMPLE_IO_PRESSURE, 100, ret);
	case METRICS:
		break;
	}
	return false;
}
