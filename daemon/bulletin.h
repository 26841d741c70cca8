/*
 * bulletin.h: the first and the last words of the daemon in the log.
 */
#ifndef SPIKEWATCH_BULLETIN_H
#define SPIKEWATCH_BULLETIN_H

#include "overview.h"

/* What is watched, how, and where incidents go. */
void bulletin_started(const struct overview *overview);

/* How the whole run was. The sampler must be stopped. */
void bulletin_stopped(const struct overview *overview);

#endif
