/*
 * ring.h: what a reader remembers of the targets it has met: a map from id to last sample and
 * description.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_LIB_RING_RING_H
#define SPIKEWATCH_LIB_RING_RING_H

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * ring_format.h: the bytes of a ring file, and the few operations every side performs on them.
 *
 * Everything shared is made of 64-bit words in the byte order of the host (a mark in the header
 * tells a foreign one), and every access to a word that may change is atomic: a copy of a page that
 * is being recycled is then torn between words at worst, which the check of the sequence number
 * finds. docs/ring.md describes the layout and the orderings.
 *
 * Only for the ring's own modules: callers use ring.h.
 */

#define RING_MAGIC 0x474e495257535053ULL /* "SPSWRING" */

#define RING_HEADER_BYTES 4096u /* one page of the kernel: what follows is aligned for mmap and mlock */
#define RING_STATS_WORDS 64u    /* room for counters yet to be invented */

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

	uint64_t reader_owner; /* who the blocking reader is; 0: there is none */
	uint64_t reader_seq;   /* the oldest page it still needs */
	uint64_t unused3[6];

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
 * Only the owner leaves TICKING; anybody may take an OPEN page by one compare-and-swap, and its
 * owner notices.
 */
enum ring_page_state {
	RING_PAGE_CLAIMED = 1,
	RING_PAGE_TICKING = 2,
	RING_PAGE_OPEN = 3,
	RING_PAGE_SEALING = 4,
	RING_PAGE_SEALED = 5,
};

/* A mapping. The geometry is a private copy: what the file says later is not believed. */
struct ring {
	struct ring_header *header;
	size_t size_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
	uint32_t payload_bytes; /* of one page */
	bool writable;

	/* Of ring_stats.c: what the writers of this process have counted. */
	uint64_t ledger_lock;
	struct ring_account *accounts;
	struct stats departed; /* of those that are gone */
};

static inline uint64_t ring_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
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

/* Collects them: all there is but the state and the sum itself. */
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
 * ring_interval.h: the interval and the heartbeat of a ring, which change while it is written.
 *
 * Only for the ring's own modules: callers use ring.h.
 */

/*
 * How far before any moment in the ring the last record of a target may lie. The file is not to be
 * trusted: believing it costs no more than reading the whole ring.
 */
uint64_t ring_interval_longest_ns(const struct ring *ring);

/*
 * ring.h: the flight recorder: a fixed-size file of pages, mapped by one writing process and any
 * number of readers.
 *
 * Pages. The file is a header followed by page_count pages of page_bytes. A writer (one per sampler
 * thread) owns the page it is filling and claims the next by one atomic step on a sequence number;
 * page s lives in slot s % page_count. A page carries magic, version, its sequence number, time
 * range, target-table generation and, once sealed, a checksum.
 *
 * Records. Every page can be read without the pages before it: it begins with a tick record, and
 * the first record of a target in a page holds all its fields (a key record); later ones hold only
 * fields that changed. A target that did not change costs nothing until its heartbeat. Descriptions
 * of targets (target.h) are records too: they are written again whenever the last copy is older
 * than a quarter of the ring, and with the record that says a target is gone, so every description
 * a living page needs is in the ring and nothing grows for ever.
 *
 * Publishing. Records become visible together when the tick ends, by one release store. A tick
 * larger than a page goes on in the next one. A tick that was not ended (its writer died) is never
 * seen.
 *
 * Readers. Lossy ones map the file read-only, copy, then check that the page was not recycled
 * meanwhile. One blocking reader keeps a cursor in the file that writers do not overtake: they are
 * told RING_HELD instead.
 *
 * The file is never truncated in place; a new ring replaces an old one by rename, so a reader never
 * gets SIGBUS. The layout of the file is described in docs/ring.md.
 */

struct ring_writer;
struct ring_cursor;

/* Conditions (positive returns). */
enum {
	RING_HELD = 1,      /* a blocking reader holds the next page: back off */
	RING_UNCHANGED = 2, /* nothing was written because nothing changed */
	RING_EMPTY = 3,     /* the reader has caught up */
	RING_BUSY = 4,      /* another blocking reader is attached */
};

