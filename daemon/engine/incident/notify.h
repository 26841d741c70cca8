/*
 * notify.h: tells about incidents ("notify" of the configuration): a command or the socket of a
 * helper gets a text, JSON by default, when an incident was sealed, or could not be.
 *
 *     notifier_send ──▶ queue ──▶ a try ──▶ sent
 *                         ▲         │ failed: waits "retry", then four times as long, ...
 *                         └─────────┘ ──▶ after "tries" given up
 *
 * One thread does it all, so nothing waits for it. Each entry of the configuration has one try at
 * a time: one that hangs delays no other. What is queued is bounded, and is lost when the daemon
 * ends: the incident itself is on the disk.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_NOTIFY_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_NOTIFY_H

#include "lib/base/base.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stdint.h>

struct config;

/* Notifications that wait or are being sent, of all entries; further ones are counted as dropped. */
#define NOTIFY_PENDING_MAX 64

struct notify_plan; /* the entries that tell about one incident, copied from the configuration */
struct notifier;

/* Of one entry, since the daemon was started. */
struct notify_counts {
	uint64_t sent, retried;
	uint64_t failed;  /* given up after all tries */
	uint64_t limited; /* not sent: max_per_hour; the next one says how many */
	uint64_t dropped; /* not sent: too many were pending, or no memory */
	uint64_t pending; /* wait or are being sent */
	bool failing;     /* the last try failed */
	char why[160];    /* of the last failure; printable */
};

/*
 * The entries that its rule, or one of those merged into it, wants; none for a request by hand. *ret
 * is for free(3) or notifier_send; NULL: there are none. 0; -ENOMEM.
 */
int notify_plan_new(const struct config *config, const struct incident *incident, struct notify_plan **ret);

/* 0; -ENOMEM; -errno. The thread is started with the first notification. */
int notifier_new(struct notifier **ret);

/* Gives what is being sent stop_ns more, does not wait for what waits, and logs what was not sent. NULL is fine. */
void notifier_free(struct notifier *notifier, uint64_t stop_ns);

/*
 * Tells by all entries of plan, which it takes. directory: of the sealed incident; NULL: it could
 * not be written. Copies what it needs, never waits. plan NULL: does nothing. Any thread.
 */
void notifier_send(struct notifier *notifier, struct notify_plan *plan, const struct incident *incident,
		   const char *directory);

/* Of the entry of that name: zeros if nothing was to be sent by it. Any thread. */
void notifier_counts(struct notifier *notifier, const char *name, struct notify_counts *ret);

#endif
