/*
 * discovery.c: prepare / visit / sweep. Facts about a process are read lazily, only those that some entry needs: most hosts name
 * their processes by comm, which costs one small file each.
 *
 * One lock covers the roster, for the few questions that other threads ask. It is never held while the thread sleeps, and
 * the sampler never takes it.
 */
#include "discovery.h"

#include "baseline.h"
#include "dirlist.h"
#include "match.h"
#include "procread.h"
#include "realclock.h"
#include "scanned.h"
#include "scope.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A scan may take one part in so many of the time. */
#define SCAN_SHARE 50u

struct discovery {
	struct discovery_options options;
	const struct config *config;
	struct roster *roster;
	struct match **matches; /* one per entry */
	int32_t *pidfile_pids;  /* one per entry; what its pid file says */
	unsigned needs;         /* of all entries together */
	bool by_path;
	uint64_t scan;
	mono_t limits_read;
	struct discovery_state state;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running, stop;
};

/* ---- prepare ---- */

static int compile_entries(struct discovery *discovery)
{
	const struct config *config = discovery->config;

	discovery->matches = calloc(config->target_count, sizeof(struct match *));
	discovery->pidfile_pids = calloc(config->target_count, sizeof *discovery->pidfile_pids);
	if (!discovery->matches || !discovery->pidfile_pids)
		return -ENOMEM;

	for (size_t i = 0; i < config->target_count; i++) {
		int r = match_new(&config->targets[i], &discovery->matches[i]);

		if (r < 0)
			return r;
		discovery->needs |= match_needs(discovery->matches[i]);
		if (match_is_by_path(discovery->matches[i]))
			discovery->by_path = true;
		if (config->targets[i].per == CONFIG_PER_CGROUP)
			discovery->needs |= MATCH_CGROUP;
	}

	return 0;
}

int discovery_new(const struct discovery_options *options, struct discovery **ret)
{
	struct discovery *discovery = calloc(1, sizeof *discovery);
	pthread_condattr_t attributes;
	int r;

	if (!discovery)
		return -ENOMEM;

	discovery->options = *options;
	discovery->config = options->roster.config;
	pthread_mutex_init(&discovery->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&discovery->wake, &attributes);
	pthread_condattr_destroy(&attributes);

	r = compile_entries(discovery);
	if (r == 0)
		r = roster_new(&options->roster, &discovery->roster);
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
	for (size_t i = 0; discovery->matches && i < discovery->config->target_count; i++)
		match_free(discovery->matches[i]);
	free(discovery->matches);
	free(discovery->pidfile_pids);
	pthread_cond_destroy(&discovery->wake);
	pthread_mutex_destroy(&discovery->lock);
	free(discovery);
}

/* ---- visit: processes ---- */

static void read_pidfiles(struct discovery *discovery)
{
	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (discovery->config->targets[i].selector == CONFIG_PIDFILE)
			discovery->pidfile_pids[i] = procread_pidfile(discovery->config->targets[i].pattern);
}

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
	if (!discovery->by_path || scanned_ask(scanned, MATCH_CGROUP) < 0 || !scanned->facts.cgroup)
		return false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (match_is_by_path(discovery->matches[i]) &&
		    match_cgroup(discovery->matches[i], scanned->facts.cgroup))
			return true;

	return false;
}

