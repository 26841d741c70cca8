/*
 * tuning.h: how new options reach a thread that must not wait, and how the memory they came in gets back. The latest ones win: what was
 * posted before and not taken yet is dropped.
 *
 *     caller ── tuning_post ──▶ owner: tuning_take, tuning_return ──▶ the next tuning_post or tuning_release, which free
 */
#ifndef SPIKEWATCH_TUNING_H
#define SPIKEWATCH_TUNING_H

#include "sampler.h"
#include "source.h"

/* One set of options under way. */
struct tuning {
	struct sampler_options options;
	struct source_room *room; /* for options.source.capacity; the owner puts here what it has no more use for */
	struct tuning *next;
};

/* {0} is empty. */
struct tuning_box {
	struct tuning *_Atomic posted; /* not taken yet */
	struct tuning *_Atomic spent;  /* back from the owner */
};

/* ---- any thread, one at a time ---- */

/* 0; -ENOMEM: nothing was posted, and what was before still is. */
int tuning_post(struct tuning_box *box, const struct sampler_options *options);

/* Frees all that is in it. Without an owner. */
void tuning_release(struct tuning_box *box);

/* ---- the owner; these allocate, free and wait for nothing ---- */

/* NULL: nothing new. */
struct tuning *tuning_take(struct tuning_box *box);

/* Gives it back, to be freed with its room. */
void tuning_return(struct tuning_box *box, struct tuning *tuning);

#endif
