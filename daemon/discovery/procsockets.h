/* procsockets.h: the two netlink sockets of the kernel's news of processes, opened and subscribed. For proclistener.c. */
#ifndef SPIKEWATCH_PROCSOCKETS_H
#define SPIKEWATCH_PROCSOCKETS_H

#include <stdint.h>

/* Room for any message of theirs: an exit record of a process with threads is two of struct taskstats, which grows with the kernel. */
#define PROCSOCKETS_MESSAGE_BYTES 2048u

/*
 * The proc connector's. receive_bytes: 0: 1 MiB. Non-blocking, what threads do is filtered out. The descriptor; -EPERM; -ECONNREFUSED: another
 * network namespace; -EPROTONOSUPPORT, -EAFNOSUPPORT; -ETIMEDOUT: the kernel does not answer; -errno.
 */
int procsockets_connector(int receive_bytes);

/* Says so to the kernel, and closes it. */
void procsockets_leave_connector(int fd);

/* Exit records of taskstats, of all CPUs; *ret_family: the number that its messages have. As above; -ENOENT: the kernel has none. */
int procsockets_taskstats(int receive_bytes, uint16_t *ret_family);

#endif
