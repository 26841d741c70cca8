/*
 * ring_states.h: what a reader remembers of the targets it has met: a map from id to last sample and description.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_STATES_H
#define SPIKEWATCH_RING_STATES_H

#include "clock.h"
#include "sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Finds or makes the state of id and notes that page seq mentions it. NULL: no memory, and nothing changed. */
struct ring_state *ring_states_touch(struct ring_states *states, uint32_t id, uint64_t seq);

/* Sets the description. 1: it differs from before; 0: it is the same; -ENOMEM. */
int ring_state_describe(struct ring_state *state, const void *description, uint32_t len);

/* Forgets one. */
void ring_states_drop(struct ring_states *states, uint32_t id);

/* Forgets all that no page from seq on has mentioned. */
void ring_states_expire(struct ring_states *states, uint64_t seq);

/* The first one at or behind slot *position, which is moved behind it. NULL: no more. For a walk without changes. */
struct ring_state *ring_states_walk(const struct ring_states *states, size_t *position);

#endif
