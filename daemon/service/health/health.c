/*
 * health.c: a struct condition decides when something is to be logged; the texts are here.
 *
 * Clocks: the wall clock is compared with the boot clock, and that with the monotonic clock. A
 * suspend changes only the second difference (the kernel adds the time asleep to wall and boot
 * clock alike), a step of the wall clock only the first.
 */
#include "daemon/service/health/health.h"

#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/targets/target_table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* A condition is over when it has been good for so long: at most two entries in half a minute. */
#define HEALTH_CALM_NS (3 * HEALTH_SPAN_NS)

/* If clocks differ by more, the wall clock was set, or the machine slept. */
#define HEALTH_JUMP_NS NS_PER_S

/* Of jumps in a row one is logged in so much time, with the number of those before it. */
#define HEALTH_JUMP_PAUSE_NS (60 * NS_PER_S)

/* As condition_step, into about too. */
static enum condition_turn step_condition(struct condition *condition, unsigned level, mono_t now,
					  struct log_about *about)
{
	enum condition_turn turn = condition_step(condition, level, now, HEALTH_CALM_NS);

	about->state = condition_state(turn);
	about->lasted_ns = turn == CONDITION_ENDS ? condition_lasted_ns(condition) : 0;

	return turn;
}

/* ---- the sampler ---- */

static const struct {
	enum message message;
	double worse, worst; /* levels beyond that of stats_verdicts */
} kinds[VERDICT_KINDS] = {
	[VERDICT_CAPTURE_RATE] = { MESSAGE_CAPTURE_RATE_LOW, 0.90, 0.50 },
	[VERDICT_SLEEP_ERROR] = { MESSAGE_SLEEP_ERROR_HIGH, 0.25, 0.50 },
	[VERDICT_COLLECTION] = { MESSAGE_COLLECTION_SLOW, 0.25, 0.50 },
	[VERDICT_BACKOFF] = { MESSAGE_BACKOFF, 0.25, 0.50 },
};

static bool is_beyond(int kind, double ratio, double limit)
{
	return kind == VERDICT_CAPTURE_RATE ? ratio < limit : ratio > limit;
}

static unsigned level_of(int kind, const struct verdict *verdict)
{
	if (!verdict->bad)
		return 0;

	return 1u + is_beyond(kind, verdict->ratio, kinds[kind].worse) +
	       is_beyond(kind, verdict->ratio, kinds[kind].worst);
}

static struct log_about about_verdict(int kind, const struct verdict *verdict)
{
	return (struct log_about){
		.message = kinds[kind].message,
		.value = &verdict->ratio,
		.capture_rate = kind == VERDICT_CAPTURE_RATE ? &verdict->ratio : NULL,
	};
}

/* "capture rate", "capture rate of thread 2 of 4". */
static const char *what_of(const struct health *health, int kind, const struct verdict *verdict, char buf[64])
{
	if (health->samplers <= 1)
		return verdict->what;

	snprintf(buf, 64, "%s of thread %zu of %zu", verdict->what, health->worst[kind] + 1, health->samplers);
	return buf;
}

static void log_bad_verdict(int kind, const struct verdict *verdict, const char *what, const char *state,
			    const char *when)
{
	struct log_about about = about_verdict(kind, verdict);
	char lasted[32] = "";

	about.state = state;
	if (verdict->cause_ns > 0)
		snprintf(lasted, sizeof lasted, "%.2f s: ", (double)verdict->cause_ns / NS_PER_S);
	log_about(LOG_WARNING, &about, "%s: %s is %.2f %% (%s %.0f %%). %s%s %s", when, what, 100 * verdict->ratio,
		  kind == VERDICT_CAPTURE_RATE ? "expected at least" : "expected at most", 100 * verdict->threshold,
		  lasted, verdict->cause, verdict->remedy);
}

