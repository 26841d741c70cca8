/*
 * discovery.c: the thread that finds targets: scans of /proc and of the cgroup tree, and events
 * between the scans.
 *
 * Locking. One fair mutex (fair_mutex.h) covers the target table and everything else here, for the
 * few queries of other threads. The thread holds it for a whole scan, but yields it between two
 * processes, so that a query waits for one process and not for a million; it releases it while it
 * sleeps, and while it reads files of a process (an unlocked section), because such a read may
 * block in the kernel without limit. Files of cgroups are read with the lock held: where one does not
 * answer, queries get the last answer, or none, after QUERY_NS, and a reload is left to the thread,
 * which takes it when it would let others have the lock. The sampler never takes it. After each yield
 * and each unlocked section the configuration may be another one: the scan is then given up
 * (-ECANCELED), as one that ran out of descriptors is, and the next begins at once.
 *
 * What runtimes keep of containers is read without the lock too, but in the middle of matching: queries
 * are answered meanwhile, which change nothing, and a reload is left to the thread as above.
 *
 * A scan is prepare / visit / sweep. Facts about a process are read lazily, only those that some
 * entry needs: most configurations select by comm, which is in the one file that is read anyway. A
 * process whose CPU clock says that it has not run since the last scan is unchanged, and costs a
 * tenth (process cache).
 *
 * Events of processes (process_events.h) and cgroups (inotify) say only where to look: what a
 * process is, is read from /proc and matched as in a scan.
 *
 *     exec, comm   looked at 2 ms later (at once for an exec that perf does not report: it does so before
 *                  the command line is in place)
 *     fork         looked at 2 ms later: most execute something until then
 *     exit         the last counters go to the group that it was, or would have been, a member of
 *
 * Lost events are followed by a scan. Looking costs as much as in a scan and is limited to the same
 * share of a core (a token bucket): beyond it events are only recorded, every 20 ms, until there
 * are tokens again. After a second of that the processes that wait are left to a scan.
 *
 * Stopping. A read that blocks is not waited for without limit, and may return at any time. The
 * thread then finds everything that it uses: nothing of it is freed before it has ended. It sees
 * `stop`, and ends. Rejected: asking after each read whether to go on; one place that forgets to
 * ask is a use after free.
 */
#include "daemon/engine/targets/discovery.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/stacks/thread_events.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/matcher.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/selection.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/proc/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* A scan may take 1/50 of a core, and so may looks between scans; CPU time counts. */
#define DISCOVERY_SHARE 50u
#define EVIDENCE_SHARE 10u /* more, while evidence is written that waits for it */

/* Reading limits may take so much less: they change rarely, and a cgroup has several files of them. */
#define LIMITS_SHARE 250u

/*
 * Where events report everything, scans take no more than one part in so many of a core, but are
 * not further apart than so many rescan intervals: captures compare with what a scan has seen.
 */
#define CALM_SHARE 500u
#define CALM_STRETCH 10u

/*
 * The same where the scheduler reports: its events are exact. Threads of what runs are looked at in between
 * (read_baselines), of so many processes in each refresh of limits.
 */
#define EXACT_SHARE 5000u
#define EXACT_STRETCH 30u
#define RAN_MAX 256u

/*
 * How long queries of the event loop wait for the lock, which is held for a fraction of a
 * millisecond at a time; those for evidence; a reload. Beyond it a read hangs.
 */
#define QUERY_NS (50 * NS_PER_MS)
#define EVIDENCE_NS (2 * NS_PER_S)
#define AWAIT_NAP_NS (5 * NS_PER_MS)
#define RELOAD_NS (250 * NS_PER_MS)

/* The pause before the next scan when the queue to the sampler was full: a few of its ticks. */
#define RETRY_NS (100 * NS_PER_MS)

/* How long the end of the thread is waited for: far longer than any read that returns takes. */
#define STOP_NS (5 * NS_PER_S)

/* The thread updates its liveness timestamp at least this often while it waits. */
#define PULSE_NS NS_PER_S

/*
 * Events are not read again for this long after the second read in a row that found some, so that a
 * storm wakes the thread a thousand times a second and not for each process. A single event is read
 * at once, and so is the one after it.
 */
#define GAP_NS NS_PER_MS

/* The same while the CPU share is used up; and how long processes wait for it at most. */
#define HELD_OFF_GAP_NS (20 * NS_PER_MS)
#define BEHIND_MAX_NS NS_PER_S

/* How long a process that was forked is left alone: to execute something, or to end. */
#define DELAY_NS (2 * NS_PER_MS)

/* So often, each after the delay, one that executes and has no arguments yet is looked at again. */
#define RETRIES_MAX 50u

/*
 * A process that was forked less than this ago counts in its group with all that it has used; for
 * an older one that would be a spike that did not happen. The longer limit is for one that was not
 * looked at before, on a machine where every process waits.
 */
#define WHOLE_NS (20 * NS_PER_MS)
#define WHOLE_UNMET_NS NS_PER_S

/*
 * When after an exit the sampler is asked whether it has given members back: at first at every tick
 * of the fastest sampler, then after a quarter of the time that has passed, and not for longer than
 * SETTLE_MAX_NS: an idle member is read seldom.
 */
#define SETTLE_NS (2 * NS_PER_MS)
#define SETTLE_PART 4
#define SETTLE_SELDOM_NS (250 * NS_PER_MS)
#define SETTLE_MAX_NS (30 * NS_PER_S)

/* Batches of events at a time, so that a scan makes progress. */
#define READS_MAX 256

/* A bus that comes and goes is logged once in this time. */
#define CALM_NS (60 * NS_PER_S)

#define STAT_MAX 1024 /* of /proc/PID/stat: 52 numbers and a name of 64 bytes at most */

/* File descriptors that the thread polls. */
#define POLL_MAX 4

/* A process that is matched with the entries. */
struct process_match {
	bool changed;   /* it began, executed or changed its name: it leaves entries that it is no longer of */
	bool whole;     /* it has just begun: see process_observation */
	bool watched;   /* out: it is of some entry */
	bool ended;     /* out: it has ended before all its files were open */
	size_t targets; /* out: it should be so many targets */
};

struct process_cache {
	struct map records; /* process_record, by pid */
	uint32_t scan;
};

enum recent_state { RECENT_NONE, RECENT_WAITING, RECENT_MET, RECENT_GONE };

enum process_change { CHANGE_FORKED, CHANGE_EXECUTED, CHANGE_RENAMED };

/*
 * A process that an event named lately.
 *
 *	            recent_pids_change        looked at
 *	(unknown) ───────────────────▶ WAITING ────────▶ MET
 *	                       ▲ executes  │ ends          │ ends
 *	                       └── MET     └────▶ GONE ◀───┘
 */
struct recent_pid {
	struct map_node node;
	int32_t pid;
	enum recent_state state;
	bool forked, executed; /* there was such an event */
	bool renamed;          /* it executed something or changed its name since it was last looked at */
	bool met;              /* it was MET before it became WAITING again */
	bool scanned;          /* a scan has looked at it since the last event */
	bool missed;           /* GONE, and was counted as missed */
	bool summed_up;        /* GONE, and what it used in all was told, by a source that is in the order of time */
	mono_t born;           /* forked: when that event was read */
	mono_t at;             /* the last event */
	mono_t after;          /* it began to wait after that */
	unsigned retries;      /* looks since then at which it was still executing */
};

/* A second of a storm. */
#define RECENT_PIDS_MAX 4096u

/* Slots in the order of their last event, used round and round. */
struct recent_pids {
	struct map pids;
	struct recent_pid slots[RECENT_PIDS_MAX];
	uint64_t used; /* ever; the next is used % RECENT_PIDS_MAX */
	uint64_t due;  /* those before it were handed out */
	uint64_t missed, dropped;
	mono_t all_read; /* all events from before that were read */
};

/* What there is while events of processes are read. */
struct process_subscription {
	struct process_events *listener;
	int listener_fd;
	struct recent_pids recent_pids;
	struct process_facts process_facts;
	struct waited_times *waited_times;
	struct procevent events[4 * PROCESS_EVENTS_BATCH];
	bool in_read;       /* they are being read: not once more inside that */
	bool more;          /* the last read found some */
	mono_t events_read; /* when they were read last */
	struct rate_limit rate_limit;
	struct token_bucket token_bucket;
	struct token_bucket evidence; /* while a query waits: what is used beyond the other */
	uint64_t charged_ns;          /* CPU time of the thread that was taken out of the bucket, in the running read */
	mono_t backlog_since;         /* since when processes have been waiting for it: while state.held_off */
	uint64_t missed, dropped;     /* in subscriptions before this one */
};

struct discovery {
	struct fair_mutex lock;
	struct discovery_options options;
	const struct config *config;
	struct target_table *target_table;
	struct matcher *matcher;
	struct baseline *baseline;
	struct thread_selection *thread_selection; /* NULL: not asked for */
	struct process_cache process_cache;
	struct discovery_state state;
	struct discovery_state told; /* the last answer to discovery_state */
	struct {
		const struct config *config; /* NULL: none */
		struct matcher *matcher;
	} due;                                   /* a configuration that could not be put in force: the lock was held */
	pthread_mutex_t told_lock;               /* of these two; taken last, never for long */
	_Atomic(const struct config *) in_force; /* config, for other threads */

	struct process_subscription *subscription; /* NULL: scans only */
	struct cgroup_watch *cgroups;              /* NULL: not asked for, or not possible */
	struct rate_limit cgroups_limit;
	bool cgroups_wanted;                 /* cgroups were wanted when subscribing was last tried */
	bool subscribed_once, events_wanted; /* subscribing was tried; events were wanted then */
	mono_t events_read;                  /* when any events were read last */
	struct unit_bus *units;              /* NULL: not asked for yet, or not possible */
	bool units_due;                      /* other units are selected */
	struct rate_limit units_limit;
	mono_t units_read;                /* when they were read last */
	struct condition units_condition; /* there is no bus */

	uint64_t scan;                             /* number of the running or last one */
	uint64_t processes, unreadable, unchanged; /* in the running scan */
	mono_t scan_began;                         /* the last whole one */
	uint64_t scan_cpu_ns;                      /* what the last scan took, however long it waited for a CPU */
	mono_t scan_paced;                         /* since when it keeps to its part of a quota, */
	uint64_t scan_paced_cpu_ns;                /* and what the thread had used by then */
	uint64_t found_before;                     /* targets when it began: those that came since wait for the next */
	bool rescan;  /* the configuration is another one: the running scan is given up, the next is due */
	bool again;   /* something was missed: the next scan is due as soon as its share allows */
	bool mending; /* that is said of what came before the running scan, or before those that came to nothing */
	mono_t limits_read;
	uint64_t limits_cpu_ns; /* what that took */
	bool limits_due;        /* whenever they were read */
	struct {
		int32_t pid;
		uint64_t start_ticks;
	} ran[RAN_MAX]; /* since limits were read the last time; of what the scans are for */
	size_t ran_count;
	mono_t accounts_checked;
	bool accounts_left; /* some have no account in the kernel yet, or still one */
	bool coarse;        /* a rule has shorter windows than cgroups are read */

	pthread_t thread;
	int wake_fd;
	int first_fd;      /* see discovery_progress */
	_Atomic int first; /* see discovery_progress */
	_Atomic uint64_t pulse_ns;
	_Atomic uint64_t complete_ns; /* what was there at that time has been looked at; 0: only scans tell */
	_Atomic uint64_t wanted_ns;   /* a query waits for complete_ns to be that; 0: none does */
	_Atomic int32_t reading;      /* the process whose files are being read without the lock; 0: none */
	_Atomic bool stop;            /* set without the lock, which a thread that blocks may hold */
	bool looking_up;              /* of a container, without the lock: the configuration stays */
	bool running;
	bool abandoned; /* it did not return from a read when it was to stop: nothing that it uses is freed */
};

/* ---- the cache of unchanged processes ---- */

/*
 * Processes as a scan has looked at them, so that the next need not look again at those that have
 * not run since: a process that has not run is unchanged.
 */

/* More are looked at every time. */
#define PROCESS_CACHE_MAX 65536u

/*
 * A process is looked at in one of so many scans in any case: another process may have its pid, and
 * have used the same CPU time to the nanosecond.
 */
#define PROCESS_CACHE_TURNS 16u

struct process_record {
	struct map_node node;
	int32_t pid;
	uint32_t scan; /* the last that met it */
	uint64_t start_ticks;
	uint64_t cpu_ticks; /* as its stat said */
	uint64_t cpu_ns;    /* as its clock said before stat was read */
	size_t targets;     /* that it is */
};

static uint64_t hash_pid(int32_t pid)
{
	return map_hash(&pid, sizeof(pid));
}

static struct process_record *process_cache_find(const struct process_cache *cache, int32_t pid)
{
	for (struct map_node *node = map_first(&cache->records, hash_pid(pid)); node; node = map_next(node)) {
		struct process_record *record = MAP_ENTRY(node, struct process_record, node);

		if (record->pid == pid)
			return record;
	}

	return NULL;
}

/* Removes the records of processes that this scan has not met, or all. */
static void process_cache_sweep(struct process_cache *cache, bool all)
{
	MAP_FOR_EACH(node, &cache->records) {
		struct process_record *record = MAP_ENTRY(node, struct process_record, node);

		if (!all && record->scan == cache->scan)
			continue;
		map_remove(&cache->records, node);
		free(record);
	}
}

static void process_cache_release(struct process_cache *cache)
{
	process_cache_sweep(cache, true);
	map_release(&cache->records);
}

/* NULL: it has to be looked at. Else it has not run, by cpu_ns (0: no clock), and counts as met. */
static const struct process_record *process_cache_meet(struct process_cache *cache, int32_t pid, uint64_t cpu_ns)
{
	struct process_record *record = process_cache_find(cache, pid);
	bool in_turn = (uint32_t)pid % PROCESS_CACHE_TURNS == cache->scan % PROCESS_CACHE_TURNS;

	if (!record || cpu_ns == 0 || in_turn || record->cpu_ns != cpu_ns)
		return NULL;

	record->scan = cache->scan;

	return record;
}

/* It was looked at, and nothing is left to be done. Without memory it is not remembered. */
static void process_cache_enter(struct process_cache *cache, const struct process_record *met)
{
	struct process_record *record = process_cache_find(cache, met->pid);

	if (!record) {
		if (cache->records.count == PROCESS_CACHE_MAX ||
		    map_reserve(&cache->records, cache->records.count + 1) < 0)
			return;
		record = malloc(sizeof(*record));
		if (!record)
			return;
		map_insert(&cache->records, &record->node, hash_pid(met->pid));
	}

	struct map_node node = record->node;

	*record = *met;
	record->node = node;
	record->scan = cache->scan;
}

/* ---- recent pids ---- */

/*
 * Processes that events named lately: which of them have yet to be looked at, and which came and
 * went before that. Bounded: the oldest is dropped for the newest. One with another event moves to
 * a new slot, so that the first ones are always those that have waited longest.
 */

/*
 * Events this long after an exit are not of the process that ended: a pid is used again only after
 * thousands of others.
 */
#define LATE_NS (100 * NS_PER_MS)

static struct recent_pid *recent_pids_find(const struct recent_pids *recent_pids, int32_t pid)
{
	for (struct map_node *node = map_first(&recent_pids->pids, hash_pid(pid)); node; node = map_next(node)) {
		struct recent_pid *recent_pid = MAP_ENTRY(node, struct recent_pid, node);

		if (recent_pid->pid == pid)
			return recent_pid;
	}

	return NULL;
}

static void recent_pids_remove(struct recent_pids *recent_pids, struct recent_pid *recent_pid)
{
	map_remove(&recent_pids->pids, &recent_pid->node);
	recent_pid->state = RECENT_NONE;
}

/* The newest slot, for the process of *what. */
static struct recent_pid *recent_pids_enter(struct recent_pids *recent_pids, const struct recent_pid *what)
{
	struct recent_pid *slot = &recent_pids->slots[recent_pids->used % RECENT_PIDS_MAX];

	if (slot->state != RECENT_NONE) {
		recent_pids->dropped += slot->state == RECENT_WAITING;
		recent_pids_remove(recent_pids, slot);
	}
	*slot = *what;
	map_insert(&recent_pids->pids, &slot->node, hash_pid(slot->pid));
	recent_pids->used++;
	if (recent_pids->used - recent_pids->due > RECENT_PIDS_MAX)
		recent_pids->due = recent_pids->used - RECENT_PIDS_MAX;

