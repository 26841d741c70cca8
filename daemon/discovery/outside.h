/*
 * outside.h: reads of foreign files, which may take for ever (a process whose memory map is locked in the kernel), are done outside of the lock under which
 * everything else stands: whoever reads leaves it, says whose files he reads, and comes back. {0}: there is no lock.
 */
#ifndef SPIKEWATCH_OUTSIDE_H
#define SPIKEWATCH_OUTSIDE_H

#include <stddef.h>
#include <stdint.h>

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
