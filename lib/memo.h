/*
 * memo.h: what rules remember over a restart: cooldowns, counts, high-water marks, under (rule name, target key). A small JSON
 * file, written under a temporary name, synced and renamed; a damaged one is reported and set aside, never trusted.
 */
#ifndef SPIKEWATCH_MEMO_H
#define SPIKEWATCH_MEMO_H

#include "clock.h"
#include "trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memo;

/* At most so many entries: the stalest go first. */
#define MEMO_ENTRIES_MAX 20000

/* Empty. boot_id: text of /proc/sys/kernel/random/boot_id: keys of processes (they hold '@') of another boot are dropped on load. */
int memo_new(const char *boot_id, struct memo **ret);
void memo_free(struct memo *memo);

/* Reads name below dirfd. 0 (a missing file is an empty memo); -EBADMSG: not one of ours (memo stays empty; error says why); -errno. */
int memo_load(struct memo *memo, int dirfd, const char *name, char *error, size_t cap);

/* Writes if anything changed since the last save. 0 or -errno; the old file then stays. */
int memo_save(struct memo *memo, int dirfd, const char *name);

/* True and *ret if something is remembered. */
bool memo_get(const struct memo *memo, const char *rule, const char *key, struct trigger_memory *ret);
/* 0 or -ENOMEM. */
int memo_put(struct memo *memo, const char *rule, const char *key, const struct trigger_memory *value);
bool memo_changed(const struct memo *memo);

#endif
