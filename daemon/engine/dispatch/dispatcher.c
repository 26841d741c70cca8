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
 * Each target that comes or goes pours ENTRY_NS into the bucket, which leaks a nanosecond each nanosecond: it holds BURST of them.
 *
 *               no room for one more                      leaked below CALM
 *     (by name) ────────────────────▶ FLOOD (only counted) ────────────────▶ (by name)
 *                                      │        ▲
 *                                      └────────┘ a sum after 10 s, then after twice as long each time, up to 10 min
 *
 * The two levels lie apart so that a rate at the border does not swing. In a flood the bucket stays full to the brim while more come than
 * leak, so it ends soon after they are few. What is counted is said at the end at the latest, so nothing is ever held back
 * for longer than a period.
 *
 * A process that executes a program of another name is another target, of the same name if it is of the same entry: the ring says that the one
 * has gone and then, some milliseconds later, that the other is there. So "not watched any more" waits for half a second.
 *
 * The bound: in 60 s at most BURST + 60 / 4 = 35 by name; and a flood takes (BURST - CALM) * 4 s = 20 s at least to end, so there are
 * at most three ends and four sums besides, of two entries each: 49.
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
static size_t place_of(const struct arrivals *arrivals, uint32_t id)
{
	size_t from = 0, to = arrivals->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (arrivals->known[middle] < id)
			from = middle + 1;
		else
			to = middle;
	}

	return from;
}

static bool is_known(const struct arrivals *arrivals, size_t place, uint32_t id)
{
	return place < arrivals->count && arrivals->known[place] == id;
}

static void remember(struct arrivals *arrivals, size_t place, uint32_t id)
{
	if (arrivals->count == arrivals->cap) {
		size_t cap = arrivals->cap ? 2 * arrivals->cap : 64;
		uint32_t *known = reallocarray(arrivals->known, cap, sizeof *known);

		if (!known)
			return;
		arrivals->known = known;
		arrivals->cap = cap;
	}

	memmove(arrivals->known + place + 1, arrivals->known + place,
		(arrivals->count - place) * sizeof *arrivals->known);
	arrivals->known[place] = id;
	arrivals->count++;
}

static void forget(struct arrivals *arrivals, size_t place)
{
	arrivals->count--;
	memmove(arrivals->known + place, arrivals->known + place + 1,
		(arrivals->count - place) * sizeof *arrivals->known);
}

void arrivals_release(struct arrivals *arrivals)
{
	for (size_t i = 0; i < arrivals->left_count; i++)
		free(arrivals->left[i].name);
	free(arrivals->known);
	*arrivals = (struct arrivals){ 0 };
}

/* ---- few or many ---- */

static void leak(struct arrivals *arrivals, mono_t now)
{
	int64_t passed = mono_diff(now, arrivals->leaked);

	if (passed <= 0)
		return; /* ticks of the ring may lie a little behind the last look at the clock */

	arrivals->level_ns = arrivals->level_ns > (uint64_t)passed ? arrivals->level_ns - (uint64_t)passed : 0;
	arrivals->leaked = now;
}

static void begin_flood(struct arrivals *arrivals, mono_t now)
{
	arrivals->flood = true;
	arrivals->summed = now;
	arrivals->period_ns = PERIOD_MIN_NS;
}

/* Whether one more may be said by name. */
static bool is_few(struct arrivals *arrivals, mono_t now)
{
	leak(arrivals, now);
	if (arrivals->level_ns + ENTRY_NS <= BURST * ENTRY_NS) {
		arrivals->level_ns += ENTRY_NS;
	} else {
		arrivals->level_ns = BURST * ENTRY_NS;
		if (!arrivals->flood)
			begin_flood(arrivals, now);
	}

	return !arrivals->flood;
}

/* ---- sums ---- */

static void say_sum(enum message message, uint64_t count, const char *what, uint64_t seconds)
{
	struct log_about about = { .message = message, .count = count };

	if (count)
		log_about(LOG_INFO, &about, "%llu more %s %s in the last %llu s", (unsigned long long)count,
			  count == 1 ? "target" : "targets", what, (unsigned long long)seconds);
}

