/*
 * pacing.h: something that is bad for a while: when to say so. Said when it begins, when it is
 * worse than it has been since then, and when it has been good for some time: a condition that
 * comes and goes is one that lasts, and one that lasts is silent. Pure.
 */
#ifndef SPIKEWATCH_LIB_MODEL_PACING_H
#define SPIKEWATCH_LIB_MODEL_PACING_H

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * schedule.h: when the sampler works: absolute deadlines, skipped slots, backoff. Pure: time comes
 * in as arguments.
 *
 * Slot k is at start + k * interval. A slot that passed while the sampler was busy or asleep is
 * skipped and counted, never made up for by a burst. Changing the interval starts a new grid;
 * counters go on.
 *
 *     schedule_init ─▶ [ sleep until schedule_deadline ] ─▶ schedule_wake(now) ─▶ collect ─▶
 *     schedule_done(now) ─┐
 *                     ▲       ▲      │ a reader holds the next page                                  │
 *                     │       └─ [ sleep until what schedule_backoff(now) returns ]                      │
 *                     └───────────────────────────────────────────────────────────────────────────────┘
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
mono_t schedule_deadline(const struct schedule *schedule);

/*
 * The sampler is awake at now and about to collect: counts the timing error, held against the
 * deadline or the end of the backoff, and slots that have passed since the deadline as missed. May
 * be called early: that counts as error too.
 */
void schedule_wake(struct schedule *schedule, mono_t now);

/*
 * The snapshot is complete: counts it, falls back to the first backoff factor, and moves to the
 * first slot after now. Slots that passed meanwhile are missed.
 */
void schedule_done(struct schedule *schedule, mono_t now);

/*
 * Nothing could be taken because a reader holds the next page: counts a backoff sleep and returns
 * until when to sleep (now + interval x factor). The factor grows up to its maximum. Slots that
 * pass meanwhile count as missed in the next schedule_wake.
 */
mono_t schedule_backoff(struct schedule *schedule, mono_t now);

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
 * cpu_budget.h: keeps the recorder within its CPU budget by lengthening the sampling interval, and
 * lets it recover. Pure.
 *
 * Once a period the owner reports how much CPU time the whole process has used. After
 * CPU_BUDGET_HOT periods in a row above the budget the interval doubles (up to
 * CPU_BUDGET_FACTOR_MAX times the configured one): a single one may be the first look at
 * everything. After CPU_BUDGET_CALM calm periods, in which half the interval would still have
 * fitted into the budget, it halves. The gap between the two conditions keeps it from swinging.
 */

#define CPU_BUDGET_PERIOD_NS NS_PER_S
#define CPU_BUDGET_FACTOR_MAX 64u
#define CPU_BUDGET_HOT 2u   /* periods */
#define CPU_BUDGET_CALM 10u /* periods */

struct cpu_budget {
	double budget;      /* CPU seconds per second; <= 0: no limit */
	mono_t since;       /* start of the running period */
	uint64_t cpu_ns;    /* process CPU time then */
	uint32_t factor;    /* interval in force / interval configured: a power of two */
	uint32_t hot, calm; /* periods of that kind in a row */
	double share;       /* of the last whole period: CPU seconds per second */
};

/* budget_percent: of one core. cpu_ns: process CPU time at now. */
void cpu_budget_init(struct cpu_budget *cpu_budget, double budget_percent, mono_t now, uint64_t cpu_ns);

/* Whether a period is over, so that cpu_budget_step is worth a reading of the CPU clock. */
static inline int cpu_budget_due(const struct cpu_budget *cpu_budget, mono_t now)
{
	return mono_diff(now, cpu_budget->since) >= (int64_t)CPU_BUDGET_PERIOD_NS;
}

/*
 * Ends a period. Returns the factor from now on; it differs from the one before when something must
 * be said.
 */
uint32_t cpu_budget_step(struct cpu_budget *cpu_budget, mono_t now, uint64_t cpu_ns);

/*
 * overload_sampling.h: when to cease counting what comes too fast, when to go on, and what each of
 * those that were counted stands for then. Pure.
 *
 * The owner counts things that happen (page faults), takes every so-many-th as a sample, and has a
 * total of all things, counted or not, at hand whenever it wants (a counter that somebody else
 * keeps). Where there is no total, the time does: things then are taken to come evenly.
 *
 * 	        OVERLOAD_SAMPLING_STOP: overload_sampling_stop                         at
 *          overload_sampling_next_ns: overload_sampling_begin
 * 	(counting) ───────────────────────────────────▶ (not counting)
 *  ───────────────────────────────────▶ (counting)
 * 	    │ OVERLOAD_SAMPLING_SLOT: overload_sampling_begin
 * 	    └──▶ (counting)
 *
 * Time is cut into pieces in which everything was counted, and gaps between them. What happened in
 * a gap is given to the pieces on both sides of it, by their rates, and all samples of a piece
 * stand for an equal part of it.
 */

