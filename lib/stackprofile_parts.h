/*
 * stackprofile_parts.h: what a stackprofile is made of, for the two files that are one: stackprofile_add.c fills it,
 * stackprofile_write.c reads it.
 *
 * Everything is a key of bytes in a set and known by its number there, from 1 on. Keys hold numbers of other sets;
 * holes are zero.
 */
#ifndef SPIKEWATCH_STACKPROFILE_PARTS_H
#define SPIKEWATCH_STACKPROFILE_PARTS_H

#include "hotlist.h"
#include "intern.h"
#include "stackprofile.h"

struct stackprofile_mapping_key {
	uint64_t start, end, offset;
	uint32_t path; /* string */
	uint32_t build_id_len;
	uint8_t build_id[STACKPROFILE_BUILD_ID_MAX];
	uint32_t hole;
};

struct stackprofile_function_key {
	uint32_t name, file, module; /* strings; file 0: not known */
	uint32_t known;              /* 0: the name was made up after the module */
};

struct stackprofile_line_key {
	uint32_t function, line;
};

/* Followed by at least one line, the innermost first. */
struct stackprofile_frame_key {
	uint64_t address;
	uint32_t mapping, lines;
};

struct stackprofile_thread_key {
	int32_t pid, tid;
	uint32_t process, thread, cgroup; /* strings; cgroup 0: not known */
};

/* How often a stack was seen. */
struct stackprofile_tally {
	uint64_t samples[HOTLIST_PHASES], weight[HOTLIST_PHASES];
};

struct stackprofile {
	struct stackprofile_options options;
	struct intern_budget budget;
	struct intern strings, mappings, functions, frames, threads;
	struct intern stacks;               /* the thread, then its frames, leaf first: all uint32_t */
	struct stackprofile_tally *tallies; /* by number of the stack, less 1 */
	uint32_t cap;
	struct stackprofile_tally other;
	struct buffer key; /* the one that is made */
};

#endif
