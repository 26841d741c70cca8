/*
 * profile.c: sums samples up, and writes the sum in three forms, each in one walk over the sets.
 *
 * Everything that may repeat is interned, from strings up to whole stacks, so a sample that is like
 * an earlier one costs look-ups and no memory. All sets share one budget. When it is spent, new
 * entries are refused and samples that need one are "(other)": keeping a stack without its symbols
 * would mix up "not known" with "no room".
 *
 * Numbers of mappings, functions and frames are those of pprof, because both count from 1 in the
 * order of the calls. "(other)" is not in the sets; each form adds it at the end.
 *
 * Folded stacks: a line is made in a buffer, frame by frame, and then becomes a member of a set,
 * whose number is the index of its count.
 *
 * The table of functions: a tally for each function, found by number. It remembers the last stack
 * that it was counted for (recursion), and, as stacks come thread by thread, the counts of the
 * current thread and of the best one before it: a table of functions times threads, whose size an
 * untrusted process could choose, is not needed. Threads are rows without a function at the end of
 * the same table: a reader that looks for functions skips them, and an incident has one file less.
 */
#include "lib/profile/profile.h"

#include "lib/base/compress.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/profile/pprof.h"
#include "lib/profile/stack_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits if the options have none. */
#define STACK_PROFILE_STACKS_DEFAULT 50000u
#define STACK_PROFILE_BYTES_DEFAULT ((size_t)64 << 20)

/*
 * Steps of the time that a profile covers, none shorter than a sample lasts, and in how many of them
 * stacks are told apart, 24 bytes each.
 */
#define STACK_PROFILE_STEPS 1000u
#define STACK_PROFILE_STEP_LEAST_NS (10 * NS_PER_MS)
#define STACK_PROFILE_MOMENTS_MAX 100000u

/* Folded stacks repeat all names: what is beyond so many bytes is "(other)" there only. */
#define STACK_PROFILE_FOLDED_MAX ((size_t)16 << 20)

struct stack_profile_mapping_key {
	uint64_t start, end, offset;
	uint32_t path; /* string */
	uint32_t build_id_len;
	uint8_t build_id[STACK_PROFILE_BUILD_ID_MAX];
	uint32_t hole;
};

struct stack_profile_function_key {
	uint32_t name, file, module; /* strings; file 0: not known */
	uint32_t known;              /* 0: the name was made up after the module */
};

struct stack_profile_line_key {
	uint32_t function, line;
};

/* Followed by at least one line, the innermost first. */
struct stack_profile_frame_key {
	uint64_t address;
	uint32_t mapping, lines;
};

struct stack_profile_thread_key {
	int32_t pid, tid;
	uint32_t process, thread, cgroup; /* strings; cgroup 0: not known */
	uint32_t other;                   /* 1: it is not part of the target */
};

/* Samples of a stack. */
struct stack_profile_tally {
	uint64_t samples[FUNCTION_TABLE_PHASES], weight[FUNCTION_TABLE_PHASES];
};

/* Samples of a stack of the target in one step of the time. */
struct stack_profile_moment {
	uint32_t stack; /* number */
	uint32_t at;    /* the step, times 2, plus the phase */
	uint64_t samples, weight;
};

struct stack_profile {
	struct stack_profile_options options;
	struct intern_budget budget;
	struct intern strings, mappings, functions, frames, threads;
	struct intern stacks;                /* the thread, then its frames, leaf first: all uint32_t */
	struct stack_profile_tally *tallies; /* by number of the stack, less 1 */
	size_t cap;
	struct stack_profile_tally other;
	struct stack_profile_moment *moments; /* in the order in which they were added */
	size_t moment_count, moment_cap;
	struct buffer key; /* scratch */
};

_Static_assert((int)STACK_PROFILE_FULL == (int)INTERN_FULL, "one condition");

int stack_profile_new(const struct stack_profile_options *options, struct stack_profile **ret)
{
	struct stack_profile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return -ENOMEM;

	profile->options = *options;
	if (profile->options.stacks_max == 0)
		profile->options.stacks_max = STACK_PROFILE_STACKS_DEFAULT;
	profile->budget.max_bytes = options->bytes_max ? options->bytes_max : STACK_PROFILE_BYTES_DEFAULT;
	*ret = profile;
	return 0;
}

void stack_profile_free(struct stack_profile *profile)
{
	if (!profile)
		return;

	intern_release(&profile->strings);
	intern_release(&profile->mappings);
	intern_release(&profile->functions);
	intern_release(&profile->frames);
	intern_release(&profile->threads);
	intern_release(&profile->stacks);
	buffer_release(&profile->key);
	free(profile->tallies);
	free(profile->moments);
	free(profile);
}

static int put_string(struct stack_profile *profile, const char *text, uint32_t *ret)
{
	return intern_put(&profile->strings, &profile->budget, text, strnlen(text, STACK_PROFILE_NAME_MAX), ret);
}

/* 0 for what is not known. */
static int put_optional(struct stack_profile *profile, const char *text, uint32_t *ret)
{
	*ret = 0;
	return text && *text ? put_string(profile, text, ret) : 0;
}

int stack_profile_mapping(struct stack_profile *profile, const struct stack_profile_mapping *mapping, uint32_t *ret)
{
	struct stack_profile_mapping_key key = {
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		.build_id_len = (uint32_t)mapping->build_id_len,
	};
	int rc;

	if (mapping->build_id_len > sizeof(key.build_id))
		key.build_id_len = sizeof(key.build_id);
	memcpy(key.build_id, mapping->build_id, key.build_id_len);
	*ret = STACK_PROFILE_NO_MAPPING;
	rc = put_optional(profile, mapping->path, &key.path);
	return rc == 0 ? intern_put(&profile->mappings, &profile->budget, &key, sizeof(key), ret) : rc;
}

/* ---- frames ---- */

/* The name of a frame without a symbol, after its module: "[libc.so.6]". */
static void make_name(const char *module, char ret[static STACK_PROFILE_NAME_MAX + 3])
{
	const char *slash = strrchr(module, '/'), *base = slash && slash[1] ? slash + 1 : module;
	size_t len = strnlen(base, STACK_PROFILE_NAME_MAX), used = 0;

	if (len == 0) {
		memcpy(ret, "[unknown]", sizeof("[unknown]"));
		return;
	}
	if (*base != '[')
		ret[used++] = '[';
	memcpy(ret + used, base, len);
	used += len;
	if (*base != '[')
		ret[used++] = ']';
	ret[used] = '\0';
}

/* module: number of the string, or 0. line NULL: no symbol. */
static int put_line(struct stack_profile *profile, uint32_t module, const struct stack_profile_line *line)
{
	char made[STACK_PROFILE_NAME_MAX + 3];
	struct stack_profile_function_key key = { .module = module };
	struct stack_profile_line_key entry = { .line = line ? line->line : 0 };
	int rc;

	if (line && line->function && *line->function) {
		key.known = 1;
		rc = put_string(profile, line->function, &key.name);
	} else {
		make_name(module ? intern_text(&profile->strings, module) : "", made);
		rc = put_string(profile, made, &key.name);
	}
	if (rc == 0)
		rc = put_optional(profile, line ? line->file : NULL, &key.file);
	if (rc == 0)
		rc = intern_put(&profile->functions, &profile->budget, &key, sizeof(key), &entry.function);
	return rc == 0 ? buffer_append(&profile->key, &entry, sizeof(entry)) : rc;
}

/* Of too many lines the last is kept too. */
static int put_lines(struct stack_profile *profile, uint32_t module, const struct stack_profile_frame *frame,
		     size_t count)
{
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = put_line(profile, module, &frame->lines[i + 1 == count ? frame->line_count - 1 : i]);
	return count == 0 ? put_line(profile, module, NULL) : rc;
}

int stack_profile_frame(struct stack_profile *profile, const struct stack_profile_frame *frame, uint32_t *ret)
{
	size_t count = frame->line_count < STACK_PROFILE_LINES_MAX ? frame->line_count : STACK_PROFILE_LINES_MAX, len;
	struct stack_profile_frame_key key = {
		.address = frame->address,
		.mapping = frame->mapping,
		.lines = count ? (uint32_t)count : 1,
	};
	uint32_t module = 0;
	int rc;

	*ret = STACK_PROFILE_OTHER;
	if (frame->mapping > profile->mappings.count)
		return -EINVAL;
	if (frame->mapping != STACK_PROFILE_NO_MAPPING) {
		const struct stack_profile_mapping_key *mapping = intern_get(&profile->mappings, frame->mapping, &len);

		module = mapping->path;
	}

	profile->key.len = 0;
	rc = buffer_append(&profile->key, &key, sizeof(key));
	if (rc == 0)
		rc = put_lines(profile, module, frame, count);
	if (rc == 0)
		rc = intern_put(&profile->frames, &profile->budget, profile->key.data, profile->key.len, ret);
	return rc;
}

