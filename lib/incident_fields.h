/*
 * incident_fields.h: the keys of incident.json as a table: where each is in struct incident and how it is written.
 * Writing and reading walk the same table (incident_json.c).
 */
#ifndef SPIKEWATCH_INCIDENT_FIELDS_H
#define SPIKEWATCH_INCIDENT_FIELDS_H

#include "incident.h"

#include <stdbool.h>
#include <stddef.h>

enum incident_field_type {
	INCIDENT_TEXT, /* an array of char */
	INCIDENT_FLAG, /* bool */
	INCIDENT_U32,
	INCIDENT_U64,
	INCIDENT_LIMIT, /* uint64_t; UINT64_MAX is null */
	INCIDENT_I32,
	INCIDENT_I64,
	INCIDENT_REAL, /* double */
	INCIDENT_NAME, /* an enumeration */
};

#define INCIDENT_ALWAYS SIZE_MAX
#define INCIDENT_NAMES_MAX 8 /* no enumeration here has more values */

struct incident_field {
	const char *key;
	enum incident_field_type type;
	size_t offset; /* in the struct of its part */
	size_t room;   /* TEXT: bytes, the NUL included */
	size_t has;    /* offset of the bool without which there is no value; INCIDENT_ALWAYS: none */
	bool sparse;   /* without a value (TEXT: if it is "") there is no key either; else it is null */
	const char *(*name)(unsigned value); /* NAME: the word for a value, NULL beyond them */
};

/* The objects of the file. All but the last two are parts of struct incident. */
enum incident_part {
	INCIDENT_PART_TOP, /* keys of the outermost object */
	INCIDENT_PART_TIME,
	INCIDENT_PART_RULE, /* from here to MACHINE there is nothing in the object but what the table says */
	INCIDENT_PART_TARGET,
	INCIDENT_PART_CONTAINER, /* not there without one */
	INCIDENT_PART_UNIT,      /* not there without one */
	INCIDENT_PART_LIMITS,
	INCIDENT_PART_COVERAGE,
	INCIDENT_PART_PEAKS,
	INCIDENT_PART_COST,
	INCIDENT_PART_MACHINE,
	INCIDENT_PART_FIRING,  /* an item of "merged": struct incident_firing */
	INCIDENT_PART_CAPTURE, /* an item of "captures": struct incident_capture */
};

struct incident_fields {
	const char *key; /* of the object; NULL if it is the outermost or an item of a list */
	const struct incident_field *fields;
	size_t count;
	size_t has; /* offset of the bool without which there is no such object; INCIDENT_ALWAYS: none */
};

/* Static; never NULL. */
const struct incident_fields *incident_fields(enum incident_part part);

#endif
