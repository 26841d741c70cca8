/*
 * ring_format.h: the bytes of a ring file, and the atomic operations on them. For the modules of the
 * ring only.
 *
 * Everything shared is made of 64-bit words in the byte order of the host (a mark in the header
 * detects another one), and every access to a word that may change is atomic: a copy of a page that
 * is being recycled is at worst torn between words, which the check of the sequence number detects.
 * docs/ring.md describes the layout and the orderings.
 */
#ifndef SPIKEWATCH_LIB_RING_RING_FORMAT_H
#define SPIKEWATCH_LIB_RING_RING_FORMAT_H

#include "lib/ring/ring.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x474e495257535053ULL /* "SPSWRING" */

#define RING_HEADER_BYTES 4096u /* one page of the kernel: what follows is aligned for mmap and mlock */
#define RING_STATS_WORDS 64u    /* with room for future counters */

/* The first page of the file. Written once up to crc; the rest is live. */
struct ring_header {
	uint64_t magic;
	uint32_t version;
	uint32_t endian;
	uint32_t header_bytes;
	uint32_t page_header_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
	uint64_t interval_ns;
	uint64_t heartbeat_ns;
	uint8_t boot_id[16];
	int32_t pid;
	uint32_t sample_fields; /* how many the writer knows */
	uint64_t start_ticks;
	uint32_t stats_count; /* how many counters the writer knows */
	uint32_t crc;         /* CRC-32 of all bytes above */
	uint64_t unused0[5];

	uint64_t next_seq; /* the sequence number the next page gets */
	uint64_t unused1[7];

	uint64_t ticks;             /* published so far; the number of the next one */
	uint64_t last_tick;         /* time of the last published tick */
	uint64_t writers;           /* numbers given to writers so far */
	uint64_t clean;             /* 1: ended in good order */
	uint64_t interval_live;     /* in force; 0: interval_ns */
	uint64_t heartbeat_live;    /* in force; 0: heartbeat_ns */
	uint64_t heartbeat_longest; /* of those under which a page that is still there was written; 0: heartbeat_ns */
	uint64_t idle_live;         /* sampling.idle_interval in force; 0: none */

	uint64_t reader_owner;       /* the blocking reader (ring_reader_word); 0: there is none */
	uint64_t reader_seq;         /* the oldest page it still needs */
	uint64_t unwritten_from;     /* ring_set_unwritten */
	uint64_t unwritten_severity; /* the bits of a double */
	uint64_t unused3[4];

	uint64_t stats_lock;    /* 1 while a writer stores counters */
	uint64_t stats_version; /* stats[version % 2] is whole */
	uint64_t stats[2][RING_STATS_WORDS];
	uint64_t unused4[342];
};

/* What stands before the records of a page. */
struct ring_page {
	uint64_t magic;
	uint64_t word;        /* (sequence number + 1) * 8 + state; 0: never used */
	uint64_t used;        /* bytes of payload that are published */
	uint64_t writer;      /* its number */
	uint64_t first_ns;    /* time of the first tick */
	uint64_t last_ns;     /* time of the last published tick */
	uint64_t wall_offset; /* wall clock less monotonic clock at the first tick */
	uint64_t prev;        /* sequence number + 1 of the page whose last tick goes on here; 0: none */
	uint64_t next;        /* sequence number + 1 of the page where the last tick goes on; 0: none */
	uint64_t generation;  /* of the writer's target table: how often a target was added or ended */
	uint64_t crc;         /* CRC-32 of ring_page_facts() and the payload, once sealed */
	uint64_t unused[5];
	uint64_t payload[];
};

// clang-format off
_Static_assert(sizeof(struct ring_header) == RING_HEADER_BYTES, "the header is one page");
_Static_assert(offsetof(struct ring_header, page_bytes) == 24, "on-disk layout");
_Static_assert(offsetof(struct ring_header, interval_ns) == 32, "on-disk layout");
_Static_assert(offsetof(struct ring_header, boot_id) == 48, "on-disk layout");
_Static_assert(offsetof(struct ring_header, pid) == 64, "on-disk layout");
_Static_assert(offsetof(struct ring_header, start_ticks) == 72, "on-disk layout");
_Static_assert(offsetof(struct ring_header, crc) == 84, "on-disk layout");
_Static_assert(offsetof(struct ring_header, next_seq) == 128, "on-disk layout");
_Static_assert(offsetof(struct ring_header, ticks) == 192, "on-disk layout");
_Static_assert(offsetof(struct ring_header, interval_live) == 224, "on-disk layout");
_Static_assert(offsetof(struct ring_header, reader_owner) == 256, "on-disk layout");
_Static_assert(offsetof(struct ring_header, unwritten_from) == 272, "on-disk layout");
_Static_assert(offsetof(struct ring_header, stats_lock) == 320, "on-disk layout");
_Static_assert(offsetof(struct ring_header, stats) == 336, "on-disk layout");
_Static_assert(sizeof(struct ring_page) == 128, "on-disk layout");
_Static_assert(offsetof(struct ring_page, word) == 8, "on-disk layout");
_Static_assert(offsetof(struct ring_page, used) == 16, "on-disk layout");
_Static_assert(offsetof(struct ring_page, prev) == 56, "on-disk layout");
_Static_assert(offsetof(struct ring_page, crc) == 80, "on-disk layout");
_Static_assert(offsetof(struct ring_page, payload) == 128, "on-disk layout");
_Static_assert(sizeof(struct stats) % 8 == 0 && sizeof(struct stats) / 8 <= RING_STATS_WORDS, "counters are words");
// clang-format on

