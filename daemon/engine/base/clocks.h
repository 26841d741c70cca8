/*
 * clocks.h: clocks and threads of this program: the clocks of the machine as a struct clock, CPU
 * clocks; threads started without signals and waited for with a limit.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_CLOCKS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_CLOCKS_H

#include "lib/base/base.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC, CLOCK_REALTIME and CLOCK_BOOTTIME through the vDSO. */
struct clock real_clock(void);

/*
 * Monotonic, wall and boot clock (CLOCK_BOOTTIME) of the same moment: within a millisecond, if a
 * few tries are enough for that; else of the last try.
 */
void real_clock_together(mono_t *ret_mono, wall_t *ret_wall, uint64_t *ret_boot_ns);

/* The CPU clock of a process, as clock_getcpuclockid(3), which would also check that it exists. */
static inline clockid_t real_clock_of(int32_t pid)
{
	return (clockid_t)(~(uint32_t)pid << 3 | 2);
}

/* CPU time by the clock of a thread (pthread_getcpuclockid(3)) or process; 0 if it has ended. */
uint64_t real_clock_cpu_of(clockid_t clock);

/* CPU time of this process, all threads; of the calling thread. Nanoseconds. */
static inline uint64_t real_clock_process_cpu(void)
{
	return real_clock_cpu_of(CLOCK_PROCESS_CPUTIME_ID);
}

static inline uint64_t real_clock_thread_cpu(void)
{
	return real_clock_cpu_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Sleeps until `until` or a signal. */
void real_clock_sleep_until(mono_t until);

/*
 * Starts run(ctx) in a thread in which all signals are blocked: they are for the main thread. 0;
 * -errno.
 */
int thread_start(pthread_t *ret, void *(*run)(void *), void *ctx);

/*
 * Waits at most wait_ns for the end of a thread; 0: only asks. True: it has ended, and is joined.
 */
bool thread_join_within(pthread_t thread, uint64_t wait_ns);

#endif
