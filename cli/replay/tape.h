/*
 * tape.h: a recording as the events of a ring (ring.h), whatever it is kept in: a stream of samples (stream.h), whole or damaged, or the
 * ring itself. Memory does not grow with its length.
 *
 * A ring holds every tick, and its events are those that the daemon saw. A stream holds only the samples, so ticks are made up: one where
 * samples are, and between them one every interval for as long as targets can have been idle. What a sample says, and when it was
 * taken, is exact; when a target that stood still was last looked at is known to one interval. Each writer has its own ticks, as in a ring.
 */
#ifndef SPIKEWATCH_TAPE_H
#define SPIKEWATCH_TAPE_H

#include "ring.h"
#include "salvage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a stream: more targets at a time are not told apart, and counted. */
#define TAPE_TARGETS_MAX 65536

struct tape_options {
	/* Of a stream: between two ticks where samples do not say it, and how long a target that stands still has none. Both > 0. */
	uint64_t interval_ns, heartbeat_ns;
	uint64_t
		idle_ns; /* of a stream: the longest pause between two looks at a process (idlepace.h); 0: none, or not known */
	bool interval_is_known; /* exactly; else a shorter one is found from the rows of targets that are busy */
	int64_t mono_ahead_ns; /* of a stream: the monotonic clock less the wall clock. Windows end at multiples of the former */
	int (*event)(void *ctx, const struct ring_event *event); /* a non-zero return ends it all */
	/* Of a stream: line 0: of the whole. why is static text. May be NULL. */
	void (*trouble)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	void *ctx;
};

/* What there was. */
struct tape_summary {
	bool any;        /* ticks; the next two are known */
	wall_t from, to; /* the earliest and the latest */
	uint64_t ticks, samples, targets, gone;
	uint64_t gaps;                /* holes that were met: damage, lost rows or pages, GAP notes */
	uint64_t nameless;            /* samples of targets that nothing describes, or one too many: passed over */
	uint64_t late;                /* samples that came after later ones, or at absurd times: passed over */
	struct salvage_report report; /* of a stream, once it has ended */
};

/* A tick is a part of what there was. */
void tape_summary_tick(struct tape_summary *summary, wall_t at);

struct tape;

/* A stream, handed over in pieces of any size. 0 or -ENOMEM. *options is copied. */
int tape_new(const struct tape_options *options, struct tape **ret);
/* 0, -ENOMEM or what event returned. */
int tape_feed(struct tape *tape, const char *data, size_t len);
/* The end of the stream. As tape_feed; *ret is always set. */
int tape_finish(struct tape *tape, struct tape_summary *ret);
/* NULL is fine. */
void tape_free(struct tape *tape);

/* All of a ring, from its oldest tick up to the newest there is now. 0, -ENOMEM or what event returned; *ret is always set. */
int tape_play_ring(const struct ring *ring, const struct tape_options *options, struct tape_summary *ret);

#endif