/* Pieces that are remembered: more than a minute of counting that ceases all the time. */
#define OVERLOAD_SAMPLING_PIECES 1024u

/*
 * No more than `most` samples in slot_ns, on an average; neither is 0. After a calm that was long
 * enough, `burst` of them may come at once; below `most` it is that.
 */
struct overload_sampling_options {
	uint64_t slot_ns;
	uint32_t most;
	uint32_t burst;
	uint32_t seed; /* of when to go on: not at regular times, which may be those of what is counted. Anything */
};

struct overload_sampling_piece {
	uint64_t from_ns, to_ns;
	uint64_t counted; /* by the total, things that happened in it */
	uint64_t gained;  /* that happened in gaps and that it stands for */
};

/* To be looked at only. */
struct overload_sampling {
	struct overload_sampling_options options;
	bool on;
	bool watchful;    /* on: this slot is the first after a gap */
	bool settled;     /* the piece before the gap is not to be touched any more */
	uint64_t slot_ns; /* on: the slot's begin */
	uint64_t next_ns; /* off: when to go on */
	uint64_t owed_ns; /* on: at slot_ns, so much more time should the samples before it have taken */
	uint64_t from_ns; /* of the piece or gap that is not at its end yet */
	uint64_t total;   /* at from_ns */
	uint64_t gap;     /* things before this piece that are not given to anybody yet */
	uint64_t random;
	uint64_t first, count; /* of pieces: numbers that grow for ever, and how many there are */
	struct overload_sampling_piece pieces[OVERLOAD_SAMPLING_PIECES];
};

enum overload_sampling_verdict {
	OVERLOAD_SAMPLING_GO_ON,
	OVERLOAD_SAMPLING_SLOT, /* the slot is over and was quiet: overload_sampling_begin */
	OVERLOAD_SAMPLING_STOP, /* too many, too fast: overload_sampling_stop, as soon as nothing is counted any more */
};

struct overload_sampling_summary {
	uint64_t counted, all; /* things that happened */
	uint64_t since_ns;     /* when it began that not all were counted, if they were not */
};

/* Counting begins. */
void overload_sampling_init(struct overload_sampling *overload_sampling,
			    const struct overload_sampling_options *options, uint64_t now_ns, uint64_t total);

/*
 * While counting: what is to be done. samples: since the slot began, of whoever (a CPU, say) had
 * most of them.
 */
enum overload_sampling_verdict overload_sampling_judge(const struct overload_sampling *overload_sampling,
						       uint64_t now_ns, uint64_t samples);

/*
 * Counting goes on, or has gone on, in a new slot. samples: of the slot before, as given to
 * overload_sampling_judge; after a gap it does not matter.
 */
void overload_sampling_begin(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total,
			     uint64_t samples);

/* Counting has ceased. samples: as given to overload_sampling_judge, or more. */
void overload_sampling_stop(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total,
			    uint64_t samples);

/*
 * When to look, even if there were no samples: while nothing is counted, to go on. UINT64_MAX:
 * there is no need.
 */
uint64_t overload_sampling_next_ns(const struct overload_sampling *overload_sampling);

/*
 * What happened until now is settled: it will not be given to samples of later. For whoever weighs
 * samples up to now, while later ones are yet to come.
 */
void overload_sampling_settle(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total);

/*
 * What a sample of time_ns that stands for `weight` things by itself stands for. Of pieces that are
 * forgotten or not at their end: weight.
 */
uint64_t overload_sampling_weigh(const struct overload_sampling *overload_sampling, uint64_t time_ns, uint64_t weight);

/*
 * How many of all there were in from_ns .. to_ns were counted, to whole pieces; both 0: nothing is
 * known.
 */
void overload_sampling_sum_up(const struct overload_sampling *overload_sampling, uint64_t from_ns, uint64_t to_ns,
			      struct overload_sampling_summary *ret);

/*
 * phase.h: every so-many-th thing is a sample, although counting is broken off and begun anew all
 * the time, and begins at zero each time. What was counted after a stretch's last sample is
 * remembered: the next stretch takes its first sample so much earlier. Pure.
 *
 * 	uint64_t period = phase_period(&phase);  count, and sample every period-th; then, with what was
 *  counted:
 * 	uint64_t each = phase_end(&phase, period, counted);
 */

struct phase {
	uint64_t period;  /* not 0 */
	uint64_t carry;   /* counted, and not stood for by a sample yet */
	uint64_t counted; /* in the stretch before */
};

