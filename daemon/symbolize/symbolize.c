/*
 * symbolize.c: the records of a stack file's streams are replayed in the order of their time:
 * side-band records change the address spaces, a sample is looked up in them and counts in the
 * profile of its kind.
 *
 * Streams: a cursor in each, at most five, and the earliest record is next. Before that, the
 * streams of followed threads are read once for the times at which each thread was sampled first
 * and last: between them its own events count, and system-wide samples of it are left out.
 *
 * Frames: the result for an address is cached by (mapping, address), where forked processes share
 * the mapping; for code of just-in-time compilers by (mapping and process, address), as each
 * process has its own map. In a call chain the first address after a mark (user, kernel) is where
 * that level executed; the others are return addresses, the instruction after the call. They are
 * looked up one byte earlier: the call can be the last instruction of its function.
 */
#include "daemon/symbolize/symbolize.h"

#include "daemon/symbolize/address_space.h"
#include "daemon/symbolize/symbols.h"
#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/proc/perf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How stacks become frames of one of the profiles. All but `frames` is borrowed. */
struct call_stack {
	const struct address_spaces *spaces;
	struct modules *modules;
	struct symbolize_counts *counts;
	struct stack_profile *profile;
	struct pair_map frames; /* -> frame << 2 | its file was replaced << 1 | has a name */
};

/* ---- frames ---- */

/* Remembered addresses; an incident has some ten thousand. */
#define REMEMBERED_MAX (1u << 20)

/* First numbers of pairs that are not ids of mappings, which count from 1 and stay below 2^31. */
#define OF_KERNEL UINT64_MAX
#define OF_PROCESS(mapping, pid) (1ull << 63 | (mapping) << 32 | (pid))

/* A frame to be made: where it is, and its functions. */
struct found {
	struct stack_profile_mapping mapping;
	bool mapped;
	struct stack_profile_line lines[ELF_FILE_NAMES_MAX];
	size_t count;
	char path[STACK_PROFILE_NAME_MAX + 1];
	char name[STACK_PROFILE_NAME_MAX + 1];
	bool unnamed;     /* the name is only where the function begins */
	uint8_t replaced; /* the mapping's file is another one by now */
};

static void set_function_name(struct found *found, const char *name, size_t len)
{
	if (len == 0)
		return;
	if (len > STACK_PROFILE_NAME_MAX)
		len = STACK_PROFILE_NAME_MAX;
	memcpy(found->name, name, len);
	for (size_t i = 0; i < len; i++)
		if (found->name[i] == '\t' || found->name[i] == '\0')
			found->name[i] = ' '; /* the kernel's "helper\t[module]" */
	found->name[len] = '\0';
	found->lines[0] = (struct stack_profile_line){ .function = found->name };
	found->count = 1;
}

/* "[libfoo.so.1+0x1240]": a function of a stripped file, by the address at which it begins there. */
static void name_by_start(const struct address_space_mapping *mapping, uint64_t start, struct found *found)
{
	const char *slash = strrchr(mapping->path, '/');
	char name[STACK_PROFILE_NAME_MAX + 1];
	int len = snprintf(name, sizeof(name), "[%.200s+0x%jx]", slash ? slash + 1 : mapping->path, (uintmax_t)start);

	set_function_name(found, name, (size_t)len);
	found->unnamed = true;
}

static void find_in_elf(struct elf_file *file, const struct address_space_mapping *mapping, uint64_t address,
			struct found *found)
{
	struct elf_file_name names[ELF_FILE_NAMES_MAX];
	uint64_t inside, start;

	if (!elf_file_address(file, address - mapping->start + mapping->offset_bytes, &inside))
		return;
	found->count = elf_file_names(file, inside, names);
	if (found->count == 0 && elf_file_function(file, inside, &start))
		name_by_start(mapping, start, found);
	if (found->unnamed)
		return;
	for (size_t i = 0; i < found->count; i++)
		found->lines[i] = (struct stack_profile_line){ names[i].function, names[i].file, names[i].line };
}

