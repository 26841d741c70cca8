/*
 * foxstacks.h: the tables that all threads of a profile of the Firefox Profiler share (profile.shared: strings, functions, frames,
 * stacks), made of a profile of pprof.
 */
#ifndef SPIKEWATCH_FOXSTACKS_H
#define SPIKEWATCH_FOXSTACKS_H

#include "intern.h"
#include "json.h"
#include "pprofread.h"

#include <stdint.h>

/* Categories of frames: places in profile.meta.categories. */
enum foxstacks_category { FOXSTACKS_OTHER, FOXSTACKS_USER, FOXSTACKS_KERNEL };

/* {0}: without stacks; strings may be added to it. */
struct foxstacks {
	struct pprofread *reader; /* NULL: there is no profile */
	const struct pprofread_profile *profile;
	uint32_t *frame_first; /* of each location: its outermost function first */
	uint32_t frame_count;
	int32_t *resources; /* of each function: a mapping; -1: none */
	struct intern stacks;
	struct intern strings; /* behind those of the profile */
};

/* Reads the file. 0; -ENOENT, -EBADMSG, -EFBIG, -ENOMEM, -errno: *ret is {0}. To be released. */
int foxstacks_load(int incidentfd, const char *file, struct foxstacks *ret);
void foxstacks_release(struct foxstacks *stacks);

/* The place of a string that is added if need be. 0 or -ENOMEM. */
int foxstacks_string(struct foxstacks *stacks, const char *text, uint32_t *ret);

/* The place of a sample's stack in stackTable; -1: it has no frame. 0 or -ENOMEM. */
int foxstacks_stack(struct foxstacks *stacks, const struct pprofread_sample *sample, int64_t *ret);

/* The member "shared", after all stacks and strings are there. 0 or -ENOMEM; errors of writing stay in the writer. */
int foxstacks_put(struct foxstacks *stacks, struct json_writer *json);

#endif
