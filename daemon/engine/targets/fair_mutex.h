/*
 * fair_mutex.h: a mutex that one thread holds for long and yields between two steps, and unlocked
 * sections within it.
 *
 * A pthread mutex alone is not fair: a thread that unlocks it and locks it again has it before any
 * waiter is awake. So a thread that wants it holds the gate while it waits for the lock, as the
 * next in a ticket lock (Linux' arch_spinlock before queued spinlocks) would, and a holder that
 * yields has to pass the gate behind it. The gate is released as soon as the lock is held. Lock
 * order: gate, then lock; never the gate while holding the lock.
 *
 * A step of the long holder may hang (a file that does not answer). Who must not wait for that
 * enters with a limit of time; once one has waited in vain, none waits at all until that step ends.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_FAIR_MUTEX_H

#include "lib/base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct fair_mutex {
	pthread_mutex_t lock, gate;
	atomic_ulong steps;   /* times that it was entered */
	atomic_ulong hanging; /* the step that was waited for in vain */
};

static inline void fair_mutex_init(struct fair_mutex *mutex)
{
	pthread_mutex_init(&mutex->lock, NULL);
	pthread_mutex_init(&mutex->gate, NULL);
	mutex->steps = 0;
	mutex->hanging = ~0ul;
}

/* No thread holds it or waits for it. */
static inline void fair_mutex_release(struct fair_mutex *mutex)
{
	pthread_mutex_destroy(&mutex->lock);
	pthread_mutex_destroy(&mutex->gate);
}

static inline void fair_mutex_enter(struct fair_mutex *mutex)
{
	pthread_mutex_lock(&mutex->gate);
	pthread_mutex_lock(&mutex->lock);
	pthread_mutex_unlock(&mutex->gate);
	atomic_fetch_add_explicit(&mutex->steps, 1, memory_order_relaxed);
}

/* Within wait_ns, about. False: it was not entered. */
static inline bool fair_mutex_enter_within(struct fair_mutex *mutex, uint64_t wait_ns)
{
	unsigned long step = atomic_load_explicit(&mutex->steps, memory_order_relaxed);
	bool hangs = atomic_load_explicit(&mutex->hanging, memory_order_relaxed) == step, entered;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	wait_ns = hangs ? 0 : wait_ns + (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(wait_ns / NS_PER_S);
	until.tv_nsec = (long)(wait_ns % NS_PER_S);
	entered = pthread_mutex_clocklock(&mutex->gate, CLOCK_MONOTONIC, &until) == 0;
	if (entered) {
		entered = pthread_mutex_clocklock(&mutex->lock, CLOCK_MONOTONIC, &until) == 0;
		pthread_mutex_unlock(&mutex->gate);
	}
	if (entered)
		atomic_fetch_add_explicit(&mutex->steps, 1, memory_order_relaxed);
	else if (step == atomic_load_explicit(&mutex->steps, memory_order_relaxed))
		atomic_store_explicit(&mutex->hanging, step, memory_order_relaxed);
	return entered;
}

static inline void fair_mutex_leave(struct fair_mutex *mutex)
{
	pthread_mutex_unlock(&mutex->lock);
}

/*
 * By the holder: lets the first waiter, if there is one, have it, then takes it again. 50 ns
 * without.
 */
static inline void fair_mutex_yield(struct fair_mutex *mutex)
{
	fair_mutex_leave(mutex);
	fair_mutex_enter(mutex);
}

/*
 * An unlocked section: a part of a long critical section in which the lock is released, because a
 * read of a process's files may block without limit (its mmap lock is taken in the kernel). leave
 * names the process that is read; enter takes the lock again. {0}: there is no lock.
 */
struct unlocked_section {
	void (*leave)(void *ctx, int32_t pid);
	/* 0; -ECANCELED: what was begun before is void, and what it refers to may be freed. */
	int (*enter)(void *ctx);
	void *ctx;
};

static inline void unlocked_section_leave(const struct unlocked_section *section, int32_t pid)
{
	if (section->leave)
		section->leave(section->ctx, pid);
}

/* As enter. */
static inline int unlocked_section_enter(const struct unlocked_section *section)
{
	return section->enter ? section->enter(section->ctx) : 0;
}

#endif
