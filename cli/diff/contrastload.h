/*
 * contrastload.h: what an incident says of functions, threads and mappings, as one side of contrasts. Nothing in the files is trusted: names are
 * safe to print in the contrast.
 */
#ifndef SPIKEWATCH_CONTRASTLOAD_H
#define SPIKEWATCH_CONTRASTLOAD_H

#include "contrast.h"
#include "hotlist.h"

#include <stdbool.h>

/* Which samples of stacks: bits. */
#define CONTRASTLOAD_BEFORE (1u << HOTLIST_BEFORE)
#define CONTRASTLOAD_DURING (1u << HOTLIST_DURING)

/* Fractions of a percent of CPU, so that amounts are whole. */
#define CONTRASTLOAD_PERCENT 1000.0

/* Each: 0; -ENOENT: the file is not there, and nothing is known; -EBADMSG: it is damaged, or none of this kind; -ENOMEM; -errno. */

/*
 * functions.tsv, or memory-functions.tsv: functions by name and module, with self and total; threads by name and process, with what was sampled
 * in them. phases: bits. What has none in these phases is not there.
 */
int contrastload_functions(int incidentfd, enum hotlist_unit unit, enum contrast_side side, unsigned phases,
			   struct contrast *functions, struct contrast *threads);

/* threads.tsv or its second look: threads by name, with CPU (CONTRASTLOAD_PERCENT of them are one percent of a core), and how many there are. */
int contrastload_threads(int incidentfd, const char *file, enum contrast_side side, struct contrast *threads);

/* smaps.tsv or its second look: what is mapped, by name and permissions, of all processes together, with bytes resident and swapped. */
int contrastload_mappings(int incidentfd, const char *file, enum contrast_side side, struct contrast *mappings);

#endif
