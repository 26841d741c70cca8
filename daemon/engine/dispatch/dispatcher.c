/*
 * dispatcher.c: assembles evaluator and incidents, and hands the ring's events to both; the log of
 * targets that come and go.
 *
 * The log knows no clock and no ring: it is handed the time and what RING_EVENT_TARGET and
 * RING_EVENT_GONE say. Members of groups are no targets, the ring does not describe them. A leaky
 * bucket decides what is few: each target that comes or goes adds LOG_ENTRY_NS, the bucket leaks a
 * nanosecond each nanosecond and holds LOG_BURST entries.
 *
 *               no room for one more                      leaked below LOG_CALM
 *     (by name) --------------------> FLOOD (only counted) ----------------> (by name)
 *                                      |        ^
 *                                      +--------+ a sum after 10 s, then 20 s ... 10 min
 *
 * The two levels lie apart so that a rate at the border does not swing. In a flood the bucket
 * stays full while more come than leak, so the flood ends soon after they are few. What is counted
 * is logged at its end at the latest. The bound: in 60 s at most LOG_BURST + 60 / 4 = 35 entries
 * by name; a flood takes (LOG_BURST - LOG_CALM) * 4 s = 20 s at least to end, so there are at most
 * three ends and four sums besides, of two entries each: 49.
 *
 * A process that executes a program of another name is another target, of the same name if it is
 * of the same entry: the ring says that the one has gone and then, some milliseconds later, that
 * the other is there. So "not watched any more" is held back for half a second.
 */
#include "daemon/engine/dispatch/dispatcher.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/session/session.h"
#include "lib/base/map.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <string.h>

#define LOG_ENTRY_NS (4 * NS_PER_S)
#define LOG_BURST 20
#define LOG_CALM 15
#define LOG_PERIOD_MIN_NS (10 * NS_PER_S)
#define LOG_PERIOD_MAX_NS (600 * NS_PER_S)

/* Up to so many present targets are logged by name, and described within this time. */
#define LOG_PRESENT_MAX 10
#define LOG_PRESENT_NS (2 * NS_PER_S)

/* How long, and of how many targets, "not watched any more" is held back. */
#define LOG_HELD_NS (NS_PER_S / 2)
#define LOG_HELD_MAX 16

struct held_target {
	char *name;
	mono_t at;
};

/* {0} is legal. */
struct target_log {
	uint32_t *known; /* ids of the present targets, ascending */
	size_t count, cap;
	struct held_target held[LOG_HELD_MAX]; /* the oldest first */
	size_t held_count;
	size_t silent; /* so many more were present at the start */
	mono_t silent_until;
	uint64_t level_ns; /* of the bucket */
	mono_t leaked;
	bool flood;
	uint64_t found, gone; /* in the running sum */
	mono_t summed;
	uint64_t period_ns;
};

struct dispatcher {
	struct dispatcher_options options;
	struct clock clock;
	struct ring_cursor *cursor;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct target_log log;
	struct dispatcher_counts counts;
	mono_t tick;
};

/* ---- the log of targets: which are known ---- */

/* Index of the first id that is not below this one. */
static size_t find_known(const struct target_log *log, uint32_t id)
{
	size_t from = 0, to = log->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (log->known[middle] < id)
			from = middle + 1;
		else
			to = middle;
	}

	return from;
}

static bool is_known(const struct target_log *log, size_t place, uint32_t id)
{
	return place < log->count && log->known[place] == id;
}

/* Without memory it is not known, and is found anew each time. */
static void add_known(struct target_log *log, size_t place, uint32_t id)
{
	if (vector_reserve(&log->known, &log->cap, log->count + 1, sizeof *log->known) < 0)
		return;

	memmove(log->known + place + 1, log->known + place, (log->count - place) * sizeof *log->known);
	log->known[place] = id;
	log->count++;
}

static void remove_known(struct target_log *log, size_t place)
{
	log->count--;
	memmove(log->known + place, log->known + place + 1, (log->count - place) * sizeof *log->known);
}