static void log_recovered(int kind, const struct verdict *verdict, const struct condition *condition)
{
	struct log_about about = about_verdict(kind, verdict);

	about.state = condition_state(CONDITION_ENDS);
	about.count = condition->times;
	about.lasted_ns = condition_lasted_ns(condition) + HEALTH_SPAN_NS; /* the first span was bad from its start */
	log_about(LOG_NOTICE, &about, "sampling has recovered: %s is %.2f %%; it was bad for %llu of %llu s",
		  verdict->what, 100 * verdict->ratio,
		  (unsigned long long)(condition->times * HEALTH_SPAN_NS / NS_PER_S),
		  (unsigned long long)(about.lasted_ns / NS_PER_S));
}

static void judge_verdict(struct health *health, int kind, const struct verdict *verdict)
{
	struct condition *condition = &health->verdicts[kind];
	enum condition_turn turn = condition_step(condition, level_of(kind, verdict), health->now, HEALTH_CALM_NS);
	char buf[64];

	health->bad[kind] = verdict->bad;
	health->episodes[kind] += turn == CONDITION_BEGINS;
	if (turn == CONDITION_ENDS)
		log_recovered(kind, verdict, condition);
	else if (turn != CONDITION_SAME)
		log_bad_verdict(kind, verdict, what_of(health, kind, verdict, buf), condition_state(turn),
				turn == CONDITION_BEGINS ? "sampling is degraded" : "sampling is degraded further");
}

/* Whether a is the worse of two. */
static bool is_worse(int kind, const struct verdict *a, const struct verdict *b)
{
	return a->bad != b->bad ? a->bad : is_beyond(kind, a->ratio, b->ratio);
}

void health_judge(struct health *health, const struct stats *threads, size_t count, mono_t now)
{
	struct verdict worst[VERDICT_KINDS], verdicts[VERDICT_KINDS];

	assert(count >= 1 && count <= SAMPLERS_MAX);
	health->now = now;
	if (!health->judged.ns) /* the first span begins */
		health->judged = now;
	if (mono_diff(now, health->judged) < (int64_t)HEALTH_SPAN_NS)
		return;

	health->samplers = count;
	health->judged = now;
	for (size_t i = 0; i < count; i++) {
		stats_verdicts(&threads[i], &health->since[i], verdicts);
		health->since[i] = threads[i];
		for (int kind = 0; kind < VERDICT_KINDS; kind++) {
			if (i > 0 && !is_worse(kind, &verdicts[kind], &worst[kind]))
				continue;
			worst[kind] = verdicts[kind];
			health->worst[kind] = i;
		}
	}
	for (int kind = 0; kind < VERDICT_KINDS; kind++)
		judge_verdict(health, kind, &worst[kind]);
}

void health_budget(struct health *health, uint64_t late_ns, uint32_t slowdown, double share)
{
	struct log_about about = { .message = MESSAGE_BUDGET_EXCEEDED, .value = &share };
	unsigned level = slowdown > 1 ? condition_level(slowdown, 2) : late_ns > 0;
	enum condition_turn turn = step_condition(&health->budget, level, health->now, &about);
	char late[UNITS_TEXT_MAX];

	about.count = slowdown;
	if (turn == CONDITION_ENDS)
		log_about(LOG_NOTICE, &about,
			  "CPU budget kept again (%.1f %% of a core): sampling as configured, after %llu s",
			  100 * share, (unsigned long long)(about.lasted_ns / NS_PER_S));
	else if (turn != CONDITION_SAME && slowdown > 1)
		log_about(LOG_WARNING, &about,
			  "sampling %u times slower than configured to keep to the CPU budget, or to half of the "
			  "cgroup's CPU quota (last second: %.1f %% of a core). Watch fewer targets, raise "
			  "sampling.interval, or raise sampling.cpu_budget or the quota.",
			  slowdown, 100 * share);
	else if (turn != CONDITION_SAME)
		log_about(
			LOG_WARNING, &about,
			"CPU budget exceeded (%.1f %% of a core): processes that sleep are looked at less often until "
			"it fits, so the onset of a spike may be seen up to %s late. Watch fewer targets, raise "
			"sampling.interval, or raise sampling.cpu_budget.",
			100 * share, units_format_duration(late, sizeof late, late_ns));
}

