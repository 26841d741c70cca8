/*
 * pacing.c: arithmetic on points in time; see the header for what each part is for.
 *
 * Schedule. Every slot that has elapsed is counted once in total_slots, either as taken
 * (schedule_done) or as missed, so snapshots / slots is a capture rate by the clock; deriving the
 * slots from the snapshots, as the reference implementation does, could never show a loss. Between
 * calls `deadline` is the first slot that is not accounted for. schedule_wake moves it to the slot
 * in which now lies, which can still be taken, if late; schedule_done moves it beyond now, because
 * a slot that began during the collection cannot. A new grid begins where the old one ends: the
 * slot in which the change falls is counted once, and can still be taken. A back-off is counted
 * when it begins and corrected when it is cut short; the counters are published only by ticks.
 * Differences are signed: a clock read slightly before the deadline, or even before the last call,
 * is early.
 *
 * CPU budget. A period in which the machine was suspended is judged like any other.
 *
 * Overload sampling bounds the cost of counting, which is proportional to the events: `most`
 * samples' worth for each slot. Each sample adds the time that it may take to a debt, which time
 * pays off; when the debt exceeds what a burst allows, counting stops until it is paid. So no rate
 * is measured and no threshold tuned, events that come slowly are all counted, and a burst is
 * counted as a whole or from its beginning. Where events come fast for long, each slot is counted
 * until it has `most`:
 *
 * 	piece        gap         piece  gap              piece
 * 	│■■■■■■■■■│···············│■■■■│·················│■■■■■■■■■■■■■■■...
 * 	│◀────────── slot ───────▶│
 *
 * The end of a gap is moved at random by up to half of it, which does not change the debt. If
 * events come slowly afterwards the slot ends by overload_sampling_next_ns, so the piece beside a
 * gap is never longer than a slot or the quiet time before it: the gap is shared out by the rates
 * of both. Rejected: counting a share of the time whatever the rate (wakes up all the time and
 * takes from quiet times what busy ones cost); scaling by time instead of events (a burst that ends
 * in a gap would be made as long as the gap); giving a gap only to the piece before or after it
 * (the same error at one end).
 *
 * Sampling period: a target with 160 events of a period of 1,000 in each stretch has one sample in
 * every sixth instead of none at all; what all samples stand for, and what is carried, is what was
 * counted. A stretch keeps the period it began with. It is no shorter than a quarter, unless the
 * stretch before was shorter, and no shorter than a sixteenth in any case: a stretch that turns out
 * to have many events has that many more samples. What is carried beyond two periods, by stretches
 * that are too short even so, is dropped: it would be attributed to the wrong stack.
 *
 * Idle back-off. Pauses are whole numbers of ticks, and a look is due half a tick before the one it
 * is meant for, so that a tick that comes a little early does not miss it; by the clock and not by
 * a count of ticks, so the bound holds if ticks are skipped or come more slowly. Pauses below the
 * longest are powers of two of ticks: targets that are in step stay so when pauses double, which
 * spreads them without more looks than needed. The first pause of a length ends at the target's own
 * tick; the others are whole.
 *
 * Token bucket. Rejected: a fixed budget for each second, after which a caller would wait for the
 * rest of the second although a fraction of it would pay.
 *
 * Rate limit: only reads that found something count. Rejected: a pause after every read: it is then
 * always too early to poll, and a thread that waits for the end of the pause reads again, finds
 * nothing and waits, a thousand times a second.
 *
 * Condition:
 *
 *             bad                           good, and none bad for calm_ns
 *     (off) ───────▶ ON, worst = level ────────────────────────────────────▶ (off)
 *                     │       ▲
 *                     └───────┘ a level above the worst
 */
#include "lib/model/pacing.h"

#include <assert.h>
#include <string.h>

/* The factors that gVisor's profiling metrics use. */
#define SCHEDULE_BACKOFF_FIRST 1.0
#define SCHEDULE_BACKOFF_GROWTH 1.125
#define SCHEDULE_BACKOFF_MAX 256.0

static uint64_t elapsed(mono_t later, mono_t earlier)
{
	int64_t diff = mono_diff(later, earlier);

	return diff > 0 ? (uint64_t)diff : 0;
}