/* ---- samples ---- */

static enum function_table_phase sample_phase(const struct stack_profile *profile,
					      const struct stack_profile_sample *sample)
{
	return sample->time_ns < profile->options.spike_from_ns ? FUNCTION_TABLE_BEFORE : FUNCTION_TABLE_DURING;
}

static void count_sample(const struct stack_profile *profile, struct stack_profile_tally *tally,
			 const struct stack_profile_sample *sample)
{
	enum function_table_phase phase = sample_phase(profile, sample);

	tally->samples[phase] += sample->count;
	tally->weight[phase] += sample->weight;
}

static uint64_t step_ns(const struct stack_profile *profile)
{
	const struct stack_profile_options *options = &profile->options;
	uint64_t step =
		options->to_ns > options->from_ns ? (options->to_ns - options->from_ns) / STACK_PROFILE_STEPS : 0;

	step -= step % NS_PER_MS;
	return step > STACK_PROFILE_STEP_LEAST_NS ? step : STACK_PROFILE_STEP_LEAST_NS;
}

/* Without room the sample has no time: it is the difference to the stack's tally. */
static void note_moment(struct stack_profile *profile, uint32_t stack, const struct stack_profile_sample *sample)
{
	uint64_t from_ns = profile->options.from_ns, step;
	struct stack_profile_moment *last = NULL, moment = { stack, 0, sample->count, sample->weight };

	if (sample->other)
		return;
	step = sample->time_ns > from_ns ? (sample->time_ns - from_ns) / step_ns(profile) : 0;
	if (step > UINT32_MAX / 2)
		return;
	moment.at = (uint32_t)step << 1 | (uint32_t)sample_phase(profile, sample);

	if (profile->moment_count > 0)
		last = &profile->moments[profile->moment_count - 1];
	if (last && last->stack == stack && last->at == moment.at) {
		last->samples += moment.samples;
		last->weight += moment.weight;
		return;
	}
	if (profile->moment_count < profile->moment_cap)
		profile->moments[profile->moment_count++] = moment;
}

static int put_thread(struct stack_profile *profile, const struct stack_profile_sample *sample, uint32_t *ret)
{
	struct stack_profile_thread_key key = { .pid = sample->pid, .tid = sample->tid, .other = sample->other };
	int rc = put_string(profile, sample->process ? sample->process : "", &key.process);

	if (rc == 0)
		rc = put_string(profile, sample->thread ? sample->thread : "", &key.thread);
	if (rc == 0)
		rc = put_optional(profile, sample->cgroup, &key.cgroup);
	return rc == 0 ? intern_put(&profile->threads, &profile->budget, &key, sizeof(key), ret) : rc;
}

/* Appends the frames to the key. 0; STACK_PROFILE_FULL: one of them had been refused. */
static int put_frames(struct stack_profile *profile, const struct stack_profile_sample *sample)
{
	size_t count = sample->frame_count < STACK_PROFILE_FRAMES_MAX ? sample->frame_count : STACK_PROFILE_FRAMES_MAX;
	bool other = false;

	for (size_t i = 0; i < sample->frame_count; i++) {
		if (sample->frames[i] > profile->frames.count)
			return -EINVAL;
		other |= i < count && sample->frames[i] == STACK_PROFILE_OTHER;
	}
	if (other)
		return STACK_PROFILE_FULL;
	return buffer_append(&profile->key, sample->frames, count * sizeof(*sample->frames));
}

/* The number of the sample's stack. */
static int put_stack_number(struct stack_profile *profile, const struct stack_profile_sample *sample, uint32_t *ret)
{
	struct intern_budget closed = { .max_bytes = 1, .spent = true };
	bool room = profile->stacks.count < profile->options.stacks_max;
	uint32_t thread, known = profile->stacks.count;
	int rc = put_thread(profile, sample, &thread);

	profile->key.len = 0;
	if (rc == 0)
		rc = buffer_append(&profile->key, &thread, sizeof(thread));
	if (rc == 0)
		rc = put_frames(profile, sample);
	if (rc == 0)
		rc = vector_reserve(&profile->tallies, &profile->cap, known + 1, sizeof(*profile->tallies));
	if (rc == 0)
		rc = intern_put(&profile->stacks, room ? &profile->budget : &closed, profile->key.data,
				profile->key.len, ret);
	if (profile->stacks.count > known)
		profile->tallies[known] = (struct stack_profile_tally){ 0 };
	return rc;
}

int stack_profile_add(struct stack_profile *profile, const struct stack_profile_sample *sample)
{
	static const struct stack_profile_line no_stack = { .function = "[no stack]" };
	const struct stack_profile_frame frame = { .lines = &no_stack, .line_count = 1 };
	struct stack_profile_sample whole = *sample;
	uint32_t only, number;
	int rc = 0;

	if (sample->frame_count == 0) {
		rc = stack_profile_frame(profile, &frame, &only);
		whole.frames = &only;
		whole.frame_count = 1;
	}
	if (rc == 0 && profile->moment_count < STACK_PROFILE_MOMENTS_MAX)
		rc = vector_reserve(&profile->moments, &profile->moment_cap, profile->moment_count + 1,
				    sizeof(*profile->moments));
	if (rc == 0)
		rc = put_stack_number(profile, &whole, &number);
	if (rc >= 0)
		count_sample(profile, rc == 0 ? &profile->tallies[number - 1] : &profile->other, sample);
	if (rc == 0)
		note_moment(profile, number, sample);
	return rc;
}

/* ---- the encoder of pprof ---- */

/*
 * pprof_new, then mappings, functions, locations and samples in this order, then pprof_finish. The
 * format is that of pprof.h. Strings are made printable (text_escape) and kept once. The encoder is
 * sticky: the first error is returned by every later call.
 *
 * Fields that are zero are left out, as in proto3. Fields may come in any order: all are encoded at
 * once but the strings, which are written last. A nested message needs its length in front: it is
 * encoded in a scratch buffer. String 0 is "": the set of strings counts from 1.
 */

#define PPROF_VALUES_MAX 4
#define PPROF_LABELS_MAX 8

/* Longer strings are cut. */
#define PPROF_TEXT_MAX 4096

/* {"cpu", "nanoseconds"}, {"samples", "count"} */
struct pprof_value_type {
	const char *type, *unit;
};

struct pprof_options {
	struct pprof_value_type values[PPROF_VALUES_MAX]; /* of each sample, in this order */
	size_t value_count;
	size_t value_shown; /* index of the default one */
	struct pprof_value_type period_type;
	uint64_t period;
	uint64_t wall_ns; /* when it began, since 1970 */
	uint64_t duration_ns;
	size_t bytes_max; /* of the profile before compression; 0: no limit */
};

struct pprof_mapping {
	uint64_t start, end, offset; /* of the file, at start */
	const char *path;
	const char *build_id; /* lower-case hexadecimal; "": not known */
	/* What is known of locations in it; pprof does not try to find out again. */
	bool has_functions, has_files, has_lines, has_inlined;
};

struct pprof_function {
	const char *name;
	const char *system_name; /* as the linker has it; NULL: name */
	const char *file;        /* "": not known */
	uint32_t start_line;     /* 0: not known */
};

struct pprof_line {
	uint64_t function;
	uint32_t line; /* 0: not known */
};

struct pprof_location {
	uint64_t mapping;               /* 0: in none */
	uint64_t address;               /* between the mapping's start and end */
	const struct pprof_line *lines; /* innermost first; the last is the function others were inlined into */
	size_t line_count;              /* 0: the function is not known */
};

/* text NULL: the number, in unit ("": none). */
struct pprof_label {
	const char *key, *text;
	int64_t number;
	const char *unit;
};

struct pprof_sample {
	const uint64_t *locations; /* leaf first */
	size_t location_count;
	uint64_t values[PPROF_VALUES_MAX];
	struct pprof_label labels[PPROF_LABELS_MAX]; /* key NULL: no more */
};

enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2 };

struct pprof {
	struct buffer body;    /* the profile as far as it is */
	struct buffer message; /* a member of it, while it is made */
	struct buffer part;    /* a member of that */
	struct intern strings;
	struct intern_budget budget;
	uint64_t mappings, functions, locations;
	size_t value_count;
	int error; /* the first one; 0: none */
};

