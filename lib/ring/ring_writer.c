/*
 * ring_writer.c: fills pages.
 *
 * A tick is written behind what is published and becomes visible by one release store of `used`, in
 * the page where it began. When it went on in further pages, theirs are stored before, last page
 * first: whoever sees the beginning of a tick can see all of it, and a writer that is killed
 * between two of these stores has published nothing.
 *
 * A page belongs to its writer only while a tick is being written. Between ticks (OPEN) another
 * writer may seal it, which it does when the page is half a ring old: a thread that samples once a
 * minute then neither stops the others nor keeps a blocking reader on its page. The owner finds out
 * when its next tick begins, by the compare-and-swap that would have made the page its own again.
 */
#include "lib/ring/ring.h"
#include "lib/ring/ring_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/model/sample.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t ring_head(uint32_t size, enum ring_record_type type, unsigned flags, uint32_t id)
{
	return (uint64_t)size | (uint64_t)type << 16 | (uint64_t)flags << 24 | (uint64_t)id << 32;
}

static inline uint32_t ring_pad(uint32_t bytes)
{
	return (bytes + 7u) & ~7u;
}

/*
 * ring_claim.c: how pages change hands.
 *
 * Claiming a page is one compare-and-swap of the word in the page itself, from "page s - N, and
 * nobody is writing it" to "page s, claimed". Then next_seq is advanced; a writer that finds the
 * word of page next_seq already taken advances next_seq on the other's behalf, so nobody waits for
 * a thread that was interrupted in between.
 *
 * Rejected: a fetch-and-add on next_seq (whoever gets a number whose slot is being written is stuck
 * with it); a lock (a killed thread keeps it); checksums per tick (they would cost more than the
 * records).
 */

/* Seals a page whose word this thread has made SEALING (or which is TICKING and its own). */
static void ring_claim_seal(struct ring_page *page, uint64_t seq)
{
	uint64_t facts[RING_FACTS];
	uint64_t used = ring_load(&page->used);

	ring_page_facts(page, seq, used, facts);
	uint32_t crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, facts, sizeof(facts));
	ring_store(&page->crc, checksum_crc32(crc, page->payload, (size_t)used));
	ring_store_release(&page->word, ring_word(seq, RING_PAGE_SEALED));
}

/* Seals page seq unless somebody else has, or a tick is being written to it. */
static void ring_claim_seal_idle(struct ring_page *page, uint64_t seq)
{
	if (ring_swap(&page->word, ring_word(seq, RING_PAGE_OPEN), ring_word(seq, RING_PAGE_SEALING)))
		ring_claim_seal(page, seq);
}

/* Whether the blocking reader holds any of the `count` pages from s on. */
static bool ring_claim_held(const struct ring *ring, uint64_t s, uint64_t count)
{
	const struct ring_header *header = ring->header;

	return __atomic_load_n(&header->reader_owner, __ATOMIC_SEQ_CST) != 0 &&
	       s + count > __atomic_load_n(&header->reader_seq, __ATOMIC_SEQ_CST) + ring->page_count;
}

/*
 * What is done by whoever is held: if the reader waits on an idle page, that is sealed, so that it
 * can go on. The page may have been in a tick when it was half a ring old, and its writer held ever
 * since.
 */
static void ring_claim_held_back(const struct ring *ring)
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

/* Takes the next page for this thread, with state CLAIMED. 0 or RING_HELD (ring.h). */
static int ring_claim_take(struct ring *ring, uint64_t *ret_seq)
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

/*
 * ring_stats.c: a list of accounts behind a lock of one word in private memory, held for the few
 * hundred additions of a sum.
 *
 * A tick must not wait: a post that does not get the lock at once, or a little later, is kept and
 * made by the next one. Since the sum is made of what was posted, it is at any time the sum of
 * whole states of each writer, if not of the same moment.
 *
 * Rejected: every writer's counters in the file, to be added up by readers: each of them would have
 * to know how.
 */

/*
 * The lock is held for less than a microsecond: who does not get it after so many looks waits for a
 * thread that has no CPU.
 */
#define TRIES 200

static bool lock_soon(struct ring *ring)
{
	for (int i = 0; i < TRIES; i++)
		if (ring_load(&ring->ledger_lock) == 0 && ring_swap(&ring->ledger_lock, 0, 1))
			return true;
	return false;
}