static void say_sums(struct arrivals *arrivals, mono_t now)
{
	int64_t passed = mono_diff(now, arrivals->summed);
	uint64_t seconds = passed > 0 ? ((uint64_t)passed + NS_PER_S - 1) / NS_PER_S : 1;

	say_sum(MESSAGE_TARGET_FOUND, arrivals->found, "came", seconds);
	say_sum(MESSAGE_TARGET_GONE, arrivals->gone, "left", seconds);
	arrivals->found = arrivals->gone = 0;
	arrivals->summed = now;
}

/* ---- who left, and may come back ---- */

static void say_gone(struct arrivals *arrivals, const char *name, const char *why, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_GONE, .target = name };

	if (is_few(arrivals, now))
		log_about(LOG_INFO, &about, "target %s is gone: %s", name ? name : "without a name", why);
	else
		arrivals->gone++;
}

static void say_left(struct arrivals *arrivals, const char *name, mono_t now)
{
	say_gone(arrivals, name, "it is not watched any more", now);
}

static void forget_left(struct arrivals *arrivals, size_t i)
{
	free(arrivals->left[i].name);
	arrivals->left_count--;
	memmove(arrivals->left + i, arrivals->left + i + 1, (arrivals->left_count - i) * sizeof *arrivals->left);
}

/* Says of those who left that they have: all of them, or those who did so long ago. */
static void say_those_who_left(struct arrivals *arrivals, bool all, mono_t now)
{
	while (arrivals->left_count > 0 && (all || mono_diff(now, arrivals->left[0].at) >= (int64_t)ARRIVALS_LEFT_NS)) {
		say_left(arrivals, arrivals->left[0].name, now);
		forget_left(arrivals, 0);
	}
}

/* Without a name, or memory, nothing could be recognised: then it is said at once. */
static void hold_back(struct arrivals *arrivals, const char *name, mono_t now)
{
	char *copy = name ? strdup(name) : NULL;

	if (!copy) {
		say_left(arrivals, name, now);
		return;
	}
	if (arrivals->left_count == ARRIVALS_LEFT_MAX) {
		say_left(arrivals, arrivals->left[0].name, now);
		forget_left(arrivals, 0);
	}
	arrivals->left[arrivals->left_count++] = (struct arrivals_left){ copy, now };
}

/* True: the target has just left under this name, which nobody was told. */
static bool is_back(struct arrivals *arrivals, const char *name)
{
	for (size_t i = 0; i < arrivals->left_count; i++) {
		if (strcmp(arrivals->left[i].name, name) != 0)
			continue;
		forget_left(arrivals, i);
		return true;
	}

	return false;
}

void arrivals_poll(struct arrivals *arrivals, mono_t now)
{
	say_those_who_left(arrivals, false, now);
	leak(arrivals, now);
	if (!arrivals->flood)
		return;

	if (arrivals->level_ns <= CALM * ENTRY_NS) {
		say_sums(arrivals, now);
		arrivals->flood = false;
	} else if (mono_diff(now, arrivals->summed) >= (int64_t)arrivals->period_ns) {
		say_sums(arrivals, now);
		arrivals->period_ns *= 2;
		if (arrivals->period_ns > PERIOD_MAX_NS)
			arrivals->period_ns = PERIOD_MAX_NS;
	}
}

void arrivals_flush(struct arrivals *arrivals, mono_t now)
{
	say_those_who_left(arrivals, true, now);
	if (arrivals->flood)
		say_sums(arrivals, now);
}

/* ---- one by one ---- */

void arrivals_start(struct arrivals *arrivals, size_t present, mono_t now)
{
	arrivals->silent = present > PRESENT_SAID_MAX ? present : 0;
	arrivals->silent_until = mono_add(now, PRESENT_NS);
}

/* Whether the start line has spoken for this one. */
static bool was_said(struct arrivals *arrivals, mono_t now)
{
	if (arrivals->silent == 0)
		return false;
	if (mono_diff(now, arrivals->silent_until) > 0) {
		arrivals->silent = 0;
		return false;
	}
	arrivals->silent--;

	return true;
}

