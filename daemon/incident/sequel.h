/*
 * sequel.h: what is done for an incident after its first captures and before it is sealed: the commands of its target, and the second look
 * at its memory.
 */
#ifndef SPIKEWATCH_SEQUEL_H
#define SPIKEWATCH_SEQUEL_H

#include "collector.h"
#include "config.h"
#include "hooks.h"

#include <stdbool.h>

/*
 * What the configuration wants for an incident of this target and rule, which must be known. The main thread, before collector_capture.
 * Without memory for it the incident says so.
 */
void sequel_plan(struct collector_incident *incident, const struct config *config);

struct sequel {
	struct session *session;
	const struct clock *clock;
	struct hooks *hooks;
	void (*done)(void *ctx); /* of the commands: from the thread of hooks */
};

/* Begins to run the commands. True: done(incident) will be called; false: there are none, or the incident says why none is run. */
bool sequel_run(const struct sequel *sequel, struct collector_incident *incident);

/* When the second look is due; 0: there will be none. */
mono_t sequel_again_at(const struct collector_incident *incident);

/* Takes it; why: not NULL: it is not taken, for this reason. */
void sequel_again(const struct sequel *sequel, struct collector_incident *incident, const char *why);

/* After done: adds to the incident what became of the commands, and says in the log what went wrong. */
void sequel_report(struct collector_incident *incident);

#endif
