/*
 * sampler.c: wait, take what the cold side handed over, read everything, publish.
 *
 * The tick allocates nothing, logs nothing, locks nothing and opens no file, but those of cold processes (gate.h). A tick begins in the
 * ring before anything is read: if a blocking reader holds the next page there is nothing to read for, and the pacer backs off.
 *
 * The ring is shown what changed, and what has not been shown for a heartbeat; the source keeps the list (source_seen), so what
 * is idle costs nothing in between. After a tick in which records were lost all are looked at and shown: the ring itself knows which of them it has
 * not got.
 *
 * When a process wakes that was not looked at in the tick before, the ring gets two records: that it was still the same when it was last looked
 * at, and what it is like now.
 */
#include "sampler.h"

#include "budget.h"
#include "handover.h"
#include "pacer.h"
#include "realclock.h"
#include "sleeper.h"
#include "tuning.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Commands that fit between two ticks; the cold side simply waits when they do not. */
#define QUEUE_LENGTH 4096u

/* How many commands one tick takes at most: adding is cheap (20 ns), but a tick has a deadline. */
#define COMMANDS_PER_TICK 1024u

/* Timer slack: the kernel may group wake-ups by so much. 1 us costs nothing here and keeps the mean error below 50 us. */
#define TIMER_SLACK_NS 1000ul

enum command { COMMAND_ADD = 1, COMMAND_REMOVE };

struct sampler {
	struct sampler_options options;
	struct sampler_seat seat;
	struct ring_writer *writer;
	struct source *source;
	struct pacer pacer;
	struct budget budget;
	struct stats stats;
	bool resync; /* records were lost: show everything */
	struct handover *commands, *returns;
	struct tuning_box tunings;
	struct sleeper sleeper;
	pthread_t thread;
	bool running;
	_Atomic bool stop;
};

/* What was spent before, on opening and on the first scan, is no sampling. */
static void restart_clocks(struct sampler *sampler)
{
	mono_t now = clock_mono(&sampler->sleeper.clock);
	uint64_t turn_ns =
		sampler->seat.of ? sampler->options.interval_ns * sampler->seat.number / sampler->seat.of : 0;

	pacer_init(&sampler->pacer, &sampler->stats, mono_add(now, turn_ns), sampler->options.interval_ns);
	budget_restart(&sampler->budget, sampler->options.cpu_budget_percent, now);
	sleeper_beat(&sampler->sleeper, now);
}

static struct sampler_options with_defaults(const struct sampler_options *options)
{
	struct sampler_options full = *options;

	if (!full.source.heartbeat_ns)
		full.source.heartbeat_ns = NS_PER_S;
	full.source.interval_ns = full.interval_ns;

	return full;
}

/* What readers are told. */
static uint64_t idle_in_force(const struct source_options *options)
{
	return options->idle_interval_ns > options->interval_ns ? options->idle_interval_ns : 0;
}

int sampler_new(const struct sampler_options *options, struct ring *ring, struct sampler **ret)
{
	struct sampler *sampler = calloc(1, sizeof *sampler);
	int r;

	if (!sampler)
		return -ENOMEM;

	sampler->options = with_defaults(options);
	sampler->sleeper.clock = realclock();
	sampler->stats.threads = 1;

	r = source_new(&sampler->options.source, &sampler->sleeper.clock, &sampler->source);
	if (r == 0)
		r = ring_writer_new(ring, &sampler->writer);
	if (r == 0)
		r = handover_new(QUEUE_LENGTH, &sampler->commands);
	if (r == 0)
		r = handover_new(QUEUE_LENGTH, &sampler->returns);
	if (r < 0) {
		sampler_free(sampler);
		return r;
	}

	ring_writer_idle(sampler->writer, idle_in_force(&sampler->options.source));
	restart_clocks(sampler);
	*ret = sampler;

	return 0;
}

