/*
 * roster.c: a hash table from identity to target, and the two queues to the sampler.
 *
 * An entry is known by a number of its own, not by its place in the configuration: a target of an entry that changed and its successor, which may be
 * the same process, never meet in the table.
 *
 * The queue is in order, and so are the answers. A member whose removal was asked for before its group's is back before it; and a place that
 * was asked for is free before a newcomer that was queued later is added.
 */
#include "roster.h"

#include "descriptors.h"
#include "realclock.h"
#include "roster_inside.h"
#include "roster_limits.h"
#include "roster_tiers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life and death ---- */

static size_t *count_of(struct roster *roster, const struct roster_target *target)
{
	return target->group ? &roster->counts.members : &roster->counts.targets;
}

static void enter(struct roster *roster, struct roster_target *target)
{
	roster_table_enter(&roster->table, target);
	roster->counts.found++;
	roster->counts.processes += target->what.kind == TARGET_PROCESS;
	*count_of(roster, target) += 1;
}

static void forget(struct roster *roster, struct roster_target *target)
{
	roster_table_remove(&roster->table, target);
	roster_limits_release(roster, target);
	roster->counts.left++;
	roster->counts.processes -= target->what.kind == TARGET_PROCESS;
	roster->counts.leaving -= target->leaving;
	*count_of(roster, target) -= 1;
	roster_target_free(target);
}

/* A new one, met by this scan. */
static void number(struct roster *roster, struct roster_target *target, uint64_t scan)
{
	target->what.id = ++roster->numbers.target;
	target->reading = roster->reading;
	target->seen = scan;
}

/* Lends an opened target to the sampler and enters it into the table; if the queue is full the next scan meets it again. 0; -ENOMEM. */
static int watch(struct roster *roster, struct roster_target *target)
{
	int r = target->group ? 0 : sampler_target_describe(&target->sampled, &target->what);

	roster_limits_apply(target);
	roster_tiers_need(roster, target);
	if (r < 0 || !samplers_add(roster->options.samplers, &target->sampled)) {
		roster_limits_release(roster, target);
		roster_target_free(target);
		roster->crowded |= r == 0;
		return r;
	}
	enter(roster, target);

	return 0;
}

bool roster_ask_back(struct roster *roster, struct roster_target *target)
{
	target->leaving = samplers_remove(roster->options.samplers, &target->sampled);
	roster->counts.leaving += target->leaving;
	roster->crowded |= !target->leaving;

	return target->leaving;
}

/* Those that were asked back have made room before a newcomer is at the head of the queue. */
static bool room_left(struct roster *roster)
{
	const struct roster_counts *counts = &roster->counts;

	if (counts->targets + counts->members - counts->leaving < roster->options.config->sampling.max_targets)
		return true;

	roster->refused++;

	return false;
}

/* Opening a target failed: a process that ended meanwhile is nothing to speak of. */
static int opening_failed(struct roster *roster, int error)
{
	if (error == -ESRCH || error == -ENOENT)
		return ROSTER_ENDED;

	roster->starved |= error == -EMFILE || error == -ENFILE;
	roster->failed++;
	roster->counts.last_error = error;

	return error == -ENOMEM ? error : 0;
}

/* Watches a target, unless opening it failed (r). */
static int watch_opened(struct roster *roster, struct roster_target *target, int r)
{
	if (r < 0) {
		roster_target_free(target);
		return opening_failed(roster, r);
	}

	r = roster_limits_read(roster, target);
	if (r < 0) {
		roster_target_free(target);
		return r;
	}

	return watch(roster, target);
}

/*
 * Whether a new one, of a group or not, may be opened now. Nothing comes before what is owed, so that the successor of one that has to leave is
 * behind it in the queue. After the first in a scan that found no descriptors, not even for a moment, nobody else is tried.
 */
static bool may_open(struct roster *roster, const struct roster_target *group)
{
	if (roster->owing || (group && group->unlent)) {
		roster->crowded = true;
		return false;
	}
	if (!room_left(roster))
		return false;
	if (roster->starved)
		opening_failed(roster, -EMFILE);

	return !roster->starved;
}

/* ---- what is owed ---- */

struct dismissal {
	struct roster *roster;
	bool groups; /* only them, or all others */
};

static int dismiss(void *ctx, struct roster_target *target)
{
	const struct dismissal *dismissal = ctx;

	if (!target->entry->dismissed || target->leaving || (target->what.kind == TARGET_GROUP) != dismissal->groups)
		return 0;

	return roster_ask_back(dismissal->roster, target) ? 0 : -EAGAIN;
}

