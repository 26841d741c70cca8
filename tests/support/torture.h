/*
 * torture.h: makes allocations and writes fail on purpose, and kills processes at chosen steps.
 *
 * The test binary is linked with --wrap, so that calls of malloc(3) and its kin from our code (and
 * from libraries that are linked statically, Check among them) pass through here; what libc and
 * shared libraries allocate inside does not. Counts are per thread. Arm only around the call under
 * test, without a ck_assert in between: Check allocates too.
 *
 * 	bool injected = true;
 * 	for (long n = 1; injected; n++) {
 * 		torture_arm(n);
 * 		int r = ring_new(...);
 * 		injected = torture_disarm();
 * 		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
 * 	}
 */
#ifndef SPIKEWATCH_TORTURE_H
#define SPIKEWATCH_TORTURE_H

#include "lib/base/io.h"

#include <stdbool.h>

/* The nth allocation of this thread from now on fails, once. nth counts from 1. */
void torture_arm(long nth);

/* Stops that. True if an allocation was made to fail since torture_arm. */
bool torture_disarm(void);

/*
 * Allocations of this thread so far, failed ones included: two calls tell whether a hot path
 * allocates.
 */
unsigned long torture_allocations(void);

/*
 * This process is killed by SIGKILL just before the nth call from now on that may change files or
 * their locks: openat(2), mkdirat(2), write(2), rename(2), renameat(2), unlink(2), unlinkat(2),
 * fsync(2), ftruncate(2), flock(2); or just after rename(2), renameat(2) or unlink(2). Of the threads
 * of this name, then without what is opened to be read; NULL: of all. nth counts from 1; 0: it is not.
 * For a fork that is to die at each step of what it does.
 */
void torture_kill_at(long nth, const char *thread);

/* It is stopped there by SIGSTOP, and goes on after SIGCONT. */
void torture_stop_at(long nth);

/*
 * Calls what before each open_beneath() of the product (lib/base/io.h), on the thread that is about to
 * open; NULL: no more. Returns whether something was to be called until now.
 */
bool torture_before_opening(void (*what)(void));

/*
 * Takes *bytes_left bytes, counting it down; the first write that does not fit, and every later
 * one, gets -EIO.
 */
struct sink torture_sink(long *bytes_left);

#endif