static void lock(struct ring *ring)
{
	while (!lock_soon(ring))
		sched_yield();
}

static void unlock(struct ring *ring)
{
	ring_store_release(&ring->ledger_lock, 0);
}

static void shared_stats_publish(struct ring *ring)
{
	struct stats sum = ring->departed;

	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->used)
			stats_merge(&sum, &account->stats);
	ring_stats_publish(ring, &sum);
}

static void enter(struct ring_account *account, const struct stats *stats)
{
	account->stats = *stats;
	account->used = true;
	account->unposted = false;
}

/*
 * Opens an account for the writer of this number, in the writer's storage. May wait for another
 * thread's post.
 */
static void ring_stats_open(struct ring *ring, struct ring_account *account, uint64_t writer)
{
	account->writer = writer;
	lock(ring);
	account->next = ring->accounts;
	ring->accounts = account;
	unlock(ring);
}

/* What the writer has counted stays in the sum. May wait likewise. */
static void ring_stats_close(struct ring *ring, struct ring_account *account)
{
	struct ring_account **link = &ring->accounts;

	lock(ring);
	while (*link != account)
		link = &(*link)->next;
	*link = account->next;
	if (account->unposted)
		enter(account, &account->kept);
	if (account->used) {
		stats_merge(&ring->departed, &account->stats);
		shared_stats_publish(ring);
	}
	unlock(ring);
}

/*
 * The writer's counters are these: ring_stats() says so, unless another thread keeps the ledger
 * busy; then the next post or the close does.
 */
static void ring_stats_post(struct ring *ring, struct ring_account *account, const struct stats *stats)
{
	if (!lock_soon(ring)) {
		account->kept = *stats;
		account->unposted = true;
		return;
	}
	enter(account, stats);
	shared_stats_publish(ring);
	unlock(ring);
}

int ring_writer_stats(struct ring *ring, uint64_t writer, struct stats *ret)
{
	int r = -ENOENT;

	lock(ring);
	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->writer == writer && account->used) {
			*ret = account->stats;
			r = 0;
		}
	unlock(ring);
	return r;
}

/* The part of a tick that lies in one page. */
struct part {
	uint64_t seq;
	struct ring_page *page;
	uint32_t tick_at; /* where its TICK record is */
	uint32_t used;    /* end of its records */
};

struct ring_writer {
	struct ring *ring;
	uint64_t number;
	bool ticking;

	/* The page being filled; NULL: none. */
	struct ring_page *page;
	uint64_t seq;
	uint32_t at; /* where the next record goes, bytes of payload */

	mono_t now; /* of this tick, and so on */
	wall_t wall;
	uint64_t heartbeat_ns;
	uint32_t idle_us;
	struct ring_interval tempo;
	struct ring_account account;

	uint64_t generation;
	uint64_t records;
	uint64_t bytes;
	uint64_t lost;

	uint32_t parts_count; /* pages this tick went through, without the current one */
	uint32_t tick_at;     /* its TICK record in the current page */
	struct part parts[];  /* page_count of them */
};

int ring_writer_new(struct ring *ring, struct ring_writer **ret)
{
	assert(ring->writable);

	struct ring_writer *writer = calloc(1, sizeof(*writer) + ring->page_count * sizeof(writer->parts[0]));
	if (writer == NULL)
		return -ENOMEM;

	writer->ring = ring;
	writer->number = __atomic_fetch_add(&ring->header->writers, 1, __ATOMIC_RELAXED);
	ring_stats_open(ring, &writer->account, writer->number);
	*ret = writer;
	return 0;
}

void ring_writer_retune(struct ring_writer *writer, uint64_t interval_ns, uint64_t heartbeat_ns)
{
	ring_interval_set(&writer->tempo, writer->ring, interval_ns, heartbeat_ns);
}

void ring_writer_idle(struct ring_writer *writer, uint64_t idle_ns)
{
	uint64_t us = (idle_ns + NS_PER_US - 1) / NS_PER_US;

	writer->idle_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	ring_store(&writer->ring->header->idle_live, writer->idle_us * NS_PER_US);
}