/* Hands the process to every entry that it matches. */
static int match_entries(struct discovery *discovery, struct scanned *scanned, bool *ret_watched)
{
	for (size_t i = 0; i < discovery->config->target_count; i++) {
		if (!match_process(discovery->matches[i], &scanned->facts, discovery->pidfile_pids[i]))
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

	discovery->state.processes++;
	if (r == 0)
		r = scanned_ask(scanned, discovery->needs);
	if (r < 0) {
		discovery->state.unreadable += !scanned_starved(r) && r != -ESRCH;
		return scanned_starved(r) ? r : 0;
	}

	r = match_entries(discovery, scanned, &watched);
	if (r < 0)
		return r;

	bool ran = baseline_met(discovery->options.baseline, &scanned->stat);

	if (watched || (ran && in_watched_cgroup(discovery, scanned)))
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

	for (size_t i = 0; i < discovery->config->target_count; i++) {
		if (!match_is_by_path(discovery->matches[i]) || !match_cgroup(discovery->matches[i], path))
			continue;

		int r = roster_cgroup(discovery->roster, i, path, discovery->scan);

		if (r < 0)
			return r;
	}

	return 0;
}

/* ---- one scan ---- */

static void refresh_limits(struct discovery *discovery, mono_t now)
{
	if (mono_diff(now, discovery->limits_read) < (int64_t)discovery->config->sampling.limits_interval_ns)
		return;

	discovery->limits_read = now;
	roster_refresh_limits(discovery->roster);
}

static int scan_locked(struct discovery *discovery)
{
	struct clock clock = realclock();
	mono_t began = clock_mono(&clock);
	int r;

	discovery->scan++;
	discovery->state.processes = 0;
	discovery->state.unreadable = 0;
	roster_collect(discovery->roster);
	read_pidfiles(discovery);
	baseline_scan_begin(discovery->options.baseline, began);
	r = visit_processes(discovery);
	if (r == 0 && discovery->by_path)
		r = cgroup_walk(discovery->options.roster.mounts, visit_cgroup, discovery);
	discovery->state.error = r == -E2BIG ? 0 : r;
	if (discovery->state.error < 0)
		return r == -EMFILE || r == -ENFILE ? 0 : r;

	baseline_scan_end(discovery->options.baseline);
	roster_sweep(discovery->roster, discovery->scan);
	refresh_limits(discovery, began);
	discovery->state.scans++;
	discovery->state.last_scan_ns = (uint64_t)mono_diff(clock_mono(&clock), began);

	return 0;
}

int discovery_scan(struct discovery *discovery)
{
	pthread_mutex_lock(&discovery->lock);
	int r = scan_locked(discovery);
	pthread_mutex_unlock(&discovery->lock);

	return r;
}

/* ---- the thread ---- */

/* Waits, with the lock released, until the next scan is due or the thread is to stop. */
static void wait_locked(struct discovery *discovery)
{
	struct clock clock = realclock();
	uint64_t pause = discovery->config->sampling.rescan_interval_ns;

	if (pause < discovery->state.last_scan_ns * SCAN_SHARE)
		pause = discovery->state.last_scan_ns * SCAN_SHARE;

	mono_t until = mono_add(clock_mono(&clock), pause);
	struct timespec at = {
		.tv_sec = (time_t)(until.ns / NS_PER_S),
		.tv_nsec = (long)(until.ns % NS_PER_S),
	};

	while (!discovery->stop && pthread_cond_timedwait(&discovery->wake, &discovery->lock, &at) != ETIMEDOUT)
		continue;
}

static void *run(void *argument)
{
	struct discovery *discovery = argument;

	prctl(PR_SET_NAME, "discovery");
	pthread_mutex_lock(&discovery->lock);
	while (!discovery->stop) {
		scan_locked(discovery); /* a failed scan is tried again: nothing is swept by it */
		wait_locked(discovery);
	}
	pthread_mutex_unlock(&discovery->lock);

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

	pthread_mutex_lock(&discovery->lock);
	discovery->stop = true;
	pthread_cond_signal(&discovery->wake);
	pthread_mutex_unlock(&discovery->lock);
	pthread_join(discovery->thread, NULL);
	discovery->running = false;
}

/* ---- questions of other threads ---- */

struct pid_query {
	uint32_t id;
	int32_t *pids;
	size_t count, cap;
};

static int collect_pid(void *ctx, struct roster_target *target)
{
	struct pid_query *query = ctx;
	uint32_t id = target->group ? target->group->what.id : target->what.id;

	if (id == query->id && target->what.pid && query->count < query->cap)
		query->pids[query->count++] = target->what.pid;

	return query->count == query->cap;
}

size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap)
{
	struct pid_query query = { .id = target_id, .pids = pids, .cap = cap };

	pthread_mutex_lock(&discovery->lock);
	roster_visit(discovery->roster, collect_pid, &query);
	pthread_mutex_unlock(&discovery->lock);

	return query.count;
}

struct limits_query {
	uint32_t id;
	struct cglimits *ret;
};

static int find_limits(void *ctx, struct roster_target *target)
{
	struct limits_query *query = ctx;

	if (target->what.id != query->id)
		return 0;
	*query->ret = target->limits;

	return 1;
}

bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cglimits *ret)
{
	struct limits_query query = { .id = target_id, .ret = ret };

	pthread_mutex_lock(&discovery->lock);
	int found = roster_visit(discovery->roster, find_limits, &query);
	pthread_mutex_unlock(&discovery->lock);

	return found == 1;
}

void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps)
{
	pthread_mutex_lock(&discovery->lock);
	baseline_copy(discovery->options.baseline, pid, ret_threads, ret_maps);
	pthread_mutex_unlock(&discovery->lock);
}

int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret)
{
	pthread_mutex_lock(&discovery->lock);
	int r = baseline_copy_busy(discovery->options.baseline, ret);
	pthread_mutex_unlock(&discovery->lock);

	return r;
}

void discovery_state(struct discovery *discovery, struct discovery_state *ret)
{
	pthread_mutex_lock(&discovery->lock);
	*ret = discovery->state;
	roster_counts(discovery->roster, &ret->roster);
	pthread_mutex_unlock(&discovery->lock);
}
