/*
 * readiness.h: when the daemon is ready: when the first scan for targets is through, which discovery's thread makes (session_seek), or after READINESS_PATIENCE_NS
 * without it, because the files of a process may hang when they are read. Until then the event loop runs: whoever asks is answered, and a signal ends it.
 */
#ifndef SPIKEWATCH_READINESS_H
#define SPIKEWATCH_READINESS_H

#include "clock.h"
#include "discovery.h"

#include <systemd/sd-event.h>

/* A scan of a thousand processes takes some milliseconds; systemd waits for a minute and a half by default. */
#define READINESS_PATIENCE_NS (5 * NS_PER_S)

/* result: 0, also when it is not waited for any longer, or why the first scan has failed. Negative ends the loop. */
typedef int readiness_ready(void *ctx, int result);

/* {0}: nothing is waited for. All is readiness.c's own. */
struct readiness {
	const struct discovery *discovery;
	readiness_ready *ready;
	void *ctx;
	sd_event_source *scanned, *patience;
};

/*
 * Calls ready once, from the loop. Set in readiness are discovery, whose thread was started, ready and ctx. That the first scan is not waited for any longer is
 * logged. 0 or -errno.
 */
int readiness_await(struct readiness *readiness, sd_event *event);

/* Nothing is waited for any more. Harmless if nothing is. */
void readiness_release(struct readiness *readiness);

#endif
