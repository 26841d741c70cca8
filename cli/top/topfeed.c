/*
 * topfeed.c: a ring is never changed in its place: a daemon that starts makes a new file and renames it. So it is enough to look whether the
 * name still leads to the same file. The old one stays mapped, and readable, until then.
 */
#include "topfeed.h"

#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* A sampler that is held up for so long, and for so many of its intervals, is worth a word. */
#define SILENCE_NS (3 * NS_PER_S)
#define SILENCE_INTERVALS 5

static void let_go(struct topfeed *feed)
{
	ring_cursor_free(feed->cursor);
	ring_free(feed->ring);
	feed->cursor = NULL;
	feed->ring = NULL;
}

void topfeed_release(struct topfeed *feed)
{
	let_go(feed);
	feed->has_file = false;
}

static void free_ring(struct ring **ring)
{
	ring_free(*ring);
}

int topfeed_attach(struct topfeed *feed, uint64_t back_ns)
{
	AUTO(free_ring) struct ring *ring = NULL;
	struct ring_cursor *cursor;
	struct ring_info info;
	struct stat st;
	int r;

	/* Should it be replaced between these two, the next look finds out. */
	r = stat(feed->path, &st) < 0 ? -errno : ring_open(AT_FDCWD, feed->path, false, &ring);
	feed->error = r;
	if (r < 0)
		return r;
	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (r < 0)
		return r;

	ring_info(ring, &info);
	ring_cursor_seek(cursor, mono_sub(info.last_tick, back_ns));
	let_go(feed);
	feed->ring = TAKE(ring);
	feed->cursor = cursor;
	feed->has_file = true;
	feed->dev = st.st_dev;
	feed->ino = st.st_ino;
	feed->lost_pages = feed->damaged_pages = 0;
	feed->tick = info.last_tick;
	feed->wall = (wall_t){ 0 };
	return 0;
}

bool topfeed_replaced(const struct topfeed *feed)
{
	struct stat st;

	if (stat(feed->path, &st) < 0)
		return false;
	return !feed->has_file || st.st_dev != feed->dev || st.st_ino != feed->ino;
}

static void notice(struct topfeed *feed, const struct ring_event *event)
{
	if (event->type == RING_EVENT_TICK) {
		feed->tick = event->time;
		feed->wall = event->wall;
	} else if (event->type == RING_EVENT_LAPPED) {
		feed->lost_pages += event->lost_pages;
	} else if (event->type == RING_EVENT_DAMAGED) {
		feed->damaged_pages += event->lost_pages;
	}
}

int topfeed_poll(struct topfeed *feed, int (*take)(void *ctx, const struct ring_event *event), void *ctx)
{
	struct ring_event event;
	int r;

	if (!feed->cursor)
		return 0;
	while ((r = ring_cursor_next(feed->cursor, &event)) == 0) {
		notice(feed, &event);
		r = take(ctx, &event);
		if (r != 0)
			return r;
	}
	return r < 0 ? r : 0;
}

enum topfeed_state topfeed_state(const struct topfeed *feed, mono_t now, ring_alive *alive)
{
	struct ring_info info;
	int64_t silence;

	if (!feed->ring)
		return TOPFEED_ABSENT;
	ring_info(feed->ring, &info);
	if (info.clean)
		return TOPFEED_STOPPED;
	silence = mono_diff(now, info.last_tick);
	/* A time in the future is of another boot. */
	if (silence >= 0 && silence < (int64_t)SILENCE_NS)
		return TOPFEED_LIVE;
	if (silence >= 0 && info.interval_ns > 0 && (uint64_t)silence / SILENCE_INTERVALS < info.interval_ns)
		return TOPFEED_LIVE;
	return alive(info.pid, info.start_ticks) ? TOPFEED_SILENT : TOPFEED_KILLED;
}

void topfeed_info(const struct topfeed *feed, struct ring_info *ret)
{
	ring_info(feed->ring, ret);
}
