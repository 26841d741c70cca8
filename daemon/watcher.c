/* watcher.c: one switch from events of the ring to those who want them. */
#include "watcher.h"

#include <errno.h>
#include <stdlib.h>

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
