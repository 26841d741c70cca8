/*
 * pacing.h: when to do something, and how often: the sampler's schedule, its CPU budget, overload
 * sampling and sampling periods of events, back-off of idle targets, a token bucket for CPU time, a
 * rate limit, and conditions that are reported when they begin and end. Pure: time is an argument.
 */
#ifndef SPIKEWATCH_LIB_MODEL_PACING_H
#define SPIKEWATCH_LIB_MODEL_PACING_H

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * struct schedule: when the sampler works: absolute deadlines, skipped slots, back-off.
 *
 * Slot k is at start + k * interval. A slot that passed while the sampler was busy or asleep is
 * skipped and counted, never made up for by a burst. Changing the interval starts a new grid;
 * counters go on.
 *
 *     schedule_init ─▶ [ sleep until schedule_deadline ] ─▶ schedule_wake(now) ─▶ collect ─┐
 *                     ▲       ▲      │ a reader holds the next page          schedule_done(now)
 *                     │       └─ [ sleep until what schedule_backoff(now) returns ]        │
 *                     └────────────────────────────────────────────────────────────────────┘
 */

struct schedule {
	struct stats *stats; /* the caller's; must outlive the schedule */
	uint64_t interval_ns;
	mono_t deadline; /* of the slot to be taken next, or being taken */
	mono_t until;    /* when the current sleep is to end: deadline, or the end of a backoff */
	mono_t woke;     /* when the collection under way began */
	double backoff;  /* factor of the next backoff sleep */
};

/*
 * interval_ns > 0. The first slot is now. Sets the collection_rate and cheap_start_nanos of *stats.
 */
void schedule_init(struct schedule *schedule, struct stats *stats, mono_t now, uint64_t interval_ns);

/* When to take the next snapshot. */
static inline mono_t schedule_deadline(const struct schedule *schedule)
{
	return schedule->deadline;
}

/*
 * The sampler is awake at now and about to collect: counts the timing error, held against the
 * deadline or the end of the backoff, and slots that have passed since the deadline as missed. May
 * be called early: that counts as error too.
 */
void schedule_wake(struct schedule *schedule, mono_t now);

/*
 * The snapshot is complete: counts it, falls back to the first backoff factor, and moves to the
 * first slot after now. Slots that passed meanwhile are missed; recalls: they are not yet, but made
 * up for, or missed in the next schedule_wake.
 */
void schedule_done(struct schedule *schedule, mono_t now, bool recalls);

/*
 * Nothing could be taken because a reader holds the next page: counts a backoff sleep and returns
 * until when to sleep (now + interval x factor). The factor grows up to its maximum. Slots that
 * pass meanwhile count as missed in the next schedule_wake.
 */
mono_t schedule_backoff(struct schedule *schedule, mono_t now);

/*
 * Do not wake up for the next slots, so many, but for the one after them: until then they are neither taken nor missed.
 */
static inline void schedule_put_off(struct schedule *schedule, uint64_t slots)
{
	schedule->until = mono_add(schedule->deadline, slots * schedule->interval_ns);
}

/* The slot at the deadline is over, and what happened in it was found out afterwards: it counts as taken. */
static inline void schedule_make_up(struct schedule *schedule)
{
	schedule->stats->total_slots++;
	schedule->stats->total_snapshots++;
	schedule->stats->past_snapshots++;
	schedule->stats->cheap_last_collection_nanos = schedule->deadline.ns;
	schedule->deadline = mono_add(schedule->deadline, schedule->interval_ns);
}

/*
 * The run ends now: slots that have elapsed since the deadline, in a backoff for instance, are
 * missed.
 */
void schedule_stop(struct schedule *schedule, mono_t now);

/*
 * A new grid. Its first slot is the one that has begun and was not taken, which still can be,
 * otherwise the next one of the old grid or one interval from now, whichever comes first: changes
 * in quick succession never put a tick off. A backoff sleep that is under way ends, and counts for
 * as long as it lasted. Not between schedule_wake and schedule_done. interval_ns > 0.
 */
void schedule_set_interval(struct schedule *schedule, mono_t now, uint64_t interval_ns);

