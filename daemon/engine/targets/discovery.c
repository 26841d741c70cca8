/*
 * discovery.c: the thread, which scans (discovery_scan.c) and hears (discovery_news.c).
 *
 * One lock covers the target table, for the few questions that other threads ask. It is never held
 * while the thread sleeps, and the sampler never takes it. A scan holds it, but steps aside between
 * two processes (fair_mutex.h): a question waits for one process and not for a million. The files
 * of a process are read without it (outside.h). What comes in between may be another configuration:
 * then the scan is given up, as one that ran out of descriptors is, and the next begins at once.
 *
 * A read that hangs is not waited for at the end for ever, and who hangs may wake at any time. He
 * finds everything that he had: nothing of it is freed before he has ended, so there is no place
 * where he would have to look whether it still is. He sees that he is to stop, and ends. Rejected:
 * that he asks after each read whether he may go on. It is one question for each place, and one
 * that is forgotten is a use of freed memory.
 */
#include "daemon/engine/targets/discovery.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/cgroup_watch.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/matcher.h"
#include "daemon/engine/targets/process_news.h"
#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* ---- discovery_scan.c ---- */

static int discovery_step_aside(struct discovery *discovery);

/*
 * discovery_match.c: a process that was met, the entries that it is of, and those that it is of no
 * more.
 *
 * One that goes from one entry to another is read once more in between: up to there the group that
 * it leaves counts it, from there the one that it joins, so that nothing of its CPU time is counted
 * twice or by nobody. It is let go first: then it is out before it is in.
 */

/*
 * A process of an entry whose targets are cgroups stands for its cgroup; in the root cgroup it has
 * none of its own.
 */
static int sight_cgroup(struct discovery *discovery, size_t entry, const struct match_facts *facts)
{
	if (!facts->cgroup || strcmp(facts->cgroup, "/") == 0)
		return 0;

	return target_table_cgroup(discovery->target_table, entry, facts->cgroup, discovery->scan);
}

static struct target_table_sighting sighting_of(const struct process_facts *process_facts)
{
	const struct match_facts *facts = &process_facts->facts;

	return (struct target_table_sighting){
		.pid = facts->pid,
		.start_ticks = process_facts->stat.start_ticks,
		.arguments_at = process_facts->arguments_at,
		.comm = facts->comm,
		.cmdline = facts->cmdline ? facts->cmdline : "",
		.cgroup = facts->cgroup ? facts->cgroup : "",
	};
}

/* Its counters, as the sampler would read them; {0}: its CPU clock does not say. */
static struct sample counters_of(const struct discovery *discovery, const struct process_facts *process_facts)
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

/*
 * Whether it deserves a new target of an entry that it is of all the same. An entry by pid means
 * the process, whatever it runs.
 */
static bool is_other(const struct discovery *discovery, size_t entry, const struct process_facts *process_facts)
{
	return (discovery->config->targets[entry].selector > CONFIG_PIDFILE ||
		matcher_descends(discovery->matcher, entry, &process_facts->facts)) &&
	       target_table_was_other(discovery->target_table, entry, process_facts->facts.pid,
				      process_facts->stat.start_ticks, process_facts->facts.comm);
}

/* Whether it is watched for an entry as what it is now; it then counts as seen. */
static bool is_known(struct discovery *discovery, size_t entry, const struct process_facts *process_facts, bool changed)
{
	return !(changed && is_other(discovery, entry, process_facts)) &&
	       target_table_process_known(discovery->target_table, entry, process_facts->facts.pid,
					  process_facts->stat.start_ticks, discovery->scan);
}

/* It leaves the entries that it is of no more. True: there was one. */
static bool match_leave(struct discovery *discovery, const struct process_facts *process_facts, bool changed,
			const struct sample *now)
{
	struct target_table_sighting sighting = sighting_of(process_facts);
	bool left = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (!discovery->matcher->verdicts[i] || (changed && is_other(discovery, i, process_facts)))
			left |= target_table_unmatch(discovery->target_table, i, &sighting, now);

	return left;
}

/* meeting: what is said there, and whether it has ended meanwhile. */
static int match_join(struct discovery *discovery, struct process_facts *process_facts,
		      struct discovery_meeting *meeting, const struct sample *since)
{
	struct target_table_sighting sighting;
	int r = process_facts_ask(
		process_facts, MATCH_CMDLINE | MATCH_CGROUP); /* for the description, whether or not an entry asked */

