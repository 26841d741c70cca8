/*
 * framestate.c: the stack is a window of the process's memory, from the stack pointer up. Nothing else of its memory is there: what callers
 * need is on their stack.
 */
#include "framestate.h"

#include <string.h>

/* No stack is that large: what is farther is no part of it. */
#define STACK_MAX ((uint64_t)64 << 20)

/* linux: arch/x86/include/uapi/asm/perf_regs.h, PERF_REG_X86_*: what perf's bits are, in DWARF's numbers. */
static const uint8_t perf_bits[FRAMESTATE_REGISTERS] = {
	0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8,
};

bool framestate_init(struct framestate *state, const struct perfrecord_format *format,
		     const struct perfrecord_sample *sample)
{
	const uint32_t needed = 1u << FRAMESTATE_SP | 1u << FRAMESTATE_PC;

	*state = (struct framestate){ .stack = sample->stack, .stack_bytes = sample->stack_bytes };
#ifndef __x86_64__
	return false;
#endif
	if (sample->regs_abi != PERF_SAMPLE_REGS_ABI_64 || sample->regs == NULL || sample->stack == NULL)
		return false;
	for (unsigned i = 0; i < FRAMESTATE_REGISTERS; i++) {
		uint64_t bit = 1ull << perf_bits[i];
		size_t at = (size_t)__builtin_popcountll(format->regs_user & (bit - 1));

		if (!(format->regs_user & bit) || at >= sample->regs_len)
			continue;
		memcpy(&state->registers[i], &sample->regs[at], sizeof(uint64_t));
		state->known |= 1u << i;
	}
	state->stack_start = state->registers[FRAMESTATE_SP];

	return (state->known & needed) == needed && state->stack_start + state->stack_bytes >= state->stack_start;
}

bool framestate_register(const struct framestate *state, uint64_t number, uint64_t *ret)
{
	if (number >= FRAMESTATE_REGISTERS || !(state->known & 1u << number))
		return false;
	*ret = state->registers[number];

	return true;
}

bool framestate_read(struct framestate *state, uint64_t address, size_t bytes, uint64_t *ret)
{
	uint64_t offset = address - state->stack_start, value = 0;

	if (address < state->stack_start)
		return false;
	if (offset > state->stack_bytes || state->stack_bytes - offset < bytes) {
		state->beyond |= offset < STACK_MAX;
		return false;
	}
	memcpy(&value, state->stack + offset, bytes); /* x86-64 is little-endian */
	*ret = value;

	return true;
}

bool framestate_follow_bp(struct framestate *state)
{
	uint64_t bp, sp, caller_bp, pc;

	if (!framestate_register(state, FRAMESTATE_BP, &bp) || !framestate_register(state, FRAMESTATE_SP, &sp) ||
	    bp < sp || bp % 8 != 0 || bp > UINT64_MAX - 16)
		return false;
	if (!framestate_read(state, bp, 8, &caller_bp) || !framestate_read(state, bp + 8, 8, &pc))
		return false;
	state->registers[FRAMESTATE_BP] = caller_bp;
	state->registers[FRAMESTATE_SP] = bp + 16;
	state->registers[FRAMESTATE_PC] = pc;
	state->known = 1u << FRAMESTATE_BP | 1u << FRAMESTATE_SP | 1u << FRAMESTATE_PC;

	return true;
}
