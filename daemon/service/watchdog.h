/*
 * watchdog.h: what is looked after once a second: how sampling, discovery, the rules and the clocks
 * are (said by health.h), whether every thread is alive (watchdog.h), and readers that died while
 * they held the ring.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_WATCHDOG_H
#define SPIKEWATCH_DAEMON_SERVICE_WATCHDOG_H

#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/service/health/health.h"
#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

/*
 * readiness.h: when the daemon is ready: when the first scan for targets is through, which
 * discovery's thread makes (session_seek), or after READINESS_PATIENCE_NS without it, because the
 * files of a process may hang when they are read. Until then the event loop runs: whoever asks is
 * answered, and a signal ends it.
 */

/*
 * result: 0, also when it is not waited for any longer, or why the first scan has failed. Negative
 * ends the loop.
 */
typedef int readiness_ready(void *ctx, int result);

/* {0}: nothing is waited for. All is readiness.c's own. */
struct readiness {
	const struct discovery *discovery;
	readiness_ready *ready;
	void *ctx;
	sd_event_source *process_facts, *patience;
};

/*
 * Calls ready once, from the loop. Set in readiness are discovery, whose thread was started, ready
 * and ctx. That the first scan is not waited for any longer is logged. 0 or -errno.
 */
int readiness_await(struct readiness *readiness, sd_event *event);

/* Nothing is waited for any more. Harmless if nothing is. */
void readiness_release(struct readiness *readiness);

/*
 * watchdog.h: the word to systemd that the daemon is alive, given only while every part is that
 * must be: the loop that judges rules, and the threads that sample. A part that shows no sign for
 * WATCHDOG_PATIENCE_NS keeps it back, and systemd restarts the service when WatchdogSec= has passed
 * too. The threads that write incidents and that look for targets are not among them: a disk that
 * hangs, or the files of a process that do when they are read, are no reason to stop recording, and
 * no restart would mend them. Discovery that hangs with its lock held keeps the loop waiting, which
 * asks it every second: so that is a reason.
 */

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

/*
 * How long this part has been silent beyond the patience, in nanoseconds since its last sign; 0: it
 * is alive.
 */
uint64_t watchdog_silence(const struct watchdog_sign *sign, mono_t now);

/* Gives the word if it is due and all parts are alive. True if it was given. */
bool watchdog_feed(struct watchdog *watchdog, const struct watchdog_sign *signs, size_t count, mono_t now);

/* All borrowed. */
struct periodic_checks {
	struct session *session;
	struct incidents *incidents;
	struct dispatcher *dispatcher;
	struct health *health;
	struct target_log *target_log;
	struct watchdog *watchdog;
};

/* Once a second, in the main thread. */
void periodic_checks_second(const struct periodic_checks *house);

/* After each look at the ring: tells systemd that the daemon is alive, if it is. */
void periodic_checks_judged(const struct periodic_checks *house, mono_t now);

#endif
