/*
 * unsealed.h: incidents that are still being written. Their directories have a name of their own until they are sealed, and their writer keeps
 * them locked for as long as it lives (daemon/incident/spooldir.h).
 */
#ifndef SPIKEWATCH_UNSEALED_H
#define SPIKEWATCH_UNSEALED_H

#include <stdbool.h>

/* Whether an open directory is that of an incident that is being written right now: it says what fired, but has no MANIFEST yet. */
bool unsealed_is_written(int incidentfd);

/* Opens the directory of one by the name that it will have. fd; -errno. */
int unsealed_open(int dirfd, const char *name);

/* Calls visit with the name that each one will have. Until visit returns non-zero, which is returned; 0; -errno. */
int unsealed_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx);

#endif
