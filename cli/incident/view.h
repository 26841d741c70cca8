/*
 * view.h: one incident as spikewatch show presents it, as text and as JSON, and what its pictures
 * show in a terminal and in a report.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_VIEW_H
#define SPIKEWATCH_CLI_INCIDENT_VIEW_H

#include "lib/base/json.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/profiles.h"
#include "cli/incident/series.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a picture shows, and the levels that are drawn across it. */
struct picture {
	char title[160];
	enum unit_kind unit;
	double scale;       /* of a value in cores, or bytes, to unit */
	uint64_t window_ns; /* CPU: of the peaks */
	double most, grain; /* as in struct plot */
	struct plot_level level[PLOT_LEVELS_MAX];
	size_t levels;
};

/* CPU: in percent of the limit if there is one, unless the rule is in cores. */
void pictures_cpu(const struct incident *incident, const struct series *series, struct picture *ret);

/* Memory in bytes. */
void pictures_memory(const struct incident *incident, struct picture *ret);

/* The rule's metric. False: it is CPU or memory, there was no rule, or its window is absurd. */
bool pictures_metric(const struct incident *incident, struct picture *ret, struct series_rule *ret_rule);

/* Sets the times of *ret: those of the recording, the firing included. series has a point. */
void pictures_range(const struct incident *incident, const struct series *series, struct series_columns *ret);

#define VIEW_MEMBERS_MAX 8

/* A process of a target that is not one itself. */
struct view_member {
	int32_t pid;
	char cmdline[256];  /* escaped; "": not known */
	double cpu_percent; /* of a core, shortly before the snapshot; NAN: not known */
	uint64_t rss_bytes; /* at the snapshot; 0: not known */
};

struct view {
	struct incident incident;
	struct incident_load_glance glance;
	struct incident_samples samples;
	struct functions functions, memory_functions;
	struct view_member member[VIEW_MEMBERS_MAX]; /* the busiest first; of memory the largest */
	size_t member_count;
};

/* Reads the incident, its samples and functions. 0; -ENOMEM. ret->samples is to be released. */
int view_load(int incidentfd, struct view *ret);

#define VIEW_MEMORY_CHANGE_MAX 640

/*
 * A sentence: how much memory was touched, by what its stacks say, what the target's memory grew by,
 * and why these differ if they do. False: there are no such stacks or samples.
 */
bool view_memory_change(const struct view *view, char ret[static VIEW_MEMORY_CHANGE_MAX]);

/* A sentence: the target, what it used, and the function that used most of it. */
void view_headline(const struct view *view, FILE *file);

/*
 * What fits one screen of style: a headline, the picture of what fired, the hottest functions and
 * threads, and what was lost. 0; -ENOMEM.
 */
int view_brief(const struct view *view, const struct plot_style *style, FILE *file);

/* Sentences, pictures, tables. Other captures are read from incidentfd. 0; -ENOMEM. */
int view_text(const struct view *view, int incidentfd, const struct plot_style *style, FILE *file);

/*
 * To stdout: incident.json, and what view_text shows: "summary" is the sentences, "series" the
 * pictures, as many columns as fit style. 0; -ENOMEM.
 */
int view_json(const struct view *view, const struct plot_style *style);

/* Of that the member "members": an array of those that were the busiest. */
void view_put_members(const struct view *view, struct json_writer *json);

#endif