static void describe_mapping(const struct address_space_mapping *mapping, enum module_state state, struct found *found)
{
	bool anonymous = strcmp(mapping->path, "//anon") == 0 || mapping->path[0] == '\0';

	found->mapped = true;
	found->replaced = state == MODULE_REPLACED;
	snprintf(found->path, sizeof(found->path), "%s%s", anonymous ? "[anon]" : mapping->path,
		 state == MODULE_REPLACED ? " (file replaced)" : "");
	found->mapping = (struct stack_profile_mapping){
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset_bytes,
		.path = found->path,
		.build_id_len = mapping->file.build_id_len,
	};
	memcpy(found->mapping.build_id, mapping->file.build_id, sizeof(found->mapping.build_id));
}

static int add_frame(struct call_stack *stack, const struct found *found, uint64_t address, uint32_t *ret)
{
	struct stack_profile_frame frame = {
		.mapping = STACK_PROFILE_NO_MAPPING,
		.address = address,
		.lines = found->lines,
		.line_count = found->count,
	};
	int r = found->mapped ? stack_profile_mapping(stack->profile, &found->mapping, &frame.mapping) : 0;

	if (r >= 0)
		r = stack_profile_frame(stack->profile, &frame, ret);
	return r < 0 ? r : 0;
}

static int remember_frame(struct call_stack *stack, uint64_t whose, const struct found *found, uint64_t address,
			  uint32_t *ret)
{
	bool named = found->count > 0 && !found->unnamed;
	int r = add_frame(stack, found, address, ret);

	if (r == 0 && *ret <= UINT32_MAX >> 2)
		pair_map_put(&stack->frames, whose, address, *ret << 2 | (uint32_t)found->replaced << 1 | named);
	stack->counts->frames_named += named;
	stack->counts->frames_replaced += found->replaced;
	return r;
}

static bool recall_frame(struct call_stack *stack, uint64_t whose, uint64_t address, uint32_t *ret)
{
	uint32_t value;

	if (!pair_map_get(&stack->frames, whose, address, &value))
		return false;
	stack->counts->frames_named += value & 1;
	stack->counts->frames_replaced += value >> 1 & 1;
	*ret = value >> 2;
	return true;
}

static int kernel_frame(struct call_stack *stack, uint64_t address, uint32_t *ret)
{
	struct found found = {
		.mapping = { .start = 1ull << 63, .end = UINT64_MAX, .path = "[kernel]" },
		.mapped = address >> 63,
	};
	const char *name;

	stack->counts->frames_kernel++;
	if (recall_frame(stack, OF_KERNEL, address, ret))
		return 0;
	set_function_name(&found, name, modules_kernel(stack->modules, address, &name));
	return remember_frame(stack, OF_KERNEL, &found, address, ret);
}

static int user_frame(struct call_stack *stack, uint32_t pid, uint64_t address, uint32_t *ret)
{
	const struct address_space_mapping *mapping = address_spaces_find(stack->spaces, pid, address);
	struct found found = { .mapped = false };
	enum module_state state = MODULE_ABSENT;
	uint64_t id = mapping != NULL ? mapping->id : 0, compiled = OF_PROCESS(id, (uint64_t)pid), whose = id;
	const char *name;

	stack->counts->frames_unmapped += mapping == NULL;
	if (recall_frame(stack, id, address, ret) || recall_frame(stack, compiled, address, ret))
		return 0;
	if (mapping != NULL) {
		struct elf_file *file = modules_elf(stack->modules, mapping, &state);

		describe_mapping(mapping, state, &found);
		if (file != NULL)
			find_in_elf(file, mapping, address, &found);
	}
	if (state == MODULE_ABSENT || state == MODULE_UNREADABLE) {
		set_function_name(&found, name, modules_compiled(stack->modules, pid, address, &name));
		if (found.count > 0 || mapping == NULL)
			whose = compiled;
	}

	return remember_frame(stack, whose, &found, address, ret);
}

/*
 * Whether it is a mark, and what follows it. Addresses of guests cannot be looked up: they end the
 * chain.
 */
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
	const struct perf_record *record;
	uint32_t *frames;
	size_t count;
};

static int add_address(struct call_stack *stack, struct adding *to, uint64_t address, bool exact, bool kernel)
{
	if (to->count == STACK_PROFILE_FRAMES_MAX)
		return 0;
	address -= !exact && address != 0;
	stack->counts->frames++;
	return kernel ? kernel_frame(stack, address, &to->frames[to->count++])
		      : user_frame(stack, to->record->pid, address, &to->frames[to->count++]);
}

