/*
 * handedfds.h: the sockets that systemd has opened for the daemon (sd_listen_fds(3)), told apart by what they are, not by their order or
 * name: a unit may hand over either, both or none.
 */
#ifndef SPIKEWATCH_HANDEDFDS_H
#define SPIKEWATCH_HANDEDFDS_H

#include <stddef.h>

/* Zeroed: none. A descriptor is 0 if there is none: systemd's begin at 3. */
struct handedfds {
	int control;    /* listens, unix stream */
	int metrics;    /* listens, TCP over IPv4 or IPv6 */
	size_t unknown; /* handed over, neither of these or the second of its kind: closed */
};

/*
 * Takes what is handed over, non-blocking and close-on-exec, and removes it from the environment: only the first call of a process gets
 * any, and it must come before anything opens a descriptor of its own by these numbers. 0 or -errno (then *ret is as if there were none).
 */
int handedfds_take(struct handedfds *ret);

/* Closes what is still in it: whoever takes a descriptor over sets it to 0. */
void handedfds_release(struct handedfds *handed);

#endif
