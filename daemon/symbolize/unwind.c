/*
 * unwind.c: three layers. struct frame_state: registers and the copy of the stack; step_by_file: to
 * the caller by the tables of one file; unwind_sample: from function to caller, until one of
 *
 * outermost   the tables say that there is no caller: the stack is complete, and the kernel's chain
 *             is not used
 * lost        no tables and no valid frame pointer, or a caller outside of the process's code
 * cut         the caller is beyond the copy of the stack, or there are too many
 *
 * The stack pointer must move up at each step, except at those of signals, which may have a stack
 * of their own: so it terminates.
 *
 * libdw reads the tables and says for each register how the caller's value is found, as an
 * expression that is evaluated here. Expressions are not trusted: the values on the stack are few,
 * operations are counted, there are no jumps (compilers and assemblers write none here), and memory
 * is the copy of the stack and nothing else.
 *
 * Rejected: libdwfl's unwinder. It wants all modules of one process at a time, opened anew for each
 * process, and guesses by frame pointers without saying so. Here the tables of a file are read once
 * for all processes that have it mapped.
 */
#include "daemon/symbolize/unwind.h"

#include "lib/base/base.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

/* Registers as DWARF numbers them (System V ABI, AMD64 supplement, figure 3.36). */
enum {
	FRAME_STATE_BP = 6,
	FRAME_STATE_SP = 7,
	FRAME_STATE_PC = 16, /* "return address" */
	FRAME_STATE_REGISTERS,
};

/*
 * A thread's registers and the copy of its stack, as a sample has them, on the way from a function
 * to its caller. What callers need is on their stack; no other memory is there.
 */
struct frame_state {
	uint64_t registers[FRAME_STATE_REGISTERS];
	uint32_t known; /* a bit for each register */
	const uint8_t *stack;
	uint64_t stack_start; /* the address of its first byte */
	size_t stack_bytes;
	bool beyond; /* something beyond the end of the copy was needed: the stack is deeper */
};

enum frame_way {
	FRAME_CALLER,      /* *state is the caller's */
	FRAME_INTERRUPTED, /* the same, by a signal and not a call: its program counter is exact */
	FRAME_OUTERMOST,   /* there is no caller */
	FRAME_UNKNOWN,     /* not in the tables, or not enough is known; *state changed only in `beyond` */
};

/* What is farther from the stack pointer is not on the stack. */
#define STACK_MAX ((uint64_t)64 << 20)

/* DWARF register to bit of perf_regs: arch/x86/include/uapi/asm/perf_regs.h. */
static const uint8_t perf_bits[FRAME_STATE_REGISTERS] = {
	0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8,
};

/*
 * From a sample, which must outlive it. False: no registers of a 64-bit program, no stack, or not
 * on x86-64.
 */
static bool frame_state_init(struct frame_state *state, const struct perf_record_format *format,
			     const struct perf_record_sample *sample)
{
	const uint32_t needed = 1u << FRAME_STATE_SP | 1u << FRAME_STATE_PC;

	*state = (struct frame_state){ .stack = sample->stack, .stack_bytes = sample->stack_bytes };
#ifndef __x86_64__
	return false;
#endif
	if (sample->regs_abi != PERF_SAMPLE_REGS_ABI_64 || sample->regs == NULL || sample->stack == NULL)
		return false;
	for (unsigned i = 0; i < FRAME_STATE_REGISTERS; i++) {
		uint64_t bit = 1ull << perf_bits[i];
		size_t at = (size_t)__builtin_popcountll(format->regs_user & (bit - 1));

		if (!(format->regs_user & bit) || at >= sample->regs_len)
			continue;
		memcpy(&state->registers[i], &sample->regs[at], sizeof(uint64_t));
		state->known |= 1u << i;
	}
	state->stack_start = state->registers[FRAME_STATE_SP];
	return (state->known & needed) == needed && state->stack_start + state->stack_bytes >= state->stack_start;
}

/* False: the register is not known any more. */
static bool frame_state_register(const struct frame_state *state, uint64_t number, uint64_t *ret)
{
	if (number >= FRAME_STATE_REGISTERS || !(state->known & 1u << number))
		return false;
	*ret = state->registers[number];
	return true;
}

/* A number of 1, 2, 4 or 8 bytes from the stack. False: it is not in the copy. */
static bool frame_state_read(struct frame_state *state, uint64_t address, size_t bytes, uint64_t *ret)
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

/*
 * To the caller, by the chain of frame pointers; then only stack pointer, frame pointer and program
 * counter are known. False: it is not valid; only `beyond` may have changed.
 */
