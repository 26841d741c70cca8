/*
 * ring.h: the flight recorder: a file of fixed size, made of pages, that is mapped by one writing
 * process and any number of readers.
 *
 * Pages. The file is a header followed by page_count pages of page_bytes. A writer (one per sampler
 * thread) owns the page that it is filling and claims the next one by one atomic step on a sequence
 * number; page s lies in slot s % page_count. A page carries a magic number with its version, its
 * sequence number, its time range, the generation of the target table and, once sealed, a checksum.
 *
 * Records. A page can be read without the pages before it: it begins with a tick record, and the
 * first record of a target in a page holds all its fields (a key record); later ones hold only the
 * fields that changed. A target that did not change costs nothing until its heartbeat. Descriptions
 * of targets (target.h) are records too. They are written again whenever the last copy is older than
 * a quarter of the ring, and with the record that says a target is gone, so every description that
 * a page needs is in the ring.
 *
 * Publishing. The records of a tick become visible together when it ends, by one release store. A
 * tick larger than a page continues in the next one. A tick that was not ended (its writer died) is
 * never visible.
 *
 * Readers. Lossy readers map the file read-only, copy a page, then check that it was not recycled
 * meanwhile. One blocking reader keeps a cursor in the file that writers do not overtake: they get
 * RING_HELD instead.
 *
 * The file is never truncated in place; a new ring replaces an old one by rename, so readers never
 * get SIGBUS. docs/ring.md describes the layout and the memory orderings.
 */
#ifndef SPIKEWATCH_LIB_RING_RING_H
#define SPIKEWATCH_LIB_RING_RING_H

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stdint.h>

struct ring;
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
	uint64_t size_bytes; /* of the file, rounded down to whole pages and their header; from 4 pages on. 0: 16 MiB */
	uint32_t page_bytes; /* a power of two, 4 KiB .. 1 MiB. 0: 64 KiB. */
	uint64_t interval_ns;  /* of the sampler, for readers; see ring_writer_retune */
	uint64_t heartbeat_ns; /* a target unchanged for this long is written once more. 0: 1 s */
	uint8_t boot_id[16];   /* which boot the monotonic times belong to */
	int32_t pid;           /* of the writer */
	uint64_t start_ticks;  /* its start time */
	uint32_t mode;         /* permissions of the file. 0: 0640, less the umask */
};

/* What the header says; a snapshot. */
struct ring_info {
	uint64_t size_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
	uint64_t heartbeat_ns;         /* in force */
	uint64_t longest_heartbeat_ns; /* of those under which anything in the ring was written */
	uint64_t
		idle_ns; /* the longest pause between two reads of a process, in force; 0: all are read in every tick */
	uint8_t boot_id[16];
	int32_t pid;
	uint64_t start_ticks;
	bool clean;                /* the writer has ended it (ring_finish) */
	uint64_t next_seq;         /* pages claimed so far */
	mono_t last_tick;          /* time of the last published tick */
	uint64_t ticks;            /* ticks published, by all writers */
	uint64_t writers;          /* that there were so far: each ticks by itself */
	mono_t unwritten_from;     /* ring_set_unwritten */
	double unwritten_severity; /* the same; finite */
};

/* ---- the file ---- */

/*
 * Makes a new ring under a temporary name, fills in its header, renames it to name (an old file of
 * that name stays valid where it is mapped). 0; -errno; -EINVAL for options out of range.
 */
int ring_create(int dirfd, const char *name, const struct ring_options *options, struct ring **ret);

/*
 * Maps an existing ring. Read-only unless writable (a blocking reader needs that). 0; -errno of
 * open; -EBADMSG: not a ring, of another version, or its header contradicts its size.
 */
int ring_open(int dirfd, const char *name, bool writable, struct ring **ret);

/* What a ring file lacks. */
struct ring_damage {
	uint64_t missing_bytes;    /* the file is that much too short */
	uint64_t unreadable_bytes; /* in blocks that gave an I/O error */
};

/*
 * Opens a ring that a killed daemon has left, read-only, also if its file is cut off or has sectors
 * that cannot be read, which in a mapping would be a SIGBUS: reads the file once. Where all of it is
 * there the ring is the file itself, else a copy in memory that has zeros for what is missing; the
 * missing pages then count as damaged or never used. 0, *ret and *ret_damage; -EBADMSG: not a ring,
 * of another version, or without its header; -ENOMEM; -errno.
 */
int ring_open_damaged(const char *path, struct ring **ret, struct ring_damage *ret_damage);

/* A ring in anonymous shared memory: the same object without a name. */
int ring_create_anonymous(const struct ring_options *options, struct ring **ret);

/* Locks the mapping into memory. 0 or -errno (ENOMEM, EPERM: beyond RLIMIT_MEMLOCK): it works without. */
int ring_lock(struct ring *ring);

/*
 * For the next daemon, should this one be killed: the begin of the earliest window of an incident
 * that is not on the disk yet (0: there is none), and how severe the worst of these is. Any thread.
 */
