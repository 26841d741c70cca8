/*
 * health.h: judges the sampler's counters over the last span (struct stats) and what else may be
 * wrong with the daemon or the machine, and logs it: when a condition begins, when it gets worse,
 * when it has been good for HEALTH_CALM_NS and, at the stop, over the whole run. A condition that
 * continues, or comes and goes, is not logged again.
 *
 * Levels, of which each is logged once in an episode: a capture rate below 99, 90, 50 %; a sleep
 * error or collection time above 10, 25, 50 % of the interval; backoff above 5, 25, 50 % of the
 * time; a slowdown by 2, 4, 8, ...; twice as many targets that cannot be watched, or processes
 * without descriptors; ten times as many pages that were never judged; a thread that is stuck twice
 * as long.
 *
 * Belongs to the main thread. health_judge comes first in each round: functions without an argument
 * for the time use its time.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_HEALTH_HEALTH_H
#define SPIKEWATCH_DAEMON_SERVICE_HEALTH_HEALTH_H

#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/process_events.h"
#include "lib/base/base.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Conditions are judged over so much time: a single late wake-up of a busy machine is no condition.
 */
#define HEALTH_SPAN_NS (10 * NS_PER_S)

#define HEALTH_THREADS_MAX 24 /* 16 that sample, and some */

/* Why targets are not watched. */
enum health_unwatched {
	UNWATCHED_REFUSED,    /* beyond max_targets */
	UNWATCHED_FAILED,     /* could not be opened */
	UNWATCHED_UNREADABLE, /* hidden by permissions */
	UNWATCHED_UNFINISHED, /* the scan stopped half-way */
	UNWATCHED_UNLABELLED, /* a target asks for labels, and theirs cannot be read */
	UNWATCHED_HASTY,      /* processes start faster than they may be read */
	UNWATCHED_KINDS
};

/* Jumps of one kind. */
struct health_jumps {
	uint64_t times;  /* ever */
	int64_t last_ns; /* how far the last one was; of a step back negative */
	mono_t at;       /* when it was noticed */
	uint64_t unlogged;
	mono_t logged;
};

struct health_thread {
	const char *name;
	struct condition stuck;
	uint64_t silent_ns; /* as of the last call; 0: it is alive */
};

/* Starts zeroed. To be read by the status document and the metrics. */
struct health {
	struct stats since[SAMPLERS_MAX];
	size_t samplers;             /* how many threads were judged */
	size_t worst[VERDICT_KINDS]; /* the thread that is worst */
	mono_t judged, now;
	bool bad[VERDICT_KINDS]; /* in the last span */
	uint64_t episodes[VERDICT_KINDS];
	struct condition verdicts[VERDICT_KINDS];
	struct condition budget;
	struct condition withdrawn; /* the samplers' real-time priority */
	bool scheduling_logged;
	struct condition unwatched[UNWATCHED_KINDS];
	struct condition cold; /* processes without descriptors */
	bool source_logged;
	enum process_events_source source; /* as logged last */
	bool exit_totals;
	uint64_t storms;
	struct condition behind;
	uint64_t lost_pages, lost_before; /* total; total when the episode began */
	bool has_clocks;
	int64_t wall_ahead_ns, boot_ahead_ns; /* wall clock of boot clock, boot clock of monotonic clock */
	uint64_t boot_ns;
	struct health_jumps steps;    /* of the wall clock */
	struct health_jumps suspends; /* of the machine */
	int32_t reading;              /* the process whose files discovery reads; 0: none */
	struct health_thread threads[HEALTH_THREADS_MAX];
	size_t thread_count;
};

/*
 * Judges the counters of the sampler threads; logs what changed. Each thread is judged by itself,
 * and the worst counts: an average would hide one that does not keep up. count: 1 to SAMPLERS_MAX,
 * the same each time.
 */
void health_judge(struct health *health, const struct stats *threads, size_t count, mono_t now);

/*
 * What the CPU budget takes. late_ns: how late the onset of what slept may be seen because it is looked
 * at less often for that; 0: it is not. slowdown: of the interval. share: CPU of this process, of one
 * core.
 */
void health_budget(struct health *health, uint64_t late_ns, uint32_t slowdown, double share);

/*
 * Whether the samplers run with real-time priority, and why they do not: once, and whenever it is
 * withdrawn or given back.
 */
void health_scheduling(struct health *health, enum scheduling_class class, enum scheduling_reason reason);

/*
 * Which targets cannot be watched, and why; which processes have no descriptors of their own; how
 * new ones are found; whose files discovery reads.
 */
void health_discovery(struct health *health, const struct discovery_state *state);

/* Whether the sampler overtook the rules. lost_pages: never judged so far (dispatcher_counts). */
void health_rules_behind(struct health *health, uint64_t lost_pages, mono_t now);

/*
 * Whether the wall clock was stepped, and whether the machine was suspended. The three clocks must
 * have been read together (real_clock_together); boot is CLOCK_BOOTTIME, which includes suspends.
 * Slewing, up to a tenth of the time between two calls, is no step, nor is a leap second.
 */
void health_clock(struct health *health, mono_t mono, wall_t wall, uint64_t boot_ns);

/*
 * Whether a thread gives signs of life. thread: static text, the same each time. silent_ns: since
 * its last sign; 0: it is alive. At most HEALTH_THREADS_MAX threads.
 */
void health_stuck(struct health *health, const char *thread, uint64_t silent_ns, mono_t now);

/* Logs the verdicts over the whole run. */
void health_summary(const struct health *health, const struct stats *stats);

#endif
