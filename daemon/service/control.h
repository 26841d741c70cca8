/*
 * control.h: the daemon's outputs: the control socket, where status, trigger and reload are asked
 * for (docs/status.md), the metrics over HTTP (metrics_server.h) and the metrics file. Served by
 * the main loop. The daemon works without any of them: one that cannot be opened is logged.
 *
 *     status [WORDS]     the status document, in pieces (status_document.h); WORDS say what of it
 *     trigger [TARGET]   an incident now, of one target or of everything
 *     reload             the configuration is read again
 *
 * A client of the socket sends one line and gets one JSON document and the end of the connection.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_CONTROL_H
#define SPIKEWATCH_DAEMON_SERVICE_CONTROL_H

#include "daemon/engine/incident/incidents.h"
#include "daemon/service/health/overview.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

/* Room for the message of a reload. */
#define CONTROL_MESSAGE_MAX CONFIG_FILE_MESSAGE_MAX

struct control;
struct sd_event;

/* All pointers are borrowed and must outlive the control; metrics, until control_reload. */
struct control_options {
	struct sd_event *event;
	const char *path; /* of the control socket */
	const struct config_metrics *metrics;
	/* What carries out the requests. */
	void (*overview)(void *ctx, struct overview *ret);
	int (*trigger)(void *ctx, const struct target *target,
		       struct incidents_ticket *ret); /* target NULL: everything */
	int (*reload)(void *ctx, char *message);      /* message: what changed, or (negative return) why nothing did */
	void *ctx;
};

/*
 * Takes the sockets that systemd hands over: to be called once, before anything else opens
 * descriptors. 0 or -ENOMEM.
 */
int control_new(struct control **ret);

/* Opens the outputs; clients are answered from now on. */
void control_start(struct control *control, const struct control_options *options);

/* Another configuration of the metrics: what changed is closed and opened again. */
void control_reload(struct control *control, const struct config_metrics *metrics);

/* Drops all clients, removes the socket and the metrics file. NULL is fine. */
void control_free(struct control *control);

#endif
