/*
 * diskroom.h: is there room on the disk for one more incident? The answer, what is said about it, and making room by removing old ones.
 */
#ifndef SPIKEWATCH_DISKROOM_H
#define SPIKEWATCH_DISKROOM_H

#include "clock.h"
#include "collector.h"
#include "config.h"
#include "spool.h"

#include <stdbool.h>

/* What captures other than samples take at most. */
#define DISKROOM_CAPTURES_BYTES (2u << 20)

/* Set the first two, the rest to zero. */
struct diskroom {
	struct spool *spool;
	struct collector *collector; /* who makes room */
	mono_t asked;                /* 0: never, or the answer is not believed any more */
	mono_t made;                 /* when room was last to be made, while there is too little */
	bool is_short;
};

/*
 * Room for one more, by these settings? Asked at most once a second, the answer is kept; says it when that changes. When there is none, and
 * each minute while there is none, the collector is asked to keep the limits: what it can remove makes the answer another one.
 */
bool diskroom_ok(struct diskroom *room, const struct config *config, mono_t now);

/* The next time it is asked anew. */
void diskroom_forget(struct diskroom *room);

#endif