static void log_scheduling(enum scheduling_class class, enum scheduling_reason reason)
{
	const char *instead = class == SCHEDULING_SHORT_SLICE ? "a short time slice" : "the CPU weight";

	if (class == SCHEDULING_REAL_TIME)
		log_line(LOG_INFO, "the samplers have real-time priority: they run also when the CPUs are taken");
	else if (reason == SCHEDULING_CONFIGURED)
		log_line(LOG_INFO, "the samplers have no real-time priority: %s", scheduling_reason_text(reason));
	else
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF },
			  "the samplers have no real-time priority: %s. When the CPUs are busy, %s decides how many "
			  "samples are missed.",
			  scheduling_reason_text(reason), instead);
}

void health_scheduling(struct health *health, enum scheduling_class class, enum scheduling_reason reason)
{
	struct log_about about = { .message = MESSAGE_PRIORITY_WITHDRAWN };
	bool withdrawn = scheduling_was_withdrawn(reason);
	/* The sampler gives it back after a minute at the earliest: that is calm enough. */
	enum condition_turn turn = condition_step(&health->withdrawn, withdrawn, health->now, 0);

	about.state = condition_state(turn);
	if (turn == CONDITION_BEGINS) {
		log_about(LOG_WARNING, &about,
			  "a sampler lost its real-time priority: %s. It is scheduled as any other thread for a minute "
			  "or more. Lengthen sampling.interval, watch fewer targets, or raise sampling.cpu_budget.",
			  scheduling_reason_text(reason));
	} else if (turn == CONDITION_ENDS) {
		about.lasted_ns = condition_lasted_ns(&health->withdrawn);
		log_about(LOG_NOTICE, &about, "the samplers have real-time priority again, after %llu s",
			  (unsigned long long)(about.lasted_ns / NS_PER_S));
	}
	if (!health->scheduling_logged && (class == SCHEDULING_REAL_TIME || reason != SCHEDULING_NO_REASON)) {
		health->scheduling_logged = true;
		if (!withdrawn)
			log_scheduling(class, reason);
	}
}

/* ---- targets ---- */

static void log_unwatched(enum health_unwatched kind, const struct discovery_state *state, struct log_about *about)
{
	const unsigned long long count = about->count;

	switch (kind) {
	case UNWATCHED_REFUSED:
		log_about(LOG_WARNING, about,
			  "more targets match than sampling.max_targets allows: %llu are not watched", count);
		return;
	case UNWATCHED_FAILED:
		about->error = state->target_table.last_error;
		log_about(LOG_WARNING, about,
			  "%llu targets cannot be opened: %s. For \"Too many open files\" raise LimitNOFILE (up to 10 "
			  "descriptors a cgroup); for \"Permission denied\" run as root or as the user that owns them.",
			  count, strerror(-state->target_table.last_error));
		return;
	case UNWATCHED_UNREADABLE:
		log_about(LOG_NOTICE, about, "%llu processes cannot be read (hidepid, or owned by another user)",
			  count);
		return;
	case UNWATCHED_UNFINISHED:
		about->count = 0;
		about->error = state->error;
		log_about(LOG_WARNING, about,
			  "the scan for targets was not completed: %s. Watched targets remain so, new ones are not "
			  "found. "
			  "For \"Too many open files\" raise LimitNOFILE.",
			  strerror(-state->error));
		return;
	case UNWATCHED_UNLABELLED:
		log_about(LOG_WARNING, about,
			  "the labels of %llu containers cannot be read: %s. No target that asks for labels selects "
			  "them.",
			  count, state->unlabelled_why);
		return;
	case UNWATCHED_HASTY:
		about->count = 0;
		log_about(
			LOG_NOTICE, about,
			"processes start and end faster than they may be read one by one: those that last are found by "
			"scans, the others are only counted");
		return;
	case UNWATCHED_KINDS:
		return;
	}
}

