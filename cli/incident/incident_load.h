/*
 * incident_load.h: the incident that somebody means by a word of the command line, explained on
 * stderr if there is none.
 */
#ifndef SPIKEWATCH_CLI_INCIDENT_INCIDENT_LOAD_H
#define SPIKEWATCH_CLI_INCIDENT_INCIDENT_LOAD_H

#include "cli/incident/series.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * moment.h: moments as people type them.
 *
 *	2h  90s  30d               so long ago
 *	now  today  yesterday      the latter two: midnight, local time
 *	2026-11-20                 midnight, local time
 *	2026-11-20T03:15           also with a space for the T, with :SS and a fraction; local time,
 *	2026-11-20T03:15:02.123Z   or behind it Z or +HH:MM
 *	20261120T031502.123Z       as in the name of an incident
 */

/* What to say of a text that is none. */
#define MOMENT_EXPECTED "a time is \"2h\" (ago), \"yesterday\", \"2026-11-20\" or \"2026-11-20T03:15:02Z\""

/*
 * Local time is that of tzset(3). 0; -EINVAL: no such moment; -ERANGE: before 1970 or after 9999.
 */
int moment_parse(const char *text, wall_t now, wall_t *ret);

/*
 * incident_load.h: finds incidents and reads them. Nothing in an incident is trusted: files that
 * are no plain files are not opened for reading, sizes are capped, links are not followed, and what
 * is damaged is read as far as it goes and reported.
 */

/* More directories than that are not listed. */
#define INCIDENT_LOAD_NAMES_MAX 100000

/* Room for the path of a directory. */
#define INCIDENT_LOAD_PATH_MAX 4096

/* Capture files are shown, not analysed: larger ones are cut. */
#define INCIDENT_LOAD_CAPTURE_MAX ((size_t)1 << 20)

/* No incident has so many bytes of samples; a sparse file of terabytes may pretend to. */
#define INCIDENT_LOAD_SAMPLES_MAX ((uint64_t)1 << 30)

/* Names of incidents, sorted, and so oldest first. {0} is empty and legal. */
struct incident_load_names {
	char (*name)[INCIDENT_NAME_MAX + 1];
	size_t count, cap;
	bool cut; /* there are more */
};

/* What a quick look tells. */
struct incident_load_glance {
	bool open; /* still being written: there is no MANIFEST, and perhaps no samples; never damaged for that */
	bool damaged;
	char why[160];  /* if damaged; printable */
	bool readable;  /* incident.json could be read */
	uint64_t bytes; /* of all files */
};

/* Positive returns. */
enum {
	INCIDENT_LOAD_NONE = 1, /* no incident is called so */
	INCIDENT_LOAD_MANY = 2, /* more than one is */
};

/* What happened to the samples on their way. */
struct incident_load_samples {
	int error;                          /* 0, or -errno of opening and reading: there are none */
	struct stream_reader_report report; /* if error is 0 */
	struct series series;               /* of the target with the first row; times since the firing */
	struct peaks peaks;                 /* of all targets, sorted */
	uint64_t unlocked_section;          /* rows of absurd times, dropped */
	bool cut;                           /* there are more than SERIES_POINTS_MAX */
	bool gone;                          /* a GONE note */
	bool unfinished; /* the incident is still being written: what is missing is not lost. Whoever knows sets it */
};

/*
 * The directory to look into: option if not NULL, else $SPIKEWATCH_DIR, else
 * /var/lib/spikewatch/incidents if it can be read, else below $XDG_STATE_HOME or ~/.local/state.
 * Into buf. 0; -ENAMETOOLONG; -ENOENT: no home.
 */
int incident_load_directory(const char *option, char *buf, size_t cap);

/*
 * Where this user's own daemon writes them: the last two of that. Into buf. 0; -ENAMETOOLONG;
 * -ENOENT: no home.
 */
int incident_load_own_directory(char *buf, size_t cap);

/*
 * Lists directories that have the name of an incident. 0; -ENOMEM; -errno. *ret is to be released.
 */
int incident_load_list(int dirfd, struct incident_load_names *ret);
void incident_load_names_release(struct incident_load_names *names);

/*
 * The one that is called query, begins with it or holds it, in this order; "last": the newest. 0
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
 * Always sets both; *ret_incident is all unknown if it was not readable. Of one that is open it
 * leaves out what was noted of samples for the case that its writer is killed.
 */
