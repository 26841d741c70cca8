/*
 * condition.c
 *
 *             bad                           good, and none bad for calm_ns
 *     (off) ───────▶ ON, worst = level ────────────────────────────────────▶ (off)
 *                     │       ▲
 *                     └───────┘ a level above the worst
 */
#include "lib/model/pacing.h"

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The factors that gVisor's profiling metrics use. */
#define SCHEDULE_BACKOFF_FIRST 1.0
#define SCHEDULE_BACKOFF_GROWTH 1.125
#define SCHEDULE_BACKOFF_MAX 256.0

/*
 * schedule.c: arithmetic on a grid of slots.
 *
 * Invariant: every slot that has elapsed is counted once in total_slots, either as taken
 * (schedule_done) or as missed. That makes snapshots / slots a capture rate that comes from the
 * clock: deriving the slots from the snapshots, as the reference implementation does, could never
 * show a loss.
 *
 * Between calls `deadline` is the first slot that is not accounted for. schedule_wake moves it to
 * the slot in which now lies, because that one can still be taken, if late; schedule_done moves it
 * beyond now, because a slot that began during the collection cannot.
 *
 * A new grid begins where the old one ends: the slot that the change falls into belongs to either,
 * is counted once, and can still be taken. A backoff is counted when it begins and corrected when
 * it is cut short; nobody sees the counters in between, for they are published by ticks.
 *
 * Time differences are taken as signed, so a clock read slightly before the deadline, or even
 * before the last call, is just early.
 */

static uint64_t elapsed(mono_t later, mono_t earlier)
{
	int64_t diff = mono_diff(later, earlier);

	return diff > 0 ? (uint64_t)diff : 0;
}

/* Accounts for `slots` slots from the deadline on, and puts the deadline behind them. */
static void pass_slots(struct schedule *schedule, uint64_t slots, uint64_t taken)
{
	if (slots == 0)
		return;

	schedule->stats->total_slots += slots;
	schedule->stats->missed_slots += slots - taken;
	schedule->deadline = mono_add(schedule->deadline, slots * schedule->interval_ns);
	schedule->stats->cheap_last_collection_nanos = schedule->deadline.ns - schedule->interval_ns;
}

void schedule_init(struct schedule *schedule, struct stats *stats, mono_t now, uint64_t interval_ns)
{
	assert(interval_ns > 0);

	*schedule = (struct schedule){
		.stats = stats,
		.interval_ns = interval_ns,
		.deadline = now,
		.until = now,
		.woke = now,
		.backoff = SCHEDULE_BACKOFF_FIRST,
	};
	stats->collection_rate = interval_ns;
	stats->cheap_start_nanos = now.ns;
}

mono_t schedule_deadline(const struct schedule *schedule)
{
	return schedule->deadline;
}

void schedule_wake(struct schedule *schedule, mono_t now)
{
	schedule->stats->total_sleep_timing_error += elapsed(now, schedule->until) + elapsed(schedule->until, now);
	pass_slots(schedule, elapsed(now, schedule->deadline) / schedule->interval_ns, 0);
	schedule->woke = now;
}

void schedule_done(struct schedule *schedule, mono_t now)
{
	schedule->stats->total_snapshots++;
	schedule->stats->total_collection_timing_error += elapsed(now, schedule->woke);
	pass_slots(schedule, elapsed(now, schedule->deadline) / schedule->interval_ns + 1, 1);
	schedule->until = schedule->deadline;
	schedule->backoff = SCHEDULE_BACKOFF_FIRST;
}

mono_t schedule_backoff(struct schedule *schedule, mono_t now)
{
	uint64_t sleep_ns = (uint64_t)((double)schedule->interval_ns * schedule->backoff);

	schedule->stats->num_backoff_sleeps++;
	schedule->stats->total_backoff_sleep += sleep_ns;
	schedule->until = mono_add(now, sleep_ns);
	schedule->backoff *= SCHEDULE_BACKOFF_GROWTH;
	if (schedule->backoff > SCHEDULE_BACKOFF_MAX)
		schedule->backoff = SCHEDULE_BACKOFF_MAX;

	return schedule->until;
}

