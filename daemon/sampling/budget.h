/*
 * budget.h: the CPU time that the process may take, as its sampler threads see it: the one that leads measures (governor.h) and says how much slower
 * than configured all are, the others do as it says.
 */
#ifndef SPIKEWATCH_BUDGET_H
#define SPIKEWATCH_BUDGET_H

#include "clock.h"
#include "governor.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* In the owner's storage; {0} before budget_restart. */
struct budget {
	struct governor governor;
	const struct budget *leader; /* NULL: this one */
	clockid_t exempt;            /* of a thread whose CPU time is not budgeted */
	bool has_exempt;
	_Atomic uint32_t slowdown;
	_Atomic uint32_t share_ppm;
};

/* No slowdown any more; what was spent before is not held against the budget. percent: of one core; <= 0: no limit. The owner. */
void budget_restart(struct budget *budget, double percent, mono_t now);

/* The CPU time of this thread does not count. Before the owner's thread runs. */
void budget_exempt(struct budget *budget, clockid_t thread_clock);

/* To be called often, by the owner. Sets the factor that is in force from now on; whether a period has ended. Costs nothing while it lasts. */
bool budget_look(struct budget *budget, mono_t now, uint32_t *ret_factor);

/* The factor in force: any thread. */
uint32_t budget_slowdown(const struct budget *budget);

/* CPU share of the process in the last whole period, of one core, without what is exempt: of the one that leads. Any thread. */
double budget_share(const struct budget *budget);

#endif