static void check_unwatched(struct health *health, enum health_unwatched kind, const struct discovery_state *state,
			    uint64_t count)
{
	static const char *const ends[UNWATCHED_KINDS] = {
		[UNWATCHED_REFUSED] = "all targets that match are watched again",
		[UNWATCHED_FAILED] = "all targets can be opened again",
		[UNWATCHED_UNREADABLE] = "all processes can be read again",
		[UNWATCHED_UNFINISHED] = "new targets are found again",
		[UNWATCHED_UNLABELLED] = "the labels of all containers can be read",
		[UNWATCHED_HASTY] = "processes start slowly enough to be read one by one again",
	};
	struct log_about about = { .message = MESSAGE_TARGETS_UNWATCHED, .count = count };
	enum condition_turn turn =
		step_condition(&health->unwatched[kind], condition_level(count, 2), health->now, &about);

	if (turn == CONDITION_ENDS)
		log_about(LOG_NOTICE, &about, "%s, after %llu s", ends[kind],
			  (unsigned long long)(about.lasted_ns / NS_PER_S));
	else if (turn != CONDITION_SAME)
		log_unwatched(kind, state, &about);
}

/* What the limit should be, a multiple of 1024. */
static unsigned long long wanted_limit(const struct target_table_counts *counts, const struct rlimit *limit)
{
	unsigned long long wanted = limit->rlim_cur + (unsigned long long)counts->cold * DESCRIPTORS_PER_PROCESS;

	return (wanted + 1023) / 1024 * 1024;
}

static void check_descriptors(struct health *health, const struct target_table_counts *counts)
{
	struct log_about about = { .message = MESSAGE_DESCRIPTORS_SHORT, .count = counts->cold };
	enum condition_turn turn = step_condition(&health->cold, condition_level(counts->cold, 2), health->now, &about);
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	if (turn == CONDITION_ENDS)
		log_about(LOG_NOTICE, &about,
			  "all processes are read through descriptors of their own again, after %llu s",
			  (unsigned long long)(about.lasted_ns / NS_PER_S));
	else if (turn != CONDITION_SAME)
		log_about(LOG_NOTICE, &about,
			  "%zu of %zu processes are read without descriptors of their own, those that run least: the "
			  "limit of open files is %llu. It costs more CPU when they run; raise it with "
			  "LimitNOFILE=%llu.",
			  counts->cold, counts->processes, (unsigned long long)limit.rlim_cur,
			  wanted_limit(counts, &limit));
}

/* Once, and whenever it changes. */
static void log_source(struct health *health, const struct discovery_state *state)
{
	const char *why = state->source_why;

	if (!state->listened ||
	    (health->source_logged && health->source == state->source && health->exit_totals == state->exit_totals))
		return;

	health->source_logged = true;
	health->source = state->source;
	health->exit_totals = state->exit_totals;
	if (state->source == PROCESS_EVENTS_NONE)
		log_line(LOG_NOTICE, "new processes are found by rescans only (sampling.rescan_interval): %s", why);
	else
		log_line(LOG_INFO, "new processes are found at once, through the kernel's %s%s%s%s",
			 state->source == PROCESS_EVENTS_KERNEL      ? "scheduler"
			 : state->source == PROCESS_EVENTS_CONNECTOR ? "proc connector"
								     : "perf events",
			 state->exit_totals ? ", with their total usage when they end" : "", *why ? "; " : "", why);
}

void health_discovery(struct health *health, const struct discovery_state *state)
{
	check_unwatched(health, UNWATCHED_REFUSED, state, state->target_table.refused);
	check_unwatched(health, UNWATCHED_FAILED, state, state->target_table.failed);
	check_unwatched(health, UNWATCHED_UNREADABLE, state, state->unreadable);
	check_unwatched(health, UNWATCHED_UNFINISHED, state, state->error != 0);
	check_unwatched(health, UNWATCHED_UNLABELLED, state, state->unlabelled);
	check_unwatched(health, UNWATCHED_HASTY, state, state->storms != health->storms);
	health->storms = state->storms;
	health->reading = state->reading;
	check_descriptors(health, &state->target_table);
	log_source(health, state);
}

