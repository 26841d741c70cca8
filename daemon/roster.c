/* roster.c: a hash table from identity to target, and the two queues to the sampler. */
#include "roster.h"

#include "limitscache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096u /* a power of two; chains stay short up to the 10,000 targets of the default */

struct roster {
	struct roster_options options;
	struct roster_target *buckets[BUCKETS];
	struct roster_target **groups; /* by entry; NULL for entries that are no groups */
	struct roster_counts counts;
	uint64_t refused, failed; /* in the running scan */
	uint32_t next_id;
	struct limitscache *limits;
};

/* ---- identity ---- */

static uint32_t hash_identity(size_t entry, int32_t pid, const char *path)
{
	uint32_t hash = 2166136261u ^ (uint32_t)entry;

	hash = (hash ^ (uint32_t)pid) * 16777619u;
	for (; path && *path; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;

	return (hash ^ (hash >> 15)) & (BUCKETS - 1);
}

static uint32_t bucket_of(const struct roster_target *target)
{
	return hash_identity(target->entry, target->what.pid,
			     target->what.kind == TARGET_CGROUP ? target->what.cgroup : NULL);
}

static struct roster_target *find_process(const struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks)
{
	struct roster_target *target = roster->buckets[hash_identity(entry, pid, NULL)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_PROCESS && target->entry == entry && target->what.pid == pid &&
		    target->what.start_ticks == start_ticks)
			return target;

	return NULL;
}

static struct roster_target *find_cgroup(const struct roster *roster, size_t entry, const char *path)
{
	struct roster_target *target = roster->buckets[hash_identity(entry, 0, path)];

	for (; target; target = target->next)
		if (target->what.kind == TARGET_CGROUP && target->entry == entry &&
		    strcmp(target->what.cgroup, path) == 0)
			return target;

	return NULL;
}

/* ---- life and death ---- */

static void free_target(struct roster_target *target)
{
	sampler_target_release(&target->sampled);
	free((char *)(uintptr_t)target->what.name);
	free((char *)(uintptr_t)target->what.key);
	free((char *)(uintptr_t)target->what.comm);
	free((char *)(uintptr_t)target->what.cmdline);
	free((char *)(uintptr_t)target->what.cgroup);
	free(target);
}

/* Copies the strings of what. NULL when there is no memory. */
static struct roster_target *new_target(struct roster *roster, size_t entry, const struct target *what)
{
	struct roster_target *target = calloc(1, sizeof *target);

	if (!target)
		return NULL;

	target->entry = entry;
	target->what = *what;
	target->what.entry = roster->options.config->targets[entry].name;
	target->what.name = strdup(what->name);
	target->what.key = strdup(what->key);
	target->what.comm = strdup(what->comm);
	target->what.cmdline = strdup(what->cmdline);
	target->what.cgroup = strdup(what->cgroup);
	if (target->what.name && target->what.key && target->what.comm && target->what.cmdline && target->what.cgroup)
		return target;

	free_target(target);

	return NULL;
}

static void set_limits(struct roster_target *target)
{
	source_entry_set_limits(target->sampled.entry, target->limits.cpu, target->limits.memory_bytes);
}

static size_t *count_of(struct roster *roster, const struct roster_target *target)
{
	return target->group ? &roster->counts.members : &roster->counts.targets;
}

/* Enters an opened target into the table and lends it to the sampler. False: no memory, no room; it is freed. */
static bool watch(struct roster *roster, struct roster_target *target)
{
	target->what.id = ++roster->next_id;
	target->sampled.user = target;
	target->sampled.group = target->group ? &target->group->sampled : NULL;
	set_limits(target);
	if ((!target->group && sampler_target_describe(&target->sampled, &target->what) < 0) ||
	    !sampler_add(roster->options.sampler, &target->sampled)) {
		free_target(target);
		return false; /* the next scan meets it again */
	}

	struct roster_target **bucket = &roster->buckets[bucket_of(target)];

	target->next = *bucket;
	*bucket = target;
	roster->counts.found++;
	*count_of(roster, target) += 1;

	return true;
}

static bool room_left(struct roster *roster)
{
	if (roster->counts.targets + roster->counts.members < roster->options.config->sampling.max_targets)
		return true;

	roster->refused++;

	return false;
}

/* Opening a target failed: a process that ended meanwhile is nothing to speak of. */
static int opening_failed(struct roster *roster, struct roster_target *target, int error)
{
	free_target(target);
	if (error == -ESRCH || error == -ENOENT)
		return 0;

	roster->failed++;
	roster->counts.last_error = error;

	return error == -ENOMEM ? error : 0;
}

static void forget(struct roster *roster, struct roster_target *target)
{
	struct roster_target **at = &roster->buckets[bucket_of(target)];

	while (*at != target)
		at = &(*at)->next;
	*at = target->next;
	roster->counts.left++;
	*count_of(roster, target) -= 1;
	free_target(target);
}

void roster_collect(struct roster *roster)
{
	struct sampler_target *sampled;
	enum sampler_return why;

	while (sampler_returned(roster->options.sampler, &sampled, &why)) {
		struct roster_target *target = sampled->user;

		if (why == SAMPLER_REFUSED)
			roster->refused++;
		if (why != SAMPLER_REMOVED && target->leaving)
			continue; /* the answer to our own request is still to come */
		forget(roster, target);
	}
}

/* ---- limits ---- */

/* A group has the limits of its members if they share one, else the machine's. */
static void merge_into_group(struct roster_target *member)
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

static void read_limits(struct roster *roster, struct roster_target *target)
{
	const struct cglimits *limits;

	if (target->what.kind == TARGET_CGROUP) {
		cglimits_of_cgroup(roster->options.mounts, &roster->options.machine, target->what.cgroup,
				   &target->limits);
		return;
	}

	limits = limitscache_of(roster->limits, target->what.pid);
	if (limits)
		target->limits = *limits;
}

static void set_group_limits(struct roster *roster, struct roster_target *group)
{
	const struct metric_machine *machine = &roster->options.machine;

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
	set_limits(group);
}

static void for_each_group(struct roster *roster, void (*act)(struct roster *roster, struct roster_target *group))
{
	for (size_t i = 0; i < roster->options.config->target_count; i++)
		if (roster->groups[i])
			act(roster, roster->groups[i]);
}

static void clear_group_limits(struct roster *roster, struct roster_target *group)
{
	(void)roster;
	group->limits = (struct cglimits){ 0 };
}

void roster_refresh_limits(struct roster *roster)
{
	limitscache_clear(roster->limits);
	for_each_group(roster, clear_group_limits);
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct roster_target *target = roster->buckets[i]; target; target = target->next) {
			if (target->what.kind == TARGET_GROUP)
				continue;
			read_limits(roster, target);
			set_limits(target);
			if (target->group)
				merge_into_group(target);
		}
	}
	for_each_group(roster, set_group_limits);
}

