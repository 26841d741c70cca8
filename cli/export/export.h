/*
 * export.h: the files of an incident out of the page that spikewatch report has made of it, bit for
 * bit, as a directory again. Says on stdout what it did, and on stderr what is wrong.
 */
#ifndef SPIKEWATCH_CLI_EXPORT_EXPORT_H
#define SPIKEWATCH_CLI_EXPORT_EXPORT_H

#include "lib/base/io.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stdio.h>

/* exporting.h: an incident on its way out: what each of the forms is given. */

struct exporting {
	int fd; /* of the incident's directory */
	const struct incident *incident;
	FILE *out;        /* its errors are looked at by whoever made it */
	struct sink sink; /* the same */
	bool memory;      /* profiles: of memory, not of CPU */
};

/*
 * Positive return of all of them: the incident does not have what this form is made of; said on
 * stderr.
 */
enum { EXPORTING_NOTHING = 1 };

/* export_rows.h: the samples of an incident as tables for other programs. */

/*
 * A target that does not run has no row until its heartbeat, so what it used over a pause of
 * since_ns it used shortly before its end: over *ret_ns, which is interval_ns (of the sampler), or
 * as long as one core needs for cpu_ns. False: it ran all the time, as far as one can tell.
 */
bool export_rows_ran_ns(int64_t since_ns, uint64_t cpu_ns, uint64_t interval_ns, int64_t *ret_ns);

/* Is it a plain file: a page then, because incidents are directories. */
bool restore_is_page(const char *path);

/*
 * directory: to be made; NULL: called as the incident was, here. It gets its name when all files
 * are in it. One that is there already is refused. Returns the code to exit with: EXIT_OK;
 * EXIT_TROUBLE: something failed, or is damaged or missing, and everything else was restored;
 * EXIT_USAGE: no report. command: "spikewatch export", for messages.
 */
int restore_page(const char *command, const char *path, const char *directory);

#endif
