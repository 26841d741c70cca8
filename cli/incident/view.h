/*
 * view.h: one incident as spikewatch show tells it, as text and as JSON.
 */
#ifndef SPIKEWATCH_VIEW_H
#define SPIKEWATCH_VIEW_H

#include "functions.h"
#include "incidentload.h"
#include "plot.h"

#include <stdio.h>

struct view {
	struct incident incident;
	struct incidentload_glance glance;
	struct incidentload_samples samples;
	struct functions functions, memory_functions;
};

/* Reads all of an incident but its captures, of which functions.tsv and memory-functions.tsv are read. 0; -ENOMEM. samples are to be released. */
int view_load(int incidentfd, struct view *ret);

/* Words, pictures, tables. Captures are read from incidentfd. 0; -ENOMEM. */
int view_text(const struct view *view, int incidentfd, const struct plot_style *style, FILE *file);

/*
 * To stdout: "incident": what incident.json says; "open": it is still being written; "damaged" and why; "summary": the words; "series": what the pictures show, as
 * many columns as fit style, null where there are none; "targets": peaks of each target in the samples; "functions" and
 * "memory_functions": the hottest, see functions.h. 0; -ENOMEM.
 */
int view_json(const struct view *view, const struct plot_style *style);

#endif
