/* failing.h: what the log is told of incidents that were sealed, and of those that could not be written. */
#ifndef SPIKEWATCH_FAILING_H
#define SPIKEWATCH_FAILING_H

#include "clock.h"
#include "incident.h"

#include <stdint.h>

/* {0}: nothing has failed. All is failing.c's own. */
struct failing {
	int error; /* 0: the last one was written */
	mono_t said;
	uint64_t lost, unsaid; /* all of them; those not spoken for yet */
};

/* One more that could not be written: said when it begins, when the reason changes, and once a minute. */
void failing_say(struct failing *failing, const struct incident *info, int error, mono_t now);

/* One was sealed, which is said; and if others could not be written, that it is over. */
void failing_sealed(struct failing *failing, const struct incident *info);

#endif
