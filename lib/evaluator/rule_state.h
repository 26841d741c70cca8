/*
 * rule_state.h: what rules remember across restarts: cooldowns, counts and high-water marks by
 * (rule name, target key). At most RULE_STATE_ENTRIES_MAX entries; the one that was put longest ago
 * is dropped first. Kept in a small JSON file, which is replaced atomically; nothing of a damaged
 * file is used.
 */
#ifndef SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H
#define SPIKEWATCH_LIB_EVALUATOR_RULE_STATE_H

#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>

#define RULE_STATE_ENTRIES_MAX 20000

struct buffer;
struct rule_state;

/*
 * Empty. boot_id: text of /proc/sys/kernel/random/boot_id; keys of processes (they end in :PID@TIME)
 * of another boot are dropped on load. 0 or -ENOMEM.
 */
int rule_state_new(const char *boot_id, struct rule_state **ret);

/* NULL is fine. */
void rule_state_free(struct rule_state *rule_state);

/*
 * Replaces what is remembered by what the file name below dirfd says; a missing file changes
 * nothing. 0; -ENOMEM; -errno; -EBADMSG: not such a file, error (cap bytes, terminated) says where
 * and why. Unchanged unless 0.
 */
int rule_state_load(struct rule_state *rule_state, int dirfd, const char *name, char *error, size_t cap);

/* Appends the text of the file; what has changed counts as saved. 0; -ENOMEM: nothing does. */
int rule_state_text(struct rule_state *rule_state, struct buffer *text);

/* True and *ret if something is remembered. */
bool rule_state_get(const struct rule_state *rule_state, const char *rule, const char *key, struct trigger_memory *ret);

/* Remembers value, as the most recent entry. 0; -ENOMEM: the old value stays. */
int rule_state_put(struct rule_state *rule_state, const char *rule, const char *key,
		   const struct trigger_memory *value);

/* True if anything has changed since the last rule_state_text or rule_state_load. */
bool rule_state_changed(const struct rule_state *rule_state);

#endif
