/*
 * discovery_scan.c: prepare / visit / sweep. Facts about a process are read lazily, only those that some entry needs: most hosts name
 * their processes by comm, which costs one small file each. A process whose CPU clock says that it has not run since the scan before is what it was, and
 * is not looked at (census.h): a tenth of the price.
 */
#include "cgmount.h"
#include "dirlist.h"
#include "discovery_inside.h"
#include "procread.h"
#include "realclock.h"
#include "roster_events.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- visit: processes ---- */

/* Whether a process is in a cgroup that is a target by its path. Not asked for processes that sleep. */
static bool in_watched_cgroup(struct discovery *discovery, struct scanned *scanned)
{
	const struct matcher *matcher = discovery->matcher;

	return matcher->by_path &&
	       scanned_ask(scanned, matcher->by_container ? MATCH_CGROUP | MATCH_CONTAINER : MATCH_CGROUP) == 0 &&
	       scanned->facts.cgroup && matcher_any_cgroup(matcher, scanned->facts.cgroup, scanned->facts.container);
}

/* ---- visit: processes that have not run ---- */

/*
 * Whether what is looked for in a process changes only when it runs. It may be moved to another cgroup in its sleep; and who descends from whom is told
 * by looking.
 */
static bool may_skip(const struct discovery *discovery)
{
	return discovery->options.roster.own_proc && !(discovery->matcher->needs & MATCH_CGROUP) &&
	       !discovery->matcher->by_container && !discovery->matcher->kinship;
}

/* True: it has not run since it was looked at, and that is enough. */
static bool skip_process(struct discovery *discovery, int32_t pid, uint64_t cpu_ns)
{
	const struct census_record *record = census_meet(discovery->census, pid, cpu_ns);

	if (!record || baseline_owes(discovery->options.baseline, pid) ||
	    roster_watches(discovery->roster, pid, record->start_ticks) != record->watches)
		return false;

	struct procfs_stat stat = { .pid = pid, .start_ticks = record->start_ticks, .user_ticks = record->cpu_ticks };

	discovery->unchanged++;
	roster_still(discovery->roster, pid, record->start_ticks, discovery->scan);
	baseline_met(discovery->options.baseline, &stat);
	baseline_unchanged(discovery->options.baseline, &stat);
	following_met(discovery->following, &stat, false);

	return true;
}

/* It was looked at; unless there is something left to be done the next scan need not do so again. */
static void remember(struct discovery *discovery, const struct procfs_stat *stat, uint64_t cpu_ns, size_t targets)
{
	struct census_record record = {
		.pid = stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = stat->user_ticks + stat->system_ticks,
		.cpu_ns = cpu_ns,
		.watches = targets,
	};

	if (cpu_ns > 0 && !discovery->rescan &&
	    roster_watches(discovery->roster, stat->pid, stat->start_ticks) == targets)
		census_enter(discovery->census, &record);
}

/* ---- visit: the others ---- */

/* What cannot be looked at is counted and passed over; being out of descriptors or memory ends the scan. */
static int visit_process(struct discovery *discovery, int32_t pid, struct scanned *scanned)
{
	struct discovery_meeting meeting = { 0 };
	uint64_t cpu_ns = may_skip(discovery) ? realclock_cpu_of(realclock_of(pid)) : 0;
	int r;

	discovery->processes++;
	if (skip_process(discovery, pid, cpu_ns))
		return 0;

	scanned->now = discovery_pulse(discovery);
	r = scanned_meet(scanned, pid);
	if (r == 0)
		r = scanned_ask(scanned, discovery->matcher->needs);
	if (r < 0) {
		discovery->unreadable += !scanned_starved(r) && r != -ESRCH;
		return scanned_starved(r) ? r : 0;
	}

	r = discovery_match(discovery, scanned, &meeting);
	if (r < 0)
		return r;

	bool ran = baseline_met(discovery->options.baseline, &scanned->stat);
	bool watched = meeting.watched || (ran && in_watched_cgroup(discovery, scanned));

	following_met(discovery->following, &scanned->stat, watched);
	if (watched)
		baseline_watched(discovery->options.baseline, &scanned->stat, ran);
	else
		baseline_unchanged(discovery->options.baseline, &scanned->stat);
	remember(discovery, &scanned->stat, cpu_ns, meeting.targets);

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
	int r = discovery_step_aside(walk->discovery);

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
	walk->scanned.containers = discovery->options.roster.containers;
	walk->scanned.outside = discovery_outside(discovery);

	return dirlist_each(discovery->options.roster.procfd, visit_name, walk);
}

/* ---- visit: cgroups ---- */

