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
#define PACER_BACKOFF_FIRST 1.0
#define PACER_BACKOFF_GROWTH 1.125
#define PACER_BACKOFF_MAX 256.0

/*
 * pacer.c: arithmetic on a grid of slots.
 *
 * Invariant: every slot that has elapsed is counted once in total_slots, either as taken (pacer_done) or as missed. That makes
 * snapshots / slots a capture rate that comes from the clock: deriving the slots from the snapshots, as the reference
 * implementation does, could never show a loss.
 *
 * Between calls `deadline` is the first slot that is not accounted for. pacer_wake moves it to the slot in which now lies, because
 * that one can still be taken, if late; pacer_done moves it beyond now, because a slot that began during the collection cannot.
 *
 * A new grid begins where the old one ends: the slot that the change falls into belongs to either, is counted once, and can still be taken. A backoff
 * is counted when it begins and corrected when it is cut short; nobody sees the counters in between, for they are published by ticks.
 *
 * Time differences are taken as signed, so a clock read slightly before the deadline, or even before the last call, is just early.
 */

static uint64_t elapsed(mono_t later, mono_t earlier)
{
	int64_t diff = mono_diff(later, earlier);

	return diff > 0 ? (uint64_t)diff : 0;
}

/* Accounts for `slots` slots from the deadline on, and puts the deadline behind them. */
static void pass_slots(struct pacer *pacer, uint64_t slots, uint64_t taken)
{
	if (slots == 0)
		return;

	pacer->stats->total_slots += slots;
	pacer->stats->missed_slots += slots - taken;
	pacer->deadline = mono_add(pacer->deadline, slots * pacer->interval_ns);
	pacer->stats->cheap_last_collection_nanos = pacer->deadline.ns - pacer->interval_ns;
}

void pacer_init(struct pacer *pacer, struct stats *stats, mono_t now, uint64_t interval_ns)
{
	assert(interval_ns > 0);

	*pacer = (struct pacer){
		.stats = stats,
		.interval_ns = interval_ns,
		.deadline = now,
		.until = now,
		.woke = now,
		.backoff = PACER_BACKOFF_FIRST,
	};
	stats->collection_rate = interval_ns;
	stats->cheap_start_nanos = now.ns;
}

mono_t pacer_deadline(const struct pacer *pacer)
{
	return pacer->deadline;
}

void pacer_wake(struct pacer *pacer, mono_t now)
{
	pacer->stats->total_sleep_timing_error += elapsed(now, pacer->until) + elapsed(pacer->until, now);
	pass_slots(pacer, elapsed(now, pacer->deadline) / pacer->interval_ns, 0);
	pacer->woke = now;
}

void pacer_done(struct pacer *pacer, mono_t now)
{
	pacer->stats->total_snapshots++;
	pacer->stats->total_collection_timing_error += elapsed(now, pacer->woke);
	pass_slots(pacer, elapsed(now, pacer->deadline) / pacer->interval_ns + 1, 1);
	pacer->until = pacer->deadline;
	pacer->backoff = PACER_BACKOFF_FIRST;
}

mono_t pacer_backoff(struct pacer *pacer, mono_t now)
{
	uint64_t sleep_ns = (uint64_t)((double)pacer->interval_ns * pacer->backoff);

	pacer->stats->num_backoff_sleeps++;
	pacer->stats->total_backoff_sleep += sleep_ns;
	pacer->until = mono_add(now, sleep_ns);
	pacer->backoff *= PACER_BACKOFF_GROWTH;
	if (pacer->backoff > PACER_BACKOFF_MAX)
		pacer->backoff = PACER_BACKOFF_MAX;

	return pacer->until;
}

void pacer_stop(struct pacer *pacer, mono_t now)
{
	pass_slots(pacer, elapsed(now, pacer->deadline) / pacer->interval_ns, 0);
}

static void end_backoff(struct pacer *pacer, mono_t now)
{
	if (pacer->until.ns == pacer->deadline.ns)
		return;

	pacer->stats->total_backoff_sleep -= elapsed(pacer->until, now);
	if (mono_diff(pacer->until, now) > 0)
		pacer->until = now;
	pacer->backoff = PACER_BACKOFF_FIRST;
}

void pacer_set_interval(struct pacer *pacer, mono_t now, uint64_t interval_ns)
{
	assert(interval_ns > 0);

	end_backoff(pacer, now);
	if (mono_diff(now, pacer->deadline) >= 0) {
		pass_slots(pacer, elapsed(now, pacer->deadline) / pacer->interval_ns, 0);
		pacer->deadline = now;
	} else if (mono_diff(pacer->deadline, now) > (int64_t)interval_ns) {
		pacer->deadline = mono_add(now, interval_ns);
		pacer->until = pacer->deadline;
	}
	pacer->interval_ns = interval_ns;
	pacer->stats->collection_rate = interval_ns;
}

