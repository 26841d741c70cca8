/*
 * unwind.c: from function to caller, until one of
 *
 *	outermost   the tables say that there is no caller: the stack is complete, and the kernel's chain is not looked at
 *	lost        no tables and no frame pointer that makes sense, or a caller that is nowhere in the process's code
 *	cut         the caller is beyond the copy of the stack, or there are too many
 *
 * The stack pointer must move up at each step, but at those of signals, which may have a stack of their own: so it ends.
 */
#include "unwind.h"

#include "scope.h"

#include <string.h>

enum outcome {
	OUTERMOST,
	LOST,
};

/* False: no tables know. */
static bool step_by_tables(const struct unwind_place *place, uint64_t address, struct framestate *state,
			   enum elfframes_way *ret)
{
	const struct addressspace_mapping *mapping = addressspaces_find(place->spaces, place->pid, address);
	enum module_state module;
	struct elfframes *frames = mapping != NULL ? modules_frames(place->modules, mapping, &module) : NULL;
	uint64_t inside;

	if (frames == NULL || !elfnames_address(modules_elf(place->modules, mapping, &module),
						address - mapping->start + mapping->offset_bytes, &inside))
		return false;
	*ret = elfframes_step(frames, inside, state);

	return *ret != ELFFRAMES_UNKNOWN;
}

static bool append(struct unwind *stack, uint64_t address, bool exact)
{
	if (stack->count == UNWIND_FRAMES_MAX)
		return false;
	stack->addresses[stack->count] = address;
	stack->exact[stack->count++] = exact;

	return true;
}

static bool is_code(const struct unwind_place *place, uint64_t address, bool exact)
{
	return addressspaces_find(place->spaces, place->pid, address - !exact) != NULL;
}

static bool has_moved_up(const struct framestate *state, uint64_t sp)
{
	return state->registers[FRAMESTATE_SP] > sp;
}

/* To the caller. False: outcome says why there is none. */
static bool step(const struct unwind_place *place, struct framestate *state, struct unwind *stack, bool *exact,
		 enum outcome *outcome)
{
	uint64_t sp = state->registers[FRAMESTATE_SP];
	uint64_t address = state->registers[FRAMESTATE_PC] - !*exact;
	enum elfframes_way way = ELFFRAMES_CALLER;
	bool tables = step_by_tables(place, address, state, &way);

	*outcome = tables && way == ELFFRAMES_OUTERMOST ? OUTERMOST : LOST;
	if (tables && way == ELFFRAMES_OUTERMOST)
		return false;
	if (!tables && (state->beyond || !framestate_follow_bp(state)))
		return false;
	*exact = way == ELFFRAMES_INTERRUPTED;
	if (!has_moved_up(state, sp) && !*exact)
		return false;
	stack->by_tables += tables;

	return is_code(place, state->registers[FRAMESTATE_PC], *exact);
}

static enum outcome walk(const struct unwind_place *place, struct framestate *state, struct unwind *stack)
{
	enum outcome outcome = LOST;
	bool exact = true;

	while (append(stack, state->registers[FRAMESTATE_PC], exact) && step(place, state, stack, &exact, &outcome))
		;

	return outcome;
}

/*
 * How many functions of the chain are at or below the outermost one that the stack has, too. The chain may lack functions, so each is looked for
 * above the one before: in a recursion, where all look alike, that counts.
 */
static size_t in_common(const struct unwind *stack, const uint64_t *chain, size_t len)
{
	size_t above = 0, common = 0;

	for (size_t i = 0; i < len && above < stack->count; i++)
		for (size_t j = above; j < stack->count; j++)
			if (stack->addresses[j] == chain[i]) {
				above = j + 1;
				common = i + 1;
				break;
			}

	return common;
}

/* The stack is not complete: with what the kernel knows beyond it, as long as it is in code. */
static void complete(const struct unwind_place *place, struct unwind *stack, const uint64_t *chain, size_t len)
{
	size_t i = in_common(stack, chain, len);

	if (i == 0 && len <= stack->count)
		return;
	if (i == 0)
		stack->count = stack->by_tables = 0;
	for (bool exact = i == 0; i < len; i++, exact = false) {
		if (!is_code(place, chain[i], exact) || !append(stack, chain[i], exact))
			return;
		stack->cut = false;
	}
}

void unwind_sample(const struct unwind_place *place, const struct perfrecord_format *format,
		   const struct perfrecord_sample *sample, const uint64_t *chain, size_t chain_len, struct unwind *ret)
{
	struct framestate state;

	ret->count = ret->by_tables = 0;
	ret->cut = false;
	if (!framestate_init(&state, format, sample)) {
		for (size_t i = 0; i < chain_len && append(ret, chain[i], i == 0); i++)
			;
		return;
	}
	if (walk(place, &state, ret) == OUTERMOST)
		return;
	ret->cut = state.beyond || ret->count == UNWIND_FRAMES_MAX;
	complete(place, ret, chain, chain_len);
}
