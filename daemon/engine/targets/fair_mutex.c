/*
 * fair_mutex.c: whoever waits for the lock holds the gate meanwhile, so that a holder who left and
 * comes back has to wait behind him. The gate is let go of as soon as the lock is held: order gate,
 * lock, and never the gate under the lock.
 */
#include "daemon/engine/targets/fair_mutex.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

void fair_mutex_init(struct fair_mutex *fair_mutex)
{
	pthread_mutex_init(&fair_mutex->lock, NULL);
	pthread_mutex_init(&fair_mutex->read_gate, NULL);
}

void fair_mutex_release(struct fair_mutex *fair_mutex)
{
	pthread_mutex_destroy(&fair_mutex->lock);
	pthread_mutex_destroy(&fair_mutex->read_gate);
}

void fair_mutex_enter(struct fair_mutex *fair_mutex)
{
	pthread_mutex_lock(&fair_mutex->read_gate);
	pthread_mutex_lock(&fair_mutex->lock);
	pthread_mutex_unlock(&fair_mutex->read_gate);
}

void fair_mutex_leave(struct fair_mutex *fair_mutex)
{
	pthread_mutex_unlock(&fair_mutex->lock);
}

void fair_mutex_yield(struct fair_mutex *fair_mutex)
{
	fair_mutex_leave(fair_mutex);
	fair_mutex_enter(fair_mutex);
}