/*
 * struct cpu_budget: keeps the recorder within its CPU budget: first by backing off from targets
 * that sleep (struct idle_backoff), then by lengthening the sampling interval; and takes both back.
 *
 * The budget is what was configured, or half of what a CPU quota of the recorder's cgroup allows if
 * that is less: a process that uses its whole quota is stopped for most of each quota period, and
 * other threads need some of it.
 *
 * Once a period the owner reports how much CPU time was used. After CPU_BUDGET_HOT periods in a row
 * above the budget (a single one may be due to the first look at everything) it backs off, if it may
 * and does not yet; else the interval is doubled (up to CPU_BUDGET_FACTOR_MAX times the configured
 * one), at once as often as it takes for all slots to fit. Above a quota, after which slots are missed
 * by the hundred, one period is enough. After CPU_BUDGET_CALM calm periods, in which half
 * the interval would still have fitted into the budget, it halves; and at the configured interval,
 * after as many in which what backing off saved would have fitted too, it looks at everything in
 * every tick again. The gap between the conditions prevents oscillation.
 *
 * What others make it do (finding the processes that they start) counts up to a quarter of the budget, unless a quota
 * bounds that: sampling has the rest, however many processes are started.
 *
 * Where there is a quota from the start it begins with the longest interval (cpu_budget_begin): the first
 * scan and the first look at everything need what there is. From the first period that fits on it goes
 * to the shortest interval that would have fitted into three quarters, at once, and so for
 * CPU_BUDGET_FINDING periods.
 */

#define CPU_BUDGET_PERIOD_NS NS_PER_S
#define CPU_BUDGET_FACTOR_MAX 64u
#define CPU_BUDGET_HOT 2u   /* periods */
#define CPU_BUDGET_CALM 10u /* periods */
#define CPU_BUDGET_FINDING 3u

/* Totals. */
struct cpu_use {
	uint64_t cpu_ns;      /* CPU time of the process */
	uint64_t sampling_ns; /* of it, what grows with the rate of sampling */
	uint64_t others_ns; /* of it, what sampling more slowly makes no less: others decide how much there is to do */
	uint64_t saved_ns;  /* what backing off saved */
	uint64_t slots, snapshots;
};

struct cpu_budget {
	double budget;       /* CPU seconds per second; <= 0: no limit */
	mono_t since;        /* start of the running period */
	struct cpu_use used; /* until then */
	uint32_t factor;     /* interval in force / interval configured: a power of two */
	uint32_t hot, calm;  /* periods of that kind in a row */
	double share;        /* of the last whole period: CPU seconds per second */
	bool may_back_off;   /* the caller's, after cpu_budget_init */
	bool backs_off;      /* from targets that sleep */
	uint32_t finding;    /* periods that are left in which it finds the first rate */
};

/* budget_percent: of one core. used: as of now. */
void cpu_budget_init(struct cpu_budget *budget, double budget_percent, mono_t now, const struct cpu_use *used);

/* Of a quota. */
#define CPU_BUDGET_OF_QUOTA 0.5

/*
 * What may be used, CPU seconds per second, under a quota (the same unit; <= 0: none). <= 0: no limit.
 */
static inline double cpu_budget_allowed(const struct cpu_budget *budget, double quota)
{
	double of_quota = quota * CPU_BUDGET_OF_QUOTA;

	return budget->budget > 0 && of_quota > 0 && of_quota < budget->budget ? of_quota : budget->budget;
}

/* After cpu_budget_init: nothing was sampled so far, and there is such a quota. */
static inline void cpu_budget_begin(struct cpu_budget *budget, double quota)
{
	if (cpu_budget_allowed(budget, quota) >= budget->budget)
		return;
	budget->factor = CPU_BUDGET_FACTOR_MAX;
	budget->finding = CPU_BUDGET_FINDING;
}

/* Whether a period is over, so that cpu_budget_step is worth a reading of the CPU clock. */
static inline int cpu_budget_due(const struct cpu_budget *budget, mono_t now)
{
	return mono_diff(now, budget->since) >= (int64_t)CPU_BUDGET_PERIOD_NS;
}

/*
 * Ends a period, in which there was such a quota (as for cpu_budget_allowed). used: as of now.
 * Returns the factor from now on, which the caller reports if it has changed.
 */
uint32_t cpu_budget_step(struct cpu_budget *budget, mono_t now, const struct cpu_use *used, double quota);

/*
 * struct overload_sampling: when to stop counting events that come too fast, when to resume, and
 * how many events each sample taken meanwhile stands for.
 *
 * The owner counts events (page faults), takes every nth as a sample, and can read a total of all
 * events, counted or not, at any time (a counter of the kernel). Where there is no total, time
 * takes its place: events are then assumed to come evenly.
 *
 *	                 OVERLOAD_SAMPLING_STOP: overload_sampling_stop
 *	(counting) ───────────────────────────────────────────────────────▶ (not counting)
 *	    │   ▲                                                                  │
 *	    │   └── at overload_sampling_next_ns: overload_sampling_begin ─────────┘
 *	    └──▶ (counting), a new slot after OVERLOAD_SAMPLING_SLOT: overload_sampling_begin
 *
 * Time is cut into pieces in which everything was counted, and gaps between them. The
 * events of a gap are shared out to the pieces on both sides of it, by their rates, and all samples
 * of a piece stand for an equal part of it.
 */

