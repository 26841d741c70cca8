/*
 * incident_load.h: finds and opens incidents: the times and names that a command line gives, lists
 * of directories, incidents that are still being written, a first look at one, its files. Nothing in
 * an incident is trusted: only regular files are opened, sizes are capped, links are not followed,
 * and what is damaged is read as far as it goes and reported.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_INCIDENT_LOAD_H
#define SPIKEWATCH_CLI_INCIDENT_INCIDENT_LOAD_H

#include "daemon/engine/base/paths.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * A moment as it is typed:
 *
 *	2h  90s  30d               so long ago
 *	now  today  yesterday      the latter two: midnight, local time
 *	2026-11-20                 midnight, local time
 *	2026-11-20T03:15           also with a space for the T, with :SS and a fraction; local time,
 *	2026-11-20T03:15:02.123Z   or with Z or +HH:MM after it
 *	20261120T031502.123Z       as in the name of an incident
 *
 * Local time is that of tzset(3). 0; -EINVAL: no such moment; -ERANGE: before 1970 or after 9999.
 */
int moment_parse(const char *text, wall_t now, wall_t *ret);

/* For an error message. */
#define MOMENT_EXPECTED "a time is \"2h\" (ago), \"yesterday\", \"2026-11-20\" or \"2026-11-20T03:15:02Z\""

/* Further directories are not listed. */
#define INCIDENT_LOAD_NAMES_MAX 100000

/* Room for the path of a directory. */
#define INCIDENT_LOAD_PATH_MAX 4096

/* Capture files are shown, not analysed: larger ones are cut. */
#define INCIDENT_LOAD_CAPTURE_MAX ((size_t)1 << 20)

/* Names of incidents, sorted, and so oldest first. {0} is empty and legal. */
struct incident_load_names {
	char (*name)[INCIDENT_NAME_MAX + 1];
	size_t count, cap;
	bool cut; /* there are more */
};

/* What a first look tells. */
struct incident_load_glance {
	bool open; /* still being written: there is no MANIFEST, and perhaps no samples, which is no damage */
	bool damaged;
	char why[160];  /* if damaged; printable */
	bool readable;  /* incident.json could be read */
	bool gone;      /* samples that it lacks were in another incident, which is not there: why says so */
	uint64_t bytes; /* of all files */
};

/* Positive returns. */
enum {
	INCIDENT_LOAD_NONE = 1, /* no incident matches */
	INCIDENT_LOAD_MANY = 2, /* more than one does */
};

/*
 * The directory to look into: option if not NULL, else $SPIKEWATCH_DIR, else
 * /var/lib/spikewatch/incidents if it can be read, else below $XDG_STATE_HOME or ~/.local/state.
 * Into buf. 0; -ENAMETOOLONG; -ENOENT: no home.
 */
int incident_load_directory(const char *option, char *buf, size_t cap);

/*
 * The directory of this user's own daemon: the last two of that. Into buf. 0; -ENAMETOOLONG;
 * -ENOENT: no home.
 */
int incident_load_own_directory(char *buf, size_t cap);

/* Where incidents may be. */
enum { INCIDENT_LOAD_PLACES_MAX = 2 };
struct incident_load_places {
	char path[INCIDENT_LOAD_PLACES_MAX][INCIDENT_LOAD_PATH_MAX];
	size_t count;
	bool hidden; /* the system's are not among them: there is no permission to see whether it has any */
};

/* What is said of those, behind the command's name. */
#define INCIDENT_LOAD_HIDDEN \
	"not looked into " PATHS_SYSTEM_INCIDENTS ": no permission; run it as root or as a member of the group " \
	"spikewatch\n"

/*
 * All directories to look into: that of option or $SPIKEWATCH_DIR alone; else the system's and this
 * user's own, as far as they are there, or, if neither is, that of incident_load_directory. Returns
 * as that.
 */
int incident_load_places(const char *option, struct incident_load_places *ret);

/* Directories that have the name of an incident. 0; -ENOMEM; -errno. *ret is to be released. */
int incident_load_list(int dirfd, struct incident_load_names *ret);
static inline void incident_load_names_release(struct incident_load_names *names)
{
	free(names->name);
	*names = (struct incident_load_names){ 0 };
}