/* Whether the process with this pid and start time (stat starttime, clock ticks) still runs. */
typedef bool ring_alive(int32_t pid, uint64_t start_ticks);

struct ring_options {
	uint64_t size_bytes;   /* of the whole file; rounded down to whole pages. 0: 16 MiB. At least 4 pages. */
	uint32_t page_bytes;   /* a power of two, 4 KiB .. 1 MiB. 0: 64 KiB. */
	uint64_t interval_ns;  /* of the sampler, for readers; see ring_writer_retune */
	uint64_t heartbeat_ns; /* a target unchanged for this long is written once more. 0: 1 s */
	uint8_t boot_id[16];   /* which boot the monotonic times belong to */
	int32_t pid;           /* of the writer */
	uint64_t start_ticks;  /* its start time */
	uint32_t mode;         /* permissions of the file. 0: 0640 */
};

/* What the header says; a snapshot. */
struct ring_info {
	uint64_t size_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
	uint64_t heartbeat_ns; /* in force */
	uint64_t
		idle_ns; /* the longest pause between two looks at a process, in force; 0: none, each tick is a look at all */
	uint8_t boot_id[16];
	int32_t pid;
	uint64_t start_ticks;
	bool clean;        /* the writer said goodbye (ring_finish) */
	uint64_t next_seq; /* pages claimed so far */
	mono_t last_tick;  /* time of the last published tick */
	uint64_t ticks;    /* ticks published, by all writers */
	uint64_t writers;  /* there ever were: each ticks by itself */
};

/* ---- the file ---- */

/*
 * Makes a new ring under a temporary name, fills in its header, renames it to name (an old file of
 * that name lives on for those who have it mapped). 0; -errno; -EINVAL for options out of range.
 */
int ring_create(int dirfd, const char *name, const struct ring_options *options, struct ring **ret);

/*
 * Maps an existing ring. Read-only unless writable (a blocking reader needs that). 0; -errno of
 * open; -EBADMSG: not a ring, of another version, or its header contradicts its size.
 */
int ring_open(int dirfd, const char *name, bool writable, struct ring **ret);

/*
 * How large a ring file is that begins with these bytes (4 KiB of them), by its own words: what is
 * left of one that was cut off can be opened when it is made that long again; pages that are
 * missing then count as damaged or never used. 0; -EBADMSG: not a ring, or of another version.
 */
int ring_size(const void *head, size_t len, uint64_t *ret_bytes);

/* A ring in anonymous shared memory: the same object without a name. */
int ring_create_anonymous(const struct ring_options *options, struct ring **ret);

/*
 * Locks the mapping into memory. 0 or -errno (ENOMEM, EPERM: beyond RLIMIT_MEMLOCK): the ring works
 * all the same.
 */
int ring_lock(struct ring *ring);

/* Marks the ring as ended in good order. */
void ring_finish(struct ring *ring);

/* Unmaps. NULL is fine. Writers and cursors of this ring must be gone. */
void ring_free(struct ring *ring);
CLEANUP(ring, free);

/* What the header says at this moment; each figure by itself. */
void ring_info(const struct ring *ring, struct ring_info *ret);

/*
 * Between two ticks, as the sampler was last told and has put into effect: the one place that says
 * so. A CPU budget that is exceeded makes it longer for a while (stats.collection_rate).
 */
uint64_t ring_interval_ns(const struct ring *ring);

/*
 * The counters of all writers in one (stats_merge), each as of its last published tick; consistent.
 * 0; -EAGAIN if they were being written all the time.
 */
int ring_stats(const struct ring *ring, struct stats *ret);

/*
 * Detaches the blocking reader if alive says that it is dead: otherwise it would hold the writers
 * for ever. For the daemon, when RING_HELD persists. Whether it did.
 */
bool ring_evict_reader(struct ring *ring, ring_alive *alive);

