/*
 * daemon.h: spikewatchd at work: the main loop (sd-event) around session, rules and incidents.
 */
#ifndef SPIKEWATCH_DAEMON_H
#define SPIKEWATCH_DAEMON_H

#include "config.h"

/*
 * Runs until SIGTERM or SIGINT. config must outlive the call. 0: a clean stop; -errno: it could not start (logged), -EALREADY:
 * another daemon has this ring.
 */
int daemon_run(const struct config *config);

#endif