/* The outermost frame of a stack that is deeper than what was copied of it. */
static int add_cut_frame(struct call_stack *stack, struct adding *to)
{
	static const char name[] = "[stack cut]";
	struct found found = { .mapped = false };

	stack->counts->samples_cut++;
	if (to->count == STACK_PROFILE_FRAMES_MAX)
		return 0;
	set_function_name(&found, name, strlen(name));
	return add_frame(stack, &found, 0, &to->frames[to->count++]);
}

/* chain: the user part of the kernel's. */
static int add_user_frames(struct call_stack *stack, struct adding *to, const struct perf_record_format *format,
			   const uint64_t *chain, size_t len)
{
	const struct unwind_place place = { stack->spaces, stack->modules, to->record->pid };
	struct unwind found;
	int r = 0;

	unwind_sample(&place, format, &to->record->sample, chain, len, &found);
	stack->counts->frames_by_tables += found.by_tables;
	for (size_t i = 0; i < found.count && r == 0; i++)
		r = add_address(stack, to, found.addresses[i], found.exact[i], false);
	return r == 0 && found.cut ? add_cut_frame(stack, to) : r;
}

static size_t length_to_mark(const uint64_t *chain, size_t len)
{
	size_t i = 0;

	while (i < len && chain[i] < PERF_CONTEXT_MAX)
		i++;
	return i;
}

/*
 * The frames of a sample, of a stream of this format, innermost first, at most
 * STACK_PROFILE_FRAMES_MAX: the kernel's part, and of the process what unwind_sample finds. Counts
 * them. 0 or -ENOMEM.
 */
static int call_stack_frames(struct call_stack *stack, const struct perf_record_format *format,
			     const struct perf_record *record, uint32_t *ret, size_t *ret_count)
{
	const struct perf_record_sample *sample = &record->sample;
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
			r = add_user_frames(stack, &to, format, &chain[i], level);
		for (size_t j = 0; r == 0 && j < level && (kernel || user); j++)
			r = add_address(stack, &to, chain[i + j], j == 0, kernel);
		user |= !kernel;
	}
	if (r == 0 && !user && !end)
		r = add_user_frames(stack, &to, format, NULL, 0);
	*ret_count = to.count;
	return r;
}

/* ---- streams ---- */

struct cursor {
	const struct stack_file_stream *stream;
	struct perf_record_format format;
	const uint8_t *at, *end;
	struct perf_record record; /* the next one, if there is one */
	bool there;
};

/* When a thread was sampled by events of its own. */
struct span {
	uint64_t first_ns, last_ns;
};

struct spans {
	struct pair_map threads; /* pid, tid -> index */
	struct span *all;
	size_t count, cap;
};

struct stack_streams {
	struct cursor cursors[STACK_FILE_STREAM_KINDS]; /* by kind */
	struct spans spans[STACK_FILE_STREAM_KINDS];    /* by kind of the stream that they keep samples out of */
	uint64_t broken;                                /* streams that ended in the middle so far */
};

/* The per-thread stream that goes with a system-wide one; STACK_FILE_STREAM_KINDS: none. */
static enum stack_file_stream_kind followed_of(enum stack_file_stream_kind kind)
{
	return kind == STACK_FILE_CPU      ? STACK_FILE_CPU_FOLLOWED
	       : kind == STACK_FILE_FAULTS ? STACK_FILE_FAULTS_FOLLOWED
					   : STACK_FILE_STREAM_KINDS;
}

/* 0; -EINVAL: of a format that is not read. *broken: the stream ended in the middle. */
static int cursor_advance(struct cursor *cursor, bool *broken)
{
	int r;

	cursor->there = false;
	*broken = false;
	if (cursor->at >= cursor->end)
		return 0;
	r = perf_record_decode(&cursor->format, cursor->at, (size_t)(cursor->end - cursor->at), &cursor->record);
	if (r == -EBADMSG) {
		*broken = true;
		cursor->at = cursor->end;
		return 0;
	}
	if (r < 0)
		return r;
	cursor->at += cursor->record.size;
	cursor->there = true;
	return 0;
}

