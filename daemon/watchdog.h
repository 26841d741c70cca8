/*
 * watchdog.h: the word to systemd that the daemon is alive, given only while every part is that must be: the loop that judges rules, and
 * the threads that sample. A part that shows no sign for WATCHDOG_PATIENCE_NS keeps it back, and systemd restarts the
 * service when WatchdogSec= has passed too. The threads that write incidents and that look for targets are not among them: a disk that hangs, or
 * the files of a process that do when they are read, are no reason to stop recording, and no restart would mend them. Discovery that hangs
 * with its lock held keeps the loop waiting, which asks it every second: so that is a reason.
 */
#ifndef SPIKEWATCH_WATCHDOG_H
#define SPIKEWATCH_WATCHDOG_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each part shows a sign at least once a second; a machine in distress may hold it up for a while. */
#define WATCHDOG_PATIENCE_NS (10 * NS_PER_S)

/* When a part last showed a sign of life. */
struct watchdog_sign {
	const char *part;
	mono_t at;
	uint64_t patience_ns; /* 0: WATCHDOG_PATIENCE_NS */
};

struct watchdog {
	uint64_t period_ns; /* between two words; 0: nobody waits for them */
	mono_t fed;
};

/* Asks the environment ($WATCHDOG_USEC) whether and how often systemd waits for a word. */
void watchdog_init(struct watchdog *watchdog);

/* How long this part has been silent beyond the patience, in nanoseconds since its last sign; 0: it is alive. */
uint64_t watchdog_silence(const struct watchdog_sign *sign, mono_t now);

/* Gives the word if it is due and all parts are alive. True if it was given. */
bool watchdog_feed(struct watchdog *watchdog, const struct watchdog_sign *signs, size_t count, mono_t now);

#endif
