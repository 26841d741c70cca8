/*
 * ring_copy.h: a private copy of one page, taken piece by piece while its writer fills it, and checked before anything
 * of it is believed.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_COPY_H
#define SPIKEWATCH_RING_COPY_H

#include "ring_format.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	RING_COPY_RECYCLED = 1, /* the page belongs to a later sequence number now */
	RING_COPY_DAMAGED = 2,  /* it contradicts its checksum or itself */
};

/* have and parsed are offsets into payload. What lies between them is valid and begins with a TICK record. */
struct ring_copy {
	struct ring_copy *spare; /* the next of a list of unused copies: the owner's */
	uint64_t seq;
	uint32_t writer; /* its number; valid once have > 0 */
	uint64_t prev;   /* as in struct ring_page; valid once have > 0 */
	uint64_t next;   /* likewise, when the last TICK says RING_TICK_MORE */
	uint32_t have;   /* bytes copied */
	uint32_t parsed; /* bytes consumed: the owner's */
	bool complete;   /* the page was sealed: nothing more will come */
	uint64_t payload[];
};

/* An empty copy for pages of this ring, to be free()d. NULL: no memory. */
struct ring_copy *ring_copy_new(const struct ring *ring);

/* Makes it a copy of page seq, nothing of which is read yet. */
void ring_copy_start(struct ring_copy *copy, uint64_t seq);

/*
 * Copies what was published since the last call. 0; RING_COPY_RECYCLED or RING_COPY_DAMAGED: nothing new is in the
 * copy, what it had before stays valid.
 */
int ring_copy_refresh(struct ring_copy *copy, const struct ring *ring);

/* The first word of the record at offset at < have. */
static inline uint64_t ring_copy_head(const struct ring_copy *copy, uint32_t at)
{
	return copy->payload[at / 8];
}

#endif