static bool frame_state_follow_bp(struct frame_state *state)
{
	uint64_t bp, sp, caller_bp, pc;

	if (!frame_state_register(state, FRAME_STATE_BP, &bp) || !frame_state_register(state, FRAME_STATE_SP, &sp) ||
	    bp < sp || bp % 8 != 0 || bp > UINT64_MAX - 16)
		return false;
	if (!frame_state_read(state, bp, 8, &caller_bp) || !frame_state_read(state, bp + 8, 8, &pc))
		return false;
	state->registers[FRAME_STATE_BP] = caller_bp;
	state->registers[FRAME_STATE_SP] = bp + 16;
	state->registers[FRAME_STATE_PC] = pc;
	state->known = 1u << FRAME_STATE_BP | 1u << FRAME_STATE_SP | 1u << FRAME_STATE_PC;
	return true;
}

/* ---- expressions of the unwinding tables ---- */

#define VALUES_MAX 32
#define OPERATIONS_MAX 256

struct evaluation {
	struct frame_state *state; /* the callee's */
	uint64_t cfa;
	bool has_cfa;
	uint64_t values[VALUES_MAX];
	size_t count;
	bool is_value; /* the result is the value itself, not where it is */
};

static bool push_value(struct evaluation *on, uint64_t value)
{
	if (on->count == VALUES_MAX)
		return false;
	on->values[on->count++] = value;
	return true;
}

static bool push_register(struct evaluation *on, uint64_t number, uint64_t offset)
{
	uint64_t value;

	return frame_state_register(on->state, number, &value) && push_value(on, value + offset);
}

static bool push_copy(struct evaluation *on, uint64_t depth)
{
	return depth < on->count && push_value(on, on->values[on->count - 1 - depth]);
}

static bool dereference(struct evaluation *on, uint64_t bytes)
{
	if (on->count == 0 || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8))
		return false;

	uint64_t *top = &on->values[on->count - 1];

	return frame_state_read(on->state, *top, bytes, top);
}

/* The two topmost become the first below the others. */
static bool rotate(struct evaluation *on, size_t depth)
{
	if (on->count < depth)
		return false;

	uint64_t *lowest = &on->values[on->count - depth], top = on->values[on->count - 1];

	memmove(lowest + 1, lowest, (depth - 1) * sizeof(*lowest));
	*lowest = top;
	return true;
}

static bool apply_unary(struct evaluation *on, uint8_t atom, uint64_t number)
{
	if (on->count == 0)
		return false;

	uint64_t *top = &on->values[on->count - 1];

	switch (atom) {
	case DW_OP_plus_uconst:
		*top += number;
		return true;
	case DW_OP_abs:
		*top = *top >> 63 ? -*top : *top;
		return true;
	case DW_OP_neg:
		*top = -*top;
		return true;
	case DW_OP_not:
		*top = ~*top;
		return true;
	case DW_OP_drop:
		on->count--;
		return true;
	default:
		return false;
	}
}

/* Left and right operand. *known: false for other operations. */
static uint64_t apply_binary(uint8_t atom, uint64_t left, uint64_t right, bool *known)
{
	*known = true;
	switch (atom) {
	case DW_OP_and:
		return left & right;
	case DW_OP_or:
		return left | right;
	case DW_OP_xor:
		return left ^ right;
	case DW_OP_plus:
		return left + right;
	case DW_OP_minus:
		return left - right;
	case DW_OP_mul:
		return left * right;
	case DW_OP_shl:
		return right < 64 ? left << right : 0;
	case DW_OP_shr:
		return right < 64 ? left >> right : 0;
	case DW_OP_shra:
		return (uint64_t)((int64_t)left >> (right < 64 ? right : 63));
	case DW_OP_eq:
		return left == right;
	case DW_OP_ne:
		return left != right;
	case DW_OP_lt:
		return (int64_t)left < (int64_t)right;
	case DW_OP_le:
		return (int64_t)left <= (int64_t)right;
	case DW_OP_gt:
		return (int64_t)left > (int64_t)right;
	case DW_OP_ge:
		return (int64_t)left >= (int64_t)right;
	default:
		*known = false;
		return left;
	}
}

static bool pop_and_apply_binary(struct evaluation *on, uint8_t atom)
{
	uint64_t *left;
	bool known;

	if (on->count < 2)
		return false;
	left = &on->values[on->count - 2];
	left[0] = apply_binary(atom, left[0], left[1], &known);
	on->count -= known;
	return known;
}