void ring_set_unwritten(struct ring *ring, mono_t from, double severity);

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
 * Detaches the blocking reader if alive says that its process is dead: it would hold the writers for
 * ever. For the daemon, while RING_HELD persists. Whether it was detached.
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
 * Sets the interval of the sampler and the heartbeat (0: 1 s), from the next tick of any writer on;
 * readers see them by ring_interval_ns and ring_info. One writer of a ring does that, between ticks.
 */
void ring_writer_retune(struct ring_writer *writer, uint64_t interval_ns, uint64_t heartbeat_ns);

/*
 * From the next tick of this writer on, processes that do not change are read less often, with
 * pauses of at most idle_ns (0: in every tick; idle_backoff.h). Every tick carries it; ring_info has
 * the last one of any writer. In whole us, rounded up.
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
 * Adds a sample of a target, taken at `at` (between begin and end of this tick's collection). 0;
 * RING_UNCHANGED: no bytes (same as last time and no heartbeat due); RING_HELD: lost and counted
 * (only possible with several writers or a worst_bytes that was too small).
 */
int ring_put_sample(struct ring_writer *writer, struct ring_track *track, mono_t at, const struct sample *sample);

/*
 * Adds that a target was unchanged at `at`, before a ring_put_sample of the same tick: readers then
 * know since when it can have changed. 0; RING_UNCHANGED: they know already, its last record is not
 * older; RING_HELD as above.
 */
int ring_put_still(struct ring_writer *writer, struct ring_track *track, mono_t at);

/*
 * Adds that slots were missed since this writer's last tick, or the machine was suspended so long:
 * before the samples of this tick. Before its first tick nothing is missed. Returns as
 * ring_put_sample.
 */
int ring_put_hole(struct ring_writer *writer, uint64_t missed_slots, uint64_t suspended_ns);

enum ring_gone_reason { RING_GONE_EXITED = 1, RING_GONE_UNWATCHED = 2 };

/*
 * Adds the last record of a target: its description and why it ended. Returns as ring_put_sample.
 */
int ring_put_gone(struct ring_writer *writer, struct ring_track *track, mono_t at, enum ring_gone_reason reason);

/*
 * Publishes the tick; stats (NULL: none) become readable with it. Their records, bytes and
 * lost_records are replaced by this writer's own counts.
 */
void ring_tick_end(struct ring_writer *writer, const struct stats *stats);

/* Sets records, bytes and lost_records of stats to what this writer has counted. */
void ring_writer_account(const struct ring_writer *writer, struct stats *ret);

/*
 * The counters of one writer of this process, by its number (from 0, in the order of ring_writer_new).
 * Any thread; may wait for a moment. 0; -ENOENT: there is none, or it has
 * published none.
 */
int ring_writer_stats(struct ring *ring, uint64_t writer, struct stats *ret);

/* ---- reading ---- */

enum ring_event_type {
	RING_EVENT_TICK = 1, /* a tick begins; its samples follow */
	RING_EVENT_SAMPLE,   /* all fields of a target */
	RING_EVENT_TARGET,   /* a description not seen before by this cursor, before the first sample of its target */
	RING_EVENT_GONE,     /* a target ended */
	RING_EVENT_HOLE,     /* the writer missed slots before this tick, or the machine was suspended; then samples */
	RING_EVENT_TICK_END, /* all of the tick was delivered (a tick over several pages has one end) */
	RING_EVENT_LAPPED,   /* the writer overtook this reader: pages were lost */
	RING_EVENT_DAMAGED,  /* a page that fails its checksum or structure was skipped */
};

/*
 * type, time and tick are always set; fields that do not belong to the type are unspecified. Ticks
 * of several writers come in the order of their numbers, which is that of their publication, except
 * that a number may come a little after a greater one. Their times overlap; those of one writer
 * rise. A target stays with its writer.
 */
struct ring_event {
	enum ring_event_type type;
	mono_t time;      /* of the tick; of the sample itself */
	wall_t wall;      /* TICK: wall clock of the tick */
	uint64_t idle_ns; /* TICK: the longest pause between two reads of a process (idle_backoff.h); 0: none */
	uint64_t tick;    /* number of the tick, counting from 0 without gaps, over all writers */
	uint32_t writer;  /* whose tick it is; SAMPLE, TARGET: whose target; not of LAPPED, DAMAGED */
	uint32_t id;      /* target */
	const struct sample *sample;  /* SAMPLE: full state; valid until the next call */
	uint32_t changed;             /* SAMPLE: mask of the fields in this record */
	struct target target;         /* TARGET; GONE, if id is not 0 in it: strings valid until the next call */
	enum ring_gone_reason reason; /* GONE */
	struct sampling_hole hole;    /* HOLE */
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
 * identify this reader: one that is dead is replaced (as alive says; NULL: none ever is). 0;
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
 * Delivers samples, descriptions and ends of this target only, and the ticks and losses: several
 * times as fast. Its description comes where it lies in the ring, which may be after its first
 * sample. Only before the first ring_cursor_next.
 */
void ring_cursor_only(struct ring_cursor *cursor, uint32_t id);

#endif
