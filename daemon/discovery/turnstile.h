/*
 * turnstile.h: a lock that somebody holds for long and lends between two steps. A mutex alone would not do: who unlocks it and locks it again has
 * it before any waiter is awake.
 */
#ifndef SPIKEWATCH_TURNSTILE_H
#define SPIKEWATCH_TURNSTILE_H

#include <pthread.h>

struct turnstile {
	pthread_mutex_t lock; /* may be waited on with a condition while it is held */
	pthread_mutex_t gate;
};

/* In the caller's storage. */
void turnstile_init(struct turnstile *turnstile);

/* Nobody is in it or waits. */
void turnstile_release(struct turnstile *turnstile);

/* Waits for its turn, which is that of a step of whoever is inside and yields. */
void turnstile_enter(struct turnstile *turnstile);

/* By the holder. */
void turnstile_leave(struct turnstile *turnstile);

/* By the holder: the first who waits has his turn, if anybody waits; then it is held again. 50 ns when nobody does. */
void turnstile_yield(struct turnstile *turnstile);

#endif
