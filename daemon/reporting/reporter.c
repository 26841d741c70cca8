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
#include "textfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <time.h>

/* Longer than any address that listenaddr.h takes, and any path. */
#define LISTEN_MAX 96
#define PATH_MAX_BYTES 4096

/* When the file with the metrics is written does not matter: the machine may sleep a little longer. */
#define TEXTFILE_ACCURACY_US 100000

struct reporter {
	struct reporter_options options;
	struct handedfds handed; /* what is still in it is nobody's yet */
	struct control *control;
	struct exposition *exposition;
	struct metrics *metrics;
	bool metrics_handed;     /* the metrics' socket is systemd's */
	char listen[LISTEN_MAX]; /* of the metrics; "": none */
	struct textfile *textfile;
	sd_event_source *textfile_timer;
	char textfile_path[PATH_MAX_BYTES]; /* "": none */
	uint64_t textfile_interval_ns;
	bool textfile_failing;
};

static int on_request(void *ctx, const char *line, struct buffer *ret, struct control_rest *rest)
{
	struct reporter *reporter = ctx;

	return requests_answer(&reporter->options.requests, line, ret, rest);
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
			 reporter->metrics_handed ? "the socket of systemd" : config->listen,
			 r == -ELIBACC ? "libmicrohttpd is not installed" : strerror(-r));
}

/* ---- the file ---- */

static void say_textfile(struct reporter *reporter, int error)
{
	bool before = reporter->textfile_failing;

	reporter->textfile_failing = error < 0;
	if (error < 0 && !before)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_NONE, .error = error },
			  "cannot write the metrics to %s: %s", reporter->textfile_path, strerror(-error));
	else if (error == 0 && before)
		log_line(LOG_NOTICE, "the metrics are written to %s again", reporter->textfile_path);
}

static int on_textfile(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct reporter *reporter = userdata;
	AUTO(buffer_release) struct buffer page = { .max = METRICS_PAGE_MAX };
	int r = on_scrape(reporter, OPENMETRICS_0_0_4, &page);

	(void)usec;
	if (r == 0)
		r = textfile_put(reporter->textfile, &page);
	if (r != TEXTFILE_BUSY)
		say_textfile(reporter, r);
	sd_event_source_set_time_relative(source, reporter->textfile_interval_ns / NS_PER_US);

	return 0;
}

static int add_textfile_timer(struct reporter *reporter)
{
	int r = sd_event_add_time_relative(reporter->options.event, &reporter->textfile_timer, CLOCK_MONOTONIC, 0,
					   TEXTFILE_ACCURACY_US, on_textfile, reporter);

	if (r >= 0)
		r = sd_event_source_set_enabled(reporter->textfile_timer, SD_EVENT_ON);

	return r < 0 ? r : sd_event_source_set_priority(reporter->textfile_timer, SD_EVENT_PRIORITY_IDLE);
}

static void stop_textfile(struct reporter *reporter)
{
	reporter->textfile_timer = sd_event_source_disable_unref(reporter->textfile_timer);
	textfile_free(reporter->textfile);
	reporter->textfile = NULL;
	reporter->textfile_path[0] = '\0';
	reporter->textfile_failing = false;
}

static void start_textfile(struct reporter *reporter, const struct config_metrics *config)
{
	int r;

	if (!*config->textfile)
		return;

	snprintf(reporter->textfile_path, sizeof reporter->textfile_path, "%s", config->textfile);
	reporter->textfile_interval_ns = config->textfile_interval_ns;
	r = textfile_new(config->textfile, &reporter->textfile);
	if (r == 0)
		r = add_textfile_timer(reporter);
	if (r < 0) {
		say_textfile(reporter, r);
		stop_textfile(reporter);
	}
}

/* ---- the whole ---- */

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
	start_textfile(reporter, options->metrics);
}

static void reload_metrics(struct reporter *reporter, const struct config_metrics *metrics)
{
	if (reporter->metrics_handed || (reporter->metrics && strcmp(reporter->listen, metrics->listen) == 0))
		return;

	metrics_free(reporter->metrics);
	reporter->metrics = NULL;
	reporter->listen[0] = '\0';
	start_metrics(reporter, metrics);
}

/* From now on, and not from when the old interval is over. */
static void set_textfile_interval(struct reporter *reporter, uint64_t interval_ns)
{
	if (reporter->textfile_timer && reporter->textfile_interval_ns != interval_ns)
		sd_event_source_set_time_relative(reporter->textfile_timer, interval_ns / NS_PER_US);
	reporter->textfile_interval_ns = interval_ns;
}

static void reload_textfile(struct reporter *reporter, const struct config_metrics *metrics)
{
	if (strcmp(reporter->textfile_path, metrics->textfile) == 0) {
		set_textfile_interval(reporter, metrics->textfile_interval_ns);
		return;
	}

	stop_textfile(reporter);
	start_textfile(reporter, metrics);
}

void reporter_reload(struct reporter *reporter, const struct config_metrics *metrics)
{
	reload_metrics(reporter, metrics);
	reload_textfile(reporter, metrics);
}

void reporter_free(struct reporter *reporter)
{
	if (!reporter)
		return;

	control_free(reporter->control);
	metrics_free(reporter->metrics);
	stop_textfile(reporter);
	exposition_free(reporter->exposition);
	handedfds_release(&reporter->handed);
	free(reporter);
}