/* ---- rules ---- */

void health_rules_behind(struct health *health, uint64_t lost_pages, mono_t now)
{
	bool grew = lost_pages > health->lost_pages;

	if (!health->behind.on)
		health->lost_before = health->lost_pages;
	health->lost_pages = lost_pages;

	struct log_about about = { .message = MESSAGE_RULES_BEHIND, .count = lost_pages - health->lost_before };
	enum condition_turn turn =
		step_condition(&health->behind, grew ? condition_level(about.count, 10) : 0, now, &about);

	if (turn == CONDITION_ENDS)
		log_about(LOG_NOTICE, &about,
			  "the rules keep up again: %llu pages of the ring were never judged, over %llu s",
			  (unsigned long long)about.count, (unsigned long long)(about.lasted_ns / NS_PER_S));
	else if (turn != CONDITION_SAME)
		log_about(
			LOG_WARNING, &about,
			"the sampler overtook the rules: %llu pages were never judged. The CPUs are busy, or the ring "
			"is too small: enlarge ring.size, lengthen sampling.interval, or raise CPUWeight.",
			(unsigned long long)about.count);
}

/* ---- clocks ---- */

/* Counts a jump, if there was one. True: *ret_count of them are to be logged. */
static bool note_jump(struct health_jumps *jumps, int64_t by_ns, bool jumped, mono_t now, uint64_t *ret_count)
{
	if (jumped) {
		jumps->times++;
		jumps->unlogged++;
		jumps->last_ns = by_ns;
		jumps->at = now;
	}
	if (jumps->unlogged == 0 || (jumps->logged.ns && mono_diff(now, jumps->logged) < (int64_t)HEALTH_JUMP_PAUSE_NS))
		return false;

	*ret_count = jumps->unlogged;
	jumps->unlogged = 0;
	jumps->logged = now;

	return true;
}

static void check_wall_clock(struct health *health, int64_t by_ns, int64_t tolerance_ns, mono_t now)
{
	struct health_jumps *steps = &health->steps;
	uint64_t count;

	if (!note_jump(steps, by_ns, by_ns > tolerance_ns || by_ns < -tolerance_ns, now, &count))
		return;

	double seconds = (double)steps->last_ns / NS_PER_S;
	struct log_about about = { .message = MESSAGE_CLOCK_STEPPED,
				   .value = &seconds,
				   .count = count > 1 ? count : 0 };

	if (count > 1)
		log_about(LOG_NOTICE, &about, "the wall clock was stepped %llu times, the last time by %+.3f s",
			  (unsigned long long)count, seconds);
	else
		log_about(LOG_NOTICE, &about, "the wall clock was stepped by %+.3f s", seconds);
}

static void check_suspend(struct health *health, int64_t by_ns, mono_t now)
{
	struct health_jumps *suspends = &health->suspends;
	uint64_t count;

	if (!note_jump(suspends, by_ns, by_ns > (int64_t)HEALTH_JUMP_NS, now, &count))
		return;

	double seconds = (double)suspends->last_ns / NS_PER_S;
	struct log_about about = { .message = MESSAGE_SUSPENDED, .value = &seconds, .count = count > 1 ? count : 0 };

	if (count > 1)
		log_about(LOG_NOTICE, &about, "the machine was suspended %llu times, the last time for %.0f s",
			  (unsigned long long)count, seconds);
	else
		log_about(LOG_NOTICE, &about, "the machine was suspended for %.0f s: nothing was recorded meanwhile",
			  seconds);
}