/* ---- writing ---- */

/*
 * What the writer remembers of a target. Zeroed with target set is the right start; belongs to the
 * caller.
 */
struct ring_track {
	const void *description; /* target_encode()d; must live as long as the track */
	uint32_t description_len;
	uint32_t id;
	uint64_t described_seq; /* page + 1 of the last description; 0: never */
	uint64_t key_seq;       /* page + 1 of the last key record; 0: never */
	mono_t written;         /* time of the last record */
	struct sample last;     /* as last written */
};

/*
 * 0 or -ENOMEM. The ring must outlive the writer. All memory is taken here: nothing below
 * allocates.
 */
int ring_writer_new(struct ring *ring, struct ring_writer **ret);

/*
 * From the next tick of any writer on the sampler's interval and the heartbeat are these (0: 1 s);
 * readers see them in ring_info. One writer of a ring does that, between its ticks.
 */
void ring_writer_retune(struct ring_writer *writer, uint64_t interval_ns, uint64_t heartbeat_ns);

/*
 * From the next tick of this writer on processes that do not change are looked at less often, with
 * pauses of at most idle_ns (0: in every tick), as idle_backoff.h says. Every tick says so to its
 * readers; ring_info has what was said last, by whichever writer. In whole us, rounded up.
 */
void ring_writer_idle(struct ring_writer *writer, uint64_t idle_ns);

/* Seals the page that was being filled. NULL is fine. */
void ring_writer_free(struct ring_writer *writer);

/*
 * Begins a tick at time now. worst_bytes: what this tick may need at most (RING_RECORD_MAX per
 * target), so that a tick either begins with its pages at hand or does not begin. wall: the same
 * moment on the wall clock. A tick that may need more than half of the ring begins when half is
 * free. 0; RING_HELD: nothing was begun.
 */
int ring_tick_begin(struct ring_writer *writer, mono_t now, wall_t wall, uint64_t worst_bytes);

/* Of a target in one tick: ring_put_still and ring_put_sample. */
#define RING_TARGET_MAX (RING_RECORD_MAX + 16 + 8 * SAMPLE_FIELDS)

#define RING_RECORD_MAX (TARGET_ENCODED_MAX + 16 + 16 + 8 * SAMPLE_FIELDS)

/*
 * Adds what a target looks like at `at` (between begin and end of this tick's collection). 0;
 * RING_UNCHANGED: no bytes (same as last time and no heartbeat due); RING_HELD: lost and counted
 * (only possible with several writers or a worst_bytes that was too small).
 */
int ring_put_sample(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample);

/*
 * Adds that a target was at `at` as it was last written: before a ring_put_sample of the same tick,
 * whose reader then knows since when it has been otherwise. 0; RING_UNCHANGED: that is known, its
 * last record is not from before; RING_HELD as above.
 */
int ring_put_still(struct ring_writer *writer, struct ring_track *track, mono_t at);

enum ring_gone_reason { RING_GONE_EXITED = 1, RING_GONE_UNWATCHED = 2 };

/*
 * Adds the last record of a target: its description and why it ended. Returns as ring_put_sample.
 */
int ring_put_gone(struct ring_writer *writer, struct ring_track *track, mono_t at, enum ring_gone_reason reason);

/*
 * Publishes the tick; stats (NULL: none) become readable with it. Of them records, bytes and
 * lost_records are this writer's own counts, whatever they say.
 */
void ring_tick_end(struct ring_writer *writer, const struct stats *stats);

/* Sets records, bytes and lost_records of stats to what this writer has counted. */
void ring_writer_account(const struct ring_writer *writer, struct stats *ret);

/*
 * The counters of one writer of this process, by its number: they are numbered from 0 in the order
 * in which they were made. Any thread; may wait for a moment. 0; -ENOENT: there is none, or it has
 * published none.
 */
int ring_writer_stats(struct ring *ring, uint64_t writer, struct stats *ret);

/* ---- reading ---- */

