/* targetname.h: what a target is called that somebody asked for on a command line. */
#ifndef SPIKEWATCH_TARGETNAME_H
#define SPIKEWATCH_TARGETNAME_H

#include <stddef.h>
#include <stdint.h>

#define TARGETNAME_MAX 32

/*
 * "postgres-812" of a program's name or path, of which the first 20 bytes of the last part count, and its pid; pid 0: "postgres". What a name in a
 * configuration may not have becomes _. Always ends with NUL.
 */
void targetname_of(const char *program, int32_t pid, char ret[static TARGETNAME_MAX]);

#endif
