/*
 * unwind.h: the user part of a sample's stack, from its registers and the copy of its stack by the
 * unwinding tables of the mapped files, together with the chain that the kernel followed by frame
 * pointers. x86-64; elsewhere the kernel's chain is all there is.
 *
 * The tables find a caller whether the function keeps a frame pointer or not, if its file was
 * handed over, is the one that was mapped, and has tables. In code without any (that of
 * just-in-time compilers) the frame pointer is followed. Where that or the copy of the stack ends,
 * the frames of the kernel's chain beyond the last common function are appended; if there is none
 * in common, the one with more frames is taken.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_UNWIND_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_UNWIND_H

#include "daemon/symbolize/address_space.h"
#include "daemon/symbolize/symbols.h"
#include "lib/proc/perf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_FRAMES_MAX 512

struct unwind {
	uint64_t addresses[UNWIND_FRAMES_MAX]; /* innermost first */
	bool exact[UNWIND_FRAMES_MAX];         /* executed there; else a return address */
	size_t count;
	size_t by_tables; /* of them: whose caller was found by tables */
	bool cut;         /* the stack is deeper than its copy, and the last frame is not its first function */
};

/* The process to look in. */
struct unwind_place {
	const struct address_spaces *spaces;
	struct modules *modules;
	uint32_t pid;
};

/*
 * chain: the user part of the kernel's, without marks, innermost first; its first address is exact.
 * All of *ret is set. A function takes some microseconds, and the first one of a file the time to
 * read its tables.
 */
void unwind_sample(const struct unwind_place *place, const struct perf_record_format *format,
		   const struct perf_record_sample *sample, const uint64_t *chain, size_t chain_len,
		   struct unwind *ret);

#endif
