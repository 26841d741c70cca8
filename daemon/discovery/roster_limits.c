/*
 * roster_limits.c: a process holds the line of the cgroups that it is in (limitscache.h). A group has the limits of its members if they share
 * one, else the machine's.
 *
 * A refresh goes over the cgroups first, then over the targets, a bucket of the table at a time: between two of them targets may come and go. What
 * members share is collected in the entry, and the group has it when all were passed: until then it has what it had.
 *
 * Rejected: asking the cgroups who is in them. One reading of cgroup.procs tells it of all, but on v1 three are needed; of a cgroup of ten thousand
 * processes one of which is watched it tells ten thousand; of threaded cgroups, and over pid namespaces, it tells nothing.
 */
#include "roster_limits.h"

#include <errno.h>
#include <string.h>

/* What a slice may take, and what things cost, in microseconds, rounded up: a dozen system calls, three, a look at what is in memory. */
#define SLICE_US 500u
#define DIRECTORY_US 20u
#define ASKING_US 15u
#define LOOK_US 1u

/* To have run in so many looks is noticeable however long that took; or in one of so many that fit into that time. */
#define RUNS_NOTICEABLE 16u
#define RUNS_SHARE 4u

/* ---- of one ---- */

int roster_limits_read(struct roster *roster, struct roster_target *target)
{
	struct limitscache_line **line = &target->membership.line;
	int r = target->what.kind == TARGET_CGROUP ? limitscache_ask_cgroup(roster->limits, target->what.cgroup, line)
						   : limitscache_ask(roster->limits, target->what.pid, line);

	return r == -ENOMEM ? r : 0;
}

void roster_limits_apply(struct roster_target *target)
{
	struct roster_membership *membership = &target->membership;
	const struct limitscache_line *line = membership->line;

	if (target->what.kind == TARGET_GROUP) {
		const struct cglimits *limits = &target->entry->limits;

		source_entry_set_limits(target->sampled.entry, limits->cpu, limits->memory_bytes);
		return;
	}

	source_entry_set_limits(target->sampled.entry, line ? line->cpu : UINT64_MAX,
				line ? line->memory_bytes : UINT64_MAX);
	membership->version = line ? line->version : 0;
}

void roster_limits_of(const struct roster *roster, const struct roster_target *target, struct cglimits *ret)
{
	if (target->what.kind == TARGET_GROUP)
		*ret = target->entry->limits;
	else if (target->membership.line)
		limitscache_limits(roster->limits, target->membership.line, ret);
	else
		*ret = (struct cglimits){ .cpu = UINT64_MAX, .memory_bytes = UINT64_MAX };
}

void roster_limits_release(struct roster *roster, struct roster_target *target)
{
	limitscache_drop(roster->limits, target->membership.line);
	target->membership.line = NULL;
}

/* ---- groups ---- */

static void merge(const struct roster *roster, struct roster_entry *entry, const struct limitscache_line *line)
{
	struct cglimits member, *merged = &entry->merged;

	if (!line || line->number == entry->merged_line)
		return;

	entry->merged_line = line->number;
	limitscache_limits(roster->limits, line, &member);
	if (merged->cpu == 0) { /* none merged yet */
		*merged = member;
		return;
	}
	if (strcmp(merged->cpu_from, member.cpu_from) != 0)
		merged->cpu = UINT64_MAX;
	if (strcmp(merged->memory_from, member.memory_from) != 0)
		merged->memory_bytes = UINT64_MAX;
}

void roster_limits_settle(const struct roster_options *options, struct roster_target *group)
{
	const struct metric_machine *machine = &options->machine;
	struct cglimits *limits = &group->entry->limits;

	*limits = group->entry->merged;
	if (limits->cpu == 0 || limits->cpu == UINT64_MAX) {
		limits->cpu = (uint64_t)(machine->cores * 1e9);
		limits->cpu_is_machine = true;
		limits->cpu_from[0] = '\0';
	}
	if (limits->memory_bytes == 0 || limits->memory_bytes == UINT64_MAX) {
		limits->memory_bytes = machine->memory_bytes;
		limits->memory_is_machine = true;
		limits->memory_from[0] = '\0';
	}
	roster_limits_apply(group);
}

/* ---- where a process is ---- */

