/*
 * belowroot.h: opens what is below a root that is not this process's own: "/", or where a daemon in a container has its host's mounted.
 */
#ifndef SPIKEWATCH_BELOWROOT_H
#define SPIKEWATCH_BELOWROOT_H

/*
 * Opens path, which is relative, below the directory rootfd; symbolic links lead nowhere outside of it. flags: of open(2), which may be O_PATH. A
 * descriptor, closed on execution, or -errno.
 */
int belowroot_open(int rootfd, const char *path, int flags);

#endif
