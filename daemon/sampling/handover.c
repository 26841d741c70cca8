/*
 * handover.c: head is written by the producer only, tail by the consumer only. The release store of one, read with acquire
 * by the other, orders the item between them. Each on a cache line of its own: the two sides do not slow each other down.
 */
#include "handover.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

struct handover {
	uint32_t mask;
	_Alignas(64) _Atomic uint32_t head;
	_Alignas(64) _Atomic uint32_t tail;
	_Alignas(64) struct handover_item items[];
};

int handover_new(uint32_t capacity, struct handover **ret)
{
	assert(capacity && (capacity & (capacity - 1)) == 0);

	size_t size = sizeof(struct handover) + capacity * sizeof(struct handover_item);
	struct handover *handover = aligned_alloc(64, (size + 63) / 64 * 64);

	if (!handover)
		return -ENOMEM;

	handover->mask = capacity - 1;
	atomic_init(&handover->head, 0);
	atomic_init(&handover->tail, 0);
	*ret = handover;

	return 0;
}

void handover_free(struct handover *handover)
{
	free(handover);
}

bool handover_room(const struct handover *handover)
{
	uint32_t head = atomic_load_explicit(&handover->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&handover->tail, memory_order_acquire);

	return head - tail <= handover->mask;
}

bool handover_put(struct handover *handover, struct handover_item item)
{
	if (!handover_room(handover))
		return false;

	uint32_t head = atomic_load_explicit(&handover->head, memory_order_relaxed);

	handover->items[head & handover->mask] = item;
	atomic_store_explicit(&handover->head, head + 1, memory_order_release);

	return true;
}

bool handover_take(struct handover *handover, struct handover_item *ret)
{
	uint32_t tail = atomic_load_explicit(&handover->tail, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&handover->head, memory_order_acquire);

	if (head == tail)
		return false;

	*ret = handover->items[tail & handover->mask];
	atomic_store_explicit(&handover->tail, tail + 1, memory_order_release);

	return true;
}
