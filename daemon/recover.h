/*
 * recover.h: what a daemon that was killed left in its ring becomes an incident before the ring is replaced.
 */
#ifndef SPIKEWATCH_RECOVER_H
#define SPIKEWATCH_RECOVER_H

#include "config.h"
#include "spool.h"

/*
 * Looks at the ring file. If there is one whose writer did not say goodbye, its last `before` window, all targets, is sealed as an incident
 * of kind "recovered", and the file is removed. Nobody else may have the ring. Logs what it did; never stops the start: a ring that cannot
 * be read is set aside under its name with ".damaged".
 */
void recover_ring(const char *path, const struct config *config, struct spool *spool);

#endif
