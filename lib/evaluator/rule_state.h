/*
 * rule_state.h: what rules remember over a restart: cooldowns, counts, high-water marks, under (rule name, target key). A small JSON
 * file, written under a temporary name, synced and renamed; a damaged one is reported and set aside, never trusted.
 */
#ifndef SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H
#define SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H

#include "lib/base/io.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * memotable.h: a bounded map (rule name, target key) -> what a rule remembers, ordered by how long ago a value was put.
 * The stalest entries go first when it is full.
 */

#define MEMOTABLE_ENTRIES_MAX 20000

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

struct memo;

/*
 * Empty. boot_id: text of /proc/sys/kernel/random/boot_id: keys of processes (they end in :PID@TIME) of another boot are
 * dropped on load. 0 or -ENOMEM. At most MEMOTABLE_ENTRIES_MAX are kept: the stalest go first.
 */
int memo_new(const char *boot_id, struct memo **ret);

/* NULL is fine. */
void memo_free(struct memo *memo);

/*
 * Replaces what memo holds by what text says. 0; -ENOMEM; -EBADMSG: not one of ours, error (cap bytes, terminated) says
 * where and why. memo is untouched unless 0.
 */
int memo_parse(struct memo *memo, const char *text, size_t len, char *error, size_t cap);

/* memo_parse of the file name below dirfd. A missing file is an empty text: 0. Also -EBADMSG: no regular file, too large; -errno. */
int memo_load(struct memo *memo, int dirfd, const char *name, char *error, size_t cap);

/* Writes all of it as JSON, stalest first. 0, -ENOMEM or the first error of the sink. */
int memo_write(const struct memo *memo, struct sink sink);

/*
 * Replaces the file if anything changed since the last save or load. 0 or -errno: the old file then stays, whole (unless the
 * very last step failed, the fsync of the directory), and so does what is to be saved.
 */
int memo_save(struct memo *memo, int dirfd, const char *name);

/* True and *ret if something is remembered. */
bool memo_get(const struct memo *memo, const char *rule, const char *key, struct trigger_memory *ret);

/* Remembers value, which becomes the freshest entry. 0; -ENOMEM: the old value stays. */
int memo_put(struct memo *memo, const char *rule, const char *key, const struct trigger_memory *value);

/* True if memo_save has something to write. */
bool memo_changed(const struct memo *memo);

/* How many entries there are. */
size_t memo_count(const struct memo *memo);

#endif
