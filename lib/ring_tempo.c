/*
 * ring_tempo.c: three words of the live part of the header. The values the ring was made with stay in the part that has a checksum: changing
 * that in place would make the header invalid for a moment, and a reader that opens the ring just then would be turned away.
 *
 * A longer heartbeat is in the longest at once. A shorter one does not change what was written before, so the longest stays until every page
 * that was begun under it has been overwritten.
 */
#include "ring_tempo.h"

#include "clock.h"

uint64_t ring_tempo_interval_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->interval_live);

	return live != 0 ? live : ring->header->interval_ns;
}

uint64_t ring_tempo_heartbeat_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->heartbeat_live);

	return live != 0 ? live : ring->header->heartbeat_ns;
}

uint64_t ring_tempo_longest_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->heartbeat_longest);

	return live != 0 ? live : ring->header->heartbeat_ns;
}

void ring_tempo_set(struct ring_tempo *tempo, struct ring *ring, uint64_t interval_ns, uint64_t heartbeat_ns)
{
	struct ring_header *header = ring->header;
	uint64_t longest_ns = ring_tempo_longest_ns(ring);

	if (heartbeat_ns == 0)
		heartbeat_ns = NS_PER_S;
	if (heartbeat_ns < ring_tempo_heartbeat_ns(ring))
		tempo->shortened_seq = ring_load_acquire(&header->next_seq);
	tempo->shortened = heartbeat_ns < longest_ns;
	ring_store(&header->heartbeat_longest, heartbeat_ns > longest_ns ? heartbeat_ns : longest_ns);
	ring_store(&header->heartbeat_live, heartbeat_ns);
	ring_store(&header->interval_live, interval_ns);
}

void ring_tempo_claimed(struct ring_tempo *tempo, struct ring *ring, uint64_t seq)
{
	if (!tempo->shortened || seq < tempo->shortened_seq + ring->page_count)
		return;

	ring_store(&ring->header->heartbeat_longest, ring_tempo_heartbeat_ns(ring));
	tempo->shortened = false;
}