	return slot;
}

static void recent_pids_miss(struct recent_pids *recent_pids, struct recent_pid *recent_pid)
{
	recent_pids->missed += !recent_pid->missed;
	recent_pid->missed = true;
}

/*
 * An event of a process, which waits to be looked at from now on. NULL: its end was reported a
 * moment before, because events of several CPUs are not in order. Valid until the next call.
 */
static struct recent_pid *recent_pids_change(struct recent_pids *recent_pids, int32_t pid, enum process_change what,
					     mono_t now)
{
	struct recent_pid *known = recent_pids_find(recent_pids, pid);
	struct recent_pid recent_pid = { .pid = pid };

	if (known && known->state == RECENT_GONE && !known->summed_up && mono_diff(now, known->at) < (int64_t)LATE_NS) {
		known->renamed |= what != CHANGE_FORKED;
		if (what != CHANGE_RENAMED)
			recent_pids_miss(recent_pids, known);
		return NULL;
	}
	if (known && known->state != RECENT_GONE && what != CHANGE_FORKED)
		recent_pid = *known;
	if (recent_pid.state != RECENT_WAITING)
		recent_pid.after = recent_pids->all_read;
	recent_pid.met |= recent_pid.state == RECENT_MET;
	recent_pid.scanned = false;
	if (known)
		recent_pids_remove(recent_pids, known);
	recent_pid.state = RECENT_WAITING;
	recent_pid.at = now;
	recent_pid.retries = 0;
	if (what == CHANGE_FORKED)
		recent_pid.born = now;
	recent_pid.forked |= what == CHANGE_FORKED;
	recent_pid.executed |= what == CHANGE_EXECUTED;
	recent_pid.renamed |= what != CHANGE_FORKED;

	return recent_pids_enter(recent_pids, &recent_pid);
}

/* It ended. Its slot, GONE from now on; never NULL. */
static struct recent_pid *recent_pids_ended(struct recent_pids *recent_pids, int32_t pid, mono_t now)
{
	struct recent_pid *known = recent_pids_find(recent_pids, pid);

	if (!known)
		return recent_pids_enter(recent_pids,
					 &(struct recent_pid){ .pid = pid, .state = RECENT_GONE, .at = now });
	if (known->state == RECENT_WAITING)
		recent_pids_miss(recent_pids, known);
	known->state = RECENT_GONE;
	known->at = now;

	return known;
}

/* A scan has looked at a process. */
static void recent_pids_scanned(struct recent_pids *recent_pids, int32_t pid)
{
	struct recent_pid *known = recent_pids_find(recent_pids, pid);

	if (known && known->state != RECENT_GONE)
		known->scanned = true;
}

static struct recent_pid *recent_pids_first(struct recent_pids *recent_pids)
{
	for (; recent_pids->due < recent_pids->used; recent_pids->due++) {
		struct recent_pid *recent_pid = &recent_pids->slots[recent_pids->due % RECENT_PIDS_MAX];

		if (recent_pid->state == RECENT_WAITING)
			return recent_pid;
	}

	return NULL;
}

/* The next that waits and whose last event is delay_ns old; it is handed out once. NULL: none. */
static struct recent_pid *recent_pids_due(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t now)
{
	struct recent_pid *recent_pid = recent_pids_first(recent_pids);

	if (!recent_pid || mono_diff(now, recent_pid->at) < (int64_t)delay_ns)
		return NULL;
	recent_pids->due++;

	return recent_pid;
}

/* When the next one will be due. False: none waits. */
static bool recent_pids_next(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t *ret)
{
	const struct recent_pid *recent_pid = recent_pids_first(recent_pids);

	if (recent_pid)
		*ret = mono_add(recent_pid->at, delay_ns);

	return recent_pid != NULL;
}

/* Those that wait are not handed out any more. Their number. */
static size_t recent_pids_give_up(struct recent_pids *recent_pids)
{
	size_t count = 0;

	for (; recent_pids_first(recent_pids); recent_pids->due++)
		count++;

	return count;
}

/* ---- the lock ---- */

/* Updates the liveness timestamp: see discovery_progress. Returns now. */
static mono_t update_pulse(struct discovery *discovery)
{
	struct clock clock = real_clock();
	mono_t now = clock_mono(&clock);

	atomic_store_explicit(&discovery->pulse_ns, now.ns, memory_order_relaxed);

	return now;
}

static mono_t pulse_of(const struct discovery *discovery)
{
	return (mono_t){ atomic_load_explicit(&discovery->pulse_ns, memory_order_relaxed) };
}

static void on_alive(void *ctx)
{
	update_pulse(ctx);
}

static void on_ran(void *ctx, const struct target *process)
{
	struct discovery *discovery = ctx;

	if (discovery->state.source != PROCESS_EVENTS_KERNEL || discovery->ran_count == RAN_MAX)
		return;
	discovery->ran[discovery->ran_count].pid = process->pid;
	discovery->ran[discovery->ran_count++].start_ticks = process->start_ticks;
}

static void section_leave(void *ctx, int32_t pid)
{
	struct discovery *discovery = ctx;

	atomic_store_explicit(&discovery->reading, pid, memory_order_relaxed);
	fair_mutex_leave(&discovery->lock);
}

static void take_reload(struct discovery *discovery);

static int section_enter(void *ctx)
{
	struct discovery *discovery = ctx;

	fair_mutex_enter(&discovery->lock);
	atomic_store_explicit(&discovery->reading, 0, memory_order_relaxed);
	take_reload(discovery);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

static struct unlocked_section section_of(const struct discovery *discovery)
{
	return (struct unlocked_section){ .leave = section_leave,
					  .enter = section_enter,
					  .ctx = (void *)(uintptr_t)discovery };
}

/* For what cannot be given up: a reload is left for later. */
static void lookup_leave(void *ctx, int32_t pid)
{
	struct discovery *discovery = ctx;

	(void)pid;
	discovery->looking_up = true;
	fair_mutex_leave(&discovery->lock);
}

static int lookup_enter(void *ctx)
{
	struct discovery *discovery = ctx;

	fair_mutex_enter(&discovery->lock);
	discovery->looking_up = false;

	return 0;
}

static void process_facts_init(struct process_facts *process_facts, const struct discovery *discovery)
{
	const struct target_table_options *options = &discovery->options.target_table;

	process_facts->procfd = options->procfd;
	process_facts->mounts = options->mounts;
	process_facts->containers = options->containers;
	process_facts->unlocked_section = section_of(discovery);
}

static void signal_eventfd(int fd)
{
	uint64_t once = 1;

	(void)!write(fd, &once, sizeof(once)); /* what is full already wakes too */
}

/* ---- matching a process ---- */

/*
 * A process that moves from one entry to another is read once more in between: up to there it
 * counts in the group that it leaves, from there in the one that it joins, so that none of its CPU
 * time counts twice or is lost. It leaves before it joins.
 */

/* For an entry "per": "cgroup" a process stands for its cgroup; the root cgroup is no target. */
static int match_own_cgroup(struct discovery *discovery, size_t entry, const struct match_facts *facts)
{
	if (!facts->cgroup || strcmp(facts->cgroup, "/") == 0)
		return 0;

	return target_table_cgroup(discovery->target_table, entry, facts->cgroup, discovery->scan);
}

static int is_same_target(void *ctx, struct target_table_target *target)
{
	const struct target *wanted = ctx;

	return target->what.kind == wanted->kind && strcmp(target->what.entry, wanted->entry) == 0 &&
	       strcmp(target->what.cgroup, wanted->cgroup) == 0;
}

static struct process_observation observation_of(const struct process_facts *process_facts)
{
	const struct match_facts *facts = &process_facts->facts;

	return (struct process_observation){
		.pid = facts->pid,
		.start_ticks = process_facts->stat.start_ticks,
		.arguments_at = process_facts->unanswered ? 0 : process_facts->arguments_at, /* 0: to be read again */
		.comm = facts->comm,
		.cmdline = facts->cmdline ? facts->cmdline : "",
		.cgroup = facts->cgroup ? facts->cgroup : "",
	};
}

/* Its counters, as the sampler would read them; {0}: its CPU clock cannot be read. */
static struct sample process_counters(const struct discovery *discovery, const struct process_facts *process_facts)
{
	const struct procfs_stat *stat = &process_facts->stat;
	uint64_t ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t cpu_ns = discovery->options.target_table.own_proc ? real_clock_cpu_of(real_clock_of(stat->pid)) : 0;
	struct sample sample = { 0 };

	if (cpu_ns == 0)
		return sample;
	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	sample_set(&sample, SAMPLE_CPU_USER, stat->user_ticks * ns_per_tick);
	sample_set(&sample, SAMPLE_CPU_SYSTEM, stat->system_ticks * ns_per_tick);
	sample_set(&sample, SAMPLE_MINOR_FAULTS, stat->minor_faults);
	sample_set(&sample, SAMPLE_MAJOR_FAULTS, stat->major_faults);

	return sample;
}

/* By running another program it becomes a new target, but not of an entry by pid. */
static bool is_new_program(const struct discovery *discovery, size_t entry, const struct process_facts *process_facts)
{
	return (discovery->config->targets[entry].selector > CONFIG_PIDFILE ||
		discovery->matcher->verdicts[entry] == MATCHER_DESCENDS) &&
	       target_table_was_other(discovery->target_table, entry, process_facts->facts.pid,
				      process_facts->stat.start_ticks, process_facts->facts.comm);
}

/* Whether it is watched for an entry as what it is now; it then counts as seen. */
static bool is_watched_as_is(struct discovery *discovery, size_t entry, const struct process_facts *process_facts,
			     bool changed)
{
	return !(changed && is_new_program(discovery, entry, process_facts)) &&
	       target_table_process_known(discovery->target_table, entry, process_facts->facts.pid,
					  process_facts->stat.start_ticks, discovery->scan);
}

static bool is_of_entry_by(enum matcher_verdict verdict)
{
	return verdict == MATCHER_ITSELF || verdict == MATCHER_DESCENDS;
}

/* It is not known whether the entry selects the process: what is watched for it already counts as seen. True: it is. */
static bool keep_watched(struct discovery *discovery, size_t entry, const struct process_facts *process_facts,
			 bool changed)
{
	const struct match_facts *facts = &process_facts->facts;
	const struct target own_cgroup = { .kind = TARGET_CGROUP,
					   .entry = discovery->config->targets[entry].name,
					   .cgroup = facts->cgroup ? facts->cgroup : "" };

	if (discovery->config->targets[entry].per != CONFIG_PER_CGROUP)
		return is_watched_as_is(discovery, entry, process_facts, changed);

	return target_table_visit(discovery->target_table, is_same_target, (void *)(uintptr_t)&own_cgroup) &&
	       match_own_cgroup(discovery, entry, facts) == 0;
}

/* It leaves the entries that it is no longer of. True: there was one. */
static bool leave_entries(struct discovery *discovery, const struct process_facts *process_facts, bool changed,
			  const struct sample *now)
{
	struct process_observation observation = observation_of(process_facts);
	bool left = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (!discovery->matcher->verdicts[i] || (changed && is_new_program(discovery, i, process_facts)))
			left |= target_table_unmatch(discovery->target_table, i, &observation, now);

	return left;
}

/* Sets match->ended if it has ended meanwhile. */
static int join_entries(struct discovery *discovery, struct process_facts *process_facts, struct process_match *match,
			const struct sample *since)
{
	struct process_observation observation;
	int r = process_facts_ask(
		process_facts, MATCH_CMDLINE | MATCH_CGROUP); /* for the description, whether or not an entry asked */

	observation = observation_of(process_facts);
	observation.whole = match->whole;
	observation.since = since;
	for (size_t i = 0; r >= 0 && i < discovery->config->target_count; i++) {
		if (!is_of_entry_by(discovery->matcher->verdicts[i]) ||
		    discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			continue;
		observation.descends = discovery->matcher->verdicts[i] == MATCHER_DESCENDS;
		r = target_table_process(discovery->target_table, i, &observation, discovery->scan);
		match->ended |= r == TARGET_TABLE_ENDED;
	}

	return r < 0 ? r : 0;
}

/* Met again: the description is read anew if an event said so, or it is seen to be outdated. */
static int update_description(struct discovery *discovery, size_t entry, struct process_facts *process_facts,
			      bool changed)
{
	struct process_observation observation = observation_of(process_facts);

	if (!changed && !target_table_is_outdated(discovery->target_table, entry, &observation))
		return 0;

	int r = process_facts_ask(process_facts, MATCH_CMDLINE | MATCH_CGROUP);

	if (r < 0 || process_facts->unanswered)
		return r;

	observation = observation_of(process_facts);

	return target_table_describe(discovery->target_table, entry, &observation);
}

/*
 * After matcher_look: hands a process to every entry that it matches. One that joins an entry, or
 * has changed, leaves those that it is no longer of; others are left to the sweep. 0; -ENOMEM, or
 * out of descriptors.
 */
static int match_with_entries(struct discovery *discovery, struct process_facts *process_facts,
			      struct process_match *match)
{
	bool joins = false;
	int r = 0;

	match->watched = false;
	match->targets = 0;
	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++) {
		enum matcher_verdict verdict = discovery->matcher->verdicts[i];

		if (verdict == MATCHER_UNKNOWN)
			match->watched |= keep_watched(discovery, i, process_facts, match->changed);
		if (!is_of_entry_by(verdict))
			continue;
		match->watched = true;
		if (discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			r = match_own_cgroup(discovery, i, &process_facts->facts);
		else if (!is_watched_as_is(discovery, i, process_facts, match->changed))
			joins = true;
		else
			r = update_description(discovery, i, process_facts, match->changed);
		match->targets += discovery->config->targets[i].per != CONFIG_PER_CGROUP;
	}
	if (r < 0 || (!joins && !match->changed))
		return r;

	struct sample now = process_counters(discovery, process_facts);
	bool left = leave_entries(discovery, process_facts, match->changed, &now);

	return joins ? join_entries(discovery, process_facts, match, left && now.mask ? &now : NULL) : 0;
}

/* ---- matching a cgroup ---- */

/* The container that the cgroup itself is. A pending one is none yet (see containers_update). */
static const struct container *own_container(struct discovery *discovery, const char *path)
{
	const struct container *container;
	bool own;

	if (!discovery->matcher->by_container ||
	    containers_find(discovery->options.target_table.containers, path, pulse_of(discovery), &container, &own) !=
		    CONTAINERS_KNOWN)
		return NULL;

	return own ? container : NULL;
}

/* Hands a cgroup to the entries that select it by its path. 0; -ENOMEM. */
static int match_cgroup_path(struct discovery *discovery, const char *path)
{
	const struct container *container = own_container(discovery, path);
	int r = 0;

	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++)
		if (matcher_cgroup(discovery->matcher, i, path, container))
			r = target_table_cgroup(discovery->target_table, i, path, discovery->scan);

	return r;
}

static void lower_to(mono_t *until, mono_t at)
{
	if (mono_diff(*until, at) > 0)
		*until = at;
}

/* ---- units ---- */

/*
 * While an entry selects units, systemd is asked about them (unit_bus.h), by this thread. The
 * answers only add to what paths say: the targets are the same cgroups under the same keys, with or
 * without a bus.
 */

static bool unit_runs(const struct unit *unit)
{
	return strcmp(unit->facts.active_state, "inactive") != 0 && strcmp(unit->facts.active_state, "failed") != 0;
}

/* Processes met before it was known that they are its are found by a scan. */
static void on_unit_changed(void *ctx, const struct unit *unit, bool started)
{
	struct discovery *discovery = ctx;

	if (!unit->cgroup || !unit_runs(unit))
		return;

	discovery->again |= match_cgroup_path(discovery, unit->cgroup) < 0;
	discovery->again |= started && unit->unlike;
}

static int is_of_entry(void *ctx, struct target_table_target *target)
{
	return target->what.kind != TARGET_GROUP && strcmp(target->what.entry, ctx) == 0;
}

/* NULL also if it has targets: they are of a user's own systemd, unknown to the machine's. */
static const char *entry_without_targets(const struct discovery *discovery, const char *name)
{
	for (size_t i = 0; i < discovery->config->target_count; i++) {
		const struct config_target *entry = &discovery->config->targets[i];

		if (entry->selector == CONFIG_UNIT && strcmp(entry->pattern, name) == 0 &&
		    !target_table_visit(discovery->target_table, is_of_entry, (void *)(uintptr_t)entry->name))
			return entry->name;
	}

	return NULL;
}

static void on_unit_answered(void *ctx, const char *name, enum unit_bus_answer before, enum unit_bus_answer answer,
			     const char *why)
{
	struct discovery *discovery = ctx;
	const char *entry = entry_without_targets(discovery, name);

	if (answer == UNIT_BUS_MISSING && entry)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "begin" },
			  "target %s: no unit %s: %s", entry, name, why);
	if (answer == UNIT_BUS_EXISTS && before == UNIT_BUS_MISSING)
		log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "end" },
			  "unit %s exists now", name);
}

