/*
 * exposition.h: how the daemon and its targets are, as metrics. What there is: families.h, docs/metrics.md. Belongs to the main thread.
 *
 * It remembers a little from page to page, because what is summed must not count backwards when one of the sum ends.
 */
#ifndef SPIKEWATCH_EXPOSITION_H
#define SPIKEWATCH_EXPOSITION_H

#include "clock.h"
#include "openmetrics.h"
#include "overview.h"
#include "sink.h"

struct exposition;

/* started: when the daemon was. 0 or -ENOMEM. */
int exposition_new(wall_t started, struct exposition **ret);

/* NULL is fine. */
void exposition_free(struct exposition *exposition);

/*
 * Appends a page to ret. 0; -ENOMEM; -EFBIG: beyond ret->max, and then what was appended is of no use. Three microseconds per
 * target that has series of its own, less than half of one for each of the others.
 */
int exposition_write(struct exposition *exposition, const struct overview *overview, enum openmetrics_form form,
		     struct buffer *ret);

#endif