	sighting = sighting_of(process_facts);
	sighting.whole = meeting->whole;
	sighting.since = since;
	for (size_t i = 0; r >= 0 && i < discovery->config->target_count; i++) {
		if (!discovery->matcher->verdicts[i] || discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			continue;
		sighting.descends = matcher_descends(discovery->matcher, i, &process_facts->facts);
		r = target_table_process(discovery->target_table, i, &sighting, discovery->scan);
		meeting->ended |= r == TARGET_TABLE_ENDED;
	}

	return r < 0 ? r : 0;
}

/*
 * A process that is watched for an entry was met again: what it is called is read anew if something
 * was heard of it, or it is seen to be another.
 */
static int recall(struct discovery *discovery, size_t entry, struct process_facts *process_facts, bool changed)
{
	struct target_table_sighting sighting = sighting_of(process_facts);

	if (!changed && !target_table_is_outdated(discovery->target_table, entry, &sighting))
		return 0;

	int r = process_facts_ask(process_facts, MATCH_CMDLINE | MATCH_CGROUP);

	if (r < 0)
		return r;

	sighting = sighting_of(process_facts);

	return target_table_describe(discovery->target_table, entry, &sighting);
}

int discovery_match(struct discovery *discovery, struct process_facts *process_facts, struct discovery_meeting *meeting)
{
	bool joins = false;
	int r = 0;

	matcher_meet(discovery->matcher, process_facts);
	matcher_judge(discovery->matcher, &process_facts->facts);
	meeting->watched = false;
	meeting->targets = 0;
	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++) {
		if (!discovery->matcher->verdicts[i])
			continue;
		meeting->watched = true;
		if (discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			r = sight_cgroup(discovery, i, &process_facts->facts);
		else if (!is_known(discovery, i, process_facts, meeting->changed))
			joins = true;
		else
			r = recall(discovery, i, process_facts, meeting->changed);
		meeting->targets += discovery->config->targets[i].per != CONFIG_PER_CGROUP;
	}
	if (r < 0 || (!joins && !meeting->changed))
		return r;

	struct sample now = counters_of(discovery, process_facts);
	bool left = match_leave(discovery, process_facts, meeting->changed, &now);

	return joins ? match_join(discovery, process_facts, meeting, left && now.mask ? &now : NULL) : 0;
}

/*
 * discovery_units.c: units by more than their cgroups' names: systemd is asked (unit_bus.h), by the
 * thread that scans, while an entry selects units.
 *
 * What it says only adds to what paths say: the targets are the same cgroups under the same keys,
 * whether or not there is a bus.
 */

/* Between two looks that find something. */
#define GAP_NS NS_PER_MS

/* A bus that comes and goes is spoken of once. */
#define CALM_NS (60 * NS_PER_S)

/* ---- what is heard ---- */

static bool runs(const struct unit *unit)
{
	return strcmp(unit->facts.active_state, "inactive") != 0 && strcmp(unit->facts.active_state, "failed") != 0;
}

/*
 * Its processes were met before it was known that they are its: if its names are not in their
 * paths, a scan finds them.
 */
static void on_changed(void *ctx, const struct unit *unit, bool started)
{
	struct discovery *discovery = ctx;

	if (!unit->cgroup || !runs(unit))
		return;

	discovery->again |= discovery_sight_cgroup(discovery, unit->cgroup) < 0;
	discovery->again |= started && unit->unlike;
}

struct search {
	const char *entry;
};

static int is_of_entry(void *ctx, struct target_table_target *target)
{
	const struct search *search = ctx;

	return target->what.kind != TARGET_GROUP && strcmp(target->what.entry, search->entry) == 0;
}

/*
 * The entry that selects by this name, unless it has targets: those of a user's own systemd, of
 * whom the machine's knows nothing.
 */
static const char *idle_entry(const struct discovery *discovery, const char *name)
{
	for (size_t i = 0; i < discovery->config->target_count; i++) {
		const struct config_target *entry = &discovery->config->targets[i];
		struct search search = { entry->name };

		if (entry->selector == CONFIG_UNIT && strcmp(entry->pattern, name) == 0 &&
		    !target_table_visit(discovery->target_table, is_of_entry, &search))
			return entry->name;
	}

	return NULL;
}

static void on_answered(void *ctx, const char *name, enum unit_bus_answer before, enum unit_bus_answer answer,
			const char *why)
{
	struct discovery *discovery = ctx;
	const char *entry = idle_entry(discovery, name);

	if (answer == UNIT_BUS_MISSING && entry)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "begin" },
			  "target %s: no unit %s: %s", entry, name, why);
	if (answer == UNIT_BUS_EXISTS && before == UNIT_BUS_MISSING)
		log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_UNIT_MISSING, .state = "end" },
			  "unit %s: it is there now", name);
}