/* governor.c: see the header for the rule. A period in which the machine slept tells nothing new and is judged like any other. */

/* Half the interval costs about twice as much: recover only if that would still leave a quarter of the budget. */
#define GOVERNOR_RECOVER_BELOW 0.375

void governor_init(struct governor *governor, double budget_percent, mono_t now, uint64_t cpu_ns)
{
	*governor = (struct governor){
		.budget = budget_percent / 100,
		.since = now,
		.cpu_ns = cpu_ns,
		.factor = 1,
	};
}

uint32_t governor_step(struct governor *governor, mono_t now, uint64_t cpu_ns)
{
	int64_t elapsed = mono_diff(now, governor->since);

	if (elapsed <= 0)
		return governor->factor;

	governor->share = cpu_ns > governor->cpu_ns ? (double)(cpu_ns - governor->cpu_ns) / (double)elapsed : 0;
	governor->since = now;
	governor->cpu_ns = cpu_ns;

	if (governor->budget <= 0)
		return governor->factor;

	if (governor->share > governor->budget) {
		governor->calm = 0;
		if (++governor->hot < GOVERNOR_HOT)
			return governor->factor;
		governor->hot = 0;
		if (governor->factor < GOVERNOR_FACTOR_MAX)
			governor->factor *= 2;
		return governor->factor;
	}
	governor->hot = 0;

	if (governor->factor == 1 || governor->share > governor->budget * GOVERNOR_RECOVER_BELOW) {
		governor->calm = 0;
		return governor->factor;
	}

	if (++governor->calm >= GOVERNOR_CALM) {
		governor->calm = 0;
		governor->factor /= 2;
	}

	return governor->factor;
}

/*
 * thinning.c: slots, gaps and pieces.
 *
 * What is bounded is what counting costs, which is so much for each thing: `most` samples' worth of things for each slot. Each sample owes the time
 * that it may take, and time pays it off; who owes more than a burst may is not counted until it is paid, if it took longer to notice, for longer.
 * So there is no rate to measure and no threshold to be tuned, a thing that comes slowly is always counted, and a burst as a whole, or from its
 * beginning on. Where things come fast for long, that is in every slot until there were `most`:
 *
 *	piece        gap         piece  gap              piece
 *	│■■■■■■■■■│···············│■■■■│·················│■■■■■■■■■■■■■■■...
 *	│◀────────── slot ───────▶│
 *
 * A gap's end is put off or brought forward by up to a half of it; for what is owed it is as if it had not been. Who comes slowly afterwards ends the slot by thinning_next_ns, so that the piece
 * beside a gap is never longer than a slot or the calm before: by its rate the gap is shared out.
 *
 * Rejected: a share of time that is counted, whatever the rate: it wakes somebody up all the time, and takes from quiet times what busy ones cost. To
 * scale by time instead of by things: what happens comes in bursts, and a burst that ends in a gap would be made as long as the gap. To give a gap
 * to the piece before it alone, or after it alone: the same mistake, at one of its ends.
 */

static struct thinning_piece *piece_of(struct thinning *thinning, uint64_t number)
{
	return &thinning->pieces[number % THINNING_PIECES];
}

