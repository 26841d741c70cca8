/*
 * dirtree.h: making directories and removing them with what is in them, by descriptor: never through a symbolic link, never out of
 * it.
 */
#ifndef SPIKEWATCH_DIRTREE_H
#define SPIKEWATCH_DIRTREE_H

/* An incident has no directories inside; what somebody put there, a command maybe, is removed down to this depth. */
#define DIRTREE_DEPTH_MAX 32

/*
 * Removes the directory name below dirfd with all that is in it. What is gone already is fine. 0; -ENOTDIR: it is a
 * symbolic link or no directory, and stays; -ELOOP: deeper than DIRTREE_DEPTH_MAX; -errno.
 */
int dirtree_remove(int dirfd, const char *name);

/*
 * Makes the directory path and those above it, with mode 0750 less the umask. What exists is left as it is. 0 or
 * -errno.
 */
int dirtree_make(const char *path);

#endif
