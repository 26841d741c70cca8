/*
 * incidentload.h: finds incidents and reads them. Nothing in an incident is trusted: files that are no plain files are not
 * opened for reading, sizes are capped, links are not followed, and what is damaged is read as far as it goes and reported.
 */
#ifndef SPIKEWATCH_INCIDENTLOAD_H
#define SPIKEWATCH_INCIDENTLOAD_H

#include "incident.h"
#include "peaks.h"
#include "salvage.h"
#include "series.h"
#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More directories than that are not listed. */
#define INCIDENTLOAD_NAMES_MAX 100000

/* Room for the path of a directory. */
#define INCIDENTLOAD_PATH_MAX 4096

/* Capture files are shown, not analysed: larger ones are cut. */
#define INCIDENTLOAD_CAPTURE_MAX ((size_t)1 << 20)

/* No incident has so many bytes of samples; a sparse file of terabytes may pretend to. */
#define INCIDENTLOAD_SAMPLES_MAX ((uint64_t)1 << 30)

/* Names of incidents, sorted, and so oldest first. {0} is empty and legal. */
struct incidentload_names {
	char (*name)[INCIDENT_NAME_MAX + 1];
	size_t count, cap;
	bool cut; /* there are more */
};

/* What a quick look tells. */
struct incidentload_glance {
	bool open; /* still being written: there is no MANIFEST, and perhaps no samples; never damaged for that */
	bool damaged;
	char why[160];  /* if damaged; printable */
	bool readable;  /* incident.json could be read */
	uint64_t bytes; /* of all files */
};

/* Positive returns. */
enum {
	INCIDENTLOAD_NONE = 1, /* no incident is called so */
	INCIDENTLOAD_MANY = 2, /* more than one is */
};

/* What happened to the samples on their way. */
struct incidentload_samples {
	int error;                    /* 0, or -errno of opening and reading: there are none */
	struct salvage_report report; /* if error is 0 */
	struct series series;         /* of the target with the first row; times since the firing */
	struct peaks peaks;           /* of all targets, sorted */
	uint64_t outside;             /* rows of absurd times, dropped */
	bool cut;                     /* there are more than SERIES_POINTS_MAX */
	bool gone;                    /* a GONE note */
	bool unfinished; /* the incident is still being written: what is missing is not lost. Whoever knows sets it */
};

/*
 * The directory to look into: option if not NULL, else $SPIKEWATCH_DIR, else /var/lib/spikewatch/incidents if it can be
 * read, else below $XDG_STATE_HOME or ~/.local/state. Into buf. 0; -ENAMETOOLONG; -ENOENT: no home.
 */
int incidentload_directory(const char *option, char *buf, size_t cap);

/* Where this user's own daemon writes them: the last two of that. Into buf. 0; -ENAMETOOLONG; -ENOENT: no home. */
int incidentload_own_directory(char *buf, size_t cap);

/* Lists directories that have the name of an incident. 0; -ENOMEM; -errno. *ret is to be released. */
int incidentload_list(int dirfd, struct incidentload_names *ret);
void incidentload_names_release(struct incidentload_names *names);

/*
 * The one that is called query, begins with it or holds it, in this order; "last": the newest. 0 and *ret (within names);
 * INCIDENTLOAD_NONE; INCIDENTLOAD_MANY: *ret is the newest of them.
 */
int incidentload_find(const struct incidentload_names *names, const char *query, const char **ret);

/* Opens an incident's directory; a link is not followed unless it is the last component of a path with a slash. fd or -errno. */
int incidentload_open(int dirfd, const char *name);

/*
 * Reads incident.json, and compares the sizes (not the checksums) of the files with MANIFEST. Always sets both; *ret_incident is all
 * unknown if it was not readable. Of one that is open it leaves out what was noted of samples for the case that its writer is killed.
 */
void incidentload_glance(int incidentfd, struct incident *ret_incident, struct incidentload_glance *ret);

/* Reads samples.tsv. fired: of incident.json. 0 (see ret->error); -ENOMEM. *ret is to be released. */
int incidentload_samples(int incidentfd, wall_t fired, struct incidentload_samples *ret);
void incidentload_samples_release(struct incidentload_samples *samples);

/* Opens a plain file for reading, never blocking. fd; -EBADMSG: something else than a plain file; -errno. */
int incidentload_open_file(int incidentfd, const char *name);

/* Appends the whole of a plain file. 0; -EFBIG beyond buffer->max; -ENOMEM; as incidentload_open_file. */
int incidentload_whole(int incidentfd, const char *name, struct buffer *buffer);

/* Appends a capture's text, up to INCIDENTLOAD_CAPTURE_MAX. 0; -ENOMEM; as incidentload_open_file. */
int incidentload_capture(int incidentfd, const char *name, struct buffer *buffer);

#endif
