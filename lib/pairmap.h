/*
 * pairmap.h: remembers a number for each pair of numbers. A cache: bounded, and without memory it just does not remember.
 */
#ifndef SPIKEWATCH_PAIRMAP_H
#define SPIKEWATCH_PAIRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pairmap_entry {
	uint64_t first, second;
	uint32_t value;
	bool used;
};

/* {0} is empty and legal. */
struct pairmap {
	struct pairmap_entry *entries;
	size_t count, slots;
	size_t max; /* pairs; 0: no limit */
};

/* False: not known. */
bool pairmap_get(const struct pairmap *map, uint64_t first, uint64_t second, uint32_t *ret);

/* Remembers the pair, which is not known yet, if there is room and memory. */
void pairmap_put(struct pairmap *map, uint64_t first, uint64_t second, uint32_t value);

/* Frees the memory; the map is empty and usable again. */
void pairmap_release(struct pairmap *map);

#endif
