/*
 * ring_writer.c: fills pages.
 *
 * Publishing. A tick is written behind what is published and becomes visible by one release store of
 * `used`, in the page where it began. Where it continued in further pages, theirs are stored before,
 * the last page first: a reader that sees the beginning of a tick can see all of it, and a writer
 * that is killed between two of these stores has published nothing.
 *
 * Ownership. A page belongs to its writer only while a tick is being written. Between ticks (OPEN)
 * another writer may seal it, which it does when the page is half a ring old: a thread that samples
 * once a minute then neither stops the others nor keeps a blocking reader on its page. The owner
 * notices when its next tick begins, by the compare-and-swap that would have made the page its own
 * again.
 *
 * Claiming a page is one compare-and-swap of the word in the page itself, from "page s - N, and no
 * tick is being written to it" to "page s, claimed". Then next_seq is advanced. A writer that finds
 * the word of page next_seq already taken advances next_seq on behalf of the other, so that no writer
 * waits for a thread that was interrupted in between.
 *
 * Counters. Each writer of this process has an account in a list behind a lock of one word in private
 * memory, held for the few hundred additions of a sum. A tick must not wait: counters that cannot be
 * posted because the lock is taken are kept and posted with the next tick. The sum is made of what
 * was posted, so it consists at any time of whole states of each writer, if not of the same moment.
 *
 * Rejected: a fetch-and-add on next_seq (a writer whose slot is still being written could not give
 * its number back); a lock in the file (a killed thread keeps it); checksums per tick (they would
 * cost more than the records); each writer's counters in the file, to be added up by every reader.
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

/* Seals a page whose word this thread has made SEALING (or which is TICKING and its own). */
static void seal(struct ring_page *page, uint64_t seq)
{
	uint64_t facts[RING_FACTS];
	uint64_t used = ring_load(&page->used);

	ring_page_facts(page, seq, used, facts);
	uint32_t crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, facts, sizeof(facts));
	ring_store(&page->crc, checksum_crc32(crc, page->payload, (size_t)used));
	ring_store_release(&page->word, ring_word(seq, RING_PAGE_SEALED));
}

/* Seals page seq unless it is sealed, or a tick is being written to it. */
static void seal_idle(struct ring_page *page, uint64_t seq)
{
	if (ring_swap(&page->word, ring_word(seq, RING_PAGE_OPEN), ring_word(seq, RING_PAGE_SEALING)))
		seal(page, seq);
}

/* Whether the blocking reader holds any of the `count` pages from s on. */
static bool reader_holds(const struct ring *ring, uint64_t s, uint64_t count)
{
	const struct ring_header *header = ring->header;

	return __atomic_load_n(&header->reader_owner, __ATOMIC_SEQ_CST) != 0 &&
	       s + count > __atomic_load_n(&header->reader_seq, __ATOMIC_SEQ_CST) + ring->page_count;
}

/*
 * A writer that is held seals the oldest page if it is idle, since the reader may be waiting for its
 * end. That page may have been in a tick when it was half a ring old, and its writer held since.
 */
