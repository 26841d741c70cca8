/*
 * unwind.h: the user part of a sample's stack, by the unwinding tables of the files that are
 * mapped, from its registers and the copy of its stack; together with the chain that the kernel
 * followed by frame pointers. x86-64; of anything else the kernel's chain is all there is.
 *
 * By the tables a function is found whether it keeps a frame pointer or not, as long as it is in a
 * file that was handed over, is that one by its build id, and has tables. In code without any (that
 * of just-in-time compilers) the frame pointer is followed. Where that ends, too, because nothing
 * is known or the copy of the stack ends, what the kernel's chain, which has seen all of the stack,
 * has beyond the last function in common is appended; if they have none in common, it is whichever
 * has more frames.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_UNWIND_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_UNWIND_H

#include "daemon/symbolize/symbols.h"
#include "daemon/symbolize/address_space.h"
#include "lib/proc/perf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_names;

/*
 * frame_state.h: a thread's registers and a copy of its stack, as a sample has them, on the way
 * from a function to its caller. x86-64 only; registers are numbered as DWARF does (System V ABI,
 * AMD64 supplement, figure 3.36).
 */

enum {
	FRAME_STATE_BP = 6,
	FRAME_STATE_SP = 7,
	FRAME_STATE_PC = 16, /* "return address" */
	FRAME_STATE_REGISTERS,
};

struct frame_state {
	uint64_t registers[FRAME_STATE_REGISTERS];
	uint32_t known; /* a bit for each register */
	const uint8_t *stack;
	uint64_t stack_start; /* the address of its first byte */
	size_t stack_bytes;
	bool beyond; /* something was wanted from beyond the end of the copy: the stack is deeper */
};

/*
 * To the caller, by the chain of frame pointers. False: there is none, or it makes no sense;
 * nothing but `beyond` has changed. After it only stack pointer, frame pointer and program counter
 * are known.
 */
bool frame_state_follow_bp(struct frame_state *state);

/*
 * elf_frames.h: the unwinding tables of one ELF file (.eh_frame, and .debug_frame where there is
 * debug information): where a function finds its caller at each of its instructions. As
 * elf_names.h, only in a program that may be killed by a file.
 */

struct elf_frames;

enum elf_frames_way {
	ELF_FRAMES_CALLER, /* *state is the caller's */
	/*
	 * the same, and it did not call, but was interrupted by a signal: its program counter is
	 * exact
	 */
	ELF_FRAMES_INTERRUPTED,
	ELF_FRAMES_OUTERMOST, /* there is no caller */
	/*
	 * the tables do not say, or what they say needs what is not known; *state is as it was but
	 * for `beyond`
	 */
	ELF_FRAMES_UNKNOWN,
};

/*
 * names stays the caller's and must outlive it. 0; -ENOMEM; -ENOTSUP: not of x86-64. Tables are
 * read when they are first needed.
 */
int elf_frames_new(struct elf_names *names, struct elf_frames **ret);

/* NULL is fine. */
void elf_frames_free(struct elf_frames *frames);

/*
 * From a function to its caller. address, in the file's own counting: where state's program counter
 * is, or of a return address the byte before it. Takes microseconds, and the first time what
 * reading debug information takes if .eh_frame does not know the address.
 */
enum elf_frames_way elf_frames_step(struct elf_frames *frames, uint64_t address, struct frame_state *state);

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
	const struct address_spaces *spaces;
	struct modules *modules;
	uint32_t pid;
};

/*
 * chain: the user part of the kernel's, without marks, innermost first; its first address is exact.
 * All of *ret is set. A function takes some microseconds, and the first one of a file what reading
 * its tables takes.
 */
void unwind_sample(const struct unwind_place *place, const struct perf_record_format *format,
		   const struct perf_record_sample *sample, const uint64_t *chain, size_t chain_len,
		   struct unwind *ret);

#endif
