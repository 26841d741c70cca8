/*
 * functions.h: what the stacks of an incident say: the hottest functions, before the spike and during it, and the
 * busiest threads, of the CPU (functions.tsv) or of memory (memory-functions.tsv). Nothing in the files is trusted.
 */
#ifndef SPIKEWATCH_FUNCTIONS_H
#define SPIKEWATCH_FUNCTIONS_H

#include "hotlist.h"
#include "incident.h"
#include "json.h"
#include "plot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* In samples of the CPU; in bytes of memory. */
#define FUNCTIONS_FILE "functions.tsv"
#define FUNCTIONS_MEMORY_FILE "memory-functions.tsv"

/* So many of each phase; so many other processes; and so many threads. */
#define FUNCTIONS_SHOWN 10
#define FUNCTIONS_NEIGHBOURS_SHOWN 5
#define FUNCTIONS_THREADS_SHOWN 10

/* Longer names are cut. */
#define FUNCTIONS_NAME_MAX 256

/* Narrower lines are not made narrower still. */
#define FUNCTIONS_WIDTH_MIN 40

/* A function, or a thread: that has no function and no module. Names are safe to print. */
struct functions_row {
	char function[FUNCTIONS_NAME_MAX];
	char module[FUNCTIONS_NAME_MAX];  /* a path, "[kernel]", or HOTLIST_NEIGHBOUR; "": not known */
	char thread[FUNCTIONS_NAME_MAX];  /* in which it was seen most; "": not known */
	char process[FUNCTIONS_NAME_MAX]; /* of the thread */
	bool neighbour;                   /* no function: a process of which the incident is not */
	int64_t tid, pid;
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES]; /* in the unit */
	uint64_t self_ns, self_faults;                        /* during; in samples, in bytes */
	uint64_t top_amount;                                  /* of the thread */
};

/* {0}: there are none. */
struct functions {
	bool there; /* the file could be read */
	enum hotlist_unit unit;
	uint64_t sum[HOTLIST_PHASES];
	/*
	 * The hottest during the spike; then those of the hottest before it that are not among them; then neighbours, the
	 * busiest during the spike first, those busier before it first among equals: however busy they are, they leave
	 * room for the functions of what the incident is of.
	 */
	struct functions_row row[2 * FUNCTIONS_SHOWN + FUNCTIONS_NEIGHBOURS_SHOWN];
	size_t count;
	/* The busiest during the spike, the busier before it first among equals. */
	struct functions_row thread[FUNCTIONS_THREADS_SHOWN];
	size_t thread_count;
	uint64_t other[HOTLIST_PHASES];        /* of stacks for which there was no room */
	uint64_t no_stack[HOTLIST_PHASES];     /* of what has no stack */
	uint64_t more_functions, more_threads; /* left out of the file */
};

/* The file of this unit. Always sets *ret; one of the other unit is as if it was not there. 0; -ENOMEM. */
int functions_load(int incidentfd, enum hotlist_unit unit, struct functions *ret);

/*
 * Prints a table of functions and one of threads in lines of at most style->width characters (but no less than
 * FUNCTIONS_WIDTH_MIN), and what was lost or left out, as they and the incident's captures say; nothing if there are no
 * functions.
 */
void functions_print(const struct functions *functions, const struct incident *incident, const struct plot_style *style,
		     FILE *file);

/* The member "functions", or "memory_functions": null if there are none. Errors stay in the writer. */
void functions_json(const struct functions *functions, struct json_writer *json);

#endif
