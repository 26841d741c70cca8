/*
 * discovery.c: prepare / visit / sweep. Facts about a process are read lazily, only those that some entry needs: most hosts name
 * their processes by comm, which costs one small file each.
 *
 * One lock covers the roster, for the few questions that other threads ask. It is never held while the thread sleeps, and
 * the sampler never takes it. A scan holds it, but steps aside between two processes (turnstile.h): a question waits for one
 * process and not for a million. What comes in between may be another configuration: then the scan is given up, as one that ran out of descriptors is, and the next begins at once.
 */
#include "discovery.h"

#include "dirlist.h"
#include "matcher.h"
#include "procread.h"
#include "realclock.h"
#include "roster_query.h"
#include "scanned.h"
#include "scope.h"
#include "turnstile.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A scan may take one part in so many of a core. Its CPU time counts: on a busy machine it lasts longer, and costs no more. */
#define SCAN_SHARE 50u

#define PULSE_NS NS_PER_S          /* how long the thread shows no sign of life while it waits */
#define RETRY_NS (100 * NS_PER_MS) /* before the next scan when the queue to the sampler was full: a few of its ticks */

struct discovery {
	struct discovery_options options;
	const struct config *config;
	struct roster *roster;
	struct matcher *matcher;
	struct following *following; /* NULL: nobody asks */
	uint64_t scan;
	uint64_t processes, unreadable; /* in the running scan */
	mono_t limits_read;
	bool limits_due; /* whenever they were read */
	bool rescan;     /* the configuration is another one: what runs is given up, what is due is due now */
	struct discovery_state state;
	uint64_t scan_cpu_ns; /* what the last whole scan took, however long it waited for a CPU */
	_Atomic uint64_t pulse_ns;
	struct turnstile turn;
	pthread_cond_t wake;
	pthread_t thread;
	bool running, stop;
};

/* ---- while it runs ---- */

static mono_t show_life(struct discovery *discovery)
{
	struct clock clock = realclock();
	mono_t now = clock_mono(&clock);

	atomic_store_explicit(&discovery->pulse_ns, now.ns, memory_order_relaxed);

	return now;
}

mono_t discovery_pulse(const struct discovery *discovery)
{
	return (mono_t){ atomic_load_explicit(&discovery->pulse_ns, memory_order_relaxed) };
}

static void on_alive(void *ctx)
{
	show_life(ctx);
}

/* Between two steps of a scan: everything may be different afterwards. 0; -ECANCELED: the scan is to be given up. */
static int step_aside(struct discovery *discovery)
{
	show_life(discovery);
	turnstile_yield(&discovery->turn);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

/* ---- build ---- */

int discovery_new(const struct discovery_options *options, struct discovery **ret)
{
	struct discovery *discovery = calloc(1, sizeof *discovery);
	pthread_condattr_t attributes;
	int r;

	if (!discovery)
		return -ENOMEM;

	discovery->options = *options;
	discovery->options.roster.alive = on_alive;
	discovery->options.roster.alive_ctx = discovery;
	discovery->config = options->roster.config;
	discovery->limits_due = true;
	show_life(discovery);
	turnstile_init(&discovery->turn);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&discovery->wake, &attributes);
	pthread_condattr_destroy(&attributes);

	r = matcher_new(discovery->config, &discovery->matcher);
	if (r == 0)
		r = roster_new(&discovery->options.roster, &discovery->roster);
	if (r == 0 && options->follow)
		r = following_new(options->follow, options->follow_ctx, &discovery->following);
	if (r < 0) {
		discovery_free(discovery);
		return r;
	}

	*ret = discovery;

	return 0;
}

void discovery_free(struct discovery *discovery)
{
	if (!discovery)
		return;

	discovery_stop(discovery);
	roster_free(discovery->roster);
	matcher_free(discovery->matcher);
	following_free(discovery->following);
	pthread_cond_destroy(&discovery->wake);
	turnstile_release(&discovery->turn);
	free(discovery);
}

static void release_matcher(struct matcher **matcher)
{
	matcher_free(*matcher);
}

int discovery_reload(struct discovery *discovery, const struct config *config)
{
	AUTO(release_matcher) struct matcher *matcher = NULL;
	int r = matcher_new(config, &matcher);

	if (r < 0)
		return r;

	turnstile_enter(&discovery->turn);
	r = roster_reload(discovery->roster, config);
	if (r == 0) {
		struct matcher *before = discovery->matcher;

		discovery->matcher = matcher;
		matcher = before; /* which is freed while its configuration is still there */
		discovery->config = config;
		discovery->options.roster.config = config;
		baseline_set_maps(discovery->options.baseline, config->incidents.captures & CONFIG_CAPTURE_SMAPS);
		following_forget(discovery->following);
		discovery->limits_due = true;
		discovery->rescan = true;
		pthread_cond_signal(&discovery->wake);
	}
	turnstile_leave(&discovery->turn);

	return r;
}

