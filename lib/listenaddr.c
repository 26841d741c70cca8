/*
 * listenaddr.c: the port is what follows the last colon, the address what stands before it; an IPv6 address has colons of its
 * own and therefore brackets. The address is written back by inet_ntop, so that equal ones are equal texts.
 *
 * Refused: "*:7745" and ":7745". Whoever listens on all addresses shall write which: "0.0.0.0:7745" or "[::]:7745". Zones
 * ("fe80::1%eth0") too: their numbers are known to the running machine only.
 */
#include "listenaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(LISTENADDR_HOST_MAX >= INET6_ADDRSTRLEN, "room for every address");

static int parse_port(const char *text, size_t len, uint16_t *ret)
{
	unsigned port = 0;

	if (len < 1 || len > 5)
		return -EINVAL;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		port = port * 10 + (unsigned)(text[i] - '0');
	}
	if (port < 1 || port > UINT16_MAX)
		return -EINVAL;

	*ret = (uint16_t)port;
	return 0;
}

static int parse_host(const char *text, size_t len, char ret[LISTENADDR_HOST_MAX])
{
	int family = AF_INET;
	char host[LISTENADDR_HOST_MAX];
	struct in6_addr address; /* the larger of the two */

	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		family = AF_INET6;
		text++;
		len -= 2;
	}
	if (len >= sizeof(host) || memchr(text, '\0', len))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (inet_pton(family, host, &address) != 1)
		return -EINVAL;

	inet_ntop(family, &address, ret, LISTENADDR_HOST_MAX);
	return 0;
}

int listenaddr_parse(const char *text, size_t len, struct listenaddr *ret)
{
	struct listenaddr address = { .host = "127.0.0.1" };
	const char *colon = memrchr(text, ':', len);
	size_t host_len = colon ? (size_t)(colon - text) : 0;
	size_t port_at = colon ? host_len + 1 : 0;
	int r = parse_port(text + port_at, len - port_at, &address.port);

	if (r == 0 && colon)
		r = parse_host(text, host_len, address.host);
	if (r < 0)
		return r;

	*ret = address;
	return 0;
}

const char *listenaddr_format(const struct listenaddr *address, char buf[LISTENADDR_TEXT_MAX])
{
	snprintf(buf, LISTENADDR_TEXT_MAX, strchr(address->host, ':') ? "[%s]:%u" : "%s:%u", address->host,
		 address->port);
	return buf;
}
