/*
 * unwind.h: the user part of a sample's stack, by the unwinding tables of the files that are mapped, from its registers and the copy of its
 * stack; together with the chain that the kernel followed by frame pointers. x86-64; of anything else the kernel's chain is all there is.
 *
 * By the tables a function is found whether it keeps a frame pointer or not, as long as it is in a file that was handed over, is that one by
 * its build id, and has tables. In code without any (that of just-in-time compilers) the frame pointer is followed. Where that ends, too,
 * because nothing is known or the copy of the stack ends, what the kernel's chain, which has seen all of the stack, has beyond the last
 * function in common is appended; if they have none in common, it is whichever has more frames.
 */
#ifndef SPIKEWATCH_UNWIND_H
#define SPIKEWATCH_UNWIND_H

#include "addressspace.h"
#include "modules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_FRAMES_MAX 512

struct unwind {
	uint64_t addresses[UNWIND_FRAMES_MAX]; /* innermost first */
	bool exact[UNWIND_FRAMES_MAX];         /* is there, and does not return there */
	size_t count;
	size_t by_tables; /* of them: whose caller the tables told */
	bool cut;         /* the stack is deeper than its copy, and the last frame is not its first function */
};

/* Where to look. */
struct unwind_place {
	const struct addressspaces *spaces;
	struct modules *modules;
	uint32_t pid;
};

/*
 * chain: the user part of the kernel's, without marks, innermost first; its first address is exact. All of *ret is set. A function takes some
 * microseconds, and the first one of a file what reading its tables takes.
 */
void unwind_sample(const struct unwind_place *place, const struct perfrecord_format *format,
		   const struct perfrecord_sample *sample, const uint64_t *chain, size_t chain_len, struct unwind *ret);

#endif
