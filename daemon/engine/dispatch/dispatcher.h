/*
 * dispatcher.h: the lossy reader of the ring that feeds the rules (evaluator.h), the incidents that
 * are open (incidents.h), and the log of who came and went (arrivals.h). Belongs to the main
 * thread; the sampler does not know it exists.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_DISPATCH_DISPATCHER_H
#define SPIKEWATCH_DAEMON_ENGINE_DISPATCH_DISPATCHER_H

#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * arrivals.h: says in the log which targets came and went: each by name while they are few, a sum
 * while they are many. Knows no clock and no ring: whoever follows the ring hands it what
 * RING_EVENT_TARGET and RING_EVENT_GONE say. Members of groups are no targets: the ring does not
 * describe them.
 *
 * Every target is counted once, in an entry of its own or in the SPIKEWATCH_COUNT of a sum: the
 * entries of MESSAGE_TARGET_FOUND and MESSAGE_TARGET_GONE add up to what came and went, but for
 * those that were there at the start (target_log_start). What leaves its entry and comes back under
 * the same name within TARGET_LOG_LEFT_NS has executed another program (a script that ends with
 * exec): that is said neither as gone nor as found, and counted as neither. Never more than
 * TARGET_LOG_ENTRIES_MAX entries in a minute, and one or two in ten minutes while a flood goes on.
 */

/* In any 60 s. */
#define TARGET_LOG_ENTRIES_MAX 50

/*
 * So long, and until the next target_log_poll, it is not said that a target is not watched any
 * more; of so many at a time.
 */
#define TARGET_LOG_LEFT_NS (NS_PER_S / 2)
#define TARGET_LOG_LEFT_MAX 16

/* One of them. */
struct target_log_left {
	char *name;
	mono_t at;
};

/* Zeroed is the right start. All is arrivals.c's own. */
struct target_log {
	uint32_t *known; /* ids of the targets that are there, ascending */
	size_t count, cap;
	struct target_log_left left[TARGET_LOG_LEFT_MAX]; /* the oldest first */
	size_t left_count;
	size_t silent; /* so many more were there at the start */
	mono_t silent_until;
	uint64_t level_ns; /* how full the bucket is: see arrivals.c */
	mono_t leaked;
	bool flood;
	uint64_t found, gone; /* in the running sum */
	mono_t summed;
	uint64_t period_ns;
};

/* Frees what it remembers; zeroed again. */
void target_log_release(struct target_log *target_log);

/*
 * The start has been said, with this number of targets: they come next and are not said again if
 * they are many. Optional, once, before the first target_log_found.
 */
void target_log_start(struct target_log *target_log, size_t present, mono_t now);

/*
 * The ring describes a target. It does so again and again: only an id that is not known is news, so
 * any description may be handed in, also by a new cursor after the old one. Without memory it is
 * news each time. Amortised cost: a binary search.
 */
void target_log_found(struct target_log *target_log, const struct target *target, mono_t now);

/*
 * It ended, or is not watched any more. name: NULL if it is not known (ring.h: the description was
 * lost). An id that is not known is none of ours.
 */
void target_log_gone(struct target_log *target_log, uint32_t id, const char *name, enum ring_gone_reason reason,
		     mono_t now);

/* Says the sum that is due, if any. Once a second. */
void target_log_poll(struct target_log *target_log, mono_t now);

/* Says the sum that has gathered, due or not. At the stop, before the last words. */
void target_log_flush(struct target_log *target_log, mono_t now);

struct dispatcher;

struct dispatcher_counts {
	uint64_t ticks;
	uint64_t lost_pages; /* overtaken by the sampler */
	uint64_t damaged_pages;
};

/* From now on. All must outlive the dispatcher; arrivals may be NULL. 0 or -ENOMEM. */
int dispatcher_new(struct ring *ring, struct evaluator *evaluator, struct incidents *incidents,
		   struct target_log *target_log, struct dispatcher **ret);
void dispatcher_free(struct dispatcher *dispatcher);

/* Takes in whatever is published. 0 or -ENOMEM. */
int dispatcher_poll(struct dispatcher *dispatcher);

/* Totals so far. */
void dispatcher_counts(const struct dispatcher *dispatcher, struct dispatcher_counts *ret);

#endif
