/* tape_ring.c: a ring has its events already; they are counted, and its newest tick is the last one, however fast its writer is. */
#include "tape.h"

#include "scope.h"

#include <errno.h>

static void free_cursor(struct ring_cursor **cursor)
{
	ring_cursor_free(*cursor);
}

static void count(struct tape_summary *summary, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		tape_summary_tick(summary, event->wall);
		break;
	case RING_EVENT_SAMPLE:
		summary->samples++;
		break;
	case RING_EVENT_TARGET:
		summary->targets++;
		break;
	case RING_EVENT_GONE:
		summary->gone++;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		summary->gaps++;
		break;
	case RING_EVENT_TICK_END:
		break;
	}
}

int tape_play_ring(const struct ring *ring, const struct tape_options *options, struct tape_summary *ret)
{
	AUTO(free_cursor) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct ring_info info;
	int r;

	*ret = (struct tape_summary){ 0 };
	ring_info(ring, &info);
	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	while (r == 0 && (r = ring_cursor_next(cursor, &event)) == 0) {
		if (event.type == RING_EVENT_TICK && mono_diff(event.time, info.last_tick) > 0)
			return 0;
		count(ret, &event);
		r = options->event(options->ctx, &event);
	}
	return r == RING_EMPTY ? 0 : r;
}
