/*
 * map.c: the containers.
 *
 * Map: buckets of singly linked nodes, as many buckets as entries at least, doubled. Chains and not
 * open addressing, because entries live in their owners' structs and removing one must not move
 * others. The full hash stands in the node, so growing and walking a chain touch no keys.
 *
 * Keys are often names that other programs choose, who could make them collide: the limits on
 * their number bound what that costs.
 *
 * Arena: a list of chunks, filled from the front. What does not fit into the newest chunk opens
 * another, so the rest of that one is lost: at most one piece in ARENA_CHUNK bytes, which is
 * cheaper than looking for a better fit.
 *
 * Intern: the bytes are in an arena, an array finds them by number, and a hash table of numbers,
 * with linear probing and at most half full, finds the number by the bytes.
 */
#include "lib/base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64

/* FNV-1a over words, then over the bytes that are left; mixed, because low bits choose a bucket. */
uint64_t map_hash(const void *data, size_t len)
{
	const char *at = data;
	uint64_t hash = 14695981039346656037u ^ len, word;

	for (; len >= sizeof(word); at += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * 1099511628211u;
		hash ^= hash >> 32;
	}
	for (; len > 0; at++, len--)
		hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	hash ^= hash >> 29;
	hash *= 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

static struct map_node **bucket_of(const struct map *map, uint64_t hash)
{
	return &map->buckets[hash & (map->bucket_count - 1)];
}

int map_reserve(struct map *map, size_t n)
{
	struct map larger = { .bucket_count = map->bucket_count ? map->bucket_count : BUCKETS_MIN };

	if (n <= map->bucket_count && map->bucket_count > 0)
		return 0;
	if (n > PTRDIFF_MAX / sizeof(struct map_node *) / 2)
		return -ENOMEM;
	while (larger.bucket_count < n)
		larger.bucket_count *= 2;
	larger.buckets = calloc(larger.bucket_count, sizeof(struct map_node *));
	if (!larger.buckets)
		return -ENOMEM;

	MAP_FOR_EACH(node, map)
		map_insert(&larger, node, node->hash);
	free(map->buckets);
	*map = larger;
	return 0;
}

void map_insert(struct map *map, struct map_node *node, uint64_t hash)
{
	assert(map->bucket_count > 0);

	struct map_node **bucket = bucket_of(map, hash);

	*node = (struct map_node){ .next = *bucket, .hash = hash };
	*bucket = node;
	map->count++;
}

void map_remove(struct map *map, struct map_node *node)
{
	struct map_node **link = bucket_of(map, node->hash);

	while (*link != node)
		link = &(*link)->next;
	*link = node->next;
	map->count--;
}

struct map_node *map_visit(const struct map *map, const struct map_node *previous)
{
	size_t at = previous ? (previous->hash & (map->bucket_count - 1)) + 1 : 0;

	if (previous && previous->next)
		return previous->next;
	if (map->count > 0)
		for (; at < map->bucket_count; at++)
			if (map->buckets[at])
				return map->buckets[at];
	return NULL;
}

/* The first allocation of a vector, in elements: a few, so that small lists grow once. */
#define VECTOR_MIN 8

int vector_reserve(void *array, size_t *cap, size_t need, size_t size)
{
	size_t larger = *cap > SIZE_MAX / 2 ? SIZE_MAX : *cap * 2;
	void *elements;

	if (need <= *cap)
		return 0;
	if (larger < VECTOR_MIN)
		larger = VECTOR_MIN;
	if (larger < need)
		larger = need;
	if (larger > PTRDIFF_MAX / size)
		return -ENOMEM;
	memcpy(&elements, array, sizeof(elements)); /* the pointer may be to any type */
	elements = reallocarray(elements, larger, size);
	if (!elements)
		return -ENOMEM;

	memcpy(array, &elements, sizeof(elements));
	*cap = larger;
	return 0;
}

/* Enough for a hundred nodes of a configuration, little enough to waste. */
#define ARENA_CHUNK 16384

struct arena_chunk {
	struct arena_chunk *next;
	size_t used;
	size_t cap;
	_Alignas(max_align_t) char data[];
};

void *arena_alloc(struct arena *arena, size_t size)
{
	const size_t align = _Alignof(max_align_t);
	struct arena_chunk *chunk = arena->chunks;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + align - 1) / align * align;
	if (chunk == NULL || chunk->cap - chunk->used < size) {
		size_t cap = size > ARENA_CHUNK ? size : ARENA_CHUNK;

		chunk = calloc(1, sizeof(*chunk) + cap);
		if (chunk == NULL)
			return NULL;
		chunk->cap = cap;
		chunk->next = arena->chunks;
		arena->chunks = chunk;
	}
	chunk->used += size;
	return chunk->data + chunk->used - size;
}

char *arena_copy(struct arena *arena, const char *text, size_t len)
{
	char *copy = arena_alloc(arena, len + 1);

	if (copy != NULL && len > 0)
		memcpy(copy, text, len);
	return copy;
}

