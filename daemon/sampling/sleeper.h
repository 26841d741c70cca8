/*
 * sleeper.h: how a thread waits for absolute times: in slices, so that it shows that it is alive however long it waits, and can be
 * called away from it.
 */
#ifndef SPIKEWATCH_SLEEPER_H
#define SPIKEWATCH_SLEEPER_H

#include "clock.h"
#include "config.h"

#include <stdbool.h>
#include <stdint.h>

/* In the owner's storage; {0} with the clock set is a start. */
struct sleeper {
	struct clock clock;
	_Atomic uint64_t pulse_ns;
	_Atomic bool called;
};

/* ---- any thread ---- */

/* The owner's waiting ends within 100 ms, and every later one at once, until it answers. */
void sleeper_call(struct sleeper *sleeper);

/* When the owner last showed itself. */
mono_t sleeper_pulse(const struct sleeper *sleeper);

/* ---- the owner ---- */

/* Shows that it is alive at now, which it has read anyway: one store. */
void sleeper_beat(struct sleeper *sleeper, mono_t now);

/* The call is heard: what was said before it can be seen from here on. Look for it after this, not before. */
void sleeper_answer(struct sleeper *sleeper);

/* Sleeps until then or until it is called. */
void sleeper_sleep(struct sleeper *sleeper, mono_t until);

/* The same, and is up on time by yielding or spinning at the end, if wait says so. */
void sleeper_wait(struct sleeper *sleeper, mono_t deadline, enum config_wait wait);

#endif
