/*
 * crowd.h: the samples of the busiest of many targets, each as a series of its own: of incidents that hold all targets. Nothing in the
 * samples is trusted.
 */
#ifndef SPIKEWATCH_CROWD_H
#define SPIKEWATCH_CROWD_H

#include "clock.h"
#include "peaks.h"
#include "series.h"

#include <stddef.h>

/* More lines in one picture are hard to tell apart. */
#define CROWD_MAX 8

struct crowd_member {
	const struct peaks_target *target; /* belongs to the peaks that crowd_load was given */
	struct series series;
};

/* {0} is empty and legal. */
struct crowd {
	struct crowd_member member[CROWD_MAX];
	size_t count;
};

/*
 * Reads samples.tsv for the first of peaks (sorted), which must outlive *ret. fired: as in incident.json. 0, also if the file cannot be read
 * or not to its end; -ENOMEM. *ret is to be released.
 */
int crowd_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct crowd *ret);
void crowd_release(struct crowd *crowd);

#endif
