/*
 * watchtable.h: all watched targets, by id and in a row, and which of them were sampled since the last tick. Pure.
 * Cost: looking up, adding and removing do not depend on how many there are, but for removing one that was sampled in this tick.
 */
#ifndef SPIKEWATCH_WATCHTABLE_H
#define SPIKEWATCH_WATCHTABLE_H

#include "clock.h"
#include "watch.h"

#include <stddef.h>
#include <stdint.h>

/* {0} is empty and legal. Read watches [0, count); the rest is this module's. */
struct watchtable {
	struct watch **watches;
	size_t count;
	struct watch **buckets;
	size_t capacity; /* of both: 0 or a power of two */
	struct watch *touched;
};

/* Frees the table and every watch in it. */
void watchtable_release(struct watchtable *table);

/* NULL: there is none. */
struct watch *watchtable_find(const struct watchtable *table, uint32_t id);

/* Makes room for one more. 0 or -ENOMEM. */
int watchtable_reserve(struct watchtable *table);

/* Takes watch, for which there must be room, and whose id must be new. */
void watchtable_add(struct watchtable *table, struct watch *watch);

/* Frees watch; the last one in the row takes its place. */
void watchtable_remove(struct watchtable *table, struct watch *watch);

/* It was sampled. */
void watchtable_touch(struct watchtable *table, struct watch *watch);

/* The tick of this line that the samples since the last call came with is over: its time is known now, and how far from it they were. */
void watchtable_settle(struct watchtable *table, uint32_t line, mono_t now);

/* Whatever was sampled since the last tick came with none. */
void watchtable_forget(struct watchtable *table);

#endif
