/*
 * profiles.h: the stacks of an incident, of the CPU or of memory: as folded lines, and as the
 * hottest functions and busiest threads before the spike and during it. Nothing in the files is
 * trusted.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_PROFILES_H
#define SPIKEWATCH_CLI_INCIDENT_PROFILES_H

#include "cli/base/plot.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/incident/incident.h"
#include "lib/profile/pprof.h"
#include "lib/profile/stack_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- folded lines ---- */

/*
 * cpu.pb.gz or memory.pb.gz, whose samples have a phase; cpu.folded or memory.folded, whose do not.
 */
static inline const char *stack_fold_profile(bool memory)
{
	return memory ? "memory.pb.gz" : "cpu.pb.gz";
}

static inline const char *stack_fold_folded(bool memory)
{
	return memory ? "memory.folded" : "cpu.folded";
}

/*
 * Reads the profile. 0 and *ret: pprof_read_free; -ENOENT: there is no such file; -EBADMSG: damaged;
 * -EFBIG; -ENOMEM; -errno.
 */
int stack_fold_open(int incidentfd, bool memory, struct pprof_read **ret);

/* Among the phases: of the target's processes alone. */
#define STACK_FOLD_TARGET (1u << FUNCTION_TABLE_PHASES)

/*
 * Appends those of the profile, in samples or in bytes of memory. phases: bits of 1 <<
 * FUNCTION_TABLE_BEFORE, 1 << FUNCTION_TABLE_DURING and STACK_FOLD_TARGET. Returns as the above.
 */
int stack_fold_read(int incidentfd, bool memory, unsigned phases, struct buffer *ret);

/* Whether the sample is of a process that the incident is of, or does not say. */
bool stack_fold_is_target(const struct pprof_read_profile *profile, const struct pprof_read_sample *sample);

/* The phase of a sample of a profile. */
enum function_table_phase stack_fold_phase(const struct pprof_read_profile *profile,
					   const struct pprof_read_sample *sample);

/* Appends the folded file: all phases. Returns as the above. */
int stack_fold_read_folded(int incidentfd, bool memory, struct buffer *ret);

/* ---- functions and threads ---- */

/* In samples of the CPU; in bytes of memory. */
#define FUNCTIONS_FILE "functions.tsv"
#define FUNCTIONS_MEMORY_FILE "memory-functions.tsv"

/* Functions of each phase; other processes; threads. */
#define FUNCTIONS_SHOWN 10
#define FUNCTIONS_NEIGHBOURS_SHOWN 5
#define FUNCTIONS_THREADS_SHOWN 10
#define FUNCTIONS_INNER_SHOWN 8

/* Longer names are cut. */
#define FUNCTIONS_NAME_MAX 256

/* Lines are not made narrower. */
#define FUNCTIONS_WIDTH_MIN 40

/* A function, or a thread: that has no function. Names are safe to print. */
struct functions_row {
	char function[FUNCTIONS_NAME_MAX];
	char module[FUNCTIONS_NAME_MAX];  /* a path, "[kernel]", or FUNCTION_TABLE_NEIGHBOUR; "": not known */
	char thread[FUNCTIONS_NAME_MAX];  /* in which it was seen most; "": not known */
	char process[FUNCTIONS_NAME_MAX]; /* of the thread */
	bool neighbour;                   /* a process that the incident is not of, or a thread of one */
	int64_t tid, pid;
	uint64_t self[FUNCTION_TABLE_PHASES], total[FUNCTION_TABLE_PHASES]; /* in the unit */
	uint64_t self_ns, self_faults;                                      /* during; in samples, in bytes */
	uint64_t top_amount;                                                /* of the thread */
};

/* {0}: there are none. */
struct functions {
	bool there; /* the file could be read */
	enum function_table_unit unit;
	uint64_t sum[FUNCTION_TABLE_PHASES]; /* of all processes */
	uint64_t own[FUNCTION_TABLE_PHASES]; /* of those of the incident */
	/*
	 * The hottest during the spike; then those of the hottest before it that are not among
	 * them; then neighbours, the busiest during the spike first, those busier before it first
	 * among equals: however busy they are, they leave room for the functions of what the
	 * incident is of. Spikewatch's own processes are one neighbour, "spikewatch itself".
	 */
	struct functions_row row[2 * FUNCTIONS_SHOWN + FUNCTIONS_NEIGHBOURS_SHOWN];
	size_t count;
	/* The busiest during the spike, the busier before it first among equals; then neighbours'. */
	struct functions_row thread[FUNCTIONS_THREADS_SHOWN + FUNCTIONS_NEIGHBOURS_SHOWN];
	size_t thread_count;
	/*
	 * The innermost function with a telling name that was on at least half of the target's stacks during the
	 * spike, or the hottest if there is none; without the types of its arguments. No name: there are no
	 * functions. lead_run_time: it is code that was made at run time, which has no name.
	 */
	struct functions_row lead;
	bool lead_run_time;
	/* The innermost such functions, the lead first if it is one. */
	struct functions_row inner[FUNCTIONS_INNER_SHOWN];
	size_t inner_count;
	/* How much of the target ran without names during the spike, why, and what helps; "": little. Not of memory. */
	char advice[FUNCTIONS_NAME_MAX + 160];
	uint64_t other[FUNCTION_TABLE_PHASES];    /* of stacks for which there was no room */
	uint64_t no_stack[FUNCTION_TABLE_PHASES]; /* of what has no stack */
	uint64_t more_functions, more_threads;    /* left out of the file */
};

/*
 * The file of this unit. Always sets *ret; one of the other unit is as if it was not there. 0;
 * -ENOMEM.
 */
int functions_load(int incidentfd, enum function_table_unit unit, struct functions *ret);

/*
 * Prints a table of functions and one of threads in lines of at most style->width characters (but
 * no less than FUNCTIONS_WIDTH_MIN), and what was lost or left out, as they and the incident's
 * captures say; nothing if there are no functions.
 */
void functions_print(const struct functions *functions, const struct incident *incident, const struct plot_style *style,
		     FILE *file);

/*
 * Prints the target's functions that were hottest during the spike (of memory the innermost with
 * telling names that touched half of it), and its threads, at most so many of each, without what was
 * lost, and what would name those without names, if they are many; nothing if there are none.
 */
void functions_print_brief(const struct functions *functions, size_t rows, size_t threads,
			   const struct plot_style *style, FILE *file);

/*
 * The member "functions", or "memory_functions": null if there are none. Errors stay in the writer.
 */
void functions_json(const struct functions *functions, struct json_writer *json);

#endif
