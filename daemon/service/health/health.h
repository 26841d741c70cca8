/*
 * health.h: speaks for the threads that never speak themselves: judges the sampler's counters over
 * the last span (stats.h), and what else may be wrong with the daemon or the machine, and says so
 * in the log: when a condition begins, when it is worse than it has been, when it has been good for
 * HEALTH_CALM_NS and, at the stop, how it was on the whole. Never a flood: a condition that goes on
 * is silent, and so is one that comes and goes.
 *
 * Levels, of which each is said once in an episode: a capture rate below 99, 90, 50 %; a sleep
 * error or collection time above 10, 25, 50 % of the interval; backoff above 5, 25, 50 % of the
 * time; a slowdown by 2, 4, 8, ...; twice as many targets that cannot be watched, or processes
 * without descriptors; ten times as many pages that were never judged; a thread that is stuck twice
 * as long.
 *
 * All belong to the main thread. health_judge comes first in each round: functions without an
 * argument for it take its time.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_HEALTH_HEALTH_H
#define SPIKEWATCH_DAEMON_SERVICE_HEALTH_HEALTH_H

#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/process_events.h"
#include "lib/base/base.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/source/source.h"

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
	UNWATCHED_UNREADABLE, /* may not be looked at */
	UNWATCHED_UNFINISHED, /* the scan stopped half-way */
	UNWATCHED_UNLABELLED, /* a target asks for labels, and theirs cannot be read */
	UNWATCHED_HASTY,      /* processes come faster than they may be looked at */
	UNWATCHED_KINDS
};

/* Jumps of one kind. */
struct health_jumps {
	uint64_t times;  /* ever */
	int64_t last_ns; /* how far the last one was; of a step back negative */
	mono_t at;       /* when it was noticed */
	uint64_t unsaid;
	mono_t said;
};

struct health_thread {
	const char *name;
	struct condition stuck;
	uint64_t silent_ns; /* as last heard; 0: it is alive */
};

/* Zeroed is the right start. Readable for those who show it. */
struct health {
	struct stats since[SAMPLERS_MAX];
	size_t samplers;             /* how many threads were judged */
	size_t worst[VERDICT_KINDS]; /* which of them is said to be bad */
	mono_t judged, now;
	bool bad[VERDICT_KINDS]; /* in the last span */
	uint64_t episodes[VERDICT_KINDS];
	struct condition verdicts[VERDICT_KINDS];
	struct condition budget;
	struct condition unwatched[UNWATCHED_KINDS];
	struct condition cold; /* processes without descriptors */
	bool source_said;
	enum process_events_source source; /* as it was said last */
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
 * Looks at the counters of the sampler threads as of now; logs what changed. Each thread is judged
 * by itself, and the worst counts: one that does not keep up must not disappear among those that
 * do. count: 1 to SAMPLERS_MAX, the same each time.
 */
void health_judge(struct health *health, const struct stats *threads, size_t count, mono_t now);

/*
 * Says when the CPU budget begins or ceases to lengthen the interval. share: CPU of this process,
 * of one core.
 */
void health_slowdown(struct health *health, uint32_t slowdown, double share);

/*
 * Takes note of whose files discovery reads. Says when targets cannot be watched, and why; when
 * processes have no descriptors of their own; and how new ones are found, when that is known and
 * when it changes.
 */
void health_discovery(struct health *health, const struct discovery_state *state);

/*
 * Says when the rules were overtaken by the sampler. lost_pages: all that were never judged, so far
 * (dispatcher_counts).
 */
void health_rules_behind(struct health *health, uint64_t lost_pages, mono_t now);

/*
 * Says when the wall clock was stepped, and when the machine slept. The three clocks must have been
 * read together (real_clock_together); boot is CLOCK_BOOTTIME, which goes on in a suspend as the
 * wall clock does. Slewing, up to a tenth of the time between two calls, is no step, nor is a leap
 * second.
 */
void health_clock(struct health *health, mono_t mono, wall_t wall, uint64_t boot_ns);

/*
 * Says when a thread has given no sign of life, and when it does again. thread: static text, the
 * same each time. silent_ns: since its last sign; 0: it is alive. For each of up to
 * HEALTH_THREADS_MAX threads; the main thread cannot speak for itself.
 */
void health_stuck(struct health *health, const char *thread, uint64_t silent_ns, mono_t now);

/* The last words: verdicts over the whole run. */
void health_summary(const struct health *health, const struct stats *stats);

#endif
