/*
 * ring_follow.h: which pages a reader is reading, and where the next tick is.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_FOLLOW_H
#define SPIKEWATCH_RING_FOLLOW_H

#include "ring_copy.h"

#include <stdbool.h>
#include <stdint.h>

struct ring_follow {
	const struct ring *ring;
	struct ring_header *attached; /* blocking reader: where its slot is; else NULL */
	uint64_t owner;               /* blocking reader: what its slot says */
	uint64_t next;                /* the first page not looked at yet */
	struct ring_copy **pages;     /* begun and not finished, ascending; room for all the pages of the ring */
	uint32_t count;
	struct ring_copy *spare;
	uint64_t lost;    /* pages that were recycled before they were read; the owner clears it */
	uint64_t damaged; /* pages given up; likewise */
};

/* Starts at the oldest page there is. 0 or -ENOMEM. */
int ring_follow_init(struct ring_follow *follow, const struct ring *ring);

/* Detaches and frees; {0} is fine. */
void ring_follow_release(struct ring_follow *follow);

/*
 * Makes this the blocking reader: writers hold for it, from the oldest page on. 0; RING_BUSY: another one is, and
 * alive does not say that it is dead.
 */
int ring_follow_attach(struct ring_follow *follow, struct ring *ring, uint64_t owner,
		       bool (*alive)(int32_t pid, uint64_t start_ticks));

/*
 * Finds a page with a tick to begin: at `parsed` of *ret there is a TICK record. 0; RING_EMPTY; RING_FOLLOW_LOSS:
 * lost or damaged is not zero; -ENOMEM.
 */
int ring_follow_find(struct ring_follow *follow, struct ring_copy **ret);

enum { RING_FOLLOW_LOSS = 101 };

/*
 * Whether the tick at `parsed` of copy is whole: copies all the pages it is in. 1: they are followed; 0: one is
 * missing, or this is only the rest of a tick; -ENOMEM.
 */
int ring_follow_gather(struct ring_follow *follow, const struct ring_copy *copy);

/* The page where the last tick of copy goes on, which ring_follow_gather() has made sure of. */
struct ring_copy *ring_follow_part(const struct ring_follow *follow, const struct ring_copy *copy);

/*
 * Leaves out the pages that end before since, except as many before the first other one as its targets may need for
 * their descriptions and states. Only while nothing was found yet.
 */
void ring_follow_skip(struct ring_follow *follow, uint64_t since_ns);

/* Calls visit with a copy of each page from the oldest followed one to the newest there is. 0 or what visit returned. */
int ring_follow_ahead(struct ring_follow *follow, int (*visit)(void *ctx, const struct ring_copy *copy), void *ctx);

/* Flags of the TICK record at offset at. */
static inline unsigned ring_follow_flags(const struct ring_copy *copy, uint32_t at)
{
	return ring_head_flags(ring_copy_head(copy, at));
}

#endif
