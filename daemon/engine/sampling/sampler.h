/*
 * sampler.h: the sampler threads of a session (sampler.h), one or several, as one: targets are
 * shared out among them, each fills pages of its own in the ring, and what they say of themselves
 * is put together. To the cold side it is what one sampler is.
 *
 * A target goes to the thread that has the fewest, a member of a group to where its group is: a
 * group lives whole in one thread. There it stays. Functions belong to the thread that a sampler's
 * of the same name belong to.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SAMPLER_H
#define SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SAMPLER_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/*
 * deadline_timer.h: how a thread waits for absolute times: in slices, so that it shows that it is
 * alive however long it waits, and can be called away from it.
 */

/* In the owner's storage; {0} with the clock set is a start. */
struct deadline_timer {
	struct clock clock;
	_Atomic uint64_t pulse_ns;
	_Atomic bool called;
};

/* ---- any thread ---- */

/* The owner's waiting ends within 100 ms, and every later one at once, until it answers. */
void deadline_timer_call(struct deadline_timer *deadline_timer);

/* When the owner last showed itself. */
mono_t deadline_timer_pulse(const struct deadline_timer *deadline_timer);

/*
 * The call is heard: what was said before it can be seen from here on. Look for it after this, not
 * before.
 */
void deadline_timer_answer(struct deadline_timer *deadline_timer);

/* Sleeps until then or until it is called. */
void deadline_timer_sleep(struct deadline_timer *deadline_timer, mono_t until);

/* The same, and is up on time by yielding or spinning at the end, if wait says so. */
void deadline_timer_wait(struct deadline_timer *deadline_timer, mono_t deadline, enum config_wait wait);

/*
 * budget.h: the CPU time that the process may take, as its sampler threads see it: the one that
 * leads measures (cpu_budget.h) and says how much slower than configured all are, the others do as
 * it says.
 */

/* In the owner's storage; {0} before budget_restart. */
struct budget {
	struct cpu_budget cpu_budget;
	const struct budget *leader; /* NULL: this one */
	clockid_t exempt;            /* of a thread whose CPU time is not budgeted */
	bool has_exempt;
	_Atomic uint32_t slowdown;
	_Atomic uint32_t share_ppm;
};

/*
 * No slowdown any more; what was spent before is not held against the budget. percent: of one core;
 * <= 0: no limit. The owner.
 */
void budget_restart(struct budget *budget, double percent, mono_t now);

/* The CPU time of this thread does not count. Before the owner's thread runs. */
void budget_exempt(struct budget *budget, clockid_t thread_clock);

/*
 * To be called often, by the owner. Sets the factor that is in force from now on; whether a period
 * has ended. Costs nothing while it lasts.
 */
bool budget_look(struct budget *budget, mono_t now, uint32_t *ret_factor);

/* The factor in force: any thread. */
uint32_t budget_slowdown(const struct budget *budget);

/*
 * CPU share of the process in the last whole period, of one core, without what is exempt: of the
 * one that leads. Any thread.
 */
double budget_share(const struct budget *budget);

/*
 * sampler.h: the thread that looks: at absolute deadlines it reads every target (source.h) and
 * publishes a tick (ring.h).
 *
 * It knows no reader, makes no target and frees none: those come and go through two queues. All
 * functions that do not say otherwise, but for sampler_new and sampler_free, belong to one other
 * thread, the cold side.
 *
 *     cold side ── sampler_add, sampler_remove ──▶ sampler ── sampler_returned ──▶ cold side, which
 *     frees
 */

struct sampler;
struct sampler_description; /* sampler_target.c */

struct sampler_options {
	struct source_options source; /* its interval_ns is the sampler's */
	enum config_wait wait;
	double cpu_budget_percent; /* of one core, for the whole process; <= 0: no limit */
};

/*
 * One target on its way through the sampler. Made by the cold side, lent between sampler_add and
 * its return, then the cold side's again.
 */
struct sampler_target {
	struct source_entry *entry;   /* made with this target as its `user` */
	struct sampler_target *group; /* the group it is a member of, or NULL: a target of its own */
	void *user;                   /* the cold side's */
	struct ring_track track;
	struct sampler_description *description; /* of the track; NULL for a member of a group */
	bool lent;                               /* the sampler's: it is in the source */
	/*
	 * Of a description on its way: one that the cold side has posted, and one that the sampler
	 * is done with.
	 */
	_Atomic(struct sampler_description *) posted, done;

