/*
 * reporter.c: one overview, three readers. A socket of systemd's is kept over reloads: it cannot be had twice.
 */
#include "reporter.h"

#include "control.h"
#include "exposition.h"
#include "handedfds.h"
#include "log.h"
#include "metrics.h"
#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than any address that listenaddr.h takes. */
#define LISTEN_MAX 96

struct reporter {
	struct reporter_options options;
	struct handedfds handed; /* what is still in it is nobody's yet */
	struct control *control;
	struct exposition *exposition;
	struct metrics *metrics;
	bool metrics_handed;     /* the metrics' socket is systemd's */
	char listen[LISTEN_MAX]; /* of the metrics; "": none */
};

static int on_request(void *ctx, const char *line, struct buffer *ret)
{
	struct reporter *reporter = ctx;

	return requests_answer(&reporter->options.requests, line, ret);
}

static int on_scrape(void *ctx, enum openmetrics_form form, struct buffer *ret)
{
	struct reporter *reporter = ctx;
	const struct requests *requests = &reporter->options.requests;
	struct overview overview;

	requests->overview(requests->ctx, &overview);

	return exposition_write(reporter->exposition, &overview, form, ret);
}

static void start_control(struct reporter *reporter)
{
	struct control_options options = {
		.event = reporter->options.event,
		.path = reporter->options.control,
		.handed = reporter->handed.control,
		.answer = on_request,
		.ctx = reporter,
	};

	reporter->handed.control = 0;

	int r = control_new(&options, &reporter->control);

	if (r < 0)
		log_line(LOG_WARNING, "no control socket at %s: %s. spikewatch status will not reach this daemon.",
			 reporter->options.control, strerror(-r));
}

static void start_metrics(struct reporter *reporter, const struct config_metrics *config)
{
	struct metrics_options options = {
		.event = reporter->options.event,
		.listen = config->listen,
		.handed = reporter->handed.metrics,
		.render = on_scrape,
		.ctx = reporter,
	};
	int r;

	if (!*config->listen && options.handed == 0)
		return;

	reporter->metrics_handed = options.handed != 0;
	reporter->handed.metrics = 0;
	snprintf(reporter->listen, sizeof reporter->listen, "%s", config->listen);
	r = metrics_new(&options, &reporter->metrics);
	if (r < 0)
		log_line(LOG_WARNING, "no metrics at %s: %s",
			 reporter->metrics_handed ? "the socket of systemd" : config->listen, strerror(-r));
}

int reporter_new(struct reporter **ret)
{
	struct clock clock = realclock();
	struct reporter *reporter = calloc(1, sizeof *reporter);

	if (!reporter)
		return -ENOMEM;
	if (exposition_new(clock_wall(&clock), &reporter->exposition) < 0) {
		free(reporter);
		return -ENOMEM;
	}

	handedfds_take(&reporter->handed);
	*ret = reporter;

	return 0;
}

void reporter_start(struct reporter *reporter, const struct reporter_options *options)
{
	reporter->options = *options;
	start_control(reporter);
	start_metrics(reporter, options->metrics);
}

void reporter_reload(struct reporter *reporter, const struct config_metrics *metrics)
{
	if (reporter->metrics_handed || strcmp(reporter->listen, metrics->listen) == 0)
		return;

	metrics_free(reporter->metrics);
	reporter->metrics = NULL;
	reporter->listen[0] = '\0';
	start_metrics(reporter, metrics);
}

void reporter_free(struct reporter *reporter)
{
	if (!reporter)
		return;

	control_free(reporter->control);
	metrics_free(reporter->metrics);
	exposition_free(reporter->exposition);
	handedfds_release(&reporter->handed);
	free(reporter);
}
