/*
 * ring_claim.h: claiming and sealing pages of a ring.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_CLAIM_H
#define SPIKEWATCH_RING_CLAIM_H

#include "ring_format.h"

#include <stdbool.h>
#include <stdint.h>

/* Seals a page whose word this thread has made SEALING (or which is TICKING and its own). */
void ring_claim_seal(struct ring_page *page, uint64_t seq);

/* Seals page seq unless somebody else has, or a tick is being written to it. */
void ring_claim_seal_idle(struct ring_page *page, uint64_t seq);

/* Takes the next page for this thread, with state CLAIMED. 0 or RING_HELD (ring.h). */
int ring_claim_take(struct ring *ring, uint64_t *ret_seq);

/* Whether the blocking reader holds any of the `count` pages from s on. */
bool ring_claim_held(const struct ring *ring, uint64_t s, uint64_t count);

/*
 * What is done by whoever is held: if the reader waits on an idle page, that is sealed, so that
 * it can go on. The page may have been in a tick when it was half a ring old, and its writer held ever since.
 */
void ring_claim_held_back(const struct ring *ring);

#endif
