/*
 * strays.h: what commands have left in the directory of an incident before it is sealed. Files that can be sealed belong to it; what
 * cannot be (directories, links, names that a manifest does not have) and what is too much is removed, and the incident says so.
 */
#ifndef SPIKEWATCH_STRAYS_H
#define SPIKEWATCH_STRAYS_H

#include "incident.h"

#include <stdint.h>

/* So many files of commands are kept: the smallest. */
#define STRAYS_MAX 16

/*
 * Adds each file that is none of the captures of the incident to them, as INCIDENT_LEFT_FILE, the smallest first, as long as all of them
 * have at most max_bytes; removes the others. A capture whose file is gone or is no file any more has failed. 0; -ENOMEM; -errno: something
 * could not be removed, and the directory cannot be sealed.
 */
int strays_settle(int dirfd, uint64_t max_bytes, struct incident *incident);

#endif