static void lend_groups(struct roster *roster)
{
	for (size_t i = 0; i < roster->list.count; i++) {
		struct roster_target *group = roster->list.entries[i]->group;

		if (!group || !group->unlent)
			continue;
		group->unlent = !samplers_add(roster->options.samplers, &group->sampled);
		roster->owing |= group->unlent;
		roster->crowded |= group->unlent;
	}
}

/* Those whose entry is no more are asked back, groups only when all their members are; then groups are lent that are not yet. */
static void settle_debts(struct roster *roster)
{
	if (!roster->owing)
		return;

	struct dismissal members = { roster, false }, groups = { roster, true };

	roster->owing = roster_table_visit(&roster->table, dismiss, &members) < 0 ||
			roster_table_visit(&roster->table, dismiss, &groups) < 0;
	if (!roster->owing)
		lend_groups(roster);
}

/* What it had used by its end counts in its group. */
static void credit(const struct roster_target *target)
{
	struct sample end = { 0 };

	sum_kept(&target->end, &end);
	source_entry_credit(target->group->sampled.entry, target->sampled.entry, &end);
}

void roster_take_back(struct roster *roster, struct roster_target *target, enum sampler_return why)
{
	if (why == SAMPLER_REFUSED)
		roster->refused++;
	if (why != SAMPLER_REMOVED && target->leaving)
		return; /* the answer to our own request is still to come */
	if (why == SAMPLER_REFUSED && target->what.kind == TARGET_GROUP) {
		target->unlent = roster->owing = true; /* there will be room when others have left */
		return;
	}

	if (target->ended) {
		roster->ended--;
		if (target->group && why != SAMPLER_REFUSED)
			credit(target);
	}
	forget(roster, target);
}

void roster_collect(struct roster *roster)
{
	roster->refused = roster->failed = 0;
	roster->starved = roster->crowded = false;
	roster_settle(roster);
	while (roster_fetch(roster))
		roster_settle(roster);
	settle_debts(roster);
}

bool roster_owes(const struct roster *roster)
{
	return roster->owing || roster->crowded;
}

/* ---- sightings ---- */

bool roster_process_known(struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks, uint64_t scan)
{
	struct roster_target *target =
		roster_table_process(&roster->table, roster->list.entries[entry], pid, start_ticks);

	if (target)
		target->seen = scan;

	return target != NULL;
}

const struct container *roster_container_of(const struct roster *roster, const char *cgroup)
{
	struct clock clock = realclock();
	const struct container *container;
	bool own;

	return containers_find(roster->options.containers, cgroup, clock_mono(&clock), &container, &own) ==
			       CONTAINERS_NONE
		       ? NULL
		       : container;
}

int roster_process(struct roster *roster, size_t entry, const struct roster_sighting *seen, uint64_t scan)
{
	struct roster_target *group = roster->list.entries[entry]->group, *target;

	if (roster_process_known(roster, entry, seen->pid, seen->start_ticks, scan) || !may_open(roster, group))
		return 0;

	target = roster_target_process(roster->list.entries[entry], &roster->options.config->targets[entry], seen,
				       roster_container_of(roster, seen->cgroup));
	if (!target)
		return -ENOMEM;

	number(roster, target, scan);
	target->group = group;
	target->sampled.group = group ? &group->sampled : NULL;

	bool cold = roster_tiers_newcomer(roster);
	int r = (cold ? source_entry_process_cold : source_entry_process)(roster->options.procfd, seen->pid,
									  seen->start_ticks, roster->options.own_proc,
									  &target->sampled, &target->sampled.entry);

	if (r == 0 && !roster_target_is_called(roster->options.procfd, seen)) {
		roster_target_free(target);
		return 0; /* there will be news of him, or another scan */
	}
	roster->counts.cold += cold && r == 0;
	if (r == 0 && seen->since)
		source_entry_set_since(target->sampled.entry, seen->since);
	else if (r == 0 && seen->whole)
		source_entry_set_whole(target->sampled.entry);
	if (r == 0 && target->names_group)
		r = roster_describe_anew(roster, group, seen);

	return watch_opened(roster, target, r);
}

int roster_cgroup(struct roster *roster, size_t entry, const char *path, uint64_t scan)
{
	struct roster_target *target = roster_table_cgroup(&roster->table, roster->list.entries[entry], path);

	if (target) {
		target->seen = scan;
		return 0;
	}
	if (!may_open(roster, NULL))
		return 0;
	if (descriptors_short(roster->options.procfd)) {
		roster_tiers_refused(roster);
		roster->failed++;
		roster->counts.last_error = -EMFILE;
		return 0;
	}

	target = roster_target_cgroup(roster->list.entries[entry], &roster->options.config->targets[entry], path,
				      roster_container_of(roster, path));
	if (!target)
		return -ENOMEM;

	number(roster, target, scan);

	int r = source_entry_cgroup(roster->options.mounts, path, &target->sampled, &target->sampled.entry);

	r = watch_opened(roster, target, r);

	return r < 0 ? r : 0;
}