static struct span *span_of(const struct spans *spans, const struct perf_record *record)
{
	uint32_t index;

	return pair_map_get(&spans->threads, record->pid, record->tid, &index) ? &spans->all[index] : NULL;
}

static int spans_add(struct spans *spans, const struct perf_record *record)
{
	struct span *span = span_of(spans, record);

	if (span != NULL) {
		span->last_ns = record->time_ns > span->last_ns ? record->time_ns : span->last_ns;
		return 0;
	}
	if (vector_reserve(&spans->all, &spans->cap, spans->count + 1, sizeof(*spans->all)) < 0)
		return -ENOMEM;
	spans->all[spans->count] = (struct span){ record->time_ns, record->time_ns };
	pair_map_put(&spans->threads, record->pid, record->tid, (uint32_t)spans->count);
	spans->count++;
	return span_of(spans, record) != NULL ? 0 : -ENOMEM;
}

static int read_spans(struct cursor cursor, struct spans *spans)
{
	bool broken;
	int r = cursor_advance(&cursor, &broken);

	for (; r == 0 && cursor.there; r = cursor_advance(&cursor, &broken)) {
		r = cursor.record.type == PERF_RECORD_SAMPLE ? spans_add(spans, &cursor.record) : 0;
		if (r < 0)
			break;
	}

	return r;
}

static int begin_streams(struct stack_streams *streams, const struct stack_file *file)
{
	bool broken;
	int r = 0;

	for (uint32_t i = 0; i < file->head->streams && r == 0; i++) {
		const struct stack_file_stream *stream = &file->streams[i];
		struct cursor *cursor = &streams->cursors[stream->kind];

		*cursor = (struct cursor){
			.stream = stream,
			.format = { stream->sample_type, stream->regs_user },
			.at = file->records[i],
			.end = file->records[i] + stream->record_bytes,
		};
	}
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS && r == 0; kind++) {
		enum stack_file_stream_kind followed = followed_of((enum stack_file_stream_kind)kind);

		if (followed < STACK_FILE_STREAM_KINDS)
			r = read_spans(streams->cursors[followed], &streams->spans[kind]);
	}
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS && r == 0; kind++) {
		r = cursor_advance(&streams->cursors[kind], &broken);
		streams->broken += broken;
	}

	return r;
}

static void stack_streams_free(struct stack_streams *streams)
{
	if (streams == NULL)
		return;
	for (size_t i = 0; i < ARRAY_LEN(streams->spans); i++) {
		pair_map_release(&streams->spans[i].threads);
		free(streams->spans[i].all);
	}
	free(streams);
}

/* file must outlive it. 0; -ENOMEM; -EINVAL: a format that perf.h does not decode. */
static int stack_streams_new(const struct stack_file *file, struct stack_streams **ret)
{
	struct stack_streams *streams = calloc(1, sizeof(*streams));
	int r = streams != NULL ? begin_streams(streams, file) : -ENOMEM;

	if (r < 0) {
		stack_streams_free(streams);
		return r;
	}
	*ret = streams;
	return 0;
}

/*
 * The next record and its stream; of the same time side-band records first, then in the order of
 * their kinds. False: the end. A record that cannot be decoded ends its stream.
 */
static bool stack_streams_next(struct stack_streams *streams, struct perf_record *ret,
			       const struct stack_file_stream **ret_stream)
{
	struct cursor *first = NULL;
	bool broken;

	for (size_t i = 0; i < ARRAY_LEN(streams->cursors); i++) {
		struct cursor *cursor = &streams->cursors[i];

		if (cursor->there && (first == NULL || cursor->record.time_ns < first->record.time_ns))
			first = cursor;
	}
	if (first == NULL)
		return false;
	*ret = first->record;
	*ret_stream = first->stream;
	/* The format was good for the record before. */
	if (cursor_advance(first, &broken) < 0)
		first->there = false;
	streams->broken += broken;
	return true;
}

/*
 * False: a system-wide sample of a thread that has samples by events of its own around that time.
 */
