/*
 * watchdog.h: whether the daemon is in order: when it is ready, what is checked once a second, and
 * the keep-alive messages to systemd (WatchdogSec=). Belongs to the main thread.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_WATCHDOG_H
#define SPIKEWATCH_DAEMON_SERVICE_WATCHDOG_H

#include "daemon/service/health/health.h"
#include "lib/base/base.h"

#include <stdint.h>

struct watchdog;
struct sd_event;

/* All pointers are borrowed. */
struct watchdog_options {
	struct sd_event *event;
	struct session *session; /* session_seek has been called */
	struct incidents *incidents;
	struct dispatcher *dispatcher;
	struct health *health;
	uint64_t stuck_ns; /* config_file.stuck_ns */
	/*
	 * Called once, from the loop: when the first scan for targets has ended, or takes too long
	 * to be waited for, which is logged. result: 0, or why the scan has failed. Negative ends
	 * the loop.
	 */
	int (*ready)(void *ctx, int result);
	void *ctx;
};

/*
 * Waits for the first scan from now on, while the loop answers requests and signals. 0, -ENOMEM or
 * -errno.
 */
int watchdog_new(const struct watchdog_options *options, struct watchdog **ret);

/* NULL is fine. */
void watchdog_free(struct watchdog *watchdog);

/*
 * Once a second: reports to health.h how sampling, discovery, the rules, the clocks and each thread
 * are; releases the ring from readers that died while they blocked it.
 */
void watchdog_check(struct watchdog *watchdog);

/*
 * After each look at the ring: sends the keep-alive message to systemd if it is due and sampling is
 * alive. The main thread need not be asked: it is the caller. The threads that write incidents and
 * look for targets do not count: no restart would mend a disk, or a read of /proc, that blocks.
 */
void watchdog_keep_alive(struct watchdog *watchdog, mono_t now);

#endif