/* ---- fields of pprof; errors stay in the encoder ---- */

static void append_bytes(struct pprof *pprof, struct buffer *to, const void *data, size_t len)
{
	if (pprof->error == 0)
		pprof->error = buffer_append(to, data, len);
}

static void put_varint(struct pprof *pprof, struct buffer *to, uint64_t value)
{
	unsigned char bytes[10];
	size_t len = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[len++] = (unsigned char)(value | 0x80);
	bytes[len++] = (unsigned char)value;
	append_bytes(pprof, to, bytes, len);
}

static void put_number(struct pprof *pprof, struct buffer *to, unsigned field, uint64_t value)
{
	if (value == 0)
		return;
	put_varint(pprof, to, field << 3 | WIRE_VARINT);
	put_varint(pprof, to, value);
}

static void put_bytes(struct pprof *pprof, struct buffer *to, unsigned field, const void *data, size_t len)
{
	put_varint(pprof, to, field << 3 | WIRE_BYTES);
	put_varint(pprof, to, len);
	append_bytes(pprof, to, data, len);
}

/* Moves what is in from to the end of to, as a nested message. */
static void put_nested(struct pprof *pprof, struct buffer *to, unsigned field, struct buffer *from)
{
	put_bytes(pprof, to, field, from->data, from->len);
	from->len = 0;
}

/* int64 in the format: what is beyond is cut. */
static uint64_t clamp_int64(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : value;
}

/* The number of a string, made printable. */
static uint64_t string_of(struct pprof *pprof, const char *text)
{
	char printable[4 * PPROF_TEXT_MAX + 1];
	uint32_t number = 0;
	size_t len;
	int rc;

	if (!text || !*text || pprof->error != 0)
		return 0;
	len = text_escape(printable, sizeof(printable), text, strnlen(text, PPROF_TEXT_MAX));
	rc = intern_put(&pprof->strings, &pprof->budget, printable, len, &number);
	if (rc != 0)
		pprof->error = rc == INTERN_FULL ? -EFBIG : rc;
	return number;
}

static void put_text(struct pprof *pprof, struct buffer *to, unsigned field, const char *text)
{
	put_number(pprof, to, field, string_of(pprof, text));
}

/* ---- the head of pprof ---- */

static void put_value_type(struct pprof *pprof, unsigned field, const struct pprof_value_type *type)
{
	put_text(pprof, &pprof->message, VALUE_TYPE_TYPE, type->type);
	put_text(pprof, &pprof->message, VALUE_TYPE_UNIT, type->unit);
	put_nested(pprof, &pprof->body, field, &pprof->message);
}

static void put_head(struct pprof *pprof, const struct pprof_options *options)
{
	struct buffer *body = &pprof->body;

	for (size_t i = 0; i < options->value_count; i++)
		put_value_type(pprof, PROFILE_SAMPLE_TYPE, &options->values[i]);
	put_number(pprof, body, PROFILE_TIME_NS, clamp_int64(options->wall_ns));
	put_number(pprof, body, PROFILE_DURATION_NS, clamp_int64(options->duration_ns));
	if (options->period_type.type)
		put_value_type(pprof, PROFILE_PERIOD_TYPE, &options->period_type);
	put_number(pprof, body, PROFILE_PERIOD, clamp_int64(options->period));
	if (options->value_shown < options->value_count)
		put_text(pprof, body, PROFILE_DEFAULT_TYPE, options->values[options->value_shown].type);
}

/* NULL is fine. */
static void pprof_free(struct pprof *pprof)
{
	if (!pprof)
		return;

	buffer_release(&pprof->body);
	buffer_release(&pprof->message);
	buffer_release(&pprof->part);
	intern_release(&pprof->strings);
	free(pprof);
}
CLEANUP(pprof, free);

/* 0; -ENOMEM; -EFBIG: bytes_max is too little even for this. */
static int pprof_new(const struct pprof_options *options, struct pprof **ret)
{
	struct pprof *pprof = calloc(1, sizeof(*pprof));
	int rc;

	if (!pprof)
		return -ENOMEM;

	pprof->body.max = options->bytes_max;
	pprof->budget.max_bytes = options->bytes_max;
	pprof->value_count = options->value_count < PPROF_VALUES_MAX ? options->value_count : PPROF_VALUES_MAX;
	put_head(pprof, options);
	rc = pprof->error;
	if (rc < 0)
		pprof_free(pprof);
	else
		*ret = pprof;
	return rc;
}

/* ---- members of pprof ---- */

/* The message is whole. */
static int finish_message(struct pprof *pprof, unsigned field)
{
	put_nested(pprof, &pprof->body, field, &pprof->message);
	return pprof->error;
}

/* An id must have been given; 0 is none and legal where it may be missing. */
static void check_id(struct pprof *pprof, uint64_t id, uint64_t given, uint64_t least)
{
	if (pprof->error == 0 && (id < least || id > given))
		pprof->error = -EINVAL;
}

/*
 * Each adds one and sets *ret to its id: 1, 2, 3 ... of its kind, in the order of the calls. Nothing
 * is compared with what is there. 0; -ENOMEM; -EFBIG; -EINVAL: an id that was not given.
 */
static int pprof_add_mapping(struct pprof *pprof, const struct pprof_mapping *mapping, uint64_t *ret)
{
	struct buffer *message = &pprof->message;
	int rc;

	put_number(pprof, message, MAPPING_ID, pprof->mappings + 1);
	put_number(pprof, message, MAPPING_START, mapping->start);
	put_number(pprof, message, MAPPING_END, mapping->end);
	put_number(pprof, message, MAPPING_OFFSET, mapping->offset);
	put_text(pprof, message, MAPPING_PATH, mapping->path);
	put_text(pprof, message, MAPPING_BUILD_ID, mapping->build_id);
	put_number(pprof, message, MAPPING_HAS_FUNCTIONS, mapping->has_functions);
	put_number(pprof, message, MAPPING_HAS_FILES, mapping->has_files);
	put_number(pprof, message, MAPPING_HAS_LINES, mapping->has_lines);
	put_number(pprof, message, MAPPING_HAS_INLINED, mapping->has_inlined);
	rc = finish_message(pprof, PROFILE_MAPPING);
	if (rc == 0)
		*ret = ++pprof->mappings;
	return rc;
}

static int pprof_add_function(struct pprof *pprof, const struct pprof_function *function, uint64_t *ret)
{
	struct buffer *message = &pprof->message;
	int rc;

	put_number(pprof, message, FUNCTION_ID, pprof->functions + 1);
	put_text(pprof, message, FUNCTION_NAME, function->name);
	put_text(pprof, message, FUNCTION_SYSTEM_NAME, function->system_name ? function->system_name : function->name);
	put_text(pprof, message, FUNCTION_FILE, function->file);
	put_number(pprof, message, FUNCTION_START_LINE, function->start_line);
	rc = finish_message(pprof, PROFILE_FUNCTION);
	if (rc == 0)
		*ret = ++pprof->functions;
	return rc;
}

static int pprof_add_location(struct pprof *pprof, const struct pprof_location *location, uint64_t *ret)
{
	int rc;

	check_id(pprof, location->mapping, pprof->mappings, 0);
	put_number(pprof, &pprof->message, LOCATION_ID, pprof->locations + 1);
	put_number(pprof, &pprof->message, LOCATION_MAPPING, location->mapping);
	put_number(pprof, &pprof->message, LOCATION_ADDRESS, location->address);
	for (size_t i = 0; i < location->line_count; i++) {
		check_id(pprof, location->lines[i].function, pprof->functions, 1);
		put_number(pprof, &pprof->part, LINE_FUNCTION, location->lines[i].function);
		put_number(pprof, &pprof->part, LINE_NUMBER, location->lines[i].line);
		put_nested(pprof, &pprof->message, LOCATION_LINE, &pprof->part);
	}
	rc = finish_message(pprof, PROFILE_LOCATION);
	if (rc == 0)
		*ret = ++pprof->locations;
	return rc;
}

static void put_label(struct pprof *pprof, const struct pprof_label *label)
{
	put_text(pprof, &pprof->part, LABEL_KEY, label->key);
	if (label->text) {
		put_text(pprof, &pprof->part, LABEL_TEXT, label->text);
	} else {
		put_number(pprof, &pprof->part, LABEL_NUMBER, (uint64_t)label->number);
		put_text(pprof, &pprof->part, LABEL_UNIT, label->unit);
	}
	put_nested(pprof, &pprof->message, SAMPLE_LABEL, &pprof->part);
}

