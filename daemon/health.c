/* health.c: each condition is one bit that is either said to have begun or said to have ended. */
#include "health.h"

#include "log.h"

#include <stdio.h>
#include <string.h>

static void say_verdict(int priority, const struct verdict *verdict, const char *when)
{
	struct log_about about = {
		.message = MESSAGE_CAPTURE_RATE_LOW,
		.capture_rate = verdict->threshold > 0.5 ? &verdict->ratio : NULL,
	};

	log_about(priority, &about, "%s: %s is %.2f %% (%s %.0f %%). %s %s", when, verdict->what, 100 * verdict->ratio,
		  verdict->threshold > 0.5 ? "expected at least" : "expected at most", 100 * verdict->threshold,
		  verdict->cause, verdict->remedy);
}

void health_judge(struct health *health, const struct stats *stats, mono_t now)
{
	struct verdict verdicts[VERDICT_KINDS];

	if (!health->judged.ns) /* the first span begins */
		health->judged = now;
	if (mono_diff(now, health->judged) < (int64_t)HEALTH_SPAN_NS)
		return;

	stats_verdicts(stats, &health->since, verdicts);
	health->since = *stats;
	health->judged = now;
	for (int i = 0; i < VERDICT_KINDS; i++) {
		if (verdicts[i].bad == health->bad[i])
			continue;
		health->bad[i] = verdicts[i].bad;
		health->episodes[i] += verdicts[i].bad;
		if (verdicts[i].bad)
			say_verdict(LOG_WARNING, &verdicts[i], "sampling suffers");
		else
			log_line(LOG_NOTICE, "sampling has recovered: %s is %.2f %%", verdicts[i].what,
				 100 * verdicts[i].ratio);
	}
}

void health_slowdown(struct health *health, uint32_t slowdown, double share)
{
	uint32_t before = health->slowdown ? health->slowdown : 1;

	health->slowdown = slowdown;
	if (slowdown > before)
		log_line(LOG_WARNING,
			 "CPU budget exceeded (%.1f %% of a core): sampling %u times slower than configured until it "
			 "fits. "
			 "Watch fewer targets, raise sampling.interval, or raise sampling.cpu_budget.",
			 100 * share, slowdown);
	else if (slowdown < before && slowdown == 1)
		log_line(LOG_NOTICE, "CPU budget kept again (%.1f %% of a core): sampling as configured", 100 * share);
}

void health_discovery(struct health *health, const struct discovery_state *state)
{
	if (state->roster.refused && !health->refused)
		log_line(LOG_WARNING, "more targets match than sampling.max_targets allows: %llu are not watched",
			 (unsigned long long)state->roster.refused);
	else if (!state->roster.refused && health->refused)
		log_line(LOG_NOTICE, "all targets that match are watched again");
	health->refused = state->roster.refused != 0;

	if (state->roster.failed && !health->failed)
		log_line(LOG_WARNING,
			 "%llu targets cannot be opened: %s. For \"Too many open files\" raise LimitNOFILE (up to 5 "
			 "descriptors a "
			 "process); for \"Permission denied\" run as root or as the user who owns them.",
			 (unsigned long long)state->roster.failed, strerror(-state->roster.last_error));
	else if (!state->roster.failed && health->failed)
		log_line(LOG_NOTICE, "all targets can be opened again");
	health->failed = state->roster.failed != 0;

	if (state->unreadable && !health->unreadable)
		log_line(LOG_NOTICE, "%llu processes may not be looked at (mounted with hidepid, or another user's)",
			 (unsigned long long)state->unreadable);
	health->unreadable = state->unreadable != 0;

	if (state->error && !health->unfinished)
		log_line(LOG_WARNING,
			 "looking for targets stopped half-way: %s. What is watched stays so, new targets are not "
			 "found. For "
			 "\"Too many open files\" raise LimitNOFILE.",
			 strerror(-state->error));
	else if (!state->error && health->unfinished)
		log_line(LOG_NOTICE, "new targets are found again");
	health->unfinished = state->error != 0;
}

void health_summary(const struct health *health, const struct stats *stats)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];

	stats_verdicts(stats, &nothing, verdicts);
	log_line(LOG_INFO, "took %llu of %llu snapshots (capture rate %.2f %%), mean wake-up error %.1f us",
		 (unsigned long long)stats->total_snapshots, (unsigned long long)stats->total_slots,
		 100 * verdicts[VERDICT_CAPTURE_RATE].ratio,
		 stats->total_snapshots ? (double)stats->total_sleep_timing_error / (double)stats->total_snapshots / 1e3
					: 0);
	for (int i = 0; i < VERDICT_KINDS; i++) {
		if (verdicts[i].bad)
			say_verdict(LOG_WARNING, &verdicts[i], "over the whole run");
		else if (health->episodes[i])
			log_line(LOG_NOTICE, "%s was bad for a while (%llu times), not over the whole run",
				 verdicts[i].what, (unsigned long long)health->episodes[i]);
	}
}
