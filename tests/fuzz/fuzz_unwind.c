/*
 * fuzz_unwind.c: registers, a stack, and an ELF file with unwinding tables: from function to
 * caller. What is there: 17 registers, a number of bytes of the stack, they, and the file.
 */
#include "daemon/symbolize/symbols.c"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool take_input(const uint8_t **data, size_t *size, void *to, size_t len)
{
	if (*size < len)
		return false;
	memcpy(to, *data, len);
	*data += len;
	*size -= len;

	return true;
}

static void walk_stack(struct elf_file *names, struct frame_state *state)
{
	for (int i = 0; i < 64; i++) {
		struct frame_state before = *state;
		uint64_t address;

		if (!elf_file_address(names, state->registers[FRAME_STATE_PC], &address))
			address = state->registers[FRAME_STATE_PC];
		switch (step_by_file(names, address, state)) {
		case FRAME_CALLER:
		case FRAME_INTERRUPTED:
			if ((state->known & 1u << FRAME_STATE_PC) == 0 || (state->known & 1u << FRAME_STATE_SP) == 0)
				abort();
			break;
		case FRAME_OUTERMOST:
			return;
		case FRAME_UNKNOWN:
			if (memcmp(before.registers, state->registers, sizeof(before.registers)) != 0)
				abort();
			if (!frame_state_follow_bp(state))
				return;
			break;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_state state = { .known = (1u << FRAME_STATE_REGISTERS) - 1 };
	uint64_t stack_bytes;
	struct elf_file *names;
	int fd;

	if (!take_input(&data, &size, state.registers, sizeof(state.registers)) ||
	    !take_input(&data, &size, &stack_bytes, sizeof(stack_bytes)) || stack_bytes > size)
		return 0;
	state.stack = data;
	state.stack_bytes = (size_t)stack_bytes;
	state.stack_start = state.registers[FRAME_STATE_SP];
	if (state.stack_start + state.stack_bytes < state.stack_start)
		return 0;
	fd = memfd_create("file", MFD_CLOEXEC);
	if (sink_write_all(fd, data + stack_bytes, size - (size_t)stack_bytes) < 0)
		abort();
	if (elf_file_open(fd, &names) < 0)
		return 0;
	if (names->is_x86_64)
		walk_stack(names, &state);
	elf_file_free(names);

	return 0;
}