void schedule_stop(struct schedule *schedule, mono_t now)
{
	pass_slots(schedule, elapsed(now, schedule->deadline) / schedule->interval_ns, 0);
}

static void end_backoff(struct schedule *schedule, mono_t now)
{
	if (schedule->until.ns == schedule->deadline.ns)
		return;

	schedule->stats->total_backoff_sleep -= elapsed(schedule->until, now);
	if (mono_diff(schedule->until, now) > 0)
		schedule->until = now;
	schedule->backoff = SCHEDULE_BACKOFF_FIRST;
}

void schedule_set_interval(struct schedule *schedule, mono_t now, uint64_t interval_ns)
{
	assert(interval_ns > 0);

	end_backoff(schedule, now);
	if (mono_diff(now, schedule->deadline) >= 0) {
		pass_slots(schedule, elapsed(now, schedule->deadline) / schedule->interval_ns, 0);
		schedule->deadline = now;
	} else if (mono_diff(schedule->deadline, now) > (int64_t)interval_ns) {
		schedule->deadline = mono_add(now, interval_ns);
		schedule->until = schedule->deadline;
	}
	schedule->interval_ns = interval_ns;
	schedule->stats->collection_rate = interval_ns;
}

/*
 * cpu_budget.c: see the header for the rule. A period in which the machine slept tells nothing new
 * and is judged like any other.
 */

/*
 * Half the interval costs about twice as much: recover only if that would still leave a quarter of
 * the budget.
 */
#define CPU_BUDGET_RECOVER_BELOW 0.375

void cpu_budget_init(struct cpu_budget *cpu_budget, double budget_percent, mono_t now, uint64_t cpu_ns)
{
	*cpu_budget = (struct cpu_budget){
		.budget = budget_percent / 100,
		.since = now,
		.cpu_ns = cpu_ns,
		.factor = 1,
	};
}

uint32_t cpu_budget_step(struct cpu_budget *cpu_budget, mono_t now, uint64_t cpu_ns)
{
	int64_t elapsed = mono_diff(now, cpu_budget->since);

	if (elapsed <= 0)
		return cpu_budget->factor;

	cpu_budget->share = cpu_ns > cpu_budget->cpu_ns ? (double)(cpu_ns - cpu_budget->cpu_ns) / (double)elapsed : 0;
	cpu_budget->since = now;
	cpu_budget->cpu_ns = cpu_ns;

	if (cpu_budget->budget <= 0)
		return cpu_budget->factor;

	if (cpu_budget->share > cpu_budget->budget) {
		cpu_budget->calm = 0;
		if (++cpu_budget->hot < CPU_BUDGET_HOT)
			return cpu_budget->factor;
		cpu_budget->hot = 0;
		if (cpu_budget->factor < CPU_BUDGET_FACTOR_MAX)
			cpu_budget->factor *= 2;
		return cpu_budget->factor;
	}
	cpu_budget->hot = 0;

	if (cpu_budget->factor == 1 || cpu_budget->share > cpu_budget->budget * CPU_BUDGET_RECOVER_BELOW) {
		cpu_budget->calm = 0;
		return cpu_budget->factor;
	}

	if (++cpu_budget->calm >= CPU_BUDGET_CALM) {
		cpu_budget->calm = 0;
		cpu_budget->factor /= 2;
	}

	return cpu_budget->factor;
}

/*
 * overload_sampling.c: slots, gaps and pieces.
 *
 * What is bounded is what counting costs, which is so much for each thing: `most` samples' worth of
 * things for each slot. Each sample owes the time that it may take, and time pays it off; who owes
 * more than a burst may is not counted until it is paid, if it took longer to notice, for longer.
 * So there is no rate to measure and no threshold to be tuned, a thing that comes slowly is always
 * counted, and a burst as a whole, or from its beginning on. Where things come fast for long, that
 * is in every slot until there were `most`:
 *
 * 	piece        gap         piece  gap              piece
 * 	│■■■■■■■■■│···············│■■■■│·················│■■■■■■■■■■■■■■■...
 * 	│◀────────── slot ───────▶│
 *
 * A gap's end is put off or brought forward by up to a half of it; for what is owed it is as if it
 * had not been. Who comes slowly afterwards ends the slot by overload_sampling_next_ns, so that the
 * piece beside a gap is never longer than a slot or the calm before: by its rate the gap is shared
 * out.
 *
 * Rejected: a share of time that is counted, whatever the rate: it wakes somebody up all the time,
 * and takes from quiet times what busy ones cost. To scale by time instead of by things: what
 * happens comes in bursts, and a burst that ends in a gap would be made as long as the gap. To give
 * a gap to the piece before it alone, or after it alone: the same mistake, at one of its ends.
 */

