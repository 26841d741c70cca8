/*
 * reload.h: another configuration for a daemon that runs: all of it at once, or none of it.
 *
 * Unchanged targets stay what they are, with their past; unchanged rules keep their history and cooldowns; no tick is missed. What only a
 * restart can change (configdiff.h) makes the whole of it refused.
 */
#ifndef SPIKEWATCH_RELOAD_H
#define SPIKEWATCH_RELOAD_H

#include "configfile.h"
#include "evaluator.h"
#include "incidents.h"
#include "reporter.h"
#include "ruletally.h"
#include "session.h"

/* Those who have to change; all borrowed. *config and *tally are replaced, and the old ones freed. */
struct reload {
	const struct configfile *file;
	struct config **config;
	struct session *session;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct ruletally **tally;
	struct reporter *reporter;
};

/* Room for what it has to say. */
#define RELOAD_MESSAGE_MAX CONFIGFILE_MESSAGE_MAX

/*
 * Reads the file again and puts it in force. Main thread. 0: message (RELOAD_MESSAGE_MAX bytes) says what changed; -errno: it says why
 * nothing did. Logged either way.
 */
int reload_run(const struct reload *reload, char *message);

#endif