void arrivals_found(struct arrivals *arrivals, const struct target *target, mono_t now)
{
	struct log_about about = { .message = MESSAGE_TARGET_FOUND, .target = target->name };
	size_t place = place_of(arrivals, target->id);

	if (is_known(arrivals, place, target->id))
		return;

	remember(arrivals, place, target->id);
	say_those_who_left(arrivals, false, now);
	if (is_back(arrivals, target->name) || was_said(arrivals, now))
		return;
	if (is_few(arrivals, now))
		log_about(LOG_INFO, &about, "target %s found: a %s, of entry %s", target->name,
			  target_kind_name(target->kind), target->entry);
	else
		arrivals->found++;
}

void arrivals_gone(struct arrivals *arrivals, uint32_t id, const char *name, enum ring_gone_reason reason, mono_t now)
{
	size_t place = place_of(arrivals, id);

	if (!is_known(arrivals, place, id))
		return;

	forget(arrivals, place);
	if (reason == RING_GONE_UNWATCHED)
		hold_back(arrivals, name, now);
	else
		say_gone(arrivals, name, "it ended", now);
}

struct watcher {
	struct ring_cursor *cursor;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct arrivals *arrivals; /* or NULL */
	struct watcher_counts counts;
	mono_t tick;
	wall_t wall;
};

int watcher_new(struct ring *ring, struct evaluator *evaluator, struct incidents *incidents, struct arrivals *arrivals,
		struct watcher **ret)
{
	struct watcher *watcher = calloc(1, sizeof *watcher);
	int r;

	if (!watcher)
		return -ENOMEM;

	watcher->evaluator = evaluator;
	watcher->incidents = incidents;
	watcher->arrivals = arrivals;
	r = ring_cursor_new(ring, RING_NEWEST, &watcher->cursor);
	if (r < 0) {
		free(watcher);
		return r;
	}
	*ret = watcher;

	return 0;
}

void watcher_free(struct watcher *watcher)
{
	if (!watcher)
		return;

	ring_cursor_free(watcher->cursor);
	free(watcher);
}

static void on_loss(struct watcher *watcher, const struct ring_event *event)
{
	if (event->type == RING_EVENT_LAPPED)
		watcher->counts.lost_pages += event->lost_pages;
	else
		watcher->counts.damaged_pages += event->lost_pages;
	evaluator_gap(watcher->evaluator);
	incidents_gap(watcher->incidents, watcher->tick, event->lost_pages);
}

static void on_gone(struct watcher *watcher, const struct ring_event *event)
{
	evaluator_gone(watcher->evaluator, event->id);
	incidents_gone(watcher->incidents, event->id, event->time);
	if (watcher->arrivals)
		arrivals_gone(watcher->arrivals, event->id, event->target.id ? event->target.name : NULL, event->reason,
			      watcher->tick);
}

static int on_event(struct watcher *watcher, const struct ring_event *event)
{
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		evaluator_writer(watcher->evaluator, event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		watcher->counts.ticks++;
		watcher->tick = event->time;
		watcher->wall = event->wall;
		evaluator_idle(watcher->evaluator, event->idle_ns);
		incidents_tick(watcher->incidents, event->time, event->writer);
		return 0;
	case RING_EVENT_SAMPLE:
		evaluator_sample(watcher->evaluator, event->id, event->time, event->sample);
		incidents_sample(watcher->incidents, event->id, event->time, event->sample);
		return 0;
	case RING_EVENT_TARGET:
		if (watcher->arrivals)
			arrivals_found(watcher->arrivals, &event->target, watcher->tick);
		return evaluator_target(watcher->evaluator, &event->target);
	case RING_EVENT_GONE:
		on_gone(watcher, event);
		return 0;
	case RING_EVENT_TICK_END:
		return evaluator_tick(watcher->evaluator, watcher->tick, watcher->wall);
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		on_loss(watcher, event);
		return 0;
	}

	return 0;
}

int watcher_poll(struct watcher *watcher)
{
	struct ring_event event;
	int r;

	while ((r = ring_cursor_next(watcher->cursor, &event)) == 0) {
		r = on_event(watcher, &event);
		if (r < 0)
			return r;
	}

	return r < 0 ? r : 0;
}

void watcher_counts(const struct watcher *watcher, struct watcher_counts *ret)
{
	*ret = watcher->counts;
}
