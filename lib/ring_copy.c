/*
 * ring_copy.c: from shared memory to private memory.
 *
 * The order: the word (is it this page?), `used`, the bytes, the header, an acquire fence, the word again. If the page
 * was recycled in between, what was copied is thrown away. Then, once the page is sealed, the checksum over all of the
 * copy; then the structure of the new records: from there on every size in the copy can be relied upon.
 *
 * A page is copied word by word with atomic loads: the compiler makes plain moves of them, some 20 GB/s.
 */
#include "ring_copy.h"
#include "checksum.h"
#include "target.h"

#include <stdlib.h>

struct ring_copy *ring_copy_new(const struct ring *ring)
{
	return malloc(sizeof(struct ring_copy) + ring->payload_bytes);
}

void ring_copy_start(struct ring_copy *copy, uint64_t seq)
{
	copy->spare = NULL;
	copy->seq = seq;
	copy->writer = 0;
	copy->prev = 0;
	copy->next = 0;
	copy->have = 0;
	copy->parsed = 0;
	copy->complete = false;
}

/* Whether the record at `at` of this size is as long as its type and contents need. */
static bool record_valid(const struct ring_copy *copy, uint32_t at, uint32_t size)
{
	const uint64_t *record = &copy->payload[at / 8];

	switch (ring_head_type(record[0])) {
	case RING_TICK:
		return size >= RING_TICK_BYTES;
	case RING_SAMPLE:
		return size >= RING_SAMPLE_BYTES &&
		       size >= RING_SAMPLE_BYTES + 8 * (uint32_t)__builtin_popcount((uint32_t)record[1]);
	case RING_TARGET:
		return size >= RING_TARGET_BYTES && (uint32_t)record[1] <= TARGET_ENCODED_MAX &&
		       size >= RING_TARGET_BYTES + (uint32_t)record[1];
	case RING_GONE:
		return size >= RING_GONE_BYTES;
	default:
		return true;
	}
}

/*
 * Whether [from, to) is whole ticks: it begins with a TICK, only one at the very beginning of the page continues
 * another, and none follows one that goes on elsewhere.
 */
static bool records_valid(const struct ring_copy *copy, uint32_t from, uint32_t to)
{
	bool more = false;

	for (uint32_t at = from; at < to;) {
		uint64_t head = ring_copy_head(copy, at);
		uint32_t size = ring_head_size(head);
		bool tick = ring_head_type(head) == RING_TICK;
		if (size < 8 || size % 8 != 0 || size > to - at || !record_valid(copy, at, size))
			return false;
		if (tick && (more || (at > 0 && (ring_head_flags(head) & RING_TICK_CONTINUED) != 0)))
			return false;
		if (!tick && at == from)
			return false;

		more = more || (tick && (ring_head_flags(head) & RING_TICK_MORE) != 0);
		at += size;
	}
	return true;
}

static bool sum_valid(const struct ring_copy *copy, uint32_t used, const uint64_t facts[RING_FACTS], uint64_t crc)
{
	uint32_t sum = checksum_crc32(CHECKSUM_CRC32_EMPTY, facts, RING_FACTS * sizeof(facts[0]));

	return crc == checksum_crc32(sum, copy->payload, used);
}

int ring_copy_refresh(struct ring_copy *copy, const struct ring *ring)
{
	const struct ring_page *page = ring_page(ring, copy->seq);
	uint64_t word = ring_load_acquire(&page->word);

	if (copy->complete)
		return 0;
	if (!ring_word_is(word, copy->seq))
		return RING_COPY_RECYCLED;
	if (ring_word_state(word) == RING_PAGE_CLAIMED)
		return 0;

	uint64_t used = ring_load_acquire(&page->used);
	bool in_bounds = used >= copy->have && used <= ring->payload_bytes && used % 8 == 0;
	for (uint64_t at = copy->have; in_bounds && at < used; at += 8)
		copy->payload[at / 8] = ring_load(&page->payload[at / 8]);

	uint64_t facts[RING_FACTS];
	ring_page_facts(page, copy->seq, used, facts);
	uint64_t crc = ring_load(&page->crc);
	bool sealed = ring_word_state(word) == RING_PAGE_SEALED;

	ring_fence_acquire();
	if (!ring_word_is(ring_load(&page->word), copy->seq))
		return RING_COPY_RECYCLED;
	if (!in_bounds || facts[0] != RING_PAGE_MAGIC)
		return RING_COPY_DAMAGED;
	if (sealed && !sum_valid(copy, (uint32_t)used, facts, crc))
		return RING_COPY_DAMAGED;
	if (!records_valid(copy, copy->have, (uint32_t)used))
		return RING_COPY_DAMAGED;

	copy->writer = (uint32_t)facts[3];
	copy->prev = facts[7];
	copy->next = facts[8];
	copy->have = (uint32_t)used;
	copy->complete = sealed;
	return 0;
}
