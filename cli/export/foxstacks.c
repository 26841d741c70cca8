/*
 * foxstacks.c: places are kept as they are in the profile of pprof where that can be: strings, functions and mappings have the same numbers
 * in both. A location becomes as many frames as there are functions inlined into each other; one without any becomes a frame of a function
 * that is called after its mapping.
 */
#include "foxstacks.h"

#include "incidentload.h"
#include "jsonmember.h"
#include "printable.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A larger file is none of ours. */
#define FILE_MAX ((size_t)256 << 20)

/* A node of the tree: bytes that are compared, so without holes. */
struct node {
	uint32_t prefix; /* number of the node above; 0: a root */
	uint32_t frame;
};

/* Counts frames, and finds what each function is in. */
static int prepare(struct foxstacks *stacks)
{
	const struct pprofread_profile *profile = stacks->profile;

	stacks->frame_first = calloc((size_t)profile->location_count + 1, sizeof(*stacks->frame_first));
	stacks->resources = calloc((size_t)profile->function_count + 1, sizeof(*stacks->resources));
	if (!stacks->frame_first || !stacks->resources)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->function_count; i++)
		stacks->resources[i] = -1;
	for (uint32_t i = 0; i < profile->location_count; i++) {
		const struct pprofread_location *location = &profile->locations[i];

		stacks->frame_first[i] = stacks->frame_count;
		stacks->frame_count += location->line_count ? location->line_count : 1;
		for (uint32_t n = 0; n < location->line_count; n++) {
			uint32_t function = profile->lines[location->line_first + n].function;

			if (function && location->mapping)
				stacks->resources[function - 1] = (int32_t)location->mapping - 1;
		}
	}
	return 0;
}

int foxstacks_load(int incidentfd, const char *file, struct foxstacks *ret)
{
	AUTO(buffer_release) struct buffer bytes = { .max = FILE_MAX };
	AUTO(foxstacks_release) struct foxstacks stacks = { 0 };
	int rc;

	*ret = (struct foxstacks){ 0 };
	rc = incidentload_whole(incidentfd, file, &bytes);
	if (rc == 0)
		rc = pprofread_new(bytes.data, bytes.len, NULL, &stacks.reader);
	if (rc < 0)
		return rc;
	stacks.profile = pprofread_profile(stacks.reader);
	rc = prepare(&stacks);
	if (rc < 0)
		return rc;
	*ret = stacks;
	stacks = (struct foxstacks){ 0 };
	return 0;
}

void foxstacks_release(struct foxstacks *stacks)
{
	intern_release(&stacks->stacks);
	intern_release(&stacks->strings);
	free(stacks->frame_first);
	free(stacks->resources);
	pprofread_free(stacks->reader);
	*stacks = (struct foxstacks){ 0 };
}

static uint32_t profile_strings(const struct foxstacks *stacks)
{
	return stacks->profile ? stacks->profile->string_count : 0;
}

int foxstacks_string(struct foxstacks *stacks, const char *text, uint32_t *ret)
{
	struct intern_budget budget = { 0 };
	uint32_t number;
	int rc = intern_put(&stacks->strings, &budget, text, strlen(text), &number);

	if (rc == 0)
		*ret = profile_strings(stacks) + number - 1;
	return rc < 0 ? rc : 0;
}

int foxstacks_stack(struct foxstacks *stacks, const struct pprofread_sample *sample, int64_t *ret)
{
	const struct pprofread_profile *profile = stacks->profile;
	struct intern_budget budget = { 0 };
	uint32_t number = 0;

	for (uint32_t i = sample->frame_count; i > 0; i--) {
		uint32_t location = profile->frames[sample->frame_first + i - 1];
		uint32_t count = profile->locations[location].line_count;

		for (uint32_t n = 0; n < (count ? count : 1); n++) {
			const struct node node = { number, stacks->frame_first[location] + n };
			int rc = intern_put(&stacks->stacks, &budget, &node, sizeof(node), &number);

			if (rc < 0)
				return rc;
		}
	}
	*ret = (int64_t)number - 1;
	return 0;
}

/* ---- columns ---- */

enum constant { NOTHING, NO, ZERO, MINUS_ONE, ONE };

static void put_constants(struct json_writer *json, const char *key, uint32_t count, enum constant what)
{
	json_key(json, key);
	json_begin_array(json);
	for (uint32_t i = 0; i < count; i++) {
		if (what == NOTHING)
			json_null(json);
		else if (what == NO)
			json_bool(json, false);
		else
			json_i64(json, what == ZERO ? 0 : what == ONE ? 1 : -1);
	}
	json_end_array(json);
}

static void end_table(struct json_writer *json, uint32_t length)
{
	json_key(json, "length");
	json_u64(json, length);
	json_end_object(json);
}

/* ---- stacks and frames ---- */

