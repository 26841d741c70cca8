/*
 * map.h: the containers: a hash map whose nodes lie in their owner's structs, growing arrays, an
 * arena, and a set of byte strings that are numbered (intern). Pure.
 */
#ifndef SPIKEWATCH_LIB_BASE_MAP_H
#define SPIKEWATCH_LIB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * struct map: an intrusive hash map. An entry is any struct with a struct map_node in it; the map
 * links the nodes and owns only its buckets, so that inserting, removing and finding allocate
 * nothing and cannot fail. An entry must not move while it is in the map; its owner frees it.
 *
 * The map knows hashes, not keys: the caller walks the entries of a hash and compares the keys.
 *
 *	struct thing { struct map_node node; uint64_t id; };
 *
 *	for (struct map_node *node = map_first(map, hash); node; node = map_next(node)) {
 *		struct thing *thing = MAP_ENTRY(node, struct thing, node);
 *
 *		if (thing->id == id)
 *			return thing;
 *	}
 */
struct map_node {
	struct map_node *next; /* in the same bucket */
	uint64_t hash;
};

/* {0} is empty and legal. Only count is to be read. */
struct map {
	struct map_node **buckets;
	size_t bucket_count; /* a power of two, or 0 */
	size_t count;        /* entries */
};

/* The struct of this type whose member is *node. */
#define MAP_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/*
 * Visits every entry, in no order; node is declared here. The body may remove, and free, the entry
 * that it is given, but no other, and may insert none.
 */
#define MAP_FOR_EACH(node, map) \
	for (struct map_node *node = map_visit(map, NULL), *node##_next = node ? map_visit(map, node) : NULL; node; \
	     node = node##_next, node##_next = node ? map_visit(map, node) : NULL)

/* Evenly spread over all its bits, the same in each run; for maps and nothing that is kept. */
uint64_t map_hash(const void *data, size_t len);

/*
 * Makes room for n entries in all, those in the map included. The only call that allocates; it may
 * rehash, and never shrinks. 0; -ENOMEM: nothing has changed.
 */
int map_reserve(struct map *map, size_t n);

/*
 * Adds an entry that is in no map, for which room was reserved (an assertion: no map without
 * buckets). Equal keys are not looked for.
 */
void map_insert(struct map *map, struct map_node *node, uint64_t hash);

/* Takes out an entry that is in this map. */
void map_remove(struct map *map, struct map_node *node);

/* The first entry with this hash, or NULL. Inline: a look-up for each sample is made of it. */
static inline struct map_node *map_first(const struct map *map, uint64_t hash)
{
	struct map_node *node = map->count > 0 ? map->buckets[hash & (map->bucket_count - 1)] : NULL;

	while (node && node->hash != hash)
		node = node->next;
	return node;
}

/* The next one with the same hash, or NULL. */
static inline struct map_node *map_next(const struct map_node *node)
{
	struct map_node *next = node->next;

	while (next && next->hash != node->hash)
		next = next->next;
	return next;
}

/* For MAP_FOR_EACH: the entry after this one, or the first after NULL; NULL at the end. */
struct map_node *map_visit(const struct map *map, const struct map_node *previous);

/* Frees the buckets, not the entries; the map is empty and usable again. */
static inline void map_release(struct map *map)
{
	free(map->buckets);
	*map = (struct map){ 0 };
}

/*
 * Makes the heap array at *array (a pointer to any type, NULL at first), which has *cap elements of
 * size bytes, at least need elements long: doubled, so that appending is cheap. What is new is not
 * zeroed. 0; -ENOMEM: array and cap are as before.
 *
 *	int r = vector_reserve(&list->items, &list->cap, list->count + 1, sizeof(*list->items));
 */
int vector_reserve(void *array, size_t *cap, size_t need, size_t size);

/* struct arena: many small pieces of memory with one owner and one release. */
struct arena_chunk;

/* {0} is empty and legal. */
struct arena {
	struct arena_chunk *chunks; /* newest first */
};

/* size zeroed bytes, aligned for any type, valid until the release. NULL when memory is short. */
void *arena_alloc(struct arena *arena, size_t size);

/* A copy of len bytes with a NUL behind them; NULL when memory is short. */
char *arena_copy(struct arena *arena, const char *text, size_t len);

/* Frees everything; the arena is empty and usable again. */
void arena_release(struct arena *arena);

/*
 * struct pair_map: a number for each pair of numbers. {0} is empty and legal; max may be set before
 * the first put.
 */
struct pair_map {
	struct map map;
	struct arena arena; /* has the entries */
	size_t max;         /* pairs; 0: no limit */
};

/* Memory for a pair at most, its share of the buckets included. */
#define PAIR_MAP_ENTRY_BYTES 64

/* False: not known. */
bool pair_map_get(const struct pair_map *map, uint64_t first, uint64_t second, uint32_t *ret);

/* Adds a pair that is not known yet. 0; -ENOSPC: max; -ENOMEM. A cache need not look at that. */
int pair_map_put(struct pair_map *map, uint64_t first, uint64_t second, uint32_t value);

/* Frees the memory; the map is empty and usable again. */
void pair_map_release(struct pair_map *map);

/*
 * struct intern: a bounded set of byte strings, each kept once and known by a number: 1, 2, 3 ...
 * in the order in which they came.
 *
 * Several sets may share a budget of memory. A set that has refused something because the budget
 * was used up refuses everything new from then on, so that its contents do not depend on which set
 * ran short first.
 */

/* {0}: no limit. */
struct intern_budget {
	size_t used_bytes; /* asked for so far, tables included */
	size_t max_bytes;  /* 0: no limit */
	bool spent;        /* something was refused */
};

struct intern_entry;

/* {0} is empty and legal. Only count is to be read. */
struct intern {
	struct arena arena;
	struct intern_entry *entries; /* by number, less 1 */
	uint32_t count;
	size_t cap;
	uint32_t *buckets;
	size_t bucket_count; /* a power of two, or 0 */
};

/* Positive returns. */
enum {
	INTERN_FULL = 1, /* it is not there, and there is no budget for it */
};

/*
 * Sets *ret to the number of the len bytes at data, which are copied if they are new: then count
 * has grown. 0; INTERN_FULL; -ENOMEM: nothing has changed. At most UINT32_MAX / 2 strings.
 */
int intern_put(struct intern *set, struct intern_budget *budget, const void *data, size_t len, uint32_t *ret);

/*
 * The bytes of a number that intern_put gave, aligned for any type, with a NUL behind them; valid
 * until the release.
 */
const void *intern_get(const struct intern *set, uint32_t number, size_t *ret_len);

/* The same of a string. */
const char *intern_text(const struct intern *set, uint32_t number);

/* Frees everything; the set is empty and usable again. The budget is not given back. */
void intern_release(struct intern *set);

#endif
