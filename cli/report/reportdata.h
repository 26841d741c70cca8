/*
 * reportdata.h: what the page of a report draws, as one JSON object: docs/report.md describes it. What is in the embedded files (tables, stacks)
 * is not said twice.
 */
#ifndef SPIKEWATCH_REPORTDATA_H
#define SPIKEWATCH_REPORTDATA_H

#include "sink.h"
#include "view.h"

#include <stddef.h>
#include <stdint.h>

#define REPORTDATA_FORMAT 1

/* No line has more points: what lies closer together is one, with its highest value. */
#define REPORTDATA_POINTS_MAX 6000

/* A file of the incident that the report does not hold. */
struct reportdata_absent {
	char name[64];
	uint64_t bytes;
	char why[96]; /* printable */
};

#define REPORTDATA_ABSENT_MAX 64

struct reportdata_files {
	struct reportdata_absent absent[REPORTDATA_ABSENT_MAX];
	size_t absent_count;
};

/* view: loaded from incidentfd. No "<" is written. 0; -ENOMEM; what the sink returned. */
int reportdata_write(const struct view *view, int incidentfd, const struct reportdata_files *files,
		     const struct sink *sink);

/* The words of show about it, into *ret, for free(3). 0 or -ENOMEM. */
int reportdata_words(const struct view *view, char **ret);

#endif