static int pprof_add_sample(struct pprof *pprof, const struct pprof_sample *sample)
{
	for (size_t i = 0; i < sample->location_count; i++) {
		check_id(pprof, sample->locations[i], pprof->locations, 1);
		put_varint(pprof, &pprof->part, sample->locations[i]);
	}
	put_nested(pprof, &pprof->message, SAMPLE_LOCATIONS, &pprof->part);
	/* Packed: zeros are kept, there must be as many values as types. */
	for (size_t i = 0; i < pprof->value_count; i++)
		put_varint(pprof, &pprof->part, clamp_int64(sample->values[i]));
	put_nested(pprof, &pprof->message, SAMPLE_VALUES, &pprof->part);
	for (size_t i = 0; i < PPROF_LABELS_MAX && sample->labels[i].key; i++)
		put_label(pprof, &sample->labels[i]);
	return finish_message(pprof, PROFILE_SAMPLE);
}

/* Writes the profile to sink. To be called once. 0; -ENOMEM; -EFBIG; what sink returns. */
static int pprof_finish(struct pprof *pprof, const struct sink *sink)
{
	put_bytes(pprof, &pprof->body, PROFILE_STRING, "", 0);
	for (uint32_t i = 1; i <= pprof->strings.count; i++) {
		size_t len;
		const void *text = intern_get(&pprof->strings, i, &len);

		put_bytes(pprof, &pprof->body, PROFILE_STRING, text, len);
	}
	if (pprof->error == 0)
		pprof->error = deflate_gzip(pprof->body.data, pprof->body.len, sink);
	return pprof->error;
}

#define OTHER "(other)"

static const char *const phase_names[FUNCTION_TABLE_PHASES] = { "before", "during" };

static const struct form {
	struct pprof_value_type count, weight;
	enum function_table_unit unit;
} forms[] = {
	[STACK_PROFILE_CPU] = { { "samples", "count" }, { "cpu", "nanoseconds" }, FUNCTION_TABLE_IN_SAMPLES },
	[STACK_PROFILE_MEMORY] = { { "faults", "count" }, { "memory", "bytes" }, FUNCTION_TABLE_IN_BYTES },
};

static const char *text_of(const struct stack_profile *profile, uint32_t string)
{
	return string ? intern_text(&profile->strings, string) : "";
}

static const struct stack_profile_function_key *function_of(const struct stack_profile *profile, uint32_t number)
{
	size_t len;

	return intern_get(&profile->functions, number, &len);
}

static const struct stack_profile_thread_key *thread_of(const struct stack_profile *profile, uint32_t number)
{
	size_t len;

	return intern_get(&profile->threads, number, &len);
}

static const struct stack_profile_frame_key *frame_of(const struct stack_profile *profile, uint32_t number)
{
	size_t len;

	return intern_get(&profile->frames, number, &len);
}

static const struct stack_profile_line_key *lines_of(const struct stack_profile_frame_key *frame)
{
	return (const struct stack_profile_line_key *)(frame + 1);
}

/* The frames of a stack, leaf first, and its thread. */
static const uint32_t *stack_of(const struct stack_profile *profile, uint32_t number, uint32_t *ret_thread,
				size_t *ret_count)
{
	size_t len;
	const uint32_t *key = intern_get(&profile->stacks, number, &len);

	*ret_thread = key[0];
	*ret_count = len / sizeof(*key) - 1;
	return key + 1;
}

static bool is_empty(const struct stack_profile_tally *tally)
{
	return tally->samples[FUNCTION_TABLE_BEFORE] == 0 && tally->samples[FUNCTION_TABLE_DURING] == 0;
}

/* ---- a profile for pprof ---- */

/* What is known of the frames of each mapping; [0] is none. */
static int find_known(const struct stack_profile *profile, struct pprof_mapping **ret)
{
	struct pprof_mapping *known = calloc((size_t)profile->mappings.count + 1, sizeof(*known));

	if (!known)
		return -ENOMEM;

	for (uint32_t i = 1; i <= profile->frames.count; i++) {
		const struct stack_profile_frame_key *frame = frame_of(profile, i);
		const struct stack_profile_line_key *lines = lines_of(frame);
		struct pprof_mapping *mapping = &known[frame->mapping];

		mapping->has_inlined |= frame->lines > 1;
		for (uint32_t n = 0; n < frame->lines; n++) {
			const struct stack_profile_function_key *function = function_of(profile, lines[n].function);

			mapping->has_functions |= function->known != 0;
			mapping->has_files |= function->file != 0;
			mapping->has_lines |= lines[n].line != 0;
		}
	}
	*ret = known;
	return 0;
}

static int put_pprof_mappings(const struct stack_profile *profile, struct pprof *pprof)
{
	AUTO_FREE struct pprof_mapping *known = NULL;
	int rc = find_known(profile, &known);

	for (uint32_t i = 1; i <= profile->mappings.count && rc == 0; i++) {
		char build_id[2 * STACK_PROFILE_BUILD_ID_MAX + 1] = "";
		uint64_t id;
		size_t len;
		const struct stack_profile_mapping_key *key = intern_get(&profile->mappings, i, &len);

		for (uint32_t b = 0; b < key->build_id_len; b++)
			snprintf(build_id + 2 * b, 3, "%02x", key->build_id[b]);
		known[i].start = key->start;
		known[i].end = key->end;
		known[i].offset = key->offset;
		known[i].path = text_of(profile, key->path);
		known[i].build_id = build_id;
		rc = pprof_add_mapping(pprof, &known[i], &id);
	}
	return rc;
}

static int put_pprof_functions(const struct stack_profile *profile, struct pprof *pprof)
{
	int rc = 0;

	for (uint32_t i = 1; i <= profile->functions.count && rc == 0; i++) {
		const struct stack_profile_function_key *key = function_of(profile, i);
		struct pprof_function function = { .name = text_of(profile, key->name),
						   .file = text_of(profile, key->file) };
		uint64_t id;

		rc = pprof_add_function(pprof, &function, &id);
	}
	return rc;
}

static int put_pprof_locations(const struct stack_profile *profile, struct pprof *pprof)
{
	int rc = 0;

	for (uint32_t i = 1; i <= profile->frames.count && rc == 0; i++) {
		const struct stack_profile_frame_key *frame = frame_of(profile, i);
		const struct stack_profile_line_key *keys = lines_of(frame);
		struct pprof_line lines[STACK_PROFILE_LINES_MAX];
		struct pprof_location location = {
			.mapping = frame->mapping,
			.address = frame->address,
			.lines = lines,
		};
		uint64_t id;

		/* pprof names what has none after its mapping; without one it is named here. */
		for (uint32_t n = 0; n < frame->lines && n < STACK_PROFILE_LINES_MAX; n++)
			if (function_of(profile, keys[n].function)->known || frame->mapping == STACK_PROFILE_NO_MAPPING)
				lines[location.line_count++] = (struct pprof_line){ keys[n].function, keys[n].line };
		rc = pprof_add_location(pprof, &location, &id);
	}
	return rc;
}

/* The moments of a stack: ascending by step and phase, from a copy that is sorted by stack. */
struct moments {
	const struct stack_profile_moment *at, *end;
	uint64_t step_ms;
};

static int by_stack_and_time(const void *a, const void *b)
{
	const struct stack_profile_moment *x = a, *y = b;

	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

/* The samples of a stack whose time is known, a sample for each step. What is left of its tally stays in rest. */
static int put_pprof_moments(struct pprof *pprof, struct moments *moments, uint32_t stack,
			     const struct pprof_sample *template, struct stack_profile_tally *rest)
{
	int rc = 0;

	while (rc == 0 && moments->at < moments->end && moments->at->stack == stack) {
		const struct stack_profile_moment *first = moments->at;
		unsigned phase = first->at & 1;
		struct pprof_sample sample = *template;
		size_t labels = 0;

		for (; moments->at < moments->end && moments->at->stack == stack && moments->at->at == first->at;
		     moments->at++) {
			sample.values[0] += moments->at->samples;
			sample.values[1] += moments->at->weight;
		}
		rest->samples[phase] -= sample.values[0];
		rest->weight[phase] -= sample.values[1];
		sample.labels[0] = (struct pprof_label){ .key = "phase", .text = phase_names[phase] };
		while (sample.labels[labels].key)
			labels++;
		sample.labels[labels] = (struct pprof_label){ .key = "time",
							      .number = (int64_t)((first->at >> 1) * moments->step_ms),
							      .unit = "milliseconds" };
		rc = pprof_add_sample(pprof, &sample);
	}
	return rc;
}

/* One sample for each phase that has any: template with values and phase filled in. */
static int put_pprof_phases(struct pprof *pprof, const struct stack_profile_tally *tally,
			    const struct pprof_sample *template)
{
	int rc = 0;

	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES && rc == 0; p++) {
		struct pprof_sample sample = *template;

		if (tally->samples[p] == 0 && tally->weight[p] == 0)
			continue;
		sample.values[0] = tally->samples[p];
		sample.values[1] = tally->weight[p];
		sample.labels[0] = (struct pprof_label){ .key = "phase", .text = phase_names[p] };
		rc = pprof_add_sample(pprof, &sample);
	}
	return rc;
}