enum ring_event_type {
	RING_EVENT_TICK = 1, /* a tick begins; its samples follow */
	RING_EVENT_SAMPLE,   /* a target as it is now, in full */
	RING_EVENT_TARGET,   /* a description not seen before by this cursor, before the first sample of its target */
	RING_EVENT_GONE,     /* a target ended */
	RING_EVENT_TICK_END, /* all of the tick was delivered (a tick over several pages has one end) */
	RING_EVENT_LAPPED,   /* the writer overtook this reader: pages were lost */
	RING_EVENT_DAMAGED,  /* a page that fails its checksum or structure was skipped */
};

/*
 * What is not said to belong to the type of an event is unspecified; type, time and tick always are
 * set. Ticks of several writers come in the order of their numbers, in which they were published,
 * as far as that can be told: a number may come a little after a greater one. Their times overlap;
 * those of one writer rise. A target stays with its writer.
 */
struct ring_event {
	enum ring_event_type type;
	mono_t time;      /* of the tick; of the sample itself */
	wall_t wall;      /* TICK: wall clock of the tick */
	uint64_t idle_ns; /* TICK: the longest pause between two looks at a process (idle_backoff.h); 0: none */
	uint64_t tick;    /* number of the tick, counting from 0 without gaps, over all writers */
	uint32_t writer;  /* whose tick it is; SAMPLE, TARGET: whose target; not of LAPPED, DAMAGED */
	uint32_t id;      /* target */
	const struct sample *sample;  /* SAMPLE: full state; valid until the next call */
	uint32_t changed;             /* SAMPLE: mask of the fields in this record */
	struct target target;         /* TARGET; GONE, if id is not 0 in it: strings valid until the next call */
	enum ring_gone_reason reason; /* GONE */
	uint64_t lost_pages;          /* LAPPED, DAMAGED */
};

enum ring_start { RING_OLDEST, RING_NEWEST };

/*
 * A lossy reader. RING_OLDEST starts at the oldest page there is, RING_NEWEST after the last
 * published tick (state of targets and their descriptions are then taken from the pages before, and
 * delivered as TARGET and SAMPLE events first). 0 or -ENOMEM.
 */
int ring_cursor_new(const struct ring *ring, enum ring_start start, struct ring_cursor **ret);

/*
 * The blocking reader, from the oldest page on; ring must be mapped writable. pid and start_ticks
 * identify this reader: a dead one is replaced (alive tells, NULL: nobody is ever dead). 0;
 * RING_BUSY; -ENOMEM.
 */
int ring_cursor_new_blocking(struct ring *ring, int32_t pid, uint64_t start_ticks, ring_alive *alive,
			     struct ring_cursor **ret);

/* Detaches and frees. NULL is fine. */
void ring_cursor_free(struct ring_cursor *cursor);
CLEANUP(ring_cursor, free);

/*
 * Delivers the next event. 0; RING_EMPTY: nothing new is published (call again later); -ENOMEM.
 * Only whole ticks are delivered.
 */
int ring_cursor_next(struct ring_cursor *cursor, struct ring_event *ret);

/*
 * Skips ticks before `since`; descriptions and states are as if they had been read, and a
 * description comes before the first sample of its target as ever. Only before the first
 * ring_cursor_next. 0.
 */
int ring_cursor_seek(struct ring_cursor *cursor, mono_t since);

/*
 * Delivers samples, descriptions and ends of this target alone, beside the ticks and losses:
 * several times as fast. Its description comes when it is met, which may be after its first sample.
 * Only before the first ring_cursor_next.
 */
void ring_cursor_only(struct ring_cursor *cursor, uint32_t id);

/*
 * The description of a target if this cursor has seen it, else false. Strings valid until the next
 * ring_cursor_next.
 */
bool ring_cursor_target(const struct ring_cursor *cursor, uint32_t id, struct target *ret);

/*
 * ring_stats.h: the counters of all writers of a ring in one, for its header. Each writer of this
 * process has an account; whoever posts to one publishes the sum of all.
 *
 * Only for the ring's own modules: callers use ring.h.
 */

