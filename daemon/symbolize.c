/*
 * symbolize.c: the records are replayed in the order of their time: mappings, names, forks and ends of processes change what is known
 * (addressspace.h), a sample is looked up in what is known by then.
 *
 *	address ─▶ mapping of its process at that moment ─▶ file (modules.h) ─▶ functions ─▶ frame of the profile
 *	             └── no file, or none that is readable ─▶ perf map of the process ──────────┘
 *
 * In a call chain the first address after a mark (user, kernel) is where that level was, exactly; those behind it are return addresses, the
 * instruction after the call. The call is the byte before, which may even belong to another function: a call of a function that does not
 * return can be the last instruction of its own.
 *
 * What an address came to is remembered by (mapping, address), where a mapping is what one record has mapped, also by inheritance; for what
 * just-in-time compilers made by (mapping and process, address), as each process has its own map.
 */
#include "symbolize.h"

#include "addressspace.h"
#include "modules.h"
#include "pairmap.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Different places of code that are remembered; an incident has some ten thousand. */
#define REMEMBERED_MAX (1u << 20)

/* First numbers of pairs that are not just identities of mappings, which count from 1 and do not get near to 2^31. */
#define OF_KERNEL UINT64_MAX
#define OF_PROCESS(mapping, pid) (1ull << 63 | (mapping) << 32 | (pid))

struct symbolizing {
	const struct stackfile *file;
	const struct symbolize_options *options;
	struct addressspaces *spaces;
	struct modules *modules;
	struct stackprofile *profile;
	struct pairmap frames; /* (see above) -> frame << 1 | has a name */
	struct symbolize_counts *counts;
};

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

static int add_frame(struct symbolizing *job, const struct found *found, uint64_t address, uint32_t *ret)
{
	struct stackprofile_frame frame = {
		.mapping = STACKPROFILE_NO_MAPPING,
		.address = address,
		.lines = found->lines,
		.line_count = found->count,
	};
	int r = found->mapped ? stackprofile_mapping(job->profile, &found->mapping, &frame.mapping) : 0;

	if (r >= 0)
		r = stackprofile_frame(job->profile, &frame, ret);

	return r < 0 ? r : 0;
}

static int remember(struct symbolizing *job, uint64_t whose, const struct found *found, uint64_t address, uint32_t *ret)
{
	bool named = found->count > 0;
	int r = add_frame(job, found, address, ret);

	if (r == 0 && *ret <= UINT32_MAX >> 2)
		pairmap_put(&job->frames, whose, address, *ret << 2 | (uint32_t)found->replaced << 1 | named);
	job->counts->frames_named += named;
	job->counts->frames_replaced += found->replaced;

	return r;
}

static bool recall(struct symbolizing *job, uint64_t whose, uint64_t address, uint32_t *ret)
{
	uint32_t value;

	if (!pairmap_get(&job->frames, whose, address, &value))
		return false;
	job->counts->frames_named += value & 1;
	job->counts->frames_replaced += value >> 1 & 1;
	*ret = value >> 2;

	return true;
}

static int kernel_frame(struct symbolizing *job, uint64_t address, uint32_t *ret)
{
	struct found found = {
		.mapping = { .start = 1ull << 63, .end = UINT64_MAX, .path = "[kernel]" },
		.mapped = address >> 63,
	};
	const char *name;

	job->counts->frames_kernel++;
	if (recall(job, OF_KERNEL, address, ret))
		return 0;
	take_text(&found, name, modules_kernel(job->modules, address, &name));

	return remember(job, OF_KERNEL, &found, address, ret);
}

