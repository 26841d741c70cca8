/*
 * spooldir.h: the directory of a spool as somebody has it open, cleared of what dead writers left. It is counted: a draft keeps the
 * directory it is in although the spool has meanwhile made another one, because the first was removed or renamed under its feet.
 *
 * All functions of one path belong to one thread at a time.
 */
#ifndef SPIKEWATCH_SPOOLDIR_H
#define SPIKEWATCH_SPOOLDIR_H

#include <stdbool.h>
#include <stddef.h>

/* Behind the name of a directory that is being written, or removed. */
#define SPOOLDIR_SUFFIX ".tmp"

struct spooldir;

/* What became of drafts whose writers have died. */
struct spooldir_swept {
	size_t removed;
	size_t adopted; /* sealed as far as they had come */
};

/* Makes it (0750) and those above if need be, opens it, sweeps. 0; -ENOMEM; -errno. *ret is to be given back. */
int spooldir_open(const char *path, struct spooldir **ret, struct spooldir_swept *ret_swept);

/* Sweeps it once more. Drafts of living writers stay, our own too. 0 or -errno. */
int spooldir_sweep(const struct spooldir *dir, struct spooldir_swept *ret);

/* One more holder; returns dir. */
struct spooldir *spooldir_ref(struct spooldir *dir);

/* One holder less; the last one closes it. NULL is fine. */
void spooldir_unref(struct spooldir *dir);

/* Stays the directory's. */
int spooldir_fd(const struct spooldir *dir);

/* Whether path still leads here. 0: no; 1: yes; -errno: path cannot be looked at, for another reason than that there is nothing. */
int spooldir_is_at(const struct spooldir *dir, const char *path);

/* Against a sweep or another writer of this directory, in this process or another; to be held for a moment only. 0 or -errno. */
int spooldir_lock(const struct spooldir *dir);
void spooldir_unlock(const struct spooldir *dir);

#endif