static void speak(struct discovery *discovery, mono_t now)
{
	struct unit_bus_state state;

	unit_bus_state(discovery->units, &state);
	switch (condition_step(&discovery->units_lack, !state.connected && state.why[0] != '\0', now, CALM_NS)) {
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

void discovery_hear_units(struct discovery *discovery, mono_t now)
{
	if (!discovery->units || !rate_limit_is_over(&discovery->units_rest, now))
		return;

	discovery->units_heard = now;
	if (unit_bus_hear(discovery->units, now))
		rate_limit_found(&discovery->units_rest, GAP_NS, now);
	speak(discovery, now);
}

size_t discovery_await_units(const struct discovery *discovery, mono_t now, struct pollfd *ret, mono_t *until)
{
	bool may = rate_limit_is_over(&discovery->units_rest, now), polled;
	mono_t due = *until, least = may ? mono_add(discovery->units_heard, GAP_NS) : discovery->units_rest.until;

	if (!discovery->units)
		return 0;
	polled = unit_bus_await(discovery->units, now, ret, &due) && may;
	if (!may || mono_diff(least, due) > 0)
		due = least; /* what is due all the time is no reason to look all the time */
	if (mono_diff(*until, due) > 0)
		*until = due;

	return polled;
}

/* ---- what is asked for ---- */

/* Why this machine's systemd knows nothing of what is watched; NULL: it does. */
static const char *elsewhere(const struct discovery *discovery)
{
	if (!discovery->options.target_table.own_proc)
		return "proc_root is not this machine's own /proc";
	if (*discovery->config->cgroup_root)
		return "cgroup_root is set";

	return NULL;
}

static int want(struct discovery *discovery)
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

void discovery_ask_for_units(struct discovery *discovery)
{
	const char *why = elsewhere(discovery);
	struct unit_bus_options options = {
		.address = discovery->options.unit_bus,
		.peer = discovery->options.unit_bus != NULL,
		.changed = on_changed,
		.answered = on_answered,
		.ctx = discovery,
	};

	if (!discovery->units_due || discovery->rescan)
		return;

	snprintf(discovery->state.units.why, sizeof(discovery->state.units.why), "%s", why ? why : "");
	if (!why && !discovery->units && unit_bus_new(&options, &discovery->units) < 0)
		return; /* without memory: with the next scan */

	discovery->units_due = discovery->units && want(discovery) < 0;
	discovery->matcher->units = discovery->units ? unit_bus_units(discovery->units) : NULL;
}

/* ---- questions ---- */

/* Fills in what discovery_state says of them. */
static void discovery_units_state(const struct discovery *discovery, struct discovery_state *ret)
{
	if (discovery->units)
		unit_bus_state(discovery->units, &ret->units);
}

static void report(const struct unit *unit, struct unit_report *ret)
{
	*ret = (struct unit_report){ .facts = unit->facts };
	snprintf(ret->name, sizeof(ret->name), "%s", unit->names ? unit->names : "");
	snprintf(ret->cgroup, sizeof(ret->cgroup), "%s", unit->cgroup ? unit->cgroup : "");
}

bool discovery_unit(struct discovery *discovery, const char *cgroup, struct unit_report *ret)
{
	const struct unit *unit = NULL;

	fair_mutex_enter(&discovery->turn);
	if (discovery->units)
		unit = unit_table_of(unit_bus_units(discovery->units), cgroup);
	if (unit)
		report(unit, ret);
	fair_mutex_leave(&discovery->turn);

	return unit != NULL;
}

struct visit {
	struct discovery *discovery;
	const struct unit_visitor *visitor;
};

static void visit_unit(void *ctx, struct unit *unit)
{
	const struct visit *visit = ctx;
	struct unit_report reported;

	report(unit, &reported);
	if (reported.name[0])
		visit->visitor->unit(visit->visitor->ctx, &reported);
}

static void visit_missing(void *ctx, const char *name, enum unit_bus_answer answer, const char *why)
{
	const struct visit *visit = ctx;

	if (answer == UNIT_BUS_MISSING && idle_entry(visit->discovery, name))
		visit->visitor->missing(visit->visitor->ctx, name, why);
}

void discovery_visit_units(struct discovery *discovery, const struct unit_visitor *visitor)
{
	struct visit visit = { discovery, visitor };

	fair_mutex_enter(&discovery->turn);
	if (discovery->units) {
		unit_bus_visit(discovery->units, visit_missing, &visit);
		unit_table_visit(unit_bus_units(discovery->units), visit_unit, &visit);
	}
	fair_mutex_leave(&discovery->turn);
}

/*
 * discovery_ends.c: processes that ended, and what is left of them.
 *
 * Who came and went before he was looked at leaves only his exit record: name, parent, counters. It
 * is counted in a group whose entry selects by name, or, because a child is where its parent is, in
 * one that its parent is a member of and that selects by cgroup or unit; and if it did not execute
 * anything, in its parent's, whatever it selects by.
 *
 * News say a pid, and may be so late that it is another's. What is asked of /proc and of clocks
 * then is asked of him: so it is looked who has the pid, and whether he is about to end. An exit
 * record is whose it is, but not of somebody who lives.
 */

#define STAT_MAX 1024 /* 52 numbers and a name of 64 bytes at most */

/* Whether a process that nobody looked at was of this entry's group, from what is left of it. */
static bool was_of(const struct discovery *discovery, size_t entry, const struct procevent *end,
		   const struct newcomer *newcomer)
{
	const struct config_target *config = &discovery->config->targets[entry];
	struct match_facts facts = { .pid = end->pid, .comm = end->totals.comm };
	bool stays = config->selector >= CONFIG_CGROUP;
	bool same = newcomer->forked && !newcomer->executed;

	if (config->per != CONFIG_PER_GROUP)
		return false;
	if (matcher_was_in_tree(discovery->matcher, entry, end->pid, end->ppid))
		return true;
	if (config->selector == CONFIG_COMM)
		return matcher_process(discovery->matcher, entry, &facts);

	return (stays || same) && target_table_is_member(discovery->target_table, entry, end->ppid);
}

static void credit_unseen(struct discovery *discovery, const struct procevent *end, const struct newcomer *newcomer,
			  const struct sample *sample)
{
	bool credited = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (was_of(discovery, i, end, newcomer))
			credited |= target_table_credit(discovery->target_table, i, sample);
	discovery->state.credited += credited;
}

/* Who has a pid. */
struct holder {
	uint64_t start_ticks; /* 0: nobody */
	bool exiting;
};

static struct holder holder_of(const struct discovery *discovery, int32_t pid)
{
	char text[STAT_MAX];
	ssize_t len = proc_read_file(discovery->options.target_table.procfd, pid, "stat", text, sizeof(text));
	struct procfs_stat stat;

	if (len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return (struct holder){ 0 };

	return (struct holder){ .start_ticks = stat.start_ticks, .exiting = stat.exiting };
}

/*
 * Its exit record, to those that watched it. renamed: it may be watched under the name that it had
 * before. True: there was one.
 */
static bool end_watched(struct discovery *discovery, const struct procevent *end, bool renamed,
			const struct sample *counters)
{
	struct target_table_ending ending = { .pid = end->pid, .counters = *counters };

	if (!target_table_knows(discovery->target_table, end->pid))
		return false;

	struct holder holder = holder_of(discovery, end->pid);

	if (!end->totals.threads && !renamed)
		ending.comm = end->totals.comm; /* else it is the name of its last thread */
	if (!holder.exiting)
		ending.alive_ticks = holder.start_ticks;

	return target_table_end(discovery->target_table, &ending);
}

static void take_totals(struct discovery *discovery, const struct procevent *end, mono_t now)
{
	const struct procevent_totals *totals = &end->totals;
	struct discovery_news *news = discovery->news;
	struct newcomer *newcomer = recent_pids_find(news->recent_pids, end->pid);
	bool met = newcomer && newcomer->state == NEWCOMER_MET;
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, totals->cpu_ns);
	sample_set(&sample, SAMPLE_CPU_USER, totals->user_ns);
	sample_set(&sample, SAMPLE_CPU_SYSTEM, totals->system_ns);
	sample_set(&sample, SAMPLE_MINOR_FAULTS, totals->minor_faults);
	sample_set(&sample, SAMPLE_MAJOR_FAULTS, totals->major_faults);
	met = end_watched(discovery, end, newcomer && newcomer->renamed, &sample) || met;
	if (newcomer && newcomer->state == NEWCOMER_GONE)
		met = met || !newcomer->missed; /* it was met before it ended */
	newcomer = recent_pids_ended(news->recent_pids, end->pid, now);
	/* An older one was met by a scan, and did not match. */
	if (!met && totals->elapsed_ns < (uint64_t)mono_diff(now, discovery->scan_began))
		credit_unseen(discovery, end, newcomer, &sample);
}

/* Of a member the CPU time, if it can still be had: exit records do not come from everywhere. */
static void take_exit(struct discovery *discovery, int32_t pid, mono_t now)
{
	struct target_table_ending ending = { .pid = pid };
	uint64_t cpu_ns;

	recent_pids_ended(discovery->news->recent_pids, pid, now);
	if (process_listener_has_totals(discovery->news->listener) || !target_table_knows(discovery->target_table, pid))
		return;

	cpu_ns = real_clock_cpu_of(real_clock_of(pid));
	if (cpu_ns == 0)
		return;

	struct holder holder = holder_of(discovery, pid); /* after its clock: it was his */

	if (!holder.exiting)
		return;
	ending.start_ticks = holder.start_ticks;
	sample_set(&ending.counters, SAMPLE_CPU, cpu_ns);
	target_table_end(discovery->target_table, &ending);
}

void discovery_take_end(struct discovery *discovery, const struct procevent *end, mono_t now)
{
	if (end->kind == PROCEVENT_TOTALS) {
		take_totals(discovery, end, now);
		return;
	}
	matcher_ended(discovery->matcher, end->pid);
	take_exit(discovery, end->pid, now);
}

/*
 * discovery_scan.c: prepare / visit / sweep. Facts about a process are read lazily, only those that
 * some entry needs: most hosts name their processes by comm, which costs one small file each. A
 * process whose CPU clock says that it has not run since the scan before is what it was, and is not
 * looked at (process_cache.h): a tenth of the price.
 */

/* ---- visit: processes ---- */

/*
 * Whether a process is in a cgroup that is a target by its path. Not asked for processes that
 * sleep.
 */
static bool in_watched_cgroup(struct discovery *discovery, struct process_facts *process_facts)
{
	const struct matcher *matcher = discovery->matcher;

	return matcher->by_path &&
	       process_facts_ask(process_facts,
				 matcher->by_container ? MATCH_CGROUP | MATCH_CONTAINER : MATCH_CGROUP) == 0 &&
	       process_facts->facts.cgroup &&
	       matcher_any_cgroup(matcher, process_facts->facts.cgroup, process_facts->facts.container);
}

/* ---- visit: processes that have not run ---- */

/*
 * Whether what is looked for in a process changes only when it runs. It may be moved to another
 * cgroup in its sleep; and who descends from whom is told by looking.
 */
static bool may_skip(const struct discovery *discovery)
{
	return discovery->options.target_table.own_proc && !(discovery->matcher->needs & MATCH_CGROUP) &&
	       !discovery->matcher->by_container && !discovery->matcher->process_tree;
}

/* True: it has not run since it was looked at, and that is enough. */
static bool skip_process(struct discovery *discovery, int32_t pid, uint64_t cpu_ns)
{
	const struct process_cache_record *record = process_cache_meet(discovery->process_cache, pid, cpu_ns);

	if (!record || baseline_owes(discovery->options.baseline, pid) ||
	    target_table_watches(discovery->target_table, pid, record->start_ticks) != record->watches)
		return false;

	struct procfs_stat stat = { .pid = pid, .start_ticks = record->start_ticks, .user_ticks = record->cpu_ticks };

	discovery->unchanged++;
	target_table_still(discovery->target_table, pid, record->start_ticks, discovery->scan);
	baseline_met(discovery->options.baseline, &stat);
	baseline_unchanged(discovery->options.baseline, &stat);
	thread_selection_met(discovery->thread_selection, &stat, false);

	return true;
}

/*
 * It was looked at; unless there is something left to be done the next scan need not do so again.
 */
static void remember(struct discovery *discovery, const struct procfs_stat *stat, uint64_t cpu_ns, size_t targets)
{
	struct process_cache_record record = {
		.pid = stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = stat->user_ticks + stat->system_ticks,
		.cpu_ns = cpu_ns,
		.watches = targets,
	};

	if (cpu_ns > 0 && !discovery->rescan &&
	    target_table_watches(discovery->target_table, stat->pid, stat->start_ticks) == targets)
		process_cache_enter(discovery->process_cache, &record);
}

/* ---- visit: the others ---- */

/*
 * What cannot be looked at is counted and passed over; being out of descriptors or memory ends the
 * scan.
 */
static int visit_process(struct discovery *discovery, int32_t pid, struct process_facts *process_facts)
{
	struct discovery_meeting meeting = { 0 };
	uint64_t cpu_ns = may_skip(discovery) ? real_clock_cpu_of(real_clock_of(pid)) : 0;
	int r;

	discovery->processes++;
	if (skip_process(discovery, pid, cpu_ns))
		return 0;

	process_facts->now = discovery_pulse(discovery);
	r = process_facts_meet(process_facts, pid);
	if (r == 0)
		r = process_facts_ask(process_facts, discovery->matcher->needs);
	if (r < 0) {
		discovery->unreadable += !process_facts_starved(r) && r != -ESRCH;
		return process_facts_starved(r) ? r : 0;
	}

	r = discovery_match(discovery, process_facts, &meeting);
	if (r < 0)
		return r;

	bool ran = baseline_met(discovery->options.baseline, &process_facts->stat);
	bool watched = meeting.watched || (ran && in_watched_cgroup(discovery, process_facts));

	thread_selection_met(discovery->thread_selection, &process_facts->stat, watched);
	if (watched)
		baseline_watched(discovery->options.baseline, &process_facts->stat, ran);
	else
		baseline_unchanged(discovery->options.baseline, &process_facts->stat);
	remember(discovery, &process_facts->stat, cpu_ns, meeting.targets);

	return 0;
}

/* The scan of /proc: what directory_list_each hands on. */
struct walk {
	struct discovery *discovery;
	struct process_facts process_facts;
};

static int visit_name(void *ctx, const char *name)
{
	struct walk *walk = ctx;
	int32_t pid = proc_read_pid_of(name);
	int r = discovery_step_aside(walk->discovery);

	if (r < 0)
		return r;

	return pid ? visit_process(walk->discovery, pid, &walk->process_facts) : 0;
}

static int visit_processes(struct discovery *discovery)
{
	AUTO_FREE struct walk *walk = malloc(sizeof *walk);

	if (!walk)
		return -ENOMEM;

	walk->discovery = discovery;
	walk->process_facts.procfd = discovery->options.target_table.procfd;
	walk->process_facts.mounts = discovery->options.target_table.mounts;
	walk->process_facts.containers = discovery->options.target_table.containers;
	walk->process_facts.unlocked_section = discovery_outside(discovery);

	return directory_list_each(discovery->options.target_table.procfd, visit_name, walk);
}

/* ---- visit: cgroups ---- */

/*
 * The container that the cgroup is, not one that it is in. A pending one is none yet: it comes
 * again (containers_retry).
 */
static const struct container *own_container(struct discovery *discovery, const char *path)
{
	const struct container *container;
	bool own;

	if (!discovery->matcher->by_container ||
	    containers_find(discovery->options.target_table.containers, path, discovery_pulse(discovery), &container,
			    &own) != CONTAINERS_KNOWN)
		return NULL;

	return own ? container : NULL;
}

int discovery_sight_cgroup(struct discovery *discovery, const char *path)
{
	const struct container *container = own_container(discovery, path);
	int r = 0;

	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++)
		if (matcher_cgroup(discovery->matcher, i, path, container))
			r = target_table_cgroup(discovery->target_table, i, path, discovery->scan);

	return r;
}

static int visit_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;
	int r = discovery_step_aside(discovery);

	if (r < 0)
		return r;
	if (discovery->cgroups)
		cgroup_watch_add(discovery->cgroups, path);

	return discovery_sight_cgroup(discovery, path);
}

