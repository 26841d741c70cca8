/*
 * pprof.h: writes a profile as pprof reads it: profile.proto,
 * https://github.com/google/pprof/blob/main/proto/profile.proto, in gzip. Pure: no protobuf library, onto a sink.
 *
 *	pprof_new ─▶ { pprof_mapping, pprof_function ─▶ pprof_location ─▶ pprof_sample } ─▶ pprof_finish
 *
 * Strings of strangers are made printable (text_escape) and kept once. The encoder is sticky: the first error is
 * returned by every later call. It keeps the encoded profile in memory until the end.
 */
#ifndef SPIKEWATCH_PPROF_H
#define SPIKEWATCH_PPROF_H

#include "sink.h"

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
	size_t value_shown; /* which of them is shown if nobody asks for another */
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
	uint64_t mapping; /* 0: in none */
	uint64_t address; /* between the mapping's start and end */
	const struct pprof_line
		*lines;    /* the innermost of inlined functions first; the last is who they were inlined into */
	size_t line_count; /* 0: the function is not known */
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

/*
 * Each adds one and sets *ret to its id: 1, 2, 3 ... of its kind, in the order of the calls. Nothing is compared with
 * what is there. 0; -ENOMEM; -EFBIG; -EINVAL: an id that was not given.
 */
int pprof_add_mapping(struct pprof *pprof, const struct pprof_mapping *mapping, uint64_t *ret);
int pprof_add_function(struct pprof *pprof, const struct pprof_function *function, uint64_t *ret);
int pprof_add_location(struct pprof *pprof, const struct pprof_location *location, uint64_t *ret);
int pprof_add_sample(struct pprof *pprof, const struct pprof_sample *sample);

/* A line for people; pprof -comments shows it. Returns as the others. */
int pprof_add_comment(struct pprof *pprof, const char *text);

/* Writes the profile to sink. To be called once. 0; -ENOMEM; -EFBIG; what sink returns. */
int pprof_finish(struct pprof *pprof, const struct sink *sink);

#endif