void ring_writer_free(struct ring_writer *writer)
{
	if (writer == NULL)
		return;

	/*
	 * A tick that was never ended: its pages are sealed as far as they were published before
	 * it.
	 */
	for (uint32_t i = 0; i < writer->parts_count; i++)
		ring_claim_seal(writer->parts[i].page, writer->parts[i].seq);
	if (writer->ticking)
		ring_claim_seal(writer->page, writer->seq);
	else if (writer->page != NULL)
		ring_claim_seal_idle(writer->page, writer->seq);
	ring_stats_close(writer->ring, &writer->account);
	free(writer);
}

static int claim(struct ring_writer *writer, uint64_t prev)
{
	struct ring *ring = writer->ring;
	uint64_t seq;
	int rc = ring_claim_take(ring, &seq);
	if (rc != 0)
		return rc;

	struct ring_page *page = ring_page(ring, seq);
	ring_fence_release(); /* a reader that sees anything below also sees that the page is another */

	ring_store(&page->magic, RING_PAGE_MAGIC);
	ring_store(&page->used, 0);
	ring_store(&page->writer, writer->number);
	ring_store(&page->first_ns, writer->now.ns);
	ring_store(&page->last_ns, writer->now.ns);
	ring_store(&page->wall_offset, writer->wall.ns - writer->now.ns);
	ring_store(&page->prev, prev);
	ring_store(&page->next, 0);
	ring_store(&page->generation, writer->generation);
	ring_store(&page->crc, 0);
	ring_store_release(&page->word, ring_word(seq, RING_PAGE_TICKING));

	writer->page = page;
	writer->seq = seq;
	writer->at = 0;

	ring_interval_claimed(&writer->tempo, ring, seq);

	uint64_t half = ring->page_count / 2;
	if (seq >= half)
		ring_claim_seal_idle(ring_page(ring, seq - half), seq - half);
	return 0;
}

static void put_word(struct ring_writer *writer, uint64_t word)
{
	ring_store(&writer->page->payload[writer->at / 8], word);
	writer->at += 8;
}

static void put_tick(struct ring_writer *writer, unsigned flags)
{
	assert(writer->at + RING_TICK_BYTES <= writer->ring->payload_bytes);

	writer->tick_at = writer->at;
	put_word(writer, ring_head(RING_TICK_BYTES, RING_TICK, flags, writer->idle_us));
	put_word(writer, 0); /* its number is known when it ends */
	put_word(writer, writer->now.ns);
	put_word(writer, writer->wall.ns);
}

/* How many more pages worst_bytes can need. */
static uint64_t pages_needed(const struct ring_writer *writer, uint64_t worst_bytes)
{
	uint64_t payload = writer->ring->payload_bytes;
	uint64_t room = writer->page != NULL ? payload - writer->at : 0;
	uint64_t most = writer->ring->page_count / 2 - 1; /* the page of an idle writer may hold the other half */

	if (worst_bytes + RING_TICK_BYTES <= room)
		return 0;

	/* Of every page the beginning is a TICK record and the end may stay unused. */
	uint64_t wasted = RING_TICK_BYTES + RING_RECORD_MAX;
	uint64_t rate_limit = room > wasted ? worst_bytes - (room - wasted) : worst_bytes;
	uint64_t pages = rate_limit / (payload - wasted) + 1;
	return pages < most ? pages : most;
}

/* Makes the page being filled this writer's own again, unless it was sealed meanwhile. */
static void resume(struct ring_writer *writer)
{
	if (writer->page == NULL)
		return;

	if (!ring_swap(&writer->page->word, ring_word(writer->seq, RING_PAGE_OPEN),
		       ring_word(writer->seq, RING_PAGE_TICKING)))
		writer->page = NULL;
}

static void suspend(struct ring_writer *writer)
{
	if (writer->page != NULL)
		ring_store_release(&writer->page->word, ring_word(writer->seq, RING_PAGE_OPEN));
}

