/*
 * handover.h: passes pointers from one thread to one other without locks: a bounded queue with one producer and one
 * consumer. Counters run free and are compared by difference.
 */
#ifndef SPIKEWATCH_HANDOVER_H
#define SPIKEWATCH_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct handover;

/* One thing handed over. `what` is up to the two sides. */
struct handover_item {
	uint32_t what;
	void *pointer;
};

/* capacity: a power of two. 0 or -ENOMEM. All memory is taken here. */
int handover_new(uint32_t capacity, struct handover **ret);

/* What is still inside is forgotten. NULL is fine. */
void handover_free(struct handover *handover);

/* Producer only. False: full, nothing was passed. */
bool handover_put(struct handover *handover, struct handover_item item);

/* Producer only: whether the next put will fit. */
bool handover_room(const struct handover *handover);

/* Consumer only. False: empty. */
bool handover_take(struct handover *handover, struct handover_item *ret);

#endif
