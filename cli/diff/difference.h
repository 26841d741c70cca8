/*
 * difference.h: two incidents side by side, or the two looks of one: functions, threads and mappings as contrasts, and what could not be
 * compared.
 */
#ifndef SPIKEWATCH_DIFFERENCE_H
#define SPIKEWATCH_DIFFERENCE_H

#include "contrast.h"
#include "incidentload.h"
#include "json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The tables, CPU first. */
enum difference_table {
	DIFFERENCE_FUNCTIONS,
	DIFFERENCE_STACK_THREADS,
	DIFFERENCE_MEMORY_FUNCTIONS,
	DIFFERENCE_MEMORY_THREADS,
	DIFFERENCE_THREADS,
	DIFFERENCE_MAPPINGS,
	DIFFERENCE_TABLES,
};

/* Of which time the stacks of two incidents are. */
enum difference_phase { DIFFERENCE_DURING, DIFFERENCE_BEFORE, DIFFERENCE_ALL, DIFFERENCE_PHASES };

#define DIFFERENCE_NOTES_MAX 16

/* Two incidents, or one of which side A is what was earlier. */
struct difference {
	bool one; /* incident[1] is not there */
	enum difference_phase phase;
	struct incident incident[CONTRAST_SIDES];
	struct contrast table[DIFFERENCE_TABLES];
	/* Sentences without a full stop, safe to print. */
	char note[DIFFERENCE_NOTES_MAX][320];
	size_t notes;
	bool damaged; /* something that should be there could not be read; a note says what */
};

/* How many rows of each table are wanted. */
#define DIFFERENCE_ROWS_ALL SIZE_MAX

/* "during", "before", "all". */
const char *difference_phase_name(enum difference_phase phase);

/* The bits of stackfold.h and contrastload.h for the stacks of a side. */
unsigned difference_phases(const struct difference *difference, enum contrast_side side);

/* "A" and "B"; of one incident "before" and "during" for tables of stacks, "first" and "second" for others. */
const char *difference_label(const struct difference *difference, enum difference_table table, enum contrast_side side);

/* Whether a table is of memory stacks. */
bool difference_of_memory(enum difference_table table);

/*
 * Reads both. second < 0: the two looks of the first. *ret was zeroed, but for phase. 0: what could not be read or is not there is in the notes;
 * -ENOMEM. To be released in any case. Large: not for the stack.
 */
int difference_load(int first, int second, struct difference *ret);
void difference_release(struct difference *difference);

/* Adds a note; damaged: it is bad news. text is made safe to print. */
void difference_note(struct difference *difference, bool damaged, const char *text);

/* Whether there is any table to show. */
bool difference_any(const struct difference *difference);

/* What the incident on that side is, in a line; of one, the second line says what is compared. Into *ret, for free(3). 0 or -ENOMEM. */
int difference_headline(const struct difference *difference, enum contrast_side side, char **ret);

/* difference_text.c: tables in lines of at most width characters (but no less than 40), of each at most so many rows. 0 or -ENOMEM. */
int difference_print(const struct difference *difference, bool memory_first, size_t rows, size_t width, FILE *file);

/* difference_json.c: members of the object that has begun. Errors stay in the writer. */
void difference_json(const struct difference *difference, size_t rows, struct json_writer *json);

#endif
