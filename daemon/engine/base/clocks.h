/*
 * clocks.h: the time of day, believed only when nobody has set it for a while. What is removed for
 * its age is gone: a clock that a machine woke up with, or that was set by mistake, should not
 * decide that. Pure; for one thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_CLOCKS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_CLOCKS_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <time.h>

/* real_clock.h: the machine's clocks as a struct clock. */

/* CLOCK_MONOTONIC and CLOCK_REALTIME through the vDSO. */
struct clock real_clock(void);

/*
 * Monotonic, wall and boot clock (CLOCK_BOOTTIME) as of the same moment: within a millisecond,
 * unless the machine gives this thread no such moment in a few tries; then the last of them.
 */
void real_clock_together(mono_t *ret_mono, wall_t *ret_wall, uint64_t *ret_boot_ns);

/* CPU time of this process, all threads; of the calling thread. Nanoseconds. */
uint64_t real_clock_process_cpu(void);
uint64_t real_clock_thread_cpu(void);

/*
 * The CPU clock of a process, as clock_getcpuclockid(3) makes it, which also asks whether it is
 * there.
 */
static inline clockid_t real_clock_of(int32_t pid)
{
	return (clockid_t)(~(uint32_t)pid << 3 | 2);
}

/* CPU time behind a thread's (pthread_getcpuclockid(3)) or process's clock; 0 if it has ended. */
uint64_t real_clock_cpu_of(clockid_t clock);

/* Sleeps until `until` or a signal. */
void real_clock_sleep_until(mono_t until);

/* Zeroed is the right start. */
struct steady_clock {
	bool looked;
	int64_t ahead_ns; /* of the monotonic clock, at the last look */
	mono_t since;     /* no step since then */
};

/*
 * A look at both clocks. The time of day if it has been steady for STEADY_CLOCK_NS; else 0, at
 * which nothing is old.
 */
wall_t steady_clock_look(struct steady_clock *clock, mono_t mono, wall_t wall);

#endif
