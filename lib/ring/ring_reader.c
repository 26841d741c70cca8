/*
 * ring_reader.c: from pages to events.
 *
 * Three steps. A page is copied and checked (struct ring_copy); the pages of the ring are followed,
 * and the next tick is found among them (struct ring_follow); the records of a tick are applied to
 * the states of the targets and delivered one by one (struct ring_cursor). Whole ticks only.
 *
 * Copying. The order is: the word of the page (is it this page?), `used`, the bytes, the header, an
 * acquire fence, the word again. If the page was recycled in between, what was copied is thrown away.
 * Then, once the page is sealed, the checksum over all of the copy; then the structure of the new
 * records: every size in the copy can be relied upon from there on. A page is copied word by word with
 * atomic loads, which the compiler turns into plain moves: some 20 GB/s.
 *
 * Following. Pages are followed in the order of their sequence numbers. Those begun and not finished
 * are in `pages`: with several writers each has an open page, and an old one that is still being
 * filled must not stop the others. `next` is the first page not looked at; it is adopted when the
 * pages before it have nothing new.
 *
 * Among the pages that have a tick, the one with the lowest tick number is next: so ticks of several
 * writers come in the order in which they were published, although their pages overlap. For that, as
 * many pages are followed ahead as writers are likely to be filling at a time. A tick that is
 * published late under a lower number (its writer took the number and was interrupted) comes later:
 * it is not waited for.
 *
 * Inside a page the publication of `used` makes ticks whole. A tick that continues elsewhere says so
 * in its first record: all of its pages are copied before its first event is delivered. Conversely a
 * page that begins with the rest of a tick is left alone while the page before it is followed, since
 * the beginning may still appear there. Every loop is bounded by the number of pages: nothing in the
 * file is trusted.
 *
 * Delivering. A record is consumed by the call that delivers it, so a call that runs out of memory
 * can be repeated. A tick is applied without events (`quiet`) when it is before `since`, when a part
 * of it was lost (its key records are needed by those behind it in the page), and while a cursor that
 * starts at the newest tick collects its states.
 *
 * A reader that starts in the middle may meet a sample whose description comes later in the ring. It
 * then searches the rest of the ring once and takes all descriptions.
 */
#include "lib/ring/ring.h"
#include "lib/ring/ring_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/map.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t ring_head_size(uint64_t head)
{
	return (uint32_t)(head & 0xffff);
}

static inline unsigned ring_head_type(uint64_t head)
{
	return (unsigned)(head >> 16 & 0xff);
}

static inline unsigned ring_head_flags(uint64_t head)
{
	return (unsigned)(head >> 24 & 0xff);
}

static inline uint32_t ring_head_id(uint64_t head)
{
	return (uint32_t)(head >> 32);
}

/*
 * The blocking reader in one word, so that attaching is one step: its pid (at most 2^22 on Linux) and
 * the low 41 bits of its start time (697 years at 100 Hz).
 */
static inline uint64_t ring_reader_word(int32_t pid, uint64_t start_ticks)
{
	return (uint64_t)(uint32_t)pid << 41 | (start_ticks & ((1ULL << 41) - 1));
}

/*
 * A private copy of one page, taken piece by piece while its writer fills it, and checked before it is
 * used. have and parsed are offsets into payload. What lies between them is valid and begins with a TICK
 * record.
 */
struct ring_copy {
	uint64_t seq;
	uint32_t writer; /* its number; valid once have > 0 */
	uint64_t prev;   /* as in struct ring_page; valid once have > 0 */
	uint64_t next;   /* likewise, when the last TICK says RING_TICK_MORE */
	uint32_t have;   /* bytes copied */
	uint32_t parsed; /* bytes consumed: of its owner */
	bool complete;   /* the page was sealed: nothing more will come */
	uint64_t payload[];
};

enum {
	RING_COPY_RECYCLED = 1, /* the page belongs to a later sequence number now */
	RING_COPY_DAMAGED = 2,  /* it contradicts its checksum or itself */
};

/* The first word of the record at offset at < have. */
static inline uint64_t copy_head(const struct ring_copy *copy, uint32_t at)
{
	return copy->payload[at / 8];
}

enum { RING_FOLLOW_LOSS = 101 };

/* Flags of the TICK record at offset at. */
static inline unsigned copy_tick_flags(const struct ring_copy *copy, uint32_t at)
{
	return ring_head_flags(copy_head(copy, at));
}

/* ---- copies of pages ---- */

/* An empty copy for pages of this ring, to be free()d. NULL: no memory. */
static struct ring_copy *copy_new(const struct ring *ring)
{
	return malloc(sizeof(struct ring_copy) + ring->payload_bytes);
}

