/*
 * sampler.h: the thread that looks: at absolute deadlines it reads every target (source.h) and publishes a tick (ring.h).
 *
 * It knows no reader, makes no target and frees none: those come and go through two queues. All functions that do not say
 * otherwise, but for sampler_new and sampler_free, belong to one other thread, the cold side.
 *
 *     cold side ── sampler_add, sampler_remove ──▶ sampler ── sampler_returned ──▶ cold side, which frees
 */
#ifndef SPIKEWATCH_SAMPLER_H
#define SPIKEWATCH_SAMPLER_H

#include "clock.h"
#include "config.h"
#include "ring.h"
#include "source.h"
#include "target.h"

#include <stdbool.h>
#include <time.h>

struct sampler;
struct sampler_description; /* sampler_target.c */

struct sampler_options {
	struct source_options source;
	uint64_t interval_ns;
	enum config_wait wait;
	double cpu_budget_percent; /* of one core, for the whole process; <= 0: no limit */
};

/*
 * One target on its way through the sampler. Made by the cold side, lent between sampler_add and its return, then the cold side's again.
 */
struct sampler_target {
	struct source_entry *entry;   /* made with this target as its `user` */
	struct sampler_target *group; /* the group it is a member of, or NULL: a target of its own */
	void *user;                   /* the cold side's */
	struct ring_track track;
	struct sampler_description *description; /* of the track; NULL for a member of a group */
	bool lent;                               /* the sampler's: it is in the source */
	/* Of a description on its way: one that the cold side has posted, and one that the sampler is done with. */
	_Atomic(struct sampler_description *) posted, done;

	/* Of samplers.h. */
	unsigned thread;                /* which it was given to */
	bool placed;                    /* it counts there */
	struct sampler_target *refused; /* next of those that found no room */
};

/* Which of several samplers of one ring this is. {0}: the only one. */
struct sampler_seat {
	unsigned number, of;
	/* NULL: this one governs the interval, and tells the ring of it; else the one that does. */
	const struct sampler *leader;
};

enum sampler_return {
	SAMPLER_GONE = 1, /* the process or cgroup no longer exists */
	SAMPLER_REMOVED,  /* the answer to sampler_remove; always comes, also after SAMPLER_GONE */
	SAMPLER_REFUSED,  /* the source is full: it was not added */
};

/* Describes target in its track, for which it takes memory. The target's id must be new. 0 or -ENOMEM. */
int sampler_target_describe(struct sampler_target *target, const struct target *what);

/*
 * Describes a target that has one anew, also while it is lent: readers of the ring learn it with its next sample. The id stays. Never waits. 0; -ENOMEM: it
 * keeps the old description.
 */
int sampler_target_describe_anew(struct sampler_target *target, const struct target *what);

/* For the sampler: takes what was posted. Allocates and frees nothing. */
void sampler_target_take_description(struct sampler_target *target);

/* Frees the entry and the descriptions, not the target itself. {0} is fine. */
void sampler_target_release(struct sampler_target *target);

/* 0; -ENOMEM; -errno. ring must outlive the sampler. */
int sampler_new(const struct sampler_options *options, struct ring *ring, struct sampler **ret);

/*
 * Everything in *options is in force from the next tick on, which comes one new interval from now at the latest (and 100 ms, for a
 * thread that sleeps): no tick is lost, what is watched stays. A smaller capacity throws nobody out, it only refuses new ones. If the
 * interval or the CPU budget changes, the governor begins anew and sampler_slowdown is 1 again; the ring's header follows.
 *
 * A process that is being watched has no descriptors for what was not read so far: see source_entry_reopen (source.h), which the
 * cold side calls when fds_interval, peak_interval or reset_peaks were switched on.
 *
 * Any thread, but one at a time, and not during sampler_start, sampler_free; it never waits. What is posted when the thread does not run is taken by its
 * start or by sampler_tick; of several that were posted meanwhile, the last one. 0; -ENOMEM: nothing changed.
 */
int sampler_retune(struct sampler *sampler, const struct sampler_options *options);

/*
 * Several samplers of one ring tick in turn, number k that part of an interval after the first, and are slowed down together by the leader, which
 * must outlive the others' threads. Before the first tick and sampler_start.
 */
void sampler_sit(struct sampler *sampler, const struct sampler_seat *seat);

/* Starts the thread. 0 or -errno. */
int sampler_start(struct sampler *sampler);

/* Tells it to stop after the tick in hand, without waiting. sampler_stop is still due. */
void sampler_call_off(struct sampler *sampler);

/* Stops it after the tick in hand and waits for it. Harmless if it is not running. */
void sampler_stop(struct sampler *sampler);

/* Frees the sampler, not the targets it still holds: they are the cold side's to release. NULL is fine. */
void sampler_free(struct sampler *sampler);

/* False: the queue is full, try again later. */
bool sampler_add(struct sampler *sampler, struct sampler_target *target);
bool sampler_remove(struct sampler *sampler, struct sampler_target *target);

/* The next target that comes back. False: none at the moment. */
bool sampler_returned(struct sampler *sampler, struct sampler_target **ret, enum sampler_return *ret_why);

/*
 * The CPU time of this thread (its clock) does not count against the budget: collecting evidence costs what it costs, and sampling more
 * slowly would not make it cheaper. The thread must outlive the sampler's. Before sampler_start.
 */
void sampler_exempt(struct sampler *sampler, clockid_t thread_clock);

/* Interval in force / interval configured: above 1 while the CPU budget is exceeded. Any thread. */
uint32_t sampler_slowdown(const struct sampler *sampler);

/* CPU share of this process in the last whole second, of one core, without what is exempt. Any thread. */
double sampler_cpu_share(const struct sampler *sampler);

/*
 * When the thread was last seen at work: in a tick, or at the end of a slice of its sleep, which is 100 ms at most, in a backoff too.
 * Before sampler_start, when it was made. Any thread.
 */
mono_t sampler_pulse(const struct sampler *sampler);

/* What the whole run came to, its last backoff included. Only when the thread is not running. */
void sampler_stats(const struct sampler *sampler, struct stats *ret);

/* Takes ticks in the calling thread instead, for measuring: one, now. The thread must not be running. */
void sampler_tick(struct sampler *sampler);

#endif