static int visit_cgroups(struct discovery *discovery)
{
	if (discovery->cgroups)
		cgroup_watch_begin(discovery->cgroups);

	int r = cgroup_walk(discovery->options.target_table.mounts, visit_cgroup, discovery);

	if (r == 0 && discovery->cgroups)
		cgroup_watch_has_all(discovery->cgroups);

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

	uint64_t cpu = real_clock_thread_cpu();

	discovery->limits_due = false;
	discovery->limits_read = now;
	while (!discovery->limits_due && target_table_refresh_some_limits(discovery->target_table, now, &part))
		discovery->limits_due = discovery_step_aside(discovery) < 0; /* given up: once more, then */
	discovery->limits_cpu_ns = real_clock_thread_cpu() - cpu;
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
	while (target_table_fetch(discovery->target_table)) {
		target_table_settle(discovery->target_table);
		discovery_overhear(discovery, discovery_show_life(discovery));
	}
}

/* As discovery_scan, or -ECANCELED. */
static int discovery_scan_locked(struct discovery *discovery)
{
	mono_t began = discovery_show_life(discovery);
	uint64_t cpu = real_clock_thread_cpu();
	struct target_table_counts counts;
	int r;

	discovery_hear(discovery, began);
	target_table_counts(discovery->target_table, &counts);
	discovery->rescan = discovery->again = false;
	discovery->scan++;
	discovery->processes = discovery->unreadable = discovery->unchanged = 0;
	take_back(discovery);
	target_table_collect(discovery->target_table);
	target_table_reopen(discovery->target_table);
	if (matcher_read_pidfiles(discovery->matcher))
		process_cache_clear(discovery->process_cache);
	baseline_scan_begin(discovery->options.baseline, began);
	matcher_scan_begin(discovery->matcher);
	thread_selection_begin(discovery->thread_selection);
	process_cache_begin(discovery->process_cache);
	r = visit_all(discovery);
	if (r < 0)
		process_cache_clear(discovery->process_cache); /* what it met it has not told everybody */
	if (r == -ECANCELED)
		return r;
	discovery->state.error = r;
	discovery->scan_cpu_ns =
		real_clock_thread_cpu() - cpu; /* also of one that came to nothing: the next is as far from it */
	if (r < 0)
		return r == -EMFILE || r == -ENFILE ? 0 : r;

	discovery->again |= matcher_scan_end(discovery->matcher);
	baseline_scan_end(discovery->options.baseline);
	process_cache_end(discovery->process_cache);
	thread_selection_end(discovery->thread_selection);
	target_table_sweep(discovery->target_table, discovery->scan);
	containers_forget(discovery->options.target_table.containers, began,
			  discovery->config->sampling.rescan_interval_ns);
	discovery->state.processes = discovery->processes;
	discovery->state.unreadable = discovery->unreadable;
	discovery->state.unchanged = discovery->unchanged;
	discovery->state.scans++;
	discovery->scan_began = began;
	discovery->found_before = counts.found;
	discovery->state.last_scan_ns = (uint64_t)mono_diff(discovery_show_life(discovery), began);
	discovery->scan_cpu_ns = real_clock_thread_cpu() - cpu;
	discovery_refresh_limits(discovery, began);

	return 0;
}

