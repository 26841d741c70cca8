/*
 * statusjson.h: how the daemon is, and why each rule did or did not fire on each target, as one JSON document. What is in it is
 * described in docs/status.md.
 */
#ifndef SPIKEWATCH_STATUSJSON_H
#define SPIKEWATCH_STATUSJSON_H

#include "overview.h"
#include "sink.h"

/*
 * Appends the document to ret. Targets that do not fit into ret->max (0: no limit) are left out and counted. 0; -ENOMEM; -EFBIG: not
 * even the rest fits.
 */
int statusjson_write(const struct overview *overview, struct buffer *ret);

#endif