/* Accounts for the slots that have passed by now, and for `taken` (0 or 1) that was taken. */
static void pass_slots(struct schedule *schedule, mono_t now, uint64_t taken)
{
	uint64_t slots = elapsed(now, schedule->deadline) / schedule->interval_ns + taken;

	if (slots == 0)
		return;
	schedule->stats->total_slots += slots;
	schedule->stats->missed_slots += slots - taken;
	schedule->stats->missed_time += (slots - taken) * schedule->interval_ns;
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

void schedule_wake(struct schedule *schedule, mono_t now)
{
	schedule->stats->total_sleep_timing_error += elapsed(now, schedule->until) + elapsed(schedule->until, now);
	pass_slots(schedule, now, 0);
	schedule->woke = now;
}

void schedule_done(struct schedule *schedule, mono_t now, bool recalls)
{
	schedule->stats->total_snapshots++;
	schedule->stats->total_collection_timing_error += elapsed(now, schedule->woke);
	pass_slots(schedule, recalls ? schedule->deadline : now, 1);
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
	pass_slots(schedule, now, 0);
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
		pass_slots(schedule, now, 0);
		schedule->deadline = now;
	} else if (mono_diff(schedule->deadline, now) > (int64_t)interval_ns) {
		schedule->deadline = mono_add(now, interval_ns);
		schedule->until = schedule->deadline;
	}
	schedule->interval_ns = interval_ns;
	schedule->stats->collection_rate = interval_ns;
}

/*
 * Half the interval costs about twice as much: recover only if that would still leave a quarter of
 * the budget. The same of what all looks at sleeping targets would cost.
 */
#define CPU_BUDGET_HALF_INTERVAL_BELOW 0.75
#define CPU_BUDGET_ALL_LOOKS_BELOW 0.75
#define CPU_BUDGET_FIRST_BELOW 0.75
/* What others make it do counts up to so much of the budget. */
#define CPU_BUDGET_FOR_OTHERS 0.25

void cpu_budget_init(struct cpu_budget *budget, double budget_percent, mono_t now, const struct cpu_use *used)
{
	*budget = (struct cpu_budget){
		.budget = budget_percent / 100,
		.since = now,
		.used = *used,
		.factor = 1,
	};
}

static double grown_share(uint64_t later, uint64_t earlier, int64_t elapsed_ns)
{
	return later > earlier ? (double)(later - earlier) / (double)elapsed_ns : 0;
}

/*
 * The next factor: at which the samples of all slots, those that were missed too, and whatever else
 * the process does stay below allowed. The rest counts up to a half of that: what is beyond does not
 * become less by sampling more slowly, and may be a scan that ends. Under a quota, where each step that is
 * too short costs hundreds of slots, four times the factor at least.
 */
static uint32_t longer(const struct cpu_budget *budget, double allowed, double share, double sampling, double captured)
{
	bool by_quota = allowed < budget->budget;
	double rest = share > sampling ? share - sampling : 0, all = sampling / captured;
	uint32_t factor = budget->factor * (by_quota ? 4 : 2);

	rest = rest < allowed / 2 ? rest : allowed / 2;
	while (factor < CPU_BUDGET_FACTOR_MAX && rest + all * budget->factor / factor > allowed)
		factor *= 2;
	return factor < CPU_BUDGET_FACTOR_MAX ? factor : CPU_BUDGET_FACTOR_MAX;
}

/* The shortest interval not above the present one with which all would have fitted into the period. */
static uint32_t found(const struct cpu_budget *budget, double allowed, double share, double sampling, double captured)
{
	double rest = share - sampling, all = sampling / captured * budget->factor;
	uint32_t factor = budget->factor;

	while (factor > 1 && rest + all / (factor / 2) <= allowed * CPU_BUDGET_FIRST_BELOW)
		factor /= 2;
	return factor;
}

static void spend_less(struct cpu_budget *budget, double allowed, double share, double sampling, double captured)
{
	if (budget->may_back_off && !budget->backs_off)
		budget->backs_off = true;
	else
		budget->factor = longer(budget, allowed, share, sampling, captured);
}

