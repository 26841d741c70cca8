/*
 * metrics_server.h: the HTTP server for the metrics (GET /metrics).
 *
 * The server runs in the main loop at its lowest priority: pages are made between two polls of the
 * ring. There is neither TLS nor authentication: it is meant for loopback, or to be behind a socket
 * unit or a reverse proxy.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_METRICS_METRICS_SERVER_H
#define SPIKEWATCH_DAEMON_SERVICE_METRICS_METRICS_SERVER_H

#include "daemon/service/metrics/exposition.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

struct metrics;
struct sd_event;

/* Connections at a time, in all and from one address; further ones wait or are closed. */
#define METRICS_CLIENTS_MAX 32
#define METRICS_CLIENTS_OF_ADDRESS 24

/* Length of a request's line and headers; a longer one is refused (431). */
#define METRICS_REQUEST_MAX (16u << 10)

/* How long a page is reused: a flood of scrapes costs ten pages a second and form. */
#define METRICS_FRESH_NS (100 * NS_PER_MS)

/* Longest page; beyond it there is none (503). */
#define METRICS_PAGE_MAX (64u << 20)

struct metrics_options {
	struct sd_event *event; /* must outlive the metrics */
	const char *listen;     /* as listen_address_parse reads it; not used when a socket is handed over */
	int handed;             /* a listening TCP socket, non-blocking, the metrics' from then on; 0: none */
	/* Appends the page to ret. 0; -errno: the client is told that there is none now. */
	int (*render)(void *ctx, enum openmetrics_form form, struct buffer *ret);
	void *ctx;
};

/*
 * Listens. A socket that was handed over is closed if this fails. 0; -ENOMEM; -ELIBACC:
 * libmicrohttpd is not installed; -EINVAL: not an address; -EADDRINUSE, -EADDRNOTAVAIL, -EACCES: of
 * bind(2); -errno.
 */
int metrics_new(const struct metrics_options *options, struct metrics **ret);

/* Drops all clients. NULL is fine. */
void metrics_free(struct metrics *metrics);
CLEANUP(metrics, free);

#endif
