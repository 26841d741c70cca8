/*
 * pprof.h: reads pprof profiles: profile.proto, in gzip or not,
 * https://github.com/google/pprof/blob/main/proto/profile.proto, as profile.c, Go, perf_to_profile
 * and others write it. Pure: no protobuf library.
 *
 * The input is not trusted: references are resolved and checked once, when the profile is read, so
 * that a walk over it needs to check nothing but strings, which may hold any byte.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_PPROF_H
#define SPIKEWATCH_LIB_PROFILE_PPROF_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of fields, by message: for the reader, and for profile.c, which writes them. */
enum profile_field {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME_NS = 9,
	PROFILE_DURATION_NS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_DEFAULT_TYPE = 14,
};

enum value_type_field { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT = 2 };

enum pprof_sample_field { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES = 2, SAMPLE_LABEL = 3 };

enum label_field { LABEL_KEY = 1, LABEL_TEXT = 2, LABEL_NUMBER = 3, LABEL_UNIT = 4 };

enum mapping_field {
	MAPPING_ID = 1,
	MAPPING_START = 2,
	MAPPING_END = 3,
	MAPPING_OFFSET = 4,
	MAPPING_PATH = 5,
	MAPPING_BUILD_ID = 6,
	MAPPING_HAS_FUNCTIONS = 7,
	MAPPING_HAS_FILES = 8,
	MAPPING_HAS_LINES = 9,
	MAPPING_HAS_INLINED = 10,
};

enum location_field { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_ADDRESS = 3, LOCATION_LINE = 4 };

enum line_field { LINE_FUNCTION = 1, LINE_NUMBER = 2 };

enum function_field {
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILE = 4,
	FUNCTION_START_LINE = 5,
};

/* More values of a sample than that are no profile. */
#define PPROF_READ_VALUES_MAX 16

struct pprof_read_options {
	size_t bytes_max;  /* of the profile, inflated; 0: PPROF_READ_BYTES_DEFAULT */
	size_t memory_max; /* for what is read; 0: PPROF_READ_MEMORY_DEFAULT */
};

/* Bytes within the profile; no NUL behind them. */
struct pprof_read_text {
	const char *at;
	size_t len;
};

struct pprof_read_value_type {
	uint32_t type, unit; /* strings */
};

/*
 * Numbers of strings are places in profile.strings; of mappings and functions places, from 1 on: 0
 * is none.
 */
struct pprof_read_mapping {
	uint64_t id, start, limit, offset;
	uint32_t file, build_id;
};

struct pprof_read_function {
	uint64_t id;
	uint32_t name, system_name, file;
	int64_t start_line;
};

struct pprof_read_line {
	uint64_t function_id;
	uint32_t function;
	int64_t line;
};

struct pprof_read_location {
	uint64_t id, mapping_id, address;
	uint32_t mapping;
	uint32_t line_first, line_count; /* in profile.lines, the innermost of inlined functions first */
};

struct pprof_read_label {
	uint32_t key, text, unit; /* text 0: the number */
	int64_t number;
};

struct pprof_read_sample {
	uint32_t frame_first, frame_count; /* in profile.frames, leaf first */
	uint32_t label_first, label_count;
	int64_t values[PPROF_READ_VALUES_MAX]; /* as many as there are value types; others are 0 */
};

/* Places are right, but for the empty string 0, which is there always. */
struct pprof_read_profile {
	struct pprof_read_value_type *types;
	struct pprof_read_mapping *mappings;
	struct pprof_read_function *functions;
	struct pprof_read_line *lines;
	struct pprof_read_location *locations;
	uint32_t *frames; /* places in locations, from 0 on */
	struct pprof_read_label *labels;
	struct pprof_read_sample *samples;
	struct pprof_read_text *strings;
	uint32_t type_count, mapping_count, function_count, line_count, location_count, frame_count, label_count,
		sample_count, string_count;
	int64_t time_ns, duration_ns; /* since 1970; 0: not known */
	struct pprof_read_value_type period_type;
	int64_t period;
};

struct pprof_read;

/*
 * 0; -EBADMSG: no profile, or damaged; -EFBIG: beyond a limit; -ENOMEM. options may be NULL. data
 * need not outlive the call.
 */
int pprof_read_new(const void *data, size_t len, const struct pprof_read_options *options, struct pprof_read **ret);

/* NULL is fine. */
void pprof_read_free(struct pprof_read *reader);
CLEANUP(pprof_read, free);

/* As long as the reader lives. */
const struct pprof_read_profile *pprof_read_profile(const struct pprof_read *reader);

/* The label of a sample, the first of several; NULL: it has none. */
const struct pprof_read_label *pprof_read_label(const struct pprof_read_profile *profile,
						const struct pprof_read_sample *sample, const char *key);

/* Which value is of this type and unit ("cpu", "nanoseconds"); -1: none. unit NULL: any. */
int pprof_read_value(const struct pprof_read_profile *profile, const char *type, const char *unit);

#endif
