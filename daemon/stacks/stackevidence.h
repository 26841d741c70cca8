/*
 * stackevidence.h: the stacks of an incident, if the session records stacks. The worker's.
 */
#ifndef SPIKEWATCH_STACKEVIDENCE_H
#define SPIKEWATCH_STACKEVIDENCE_H

#include "collector.h"
#include "session.h"
#include "symbolizer.h"

/* Secures what the rings hold of the time before; why not, if not, is added to incident->evidence. held: see stackcapture_options. */
void stackevidence_secure(struct session *session, size_t *held, struct collector_incident *incident);

/* Writes them into the draft, and does what is said in waiting meanwhile; what became of it is added to incident->evidence. */
void stackevidence_write(struct session *session, const struct symbolizer_waiting *waiting,
			 struct collector_incident *incident);

#endif