	/* Of samplers.h. */
	unsigned thread;                /* which it was given to */
	bool placed;                    /* it counts there */
	struct sampler_target *refused; /* next of those that found no room */
};

enum sampler_return {
	SAMPLER_GONE = 1, /* the process or cgroup no longer exists */
	SAMPLER_REMOVED,  /* the answer to sampler_remove; always comes, also after SAMPLER_GONE */
	SAMPLER_REFUSED,  /* the source is full: it was not added */
};

/*
 * Describes target in its track, for which it takes memory. The target's id must be new. 0 or
 * -ENOMEM.
 */
int sampler_target_describe(struct sampler_target *target, const struct target *what);

/*
 * Describes a target that has one anew, also while it is lent: readers of the ring learn it with
 * its next sample. The id stays. Never waits. 0; -ENOMEM: it keeps the old description.
 */
int sampler_target_describe_anew(struct sampler_target *target, const struct target *what);

/* Frees the entry and the descriptions, not the target itself. {0} is fine. */
void sampler_target_release(struct sampler_target *target);

/* 0; -ENOMEM; -errno. ring must outlive the sampler. */
int sampler_new(const struct sampler_options *options, struct ring *ring, struct sampler **ret);

/*
 * Everything in *options is in force from the next tick on, which comes one new interval from now
 * at the latest (and 100 ms, for a thread that sleeps): no tick is lost, what is watched stays. A
 * smaller capacity throws nobody out, it only refuses new ones. If the interval or the CPU budget
 * changes, the cpu budget begins anew and sampler_slowdown is 1 again; the ring's header follows.
 *
 * A process that is being watched has no descriptors for what was not read so far: see
 * source_entry_reopen (source.h), which the cold side calls when fds_interval, peak_interval or
 * reset_peaks were switched on.
 *
 * Any thread, but one at a time, and not during sampler_start, sampler_free; it never waits. What
 * is posted when the thread does not run is taken by its start or by sampler_tick; of several that
 * were posted meanwhile, the last one. 0; -ENOMEM: nothing changed.
 */
int sampler_retune(struct sampler *sampler, const struct sampler_options *options);

/* Starts the thread. 0 or -errno. */
int sampler_start(struct sampler *sampler);

/* Stops it after the tick in hand and waits for it. Harmless if it is not running. */
void sampler_stop(struct sampler *sampler);

/*
 * Frees the sampler, not the targets it still holds: they are the cold side's to release. NULL is
 * fine.
 */
void sampler_free(struct sampler *sampler);

/* False: the queue is full, try again later. */
bool sampler_add(struct sampler *sampler, struct sampler_target *target);
bool sampler_remove(struct sampler *sampler, struct sampler_target *target);

/* The next target that comes back. False: none at the moment. */
bool sampler_returned(struct sampler *sampler, struct sampler_target **ret, enum sampler_return *ret_why);

/* Interval in force / interval configured: above 1 while the CPU budget is exceeded. Any thread. */
uint32_t sampler_slowdown(const struct sampler *sampler);

/*
 * CPU share of this process in the last whole second, of one core, without what is exempt. Any
 * thread.
 */
double sampler_cpu_share(const struct sampler *sampler);

/*
 * When the thread was last seen at work: in a tick, or at the end of a slice of its sleep, which is
 * 100 ms at most, in a backoff too. Before sampler_start, when it was made. Any thread.
 */
mono_t sampler_pulse(const struct sampler *sampler);

/* What the whole run came to, its last backoff included. Only when the thread is not running. */
void sampler_stats(const struct sampler *sampler, struct stats *ret);

/*
 * Takes ticks in the calling thread instead, for measuring: one, now. The thread must not be
 * running.
 */
void sampler_tick(struct sampler *sampler);

/*
 * option_handoff.h: how new options reach a thread that must not wait, and how the memory they came
 * in gets back. The latest ones win: what was posted before and not taken yet is dropped.
 *
 *     caller ── option_handoff_post ──▶ owner: option_handoff_take, option_handoff_return ──▶ the next
 *     option_handoff_post or option_handoff_release, which free
 */

/* One set of options under way. */
struct option_handoff {
	struct sampler_options options;
	struct source_room *room; /* for options.source.capacity; the owner puts here what it has no more use for */
	struct option_handoff *next;
};

