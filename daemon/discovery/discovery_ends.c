/*
 * discovery_ends.c: processes that ended, and what is left of them.
 *
 * Who came and went before he was looked at leaves only his exit record: name, parent, counters. It is counted in a group whose entry
 * selects by name, or, because a child is where its parent is, in one that its parent is a member of and that selects by cgroup or unit; and if it did
 * not execute anything, in its parent's, whatever it selects by.
 */
#include "discovery_inside.h"
#include "realclock.h"
#include "roster_events.h"

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
	met = roster_end(discovery->roster, end->pid, &sample) || met;
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
	struct sample sample = { 0 };
	uint64_t cpu_ns;

	newcomers_ended(discovery->news->newcomers, pid, now);
	if (proclistener_has_totals(discovery->news->listener) || !roster_knows(discovery->roster, pid))
		return;

	cpu_ns = realclock_cpu_of(realclock_of(pid));
	if (cpu_ns == 0)
		return;
	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	roster_end(discovery->roster, pid, &sample);
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