/* Whether the next less frugal way would have fitted. CPU seconds per second; others: what counts of theirs. */
static bool is_calm(const struct cpu_budget *budget, double allowed, double share, double others, double saved)
{
	if (budget->factor > 1)
		return 2 * share - others <= allowed * CPU_BUDGET_HALF_INTERVAL_BELOW;
	return budget->backs_off && share + saved <= allowed * CPU_BUDGET_ALL_LOOKS_BELOW;
}

uint32_t cpu_budget_step(struct cpu_budget *budget, mono_t now, const struct cpu_use *used, double quota)
{
	struct cpu_use before = budget->used;
	int64_t passed = mono_diff(now, budget->since);
	double allowed = cpu_budget_allowed(budget, quota);

	if (passed <= 0)
		return budget->factor;

	budget->share = grown_share(used->cpu_ns, before.cpu_ns, passed);
	budget->since = now;
	budget->used = *used;

	if (allowed <= 0)
		return budget->factor;

	double sampling = grown_share(used->sampling_ns, before.sampling_ns, passed);
	double others = grown_share(used->others_ns, before.others_ns, passed);
	double most = allowed < budget->budget ? others : allowed * CPU_BUDGET_FOR_OTHERS;
	double counted = others < most ? others : most;
	double share = budget->share > others ? budget->share - others + counted : counted;
	uint64_t slots = used->slots - before.slots, taken = used->snapshots - before.snapshots;
	double captured = taken > 0 && taken < slots ? (double)taken / (double)slots : 1;

	if (share > allowed) {
		budget->calm = 0;
		if (++budget->hot < CPU_BUDGET_HOT && allowed >= budget->budget)
			return budget->factor;
		budget->hot = 0;
		spend_less(budget, allowed, share, sampling, captured);
		return budget->factor;
	}
	budget->hot = 0;
	if (budget->finding > 0) {
		budget->finding--;
		budget->factor = found(budget, allowed, share, sampling, captured);
		return budget->factor;
	}

	if (!is_calm(budget, allowed, share, counted, grown_share(used->saved_ns, before.saved_ns, passed))) {
		budget->calm = 0;
		return budget->factor;
	}

	if (++budget->calm >= CPU_BUDGET_CALM) {
		budget->calm = 0;
		if (budget->factor > 1)
			budget->factor /= 2;
		else
			budget->backs_off = false;
	}
	return budget->factor;
}

/* The piece of that number; const if the sampling is. */
#define piece_of(sampling, number) (&(sampling)->pieces[(number) % OVERLOAD_SAMPLING_PIECES])

