/*
 * debugfiles.h: a way to separate debug files for a process that may open nothing any more. Which ones it needs it learns only by reading
 * strangers' files, when it already is in its sandbox: so a second process stays outside, which knows nothing but build ids, and answers
 * each with the descriptor of DIRECTORY/ab/cdef....debug, or that there is none.
 */
#ifndef SPIKEWATCH_DEBUGFILES_H
#define SPIKEWATCH_DEBUGFILES_H

#include <stddef.h>
#include <stdint.h>

/* Where distributions install them. */
#define DEBUGFILES_DIRECTORY "/usr/lib/debug/.build-id"

/*
 * Starts that process, with no more rights than to open what anybody may, for files below directory; it ends with us. Of the caller's
 * descriptors it keeps none. *ret_fd: what to ask it by, the caller's. 0; -ENOENT: there is no such directory, and no process; -errno.
 */
int debugfiles_start(const char *directory, int *ret_fd);

/* The debug file of a build id, or -1. fd: of debugfiles_start. Takes sendmsg(2) and recvmsg(2), and a descriptor to be free. */
int debugfiles_ask(int fd, const uint8_t *build_id, size_t len);

#endif
