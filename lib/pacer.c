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
#include "pacer.h"

#include <assert.h>

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