static void log_units_condition(struct discovery *discovery, mono_t now)
{
	struct unit_bus_state state;

	unit_bus_state(discovery->units, &state);
	switch (condition_step(&discovery->units_condition, !state.connected && state.why[0] != '\0', now, CALM_NS)) {
	case CONDITION_BEGINS:
		log_line(LOG_INFO, "units are known by the names of their cgroups only: %s", state.why);
		break;
	case CONDITION_ENDS:
		log_line(LOG_INFO, "units are known from systemd");
		break;
	default:
		break;
	}
}

static void read_units(struct discovery *discovery, mono_t now)
{
	if (!discovery->units || !rate_limit_allows(&discovery->units_limit, now))
		return;

	discovery->units_read = now;
	if (unit_bus_read(discovery->units, now))
		rate_limit_event(&discovery->units_limit, GAP_NS, now);
	log_units_condition(discovery, now);
}

/* As await_events, of one descriptor. */
static size_t await_units(const struct discovery *discovery, mono_t now, struct pollfd *ret, mono_t *until)
{
	bool may = rate_limit_allows(&discovery->units_limit, now), polled;
	mono_t due = *until, least = may ? mono_add(discovery->units_read, GAP_NS) : discovery->units_limit.until;

	if (!discovery->units)
		return 0;
	polled = unit_bus_await(discovery->units, now, ret, &due) && may;
	if (!may || mono_diff(least, due) > 0)
		due = least; /* what is due all the time is no reason to look all the time */
	lower_to(until, due);

	return polled;
}

/* Why this machine's systemd knows nothing of what is watched; NULL: it does. */
static const char *why_no_units(const struct discovery *discovery)
{
	if (!discovery->options.target_table.own_proc)
		return "proc_root is not this machine's own /proc";
	if (*discovery->config->cgroup_root)
		return "cgroup_root is set";

	return NULL;
}

static int want_units(struct discovery *discovery)
{
	const struct config *config = discovery->config;
	const char **names = calloc(config->target_count ? config->target_count : 1, sizeof(*names));
	size_t count = 0;
	int r;

	if (!names)
		return -ENOMEM;

	for (size_t i = 0; i < config->target_count; i++)
		if (config->targets[i].selector == CONFIG_UNIT)
			names[count++] = config->targets[i].pattern;
	discovery->state.units_wanted = count > 0;
	r = unit_bus_want(discovery->units, names, count);
	free(names);

	return r;
}

/* Asks for other units if others are selected now. After a scan: what it found is not missing. */
static void ask_for_units(struct discovery *discovery)
{
	const char *why = why_no_units(discovery);
	struct unit_bus_options options = {
		.address = discovery->options.unit_bus,
		.peer = discovery->options.unit_bus != NULL,
		.changed = on_unit_changed,
		.answered = on_unit_answered,
		.ctx = discovery,
	};

	if (!discovery->units_due || discovery->rescan)
		return;

	snprintf(discovery->state.units.why, sizeof(discovery->state.units.why), "%s", why ? why : "");
	if (!why && !discovery->units && unit_bus_new(&options, &discovery->units, &discovery->matcher->units) < 0)
		return; /* without memory: with the next scan */

	discovery->units_due = discovery->units && want_units(discovery) < 0;
}

/* ---- the CPU time of processes that ended that is not in their exit records ---- */

/*
 * An exit record is made in the middle of the exit, from a clock that was stale since the last
 * scheduler tick: of a process that lives for a few milliseconds a fifth to a half is missing. What
 * a process used in all the kernel adds to its parent when that waits for it (cutime and cstime of
 * /proc/PID/stat): exact, but shown in steps of a clock tick (10 ms), and for all children together.
 *
 * So each parent has an account: what it has waited for, less what is known of the children that
 * ended, is missing. That is handed out in equal parts to the next children of the same groups, which
 * are in all likelihood like those before. Of a parent that has children of different groups, or some
 * that count in none, it is not known in which what was missing belongs: a parent waits when it likes,
 * and stat shows it later still. It is counted in none, from the first child of another group on until
 * for two seconds those that ended were of one group, and the last one of another has been waited for.
 *
 *     waited for  ├──────── known: records and parts ────────┤── missing ──┤
 *
 * Never more than the truth: what stat does not show yet, less than two clock ticks, follows when it
 * is shown, or when the parent itself is waited for. Of a parent that had waited for others before
 * its account was opened, less than two clock ticks of that may not have been shown: as much is held
 * back for good. So an account lacks at most two clock ticks, or four, for any number of children.
 *
 * A parent that does not wait (SIGCHLD ignored) has no such time; of its children there are the
 * records alone. What was waited for and cannot be explained by an exit that was seen is never
 * handed out.
 *
 * An account begins with the first exit that is seen of a child. What its parent had waited for by
 * then is its opening balance: nothing if that is proven by the page faults, which are shown exactly,
 * else as much as stat may not show is added, so that nothing is handed out that is not certain.
 * A parent that ends takes its account with it: what it has waited for is part of what its own
 * parent then waits for.
 *
 * The times of a parent are read before events are (waited_times_look), and compared when no more have come
 * (waited_times_settle): a child that was waited for by then had its record in the queue before, so all of them
 * are known. Read after them, the times would have what the records still to be read say as well, which would be
 * handed out and then counted: a tenth of a second where discovery had to wait for a CPU. The other way round, a
 * child may be known and not be waited for yet: the account is overdrawn for a moment.
 *
 * A process may be sampled after its record was made, as a zombie that waits for its parent: then its
 * group has counted more than record and part, and what it lacked is handed out to others. So much less
 * is added of the next ones (SOURCE_END_SHARED).
 *
 * What is never handed out: more than can be missing in the records of the children that ended of
 * late. A jump beyond that comes from a child whose end, or whose own waiting, was not seen: it
 * belongs to the opening balance. An account that is still overdrawn when its last child was waited
 * for is of a parent that does not wait for all of its children: it is balanced as well.
 *
 * Bounded: 512 parents, of which the one that lost a child longest ago is forgotten.
 */

#define ACCOUNTS_MAX 512u

#define FAULTS_AFTER_RECORD 4

/* No process has waited for more: ninety years of a CPU. */
#define WAITED_MAX (UINT64_C(1) << 38)

/* How often stat of a parent is read: 3 us each. */
#define WAITED_READ_NS (4 * NS_PER_MS)

/* The pauses after the last child at which what is left over is handed out, each a part of it. */
#define REST_NS (10 * NS_PER_MS)
#define REST_MAX_NS (2 * NS_PER_S)

/* So long after an end the sampler has given back its target: what it has counted of it is known. */
#define GIVEN_BACK_NS (200 * NS_PER_MS)

/*
 * No more is handed out at a time: what a parent that waits late may have of twenty children or
 * more. A jump as small as that may be of a child that had waited for children before it was known.
 */
#define LIMIT_MAX_NS (250 * NS_PER_MS)

/* How long children of one group alone have ended. */
#define ONE_GROUP_NS (2 * NS_PER_S)

/* How long a jump is believed to come from an exit that will be known in a moment. */
#define JUMP_NS (100 * NS_PER_MS)

/* What stat says of a parent. */
struct waited {
	uint64_t start_ticks;
	uint64_t shown_ns; /* of what it has waited for: at most two ticks less */
	uint64_t faults;   /* minor, of the same processes: exact */
};

/* At the times of a parent, before events are read; compared when all are. */
struct look {
	bool there;
	struct waited waited;
	bool all;             /* who had ended by then was waited for, and no other child has ended since */
	bool one_group_again; /* see is_of_one_group_again */
	uint64_t known_ns;    /* then, and what was owed */
};

struct account {
	struct map_node node;
	TAILQ_ENTRY(account) all; /* the one that lost a child last is the last */
	int32_t pid;
	uint64_t start_ticks;
	int64_t opening_ns; /* waited for before, as it was shown */
	uint64_t hidden_ns; /* and what was not shown of it, at most */
	bool may_be_new;    /* it may have waited for no others: then that is nothing */
	uint64_t opening_faults;
	uint64_t faults;   /* minor, of children, with theirs */
	uint64_t known_ns; /* of children, with theirs: records and parts */
	uint64_t owed_ns;  /* missing, and not handed out yet */
	uint64_t part_ns;  /* of it, for each child */
	uint64_t limit_ns; /* what can be missing of the children that ended of late */
	uint64_t children; /* since something was missing */
	bool mixed;        /* they are of several groups: the last of others was this one, */
	int32_t others;
	mono_t switched;      /* then */
	uint64_t owed_groups; /* of those of which it is missing */
	mono_t jumped;        /* since when more is missing than can be; 0: it is not */
	mono_t read, ended;   /* stat; the last child */
	bool unread;          /* a child ended since stat was read */
	struct look look;
	mono_t due;        /* the next settlement; 0: there is none */
	int32_t first_pid; /* the first child that ended since all that had were waited for; 0: none has */
	int32_t last_pid;  /* the last child */
	uint64_t last_groups;
};

TAILQ_HEAD(account_list, account);

struct waited_times {
	int procfd;
	uint64_t tick_ns, grain_ns; /* two times are shown, each less than a tick below the truth */
	struct map accounts;        /* of parents, by pid */
	struct account_list used, unused;
	struct account slots[ACCOUNTS_MAX];
};

/* A process that ended. */
struct waited_child {
	int32_t pid, parent_pid;
	uint64_t cpu_ns;     /* what is known of its CPU time; at most what it was */
	uint64_t missing_ns; /* no more than this is missing in it */
	uint64_t faults;     /* minor page faults; 0: not known */
	bool gone;           /* its parent has waited for it */
	uint64_t groups;     /* the caller's, for what is left over; 0: it counts nowhere */
};

static struct account *find_account(const struct waited_times *times, int32_t pid)
{
	for (struct map_node *node = map_first(&times->accounts, hash_pid(pid)); node; node = map_next(node)) {
		struct account *account = MAP_ENTRY(node, struct account, node);

		if (account->pid == pid)
			return account;
	}

	return NULL;
}

static void close_account(struct waited_times *times, struct account *account)
{
	map_remove(&times->accounts, &account->node);
	TAILQ_REMOVE(&times->used, account, all);
	TAILQ_INSERT_HEAD(&times->unused, account, all);
}

/* False: the process is gone. */
static bool read_waited(const struct waited_times *times, int32_t pid, struct waited *ret)
{
	char text[STAT_MAX];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(times->procfd, pid, "stat", text, sizeof text);

	if (len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.waited_ticks > WAITED_MAX)
		return false;

	*ret = (struct waited){
		.start_ticks = stat.start_ticks,
		.shown_ns = stat.waited_ticks * times->tick_ns,
		.faults = stat.waited_minor_faults,
	};

	return true;
}

/* Reads the times of its parent. False: it has ended, and what is known is still of use. */
static bool read_account(const struct waited_times *times, const struct account *account, struct waited *ret)
{
	return read_waited(times, account->pid, ret) && ret->start_ticks == account->start_ticks;
}

/* What a process that ended had waited for itself. */
struct inheritance {
	uint64_t waited_ns;  /* as far as it is known, and what may be of others */
	uint64_t missing_ns; /* in that, at most */
	uint64_t rest_ns;    /* of it, what was missing and not handed out yet */
	uint64_t faults;     /* of those that it had waited for */
};

/*
 * The faults of all that it has waited for are those of the children that are known: there were no
 * others. Any other one would have had more than these few, which may happen after the record. Of a parent
 * that does not wait they may be the same by chance, when more and more children are known.
 */
static void learn_whether_new(struct account *account, const struct waited *waited)
{
	int64_t others = (int64_t)(waited->faults - account->faults);
	bool waits = waited->faults > account->opening_faults + FAULTS_AFTER_RECORD;

	if (others < -FAULTS_AFTER_RECORD || others > FAULTS_AFTER_RECORD || (account->read.ns && !waits))
		return;

	account->may_be_new = false;
	account->opening_ns = 0;
	account->hidden_ns = 0;
}

/* NULL: the parent is gone. */
static struct account *open_account(struct waited_times *times, const struct waited_child *child,
				    const struct inheritance *own)
{
	uint64_t its_ns = child->gone ? child->cpu_ns + own->waited_ns : 0;
	struct waited waited;

	if (!read_waited(times, child->parent_pid, &waited))
		return NULL;
	if (TAILQ_EMPTY(&times->unused))
		close_account(times, TAILQ_FIRST(&times->used));

	struct account *account = TAILQ_FIRST(&times->unused);

	TAILQ_REMOVE(&times->unused, account, all);
	TAILQ_INSERT_TAIL(&times->used, account, all);
	*account = (struct account){
		.all = account->all,
		.pid = child->parent_pid,
		.start_ticks = waited.start_ticks,
		.opening_ns = (int64_t)waited.shown_ns - (int64_t)its_ns,
		.hidden_ns = times->grain_ns,
		.may_be_new = true, /* what is shown may be of children whose records are still to be read */
		.opening_faults = waited.faults,
	};
	map_insert(&times->accounts, &account->node, hash_pid(account->pid));

	return account;
}

static void raise_limit(struct account *account, uint64_t by_ns)
{
	account->limit_ns += by_ns;
	account->limit_ns = account->limit_ns < LIMIT_MAX_NS ? account->limit_ns : LIMIT_MAX_NS;
}

/*
 * Of children that count in different groups, or some of them nowhere, it is not known of which it is
 * missing: then it counts in none.
 */
static void add_missing(struct account *account, uint64_t missing_ns)
{
	account->limit_ns -= missing_ns < account->limit_ns ? missing_ns : account->limit_ns;
	if (account->mixed) {
		account->known_ns += missing_ns;
		account->children = 0;
		return;
	}
	if (account->owed_groups != account->last_groups) {
		account->known_ns += account->owed_ns;
		account->owed_ns = 0;
		account->owed_groups = account->last_groups;
	}
	account->owed_ns += missing_ns;
	account->part_ns = account->owed_ns / (account->children ? account->children : 1) + 1;
	account->children = 0;
}

static void take_from_owed(struct account *account, uint64_t surplus_ns)
{
	surplus_ns = surplus_ns < account->owed_ns ? surplus_ns : account->owed_ns;
	account->owed_ns -= surplus_ns;
	raise_limit(account, surplus_ns);
}

/* What was waited for is explained by what is known and by others: these are as many as can be. */
static void balance_by_opening(const struct waited_times *times, struct account *account, int64_t missing_ns)
{
	account->opening_ns += missing_ns + (int64_t)account->hidden_ns;
	account->hidden_ns = times->grain_ns;
	account->may_be_new = false;
}

static bool is_gone(const struct waited_times *times, int32_t pid)
{
	struct waited waited;

	return !read_waited(times, pid, &waited);
}

/* Whether what is missing from now on can be of the groups of the last children alone. */
static bool is_of_one_group_again(const struct waited_times *times, const struct account *account, mono_t now)
{
	return account->mixed && mono_diff(now, account->switched) >= (int64_t)ONE_GROUP_NS &&
	       is_gone(times, account->others);
}