/* How long it is waited for the thread to stop: far longer than any read that ends. */
#define STOP_NS (5 * NS_PER_S)

/* How long the thread shows no sign of life while it waits. */
#define PULSE_NS NS_PER_S

/*
 * Where all is heard of, scans take no more than one part in so many of a core, but are not longer
 * apart than so many rescan intervals: captures compare with what a scan has seen.
 */
#define CALM_SHARE 500u
#define CALM_STRETCH 10u

/* The pause before the next scan when the queue to the sampler was full: a few of its ticks. */
#define RETRY_NS (100 * NS_PER_MS)

/* ---- while it runs ---- */

mono_t discovery_show_life(struct discovery *discovery)
{
	struct clock clock = real_clock();
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
	discovery_show_life(ctx);
}

/*
 * Between two steps of a scan: everything may be different afterwards. 0; -ECANCELED: the scan is
 * to be given up.
 */
static int discovery_step_aside(struct discovery *discovery)
{
	discovery_overhear(discovery, discovery_show_life(discovery));
	fair_mutex_yield(&discovery->turn);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

static void leave(void *ctx, int32_t pid)
{
	struct discovery *discovery = ctx;

	atomic_store_explicit(&discovery->reading, pid, memory_order_relaxed);
	fair_mutex_leave(&discovery->turn);
}

static int enter(void *ctx)
{
	struct discovery *discovery = ctx;

	fair_mutex_enter(&discovery->turn);
	atomic_store_explicit(&discovery->reading, 0, memory_order_relaxed);

	return discovery->rescan || discovery->stop ? -ECANCELED : 0;
}

struct unlocked_section discovery_outside(const struct discovery *discovery)
{
	return (struct unlocked_section){ .leave = leave, .enter = enter, .ctx = (void *)(uintptr_t)discovery };
}

/* Makes an eventfd readable. */
static void ring(int fd)
{
	uint64_t once = 1;

	(void)!write(fd, &once, sizeof(once)); /* what is full already wakes too */
}

static void wake(struct discovery *discovery)
{
	ring(discovery->wake_fd);
}

/* ---- build ---- */

int discovery_new(const struct discovery_options *options, struct discovery **ret)
{
	struct discovery *discovery = calloc(1, sizeof *discovery);
	int r;

	if (!discovery)
		return -ENOMEM;

	discovery->options = *options;
	discovery->options.target_table.alive = on_alive;
	discovery->options.target_table.alive_ctx = discovery;
	discovery->config = options->target_table.config;
	discovery->limits_due = discovery->units_due = true;
	discovery_show_life(discovery);
	fair_mutex_init(&discovery->turn);
	baseline_set_outside(options->baseline, discovery_outside(discovery));
	discovery->first = DISCOVERY_SCANNING;
	discovery->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	discovery->first_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = discovery->wake_fd < 0 || discovery->first_fd < 0 ? -errno : 0;
	if (r == 0)
		r = process_cache_new(&discovery->process_cache);
	if (r == 0)
		r = matcher_new(discovery->config, &discovery->matcher);
	if (r == 0)
		r = target_table_new(&discovery->options.target_table, &discovery->target_table);
	if (r == 0 && options->follow)
		r = thread_selection_new(options->follow, options->follow_ctx, &discovery->thread_selection);
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

	if (!discovery_stop(discovery))
		return;
	discovery_tune_out(discovery);
	unit_bus_free(discovery->units);
	target_table_free(discovery->target_table);
	matcher_free(discovery->matcher);
	thread_selection_free(discovery->thread_selection);
	process_cache_free(discovery->process_cache);
	if (discovery->wake_fd >= 0)
		close(discovery->wake_fd);
	if (discovery->first_fd >= 0)
		close(discovery->first_fd);
	fair_mutex_release(&discovery->turn);
	free(discovery);
}

int discovery_reload(struct discovery *discovery, const struct config *config)
{
	AUTO(matcher_freep) struct matcher *matcher = NULL;
	int r = matcher_new(config, &matcher);

	if (r < 0)
		return r;

	fair_mutex_enter(&discovery->turn);
	r = target_table_reload(discovery->target_table, config);
	if (r == 0) {
		struct matcher *before = discovery->matcher;

		matcher_succeed(matcher, before);
		discovery->matcher = matcher;
		matcher = before; /* which is freed while its configuration is still there */
		discovery->config = config;
		discovery->options.target_table.config = config;
		baseline_set_maps(discovery->options.baseline, config->incidents.captures & CONFIG_CAPTURE_SMAPS);
		thread_selection_forget(discovery->thread_selection);
		process_cache_clear(discovery->process_cache);
		discovery->limits_due = discovery->units_due = true;
		discovery->rescan = true;
		wake(discovery);
	}
	fair_mutex_leave(&discovery->turn);

	return r;
}

int discovery_scan(struct discovery *discovery)
{
	int r;

	fair_mutex_enter(&discovery->turn);
	do {
		r = discovery_scan_locked(discovery);
	} while (r == -ECANCELED);
	fair_mutex_leave(&discovery->turn);

	return r;
}

/* ---- the thread ---- */

/*
 * Whether the next scan is only the safety net: all that it could find is heard of, nobody is
 * waiting for room, and nobody has come who has yet to be compared with what he was before.
 */
static bool is_safety_net(const struct discovery *discovery)
{
	const struct matcher *matcher = discovery->matcher;
	struct target_table_counts counts;

	target_table_counts(discovery->target_table, &counts);

	return discovery->news && !discovery->state.held_off && !matcher->unannounced && !discovery->state.error &&
	       (!matcher->by_path || (discovery->cgroups && cgroup_watch_hears_all(discovery->cgroups))) &&
	       counts.refused == 0 && counts.failed == 0 && counts.found == discovery->found_before;
}

static uint64_t pause_before_scan(const struct discovery *discovery)
{
	uint64_t pause = discovery->config->sampling.rescan_interval_ns, most = CALM_STRETCH * pause;
	uint64_t least = discovery->scan_cpu_ns * DISCOVERY_SHARE, calm = discovery->scan_cpu_ns * CALM_SHARE;

	calm = calm < most ? calm : most;
	if (calm > pause && is_safety_net(discovery))
		pause = calm;
	if (discovery->again)
		pause = 0;
	if (target_table_owes(discovery->target_table) && pause > RETRY_NS)
		pause = RETRY_NS;

	return pause > least ? pause : least;
}

/* Sleeps, with the lock released, until there is something to hear, or until then. */
static void sleep_unlocked(struct discovery *discovery, mono_t now, mono_t until)
{
	struct pollfd fds[DISCOVERY_FDS];
	size_t count = discovery_await(discovery, now, fds, &until);
	uint64_t wait_ns = mono_diff(until, now) > 0 ? (uint64_t)mono_diff(until, now) : 0, calls;
	struct timespec wait = { .tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S) };

	fair_mutex_leave(&discovery->turn);
	if (ppoll(fds, count, &wait, NULL) > 0 && fds[0].revents)
		(void)!read(discovery->wake_fd, &calls, sizeof(calls));
	fair_mutex_enter(&discovery->turn);
}

