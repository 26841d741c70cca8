/*
 * incidentpick.h: the incident that somebody means by a word of the command line, explained on stderr if there is none.
 */
#ifndef SPIKEWATCH_INCIDENTPICK_H
#define SPIKEWATCH_INCIDENTPICK_H

#include "incidentload.h"

/* For a command that takes an incident: how its help explains what can be said. */
#define INCIDENTPICK_HELP \
	"ID is the name of an incident, its beginning, or any part of it that no other has;\n" \
	"\"last\" is the newest. What has a slash is the path of an incident's directory."

/* incidentload_directory, explained on stderr if it cannot be told. 0 or -errno. */
int incidentpick_directory(const char *command, const char *option, char *buf, size_t cap);

/* How many of names may not be opened, which is said on stderr if there are any: they belong to somebody else. */
size_t incidentpick_hidden(const char *command, int dirfd, const struct incidentload_names *names);

/* Positive return. */
enum { INCIDENTPICK_FOREIGN = 1 }; /* a directory, but no incident */

/*
 * Opens what query stands for: a path, if it has a slash or is ".", else an id in directory (the value of -d; NULL: as incidentload_directory
 * says). command: "spikewatch show", for messages. 0 and *ret, a descriptor to be closed; INCIDENTPICK_FOREIGN; -errno: none; -EBUSY: it is still
 * being written. Said on stderr already.
 */
int incidentpick(const char *command, const char *directory, const char *query, int *ret);

/* The same, also of one that is still being written; "last" never is. */
int incidentpick_any(const char *command, const char *directory, const char *query, int *ret);

#endif
