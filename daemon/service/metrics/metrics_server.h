/*
 * metrics_server.h: the HTTP server that hands out the metrics: GET /metrics, and nothing else.
 * Served by the main loop, at its lowest priority: a page is made between two looks at the ring,
 * and the rules come first, whoever asks and however often.
 *
 * There is neither TLS nor a password: it is meant for loopback, or for whatever a socket unit or a
 * reverse proxy lets through.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_METRICS_METRICS_SERVER_H
#define SPIKEWATCH_DAEMON_SERVICE_METRICS_METRICS_SERVER_H

#include "daemon/service/metrics/exposition.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

/*
 * metrics_file.h: the metrics as a file, for the metrics file incident worker of node_exporter:
 * written under another name in the same directory and renamed, so that a reader sees the old page
 * or the new one. Mode 0644, not synchronised: after a crash the next page is seconds away.
 *
 * A thread of its own does nothing but write. The page is made by whoever has the figures; but the
 * directory is on a disk as a rule (/var/lib/prometheus/node-exporter), a disk can hang for
 * minutes, and the rules must not wait for it.
 */

struct metrics_file;

/* Condition (positive return). */
enum { METRICS_FILE_BUSY = 1 };

/*
 * path: absolute; is copied. Its directory may come later. Starts the thread. 0; -ENOMEM; -EINVAL:
 * no file can be called so; -errno.
 */
int metrics_file_new(const char *path, struct metrics_file **ret);

/*
 * Hands a page over; *text is empty then. 0; METRICS_FILE_BUSY: the one before is still being
 * written, this one is thrown away; -errno: the one before could not be written, this one is being
 * tried. Never waits.
 */
int metrics_file_put(struct metrics_file *metrics_file, struct buffer *text);

/*
 * Removes the file, so that nobody collects what is no longer so, and ends the thread. If that
 * takes longer than METRICS_FILE_PATIENCE_NS, the thread is left to end when it can. NULL is fine.
 */
void metrics_file_free(struct metrics_file *metrics_file);

struct metrics;
struct sd_event;

/*
 * At a time, and of them from one address; further ones are not accepted until one has ended, or
 * are hung up on.
 */
#define METRICS_CLIENTS_MAX 32
#define METRICS_CLIENTS_OF_ADDRESS 24

/* Of a request's line and headers; a longer one is refused (431). */
#define METRICS_REQUEST_MAX (16u << 10)

/* A page is handed out again for so long: a flood of scrapes costs ten pages a second and form. */
#define METRICS_FRESH_NS (100 * NS_PER_MS)

/* Longest page; beyond it there is none (503). */
#define METRICS_PAGE_MAX (64u << 20)

struct metrics_options {
	struct sd_event *event; /* must outlive the metrics */
	const char *listen;     /* as listen_address.h has it; not used when a socket is handed over */
	int handed;             /* a listening TCP socket, non-blocking, the metrics' from then on; 0: none */
	/* Appends the page to ret. 0; -errno: the client is told that there is none now. */
	int (*render)(void *ctx, enum openmetrics_form form, struct buffer *ret);
	void *ctx;
};

/*
 * Listens. A socket that was handed over is taken over also if this fails. 0; -ENOMEM; -ELIBACC:
 * libmicrohttpd is not installed; -EINVAL: that is no address; -EADDRINUSE, -EADDRNOTAVAIL,
 * -EACCES: of bind(2); -errno.
 */
int metrics_new(const struct metrics_options *options, struct metrics **ret);

/* Drops all clients. NULL is fine. */
void metrics_free(struct metrics *metrics);
CLEANUP(metrics, free);

#endif