static void seal_oldest(const struct ring *ring)
{
	uint64_t oldest = ring_load(&ring->header->reader_seq);

	seal_idle(ring_page(ring, oldest), oldest);
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
static int claim_page(struct ring *ring, uint64_t *ret_seq)
{
	struct ring_header *header = ring->header;

	for (;;) {
		/* In this order: the number, the reader, the swap (docs/ring.md, "Attaching"). */
		uint64_t s = __atomic_load_n(&header->next_seq, __ATOMIC_SEQ_CST);
		if (reader_holds(ring, s, 1)) {
			seal_oldest(ring);
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

/* ---- counters ---- */

/* The counters of one writer, in its storage; the mapping has a list of them. */
struct ring_account {
	struct ring_account *next;
	uint64_t writer; /* its number */
	bool used;       /* something was posted */
	bool unposted;   /* the owner's: kept is newer than stats */
	struct stats stats;
	struct stats kept;
};

/* The lock is held for less than 1 us: after so many tries its holder has no CPU. */
#define LOCK_TRIES 200

static bool accounts_try_lock(struct ring *ring)
{
	for (int i = 0; i < LOCK_TRIES; i++)
		if (ring_load(&ring->accounts_lock) == 0 && ring_swap(&ring->accounts_lock, 0, 1))
			return true;
	return false;
}

static void accounts_lock(struct ring *ring)
{
	while (!accounts_try_lock(ring))
		sched_yield();
}

static void accounts_unlock(struct ring *ring)
{
	ring_store_release(&ring->accounts_lock, 0);
}

/* Makes stats what ring_stats() returns, unless another process or thread is doing that. */
static void stats_store(struct ring *ring, const struct stats *stats)
{
	struct ring_header *header = ring->header;
	uint64_t words[sizeof(*stats) / 8];

	/* Another writer stores its own, which are as recent. */
	if (!ring_swap(&header->stats_lock, 0, 1))
		return;

	/* Into the copy that is not being read. */
	memcpy(words, stats, sizeof(words));
	uint64_t version = ring_load(&header->stats_version) + 1;
	ring_fence_release();
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		ring_store(&header->stats[version & 1][i], words[i]);
	ring_store_release(&header->stats_version, version);
	ring_store_release(&header->stats_lock, 0);
}

static void stats_publish(struct ring *ring)
{
	struct stats sum = ring->departed;

	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->used)
			stats_merge(&sum, &account->stats);
	stats_store(ring, &sum);
}

static void account_set(struct ring_account *account, const struct stats *stats)
{
	account->stats = *stats;
	account->used = true;
	account->unposted = false;
}

/* Opens the account of the writer of this number. May wait for another thread. */
static void account_open(struct ring *ring, struct ring_account *account, uint64_t writer)
{
	account->writer = writer;
	accounts_lock(ring);
	account->next = ring->accounts;
	ring->accounts = account;
	accounts_unlock(ring);
}

/* The counters of the writer stay in the sum. May wait for another thread. */
static void account_close(struct ring *ring, struct ring_account *account)
{
	struct ring_account **link = &ring->accounts;

	accounts_lock(ring);
	while (*link != account)
		link = &(*link)->next;
	*link = account->next;
	if (account->unposted)
		account_set(account, &account->kept);
	if (account->used) {
		stats_merge(&ring->departed, &account->stats);
		stats_publish(ring);
	}
	accounts_unlock(ring);
}

/* Sets the counters of the writer and publishes the sum: now, or with the next post or the close. */
static void account_post(struct ring *ring, struct ring_account *account, const struct stats *stats)
{
	if (!accounts_try_lock(ring)) {
		account->kept = *stats;
		account->unposted = true;
		return;
	}
	account_set(account, stats);
	stats_publish(ring);
	accounts_unlock(ring);
}

int ring_writer_stats(struct ring *ring, uint64_t writer, struct stats *ret)
{
	int r = -ENOENT;

	accounts_lock(ring);
	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->writer == writer && account->used) {
			*ret = account->stats;
			r = 0;
		}
	accounts_unlock(ring);
	return r;
}

/* ---- the interval and the heartbeat ---- */

/* A heartbeat that became shorter, as the writer that sets it remembers it. {0} at the start. */
struct heartbeat_change {
	bool shortened;         /* pages are left that were written under a longer one */
	uint64_t shortened_seq; /* the first page that was not begun then */
};

/*
 * A longer heartbeat is the longest at once. A shorter one does not change what was written before,
 * so the longest stays until every page that was begun under it has been overwritten.
 */
static void set_interval(struct heartbeat_change *change, struct ring *ring, uint64_t interval_ns,
			 uint64_t heartbeat_ns)
{
	struct ring_header *header = ring->header;
	uint64_t longest_ns = ring_longest_heartbeat_ns(ring);

	if (heartbeat_ns == 0)
		heartbeat_ns = NS_PER_S;
	if (heartbeat_ns < ring_heartbeat_ns(ring))
		change->shortened_seq = ring_load_acquire(&header->next_seq);
	change->shortened = heartbeat_ns < longest_ns;
	ring_store(&header->heartbeat_longest, heartbeat_ns > longest_ns ? heartbeat_ns : longest_ns);
	ring_store(&header->heartbeat_live, heartbeat_ns);
	ring_store(&header->interval_live, interval_ns);
}

/* Page seq was begun: if the last page of a longer heartbeat is gone, readers need not go back as far. */
static void note_claimed(struct heartbeat_change *change, struct ring *ring, uint64_t seq)
{
	if (!change->shortened || seq < change->shortened_seq + ring->page_count)
		return;

	ring_store(&ring->header->heartbeat_longest, ring_heartbeat_ns(ring));
	change->shortened = false;
}

/* ---- pages and ticks ---- */

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

	mono_t last; /* time of the last tick that was published */
	bool has_last;
	mono_t now; /* of this tick, and so on */
	wall_t wall;
	uint64_t heartbeat_ns;
	uint32_t idle_us;
	struct heartbeat_change heartbeat_change;
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
	account_open(ring, &writer->account, writer->number);
	*ret = writer;
	return 0;
}

void ring_writer_retune(struct ring_writer *writer, uint64_t interval_ns, uint64_t heartbeat_ns)
{
	set_interval(&writer->heartbeat_change, writer->ring, interval_ns, heartbeat_ns);
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

	/* The pages of a tick that was never ended are sealed as far as they were published before. */
	for (uint32_t i = 0; i < writer->parts_count; i++)
		seal(writer->parts[i].page, writer->parts[i].seq);
	if (writer->ticking)
		seal(writer->page, writer->seq);
	else if (writer->page != NULL)
		seal_idle(writer->page, writer->seq);
	account_close(writer->ring, &writer->account);
	free(writer);
}

static int begin_page(struct ring_writer *writer, uint64_t prev)
{
	struct ring *ring = writer->ring;
	uint64_t seq;
	int rc = claim_page(ring, &seq);
	if (rc != 0)
		return rc;

	struct ring_page *page = ring_page(ring, seq);
	ring_fence_release(); /* a reader that sees any store below also sees that the page was recycled */

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

	note_claimed(&writer->heartbeat_change, ring, seq);

	uint64_t half = ring->page_count / 2;
	if (seq >= half)
		seal_idle(ring_page(ring, seq - half), seq - half);
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
	uint64_t remaining = room > wasted ? worst_bytes - (room - wasted) : worst_bytes;
	uint64_t pages = remaining / (payload - wasted) + 1;
	return pages < most ? pages : most;
}

/* Makes the page being filled this writer's own again, unless it was sealed meanwhile. */
static void resume_page(struct ring_writer *writer)
{
	if (writer->page == NULL)
		return;

	if (!ring_swap(&writer->page->word, ring_word(writer->seq, RING_PAGE_OPEN),
		       ring_word(writer->seq, RING_PAGE_TICKING)))
		writer->page = NULL;
}

static void suspend_page(struct ring_writer *writer)
{
	if (writer->page != NULL)
		ring_store_release(&writer->page->word, ring_word(writer->seq, RING_PAGE_OPEN));
}

int ring_tick_begin(struct ring_writer *writer, mono_t now, wall_t wall, uint64_t worst_bytes)
{
	assert(!writer->ticking);

	struct ring *ring = writer->ring;
	resume_page(writer);

	uint64_t needed = pages_needed(writer, worst_bytes);
	if (needed > 0 && reader_holds(ring, ring_load_acquire(&ring->header->next_seq), needed)) {
		suspend_page(writer);
		seal_oldest(ring);
		return RING_HELD;
	}

	writer->now = now;
	writer->wall = wall;
	writer->heartbeat_ns = ring_heartbeat_ns(ring);
	if (writer->page != NULL && needed > 0 &&
	    writer->at + RING_TICK_BYTES + RING_RECORD_MAX > ring->payload_bytes) {
		seal(writer->page, writer->seq);
		writer->page = NULL;
	}
	if (writer->page == NULL) {
		int rc = begin_page(writer, 0);
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

/* 0; RING_HELD, and nothing changed. */
static int continue_in_next_page(struct ring_writer *writer)
{
	struct part part = current_part(writer);
	if (writer->parts_count + 1 >= writer->ring->page_count)
		return RING_HELD;

	int rc = begin_page(writer, part.seq + 1);
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

/* 0: so many bytes fit; RING_HELD, counted. */
static int reserve_bytes(struct ring_writer *writer, uint32_t bytes)
{
	assert(writer->ticking);

	if (writer->at + bytes <= writer->ring->payload_bytes)
		return 0;

	int rc = continue_in_next_page(writer);
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

	for (uint32_t left = fields; left != 0; left &= left - 1) {
		unsigned field = (unsigned)__builtin_ctz(left);
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

/* Writes a record. changed: fields that differ from the last record, if that had the same fields. */
static int put_record(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample,
		      uint32_t changed)
{
	int rc = reserve_bytes(writer, description_bytes(track) + RING_SAMPLE_BYTES + 8 * SAMPLE_FIELDS);
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
	int rc = reserve_bytes(writer, description_bytes(track) + RING_GONE_BYTES);
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

int ring_put_hole(struct ring_writer *writer, uint64_t missed_slots, uint64_t suspended_ns)
{
	uint32_t bytes = RING_HOLE_BYTES + (suspended_ns > 0 ? 8 : 0);

	if (!writer->has_last || (missed_slots == 0 && suspended_ns == 0))
		return RING_UNCHANGED;

	int rc = reserve_bytes(writer, bytes);
	if (rc != 0)
		return rc;

	put_word(writer, ring_head(bytes, RING_HOLE, 0, 0));
	put_word(writer, writer->last.ns);
	put_word(writer, missed_slots);
	if (suspended_ns > 0)
		put_word(writer, suspended_ns);
	count_record(writer, bytes);
	return 0;
}

/* Publishes the part of the tick in one page: the store of `used` makes it visible. */
static void publish_part(const struct ring_writer *writer, const struct part *part, uint64_t number)
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

	publish_part(writer, &current, number);
	for (uint32_t i = writer->parts_count; i > 0; i--)
		publish_part(writer, &writer->parts[i - 1], number);
	if (ring_load(&header->last_tick) < writer->now.ns)
		ring_store_release(&header->last_tick, writer->now.ns);

	if (stats != NULL) {
		struct stats own = *stats;
		ring_writer_account(writer, &own);
		account_post(writer->ring, &writer->account, &own);
	}
	for (uint32_t i = 0; i < writer->parts_count; i++)
		seal(writer->parts[i].page, writer->parts[i].seq);
	suspend_page(writer);
	writer->parts_count = 0;
	writer->ticking = false;
	writer->last = writer->now;
	writer->has_last = true;
}

void ring_writer_account(const struct ring_writer *writer, struct stats *ret)
{
	ret->records = writer->records;
	ret->bytes = writer->bytes;
	ret->lost_records = writer->lost;
}