/* {0} is empty. */
struct option_handoff_box {
	struct option_handoff *_Atomic posted; /* not taken yet */
	struct option_handoff *_Atomic spent;  /* back from the owner */
};

/* ---- any thread, one at a time ---- */

/* 0; -ENOMEM: nothing was posted, and what was before still is. */
int option_handoff_post(struct option_handoff_box *box, const struct sampler_options *options);

/* Frees all that is in it. Without an owner. */
void option_handoff_release(struct option_handoff_box *box);

/* ---- the owner; these allocate, free and wait for nothing ---- */

/* NULL: nothing new. */
struct option_handoff *option_handoff_take(struct option_handoff_box *box);

/* Gives it back, to be freed with its room. */
void option_handoff_return(struct option_handoff_box *box, struct option_handoff *option_handoff);

/*
 * spsc_queue.h: passes pointers from one thread to one other without locks: a bounded queue with
 * one producer and one consumer. Counters run free and are compared by difference.
 */

struct spsc_queue;

/* One thing handed over. `what` is up to the two sides. */
struct spsc_queue_item {
	uint32_t what;
	void *pointer;
};

/* capacity: a power of two. 0 or -ENOMEM. All memory is taken here. */
int spsc_queue_new(uint32_t capacity, struct spsc_queue **ret);

/* What is still inside is forgotten. NULL is fine. */
void spsc_queue_free(struct spsc_queue *spsc_queue);

/* Producer only. False: full, nothing was passed. */
bool spsc_queue_put(struct spsc_queue *spsc_queue, struct spsc_queue_item item);

/* Producer only: whether the next put will fit. */
bool spsc_queue_room(const struct spsc_queue *spsc_queue);

/* Consumer only. False: empty. */
bool spsc_queue_take(struct spsc_queue *spsc_queue, struct spsc_queue_item *ret);

#define SAMPLERS_MAX 16u

struct samplers;

/*
 * How many threads a budget is worth: as many as could ever run at the same time within it, and not
 * more than there are CPUs. Less than a core is never more than one thread's work, and without a
 * limit (<= 0) one is enough until it is told otherwise.
 */
unsigned samplers_worth(double cpu_budget_percent, unsigned cpus);

/*
 * count: 1 to SAMPLERS_MAX. options->source.capacity is that of all together. 0; -ENOMEM; -errno.
 * ring must outlive them.
 */
int samplers_new(const struct sampler_options *options, unsigned count, struct ring *ring, struct samplers **ret);

/* Stops them. The targets they hold are the cold side's to release. NULL is fine. */
void samplers_free(struct samplers *samplers);
CLEANUP(samplers, free);

/* How many threads there are, running or not. */
unsigned samplers_count(const struct samplers *samplers);

/*
 * As sampler_retune. -ENOMEM: nothing changed, as far as there was memory to take back what one of
 * them was told already.
 */
int samplers_retune(struct samplers *samplers, const struct sampler_options *options);

/* All or none. 0 or -errno. */
int samplers_start(struct samplers *samplers);
void samplers_stop(struct samplers *samplers);

/*
 * As sampler_add and sampler_remove. target's thread, placed and refused are theirs; zeroed is the
 * right start. A group must be added before its members.
 */
bool samplers_add(struct samplers *samplers, struct sampler_target *target);
bool samplers_remove(struct samplers *samplers, struct sampler_target *target);

/* Of all threads, each one's in its order. */
bool samplers_returned(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why);

/* Those of the process: one budget, one slowdown for all. */
void samplers_exempt(struct samplers *samplers, clockid_t thread_clock);
uint32_t samplers_slowdown(const struct samplers *samplers);
double samplers_cpu_share(const struct samplers *samplers);

/* Of the thread that was seen at work least recently. */
mono_t samplers_pulse(const struct samplers *samplers);

/* Of one thread: number 0 to samplers_count. */
mono_t samplers_thread_pulse(const struct samplers *samplers, unsigned number);

/* All in one (stats_merge). */
void samplers_stats(const struct samplers *samplers, struct stats *ret);

/*
 * What one thread has published: number 0 to samplers_count. 0; -ENOENT: nothing yet. Any thread.
 */
int samplers_thread_stats(const struct samplers *samplers, unsigned number, struct stats *ret);

/* One of each, one after the other. */
void samplers_tick(struct samplers *samplers);

#endif