/*
 * The one whose name is query, begins with it or contains it, in this order; "last": the newest. 0
 * and *ret (within names); INCIDENT_LOAD_NONE; INCIDENT_LOAD_MANY: *ret is the newest of them.
 */
int incident_load_find(const struct incident_load_names *names, const char *query, const char **ret);

/*
 * Opens an incident's directory; a link is not followed unless it is the last component of a path
 * with a slash. fd or -errno.
 */
int incident_load_open(int dirfd, const char *name);

/*
 * Reads incident.json, and compares the sizes (not the checksums) of the files with MANIFEST.
 * Always sets both; *ret_incident is empty if it was not readable, and without the capture
 * "samples" while it is being written. Where a capture names an incident that has what it lacks, and
 * that one is gone, its why ends with INCIDENT_LOAD_GONE.
 */
void incident_load_glance(int incidentfd, struct incident *ret_incident, struct incident_load_glance *ret);

/* Retention may have removed it, or this incident was copied without it. */
#define INCIDENT_LOAD_GONE ", which is not there"

/*
 * Whether what a capture lacks is in another incident, by its why, and whether that one is beside
 * this one.
 */
enum incident_load_rest { INCIDENT_REST_NOWHERE, INCIDENT_REST_THERE, INCIDENT_REST_GONE };
enum incident_load_rest incident_load_rest(int incidentfd, const struct incident_capture *capture);

/* Opens for reading, never blocking. fd; -EBADMSG: not a regular file; -errno. */
int incident_load_open_file(int incidentfd, const char *name);

/* Appends a whole file. 0; -EFBIG beyond buffer->max; -ENOMEM; as incident_load_open_file. */
int incident_load_whole(int incidentfd, const char *name, struct buffer *buffer);

/* Appends up to INCIDENT_LOAD_CAPTURE_MAX bytes. 0; -ENOMEM; as incident_load_open_file. */
int incident_load_capture(int incidentfd, const char *name, struct buffer *buffer);

/*
 * Unsealed incidents are still being written: their directories have a temporary name, and their
 * writer keeps them locked for as long as it runs (daemon/engine/incident/spool.h).
 */

/* Whether an open directory is that of one: it has incident.json, but no MANIFEST yet. */
bool unsealed_is_written(int incidentfd);

/* Opens one by the name that it will have. fd; -errno. */
int unsealed_open(int dirfd, const char *name);

/*
 * Calls visit with the name that each one will have. Until visit returns non-zero, which is
 * returned; 0; -errno.
 */
int unsealed_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx);

/* For the help of a command that takes an incident. */
#define INCIDENT_PICK_HELP \
	"ID is the name of an incident, or its beginning, or any part of it that no other has;\n" \
	"\"last\" is the newest. With a slash it is the path of an incident's directory."

/*
 * The directory in which query is, an id or "last": of incident_load_places the one that has the
 * newest incident that matches, which is said on stderr if there are two; the first if none does.
 * That the system's are hidden is said there, too, if one of them may be meant. Returns as
 * incident_load_directory; errors are explained on stderr.
 */
int incident_pick_place(const char *command, const char *option, const char *query, char *buf, size_t cap);

/* As incident_load_directory; errors are explained on stderr. */
int incident_pick_directory(const char *command, const char *option, char *buf, size_t cap);

/* How many of names may not be opened, for want of permission; explained on stderr. */
size_t incident_pick_hidden(const char *command, int dirfd, const struct incident_load_names *names);

/* Positive return of the next two. */
enum { INCIDENT_PICK_FOREIGN = 1 }; /* a directory, but no incident */

/*
 * Opens what query stands for: a path, if it has a slash or is ".", else an id in directory (the
 * value of -d; NULL: as incident_load_directory says). command: "spikewatch show", for messages. 0
 * and *ret, a descriptor to be closed; INCIDENT_PICK_FOREIGN; -errno: none; -EBUSY: it is still
 * being written. Errors are explained on stderr.
 */
int incident_pick(const char *command, const char *directory, const char *query, int *ret);

/* The same, also of one that is still being written; "last" never is. */
int incident_pick_any(const char *command, const char *directory, const char *query, int *ret);

#endif