/*
 * Pieces that are remembered: more than a minute of counting that stops and resumes all the time.
 */
#define OVERLOAD_SAMPLING_PIECES 1024u

/*
 * At most `most` samples in slot_ns on average; neither is 0. After a quiet time that was long
 * enough `burst` of them may come at once; a burst below `most` is `most`.
 */
struct overload_sampling_options {
	uint64_t slot_ns;
	uint32_t most;
	uint32_t burst;
	uint32_t seed; /* any: counting resumes at random times, so as not to beat with periodic events */
};

struct overload_sampling_piece {
	uint64_t from_ns, to_ns;
	uint64_t counted; /* events in it, by the total */
	uint64_t gained;  /* events in gaps that it stands for */
};

/* Read only outside of this module. */
struct overload_sampling {
	struct overload_sampling_options options;
	bool on;
	bool watchful;    /* on: this slot is the first after a gap */
	bool settled;     /* the piece before the gap is final */
	uint64_t slot_ns; /* on: start of the slot */
	uint64_t next_ns; /* off: when to resume */
	uint64_t debt_ns; /* on: at slot_ns, time that the samples before it are ahead of the allowed rate */
	uint64_t from_ns; /* start of the current piece or gap */
	uint64_t total;   /* at from_ns */
	uint64_t gap;     /* events before this piece that no piece stands for yet */
	uint64_t random;
	uint64_t first, count; /* pieces: number of the oldest, which only grows, and how many */
	struct overload_sampling_piece pieces[OVERLOAD_SAMPLING_PIECES];
};

enum overload_sampling_verdict {
	OVERLOAD_SAMPLING_GO_ON,
	OVERLOAD_SAMPLING_SLOT, /* the slot is over and was quiet: overload_sampling_begin */
	OVERLOAD_SAMPLING_STOP, /* too many: overload_sampling_stop, once counting has stopped */
};

struct overload_sampling_summary {
	uint64_t counted, all; /* events */
	uint64_t since_ns;     /* from when on not all were counted, if they were not */
};

/* Counting begins. */
void overload_sampling_init(struct overload_sampling *sampling, const struct overload_sampling_options *options,
			    uint64_t now_ns, uint64_t total);

/* While counting: what to do. samples: since the slot began, on the CPU that had most of them. */
enum overload_sampling_verdict overload_sampling_judge(const struct overload_sampling *sampling, uint64_t now_ns,
						       uint64_t samples);

/*
 * Counting continues, or has resumed, in a new slot. samples: of the slot before, as given to
 * overload_sampling_judge; ignored after a gap.
 */
void overload_sampling_begin(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total, uint64_t samples);

/* Counting has stopped. samples: as given to overload_sampling_judge, or more. */
void overload_sampling_stop(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total, uint64_t samples);

/*
 * When to call overload_sampling_judge or, while nothing is counted, overload_sampling_begin, even
 * if there were no samples. UINT64_MAX: no need.
 */
static inline uint64_t overload_sampling_next_ns(const struct overload_sampling *sampling)
{
	if (!sampling->on)
		return sampling->next_ns;
	return sampling->watchful ? sampling->slot_ns + sampling->options.slot_ns : UINT64_MAX;
}

/*
 * Events until now are settled: later samples will not stand for them. Before the weights of
 * samples up to now are asked for while counting goes on.
 */
void overload_sampling_settle(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total);

/*
 * How many events a sample of time_ns stands for that by itself stands for `weight`. In pieces that
 * are forgotten or have not ended: weight.
 */
uint64_t overload_sampling_weigh(const struct overload_sampling *sampling, uint64_t time_ns, uint64_t weight);

/* How many events of from_ns .. to_ns were counted, by whole pieces; both 0: nothing is known. */
void overload_sampling_sum_up(const struct overload_sampling *sampling, uint64_t from_ns, uint64_t to_ns,
			      struct overload_sampling_summary *ret);

/*
 * struct sampling_period: every nth event is a sample although counting stops and restarts at zero
 * all the time. What was counted after the last sample of a stretch is carried over: the next
 * stretch takes its first sample so much earlier.
 *
 *	uint64_t period = sampling_period_next(&sampling);  count, and sample every period-th; then:
 *	uint64_t each = sampling_period_end(&sampling, period, counted);
 */
struct sampling_period {
	uint64_t period;  /* not 0 */
	uint64_t carry;   /* counted, but no sample stands for it yet */
	uint64_t counted; /* in the stretch before */
};

/* For a stretch that begins now: the period, or less. */
uint64_t sampling_period_next(const struct sampling_period *sampling);

