/*
 * containerfiles.h: what the runtimes have on disk about a container, found below a root: "/", or where a daemon in a container has its host's
 * mounted. Small files, opened, read and closed; symbolic links lead nowhere outside of the root.
 */
#ifndef SPIKEWATCH_CONTAINERFILES_H
#define SPIKEWATCH_CONTAINERFILES_H

#include "container.h"
#include "containerpath.h"

#include <stdbool.h>
#include <stdint.h>

enum containerfiles_result {
	CONTAINERFILES_READ,   /* it has names */
	CONTAINERFILES_ABSENT, /* it may still be written: the runtime has a place for it, but there is nothing */
	CONTAINERFILES_CLOSED, /* nothing can be read: no such runtime here, or no permission */
	CONTAINERFILES_OTHER,  /* it is no container after all: a virtual machine */
};

/* The file that a name was read from, as it was then. {0}: none, or none that changes. */
struct containerfiles_source {
	unsigned place; /* a number of containerfiles.c's */
	char space[CONTAINER_SPACE_MAX + 1];
	uint64_t stamp;
};

/* What there is beside names. */
struct containerfiles_more {
	struct labels labels;
	bool labelled; /* these are its labels, and its pod's; else they cannot be read, or are nowhere */
	int error; /* not labelled: why what would have them could not be read, -errno; 0: there is nothing that would */
	struct containerfiles_source source;
};

struct containerfiles;

/* root: "/", or where the host's is; if it is not there, nothing is found. 0 or -ENOMEM. */
int containerfiles_new(const char *root, struct containerfiles **ret);

/* Why root could not be opened: -errno. 0: it was. */
int containerfiles_error(const struct containerfiles *files);

/* NULL is fine. */
void containerfiles_free(struct containerfiles *files);

/*
 * Fills in *ret, whose id, runtime and name are set if the path has told them, and *more. A runtime that is UNKNOWN is settled by where something was found.
 * files NULL: nothing is looked for. Costs some dozen system calls, and reading the files that there are; a list of all containers is read again only
 * when it is another file.
 */
enum containerfiles_result containerfiles_read(struct containerfiles *files, const struct containerpath *where,
					       struct container *ret, struct containerfiles_more *more);

/* Whether the source of the names of the container of that id is another file by now. Two or three system calls. */
bool containerfiles_changed(const struct containerfiles *files, const char *id,
			    const struct containerfiles_source *source);

#endif