/* Compares with what was shown. The balance, ns: what is missing, or, less than 0, not shown. */
static int64_t balance_account(const struct waited_times *times, struct account *account, mono_t now)
{
	const struct look *look = &account->look;
	int64_t explained_ns = account->opening_ns + (int64_t)account->hidden_ns;
	int64_t missing_ns =
		(int64_t)look->waited.shown_ns - explained_ns - (int64_t)(account->known_ns + account->owed_ns);

	if (look->one_group_again) {
		/* Children that have ended since are not in what was shown, or only some of them. */
		balance_by_opening(times, account, (int64_t)(look->waited.shown_ns - look->known_ns) - explained_ns);
		account->mixed = false;
		missing_ns = 0;
	}
	if (missing_ns > (int64_t)(account->limit_ns + times->grain_ns)) {
		if (account->jumped.ns == 0)
			account->jumped = now;
		if (mono_diff(now, account->jumped) < (int64_t)JUMP_NS)
			return missing_ns;
		balance_by_opening(times, account, missing_ns);
		missing_ns = 0;
	}
	account->jumped = (mono_t){ 0 };
	if (missing_ns > 0)
		add_missing(account, (uint64_t)missing_ns);
	else
		take_from_owed(account, (uint64_t)-missing_ns);

	return missing_ns;
}

static uint64_t hand_out(struct account *account, uint64_t groups, uint64_t most_ns)
{
	uint64_t part_ns = most_ns < account->owed_ns ? most_ns : account->owed_ns;

	if (groups != account->owed_groups)
		return 0;

	account->owed_ns -= part_ns;
	account->known_ns += part_ns;

	return part_ns;
}

static struct inheritance close_account_of(struct waited_times *times, const struct waited_child *child)
{
	struct account *account = find_account(times, child->pid);
	struct inheritance own = { 0 };
	int64_t waited_ns;

	if (!account)
		return own;

	own.rest_ns = hand_out(account, child->groups, UINT64_MAX);
	account->known_ns += account->owed_ns; /* of groups that this child is not in */
	own.missing_ns = account->limit_ns;
	own.faults = account->faults;
	waited_ns = account->opening_ns + (int64_t)(account->hidden_ns + account->known_ns);
	own.waited_ns = waited_ns > 0 ? (uint64_t)waited_ns : 0;
	close_account(times, account);

	return own;
}

static void enter_child(struct waited_times *times, struct account *account, const struct waited_child *child,
			const struct inheritance *own, mono_t now)
{
	account->known_ns += child->cpu_ns + own->waited_ns;
	account->faults += child->faults + own->faults;
	raise_limit(account, child->missing_ns + own->missing_ns);
	account->children++;
	if (account->last_pid && account->last_groups != child->groups) {
		account->mixed = true;
		account->others = account->last_pid;
		account->switched = now;
	}
	if (!account->first_pid)
		account->first_pid = child->pid;
	account->last_pid = child->pid;
	account->last_groups = child->groups;
	account->ended = now;
	account->unread = true;
	account->look.all = false;
	account->due = mono_add(now, REST_NS);
	TAILQ_REMOVE(&times->used, account, all);
	TAILQ_INSERT_TAIL(&times->used, account, all);
}

/*
 * Returns the CPU time to be added to that of a child, ns. Children in the order of their ends; no
 * process may have ended, and be missing here, that has children itself here.
 */
static uint64_t waited_times_child(struct waited_times *times, const struct waited_child *child, mono_t now)
{
	struct inheritance own = close_account_of(times, child);
	struct account *account = child->parent_pid > 0 ? find_account(times, child->parent_pid) : NULL;

	if (!account && child->parent_pid > 0 && child->groups)
		account = open_account(times, child, &own);
	if (!account)
		return own.rest_ns;

	enter_child(times, account, child, &own, now);

	return own.rest_ns + hand_out(account, child->groups, account->part_ns);
}

/*
 * The first and the last of those that ended are looked at: a parent that has waited for some of them began at one of
 * the ends, as a rule. After a long pause the last is enough: another process may have the id of the first.
 */
static bool has_waited_for_all(const struct waited_times *times, struct account *account, uint64_t passed_ns)
{
	if (account->first_pid && passed_ns < REST_MAX_NS && !is_gone(times, account->first_pid))
		return false;
	if (!is_gone(times, account->last_pid))
		return false;
	account->first_pid = 0;
	return true;
}

static bool is_due(const struct account *account, mono_t now)
{
	return account->due.ns && mono_diff(now, account->due) >= 0;
}

/*
 * Reads what parents have waited for of which a child has ended lately: before events are read. Each at most
 * each four milliseconds.
 */
static void waited_times_look(struct waited_times *times, mono_t now)
{
	struct account *account;

	TAILQ_FOREACH(account, &times->used, all)
	{
		struct look *look = &account->look;
		bool wanted = account->unread && mono_diff(now, account->read) >= (int64_t)WAITED_READ_NS;

		if (look->there || (!wanted && !is_due(account, now)))
			continue;
		/* Before its times: what it waits for in between would count once more when it is shown. */
		look->all = has_waited_for_all(times, account, (uint64_t)mono_diff(now, account->ended));
		look->one_group_again = look->all && is_of_one_group_again(times, account, now);
		look->known_ns = account->known_ns + account->owed_ns;
		look->there = read_account(times, account, &look->waited);
		account->read = now;
		account->unread = false;
		if (!look->there)
			account->due = (mono_t){ 0 }; /* its own end is still to be known */
		else if (account->may_be_new && look->all)
			learn_whether_new(account, &look->waited);
	}
}

static void hand_out_rest(struct account *account, mono_t now,
			  void (*credit)(void *ctx, uint64_t groups, uint64_t cpu_ns), void *ctx)
{
	uint64_t passed_ns = (uint64_t)mono_diff(now, account->ended);
	uint64_t left_ns = hand_out(account, account->last_groups,
				    passed_ns < 4 * REST_NS ? (account->owed_ns + 1) / 2 : UINT64_MAX);

	if (left_ns && account->last_groups)
		credit(ctx, account->last_groups, left_ns);
	account->due =
		passed_ns < REST_MAX_NS ? mono_add(now, passed_ns > REST_NS ? passed_ns : REST_NS) : (mono_t){ 0 };
}

/*
 * Compares what was looked at, when all events that had come by then are known. Hands out what is missing of
 * parents of which no child has ended for a while, to the groups of the last one that did. given_back: the
 * sampler has nothing more of children that ended.
 */
static void waited_times_settle(struct waited_times *times, bool given_back, mono_t now,
				void (*credit)(void *ctx, uint64_t groups, uint64_t cpu_ns), void *ctx)
{
	struct account *account;

	TAILQ_FOREACH(account, &times->used, all)
	{
		if (!account->look.there)
			continue;

		account->look.there = false;
		int64_t missing_ns = balance_account(times, account, now);

		if (missing_ns < -(int64_t)times->grain_ns && account->look.all)
			balance_by_opening(times, account, missing_ns);
		if (!is_due(account, now))
			continue;
		if (given_back || mono_diff(now, account->ended) >= (int64_t)GIVEN_BACK_NS)
			hand_out_rest(account, now, credit, ctx);
		else
			account->due = mono_add(now, REST_NS);
	}
}

/* Groups mean something else from now on: what is left over of children that ended is not handed out. */
static void waited_times_forget_groups(struct waited_times *times)
{
	struct account *account;

	TAILQ_FOREACH(account, &times->used, all)
	account->last_groups = 0;
}

/* When waited_times_settle has something to do. False: not before another child ends. */
static bool waited_times_due(const struct waited_times *times, mono_t *ret)
{
	const struct account *account;

	*ret = (mono_t){ 0 };
	TAILQ_FOREACH(account, &times->used, all)
	if (account->due.ns && (!ret->ns || mono_diff(account->due, *ret) < 0))
		*ret = account->due;

	return ret->ns != 0;
}

/* procfd: of the proc root, must outlive it. 0 or -ENOMEM. */
static int waited_times_new(int procfd, struct waited_times **ret)
{
	struct waited_times *times = calloc(1, sizeof *times);

	if (!times || map_reserve(&times->accounts, ACCOUNTS_MAX) < 0) {
		free(times);
		return -ENOMEM;
	}

	times->procfd = procfd;
	times->tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	times->grain_ns = DISCOVERY_LACK_TICKS / 2 * times->tick_ns;
	TAILQ_INIT(&times->used);
	TAILQ_INIT(&times->unused);
	for (size_t i = 0; i < ACCOUNTS_MAX; i++)
		TAILQ_INSERT_TAIL(&times->unused, &times->slots[i], all);
	*ret = times;

	return 0;
}

static void waited_times_free(struct waited_times *times)
{
	if (!times)
		return;

	map_release(&times->accounts);
	free(times);
}

/* ---- processes that ended ---- */

/*
 * Of a process that ended before it was looked at only the exit record is left: name, parent,
 * counters. It counts in a group whose entry selects by name; or, because a child is in the cgroup
 * of its parent, in one that its parent is a member of and that selects by cgroup or unit; and if
 * it executed nothing, in its parent's, whatever that selects by.
 *
 * An event says a pid, and may be so late that another process has it. /proc and clocks then answer
 * for that one: so its start time is read, and whether it is exiting. An exit record belongs to its
 * process, but never to one that lives.
 */

/* Whether a process that was never looked at was of this group, by its exit record. recent_pid: NULL: no event. */
static bool was_in_group(const struct discovery *discovery, size_t entry, const struct procevent *end,
			 const struct recent_pid *recent_pid)
{
	const struct config_target *config = &discovery->config->targets[entry];
	struct match_facts facts = { .pid = end->pid, .comm = end->totals.comm };
	bool stays = config->selector >= CONFIG_CGROUP;
	bool same = recent_pid && recent_pid->forked && !recent_pid->executed;

	if (config->per != CONFIG_PER_GROUP)
		return false;
	if (matcher_was_in_tree(discovery->matcher, entry, end->pid, end->ppid))
		return true;
	if (config->selector == CONFIG_COMM)
		return matcher_process(discovery->matcher, entry, &facts);

	return (stays || same) && target_table_is_member(discovery->target_table, entry, end->ppid);
}

/* The entries, as bits, in whose groups a process counts, or would have counted, when it ended. */
static uint64_t groups_of_ended(const struct discovery *discovery, const struct procevent *end,
				const struct recent_pid *recent_pid, bool unseen)
{
	uint64_t groups = 0;

	for (size_t i = 0; i < discovery->config->target_count && i < 64; i++)
		if (target_table_is_member(discovery->target_table, i, end->pid) ||
		    (unseen && was_in_group(discovery, i, end, recent_pid)))
			groups |= UINT64_C(1) << i;

	return groups;
}

/*
 * So long after the end of a process its record is read, in a storm, and in any case its pid is not
 * used again so soon.
 */
#define END_NS (5 * NS_PER_S)

static void credit_unseen_process(struct discovery *discovery, const struct procevent *end,
				  const struct recent_pid *recent_pid, const struct sample *sample)
{
	uint64_t end_ns = recent_pid->at.ns, elapsed_ns = end->totals.elapsed_ns + END_NS;
	const struct target_member when = { .pid = end->pid,
					    .from_ns = end_ns > elapsed_ns ? end_ns - elapsed_ns : 0,
					    .to_ns = end_ns + END_NS };
	bool credited = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (was_in_group(discovery, i, end, recent_pid))
			credited |= target_table_credit(discovery->target_table, i, &when, sample,
							end->totals.exact ? SOURCE_END_EXACT : SOURCE_END_ESTIMATED);
	discovery->state.credited += credited;
}

/* The process that has a pid now. */
struct pid_owner {
	uint64_t start_ticks; /* 0: none */
	bool exiting;
};

static struct pid_owner owner_of_pid(const struct discovery *discovery, int32_t pid)
{
	char text[STAT_MAX];
	ssize_t len = proc_read_file(discovery->options.target_table.procfd, pid, "stat", text, sizeof(text));
	struct procfs_stat stat;

	if (len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return (struct pid_owner){ 0 };

	return (struct pid_owner){ .start_ticks = stat.start_ticks, .exiting = stat.exiting };
}

/* Shared: what the records of its parent's children lack is handed out to them in parts. */
static enum source_end known_of(const struct discovery *discovery, const struct procevent *end)
{
	const struct account *account = find_account(discovery->subscription->waited_times, end->ppid);

