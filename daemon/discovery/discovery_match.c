/*
 * discovery_match.c: a process that was met, the entries that it is of, and those that it is of no more.
 *
 * One that goes from one entry to another is read once more in between: up to there the group that it leaves counts it, from there the one that it
 * joins, so that nothing of its CPU time is counted twice or by nobody. It is let go first: then it is out before it is in.
 */
#include "discovery_inside.h"
#include "realclock.h"
#include "roster_events.h"

#include <string.h>
#include <unistd.h>

/* A process of an entry whose targets are cgroups stands for its cgroup; in the root cgroup it has none of its own. */
static int sight_cgroup(struct discovery *discovery, size_t entry, const struct match_facts *facts)
{
	if (!facts->cgroup || strcmp(facts->cgroup, "/") == 0)
		return 0;

	return roster_cgroup(discovery->roster, entry, facts->cgroup, discovery->scan);
}

static struct roster_sighting sighting_of(const struct scanned *scanned)
{
	const struct match_facts *facts = &scanned->facts;

	return (struct roster_sighting){
		.pid = facts->pid,
		.start_ticks = scanned->stat.start_ticks,
		.arguments_at = scanned->arguments_at,
		.comm = facts->comm,
		.cmdline = facts->cmdline ? facts->cmdline : "",
		.cgroup = facts->cgroup ? facts->cgroup : "",
	};
}

/* Its counters, as the sampler would read them; {0}: its CPU clock does not say. */
static struct sample counters_of(const struct discovery *discovery, const struct scanned *scanned)
{
	const struct procfs_stat *stat = &scanned->stat;
	uint64_t ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t cpu_ns = discovery->options.roster.own_proc ? realclock_cpu_of(realclock_of(stat->pid)) : 0;
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

/* Whether it deserves a new target of an entry that it is of all the same. An entry by pid means the process, whatever it runs. */
static bool is_other(const struct discovery *discovery, size_t entry, const struct scanned *scanned)
{
	return (discovery->config->targets[entry].selector > CONFIG_PIDFILE ||
		matcher_descends(discovery->matcher, entry, &scanned->facts)) &&
	       roster_was_other(discovery->roster, entry, scanned->facts.pid, scanned->stat.start_ticks,
				scanned->facts.comm);
}

/* Whether it is watched for an entry as what it is now; it then counts as seen. */
static bool is_known(struct discovery *discovery, size_t entry, const struct scanned *scanned, bool changed)
{
	return !(changed && is_other(discovery, entry, scanned)) &&
	       roster_process_known(discovery->roster, entry, scanned->facts.pid, scanned->stat.start_ticks,
				    discovery->scan);
}

/* It leaves the entries that it is of no more. True: there was one. */
static bool leave(struct discovery *discovery, const struct scanned *scanned, bool changed, const struct sample *now)
{
	struct roster_sighting sighting = sighting_of(scanned);
	bool left = false;

	for (size_t i = 0; i < discovery->config->target_count; i++)
		if (!discovery->matcher->verdicts[i] || (changed && is_other(discovery, i, scanned)))
			left |= roster_unmatch(discovery->roster, i, &sighting, now);

	return left;
}

/* meeting: what is said there, and whether it has ended meanwhile. */
static int join(struct discovery *discovery, struct scanned *scanned, struct discovery_meeting *meeting,
		const struct sample *since)
{
	struct roster_sighting sighting;
	int r = scanned_ask(scanned,
			    MATCH_CMDLINE | MATCH_CGROUP); /* for the description, whether or not an entry asked */

	sighting = sighting_of(scanned);
	sighting.whole = meeting->whole;
	sighting.since = since;
	for (size_t i = 0; r >= 0 && i < discovery->config->target_count; i++) {
		if (!discovery->matcher->verdicts[i] || discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			continue;
		sighting.descends = matcher_descends(discovery->matcher, i, &scanned->facts);
		r = roster_process(discovery->roster, i, &sighting, discovery->scan);
		meeting->ended |= r == ROSTER_ENDED;
	}

	return r < 0 ? r : 0;
}

/* A process that is watched for an entry was met again: what it is called is read anew if something was heard of it, or it is seen to be another. */
static int recall(struct discovery *discovery, size_t entry, struct scanned *scanned, bool changed)
{
	struct roster_sighting sighting = sighting_of(scanned);

	if (!changed && !roster_is_outdated(discovery->roster, entry, &sighting))
		return 0;

	int r = scanned_ask(scanned, MATCH_CMDLINE | MATCH_CGROUP);

	if (r < 0)
		return r;

	sighting = sighting_of(scanned);

	return roster_describe(discovery->roster, entry, &sighting);
}

int discovery_match(struct discovery *discovery, struct scanned *scanned, struct discovery_meeting *meeting)
{
	bool joins = false;
	int r = 0;

	matcher_meet(discovery->matcher, scanned);
	matcher_judge(discovery->matcher, &scanned->facts);
	meeting->watched = false;
	meeting->targets = 0;
	for (size_t i = 0; r == 0 && i < discovery->config->target_count; i++) {
		if (!discovery->matcher->verdicts[i])
			continue;
		meeting->watched = true;
		if (discovery->config->targets[i].per == CONFIG_PER_CGROUP)
			r = sight_cgroup(discovery, i, &scanned->facts);
		else if (!is_known(discovery, i, scanned, meeting->changed))
			joins = true;
		else
			r = recall(discovery, i, scanned, meeting->changed);
		meeting->targets += discovery->config->targets[i].per != CONFIG_PER_CGROUP;
	}
	if (r < 0 || (!joins && !meeting->changed))
		return r;

	struct sample now = counters_of(discovery, scanned);
	bool left = leave(discovery, scanned, meeting->changed, &now);

	return joins ? join(discovery, scanned, meeting, left && now.mask ? &now : NULL) : 0;
}
