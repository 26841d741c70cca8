/*
 * minute_file.h: what is kept of each minute for `spikewatch history`, a row per target, and the form
 * that it has on disk: blocks with a checksum each, which follow each other in a file and need
 * nothing outside of themselves to be read. Not to be confused with the `history` of a rule, which is
 * the average that it compares with. Pure. docs/history.md describes the bytes.
 */
#ifndef SPIKEWATCH_LIB_MINUTES_MINUTE_FILE_H
#define SPIKEWATCH_LIB_MINUTES_MINUTE_FILE_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kind of the row that sums the targets which have none of their own; all others: enum target_kind. */
#define MINUTE_OTHERS 0u

#define MINUTE_TEXT_MAX 255     /* bytes of a name, an entry or an incident's id; what is longer is cut */
#define MINUTE_BLOCK_MINUTES 60 /* of a block, at most */

/* A target in a minute. */
struct minute_row {
	unsigned kind;     /* enum target_kind, or MINUTE_OTHERS */
	const char *name;  /* as in incidents; "" of others */
	const char *entry; /* of the configuration */
	const char *comm;  /* of a process: what it executes, as the kernel cuts it; else "" */
	bool has_cpu, has_memory;
	uint64_t cpu_ns;         /* used in the minute */
	uint32_t cpu_peak_milli; /* thousandths of a core: the most over any minute.peak_ns that ends in it */
	uint64_t memory_bytes;   /* the most, to the next 4 KiB */
	uint64_t throttled_ns;
	uint32_t throttled_permille; /* of the CPU quota's periods */
	uint64_t seen_ns;            /* how long it was watched, of minute.span_ns */
	uint32_t targets;            /* that are summed: 1, or as many as the others are */
};

struct minute_incident {
	const char *id; /* what `spikewatch show` finds it by */
	uint32_t row;   /* of its target; MINUTE_NO_ROW: of all targets, or of one without a row */
};

#define MINUTE_NO_ROW UINT32_MAX

/* Times on disk are whole milliseconds, rounded to the nearest. */
struct minute {
	wall_t begin;          /* a multiple of period_ns */
	uint64_t period_ns;    /* of a full minute: 60 s but in tests */
	uint64_t peak_ns;      /* of the window of cpu_peak_milli */
	uint64_t span_ns;      /* how long the daemon recorded in it */
	uint64_t unsampled_ns; /* of these, in holes of the sampling */
	uint64_t number;       /* 0, 1, 2 ... since the daemon started: one that is missing could not be written */
	struct minute_row *rows;
	size_t row_count;
	struct minute_incident *incidents;
	size_t incident_count;
};

/*
 * Appends one block of 1 to MINUTE_BLOCK_MINUTES minutes. packed: compressed, for good; else as it
 * comes. 0; -ENOMEM; -EFBIG beyond buffer->max, and then nothing was appended.
 */
int minute_block_write(const struct minute *minutes, size_t count, bool packed, struct buffer *buffer);

/* What a block held. {0} is empty and legal; minute_block_release. */
struct minute_block {
	struct minute *minutes;
	size_t count;
	bool packed;
	struct arena arena; /* has all of it */
};

static inline void minute_block_release(struct minute_block *block)
{
	arena_release(&block->arena);
	*block = (struct minute_block){ 0 };
}

/*
 * A walk over the blocks of a file. Set data and len, and from and until for the blocks that overlap
 * [from, until) alone (until 0: no such bound); the rest starts zeroed.
 */
struct minute_scan {
	const char *data;
	size_t len;
	wall_t from, until;
	size_t at;          /* the end of the last block */
	size_t whole;       /* the same, of the last one that was whole: what follows is torn or damaged */
	size_t blocks;      /* whole ones, skipped ones included */
	size_t minutes;     /* in them */
	uint64_t period_ns; /* of them, added up */
	size_t damaged;     /* stretches of bytes that are no block */
	size_t damaged_bytes;
};

/* Conditions (positive returns). */
enum {
	MINUTE_END = 1,     /* there is no more */
	MINUTE_DAMAGED = 2, /* bytes were skipped that are no whole block: call again for what follows */
};

/*
 * The next block into *ret, to be released; that of the call before must be. 0; MINUTE_END;
 * MINUTE_DAMAGED; -ENOMEM. Each call moves forward, whatever the bytes are.
 */
int minute_block_next(struct minute_scan *scan, struct minute_block *ret);

#endif
