/*
 * statusjson.h: how the daemon is, and why each rule did or did not fire on each target, as one JSON document. What is in it is
 * described in docs/status.md.
 */
#ifndef SPIKEWATCH_STATUSJSON_H
#define SPIKEWATCH_STATUSJSON_H

#include "config.h"
#include "evaluator.h"
#include "health.h"
#include "incidents.h"
#include "paths.h"
#include "session.h"
#include "sink.h"
#include "watcher.h"

/* What the answer is made from; all borrowed. */
struct statusjson {
	const struct config *config;
	const struct paths *paths;
	struct session *session;
	const struct evaluator *evaluator;
	struct incidents *incidents;
	const struct watcher *watcher;
	const struct health *health;
	mono_t started, now;
};

/*
 * Appends the document to ret. Targets that do not fit into ret->max (0: no limit) are left out and counted. 0; -ENOMEM; -EFBIG: not
 * even the rest fits.
 */
int statusjson_write(const struct statusjson *status, struct buffer *ret);

/* Appends a document that says what is wrong with a request. Returns as above. */
int statusjson_refuse(const char *request, struct buffer *ret);

#endif