static int put_pprof_stack(const struct stack_profile *profile, struct pprof *pprof, uint32_t number,
			   struct moments *moments)
{
	struct stack_profile_tally rest = profile->tallies[number - 1];
	uint64_t locations[STACK_PROFILE_FRAMES_MAX];
	uint32_t thread_number;
	size_t count;
	const uint32_t *frames = stack_of(profile, number, &thread_number, &count);
	const struct stack_profile_thread_key *thread = thread_of(profile, thread_number);
	struct pprof_sample sample = {
		.locations = locations,
		.location_count = count,
		.labels = {
			[1] = { .key = "process", .text = text_of(profile, thread->process) },
			[2] = { .key = "process_id", .number = thread->pid },
			[3] = { .key = "thread", .text = text_of(profile, thread->thread) },
			[4] = { .key = "thread_id", .number = thread->tid },
			[5] = { .key = "target", .text = thread->other ? "no" : "yes" },
			[6] = { .key = thread->cgroup ? "cgroup" : NULL, .text = text_of(profile, thread->cgroup) },
		},
	};

	for (size_t i = 0; i < count; i++)
		locations[i] = frames[i];

	int rc = put_pprof_moments(pprof, moments, number, &sample, &rest);

	return rc == 0 ? put_pprof_phases(pprof, &rest, &sample) : rc;
}

static int put_pprof_other(const struct stack_profile *profile, struct pprof *pprof)
{
	const struct pprof_function function = { .name = OTHER };
	struct pprof_line line = { 0 };
	const struct pprof_location location = { .lines = &line, .line_count = 1 };
	uint64_t id;
	const struct pprof_sample sample = {
		.locations = &id,
		.location_count = 1,
		.labels = { [1] = { .key = "process", .text = OTHER } },
	};
	int rc;

	if (is_empty(&profile->other))
		return 0;
	rc = pprof_add_function(pprof, &function, &line.function);
	if (rc == 0)
		rc = pprof_add_location(pprof, &location, &id);
	if (rc == 0)
		rc = put_pprof_phases(pprof, &profile->other, &sample);
	return rc;
}

int stack_profile_write_pprof(const struct stack_profile *profile, const struct sink *sink)
{
	const struct stack_profile_options *options = &profile->options;
	const struct form *form = &forms[options->quantity];
	const struct pprof_options head = {
		.values = { form->count, form->weight },
		.value_count = 2,
		.value_shown = 1,
		.period_type = form->weight,
		.period = options->quantity == STACK_PROFILE_MEMORY ? options->period_bytes : options->period_ns,
		.wall_ns = options->wall_ns - (options->fired_ns - options->from_ns),
		.duration_ns = options->to_ns > options->from_ns ? options->to_ns - options->from_ns : 0,
	};
	AUTO(pprof_freep) struct pprof *pprof = NULL;
	AUTO_FREE struct stack_profile_moment *sorted = NULL;
	struct moments moments = { .step_ms = step_ns(profile) / NS_PER_MS };
	int rc = pprof_new(&head, &pprof);

	if (rc == 0 && profile->moment_count > 0) {
		sorted = malloc(profile->moment_count * sizeof(*sorted));
		rc = sorted ? 0 : -ENOMEM;
	}
	if (rc == 0 && sorted) {
		memcpy(sorted, profile->moments, profile->moment_count * sizeof(*sorted));
		qsort(sorted, profile->moment_count, sizeof(*sorted), by_stack_and_time);
		moments.at = sorted;
		moments.end = sorted + profile->moment_count;
	}

	if (rc == 0)
		rc = put_pprof_mappings(profile, pprof);
	if (rc == 0)
		rc = put_pprof_functions(profile, pprof);
	if (rc == 0)
		rc = put_pprof_locations(profile, pprof);
	for (uint32_t i = 1; i <= profile->stacks.count && rc == 0; i++)
		rc = put_pprof_stack(profile, pprof, i, &moments);
	if (rc == 0)
		rc = put_pprof_other(profile, pprof);
	return rc == 0 ? pprof_finish(pprof, sink) : rc;
}

/* ---- folded ---- */

/* Bytes of a name that are escaped at a time. */
#define PIECE 256

/*
 * Lines "process;root;...;leaf count", sorted by their bytes, which flamegraph.pl, speedscope and
 * inferno read. {0} is empty and without a limit.
 */
struct folded {
	struct intern lines;
	struct intern_budget budget;
	uint64_t *counts; /* by number of the line, less 1 */
	size_t cap;
	uint64_t other;     /* counts of what did not fit */
	struct buffer line; /* the one that is made */
	int error;          /* the first one; 0: none */
};

static void folded_release(struct folded *folded)
{
	intern_release(&folded->lines);
	buffer_release(&folded->line);
	free(folded->counts);
}

static void folded_put(struct folded *folded, const char *text, size_t len)
{
	if (folded->error == 0)
		folded->error = buffer_append(&folded->line, text, len);
}

/* All of it but the semicolons; len bytes of printable text. */
static void put_printable(struct folded *folded, const char *text, size_t len)
{
	while (len > 0) {
		const char *semicolon = memchr(text, ';', len);
		size_t run = semicolon ? (size_t)(semicolon - text) : len;

		folded_put(folded, text, run);
		if (semicolon) {
			folded_put(folded, "\\x3b", 4);
			run++;
		}
		text += run;
		len -= run;
	}
}

/* Names end where a character of UTF-8 does, so that none is taken for two broken halves. */
static size_t utf8_piece(const char *name, size_t len)
{
	size_t take = len < PIECE ? len : PIECE, back = 0;

	while (take < len && back < 3 && ((unsigned char)name[take - back] & 0xC0) == 0x80)
		back++;
	return take - back;
}

/*
 * Adds a frame to the stack, the root first. A name may be anything: it is made printable, the
 * semicolon becomes \x3b, and nothing "?". 0 or -ENOMEM, which is sticky.
 */
static int folded_push(struct folded *folded, const char *name)
{
	char printable[4 * PIECE + 1];
	size_t len = strlen(name);

	if (folded->line.len > 0)
		folded_put(folded, ";", 1);
	if (len == 0)
		folded_put(folded, "?", 1);
	while (len > 0) {
		size_t piece = utf8_piece(name, len);

		put_printable(folded, printable, text_escape(printable, sizeof(printable), name, piece));
		name += piece;
		len -= piece;
	}
	return folded->error;
}

/* The line is whole. 0; INTERN_FULL; -ENOMEM. */
static int count_line(struct folded *folded, uint64_t count)
{
	uint32_t number, known = folded->lines.count;
	int rc = vector_reserve(&folded->counts, &folded->cap, (size_t)known + 1, sizeof(*folded->counts));

	if (rc == 0)
		rc = intern_put(&folded->lines, &folded->budget, folded->line.data, folded->line.len, &number);
	if (rc != 0)
		return rc;
	if (folded->lines.count > known)
		folded->counts[known] = 0;
	folded->counts[number - 1] += count;
	return 0;
}

/* Counts the stack, unless it is empty, and begins another one. 0 or -ENOMEM, which is sticky. */
static int folded_count(struct folded *folded, uint64_t count)
{
	int rc = folded->error;

	if (rc == 0 && folded->line.len > 0)
		rc = count_line(folded, count);
	if (rc == INTERN_FULL)
		folded->other += count;
	folded->error = rc < 0 ? rc : 0;
	folded->line.len = 0;
	return folded->error;
}

static int by_line(const void *a, const void *b, void *ctx)
{
	const struct intern *lines = ctx;

	return strcmp(intern_text(lines, *(const uint32_t *)a), intern_text(lines, *(const uint32_t *)b));
}

