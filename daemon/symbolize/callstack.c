/*
 * callstack.c: what an address came to is remembered by (mapping, address), where a mapping is what one record has mapped, also by
 * inheritance; for what just-in-time compilers made by (mapping and process, address), as each process has its own map.
 *
 * In a call chain the first address after a mark (user, kernel) is where that level was, exactly; those behind it are return addresses, the
 * instruction after the call. The call is the byte before, which may even belong to another function: a call of a function that does not
 * return can be the last instruction of its own.
 */
#include "callstack.h"

#include "scope.h"
#include "unwind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Different places of code that are remembered; an incident has some ten thousand. */
#define REMEMBERED_MAX (1u << 20)

/* First numbers of pairs that are not just identities of mappings, which count from 1 and do not get near to 2^31. */
#define OF_KERNEL UINT64_MAX
#define OF_NOTHING (UINT64_MAX - 1)
#define OF_PROCESS(mapping, pid) (1ull << 63 | (mapping) << 32 | (pid))

void callstack_init(struct callstack *stack, const struct callstack_sources *sources, struct stackprofile *profile)
{
	*stack = (struct callstack){ .sources = *sources, .profile = profile, .frames = { .max = REMEMBERED_MAX } };
}

void callstack_release(struct callstack *stack)
{
	pairmap_release(&stack->frames);
}

/* A frame to be made: where it is, and its functions. */
struct found {
	struct stackprofile_mapping mapping;
	bool mapped;
	struct stackprofile_line lines[ELFNAMES_FRAMES_MAX];
	size_t count;
	char path[STACKPROFILE_NAME_MAX + 1];
	char name[STACKPROFILE_NAME_MAX + 1];
	uint8_t replaced; /* the mapping's file is another one by now */
};

static void take_text(struct found *found, const char *name, size_t len)
{
	if (len == 0)
		return;
	if (len > STACKPROFILE_NAME_MAX)
		len = STACKPROFILE_NAME_MAX;
	memcpy(found->name, name, len);
	for (size_t i = 0; i < len; i++)
		if (found->name[i] == '\t' || found->name[i] == '\0')
			found->name[i] = ' '; /* the kernel's "helper\t[module]" */
	found->name[len] = '\0';
	found->lines[0] = (struct stackprofile_line){ .function = found->name };
	found->count = 1;
}

static void find_in_elf(struct elfnames *names, const struct addressspace_mapping *mapping, uint64_t address,
			struct found *found)
{
	struct elfnames_frame frames[ELFNAMES_FRAMES_MAX];
	uint64_t inside;

	if (!elfnames_address(names, address - mapping->start + mapping->offset_bytes, &inside))
		return;
	found->count = elfnames_find(names, inside, frames);
	for (size_t i = 0; i < found->count; i++)
		found->lines[i] = (struct stackprofile_line){ frames[i].function, frames[i].file, frames[i].line };
}

static void describe_mapping(const struct addressspace_mapping *mapping, enum module_state state, struct found *found)
{
	bool anonymous = strcmp(mapping->path, "//anon") == 0 || mapping->path[0] == '\0';

	found->mapped = true;
	found->replaced = state == MODULE_REPLACED;
	snprintf(found->path, sizeof(found->path), "%s%s", anonymous ? "[anon]" : mapping->path,
		 state == MODULE_REPLACED ? " (file replaced)" : "");
	found->mapping = (struct stackprofile_mapping){
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset_bytes,
		.path = found->path,
		.build_id_len = mapping->file.build_id_len,
	};
	memcpy(found->mapping.build_id, mapping->file.build_id, sizeof(found->mapping.build_id));
}

static int add_frame(struct callstack *stack, const struct found *found, uint64_t address, uint32_t *ret)
{
	struct stackprofile_frame frame = {
		.mapping = STACKPROFILE_NO_MAPPING,
		.address = address,
		.lines = found->lines,
		.line_count = found->count,
	};
	int r = found->mapped ? stackprofile_mapping(stack->profile, &found->mapping, &frame.mapping) : 0;

	if (r >= 0)
		r = stackprofile_frame(stack->profile, &frame, ret);

	return r < 0 ? r : 0;
}

static int remember(struct callstack *stack, uint64_t whose, const struct found *found, uint64_t address, uint32_t *ret)
{
	bool named = found->count > 0;
	int r = add_frame(stack, found, address, ret);

	if (r == 0 && *ret <= UINT32_MAX >> 2)
		pairmap_put(&stack->frames, whose, address, *ret << 2 | (uint32_t)found->replaced << 1 | named);
	stack->sources.counts->frames_named += named;
	stack->sources.counts->frames_replaced += found->replaced;

	return r;
}

static bool recall(struct callstack *stack, uint64_t whose, uint64_t address, uint32_t *ret)
{
	uint32_t value;

	if (!pairmap_get(&stack->frames, whose, address, &value))
		return false;
	stack->sources.counts->frames_named += value & 1;
	stack->sources.counts->frames_replaced += value >> 1 & 1;
	*ret = value >> 2;

	return true;
}

