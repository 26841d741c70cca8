/*
 * metrics.h: the HTTP server that hands out the metrics: GET /metrics, and nothing else. Served by the main loop, at its lowest priority:
 * a page is made between two looks at the ring, and the rules come first, whoever asks and however often.
 *
 * There is neither TLS nor a password: it is meant for loopback, or for whatever a socket unit or a reverse proxy lets through.
 */
#ifndef SPIKEWATCH_METRICS_H
#define SPIKEWATCH_METRICS_H

#include "clock.h"
#include "openmetrics.h"
#include "sink.h"

struct metrics;
struct sd_event;

/* At a time, and of them from one address; further ones are not accepted until one has ended, or are hung up on. */
#define METRICS_CLIENTS_MAX 32
#define METRICS_CLIENTS_OF_ADDRESS 24

/* For the request and for taking the answer together, however busily: a connection is for one request. */
#define METRICS_PATIENCE_NS (5 * NS_PER_S)

/* Of a request's line and headers; a longer one is refused (431). */
#define METRICS_REQUEST_MAX (16u << 10)

/* A page is handed out again for so long: a flood of scrapes costs ten pages a second and form. */
#define METRICS_FRESH_NS (100 * NS_PER_MS)

/* Longest page; beyond it there is none (503). */
#define METRICS_PAGE_MAX (64u << 20)

struct metrics_options {
	struct sd_event *event; /* must outlive the metrics */
	const char *listen;     /* as listenaddr.h has it; not used when a socket is handed over */
	int handed;             /* a listening TCP socket, non-blocking, the metrics' from then on; 0: none */
	/* Appends the page to ret. 0; -errno: the client is told that there is none now. */
	int (*render)(void *ctx, enum openmetrics_form form, struct buffer *ret);
	void *ctx;
};

/*
 * Listens. A socket that was handed over is taken over also if this fails. 0; -ENOMEM; -ELIBACC: libmicrohttpd is not installed; -EINVAL: that is no address; -EADDRINUSE,
 * -EADDRNOTAVAIL, -EACCES: of bind(2); -errno.
 */
int metrics_new(const struct metrics_options *options, struct metrics **ret);

/* Drops all clients. NULL is fine. */
void metrics_free(struct metrics *metrics);

#endif
