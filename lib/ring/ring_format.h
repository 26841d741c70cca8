/* ring_format.h: what the files of ring share. */
#ifndef SPIKEWATCH_LIB_RING_RING_FORMAT_H
#define SPIKEWATCH_LIB_RING_RING_FORMAT_H

#include "lib/ring/ring.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_PAGE_MAGIC 0x0001454741505753ULL /* "SWPAGE", version 1 */

/*
 * Records: whole words. The first is size in bytes (bits 0-15, a multiple of 8), type (16-23),
 * flags (24-31) and the target (32-63). Unknown types and flags are skipped.
 *
 *   TICK    head, number, time, wall clock. Instead of a target, the head has the idle interval in
 *           us; 0: none
 *   SAMPLE  head, mask (bits 0-31) and offset from the tick (32-63, signed), a word per field of the
 *           mask
 *   TARGET  head, length (bits 0-31), that many bytes of target_encode()
 *   GONE    head, reason (bits 0-31) and offset from the tick (32-63, signed)
 */
enum ring_record_type { RING_TICK = 1, RING_SAMPLE = 2, RING_TARGET = 3, RING_GONE = 4 };

enum ring_record_flags {
	RING_TICK_MORE = 1,      /* TICK: goes on in the page `next` */
	RING_TICK_CONTINUED = 2, /* TICK: the rest of one begun in the page `prev` */
	RING_SAMPLE_KEY = 1,     /* SAMPLE: all fields there are; without it only those that changed */
	RING_OFFSET_COARSE = 2,  /* SAMPLE, GONE: the offset is in microseconds, not nanoseconds */
};

#define RING_TICK_BYTES 32u
#define RING_SAMPLE_BYTES 16u /* and 8 per field */
#define RING_TARGET_BYTES 16u /* and the description, padded to 8 */
#define RING_GONE_BYTES 16u

/* Makes stats what ring_stats() returns, unless another thread is doing that. */
void ring_stats_publish(struct ring *ring, const struct stats *stats);

static inline uint64_t ring_load_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void ring_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void ring_store_release(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Success is sequentially consistent: the claim of a page is argued with it. */
static inline bool ring_swap(uint64_t *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/*
 * The two fences of a sequence lock. ThreadSanitizer does not model fences and refuses them; every
 * access they order is atomic, so it needs none of them, and the machine it runs on (x86) only
 * needs the compiler held back.
 */
static inline void ring_fence_release(void)
{
#ifdef __SANITIZE_THREAD__
	__asm__ volatile("" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static inline void ring_fence_acquire(void)
{
#ifdef __SANITIZE_THREAD__
	__asm__ volatile("" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* Whether the page with this word is page seq, in whatever state. */
static inline bool ring_word_is(uint64_t word, uint64_t seq)
{
	return word >> 3 == ((seq + 1) & (UINT64_MAX >> 3));
}

static inline unsigned ring_word_state(uint64_t word)
{
	return (unsigned)(word & 7);
}

static inline bool ring_reader_dead(uint64_t owner, bool (*alive)(int32_t pid, uint64_t start_ticks))
{
	return alive != NULL && !alive((int32_t)(owner >> 41), owner & ((1ULL << 41) - 1));
}

/* What the writer that sets them remembers. {0} at the start. */
struct ring_interval {
	bool shortened;         /* the heartbeat is shorter than it was in pages that are still there */
	uint64_t shortened_seq; /* the first page that was not begun yet then */
};

/* From now on these are in force. heartbeat_ns 0: 1 s. */
void ring_interval_set(struct ring_interval *tempo, struct ring *ring, uint64_t interval_ns, uint64_t heartbeat_ns);

/*
 * Page seq was begun: if with it the last page of a longer heartbeat is gone, readers need not look
 * as far back any more.
 */
void ring_interval_claimed(struct ring_interval *tempo, struct ring *ring, uint64_t seq);

/* In force. */
uint64_t ring_interval_heartbeat_ns(const struct ring *ring);

#endif
