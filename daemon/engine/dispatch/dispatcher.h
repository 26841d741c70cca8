/*
 * dispatcher.h: the rules at work: one reader of the ring whose events go to the evaluator, the
 * open incidents and the log of targets, which it owns. spikewatchd and `spikewatch trap` are both
 * built of a session, a spool and a dispatcher. Belongs to the event loop; the reader is lossy, so
 * the sampler never waits for it.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_DISPATCH_DISPATCHER_H
#define SPIKEWATCH_DAEMON_ENGINE_DISPATCH_DISPATCHER_H

#include "lib/base/base.h"
#include "lib/evaluator/evaluator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct incidents;
struct rule_state;
struct session;
struct spool;

struct dispatcher;

/* What is pointed to must outlive the dispatcher; callbacks may be NULL. */
struct dispatcher_options {
	const struct config *config; /* until evaluator_reload_commit and incidents_reload */
	struct session *session;
	struct spool *spool;
	struct rule_state *rule_state;
	bool log_targets; /* log which targets come and go */
	bool check_disk;  /* rules do not fire without disk space for an incident */
	/* A rule fired. False: it opens no incident and is merged into none. */
	bool (*fired)(void *ctx, const struct evaluator_firing *firing);
	/* It has opened an incident. */
	void (*opened)(void *ctx, const struct evaluator_firing *firing);
	/* Each event of the ring, before the evaluator has it. */
	void (*observe)(void *ctx, const struct ring_event *event);
	/* As evaluator_options.judged. */
	void (*judged)(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
		       uint32_t windows);
	/* As evaluator_options.witness. */
	void (*witness)(void *ctx, const struct evaluator_firing *window);
	void *ctx;
};

struct dispatcher_counts {
	uint64_t ticks;
	uint64_t lost_pages; /* overtaken by the sampler */
	uint64_t damaged_pages;
};

/* Reads the ring from now on; starts the incident worker. 0; -ENOMEM; -errno. */
int dispatcher_open(const struct dispatcher_options *options, struct dispatcher **ret);

/*
 * Finishes all incidents and frees what it owns. False: the incident worker is stuck (incidents.h),
 * and session and spool must not be freed. NULL is fine: true.
 */
bool dispatcher_close(struct dispatcher *dispatcher);

/* Takes in all that is published, and seals the incidents whose window is over. 0 or -ENOMEM. */
int dispatcher_poll(struct dispatcher *dispatcher, mono_t now);

/*
 * After session_stop: takes in what is left, seals all open incidents, waits until they are
 * written, and logs the counts of targets that were not logged yet.
 */
void dispatcher_finish(struct dispatcher *dispatcher, mono_t now);

/*
 * The log of targets: each by name while they are few, counted while they are many. Every target is
 * counted once, in an entry of its own or in the SPIKEWATCH_COUNT of a sum, but for those present
 * at the start. A target that leaves its entry and comes back under the same name at once has
 * executed another program (a script that ends with exec) and is not counted. At most 50 entries a
 * minute, and one or two in ten minutes while a flood lasts.
 */

/* The number of present targets was logged: they are not logged again if they are many. */
void dispatcher_log_start(struct dispatcher *dispatcher, size_t present, mono_t now);

/* Once a second: logs the sums that are due. */
void dispatcher_log_poll(struct dispatcher *dispatcher, mono_t now);

/* Its parts; they stay the dispatcher's. */
struct evaluator *dispatcher_evaluator(const struct dispatcher *dispatcher);
struct incidents *dispatcher_incidents(const struct dispatcher *dispatcher);

/* Totals so far. */
void dispatcher_counts(const struct dispatcher *dispatcher, struct dispatcher_counts *ret);

#endif