void sampler_free(struct sampler *sampler)
{
	if (!sampler)
		return;

	sampler_stop(sampler);
	ring_writer_free(sampler->writer);
	source_free(sampler->source);
	handover_free(sampler->commands);
	handover_free(sampler->returns);
	tuning_release(&sampler->tunings);
	free(sampler);
}

/* ---- the cold side ---- */

bool sampler_add(struct sampler *sampler, struct sampler_target *target)
{
	return handover_put(sampler->commands, (struct handover_item){ COMMAND_ADD, target });
}

bool sampler_remove(struct sampler *sampler, struct sampler_target *target)
{
	return handover_put(sampler->commands, (struct handover_item){ COMMAND_REMOVE, target });
}

bool sampler_returned(struct sampler *sampler, struct sampler_target **ret, enum sampler_return *ret_why)
{
	struct handover_item item;

	if (!handover_take(sampler->returns, &item))
		return false;

	*ret = item.pointer;
	*ret_why = (enum sampler_return)item.what;

	return true;
}

int sampler_retune(struct sampler *sampler, const struct sampler_options *options)
{
	struct sampler_options full = with_defaults(options);
	int r = tuning_post(&sampler->tunings, &full);

	if (r == 0)
		sleeper_call(&sampler->sleeper);

	return r;
}

mono_t sampler_pulse(const struct sampler *sampler)
{
	return sleeper_pulse(&sampler->sleeper);
}

void sampler_exempt(struct sampler *sampler, clockid_t thread_clock)
{
	budget_exempt(&sampler->budget, thread_clock);
}

uint32_t sampler_slowdown(const struct sampler *sampler)
{
	return budget_slowdown(&sampler->budget);
}

double sampler_cpu_share(const struct sampler *sampler)
{
	return budget_share(&sampler->budget);
}

void sampler_stats(const struct sampler *sampler, struct stats *ret)
{
	*ret = sampler->stats;
	ring_writer_account(sampler->writer, ret);
}

/* ---- the tick ---- */

/*
 * Between two ticks. The governor goes on if neither what it divides nor what it divides by has changed: a reload for another reason is
 * no reason to overrun the budget again.
 */
static void take_tuning(struct sampler *sampler, mono_t now)
{
	struct tuning *tuning = tuning_take(&sampler->tunings);

	if (!tuning)
		return;

	struct sampler_options before = sampler->options;

	sampler->options = tuning->options;
	tuning->room = source_retune(sampler->source, &sampler->options.source, now, tuning->room);
	tuning_return(&sampler->tunings, tuning);
	if (!sampler->seat.leader)
		ring_writer_retune(sampler->writer, sampler->options.interval_ns, sampler->options.source.heartbeat_ns);
	ring_writer_idle(sampler->writer, idle_in_force(&sampler->options.source));
	if (before.interval_ns == sampler->options.interval_ns &&
	    before.cpu_budget_percent == sampler->options.cpu_budget_percent)
		return;

	if (sampler->pacer.interval_ns != sampler->options.interval_ns)
		pacer_set_interval(&sampler->pacer, now, sampler->options.interval_ns);
	budget_restart(&sampler->budget, sampler->options.cpu_budget_percent, now);
	source_set_interval(sampler->source, sampler->options.interval_ns);
}

/* The cold side may free the target at once: nothing may touch it after this. There must be room. */
static void give_back(struct sampler *sampler, struct sampler_target *target, enum sampler_return why)
{
	handover_put(sampler->returns, (struct handover_item){ why, target });
}

/* What the ring could not take now it will be shown again. */
static void note_put(struct sampler *sampler, int result)
{
	if (result == RING_HELD)
		sampler->resync = true;
}

static void take_out(struct sampler *sampler, struct sampler_target *target, mono_t now, enum ring_gone_reason reason)
{
	if (!target->group)
		note_put(sampler, ring_put_gone(sampler->writer, &target->track, now, reason));
	source_remove(sampler->source, target->entry);
	target->lent = false;
}