/* ---- visit: processes ---- */

/* A process of an entry whose targets are cgroups stands for its cgroup; in the root cgroup it has none of its own. */
static int sight_cgroup(struct discovery *discovery, size_t entry, const struct match_facts *facts)
{
	if (!facts->cgroup || strcmp(facts->cgroup, "/") == 0)
		return 0;

	return roster_cgroup(discovery->roster, entry, facts->cgroup, discovery->scan);
}

static int sight(struct discovery *discovery, size_t entry, struct scanned *scanned)
{
	const struct match_facts *facts = &scanned->facts;

	if (discovery->config->targets[entry].per == CONFIG_PER_CGROUP)
		return sight_cgroup(discovery, entry, facts);

	/* For the description, whether or not an entry asked for it. */
	int r = scanned_ask(scanned, MATCH_CMDLINE | MATCH_CGROUP);

	if (r < 0)
		return r;

	struct roster_sighting sighting = {
		.pid = facts->pid,
		.start_ticks = scanned->stat.start_ticks,
		.comm = facts->comm,
		.cmdline = facts->cmdline ? facts->cmdline : "",
		.cgroup = facts->cgroup ? facts->cgroup : "",
	};

	return roster_process(discovery->roster, entry, &sighting, discovery->scan);
}

/* Whether a process is in a cgroup that is a target by its path. Not asked for processes that sleep. */
static bool in_watched_cgroup(struct discovery *discovery, struct scanned *scanned)
{
	return discovery->matcher->by_path && scanned_ask(scanned, MATCH_CGROUP) == 0 && scanned->facts.cgroup &&
	       matcher_any_cgroup(discovery->matcher, scanned->facts.cgroup);
}

/* Hands the process to every entry that it matches. */
static int match_entries(struct discovery *discovery, struct scanned *scanned, bool *ret_watched)
{
	for (size_t i = 0; i < discovery->config->target_count; i++) {
		if (!matcher_process(discovery->matcher, i, &scanned->facts))
			continue;
		*ret_watched = true;
		if (roster_process_known(discovery->roster, i, scanned->facts.pid, scanned->stat.start_ticks,
					 discovery->scan))
			continue;

		int r = sight(discovery, i, scanned);

		if (r < 0)
			return r;
	}

	return 0;
}

/* What cannot be looked at is counted and passed over; being out of descriptors or memory ends the scan. */
static int visit_process(struct discovery *discovery, int32_t pid, struct scanned *scanned)
{
	bool watched = false;
	int r = scanned_meet(scanned, pid);

	discovery->processes++;
	if (r == 0)
		r = scanned_ask(scanned, discovery->matcher->needs);
	if (r < 0) {
		discovery->unreadable += !scanned_starved(r) && r != -ESRCH;
		return scanned_starved(r) ? r : 0;
	}

	r = match_entries(discovery, scanned, &watched);
	if (r < 0)
		return r;

	bool ran = baseline_met(discovery->options.baseline, &scanned->stat);

	watched = watched || (ran && in_watched_cgroup(discovery, scanned));
	following_met(discovery->following, &scanned->stat, watched);
	if (watched)
		baseline_watched(discovery->options.baseline, &scanned->stat, ran);
	else
		baseline_unchanged(discovery->options.baseline, &scanned->stat);

	return 0;
}

/* The scan of /proc: what dirlist_each hands on. */
struct walk {
	struct discovery *discovery;
	struct scanned scanned;
};

static int visit_name(void *ctx, const char *name)
{
	struct walk *walk = ctx;
	int32_t pid = procread_pid_of(name);
	int r = step_aside(walk->discovery);

	if (r < 0)
		return r;

	return pid ? visit_process(walk->discovery, pid, &walk->scanned) : 0;
}

static int visit_processes(struct discovery *discovery)
{
	AUTO_FREE struct walk *walk = malloc(sizeof *walk);

	if (!walk)
		return -ENOMEM;

	walk->discovery = discovery;
	walk->scanned.procfd = discovery->options.roster.procfd;
	walk->scanned.mounts = discovery->options.roster.mounts;

	return dirlist_each(discovery->options.roster.procfd, visit_name, walk);
}

/* ---- visit: cgroups ---- */

static int visit_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;
	int r = step_aside(discovery);

	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++)
		if (matcher_cgroup(discovery->matcher, i, path))
			r = roster_cgroup(discovery->roster, i, path, discovery->scan);

	return r;
}

/* ---- one scan ---- */

static void refresh_limits(struct discovery *discovery, mono_t now)
{
	int64_t age = mono_diff(now, discovery->limits_read);

	if (!discovery->limits_due && age < (int64_t)discovery->config->sampling.limits_interval_ns)
		return;

	discovery->limits_due = false;
	discovery->limits_read = now;
	roster_refresh_limits(discovery->roster);
}

