/*
 * view.h: one incident as spikewatch show tells it, as text and as JSON.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_VIEW_H
#define SPIKEWATCH_CLI_INCIDENT_VIEW_H

#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/profiles.h"
#include "cli/incident/series.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * pictures.h: what a picture of an incident shows: unit, title, window and time range, and the
 * levels that are drawn across it. Decided here once for everybody who draws. Pure.
 */

struct picture {
	char title[160];
	enum unit_kind unit;
	double scale;       /* of a value in cores, or bytes, to unit */
	uint64_t window_ns; /* CPU: of the peaks */
	struct plot_level level[PLOT_LEVELS_MAX];
	size_t levels;
};

/* CPU: percent where there is something to be a percentage of, unless the rule thinks in cores. */
void pictures_cpu(const struct incident *incident, const struct series *series, struct picture *ret);

/* Memory in bytes. */
void pictures_memory(const struct incident *incident, struct picture *ret);

/*
 * The metric of the rule, where it is neither of both. False: it is, or there was no rule, or its
 * window makes no sense.
 */
bool pictures_metric(const struct incident *incident, struct picture *ret, struct series_rule *ret_rule);

/*
 * The time that is shown: what was recorded, the trigger included. series must have a point. Sets
 * the times of *ret only.
 */
void pictures_range(const struct incident *incident, const struct series *series, struct series_columns *ret);

/*
 * growth.h: two looks at the memory of the same processes (smaps.tsv and smaps.again.tsv) as one
 * table of what has changed between them.
 */

/*
 * Appends to ret a table with the columns rss_growth_bytes, swap_growth_bytes, rss_bytes (in the
 * second look), permissions, mapping, pid, remark ("new", "gone"), what changed most first; what
 * has not changed is left out. Nothing in the texts is trusted: lines that are no rows are passed
 * over. 0; -ENOMEM. *ret_rows: how many there are.
 */
int growth_table(const struct buffer *first, const struct buffer *second, struct buffer *ret, size_t *ret_rows);

struct view {
	struct incident incident;
	struct incident_load_glance glance;
	struct incident_samples samples;
	struct functions functions, memory_functions;
};

/*
 * Reads all of an incident but its captures, of which functions.tsv and memory-functions.tsv are
 * read. 0; -ENOMEM. samples are to be released.
 */
int view_load(int incidentfd, struct view *ret);

/* Words, pictures, tables. Captures are read from incidentfd. 0; -ENOMEM. */
int view_text(const struct view *view, int incidentfd, const struct plot_style *style, FILE *file);

/*
 * To stdout: "incident": what incident.json says; "open": it is still being written; "damaged" and
 * why; "summary": the words; "series": what the pictures show, as many columns as fit style, null
 * where there are none; "targets": peaks of each target in the samples; "functions" and
 * "memory_functions": the hottest, see functions.h. 0; -ENOMEM.
 */
int view_json(const struct view *view, const struct plot_style *style);

#endif