/*
 * A stretch with such a period has ended. How many events each of its samples stands for; 0: no
 * samples.
 */
uint64_t sampling_period_end(struct sampling_period *sampling, uint64_t period, uint64_t counted);

/*
 * struct idle_backoff: how often a target that does not change is looked at, and what readers of
 * the records may conclude from it.
 *
 * A target that has not changed for d is looked at again at most min(d / 8, the idle interval)
 * later, or at the next tick. So a reader that knows when it last changed knows, without a record,
 * that it was still the same that long ago; and a rate over a time that ends then is wrong by at
 * most an eighth of its idle part.
 */

struct idle_backoff {
	uint64_t interval_ns; /* between two ticks; 0: all are looked at in every tick */
	uint64_t idle_ns;     /* the longest pause; not above interval_ns: all in every tick */
};

/* How long ago, at most, a target was looked at that had not changed for still_ns by now. */
static inline uint64_t idle_backoff_bound_ns(uint64_t still_ns, uint64_t idle_ns)
{
	uint64_t share_ns = still_ns / 8;

	return share_ns < idle_ns ? share_ns : idle_ns;
}

/*
 * How long after a look at a tick the next one is due: in the first tick at or after that; 0: in
 * the next tick. still_ns: since it changed. tick: how many there were. phase: any number; targets
 * with different phases are looked at in different ticks.
 */
uint64_t idle_backoff_wait_ns(const struct idle_backoff *pace, uint64_t still_ns, uint32_t tick, uint32_t phase);

/*
 * When a target was last looked at for certain, by the tick at `now`: its record is from `at`, it
 * last changed at *since (NULL: not known), and no record came later. idle_ns as of that tick.
 */
mono_t idle_backoff_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns);

/*
 * struct token_bucket: CPU time that may be used: a share of a core, and at once what was not used
 * of the last second. A caller that used more waits until the bucket has filled to zero again, a
 * second at most. After a second without use it is full.
 */

struct token_bucket {
	unsigned share;  /* one part in so many of a core */
	int64_t left_ns; /* below 0: debt */
	mono_t filled;   /* as of then */
};

/* Full. */
struct token_bucket token_bucket_of(unsigned share, mono_t now);

/* cpu_ns were used up to now, which is not earlier than before. */
void token_bucket_take(struct token_bucket *bucket, uint64_t cpu_ns, mono_t now);

/* Whether it is in debt. */
bool token_bucket_is_spent(const struct token_bucket *bucket, mono_t now);

/*
 * struct rate_limit: when a source of events may be read again. Events that come alone are read at
 * once; from the second within gap_ns on, only every gap_ns. While nothing comes there is no
 * deadline to wait for. {0}: no event yet.
 */

struct rate_limit {
	mono_t last;  /* event */
	mono_t until; /* not to be read before */
};

/* Something was read: if for the second time within gap_ns, the next read is gap_ns later. */
void rate_limit_event(struct rate_limit *limit, uint64_t gap_ns, mono_t now);

/* Whether it may be read. */
static inline bool rate_limit_allows(const struct rate_limit *limit, mono_t now)
{
	return mono_diff(now, limit->until) >= 0;
}

/*
 * struct condition: when to report something that is bad for a while: when it begins, when it is
 * worse than it has been since then, and when it has been good for some time. One that comes and
 * goes counts as lasting, and while it lasts nothing is reported.
 */

/* What to report now. */
enum condition_turn { CONDITION_SAME, CONDITION_BEGINS, CONDITION_WORSENS, CONDITION_ENDS };

/* Zeroed is the right start: all is well. */
struct condition {
	bool on;
	unsigned worst;     /* level of this episode */
	mono_t began, last; /* the first look at which it was bad, and the last one */
	uint64_t times;     /* looks at which it was bad in this episode; still readable when it ends */
};

/*
 * One look. level: 0 is good; one that is higher than all since it began is reported: there
 * should be few. It ends at the first good look when calm_ns have passed since the last bad one, so
 * that there are at most two reports besides the levels in that time.
 */
enum condition_turn condition_step(struct condition *condition, unsigned level, mono_t now, uint64_t calm_ns);

/* From the first to the last bad look; also right after it has ended. */
static inline uint64_t condition_lasted_ns(const struct condition *condition)
{
	int64_t lasted = mono_diff(condition->last, condition->began);

	return lasted > 0 ? (uint64_t)lasted : 0;
}

/* "begin", "change", "end": for log_about. NULL of CONDITION_SAME. */
const char *condition_state(enum condition_turn turn);

/*
 * 1 for less than `step`, and one more for each factor of `step` (at least 2): a level for an
 * amount that may grow. 0 of 0.
 */
unsigned condition_level(uint64_t amount, uint64_t step);

#endif