static uint64_t sub_or_zero(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static uint64_t scale(uint64_t value, uint64_t times, uint64_t of)
{
	unsigned __int128 result = (unsigned __int128)value * times / of;

	return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

/* xorshift64 */
static uint64_t next_random(struct overload_sampling *sampling)
{
	sampling->random ^= sampling->random << 13;
	sampling->random ^= sampling->random >> 7;
	sampling->random ^= sampling->random << 17;
	return sampling->random;
}

/* Between a half and one and a half times ns. */
static uint64_t randomized_ns(struct overload_sampling *sampling, uint64_t ns)
{
	return ns / 2 + scale(ns, next_random(sampling) >> 32, UINT32_MAX);
}

void overload_sampling_init(struct overload_sampling *sampling, const struct overload_sampling_options *options,
			    uint64_t now_ns, uint64_t total)
{
	memset(sampling, 0, sizeof(*sampling));
	sampling->options = *options;
	sampling->on = true;
	sampling->slot_ns = sampling->from_ns = now_ns;
	sampling->total = total;
	sampling->random = 88172645463325252ULL ^ ((uint64_t)options->seed << 8);
}

/* How long so many samples may take. */
static uint64_t worth_ns(const struct overload_sampling *sampling, uint64_t samples)
{
	return scale(sampling->options.slot_ns, samples, sampling->options.most);
}

/* The debt that needs no gap. */
static uint64_t allowed_debt_ns(const struct overload_sampling *sampling)
{
	return sub_or_zero(worth_ns(sampling, sampling->options.burst), sampling->options.slot_ns);
}

/* The debt after so many samples of this slot. */
static uint64_t debt_ns(const struct overload_sampling *sampling, uint64_t now_ns, uint64_t samples)
{
	uint64_t worth = worth_ns(sampling, samples), passed_ns = sub_or_zero(now_ns, sampling->slot_ns);

	if (worth > UINT64_MAX - sampling->debt_ns)
		return sub_or_zero(UINT64_MAX, passed_ns);
	return sub_or_zero(sampling->debt_ns + worth, passed_ns);
}

enum overload_sampling_verdict overload_sampling_judge(const struct overload_sampling *sampling, uint64_t now_ns,
						       uint64_t samples)
{
	if (samples >= sampling->options.most && debt_ns(sampling, now_ns, samples) > allowed_debt_ns(sampling))
		return OVERLOAD_SAMPLING_STOP;
	return sub_or_zero(now_ns, sampling->slot_ns) >= sampling->options.slot_ns ? OVERLOAD_SAMPLING_SLOT
										   : OVERLOAD_SAMPLING_GO_ON;
}

/* ---- pieces and gaps ---- */

/* Events per second. */
static double rate_of(const struct overload_sampling_piece *piece)
{
	uint64_t ns = sub_or_zero(piece->to_ns, piece->from_ns);

	return (double)piece->counted * 1e9 / (double)(ns > 0 ? ns : 1);
}

/* Shares the events of the gap before the newest piece out to it and to the piece before it. */
static void share_gap(struct overload_sampling *sampling)
{
	struct overload_sampling_piece *after = piece_of(sampling, sampling->first + sampling->count - 1);
	struct overload_sampling_piece *before =
		sampling->count > 1 ? piece_of(sampling, sampling->first + sampling->count - 2) : after;
	double rates = rate_of(before) + rate_of(after);
	uint64_t to_before = 0;

	if (before != after && !sampling->settled && rates > 0)
		to_before = (uint64_t)((double)sampling->gap * (rate_of(before) / rates));
	if (to_before > sampling->gap)
		to_before = sampling->gap;
	before->gained += to_before;
	after->gained += sampling->gap - to_before;
	sampling->gap = 0;
	sampling->settled = false;
}

static void end_piece(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total)
{
	if (sampling->count == OVERLOAD_SAMPLING_PIECES) {
		sampling->first++;
		sampling->count--;
	}
	*piece_of(sampling, sampling->first + sampling->count++) = (struct overload_sampling_piece){
		.from_ns = sampling->from_ns, .to_ns = now_ns, .counted = sub_or_zero(total, sampling->total)
	};
	share_gap(sampling);
}

/* A piece or a gap begins. */
static void start_span(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total)
{
	sampling->from_ns = now_ns;
	sampling->total = total;
}

void overload_sampling_begin(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	if (sampling->on) {
		sampling->debt_ns = debt_ns(sampling, now_ns, samples);
		end_piece(sampling, now_ns, total);
	} else {
		sampling->debt_ns = sub_or_zero(allowed_debt_ns(sampling), sub_or_zero(now_ns, sampling->next_ns));
		sampling->gap = sub_or_zero(total, sampling->total);
	}
	sampling->watchful = !sampling->on;
	sampling->on = true;
	sampling->slot_ns = now_ns;
	start_span(sampling, now_ns, total);
}

void overload_sampling_stop(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	uint64_t too_much_ns = sub_or_zero(debt_ns(sampling, now_ns, samples), allowed_debt_ns(sampling));

	end_piece(sampling, now_ns, total);
	sampling->on = false;
	sampling->next_ns = now_ns + randomized_ns(sampling, too_much_ns);
	start_span(sampling, now_ns, total);
}

/* In a gap, its events so far go to the last piece: what follows is not known. */
void overload_sampling_settle(struct overload_sampling *sampling, uint64_t now_ns, uint64_t total)
{
	if (sampling->on)
		end_piece(sampling, now_ns, total);
	else
		piece_of(sampling, sampling->first + sampling->count - 1)->gained +=
			sub_or_zero(total, sampling->total);
	sampling->settled |= !sampling->on;
	start_span(sampling, now_ns, total);
}

/* ---- weights ---- */

/* The first piece that ends after time_ns; first + count: none does. */
static uint64_t find_piece(const struct overload_sampling *sampling, uint64_t time_ns)
{
	uint64_t low = sampling->first, high = sampling->first + sampling->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (piece_of(sampling, middle)->to_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * A sample from between the end of a piece and the end of counting, or the reverse, belongs to the
 * nearer of the two pieces beside it.
 */
uint64_t overload_sampling_weigh(const struct overload_sampling *sampling, uint64_t time_ns, uint64_t weight)
{
	uint64_t number = find_piece(sampling, time_ns);
	const struct overload_sampling_piece *piece;

	if (sampling->count == 0 || (number == sampling->first + sampling->count && sampling->on) ||
	    (number == sampling->first && time_ns < piece_of(sampling, number)->from_ns))
		return weight;
	if (number == sampling->first + sampling->count ||
	    (time_ns < piece_of(sampling, number)->from_ns &&
	     time_ns - piece_of(sampling, number - 1)->to_ns < piece_of(sampling, number)->from_ns - time_ns))
		number--;
	piece = piece_of(sampling, number);
	if (piece->counted == 0 || piece->gained == 0)
		return weight;
	return weight + scale(weight, piece->gained, piece->counted);
}

void overload_sampling_sum_up(const struct overload_sampling *sampling, uint64_t from_ns, uint64_t to_ns,
			      struct overload_sampling_summary *ret)
{
	struct overload_sampling_summary sum = { 0 };

	for (uint64_t number = find_piece(sampling, from_ns); number < sampling->first + sampling->count; number++) {
		const struct overload_sampling_piece *piece = piece_of(sampling, number);

		if (piece->from_ns > to_ns)
			break;
		sum.counted += piece->counted;
		sum.all += piece->counted + piece->gained;
		if (piece->gained > 0 && sum.since_ns == 0)
			sum.since_ns = piece->from_ns;
	}
	*ret = sum;
}

#define PART_MIN 4
#define PART_LEAST 16
#define CARRY_MAX 2

uint64_t sampling_period_next(const struct sampling_period *sampling)
{
	uint64_t least = sampling->counted / 2;

	if (least > sampling->period / PART_MIN)
		least = sampling->period / PART_MIN;
	if (least < sampling->period / PART_LEAST)
		least = sampling->period / PART_LEAST;
	least += least == 0;
	return sampling->carry + least < sampling->period ? sampling->period - sampling->carry : least;
}

uint64_t sampling_period_end(struct sampling_period *sampling, uint64_t period, uint64_t counted)
{
	uint64_t samples = counted / period, stood_for;

	sampling->counted = counted;
	if (samples == 0) {
		sampling->carry += counted;
		if (sampling->carry > CARRY_MAX * sampling->period)
			sampling->carry = CARRY_MAX * sampling->period;
		return 0;
	}
	stood_for = sampling->carry + samples * period;
	sampling->carry = stood_for % samples + counted % period;
	return stood_for / samples;
}

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

/* Its capacity, and the largest debt. */
static int64_t room_of(const struct token_bucket *bucket)
{
	return (int64_t)(NS_PER_S / bucket->share);
}

struct token_bucket token_bucket_of(unsigned share, mono_t now)
{
	struct token_bucket bucket = { .share = share, .filled = now };

	bucket.left_ns = room_of(&bucket);
	return bucket;
}

/* Its content at now. */
static int64_t left_at(const struct token_bucket *bucket, mono_t now)
{
	int64_t room = room_of(bucket), passed = mono_diff(now, bucket->filled), left;

	if (passed <= 0)
		return bucket->left_ns;
	if (passed >= (int64_t)(2 * NS_PER_S)) /* from the largest debt to full */
		return room;
	left = bucket->left_ns + passed / bucket->share;
	return left < room ? left : room;
}

void token_bucket_take(struct token_bucket *bucket, uint64_t cpu_ns, mono_t now)
{
	int64_t room = room_of(bucket), left = left_at(bucket, now);
	int64_t taken = cpu_ns < (uint64_t)(2 * room) ? (int64_t)cpu_ns : 2 * room;

	bucket->left_ns = left - taken > -room ? left - taken : -room;
	bucket->filled = now;
}

bool token_bucket_is_spent(const struct token_bucket *bucket, mono_t now)
{
	return left_at(bucket, now) < 0;
}

void rate_limit_event(struct rate_limit *limit, uint64_t gap_ns, mono_t now)
{
	bool often = mono_diff(now, limit->last) < (int64_t)gap_ns;

	limit->last = now;
	limit->until = often ? mono_add(now, gap_ns) : now;
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