void arena_release(struct arena *arena)
{
	while (arena->chunks != NULL) {
		struct arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
}

struct pair_entry {
	struct map_node node;
	uint64_t first, second;
	uint32_t value;
};

/* There are up to two buckets for each pair. */
_Static_assert((sizeof(struct pair_entry) + 15) / 16 * 16 + 2 * sizeof(struct map_node *) <= PAIR_MAP_ENTRY_BYTES,
	       "memory of a pair");

static uint64_t pair_hash(uint64_t first, uint64_t second)
{
	uint64_t pair[2] = { first, second };

	return map_hash(pair, sizeof(pair));
}

bool pair_map_get(const struct pair_map *map, uint64_t first, uint64_t second, uint32_t *ret)
{
	for (struct map_node *node = map_first(&map->map, pair_hash(first, second)); node; node = map_next(node)) {
		const struct pair_entry *entry = MAP_ENTRY(node, struct pair_entry, node);

		if (entry->first == first && entry->second == second) {
			*ret = entry->value;
			return true;
		}
	}
	return false;
}

int pair_map_put(struct pair_map *map, uint64_t first, uint64_t second, uint32_t value)
{
	struct pair_entry *entry;

	if (map->max > 0 && map->map.count >= map->max)
		return -ENOSPC;
	if (map_reserve(&map->map, map->map.count + 1) < 0 || !(entry = arena_alloc(&map->arena, sizeof(*entry))))
		return -ENOMEM;

	entry->first = first;
	entry->second = second;
	entry->value = value;
	map_insert(&map->map, &entry->node, pair_hash(first, second));
	return 0;
}

void pair_map_release(struct pair_map *map)
{
	map_release(&map->map);
	arena_release(&map->arena);
}

struct intern_entry {
	const char *data;
	size_t len;
	uint32_t hash;
};

/* The bucket of these bytes, or the empty one where they belong. */
static size_t probe(const struct intern *set, uint32_t hash, const void *data, size_t len)
{
	size_t mask = set->bucket_count - 1, at = hash & mask;

	for (; set->buckets[at] != 0; at = (at + 1) & mask) {
		const struct intern_entry *entry = &set->entries[set->buckets[at] - 1];

		if (entry->hash == hash && entry->len == len && (len == 0 || memcmp(entry->data, data, len) == 0))
			break;
	}
	return at;
}

/* 0; INTERN_FULL. */
static int spend(struct intern_budget *budget, size_t bytes)
{
	if (budget->max_bytes > 0 &&
	    (budget->spent || bytes > budget->max_bytes || budget->used_bytes > budget->max_bytes - bytes)) {
		budget->spent = true;
		return INTERN_FULL;
	}
	budget->used_bytes += bytes;
	return 0;
}

static int grow_buckets(struct intern *set)
{
	size_t count = set->bucket_count ? set->bucket_count * 2 : BUCKETS_MIN, mask = count - 1;
	uint32_t *buckets;

	if (set->count < set->bucket_count / 2)
		return 0;
	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;

	for (uint32_t i = 0; i < set->count; i++) {
		size_t at = set->entries[i].hash & mask;

		while (buckets[at] != 0)
			at = (at + 1) & mask;
		buckets[at] = i + 1;
	}
	free(set->buckets);
	set->buckets = buckets;
	set->bucket_count = count;
	return 0;
}

static int grow_entries(struct intern *set)
{
	if (set->count >= UINT32_MAX / 2)
		return -ENOMEM;
	return vector_reserve(&set->entries, &set->cap, (size_t)set->count + 1, sizeof(*set->entries));
}

/* What one more entry costs, its share of tables that double included. */
static size_t cost(size_t len)
{
	return len + 1 + sizeof(max_align_t) + 2 * sizeof(struct intern_entry) + 4 * sizeof(uint32_t);
}

int intern_put(struct intern *set, struct intern_budget *budget, const void *data, size_t len, uint32_t *ret)
{
	uint32_t hash = (uint32_t)map_hash(data, len);
	size_t at = 0;
	char *copy;
	int rc;

	if (set->bucket_count > 0) {
		at = probe(set, hash, data, len);
		if (set->buckets[at] != 0) {
			*ret = set->buckets[at];
			return 0;
		}
	}
	rc = spend(budget, cost(len));
	if (rc != 0)
		return rc;
	if (grow_entries(set) < 0 || grow_buckets(set) < 0 || !(copy = arena_copy(&set->arena, data, len))) {
		budget->used_bytes -= cost(len);
		return -ENOMEM;
	}

	set->entries[set->count++] = (struct intern_entry){ copy, len, hash };
	set->buckets[probe(set, hash, data, len)] = set->count;
	*ret = set->count;
	return 0;
}

const void *intern_get(const struct intern *set, uint32_t number, size_t *ret_len)
{
	const struct intern_entry *entry = &set->entries[number - 1];

	*ret_len = entry->len;
	return entry->data;
}

const char *intern_text(const struct intern *set, uint32_t number)
{
	return set->entries[number - 1].data;
}

void intern_release(struct intern *set)
{
	arena_release(&set->arena);
	free(set->entries);
	free(set->buckets);
	*set = (struct intern){ 0 };
}
