/* realclock.h: the machine's clocks as a struct clock. */
#ifndef SPIKEWATCH_REALCLOCK_H
#define SPIKEWATCH_REALCLOCK_H

#include "clock.h"

#include <time.h>

/* CLOCK_MONOTONIC and CLOCK_REALTIME through the vDSO. */
struct clock realclock(void);

/*
 * Monotonic, wall and boot clock (CLOCK_BOOTTIME) as of the same moment: within a millisecond, unless the machine gives this thread no
 * such moment in a few tries; then the last of them.
 */
void realclock_together(mono_t *ret_mono, wall_t *ret_wall, uint64_t *ret_boot_ns);

/* CPU time of this process, all threads; of the calling thread. Nanoseconds. */
uint64_t realclock_process_cpu(void);
uint64_t realclock_thread_cpu(void);

/* The CPU clock of a process, as clock_getcpuclockid(3) makes it, which also asks whether it is there. */
static inline clockid_t realclock_of(int32_t pid)
{
	return (clockid_t)(~(uint32_t)pid << 3 | 2);
}

/* CPU time behind a thread's (pthread_getcpuclockid(3)) or process's clock; 0 if it has ended. */
uint64_t realclock_cpu_of(clockid_t clock);

/* Sleeps until `until` or a signal. */
void realclock_sleep_until(mono_t until);

#endif
