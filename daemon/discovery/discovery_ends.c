/*
 * discovery_ends.c: processes that ended, and what is left of them.
 *
 * Who came and went before he was looked at leaves only his exit record: name, parent, counters. It is counted in a group whose entry
 * selects by name, or, because a child is where its parent is, in one that its parent is a member of and that selects by cgroup or unit; and if it did
 * not execute anything, in its parent's, whatever it selects by.
 *
 * News say a pid, and may be so late that it is another's. What is asked of /proc and of clocks then is asked of him: so it is looked who has the pid, and
 * whether he is about to end. An exit record is whose it is, but not of somebody who lives.
 */
#include "discovery_inside.h"
#include "procread.h"
#include "realclock.h"
#include "roster_events.h"

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

	return (stays || same) && roster_is_member(discovery->roster, entry, end->ppid);
}

static void credit_unseen(struct discovery *discovery, const struct procevent *end, const struct newcomer *newcomer,
			  const struct sample *sample)
{
	bool credited = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (was_of(discovery, i, end, newcomer))
			credited |= roster_credit(discovery->roster, i, sample);
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
	ssize_t len = procread_file(discovery->options.roster.procfd, pid, "stat", text, sizeof(text));
	struct procfs_stat stat;

	if (len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return (struct holder){ 0 };

	return (struct holder){ .start_ticks = stat.start_ticks, .exiting = stat.exiting };
}

/* Its exit record, to those that watched it. renamed: it may be watched under the name that it had before. True: there was one. */
static bool end_watched(struct discovery *discovery, const struct procevent *end, bool renamed,
			const struct sample *counters)
{
	struct roster_ending ending = { .pid = end->pid, .counters = *counters };

	if (!roster_knows(discovery->roster, end->pid))
		return false;

	struct holder holder = holder_of(discovery, end->pid);

	if (!end->totals.threads && !renamed)
		ending.comm = end->totals.comm; /* else it is the name of its last thread */
	if (!holder.exiting)
		ending.alive_ticks = holder.start_ticks;

	return roster_end(discovery->roster, &ending);
}

static void take_totals(struct discovery *discovery, const struct procevent *end, mono_t now)
{
	const struct procevent_totals *totals = &end->totals;
	struct discovery_news *news = discovery->news;
	struct newcomer *newcomer = newcomers_find(news->newcomers, end->pid);
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
	newcomer = newcomers_ended(news->newcomers, end->pid, now);
	/* An older one was met by a scan, and did not match. */
	if (!met && totals->elapsed_ns < (uint64_t)mono_diff(now, discovery->scan_began))
		credit_unseen(discovery, end, newcomer, &sample);
}

/* Of a member the CPU time, if it can still be had: exit records do not come from everywhere. */
static void take_exit(struct discovery *discovery, int32_t pid, mono_t now)
{
	struct roster_ending ending = { .pid = pid };
	uint64_t cpu_ns;

	newcomers_ended(discovery->news->newcomers, pid, now);
	if (proclistener_has_totals(discovery->news->listener) || !roster_knows(discovery->roster, pid))
		return;

	cpu_ns = realclock_cpu_of(realclock_of(pid));
	if (cpu_ns == 0)
		return;

	struct holder holder = holder_of(discovery, pid); /* after its clock: it was his */

	if (!holder.exiting)
		return;
	ending.start_ticks = holder.start_ticks;
	sample_set(&ending.counters, SAMPLE_CPU, cpu_ns);
	roster_end(discovery->roster, &ending);
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
