/*
 * pairmap.c: open addressing, at most half full; what is in it stays.
 */
#include "pairmap.h"

#include <stdlib.h>

/* Both numbers are mixed by a finalizer of MurmurHash3: addresses differ in few bits. */
static uint64_t hash(uint64_t first, uint64_t second)
{
	uint64_t h = second ^ first * 0x9e3779b97f4a7c15ull;

	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdull;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ull;

	return h ^ h >> 33;
}

static struct pairmap_entry *slot_of(const struct pairmap *map, uint64_t first, uint64_t second)
{
	size_t at = hash(first, second) & (map->slots - 1);

	while (map->entries[at].used && (map->entries[at].first != first || map->entries[at].second != second))
		at = (at + 1) & (map->slots - 1);

	return &map->entries[at];
}

static bool grow(struct pairmap *map)
{
	struct pairmap larger = { .slots = map->slots > 0 ? 2 * map->slots : 256 };

	larger.entries = calloc(larger.slots, sizeof(*larger.entries));
	if (larger.entries == NULL)
		return false;
	for (size_t i = 0; i < map->slots; i++)
		if (map->entries[i].used)
			*slot_of(&larger, map->entries[i].first, map->entries[i].second) = map->entries[i];
	free(map->entries);
	map->entries = larger.entries;
	map->slots = larger.slots;

	return true;
}

bool pairmap_get(const struct pairmap *map, uint64_t first, uint64_t second, uint32_t *ret)
{
	const struct pairmap_entry *entry = map->slots > 0 ? slot_of(map, first, second) : NULL;

	if (entry == NULL || !entry->used)
		return false;
	*ret = entry->value;

	return true;
}

void pairmap_put(struct pairmap *map, uint64_t first, uint64_t second, uint32_t value)
{
	if (map->max > 0 && map->count >= map->max)
		return;
	if (2 * (map->count + 1) > map->slots && !grow(map))
		return;
	*slot_of(map, first, second) = (struct pairmap_entry){ first, second, value, true };
	map->count++;
}

void pairmap_release(struct pairmap *map)
{
	free(map->entries);
	*map = (struct pairmap){ .max = map->max };
}
