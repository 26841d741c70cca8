/* thread.h: threads of the daemon: started without signals, waited for with a limit. */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_THREAD_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

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