/* Until the next scan is due or the thread is to stop; in slices, which show that it lives. */
static void wait_locked(struct discovery *discovery)
{
	mono_t began = discovery_show_life(discovery);

	for (mono_t now = began;; now = discovery_show_life(discovery)) {
		mono_t due = mono_add(began, pause_before_scan(discovery)), sample_window = mono_add(now, PULSE_NS);

		if (discovery->stop || discovery->rescan || mono_diff(due, now) <= 0)
			return;
		discovery_hear(discovery, now);
		discovery_refresh_limits(discovery, now);
		sleep_unlocked(discovery, now, mono_diff(due, sample_window) < 0 ? due : sample_window);
	}
}

/* A scan of the thread came to its end, or was given up. */
static void note_first(struct discovery *discovery, int result)
{
	if (discovery->first != DISCOVERY_SCANNING || result == -ECANCELED)
		return;

	discovery->first = result;
	ring(discovery->first_fd);
}

/*
 * A scan that nobody interrupts with news; who comes meanwhile is found by the next, which is
 * heard.
 */
static void seek(struct discovery *discovery)
{
	int r = discovery_scan_locked(discovery);

	if (!discovery->stop)
		discovery_tune_in(discovery);
	note_first(discovery, r);
}

static void *run(void *argument)
{
	struct discovery *discovery = argument;

	prctl(PR_SET_NAME, "discovery");
	fair_mutex_enter(&discovery->turn);
	if (!discovery->tuned)
		seek(discovery);
	while (!discovery->stop) {
		discovery_tune_in(discovery);
		note_first(discovery, discovery_scan_locked(discovery));
		/* One that failed is tried again: nothing was swept by it. */
		discovery_ask_for_units(discovery);
		wait_locked(discovery);
	}
	fair_mutex_leave(&discovery->turn);

	return NULL;
}

