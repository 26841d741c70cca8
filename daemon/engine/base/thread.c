/* thread.c */
#include "daemon/engine/base/thread.h"

#include "daemon/engine/base/clocks.h"

#include <signal.h>

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
	struct clock clock = real_clock();
	uint64_t until_ns = clock_wall(&clock).ns + wait_ns;
	struct timespec deadline = { .tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S) };

	return (wait_ns == 0 ? pthread_tryjoin_np(thread, NULL) : pthread_timedjoin_np(thread, NULL, &deadline)) == 0;
}
