/*
 * overview.h: everything there is to say about a running daemon, gathered for those who write it down: the status document (statusjson.h)
 * and the metrics (exposition.h). Read in the main thread.
 */
#ifndef SPIKEWATCH_OVERVIEW_H
#define SPIKEWATCH_OVERVIEW_H

#include "config.h"
#include "evaluator.h"
#include "health.h"
#include "incidents.h"
#include "memofile.h"
#include "paths.h"
#include "privileges.h"
#include "ruletally.h"
#include "session.h"
#include "watcher.h"

/* All borrowed. */
struct overview {
	const struct config *config;
	const struct paths *paths;
	struct session *session;
	const struct evaluator *evaluator;
	struct incidents *incidents;
	const struct memofile *memofile; /* NULL: nothing is remembered */
	const struct watcher *watcher;
	const struct health *health;
	const struct ruletally *tally; /* NULL: nobody counts */
	const struct privileges *privileges;
	mono_t started, now;
};

#endif