static void target_log_release(struct target_log *log)
{
	for (size_t i = 0; i < log->held_count; i++)
		free(log->held[i].name);
	free(log->known);
	*log = (struct target_log){ 0 };
}

/* ---- the log of targets: few or many ---- */

static void leak_bucket(struct target_log *log, mono_t now)
{
	int64_t passed = mono_diff(now, log->leaked);

	if (passed <= 0)
		return; /* ticks of the ring may lie a little behind the last look at the clock */

	log->level_ns = log->level_ns > (uint64_t)passed ? log->level_ns - (uint64_t)passed : 0;
	log->leaked = now;
}

static void begin_flood(struct target_log *log, mono_t now)
{
	log->flood = true;
	log->summed = now;
	log->period_ns = LOG_PERIOD_MIN_NS;
}

/* Whether one more may be logged by name. */
static bool admit_by_name(struct target_log *log, mono_t now)
{
	leak_bucket(log, now);
	if (log->level_ns + LOG_ENTRY_NS <= LOG_BURST * LOG_ENTRY_NS) {
		log->level_ns += LOG_ENTRY_NS;
	} else {
		log->level_ns = LOG_BURST * LOG_ENTRY_NS;
		if (!log->flood)
			begin_flood(log, now);
	}

	return !log->flood;
}

/* ---- the log of targets: sums ---- */

static void log_sum(enum message message, uint64_t count, const char *what, uint64_t seconds)
{
	struct log_about about = { .message = message, .count = count };

	if (count)
		log_about(LOG_INFO, &about, "%llu more %s %s in the last %llu s", (unsigned long long)count,
			  count == 1 ? "target" : "targets", what, (unsigned long long)seconds);
}

static void log_sums(struct target_log *log, mono_t now)
{
	int64_t passed = mono_diff(now, log->summed);
	uint64_t seconds = passed > 0 ? ((uint64_t)passed + NS_PER_S - 1) / NS_PER_S : 1;

	log_sum(MESSAGE_TARGET_FOUND, log->found, "came", seconds);
	log_sum(MESSAGE_TARGET_GONE, log->gone, "left", seconds);
	log->found = log->gone = 0;
	log->summed = now;
}

/* ---- the log of targets: what left its entry and may come back ---- */

static void log_gone(struct target_log *log, const char *name, const char *why, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_GONE, .target = name };

	if (admit_by_name(log, now))
		log_about(LOG_INFO, &about, "target %s is gone: %s", name ? name : "without a name", why);
	else
		log->gone++;
}

static void remove_held(struct target_log *log, size_t i)
{
	free(log->held[i].name);
	log->held_count--;
	memmove(log->held + i, log->held + i + 1, (log->held_count - i) * sizeof *log->held);
}

static const char not_watched[] = "it is not watched any more";

/* Logs held targets: all, or those that were held long enough. */
static void log_held(struct target_log *log, bool all, mono_t now)
{
	while (log->held_count > 0 && (all || mono_diff(now, log->held[0].at) >= (int64_t)LOG_HELD_NS)) {
		log_gone(log, log->held[0].name, not_watched, now);
		remove_held(log, 0);
	}
}

/* Without a name or memory it could not be recognised: it is logged at once. */
static void hold_target(struct target_log *log, const char *name, mono_t now)
{
	char *copy = name ? strdup(name) : NULL;

	if (!copy) {
		log_gone(log, name, not_watched, now);
		return;
	}
	if (log->held_count == LOG_HELD_MAX) {
		log_gone(log, log->held[0].name, not_watched, now);
		remove_held(log, 0);
	}
	log->held[log->held_count++] = (struct held_target){ copy, now };
}

/* True: a target of this name was held; it is not logged. */
static bool take_held(struct target_log *log, const char *name)
{
	for (size_t i = 0; i < log->held_count; i++) {
		if (strcmp(log->held[i].name, name) != 0)
			continue;
		remove_held(log, i);
		return true;
	}

	return false;
}

