/*
 * pprof.h: writes and reads pprof profiles: profile.proto, in gzip,
 * https://github.com/google/pprof/blob/main/proto/profile.proto. Pure: no protobuf library.
 *
 * pprof_new ─▶ { pprof_add_mapping, pprof_add_function ─▶ pprof_add_location ─▶ pprof_add_sample }
 * ─▶ pprof_finish, onto a sink
 *
 * Written strings are made printable (text_escape) and kept once. The encoder is sticky: the first
 * error is returned by every later call. It keeps the encoded profile in memory until the end.
 *
 * pprof_read: what this, Go, perf_to_profile and others write, in gzip or not. The input is not
 * trusted: references are resolved and checked once, when the profile is read, so that a walk over
 * it needs to check nothing but strings, which may hold any byte.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_PPROF_H
#define SPIKEWATCH_LIB_PROFILE_PPROF_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PPROF_VALUES_MAX 4
#define PPROF_LABELS_MAX 8

/* Longer strings are cut. */
#define PPROF_TEXT_MAX 4096

struct pprof;

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

/* 0; -ENOMEM; -EFBIG: bytes_max is too little even for this. */
int pprof_new(const struct pprof_options *options, struct pprof **ret);

/* NULL is fine. */
void pprof_free(struct pprof *pprof);
CLEANUP(pprof, free);

/*
 * Each adds one and sets *ret to its id: 1, 2, 3 ... of its kind, in the order of the calls.
 * Nothing is compared with what is there. 0; -ENOMEM; -EFBIG; -EINVAL: an id that was not given.
 */
int pprof_add_mapping(struct pprof *pprof, const struct pprof_mapping *mapping, uint64_t *ret);
int pprof_add_function(struct pprof *pprof, const struct pprof_function *function, uint64_t *ret);
int pprof_add_location(struct pprof *pprof, const struct pprof_location *location, uint64_t *ret);
int pprof_add_sample(struct pprof *pprof, const struct pprof_sample *sample);

/* Writes the profile to sink. To be called once. 0; -ENOMEM; -EFBIG; what sink returns. */
int pprof_finish(struct pprof *pprof, const struct sink *sink);

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
