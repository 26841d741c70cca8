/*
 * panorama.h: the samples of all targets around a moment, from the ring straight into samples.tsv: for an incident of everything. The past
 * is written when it is opened; what comes after that, whenever panorama_follow is called.
 *
 * What the sampler was faster with is counted, not waited for. Every call may wait for the disk.
 */
#ifndef SPIKEWATCH_PANORAMA_H
#define SPIKEWATCH_PANORAMA_H

#include "clock.h"
#include "ring.h"
#include "slice.h"

#include <stdint.h>

struct panorama;

struct panorama_options {
	const struct ring *ring; /* must outlive it */
	mono_t fired;
	wall_t wall; /* of fired */
	uint64_t before_ns, after_ns;
	uint64_t interval_ns; /* of the sampler, > 0 */
	uint64_t max_bytes;   /* of the file; samples beyond are dropped and counted. 0: no limit */
};

/*
 * Makes samples.tsv in dirfd and writes what the ring holds of the window by now. 0; -ENOMEM; -errno, and then there is no such file.
 * dirfd stays the caller's and must outlive it.
 */
int panorama_open(const struct panorama_options *options, int dirfd, struct panorama **ret);

/* Writes what has come since, and hands it to the kernel. 0; the first error, from then on: the rest is left to panorama_close. */
int panorama_follow(struct panorama *panorama);

/*
 * Does so once more, ends the file, frees. 0, and what there is of the window in *ret, the size of the file in *ret_bytes; -errno: the
 * first error, and the file is gone.
 */
int panorama_close(struct panorama *panorama, struct slice_coverage *ret, uint64_t *ret_bytes);

/* How large the file would be, within a hundred bytes, if it were opened and closed now. 0; -ENOMEM. Costs as much as writing it without a disk. */
int panorama_bytes(const struct panorama_options *options, uint64_t *ret_bytes);

/* Frees it and removes the file. NULL is fine. */
void panorama_abort(struct panorama *panorama);

#endif