/* For a stretch that begins now: the period, or less. */
uint64_t phase_period(const struct phase *phase);

/* A stretch with such a period has ended. What each of its samples stands for; 0: it had none. */
uint64_t phase_end(struct phase *phase, uint64_t period, uint64_t counted);

/*
 * idle_backoff.h: how often a target that does not change is looked at, and what follows from it
 * for those who read the records: the one promise that both sides go by. Pure.
 *
 * A target that has not changed for d is looked at again at most min(d / 8, the idle interval)
 * later, or at the next tick. So whoever knows when it last changed knows, without a record, that
 * it was still the same so long ago; and a rate over a time that ends then is off by an eighth of
 * the idle part of it at most.
 */

struct idle_backoff {
	uint64_t interval_ns; /* between two ticks; 0: every tick is for all */
	uint64_t idle_ns;     /* the longest pause; not above interval_ns: every tick is for all */
};

/* How long ago, at most, a target was looked at that had not changed for still_ns by now. */
static inline uint64_t idle_backoff_bound_ns(uint64_t still_ns, uint64_t idle_ns)
{
	uint64_t share_ns = still_ns / 8;

	return share_ns < idle_ns ? share_ns : idle_ns;
}

/*
 * How long after a look at a tick the next one is due: in the first tick at or after that; 0: in
 * the next tick. still_ns: since it changed. tick: how many there were; phase: any number: targets
 * whose phases differ are looked at in different ticks.
 */
uint64_t idle_backoff_wait_ns(const struct idle_backoff *pace, uint64_t still_ns, uint32_t tick, uint32_t phase);

/*
 * When a target was last looked at for certain, by the tick at `now`: its record is from `at`, it
 * last changed at *since (NULL: not known), and no record came later. idle_ns as of that tick.
 */
mono_t idle_backoff_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns);

/*
 * token_bucket.h: CPU time that may be taken of a core: a share of it, and what was not taken of
 * the last second at once. Who takes more than there is has to wait until time has paid for it, a
 * second at most.
 *
 * Pure; time is an argument. What it is after a calm second is full.
 */

struct token_bucket {
	unsigned share;  /* one part in so many of a core */
	int64_t left_ns; /* below 0: taken in advance */
	mono_t filled;   /* as of then */
};

/* Full. */
struct token_bucket token_bucket_of(unsigned share, mono_t now);

/* cpu_ns were taken up to now, which is not earlier than before. */
void token_bucket_take(struct token_bucket *token_bucket, uint64_t cpu_ns, mono_t now);

/* Whether there is nothing left. */
bool token_bucket_is_spent(const struct token_bucket *token_bucket, mono_t now);

/*
 * rest.h: when a source of news may be heard again. What comes alone is heard at once, and so is
 * what comes next; what comes thick and fast, only every gap_ns. While nothing comes there is no
 * rest to be waited for: whoever polls sleeps.
 *
 * Pure; time is an argument. {0}: nothing was heard yet.
 */

struct rate_limit {
	mono_t found; /* when there was something last */
	mono_t until; /* it is not heard before */
};

/* Something was heard: the second time within gap_ns it rests as long. */
void rate_limit_found(struct rate_limit *rate_limit, uint64_t gap_ns, mono_t now);

/* Whether it may be heard. */
bool rate_limit_is_over(const struct rate_limit *rate_limit, mono_t now);

/* What is to be said now. */
enum condition_turn { CONDITION_SAME, CONDITION_BEGINS, CONDITION_WORSENS, CONDITION_ENDS };

/* Zeroed is the right start: all is well. */
struct condition {
	bool on;
	unsigned worst;     /* level of this episode */
	mono_t began, last; /* the first look at which it was bad, and the last one */
	uint64_t times;     /* looks at which it was bad in this episode; still readable when it ends */
};

/*
 * One look. level: 0 is good; one that is higher than all since it began is worth saying: there
 * should be few. It ends at the first good look when calm_ns have passed since the last bad one, so
 * that there are at most two turns besides the levels in that time.
 */
enum condition_turn condition_step(struct condition *condition, unsigned level, mono_t now, uint64_t calm_ns);

/* From the first to the last bad look; also right after it has ended. */
uint64_t condition_lasted_ns(const struct condition *condition);

/* "begin", "change", "end": for log_about. NULL of CONDITION_SAME. */
const char *condition_state(enum condition_turn turn);

/*
 * 1 for less than `step`, and one more for each factor of `step` (at least 2): a level for what may
 * grow. 0 of 0.
 */
unsigned condition_level(uint64_t amount, uint64_t step);

#endif
