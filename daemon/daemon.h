/*
 * daemon.h: spikewatchd at work: the main loop (sd-event) around session, rules and incidents.
 */
#ifndef SPIKEWATCH_DAEMON_H
#define SPIKEWATCH_DAEMON_H

#include "configfile.h"

/*
 * Runs until SIGTERM or SIGINT. SIGHUP and `spikewatch reload` read file again; SIGUSR1 and `spikewatch trigger` open an incident.
 * config is what file held, and becomes the daemon's. 0: a clean stop; -errno: it could not start (logged), -EALREADY: another daemon
 * has this ring.
 */
int daemon_run(const struct configfile *file, struct config *config);

#endif
