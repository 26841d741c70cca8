/*
 * privileges.h: what this process lacks of what the features of the configuration need, and what that switches off. Nothing of it
 * stops the rest.
 */
#ifndef SPIKEWATCH_PRIVILEGES_H
#define SPIKEWATCH_PRIVILEGES_H

#include "config.h"

#include <stddef.h>

#define PRIVILEGES_LACKS_MAX 8

/* Static texts. */
struct privileges_lack {
	const char *needs; /* "CAP_SYS_PTRACE", "LimitMEMLOCK=infinity" */
	const char *off;   /* what does not work without it */
};

struct privileges {
	struct privileges_lack lacks[PRIVILEGES_LACKS_MAX];
	size_t count;
};

/*
 * Asks the kernel what this process may do, and keeps its memory from being swapped out (mlockall(2)) if the configuration wants that
 * (ring.lock) and it may. Each lack that the log has not heard of before is said there, once: ret holds what was found before ({0}: nothing).
 */
void privileges_look(const struct config *config, struct privileges *ret);

#endif