static bool evaluate_operation(struct evaluation *on, const Dwarf_Op *op)
{
	uint8_t atom = op->atom;

	if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31)
		return push_value(on, atom - DW_OP_lit0);
	if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31)
		return push_register(on, atom - DW_OP_breg0, op->number);
	if (atom >= DW_OP_const1u && atom <= DW_OP_consts)
		return push_value(on, op->number);
	switch (atom) {
	case DW_OP_bregx:
		return push_register(on, op->number, op->number2);
	case DW_OP_call_frame_cfa:
		return on->has_cfa && push_value(on, on->cfa);
	case DW_OP_dup:
	case DW_OP_over:
		return push_copy(on, atom == DW_OP_over);
	case DW_OP_pick:
		return push_copy(on, op->number);
	case DW_OP_swap:
	case DW_OP_rot:
		return rotate(on, atom == DW_OP_swap ? 2 : 3);
	case DW_OP_deref:
	case DW_OP_deref_size:
		return dereference(on, atom == DW_OP_deref ? 8 : op->number);
	case DW_OP_stack_value:
		on->is_value = true;
		return true;
	case DW_OP_nop:
		return true;
	default:
		return apply_unary(on, atom, op->number) || pop_and_apply_binary(on, atom);
	}
}

/* False: invalid, or it needs what is not known. */
static bool evaluate(struct evaluation *on, const Dwarf_Op *ops, size_t count)
{
	on->count = 0;
	on->is_value = false;
	if (count > OPERATIONS_MAX)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!evaluate_operation(on, &ops[i]))
			return false;
	return on->count > 0;
}

/* ---- from function to caller ---- */

/* The register that the whole expression stands for; false: it is another kind of expression. */
static bool is_register(const Dwarf_Op *ops, size_t count, uint64_t *ret)
{
	if (count != 1 || !((ops->atom >= DW_OP_reg0 && ops->atom <= DW_OP_reg31) || ops->atom == DW_OP_regx))
		return false;
	*ret = ops->atom == DW_OP_regx ? ops->number : (uint64_t)(ops->atom - DW_OP_reg0);
	return true;
}

/* The caller's value of a register. False: not known. *ret_undefined: the tables say so. */
static bool caller_register(Dwarf_Frame *frame, struct evaluation *on, int number, uint64_t *ret, bool *ret_undefined)
{
	Dwarf_Op room[3], *ops;
	size_t count;
	uint64_t other;

	*ret_undefined = false;
	if (dwarf_frame_register(frame, number, room, &ops, &count) != 0)
		return false;
	if (count == 0) {
		*ret_undefined = ops != NULL;
		return ops == NULL && frame_state_register(on->state, (uint64_t)number, ret);
	}
	if (is_register(ops, count, &other))
		return frame_state_register(on->state, other, ret);
	if (!evaluate(on, ops, count))
		return false;

	uint64_t result = on->values[on->count - 1];

	if (!on->is_value)
		return frame_state_read(on->state, result, 8, ret);
	*ret = result;
	return true;
}

static bool find_cfa(Dwarf_Frame *frame, struct evaluation *on)
{
	Dwarf_Op *ops;
	size_t count;

	if (dwarf_frame_cfa(frame, &ops, &count) != 0 || !evaluate(on, ops, count))
		return false;
	on->cfa = on->values[on->count - 1];
	on->has_cfa = true;
	return true;
}

static enum frame_way step_by_rule(Dwarf_Frame *frame, struct frame_state *state)
{
	struct evaluation on = { .state = state };
	struct frame_state caller = *state; /* not its `beyond`: that register may not be needed */
	bool undefined, signal = false;
	int pc = dwarf_frame_info(frame, NULL, NULL, &signal);

	if (pc != FRAME_STATE_PC || !find_cfa(frame, &on))
		return FRAME_UNKNOWN;
	caller.known = 0;
	for (int i = 0; i < FRAME_STATE_REGISTERS; i++) {
		if (caller_register(frame, &on, i, &caller.registers[i], &undefined))
			caller.known |= 1u << i;
		else if (i == FRAME_STATE_PC)
			return undefined ? FRAME_OUTERMOST : FRAME_UNKNOWN;
	}
	if (!(caller.known & 1u << FRAME_STATE_SP)) {
		caller.registers[FRAME_STATE_SP] = on.cfa;
		caller.known |= 1u << FRAME_STATE_SP;
	}
	*state = caller;
	return signal ? FRAME_INTERRUPTED : FRAME_CALLER;
}

