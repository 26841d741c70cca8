/* targetlabels.h: the labels by which the metrics of a target are found. */
#ifndef SPIKEWATCH_TARGETLABELS_H
#define SPIKEWATCH_TARGETLABELS_H

#include "labelnames.h"
#include "openmetrics.h"
#include "target.h"

/*
 * Appends the block of a target: target, entry, kind; of what is in a container container, and in a pod namespace and pod. Returns as
 * openmetrics_block.
 */
int targetlabels_put(const struct target *target, struct buffer *text);

/*
 * Appends, to the block of a target, those of its container's labels that have a name, with a comma in front. Nothing if it has none of them. Returns as
 * openmetrics_block.
 */
int targetlabels_put_labels(const struct labels *labels, const struct labelnames *names, struct buffer *text);

/* The block of the sum of an entry's other targets. */
int targetlabels_put_sum(const char *entry, struct buffer *text);

#endif
