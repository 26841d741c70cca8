/*
 * elfframes.h: the unwinding tables of one ELF file (.eh_frame, and .debug_frame where there is debug information): where a function finds
 * its caller at each of its instructions. As elfnames.h, only in a program that may be killed by a file.
 */
#ifndef SPIKEWATCH_ELFFRAMES_H
#define SPIKEWATCH_ELFFRAMES_H

#include "elfnames.h"
#include "framestate.h"

struct elfframes;

enum elfframes_way {
	ELFFRAMES_CALLER, /* *state is the caller's */
	ELFFRAMES_INTERRUPTED, /* the same, and it did not call, but was interrupted by a signal: its program counter is exact */
	ELFFRAMES_OUTERMOST, /* there is no caller */
	ELFFRAMES_UNKNOWN, /* the tables do not say, or what they say needs what is not known; *state is as it was but for `beyond` */
};

/* names stays the caller's and must outlive it. 0; -ENOMEM; -ENOTSUP: not of x86-64. Tables are read when they are first needed. */
int elfframes_new(struct elfnames *names, struct elfframes **ret);

/* NULL is fine. */
void elfframes_free(struct elfframes *frames);

/*
 * From a function to its caller. address, in the file's own counting: where state's program counter is, or of a return address the byte
 * before it. Takes microseconds, and the first time what reading debug information takes if .eh_frame does not know the address.
 */
enum elfframes_way elfframes_step(struct elfframes *frames, uint64_t address, struct framestate *state);

#endif