int ring_tick_begin(struct ring_writer *writer, mono_t now, wall_t wall, uint64_t worst_bytes)
{
	assert(!writer->ticking);

	struct ring *ring = writer->ring;
	resume(writer);

	uint64_t needed = pages_needed(writer, worst_bytes);
	if (needed > 0 && ring_claim_held(ring, ring_load_acquire(&ring->header->next_seq), needed)) {
		suspend(writer);
		ring_claim_held_back(ring);
		return RING_HELD;
	}

	writer->now = now;
	writer->wall = wall;
	writer->heartbeat_ns = ring_interval_heartbeat_ns(ring);
	if (writer->page != NULL && needed > 0 &&
	    writer->at + RING_TICK_BYTES + RING_RECORD_MAX > ring->payload_bytes) {
		ring_claim_seal(writer->page, writer->seq);
		writer->page = NULL;
	}
	if (writer->page == NULL) {
		int rc = claim(writer, 0);
		if (rc != 0)
			return rc;
	}

	writer->ticking = true;
	put_tick(writer, 0);
	return 0;
}

static struct part current_part(const struct ring_writer *writer)
{
	return (struct part){ writer->seq, writer->page, writer->tick_at, writer->at };
}

/* Goes on in another page. 0; RING_HELD, and nothing changed. */
static int spill(struct ring_writer *writer)
{
	struct part part = current_part(writer);
	if (writer->parts_count + 1 >= writer->ring->page_count)
		return RING_HELD;

	int rc = claim(writer, part.seq + 1);
	if (rc != 0)
		return rc;

	unsigned continued = ring_load(&part.page->prev) != 0 && part.tick_at == 0 ? RING_TICK_CONTINUED : 0;
	ring_store(&part.page->payload[part.tick_at / 8],
		   ring_head(RING_TICK_BYTES, RING_TICK, continued | RING_TICK_MORE, writer->idle_us));
	ring_store(&part.page->next, writer->seq + 1);
	writer->parts[writer->parts_count++] = part;
	put_tick(writer, RING_TICK_CONTINUED);
	return 0;
}

/* Makes sure that bytes fit. 0; RING_HELD, counted. */
static int reserve(struct ring_writer *writer, uint32_t bytes)
{
	assert(writer->ticking);

	if (writer->at + bytes <= writer->ring->payload_bytes)
		return 0;

	int rc = spill(writer);
	if (rc != 0)
		writer->lost++;
	return rc;
}

static void count_record(struct ring_writer *writer, uint32_t bytes)
{
	writer->records++;
	writer->bytes += bytes;
}

static uint32_t description_bytes(const struct ring_track *track)
{
	return RING_TARGET_BYTES + ring_pad(track->description_len);
}

/* Whether the last copy of the description is older than a quarter of the ring. */
static bool description_due(const struct ring_writer *writer, const struct ring_track *track)
{
	return track->described_seq == 0 || writer->seq + 1 - track->described_seq > writer->ring->page_count / 4;
}

static void put_description(struct ring_writer *writer, struct ring_track *track)
{
	const unsigned char *from = track->description;
	uint32_t left = track->description_len;

	if (track->described_seq == 0)
		writer->generation++;
	track->described_seq = writer->seq + 1;
	if (left == 0)
		return;

	count_record(writer, description_bytes(track));
	put_word(writer, ring_head(description_bytes(track), RING_TARGET, 0, track->id));
	put_word(writer, left);
	while (left > 0) {
		uint64_t word = 0;
		uint32_t n = left < 8 ? left : 8;
		memcpy(&word, from, n);
		put_word(writer, word);
		from += n;
		left -= n;
	}
}

/* How long after the tick's time, as the upper half of a word; *flags says in which unit. */
static uint64_t offset_word(const struct ring_writer *writer, mono_t at, unsigned *flags)
{
	int64_t offset = mono_diff(at, writer->now);

	if (offset < INT32_MIN || offset > INT32_MAX) {
		offset /= (int64_t)NS_PER_US;
		offset = offset < INT32_MIN ? INT32_MIN : offset > INT32_MAX ? INT32_MAX : offset;
		*flags |= RING_OFFSET_COARSE;
	}
	return (uint64_t)(uint32_t)(int32_t)offset << 32;
}

