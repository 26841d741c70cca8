/*
 * ringlock.h: who owns a ring. The lock is held by a file beside it and outlives every way to die but the owner's.
 */
#ifndef SPIKEWATCH_RINGLOCK_H
#define SPIKEWATCH_RINGLOCK_H

/* Makes the ring's directory if need be. 0 and *ret, to be closed by the caller when it no longer writes; -EALREADY: another daemon has it; -errno. Both are logged. */
int ringlock_take(const char *ring, int *ret);

#endif