static void obey(struct sampler *sampler, const struct handover_item *command, mono_t now)
{
	struct sampler_target *target = command->pointer;

	if (command->what == COMMAND_REMOVE) {
		if (target->lent)
			take_out(sampler, target, now, RING_GONE_UNWATCHED);
		give_back(sampler, target, SAMPLER_REMOVED);
		return;
	}

	if (source_add(sampler->source, target->entry, target->group ? target->group->entry : NULL) < 0)
		give_back(sampler, target, SAMPLER_REFUSED);
	else
		target->lent = true;
}

/* A command is only taken when its answer will fit. */
static void take_commands(struct sampler *sampler, mono_t now)
{
	struct handover_item command;

	for (unsigned i = 0; i < COMMANDS_PER_TICK; i++) {
		if (!handover_room(sampler->returns) || !handover_take(sampler->commands, &command))
			return;
		obey(sampler, &command, now);
	}
}

static void fill(struct sampler *sampler, mono_t now)
{
	if (sampler->resync)
		source_rouse(sampler->source);
	sampler->resync = false;
	source_fill(sampler->source, now);
}

static void publish(struct sampler *sampler, struct source_entry *entry)
{
	struct sampler_target *target = source_entry_user(entry);
	mono_t before;

	sampler_target_take_description(target);
	if (source_entry_woke(entry, &before))
		note_put(sampler, ring_put_still(sampler->writer, &target->track, before));
	note_put(sampler,
		 ring_put_sample(sampler->writer, &target->track, source_entry_at(entry), source_entry_sample(entry)));
}

static void publish_all(struct sampler *sampler)
{
	size_t count;
	struct source_entry *const *entries = source_seen(sampler->source, &count);

	for (size_t i = 0; i < count; i++)
		publish(sampler, entries[i]);
}

/* Takes a gone target out and hands it back. False: no room; it stays gone and is met again in the next tick. */
static bool bury(struct sampler *sampler, struct source_entry *entry, mono_t now)
{
	struct sampler_target *target = source_entry_user(entry);

	if (!handover_room(sampler->returns))
		return false;

	take_out(sampler, target, now, RING_GONE_EXITED);
	give_back(sampler, target, SAMPLER_GONE);
	sampler->stats.gone_targets++;

	return true;
}

/* Members backwards, because taking one out reorders those behind it. */
static void collect_gone(struct sampler *sampler, mono_t now)
{
	size_t count;
	struct source_entry *const *entries = source_gone_members(sampler->source, &count);

	for (size_t i = count; i-- > 0;)
		if (!bury(sampler, entries[i], now))
			return;

	entries = source_seen(sampler->source, &count);
	for (size_t i = 0; i < count; i++)
		if (source_entry_status(entries[i]) == SOURCE_GONE && !bury(sampler, entries[i], now))
			return;
}

static void govern(struct sampler *sampler, mono_t now)
{
	uint32_t factor, before = sampler_slowdown(sampler);

	if (budget_look(&sampler->budget, now, &factor))
		sampler->stats.own_cpu = realclock_thread_cpu();
	if (factor == before)
		return;
	pacer_set_interval(&sampler->pacer, now, sampler->options.interval_ns * factor);
	source_set_interval(sampler->source, sampler->options.interval_ns * factor);
}

static void count_source(struct sampler *sampler)
{
	struct source_counters counters;

	source_counters(sampler->source, &counters);
	sampler->stats.skipped_reads = counters.skipped_reads;
	sampler->stats.saved_looks = counters.saved_looks;
	sampler->stats.failed_reads = counters.failed_reads;
}

/* Asks for room for every target at its fattest, so that what begins can be written whole. False: a reader holds the next page. */
static bool begin_tick(struct sampler *sampler, mono_t now)
{
	size_t count;

	source_entries(sampler->source, &count);

	return ring_tick_begin(sampler->writer, now, clock_wall(&sampler->sleeper.clock),
			       (count + 1) * RING_TARGET_MAX) != RING_HELD;
}