static bool stack_streams_counts(const struct stack_streams *streams, const struct perf_record *sample,
				 const struct stack_file_stream *stream)
{
	const struct span *span = span_of(&streams->spans[stream->kind], sample);

	return span == NULL || sample->time_ns < span->first_ns || sample->time_ns > span->last_ns;
}

struct symbolizing {
	const struct stack_file *file;
	const struct symbolize_options *options;
	struct address_spaces *spaces;
	struct modules *modules;
	struct stack_streams *streams;
	struct stack_profile *profiles[SYMBOLIZE_PROFILES];
	struct call_stack stacks[SYMBOLIZE_PROFILES];
	struct symbolize_counts *counts;
};

static enum stack_profile_quantity quantity_of(const struct stack_file_stream *stream)
{
	return stream->kind == STACK_FILE_FAULTS || stream->kind == STACK_FILE_FAULTS_FOLLOWED ? STACK_PROFILE_MEMORY
											       : STACK_PROFILE_CPU;
}

static uint64_t period_ns(const struct stack_file *file)
{
	return file->head->frequency > 0 ? NS_PER_S / file->head->frequency : 0;
}

static uint64_t saturated(unsigned __int128 value)
{
	return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

/* How many samples or faults it stands for, and what they weigh. */
static void weigh_sample(const struct symbolizing *job, const struct stack_file_stream *stream, uint64_t period,
			 struct stack_profile_sample *sample)
{
	if (quantity_of(stream) == STACK_PROFILE_MEMORY) {
		uint64_t pages = period > 0 ? period & ~STACK_FILE_LARGE_PAGES : 1;

		sample->count = period & STACK_FILE_LARGE_PAGES ? 0 : pages;
		sample->weight = saturated((unsigned __int128)pages * job->file->head->page_bytes);
		return;
	}
	sample->count = 1;
	sample->weight = period > 0 && stream->units_per_second > 0
				 ? saturated((unsigned __int128)period * NS_PER_S / stream->units_per_second)
				 : period_ns(job->file);
}

/* NULL: not known. */
static const char *cgroup_of(const struct stack_file *file, uint32_t pid)
{
	size_t low = 0, high = file->head->processes;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file->processes[middle].pid == pid)
			return file->strings + file->processes[middle].cgroup_offset;
		if (file->processes[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}

	return NULL;
}

static void count_sample(struct symbolize_counts *counts, enum stack_profile_quantity quantity,
			 const struct stack_profile_sample *sample)
{
	if (quantity == STACK_PROFILE_MEMORY) {
		counts->samples_of_faults++;
		counts->faults += sample->count;
	} else {
		counts->samples++;
	}
	counts->samples_without_stack += sample->frame_count == 0;
}

static int replay_sample(struct symbolizing *job, const struct stack_file_stream *stream,
			 const struct perf_record *record)
{
	enum stack_profile_quantity quantity = quantity_of(stream);
	const struct perf_record_format format = { stream->sample_type, stream->regs_user };
	uint32_t frames[STACK_PROFILE_FRAMES_MAX];
	struct stack_profile_sample sample = {
		.time_ns = record->time_ns,
		.pid = (int32_t)record->pid,
		.tid = (int32_t)record->tid,
		.process = address_spaces_name(job->spaces, record->pid),
		.thread = address_spaces_name(job->spaces, record->tid),
		.cgroup = cgroup_of(job->file, record->pid),
		.other = !stack_file_is_member(job->file, record->pid, record->time_ns),
		.frames = frames,
	};
	int r;

	if (!stack_streams_counts(job->streams, record, stream)) {
		job->counts->samples_twice++;
		return 0;
	}
	r = call_stack_frames(&job->stacks[quantity], &format, record, frames, &sample.frame_count);
	if (r < 0)
		return r;
	weigh_sample(job, stream, record->sample.period, &sample);
	count_sample(job->counts, quantity, &sample);
	r = stack_profile_add(job->profiles[quantity], &sample);
	return r < 0 ? r : 0;
}

static int replay_record(struct symbolizing *job, const struct stack_file_stream *stream,
			 const struct perf_record *record)
{
	switch (record->type) {
	case PERF_RECORD_SAMPLE:
		return stream->kind == STACK_FILE_SIDEBAND ? 0 : replay_sample(job, stream, record);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		job->counts->records_lost += record->lost.count;
		return 0;
	default:
		return stream->kind == STACK_FILE_SIDEBAND ? address_spaces_record(job->spaces, record) : 0;
	}
}

/* Records between two questions, each a system call, whether the first run need not go on. */
#define RECORDS_AT_ONCE 8

static bool is_enough(const struct symbolizing *job, uint64_t replayed)
{
	const struct symbolize_options *options = job->options;

	return options->is_first && options->is_enough != NULL && replayed % RECORDS_AT_ONCE == 0 &&
	       options->is_enough(options->ctx);
}

static int replay_records(struct symbolizing *job)
{
	const struct stack_file_stream *stream;
	struct perf_record record;
	uint64_t replayed = 0;
	int r = 0;

	while (r == 0 && !is_enough(job, replayed++) && stack_streams_next(job->streams, &record, &stream))
		r = replay_record(job, stream, &record);
	job->counts->records_broken = job->streams->broken;
	job->counts->records_left_out = address_spaces_dropped(job->spaces);
	return r;
}

/* From when on the samples of this kind are complete: system-wide ones, or else per-thread ones. */
static uint64_t covered_from(const struct stack_file *file, enum stack_profile_quantity quantity)
{
	uint64_t from_ns = file->head->from_ns, covered_ns = 0;
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < file->head->streams; i++) {
		const struct stack_file_stream *stream = &file->streams[i];

		if (stream->kind == STACK_FILE_SIDEBAND || quantity_of(stream) != quantity || stream->kind > best)
			continue;
		best = stream->kind;
		covered_ns = stream->covered_ns;
	}

	return covered_ns > from_ns ? covered_ns : from_ns;
}