static int write_line(const struct sink *sink, const void *line, size_t len, uint64_t count)
{
	char number[TEXT_NUMBER_ROOM + 2] = " ", *end = text_put_u64(number + 1, count);
	int rc = sink_write(sink, line, len);

	*end++ = '\n';
	return rc == 0 ? sink_write(sink, number, (size_t)(end - number)) : rc;
}

/* First the others, if there are any. 0; -ENOMEM; what sink returns. */
static int folded_write(const struct folded *folded, const struct sink *sink)
{
	uint32_t count = folded->lines.count;
	AUTO_FREE uint32_t *order = malloc((count + 1) * sizeof(*order));
	int rc = folded->error;

	if (rc < 0)
		return rc;
	if (!order)
		return -ENOMEM;

	for (uint32_t i = 0; i < count; i++)
		order[i] = i + 1;
	qsort_r(order, count, sizeof(*order), by_line, (void *)&folded->lines);
	if (folded->other > 0)
		rc = write_line(sink, OTHER ";" OTHER, strlen(OTHER ";" OTHER), folded->other);
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		size_t len;
		const void *line = intern_get(&folded->lines, order[i], &len);

		rc = write_line(sink, line, len, folded->counts[order[i] - 1]);
	}
	return rc;
}

/* Bytes of memory rather than faults: a fault may be of a page of any size. */
static uint64_t folded_of(const struct stack_profile *profile, const struct stack_profile_tally *tally)
{
	const uint64_t *counts = profile->options.quantity == STACK_PROFILE_MEMORY ? tally->weight : tally->samples;

	return counts[FUNCTION_TABLE_BEFORE] + counts[FUNCTION_TABLE_DURING];
}

/*
 * Lines begin with the root, and with the function that others were inlined into: both orders are
 * reversed.
 */
static int fold_stack(const struct stack_profile *profile, struct folded *folded, uint32_t number)
{
	uint32_t thread;
	size_t count;
	const uint32_t *frames = stack_of(profile, number, &thread, &count);
	int rc = folded_push(folded, text_of(profile, thread_of(profile, thread)->process));

	for (size_t i = count; i > 0 && rc == 0; i--) {
		const struct stack_profile_frame_key *frame = frame_of(profile, frames[i - 1]);

		for (uint32_t n = frame->lines; n > 0 && rc == 0; n--)
			rc = folded_push(folded,
					 text_of(profile, function_of(profile, lines_of(frame)[n - 1].function)->name));
	}
	return rc == 0 ? folded_count(folded, folded_of(profile, &profile->tallies[number - 1])) : rc;
}

int stack_profile_write_folded(const struct stack_profile *profile, const struct sink *sink)
{
	AUTO(folded_release) struct folded folded = { .budget.max_bytes = STACK_PROFILE_FOLDED_MAX };
	int rc = 0;

	for (uint32_t i = 1; i <= profile->stacks.count && rc == 0; i++)
		rc = fold_stack(profile, &folded, i);
	folded.other += folded_of(profile, &profile->other);
	return rc == 0 ? folded_write(&folded, sink) : rc;
}

/* ---- the table of functions ---- */

/*
 * More functions, and more threads, are not written. The bytes are those of each of the two:
 * readers look at the first MiB of a file, and long names must not push the threads, which come
 * last, out of it.
 */
#define FUNCTION_TABLE_ROWS_MAX 2000
#define FUNCTION_TABLE_THREADS_MAX 200
#define FUNCTION_TABLE_PART_BYTES_MAX ((size_t)400 << 10)

struct function_table_thread {
	int32_t pid, tid;
	const char *process, *name;
	bool neighbour; /* while its process was not part of the target: a row of its own */
};

/* One stack of one thread, with how often it was seen. */
struct function_table_stack {
	const uint32_t *functions; /* leaf first */
	size_t count;
	uint32_t thread;
	uint64_t samples[FUNCTION_TABLE_PHASES]; /* or page faults */
	uint64_t weight[FUNCTION_TABLE_PHASES];  /* ns of CPU time, or bytes of memory */
};

/* What one thread did. */
struct part {
	uint32_t thread; /* 0: none */
	uint64_t amount[FUNCTION_TABLE_PHASES];
};

struct function_tally {
	uint64_t self[FUNCTION_TABLE_PHASES], total[FUNCTION_TABLE_PHASES];
	uint64_t beside; /* during: CPU time, or faults */
	uint64_t stack;  /* the last one it was counted for */
	struct part now, best;
};

/* Of threads there is no more than self and beside. */
struct function_tallies {
	struct function_tally *tally; /* by number, less 1 */
	size_t cap;
};

/* Followed by the name, NUL, the process. */
struct thread_key {
	int32_t pid, tid;
	uint32_t neighbour; /* 1: of a process that the incident is not of */
};

struct function_table {
	enum function_table_unit unit;
	struct intern functions; /* name, NUL, module */
	struct intern threads;   /* struct thread_key */
	struct intern_budget budget;
	struct buffer key;
	struct function_tallies of_functions, of_threads;
	uint64_t stacks;
	uint64_t sum[FUNCTION_TABLE_PHASES], others[FUNCTION_TABLE_PHASES]; /* others: of it, not of the incident */
};

static const struct {
	const char *header, *sums, *own;
} table_heads[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = { FUNCTION_TABLE_HEADER, FUNCTION_TABLE_SAMPLES, FUNCTION_TABLE_OWN_SAMPLES },
	[FUNCTION_TABLE_IN_BYTES] = { FUNCTION_TABLE_HEADER_BYTES, FUNCTION_TABLE_BYTES, FUNCTION_TABLE_OWN_BYTES },
};

static void function_table_release(struct function_table *table)
{
	intern_release(&table->functions);
	intern_release(&table->threads);
	buffer_release(&table->key);
	free(table->of_functions.tally);
	free(table->of_threads.tally);
}

/* Two names, the first of them ends with a NUL. */
static int append_names(struct buffer *key, const char *first, const char *second)
{
	int rc = buffer_append(key, first, strnlen(first, STACK_PROFILE_NAME_MAX));

	if (rc == 0)
		rc = buffer_append(key, "", 1);
	return rc == 0 ? buffer_append(key, second, strnlen(second, STACK_PROFILE_NAME_MAX)) : rc;
}

/* The number of table->key in a set, with a tally of its own. */
static int put_tallied(struct function_table *table, struct intern *set, struct function_tallies *tallies,
		       uint32_t *ret)
{
	uint32_t known = set->count;
	int rc = vector_reserve(&tallies->tally, &tallies->cap, (size_t)known + 1, sizeof(*tallies->tally));

	if (rc == 0)
		rc = intern_put(set, &table->budget, table->key.data, table->key.len, ret);
	if (set->count > known)
		tallies->tally[known] = (struct function_tally){ 0 };
	return rc;
}

/* The number of a function, from 1 on; the same for the same. 0 or -ENOMEM. */
static int function_table_function(struct function_table *table, const char *name, const char *module, uint32_t *ret)
{
	int rc;

	table->key.len = 0;
	rc = append_names(&table->key, name, module);
	return rc == 0 ? put_tallied(table, &table->functions, &table->of_functions, ret) : rc;
}

/* The same of a thread. */
static int function_table_thread(struct function_table *table, const struct function_table_thread *thread,
				 uint32_t *ret)
{
	const struct thread_key key = { thread->pid, thread->tid, thread->neighbour };
	int rc;

	table->key.len = 0;
	rc = buffer_append(&table->key, &key, sizeof(key));
	if (rc == 0)
		rc = append_names(&table->key, thread->name, thread->process);
	return rc == 0 ? put_tallied(table, &table->threads, &table->of_threads, ret) : rc;
}

static bool part_is_more(const struct part *a, const struct part *b)
{
	if (a->amount[FUNCTION_TABLE_DURING] != b->amount[FUNCTION_TABLE_DURING])
		return a->amount[FUNCTION_TABLE_DURING] > b->amount[FUNCTION_TABLE_DURING];
	return a->amount[FUNCTION_TABLE_BEFORE] > b->amount[FUNCTION_TABLE_BEFORE];
}

/* The best thread, the one that is being added included. */
static const struct part *top_of(const struct function_tally *tally)
{
	return part_is_more(&tally->now, &tally->best) ? &tally->now : &tally->best;
}

/* What the table counts. */
static const uint64_t *table_amounts(const struct function_table *table, const struct function_table_stack *stack)
{
	return table->unit == FUNCTION_TABLE_IN_BYTES ? stack->weight : stack->samples;
}

