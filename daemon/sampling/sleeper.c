/*
 * sleeper.c: a call is a flag that is looked at between slices. Rejected: a futex or a signal that ends a sleep at once. Nobody who calls
 * is in a hurry, and clock_nanosleep, with nothing to be woken by, is what the accuracy of the ticks was measured with.
 */
#include "sleeper.h"

#include "realclock.h"

#include <sched.h>
#include <stdatomic.h>

/* Where sleeping ends and yielding or spinning begins: about the 99th percentile of a wake-up's lateness on an idle machine. */
#define YIELD_NS (50 * NS_PER_US)
#define SPIN_NS (100 * NS_PER_US)

/* The longest uninterrupted sleep: how long a caller may have to wait, and how old the pulse of a healthy thread gets. */
#define SLICE_NS (100 * NS_PER_MS)

void sleeper_call(struct sleeper *sleeper)
{
	atomic_store_explicit(&sleeper->called, true, memory_order_release);
}

mono_t sleeper_pulse(const struct sleeper *sleeper)
{
	return (mono_t){ atomic_load_explicit(&sleeper->pulse_ns, memory_order_relaxed) };
}

void sleeper_beat(struct sleeper *sleeper, mono_t now)
{
	atomic_store_explicit(&sleeper->pulse_ns, now.ns, memory_order_relaxed);
}

/* An exchange, and not a store, because it must see what came before the call that it clears. */
void sleeper_answer(struct sleeper *sleeper)
{
	if (atomic_load_explicit(&sleeper->called, memory_order_relaxed))
		atomic_exchange_explicit(&sleeper->called, false, memory_order_acq_rel);
}

static bool called(const struct sleeper *sleeper)
{
	return atomic_load_explicit(&sleeper->called, memory_order_relaxed);
}

void sleeper_sleep(struct sleeper *sleeper, mono_t until)
{
	while (!called(sleeper)) {
		mono_t now = clock_mono(&sleeper->clock);
		int64_t left = mono_diff(until, now);

		sleeper_beat(sleeper, now);
		if (left <= 0)
			return;
		realclock_sleep_until(left > (int64_t)SLICE_NS ? mono_add(now, SLICE_NS) : until);
	}
}

static void pause_briefly(enum config_wait wait)
{
	if (wait == CONFIG_WAIT_YIELD)
		sched_yield();
#if defined(__x86_64__) || defined(__i386__)
	else
		__builtin_ia32_pause();
#endif
}

void sleeper_wait(struct sleeper *sleeper, mono_t deadline, enum config_wait wait)
{
	uint64_t early = wait == CONFIG_WAIT_SPIN ? SPIN_NS : wait == CONFIG_WAIT_YIELD ? YIELD_NS : 0;

	sleeper_sleep(sleeper, mono_sub(deadline, early));
	while (early && !called(sleeper) && mono_diff(deadline, clock_mono(&sleeper->clock)) > 0)
		pause_briefly(wait);
}
