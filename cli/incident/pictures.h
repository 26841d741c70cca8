/*
 * pictures.h: what a picture of an incident shows: unit, title, window and time range, and the levels that are drawn across it. Decided here
 * once for everybody who draws. Pure.
 */
#ifndef SPIKEWATCH_PICTURES_H
#define SPIKEWATCH_PICTURES_H

#include "incident.h"
#include "plot.h"
#include "series.h"

#include <stdbool.h>
#include <stdint.h>

struct picture {
	char title[160];
	enum plot_unit unit;
	double scale;       /* of a value in cores, or bytes, to unit */
	uint64_t window_ns; /* CPU: of the peaks */
	struct plot_level level[PLOT_LEVELS_MAX];
	size_t levels;
};

/* CPU: percent where there is something to be a percentage of, unless the rule thinks in cores. */
void pictures_cpu(const struct incident *incident, const struct series *series, struct picture *ret);

/* Memory in bytes. */
void pictures_memory(const struct incident *incident, struct picture *ret);

/* The metric of the rule, where it is neither of both. False: it is, or there was no rule, or its window makes no sense. */
bool pictures_metric(const struct incident *incident, struct picture *ret, struct series_rule *ret_rule);

/* The time that is shown: what was recorded, the trigger included. series must have a point. Sets the times of *ret only. */
void pictures_range(const struct incident *incident, const struct series *series, struct series_columns *ret);

#endif