int discovery_seek(struct discovery *discovery)
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

int discovery_start(struct discovery *discovery)
{
	if (discovery->running)
		return 0;

	/* Whoever starts something now is heard of: see discovery.h. */
	fair_mutex_enter(&discovery->turn);
	discovery_tune_in(discovery);
	fair_mutex_leave(&discovery->turn);

	return discovery_seek(discovery);
}

/* Waits for the thread to end; for one that did not in time, no longer. True: it has ended. */
static bool join(struct discovery *discovery)
{
	struct clock clock = real_clock();
	uint64_t wait_ns = discovery->config->stuck_ns ? discovery->config->stuck_ns : STOP_NS;
	wall_t until = { clock_wall(&clock).ns + wait_ns };
	struct timespec deadline = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (discovery->abandoned)
		return pthread_tryjoin_np(discovery->thread, NULL) == 0;
	if (pthread_timedjoin_np(discovery->thread, NULL, &deadline) == 0)
		return true;

	log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "discovery" },
		  "looking for targets hangs in a read of /proc: it is not waited for");

	return false;
}

bool discovery_stop(struct discovery *discovery)
{
	if (!discovery->running)
		return true;

	discovery->stop = true;
	wake(discovery);
	discovery->abandoned = !join(discovery);
	discovery->running = discovery->stop = discovery->abandoned;

	return !discovery->abandoned;
}