/* A tick at `now`. Returns false if it could not begin because a reader holds the next page. */
static bool take_tick(struct sampler *sampler, mono_t now)
{
	sleeper_beat(&sampler->sleeper, now);
	take_tuning(sampler, now);
	if (!begin_tick(sampler, now))
		return false;

	pacer_wake(&sampler->pacer, now);
	take_commands(sampler, now);
	fill(sampler, now);
	publish_all(sampler);

	mono_t end = clock_mono(&sampler->sleeper.clock);

	collect_gone(sampler, end);
	pacer_done(&sampler->pacer, end);
	sleeper_beat(&sampler->sleeper, end);
	count_source(sampler);
	govern(sampler, end);
	ring_tick_end(sampler->writer, &sampler->stats);

	return true;
}

void sampler_tick(struct sampler *sampler)
{
	take_tick(sampler, clock_mono(&sampler->sleeper.clock));
}

/* ---- the thread ---- */

static bool stopped(const struct sampler *sampler)
{
	return atomic_load_explicit(&sampler->stop, memory_order_relaxed);
}

/* The end of the run is looked at too, and says what the run has cost. It belongs to no slot: the pacer does not count it. */
static void take_last_look(struct sampler *sampler)
{
	mono_t now = clock_mono(&sampler->sleeper.clock);

	pacer_stop(&sampler->pacer, now);
	sampler->stats.own_cpu = realclock_thread_cpu();
	if (!begin_tick(sampler, now))
		return;

	take_commands(sampler, now); /* of a run that ends before its first tick */
	source_rouse(sampler->source);
	fill(sampler, now);
	publish_all(sampler);
	sampler->stats.own_cpu = realclock_thread_cpu();
	ring_tick_end(sampler->writer, &sampler->stats);
}

static void name_thread(const struct sampler_seat *seat)
{
	char name[16] = "sampler";

	if (seat->of > 1)
		snprintf(name, sizeof name, "sampler/%u", seat->number);
	prctl(PR_SET_NAME, name);
}

static void *run(void *argument)
{
	struct sampler *sampler = argument;

	name_thread(&sampler->seat);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	take_tuning(sampler, clock_mono(&sampler->sleeper.clock));
	restart_clocks(sampler);

	for (;;) {
		sleeper_wait(&sampler->sleeper, pacer_deadline(&sampler->pacer), sampler->options.wait);
		sleeper_answer(&sampler->sleeper);
		if (stopped(sampler))
			break;

		mono_t now = clock_mono(&sampler->sleeper.clock);

		take_tuning(sampler, now);
		if (mono_diff(pacer_deadline(&sampler->pacer), now) > 0)
			continue; /* called away from its sleep */
		if (!take_tick(sampler, now))
			sleeper_sleep(&sampler->sleeper, pacer_backoff(&sampler->pacer, now));
	}

	take_last_look(sampler);

	return NULL;
}

void sampler_sit(struct sampler *sampler, const struct sampler_seat *seat)
{
	sampler->seat = *seat;
	sampler->budget.leader = seat->leader ? &seat->leader->budget : NULL;
	restart_clocks(sampler);
}

int sampler_start(struct sampler *sampler)
{
	sigset_t all, before;
	int r;

	/* Signals are the main thread's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	atomic_store(&sampler->stop, false);
	sleeper_beat(&sampler->sleeper, clock_mono(&sampler->sleeper.clock));
	r = pthread_create(&sampler->thread, NULL, run, sampler);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	sampler->running = r == 0;

	return -r;
}

void sampler_call_off(struct sampler *sampler)
{
	atomic_store(&sampler->stop, true);
	sleeper_call(&sampler->sleeper);
}

void sampler_stop(struct sampler *sampler)
{
	if (!sampler->running)
		return;

	sampler_call_off(sampler);
	pthread_join(sampler->thread, NULL);
	sampler->running = false;
}
