/*
 * sampler.h: the sampler threads of a session, one or several: at absolute deadlines each reads its
 * targets (source.h) and publishes a tick in pages of its own in the ring (ring.h).
 *
 * While nothing much happens, and the kernel remembers what ran when (enum source_calm), a thread sleeps
 * through several ticks and publishes all of them then: the last one as always, those before it afterwards,
 * with the CPU time that was used until each. Waking up is most of what such ticks cost. What is handed over
 * ends that sleep.
 *
 * They know no reader, make no target and free none: targets come and go through two queues for each
 * thread. A target goes to the thread that has the fewest, and stays there; a group and its members
 * are in one thread.
 *
 *     control thread -- samplers_add, samplers_remove --> sampler -- samplers_returned --> control
 *     thread, which frees
 *
 * Functions that do not say otherwise belong to one control thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SAMPLER_H
#define SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SAMPLER_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- how the kernel schedules a sampler thread ---- */

enum scheduling_class {
	SCHEDULING_NORMAL,
	SCHEDULING_SHORT_SLICE, /* normal, with a slice of 0.1 ms: Linux 6.12 */
	SCHEDULING_REAL_TIME,   /* SCHED_FIFO 1 */
};

/* Why a thread has no real-time priority. */
enum scheduling_reason {
	SCHEDULING_NO_REASON,    /* it has, or does not run */
	SCHEDULING_CONFIGURED,   /* sampling.scheduling "normal" */
	SCHEDULING_UNPRIVILEGED, /* neither CAP_SYS_NICE nor RLIMIT_RTPRIO */
	SCHEDULING_REFUSED,      /* one of both, but a filter of system calls or the cgroup forbids it */
	SCHEDULING_DISABLED,     /* kernel.sched_rt_runtime_us is 0 */
	SCHEDULING_FAILED,       /* any other error */
	/* It had, and gets it back after a while. */
	SCHEDULING_ENDLESS, /* it ran for 200 ms without a sleep */
	SCHEDULING_COSTLY,  /* it used more CPU than its budget for three seconds */
	SCHEDULING_HELD,    /* it waited for a CPU for most of three seconds all the same */
};

/* A sentence without full stop; "" of SCHEDULING_NO_REASON. Static text. Any thread. */
const char *scheduling_reason_text(enum scheduling_reason reason);

/* "normal", "short slice", "real-time". Any thread. */
const char *scheduling_class_name(enum scheduling_class class);

static inline bool scheduling_was_withdrawn(enum scheduling_reason reason)
{
	return reason >= SCHEDULING_ENDLESS;
}

/* ---- the threads ---- */

struct sampler_description;
struct samplers;

struct sampler_options {
	struct source_options source; /* its interval_ns is the sampler's */
	uint64_t read_interval_ns;    /* how long ticks may wait until they are read together; 0: each by itself */
	enum config_wait wait;
	enum config_scheduling scheduling;
	double cpu_budget_percent; /* of one core, for the whole process; <= 0: no limit */
	bool lock_memory;          /* of the threads: their stacks and tables */
};

/*
 * One target of a sampler. Made by the control thread, lent between samplers_add and its return, then
 * the control thread's again. Zeroed but for entry, group and user is the right start.
 */
struct sampler_target {
	struct source_entry *entry;   /* made with this target as its `user` */
	struct sampler_target *group; /* the group it is a member of, or NULL: a target of its own */
	void *user;                   /* the control thread's */
	struct ring_track track;
	struct sampler_description *description; /* of the track; NULL for a member of a group */
	bool lent;                               /* the sampler's: it is in the source */
	/* A description that the control thread has posted, and one that the sampler no longer uses. */
	_Atomic(struct sampler_description *) posted, done;

	/* Of the samplers. */
	unsigned thread;                /* which it was given to */
	bool placed;                    /* it counts there */
	struct sampler_target *refused; /* next of those for which there was no room */
};