struct sweep {
	struct roster *roster;
	uint64_t scan;
};

static int sweep_one(void *ctx, struct roster_target *target)
{
	const struct sweep *sweep = ctx;

	if (target->what.kind != TARGET_GROUP && !target->leaving && target->seen != sweep->scan)
		roster_ask_back(sweep->roster, target);

	return 0;
}

void roster_sweep(struct roster *roster, uint64_t scan)
{
	struct sweep sweep = { .roster = roster, .scan = scan };

	roster->counts.refused = roster->refused;
	roster->counts.failed = roster->failed;
	roster->refused = roster->failed = 0;
	roster_table_visit(&roster->table, sweep_one, &sweep);
	roster_tiers_balance(roster);
}

static void say_alive(const struct roster *roster)
{
	if (roster->options.alive)
		roster->options.alive(roster->options.alive_ctx);
}

static int reopen_one(void *ctx, struct roster_target *target)
{
	struct roster *roster = ctx;
	const struct config_sampling *sampling = &roster->options.config->sampling;
	struct source_options wanted = {
		.peak_interval_ns = sampling->peak_interval_ns,
		.fds_interval_ns = sampling->fds_interval_ns,
		.reset_peaks = sampling->reset_peaks,
	};
	int r;

	if (target->what.kind != TARGET_PROCESS || target->reading == roster->reading || target->leaving)
		return 0;

	say_alive(roster);
	if (descriptors_short(roster->options.procfd))
		r = -EMFILE;
	else
		r = source_entry_reopen(target->sampled.entry, roster->options.procfd, target->what.pid,
					target->what.start_ticks, &wanted);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM) {
		opening_failed(roster, r);
		return r;
	}
	target->reading = roster->reading; /* what else there is to be said of it the sampler finds out */

	return 0;
}

void roster_reopen(struct roster *roster)
{
	if (roster->unopened)
		roster->unopened = roster_table_visit(&roster->table, reopen_one, roster) < 0;
}

/* ---- a configuration comes into force ---- */

/* The list in force is put in place of the one before. Cannot fail. */
static void enforce(struct roster *roster, const struct roster_list *list, const struct config *config)
{
	for (size_t i = 0; i < roster->list.count; i++)
		roster->list.entries[i]->dismissed = true;
	for (size_t i = 0; i < list->count; i++) {
		struct roster_entry *entry = list->entries[i];

		entry->dismissed = false;
		if (entry->planned && entry->group)
			enter(roster, entry->group);
		entry->planned = false;
	}
	roster_list_release(&roster->list);
	roster->list = *list;
	roster->options.config = config;
}

/* Whether a process is read for something now that it was not read for before. */
static bool reads_more(const struct config_sampling *before, const struct config_sampling *now)
{
	return (now->fds_interval_ns > 0 && before->fds_interval_ns == 0) ||
	       (now->reset_peaks && !before->reset_peaks) ||
	       (now->peak_interval_ns != UINT64_MAX && before->peak_interval_ns == UINT64_MAX);
}

static int need_one(void *ctx, struct roster_target *target)
{
	roster_tiers_need(ctx, target);

	return 0;
}

int roster_reload(struct roster *roster, const struct config *config)
{
	struct roster_list list;
	int r = roster_list_make(&roster->options, &roster->list, config, &roster->numbers, &list);

	if (r < 0)
		return r;

	if (reads_more(&roster->options.config->sampling, &config->sampling)) {
		roster->reading++;
		roster->unopened = true;
	}
	enforce(roster, &list, config);
	roster->owing = true;
	roster_table_visit(&roster->table, need_one, roster);
	settle_debts(roster);

	return 0;
}

/* ---- the roster itself ---- */

int roster_new(const struct roster_options *options, struct roster **ret)
{
	struct roster *roster = calloc(1, sizeof *roster);
	int r;

	if (!roster)
		return -ENOMEM;

	roster->options = *options;
	r = limitscache_new(options->procfd, options->mounts, &options->machine, &roster->limits);
	if (r == 0)
		r = roster_reload(roster, options->config);
	if (r < 0) {
		roster_free(roster);
		return r;
	}
	*ret = roster;

	return 0;
}

void roster_free(struct roster *roster)
{
	if (!roster)
		return;

	roster_table_clear(&roster->table);
	roster_list_release(&roster->list);
	limitscache_free(roster->limits);
	free(roster);
}

void roster_counts(const struct roster *roster, struct roster_counts *ret)
{
	*ret = roster->counts;
}

int roster_visit(struct roster *roster, int (*visit)(void *ctx, struct roster_target *target), void *ctx)
{
	return roster_table_visit(&roster->table, visit, ctx);
}