static void put_stacks(const struct foxstacks *stacks, struct json_writer *json)
{
	uint32_t count = stacks->stacks.count;
	size_t len;

	jsonmember_object(json, "stackTable");
	jsonmember_array(json, "frame");
	for (uint32_t i = 1; i <= count; i++)
		json_u64(json, ((const struct node *)intern_get(&stacks->stacks, i, &len))->frame);
	json_end_array(json);
	jsonmember_array(json, "prefixOffset");
	for (uint32_t i = 1; i <= count; i++) {
		uint32_t prefix = ((const struct node *)intern_get(&stacks->stacks, i, &len))->prefix;

		json_u64(json, prefix ? i - prefix : 0);
	}
	json_end_array(json);
	end_table(json, count);
}

/* A frame: a location, and which of its functions, the outermost first. */
struct frame {
	const struct pprofread_location *location;
	uint32_t depth;
	const struct pprofread_line *line; /* NULL: no function is known */
};

/* Calls put for each frame, in order. */
static void each_frame(const struct foxstacks *stacks, struct json_writer *json, const char *key,
		       void (*put)(const struct foxstacks *stacks, const struct frame *frame, struct json_writer *json))
{
	const struct pprofread_profile *profile = stacks->profile;

	jsonmember_array(json, key);
	for (uint32_t i = 0; profile && i < profile->location_count; i++) {
		struct frame frame = { .location = &profile->locations[i] };
		uint32_t count = frame.location->line_count;

		for (uint32_t n = 0; n < (count ? count : 1); n++) {
			frame.depth = n;
			frame.line = count ? &profile->lines[frame.location->line_first + count - 1 - n] : NULL;
			put(stacks, &frame, json);
		}
	}
	json_end_array(json);
}

static void put_depth(const struct foxstacks *stacks, const struct frame *frame, struct json_writer *json)
{
	(void)stacks;
	json_u64(json, frame->depth < UINT8_MAX ? frame->depth : UINT8_MAX);
}

static void put_line(const struct foxstacks *stacks, const struct frame *frame, struct json_writer *json)
{
	(void)stacks;
	if (frame->line && frame->line->line > 0)
		json_i64(json, frame->line->line);
	else
		json_null(json);
}

/* Functions of the profile, then one for each mapping, [0] for none. */
static void put_function(const struct foxstacks *stacks, const struct frame *frame, struct json_writer *json)
{
	if (frame->line && frame->line->function)
		json_u64(json, frame->line->function - 1);
	else
		json_u64(json, (uint64_t)stacks->profile->function_count + frame->location->mapping);
}

static void put_category(const struct foxstacks *stacks, const struct frame *frame, struct json_writer *json)
{
	static const char kernel[] = "[kernel";
	const struct pprofread_profile *profile = stacks->profile;
	const struct pprofread_text *file;

	if (frame->location->mapping == 0) {
		json_u64(json, FOXSTACKS_OTHER);
		return;
	}
	file = &profile->strings[profile->mappings[frame->location->mapping - 1].file];
	if (file->len >= strlen(kernel) && memcmp(file->at, kernel, strlen(kernel)) == 0)
		json_u64(json, FOXSTACKS_KERNEL);
	else
		json_u64(json, FOXSTACKS_USER);
}

static void put_frames(const struct foxstacks *stacks, struct json_writer *json)
{
	uint32_t count = stacks->frame_count;

	jsonmember_object(json, "frameTable");
	put_constants(json, "address", count, MINUS_ONE);
	put_constants(json, "lib", count, MINUS_ONE);
	each_frame(stacks, json, "inlineDepth", put_depth);
	each_frame(stacks, json, "category", put_category);
	put_constants(json, "subcategory", count, ZERO);
	each_frame(stacks, json, "func", put_function);
	put_constants(json, "nativeSymbol", count, NOTHING);
	put_constants(json, "innerWindowID", count, ZERO);
	each_frame(stacks, json, "line", put_line);
	put_constants(json, "column", count, NOTHING);
	put_constants(json, "originalLocation", count, NOTHING);
	end_table(json, count);
}

/* ---- functions ---- */

/* "[libc.so.6]". */
static int name_mapping(struct foxstacks *stacks, uint32_t mapping, uint32_t *ret)
{
	const struct pprofread_text *file;
	char name[300];
	size_t len;

	if (mapping == 0)
		return foxstacks_string(stacks, "?", ret);
	file = &stacks->profile->strings[stacks->profile->mappings[mapping - 1].file];
	for (len = 0; len < file->len && len < 250 && file->at[file->len - 1 - len] != '/'; len++)
		;
	if (len > 0 && file->at[file->len - len] == '[')
		snprintf(name, sizeof(name), "%.*s", (int)len, file->at + file->len - len);
	else
		snprintf(name, sizeof(name), "[%.*s]", (int)len, len ? file->at + file->len - len : "");
	return foxstacks_string(stacks, name, ret);
}

