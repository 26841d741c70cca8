/*
 * stackevidence.h: the stacks of an incident, if the session records stacks. The worker's.
 */
#ifndef SPIKEWATCH_STACKEVIDENCE_H
#define SPIKEWATCH_STACKEVIDENCE_H

#include "collector.h"
#include "session.h"

/* Secures what the rings hold of the time before; why not, if not, is added to incident->evidence. */
void stackevidence_secure(struct session *session, struct collector_incident *incident);

/* Writes them into the draft; what became of it is added to incident->evidence. */
void stackevidence_write(struct session *session, struct collector_incident *incident);

#endif