/* ---- sightings ---- */

/* An entry that can only mean one process at a time gives it its own name. */
static bool is_one_process(const struct config_target *entry)
{
	return (entry->selector == CONFIG_PID || entry->selector == CONFIG_PIDFILE) && entry->per == CONFIG_PER_PROCESS;
}

bool roster_process_known(struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks, uint64_t scan)
{
	struct roster_target *target = find_process(roster, entry, pid, start_ticks);

	if (target)
		target->seen = scan;

	return target != NULL;
}

int roster_process(struct roster *roster, size_t entry, const struct roster_sighting *seen, uint64_t scan)
{
	const char *entry_name = roster->options.config->targets[entry].name;
	struct roster_target *target;
	char name[96], key[128];
	int r;

	if (roster_process_known(roster, entry, seen->pid, seen->start_ticks, scan) || !room_left(roster))
		return 0;

	if (is_one_process(&roster->options.config->targets[entry])) {
		/* Whichever process it is at the moment: its cooldowns go on when it is restarted. */
		snprintf(name, sizeof name, "%s", entry_name);
		snprintf(key, sizeof key, "%s", entry_name);
	} else {
		snprintf(name, sizeof name, "%s/%d", entry_name, seen->pid);
		snprintf(key, sizeof key, "%s:%d@%llu", entry_name, seen->pid, (unsigned long long)seen->start_ticks);
	}
	target = new_target(roster, entry,
			    &(struct target){ .kind = TARGET_PROCESS,
					      .pid = seen->pid,
					      .start_ticks = seen->start_ticks,
					      .name = name,
					      .key = key,
					      .comm = seen->comm,
					      .cmdline = seen->cmdline,
					      .cgroup = seen->cgroup });
	if (!target)
		return -ENOMEM;

	target->seen = scan;
	target->group = roster->groups[entry];
	r = source_entry_process(roster->options.procfd, seen->pid, seen->start_ticks, roster->options.own_proc,
				 &target->sampled, &target->sampled.entry);
	if (r < 0)
		return opening_failed(roster, target, r);

	read_limits(roster, target);
	watch(roster, target);

	return 0;
}

