/*
 * story.h: an incident in sentences and numbers, for list, show, diff and reports.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_STORY_H
#define SPIKEWATCH_CLI_INCIDENT_STORY_H

#include "cli/incident/incident_load.h"
#include "cli/incident/series.h"
#include "lib/base/base.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The threshold that made the value a candidate. False: there is none (the incident was asked for).
 */
bool story_threshold(const struct incident_rule *rule, double *ret);

/* "182.4 % > 80.0 %" into buf; "-" without a value. Returns buf. */
const char *story_comparison(const struct incident_rule *rule, char *buf, size_t cap);

/* Local time: "2026-11-20 11:45:01+0000", with milliseconds if precise. Returns buf. */
const char *story_time(wall_t wall, bool precise, char *buf, size_t cap);

/* Shorter holes of the sampling are told by the capture rate alone. */
#define STORY_HOLE_NS (50 * NS_PER_MS)

/*
 * "the sampling has 1 hole of 2.01 s" or "... 7 holes, 3.1 s in all, the longest 2.01 s", if one is of
 * longest_ns or more; "the machine was suspended for 2 h"; or both. False: neither.
 */
bool story_holes(const struct sample_window_coverage *coverage, uint64_t longest_ns, char *buf, size_t cap);

/*
 * What happened in one sentence: "postgres-812: CPU use was 182.4 % of one core over 1 s, above 80 %
 * for 2.1 s". No newline; names are escaped.
 */
void story_headline(const struct incident *incident, const struct incident_samples *samples, FILE *file);

/* How high CPU and memory went; then holes, the target's end and losses, if any. As story_tell. */
void story_tell_rest(const struct incident *incident, const struct incident_samples *samples, FILE *file);

/* How the rule's metric was above its threshold in the samples. False: that is not known. */
bool story_above(const struct incident *incident, const struct series *series, struct series_above *ret);

/*
 * Some sentences: target, time, rule, the value against threshold and average, how long, how much
 * memory, whether the target ended, what was lost. One line without newline; names are escaped.
 */
void story_tell(const struct incident *incident, const struct incident_samples *samples, FILE *file);

#endif
