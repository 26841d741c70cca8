/*
 * evidence.h: gathers what the captures of an incident look at (processes, baselines, limits) and runs them. The worker's.
 */
#ifndef SPIKEWATCH_EVIDENCE_H
#define SPIKEWATCH_EVIDENCE_H

#include "clock.h"
#include "collector.h"
#include "session.h"

/*
 * Runs all captures of the incident but its samples, into its draft; what became of each is added to incident->evidence. Which processes were
 * looked at is in incident->members, and when in incident->captured. An incident of
 * everything has those that look at the machine, and at the busiest watched processes.
 */
void evidence_collect(struct session *session, const struct clock *clock, struct collector_incident *incident);

/* Which captures evidence_collect runs. */
unsigned evidence_captures(const struct collector_incident *incident);

/* The second look, at the processes of the first. */
void evidence_again(struct session *session, const struct clock *clock, struct collector_incident *incident);

/* Which captures evidence_again runs. */
unsigned evidence_again_captures(const struct collector_incident *incident);

#endif
