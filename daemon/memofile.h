/*
 * memofile.h: the memo (memo.h) and the file it lives in, with what goes wrong there said in the log: a damaged file is set aside, one
 * that cannot be written is said once until it can.
 */
#ifndef SPIKEWATCH_MEMOFILE_H
#define SPIKEWATCH_MEMOFILE_H

#include "memo.h"
#include "paths.h"

struct memofile;

/*
 * Reads what an earlier life remembered. paths must outlive it; its state directory must exist. procfd: the proc root, for the boot's id.
 * 0; -ENOMEM; -errno: the directory cannot be opened (logged).
 */
int memofile_open(const struct paths *paths, int procfd, struct memofile **ret);

/* Its memo; stays the file's. */
struct memo *memofile_memo(const struct memofile *file);

/* Writes it if there is anything new. A directory that was removed is made again. */
void memofile_save(struct memofile *file);

/* True: the last save failed. */
bool memofile_is_failing(const struct memofile *file);

/* Saves, closes, frees. NULL is fine. */
void memofile_close(struct memofile *file);

#endif
