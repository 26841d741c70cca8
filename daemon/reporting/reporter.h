/*
 * reporter.h: whoever asks from outside is answered here: at the control socket (control.h, requests.h), over HTTP (metrics.h), and in a
 * file (textfile.h). Everything else works without any of them: what cannot be had is said in the log.
 */
#ifndef SPIKEWATCH_REPORTER_H
#define SPIKEWATCH_REPORTER_H

#include "requests.h"

struct reporter;
struct sd_event;

struct reporter_options {
	struct sd_event *event;
	const char *control; /* path of the socket */
	const struct config_metrics *metrics;
	struct requests requests; /* what can be asked of the daemon; its ctx must outlive the reporter */
};

/*
 * Takes the sockets that systemd hands over: to be called once, before anything else opens descriptors.
 * Answers nobody before reporter_start. 0 or -ENOMEM.
 */
int reporter_new(struct reporter **ret);

/* From now on answers. What options point to must outlive the reporter; the texts of the metrics, until reporter_reload. */
void reporter_start(struct reporter *reporter, const struct reporter_options *options);

/* Another configuration of the metrics: what changed is taken down and set up again. Nothing refers to the old one afterwards. */
void reporter_reload(struct reporter *reporter, const struct config_metrics *metrics);

/* NULL is fine. */
void reporter_free(struct reporter *reporter);

#endif