/* Makes it a copy of page seq, nothing of which is read yet. */
static void copy_start(struct ring_copy *copy, uint64_t seq)
{
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
	case RING_HOLE:
		return size >= RING_HOLE_BYTES;
	default:
		return true;
	}
}

/*
 * Whether [from, to) is whole ticks: it begins with a TICK, only one at the very beginning of the
 * page continues another, and none follows one that goes on elsewhere.
 */
static bool records_valid(const struct ring_copy *copy, uint32_t from, uint32_t to)
{
	bool more = false;

	for (uint32_t at = from; at < to;) {
		uint64_t head = copy_head(copy, at);
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

/*
 * Copies what was published since the last call. 0; RING_COPY_RECYCLED or RING_COPY_DAMAGED:
 * nothing new is in the copy, what it had before stays valid.
 */
static int copy_refresh(struct ring_copy *copy, const struct ring *ring)
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

/* ---- following pages ---- */

/* Which pages a reader is reading. {0} may be released. */
struct ring_follow {
	const struct ring *ring;
	struct ring_header *attached; /* blocking reader: where its slot is; else NULL */
	uint64_t owner;               /* blocking reader: what its slot says */
	uint64_t next;                /* the first page not looked at yet */
	struct ring_copy **pages;     /* begun and not finished, ascending; room for all the pages of the ring */
	uint32_t count;
	struct ring_copy *spare; /* for the next page; or NULL */
	uint64_t lost;           /* pages that were recycled before they were read; the owner clears it */
	uint64_t damaged;        /* pages given up; likewise */
};

/* Internal: this page has a tick. */
#define FOUND 100

/* How many pages are followed ahead at most: a page for each of sixteen writers, and the next one. */
#define AHEAD_MAX 32u

static uint64_t next_seq(const struct ring *ring)
{
	return __atomic_load_n(&ring->header->next_seq, __ATOMIC_SEQ_CST);
}

/* The blocking reader: publishes the oldest page that it still needs. */
static void publish_hold(const struct ring_follow *follow)
{
	if (follow->attached != NULL && ring_load(&follow->attached->reader_owner) == follow->owner)
		ring_store_release(&follow->attached->reader_seq,
				   follow->count > 0 ? follow->pages[0]->seq : follow->next);
}

/* Starts at the oldest page there is. 0 or -ENOMEM. */
static int follow_init(struct ring_follow *follow, const struct ring *ring)
{
	uint64_t end = next_seq(ring);

	*follow = (struct ring_follow){ .ring = ring, .next = end > ring->page_count ? end - ring->page_count : 0 };
	/* The oldest one may be being claimed at this moment, or have been when its writer died. */
	if (end >= ring->page_count && ring_word_is(ring_load_acquire(&ring_page(ring, end)->word), end))
		follow->next++;

	follow->pages = calloc(ring->page_count, sizeof(follow->pages[0]));
	return follow->pages != NULL ? 0 : -ENOMEM;
}

/* Detaches and frees. */
static void follow_release(struct ring_follow *follow)
{
	if (follow->attached != NULL)
		ring_swap(&follow->attached->reader_owner, follow->owner, 0);

	for (uint32_t i = 0; i < follow->count; i++)
		free(follow->pages[i]);
	free(follow->spare);
	free(follow->pages);
	*follow = (struct ring_follow){ 0 };
}

/*
 * Makes this the blocking reader, which writers do not overtake, from the oldest page on. 0;
 * RING_BUSY: there is another one, and alive does not say that it is dead.
 */
static int follow_attach(struct ring_follow *follow, struct ring *ring, uint64_t owner,
			 bool (*alive)(int32_t pid, uint64_t start_ticks))
{
	struct ring_header *header = ring->header;

	for (;;) {
		uint64_t other = ring_load_acquire(&header->reader_owner);
		if (other != 0 && !ring_reader_dead(other, alive))
			return RING_BUSY;
		if (ring_swap(&header->reader_owner, other, owner))
			break;
	}

	/*
	 * First hold everything, then look where the ring ends. A writer that has not seen this got
	 * its number before, so that it is at most `end` and recycles at most page end -
	 * page_count: the one after is safe.
	 */
	__atomic_store_n(&header->reader_seq, 0, __ATOMIC_SEQ_CST);
	uint64_t end = next_seq(ring);

	follow->attached = header;
	follow->owner = owner;
	follow->next = end >= ring->page_count ? end - ring->page_count + 1 : 0;
	publish_hold(follow);
	return 0;
}

static struct ring_copy *copy_take(struct ring_follow *follow, uint64_t seq)
{
	struct ring_copy *copy = follow->spare != NULL ? follow->spare : copy_new(follow->ring);
	if (copy == NULL)
		return NULL;

	if (copy == follow->spare)
		follow->spare = NULL;
	copy_start(copy, seq);
	return copy;
}

/* One is kept; the others, which a tick of many pages took, go back. */
static void copy_give(struct ring_follow *follow, struct ring_copy *copy)
{
	if (follow->spare != NULL)
		free(copy);
	else
		follow->spare = copy;
}

static void drop_page(struct ring_follow *follow, uint32_t index)
{
	copy_give(follow, follow->pages[index]);
	follow->count--;
	for (uint32_t i = index; i < follow->count; i++)
		follow->pages[i] = follow->pages[i + 1];
	publish_hold(follow);
}

/* The copy of page seq if it is followed, else NULL. */
static struct ring_copy *followed(const struct ring_follow *follow, uint64_t seq)
{
	for (uint32_t i = 0; i < follow->count; i++) {
		if (follow->pages[i]->seq == seq)
			return follow->pages[i];
	}
	return NULL;
}

/* Skips recycled pages, and some more: the oldest ones that are left would be recycled next. */
static void skip_recycled(struct ring_follow *follow, uint64_t end)
{
	uint32_t pages = follow->ring->page_count;
	uint64_t to = end > pages ? end - pages + pages / 8 : 0;

	if (to <= follow->next)
		to = follow->next + 1;
	follow->lost += to - follow->next;
	follow->next = to;
	publish_hold(follow);
}

/* Follows one more page. 0; RING_EMPTY: there is none; -ENOMEM. */
static int adopt_page(struct ring_follow *follow)
{
	uint32_t pages = follow->ring->page_count;
	uint64_t end = next_seq(follow->ring);

	for (uint32_t i = 0; i < pages + 2 && follow->next < end && follow->count < pages; i++) {
		uint64_t word = ring_load_acquire(&ring_page(follow->ring, follow->next)->word);
		if (ring_word_is(word, follow->next)) {
			struct ring_copy *copy = copy_take(follow, follow->next);
			if (copy == NULL)
				return -ENOMEM;

			follow->pages[follow->count++] = copy;
			follow->next++;
			return 0;
		}
		if (end - follow->next > pages || word >> 3 > follow->next + 1) {
			skip_recycled(follow, end);
		} else {
			follow->damaged++;
			follow->next++;
		}
	}
	return RING_EMPTY;
}

/*
 * Brings the copy at index up to date. FOUND: it has a tick to begin; 0: it has not; RING_EMPTY: it
 * was dropped, and another is at its index.
 */
static int visit_page(struct ring_follow *follow, uint32_t index)
{
	struct ring_copy *copy = follow->pages[index];

	if (copy->parsed == copy->have) {
		int rc = copy_refresh(copy, follow->ring);
		follow->lost += rc == RING_COPY_RECYCLED;
		follow->damaged += rc == RING_COPY_DAMAGED;
		if (rc != 0 || (copy->complete && copy->parsed == copy->have)) {
			drop_page(follow, index);
			return RING_EMPTY;
		}
	}
	if (copy->parsed == copy->have)
		return 0;

	bool continued = (copy_tick_flags(copy, copy->parsed) & RING_TICK_CONTINUED) != 0;
	return continued && followed(follow, copy->prev - 1) != NULL ? 0 : FOUND;
}

/*
 * How many pages are followed at a time, if there are as many. 0: one writer fills them one after
 * the other.
 */
static uint32_t pages_ahead(const struct ring *ring)
{
	uint64_t writers = ring_load(&ring->header->writers);

	if (writers <= 1)
		return 0;
	return writers < AHEAD_MAX / 2 ? 2 * (uint32_t)writers : AHEAD_MAX;
}

/* Of the tick at `parsed`. */
static uint64_t tick_number(const struct ring_copy *copy)
{
	return copy->payload[copy->parsed / 8 + 1];
}

/*
 * The page with the lowest tick of those that are followed; of a single writer's, the first that
 * has one. NULL: none has.
 */
static struct ring_copy *page_with_lowest_tick(struct ring_follow *follow, bool single)
{
	struct ring_copy *found = NULL;
	uint64_t number = 0;

	for (uint32_t i = 0; i < follow->count;) {
		int rc = visit_page(follow, i);
		struct ring_copy *copy = i < follow->count ? follow->pages[i] : NULL;
		i += rc != RING_EMPTY;
		if (rc != FOUND || (found != NULL && tick_number(copy) >= number))
			continue;

		found = copy;
		number = tick_number(copy);
		if (single)
			break;
	}
	return found;
}

/*
 * Finds a page with a tick to begin: at `parsed` of *ret there is a TICK record. 0; RING_EMPTY;
 * RING_FOLLOW_LOSS: lost or damaged is not zero; -ENOMEM.
 */
static int follow_find(struct ring_follow *follow, struct ring_copy **ret)
{
	uint32_t ahead = pages_ahead(follow->ring);

	for (;;) {
		struct ring_copy *found = page_with_lowest_tick(follow, ahead == 0);
		if (ahead > 0 && (follow->lost != 0 || follow->damaged != 0))
			return RING_FOLLOW_LOSS;

		int rc = RING_EMPTY;
		if (found == NULL ? follow->lost == 0 && follow->damaged == 0 : follow->count < ahead)
			rc = adopt_page(follow);
		if (rc < 0)
			return rc;
		if (found != NULL && rc != 0) {
			*ret = found;
			return 0;
		}
		if (follow->lost != 0 || follow->damaged != 0)
			return RING_FOLLOW_LOSS;
		if (rc != 0)
			return rc;
	}
}

/*
 * Whether `to` begins with the rest of the tick of this number, whose previous part is in `from`.
 */
static bool tick_continues(const struct ring_copy *from, const struct ring_copy *to, uint64_t number)
{
	return to->parsed == 0 && to->have > 0 && (copy_tick_flags(to, 0) & RING_TICK_CONTINUED) != 0 &&
	       to->prev == from->seq + 1 && to->payload[1] == number;
}

/*
 * Whether the tick at `parsed` of copy is whole: copies all the pages it is in. 1: they are
 * followed; 0: one is missing, or this is only the rest of a tick; -ENOMEM.
 */
static int follow_gather(struct ring_follow *follow, const struct ring_copy *copy)
{
	uint64_t number = tick_number(copy);
	unsigned flags = copy_tick_flags(copy, copy->parsed);
	if ((flags & RING_TICK_CONTINUED) != 0)
		return 0;

	while ((flags & RING_TICK_MORE) != 0) {
		uint64_t seq = copy->next - 1;
		if (seq <= copy->seq)
			return 0;

		int rc = 0;
		while (follow->next <= seq && rc == 0)
			rc = adopt_page(follow);
		if (rc < 0)
			return rc;

		struct ring_copy *to = followed(follow, seq);
		if (to == NULL || (to->have == 0 && copy_refresh(to, follow->ring) != 0) ||
		    !tick_continues(copy, to, number))
			return 0;

		flags = copy_tick_flags(to, 0);
		copy = to;
	}
	return 1;
}

/* The page where the last tick of copy goes on, which follow_gather() has made sure of. */
static struct ring_copy *follow_part(const struct ring_follow *follow, const struct ring_copy *copy)
{
	return followed(follow, copy->next - 1);
}

/* The time of the last tick in page seq. UINT64_MAX: the page is not sealed, or no longer there. */
static uint64_t page_end(const struct ring *ring, uint64_t seq)
{
	const struct ring_page *page = ring_page(ring, seq);

	if (ring_load_acquire(&page->word) != ring_word(seq, RING_PAGE_SEALED))
		return UINT64_MAX;

	uint64_t last = ring_load(&page->last_ns);
	ring_fence_acquire();
	return ring_word_is(ring_load(&page->word), seq) ? last : UINT64_MAX;
}

/*
 * The page from which on the states at settled_ns are known: goes back from start while pages end
 * after that moment. Pages of several writers are mixed, so one that ends before says nothing of the
 * others'.
 */
static uint64_t settled_page(const struct ring_follow *follow, uint64_t start, uint64_t settled_ns)
{
	uint64_t enough = pages_ahead(follow->ring) + 1;

	for (uint64_t at = start, before = 0; at > follow->next && before < enough; at--) {
		before = page_end(follow->ring, at) >= settled_ns ? 0 : before + 1;
		if (before == 0)
			start = at - 1;
	}
	return start;
}

/*
 * Leaves out the pages that end before since, except as many before the first other one as its targets
 * may need for their descriptions and states. Only while no tick was found yet.
 */
static void follow_skip(struct ring_follow *follow, uint64_t since_ns)
{
	const struct ring *ring = follow->ring;
	uint64_t end = next_seq(ring);
	uint64_t first = follow->next;
	uint64_t keep = ring->page_count / 4 + 1; /* descriptions are never older */

	while (first < end && first - follow->next < ring->page_count && page_end(ring, first) < since_ns)
		first++;

	uint64_t start = first - follow->next > keep ? first - keep : follow->next;
	uint64_t heartbeat_ns = ring_longest_heartbeat_ns(ring);
	uint64_t settled = since_ns > heartbeat_ns ? since_ns - heartbeat_ns : 0;
	follow->next = settled_page(follow, start, settled);
	publish_hold(follow);
}

/*
 * Calls visit with a copy of each page from the oldest followed one to the newest there is. 0 or
 * what visit returned.
 */
static int follow_ahead(struct ring_follow *follow, int (*visit_copy)(void *ctx, const struct ring_copy *copy),
			void *ctx)
{
	int rc = 0;

	for (uint32_t i = 0; i < follow->count && rc == 0; i++)
		rc = visit_copy(ctx, follow->pages[i]);
	if (rc != 0)
		return rc;

	struct ring_copy *copy = copy_take(follow, 0);
	if (copy == NULL)
		return -ENOMEM;

	uint64_t end = next_seq(follow->ring);
	for (uint32_t i = 0; i < follow->ring->page_count && follow->next + i < end && rc == 0; i++) {
		copy_start(copy, follow->next + i);
		if (copy_refresh(copy, follow->ring) == 0)
			rc = visit_copy(ctx, copy);
	}
	copy_give(follow, copy);
	return rc;
}

/* ---- states of targets ---- */

/* What is known of a target. */
struct ring_state {
	struct map_node node; /* its hash is the id */
	uint32_t id;
	uint32_t writer;   /* that the target belongs to */
	bool announced;    /* the description was delivered */
	uint64_t key_page; /* sequence number + 1 of the page whose key record `sample` comes from; 0: no sample */
	uint64_t seen;     /* sequence number of the last page that mentioned the target */
	mono_t at;         /* time of sample */
	void *description; /* as target_encode() made it; NULL: not known */
	uint32_t description_len;
	struct sample sample;
};

/* NULL: not known. Ids count up, so their low bits spread them evenly over the buckets. */
static struct ring_state *state_find(const struct map *states, uint32_t id)
{
	struct map_node *node = map_first(states, id);

	return node != NULL ? MAP_ENTRY(node, struct ring_state, node) : NULL;
}

/* Finds or makes the state of id and notes that page seq mentions it. NULL: no memory, and nothing changed. */
static struct ring_state *state_touch(struct map *states, uint32_t id, uint64_t seq)
{
	struct ring_state *state = state_find(states, id);

	if (state == NULL) {
		if (map_reserve(states, states->count + 1) < 0)
			return NULL;
		state = calloc(1, sizeof(*state));
		if (state == NULL)
			return NULL;
		state->id = id;
		map_insert(states, &state->node, id);
	}
	if (state->seen < seq)
		state->seen = seq;
	return state;
}

/* Sets the description. 1: it differs from before; 0: it is the same; -ENOMEM. */
static int state_describe(struct ring_state *state, const void *description, uint32_t len)
{
	if (state->description != NULL && state->description_len == len &&
	    memcmp(state->description, description, len) == 0)
		return 0;

	void *copy = malloc(len != 0 ? len : 1);
	if (copy == NULL)
		return -ENOMEM;

	memcpy(copy, description, len);
	free(state->description);
	state->description = copy;
	state->description_len = len;
	return 1;
}

/* NULL is fine. */
static void state_drop(struct map *states, struct ring_state *state)
{
	if (state == NULL)
		return;

	map_remove(states, &state->node);
	free(state->description);
	free(state);
}

/* Drops all that no page from seq on has mentioned. */
static void states_expire(struct map *states, uint64_t seq)
{
	MAP_FOR_EACH(node, states) {
		struct ring_state *state = MAP_ENTRY(node, struct ring_state, node);

		if (state->seen < seq)
			state_drop(states, state);
	}
}

static void states_release(struct map *states)
{
	states_expire(states, UINT64_MAX);
	map_release(states);
}

/* ---- the cursor ---- */

/* Internal condition: nothing to deliver yet, go on. */
#define AGAIN 100

struct ring_cursor {
	struct ring_follow follow;

	struct ring_copy *current; /* the page with the rest of the tick being delivered; NULL: none */
	bool more;                 /* that tick goes on in another page */
	bool quiet;                /* that tick is applied without events */
	uint64_t number;
	uint32_t writer;
	mono_t time;

	uint32_t only;               /* records of other targets are passed over; 0: none is */
	mono_t since;                /* ticks before this are quiet */
	bool silent;                 /* all are */
	bool preloaded;              /* the states are to be delivered before anything else, */
	const struct map_node *walk; /* after this one; NULL: from the first on */

	struct map states;
	uint64_t expire_at; /* the states are swept when the oldest page being read gets there */
	bool learned;       /* the ring ahead was searched for descriptions */
	uint32_t gone;      /* to be dropped by the next call; 0: none */
};

/* Drops, once per length of the ring, the targets that no page in the ring mentions any more. */
static void expire_states(struct ring_cursor *cursor)
{
	const struct ring_follow *follow = &cursor->follow;
	uint32_t pages = follow->ring->page_count;
	uint64_t reading = follow->count > 0 ? follow->pages[0]->seq : follow->next;

	if (reading < cursor->expire_at)
		return;

	cursor->expire_at = reading + pages;
	states_expire(&cursor->states, reading > pages ? reading - pages : 0);
}

static int report_loss(struct ring_cursor *cursor, struct ring_event *ret)
{
	bool lapped = cursor->follow.lost != 0;
	uint64_t *pages = lapped ? &cursor->follow.lost : &cursor->follow.damaged;

	*ret = (struct ring_event){
		.type = lapped ? RING_EVENT_LAPPED : RING_EVENT_DAMAGED,
		.time = cursor->time,
		.tick = cursor->number,
		.lost_pages = *pages,
	};
	*pages = 0;
	if (lapped)
		cursor->learned = false;
	return cursor->silent ? AGAIN : 0;
}

/* Begins the next tick. */
static int next_tick(struct ring_cursor *cursor, struct ring_event *ret)
{
	struct ring_copy *copy;

	expire_states(cursor);
	int rc = follow_find(&cursor->follow, &copy);
	if (rc == RING_FOLLOW_LOSS)
		return report_loss(cursor, ret);
	if (rc != 0)
		return rc;

	int whole = follow_gather(&cursor->follow, copy);
	if (whole < 0)
		return whole;

	const uint64_t *record = &copy->payload[copy->parsed / 8];
	cursor->current = copy;
	cursor->more = whole && (ring_head_flags(record[0]) & RING_TICK_MORE) != 0;
	cursor->number = record[1];
	cursor->writer = copy->writer;
	cursor->time = (mono_t){ record[2] };
	cursor->quiet = !whole || cursor->silent || cursor->time.ns < cursor->since.ns;
	copy->parsed += ring_head_size(record[0]);
	if (cursor->quiet)
		return AGAIN;

	*ret = (struct ring_event){
		.type = RING_EVENT_TICK,
		.time = cursor->time,
		.wall = { record[3] },
		.tick = cursor->number,
		.writer = cursor->writer,
	};
	ret->idle_ns = ring_head_id(record[0]) * NS_PER_US;
	return 0;
}

/* The part of a tick in one page is delivered: goes on in the next one or ends the tick. */
static int next_part(struct ring_cursor *cursor, struct ring_event *ret)
{
	if (cursor->more) {
		struct ring_copy *copy = follow_part(&cursor->follow, cursor->current);
		assert(copy != NULL && copy->parsed == 0);

		cursor->current = copy;
		cursor->more = (copy_tick_flags(copy, 0) & RING_TICK_MORE) != 0;
		copy->parsed = ring_head_size(copy_head(copy, 0));
		return AGAIN;
	}

	cursor->current = NULL;
	if (cursor->quiet)
		return AGAIN;

	*ret = (struct ring_event){
		.type = RING_EVENT_TICK_END, .time = cursor->time, .tick = cursor->number, .writer = cursor->writer
	};
	return 0;
}

static void mark_damaged(struct ring_cursor *cursor)
{
	if (cursor->follow.damaged == 0)
		cursor->follow.damaged = 1;
}

/* Takes the descriptions in copy that are not known yet. 0 or -ENOMEM. */
static int learn_from(void *ctx, const struct ring_copy *copy)
{
	struct ring_cursor *cursor = ctx;

	for (uint32_t at = 0; at < copy->have; at += ring_head_size(copy_head(copy, at))) {
		const uint64_t *record = &copy->payload[at / 8];
		struct target target;
		if (ring_head_type(record[0]) != RING_TARGET ||
		    target_decode(&record[2], (uint32_t)record[1], &target) != 0)
			continue;

		struct ring_state *state = state_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
		if (state == NULL ||
		    (state->description == NULL && state_describe(state, &record[2], (uint32_t)record[1]) < 0))
			return -ENOMEM;
		state->writer = copy->writer;
	}
	return 0;
}

/* Makes *ret the description of a target. 0; AGAIN if it is no description. */
static int announce(struct ring_state *state, struct ring_event *ret, const struct ring_cursor *cursor)
{
	struct target target;

	if (target_decode(state->description, state->description_len, &target) != 0)
		return AGAIN;

	target.id = state->id;
	state->announced = true;
	*ret = (struct ring_event){
		.type = RING_EVENT_TARGET,
		.time = cursor->time,
		.tick = cursor->number,
		.writer = state->writer,
		.id = state->id,
		.target = target,
	};
	return 0;
}

/*
 * Delivers the description of a target unless that was done. 0: it is in *ret; AGAIN: go on;
 * -ENOMEM.
 */
static int announce_first(struct ring_cursor *cursor, struct ring_state *state, struct ring_event *ret)
{
	if (cursor->quiet || state->announced)
		return AGAIN;

	/* For a cursor of one target that would cost as much as all the rest. */
	if (state->description == NULL && !cursor->learned && cursor->only == 0) {
		int rc = follow_ahead(&cursor->follow, learn_from, cursor);
		if (rc < 0)
			return rc;
		cursor->learned = true;
	}
	return state->description != NULL ? announce(state, ret, cursor) : AGAIN;
}

static mono_t record_time(const struct ring_cursor *cursor, const uint64_t *record)
{
	int64_t offset = (int32_t)(uint32_t)(record[1] >> 32);
	int64_t unit = (ring_head_flags(record[0]) & RING_OFFSET_COARSE) != 0 ? (int64_t)NS_PER_US : 1;

	return (mono_t){ cursor->time.ns + (uint64_t)(offset * unit) };
}

/* Applies a SAMPLE record. Fields that only a newer writer knows come last and are left out. */
static uint32_t apply_fields(struct sample *sample, const uint64_t *record)
{
	uint32_t mask = (uint32_t)record[1] & (uint32_t)((1ULL << SAMPLE_FIELDS) - 1);
	const uint64_t *value = &record[2];

	for (uint32_t left = mask; left != 0; left &= left - 1)
		sample->value[__builtin_ctz(left)] = *value++;
	if ((ring_head_flags(record[0]) & RING_SAMPLE_KEY) != 0)
		sample->mask = mask;
	return mask;
}

/* Field by field: clearing the whole event would cost more than all else that is done for a sample. */
static void deliver_sample(const struct ring_cursor *cursor, const struct ring_state *state, uint32_t changed,
			   struct ring_event *ret)
{
	ret->type = RING_EVENT_SAMPLE;
	ret->time = state->at;
	ret->tick = cursor->number;
	ret->writer = state->writer;
	ret->id = state->id;
	ret->sample = &state->sample;
	ret->changed = changed;
}

static int next_sample(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	bool key = (ring_head_flags(record[0]) & RING_SAMPLE_KEY) != 0;
	struct ring_state *state = state_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
	if (state == NULL)
		return -ENOMEM;

	if (!key && state->key_page != copy->seq + 1) {
		mark_damaged(cursor);
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}

	int rc = announce_first(cursor, state, ret);
	if (rc != AGAIN)
		return rc;

	uint32_t changed = apply_fields(&state->sample, record);
	state->writer = copy->writer;
	state->key_page = copy->seq + 1;
	state->at = record_time(cursor, record);
	copy->parsed += ring_head_size(record[0]);
	if (cursor->quiet)
		return AGAIN;

	deliver_sample(cursor, state, changed & state->sample.mask, ret);
	return 0;
}

static int next_target(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	struct target target;

	if (target_decode(&record[2], (uint32_t)record[1], &target) != 0) {
		mark_damaged(cursor);
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}

	struct ring_state *state = state_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
	if (state == NULL)
		return -ENOMEM;

	int rc = state_describe(state, &record[2], (uint32_t)record[1]);
	if (rc < 0)
		return rc;

	if (rc > 0)
		state->announced = false;
	state->writer = copy->writer;
	copy->parsed += ring_head_size(record[0]);
	return cursor->quiet || state->announced ? AGAIN : announce(state, ret, cursor);
}

/* False: this cursor has read no description of it. */
static bool find_description(const struct ring_cursor *cursor, uint32_t id, struct target *ret)
{
	const struct ring_state *state = state_find(&cursor->states, id);

	if (state == NULL || state->description == NULL ||
	    target_decode(state->description, state->description_len, ret) != 0)
		return false;

	ret->id = id;
	return true;
}

static int next_gone(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	uint32_t id = ring_head_id(record[0]);
	struct ring_state *state = state_find(&cursor->states, id);

	if (state != NULL) {
		int rc = announce_first(cursor, state, ret);
		if (rc != AGAIN)
			return rc;
	}
	cursor->current->parsed += ring_head_size(record[0]);
	if (cursor->quiet) {
		state_drop(&cursor->states, state);
		return AGAIN;
	}

	*ret = (struct ring_event){
		.type = RING_EVENT_GONE,
		.time = record_time(cursor, record),
		.tick = cursor->number,
		.writer = cursor->writer,
		.id = id,
		.reason = (enum ring_gone_reason)(uint32_t)record[1],
	};
	if (!find_description(cursor, id, &ret->target))
		ret->target = (struct target){ 0 };
	cursor->gone = id;
	return 0;
}

static int next_hole(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	cursor->current->parsed += ring_head_size(record[0]);
	if (record[1] >= cursor->time.ns) {
		mark_damaged(cursor);
		return AGAIN;
	}
	if (cursor->quiet)
		return AGAIN;

	*ret = (struct ring_event){
		.type = RING_EVENT_HOLE,
		.time = cursor->time,
		.tick = cursor->number,
		.writer = cursor->writer,
		.hole = { .from = { record[1] },
			  .to = cursor->time,
			  .missed_slots = record[2],
			  .suspended_ns = ring_head_size(record[0]) > RING_HOLE_BYTES ? record[3] : 0 },
	};
	return 0;
}

/* Passes over the records of other targets, up to the end of the page or of the tick. */
static void pass_over(const struct ring_cursor *cursor, struct ring_copy *copy)
{
	while (copy->parsed < copy->have) {
		uint64_t head = copy_head(copy, copy->parsed);
		if (ring_head_type(head) == RING_TICK || ring_head_type(head) == RING_HOLE ||
		    ring_head_id(head) == cursor->only)
			return;

		copy->parsed += ring_head_size(head);
	}
}

/* Delivers the next record of the tick. */
static int next_record(struct ring_cursor *cursor, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	if (cursor->only != 0)
		pass_over(cursor, copy);
	if (copy->parsed == copy->have)
		return next_part(cursor, ret);

	const uint64_t *record = &copy->payload[copy->parsed / 8];
	switch (ring_head_type(record[0])) {
	case RING_TICK:
		return next_part(cursor, ret);
	case RING_SAMPLE:
		return next_sample(cursor, record, ret);
	case RING_TARGET:
		return next_target(cursor, record, ret);
	case RING_GONE:
		return next_gone(cursor, record, ret);
	case RING_HOLE:
		return next_hole(cursor, record, ret);
	default:
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}
}

/*
 * Delivers what a cursor that starts at the newest tick knows: each target's description, then its
 * sample.
 */
static int next_preloaded(struct ring_cursor *cursor, struct ring_event *ret)
{
	const struct map_node *node = map_visit(&cursor->states, cursor->walk);

	if (node == NULL) {
		cursor->preloaded = false;
		return AGAIN;
	}
	struct ring_state *state = MAP_ENTRY(node, struct ring_state, node);
	if (!state->announced && state->description != NULL && announce(state, ret, cursor) == 0)
		return 0;

	cursor->walk = node;
	if (state->key_page == 0)
		return AGAIN;

	deliver_sample(cursor, state, state->sample.mask, ret);
	return 0;
}

int ring_cursor_next(struct ring_cursor *cursor, struct ring_event *ret)
{
	int rc;

	if (cursor->gone != 0)
		state_drop(&cursor->states, state_find(&cursor->states, cursor->gone));
	cursor->gone = 0;

	do {
		if (cursor->preloaded)
			rc = next_preloaded(cursor, ret);
		else if (cursor->current != NULL)
			rc = next_record(cursor, ret);
		else
			rc = next_tick(cursor, ret);
	} while (rc == AGAIN);

	return rc;
}

/* Reads all there is for the states alone. 0 or -ENOMEM. */
static int preload(struct ring_cursor *cursor)
{
	struct ring_event event;
	int rc;

	cursor->silent = true;
	do {
		rc = ring_cursor_next(cursor, &event);
	} while (rc == 0);
	cursor->silent = false;
	cursor->preloaded = true;
	return rc < 0 ? rc : 0;
}

int ring_cursor_new(const struct ring *ring, enum ring_start start, struct ring_cursor **ret)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = calloc(1, sizeof(*cursor));
	if (cursor == NULL)
		return -ENOMEM;

	int rc = follow_init(&cursor->follow, ring);
	if (rc == 0 && start == RING_NEWEST)
		rc = preload(cursor);
	if (rc < 0)
		return rc;

	*ret = TAKE(cursor);
	return 0;
}

int ring_cursor_new_blocking(struct ring *ring, int32_t pid, uint64_t start_ticks, ring_alive *alive,
			     struct ring_cursor **ret)
{
	assert(ring->writable && pid > 0);

	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	int rc = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (rc == 0)
		rc = follow_attach(&cursor->follow, ring, ring_reader_word(pid, start_ticks), alive);
	if (rc != 0)
		return rc;

	*ret = TAKE(cursor);
	return 0;
}

void ring_cursor_free(struct ring_cursor *cursor)
{
	if (cursor == NULL)
		return;

	follow_release(&cursor->follow);
	states_release(&cursor->states);
	free(cursor);
}

int ring_cursor_seek(struct ring_cursor *cursor, mono_t since)
{
	cursor->since = since;
	if (cursor->follow.count == 0)
		follow_skip(&cursor->follow, since.ns);
	return 0;
}

void ring_cursor_only(struct ring_cursor *cursor, uint32_t id)
{
	cursor->only = id;
}
