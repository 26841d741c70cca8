/* budget.c: a governor, and its answer where other threads can read it. */
#include "budget.h"

#include "realclock.h"

#include <stdatomic.h>

/* CPU time of this process that counts. */
static uint64_t spent(const struct budget *budget)
{
	uint64_t all = realclock_process_cpu();
	uint64_t exempt = budget->has_exempt ? realclock_cpu_of(budget->exempt) : 0;

	return all > exempt ? all - exempt : 0;
}

void budget_restart(struct budget *budget, double percent, mono_t now)
{
	governor_init(&budget->governor, percent, now, spent(budget));
	atomic_store_explicit(&budget->slowdown, 1, memory_order_relaxed);
}

void budget_exempt(struct budget *budget, clockid_t thread_clock)
{
	budget->exempt = thread_clock;
	budget->has_exempt = true;
}

bool budget_look(struct budget *budget, mono_t now, uint32_t *ret_factor)
{
	bool over = governor_due(&budget->governor, now);

	if (budget->leader) {
		if (over)
			budget->governor.since = now;
		*ret_factor = budget_slowdown(budget->leader);
	} else {
		*ret_factor = over ? governor_step(&budget->governor, now, spent(budget)) : budget->governor.factor;
		if (over)
			atomic_store_explicit(&budget->share_ppm, (uint32_t)(budget->governor.share * 1e6),
					      memory_order_relaxed);
	}
	atomic_store_explicit(&budget->slowdown, *ret_factor, memory_order_relaxed);

	return over;
}

uint32_t budget_slowdown(const struct budget *budget)
{
	return atomic_load_explicit(&budget->slowdown, memory_order_relaxed);
}

double budget_share(const struct budget *budget)
{
	return atomic_load_explicit(&budget->share_ppm, memory_order_relaxed) / 1e6;
}