static const struct thinning_piece *piece_at(const struct thinning *thinning, uint64_t number)
{
	return &thinning->pieces[number % THINNING_PIECES];
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
static uint64_t next_random(struct thinning *thinning)
{
	thinning->random ^= thinning->random << 13;
	thinning->random ^= thinning->random >> 7;
	thinning->random ^= thinning->random << 17;
	return thinning->random;
}

/* Half of it to one and a half. */
static uint64_t about(struct thinning *thinning, uint64_t ns)
{
	return ns / 2 + part(ns, next_random(thinning) >> 32, UINT32_MAX);
}

void thinning_init(struct thinning *thinning, const struct thinning_options *options, uint64_t now_ns, uint64_t total)
{
	memset(thinning, 0, sizeof(*thinning));
	thinning->options = *options;
	thinning->on = true;
	thinning->slot_ns = thinning->from_ns = now_ns;
	thinning->total = total;
	thinning->random = 88172645463325252ULL ^ ((uint64_t)options->seed << 8);
}

/* How long so many samples may take. */
static uint64_t worth_ns(const struct thinning *thinning, uint64_t samples)
{
	return part(thinning->options.slot_ns, samples, thinning->options.most);
}

/* What may be owed without a gap. */
static uint64_t credit_ns(const struct thinning *thinning)
{
	return since(worth_ns(thinning, thinning->options.burst), thinning->options.slot_ns);
}

/* What is owed after so many samples of this slot. */
static uint64_t owed_ns(const struct thinning *thinning, uint64_t now_ns, uint64_t samples)
{
	uint64_t worth = worth_ns(thinning, samples), passed_ns = since(now_ns, thinning->slot_ns);

	if (worth > UINT64_MAX - thinning->owed_ns)
		return since(UINT64_MAX, passed_ns);
	return since(thinning->owed_ns + worth, passed_ns);
}

enum thinning_verdict thinning_judge(const struct thinning *thinning, uint64_t now_ns, uint64_t samples)
{
	if (samples >= thinning->options.most && owed_ns(thinning, now_ns, samples) > credit_ns(thinning))
		return THINNING_STOP;
	return since(now_ns, thinning->slot_ns) >= thinning->options.slot_ns ? THINNING_SLOT : THINNING_GO_ON;
}

/* ---- pieces and gaps ---- */

/* Things in a second. */
static double rate_of(const struct thinning_piece *piece)
{
	uint64_t ns = since(piece->to_ns, piece->from_ns);

	return (double)piece->counted * 1e9 / (double)(ns > 0 ? ns : 1);
}

/* What happened before the newest piece, in the gap: to it and to the one before it. */
static void share_gap(struct thinning *thinning)
{
	struct thinning_piece *after = piece_of(thinning, thinning->first + thinning->count - 1);
	struct thinning_piece *before =
		thinning->count > 1 ? piece_of(thinning, thinning->first + thinning->count - 2) : after;
	double rates = rate_of(before) + rate_of(after);
	uint64_t to_before = 0;

	if (before != after && !thinning->settled && rates > 0)
		to_before = (uint64_t)((double)thinning->gap * (rate_of(before) / rates));
	if (to_before > thinning->gap)
		to_before = thinning->gap;
	before->gained += to_before;
	after->gained += thinning->gap - to_before;
	thinning->gap = 0;
	thinning->settled = false;
}

static void end_piece(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	if (thinning->count == THINNING_PIECES) {
		thinning->first++;
		thinning->count--;
	}
	*piece_of(thinning, thinning->first + thinning->count++) = (struct thinning_piece){
		.from_ns = thinning->from_ns, .to_ns = now_ns, .counted = since(total, thinning->total)
	};
	share_gap(thinning);
}

/* A piece or a gap begins. */
static void start(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	thinning->from_ns = now_ns;
	thinning->total = total;
}

void thinning_begin(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	if (thinning->on) {
		thinning->owed_ns = owed_ns(thinning, now_ns, samples);
		end_piece(thinning, now_ns, total);
	} else {
		thinning->owed_ns = since(credit_ns(thinning), since(now_ns, thinning->next_ns));
		thinning->gap = since(total, thinning->total);
	}
	thinning->watchful = !thinning->on;
	thinning->on = true;
	thinning->slot_ns = now_ns;
	start(thinning, now_ns, total);
}

void thinning_stop(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	uint64_t too_much_ns = since(owed_ns(thinning, now_ns, samples), credit_ns(thinning));

	end_piece(thinning, now_ns, total);
	thinning->on = false;
	thinning->next_ns = now_ns + about(thinning, too_much_ns);
	start(thinning, now_ns, total);
}

uint64_t thinning_next_ns(const struct thinning *thinning)
{
	if (!thinning->on)
		return thinning->next_ns;
	return thinning->watchful ? thinning->slot_ns + thinning->options.slot_ns : UINT64_MAX;
}

/* In a gap, what happened in it so far is the last piece's: what comes after it is not known. */
void thinning_settle(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	if (thinning->on)
		end_piece(thinning, now_ns, total);
	else
		piece_of(thinning, thinning->first + thinning->count - 1)->gained += since(total, thinning->total);
	thinning->settled |= !thinning->on;
	start(thinning, now_ns, total);
}

/* ---- what it comes to ---- */

/* The first piece that ends after time_ns; first + count: none does. */
static uint64_t search(const struct thinning *thinning, uint64_t time_ns)
{
	uint64_t low = thinning->first, high = thinning->first + thinning->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (piece_at(thinning, middle)->to_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * A sample from the moment between a piece's end and counting's, or the reverse, is of the piece that is next to it, of which
 * there are two at most.
 */
uint64_t thinning_weigh(const struct thinning *thinning, uint64_t time_ns, uint64_t weight)
{
	uint64_t number = search(thinning, time_ns);
	const struct thinning_piece *piece;

	if (thinning->count == 0 || (number == thinning->first + thinning->count && thinning->on) ||
	    (number == thinning->first && time_ns < piece_at(thinning, number)->from_ns))
		return weight;
	if (number == thinning->first + thinning->count ||
	    (time_ns < piece_at(thinning, number)->from_ns &&
	     time_ns - piece_at(thinning, number - 1)->to_ns < piece_at(thinning, number)->from_ns - time_ns))
		number--;
	piece = piece_at(thinning, number);
	if (piece->counted == 0 || piece->gained == 0)
		return weight;
	return weight + part(weight, piece->gained, piece->counted);
}

void thinning_sum_up(const struct thinning *thinning, uint64_t from_ns, uint64_t to_ns, struct thinning_summary *ret)
{
	struct thinning_summary sum = { 0 };

	for (uint64_t number = search(thinning, from_ns); number < thinning->first + thinning->count; number++) {
		const struct thinning_piece *piece = piece_at(thinning, number);

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
 * phase.c: whoever counts 160 things of a thousand in each stretch has one sample in every sixth, instead of none at all. Nothing is lost: what all
 * samples stand for and what is carried is what was counted.
 *
 * A stretch keeps the period it began with, for there is no changing it without a sample: after an early first sample the next are as early. So
 * the period is no shorter than a quarter, unless the stretch before was shorter than that, and no shorter than a sixteenth in any case: a stretch
 * that turns out to have many things has that many more samples. What is carried beyond two periods, by stretches that are too short even
 * so, is forgotten: it would be too much for whoever comes next.
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
 * idlepace.c: pauses are whole numbers of ticks, and the look is due half a tick before the one it is meant for, so that a tick which comes a
 * little early is not let pass. It is due by the clock and not by a count of ticks: if ticks are skipped or come more slowly, it is not
 * put off, and the promise holds at every tick that there is.
 *
 * Pauses below the longest are powers of two of ticks: who is in step with them stays so when they double, which spreads targets without
 * looking more often than it takes. The first pause of a length ends at the tick that is the target's own; the others are whole.
 */

uint64_t idlepace_wait_ns(const struct idlepace *pace, uint64_t still_ns, uint32_t tick, uint32_t phase)
{
	if (pace->interval_ns == 0)
		return 0;

	uint64_t longest = pace->idle_ns / pace->interval_ns;
	uint64_t ticks = idlepace_bound_ns(still_ns, pace->idle_ns) / pace->interval_ns;
	if (ticks < 2)
		return 0;
	if (ticks < longest)
		ticks = 1ULL << (63 - __builtin_clzll(ticks));
	ticks -= (uint64_t)(uint32_t)(tick + phase) % ticks;

	return ticks < 2 ? 0 : ticks * pace->interval_ns - pace->interval_ns / 2;
}

mono_t idlepace_seen_at(mono_t at, const mono_t *since, mono_t now, uint64_t idle_ns)
{
	int64_t still_ns = since ? mono_diff(now, *since) : INT64_MAX;
	mono_t seen = mono_sub(now, idlepace_bound_ns(still_ns > 0 ? (uint64_t)still_ns : 0, idle_ns));

	return mono_diff(seen, at) > 0 ? seen : at;
}

/*
 * allowance.c: a bucket that fills by itself.
 *
 * Rejected: so much in each second, and nothing for the rest of it. Whoever comes in that rest waits for up to a second, although a fraction of it would
 * pay for him.
 */

/* What fits into it, and what may be owed. */
static int64_t room_of(const struct allowance *allowance)
{
	return (int64_t)(NS_PER_S / allowance->share);
}

struct allowance allowance_of(unsigned share, mono_t now)
{
	struct allowance allowance = { .share = share, .filled = now };

	allowance.left_ns = room_of(&allowance);

	return allowance;
}

/* What there is as of now. */
static int64_t left_at(const struct allowance *allowance, mono_t now)
{
	int64_t room = room_of(allowance), passed = mono_diff(now, allowance->filled), left;

	if (passed <= 0)
		return allowance->left_ns;
	if (passed >= (int64_t)(2 * NS_PER_S)) /* from the deepest debt to the brim */
		return room;
	left = allowance->left_ns + passed / allowance->share;

	return left < room ? left : room;
}

void allowance_take(struct allowance *allowance, uint64_t cpu_ns, mono_t now)
{
	int64_t room = room_of(allowance), left = left_at(allowance, now);
	int64_t taken = cpu_ns < (uint64_t)(2 * room) ? (int64_t)cpu_ns : 2 * room;

	allowance->left_ns = left - taken > -room ? left - taken : -room;
	allowance->filled = now;
}

bool allowance_is_spent(const struct allowance *allowance, mono_t now)
{
	return left_at(allowance, now) < 0;
}

/*
 * rest.c: only what was found counts. Rejected: a rest after every look, also one that found nothing: then it is always too early to poll, and whoever waits
 * for the end of the rest looks again, finds nothing, and rests, a thousand times a second.
 */

void rest_found(struct rest *rest, uint64_t gap_ns, mono_t now)
{
	bool often = mono_diff(now, rest->found) < (int64_t)gap_ns;

	rest->found = now;
	rest->until = often ? mono_add(now, gap_ns) : now;
}

bool rest_is_over(const struct rest *rest, mono_t now)
{
	return mono_diff(now, rest->until) >= 0;
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
