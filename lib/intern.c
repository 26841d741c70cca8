/*
 * intern.c: the bytes are in an arena, an array knows where by number, and a hash table has the numbers.
 *
 * Open addressing with linear probing, at most half full. The hash is kept with the entry, so growing and comparing
 * touch the bytes of equal hashes only. Names are chosen by strangers, who could make them collide: the budget and
 * whoever runs this with a limit on time bound what that costs.
 */
#include "intern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64
#define ENTRIES_MIN 32

struct intern_entry {
	const char *data;
	size_t len;
	uint32_t hash;
};

/* FNV-1a over words, then over the bytes that are left; the end is mixed, because buckets are told by the low bits. */
static uint32_t hash_of(const void *data, size_t len)
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
	return (uint32_t)(hash >> 32);
}

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
	uint32_t cap = set->cap ? set->cap * 2 : ENTRIES_MIN;
	struct intern_entry *entries;

	if (set->count < set->cap)
		return 0;
	if (set->count >= UINT32_MAX / 2)
		return -ENOMEM;
	entries = reallocarray(set->entries, cap, sizeof(*entries));
	if (!entries)
		return -ENOMEM;

	set->entries = entries;
	set->cap = cap;
	return 0;
}

/* What one more entry costs, its share of tables that double included. */
static size_t cost(size_t len)
{
	return len + 1 + sizeof(max_align_t) + 2 * sizeof(struct intern_entry) + 4 * sizeof(uint32_t);
}

int intern_put(struct intern *set, struct intern_budget *budget, const void *data, size_t len, uint32_t *ret)
{
	uint32_t hash = hash_of(data, len);
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
