/*
 * rerun.h: rules, their variants and proposals for their thresholds over sources of samples, printed as they are found: what spikewatch
 * replay does once it knows what is wanted.
 */
#ifndef SPIKEWATCH_RERUN_H
#define SPIKEWATCH_RERUN_H

#include "config.h"
#include "metric.h"
#include "whatif.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All borrowed. */
struct rerun_request {
	const struct config *config;
	const struct whatif *whatif; /* variants of config */
	const char *as;              /* casting.h; or NULL */
	const char *directory;       /* of incidents, for their names */
	struct metric_machine machine;
	bool cores_are_told, memory_is_told; /* sources know no better */
	char **sources;                      /* what replaysource_open reads; it is read again if there are rates */
	size_t source_count;
	const double *rates; /* firings a day for which thresholds are proposed */
	size_t rate_count;
	bool json, summary;
};

/* Prints to standard output, and what is wrong to standard error. Returns the code to exit with. */
int rerun_all(const struct rerun_request *request);

#endif