	if (end->totals.exact)
		return SOURCE_END_EXACT;
	return account && !account->mixed ? SOURCE_END_SHARED : SOURCE_END_ESTIMATED;
}

/* True: it is watched. renamed: it may be watched under the name that it had before. */
static bool end_targets(struct discovery *discovery, const struct procevent *end, bool renamed,
			const struct sample *counters)
{
	struct target_table_ending ending = { .pid = end->pid,
					      .start_ticks = end->totals.start_ticks,
					      .counters = *counters,
					      .known = known_of(discovery, end) };

	if (!target_table_knows(discovery->target_table, end->pid))
		return false;

	if (!end->totals.threads && !renamed)
		ending.comm = end->totals.comm; /* else it is the name of its last thread */
	if (ending.start_ticks == 0) {
		struct pid_owner pid_owner = owner_of_pid(discovery, end->pid);

		ending.alive_ticks = pid_owner.exiting ? 0 : pid_owner.start_ticks;
	}

	return target_table_end(discovery->target_table, &ending);
}

/*
 * How stale a record is at most, of each thread: a scheduler tick (100 Hz), and what the end itself
 * takes. How many threads there were is not known.
 */
#define STALE_NS (12 * NS_PER_MS)
#define STALE_THREADS_NS (250 * NS_PER_MS)

/* The CPU time that the record of a process does not have, as far as it can be told; see above. */
static uint64_t missing_in_record(struct discovery *discovery, const struct procevent *end, uint64_t groups, mono_t now)
{
	const struct procevent_totals *totals = &end->totals;
	uint64_t cpu_ns = real_clock_cpu_of(real_clock_of(end->pid));
	struct waited_child child = {
		.pid = end->pid,
		.parent_pid = end->ppid,
		.cpu_ns = totals->cpu_ns,
		.missing_ns = totals->threads ? STALE_THREADS_NS : STALE_NS,
		.faults = totals->minor_faults,
		.gone = cpu_ns == 0,
		.groups = groups,
	};

	/* A zombie's clock is exact. It may already be that of another process, which is younger. */
	if (cpu_ns > totals->cpu_ns && cpu_ns - totals->cpu_ns < child.missing_ns)
		child.cpu_ns = cpu_ns;

	return child.cpu_ns - totals->cpu_ns + waited_times_child(discovery->subscription->waited_times, &child, now);
}

/*
 * Whether no scan may have met it. An older one was met, and did not match. But one whose fork was heard may have been
 * there when a scan began, and have ended before the scan came to it: taken for one that did not match it would make
 * its parent one of several groups.
 */
static bool may_be_unseen(const struct discovery *discovery, const struct procevent *end,
			  const struct recent_pid *recent_pid, mono_t now)
{
	return end->totals.elapsed_ns < (uint64_t)mono_diff(now, discovery->scan_began) ||
	       (recent_pid && recent_pid->forked && !recent_pid->scanned);
}

/*
 * What ended longer ago than this when it is counted is CPU_LATE. More than LATE_MAX_NS it is not: the clock is that
 * of another time namespace then.
 */
#define LATE_NS (100 * NS_PER_MS)
#define LATE_MAX_NS (60 * NS_PER_S)

static void put_lateness(const struct discovery *discovery, mono_t ended, struct sample *sample)
{
	int64_t late_ns = mono_diff(pulse_of(discovery), ended);

	if (ended.ns > 0 && late_ns > (int64_t)LATE_NS && late_ns < (int64_t)LATE_MAX_NS)
		sample_set(sample, SAMPLE_CPU_LATE, (uint64_t)late_ns);
}

static void on_exit_record(struct discovery *discovery, const struct procevent *end, mono_t now)
{
	const struct procevent_totals *totals = &end->totals;
	struct process_subscription *subscription = discovery->subscription;
	struct recent_pid *recent_pid = recent_pids_find(&subscription->recent_pids, end->pid);
	bool met = recent_pid && recent_pid->state == RECENT_MET;
	bool unseen = !met && may_be_unseen(discovery, end, recent_pid, now);
	uint64_t more_ns = 0;
	struct sample sample = { 0 };

	if (recent_pid && recent_pid->summed_up)
		return; /* see kernel_accounts_read */
	if (!totals->exact)
		more_ns = missing_in_record(discovery, end, groups_of_ended(discovery, end, recent_pid, unseen), now);

	sample_set(&sample, SAMPLE_CPU, totals->cpu_ns + more_ns);
	sample_set(&sample, SAMPLE_CPU_USER, totals->user_ns + more_ns);
	sample_set(&sample, SAMPLE_CPU_SYSTEM, totals->system_ns);
	sample_set(&sample, SAMPLE_MINOR_FAULTS, totals->minor_faults);
	sample_set(&sample, SAMPLE_MAJOR_FAULTS, totals->major_faults);
	put_lateness(discovery, totals->ended, &sample);
	met = end_targets(discovery, end, recent_pid && recent_pid->renamed, &sample) || met;
	if (recent_pid && recent_pid->state == RECENT_GONE)
		met = met || !recent_pid->missed; /* it was met before it ended */
	recent_pid = recent_pids_ended(&subscription->recent_pids, end->pid, now);
	recent_pid->summed_up = totals->exact;
	if (unseen && !met)
		credit_unseen_process(discovery, end, recent_pid, &sample);
}

/* Not every source has exit records: of a member the CPU time, if its clock can still be read. */
static void on_exit_event(struct discovery *discovery, int32_t pid, mono_t now)
{
	struct target_table_ending ending = { .pid = pid, .known = SOURCE_END_ESTIMATED };
	uint64_t cpu_ns;

	recent_pids_ended(&discovery->subscription->recent_pids, pid, now);
	if (discovery->state.exit_totals || !target_table_knows(discovery->target_table, pid))
		return;

	cpu_ns = real_clock_cpu_of(real_clock_of(pid));
	if (cpu_ns == 0)
		return;

	struct pid_owner pid_owner =
		owner_of_pid(discovery, pid); /* after the clock, so that it was the clock of this one */

	if (!pid_owner.exiting)
		return;
	ending.start_ticks = pid_owner.start_ticks;
	sample_set(&ending.counters, SAMPLE_CPU, cpu_ns);
	target_table_end(discovery->target_table, &ending);
}

/* ---- new cgroups ---- */

/*
 * By an inotify(7) watch on each directory of the hierarchies, found again by its number, or by its
 * path when it is removed, so that entries that select cgroups by path have new ones at once. A new
 * directory is watched first and listed then: what was made in it before the watch is in the list,
 * what is made later is an event, and what is both is harmless. Removed cgroups are not reported:
 * reading them fails.
 *
 * The watch of a cgroup directory that was removed stays: the kernel never sends IN_IGNORED for it,
 * and keeps the inode. So the event of its parent removes the watch; where that was lost, the next
 * walk removes those that it did not meet. A directory that was removed and made again may lose its
 * new watch to the old event; the event of its creation, which is later, gives it another.
 *
 * With cgroup v1 the same cgroup is made in one hierarchy after the other, and a target that is
 * opened too early lacks some files for good: hence the 5 ms that each new one waits.
 */

/* Watches; the kernel's own limit (fs.inotify.max_user_watches) is some 8,000 or more. */
#define CGROUP_WATCH_MAX 16384u

#define ROOTS_MAX (1 + CGROUP_CONTROLLERS)
#define WAITING_MAX 256u
#define DEPTH_MAX 32
#define MOMENT_NS (5 * NS_PER_MS)

/* Reads at a time: beyond them the queue overflows, which is a loss. */
#define CGROUP_READS_MAX 64
#define EVENTS_BYTES 16384u

struct directory {
	struct map_node wd_node, path_node;
	int wd;
	unsigned root;
	uint32_t walk; /* the last that met it, or during or after which it was made */
	char path[];   /* of the cgroup */
};

struct waiting {
	char *path;
	mono_t due;
};

struct cgroup_watch {
	const char *roots[ROOTS_MAX];
	unsigned root_count;
	int fd;
	bool wants_all, lost;
	bool walking;                        /* it was begun, and is not over */
	uint32_t walk;                       /* how many were begun */
	bool incomplete;                     /* there was a directory that could not be watched */
	size_t incomplete_count;             /* with so many watches */
	struct map wds, paths;               /* of directories */
	struct waiting waiting[WAITING_MAX]; /* in the order of due */
	size_t waiting_count;
	uint64_t events;
};

struct cgroup_watch_state {
	int fd;        /* for poll(2) */
	bool complete; /* all new cgroups are reported: no event was lost, every directory is watched */
	bool waiting;  /* the next new cgroup will be handed out at `due` */
	mono_t due;
	uint64_t events; /* read, ever */
};

static void add_root(struct cgroup_watch *watch, const char *root)
{
	for (unsigned i = 0; root != NULL && i < watch->root_count; i++)
		if (strcmp(watch->roots[i], root) == 0)
			return;
	if (root != NULL)
		watch->roots[watch->root_count++] = root;
}

static void cgroup_watch_free(struct cgroup_watch *watch)
{
	if (watch == NULL)
		return;
	MAP_FOR_EACH(node, &watch->wds)
		free(MAP_ENTRY(node, struct directory, wd_node));
	map_release(&watch->wds);
	map_release(&watch->paths);
	while (watch->waiting_count > 0)
		free(watch->waiting[--watch->waiting_count].path);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

/* mounts must outlive it. 0; -ENOENT: no hierarchies; -ENOMEM; -errno. */
static int cgroup_watch_new(const struct cgroup_mounts *mounts, struct cgroup_watch **ret)
{
	struct cgroup_watch *watch = calloc(1, sizeof(*watch));
	bool v2;
	int r = 0;

	if (watch == NULL)
		return -ENOMEM;
	watch->fd = -1;
	watch->wants_all = true;
	add_root(watch, cgroup_mounts_v2(mounts));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		add_root(watch, cgroup_mounts_controller(mounts, (enum cgroup_resource)i, &v2));
	if (watch->root_count == 0)
		r = -ENOENT;
	if (r == 0) {
		watch->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		r = watch->fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		cgroup_watch_free(watch);
		return r;
	}
	*ret = watch;
	return 0;
}

static uint64_t hash_wd(int wd)
{
	return map_hash(&wd, sizeof(wd));
}

static uint64_t hash_path(unsigned root, const char *path)
{
	return map_hash(path, strlen(path)) + root;
}

static struct directory *find_wd(const struct cgroup_watch *watch, int wd)
{
	for (struct map_node *node = map_first(&watch->wds, hash_wd(wd)); node; node = map_next(node)) {
		struct directory *directory = MAP_ENTRY(node, struct directory, wd_node);

		if (directory->wd == wd)
			return directory;
	}
	return NULL;
}

static struct directory *find_path(const struct cgroup_watch *watch, unsigned root, const char *path)
{
	for (struct map_node *node = map_first(&watch->paths, hash_path(root, path)); node; node = map_next(node)) {
		struct directory *directory = MAP_ENTRY(node, struct directory, path_node);

		if (directory->root == root && strcmp(directory->path, path) == 0)
			return directory;
	}
	return NULL;
}

/* Not its watch. Where there was no room for all there may be some now. */
static void forget_directory(struct cgroup_watch *watch, struct directory *directory)
{
	map_remove(&watch->wds, &directory->wd_node);
	map_remove(&watch->paths, &directory->path_node);
	watch->wants_all |= watch->incomplete && watch->wds.count < watch->incomplete_count / 2;
	free(directory);
}

static void remove_watch(struct cgroup_watch *watch, struct directory *directory)
{
	inotify_rm_watch(watch->fd, directory->wd);
	forget_directory(watch, directory);
}

static void note_incomplete(struct cgroup_watch *watch)
{
	watch->incomplete = true;
	watch->incomplete_count = watch->wds.count;
}

/* Watches the directory of path in a hierarchy. True: it is there and was not watched before. */
static bool add_directory(struct cgroup_watch *watch, unsigned root, const char *path)
{
	AUTO_CLOSE int fd = cgroup_open(watch->roots[root], path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
	size_t len = strlen(path) + 1;
	struct directory *directory;
	char link[32];
	int wd;

	if (watch->wds.count == CGROUP_WATCH_MAX)
		note_incomplete(watch);
	if (watch->wds.count == CGROUP_WATCH_MAX || fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(watch->fd, link, IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR);
	if (wd < 0) {
		if (errno == ENOSPC || errno == ENOMEM)
			note_incomplete(watch);
		return false;
	}
	directory = find_wd(watch, wd);
	if (directory != NULL) {
		directory->walk = watch->walk;
		return false;
	}
	directory = map_reserve(&watch->wds, watch->wds.count + 1) == 0 &&
				    map_reserve(&watch->paths, watch->wds.count + 1) == 0
			    ? malloc(sizeof(*directory) + len)
			    : NULL;
	if (directory == NULL) {
		note_incomplete(watch);
		inotify_rm_watch(watch->fd, wd);
		return false;
	}
	*directory = (struct directory){ .wd = wd, .root = root, .walk = watch->walk };
	memcpy(directory->path, path, len);
	map_insert(&watch->wds, &directory->wd_node, hash_wd(wd));
	map_insert(&watch->paths, &directory->path_node, hash_path(root, path));
	return true;
}

static void walk_begin(struct cgroup_watch *watch)
{
	if (!watch->wants_all && !watch->walking)
		return;
	watch->wants_all = watch->incomplete = false;
	watch->walking = true;
	watch->walk++;
}

static void walk_end(struct cgroup_watch *watch)
{
	if (!watch->walking)
		return;
	watch->walking = false;
	MAP_FOR_EACH(node, &watch->wds) {
		struct directory *directory = MAP_ENTRY(node, struct directory, wd_node);

		if (directory->walk != watch->walk)
			remove_watch(watch, directory);
	}
}

struct watch_walk {
	struct cgroup_watch *watch;
	int (*visit)(void *ctx, const char *path);
	void *ctx;
};

static int walk_visit(void *ctx, const char *path)
{
	const struct watch_walk *walk = ctx;

	for (unsigned root = 0; walk->watch->walking && root < walk->watch->root_count; root++)
		add_directory(walk->watch, root, path);

	return walk->visit(walk->ctx, path);
}

/*
 * Visits every cgroup until visit returns non-zero, which is returned. With a watch (it may be
 * NULL) new cgroups in those that were met are reported from now on, and others are no longer
 * watched; a walk that was given up is begun again. While the watch is complete it stays as it is.
 */
static int cgroup_watch_walk(struct cgroup_watch *watch, const struct cgroup_mounts *mounts,
			     int (*visit)(void *ctx, const char *path), void *ctx)
{
	struct watch_walk walk = { watch, visit, ctx };

	if (!watch)
		return cgroup_walk(mounts, visit, ctx);

	walk_begin(watch);

	int r = cgroup_walk(mounts, walk_visit, &walk);

	if (r == 0)
		walk_end(watch);

	return r;
}

static void enqueue(struct cgroup_watch *watch, const char *path, mono_t now)
{
	char *copy;

	for (size_t i = 0; i < watch->waiting_count; i++)
		if (strcmp(watch->waiting[i].path, path) == 0)
			return;
	copy = watch->waiting_count < WAITING_MAX ? strdup(path) : NULL;
	if (copy == NULL)
		watch->lost = true;
	else
		watch->waiting[watch->waiting_count++] = (struct waiting){ copy, mono_add(now, MOMENT_NS) };
}

static void on_created(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name, mono_t now,
		       int depth);

/* Directories that were made in it before it was watched. */
static void list_inside(struct cgroup_watch *watch, unsigned root, const char *path, mono_t now, int depth)
{
	int fd = cgroup_open(watch->roots[root], path, O_RDONLY | O_DIRECTORY);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *item;

	if (dir == NULL) {
		scope_close(&fd);
		return;
	}
	while ((item = readdir(dir)) != NULL)
		if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
			on_created(watch, root, path, item->d_name, now, depth);
	closedir(dir);
}

/* The path of name in parent; false: it is too long. */
static bool path_in(const char *parent, const char *name, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < PATH_MAX;
}

static void on_created(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name, mono_t now,
		       int depth)
{
	char path[PATH_MAX];

	if (depth == DEPTH_MAX || !path_in(parent, name, path)) {
		watch->lost = true;
		return;
	}
	enqueue(watch, path, now);
	if (add_directory(watch, root, path))
		list_inside(watch, root, path, now, depth + 1);
}

static void on_removed(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name)
{
	char path[PATH_MAX];
	struct directory *directory = path_in(parent, name, path) ? find_path(watch, root, path) : NULL;

	if (directory != NULL)
		remove_watch(watch, directory);
}

static void on_event(struct cgroup_watch *watch, const struct inotify_event *event, mono_t now)
{
	struct directory *directory = find_wd(watch, event->wd);

	watch->lost |= (event->mask & IN_Q_OVERFLOW) != 0;
	if (directory == NULL)
		return;
	if (event->mask & IN_IGNORED)
		forget_directory(watch, directory);
	else if (!(event->mask & IN_ISDIR) || event->len == 0)
		return;
	else if (event->mask & (IN_DELETE | IN_MOVED_FROM))
		on_removed(watch, directory->root, directory->path, event->name);
	else
		on_created(watch, directory->root, directory->path, event->name, now, 0);
}

static void read_inotify(struct cgroup_watch *watch, mono_t now)
{
	_Alignas(struct inotify_event) char buf[EVENTS_BYTES];

	for (int reads = 0; reads < CGROUP_READS_MAX; reads++) {
		ssize_t len = read(watch->fd, buf, sizeof(buf));

		if (len <= 0)
			return;
		for (size_t at = 0; at < (size_t)len;) {
			const struct inotify_event *event = (const void *)(buf + at);

			at += sizeof(*event) + event->len;
			watch->events++;
			on_event(watch, event, now);
		}
	}
}

/*
 * Reads events; never blocks. A new cgroup is handed to visit after 5 ms, in which its directories
 * are made in all hierarchies. False: an event was lost, and only a walk finds what it named.
 */
static bool cgroup_watch_read(struct cgroup_watch *watch, mono_t now, void (*visit)(void *ctx, const char *path),
			      void *ctx)
{
	size_t done = 0;
	bool lost;

	read_inotify(watch, now);
	for (; done < watch->waiting_count && mono_diff(now, watch->waiting[done].due) >= 0; done++) {
		visit(ctx, watch->waiting[done].path);
		free(watch->waiting[done].path);
	}
	watch->waiting_count -= done;
	memmove(watch->waiting, watch->waiting + done, watch->waiting_count * sizeof(watch->waiting[0]));
	lost = watch->lost;
	watch->lost = false;
	watch->wants_all |= lost;
	return !lost;
}

/* As of now. */
static struct cgroup_watch_state cgroup_watch_state(const struct cgroup_watch *watch)
{
	return (struct cgroup_watch_state){
		.fd = watch->fd,
		.complete = !watch->wants_all && !watch->walking && !watch->incomplete,
		.waiting = watch->waiting_count > 0,
		.due = watch->waiting[0].due,
		.events = watch->events,
	};
}

/* ---- subscribing to events ---- */

static void subscription_free(struct process_subscription *subscription)
{
	process_events_close(subscription->listener);
	waited_times_free(subscription->waited_times);
	map_release(&subscription->recent_pids.pids);
	free(subscription);
}

static void add_event_counts(const struct discovery *discovery, struct discovery_state *ret)
{
	const struct process_subscription *subscription = discovery->subscription;

	if (!subscription)
		return;
	ret->missed = subscription->missed + subscription->recent_pids.missed;
	ret->dropped = subscription->dropped + subscription->recent_pids.dropped;
}

static void unsubscribe_processes(struct discovery *discovery)
{
	if (!discovery->subscription)
		return;

	add_event_counts(discovery, &discovery->state);
	subscription_free(discovery->subscription);
	discovery->subscription = NULL;
	atomic_store(&discovery->complete_ns, 0);
	discovery->state.source = PROCESS_EVENTS_NONE;
	discovery->state.exit_totals = discovery->state.held_off = false;
}

static void unsubscribe(struct discovery *discovery)
{
	unsubscribe_processes(discovery);
	cgroup_watch_free(discovery->cgroups);
	discovery->cgroups = NULL;
}

/* *ret_info is set in any case. */
static int subscription_new(const struct discovery *discovery, struct process_subscription **ret,
			    struct process_events_info *ret_info)
{
	struct process_subscription *subscription = calloc(1, sizeof(*subscription));
	int r;

	*ret_info = (struct process_events_info){ .source = PROCESS_EVENTS_NONE };
	if (!subscription)
		return -ENOMEM;

	process_facts_init(&subscription->process_facts, discovery);
	subscription->missed = discovery->state.missed;
	subscription->dropped = discovery->state.dropped;
	r = map_reserve(&subscription->recent_pids.pids, RECENT_PIDS_MAX);
	if (r == 0)
		r = waited_times_new(discovery->options.target_table.procfd, &subscription->waited_times);

	struct process_events_options listen = discovery->options.listen;

	listen.accounts = discovery->options.target_table.accounts;
	if (r == 0)
		r = process_events_open(&listen, &subscription->listener, ret_info);
	if (r < 0) {
		subscription_free(subscription);
		return r;
	}
	subscription->listener_fd = ret_info->fd;
	*ret = subscription;

	return 0;
}

/* Wanted while an entry selects cgroups by path. What cannot be watched is found by scans. */
static void subscribe_cgroups(struct discovery *discovery, bool wanted)
{
	wanted = wanted && discovery->matcher->by_path;
	if (wanted == discovery->cgroups_wanted)
		return;

	discovery->cgroups_wanted = wanted;
	cgroup_watch_free(discovery->cgroups);
	discovery->cgroups = NULL;
	if (wanted && cgroup_watch_new(discovery->options.target_table.mounts, &discovery->cgroups) < 0)
		discovery->cgroups = NULL;
}

/* The kernel source was turned off while it was listened to, or on again: then there is a better source. */
static bool is_source_outdated(const struct discovery *discovery)
{
	const struct kernel_accounts *accounts = discovery->options.target_table.accounts;

	return accounts && discovery->events_wanted && discovery->options.listen.only == PROCESS_EVENTS_NONE &&
	       atomic_load(&kernel_accounts_shared(accounts)->on) != (discovery->state.source == PROCESS_EVENTS_KERNEL);
}

/* Subscribes or unsubscribes, as configured. What was refused is not tried again. */
static void subscribe(struct discovery *discovery)
{
	bool wanted = discovery->config->sampling.discovery == CONFIG_DISCOVERY_AUTO;
	struct discovery_state *state = &discovery->state;
	struct process_events_info info;
	int r;

	subscribe_cgroups(discovery, wanted);
	if (discovery->subscribed_once && wanted == discovery->events_wanted && !is_source_outdated(discovery))
		return;

	unsubscribe_processes(discovery);
	discovery->subscribed_once = true;
	discovery->events_wanted = wanted;
	state->listened = true;
	state->source_why[0] = '\0';
	if (!wanted) {
		snprintf(state->source_why, sizeof(state->source_why), "sampling.discovery is \"rescan\"");
		return;
	}
	if (!discovery->options.target_table.own_proc) {
		snprintf(state->source_why, sizeof(state->source_why), "proc_root is not this machine's own /proc");
		return;
	}
	r = subscription_new(discovery, &discovery->subscription, &info);
	snprintf(state->source_why, sizeof(state->source_why), "%s",
		 r == -ENOMEM && !info.why[0] ? strerror(ENOMEM) : info.why);
	if (r < 0)
		return;

	state->source = info.source;
	state->exit_totals = info.exit_totals;
	discovery->subscription->token_bucket = token_bucket_of(DISCOVERY_SHARE, update_pulse(discovery));
	discovery->subscription->evidence = token_bucket_of(EVIDENCE_SHARE, update_pulse(discovery));
}

/* ---- the CPU share of events ---- */

/* A query for evidence waits, and what that may take is not used up. */
static bool is_wanted(const struct discovery *discovery, mono_t now)
{
	return atomic_load(&discovery->wanted_ns) > atomic_load(&discovery->complete_ns) && discovery->subscription &&
	       !token_bucket_is_spent(&discovery->subscription->evidence, now);
}

static void charge_cpu(struct discovery *discovery, mono_t now)
{
	struct process_subscription *subscription = discovery->subscription;
	uint64_t cpu_ns = real_clock_thread_cpu(), used_ns = cpu_ns - subscription->charged_ns;

	token_bucket_take(&subscription->token_bucket, used_ns, now);
	if (is_wanted(discovery, now))
		token_bucket_take(&subscription->evidence, used_ns, now);
	subscription->charged_ns = cpu_ns;
}

/* Whether no process may be looked at, in the middle of reading events. */
static bool is_share_spent(struct discovery *discovery, mono_t now)
{
	charge_cpu(discovery, now);

	return !is_wanted(discovery, now) && token_bucket_is_spent(&discovery->subscription->token_bucket, now);
}

/* Whether processes wait for CPU share, and for too long. */
static void check_backlog(struct discovery *discovery, mono_t now)
{
	struct process_subscription *subscription = discovery->subscription;
	bool spent = is_share_spent(discovery, now);
	mono_t next;

	if (!discovery->state.held_off) {
		discovery->state.held_off = spent;
		subscription->backlog_since = now;
		return;
	}
	if (mono_diff(now, subscription->backlog_since) < (int64_t)BEHIND_MAX_NS) {
		discovery->state.held_off = spent || (recent_pids_next(&subscription->recent_pids, DELAY_NS, &next) &&
						      mono_diff(now, next) >= 0);
		return;
	}

	discovery->state.storms++;
	discovery->state.late += recent_pids_give_up(&subscription->recent_pids);
	discovery->again = true;
	discovery->state.held_off = spent;
	subscription->backlog_since = now;
}

/* ---- reading events ---- */

/* It is looked at again soon, but not without end: then by a scan. */
static void look_again(struct discovery *discovery, const struct recent_pid *recent_pid, mono_t now)
{
	unsigned retries = recent_pid->retries + 1;
	struct recent_pid *waiting;

	if (retries > RETRIES_MAX) {
		discovery->again = true;
		return;
	}
	waiting = recent_pids_change(&discovery->subscription->recent_pids, recent_pid->pid, CHANGE_EXECUTED, now);
	if (waiting)
		waiting->retries = retries;
}

static void look_at_process(struct discovery *discovery, struct recent_pid *recent_pid, mono_t now)
{
	struct process_facts *process_facts = &discovery->subscription->process_facts;
	struct process_match match = {
		.changed = true,
		.whole = recent_pid->forked &&
			 mono_diff(now, recent_pid->born) < (int64_t)(recent_pid->met ? WHOLE_NS : WHOLE_UNMET_NS),
	};
	int r;

	process_facts->now = now;
	r = matcher_look(discovery->matcher, process_facts, recent_pid->pid);
	if (r == 0)
		r = match_with_entries(discovery, process_facts, &match);
	if (r == -ECANCELED) {
		discovery->again = true; /* it was not looked at: a scan will */
		return;
	}
	if (r == -ESRCH || r == -ENOENT || match.ended) {
		recent_pids_ended(&discovery->subscription->recent_pids, recent_pid->pid, now);
		return;
	}

	recent_pid->state = RECENT_MET;
	recent_pid->renamed &= r < 0;
	discovery->again |= process_facts->unanswered && !process_facts->executing; /* another look may tell */
	discovery->state.looks++;
	discovery->state.late += discovery->state.held_off;
	discovery->again |= r < 0 && process_facts_starved(r);
	if (process_facts->executing)
		look_again(discovery, recent_pid, now);
}

static void on_process_change(struct discovery *discovery, int32_t pid, enum process_change what, mono_t now)
{
	struct process_subscription *subscription = discovery->subscription;
	struct recent_pid *recent_pid = recent_pids_change(&subscription->recent_pids, pid, what, now);

	if (recent_pid && what == CHANGE_EXECUTED && discovery->state.source != PROCESS_EVENTS_PERF &&
	    !is_share_spent(discovery, now))
		look_at_process(discovery, recent_pid, now);
}

static void on_process_event(struct discovery *discovery, const struct procevent *event, mono_t now)
{
	discovery->state.events += event->kind != PROCEVENT_BURST;
	matcher_event(discovery->matcher, event);
	switch (event->kind) {
	case PROCEVENT_BURST:
		samplers_rouse(discovery->options.target_table.samplers);
		return;
	case PROCEVENT_FORK:
		on_process_change(discovery, event->pid, CHANGE_FORKED, now);
		return;
	case PROCEVENT_EXEC:
		on_process_change(discovery, event->pid, CHANGE_EXECUTED, now);
		return;
	case PROCEVENT_COMM:
	case PROCEVENT_MOVE: /* it is looked at anew, as after a change of its name */
		on_process_change(discovery, event->pid, CHANGE_RENAMED, now);
		return;
	case PROCEVENT_EXIT:
		on_exit_event(discovery, event->pid, now);
		return;
	case PROCEVENT_TOTALS:
		on_exit_record(discovery, event, now);
		return;
	}
}

/* Between two looks other threads get the lock. False: the thread is to stop. */
static bool yield_lock(struct discovery *discovery)
{
	update_pulse(discovery);
	fair_mutex_yield(&discovery->lock);
	take_reload(discovery);

	return !discovery->stop;
}

/* Whether all that had come was read. */
static bool read_process_batches(struct discovery *discovery, mono_t now)
{
	struct process_subscription *subscription = discovery->subscription;
	bool lost = false, more = false;

	subscription->more = false;
	for (int reads = 0; reads < READS_MAX; reads++) {
		size_t count = process_events_read(subscription->listener, subscription->events,
						   ARRAY_LEN(subscription->events), &lost, &more);

		discovery->state.overruns += lost;
		discovery->again |= lost;
		for (size_t i = 0; i < count; i++)
			on_process_event(discovery, &subscription->events[i], now);
		subscription->more |= count > 0 || more;
		if (!more)
			return true;
		if (!yield_lock(discovery))
			return false;
	}

	return false;
}

static void look_at_due_processes(struct discovery *discovery, mono_t now)
{
	struct recent_pid *recent_pid;

	while (!is_share_spent(discovery, now) &&
	       (recent_pid = recent_pids_due(&discovery->subscription->recent_pids, DELAY_NS, now))) {
		look_at_process(discovery, recent_pid, now);
		if (!yield_lock(discovery))
			return;
	}
}

/* For waited_times_settle. */
static void credit_rest(void *ctx, uint64_t groups, uint64_t cpu_ns)
{
	struct discovery *discovery = ctx;
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	sample_set(&sample, SAMPLE_CPU_USER, cpu_ns);
	for (size_t i = 0; i < discovery->config->target_count && i < 64; i++)
		if (groups >> i & 1)
			target_table_credit(discovery->target_table, i, NULL, &sample, SOURCE_END_REST);
}

static mono_t processes_readable_at(const struct discovery *discovery, mono_t now)
{
	const struct process_subscription *subscription = discovery->subscription;

	return token_bucket_is_spent(&subscription->token_bucket, now)
		       ? mono_add(subscription->events_read, HELD_OFF_GAP_NS)
		       : subscription->rate_limit.until;
}

/* All events from before `now` were read: what they named has been looked at, waits for it, or is left to a scan. */
static void note_complete(struct discovery *discovery, mono_t now)
{
	struct recent_pids *recent_pids = &discovery->subscription->recent_pids;
	const struct recent_pid *waiting = recent_pids_first(recent_pids);

	recent_pids->all_read = now;
	if (!discovery->again && !discovery->mending)
		atomic_store(&discovery->complete_ns, waiting ? waiting->after.ns : now.ns);
}

/* Unless reading is suspended, or this is called in the middle of it. */
static void read_process_events(struct discovery *discovery, mono_t now)
{
	struct process_subscription *subscription = discovery->subscription;
	struct target_table_counts counts;
	bool all;

	if (!subscription || subscription->in_read || mono_diff(now, processes_readable_at(discovery, now)) < 0)
		return;

	subscription->in_read = true;
	subscription->events_read = now;
	subscription->charged_ns = real_clock_thread_cpu();
	target_table_fetch(discovery->target_table);
	waited_times_look(subscription->waited_times, now);
	all = read_process_batches(discovery, now);
	target_table_settle(discovery->target_table);
	target_table_counts(discovery->target_table, &counts);
	if (all)
		waited_times_settle(subscription->waited_times, counts.ended == 0, now, credit_rest, discovery);
	look_at_due_processes(discovery, now);
	discovery->again |= matcher_take_belated(discovery->matcher, false);
	if (subscription->more)
		rate_limit_event(&subscription->rate_limit, GAP_NS, now);
	check_backlog(discovery, now);
	if (all)
		note_complete(discovery, now);
	subscription->in_read = false;
}

/* A cgroup takes most of a millisecond: events of processes are read in between. */
static void visit_new_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->state.cgroups_heard++;
	discovery->again |= match_cgroup_path(discovery, path) < 0;
	if (yield_lock(discovery))
		read_process_events(discovery, pulse_of(discovery));
}

/* Processes met before it had its name: where they count and not the cgroup, a scan finds them. */
static void visit_named_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->again |= (discovery->matcher->needs & MATCH_CONTAINER) != 0;
	discovery->again |= match_cgroup_path(discovery, path) < 0;
}

/* Another name, or labels. Targets that are no longer selected leave with the next scan. */
static void visit_other_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	visit_named_container(ctx, path);
	discovery->again |= discovery->matcher->by_container;
	discovery->again |= target_table_rename_container(discovery->target_table, path) < 0;
}

static void read_cgroup_events(struct discovery *discovery, mono_t now)
{
	struct cgroup_watch *cgroups = discovery->cgroups;

	if (!cgroups || !rate_limit_allows(&discovery->cgroups_limit, now))
		return;

	uint64_t before = cgroup_watch_state(cgroups).events;
	bool whole = cgroup_watch_read(cgroups, now, visit_new_cgroup, discovery);

	if (cgroup_watch_state(cgroups).events != before)
		rate_limit_event(&discovery->cgroups_limit, GAP_NS, now);
	discovery->state.overruns += !whole;
	discovery->again |= !whole;
}

static void read_events(struct discovery *discovery, mono_t now)
{
	discovery->events_read = now;
	read_process_events(discovery, now);
	read_cgroup_events(discovery, now);
	containers_update(discovery->options.target_table.containers, now, visit_named_container, visit_other_container,
			  discovery);
	read_units(discovery, now);
}

/* In the middle of a scan: unless events were read just now. */
static void read_events_in_scan(struct discovery *discovery, mono_t now)
{
	if (mono_diff(now, discovery->events_read) >= (int64_t)GAP_NS)
		read_events(discovery, now);
}

/* ---- waiting for events ---- */

static mono_t later_of(mono_t one, mono_t other)
{
	return mono_diff(one, other) > 0 ? one : other;
}

static uint64_t give_back_pause(int64_t passed_ns)
{
	uint64_t part = (uint64_t)passed_ns / SETTLE_PART;

	part = part > SETTLE_NS ? part : SETTLE_NS;

	return part < SETTLE_SELDOM_NS ? part : SETTLE_SELDOM_NS;
}

/* True: the descriptor is to be polled, which is not before it may be read. */
static bool await_process_events(const struct discovery *discovery, mono_t now, mono_t *until)
{
	struct process_subscription *subscription = discovery->subscription;
	mono_t next, may = processes_readable_at(discovery, now);
	bool spent = token_bucket_is_spent(&subscription->token_bucket, now);
	struct target_table_counts counts;

	if (!spent && recent_pids_next(&subscription->recent_pids, DELAY_NS, &next))
		lower_to(until, later_of(next, may));
	target_table_counts(discovery->target_table, &counts);
	if (counts.ended > 0 && mono_diff(now, subscription->rate_limit.last) < (int64_t)SETTLE_MAX_NS)
		lower_to(until, mono_add(now, give_back_pause(mono_diff(now, subscription->rate_limit.last))));
	if (discovery->state.held_off)
		lower_to(until, may);
	if (waited_times_due(subscription->waited_times, &next))
		lower_to(until, later_of(next, may));
	if (mono_diff(may, now) <= 0)
		return true;
	lower_to(until, may);

	return false;
}

static bool await_cgroup_events(const struct discovery *discovery, mono_t now, mono_t *until)
{
	struct cgroup_watch_state state = cgroup_watch_state(discovery->cgroups);
	mono_t may = discovery->cgroups_limit.until;

	if (state.waiting)
		lower_to(until, later_of(state.due, may));
	if (rate_limit_allows(&discovery->cgroups_limit, now))
		return true;
	lower_to(until, may);

	return false;
}

/* What is to be polled, until when: fds has room for POLL_MAX, *until is lowered. Their number. */
static size_t await_events(const struct discovery *discovery, mono_t now, struct pollfd *fds, mono_t *until)
{
	size_t count = 0;
	mono_t next;

	fds[count++] = (struct pollfd){ .fd = discovery->wake_fd, .events = POLLIN };
	if (discovery->cgroups && await_cgroup_events(discovery, now, until))
		fds[count++] = (struct pollfd){ .fd = cgroup_watch_state(discovery->cgroups).fd, .events = POLLIN };
	if (containers_next(discovery->options.target_table.containers, &next))
		lower_to(until, next);
	count += await_units(discovery, now, &fds[count], until);
	if (discovery->subscription && await_process_events(discovery, now, until))
		fds[count++] = (struct pollfd){ .fd = discovery->subscription->listener_fd, .events = POLLIN };

	return count;
}

/* ---- a scan ---- */

/*
 * Under a CPU quota a scan that finds many would take all of it, and the kernel would stop the samplers
 * together with it. It gets this part; children that read for it take half as much again.
 */
#define QUOTA_PART 3
#define QUOTA_SLEEP_MAX_NS (50 * NS_PER_MS)

static void leave_quota(struct discovery *discovery, mono_t now)
{
	struct samplers_state samplers = samplers_state(discovery->options.target_table.samplers);
	struct timespec wait = { 0 };

	if (samplers.quota_ns == 0 || samplers.quota_ns >= NS_PER_S)
		return;

	uint64_t cpu_ns = real_clock_thread_cpu();

	if (samplers.pulse.ns == 0) { /* they have not begun */
		discovery->scan_paced = now;
		discovery->scan_paced_cpu_ns = cpu_ns;
	}

	double due =
		(double)(cpu_ns - discovery->scan_paced_cpu_ns) * QUOTA_PART * NS_PER_S / (double)samplers.quota_ns;
	int64_t left = (int64_t)due - mono_diff(now, discovery->scan_paced);

	if (left <= 0)
		return;

	wait.tv_nsec = (long)(left < (int64_t)QUOTA_SLEEP_MAX_NS ? left : (int64_t)QUOTA_SLEEP_MAX_NS);
	fair_mutex_leave(&discovery->lock);
	nanosleep(&wait, NULL);
	fair_mutex_enter(&discovery->lock);
}

/* Everything may be different afterwards. 0; -ECANCELED: the scan is to be given up. */
static int yield_in_scan(struct discovery *discovery)
{
	mono_t now = update_pulse(discovery);

	read_events_in_scan(discovery, now);
	fair_mutex_yield(&discovery->lock);
	leave_quota(discovery, now);
	take_reload(discovery);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

/* Whether a process, which has run, is in a cgroup that is a target by its path. */
static bool in_watched_cgroup(struct discovery *discovery, struct process_facts *process_facts)
{
	const struct matcher *matcher = discovery->matcher;
	const struct match_facts *facts = &process_facts->facts;
	unsigned needs = matcher->by_container ? MATCH_CGROUP | MATCH_CONTAINER : MATCH_CGROUP;

	if (!matcher->by_path || process_facts_ask(process_facts, needs) < 0 || !facts->cgroup)
		return false;
	for (size_t i = 0; i < matcher->count; i++)
		if (matcher_cgroup(matcher, i, facts->cgroup, facts->container))
			return true;

	return false;
}

/* A sleeping process may be moved to another cgroup; its ancestors are known only by looking. */
static bool may_skip(const struct discovery *discovery)
{
	return discovery->options.target_table.own_proc && !(discovery->matcher->needs & MATCH_CGROUP) &&
	       !discovery->matcher->by_container && !discovery->matcher->process_tree;
}

/* True: it has not run since it was looked at, and nothing is left to be done about it. */
static bool skip_process(struct discovery *discovery, int32_t pid, uint64_t cpu_ns)
{
	const struct process_record *record = process_cache_meet(&discovery->process_cache, pid, cpu_ns);

	if (!record || baseline_owes(discovery->baseline, pid) ||
	    target_table_watches(discovery->target_table, pid, record->start_ticks) != record->targets)
		return false;

	struct procfs_stat stat = { .pid = pid, .start_ticks = record->start_ticks, .user_ticks = record->cpu_ticks };

	discovery->unchanged++;
	target_table_still(discovery->target_table, pid, record->start_ticks, discovery->scan);
	baseline_met(discovery->baseline, &stat);
	baseline_update(discovery->baseline, &stat, pulse_of(discovery), false, false);
	thread_selection_met(discovery->thread_selection, &stat, false);

	return true;
}

/* It was looked at: unless something is left to be done, the next scan may skip it. */
static void cache_process(struct discovery *discovery, const struct procfs_stat *stat, uint64_t cpu_ns, size_t targets)
{
	struct process_record record = {
		.pid = stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = stat->user_ticks + stat->system_ticks,
		.cpu_ns = cpu_ns,
		.targets = targets,
	};

	if (cpu_ns > 0 && !discovery->rescan &&
	    target_table_watches(discovery->target_table, stat->pid, stat->start_ticks) == targets)
		process_cache_enter(&discovery->process_cache, &record);
}

/* One that cannot be read is passed over; being out of descriptors or memory ends the scan. */
static int visit_process(struct discovery *discovery, int32_t pid, struct process_facts *process_facts)
{
	struct process_match match = { 0 };
	uint64_t cpu_ns = may_skip(discovery) ? real_clock_cpu_of(real_clock_of(pid)) : 0;
	int r;

	discovery->processes++;
	if (skip_process(discovery, pid, cpu_ns))
		return 0;

	process_facts->now = pulse_of(discovery);
	r = matcher_look(discovery->matcher, process_facts, pid);
	if (r < 0) {
		discovery->unreadable += !process_facts_starved(r) && r != -ESRCH;
		return process_facts_starved(r) ? r : 0;
	}

	r = match_with_entries(discovery, process_facts, &match);
	if (r < 0)
		return r;
	if (!match.ended && discovery->subscription) /* else its exit record is all that says of whom it was */
		recent_pids_scanned(&discovery->subscription->recent_pids, pid);

	bool ran = baseline_met(discovery->baseline, &process_facts->stat);
	bool watched = match.watched || (ran && in_watched_cgroup(discovery, process_facts));

	thread_selection_met(discovery->thread_selection, &process_facts->stat, watched);
	baseline_update(discovery->baseline, &process_facts->stat, pulse_of(discovery), watched, ran);
	if (!process_facts->unanswered)
		cache_process(discovery, &process_facts->stat, cpu_ns, match.targets);

	return 0;
}

/* The context of the walk over /proc. */
struct proc_walk {
	struct discovery *discovery;
	struct process_facts process_facts;
};

static int visit_proc_entry(void *ctx, const char *name)
{
	struct proc_walk *proc_walk = ctx;
	int32_t pid = proc_read_pid_of(name);
	int r = yield_in_scan(proc_walk->discovery);

	if (r < 0)
		return r;

	return pid ? visit_process(proc_walk->discovery, pid, &proc_walk->process_facts) : 0;
}

static int visit_processes(struct discovery *discovery)
{
	AUTO_FREE struct proc_walk *proc_walk = malloc(sizeof *proc_walk);

	if (!proc_walk)
		return -ENOMEM;

	proc_walk->discovery = discovery;
	process_facts_init(&proc_walk->process_facts, discovery);

	return directory_list_each(discovery->options.target_table.procfd, visit_proc_entry, proc_walk);
}

static int visit_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;
	int r = yield_in_scan(discovery);

	if (r < 0)
		return r;

	return match_cgroup_path(discovery, path);
}

/* Of what ran, as the last refresh of limits found; a scan does it for the rest. */
static void read_baselines(struct discovery *discovery)
{
	for (size_t i = 0; i < discovery->ran_count && !discovery->rescan && !discovery->stop; i++) {
		struct procfs_stat stat = { .pid = discovery->ran[i].pid,
					    .start_ticks = discovery->ran[i].start_ticks };

		baseline_update(discovery->baseline, &stat, update_pulse(discovery), true, true);
	}
	discovery->ran_count = 0;
}

static void refresh_limits(struct discovery *discovery, mono_t now)
{
	int64_t age = mono_diff(now, discovery->limits_read);
	uint64_t least = discovery->limits_cpu_ns * LIMITS_SHARE,
		 interval = discovery->config->sampling.limits_interval_ns;
	unsigned part = 0;

	if (!discovery->limits_due && age < (int64_t)(interval > least ? interval : least))
		return;

	uint64_t cpu = real_clock_thread_cpu();

	discovery->limits_due = false;
	discovery->limits_read = now;
	while (!discovery->limits_due && target_table_refresh_some_limits(discovery->target_table, now, &part))
		discovery->limits_due = yield_in_scan(discovery) < 0; /* given up: once more, then */
	read_baselines(discovery);
	discovery->limits_cpu_ns = real_clock_thread_cpu() - cpu;
}

/*
 * What the sampler gave back: the ends of many take their time. Of those that ended the exit records
 * are there, and have to be known first.
 */
static void take_given_back(struct discovery *discovery)
{
	struct process_subscription *subscription = discovery->subscription;

	while (target_table_fetch(discovery->target_table)) {
		if (subscription && !subscription->in_read) {
			subscription->in_read = true;
			subscription->charged_ns = real_clock_thread_cpu();
			read_process_batches(discovery, update_pulse(discovery));
			subscription->in_read = false;
		}
		target_table_settle(discovery->target_table);
		read_events_in_scan(discovery, update_pulse(discovery));
	}
}

/* As discovery_scan, or -ECANCELED. */
static int scan_locked(struct discovery *discovery)
{
	mono_t began = update_pulse(discovery);
	bool wanted = is_wanted(discovery, began);
	uint64_t cpu = real_clock_thread_cpu();
	struct unlocked_section section = section_of(discovery);
	struct target_table_counts counts;
	const uint32_t *pids;
	size_t pid_count;
	int r;

	discovery->scan_paced = began;
	discovery->scan_paced_cpu_ns = cpu;
	read_events(discovery, began);
	target_table_counts(discovery->target_table, &counts);
	discovery->mending |= discovery->again;
	discovery->rescan = discovery->again = false;
	discovery->scan++;
	discovery->processes = discovery->unreadable = discovery->unchanged = 0;
	take_given_back(discovery);
	target_table_collect(discovery->target_table);
	r = matcher_scan_begin(discovery->matcher, &section);
	if (r < 0)
		return r;
	if (r > 0)
		process_cache_sweep(&discovery->process_cache, true);
	baseline_scan_begin(discovery->baseline, began);
	thread_selection_begin(discovery->thread_selection);
	discovery->process_cache.scan++;
	r = visit_processes(discovery);
	if (r == 0 && discovery->matcher->by_path)
		r = cgroup_watch_walk(discovery->cgroups, discovery->options.target_table.mounts, visit_cgroup,
				      discovery);
	r = r == -E2BIG ? 0 : r;
	if (r < 0)
		process_cache_sweep(&discovery->process_cache, true); /* what it met it has not told everybody */
	if (r == -ECANCELED)
		return r;
	discovery->state.error = r;
	discovery->scan_cpu_ns =
		real_clock_thread_cpu() - cpu; /* also of one that came to nothing: the next is as far from it */
	if (r < 0)
		return r == -EMFILE || r == -ENFILE ? 0 : r;

	discovery->again |= matcher_take_belated(discovery->matcher, true);
	baseline_scan_end(discovery->baseline);
	process_cache_sweep(&discovery->process_cache, false);
	if (thread_selection_end(discovery->thread_selection, &pids, &pid_count))
		stack_recorder_follow(discovery->options.stacks, pids, pid_count); /* else the set stays as it was */
	target_table_sweep(discovery->target_table, discovery->scan);
	containers_forget(discovery->options.target_table.containers, began,
			  discovery->config->sampling.rescan_interval_ns);
	discovery->state.processes = discovery->processes;
	discovery->state.unreadable = discovery->unreadable;
	discovery->state.unchanged = discovery->unchanged;
	discovery->state.scans++;
	discovery->scan_began = began;
	discovery->mending = false;
	if (discovery->subscription && discovery->complete_ns < began.ns)
		atomic_store(&discovery->complete_ns, began.ns);
	discovery->found_before = counts.found;
	discovery->state.last_scan_ns = (uint64_t)mono_diff(update_pulse(discovery), began);
	discovery->scan_cpu_ns = real_clock_thread_cpu() - cpu;
	if (wanted && discovery->subscription)
		token_bucket_take(&discovery->subscription->evidence, discovery->scan_cpu_ns, began);
	refresh_limits(discovery, began);

	return 0;
}

/* ---- the thread ---- */

/* Events report all it could find, no target waits for room, none waits for its first baseline. */
static bool is_safety_net(const struct discovery *discovery, const struct target_table_counts *counts)
{
	const struct matcher *matcher = discovery->matcher;

	return discovery->subscription && !discovery->state.held_off && !matcher->unannounced &&
	       !discovery->state.error &&
	       (!matcher->by_path || (discovery->cgroups && cgroup_watch_state(discovery->cgroups).complete)) &&
	       counts->refused == 0 && counts->failed == 0 && counts->found == discovery->found_before;
}

static uint64_t pause_before_scan(const struct discovery *discovery)
{
	struct target_table_counts counts;
	bool exact = discovery->state.source == PROCESS_EVENTS_KERNEL;
	uint64_t pause = discovery->config->sampling.rescan_interval_ns,
		 most = (exact ? EXACT_STRETCH : CALM_STRETCH) * pause;
	uint64_t least = discovery->scan_cpu_ns * DISCOVERY_SHARE,
		 calm = discovery->scan_cpu_ns * (exact ? EXACT_SHARE : CALM_SHARE);

	target_table_counts(discovery->target_table, &counts);
	calm = calm < most ? calm : most;
	if (calm > pause && is_safety_net(discovery, &counts))
		pause = calm;
	if (discovery->again)
		pause = 0;
	if (counts.owing && pause > RETRY_NS)
		pause = RETRY_NS;

	return pause > least ? pause : least;
}

static void sleep_unlocked(struct discovery *discovery, mono_t now, mono_t until)
{
	struct pollfd fds[POLL_MAX];
	size_t count = await_events(discovery, now, fds, &until);
	uint64_t wait_ns = mono_diff(until, now) > 0 ? (uint64_t)mono_diff(until, now) : 0, calls;
	struct timespec wait = { .tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S) };

