/*
 * housekeeping.h: what is looked after once a second: how sampling, discovery, the rules and the clocks are (said by health.h), whether every
 * thread is alive (watchdog.h), and readers that died while they held the ring.
 */
#ifndef SPIKEWATCH_HOUSEKEEPING_H
#define SPIKEWATCH_HOUSEKEEPING_H

#include "arrivals.h"
#include "health.h"
#include "incidents.h"
#include "session.h"
#include "watchdog.h"
#include "watcher.h"

/* All borrowed. */
struct housekeeping {
	struct session *session;
	struct incidents *incidents;
	struct watcher *watcher;
	struct health *health;
	struct arrivals *arrivals;
	struct watchdog *watchdog;
};

/* Once a second, in the main thread. */
void housekeeping_second(const struct housekeeping *house);

/* After each look at the ring: tells systemd that the daemon is alive, if it is. */
void housekeeping_judged(const struct housekeeping *house, mono_t now);

#endif
