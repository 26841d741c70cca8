/*
 * elflines.h: functions, inlined functions, files and lines of an address, out of DWARF: the half of elfnames.h that needs debug
 * information, and its only user.
 */
#ifndef SPIKEWATCH_ELFLINES_H
#define SPIKEWATCH_ELFLINES_H

#include <stddef.h>
#include <stdint.h>

struct Dwarf; /* libdw's */
struct elflines;

/* Texts belong to the debug information. */
struct elflines_frame {
	const char *linkage_name; /* as the linker has it; NULL: it has none, as in C */
	const char *name;         /* as in the source, without what it is in; NULL: not known */
	const char *file;         /* NULL: not known */
	uint32_t line;            /* 0: not known */
};

/* Reads where the units are. dwarf stays the caller's and must outlive it. 0 or -ENOMEM. */
int elflines_new(struct Dwarf *dwarf, struct elflines **ret);

/* NULL is fine. */
void elflines_free(struct elflines *lines);

/*
 * The functions at address, innermost first; how many, at most max (>= 2): of more, the innermost and the outermost. 0: there is no function
 * with debug information. Damaged debug information gives less, at last nothing.
 */
size_t elflines_find(struct elflines *lines, uint64_t address, struct elflines_frame *ret, size_t max);

#endif
