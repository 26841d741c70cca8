/* pictures.c: one function per picture. */
#include "pictures.h"

#include "story.h"
#include "units.h"

#include <stdio.h>
#include <string.h>

#define PEAK_WINDOW_NS (100 * NS_PER_MS) /* below that, the grain of the kernel's accounting shows */
#define PEAK_WINDOW_MAX (60 * NS_PER_S)
#define RANGE_MAX_NS (3600 * NS_PER_S)

static bool of_limit(const struct incident *incident)
{
	return incident->limits.cpu != UINT64_MAX && incident->limits.cpu > 0;
}

static void add_level(struct picture *picture, const char *name, double value)
{
	if (picture->levels < PLOT_LEVELS_MAX)
		picture->level[picture->levels++] = (struct plot_level){ name, value };
}

static void choose_unit(const struct incident *incident, struct picture *picture)
{
	picture->unit = PLOT_PERCENT;
	if (strcmp(incident->rule.metric, "cpu") == 0 && strcmp(incident->rule.of, "core") == 0) {
		picture->scale = 100;
	} else if (of_limit(incident) && strcmp(incident->rule.metric, "cpu_cores") != 0) {
		picture->scale = 100 * 1e9 / (double)incident->limits.cpu;
	} else {
		picture->unit = PLOT_CORES;
		picture->scale = 1;
	}
}

static uint64_t peak_window(const struct incident_rule *rule, const struct series *series)
{
	uint64_t window_ns = PEAK_WINDOW_NS;

	if (strncmp(rule->metric, "cpu", 3) == 0 && rule->window_ns > 0 && rule->window_ns <= PEAK_WINDOW_MAX)
		window_ns = rule->window_ns;
	return window_ns > series->grain_ns ? window_ns : series->grain_ns;
}

void pictures_cpu(const struct incident *incident, const struct series *series, struct picture *ret)
{
	const char *metric = incident->rule.metric, *of = incident->rule.of;
	bool core = strcmp(of, "core") == 0;
	double threshold;

	*ret = (struct picture){ .window_ns = peak_window(&incident->rule, series) };
	choose_unit(incident, ret);
	snprintf(ret->title, sizeof(ret->title), "CPU, %s",
		 ret->unit == PLOT_CORES              ? "cores"
		 : strcmp(metric, "cpu") == 0 && core ? "percent of one core"
		 : incident->limits.cpu_is_machine    ? "percent of the machine"
						      : "percent of the limit");
	/* The machine is no threshold of this picture unless it is the limit. */
	if (story_threshold(&incident->rule, &threshold) &&
	    (strcmp(metric, "cpu_cores") == 0 ||
	     (strcmp(metric, "cpu") == 0 && (strcmp(of, "machine") != 0 || incident->limits.cpu_is_machine))))
		add_level(ret, "threshold", threshold);
	if (of_limit(incident))
		add_level(ret, "limit", (double)incident->limits.cpu / 1e9 * ret->scale);
}

void pictures_memory(const struct incident *incident, struct picture *ret)
{
	const struct incident_rule *rule = &incident->rule;
	uint64_t limit = incident->limits.memory_bytes;
	double threshold;

	*ret = (struct picture){ .title = "Memory", .unit = PLOT_BYTES, .scale = 1 };
	if (story_threshold(rule, &threshold)) {
		if (strncmp(rule->metric, "memory_", 7) == 0 && strcmp(rule->unit, "bytes") == 0)
			add_level(ret, "threshold", threshold);
		else if (strcmp(rule->metric, "memory") == 0 && limit != UINT64_MAX)
			add_level(ret, "threshold", threshold / 100 * (double)limit);
	}
	if (limit != UINT64_MAX)
		add_level(ret, "limit", (double)limit);
}

bool pictures_metric(const struct incident *incident, struct picture *ret, struct series_rule *ret_rule)
{
	const struct incident_rule *rule = &incident->rule;
	struct series_rule metric = { .window_ns = rule->window_ns };
	double threshold;

	if (!metric_by_name(rule->metric, &metric.metric) || rule->window_ns == 0 || rule->window_ns > PEAK_WINDOW_MAX)
		return false;
	switch (metric.metric) {
	case METRIC_CPU:
	case METRIC_CPU_CORES:
	case METRIC_MEMORY:
	case METRIC_MEMORY_BYTES:
	case METRIC_MEMORY_PEAK:
		return false;
	default:
		break;
	}
	*ret = (struct picture){ .unit = strcmp(rule->unit, "percent") == 0 ? PLOT_PERCENT : PLOT_COUNT, .scale = 1 };
	snprintf(ret->title, sizeof(ret->title), "%s%s", metric_what(metric.metric),
		 strcmp(rule->unit, "per_second") == 0 ? ", per second" : "");
	ret->title[0] =
		(char)(ret->title[0] >= 'a' && ret->title[0] <= 'z' ? ret->title[0] - 'a' + 'A' : ret->title[0]);
	if (story_threshold(rule, &threshold))
		add_level(ret, "threshold", threshold);
	*ret_rule = metric;
	return true;
}

void pictures_range(const struct incident *incident, const struct series *series, struct series_columns *ret)
{
	const struct slice_coverage *coverage = &incident->coverage;
	int64_t first = series->points[0].at_ns, last = series->points[series->count - 1].at_ns;
	int64_t most = (int64_t)RANGE_MAX_NS;

	ret->known_to_ns = last;
	if (coverage->got_from_ns < first && coverage->got_from_ns > first - most)
		first = coverage->got_from_ns;
	if (coverage->got_to_ns > last && coverage->got_to_ns < last + most) {
		last = coverage->got_to_ns;
		/* Looked at until the end and not written again: unchanged. */
		if (!coverage->gone)
			ret->known_to_ns = last;
	}
	ret->from_ns = first < 0 ? first : 0;
	ret->to_ns = last > ret->from_ns ? last : ret->from_ns + 1;
}
