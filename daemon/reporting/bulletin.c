/* bulletin.c: two entries that a person looks for first, so they hold the numbers that matter and no more. */
#include "bulletin.h"

#include "log.h"

static unsigned long long number(uint64_t value)
{
	return value;
}

void bulletin_started(const struct overview *overview, struct arrivals *arrivals)
{
	struct discovery_state found;

	discovery_state(session_discovery(overview->session), &found);
	log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_STARTED },
		  "watching %zu targets of %zu entries with %zu rules every %.6g ms; cgroups: %s; incidents in %s",
		  found.roster.targets, overview->config->target_count, overview->config->rule_count,
		  (double)overview->config->sampling.interval_ns / 1e6,
		  cgroup_mode_name(cgroup_mounts_mode(session_mounts(overview->session))), overview->paths->incidents);
	arrivals_start(arrivals, found.roster.targets, overview->now);
	if (found.roster.targets == 0)
		log_line(LOG_NOTICE, "nothing matches yet; new processes and cgroups are picked up as they come");
}

void bulletin_stopped(const struct overview *overview, struct arrivals *arrivals)
{
	struct incidents_counts counts;
	struct watcher_counts watched;
	struct stats stats;

	arrivals_flush(arrivals, overview->now);
	incidents_counts(overview->incidents, &counts);
	watcher_counts(overview->watcher, &watched);
	if (ring_stats(session_ring(overview->session), &stats) == 0)
		health_summary(overview->health, &stats);
	if (watched.lost_pages)
		log_about(LOG_WARNING,
			  &(struct log_about){ .message = MESSAGE_RULES_BEHIND, .count = watched.lost_pages },
			  "the rules were overtaken by the sampler: %llu pages were never judged. Enlarge ring.size.",
			  number(watched.lost_pages));
	log_about(LOG_INFO, &(struct log_about){ .message = MESSAGE_STOPPED },
		  "stopped: %llu incidents sealed, %llu firings merged into them, %llu failed, %llu refused because "
		  "too many were open",
		  number(counts.sealed), number(counts.merged), number(counts.failed), number(counts.refused));
}
