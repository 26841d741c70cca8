/*
 * ring_follow.c: which page next.
 *
 * Pages are followed in the order of their sequence numbers. Those begun and not finished are in `pages`: with several
 * writers there is one open page for each, and an old one that is still being filled stops nobody. `next` is the first
 * page not looked at; it is adopted when the ones before it have nothing new.
 *
 * Among the pages that have a tick, the one with the lowest number is next: so ticks of several writers come in the order in which they were
 * published, although their pages overlap. For that, as many pages are followed ahead as writers are likely to be filling at a time. What
 * one of them publishes later under a lower number (it took the number, and was interrupted) comes later: nobody waits for it.
 *
 * Whole ticks only. Inside a page the publication of `used` sees to that. A tick that goes on elsewhere says so in its
 * first record: all of its pages are copied before its first event is delivered. Conversely a page that begins with the
 * rest of a tick is left alone while the page before it is followed, since the beginning may still appear there.
 *
 * Every loop is bounded by the number of pages: the file is not trusted to be sane.
 */
#include "ring_follow.h"
#include "ring.h"
#include "ring_tempo.h"
#include "scope.h"

#include <errno.h>

/* Internal: this page has a tick. */
#define FOUND 100

/* How many pages are followed ahead at most. A page for each of sixteen writers, and the next one. */
#define AHEAD_MAX 32u

static uint64_t next_seq(const struct ring *ring)
{
	return __atomic_load_n(&ring->header->next_seq, __ATOMIC_SEQ_CST);
}

/* Tells the writers what this reader no longer needs. */
static void hold(const struct ring_follow *follow)
{
	if (follow->attached != NULL && ring_load(&follow->attached->reader_owner) == follow->owner)
		ring_store_release(&follow->attached->reader_seq,
				   follow->count > 0 ? follow->pages[0]->seq : follow->next);
}

int ring_follow_init(struct ring_follow *follow, const struct ring *ring)
{
	uint64_t end = next_seq(ring);

	*follow = (struct ring_follow){ .ring = ring, .next = end > ring->page_count ? end - ring->page_count : 0 };
	/* The oldest one may be changing hands at this moment, or have been when its writer died. */
	if (end >= ring->page_count && ring_word_is(ring_load_acquire(&ring_page(ring, end)->word), end))
		follow->next++;

	follow->pages = calloc(ring->page_count, sizeof(follow->pages[0]));
	return follow->pages != NULL ? 0 : -ENOMEM;
}

void ring_follow_release(struct ring_follow *follow)
{
	if (follow->attached != NULL)
		ring_swap(&follow->attached->reader_owner, follow->owner, 0);

	for (uint32_t i = 0; i < follow->count; i++)
		free(follow->pages[i]);
	while (follow->spare != NULL) {
		struct ring_copy *copy = follow->spare;
		follow->spare = copy->spare;
		free(copy);
	}
	free(follow->pages);
	*follow = (struct ring_follow){ 0 };
}

int ring_follow_attach(struct ring_follow *follow, struct ring *ring, uint64_t owner,
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
	 * First hold everything, then look where the ring ends. A writer that has not seen this got its number before,
	 * so that it is at most `end` and recycles at most page end - page_count: the one after is safe.
	 */
	__atomic_store_n(&header->reader_seq, 0, __ATOMIC_SEQ_CST);
	uint64_t end = next_seq(ring);

	follow->attached = header;
	follow->owner = owner;
	follow->next = end >= ring->page_count ? end - ring->page_count + 1 : 0;
	hold(follow);
	return 0;
}

static struct ring_copy *copy_take(struct ring_follow *follow, uint64_t seq)
{
	struct ring_copy *copy = follow->spare != NULL ? follow->spare : ring_copy_new(follow->ring);
	if (copy == NULL)
		return NULL;

	if (copy == follow->spare)
		follow->spare = copy->spare;
	ring_copy_start(copy, seq);
	return copy;
}

static void copy_give(struct ring_follow *follow, struct ring_copy *copy)
{
	copy->spare = follow->spare;
	follow->spare = copy;
}

static void drop(struct ring_follow *follow, uint32_t index)
{
	copy_give(follow, follow->pages[index]);
	follow->count--;
	for (uint32_t i = index; i < follow->count; i++)
		follow->pages[i] = follow->pages[i + 1];
	hold(follow);
}

/* Page seq if it is followed, else NULL. */
static struct ring_copy *followed(const struct ring_follow *follow, uint64_t seq)
{
	for (uint32_t i = 0; i < follow->count; i++) {
		if (follow->pages[i]->seq == seq)
			return follow->pages[i];
	}
	return NULL;
}

/* Gives up pages that were recycled: some way into the ring, or the same would happen again at once. */
static void skip_recycled(struct ring_follow *follow, uint64_t end)
{
	uint32_t pages = follow->ring->page_count;
	uint64_t to = end > pages ? end - pages + pages / 8 : 0;

	if (to <= follow->next)
		to = follow->next + 1;
	follow->lost += to - follow->next;
	follow->next = to;
	hold(follow);
}