void dispatcher_log_poll(struct dispatcher *dispatcher, mono_t now)
{
	struct target_log *log = &dispatcher->log;

	log_held(log, false, now);
	leak_bucket(log, now);
	if (!log->flood)
		return;

	if (log->level_ns <= LOG_CALM * LOG_ENTRY_NS) {
		log_sums(log, now);
		log->flood = false;
	} else if (mono_diff(now, log->summed) >= (int64_t)log->period_ns) {
		log_sums(log, now);
		log->period_ns *= 2;
		if (log->period_ns > LOG_PERIOD_MAX_NS)
			log->period_ns = LOG_PERIOD_MAX_NS;
	}
}

static void target_log_flush(struct target_log *log, mono_t now)
{
	log_held(log, true, now);
	if (log->flood)
		log_sums(log, now);
}

/* ---- the log of targets: one by one ---- */

void dispatcher_log_start(struct dispatcher *dispatcher, size_t present, mono_t now)
{
	dispatcher->log.silent = present > LOG_PRESENT_MAX ? present : 0;
	dispatcher->log.silent_until = mono_add(now, LOG_PRESENT_NS);
}

/* Whether the log of the start has counted this one. */
static bool was_present(struct target_log *log, mono_t now)
{
	if (log->silent == 0)
		return false;
	if (mono_diff(now, log->silent_until) > 0) {
		log->silent = 0;
		return false;
	}
	log->silent--;

	return true;
}

static void target_log_found(struct target_log *log, const struct target *target, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_FOUND, .target = target->name };
	size_t place = find_known(log, target->id);

	if (is_known(log, place, target->id))
		return;

	add_known(log, place, target->id);
	log_held(log, false, now);
	if (take_held(log, target->name) || was_present(log, now))
		return;
	if (admit_by_name(log, now))
		log_about(LOG_INFO, &about, "target %s found: a %s, of entry %s", target->name,
			  target_kind_name(target->kind), target->entry);
	else
		log->found++;
}

static void target_log_gone(struct target_log *log, uint32_t id, const char *name, enum ring_gone_reason reason,
			    mono_t now)
{
	size_t place = find_known(log, id);

	if (!is_known(log, place, id))
		return;

	remove_known(log, place);
	if (reason == RING_GONE_UNWATCHED)
		hold_target(log, name, now);
	else
		log_gone(log, name, "it ended", now);
}

/* ---- the dispatcher ---- */

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct dispatcher *dispatcher = ctx;
	const struct dispatcher_options *options = &dispatcher->options;

	if (options->fired && !options->fired(options->ctx, firing))
		return 0;
	if (incidents_fire(dispatcher->incidents, firing) == INCIDENTS_OPENED && options->opened)
		options->opened(options->ctx, firing);

	return 0;
}

static bool on_disk_ok(void *ctx)
{
	struct dispatcher *dispatcher = ctx;

	return !incidents_disk_is_short(dispatcher->incidents);
}

static void on_judged(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
		      uint32_t windows)
{
	const struct dispatcher *dispatcher = ctx;

	dispatcher->options.judged(dispatcher->options.ctx, rule, decision, windows);
}

static void on_window(void *ctx, const struct evaluator_firing *window)
{
	const struct dispatcher *dispatcher = ctx;

	dispatcher->options.witness(dispatcher->options.ctx, window);
}

int dispatcher_open(const struct dispatcher_options *options, struct dispatcher **ret)
{
	struct dispatcher *dispatcher = calloc(1, sizeof *dispatcher);
	struct incidents_options incidents = {
		.config = options->config,
		.session = options->session,
		.rule_state = options->rule_state,
		.spool = options->spool,
	};
	struct evaluator_options evaluator = {
		.config = options->config,
		.machine = *session_parts(options->session).machine,
		.rule_state = options->rule_state,
		.fire = on_fire,
		.disk_ok = options->check_disk ? on_disk_ok : NULL,
		.judged = options->judged ? on_judged : NULL,
		.witness = options->witness ? on_window : NULL,
		.ctx = dispatcher,
	};
	int r;

	if (!dispatcher)
		return -ENOMEM;

	dispatcher->options = *options;
	dispatcher->clock = real_clock();
	r = incidents_new(&incidents, &dispatcher->incidents);
	if (r == 0)
		r = evaluator_new(&evaluator, &dispatcher->evaluator);
	if (r == 0)
		r = ring_cursor_new(session_parts(options->session).ring, RING_NEWEST, &dispatcher->cursor);
	if (r < 0) {
		dispatcher_close(dispatcher);
		return r;
	}
	*ret = dispatcher;

	return 0;
}

