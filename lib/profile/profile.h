/*
 * profile.h: samples of call stacks, with symbols, summed up: (process, thread, frames) -> how many
 * and how much CPU time or memory, before the spike and during it; written as a profile for pprof,
 * as folded stacks, and as a table of functions. Pure.
 *
 *   stack_profile_new ─▶ { stack_profile_mapping ─▶ stack_profile_frame ─▶ stack_profile_add } ─▶
 *   stack_profile_write_*
 *
 * Memory is bounded. A sample that does not fit counts for one stack of one frame, "(other)", of a
 * process of that name. Strings are copied; strings and numbers may be anything.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_PROFILE_H
#define SPIKEWATCH_LIB_PROFILE_PROFILE_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames of a stack; of more, the leaf and those near it are kept. The kernel's limit is 127. */
#define STACK_PROFILE_FRAMES_MAX 512

/* Functions inlined into each other; of more, the innermost are kept, and the one they are in. */
#define STACK_PROFILE_LINES_MAX 64

#define STACK_PROFILE_BUILD_ID_MAX 20

/* Longer names are cut. */
#define STACK_PROFILE_NAME_MAX 1024

/* The mapping of frames that are in none, and the frame of what did not fit. */
#define STACK_PROFILE_NO_MAPPING 0u
#define STACK_PROFILE_OTHER 0u

/*
 * What a profile is of. CPU: samples of what was running, whose weight is nanoseconds of CPU time.
 * MEMORY: page faults, each the first touch of a page, whose weight is the bytes of the pages.
 */
enum stack_profile_quantity { STACK_PROFILE_CPU, STACK_PROFILE_MEMORY };

/* Positive returns. */
enum {
	STACK_PROFILE_FULL = 1, /* beyond a limit; the sample counts for "(other)" */
};

struct stack_profile;

/* Times are of one monotonic clock, but for wall_ns. */
struct stack_profile_options {
	enum stack_profile_quantity quantity;
	uint64_t fired_ns;
	uint64_t wall_ns;        /* fired_ns by the wall clock, since 1970 */
	uint64_t from_ns, to_ns; /* what the samples cover */
	uint64_t spike_from_ns;  /* the rule's window begins: samples are "before" or "during" it */
	uint64_t period_ns;      /* CPU: of CPU time, between two samples */
	uint64_t period_bytes;   /* MEMORY: bytes between two samples, if that is so; 0: not known */
	size_t stacks_max;       /* 0: STACK_PROFILE_STACKS_DEFAULT */
	size_t bytes_max;        /* of memory; 0: STACK_PROFILE_BYTES_DEFAULT. Writing takes about as much again */
};

struct stack_profile_mapping {
	uint64_t start, end, offset; /* of the file, at start */
	const char *path;            /* or "[kernel]", "[vdso]", "//anon" ...; NULL: not known */
	uint8_t build_id[STACK_PROFILE_BUILD_ID_MAX];
	size_t build_id_len; /* 0: not known */
};

/* A place in the source. */
struct stack_profile_line {
	const char *function; /* NULL: not known */
	const char *file;     /* NULL: not known */
	uint32_t line;        /* 0: not known */
};

struct stack_profile_frame {
	uint32_t mapping;                       /* what stack_profile_mapping gave, or STACK_PROFILE_NO_MAPPING */
	uint64_t address;                       /* in the process; of a return address the byte before it */
	const struct stack_profile_line *lines; /* innermost first; the last is the function others were inlined into */
	size_t line_count; /* 0: no symbol. The frame then is called after its mapping: "[libc.so.6]" */
};

struct stack_profile_sample {
	uint64_t time_ns;
	int32_t pid, tid;
	const char *process, *thread; /* their names; NULL: not known */
	const char *cgroup;           /* "" or NULL: not known */
	bool other;                   /* of a process that is not part of the target: no functions are listed */
	const uint32_t *frames;       /* what stack_profile_frame gave, leaf first */
	size_t frame_count;           /* 0: counts for a stack of one frame, "[no stack]" */
	uint64_t count;               /* samples, or page faults, it stands for */
	uint64_t weight;              /* ns of CPU time, or bytes, it stands for, all of them together */
};

/* Copies the options. 0 or -ENOMEM. */
int stack_profile_new(const struct stack_profile_options *options, struct stack_profile **ret);

/* NULL is fine. */
void stack_profile_free(struct stack_profile *profile);
CLEANUP(stack_profile, free);

/*
 * Each sets *ret to a number, the same one for the same, also across processes. 0;
 * STACK_PROFILE_FULL: *ret is STACK_PROFILE_NO_MAPPING, or STACK_PROFILE_OTHER, which may be used
 * like any other; -ENOMEM: nothing has changed. A frame's mapping must be one that was given:
 * -EINVAL.
 */
int stack_profile_mapping(struct stack_profile *profile, const struct stack_profile_mapping *mapping, uint32_t *ret);
int stack_profile_frame(struct stack_profile *profile, const struct stack_profile_frame *frame, uint32_t *ret);

/* 0; STACK_PROFILE_FULL; -EINVAL: a frame that was not given; -ENOMEM: nothing has changed. */
int stack_profile_add(struct stack_profile *profile, const struct stack_profile_sample *sample);

/*
 * Write it; may be repeated. 0; -ENOMEM; what sink returns.
 *
 * pprof: gzip; values samples/count and cpu/nanoseconds, or faults/count and memory/bytes, of which
 * the second is the default; labels process, process_id, thread, thread_id, cgroup, phase ("before",
 * "during") and target ("yes", "no": sample.other) of each sample, and time, in milliseconds since the
 * profile begins, of those of the target as far as there is room: 10 ms apart, or a thousandth of it.
 * folded: "process;root;...;leaf count", before and during together; counts are samples, or bytes.
 * functions: the table of stack_text.h, in samples, or bytes.
 */
int stack_profile_write_pprof(const struct stack_profile *profile, const struct sink *sink);
int stack_profile_write_folded(const struct stack_profile *profile, const struct sink *sink);
int stack_profile_write_functions(const struct stack_profile *profile, const struct sink *sink);

#endif
