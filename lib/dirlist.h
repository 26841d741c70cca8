/* dirlist.h: what is in a directory, by descriptor. */
#ifndef SPIKEWATCH_DIRLIST_H
#define SPIKEWATCH_DIRLIST_H

/* Calls visit for every name in dirfd but "." and "..", until it returns non-zero, which is returned. 0; -errno. */
int dirlist_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx);

#endif