bool dispatcher_close(struct dispatcher *dispatcher)
{
	bool ended;

	if (!dispatcher)
		return true;

	ring_cursor_free(dispatcher->cursor);
	evaluator_free(dispatcher->evaluator);
	ended = incidents_free(dispatcher->incidents);
	target_log_release(&dispatcher->log);
	free(dispatcher);

	return ended;
}

static void on_loss(struct dispatcher *dispatcher, const struct ring_event *event)
{
	if (event->type == RING_EVENT_LAPPED)
		dispatcher->counts.lost_pages += event->lost_pages;
	else
		dispatcher->counts.damaged_pages += event->lost_pages;
	incidents_gap(dispatcher->incidents, dispatcher->tick, event->lost_pages);
}

static void on_gone(struct dispatcher *dispatcher, const struct ring_event *event)
{
	incidents_gone(dispatcher->incidents, event->id, event->time);
	if (dispatcher->options.log_targets)
		target_log_gone(&dispatcher->log, event->id, event->target.id ? event->target.name : NULL,
				event->reason, dispatcher->tick);
}

/* The incidents and the log come first: the end of a tick may fire. */
static int on_event(struct dispatcher *dispatcher, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		dispatcher->counts.ticks++;
		dispatcher->tick = event->time;
		incidents_tick(dispatcher->incidents, event->time, event->idle_ns, event->writer);
		break;
	case RING_EVENT_HOLE:
		incidents_hole(dispatcher->incidents, &event->hole);
		break;
	case RING_EVENT_SAMPLE:
		incidents_sample(dispatcher->incidents, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		if (dispatcher->options.log_targets)
			target_log_found(&dispatcher->log, &event->target, dispatcher->tick);
		break;
	case RING_EVENT_GONE:
		on_gone(dispatcher, event);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		on_loss(dispatcher, event);
		break;
	case RING_EVENT_TICK_END:
		break;
	}
	if (dispatcher->options.observe)
		dispatcher->options.observe(dispatcher->options.ctx, event);

	return evaluator_event(dispatcher->evaluator, event);
}

static int read_ring(struct dispatcher *dispatcher)
{
	struct ring_event event;
	int r;

	while ((r = ring_cursor_next(dispatcher->cursor, &event)) == 0) {
		r = on_event(dispatcher, &event);
		if (r < 0)
			return r;
	}

	return r < 0 ? r : 0;
}

/*
 * An incident is over when the ticks until its end were told. They come later by as much as the sampler sleeps on a
 * quiet machine (sampling.read_interval, 100 ms at most). After this there was none.
 */
#define TICKS_LATE_MAX_NS (150 * NS_PER_MS)

static mono_t told_until(const struct dispatcher *dispatcher, mono_t now)
{
	mono_t least = mono_sub(now, TICKS_LATE_MAX_NS);
	mono_t told = mono_diff(dispatcher->tick, least) > 0 ? dispatcher->tick : least;

	return mono_diff(told, now) < 0 ? told : now;
}

int dispatcher_poll(struct dispatcher *dispatcher, mono_t now)
{
	int r = read_ring(dispatcher);

	incidents_poll(dispatcher->incidents, told_until(dispatcher, now));

	return r;
}

void dispatcher_finish(struct dispatcher *dispatcher, mono_t now)
{
	read_ring(dispatcher);
	incidents_finish(dispatcher->incidents);
	target_log_flush(&dispatcher->log, now);
}

struct evaluator *dispatcher_evaluator(const struct dispatcher *dispatcher)
{
	return dispatcher->evaluator;
}

struct incidents *dispatcher_incidents(const struct dispatcher *dispatcher)
{
	return dispatcher->incidents;
}

void dispatcher_counts(const struct dispatcher *dispatcher, struct dispatcher_counts *ret)
{
	*ret = dispatcher->counts;
}
