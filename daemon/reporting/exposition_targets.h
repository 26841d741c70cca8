/*
 * exposition_targets.h: targets as metrics, with a bound to how many have series of their own: those known longest, config->metrics.max_targets
 * of them. A target that has series keeps them until it ends; then the longest known of the others takes its place.
 *
 * The others are summed, per entry, into the target "other" of the kind "other". Limits, ratios and high-water marks have no sum. What is
 * counted there goes on from page to page: a target adds what it has used since the page on which it first was one of them, and what was
 * added stays when it ends. What it used after the last page is not in it.
 */
#ifndef SPIKEWATCH_EXPOSITION_TARGETS_H
#define SPIKEWATCH_EXPOSITION_TARGETS_H

#include "openmetrics.h"
#include "overview.h"

struct exposition_targets;

/* 0 or -ENOMEM. */
int exposition_targets_new(struct exposition_targets **ret);

/* NULL is fine. */
void exposition_targets_free(struct exposition_targets *targets);

/* Writes the families of targets. 0; -ENOMEM (nothing of it is counted twice next time); the first error of out. */
int exposition_targets_write(struct exposition_targets *targets, const struct overview *overview,
			     struct openmetrics *out);

#endif