static void put_fields(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample,
		       uint32_t fields, unsigned flags)
{
	uint64_t offset = offset_word(writer, at, &flags);
	uint64_t *record = &writer->page->payload[writer->at / 8];
	uint64_t *end = record + RING_SAMPLE_BYTES / 8;

	for (uint32_t rate_limit = fields; rate_limit != 0; rate_limit &= rate_limit - 1) {
		unsigned field = (unsigned)__builtin_ctz(rate_limit);
		track->last.value[field] = sample->value[field];
		ring_store(end++, sample->value[field]);
	}
	uint32_t size = (uint32_t)(end - record) * 8;
	ring_store(&record[0], ring_head(size, RING_SAMPLE, flags, track->id));
	ring_store(&record[1], fields | offset);
	writer->at += size;
	track->last.mask = sample->mask;
	track->written = at;
	count_record(writer, size);
}

/*
 * Writes a record whatever it says. changed: the fields that differ from the last one, if it had
 * the same. 0; RING_HELD.
 */
static int put_record(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample,
		      uint32_t changed)
{
	int rc = reserve(writer, description_bytes(track) + RING_SAMPLE_BYTES + 8 * SAMPLE_FIELDS);
	if (rc != 0)
		return rc;

	if (description_due(writer, track))
		put_description(writer, track);

	bool key = sample->mask != track->last.mask || track->key_seq != writer->seq + 1;
	put_fields(writer, track, at, sample, key ? sample->mask : changed, key ? RING_SAMPLE_KEY : 0);
	track->key_seq = writer->seq + 1;
	return 0;
}

int ring_put_still(struct ring_writer *writer, struct ring_track *track, mono_t at)
{
	if (track->key_seq == 0 || mono_diff(at, track->written) <= 0)
		return RING_UNCHANGED;

	return put_record(writer, track, at, &track->last, 0);
}

int ring_put_sample(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample)
{
	bool same_fields = sample->mask == track->last.mask;
	uint32_t changed = sample == &track->last ? 0
			   : same_fields          ? sample_difference(&track->last, sample)
						  : sample->mask;

	if (changed == 0 && same_fields && track->key_seq != 0 && !description_due(writer, track) &&
	    mono_diff(at, track->written) < (int64_t)writer->heartbeat_ns)
		return RING_UNCHANGED;

	return put_record(writer, track, at, sample, changed);
}

int ring_put_gone(struct ring_writer *writer, struct ring_track *track, mono_t at, enum ring_gone_reason reason)
{
	int rc = reserve(writer, description_bytes(track) + RING_GONE_BYTES);
	if (rc != 0)
		return rc;

	put_description(writer, track);
	unsigned flags = 0;
	uint64_t offset = offset_word(writer, at, &flags);
	put_word(writer, ring_head(RING_GONE_BYTES, RING_GONE, flags, track->id));
	put_word(writer, (uint64_t)reason | offset);
	writer->generation++;
	count_record(writer, RING_GONE_BYTES);
	return 0;
}

/* Publishes this writer's part in one page; `used` is what makes it visible. */
static void publish(const struct ring_writer *writer, const struct part *part, uint64_t number)
{
	ring_store(&part->page->payload[part->tick_at / 8 + 1], number);
	ring_store(&part->page->last_ns, writer->now.ns);
	ring_store_release(&part->page->used, part->used);
}

void ring_tick_end(struct ring_writer *writer, const struct stats *stats)
{
	assert(writer->ticking);

	struct ring_header *header = writer->ring->header;
	uint64_t number = __atomic_fetch_add(&header->ticks, 1, __ATOMIC_RELAXED);
	struct part current = current_part(writer);

	publish(writer, &current, number);
	for (uint32_t i = writer->parts_count; i > 0; i--)
		publish(writer, &writer->parts[i - 1], number);
	if (ring_load(&header->last_tick) < writer->now.ns)
		ring_store_release(&header->last_tick, writer->now.ns);

	if (stats != NULL) {
		struct stats own = *stats;
		ring_writer_account(writer, &own);
		ring_stats_post(writer->ring, &writer->account, &own);
	}
	for (uint32_t i = 0; i < writer->parts_count; i++)
		ring_claim_seal(writer->parts[i].page, writer->parts[i].seq);
	suspend(writer);
	writer->parts_count = 0;
	writer->ticking = false;
}

void ring_writer_account(const struct ring_writer *writer, struct stats *ret)
{
	ret->records = writer->records;
	ret->bytes = writer->bytes;
	ret->lost_records = writer->lost;
}