static void count_self(const struct function_table *table, struct function_tally *tally,
		       const struct function_table_stack *stack)
{
	const uint64_t *amount = table_amounts(table, stack);

	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		tally->self[p] += amount[p];
	tally->beside +=
		(table->unit == FUNCTION_TABLE_IN_BYTES ? stack->samples : stack->weight)[FUNCTION_TABLE_DURING];
}

static void count_total(struct function_tally *tally, const struct function_table_stack *stack, const uint64_t *amount)
{
	if (tally->now.thread != stack->thread) {
		tally->best = *top_of(tally);
		tally->now = (struct part){ .thread = stack->thread };
	}
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++) {
		tally->total[p] += amount[p];
		tally->now.amount[p] += amount[p];
	}
}

/* All stacks of a thread must come one after the other, or top_thread may not be the top one. */
static void function_table_add(struct function_table *table, const struct function_table_stack *stack)
{
	table->stacks++;
	for (size_t i = 0; i < stack->count; i++) {
		struct function_tally *tally = &table->of_functions.tally[stack->functions[i] - 1];

		if (tally->stack == table->stacks)
			continue;
		tally->stack = table->stacks;
		count_total(tally, stack, table_amounts(table, stack));
	}
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		table->sum[p] += table_amounts(table, stack)[p];
	if (stack->count > 0)
		count_self(table, &table->of_functions.tally[stack->functions[0] - 1], stack);
	count_self(table, &table->of_threads.tally[stack->thread - 1], stack);
}

static int compare_descending(uint64_t a, uint64_t b)
{
	return a < b ? 1 : -(a > b);
}

/*
 * CPU: by self, then by total. New memory is touched by memcpy(3) and its like wherever it came
 * from: there callers count as much.
 */
static int compare_heat(const struct function_table *table, const struct function_tally *x,
			const struct function_tally *y)
{
	bool callers = table->unit == FUNCTION_TABLE_IN_BYTES;
	int rc = 0;

	for (int phase = FUNCTION_TABLE_DURING; rc == 0 && phase >= FUNCTION_TABLE_BEFORE; phase--) {
		rc = compare_descending(x->self[phase] + (callers ? x->total[phase] : 0),
					y->self[phase] + (callers ? y->total[phase] : 0));
		if (rc == 0)
			rc = compare_descending(x->total[phase], y->total[phase]);
	}
	return rc;
}

static int by_heat(const void *a, const void *b, void *ctx)
{
	const struct function_table *table = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	int rc = compare_heat(table, &table->of_functions.tally[first - 1], &table->of_functions.tally[second - 1]);

	if (rc == 0)
		rc = strcmp(intern_text(&table->functions, first), intern_text(&table->functions, second));
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* Returns the name of the thread, behind whose NUL is that of the process. */
static const char *table_thread(const struct function_table *table, uint32_t number, struct thread_key *ret)
{
	size_t len;
	const char *key = intern_get(&table->threads, number, &len);

	memcpy(ret, key, sizeof(*ret));
	return key + sizeof(*ret);
}

/* Those of the target come first, so that a machine that is busy beside it cuts none of them. */
static int by_thread_heat(const void *a, const void *b, void *ctx)
{
	const struct function_table *table = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	struct thread_key x, y;
	int rc;

	table_thread(table, first, &x);
	table_thread(table, second, &y);
	rc = (x.neighbour > y.neighbour) - (x.neighbour < y.neighbour);
	if (rc == 0)
		rc = compare_heat(table, &table->of_threads.tally[first - 1], &table->of_threads.tally[second - 1]);
	if (rc == 0)
		rc = (x.tid > y.tid) - (x.tid < y.tid);
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* An untrusted name, then end. */
static int write_name(const struct sink *sink, const char *name, const char *end)
{
	char printable[4 * STACK_PROFILE_NAME_MAX + 1];
	int rc = sink_write(sink, printable, text_escape(printable, sizeof(printable), name, strlen(name)));

	return rc == 0 ? sink_write(sink, end, strlen(end)) : rc;
}

/* self, total, and what is beside them: milliseconds have three digits of their own. */
static int write_numbers(const struct function_table *table, const struct function_tally *tally, const uint64_t *total,
			 const struct sink *sink)
{
	char text[256];
	int used = snprintf(text, sizeof(text), "%ju\t%ju\t%ju\t%ju\t", (uintmax_t)tally->self[FUNCTION_TABLE_BEFORE],
			    (uintmax_t)total[FUNCTION_TABLE_BEFORE], (uintmax_t)tally->self[FUNCTION_TABLE_DURING],
			    (uintmax_t)total[FUNCTION_TABLE_DURING]);

	if (table->unit == FUNCTION_TABLE_IN_BYTES)
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju\t", (uintmax_t)tally->beside);
	else
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju.%03ju\t", (uintmax_t)tally->beside / 1000000,
			 (uintmax_t)tally->beside / 1000 % 1000);
	return sink_write(sink, text, strlen(text));
}

/* The cells of a thread, 0 of none, and the end of the line. */
static int write_thread(const struct function_table *table, uint32_t number, uint64_t amount, const struct sink *sink)
{
	struct thread_key key = { 0 };
	const char *name = number ? table_thread(table, number, &key) : "",
		   *process = number ? name + strlen(name) + 1 : "";
	char text[64];
	int rc = write_name(sink, name, "\t");

	snprintf(text, sizeof(text), "%d\t%ju\t", (int)key.tid, (uintmax_t)amount);
	if (rc == 0)
		rc = sink_write(sink, text, strlen(text));
	if (rc == 0)
		rc = write_name(sink, process, "\t");
	snprintf(text, sizeof(text), "%d\n", (int)key.pid);
	return rc == 0 ? sink_write(sink, text, strlen(text)) : rc;
}

/* The phase by which the busiest thread is chosen. */
static enum function_table_phase phase_of(const uint64_t total[static FUNCTION_TABLE_PHASES])
{
	return total[FUNCTION_TABLE_DURING] > 0 ? FUNCTION_TABLE_DURING : FUNCTION_TABLE_BEFORE;
}

static int write_function_row(const struct function_table *table, uint32_t number, const struct sink *sink)
{
	const struct function_tally *tally = &table->of_functions.tally[number - 1];
	const struct part *top = top_of(tally);
	const char *name = intern_text(&table->functions, number);
	int rc = write_name(sink, name, "\t");

	if (rc == 0)
		rc = write_name(sink, name + strlen(name) + 1, "\t");
	if (rc == 0)
		rc = write_numbers(table, tally, tally->total, sink);
	return rc == 0 ? write_thread(table, top->thread, top->amount[phase_of(tally->total)], sink) : rc;
}

static int write_thread_row(const struct function_table *table, uint32_t number, const struct sink *sink)
{
	const struct function_tally *tally = &table->of_threads.tally[number - 1];
	struct thread_key key;
	int rc = sink_write(sink, "\t", 1);

	table_thread(table, number, &key);
	if (rc == 0)
		rc = write_name(sink, key.neighbour ? FUNCTION_TABLE_NEIGHBOUR : "", "\t");
	if (rc == 0)
		rc = write_numbers(table, tally, tally->self, sink);
	return rc == 0 ? write_thread(table, number, tally->self[phase_of(tally->self)], sink) : rc;
}

static int write_head(const struct function_table *table, const struct sink *sink)
{
	const uint64_t *sum = table->sum, *others = table->others;
	char text[sizeof(FUNCTION_TABLE_HEADER_BYTES) + 200];
	int used = snprintf(text, sizeof(text), "%s\n%s %ju, %ju\n", table_heads[table->unit].header,
			    table_heads[table->unit].sums, (uintmax_t)sum[FUNCTION_TABLE_BEFORE],
			    (uintmax_t)sum[FUNCTION_TABLE_DURING]);

	if (others[FUNCTION_TABLE_BEFORE] + others[FUNCTION_TABLE_DURING] > 0)
		snprintf(text + used, sizeof(text) - (size_t)used, "%s %ju, %ju\n", table_heads[table->unit].own,
			 (uintmax_t)(sum[FUNCTION_TABLE_BEFORE] - others[FUNCTION_TABLE_BEFORE]),
			 (uintmax_t)(sum[FUNCTION_TABLE_DURING] - others[FUNCTION_TABLE_DURING]));
	return sink_write(sink, text, strlen(text));
}

static int write_left_out(uint32_t left_out, const char *remark, const struct sink *sink)
{
	char text[64];

	snprintf(text, sizeof(text), "# %u%s\n", left_out, remark);
	return left_out > 0 ? sink_write(sink, text, strlen(text)) : 0;
}

/* What was given a number may be on no stack that was counted. */
static bool was_seen(const struct function_tally *tally)
{
	return tally->total[FUNCTION_TABLE_BEFORE] + tally->total[FUNCTION_TABLE_DURING] +
		       tally->self[FUNCTION_TABLE_BEFORE] + tally->self[FUNCTION_TABLE_DURING] >
	       0;
}

/* One of the two parts of the table. */
struct part_of_table {
	const struct function_tallies *tallies;
	uint32_t count, rows_max;
	const char *remark; /* of the remark about those left out */
	int (*compare)(const void *a, const void *b, void *table);
	int (*write_row)(const struct function_table *table, uint32_t number, const struct sink *sink);
};

/* Rows as far as there is room; *ret: how many. */
static int write_rows(const struct function_table *table, const struct part_of_table *part,
		      const uint32_t order[static 1], uint32_t *ret, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer row = { 0 };
	const struct sink to_row = sink_buffer(&row);
	size_t used = 0;
	int rc = 0;

	for (uint32_t i = 0; i < *ret && rc == 0; i++) {
		row.len = 0;
		rc = part->write_row(table, order[i], &to_row);
		used += row.len;
		if (rc == 0 && used > FUNCTION_TABLE_PART_BYTES_MAX)
			*ret = i;
		else if (rc == 0)
			rc = sink_write(sink, row.data, row.len);
	}
	return rc;
}

static int write_part(const struct function_table *table, const struct part_of_table *part, const struct sink *sink)
{
	AUTO_FREE uint32_t *order = malloc(((size_t)part->count + 1) * sizeof(*order));
	uint32_t count = 0, shown;
	int rc;

	if (!order)
		return -ENOMEM;

	for (uint32_t i = 1; i <= part->count; i++)
		if (was_seen(&part->tallies->tally[i - 1]))
			order[count++] = i;
	shown = count < part->rows_max ? count : part->rows_max;
	qsort_r(order, count, sizeof(*order), part->compare, (void *)table);
	rc = write_rows(table, part, order, &shown, sink);
	return rc == 0 ? write_left_out(count - shown, part->remark, sink) : rc;
}

static int function_table_write(const struct function_table *table, const struct sink *sink)
{
	const struct part_of_table functions = {
		&table->of_functions,
		table->functions.count,
		FUNCTION_TABLE_ROWS_MAX,
		FUNCTION_TABLE_MORE_FUNCTIONS,
		by_heat,
		write_function_row,
	};
	const struct part_of_table threads = {
		&table->of_threads,          table->threads.count, FUNCTION_TABLE_THREADS_MAX,
		FUNCTION_TABLE_MORE_THREADS, by_thread_heat,       write_thread_row,
	};
	int rc = write_head(table, sink);

	if (rc == 0)
		rc = write_part(table, &functions, sink);
	return rc == 0 ? write_part(table, &threads, sink) : rc;
}

/* The table of functions while it is filled. */
struct table_filling {
	const struct stack_profile *profile;
	struct function_table list;
	uint32_t *functions; /* of the list, by our number, less 1 */
	uint32_t *threads;   /* the same of threads */
	uint32_t *order;     /* stacks, thread by thread */
	struct buffer stack; /* the functions of one */
};

static void release_filling(struct table_filling *filling)
{
	function_table_release(&filling->list);
	free(filling->functions);
	free(filling->threads);
	free(filling->order);
	buffer_release(&filling->stack);
}

static int make_filling(const struct stack_profile *profile, struct table_filling *ret)
{
	ret->profile = profile;
	ret->functions = malloc(((size_t)profile->functions.count + 1) * sizeof(uint32_t));
	ret->threads = malloc(((size_t)profile->threads.count + 1) * sizeof(uint32_t));
	ret->order = malloc(((size_t)profile->stacks.count + 1) * sizeof(uint32_t));
	ret->list.unit = forms[profile->options.quantity].unit;
	return ret->functions && ret->threads && ret->order ? 0 : -ENOMEM;
}

static int name_functions_and_threads(struct table_filling *filling)
{
	const struct stack_profile *profile = filling->profile;
	int rc = 0;

	for (uint32_t i = 1; i <= profile->functions.count && rc == 0; i++) {
		const struct stack_profile_function_key *key = function_of(profile, i);

		rc = function_table_function(&filling->list, text_of(profile, key->name), text_of(profile, key->module),
					     &filling->functions[i - 1]);
	}
	for (uint32_t i = 1; i <= profile->threads.count && rc == 0; i++) {
		const struct stack_profile_thread_key *key = thread_of(profile, i);
		const struct function_table_thread thread = { key->pid, key->tid, text_of(profile, key->process),
							      text_of(profile, key->thread), key->other != 0 };

		rc = function_table_thread(&filling->list, &thread, &filling->threads[i - 1]);
	}
	return rc;
}

static uint32_t thread_of_stack(const struct table_filling *filling, uint32_t number)
{
	uint32_t thread;
	size_t count;

	stack_of(filling->profile, number, &thread, &count);
	return filling->threads[thread - 1];
}

static int by_thread(const void *a, const void *b, void *ctx)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint32_t first = thread_of_stack(ctx, x), second = thread_of_stack(ctx, y);

	return first != second ? (first > second) - (first < second) : (x > y) - (x < y);
}

