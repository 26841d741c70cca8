/*
 * bulletin.h: the first and the last words of the daemon in the log.
 */
#ifndef SPIKEWATCH_BULLETIN_H
#define SPIKEWATCH_BULLETIN_H

#include "arrivals.h"
#include "overview.h"

/* What is watched, how, and where incidents go. The targets that are there are said by this, and not by arrivals. */
void bulletin_started(const struct overview *overview, struct arrivals *arrivals);

/* What arrivals has not said yet, and how the whole run was. The sampler must be stopped. */
void bulletin_stopped(const struct overview *overview, struct arrivals *arrivals);

#endif