static int begin_profile(struct symbolizing *job, enum stack_profile_quantity quantity)
{
	const struct stack_file_head *head = job->file->head;
	uint64_t spike_from_ns = job->options->spike_from_ns;
	struct stack_profile_options options = {
		.quantity = quantity,
		.fired_ns = head->fired_mono_ns,
		.wall_ns = head->fired_wall_ns,
		.from_ns = covered_from(job->file, quantity),
		.to_ns = head->to_ns,
		.spike_from_ns = spike_from_ns > 0 ? spike_from_ns : head->fired_mono_ns,
		.period_ns = quantity == STACK_PROFILE_CPU ? period_ns(job->file) : 0,
	};
	int r = stack_profile_new(&options, &job->profiles[quantity]);

	job->stacks[quantity] = (struct call_stack){
		.spaces = job->spaces,
		.modules = job->modules,
		.counts = job->counts,
		.profile = job->profiles[quantity],
		.frames = { .max = REMEMBERED_MAX },
	};
	return r;
}

static int symbolize_all(struct symbolizing *job)
{
	int r = address_spaces_new(&(struct address_spaces_limits){ 0 }, &job->spaces);

	if (r == 0)
		r = stack_streams_new(job->file, &job->streams);
	for (int i = 0; i < SYMBOLIZE_PROFILES && r == 0; i++)
		r = begin_profile(job, (enum stack_profile_quantity)i);
	return r == 0 ? replay_records(job) : r;
}

int symbolize_run(const struct stack_file *file, const struct symbolize_options *options,
		  struct stack_profile *ret[SYMBOLIZE_PROFILES], struct symbolize_counts *ret_counts)
{
	struct symbolize_counts counts = { 0 };
	struct symbolizing job = { .file = file, .options = options, .counts = &counts };
	int r;

	if (options->kept != NULL)
		job.modules = TAKE(*options->kept);
	r = modules_new(file, options, &counts, &job.modules);
	if (r == 0)
		r = symbolize_all(&job);
	for (int i = 0; i < SYMBOLIZE_PROFILES; i++) {
		if (r == 0 && !options->is_first)
			ret[i] = TAKE(job.profiles[i]);
		pair_map_release(&job.stacks[i].frames);
		stack_profile_free(job.profiles[i]);
	}
	stack_streams_free(job.streams);
	address_spaces_free(job.spaces);
	if (r == 0 && options->is_first && options->kept != NULL)
		*options->kept = TAKE(job.modules);
	modules_free(job.modules);
	if (r == 0 && !options->is_first)
		*ret_counts = counts;
	return r;
}
