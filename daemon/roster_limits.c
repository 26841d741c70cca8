/* roster_limits.c: a group has the limits of its members if they share one, else the machine's. */
#include "roster_limits.h"

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

void roster_limits_clear(struct roster_target *group)
{
	group->limits = (struct cglimits){ 0 };
}

void roster_limits_merge(struct roster_target *member)
{
	struct cglimits *limits = &member->group->limits;

	if (limits->cpu == 0) { /* none merged yet */
		*limits = member->limits;
		return;
	}
	if (strcmp(limits->cpu_from, member->limits.cpu_from) != 0)
		limits->cpu = UINT64_MAX;
	if (strcmp(limits->memory_from, member->limits.memory_from) != 0)
		limits->memory_bytes = UINT64_MAX;
}

void roster_limits_settle(const struct metric_machine *machine, struct roster_target *group)
{
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
