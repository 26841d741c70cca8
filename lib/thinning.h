/*
 * thinning.h: when to cease counting what comes too fast, when to go on, and what each of those that were counted stands for then. Pure.
 *
 * The owner counts things that happen (page faults), takes every so-many-th as a sample, and has a total of all things, counted or not, at hand
 * whenever it wants (a counter that somebody else keeps). Where there is no total, the time does: things then are taken to come evenly.
 *
 *	        THINNING_STOP: thinning_stop                         at thinning_next_ns: thinning_begin
 *	(counting) ───────────────────────────────────▶ (not counting) ───────────────────────────────────▶ (counting)
 *	    │ THINNING_SLOT: thinning_begin
 *	    └──▶ (counting)
 *
 * Time is cut into pieces in which everything was counted, and gaps between them. What happened in a gap is given to the pieces on both
 * sides of it, by their rates, and all samples of a piece stand for an equal part of it.
 */
#ifndef SPIKEWATCH_THINNING_H
#define SPIKEWATCH_THINNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pieces that are remembered: more than a minute of counting that ceases all the time. */
#define THINNING_PIECES 1024u

/*
 * No more than `most` samples in slot_ns, on an average; neither is 0. After a calm that was long enough, `burst` of them may come at once; below `most`
 * it is that.
 */
struct thinning_options {
	uint64_t slot_ns;
	uint32_t most;
	uint32_t burst;
	uint32_t seed; /* of when to go on: not at regular times, which may be those of what is counted. Anything */
};

struct thinning_piece {
	uint64_t from_ns, to_ns;
	uint64_t counted; /* by the total, things that happened in it */
	uint64_t gained;  /* that happened in gaps and that it stands for */
};

/* To be looked at only. */
struct thinning {
	struct thinning_options options;
	bool on;
	bool watchful;    /* on: this slot is the first after a gap */
	bool settled;     /* the piece before the gap is not to be touched any more */
	uint64_t slot_ns; /* on: the slot's begin */
	uint64_t next_ns; /* off: when to go on */
	uint64_t owed_ns; /* on: at slot_ns, so much more time should the samples before it have taken */
	uint64_t from_ns; /* of the piece or gap that is not at its end yet */
	uint64_t total;   /* at from_ns */
	uint64_t gap;     /* things before this piece that are not given to anybody yet */
	uint64_t random;
	uint64_t first, count; /* of pieces: numbers that grow for ever, and how many there are */
	struct thinning_piece pieces[THINNING_PIECES];
};

enum thinning_verdict {
	THINNING_GO_ON,
	THINNING_SLOT, /* the slot is over and was quiet: thinning_begin */
	THINNING_STOP, /* too many, too fast: thinning_stop, as soon as nothing is counted any more */
};

struct thinning_summary {
	uint64_t counted, all; /* things that happened */
	uint64_t since_ns;     /* when it began that not all were counted, if they were not */
};

/* Counting begins. */
void thinning_init(struct thinning *thinning, const struct thinning_options *options, uint64_t now_ns, uint64_t total);

/* While counting: what is to be done. samples: since the slot began, of whoever (a CPU, say) had most of them. */
enum thinning_verdict thinning_judge(const struct thinning *thinning, uint64_t now_ns, uint64_t samples);

/* Counting goes on, or has gone on, in a new slot. samples: of the slot before, as given to thinning_judge; after a gap it does not matter. */
void thinning_begin(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples);

/* Counting has ceased. samples: as given to thinning_judge, or more. */
void thinning_stop(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples);

/* When to look, even if there were no samples: while nothing is counted, to go on. UINT64_MAX: there is no need. */
uint64_t thinning_next_ns(const struct thinning *thinning);

/* What happened until now is settled: it will not be given to samples of later. For whoever weighs samples up to now, while later ones are yet to come. */
void thinning_settle(struct thinning *thinning, uint64_t now_ns, uint64_t total);

/* What a sample of time_ns that stands for `weight` things by itself stands for. Of pieces that are forgotten or not at their end: weight. */
uint64_t thinning_weigh(const struct thinning *thinning, uint64_t time_ns, uint64_t weight);

/* How many of all there were in from_ns .. to_ns were counted, to whole pieces; both 0: nothing is known. */
void thinning_sum_up(const struct thinning *thinning, uint64_t from_ns, uint64_t to_ns, struct thinning_summary *ret);

#endif
