/* exporting.h: an incident on its way out: what each of the forms is given. */
#ifndef SPIKEWATCH_EXPORTING_H
#define SPIKEWATCH_EXPORTING_H

#include "incident.h"
#include "sink.h"

#include <stdbool.h>
#include <stdio.h>

struct exporting {
	int fd; /* of the incident's directory */
	const struct incident *incident;
	FILE *out;        /* its errors are looked at by whoever made it */
	struct sink sink; /* the same */
	bool memory;      /* profiles: of memory, not of CPU */
};

/* Positive return of all of them: the incident does not have what this form is made of; said on stderr. */
enum { EXPORTING_NOTHING = 1 };

#endif