/* The container that the cgroup is, not one that it is in. A pending one is none yet: it comes again (containers_retry). */
static const struct container *own_container(struct discovery *discovery, const char *path)
{
	const struct container *container;
	bool own;

	if (!discovery->matcher->by_container ||
	    containers_find(discovery->options.roster.containers, path, discovery_pulse(discovery), &container, &own) !=
		    CONTAINERS_KNOWN)
		return NULL;

	return own ? container : NULL;
}

int discovery_sight_cgroup(struct discovery *discovery, const char *path)
{
	const struct container *container = own_container(discovery, path);
	int r = 0;

	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++)
		if (matcher_cgroup(discovery->matcher, i, path, container))
			r = roster_cgroup(discovery->roster, i, path, discovery->scan);

	return r;
}

static int visit_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;
	int r = discovery_step_aside(discovery);

	if (r < 0)
		return r;
	if (discovery->cgroups)
		cgroupwatch_add(discovery->cgroups, path);

	return discovery_sight_cgroup(discovery, path);
}

static int visit_cgroups(struct discovery *discovery)
{
	if (discovery->cgroups)
		cgroupwatch_begin(discovery->cgroups);

	int r = cgroup_walk(discovery->options.roster.mounts, visit_cgroup, discovery);

	if (r == 0 && discovery->cgroups)
		cgroupwatch_has_all(discovery->cgroups);

	return r;
}

/* ---- one scan ---- */

void discovery_refresh_limits(struct discovery *discovery, mono_t now)
{
	int64_t age = mono_diff(now, discovery->limits_read);
	uint64_t least = discovery->limits_cpu_ns * DISCOVERY_SHARE,
		 interval = discovery->config->sampling.limits_interval_ns;
	unsigned part = 0;

	if (!discovery->limits_due && age < (int64_t)(interval > least ? interval : least))
		return;

	uint64_t cpu = realclock_thread_cpu();

	discovery->limits_due = false;
	discovery->limits_read = now;
	while (!discovery->limits_due && roster_refresh_some_limits(discovery->roster, now, &part))
		discovery->limits_due = discovery_step_aside(discovery) < 0; /* given up: once more, then */
	discovery->limits_cpu_ns = realclock_thread_cpu() - cpu;
}

static int visit_all(struct discovery *discovery)
{
	int r = visit_processes(discovery);

	if (r == 0 && discovery->matcher->by_path)
		r = visit_cgroups(discovery);

	return r == -E2BIG ? 0 : r;
}

/* What the sampler gave back: many that end at once take their time. */
static void take_back(struct discovery *discovery)
{
	while (roster_fetch(discovery->roster)) {
		roster_settle(discovery->roster);
		discovery_overhear(discovery, discovery_show_life(discovery));
	}
}

int discovery_scan_locked(struct discovery *discovery)
{
	mono_t began = discovery_show_life(discovery);
	uint64_t cpu = realclock_thread_cpu();
	struct roster_counts counts;
	int r;

	discovery_hear(discovery, began);
	roster_counts(discovery->roster, &counts);
	discovery->rescan = discovery->again = false;
	discovery->scan++;
	discovery->processes = discovery->unreadable = discovery->unchanged = 0;
	take_back(discovery);
	roster_collect(discovery->roster);
	roster_reopen(discovery->roster);
	if (matcher_read_pidfiles(discovery->matcher))
		census_clear(discovery->census);
	baseline_scan_begin(discovery->options.baseline, began);
	matcher_scan_begin(discovery->matcher);
	following_begin(discovery->following);
	census_begin(discovery->census);
	r = visit_all(discovery);
	if (r < 0)
		census_clear(discovery->census); /* what it met it has not told everybody */
	if (r == -ECANCELED)
		return r;
	discovery->state.error = r;
	discovery->scan_cpu_ns =
		realclock_thread_cpu() - cpu; /* also of one that came to nothing: the next is as far from it */
	if (r < 0)
		return r == -EMFILE || r == -ENFILE ? 0 : r;

	discovery->again |= matcher_scan_end(discovery->matcher);
	baseline_scan_end(discovery->options.baseline);
	census_end(discovery->census);
	following_end(discovery->following);
	roster_sweep(discovery->roster, discovery->scan);
	containers_forget(discovery->options.roster.containers, began, discovery->config->sampling.rescan_interval_ns);
	discovery->state.processes = discovery->processes;
	discovery->state.unreadable = discovery->unreadable;
	discovery->state.unchanged = discovery->unchanged;
	discovery->state.scans++;
	discovery->scan_began = began;
	discovery->found_before = counts.found;
	discovery->state.last_scan_ns = (uint64_t)mono_diff(discovery_show_life(discovery), began);
	discovery->scan_cpu_ns = realclock_thread_cpu() - cpu;
	discovery_refresh_limits(discovery, began);

	return 0;
}
