/* governor.c: see the header for the rule. A period in which the machine slept tells nothing new and is judged like any other. */
#include "governor.h"

/* Half the interval costs about twice as much: recover only if that would still leave a quarter of the budget. */
#define GOVERNOR_RECOVER_BELOW 0.375

void governor_init(struct governor *governor, double budget_percent, mono_t now, uint64_t cpu_ns)
{
	*governor = (struct governor){
		.budget = budget_percent / 100,
		.since = now,
		.cpu_ns = cpu_ns,
		.factor = 1,
	};
}

uint32_t governor_step(struct governor *governor, mono_t now, uint64_t cpu_ns)
{
	int64_t elapsed = mono_diff(now, governor->since);

	if (elapsed <= 0)
		return governor->factor;

	governor->share = cpu_ns > governor->cpu_ns ? (double)(cpu_ns - governor->cpu_ns) / (double)elapsed : 0;
	governor->since = now;
	governor->cpu_ns = cpu_ns;

	if (governor->budget <= 0)
		return governor->factor;

	if (governor->share > governor->budget) {
		governor->calm = 0;
		if (++governor->hot < GOVERNOR_HOT)
			return governor->factor;
		governor->hot = 0;
		if (governor->factor < GOVERNOR_FACTOR_MAX)
			governor->factor *= 2;
		return governor->factor;
	}
	governor->hot = 0;

	if (governor->factor == 1 || governor->share > governor->budget * GOVERNOR_RECOVER_BELOW) {
		governor->calm = 0;
		return governor->factor;
	}

	if (++governor->calm >= GOVERNOR_CALM) {
		governor->calm = 0;
		governor->factor /= 2;
	}

	return governor->factor;
}
