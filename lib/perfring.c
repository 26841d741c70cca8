/*
 * perfring.c: both kinds of ring, by the kernel's free-running data_head.
 *
 * Overwriting ring: the kernel writes towards lower addresses, so data_head is the newest record and older ones follow, up to one
 * ring's length further on, where the oldest is cut by the newest:
 *
 *     head                                   head + size
 *      │ newest │ older │ ...  │ oldest, cut │
 *
 * The copy is taken whole first (two pieces, where the ring wraps) and walked afterwards, so that the ring is still for no longer
 * than that. If head has moved down by n bytes when the copy is done, its last n bytes may be newer than their surroundings: they are
 * left out. A ring that has not come round is copied as far as it was written.
 *
 * Forward ring: data_tail is the reader's; the kernel does not write beyond it by more than the ring's size. A record that wraps is
 * put together in the caller's scratch.
 */
#include "perfring.h"

#include <errno.h>
#include <string.h>

int perfring_init(struct perfring *ring, void *base, size_t map_bytes, size_t page_bytes)
{
	size_t size = map_bytes - page_bytes;

	if (map_bytes <= page_bytes || page_bytes < sizeof(struct perf_event_mmap_page) || (size & (size - 1)) != 0)
		return -EINVAL;
	*ring = (struct perfring){ base, (const uint8_t *)base + page_bytes, size };
	return 0;
}

/* What was published up to head is seen by whoever saw head. */
static uint64_t load_head(const struct perfring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

/* len bytes from the free-running position on, in two pieces where the ring wraps. */
static void copy_out(const struct perfring *ring, uint64_t position, void *buf, size_t len)
{
	size_t at = (size_t)(position & (ring->size - 1));
	size_t first = len < ring->size - at ? len : ring->size - at;

	memcpy(buf, ring->data + at, first);
	memcpy((uint8_t *)buf + first, ring->data, len - first);
}

void perfring_snapshot(const struct perfring *ring, void *buf, size_t *ret_len, bool *ret_torn)
{
	uint64_t head = load_head(ring), written = 0 - head, moved;
	size_t len = 0, end = written < ring->size ? (size_t)written : ring->size, unused = ring->size - end;
	bool torn = false;

	copy_out(ring, head, buf, end);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	moved = head - load_head(ring);
	/* What was never written gives way first. */
	moved -= moved < unused ? moved : unused;
	end -= moved < end ? (size_t)moved : end;
	while (end - len >= sizeof(struct perf_event_header)) {
		struct perf_event_header header;

		memcpy(&header, (const uint8_t *)buf + len, sizeof(header));
		if (header.type == 0 && header.size == 0)
			break;
		if (header.size < sizeof(header) || header.size % PERFRECORD_ALIGN != 0) {
			torn = true;
			break;
		}
		if (header.size > end - len)
			break;
		len += header.size;
	}
	*ret_len = len;
	if (ret_torn != NULL)
		*ret_torn = torn;
}

bool perfring_came_round(const struct perfring *ring)
{
	return 0 - load_head(ring) > ring->size;
}

uint64_t perfring_head(const struct perfring *ring)
{
	return load_head(ring);
}

/* How many there were in `written` bytes, if all were like the `count` of len bytes that are still there. */
static size_t estimate(uint64_t written, size_t count, uint64_t len, size_t most)
{
	double all = (double)count * (double)written / (double)len;

	return all < (double)most ? (size_t)all : most;
}

/* Near its end the ring may be written to meanwhile: what makes no sense there is only the end of what can be counted. */
size_t perfring_count(const struct perfring *ring, uint64_t since, size_t most)
{
	uint64_t head = load_head(ring), written = since - head, len = 0;
	size_t count = 0;

	while (len != written && count < most) {
		struct perf_event_header header;

		memcpy(&header, ring->data + (size_t)((head + len) & (ring->size - 1)),
		       sizeof(header)); /* aligned: does not wrap */
		if (header.size < sizeof(header) || header.size % PERFRECORD_ALIGN != 0 ||
		    header.size > ring->size - len || header.size > written - len)
			return written > ring->size && count > 0 ? estimate(written, count, len, most) : most;
		len += header.size;
		count++;
	}
	return count;
}

/* The record at tail, whole: in the ring, or put together in scratch. NULL: it makes no sense. */
static const struct perf_event_header *record_at(const struct perfring *ring, uint64_t tail, uint64_t head,
						 void *scratch)
{
	size_t at = (size_t)(tail & (ring->size - 1));
	struct perf_event_header header;

	if (at % PERFRECORD_ALIGN != 0 || head - tail < sizeof(header))
		return NULL;
	memcpy(&header, ring->data + at, sizeof(header)); /* aligned: does not wrap */
	if (header.size < sizeof(header) || header.size % PERFRECORD_ALIGN != 0 || header.size > head - tail)
		return NULL;
	if (header.size <= ring->size - at)
		return (const void *)(ring->data + at);
	copy_out(ring, tail, scratch, header.size);
	memcpy(scratch, &header, sizeof(header));
	return scratch;
}

int perfring_drain(struct perfring *ring, void *scratch, perfring_take *take, void *ctx)
{
	uint64_t head = load_head(ring), tail = ring->page->data_tail;
	int r = head - tail > ring->size ? -EBADMSG : 0;

	while (r == 0 && tail != head) {
		const struct perf_event_header *record = record_at(ring, tail, head, scratch);

		if (record == NULL) {
			r = -EBADMSG;
			break;
		}
		tail += record->size;
		r = take(ctx, record, record->size);
	}
	if (r == -EBADMSG)
		tail = head;
	__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
	return r;
}
