/*
 * stackfold.h: the stacks of an incident as folded lines, of those phases that are wanted: out of cpu.pb.gz or memory.pb.gz, whose samples say
 * when they were taken; else out of cpu.folded or memory.folded, which do not.
 */
#ifndef SPIKEWATCH_STACKFOLD_H
#define SPIKEWATCH_STACKFOLD_H

#include "sink.h"

#include <stdbool.h>

/* The files. */
const char *stackfold_profile(bool memory);
const char *stackfold_folded(bool memory);

/*
 * Appends those of the profile, in samples or in bytes of memory. phases: bits of 1 << HOTLIST_BEFORE and 1 << HOTLIST_DURING. 0; -ENOENT: there
 * is no such file; -EBADMSG: damaged; -EFBIG; -ENOMEM; -errno.
 */
int stackfold_read(int incidentfd, bool memory, unsigned phases, struct buffer *ret);

/* Appends the folded file: all phases. Returns as the above. */
int stackfold_read_folded(int incidentfd, bool memory, struct buffer *ret);

#endif
