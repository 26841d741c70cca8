/*
 * symbolize.h: from samples of addresses (stack_file.h) to profiles of functions (profile.h), one
 * of CPU time and one of memory that was touched for the first time: what spikewatch-symbolize
 * does. The input is not trusted: only in a sandbox, in a process that may be killed by it.
 *
 * An address is looked up in the file that its process had mapped there at that moment, if that
 * file was handed over and is that one: where the kernel reported a build id, the file must have
 * the same. Otherwise it has no function, and counts for its mapping.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLIZE_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLIZE_H

#include "lib/profile/profile.h"
#include "lib/profile/stack_file.h"

#include <stdbool.h>
#include <stdint.h>

struct symbolize_options {
	uint64_t spike_from_ns; /* stack_profile_options. 0: the firing */
	bool raw;               /* reads no binaries: addresses in them count for their mappings */
	int vdso; /* descriptor of a copy of the vDSO that processes of this machine have, taken over; -1: none */
	/* Opens the debug file, or what debug files share, of a build id; -1: none. May be NULL. */
	int (*debug_file)(void *ctx, const uint8_t *build_id, size_t len);
	void *ctx;
	/* Descriptors of the binaries by the numbers that the file has for them; NULL: they are these numbers. */
	const int *received;
	size_t received_count;
	/*
	 * Between two runs, what the first has read of the binaries; {NULL} before it. The file of the second has
	 * all binaries of the first, in the same order, and maybe more. NULL: there is one run.
	 */
	struct modules **kept;
	bool is_first;                /* of two runs: it only reads what the second will need */
	bool (*is_enough)(void *ctx); /* asked now and then in the first: whether to leave the rest to the second */
};

/* By enum stack_profile_quantity. */
#define SYMBOLIZE_PROFILES 2

/*
 * What came of it, as names and values: name(of what). Frames are counted once for each sample that
 * they are in.
 */
#define SYMBOLIZE_COUNTS(count) \
	count(samples)                       /* taken into the profile of CPU time */ \
		count(samples_of_faults)     /* taken into the profile of memory */ \
		count(faults)                /* that they stand for */ \
		count(samples_without_stack) /* of both: not a single frame */ \
		count(samples_cut)           /* of both: the stack was deeper than its copy */ \
		count(samples_twice)         /* left out: events of the thread's own have them, too */ \
		count(records_broken)        /* could not be decoded; the rest of the stream was not read */ \
		count(records_lost)          /* samples that the kernel had to drop */ \
		count(records_left_out)      /* of mappings and names, because a limit was reached */ \
		count(frames) count(frames_kernel) \
			count(frames_named) /* of frames: that have the name of a function */ \
		count(frames_by_tables)     /* of frames: whose caller was found by unwinding tables */ \
		count(frames_unmapped)      /* of frames: in no known mapping */ \
		count(frames_replaced)      /* of frames: the file is another one by now */ \
		count(binaries_read) count(binaries_replaced) /* another build id */ \
		count(binaries_unreadable)                    /* no ELF file, damaged, or symbols too large */ \
		count(debug_files)                            /* separate ones that were found */ \
		count(perf_map_lines_broken)

struct symbolize_counts {
#define SYMBOLIZE_FIELD(name) uint64_t name;
	SYMBOLIZE_COUNTS(SYMBOLIZE_FIELD)
#undef SYMBOLIZE_FIELD
};

/*
 * Descriptors of the binaries in the file are taken over. 0: all of ret are the caller's
 * (stack_profile_free), also when records were broken; -ENOMEM; -EINVAL: samples of a kind that
 * perf.h does not decode. The second of two runs gives what one alone would. The first sets neither
 * ret nor ret_counts, which may be NULL, and its file may be gone afterwards.
 */
int symbolize_run(const struct stack_file *file, const struct symbolize_options *options,
		  struct stack_profile *ret[SYMBOLIZE_PROFILES], struct symbolize_counts *ret_counts);

#endif
