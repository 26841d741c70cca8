/* dispatcher.c: one switch from events of the ring to those who want them. */
#include "daemon/engine/dispatch/dispatcher.h"

#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * arrivals.c: a leaky bucket decides what is few.
 *
 * Each target that comes or goes pours ENTRY_NS into the bucket, which leaks a nanosecond each
 * nanosecond: it holds BURST of them.
 *
 *               no room for one more                      leaked below CALM
 *     (by name) ────────────────────▶ FLOOD (only counted) ────────────────▶ (by name)
 *                                      │        ▲
 *                                      └────────┘ a sum after 10 s, then after twice as long each time, up to 10 min
 *
 * The two levels lie apart so that a rate at the border does not swing. In a flood the bucket stays
 * full to the brim while more come than leak, so it ends soon after they are few. What is counted
 * is said at the end at the latest, so nothing is ever held back for longer than a period.
 *
 * A process that executes a program of another name is another target, of the same name if it is of
 * the same entry: the ring says that the one has gone and then, some milliseconds later, that the
 * other is there. So "not watched any more" waits for half a second.
 *
 * The bound: in 60 s at most BURST + 60 / 4 = 35 by name; and a flood takes (BURST - CALM) * 4 s =
 * 20 s at least to end, so there are at most three ends and four sums besides, of two entries each:
 * 49.
 */

#define ENTRY_NS (4 * NS_PER_S)
#define BURST 20
#define CALM 15
#define PERIOD_MIN_NS (10 * NS_PER_S)
#define PERIOD_MAX_NS (600 * NS_PER_S)
/* The start line has their number; the names of a few are worth having. */
#define PRESENT_SAID_MAX 10
/* What was there at the start has been described within this. */
#define PRESENT_NS (2 * NS_PER_S)

/* ---- who is known ---- */

/* Index of the first id that is not below this one. */
static size_t place_of(const struct target_log *target_log, uint32_t id)
{
	size_t from = 0, to = target_log->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (target_log->known[middle] < id)
			from = middle + 1;
		else
			to = middle;
	}

	return from;
}

static bool is_known(const struct target_log *target_log, size_t place, uint32_t id)
{
	return place < target_log->count && target_log->known[place] == id;
}

static void remember(struct target_log *target_log, size_t place, uint32_t id)
{
	if (target_log->count == target_log->cap) {
		size_t cap = target_log->cap ? 2 * target_log->cap : 64;
		uint32_t *known = reallocarray(target_log->known, cap, sizeof *known);

		if (!known)
			return;
		target_log->known = known;
		target_log->cap = cap;
	}

	memmove(target_log->known + place + 1, target_log->known + place,
		(target_log->count - place) * sizeof *target_log->known);
	target_log->known[place] = id;
	target_log->count++;
}

static void forget(struct target_log *target_log, size_t place)
{
	target_log->count--;
	memmove(target_log->known + place, target_log->known + place + 1,
		(target_log->count - place) * sizeof *target_log->known);
}

void target_log_release(struct target_log *target_log)
{
	for (size_t i = 0; i < target_log->left_count; i++)
		free(target_log->left[i].name);
	free(target_log->known);
	*target_log = (struct target_log){ 0 };
}

/* ---- few or many ---- */

static void leak(struct target_log *target_log, mono_t now)
{
	int64_t passed = mono_diff(now, target_log->leaked);

	if (passed <= 0)
		return; /* ticks of the ring may lie a little behind the last look at the clock */

	target_log->level_ns = target_log->level_ns > (uint64_t)passed ? target_log->level_ns - (uint64_t)passed : 0;
	target_log->leaked = now;
}

static void begin_flood(struct target_log *target_log, mono_t now)
{
	target_log->flood = true;
	target_log->summed = now;
	target_log->period_ns = PERIOD_MIN_NS;
}

/* Whether one more may be said by name. */
static bool is_few(struct target_log *target_log, mono_t now)
{
	leak(target_log, now);
	if (target_log->level_ns + ENTRY_NS <= BURST * ENTRY_NS) {
		target_log->level_ns += ENTRY_NS;
	} else {
		target_log->level_ns = BURST * ENTRY_NS;
		if (!target_log->flood)
			begin_flood(target_log, now);
	}

	return !target_log->flood;
}

/* ---- sums ---- */

static void say_sum(enum message message, uint64_t count, const char *what, uint64_t seconds)
{
	struct log_about about = { .message = message, .count = count };

	if (count)
		log_about(LOG_INFO, &about, "%llu more %s %s in the last %llu s", (unsigned long long)count,
			  count == 1 ? "target" : "targets", what, (unsigned long long)seconds);
}

static void say_sums(struct target_log *target_log, mono_t now)
{
	int64_t passed = mono_diff(now, target_log->summed);
	uint64_t seconds = passed > 0 ? ((uint64_t)passed + NS_PER_S - 1) / NS_PER_S : 1;

	say_sum(MESSAGE_TARGET_FOUND, target_log->found, "came", seconds);
	say_sum(MESSAGE_TARGET_GONE, target_log->gone, "left", seconds);
	target_log->found = target_log->gone = 0;
	target_log->summed = now;
}

/* ---- who left, and may come back ---- */

static void say_gone(struct target_log *target_log, const char *name, const char *why, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_GONE, .target = name };

	if (is_few(target_log, now))
		log_about(LOG_INFO, &about, "target %s is gone: %s", name ? name : "without a name", why);
	else
		target_log->gone++;
}

static void say_left(struct target_log *target_log, const char *name, mono_t now)
{
	say_gone(target_log, name, "it is not watched any more", now);
}

static void forget_left(struct target_log *target_log, size_t i)
{
	free(target_log->left[i].name);
	target_log->left_count--;
	memmove(target_log->left + i, target_log->left + i + 1,
		(target_log->left_count - i) * sizeof *target_log->left);
}