static int visit_all(struct discovery *discovery)
{
	int r = visit_processes(discovery);

	if (r == 0 && discovery->matcher->by_path)
		r = cgroup_walk(discovery->options.roster.mounts, visit_cgroup, discovery);

	return r == -E2BIG ? 0 : r;
}

/* As discovery_scan, or -ECANCELED. */
static int scan_locked(struct discovery *discovery)
{
	mono_t began = show_life(discovery);
	uint64_t cpu = realclock_thread_cpu();
	int r;

	discovery->rescan = false;
	discovery->scan++;
	discovery->processes = discovery->unreadable = 0;
	roster_collect(discovery->roster);
	roster_reopen(discovery->roster);
	matcher_read_pidfiles(discovery->matcher);
	baseline_scan_begin(discovery->options.baseline, began);
	following_begin(discovery->following);
	r = visit_all(discovery);
	if (r == -ECANCELED)
		return r;
	discovery->state.error = r;
	if (r < 0)
		return r == -EMFILE || r == -ENFILE ? 0 : r;

	baseline_scan_end(discovery->options.baseline);
	following_end(discovery->following);
	roster_sweep(discovery->roster, discovery->scan);
	refresh_limits(discovery, began);
	discovery->state.processes = discovery->processes;
	discovery->state.unreadable = discovery->unreadable;
	discovery->state.scans++;
	discovery->state.last_scan_ns = (uint64_t)mono_diff(show_life(discovery), began);
	discovery->scan_cpu_ns = realclock_thread_cpu() - cpu;

	return 0;
}

int discovery_scan(struct discovery *discovery)
{
	int r;

	turnstile_enter(&discovery->turn);
	do {
		r = scan_locked(discovery);
	} while (r == -ECANCELED);
	turnstile_leave(&discovery->turn);

	return r;
}

/* ---- the thread ---- */

static uint64_t pause_before_scan(const struct discovery *discovery)
{
	uint64_t pause = discovery->config->sampling.rescan_interval_ns;
	uint64_t least = discovery->scan_cpu_ns * SCAN_SHARE;

	if (roster_owes(discovery->roster) && pause > RETRY_NS)
		pause = RETRY_NS;

	return pause > least ? pause : least;
}

/* Waits, with the lock released, until the next scan is due or the thread is to stop; in slices, which show that it lives. */
static void wait_locked(struct discovery *discovery)
{
	mono_t due = mono_add(show_life(discovery), pause_before_scan(discovery));

	for (mono_t now = show_life(discovery); mono_diff(due, now) > 0; now = show_life(discovery)) {
		if (discovery->stop || discovery->rescan)
			return;

		mono_t until = mono_diff(due, now) < (int64_t)PULSE_NS ? due : mono_add(now, PULSE_NS);
		struct timespec at = {
			.tv_sec = (time_t)(until.ns / NS_PER_S),
			.tv_nsec = (long)(until.ns % NS_PER_S),
		};

		pthread_cond_timedwait(&discovery->wake, &discovery->turn.lock, &at);
	}
}

static void *run(void *argument)
{
	struct discovery *discovery = argument;

	prctl(PR_SET_NAME, "discovery");
	turnstile_enter(&discovery->turn);
	while (!discovery->stop) {
		scan_locked(discovery); /* a failed scan is tried again: nothing is swept by it */
		wait_locked(discovery);
	}
	turnstile_leave(&discovery->turn);

	return NULL;
}

int discovery_start(struct discovery *discovery)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	discovery->stop = false;
	r = pthread_create(&discovery->thread, NULL, run, discovery);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	discovery->running = r == 0;

	return -r;
}

void discovery_stop(struct discovery *discovery)
{
	if (!discovery->running)
		return;

	turnstile_enter(&discovery->turn);
	discovery->stop = true;
	pthread_cond_signal(&discovery->wake);
	turnstile_leave(&discovery->turn);
	pthread_join(discovery->thread, NULL);
	discovery->running = discovery->stop = false;
}

/* ---- questions of other threads ---- */

size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap)
{
	turnstile_enter(&discovery->turn);
	size_t count = roster_query_pids(discovery->roster, target_id, pids, cap);
	turnstile_leave(&discovery->turn);

	return count;
}

bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cglimits *ret)
{
	turnstile_enter(&discovery->turn);
	bool found = roster_query_limits(discovery->roster, target_id, ret);
	turnstile_leave(&discovery->turn);

	return found;
}

void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps)
{
	turnstile_enter(&discovery->turn);
	baseline_copy(discovery->options.baseline, pid, ret_threads, ret_maps);
	turnstile_leave(&discovery->turn);
}

int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret)
{
	turnstile_enter(&discovery->turn);
	int r = baseline_copy_busy(discovery->options.baseline, ret);
	turnstile_leave(&discovery->turn);

	return r;
}

void discovery_state(struct discovery *discovery, struct discovery_state *ret)
{
	turnstile_enter(&discovery->turn);
	*ret = discovery->state;
	roster_counts(discovery->roster, &ret->roster);
	turnstile_leave(&discovery->turn);
}