	fair_mutex_leave(&discovery->lock);
	if (ppoll(fds, count, &wait, NULL) > 0 && fds[0].revents)
		(void)!read(discovery->wake_fd, &calls, sizeof(calls));
	fair_mutex_enter(&discovery->lock);
	take_reload(discovery);
}

/* How often what the kernel adds up is compared with clocks, and its cost is judged. */
#define ACCOUNTS_INTERVAL_NS NS_PER_S

/* Said once, until the scheduler tells again. */
static void say_what_is_coarse(struct discovery *discovery)
{
	const struct config *config = discovery->config;
	const struct kernel_accounts *accounts = discovery->options.target_table.accounts;
	bool on = accounts && atomic_load(&kernel_accounts_shared(accounts)->on), was = discovery->coarse;
	size_t i = 0;

	while (i < config->rule_count && !config->rules[i].is_fine)
		i++;
	discovery->coarse = !on && i < config->rule_count;
	if (discovery->coarse && !was)
		log_line(LOG_NOTICE,
			 "rule %s has windows of %.6g ms, but CPU time of cgroups is read from files every %.6g ms: of "
			 "them "
			 "its windows reach from read to read",
			 config->rules[i].name, (double)config->rules[i].window_ns / 1e6,
			 (double)config->sampling.cgroup_interval_ns / 1e6);
}

