/*
 * stackprofile_add.c: sums samples up. Everything that may repeat is interned, from strings up to whole stacks, so a
 * sample that is like an earlier one costs look-ups and no memory.
 *
 * All sets share one budget. When it is spent, everything new is refused, frames included, and samples with something
 * that was refused are "(other)": what is in the profile by then is complete and stays comparable, where keeping the
 * stack but not its symbols would mix up "not known" with "no room".
 */
#include "stackprofile.h"

#include "scope.h"
#include "stackprofile_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)STACKPROFILE_FULL == (int)INTERN_FULL, "one condition");

int stackprofile_new(const struct stackprofile_options *options, struct stackprofile **ret)
{
	struct stackprofile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return -ENOMEM;

	profile->options = *options;
	if (profile->options.stacks_max == 0)
		profile->options.stacks_max = STACKPROFILE_STACKS_DEFAULT;
	profile->budget.max_bytes = options->bytes_max ? options->bytes_max : STACKPROFILE_BYTES_DEFAULT;
	*ret = profile;
	return 0;
}

void stackprofile_free(struct stackprofile *profile)
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
	free(profile);
}

static int put_string(struct stackprofile *profile, const char *text, uint32_t *ret)
{
	return intern_put(&profile->strings, &profile->budget, text, strnlen(text, STACKPROFILE_NAME_MAX), ret);
}

/* 0 for what is not known. */
static int put_optional(struct stackprofile *profile, const char *text, uint32_t *ret)
{
	*ret = 0;
	return text && *text ? put_string(profile, text, ret) : 0;
}

int stackprofile_mapping(struct stackprofile *profile, const struct stackprofile_mapping *mapping, uint32_t *ret)
{
	struct stackprofile_mapping_key key = {
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		.build_id_len = (uint32_t)mapping->build_id_len,
	};
	int rc;

	if (mapping->build_id_len > sizeof(key.build_id))
		key.build_id_len = sizeof(key.build_id);
	memcpy(key.build_id, mapping->build_id, key.build_id_len);
	*ret = STACKPROFILE_NO_MAPPING;
	rc = put_optional(profile, mapping->path, &key.path);
	return rc == 0 ? intern_put(&profile->mappings, &profile->budget, &key, sizeof(key), ret) : rc;
}

/* ---- frames ---- */