/* A process that is not part of the target is one function of its name. */
static int fill_in_neighbour(struct table_filling *filling, const struct stack_profile_thread_key *key,
			     struct function_table_stack *stack)
{
	uint32_t function;
	int rc = function_table_function(&filling->list, text_of(filling->profile, key->process),
					 FUNCTION_TABLE_NEIGHBOUR, &function);

	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		filling->list.others[p] += table_amounts(&filling->list, stack)[p];
	stack->functions = &function;
	stack->count = 1;
	if (rc == 0)
		function_table_add(&filling->list, stack);
	return rc;
}

static int fill_in_stack(struct table_filling *filling, uint32_t number)
{
	const struct stack_profile *profile = filling->profile;
	const struct stack_profile_tally *tally = &profile->tallies[number - 1];
	struct function_table_stack stack = { .thread = thread_of_stack(filling, number) };
	uint32_t thread;
	size_t count;
	const uint32_t *frames = stack_of(profile, number, &thread, &count);
	int rc = 0;

	memcpy(stack.samples, tally->samples, sizeof(stack.samples));
	memcpy(stack.weight, tally->weight, sizeof(stack.weight));
	if (thread_of(profile, thread)->other)
		return fill_in_neighbour(filling, thread_of(profile, thread), &stack);
	filling->stack.len = 0;
	for (size_t i = 0; i < count; i++) {
		const struct stack_profile_frame_key *frame = frame_of(profile, frames[i]);

		for (uint32_t n = 0; n < frame->lines && rc == 0; n++) {
			rc = buffer_append(&filling->stack, &filling->functions[lines_of(frame)[n].function - 1],
					   sizeof(uint32_t));
			stack.count++;
		}
	}
	stack.functions = (const uint32_t *)filling->stack.data;
	if (rc == 0)
		function_table_add(&filling->list, &stack);
	return rc;
}

static int fill_in_other(struct table_filling *filling)
{
	const struct stack_profile_tally *other = &filling->profile->other;
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1 };
	int rc;

	if (is_empty(other))
		return 0;
	rc = function_table_function(&filling->list, OTHER, "", &function);
	if (rc == 0)
		rc = function_table_thread(
			&filling->list, &(struct function_table_thread){ .process = "", .name = OTHER }, &stack.thread);
	memcpy(stack.samples, other->samples, sizeof(stack.samples));
	memcpy(stack.weight, other->weight, sizeof(stack.weight));
	if (rc == 0)
		function_table_add(&filling->list, &stack);
	return rc;
}

int stack_profile_write_functions(const struct stack_profile *profile, const struct sink *sink)
{
	AUTO(release_filling) struct table_filling filling = { 0 };
	uint32_t count = profile->stacks.count;
	int rc = make_filling(profile, &filling);

	if (rc == 0)
		rc = name_functions_and_threads(&filling);
	if (rc < 0)
		return rc;

	for (uint32_t i = 0; i < count; i++)
		filling.order[i] = i + 1;
	qsort_r(filling.order, count, sizeof(*filling.order), by_thread, &filling);
	for (uint32_t i = 0; i < count && rc == 0; i++)
		rc = fill_in_stack(&filling, filling.order[i]);
	if (rc == 0)
		rc = fill_in_other(&filling);
	return rc == 0 ? function_table_write(&filling.list, sink) : rc;
}