/*
 * While the accounts are off, the check may load the program and visit each CPU, which takes up to 0.1 s: so the lock
 * is released for it, and questions and reloads do not wait.
 */
static void check_accounts_of(struct discovery *discovery, struct kernel_accounts *accounts, mono_t now)
{
	uint64_t interval_ns = discovery->config->sampling.interval_ns;
	bool on = atomic_load(&kernel_accounts_shared(accounts)->on);

	if (!on)
		fair_mutex_leave(&discovery->lock);
	kernel_accounts_check(accounts, now, interval_ns);
	if (!on)
		fair_mutex_enter(&discovery->lock);
}

static void check_accounts(struct discovery *discovery, mono_t now)
{
	struct kernel_accounts *accounts = discovery->options.target_table.accounts;
	bool due = mono_diff(now, discovery->accounts_checked) >= (int64_t)ACCOUNTS_INTERVAL_NS;

	say_what_is_coarse(discovery);
	if (!accounts || !(due || discovery->accounts_left))
		return;

	if (due) {
		discovery->accounts_checked = now;
		check_accounts_of(discovery, accounts, now);
	}
	discovery->accounts_left = target_table_keep_accounts(discovery->target_table);
	if (discovery->subscribed_once && is_source_outdated(discovery)) {
		subscribe(discovery);
		discovery->again = true;
	}
}

