/*
 * incidentmade.h: an incident as the daemon writes it, made of a small story with the real writers,
 * for tests of its readers: 10 s before and 5 s after a burst of 300 ms on a target that is
 * limited to half a core and 256 MiB.
 */
#ifndef SPIKEWATCH_TESTS_INCIDENTMADE_H
#define SPIKEWATCH_TESTS_INCIDENTMADE_H

#include "lib/incident/incident.h"
#include "lib/base/base.h"
#include "lib/rules/metric.h"

#include <stddef.h>
#include <stdint.h>

/* 2026-11-20 03:15:02.123 UTC */
#define INCIDENTMADE_WALL ((wall_t){ UINT64_C(1795144502123000000) })
#define INCIDENTMADE_ID "20261120T031502.123Z-postgres_812-cpu-high-1"

/* What differs from the usual story. {0}: nothing does. */
struct incidentmade_options {
	const char *name;             /* of the directory; NULL: INCIDENTMADE_ID */
	const char *comm;             /* NULL: "postgres" */
	bool gap;                     /* ticks are missing from -6 s to -4 s */
	bool hole;                    /* the sampler took nothing from -6 s to -4.5 s; the next row is at -4 s */
	bool cut;                     /* the sampler took nothing from 2 s after the trigger on */
	bool gone;                    /* the target ends 3 s after the trigger */
	bool manual;                  /* no rule fired: it was asked for by hand, and once more while it was open */
	bool everything;              /* for all targets: a second one uses twice the CPU and four times the memory */
	const char *functions;        /* what is in functions.tsv; NULL: there is none */
	const char *memory_functions; /* what is in memory-functions.tsv; NULL: there is none */
	const char *metric;           /* of the rule; NULL: "cpu" */
};

/* Fills in what the story says. */
void incidentmade_fill(const struct incidentmade_options *options, struct incident *ret);

/*
 * Makes the directory below dirfd: incident.json, samples.tsv, threads.tsv, smaps.tsv, MANIFEST.
 * Asserts that all goes well.
 */
void incidentmade_write(int dirfd, const struct incidentmade_options *options);

/* A new directory below $TMPDIR or /tmp, for incidents. fd; its path is in path. */
int incidentmade_directory(char *path, size_t cap);

/* Removes a tree of plain files, links and directories, as far as two levels down. */
void incidentmade_remove(const char *path);

#endif