/* Follows one more page. 0; RING_EMPTY: there is none; -ENOMEM. */
static int adopt(struct ring_follow *follow)
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
 * Brings the copy at index up to date. FOUND: it has a tick to begin; 0: it has not; RING_EMPTY: it was dropped, and
 * another is at its index.
 */
static int visit(struct ring_follow *follow, uint32_t index)
{
	struct ring_copy *copy = follow->pages[index];

	if (copy->parsed == copy->have) {
		int rc = ring_copy_refresh(copy, follow->ring);
		follow->lost += rc == RING_COPY_RECYCLED;
		follow->damaged += rc == RING_COPY_DAMAGED;
		if (rc != 0 || (copy->complete && copy->parsed == copy->have)) {
			drop(follow, index);
			return RING_EMPTY;
		}
	}
	if (copy->parsed == copy->have)
		return 0;

	bool rest = (ring_follow_flags(copy, copy->parsed) & RING_TICK_CONTINUED) != 0;
	return rest && followed(follow, copy->prev - 1) != NULL ? 0 : FOUND;
}

/* How many pages are followed at a time, if there are as many. 0: one writer fills them one after the other. */
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

/* The page with the lowest tick of those that are followed; of a single writer's, the first that has one. NULL: none has. */
static struct ring_copy *lowest(struct ring_follow *follow, bool single)
{
	struct ring_copy *found = NULL;
	uint64_t number = 0;

	for (uint32_t i = 0; i < follow->count;) {
		int rc = visit(follow, i);
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

int ring_follow_find(struct ring_follow *follow, struct ring_copy **ret)
{
	uint32_t ahead = pages_ahead(follow->ring);

	for (;;) {
		struct ring_copy *found = lowest(follow, ahead == 0);
		if (ahead > 0 && (follow->lost != 0 || follow->damaged != 0))
			return RING_FOLLOW_LOSS;

		int rc = RING_EMPTY;
		if (found == NULL ? follow->lost == 0 && follow->damaged == 0 : follow->count < ahead)
			rc = adopt(follow);
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

/* Whether `to` begins with the rest of the tick of this number, whose previous part is in `from`. */
static bool continues(const struct ring_copy *from, const struct ring_copy *to, uint64_t number)
{
	return to->parsed == 0 && to->have > 0 && (ring_follow_flags(to, 0) & RING_TICK_CONTINUED) != 0 &&
	       to->prev == from->seq + 1 && to->payload[1] == number;
}

int ring_follow_gather(struct ring_follow *follow, const struct ring_copy *copy)
{
	uint64_t number = tick_number(copy);
	unsigned flags = ring_follow_flags(copy, copy->parsed);
	if ((flags & RING_TICK_CONTINUED) != 0)
		return 0;

	while ((flags & RING_TICK_MORE) != 0) {
		uint64_t seq = copy->next - 1;
		if (seq <= copy->seq)
			return 0;

		int rc = 0;
		while (follow->next <= seq && rc == 0)
			rc = adopt(follow);
		if (rc < 0)
			return rc;

		struct ring_copy *to = followed(follow, seq);
		if (to == NULL || (to->have == 0 && ring_copy_refresh(to, follow->ring) != 0) ||
		    !continues(copy, to, number))
			return 0;

		flags = ring_follow_flags(to, 0);
		copy = to;
	}
	return 1;
}

struct ring_copy *ring_follow_part(const struct ring_follow *follow, const struct ring_copy *copy)
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
 * The page from which on everything is known that was so at settled_ns: goes back from start while pages go on after that moment. Those of several
 * writers are mixed, so one that ends before says nothing of the others'.
 */
static uint64_t settled_page(const struct ring_follow *follow, uint64_t start, uint64_t settled_ns)
{
	uint64_t patience = pages_ahead(follow->ring) + 1;

	for (uint64_t at = start, before = 0; at > follow->next && before < patience; at--) {
		before = page_end(follow->ring, at) >= settled_ns ? 0 : before + 1;
		if (before == 0)
			start = at - 1;
	}
	return start;
}

void ring_follow_skip(struct ring_follow *follow, uint64_t since_ns)
{
	const struct ring *ring = follow->ring;
	uint64_t end = next_seq(ring);
	uint64_t first = follow->next;
	uint64_t keep = ring->page_count / 4 + 1; /* descriptions are never older */

	while (first < end && first - follow->next < ring->page_count && page_end(ring, first) < since_ns)
		first++;

	uint64_t start = first - follow->next > keep ? first - keep : follow->next;
	uint64_t heartbeat_ns = ring_tempo_longest_ns(ring);
	uint64_t settled = since_ns > heartbeat_ns ? since_ns - heartbeat_ns : 0;
	follow->next = settled_page(follow, start, settled);
	hold(follow);
}

int ring_follow_ahead(struct ring_follow *follow, int (*visit_copy)(void *ctx, const struct ring_copy *copy), void *ctx)
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
		ring_copy_start(copy, follow->next + i);
		if (ring_copy_refresh(copy, follow->ring) == 0)
			rc = visit_copy(ctx, copy);
	}
	copy_give(follow, copy);
	return rc;
}