/*
 * From a function to its caller. address: the virtual address in the file of the program counter,
 * or of a return address the byte before it.
 */
static enum frame_way step_by_file(struct elf_file *file, uint64_t address, struct frame_state *state)
{
	AUTO_FREE Dwarf_Frame *rule = NULL;

	return elf_file_unwind_rule(file, address, &rule) ? step_by_rule(rule, state) : FRAME_UNKNOWN;
}

enum outcome {
	OUTERMOST,
	LOST,
};

/* False: no table knows the address. */
static bool step_by_tables(const struct unwind_place *place, uint64_t address, struct frame_state *state,
			   enum frame_way *ret)
{
	const struct address_space_mapping *mapping = address_spaces_find(place->spaces, place->pid, address);
	enum module_state module;
	struct elf_file *file = mapping != NULL ? modules_elf(place->modules, mapping, &module) : NULL;
	uint64_t inside;

	if (file == NULL || !elf_file_address(file, address - mapping->start + mapping->offset_bytes, &inside))
		return false;
	*ret = step_by_file(file, inside, state);
	return *ret != FRAME_UNKNOWN;
}

static bool append_frame(struct unwind *stack, uint64_t address, bool exact)
{
	if (stack->count == UNWIND_FRAMES_MAX)
		return false;
	stack->addresses[stack->count] = address;
	stack->exact[stack->count++] = exact;
	return true;
}

static bool is_code(const struct unwind_place *place, uint64_t address, bool exact)
{
	return address_spaces_find(place->spaces, place->pid, address - !exact) != NULL;
}

static bool has_moved_up(const struct frame_state *state, uint64_t sp)
{
	return state->registers[FRAME_STATE_SP] > sp;
}

/* To the caller. False: *outcome says why there is none. */
static bool step_to_caller(const struct unwind_place *place, struct frame_state *state, struct unwind *stack,
			   bool *exact, enum outcome *outcome)
{
	uint64_t sp = state->registers[FRAME_STATE_SP];
	uint64_t address = state->registers[FRAME_STATE_PC] - !*exact;
	enum frame_way way = FRAME_CALLER;
	bool tables = step_by_tables(place, address, state, &way);

	*outcome = tables && way == FRAME_OUTERMOST ? OUTERMOST : LOST;
	if (tables && way == FRAME_OUTERMOST)
		return false;
	if (!tables && (state->beyond || !frame_state_follow_bp(state)))
		return false;
	*exact = way == FRAME_INTERRUPTED;
	if (!has_moved_up(state, sp) && !*exact)
		return false;
	stack->by_tables += tables;
	return is_code(place, state->registers[FRAME_STATE_PC], *exact);
}

static enum outcome unwind_by_tables(const struct unwind_place *place, struct frame_state *state, struct unwind *stack)
{
	enum outcome outcome = LOST;
	bool exact = true;

	while (append_frame(stack, state->registers[FRAME_STATE_PC], exact) &&
	       step_to_caller(place, state, stack, &exact, &outcome))
		;
	return outcome;
}

/*
 * How many functions of the chain are at or below the outermost one that both have. The chain may
 * lack functions, and in recursions repeats them, so each is looked for above the one before.
 */
static size_t common_with_chain(const struct unwind *stack, const uint64_t *chain, size_t len)
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

/* Appends what the kernel knows beyond an incomplete stack, as long as it is in code. */
static void append_chain(const struct unwind_place *place, struct unwind *stack, const uint64_t *chain, size_t len)
{
	size_t i = common_with_chain(stack, chain, len);

	if (i == 0 && len <= stack->count)
		return;
	if (i == 0)
		stack->count = stack->by_tables = 0;
	for (bool exact = i == 0; i < len; i++, exact = false) {
		if (!is_code(place, chain[i], exact) || !append_frame(stack, chain[i], exact))
			return;
		stack->cut = false;
	}
}

void unwind_sample(const struct unwind_place *place, const struct perf_record_format *format,
		   const struct perf_record_sample *sample, const uint64_t *chain, size_t chain_len, struct unwind *ret)
{
	struct frame_state state;

	ret->count = ret->by_tables = 0;
	ret->cut = false;
	if (!frame_state_init(&state, format, sample)) {
		for (size_t i = 0; i < chain_len && append_frame(ret, chain[i], i == 0); i++)
			;
		return;
	}
	if (unwind_by_tables(place, &state, ret) == OUTERMOST)
		return;
	ret->cut = state.beyond || ret->count == UNWIND_FRAMES_MAX;
	append_chain(place, ret, chain, chain_len);
}