static struct overload_sampling_piece *piece_of(struct overload_sampling *overload_sampling, uint64_t number)
{
	return &overload_sampling->pieces[number % OVERLOAD_SAMPLING_PIECES];
}

static const struct overload_sampling_piece *piece_at(const struct overload_sampling *overload_sampling,
						      uint64_t number)
{
	return &overload_sampling->pieces[number % OVERLOAD_SAMPLING_PIECES];
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static uint64_t part(uint64_t value, uint64_t times, uint64_t of)
{
	unsigned __int128 result = (unsigned __int128)value * times / of;

	return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

/* xorshift64 */
static uint64_t next_random(struct overload_sampling *overload_sampling)
{
	overload_sampling->random ^= overload_sampling->random << 13;
	overload_sampling->random ^= overload_sampling->random >> 7;
	overload_sampling->random ^= overload_sampling->random << 17;
	return overload_sampling->random;
}

/* Half of it to one and a half. */
static uint64_t about(struct overload_sampling *overload_sampling, uint64_t ns)
{
	return ns / 2 + part(ns, next_random(overload_sampling) >> 32, UINT32_MAX);
}

void overload_sampling_init(struct overload_sampling *overload_sampling,
			    const struct overload_sampling_options *options, uint64_t now_ns, uint64_t total)
{
	memset(overload_sampling, 0, sizeof(*overload_sampling));
	overload_sampling->options = *options;
	overload_sampling->on = true;
	overload_sampling->slot_ns = overload_sampling->from_ns = now_ns;
	overload_sampling->total = total;
	overload_sampling->random = 88172645463325252ULL ^ ((uint64_t)options->seed << 8);
}

/* How long so many samples may take. */
static uint64_t worth_ns(const struct overload_sampling *overload_sampling, uint64_t samples)
{
	return part(overload_sampling->options.slot_ns, samples, overload_sampling->options.most);
}

/* What may be owed without a gap. */
static uint64_t credit_ns(const struct overload_sampling *overload_sampling)
{
	return since(worth_ns(overload_sampling, overload_sampling->options.burst), overload_sampling->options.slot_ns);
}

/* What is owed after so many samples of this slot. */
static uint64_t owed_ns(const struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t samples)
{
	uint64_t worth = worth_ns(overload_sampling, samples), passed_ns = since(now_ns, overload_sampling->slot_ns);

	if (worth > UINT64_MAX - overload_sampling->owed_ns)
		return since(UINT64_MAX, passed_ns);
	return since(overload_sampling->owed_ns + worth, passed_ns);
}

enum overload_sampling_verdict overload_sampling_judge(const struct overload_sampling *overload_sampling,
						       uint64_t now_ns, uint64_t samples)
{
	if (samples >= overload_sampling->options.most &&
	    owed_ns(overload_sampling, now_ns, samples) > credit_ns(overload_sampling))
		return OVERLOAD_SAMPLING_STOP;
	return since(now_ns, overload_sampling->slot_ns) >= overload_sampling->options.slot_ns
		       ? OVERLOAD_SAMPLING_SLOT
		       : OVERLOAD_SAMPLING_GO_ON;
}

/* ---- pieces and gaps ---- */

/* Things in a second. */
static double rate_of(const struct overload_sampling_piece *piece)
{
	uint64_t ns = since(piece->to_ns, piece->from_ns);

	return (double)piece->counted * 1e9 / (double)(ns > 0 ? ns : 1);
}

/* What happened before the newest piece, in the gap: to it and to the one before it. */
static void share_gap(struct overload_sampling *overload_sampling)
{
	struct overload_sampling_piece *after =
		piece_of(overload_sampling, overload_sampling->first + overload_sampling->count - 1);
	struct overload_sampling_piece *before =
		overload_sampling->count > 1
			? piece_of(overload_sampling, overload_sampling->first + overload_sampling->count - 2)
			: after;
	double rates = rate_of(before) + rate_of(after);
	uint64_t to_before = 0;

	if (before != after && !overload_sampling->settled && rates > 0)
		to_before = (uint64_t)((double)overload_sampling->gap * (rate_of(before) / rates));
	if (to_before > overload_sampling->gap)
		to_before = overload_sampling->gap;
	before->gained += to_before;
	after->gained += overload_sampling->gap - to_before;
	overload_sampling->gap = 0;
	overload_sampling->settled = false;
}

static void end_piece(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total)
{
	if (overload_sampling->count == OVERLOAD_SAMPLING_PIECES) {
		overload_sampling->first++;
		overload_sampling->count--;
	}
	*piece_of(overload_sampling, overload_sampling->first + overload_sampling->count++) =
		(struct overload_sampling_piece){ .from_ns = overload_sampling->from_ns,
						  .to_ns = now_ns,
						  .counted = since(total, overload_sampling->total) };
	share_gap(overload_sampling);
}

/* A piece or a gap begins. */
static void start(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total)
{
	overload_sampling->from_ns = now_ns;
	overload_sampling->total = total;
}

void overload_sampling_begin(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total,
			     uint64_t samples)
{
	if (overload_sampling->on) {
		overload_sampling->owed_ns = owed_ns(overload_sampling, now_ns, samples);
		end_piece(overload_sampling, now_ns, total);
	} else {
		overload_sampling->owed_ns =
			since(credit_ns(overload_sampling), since(now_ns, overload_sampling->next_ns));
		overload_sampling->gap = since(total, overload_sampling->total);
	}
	overload_sampling->watchful = !overload_sampling->on;
	overload_sampling->on = true;
	overload_sampling->slot_ns = now_ns;
	start(overload_sampling, now_ns, total);
}

void overload_sampling_stop(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total,
			    uint64_t samples)
{
	uint64_t too_much_ns = since(owed_ns(overload_sampling, now_ns, samples), credit_ns(overload_sampling));

	end_piece(overload_sampling, now_ns, total);
	overload_sampling->on = false;
	overload_sampling->next_ns = now_ns + about(overload_sampling, too_much_ns);
	start(overload_sampling, now_ns, total);
}

uint64_t overload_sampling_next_ns(const struct overload_sampling *overload_sampling)
{
	if (!overload_sampling->on)
		return overload_sampling->next_ns;
	return overload_sampling->watchful ? overload_sampling->slot_ns + overload_sampling->options.slot_ns
					   : UINT64_MAX;
}

/* In a gap, what happened in it so far is the last piece's: what comes after it is not known. */
void overload_sampling_settle(struct overload_sampling *overload_sampling, uint64_t now_ns, uint64_t total)
{
	if (overload_sampling->on)
		end_piece(overload_sampling, now_ns, total);
	else
		piece_of(overload_sampling, overload_sampling->first + overload_sampling->count - 1)->gained +=
			since(total, overload_sampling->total);
	overload_sampling->settled |= !overload_sampling->on;
	start(overload_sampling, now_ns, total);
}

/* ---- what it comes to ---- */

/* The first piece that ends after time_ns; first + count: none does. */
static uint64_t search(const struct overload_sampling *overload_sampling, uint64_t time_ns)
{
	uint64_t low = overload_sampling->first, high = overload_sampling->first + overload_sampling->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (piece_at(overload_sampling, middle)->to_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * A sample from the moment between a piece's end and counting's, or the reverse, is of the piece
 * that is next to it, of which there are two at most.
 */
uint64_t overload_sampling_weigh(const struct overload_sampling *overload_sampling, uint64_t time_ns, uint64_t weight)
{
	uint64_t number = search(overload_sampling, time_ns);
	const struct overload_sampling_piece *piece;

	if (overload_sampling->count == 0 ||
	    (number == overload_sampling->first + overload_sampling->count && overload_sampling->on) ||
	    (number == overload_sampling->first && time_ns < piece_at(overload_sampling, number)->from_ns))
		return weight;
	if (number == overload_sampling->first + overload_sampling->count ||
	    (time_ns < piece_at(overload_sampling, number)->from_ns &&
	     time_ns - piece_at(overload_sampling, number - 1)->to_ns <
		     piece_at(overload_sampling, number)->from_ns - time_ns))
		number--;
	piece = piece_at(overload_sampling, number);
	if (piece->counted == 0 || piece->gained == 0)
		return weight;
	return weight + part(weight, piece->gained, piece->counted);
}

void overload_sampling_sum_up(const struct overload_sampling *overload_sampling, uint64_t from_ns, uint64_t to_ns,
			      struct overload_sampling_summary *ret)
{
	struct overload_sampling_summary sum = { 0 };

	for (uint64_t number = search(overload_sampling, from_ns);
	     number < overload_sampling->first + overload_sampling->count; number++) {
		const struct overload_sampling_piece *piece = piece_at(overload_sampling, number);

		if (piece->from_ns > to_ns)
			break;
		sum.counted += piece->counted;
		sum.all += piece->counted + piece->gained;
		if (piece->gained > 0 && sum.since_ns == 0)
			sum.since_ns = piece->from_ns;
	}
	*ret = sum;
}

/*
 * phase.c: whoever counts 160 things of a thousand in each stretch has one sample in every sixth,
 * instead of none at all. Nothing is lost: what all samples stand for and what is carried is what
 * was counted.
 *
 * A stretch keeps the period it began with, for there is no changing it without a sample: after an
 * early first sample the next are as early. So the period is no shorter than a quarter, unless the
 * stretch before was shorter than that, and no shorter than a sixteenth in any case: a stretch that
 * turns out to have many things has that many more samples. What is carried beyond two periods, by
 * stretches that are too short even so, is forgotten: it would be too much for whoever comes next.
 */

#define PART_MIN 4
#define PART_LEAST 16
#define CARRY_MAX 2

uint64_t phase_period(const struct phase *phase)
{
	uint64_t least = phase->counted / 2;

	if (least > phase->period / PART_MIN)
		least = phase->period / PART_MIN;
	if (least < phase->period / PART_LEAST)
		least = phase->period / PART_LEAST;
	least += least == 0;
	return phase->carry + least < phase->period ? phase->period - phase->carry : least;
}

uint64_t phase_end(struct phase *phase, uint64_t period, uint64_t counted)
{
	uint64_t samples = counted / period, stood_for;

	phase->counted = counted;
	if (samples == 0) {
		phase->carry += counted;
		if (phase->carry > CARRY_MAX * phase->period)
			phase->carry = CARRY_MAX * phase->period;
		return 0;
	}
	stood_for = phase->carry + samples * period;
	phase->carry = stood_for % samples + counted % period;
	return stood_for / samples;
}

/*
 * idle_backoff.c: pauses are whole numbers of ticks, and the look is due half a tick before the one
 * it is meant for, so that a tick which comes a little early is not let pass. It is due by the
 * clock and not by a count of ticks: if ticks are skipped or come more slowly, it is not put off,
 * and the promise holds at every tick that there is.
 *
 * Pauses below the longest are powers of two of ticks: who is in step with them stays so when they
 * double, which spreads targets without looking more often than it takes. The first pause of a
 * length ends at the tick that is the target's own; the others are whole.
 */

uint64_t idle_backoff_wait_ns(const struct idle_backoff *pace, uint64_t still_ns, uint32_t tick, uint32_t phase)
{
	if (pace->interval_ns == 0)
		return 0;

	uint64_t longest = pace->idle_ns / pace->interval_ns;
	uint64_t ticks = idle_backoff_bound_ns(still_ns, pace->idle_ns) / pace->interval_ns;
	if (ticks < 2)
		return 0;
	if (ticks < longest)
		ticks = 1ULL << (63 - __builtin_clzll(ticks));
	ticks -= (uint64_t)(uint32_t)(tick + phase) % ticks;

	return ticks < 2 ? 0 : ticks * pace->interval_ns - pace->interval_ns / 2;
}

mono_t idle_backoff_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns)
{
	int64_t still_ns = since ? mono_diff(now, *since) : INT64_MAX;
	mono_t seen = mono_sub(now, idle_backoff_bound_ns(still_ns > 0 ? (uint64_t)still_ns : 0, idle_ns));

	return mono_diff(seen, at) > 0 ? seen : at;
}

/*
 * token_bucket.c: a bucket that fills by itself.
 *
 * Rejected: so much in each second, and nothing for the rest of it. Whoever comes in that rest
 * waits for up to a second, although a fraction of it would pay for him.
 */

/* What fits into it, and what may be owed. */
static int64_t room_of(const struct token_bucket *token_bucket)
{
	return (int64_t)(NS_PER_S / token_bucket->share);
}

struct token_bucket token_bucket_of(unsigned share, mono_t now)
{
	struct token_bucket token_bucket = { .share = share, .filled = now };

	token_bucket.left_ns = room_of(&token_bucket);

	return token_bucket;
}

/* What there is as of now. */
static int64_t left_at(const struct token_bucket *token_bucket, mono_t now)
{
	int64_t room = room_of(token_bucket), passed = mono_diff(now, token_bucket->filled), left;

	if (passed <= 0)
		return token_bucket->left_ns;
	if (passed >= (int64_t)(2 * NS_PER_S)) /* from the deepest debt to the brim */
		return room;
	left = token_bucket->left_ns + passed / token_bucket->share;

	return left < room ? left : room;
}

void token_bucket_take(struct token_bucket *token_bucket, uint64_t cpu_ns, mono_t now)
{
	int64_t room = room_of(token_bucket), left = left_at(token_bucket, now);
	int64_t taken = cpu_ns < (uint64_t)(2 * room) ? (int64_t)cpu_ns : 2 * room;

	token_bucket->left_ns = left - taken > -room ? left - taken : -room;
	token_bucket->filled = now;
}

bool token_bucket_is_spent(const struct token_bucket *token_bucket, mono_t now)
{
	return left_at(token_bucket, now) < 0;
}

/*
 * rest.c: only what was found counts. Rejected: a rest after every look, also one that found
 * nothing: then it is always too early to poll, and whoever waits for the end of the rest looks
 * again, finds nothing, and rests, a thousand times a second.
 */

void rate_limit_found(struct rate_limit *rate_limit, uint64_t gap_ns, mono_t now)
{
	bool often = mono_diff(now, rate_limit->found) < (int64_t)gap_ns;

	rate_limit->found = now;
	rate_limit->until = often ? mono_add(now, gap_ns) : now;
}

bool rate_limit_is_over(const struct rate_limit *rate_limit, mono_t now)
{
	return mono_diff(now, rate_limit->until) >= 0;
}

enum condition_turn condition_step(struct condition *condition, unsigned level, mono_t now, uint64_t calm_ns)
{
	if (level == 0) {
		if (!condition->on || mono_diff(now, condition->last) < (int64_t)calm_ns)
			return CONDITION_SAME;
		condition->on = false;
		return CONDITION_ENDS;
	}

	if (!condition->on)
		*condition = (struct condition){ .began = now };

	bool began = !condition->on, worse = level > condition->worst;

	condition->on = true;
	condition->last = now;
	condition->times++;
	if (worse)
		condition->worst = level;

	return began ? CONDITION_BEGINS : worse ? CONDITION_WORSENS : CONDITION_SAME;
}

uint64_t condition_lasted_ns(const struct condition *condition)
{
	int64_t lasted = mono_diff(condition->last, condition->began);

	return lasted > 0 ? (uint64_t)lasted : 0;
}

const char *condition_state(enum condition_turn turn)
{
	static const char *const states[] = {
		[CONDITION_SAME] = NULL,
		[CONDITION_BEGINS] = "begin",
		[CONDITION_WORSENS] = "change",
		[CONDITION_ENDS] = "end",
	};

	return states[turn];
}

unsigned condition_level(uint64_t amount, uint64_t step)
{
	unsigned level = 0;

	for (; amount > 0; amount /= step)
		level++;

	return level;
}
