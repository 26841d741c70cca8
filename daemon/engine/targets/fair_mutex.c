/*
 * fair_mutex.c: whoever waits for the lock holds the gate meanwhile, so that a holder who left and comes back has to wait behind
 * him. The gate is let go of as soon as the lock is held: order gate, lock, and never the gate under the lock.
 */
#include "daemon/engine/targets/fair_mutex.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

void turnstile_init(struct turnstile *turnstile)
{
	pthread_mutex_init(&turnstile->lock, NULL);
	pthread_mutex_init(&turnstile->gate, NULL);
}

void turnstile_release(struct turnstile *turnstile)
{
	pthread_mutex_destroy(&turnstile->lock);
	pthread_mutex_destroy(&turnstile->gate);
}

void turnstile_enter(struct turnstile *turnstile)
{
	pthread_mutex_lock(&turnstile->gate);
	pthread_mutex_lock(&turnstile->lock);
	pthread_mutex_unlock(&turnstile->gate);
}

void turnstile_leave(struct turnstile *turnstile)
{
	pthread_mutex_unlock(&turnstile->lock);
}

void turnstile_yield(struct turnstile *turnstile)
{
	turnstile_leave(turnstile);
	turnstile_enter(turnstile);
}