/* Says of those who left that they have: all of them, or those who did so long ago. */
static void say_those_who_left(struct target_log *target_log, bool all, mono_t now)
{
	while (target_log->left_count > 0 &&
	       (all || mono_diff(now, target_log->left[0].at) >= (int64_t)TARGET_LOG_LEFT_NS)) {
		say_left(target_log, target_log->left[0].name, now);
		forget_left(target_log, 0);
	}
}

/* Without a name, or memory, nothing could be recognised: then it is said at once. */
static void hold_back(struct target_log *target_log, const char *name, mono_t now)
{
	char *copy = name ? strdup(name) : NULL;

	if (!copy) {
		say_left(target_log, name, now);
		return;
	}
	if (target_log->left_count == TARGET_LOG_LEFT_MAX) {
		say_left(target_log, target_log->left[0].name, now);
		forget_left(target_log, 0);
	}
	target_log->left[target_log->left_count++] = (struct target_log_left){ copy, now };
}

/* True: the target has just left under this name, which nobody was told. */
static bool is_back(struct target_log *target_log, const char *name)
{
	for (size_t i = 0; i < target_log->left_count; i++) {
		if (strcmp(target_log->left[i].name, name) != 0)
			continue;
		forget_left(target_log, i);
		return true;
	}

	return false;
}

void target_log_poll(struct target_log *target_log, mono_t now)
{
	say_those_who_left(target_log, false, now);
	leak(target_log, now);
	if (!target_log->flood)
		return;

	if (target_log->level_ns <= CALM * ENTRY_NS) {
		say_sums(target_log, now);
		target_log->flood = false;
	} else if (mono_diff(now, target_log->summed) >= (int64_t)target_log->period_ns) {
		say_sums(target_log, now);
		target_log->period_ns *= 2;
		if (target_log->period_ns > PERIOD_MAX_NS)
			target_log->period_ns = PERIOD_MAX_NS;
	}
}

void target_log_flush(struct target_log *target_log, mono_t now)
{
	say_those_who_left(target_log, true, now);
	if (target_log->flood)
		say_sums(target_log, now);
}

/* ---- one by one ---- */

void target_log_start(struct target_log *target_log, size_t present, mono_t now)
{
	target_log->silent = present > PRESENT_SAID_MAX ? present : 0;
	target_log->silent_until = mono_add(now, PRESENT_NS);
}

/* Whether the start line has spoken for this one. */
static bool was_said(struct target_log *target_log, mono_t now)
{
	if (target_log->silent == 0)
		return false;
	if (mono_diff(now, target_log->silent_until) > 0) {
		target_log->silent = 0;
		return false;
	}
	target_log->silent--;

	return true;
}

void target_log_found(struct target_log *target_log, const struct target *target, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_FOUND, .target = target->name };
	size_t place = place_of(target_log, target->id);

	if (is_known(target_log, place, target->id))
		return;

	remember(target_log, place, target->id);
	say_those_who_left(target_log, false, now);
	if (is_back(target_log, target->name) || was_said(target_log, now))
		return;
	if (is_few(target_log, now))
		log_about(LOG_INFO, &about, "target %s found: a %s, of entry %s", target->name,
			  target_kind_name(target->kind), target->entry);
	else
		target_log->found++;
}

void target_log_gone(struct target_log *target_log, uint32_t id, const char *name, enum ring_gone_reason reason,
		     mono_t now)
{
	size_t place = place_of(target_log, id);

	if (!is_known(target_log, place, id))
		return;

	forget(target_log, place);
	if (reason == RING_GONE_UNWATCHED)
		hold_back(target_log, name, now);
	else
		say_gone(target_log, name, "it ended", now);
}

struct dispatcher {
	struct ring_cursor *cursor;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct target_log *target_log; /* or NULL */
	struct dispatcher_counts counts;
	mono_t tick;
};

int dispatcher_new(struct ring *ring, struct evaluator *evaluator, struct incidents *incidents,
		   struct target_log *target_log, struct dispatcher **ret)
{
	struct dispatcher *dispatcher = calloc(1, sizeof *dispatcher);
	int r;

	if (!dispatcher)
		return -ENOMEM;

	dispatcher->evaluator = evaluator;
	dispatcher->incidents = incidents;
	dispatcher->target_log = target_log;
	r = ring_cursor_new(ring, RING_NEWEST, &dispatcher->cursor);
	if (r < 0) {
		free(dispatcher);
		return r;
	}
	*ret = dispatcher;

	return 0;
}

void dispatcher_free(struct dispatcher *dispatcher)
{
	if (!dispatcher)
		return;

	ring_cursor_free(dispatcher->cursor);
	free(dispatcher);
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
	if (dispatcher->target_log)
		target_log_gone(dispatcher->target_log, event->id, event->target.id ? event->target.name : NULL,
				event->reason, dispatcher->tick);
}

/* What the incidents and the log are told comes first: the end of a tick may fire. */
static int on_event(struct dispatcher *dispatcher, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		dispatcher->counts.ticks++;
		dispatcher->tick = event->time;
		incidents_tick(dispatcher->incidents, event->time, event->writer);
		break;
	case RING_EVENT_SAMPLE:
		incidents_sample(dispatcher->incidents, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		if (dispatcher->target_log)
			target_log_found(dispatcher->target_log, &event->target, dispatcher->tick);
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
	return evaluator_event(dispatcher->evaluator, event);
}

int dispatcher_poll(struct dispatcher *dispatcher)
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

void dispatcher_counts(const struct dispatcher *dispatcher, struct dispatcher_counts *ret)
{
	*ret = dispatcher->counts;
}
