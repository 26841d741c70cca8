/*
 * perfring.h: the two ways to read a ring that the kernel writes for perf_event_open(2): a picture of one that
 * overwrites its oldest (attr.write_backward), and the emptying of one that waits for its reader. Works on any memory of
 * that layout; what is in it is not believed.
 */
#ifndef SPIKEWATCH_PERFRING_H
#define SPIKEWATCH_PERFRING_H

#include "perfrecord.h"

/* One mapping: the page of the kernel's, then `size` bytes. Not owned. */
struct perfring {
	struct perf_event_mmap_page *page;
	const uint8_t *data;
	size_t size; /* a power of two */
};

/*
 * base of map_bytes as mmap(2) gave it: a page of page_bytes and a power of two of them.
 * 0; -EINVAL: not of that shape.
 */
int perfring_init(struct perfring *ring, void *base, size_t map_bytes, size_t page_bytes);

/*
 * Copies what an overwriting ring holds into buf, which is aligned to PERFRECORD_ALIGN and has room for ring->size:
 * whole records, the newest first, until the ring's end or the first that was overwritten meanwhile. Best while the
 * ring's output is paused; without that, what was written during the copy is left out and so is what it may have hit.
 * *ret_len bytes; *ret_torn (may be NULL): the walk ended at a record that makes no sense instead of at the ring's end.
 */
void perfring_snapshot(const struct perfring *ring, void *buf, size_t *ret_len, bool *ret_torn);

/* Whether an overwriting ring has come round: if not, it holds everything since it was opened. */
bool perfring_came_round(const struct perfring *ring);

/* Where an overwriting ring is, for perfring_count. */
uint64_t perfring_head(const struct perfring *ring);

/*
 * How many records were written to an overwriting ring since it was at `since`, which it goes on writing to; `most` if there are more. Of those that
 * are overwritten already it is taken that they were as long as those that are not. Looks at so many of them.
 */
size_t perfring_count(const struct perfring *ring, uint64_t since, size_t most);

/* Takes one record of len bytes, aligned. 0 goes on; anything else ends perfring_drain and is its result. */
typedef int perfring_take(void *ctx, const struct perf_event_header *record, size_t len);

/*
 * Hands every record of a forward ring that is there now to take, oldest first, and gives their room back to the kernel.
 * scratch: PERFRECORD_SIZE_MAX bytes, aligned, for those that wrap. 0; what take returned (that record counts as taken);
 * -EBADMSG: a record that makes no sense: everything up to the kernel's head was thrown away.
 */
int perfring_drain(struct perfring *ring, void *scratch, perfring_take *take, void *ctx);

#endif
