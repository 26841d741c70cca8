/*
 * ring_states.c: open addressing with linear probing, at most three quarters full. A removal moves the entries behind
 * it up, so there are no tombstones and a map whose targets come and go for ever does not degrade.
 */
#include "ring_states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN 64

/* Where id wants to be: ids count up, so the multiplication by the golden ratio spreads them. */
static size_t home(const struct ring_states *states, uint32_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ULL) >> 32) & (states->cap - 1);
}

/* The slot that holds id, or the empty one where it would be. */
static size_t slot_of(const struct ring_states *states, uint32_t id)
{
	size_t slot = home(states, id);

	while (states->slots[slot] != NULL && states->slots[slot]->id != id)
		slot = (slot + 1) & (states->cap - 1);
	return slot;
}

static void state_free(struct ring_state *state)
{
	if (state == NULL)
		return;

	free(state->description);
	free(state);
}

void ring_states_release(struct ring_states *states)
{
	for (size_t i = 0; i < states->cap; i++)
		state_free(states->slots[i]);
	free(states->slots);
	*states = (struct ring_states){ 0 };
}

struct ring_state *ring_states_find(const struct ring_states *states, uint32_t id)
{
	return states->cap == 0 ? NULL : states->slots[slot_of(states, id)];
}

/* Makes room for one more. 0 or -ENOMEM. */
static int grow(struct ring_states *states)
{
	if ((states->count + 1) * 4 <= states->cap * 3)
		return 0;

	struct ring_states bigger = { .cap = states->cap != 0 ? states->cap * 2 : CAP_MIN, .count = states->count };
	bigger.slots = calloc(bigger.cap, sizeof(bigger.slots[0]));
	if (bigger.slots == NULL)
		return -ENOMEM;

	for (size_t i = 0; i < states->cap; i++) {
		if (states->slots[i] != NULL)
			bigger.slots[slot_of(&bigger, states->slots[i]->id)] = states->slots[i];
	}
	free(states->slots);
	*states = bigger;
	return 0;
}

struct ring_state *ring_states_touch(struct ring_states *states, uint32_t id, uint64_t seq)
{
	struct ring_state *state = ring_states_find(states, id);

	if (state == NULL) {
		state = calloc(1, sizeof(*state));
		if (state == NULL || grow(states) < 0) {
			free(state);
			return NULL;
		}
		state->id = id;
		states->slots[slot_of(states, id)] = state;
		states->count++;
	}
	if (state->seen < seq)
		state->seen = seq;
	return state;
}

int ring_state_describe(struct ring_state *state, const void *description, uint32_t len)
{
	if (state->description != NULL && state->description_len == len &&
	    memcmp(state->description, description, len) == 0)
		return 0;

	void *copy = malloc(len != 0 ? len : 1);
	if (copy == NULL)
		return -ENOMEM;

	memcpy(copy, description, len);
	free(state->description);
	state->description = copy;
	state->description_len = len;
	return 1;
}

/* Empties a slot and moves up whoever was only behind it because it was taken. */
static void remove_slot(struct ring_states *states, size_t hole)
{
	state_free(states->slots[hole]);
	states->slots[hole] = NULL;
	states->count--;

	for (size_t i = (hole + 1) & (states->cap - 1); states->slots[i] != NULL; i = (i + 1) & (states->cap - 1)) {
		size_t from_home = (i - home(states, states->slots[i]->id)) & (states->cap - 1);
		size_t from_hole = (i - hole) & (states->cap - 1);
		if (from_home < from_hole)
			continue;

		states->slots[hole] = states->slots[i];
		states->slots[i] = NULL;
		hole = i;
	}
}

void ring_states_drop(struct ring_states *states, uint32_t id)
{
	if (ring_states_find(states, id) != NULL)
		remove_slot(states, slot_of(states, id));
}

void ring_states_expire(struct ring_states *states, uint64_t seq)
{
	for (size_t i = 0; i < states->cap;) {
		if (states->slots[i] != NULL && states->slots[i]->seen < seq)
			remove_slot(states, i); /* another may be in this slot now */
		else
			i++;
	}
}

struct ring_state *ring_states_walk(const struct ring_states *states, size_t *position)
{
	while (*position < states->cap) {
		struct ring_state *state = states->slots[(*position)++];
		if (state != NULL)
			return state;
	}
	return NULL;
}