void incident_load_glance(int incidentfd, struct incident *ret_incident, struct incident_load_glance *ret);

/*
 * Reads samples.tsv. fired: of incident.json. 0 (see ret->error); -ENOMEM. *ret is to be released.
 */
int incident_load_samples(int incidentfd, wall_t fired, struct incident_load_samples *ret);
void incident_load_samples_release(struct incident_load_samples *samples);

/*
 * Opens a plain file for reading, never blocking. fd; -EBADMSG: something else than a plain file;
 * -errno.
 */
int incident_load_open_file(int incidentfd, const char *name);

/*
 * Appends the whole of a plain file. 0; -EFBIG beyond buffer->max; -ENOMEM; as
 * incident_load_open_file.
 */
int incident_load_whole(int incidentfd, const char *name, struct buffer *buffer);

/*
 * Appends a capture's text, up to INCIDENT_LOAD_CAPTURE_MAX. 0; -ENOMEM; as
 * incident_load_open_file.
 */
int incident_load_capture(int incidentfd, const char *name, struct buffer *buffer);

/*
 * incident_filter.h: which incidents a list is about: those of a time, a target, a rule; the newest
 * of them.
 */

/* {0} lets all pass. */
struct incident_filter {
	wall_t since, until; /* [since, until); 0: no such bound. Of the firing, to the millisecond */
	const char *target;  /* wildcards (fnmatch(3)); of its name, or of its entry in the configuration */
	const char *rule;    /* wildcards; of the rule, or "manual", "recovered" */
	size_t limit;        /* the newest so many; 0: no limit */
};

/* Does what is known by the name alone pass? If not, there is no need to read the incident. */
bool incident_filter_name(const struct incident_filter *filter, const char *name);

/*
 * Does the rest pass? An incident that cannot be read passes where nothing of its content is asked
 * for.
 */
bool incident_filter_content(const struct incident_filter *filter, const struct incident *incident);

/*
 * Moves the names that pass to the front of names, in their order, and drops the others. Incidents
 * are read only if target or rule is asked for, the newest first and no more than it takes for
 * limit. Those that are gone meanwhile do not pass.
 */
void incident_filter_apply(const struct incident_filter *filter, int dirfd, struct incident_load_names *names);

/*
 * unsealed.h: incidents that are still being written. Their directories have a name of their own
 * until they are sealed, and their writer keeps them locked for as long as it lives
 * (daemon/incident/spool_directory.h).
 */

/*
 * Whether an open directory is that of an incident that is being written right now: it says what
 * fired, but has no MANIFEST yet.
 */
bool unsealed_is_written(int incidentfd);

/* Opens the directory of one by the name that it will have. fd; -errno. */
int unsealed_open(int dirfd, const char *name);

/*
 * Calls visit with the name that each one will have. Until visit returns non-zero, which is
 * returned; 0; -errno.
 */
int unsealed_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx);

/* For a command that takes an incident: how its help explains what can be said. */
#define INCIDENT_PICK_HELP \
	"ID is the name of an incident, its beginning, or any part of it that no other has;\n" \
	"\"last\" is the newest. What has a slash is the path of an incident's directory."

/* incident_load_directory, explained on stderr if it cannot be told. 0 or -errno. */
int incident_pick_directory(const char *command, const char *option, char *buf, size_t cap);

/*
 * How many of names may not be opened, which is said on stderr if there are any: they belong to
 * somebody else.
 */
size_t incident_pick_hidden(const char *command, int dirfd, const struct incident_load_names *names);

/* Positive return. */
enum { INCIDENT_PICK_FOREIGN = 1 }; /* a directory, but no incident */

/*
 * Opens what query stands for: a path, if it has a slash or is ".", else an id in directory (the
 * value of -d; NULL: as incident_load_directory says). command: "spikewatch show", for messages. 0
 * and *ret, a descriptor to be closed; INCIDENT_PICK_FOREIGN; -errno: none; -EBUSY: it is still
 * being written. Said on stderr already.
 */
int incident_pick(const char *command, const char *directory, const char *query, int *ret);

/* The same, also of one that is still being written; "last" never is. */
int incident_pick_any(const char *command, const char *directory, const char *query, int *ret);

#endif
