/*
 * rule_state.h: what rules remember over a restart: cooldowns, counts, high-water marks, under
 * (rule name, target key). A small JSON file, written under a temporary name, synced and renamed; a
 * damaged one is reported and set aside, never trusted.
 */
#ifndef SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H
#define SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * rule_state_table.h: a bounded map (rule name, target key) -> what a rule remembers, ordered by
 * how long ago a value was put. The stalest entries go first when it is full.
 */

#define RULE_STATE_TABLE_ENTRIES_MAX 20000

/* Conditions. */
enum {
	RULE_STATE_TABLE_SAME = 1, /* that value was there already; it is the freshest now */
};

struct rule_state_table;

/*
 * Read it, and walk with rule_state_table_fresher; the rest belongs to the table. Valid until the
 * next put.
 */
struct rule_state_table_entry {
	const char *rule;
	const char *key;
	struct trigger_memory value;
	struct rule_state_table_entry *chain, *fresher, *staler;
	size_t names_len;
	uint32_t hash;
};

/* Empty. 0 or -ENOMEM. */
int rule_state_table_new(struct rule_state_table **ret);

/* NULL is fine. */
void rule_state_table_free(struct rule_state_table *table);
CLEANUP(rule_state_table, free);

/* True and *ret if there is an entry. */
bool rule_state_table_get(const struct rule_state_table *table, const char *rule, const char *key,
			  struct trigger_memory *ret);

/*
 * Adds or replaces, copies the names, drops the stalest to make room. 0; RULE_STATE_TABLE_SAME;
 * -ENOMEM: nothing has changed.
 */
int rule_state_table_put(struct rule_state_table *table, const char *rule, const char *key,
			 const struct trigger_memory *value);

/* How many entries there are. */
size_t rule_state_table_count(const struct rule_state_table *table);

/*
 * The stalest entry, NULL if there is none, and the one put after entry, NULL after the freshest.
 */
const struct rule_state_table_entry *rule_state_table_stalest(const struct rule_state_table *table);
const struct rule_state_table_entry *rule_state_table_fresher(const struct rule_state_table_entry *entry);

struct rule_state;

/*
 * Empty. boot_id: text of /proc/sys/kernel/random/boot_id: keys of processes (they end in
 * :PID@TIME) of another boot are dropped on load. 0 or -ENOMEM. At most
 * RULE_STATE_TABLE_ENTRIES_MAX are kept: the stalest go first.
 */
int rule_state_new(const char *boot_id, struct rule_state **ret);

/* NULL is fine. */
void rule_state_free(struct rule_state *rule_state);

/*
 * Replaces what memo holds by what text says. 0; -ENOMEM; -EBADMSG: not one of ours, error (cap
 * bytes, terminated) says where and why. memo is untouched unless 0.
 */
int rule_state_parse(struct rule_state *rule_state, const char *text, size_t len, char *error, size_t cap);

/*
 * rule_state_parse of the file name below dirfd. A missing file is an empty text: 0. Also -EBADMSG:
 * no regular file, too large; -errno.
 */
int rule_state_load(struct rule_state *rule_state, int dirfd, const char *name, char *error, size_t cap);

/* Writes all of it as JSON, stalest first. 0, -ENOMEM or the first error of the sink. */
int rule_state_write(const struct rule_state *rule_state, struct sink sink);

/*
 * Replaces the file if anything changed since the last save or load. 0 or -errno: the old file then
 * stays, whole (unless the very last step failed, the fsync of the directory), and so does what is
 * to be saved.
 */
int rule_state_save(struct rule_state *rule_state, int dirfd, const char *name);

/* True and *ret if something is remembered. */
bool rule_state_get(const struct rule_state *rule_state, const char *rule, const char *key, struct trigger_memory *ret);

/* Remembers value, which becomes the freshest entry. 0; -ENOMEM: the old value stays. */
int rule_state_put(struct rule_state *rule_state, const char *rule, const char *key,
		   const struct trigger_memory *value);

/* True if rule_state_save has something to write. */
bool rule_state_changed(const struct rule_state *rule_state);

/* How many entries there are. */
size_t rule_state_count(const struct rule_state *rule_state);

#endif
