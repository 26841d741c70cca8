/*
 * census.c: a hash table with open addressing, at most half full. Nothing is taken out of it: when a fifth of it were not met any more it is built anew from
 * the others.
 */
#include "census.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_MIN 256u

struct census {
	struct census_record *slots;
	size_t room; /* a power of two */
	size_t count;
	uint32_t scan;
};

int census_new(struct census **ret)
{
	struct census *census = calloc(1, sizeof(*census));

	if (census == NULL)
		return -ENOMEM;
	census->slots = calloc(ROOM_MIN, sizeof(*census->slots));
	census->room = ROOM_MIN;
	if (census->slots == NULL) {
		free(census);
		return -ENOMEM;
	}
	*ret = census;
	return 0;
}

void census_free(struct census *census)
{
	if (census == NULL)
		return;
	free(census->slots);
	free(census);
}

/* Where pid is, or would be. */
static struct census_record *find(struct census_record *slots, size_t room, int32_t pid)
{
	size_t at = (uint32_t)pid * 2654435769u & (room - 1);

	while (slots[at].pid != 0 && slots[at].pid != pid)
		at = (at + 1) & (room - 1);
	return &slots[at];
}

void census_begin(struct census *census)
{
	census->scan++;
}

/* Half as much again as would be half full, for those that come. */
static size_t room_for(size_t count)
{
	size_t room = ROOM_MIN;

	while (room < 3 * count)
		room *= 2;
	return room;
}

static size_t count_met(const struct census *census)
{
	size_t met = 0;

	for (size_t i = 0; i < census->room; i++)
		met += census->slots[i].pid != 0 && census->slots[i].scan == census->scan;
	return met;
}

void census_end(struct census *census)
{
	size_t met = count_met(census), room = room_for(met);
	struct census_record *slots;

	if (census->count - met <= met / 4)
		return;
	slots = calloc(room, sizeof(*slots));
	if (slots == NULL) {
		census_clear(census);
		return;
	}
	census->count = 0;
	for (size_t i = 0; i < census->room; i++) {
		const struct census_record *record = &census->slots[i];

		if (record->pid == 0 || record->scan != census->scan)
			continue;
		*find(slots, room, record->pid) = *record;
		census->count++;
	}
	free(census->slots);
	census->slots = slots;
	census->room = room;
}

void census_clear(struct census *census)
{
	for (size_t i = 0; i < census->room; i++)
		census->slots[i] = (struct census_record){ 0 };
	census->count = 0;
}

const struct census_record *census_meet(struct census *census, int32_t pid, uint64_t cpu_ns)
{
	struct census_record *record = find(census->slots, census->room, pid);
	bool turn = (uint32_t)pid % CENSUS_TURNS == census->scan % CENSUS_TURNS;

	if (record->pid == 0 || cpu_ns == 0 || turn || record->cpu_ns != cpu_ns)
		return NULL;
	record->scan = census->scan;
	return record;
}

/* Twice as much room, as far as it may grow. False: there is none. */
static bool grow(struct census *census)
{
	size_t room = 2 * census->room;
	struct census_record *slots = room <= 2 * CENSUS_MAX ? calloc(room, sizeof(*slots)) : NULL;

	if (slots == NULL)
		return false;
	for (size_t i = 0; i < census->room; i++)
		if (census->slots[i].pid != 0)
			*find(slots, room, census->slots[i].pid) = census->slots[i];
	free(census->slots);
	census->slots = slots;
	census->room = room;
	return true;
}

void census_enter(struct census *census, const struct census_record *record)
{
	struct census_record *slot = find(census->slots, census->room, record->pid);

	if (slot->pid == 0) {
		if (2 * (census->count + 1) > census->room && !grow(census))
			return;
		slot = find(census->slots, census->room, record->pid);
		census->count++;
	}
	*slot = *record;
	slot->scan = census->scan;
}

size_t census_count(const struct census *census)
{
	return census->count;
}