enum sampler_return {
	SAMPLER_GONE = 1, /* the process or cgroup no longer exists */
	SAMPLER_REMOVED,  /* the answer to samplers_remove; always comes, also after SAMPLER_GONE */
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

#define SAMPLERS_MAX 16u

/*
 * How many threads a budget is worth: as many as could ever run at the same time within it, and not
 * more than there are CPUs. Less than a core is never more than one thread's work, and without a
 * limit (<= 0) one is enough until it is told otherwise.
 */
static inline unsigned samplers_worth(double cpu_budget_percent, unsigned cpus)
{
	unsigned most = cpus < SAMPLERS_MAX ? cpus : SAMPLERS_MAX;
	unsigned count = 1;

	while (count < most && cpu_budget_percent > 100.0 * count)
		count++;
	return count;
}

/*
 * count: 1 to SAMPLERS_MAX. options->source.capacity is that of all together. 0; -ENOMEM; -errno.
 * ring must outlive them.
 */
int samplers_new(const struct sampler_options *options, unsigned count, struct ring *ring, struct samplers **ret);

/* Stops them. The targets that they hold stay the control thread's to release. NULL is fine. */
void samplers_free(struct samplers *samplers);
CLEANUP(samplers, free);

/*
 * Everything in *options is in force from the next tick on, which comes one new interval from now at
 * the latest (and 100 ms, for a thread that sleeps): no tick is lost, targets stay. A smaller capacity
 * removes none, it only refuses new ones. If the interval or the CPU budget changes, the budget begins
 * anew and the slowdown is 1 again; the ring's header follows.
 *
 * A process that is being sampled has no descriptors for what was not read so far: see
 * source_entry_reopen (source.h), which the control thread calls when fds_interval, peak_interval or
 * reset_peaks were switched on.
 *
 * Any thread, but one at a time, and not during samplers_start or samplers_free; never waits. What is
 * posted while the threads do not run is taken by their start; of several posts, the last one. 0;
 * -ENOMEM: nothing changed, as far as there was memory to undo it.
 */
int samplers_retune(struct samplers *samplers, const struct sampler_options *options);

/*
 * A descriptor that becomes readable (eventfd(2)) after a tick of any thread at or after the time of the
 * last samplers_set_alarm, once for each call. It is the samplers'. Before samplers_start. -errno.
 */
int samplers_open_alarm(struct samplers *samplers);

/*
 * quiet_at: the time that holds instead of `at`, and is no sooner, for ticks after which the next ones are slept
 * through (read_interval_ns) as nothing runs. UINT64_MAX: never. Costs the samplers a comparison per tick, and a
 * write(2) when it goes off.
 */
void samplers_set_alarm(struct samplers *samplers, mono_t at, mono_t quiet_at);

/*
 * Something has begun to run: the next tick is taken when it is due, also if it was to be slept through. Any thread;
 * never waits.
 */
void samplers_rouse(struct samplers *samplers);

/* Starts all threads or none. 0 or -errno. */
int samplers_start(struct samplers *samplers);
void samplers_stop(struct samplers *samplers);

/* False: the queue is full, try again later. A group must be added before its members. */
bool samplers_add(struct samplers *samplers, struct sampler_target *target);
bool samplers_remove(struct samplers *samplers, struct sampler_target *target);

/* The next target that comes back. False: none at the moment. Of each thread in its order. */
bool samplers_returned(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why);

/* How the CPU time of another thread counts against the budget. */
enum samplers_charge {
	SAMPLERS_CHARGE_NOTHING, /* of two at most, before samplers_start: collecting evidence costs what it costs */
	SAMPLERS_CHARGE_PART,    /* of one: up to a part of the budget, as others make the work (pacing.h); any time */
};

/* A clock of a thread that has ended is harmless. */
void samplers_charge(struct samplers *samplers, enum samplers_charge charge, clockid_t thread_clock);

/* What CPU time there is for this process: for the CPU budget (pacing.h), and for struct stats. */
struct samplers_supply {
	uint64_t quota_ns;     /* that its cgroup may use in a second; UINT64_MAX: no quota */
	uint64_t throttled_ns; /* how long the quota has stopped it, on all CPUs */
	uint64_t stolen_ns;    /* how long a hypervisor took CPUs away, of all CPUs */
};

/* Any thread, one at a time. */
void samplers_supply(struct samplers *samplers, const struct samplers_supply *supply);

struct samplers_state {
	unsigned threads;              /* how many there are, running or not */
	enum scheduling_class class;   /* of the thread that is worst off, */
	enum scheduling_reason reason; /* and why it has no real-time priority */
	uint32_t slowdown;             /* interval in force / interval configured: above 1 beyond the CPU budget */
	/*
	 * Since when processes that sleep are looked at less often to keep to the CPU budget; 0: they are
	 * not, or only because the options say so.
	 */
	mono_t back_off_since;
	uint64_t quota_ns; /* as in struct samplers_supply, but 0: no quota */
	double cpu_share;  /* of the process in the last second, of one core, without what is exempt */
	/*
	 * When each thread last showed that it is alive, in a tick or in a slice of its sleep, which is at
	 * most 100 ms; and the one that did so least recently.
	 */
	mono_t pulses[SAMPLERS_MAX], pulse;
};

/* As of now. Any thread, never waits. */
struct samplers_state samplers_state(const struct samplers *samplers);

/* The whole run, of all threads (stats_merge). Only while they are not running. */
void samplers_stats(const struct samplers *samplers, struct stats *ret);

/* Published by one thread: number 0 to samplers_state.threads. 0; -ENOENT: nothing yet. Any thread. */
int samplers_thread_stats(const struct samplers *samplers, unsigned number, struct stats *ret);

#endif