static int kernel_frame(struct callstack *stack, uint64_t address, uint32_t *ret)
{
	struct found found = {
		.mapping = { .start = 1ull << 63, .end = UINT64_MAX, .path = "[kernel]" },
		.mapped = address >> 63,
	};
	const char *name;

	stack->sources.counts->frames_kernel++;
	if (recall(stack, OF_KERNEL, address, ret))
		return 0;
	take_text(&found, name, modules_kernel(stack->sources.modules, address, &name));

	return remember(stack, OF_KERNEL, &found, address, ret);
}

static int user_frame(struct callstack *stack, uint32_t pid, uint64_t address, uint32_t *ret)
{
	const struct addressspace_mapping *mapping = addressspaces_find(stack->sources.spaces, pid, address);
	struct found found = { .mapped = false };
	enum module_state state = MODULE_ABSENT;
	uint64_t id = mapping != NULL ? mapping->id : 0, compiled = OF_PROCESS(id, (uint64_t)pid), whose = id;
	const char *name;

	stack->sources.counts->frames_unmapped += mapping == NULL;
	if (recall(stack, id, address, ret) || recall(stack, compiled, address, ret))
		return 0;
	if (mapping != NULL) {
		struct elfnames *names = modules_elf(stack->sources.modules, mapping, &state);

		describe_mapping(mapping, state, &found);
		if (names != NULL)
			find_in_elf(names, mapping, address, &found);
	}
	if (state == MODULE_ABSENT || state == MODULE_UNREADABLE) {
		take_text(&found, name, modules_compiled(stack->sources.modules, pid, address, &name));
		if (found.count > 0 || mapping == NULL)
			whose = compiled;
	}

	return remember(stack, whose, &found, address, ret);
}

/* Is it a mark, and which addresses follow it? Guests' are not ours to look up: they end the chain. */
static bool is_mark(uint64_t entry, bool *kernel, bool *end)
{
	if (entry < PERF_CONTEXT_MAX)
		return false;
	*kernel = entry == PERF_CONTEXT_KERNEL || entry == PERF_CONTEXT_HV;
	*end = !*kernel && entry != PERF_CONTEXT_USER;

	return true;
}

/* The frames of one sample, as they are added. */
struct adding {
	const struct perfrecord *record;
	uint32_t *frames;
	size_t count;
};

static int add_address(struct callstack *stack, struct adding *to, uint64_t address, bool exact, bool kernel)
{
	if (to->count == STACKPROFILE_FRAMES_MAX)
		return 0;
	address -= !exact && address != 0;
	stack->sources.counts->frames++;

	return kernel ? kernel_frame(stack, address, &to->frames[to->count++])
		      : user_frame(stack, to->record->pid, address, &to->frames[to->count++]);
}

static int add_cut(struct callstack *stack, struct adding *to)
{
	struct found found = { .mapped = false };

	stack->sources.counts->samples_cut++;
	if (to->count == STACKPROFILE_FRAMES_MAX)
		return 0;
	take_text(&found, CALLSTACK_CUT, strlen(CALLSTACK_CUT));

	return add_frame(stack, &found, 0, &to->frames[to->count++]);
}

/* chain: what the kernel says of it. */
static int add_user(struct callstack *stack, struct adding *to, const struct perfrecord_format *format,
		    const uint64_t *chain, size_t len)
{
	const struct unwind_place place = { stack->sources.spaces, stack->sources.modules, to->record->pid };
	struct unwind found;
	int r = 0;

	unwind_sample(&place, format, &to->record->sample, chain, len, &found);
	stack->sources.counts->frames_by_tables += found.by_tables;
	for (size_t i = 0; i < found.count && r == 0; i++)
		r = add_address(stack, to, found.addresses[i], found.exact[i], false);

	return r == 0 && found.cut ? add_cut(stack, to) : r;
}

static size_t length_to_mark(const uint64_t *chain, size_t len)
{
	size_t i = 0;

	while (i < len && chain[i] < PERF_CONTEXT_MAX)
		i++;

	return i;
}

int callstack_frames(struct callstack *stack, const struct perfrecord_format *format, const struct perfrecord *record,
		     uint32_t *ret, size_t *ret_count)
{
	const struct perfrecord_sample *sample = &record->sample;
	bool kernel = (record->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL;
	bool only_ip = sample->chain_len == 0 && sample->ip != 0, user = false, end = false;
	const uint64_t *chain = only_ip ? &sample->ip : sample->chain;
	size_t len = only_ip ? 1 : sample->chain_len, level;
	struct adding to = { .record = record, .frames = ret };
	int r = 0;

	for (size_t i = 0; r == 0 && i < len && !end; i += level) {
		level = 1;
		if (is_mark(chain[i], &kernel, &end))
			continue;
		level = length_to_mark(&chain[i], len - i);
		if (!kernel && !user)
			r = add_user(stack, &to, format, &chain[i], level);
		for (size_t j = 0; r == 0 && j < level && (kernel || user); j++)
			r = add_address(stack, &to, chain[i + j], j == 0, kernel);
		user |= !kernel;
	}
	if (r == 0 && !user && !end)
		r = add_user(stack, &to, format, NULL, 0);
	*ret_count = to.count;

	return r;
}
