/*
 * stackfold.c: each sample of the profile becomes a line; foldpair.h adds up equal ones. Names in the profile were escaped once when they were
 * written, so a set of folded.h, which escapes, would make other names of them than those of the folded files.
 */
#include "stackfold.h"

#include "cleantext.h"
#include "foldpair.h"
#include "foxstacks.h"
#include "hotlist.h"
#include "incidentload.h"
#include "scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A larger file is none of ours. */
#define FILE_MAX ((size_t)256 << 20)
#define READ_BYTES 65536

/* Of lines. */
#define LINES_MAX ((size_t)1 << 30)

const char *stackfold_profile(bool memory)
{
	return memory ? "memory.pb.gz" : "cpu.pb.gz";
}

const char *stackfold_folded(bool memory)
{
	return memory ? "memory.folded" : "cpu.folded";
}

/* Lines that are made. */
struct folding {
	const struct pprofread_profile *profile;
	struct buffer *lines;
	struct buffer name;
};

static void release_folding(struct folding *folding)
{
	buffer_release(&folding->name);
}

/* The semicolon stands between frames. */
static int put_name(struct folding *folding)
{
	const char *at = folding->name.data, *end = at + folding->name.len;
	int rc = 0;

	while (at < end && rc == 0) {
		const char *semicolon = memchr(at, ';', (size_t)(end - at)), *stop = semicolon ? semicolon : end;

		rc = buffer_append(folding->lines, at, (size_t)(stop - at));
		if (semicolon && rc == 0)
			rc = buffer_append(folding->lines, "\\x3b", 4);
		at = stop + 1;
	}
	return rc;
}

static int push(struct folding *folding, const char *open, const struct pprofread_text *text, const char *close)
{
	struct buffer *name = &folding->name;
	int rc;

	name->len = 0;
	rc = buffer_append(name, open, strlen(open));
	if (rc == 0)
		rc = cleantext_append(name, text->at, text->len);
	if (rc == 0)
		rc = buffer_append(name, close, strlen(close));
	if (rc == 0 && name->len == 0)
		rc = buffer_append(name, "?", 1);
	if (rc == 0)
		rc = put_name(folding);
	return rc == 0 ? buffer_append(folding->lines, ";", 1) : rc;
}

/* "[libc.so.6]": the name of a place in a file without symbols. */
static int push_mapping(struct folding *folding, uint32_t mapping)
{
	const struct pprofread_profile *profile = folding->profile;
	struct pprofread_text file = { "unknown", strlen("unknown") };
	const char *slash;

	if (mapping > 0 && profile->strings[profile->mappings[mapping - 1].file].len > 0)
		file = profile->strings[profile->mappings[mapping - 1].file];
	slash = memrchr(file.at, '/', file.len);
	if (slash)
		file = (struct pprofread_text){ slash + 1, file.len - (size_t)(slash + 1 - file.at) };
	if (file.len > 0 && file.at[0] == '[')
		return push(folding, "", &file, "");
	return push(folding, "[", &file, "]");
}

static int push_location(struct folding *folding, const struct pprofread_location *location)
{
	const struct pprofread_profile *profile = folding->profile;
	int rc = 0;

	if (location->line_count == 0)
		return push_mapping(folding, location->mapping);
	/* The innermost of inlined functions is the first. */
	for (uint32_t n = location->line_count; n > 0 && rc == 0; n--) {
		uint32_t function = profile->lines[location->line_first + n - 1].function;

		rc = function ? push(folding, "", &profile->strings[profile->functions[function - 1].name], "")
			      : push_mapping(folding, location->mapping);
	}
	return rc;
}

static int push_stack(struct folding *folding, const struct pprofread_sample *sample, uint64_t count)
{
	static const struct pprofread_text nobody;
	const struct pprofread_profile *profile = folding->profile;
	const struct pprofread_label *process = pprofread_label(profile, sample, "process");
	char text[32];
	int rc = push(folding, "", process ? &profile->strings[process->text] : &nobody, "");

	for (uint32_t i = sample->frame_count; i > 0 && rc == 0; i--)
		rc = push_location(folding, &profile->locations[profile->frames[sample->frame_first + i - 1]]);
	if (rc < 0)
		return rc;
	folding->lines->len--; /* there is no frame behind the last semicolon */
	return buffer_append(folding->lines, text, (size_t)snprintf(text, sizeof(text), " %" PRIu64 "\n", count));
}

static unsigned phase_of(const struct pprofread_profile *profile, const struct pprofread_sample *sample)
{
	static const char before[] = "before";
	const struct pprofread_label *label = pprofread_label(profile, sample, "phase");
	const struct pprofread_text *text = label ? &profile->strings[label->text] : NULL;

	if (text && text->len == strlen(before) && memcmp(text->at, before, text->len) == 0)
		return HOTLIST_BEFORE;
	return HOTLIST_DURING;
}

int stackfold_read(int incidentfd, bool memory, unsigned phases, struct buffer *ret)
{
	AUTO(foxstacks_release) struct foxstacks stacks = { 0 };
	AUTO(release_folding) struct folding folding = { 0 };
	int value, rc = foxstacks_load(incidentfd, stackfold_profile(memory), &stacks);

	if (rc < 0)
		return rc;
	folding.profile = stacks.profile;
	folding.lines = ret;
	ret->max = LINES_MAX;
	value = memory ? pprofread_value(stacks.profile, "memory", "bytes")
		       : pprofread_value(stacks.profile, "samples", "count");
	if (value < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < stacks.profile->sample_count && rc == 0; i++) {
		const struct pprofread_sample *sample = &stacks.profile->samples[i];

		if (sample->values[value] > 0 && (phases >> phase_of(stacks.profile, sample) & 1u))
			rc = push_stack(&folding, sample, (uint64_t)sample->values[value]);
	}
	return rc;
}

int stackfold_read_folded(int incidentfd, bool memory, struct buffer *ret)
{
	AUTO_CLOSE int fd = incidentload_open_file(incidentfd, stackfold_folded(memory));
	AUTO_FREE char *piece = NULL;
	uint64_t sum;
	ssize_t len;
	int rc = 0;

	if (fd < 0)
		return fd;
	piece = malloc(READ_BYTES);
	if (!piece)
		return -ENOMEM;
	while (rc == 0 && (len = read(fd, piece, READ_BYTES)) != 0) {
		if (len < 0)
			rc = errno == EINTR ? 0 : -errno;
		else
			rc = ret->len > FILE_MAX ? -EFBIG : buffer_append(ret, piece, (size_t)len);
	}
	if (rc == 0 && !foldpair_check(ret, &sum))
		rc = -EBADMSG;
	return rc;
}
