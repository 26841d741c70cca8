/*
 * roster_limits.c: a group has the limits of its members if they share one, else the machine's.
 *
 * Reading those of ten thousand processes takes long, so they are read in parts, one bucket of the table each: between two of them targets
 * may come and go. What members share is collected in the entry, and the group has it when all were asked: until then it has what it had.
 */
#include "roster_limits.h"

#include "roster_inside.h"

#include <string.h>

void roster_limits_read(const struct roster_options *options, struct limitscache *cache, struct roster_target *target)
{
	const struct cglimits *limits;

	if (target->what.kind == TARGET_CGROUP) {
		cglimits_of_cgroup(options->mounts, &options->machine, target->what.cgroup, &target->limits);
		return;
	}

	limits = limitscache_of(cache, target->what.pid);
	if (limits)
		target->limits = *limits;
}

void roster_limits_apply(struct roster_target *target)
{
	source_entry_set_limits(target->sampled.entry, target->limits.cpu, target->limits.memory_bytes);
}

/* ---- groups ---- */

static void merge(struct cglimits *limits, const struct cglimits *member)
{
	if (limits->cpu == 0) { /* none merged yet */
		*limits = *member;
		return;
	}
	if (strcmp(limits->cpu_from, member->cpu_from) != 0)
		limits->cpu = UINT64_MAX;
	if (strcmp(limits->memory_from, member->memory_from) != 0)
		limits->memory_bytes = UINT64_MAX;
}

void roster_limits_settle(const struct metric_machine *machine, struct roster_target *group)
{
	group->limits = group->entry->merged;
	if (group->limits.cpu == 0 || group->limits.cpu == UINT64_MAX) {
		group->limits.cpu = (uint64_t)(machine->cores * 1e9);
		group->limits.cpu_is_machine = true;
		group->limits.cpu_from[0] = '\0';
	}
	if (group->limits.memory_bytes == 0 || group->limits.memory_bytes == UINT64_MAX) {
		group->limits.memory_bytes = machine->memory_bytes;
		group->limits.memory_is_machine = true;
		group->limits.memory_from[0] = '\0';
	}
	roster_limits_apply(group);
}

/* ---- all of them anew ---- */

static void begin(struct roster *roster)
{
	limitscache_clear(roster->limits);
	for (size_t i = 0; i < roster->list.count; i++)
		roster->list.entries[i]->merged = (struct cglimits){ 0 };
}

static void refresh_one(struct roster *roster, struct roster_target *target)
{
	if (target->what.kind == TARGET_GROUP || target->entry->dismissed)
		return;

	if (roster->options.alive)
		roster->options.alive(roster->options.alive_ctx);
	roster_limits_read(&roster->options, roster->limits, target);
	roster_limits_apply(target);
	if (target->group)
		merge(&target->entry->merged, &target->limits);
}

static void finish(struct roster *roster)
{
	for (size_t i = 0; i < roster->list.count; i++)
		if (roster->list.entries[i]->group)
			roster_limits_settle(&roster->options.machine, roster->list.entries[i]->group);
}

bool roster_refresh_some_limits(struct roster *roster, unsigned *part)
{
	if (*part == 0)
		begin(roster);
	for (struct roster_target *target = roster->table.buckets[*part]; target; target = target->next)
		refresh_one(roster, target);
	if (++*part < ROSTER_BUCKETS)
		return true;

	finish(roster);
	*part = 0;

	return false;
}

void roster_refresh_limits(struct roster *roster)
{
	unsigned part = 0;

	while (roster_refresh_some_limits(roster, &part))
		continue;
}
