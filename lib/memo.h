/*
 * memo.h: what rules remember over a restart: cooldowns, counts, high-water marks, under (rule name, target key). A small JSON
 * file, written under a temporary name, synced and renamed; a damaged one is reported and set aside, never trusted.
 */
#ifndef SPIKEWATCH_MEMO_H
#define SPIKEWATCH_MEMO_H

#include "sink.h"
#include "trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memo;

/* No file larger than this is read. The table is bounded so that none is written (memotable.h). */
#define MEMO_FILE_MAX (32u << 20)

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
