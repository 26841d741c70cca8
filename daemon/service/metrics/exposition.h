/*
 * exposition.h: the state of the daemon and of its targets as metrics, in the two text forms that
 * Prometheus reads. docs/metrics.md lists the families. Belongs to the main thread.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_METRICS_EXPOSITION_H
#define SPIKEWATCH_DAEMON_SERVICE_METRICS_EXPOSITION_H

#include "daemon/service/health/overview.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

enum openmetrics_form {
	OPENMETRICS_0_0_4, /* the text format of Prometheus: the default */
	OPENMETRICS_1_0,
};

/*
 * The form that a client prefers by its Accept header (RFC 9110, 12.5.1): OpenMetrics only if it
 * names it with a weight no less than plain text's. NULL, or what cannot be parsed: 0.0.4.
 */
enum openmetrics_form openmetrics_negotiate(const char *accept);

/* The media type of a form; static text. */
const char *openmetrics_type(enum openmetrics_form form);

/* It keeps counters from page to page: a sum must not decrease when a target that it has ends. */
struct exposition;

/* started: when the daemon was. 0 or -ENOMEM. */
int exposition_new(wall_t started, struct exposition **ret);

/* NULL is fine. */
void exposition_free(struct exposition *exposition);

/*
 * Appends a page to ret. 0; -ENOMEM; -EFBIG: beyond ret->max, and then what was appended is of no
 * use. Three microseconds per target that has series of its own, less than half of one for each of
 * the others.
 */
int exposition_write(struct exposition *exposition, const struct overview *overview, enum openmetrics_form form,
		     struct buffer *ret);

#endif
