/*
 * fair_mutex.h: reads of foreign files, which may take for ever (a process whose memory map is locked in the kernel), are done outside of the lock under which
 * everything else stands: whoever reads leaves it, says whose files he reads, and comes back. {0}: there is no lock.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/*
 * turnstile.h: a lock that somebody holds for long and lends between two steps. A mutex alone would not do: who unlocks it and locks it again has
 * it before any waiter is awake.
 */

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

struct outside {
	void (*leave)(void *ctx, int32_t pid);
	/* 0; -ECANCELED: what was begun before is of no worth any more, and what it looked at may be gone. */
	int (*enter)(void *ctx);
	void *ctx;
};

static inline void outside_leave(const struct outside *outside, int32_t pid)
{
	if (outside->leave)
		outside->leave(outside->ctx, pid);
}

/* As enter. */
static inline int outside_enter(const struct outside *outside)
{
	return outside->enter ? outside->enter(outside->ctx) : 0;
}

#endif