static int put_names(struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;
	int rc = 0;

	jsonmember_array(json, "name");
	for (uint32_t i = 0; profile && i < profile->function_count; i++)
		json_u64(json, profile->functions[i].name);
	for (uint32_t i = 0; profile && i <= profile->mapping_count && rc == 0; i++) {
		uint32_t string = 0;

		rc = name_mapping(stacks, i, &string);
		json_u64(json, string);
	}
	json_end_array(json);
	return rc;
}

static void put_resource_of_functions(const struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;

	jsonmember_array(json, "resource");
	for (uint32_t i = 0; profile && i < profile->function_count; i++)
		json_i64(json, stacks->resources[i]);
	for (uint32_t i = 0; profile && i <= profile->mapping_count; i++)
		json_i64(json, (int64_t)i - 1);
	json_end_array(json);
}

/* A source for each function that has a file: no need to find out which are the same. */
static void put_sources_of_functions(const struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;
	uint64_t source = 0;

	jsonmember_array(json, "source");
	for (uint32_t i = 0; profile && i < profile->function_count; i++) {
		if (profile->functions[i].file)
			json_u64(json, source++);
		else
			json_null(json);
	}
	for (uint32_t i = 0; profile && i <= profile->mapping_count; i++)
		json_null(json);
	json_end_array(json);
}

static int put_functions(struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;
	uint32_t count = profile ? profile->function_count + profile->mapping_count + 1 : 0;
	int rc;

	jsonmember_object(json, "funcTable");
	rc = put_names(stacks, json);
	put_constants(json, "isJS", count, NO);
	put_constants(json, "relevantForJS", count, NO);
	put_resource_of_functions(stacks, json);
	put_sources_of_functions(stacks, json);
	put_constants(json, "lineNumber", count, NOTHING);
	put_constants(json, "columnNumber", count, NOTHING);
	put_constants(json, "originalLocation", count, NOTHING);
	end_table(json, count);
	return rc;
}

/* ---- the rest ---- */

static void put_resources(const struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;
	uint32_t count = profile ? profile->mapping_count : 0;

	jsonmember_object(json, "resourceTable");
	jsonmember_array(json, "name");
	for (uint32_t i = 0; i < count; i++)
		json_u64(json, profile->mappings[i].file);
	json_end_array(json);
	put_constants(json, "host", count, NOTHING);
	put_constants(json, "type", count, ONE); /* a library */
	end_table(json, count);
}

static void put_sources(const struct foxstacks *stacks, struct json_writer *json)
{
	const struct pprofread_profile *profile = stacks->profile;
	uint32_t count = 0;

	jsonmember_object(json, "sources");
	jsonmember_array(json, "filename");
	for (uint32_t i = 0; profile && i < profile->function_count; i++) {
		if (!profile->functions[i].file)
			continue;
		json_u64(json, profile->functions[i].file);
		count++;
	}
	json_end_array(json);
	put_constants(json, "id", count, NOTHING);
	put_constants(json, "startLine", count, ONE);
	put_constants(json, "startColumn", count, ONE);
	put_constants(json, "sourceMapURL", count, NOTHING);
	put_constants(json, "content", count, NOTHING);
	end_table(json, count);
}

static void put_empty(struct json_writer *json, const char *key, const char *const *columns)
{
	jsonmember_object(json, key);
	for (; *columns; columns++)
		put_constants(json, *columns, 0, ZERO);
	end_table(json, 0);
}

static int put_strings(const struct foxstacks *stacks, struct json_writer *json)
{
	int rc = 0;

	jsonmember_array(json, "stringArray");
	for (uint32_t i = 0; i < profile_strings(stacks) && rc == 0; i++) {
		AUTO_FREE char *text = strndup(stacks->profile->strings[i].len ? stacks->profile->strings[i].at : "",
					       stacks->profile->strings[i].len);

		if (!text)
			rc = -ENOMEM;
		else
			printable_json(json, text);
	}
	for (uint32_t i = 1; i <= stacks->strings.count; i++)
		printable_json(json, intern_text(&stacks->strings, i));
	json_end_array(json);
	return rc;
}

int foxstacks_put(struct foxstacks *stacks, struct json_writer *json)
{
	int rc, strings;

	jsonmember_object(json, "shared");
	put_stacks(stacks, json);
	put_frames(stacks, json);
	rc = put_functions(stacks, json);
	put_resources(stacks, json);
	put_empty(json, "nativeSymbols", (const char *const[]){ "libIndex", "address", "name", "functionSize", NULL });
	put_sources(stacks, json);
	put_empty(json, "sourceLocationTable", (const char *const[]){ "source", "line", "column", NULL });
	strings = put_strings(stacks, json); /* functions have added theirs */
	json_end_object(json);
	return rc < 0 ? rc : strings;
}