/* Until the next scan is due or the thread is to stop; in slices, for the liveness timestamp. */
static void wait_locked(struct discovery *discovery)
{
	mono_t began = update_pulse(discovery);

	for (mono_t now = began;; now = update_pulse(discovery)) {
		bool wanted = (discovery->again || discovery->mending) && is_wanted(discovery, now);
		mono_t due = mono_add(began, wanted ? 0 : pause_before_scan(discovery)),
		       slice_end = mono_add(now, PULSE_NS);

		if (discovery->stop || discovery->rescan || mono_diff(due, now) <= 0)
			return;
		read_events(discovery, now);
		refresh_limits(discovery, now);
		check_accounts(discovery, now);
		sleep_unlocked(discovery, now, mono_diff(due, slice_end) < 0 ? due : slice_end);
	}
}

/* A scan of the thread is over, or was given up. */
static void publish_first_scan(struct discovery *discovery, int result)
{
	if (discovery->first != DISCOVERY_SCANNING || result == -ECANCELED)
		return;

	discovery->first = result;
	signal_eventfd(discovery->first_fd);
}

/* The first scan is not delayed by events; processes that come meanwhile are found by the next. */
static void scan_first(struct discovery *discovery)
{
	int r = scan_locked(discovery);

	if (!discovery->stop)
		subscribe(discovery);
	publish_first_scan(discovery, r);
}

/*
 * Where CPUs are taken a thread that sleeps and wakes waits for 0.1 s and more, and the CPU time of children that
 * have ended is in a sample too late by that. So this thread has a higher weight where that is allowed, unless the
 * daemon was started with a lower one. (The service has that of its cgroup.) A reader that it starts inherits it.
 */
#define NICE (-10)

static void set_priority(const struct discovery *discovery, int nice_before)
{
	bool raised = discovery->config->sampling.scheduling == CONFIG_SCHEDULING_AUTO && nice_before <= 0;
	int wanted = raised && nice_before > NICE ? NICE : nice_before;

	if (getpriority(PRIO_PROCESS, 0) != wanted)
		(void)setpriority(PRIO_PROCESS, 0, wanted);
}

static void *discovery_run(void *argument)
{
	struct discovery *discovery = argument;
	int nice_before = getpriority(PRIO_PROCESS, 0);

	prctl(PR_SET_NAME, "discovery");
	fair_mutex_enter(&discovery->lock);
	set_priority(discovery, nice_before);
	if (!discovery->subscribed_once)
		scan_first(discovery);
	while (!discovery->stop) {
		set_priority(discovery, nice_before);
		subscribe(discovery);
		publish_first_scan(discovery, scan_locked(discovery));
		/* One that failed is tried again: nothing was swept by it. */
		ask_for_units(discovery);
		wait_locked(discovery);
	}
	fair_mutex_leave(&discovery->lock);

	return NULL;
}

int discovery_start(struct discovery *discovery, bool subscribe_first)
{
	clockid_t cpu_clock;
	int r;

	if (discovery->running)
		return 0;
	if (subscribe_first) {
		fair_mutex_enter(&discovery->lock);
		subscribe(discovery);
		fair_mutex_leave(&discovery->lock);
	}

	discovery->stop = false;
	r = thread_start(&discovery->thread, discovery_run, discovery);
	discovery->running = r == 0;
	if (discovery->running && pthread_getcpuclockid(discovery->thread, &cpu_clock) == 0)
		samplers_charge(discovery->options.target_table.samplers, SAMPLERS_CHARGE_PART, cpu_clock);

	return r;
}

/* Waits for the end of the thread, once; later only asks. True: it has ended. */
static bool join_thread(struct discovery *discovery)
{
	uint64_t wait_ns = discovery->config->stuck_ns ? discovery->config->stuck_ns : STOP_NS;

	if (thread_join_within(discovery->thread, discovery->abandoned ? 0 : wait_ns))
		return true;
	if (discovery->abandoned)
		return false;

	log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "discovery" },
		  "discovery blocks in a read of /proc: not waiting for it any longer");

	return false;
}

bool discovery_stop(struct discovery *discovery)
{
	if (!discovery->running)
		return true;

	discovery->stop = true;
	signal_eventfd(discovery->wake_fd);
	discovery->abandoned = !join_thread(discovery);
	discovery->running = discovery->abandoned;
	discovery->stop = discovery->abandoned;

	return !discovery->abandoned;
}

/* ---- new, free, reload ---- */

void discovery_free(struct discovery *discovery)
{
	if (!discovery)
		return;

	if (!discovery_stop(discovery))
		return;
	unsubscribe(discovery);
	unit_bus_free(discovery->units);
	target_table_free(discovery->target_table);
	matcher_free(discovery->matcher);
	baseline_free(discovery->baseline);
	thread_selection_free(discovery->thread_selection);
	process_cache_release(&discovery->process_cache);
	if (discovery->wake_fd >= 0)
		close(discovery->wake_fd);
	if (discovery->first_fd >= 0)
		close(discovery->first_fd);
	fair_mutex_release(&discovery->lock);
	pthread_mutex_destroy(&discovery->told_lock);
	matcher_free(discovery->due.matcher);
	free(discovery);
}

int discovery_new(const struct discovery_options *options, struct discovery **ret)
{
	struct discovery *discovery = calloc(1, sizeof *discovery);
	struct unlocked_section section;
	int r;

	if (!discovery)
		return -ENOMEM;

	section = section_of(discovery);
	containers_set_section(
		options->target_table.containers,
		&(struct unlocked_section){ .leave = lookup_leave, .enter = lookup_enter, .ctx = discovery });
	discovery->options = *options;
	discovery->options.target_table.alive = on_alive;
	discovery->options.target_table.alive_ctx = discovery;
	discovery->options.target_table.ran = on_ran;
	discovery->config = options->target_table.config;
	discovery->in_force = discovery->config;
	discovery->limits_due = discovery->units_due = true;
	update_pulse(discovery);
	fair_mutex_init(&discovery->lock);
	pthread_mutex_init(&discovery->told_lock, NULL);
	discovery->first = DISCOVERY_SCANNING;
	discovery->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	discovery->first_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = discovery->wake_fd < 0 || discovery->first_fd < 0 ? -errno : 0;
	if (r == 0)
		r = matcher_new(discovery->config, &discovery->matcher);
	if (r == 0)
		r = baseline_new(options->target_table.procfd,
				 discovery->config->incidents.captures & CONFIG_CAPTURE_SMAPS, &section,
				 &discovery->baseline);
	if (r == 0)
		r = target_table_new(&discovery->options.target_table, &discovery->target_table);
	if (r == 0 && options->stacks)
		r = thread_selection_new(&discovery->thread_selection);
	if (r < 0) {
		discovery_free(discovery);
		return r;
	}

	*ret = discovery;

	return 0;
}

/* With the lock. *matcher is exchanged for the one before. 0; -ENOMEM: nothing has changed. */
static int put_in_force(struct discovery *discovery, const struct config *config, struct matcher **matcher)
{
	struct matcher *before = discovery->matcher;
	int r = target_table_reload(discovery->target_table, config);

	if (r < 0)
		return r;

	matcher_succeed(*matcher, before);
	discovery->matcher = *matcher;
	*matcher = before;
	discovery->config = config;
	discovery->options.target_table.config = config;
	baseline_set_maps(discovery->baseline, config->incidents.captures & CONFIG_CAPTURE_SMAPS);
	thread_selection_forget(discovery->thread_selection);
	if (discovery->subscription)
		waited_times_forget_groups(discovery->subscription->waited_times);
	process_cache_sweep(&discovery->process_cache, true);
	discovery->limits_due = discovery->units_due = true;
	discovery->rescan = true;
	return 0;
}

/* What is due in its place is given back, to be freed: *matcher. */
static void set_due(struct discovery *discovery, const struct config *config, struct matcher **matcher)
{
	struct matcher *before;

	pthread_mutex_lock(&discovery->told_lock);
	before = discovery->due.matcher;
	discovery->due.config = config;
	discovery->due.matcher = *matcher;
	*matcher = before;
	pthread_mutex_unlock(&discovery->told_lock);
}

/*
 * The thread has the lock, as it has where another could have reloaded. The old matcher goes while
 * its configuration is still there. One for which there is no memory stays due.
 */
static void take_reload(struct discovery *discovery)
{
	const struct config *config;

	pthread_mutex_lock(&discovery->told_lock);
	config = discovery->due.config;
	if (config && put_in_force(discovery, config, &discovery->due.matcher) == 0) {
		matcher_free(discovery->due.matcher);
		discovery->due.matcher = NULL;
		discovery->due.config = NULL;
		discovery->in_force = config;
	}
	pthread_mutex_unlock(&discovery->told_lock);
}

int discovery_reload(struct discovery *discovery, const struct config *config)
{
	AUTO(matcher_freep) struct matcher *matcher = NULL;
	AUTO(matcher_freep) struct matcher *superseded = NULL;
	int r = matcher_new(config, &matcher);

	if (r < 0)
		return r;

	bool entered = fair_mutex_enter_within(&discovery->lock, RELOAD_NS);

	if (!entered || discovery->looking_up) {
		set_due(discovery, config, &matcher);
		r = DISCOVERY_FOLLOWS;
	} else {
		r = put_in_force(discovery, config, &matcher);
		if (r == 0) {
			set_due(discovery, NULL, &superseded);
			discovery->in_force = config;
		}
	}
	if (entered)
		fair_mutex_leave(&discovery->lock);
	if (r >= 0)
		signal_eventfd(discovery->wake_fd);

	return r;
}

int discovery_scan(struct discovery *discovery)
{
	int r;

	fair_mutex_enter(&discovery->lock);
	do {
		r = scan_locked(discovery);
	} while (r == -ECANCELED);
	fair_mutex_leave(&discovery->lock);

	return r;
}

/* ---- queries of other threads ---- */

struct discovery_progress discovery_progress(const struct discovery *discovery)
{
	return (struct discovery_progress){
		.pulse = pulse_of(discovery),
		.reading = atomic_load_explicit(&discovery->reading, memory_order_relaxed),
		.first = discovery->first,
		.first_fd = discovery->first_fd,
		.config = discovery->in_force,
	};
}

size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap)
{
	if (!fair_mutex_enter_within(&discovery->lock, EVIDENCE_NS))
		return 0;
	size_t count = target_table_query_pids(discovery->target_table, target_id, pids, cap);
	fair_mutex_leave(&discovery->lock);

	return count;
}

/*
 * Until what was there at that moment has been looked at, which can take a second where thousands are started each
 * second; not for longer than a query for evidence may take, and not where it is left to scans alone.
 */
static void await_complete(struct discovery *discovery, mono_t moment)
{
	const struct timespec nap = { .tv_nsec = (long)AWAIT_NAP_NS };
	struct clock clock = real_clock();
	mono_t until = mono_add(clock_mono(&clock), EVIDENCE_NS);
	uint64_t complete_ns;

	if (moment.ns == 0)
		return;
	atomic_store(&discovery->wanted_ns, moment.ns);
	while ((complete_ns = atomic_load(&discovery->complete_ns)) > 0 && complete_ns < moment.ns &&
	       !discovery->stop && mono_diff(until, clock_mono(&clock)) > 0) {
		signal_eventfd(discovery->wake_fd);
		nanosleep(&nap, NULL);
	}
	atomic_store(&discovery->wanted_ns, 0);
}

int discovery_members(struct discovery *discovery, uint32_t target_id, mono_t as_of, uint64_t since_ns,
		      struct target_member **ret, size_t *ret_count)
{
	await_complete(discovery, as_of);
	if (!fair_mutex_enter_within(&discovery->lock, EVIDENCE_NS))
		return -EBUSY;
	int r = target_table_query_members(discovery->target_table, target_id, since_ns, ret, ret_count);
	fair_mutex_leave(&discovery->lock);

	return r;
}

bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cgroup_limits *ret)
{
	if (!fair_mutex_enter_within(&discovery->lock, QUERY_NS))
		return false;
	bool found = target_table_query_limits(discovery->target_table, target_id, ret);
	fair_mutex_leave(&discovery->lock);

	return found;
}

void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps)
{
	*ret_threads = (struct thread_baseline){ 0 };
	*ret_maps = NULL;
	if (!fair_mutex_enter_within(&discovery->lock, EVIDENCE_NS))
		return;
	baseline_copy(discovery->baseline, pid, ret_threads, ret_maps);
	fair_mutex_leave(&discovery->lock);
}

int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret)
{
	if (!fair_mutex_enter_within(&discovery->lock, EVIDENCE_NS))
		return -EBUSY;
	int r = baseline_copy_busy(discovery->baseline, ret);
	fair_mutex_leave(&discovery->lock);

	return r;
}

static void report_unit(const struct unit *unit, struct unit_report *ret)
{
	*ret = (struct unit_report){ .facts = unit->facts };
	snprintf(ret->name, sizeof(ret->name), "%s", unit->names ? unit->names : "");
	snprintf(ret->cgroup, sizeof(ret->cgroup), "%s", unit->cgroup ? unit->cgroup : "");
}

bool discovery_unit(struct discovery *discovery, const char *cgroup, struct unit_report *ret)
{
	const struct unit *unit = NULL;

	if (!fair_mutex_enter_within(&discovery->lock, QUERY_NS))
		return false;
	if (discovery->units)
		unit = unit_table_of(discovery->matcher->units, cgroup);
	if (unit)
		report_unit(unit, ret);
	fair_mutex_leave(&discovery->lock);

	return unit != NULL;
}

struct unit_visit {
	struct discovery *discovery;
	const struct unit_visitor *visitor;
};

static void visit_unit(void *ctx, struct unit *unit)
{
	const struct unit_visit *unit_visit = ctx;
	struct unit_report reported;

	if (!unit_visit->visitor->unit)
		return;

	report_unit(unit, &reported);
	if (reported.name[0])
		unit_visit->visitor->unit(unit_visit->visitor->ctx, &reported);
}

static void visit_missing(void *ctx, const char *name, enum unit_bus_answer answer, const char *why)
{
	const struct unit_visit *unit_visit = ctx;

	if (unit_visit->visitor->missing && answer == UNIT_BUS_MISSING &&
	    entry_without_targets(unit_visit->discovery, name))
		unit_visit->visitor->missing(unit_visit->visitor->ctx, name, why);
}

void discovery_visit_units(struct discovery *discovery, const struct unit_visitor *visitor)
{
	struct unit_visit unit_visit = { discovery, visitor };

	if (!fair_mutex_enter_within(&discovery->lock, QUERY_NS))
		return;
	if (discovery->units)
		unit_bus_visit(discovery->units, visit_missing, visit_unit, &unit_visit);
	fair_mutex_leave(&discovery->lock);
}

static void count_unlabelled(const struct discovery *discovery, struct discovery_state *ret)
{
	int error = 0;

	ret->unlabelled = discovery->matcher->by_label && discovery->options.target_table.containers
				  ? containers_unlabelled(discovery->options.target_table.containers, &error)
				  : 0;
	ret->unlabelled_why =
		error == 0 || error == -ENOENT ? "no file that would have them is there" : foreign_error(error);
}

/* The lock is held. */
static void take_state(struct discovery *discovery, struct discovery_state *ret)
{
	*ret = discovery->state;
	ret->scan_interval_ns = pause_before_scan(discovery);
	target_table_counts(discovery->target_table, &ret->target_table);
	add_event_counts(discovery, ret);
	if (discovery->units)
		unit_bus_state(discovery->units, &ret->units);
	count_unlabelled(discovery, ret);
}

void discovery_state(struct discovery *discovery, struct discovery_state *ret)
{
	bool fresh = fair_mutex_enter_within(&discovery->lock, QUERY_NS);
	struct discovery_state state;

	if (fresh) {
		take_state(discovery, &state);
		fair_mutex_leave(&discovery->lock);
	}
	pthread_mutex_lock(&discovery->told_lock);
	if (fresh)
		discovery->told = state;
	*ret = discovery->told;
	pthread_mutex_unlock(&discovery->told_lock);
	ret->reading = atomic_load_explicit(&discovery->reading, memory_order_relaxed);
}
