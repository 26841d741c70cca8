/*
 * ring_tempo.h: the interval and the heartbeat of a ring, which change while it is written.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_TEMPO_H
#define SPIKEWATCH_RING_TEMPO_H

#include "ring_format.h"

#include <stdbool.h>
#include <stdint.h>

/* What the writer that sets them remembers. {0} at the start. */
struct ring_tempo {
	bool shortened;         /* the heartbeat is shorter than it was in pages that are still there */
	uint64_t shortened_seq; /* the first page that was not begun yet then */
};

/* From now on these are in force. heartbeat_ns 0: 1 s. */
void ring_tempo_set(struct ring_tempo *tempo, struct ring *ring, uint64_t interval_ns, uint64_t heartbeat_ns);

/* Page seq was begun: if with it the last page of a longer heartbeat is gone, readers need not look as far back any more. */
void ring_tempo_claimed(struct ring_tempo *tempo, struct ring *ring, uint64_t seq);

/* In force. */
uint64_t ring_tempo_interval_ns(const struct ring *ring);
uint64_t ring_tempo_heartbeat_ns(const struct ring *ring);

/*
 * How far before any moment in the ring the last record of a target may lie. The file is not to be trusted: believing it costs no more than
 * reading the whole ring.
 */
uint64_t ring_tempo_longest_ns(const struct ring *ring);

#endif
