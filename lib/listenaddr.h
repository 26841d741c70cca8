/*
 * listenaddr.h: where to listen, as people write it: "127.0.0.1:7745", "[::1]:7745", or "7745" for loopback. Numeric
 * addresses only: a name would have to be looked up, by somebody who may be early in the boot. Pure.
 */
#ifndef SPIKEWATCH_LISTENADDR_H
#define SPIKEWATCH_LISTENADDR_H

#include <stddef.h>
#include <stdint.h>

#define LISTENADDR_HOST_MAX 48
#define LISTENADDR_TEXT_MAX (LISTENADDR_HOST_MAX + 8)

struct listenaddr {
	char host[LISTENADDR_HOST_MAX]; /* as inet_ntop(3) writes it, without brackets; a colon in it: IPv6 */
	uint16_t port;                  /* 1 to 65535 */
};

/* text needs no NUL. A port alone is on 127.0.0.1. 0 or -EINVAL; *ret is untouched on failure. */
int listenaddr_parse(const char *text, size_t len, struct listenaddr *ret);

/* "HOST:PORT" or "[HOST]:PORT" into buf, as listenaddr_parse reads it; always terminated. Returns buf. */
const char *listenaddr_format(const struct listenaddr *address, char buf[LISTENADDR_TEXT_MAX]);

#endif
