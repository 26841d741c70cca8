/* description.h: what is known of an incident when it is opened: what fired or who asked, of what, on which machine, at what cost. */
#ifndef SPIKEWATCH_DESCRIPTION_H
#define SPIKEWATCH_DESCRIPTION_H

#include "evaluator.h"
#include "incident.h"
#include "memo.h"
#include "session.h"

struct description {
	struct session *session;
	const struct memo *memo; /* for how often a rule has fired */
};

/* Of a rule that fired. */
void description_of_firing(const struct description *description, const struct evaluator_firing *firing,
			   struct incident *ret);

/* Of a request by hand at that moment; target NULL: of everything. */
void description_of_request(const struct description *description, const struct target *target, mono_t mono,
			    wall_t wall, struct incident *ret);

#endif
