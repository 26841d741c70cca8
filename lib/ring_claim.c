/*
 * ring_claim.c: how pages change hands.
 *
 * Claiming a page is one compare-and-swap of the word in the page itself, from "page s - N, and nobody is writing it"
 * to "page s, claimed". Then next_seq is advanced; a writer that finds the word of page next_seq already taken
 * advances next_seq on the other's behalf, so nobody waits for a thread that was interrupted in between.
 *
 * Rejected: a fetch-and-add on next_seq (whoever gets a number whose slot is being written is stuck with it); a lock
 * (a killed thread keeps it); checksums per tick (they would cost more than the records).
 */
#include "ring_claim.h"
#include "checksum.h"
#include "ring.h"

void ring_claim_seal(struct ring_page *page, uint64_t seq)
{
	uint64_t facts[RING_FACTS];
	uint64_t used = ring_load(&page->used);

	ring_page_facts(page, seq, used, facts);
	uint32_t crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, facts, sizeof(facts));
	ring_store(&page->crc, checksum_crc32(crc, page->payload, (size_t)used));
	ring_store_release(&page->word, ring_word(seq, RING_PAGE_SEALED));
}

void ring_claim_seal_idle(struct ring_page *page, uint64_t seq)
{
	if (ring_swap(&page->word, ring_word(seq, RING_PAGE_OPEN), ring_word(seq, RING_PAGE_SEALING)))
		ring_claim_seal(page, seq);
}

bool ring_claim_held(const struct ring *ring, uint64_t s, uint64_t count)
{
	const struct ring_header *header = ring->header;

	return __atomic_load_n(&header->reader_owner, __ATOMIC_SEQ_CST) != 0 &&
	       s + count > __atomic_load_n(&header->reader_seq, __ATOMIC_SEQ_CST) + ring->page_count;
}

void ring_claim_held_back(const struct ring *ring)
{
	uint64_t oldest = ring_load(&ring->header->reader_seq);

	ring_claim_seal_idle(ring_page(ring, oldest), oldest);
}

static bool takeable(uint64_t word, uint64_t s, uint32_t page_count)
{
	if (word == 0)
		return true;

	unsigned state = ring_word_state(word);
	return s >= page_count && ring_word_is(word, s - page_count) &&
	       (state == RING_PAGE_SEALED || state == RING_PAGE_OPEN);
}

int ring_claim_take(struct ring *ring, uint64_t *ret_seq)
{
	struct ring_header *header = ring->header;

	for (;;) {
		/* In this order: the number, the reader, the swap (docs/ring.md, "Attaching"). */
		uint64_t s = __atomic_load_n(&header->next_seq, __ATOMIC_SEQ_CST);
		if (ring_claim_held(ring, s, 1)) {
			ring_claim_held_back(ring);
			return RING_HELD;
		}

		struct ring_page *page = ring_page(ring, s);
		uint64_t word = ring_load_acquire(&page->word);
		bool other = ring_word_is(word, s);
		if (!other && !takeable(word, s, ring->page_count)) {
			if (ring_load_acquire(&header->next_seq) == s)
				return RING_HELD;
			continue;
		}

		bool mine = !other && ring_swap(&page->word, word, ring_word(s, RING_PAGE_CLAIMED));
		if (mine || other)
			ring_swap(&header->next_seq, s, s + 1);
		if (mine) {
			*ret_seq = s;
			return 0;
		}
	}
}
