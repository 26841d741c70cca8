/*
 * fair_mutex.h: reads of foreign files, which may take for ever (a process whose memory map is
 * locked in the kernel), are done outside of the lock under which everything else stands: whoever
 * reads leaves it, says whose files he reads, and comes back. {0}: there is no lock.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/*
 * fair_mutex.h: a lock that somebody holds for long and lends between two steps. A mutex alone
 * would not do: who unlocks it and locks it again has it before any waiter is awake.
 */

struct fair_mutex {
	pthread_mutex_t lock; /* may be waited on with a condition while it is held */
	pthread_mutex_t read_gate;
};

/* In the caller's storage. */
void fair_mutex_init(struct fair_mutex *fair_mutex);

/* Nobody is in it or waits. */
void fair_mutex_release(struct fair_mutex *fair_mutex);

/* Waits for its turn, which is that of a step of whoever is inside and yields. */
void fair_mutex_enter(struct fair_mutex *fair_mutex);

/* By the holder. */
void fair_mutex_leave(struct fair_mutex *fair_mutex);

/*
 * By the holder: the first who waits has his turn, if anybody waits; then it is held again. 50 ns
 * when nobody does.
 */
void fair_mutex_yield(struct fair_mutex *fair_mutex);

struct unlocked_section {
	void (*leave)(void *ctx, int32_t pid);
	/*
	 * 0; -ECANCELED: what was begun before is of no worth any more, and what it looked at may
	 * be gone.
	 */
	int (*enter)(void *ctx);
	void *ctx;
};

static inline void unlocked_section_leave(const struct unlocked_section *unlocked_section, int32_t pid)
{
	if (unlocked_section->leave)
		unlocked_section->leave(unlocked_section->ctx, pid);
}

/* As enter. */
static inline int unlocked_section_enter(const struct unlocked_section *unlocked_section)
{
	return unlocked_section->enter ? unlocked_section->enter(unlocked_section->ctx) : 0;
}

#endif