/* What a function is called that has no name: after its module, "[libc.so.6]". */
static void make_name(const char *module, char ret[static STACKPROFILE_NAME_MAX + 3])
{
	const char *slash = strrchr(module, '/'), *base = slash && slash[1] ? slash + 1 : module;
	size_t len = strnlen(base, STACKPROFILE_NAME_MAX), used = 0;

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
static int put_line(struct stackprofile *profile, uint32_t module, const struct stackprofile_line *line)
{
	char made[STACKPROFILE_NAME_MAX + 3];
	struct stackprofile_function_key key = { .module = module };
	struct stackprofile_line_key entry = { .line = line ? line->line : 0 };
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
static int put_lines(struct stackprofile *profile, uint32_t module, const struct stackprofile_frame *frame,
		     size_t count)
{
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = put_line(profile, module, &frame->lines[i + 1 == count ? frame->line_count - 1 : i]);
	return count == 0 ? put_line(profile, module, NULL) : rc;
}

int stackprofile_frame(struct stackprofile *profile, const struct stackprofile_frame *frame, uint32_t *ret)
{
	size_t count = frame->line_count < STACKPROFILE_LINES_MAX ? frame->line_count : STACKPROFILE_LINES_MAX, len;
	struct stackprofile_frame_key key = {
		.address = frame->address,
		.mapping = frame->mapping,
		.lines = count ? (uint32_t)count : 1,
	};
	uint32_t module = 0;
	int rc;

	*ret = STACKPROFILE_OTHER;
	if (frame->mapping > profile->mappings.count)
		return -EINVAL;
	if (frame->mapping != STACKPROFILE_NO_MAPPING) {
		const struct stackprofile_mapping_key *mapping = intern_get(&profile->mappings, frame->mapping, &len);

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

static void count_sample(const struct stackprofile *profile, struct stackprofile_tally *tally,
			 const struct stackprofile_sample *sample)
{
	enum hotlist_phase phase = sample->time_ns < profile->options.spike_from_ns ? HOTLIST_BEFORE : HOTLIST_DURING;

	tally->samples[phase] += sample->count;
	tally->weight[phase] += sample->weight;
}

static int put_thread(struct stackprofile *profile, const struct stackprofile_sample *sample, uint32_t *ret)
{
	struct stackprofile_thread_key key = { .pid = sample->pid, .tid = sample->tid };
	int rc = put_string(profile, sample->process ? sample->process : "", &key.process);

	if (rc == 0)
		rc = put_string(profile, sample->thread ? sample->thread : "", &key.thread);
	if (rc == 0)
		rc = put_optional(profile, sample->cgroup, &key.cgroup);
	return rc == 0 ? intern_put(&profile->threads, &profile->budget, &key, sizeof(key), ret) : rc;
}

/* Appends the frames to the key. 0; STACKPROFILE_FULL: one of them did not fit when it came. */
static int put_frames(struct stackprofile *profile, const struct stackprofile_sample *sample)
{
	size_t count = sample->frame_count < STACKPROFILE_FRAMES_MAX ? sample->frame_count : STACKPROFILE_FRAMES_MAX;
	bool other = false;

	for (size_t i = 0; i < sample->frame_count; i++) {
		if (sample->frames[i] > profile->frames.count)
			return -EINVAL;
		other |= i < count && sample->frames[i] == STACKPROFILE_OTHER;
	}
	if (other)
		return STACKPROFILE_FULL;
	return buffer_append(&profile->key, sample->frames, count * sizeof(*sample->frames));
}

/* Room for the tally of one more stack. */
static int reserve(struct stackprofile *profile)
{
	uint32_t cap = profile->cap ? profile->cap * 2 : 64;
	struct stackprofile_tally *tallies;

	if (profile->stacks.count < profile->cap)
		return 0;
	tallies = reallocarray(profile->tallies, cap, sizeof(*tallies));
	if (!tallies)
		return -ENOMEM;

	memset(tallies + profile->cap, 0, (cap - profile->cap) * sizeof(*tallies));
	profile->tallies = tallies;
	profile->cap = cap;
	return 0;
}

/* The number of the sample's stack. */
static int put_stack(struct stackprofile *profile, const struct stackprofile_sample *sample, uint32_t *ret)
{
	struct intern_budget closed = { .max_bytes = 1, .spent = true };
	bool room = profile->stacks.count < profile->options.stacks_max;
	uint32_t thread;
	int rc = put_thread(profile, sample, &thread);

	profile->key.len = 0;
	if (rc == 0)
		rc = buffer_append(&profile->key, &thread, sizeof(thread));
	if (rc == 0)
		rc = put_frames(profile, sample);
	if (rc == 0)
		rc = reserve(profile);
	if (rc == 0)
		rc = intern_put(&profile->stacks, room ? &profile->budget : &closed, profile->key.data,
				profile->key.len, ret);
	return rc;
}

int stackprofile_add(struct stackprofile *profile, const struct stackprofile_sample *sample)
{
	static const struct stackprofile_line no_stack = { .function = "[no stack]" };
	const struct stackprofile_frame frame = { .lines = &no_stack, .line_count = 1 };
	struct stackprofile_sample whole = *sample;
	uint32_t only, number;
	int rc = 0;

	if (sample->frame_count == 0) {
		rc = stackprofile_frame(profile, &frame, &only);
		whole.frames = &only;
		whole.frame_count = 1;
	}
	if (rc == 0)
		rc = put_stack(profile, &whole, &number);
	if (rc >= 0)
		count_sample(profile, rc == 0 ? &profile->tallies[number - 1] : &profile->other, sample);
	return rc;
}

void stackprofile_counts(const struct stackprofile *profile, struct stackprofile_counts *ret)
{
	const struct stackprofile_tally *other = &profile->other;

	*ret = (struct stackprofile_counts){
		.samples_before = other->samples[HOTLIST_BEFORE],
		.samples_during = other->samples[HOTLIST_DURING],
		.samples_other = other->samples[HOTLIST_BEFORE] + other->samples[HOTLIST_DURING],
		.stacks = profile->stacks.count,
		.bytes = profile->budget.used_bytes,
	};
	for (uint32_t i = 0; i < profile->stacks.count; i++) {
		ret->samples_before += profile->tallies[i].samples[HOTLIST_BEFORE];
		ret->samples_during += profile->tallies[i].samples[HOTLIST_DURING];
	}
}