/*
 * The life of a page, in the low bits of its word:
 *
 *            claim                header written           tick ends
 *   SEALED ---------> CLAIMED ---------------> TICKING <-------------> OPEN
 *     ^   (any idle writer's OPEN page, too)      |     tick begins      |
 *     |                                           | tick went on in      | full, or half a ring old
 *     +------------------ SEALING <---------------+ another page --------+
 *
 * Only the owner leaves TICKING. Any writer may take an OPEN page by one compare-and-swap; its owner
 * notices by its own, which fails.
 */
enum ring_page_state {
	RING_PAGE_CLAIMED = 1,
	RING_PAGE_TICKING = 2,
	RING_PAGE_OPEN = 3,
	RING_PAGE_SEALING = 4,
	RING_PAGE_SEALED = 5,
};

/* A mapping. The geometry is a private copy: later changes in the file have no effect. */
struct ring {
	struct ring_header *header;
	size_t size_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
	uint32_t payload_bytes; /* of one page */
	bool writable;

	/* Counters of the writers of this process (ring_writer.c). */
	uint64_t accounts_lock;
	struct ring_account *accounts;
	struct stats departed; /* of writers that were freed */
};

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
 *   HOLE    head without a target, time of the writer's tick before, slots missed since, and how long
 *           the machine was suspended since, in ns; without the last: it was not
 */
enum ring_record_type { RING_TICK = 1, RING_SAMPLE = 2, RING_TARGET = 3, RING_GONE = 4, RING_HOLE = 5 };

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
#define RING_HOLE_BYTES 24u /* and 8 with a suspend */

static inline uint64_t ring_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

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

/* Success is sequentially consistent: claiming a page and attaching a reader rely on it. */
static inline bool ring_swap(uint64_t *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/*
 * The two fences of a sequence lock. ThreadSanitizer does not model fences and refuses them; every
 * access that they order is atomic, so it needs none, and x86, on which it runs, only needs the
 * compiler not to reorder.
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

/* The slot of a sequence number. */
static inline struct ring_page *ring_page(const struct ring *ring, uint64_t seq)
{
	size_t slot = (size_t)(seq % ring->page_count);

	return (struct ring_page *)(void *)((char *)ring->header + RING_HEADER_BYTES + slot * ring->page_bytes);
}

static inline uint64_t ring_word(uint64_t seq, enum ring_page_state state)
{
	return ((seq + 1) << 3) | (uint64_t)state;
}

/* How many words of the header the checksum of a page covers, before its payload. */
#define RING_FACTS 10u

/* All of the page header but the state and the checksum itself. */
static inline void ring_page_facts(const struct ring_page *page, uint64_t seq, uint64_t used, uint64_t ret[RING_FACTS])
{
	ret[0] = ring_load(&page->magic);
	ret[1] = seq;
	ret[2] = used;
	ret[3] = ring_load(&page->writer);
	ret[4] = ring_load(&page->first_ns);
	ret[5] = ring_load(&page->last_ns);
	ret[6] = ring_load(&page->wall_offset);
	ret[7] = ring_load(&page->prev);
	ret[8] = ring_load(&page->next);
	ret[9] = ring_load(&page->generation);
}

/*
 * How far before any moment in the ring the last record of a target may lie. From the file: a wrong
 * value costs at most reading the whole ring.
 */
static inline uint64_t ring_longest_heartbeat_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->heartbeat_longest);

	return live != 0 ? live : ring->header->heartbeat_ns;
}

/* In force. */
static inline uint64_t ring_heartbeat_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->heartbeat_live);

	return live != 0 ? live : ring->header->heartbeat_ns;
}

#endif
