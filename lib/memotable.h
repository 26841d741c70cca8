/*
 * memotable.h: a bounded map (rule name, target key) -> what a rule remembers, ordered by how long ago a value was put.
 * The stalest entries go first when it is full.
 */
#ifndef SPIKEWATCH_MEMOTABLE_H
#define SPIKEWATCH_MEMOTABLE_H

#include "trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMOTABLE_ENTRIES_MAX 20000

/* Bytes of the names in all entries together: what strangers call their processes takes no more memory than this. */
#define MEMOTABLE_NAMES_MAX (6u << 20)

/* Conditions. */
enum {
	MEMOTABLE_SAME = 1, /* that value was there already; it is the freshest now */
};

struct memotable;

/* Read it, and walk with memotable_fresher; the rest belongs to the table. Valid until the next put. */
struct memotable_entry {
	const char *rule;
	const char *key;
	struct trigger_memory value;
	struct memotable_entry *chain, *fresher, *staler;
	size_t names_len;
	uint32_t hash;
};

/* Empty. 0 or -ENOMEM. */
int memotable_new(struct memotable **ret);

/* NULL is fine. */
void memotable_free(struct memotable *table);

/* True and *ret if there is an entry. */
bool memotable_get(const struct memotable *table, const char *rule, const char *key, struct trigger_memory *ret);

/* Adds or replaces, copies the names, drops the stalest to make room. 0; MEMOTABLE_SAME; -ENOMEM: nothing has changed. */
int memotable_put(struct memotable *table, const char *rule, const char *key, const struct trigger_memory *value);

/* How many entries there are. */
size_t memotable_count(const struct memotable *table);

/* The stalest entry, NULL if there is none, and the one put after entry, NULL after the freshest. */
const struct memotable_entry *memotable_stalest(const struct memotable *table);
const struct memotable_entry *memotable_fresher(const struct memotable_entry *entry);

#endif