/* ---- questions of other threads ---- */

int discovery_first_fd(const struct discovery *discovery)
{
	return discovery->first_fd;
}

int discovery_first(const struct discovery *discovery)
{
	return discovery->first;
}

int32_t discovery_reading(const struct discovery *discovery)
{
	return atomic_load_explicit(&discovery->reading, memory_order_relaxed);
}

size_t discovery_pids(struct discovery *discovery, uint32_t target_id, int32_t *pids, size_t cap)
{
	fair_mutex_enter(&discovery->turn);
	size_t count = target_table_query_pids(discovery->target_table, target_id, pids, cap);
	fair_mutex_leave(&discovery->turn);

	return count;
}

bool discovery_limits(struct discovery *discovery, uint32_t target_id, struct cgroup_limits *ret)
{
	fair_mutex_enter(&discovery->turn);
	bool found = target_table_query_limits(discovery->target_table, target_id, ret);
	fair_mutex_leave(&discovery->turn);

	return found;
}

void discovery_baselines(struct discovery *discovery, int32_t pid, struct thread_baseline *ret_threads,
			 struct maps_snapshot **ret_maps)
{
	fair_mutex_enter(&discovery->turn);
	baseline_copy(discovery->options.baseline, pid, ret_threads, ret_maps);
	fair_mutex_leave(&discovery->turn);
}

int discovery_busy(struct discovery *discovery, struct busy_snapshot *ret)
{
	fair_mutex_enter(&discovery->turn);
	int r = baseline_copy_busy(discovery->options.baseline, ret);
	fair_mutex_leave(&discovery->turn);

	return r;
}

static void count_unlabelled(const struct discovery *discovery, struct discovery_state *ret)
{
	int error = 0;

	ret->unlabelled = discovery->matcher->by_label && discovery->options.target_table.containers
				  ? containers_unlabelled(discovery->options.target_table.containers, &error)
				  : 0;
	ret->unlabelled_why =
		error == 0 || error == -ENOENT ? "no file that would have them is there" : strerror(-error);
}

void discovery_state(struct discovery *discovery, struct discovery_state *ret)
{
	fair_mutex_enter(&discovery->turn);
	*ret = discovery->state;
	ret->reading = discovery_reading(discovery);
	ret->scan_interval_ns = pause_before_scan(discovery);
	target_table_counts(discovery->target_table, &ret->target_table);
	discovery_news_state(discovery, ret);
	discovery_units_state(discovery, ret);
	count_unlabelled(discovery, ret);
	fair_mutex_leave(&discovery->turn);
}
