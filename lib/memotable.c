/*
 * memotable.c: entries are in a hash table and, at the same time, in a list ordered by the last put.
 *
 * The list gives the stalest to drop, the order in which a file is written, and a way to fill larger buckets. An entry and
 * its two names are one allocation. Chains may get long if somebody crafts names that collide: the limit on entries bounds
 * what that costs, and look-ups happen when a target appears or a rule fires, not for every window.
 */
#include "memotable.h"

#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMOTABLE_BUCKETS_MIN 64

struct memotable {
	struct memotable_entry **buckets; /* bucket_count of them: a power of two, or 0 */
	size_t bucket_count;
	size_t count;
	size_t names_len; /* of all entries */
	struct memotable_entry *freshest, *stalest;
};

int memotable_new(struct memotable **ret)
{
	struct memotable *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;

	*ret = table;
	return 0;
}

void memotable_free(struct memotable *table)
{
	struct memotable_entry *staler;

	if (!table)
		return;

	for (struct memotable_entry *entry = table->freshest; entry; entry = staler) {
		staler = entry->staler;
		free(entry);
	}
	free(table->buckets);
	free(table);
}

size_t memotable_count(const struct memotable *table)
{
	return table->count;
}

const struct memotable_entry *memotable_stalest(const struct memotable *table)
{
	return table->stalest;
}

const struct memotable_entry *memotable_fresher(const struct memotable_entry *entry)
{
	return entry->fresher;
}

/* FNV-1a over both names with their NULs. */
static uint32_t hash_names(const char *rule, const char *key)
{
	const char *const names[] = { rule, key };
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const unsigned char *p = (const unsigned char *)names[i];

		do
			hash = (hash ^ *p) * 16777619u;
		while (*p++);
	}
	return hash;
}

static struct memotable_entry **bucket_of(const struct memotable *table, uint32_t hash)
{
	return &table->buckets[hash & (table->bucket_count - 1)];
}

static struct memotable_entry *find(const struct memotable *table, uint32_t hash, const char *rule, const char *key)
{
	if (table->bucket_count == 0)
		return NULL;

	for (struct memotable_entry *entry = *bucket_of(table, hash); entry; entry = entry->chain)
		if (entry->hash == hash && strcmp(entry->rule, rule) == 0 && strcmp(entry->key, key) == 0)
			return entry;
	return NULL;
}

static void list_remove(struct memotable *table, struct memotable_entry *entry)
{
	*(entry->fresher ? &entry->fresher->staler : &table->freshest) = entry->staler;
	*(entry->staler ? &entry->staler->fresher : &table->stalest) = entry->fresher;
}

static void list_add_freshest(struct memotable *table, struct memotable_entry *entry)
{
	entry->fresher = NULL;
	entry->staler = table->freshest;
	*(table->freshest ? &table->freshest->fresher : &table->stalest) = entry;
	table->freshest = entry;
}

static void bucket_add(struct memotable *table, struct memotable_entry *entry)
{
	struct memotable_entry **bucket = bucket_of(table, entry->hash);

	entry->chain = *bucket;
	*bucket = entry;
}

static void drop_stalest(struct memotable *table)
{
	struct memotable_entry *entry = table->stalest;
	struct memotable_entry **link = bucket_of(table, entry->hash);

	while (*link != entry)
		link = &(*link)->chain;
	*link = entry->chain;

	list_remove(table, entry);
	table->count--;
	table->names_len -= entry->names_len;
	free(entry);
}

/* Makes room for one more entry in the buckets. */
static int reserve(struct memotable *table)
{
	size_t count = table->bucket_count ? table->bucket_count * 2 : MEMOTABLE_BUCKETS_MIN;
	struct memotable_entry **buckets;

	if (table->count < table->bucket_count)
		return 0;

	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;

	free(table->buckets);
	table->buckets = buckets;
	table->bucket_count = count;
	for (struct memotable_entry *entry = table->freshest; entry; entry = entry->staler)
		bucket_add(table, entry);
	return 0;
}

static struct memotable_entry *entry_new(uint32_t hash, const char *rule, const char *key)
{
	size_t rule_size = strlen(rule) + 1, key_size = strlen(key) + 1;
	struct memotable_entry *entry = calloc(1, sizeof(*entry) + rule_size + key_size);

	char *names;

	if (!entry)
		return NULL;

	entry->hash = hash;
	entry->names_len = rule_size + key_size;
	names = (char *)(entry + 1);
	memcpy(names, rule, rule_size);
	memcpy(names + rule_size, key, key_size);
	entry->rule = names;
	entry->key = names + rule_size;
	return entry;
}

bool memotable_get(const struct memotable *table, const char *rule, const char *key, struct trigger_memory *ret)
{
	const struct memotable_entry *entry = find(table, hash_names(rule, key), rule, key);

	if (!entry)
		return false;

	*ret = entry->value;
	return true;
}

int memotable_put(struct memotable *table, const char *rule, const char *key, const struct trigger_memory *value)
{
	uint32_t hash = hash_names(rule, key);
	struct memotable_entry *entry = find(table, hash, rule, key);
	int r;

	if (entry) {
		list_remove(table, entry);
		list_add_freshest(table, entry);
		if (trigger_memory_equal(&entry->value, value))
			return MEMOTABLE_SAME;

		entry->value = *value;
		return 0;
	}

	r = reserve(table);
	if (r < 0)
		return r;
	entry = entry_new(hash, rule, key);
	if (!entry)
		return -ENOMEM;

	while (table->count > 0 &&
	       (table->count >= MEMOTABLE_ENTRIES_MAX || table->names_len + entry->names_len > MEMOTABLE_NAMES_MAX))
		drop_stalest(table);

	entry->value = *value;
	bucket_add(table, entry);
	list_add_freshest(table, entry);
	table->count++;
	table->names_len += entry->names_len;
	return 0;
}
