/*
 * containerfiles.h: what the runtimes have on disk about a container, found below a root: "/", or where a daemon in a container has its host's
 * mounted. Small files, opened, read and closed; symbolic links lead nowhere outside of the root.
 */
#ifndef SPIKEWATCH_CONTAINERFILES_H
#define SPIKEWATCH_CONTAINERFILES_H

#include "container.h"
#include "containerpath.h"

enum containerfiles_result {
	CONTAINERFILES_READ,   /* it has names */
	CONTAINERFILES_ABSENT, /* it may still be written: the runtime has a place for it, but there is nothing */
	CONTAINERFILES_CLOSED, /* nothing can be read: no such runtime here, or no permission */
	CONTAINERFILES_OTHER,  /* it is no container after all: a virtual machine */
};

struct containerfiles;

/* root: "/", or where the host's is; if it is not there, nothing is found. 0 or -ENOMEM. */
int containerfiles_new(const char *root, struct containerfiles **ret);

/* Why root could not be opened: -errno. 0: it was. */
int containerfiles_error(const struct containerfiles *files);

/* NULL is fine. */
void containerfiles_free(struct containerfiles *files);

/*
 * Fills in *ret, whose id, runtime and name are set if the path has told them. A runtime that is UNKNOWN is settled by where something was found.
 * files NULL: nothing is looked for. Costs some dozen system calls, and reading the files that there are; a list of all containers is read again only
 * when it is another file.
 */
enum containerfiles_result containerfiles_read(struct containerfiles *files, const struct containerpath *where,
					       struct container *ret);

#endif
