/*
 * sealing.h: the last part of an incident's way to the disk. On a disk that is full what is most valuable is kept: incident.json, then the
 * samples, then the lightest of the captures; what had to go is in incident.json with the reason. The worker's.
 */
#ifndef SPIKEWATCH_SEALING_H
#define SPIKEWATCH_SEALING_H

#include "collector.h"
#include "session.h"
#include "spool.h"

#include <stddef.h>

struct sealing {
	struct session *session;
	struct spool *spool;
	const struct clock *clock;
	/* Old incidents may have to make room, by the limits of retention: as with spool_enforce. */
	void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why);
	void *ctx;
};

/* Makes the incident's draft; without one says why in incident->error. Of everything: opens the panorama too, if samples are wanted. */
void sealing_begin(const struct sealing *sealing, struct collector_incident *incident);

/*
 * Writes what is still to be written and seals it; makes the draft if there was none, or if somebody removed it. incident has no draft any
 * more. 0: info.id is its name; -errno: nothing is left of it.
 */
int sealing_finish(const struct sealing *sealing, struct collector_incident *incident);

#endif
