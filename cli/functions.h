/*
 * functions.h: the hottest functions of an incident, before the spike and during it, and the threads that ran them:
 * from functions.tsv, of which nothing is trusted.
 */
#ifndef SPIKEWATCH_FUNCTIONS_H
#define SPIKEWATCH_FUNCTIONS_H

#include "hotlist.h"
#include "json.h"
#include "plot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FUNCTIONS_FILE "functions.tsv"

/* So many of each phase. */
#define FUNCTIONS_SHOWN 10

/* Longer names are cut. */
#define FUNCTIONS_NAME_MAX 256

/* Names are safe to print. */
struct functions_row {
	char function[FUNCTIONS_NAME_MAX];
	char module[FUNCTIONS_NAME_MAX]; /* a path, or "[kernel]"; "": not known */
	char thread[FUNCTIONS_NAME_MAX]; /* in which it was seen most; "": not known */
	int64_t tid;
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES]; /* samples */
	uint64_t self_ns;                                     /* during */
	uint64_t top_samples;                                 /* of the thread */
};

/* {0}: there are none. */
struct functions {
	bool there; /* the file could be read */
	uint64_t samples[HOTLIST_PHASES];
	/* The hottest during the spike; then those of the hottest before it that are not among them. */
	struct functions_row row[2 * FUNCTIONS_SHOWN];
	size_t count;
};

/* Always sets *ret. 0; -ENOMEM. */
int functions_load(int incidentfd, struct functions *ret);

/* Prints a table in lines of at most style->width characters (but no less than 70); nothing if there are none. */
void functions_print(const struct functions *functions, const struct plot_style *style, FILE *file);

/* The member "functions": null if there are none. Errors stay in the writer. */
void functions_json(const struct functions *functions, struct json_writer *json);

#endif
