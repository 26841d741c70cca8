/*
 * idlepace.c: pauses are whole numbers of ticks, and the look is due half a tick before the one it is meant for, so that a tick which comes a
 * little early is not let pass. It is due by the clock and not by a count of ticks: if ticks are skipped or come more slowly, it is not
 * put off, and the promise holds at every tick that there is.
 *
 * Pauses below the longest are powers of two of ticks: who is in step with them stays so when they double, which spreads targets without
 * looking more often than it takes. The first pause of a length ends at the tick that is the target's own; the others are whole.
 */
#include "idlepace.h"

uint64_t idlepace_wait_ns(const struct idlepace *pace, uint64_t still_ns, uint32_t tick, uint32_t phase)
{
	if (pace->interval_ns == 0)
		return 0;

	uint64_t longest = pace->idle_ns / pace->interval_ns;
	uint64_t ticks = idlepace_bound_ns(still_ns, pace->idle_ns) / pace->interval_ns;
	if (ticks < 2)
		return 0;
	if (ticks < longest)
		ticks = 1ULL << (63 - __builtin_clzll(ticks));
	ticks -= (uint64_t)(uint32_t)(tick + phase) % ticks;

	return ticks < 2 ? 0 : ticks * pace->interval_ns - pace->interval_ns / 2;
}

mono_t idlepace_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns)
{
	int64_t still_ns = since ? mono_diff(now, *since) : INT64_MAX;
	mono_t seen = mono_sub(now, idlepace_bound_ns(still_ns > 0 ? (uint64_t)still_ns : 0, idle_ns));

	return mono_diff(seen, at) > 0 ? seen : at;
}