static int user_frame(struct symbolizing *job, uint32_t pid, uint64_t address, uint32_t *ret)
{
	const struct addressspace_mapping *mapping = addressspaces_find(job->spaces, pid, address);
	struct found found = { .mapped = false };
	enum module_state state = MODULE_ABSENT;
	uint64_t id = mapping != NULL ? mapping->id : 0, compiled = OF_PROCESS(id, (uint64_t)pid), whose = id;
	const char *name;

	job->counts->frames_unmapped += mapping == NULL;
	if (recall(job, id, address, ret) || recall(job, compiled, address, ret))
		return 0;
	if (mapping != NULL) {
		struct elfnames *names = modules_elf(job->modules, mapping, &state);

		describe_mapping(mapping, state, &found);
		if (names != NULL)
			find_in_elf(names, mapping, address, &found);
	}
	if (state == MODULE_ABSENT || state == MODULE_UNREADABLE) {
		take_text(&found, name, modules_compiled(job->modules, pid, address, &name));
		if (found.count > 0 || mapping == NULL)
			whose = compiled;
	}

	return remember(job, whose, &found, address, ret);
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

static int frames_of(struct symbolizing *job, const struct perfrecord *record, uint32_t *frames, size_t *ret_count)
{
	const struct perfrecord_sample *sample = &record->sample;
	bool kernel = (record->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL;
	bool only_ip = sample->chain_len == 0 && sample->ip != 0;
	const uint64_t *chain = only_ip ? &sample->ip : sample->chain;
	size_t len = only_ip ? 1 : sample->chain_len, count = 0;
	bool exact = true, end = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < len && count < STACKPROFILE_FRAMES_MAX && !end; i++) {
		if (is_mark(chain[i], &kernel, &end)) {
			exact = true;
			continue;
		}
		uint64_t address = exact || chain[i] == 0 ? chain[i] : chain[i] - 1;

		job->counts->frames++;
		r = kernel ? kernel_frame(job, address, &frames[count++])
			   : user_frame(job, record->pid, address, &frames[count++]);
		exact = false;
	}
	*ret_count = count;

	return r;
}

static int take_sample(struct symbolizing *job, const struct perfrecord *record)
{
	uint32_t frames[STACKPROFILE_FRAMES_MAX];
	struct stackprofile_sample sample = {
		.time_ns = record->time_ns,
		.pid = (int32_t)record->pid,
		.tid = (int32_t)record->tid,
		.process = addressspaces_name(job->spaces, record->pid),
		.thread = addressspaces_name(job->spaces, record->tid),
		.frames = frames,
		.count = 1,
		.weight = record->sample.period > 0 ? record->sample.period : job->file->head->period_ns,
	};
	int r = frames_of(job, record, frames, &sample.frame_count);

	if (r < 0)
		return r;
	job->counts->samples++;
	job->counts->samples_without_stack += sample.frame_count == 0;
	r = stackprofile_add(job->profile, &sample);

	return r < 0 ? r : 0;
}

static int take_record(struct symbolizing *job, const struct perfrecord *record)
{
	switch (record->type) {
	case PERF_RECORD_SAMPLE:
		return take_sample(job, record);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		job->counts->records_lost += record->lost.count;
		return 0;
	default:
		return addressspaces_record(job->spaces, record);
	}
}

static int replay(struct symbolizing *job)
{
	const struct stackfile_head *head = job->file->head;
	const struct perfrecord_format format = { head->sample_type, head->regs_user };
	const uint8_t *at = job->file->records, *end = at + head->record_bytes;
	struct perfrecord record;
	int r = 0;

	while (r == 0 && at < end) {
		r = perfrecord_decode(&format, at, (size_t)(end - at), &record);
		if (r == -EBADMSG) {
			job->counts->records_broken++;
			return 0;
		}
		if (r == 0)
			r = take_record(job, &record);
		at += record.size;
	}
	job->counts->records_left_out = addressspaces_dropped(job->spaces);

	return r;
}

static int begin_profile(struct symbolizing *job)
{
	const struct stackfile_head *head = job->file->head;
	uint64_t spike_from_ns = job->options->spike_from_ns;
	struct stackprofile_options options = {
		.fired_ns = head->fired_mono_ns,
		.wall_ns = head->fired_wall_ns,
		.from_ns = head->covered_ns > head->from_ns ? head->covered_ns : head->from_ns,
		.to_ns = head->to_ns,
		.spike_from_ns = spike_from_ns > 0 ? spike_from_ns : head->fired_mono_ns,
		.period_ns = head->period_ns,
		.focus = job->options->focus,
		.focus_count = job->options->focus_count,
	};

	return stackprofile_new(&options, &job->profile);
}

int symbolize_run(const struct stackfile *file, const struct symbolize_options *options, struct stackprofile **ret,
		  struct symbolize_counts *ret_counts)
{
	struct symbolize_counts counts = { 0 };
	struct symbolizing job = {
		.file = file, .options = options, .counts = &counts, .frames = { .max = REMEMBERED_MAX }
	};
	int r = modules_new(file, options, &counts, &job.modules);

	if (r == 0)
		r = addressspaces_new(&(struct addressspaces_limits){ 0 }, &job.spaces);
	if (r == 0)
		r = begin_profile(&job);
	if (r == 0)
		r = replay(&job);
	if (r == 0) {
		*ret = TAKE(job.profile);
		*ret_counts = counts;
	}
	stackprofile_free(job.profile);
	addressspaces_free(job.spaces);
	modules_free(job.modules);
	pairmap_release(&job.frames);

	return r;
}
