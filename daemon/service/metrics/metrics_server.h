/*
 * metrics_server.h: the HTTP server for the metrics (GET /metrics), and the file with them.
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

/*
 * The metrics as a file, for the textfile collector of node_exporter: written under another name in
 * the same directory and renamed, so that a reader sees the old page or the new one. Mode 0644, not
 * synchronised: after a crash the next page is seconds away. A thread does the writing, because the
 * disk may block for minutes and the rules must not wait for it.
 */

struct metrics_file;

/* Condition (positive return). */
enum { METRICS_FILE_BUSY = 1 };

/*
 * path: absolute; is copied. Its directory may come later. Starts the thread. 0; -ENOMEM; -EINVAL:
 * no file can have that name; -errno.
 */
int metrics_file_new(const char *path, struct metrics_file **ret);

/*
 * Hands a page over; *text is empty then. 0; METRICS_FILE_BUSY: the one before is still being
 * written, this one is dropped; -errno: the one before could not be written, this one is tried now.
 * Never waits.
 */
int metrics_file_put(struct metrics_file *metrics_file, struct buffer *text);

/*
 * Removes the file, so that no stale figures are collected, and ends the thread. A thread that is
 * blocked for more than two seconds is left to end when it can. NULL is fine.
 */
void metrics_file_free(struct metrics_file *metrics_file);

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
