/*
 * pprofread.h: reads a profile as pprof has it: profile.proto, in gzip or not, as lib/pprof writes it and as Go, perf_to_profile and others
 * do. Pure: no protobuf library. Nothing in the bytes is trusted: numbers of others are resolved and checked once, when the profile is
 * read, so whoever walks it needs to check nothing but strings, which may hold any byte.
 */
#ifndef SPIKEWATCH_PPROFREAD_H
#define SPIKEWATCH_PPROFREAD_H

#include <stddef.h>
#include <stdint.h>

/* Limits if the options have none. */
#define PPROFREAD_BYTES_DEFAULT ((size_t)256 << 20)
#define PPROFREAD_MEMORY_DEFAULT ((size_t)512 << 20)

/* More values of a sample than that are no profile. */
#define PPROFREAD_VALUES_MAX 16

struct pprofread_options {
	size_t bytes_max;  /* of the profile, inflated; 0: PPROFREAD_BYTES_DEFAULT */
	size_t memory_max; /* for what is read; 0: PPROFREAD_MEMORY_DEFAULT */
};

/* Bytes within the profile; no NUL behind them. */
struct pprofread_text {
	const char *at;
	size_t len;
};

struct pprofread_value_type {
	uint32_t type, unit; /* strings */
};

/* Numbers of strings are places in profile.strings; of mappings and functions places, from 1 on: 0 is none. */
struct pprofread_mapping {
	uint64_t id, start, limit, offset;
	uint32_t file, build_id;
};

struct pprofread_function {
	uint64_t id;
	uint32_t name, system_name, file;
	int64_t start_line;
};

struct pprofread_line {
	uint64_t function_id;
	uint32_t function;
	int64_t line;
};

struct pprofread_location {
	uint64_t id, mapping_id, address;
	uint32_t mapping;
	uint32_t line_first, line_count; /* in profile.lines, the innermost of inlined functions first */
};

struct pprofread_label {
	uint32_t key, text, unit; /* text 0: the number */
	int64_t number;
};

struct pprofread_sample {
	uint32_t frame_first, frame_count; /* in profile.frames, leaf first */
	uint32_t label_first, label_count;
	int64_t values[PPROFREAD_VALUES_MAX]; /* as many as there are value types; others are 0 */
};

/* Places are right, but for the empty string 0, which is there always. */
struct pprofread_profile {
	struct pprofread_value_type *types;
	struct pprofread_mapping *mappings;
	struct pprofread_function *functions;
	struct pprofread_line *lines;
	struct pprofread_location *locations;
	uint32_t *frames; /* places in locations, from 0 on */
	struct pprofread_label *labels;
	struct pprofread_sample *samples;
	struct pprofread_text *strings;
	uint32_t type_count, mapping_count, function_count, line_count, location_count, frame_count, label_count,
		sample_count, string_count;
	int64_t time_ns, duration_ns; /* since 1970; 0: not known */
	struct pprofread_value_type period_type;
	int64_t period;
};

struct pprofread;

/*
 * 0; -EBADMSG: no profile, or damaged; -EFBIG: beyond a limit; -ENOMEM. options may be NULL. data need not outlive the call.
 */
int pprofread_new(const void *data, size_t len, const struct pprofread_options *options, struct pprofread **ret);

/* NULL is fine. */
void pprofread_free(struct pprofread *reader);

/* As long as the reader lives. */
const struct pprofread_profile *pprofread_profile(const struct pprofread *reader);

/* The label of a sample, the first of several; NULL: it has none. */
const struct pprofread_label *pprofread_label(const struct pprofread_profile *profile,
					      const struct pprofread_sample *sample, const char *key);

/* Which value is of this type and unit ("cpu", "nanoseconds"); -1: none. unit NULL: any. */
int pprofread_value(const struct pprofread_profile *profile, const char *type, const char *unit);

#endif