struct ring_account {
	struct ring_account *next;
	uint64_t writer; /* its number */
	bool used;       /* something was posted */
	bool unposted;   /* the owner's: kept says more than stats */
	struct stats stats;
	struct stats kept;
};

/*
 * ring_copy.h: a private copy of one page, taken piece by piece while its writer fills it, and
 * checked before anything of it is believed.
 *
 * Only for the ring's own modules: callers use ring.h.
 */

/*
 * have and parsed are offsets into payload. What lies between them is valid and begins with a TICK
 * record.
 */
struct ring_copy {
	struct ring_copy *spare; /* the next of a list of unused copies: the owner's */
	uint64_t seq;
	uint32_t writer; /* its number; valid once have > 0 */
	uint64_t prev;   /* as in struct ring_page; valid once have > 0 */
	uint64_t next;   /* likewise, when the last TICK says RING_TICK_MORE */
	uint32_t have;   /* bytes copied */
	uint32_t parsed; /* bytes consumed: the owner's */
	bool complete;   /* the page was sealed: nothing more will come */
	uint64_t payload[];
};

/*
 * ring_follow.h: which pages a reader is reading, and where the next tick is.
 *
 * Only for the ring's own modules: callers use ring.h.
 */

struct ring_follow {
	const struct ring *ring;
	struct ring_header *attached; /* blocking reader: where its slot is; else NULL */
	uint64_t owner;               /* blocking reader: what its slot says */
	uint64_t next;                /* the first page not looked at yet */
	struct ring_copy **pages;     /* begun and not finished, ascending; room for all the pages of the ring */
	uint32_t count;
	struct ring_copy *spare;
	uint64_t lost;    /* pages that were recycled before they were read; the owner clears it */
	uint64_t damaged; /* pages given up; likewise */
};

/* Starts at the oldest page there is. 0 or -ENOMEM. */
int ring_follow_init(struct ring_follow *follow, const struct ring *ring);

/* Detaches and frees; {0} is fine. */
void ring_follow_release(struct ring_follow *follow);

/*
 * Leaves out the pages that end before since, except as many before the first other one as its
 * targets may need for their descriptions and states. Only while nothing was found yet.
 */
void ring_follow_skip(struct ring_follow *follow, uint64_t since_ns);

struct ring_state {
	uint32_t id;
	uint32_t writer;   /* whose target it is: the cursor's */
	bool announced;    /* the description was delivered: the cursor's */
	uint64_t key_page; /* sequence number + 1 of the page whose key record `sample` comes from; 0: no sample */
	uint64_t seen;     /* sequence number of the last page that mentioned the target */
	mono_t at;         /* time of sample */
	void *description; /* as target_encode() made it; NULL: not known */
	uint32_t description_len;
	struct sample sample;
};

/* {0} is empty and legal. A state stays where it is until it is dropped. */
struct ring_states {
	struct ring_state **slots;
	size_t count;
	size_t cap; /* 0 or a power of two */
};

/* Forgets all; the map is empty and usable again. */
void ring_states_release(struct ring_states *states);

/* NULL: not known. */
struct ring_state *ring_states_find(const struct ring_states *states, uint32_t id);

/*
 * Finds or makes the state of id and notes that page seq mentions it. NULL: no memory, and nothing
 * changed.
 */
struct ring_state *ring_states_touch(struct ring_states *states, uint32_t id, uint64_t seq);

/* Sets the description. 1: it differs from before; 0: it is the same; -ENOMEM. */
int ring_state_describe(struct ring_state *state, const void *description, uint32_t len);

/* Forgets one. */
void ring_states_drop(struct ring_states *states, uint32_t id);

/* Forgets all that no page from seq on has mentioned. */
void ring_states_expire(struct ring_states *states, uint64_t seq);

/*
 * The first one at or behind slot *position, which is moved behind it. NULL: no more. For a walk
 * without changes.
 */
struct ring_state *ring_states_walk(const struct ring_states *states, size_t *position);

#endif
