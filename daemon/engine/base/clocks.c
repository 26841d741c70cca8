/* clocks.c: the only file of the daemon that asks the kernel for the time. */
#include "daemon/engine/base/clocks.h"

#include <signal.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec now = { 0 };

	clock_gettime(id, &now);

	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static mono_t read_mono(void *ctx)
{
	(void)ctx;

	return (mono_t){ read_clock(CLOCK_MONOTONIC) };
}

static wall_t read_wall(void *ctx)
{
	(void)ctx;

	return (wall_t){ read_clock(CLOCK_REALTIME) };
}

static uint64_t read_boot(void *ctx)
{
	(void)ctx;

	return read_clock(CLOCK_BOOTTIME);
}

struct clock real_clock(void)
{
	return (struct clock){ .mono = read_mono, .wall = read_wall, .boot_ns = read_boot };
}

void real_clock_together(mono_t *ret_mono, wall_t *ret_wall, uint64_t *ret_boot_ns)
{
	for (int tries = 0; tries < 10; tries++) {
		ret_mono->ns = read_clock(CLOCK_MONOTONIC);
		ret_wall->ns = read_clock(CLOCK_REALTIME);
		*ret_boot_ns = read_clock(CLOCK_BOOTTIME);
		if (read_clock(CLOCK_MONOTONIC) - ret_mono->ns < NS_PER_MS)
			return;
	}
}

uint64_t real_clock_cpu_of(clockid_t clock)
{
	return read_clock(clock);
}

void real_clock_sleep_until(mono_t until)
{
	struct timespec at = {
		.tv_sec = (time_t)(until.ns / NS_PER_S),
		.tv_nsec = (long)(until.ns % NS_PER_S),
	};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

int thread_start(pthread_t *ret, void *(*run)(void *), void *ctx)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret, NULL, run, ctx);
	pthread_sigmask(SIG_SETMASK, &before, NULL);

	return -r;
}

bool thread_join_within(pthread_t thread, uint64_t wait_ns)
{
	uint64_t until_ns = read_clock(CLOCK_MONOTONIC) + wait_ns;
	struct timespec deadline = { .tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S) };

	return (wait_ns == 0 ? pthread_tryjoin_np(thread, NULL)
			     : pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &deadline)) == 0;
}
