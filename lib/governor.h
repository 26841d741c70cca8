/*
 * governor.h: keeps the recorder within its CPU budget by lengthening the sampling interval, and lets it recover. Pure.
 *
 * Once a period the owner reports how much CPU time the whole process has used. After GOVERNOR_HOT periods in a row above the budget the
 * interval doubles (up to GOVERNOR_FACTOR_MAX times the configured one): a single one may be the first look at everything. After GOVERNOR_CALM calm periods, in which half the interval would still
 * have fitted into the budget, it halves. The gap between the two conditions keeps it from swinging.
 */
#ifndef SPIKEWATCH_GOVERNOR_H
#define SPIKEWATCH_GOVERNOR_H

#include "clock.h"

#include <stdint.h>

#define GOVERNOR_PERIOD_NS NS_PER_S
#define GOVERNOR_FACTOR_MAX 64u
#define GOVERNOR_HOT 2u   /* periods */
#define GOVERNOR_CALM 10u /* periods */

struct governor {
	double budget;      /* CPU seconds per second; <= 0: no limit */
	mono_t since;       /* start of the running period */
	uint64_t cpu_ns;    /* process CPU time then */
	uint32_t factor;    /* interval in force / interval configured: a power of two */
	uint32_t hot, calm; /* periods of that kind in a row */
	double share;       /* of the last whole period: CPU seconds per second */
};

/* budget_percent: of one core. cpu_ns: process CPU time at now. */
void governor_init(struct governor *governor, double budget_percent, mono_t now, uint64_t cpu_ns);

/* Whether a period is over, so that governor_step is worth a reading of the CPU clock. */
static inline int governor_due(const struct governor *governor, mono_t now)
{
	return mono_diff(now, governor->since) >= (int64_t)GOVERNOR_PERIOD_NS;
}

/* Ends a period. Returns the factor from now on; it differs from the one before when something must be said. */
uint32_t governor_step(struct governor *governor, mono_t now, uint64_t cpu_ns);

#endif