static uint64_t since(mono_t then, mono_t now)
{
	int64_t age = mono_diff(now, then);

	return age > 0 ? (uint64_t)age : 0;
}

static bool ran_noticeably(const struct roster *roster, const struct roster_membership *membership, uint32_t runs,
			   uint64_t age_ns)
{
	uint32_t more = runs - membership->runs;

	return more >= RUNS_NOTICEABLE ||
	       (more > 0 && more * roster->options.config->sampling.interval_ns * RUNS_SHARE >= age_ns);
}

/* Whether the moment at which it is asked in its sleep was passed: ids are spread over the time between two. */
static bool is_its_turn(const struct roster_target *target, mono_t now)
{
	uint64_t spread = target->what.id * UINT32_C(2654435769) >> 16;
	uint64_t offset = spread * (ROSTER_LIMITS_LONG_NS >> 16);

	return (target->membership.asked.ns + offset) / ROSTER_LIMITS_LONG_NS !=
	       (now.ns + offset) / ROSTER_LIMITS_LONG_NS;
}

static bool is_to_be_asked(const struct roster *roster, const struct roster_target *target, uint32_t runs, mono_t now)
{
	const struct roster_membership *membership = &target->membership;

	return !membership->line || membership->news || since(membership->met, now) < ROSTER_LIMITS_YOUNG_NS ||
	       ran_noticeably(roster, membership, runs, since(membership->asked, now)) || is_its_turn(target, now);
}

/* True: it was asked. */
static bool follow(struct roster *roster, struct roster_target *target, mono_t now)
{
	struct roster_membership *membership = &target->membership;
	uint32_t runs = source_entry_runs(target->sampled.entry);

	if (target->what.kind != TARGET_PROCESS)
		return false;
	if (membership->met.ns == 0)
		membership->met = now;
	if (!is_to_be_asked(roster, target, runs, now))
		return false;

	membership->asked = now;
	membership->runs = runs;
	membership->news = false;
	roster_limits_read(roster, target);

	return true;
}

/* ---- all of them anew ---- */

static void begin(struct roster *roster)
{
	for (size_t i = 0; i < roster->list.count; i++) {
		roster->list.entries[i]->merged = (struct cglimits){ 0 };
		roster->list.entries[i]->merged_line = 0;
	}
}

/* Returns what it cost. */
static unsigned refresh_one(struct roster *roster, struct roster_target *target, mono_t now)
{
	const struct limitscache_line *before = target->membership.line;

	if (target->what.kind == TARGET_GROUP || target->entry->dismissed)
		return LOOK_US;

	bool asked = follow(roster, target, now);
	const struct limitscache_line *line = target->membership.line;

	if (line != before || (line && line->version != target->membership.version))
		roster_limits_apply(target);
	if (target->group)
		merge(roster, target->entry, line);

	return asked ? ASKING_US : LOOK_US;
}

static void finish(struct roster *roster)
{
	for (size_t i = 0; i < roster->list.count; i++)
		if (roster->list.entries[i]->group)
			roster_limits_settle(&roster->options, roster->list.entries[i]->group);
}

/* Returns what it cost. */
static unsigned refresh_part(struct roster *roster, unsigned part, mono_t now)
{
	unsigned cost_us = 0;

	if (part < LIMITSCACHE_PARTS)
		return (unsigned)limitscache_refresh(roster->limits, part) * DIRECTORY_US;

	for (struct roster_target *target = roster->table.buckets[part - LIMITSCACHE_PARTS]; target;
	     target = target->next)
		cost_us += refresh_one(roster, target, now);

	return cost_us;
}

bool roster_refresh_some_limits(struct roster *roster, mono_t now, unsigned *part)
{
	unsigned cost_us = 0;

	if (*part == 0)
		begin(roster);
	if (roster->options.alive)
		roster->options.alive(roster->options.alive_ctx);
	while (*part < LIMITSCACHE_PARTS + ROSTER_BUCKETS && cost_us < SLICE_US)
		cost_us += refresh_part(roster, (*part)++, now);
	if (*part < LIMITSCACHE_PARTS + ROSTER_BUCKETS)
		return true;

	finish(roster);
	*part = 0;

	return false;
}

void roster_refresh_limits(struct roster *roster, mono_t now)
{
	unsigned part = 0;

	while (roster_refresh_some_limits(roster, now, &part))
		continue;
}