void health_clock(struct health *health, mono_t mono, wall_t wall, uint64_t boot_ns)
{
	int64_t wall_ahead_ns = (int64_t)(wall.ns - boot_ns), boot_ahead_ns = (int64_t)(boot_ns - mono.ns);

	if (health->has_clocks) {
		int64_t slewed_ns = (int64_t)(boot_ns - health->boot_ns) / 10;

		check_wall_clock(health, wall_ahead_ns - health->wall_ahead_ns,
				 (int64_t)HEALTH_JUMP_NS + (slewed_ns > 0 ? slewed_ns : 0), mono);
		check_suspend(health, boot_ahead_ns - health->boot_ahead_ns, mono);
	}
	health->has_clocks = true;
	health->wall_ahead_ns = wall_ahead_ns;
	health->boot_ahead_ns = boot_ahead_ns;
	health->boot_ns = boot_ns;
}

/* ---- threads ---- */

static struct health_thread *thread_of(struct health *health, const char *name)
{
	for (size_t i = 0; i < health->thread_count; i++)
		if (strcmp(health->threads[i].name, name) == 0)
			return &health->threads[i];

	assert(health->thread_count < HEALTH_THREADS_MAX);
	health->threads[health->thread_count].name = name;

	return &health->threads[health->thread_count++];
}

/* What does not work meanwhile. */
static const char *consequence_of(const struct health *health, const char *thread, char buf[160])
{
	if (strcmp(thread, "collector") == 0)
		return "incidents are not written meanwhile";
	if (strcmp(thread, "discovery") != 0)
		return "systemd gets no keep-alive messages, and will restart the service";
	if (health->reading == 0)
		return "new targets are not found meanwhile; watched ones are still recorded";
	snprintf(buf, 160,
		 "it is blocked in a read of the files of process %d. New targets are not found meanwhile; watched "
		 "ones are still recorded",
		 health->reading);

	return buf;
}

void health_stuck(struct health *health, const char *thread, uint64_t silent_ns, mono_t now)
{
	struct health_thread *part = thread_of(health, thread);
	uint64_t lasted_ns = part->silent_ns; /* until now, if it is over */
	enum condition_turn turn =
		condition_step(&part->stuck, condition_level(silent_ns / NS_PER_S + (silent_ns > 0), 2), now, 0);
	struct log_about about = {
		.message = MESSAGE_THREAD_STUCK,
		.state = condition_state(turn),
		.thread = thread,
	};

	char buf[160];

	part->silent_ns = silent_ns;
	if (turn == CONDITION_ENDS) {
		about.lasted_ns = lasted_ns;
		log_about(LOG_NOTICE, &about, "the %s thread continues, after %llu s", thread,
			  (unsigned long long)(lasted_ns / NS_PER_S));
	} else if (turn != CONDITION_SAME) {
		log_about(LOG_ERR, &about, "the %s thread has given no sign of life for %llu s: %s", thread,
			  (unsigned long long)(silent_ns / NS_PER_S), consequence_of(health, thread, buf));
	}
}

/* ---- the stop ---- */

void health_summary(const struct health *health, const struct stats *stats)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];

	stats_verdicts(stats, &nothing, verdicts);
	log_line(LOG_INFO, "took %llu of %llu snapshots (capture rate %.2f %%), mean wake-up error %.1f us",
		 (unsigned long long)stats->total_snapshots, (unsigned long long)stats->total_slots,
		 100 * verdicts[VERDICT_CAPTURE_RATE].ratio,
		 stats_woken(stats) ? (double)stats->total_sleep_timing_error / (double)stats_woken(stats) / 1e3 : 0);
	for (int kind = 0; kind < VERDICT_KINDS; kind++) {
		if (verdicts[kind].bad)
			log_bad_verdict(kind, &verdicts[kind], verdicts[kind].what, NULL, "over the whole run");
		else if (health->episodes[kind])
			log_line(LOG_NOTICE, "%s was bad for a while (%llu times), not over the whole run",
				 verdicts[kind].what, (unsigned long long)health->episodes[kind]);
	}
}