int roster_cgroup(struct roster *roster, size_t entry, const char *path, uint64_t scan)
{
	const char *entry_name = roster->options.config->targets[entry].name;
	struct roster_target *target = find_cgroup(roster, entry, path);
	char key[4096 + 80];
	int r;

	if (target) {
		target->seen = scan;
		return 0;
	}
	if (!room_left(roster))
		return 0;

	snprintf(key, sizeof key, "%s:%s", entry_name, path);
	target = new_target(
		roster, entry,
		&(struct target){
			.kind = TARGET_CGROUP, .name = path, .key = key, .comm = "", .cmdline = "", .cgroup = path });
	if (!target)
		return -ENOMEM;

	target->seen = scan;
	r = source_entry_cgroup(roster->options.mounts, path, &target->sampled, &target->sampled.entry);
	if (r < 0)
		return opening_failed(roster, target, r);

	read_limits(roster, target);
	watch(roster, target);

	return 0;
}

/* Members first, so that a group is never asked for while it has members. Groups themselves stay as long as the configuration. */
void roster_sweep(struct roster *roster, uint64_t scan)
{
	roster->counts.refused = roster->refused;
	roster->counts.failed = roster->failed;
	roster->refused = roster->failed = 0;

	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct roster_target *target = roster->buckets[i]; target; target = target->next) {
			if (target->what.kind == TARGET_GROUP || target->leaving || target->seen == scan)
				continue;
			target->leaving = sampler_remove(roster->options.sampler, &target->sampled);
		}
	}
}

/* ---- the roster itself ---- */

static int add_group(struct roster *roster, size_t entry)
{
	const char *name = roster->options.config->targets[entry].name;
	struct roster_target *group = new_target(
		roster, entry,
		&(struct target){
			.kind = TARGET_GROUP, .name = name, .key = name, .comm = "", .cmdline = "", .cgroup = "" });
	int r;

	if (!group)
		return -ENOMEM;

	r = source_entry_group(&group->sampled, &group->sampled.entry);
	if (r < 0) {
		free_target(group);
		return r;
	}

	set_group_limits(roster, group);
	roster->groups[entry] = watch(roster, group) ? group : NULL;

	return roster->groups[entry] ? 0 : -ENOMEM;
}

int roster_new(const struct roster_options *options, struct roster **ret)
{
	struct roster *roster = calloc(1, sizeof *roster);
	int r;

	if (!roster)
		return -ENOMEM;

	roster->options = *options;
	roster->groups = calloc(options->config->target_count, sizeof(struct roster_target *));
	r = roster->groups ? limitscache_new(options->procfd, options->mounts, &options->machine, &roster->limits)
			   : -ENOMEM;
	for (size_t i = 0; r == 0 && i < options->config->target_count; i++)
		if (options->config->targets[i].per == CONFIG_PER_GROUP)
			r = add_group(roster, i);
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

	for (unsigned i = 0; i < BUCKETS; i++) {
		while (roster->buckets[i]) {
			struct roster_target *target = roster->buckets[i];

			roster->buckets[i] = target->next;
			free_target(target);
		}
	}
	free(roster->groups);
	limitscache_free(roster->limits);
	free(roster);
}

void roster_counts(const struct roster *roster, struct roster_counts *ret)
{
	*ret = roster->counts;
}

int roster_visit(struct roster *roster, int (*visit)(void *ctx, struct roster_target *target), void *ctx)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct roster_target *target = roster->buckets[i]; target; target = target->next) {
			int r = visit(ctx, target);

			if (r)
				return r;
		}
	}

	return 0;
}
