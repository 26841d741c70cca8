/*
 * framestate.h: a thread's registers and a copy of its stack, as a sample has them, on the way from a function to its caller. x86-64 only;
 * registers are numbered as DWARF does (System V ABI, AMD64 supplement, figure 3.36).
 */
#ifndef SPIKEWATCH_FRAMESTATE_H
#define SPIKEWATCH_FRAMESTATE_H

#include "perfrecord.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FRAMESTATE_BP = 6,
	FRAMESTATE_SP = 7,
	FRAMESTATE_PC = 16, /* "return address" */
	FRAMESTATE_REGISTERS,
};

struct framestate {
	uint64_t registers[FRAMESTATE_REGISTERS];
	uint32_t known; /* a bit for each register */
	const uint8_t *stack;
	uint64_t stack_start; /* the address of its first byte */
	size_t stack_bytes;
	bool beyond; /* something was wanted from beyond the end of the copy: the stack is deeper */
};

/* From a sample, which must outlive it. False: has no registers of a 64 bit program and its stack, or is not of x86-64. */
bool framestate_init(struct framestate *state, const struct perfrecord_format *format,
		     const struct perfrecord_sample *sample);

/* False: the register is not known any more. */
bool framestate_register(const struct framestate *state, uint64_t number, uint64_t *ret);

/* A number of 1, 2, 4 or 8 bytes from the stack. False: it is not in the copy. */
bool framestate_read(struct framestate *state, uint64_t address, size_t bytes, uint64_t *ret);

/*
 * To the caller, by the chain of frame pointers. False: there is none, or it makes no sense; nothing but `beyond` has changed. After it only
 * stack pointer, frame pointer and program counter are known.
 */
bool framestate_follow_bp(struct framestate *state);

#endif
