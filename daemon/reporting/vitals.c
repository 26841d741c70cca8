/* vitals.c: /proc/self, and a cursor that is thrown away after the first tick. */
#include "vitals.h"

#include "dirlist.h"
#include "fdread.h"
#include "realclock.h"
#include "scope.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* /proc/self/statm, in pages: "2273 1024 768 5 0 352 0": the second is resident. */
static uint64_t resident_bytes(void)
{
	AUTO_CLOSE int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	char text[128] = "";
	unsigned long long pages = 0;

	if (fd < 0 || fdread_all(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%*s %llu", &pages) != 1)
		return 0;

	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int count_name(void *ctx, const char *name)
{
	uint64_t *count = ctx;

	(void)name;
	++*count;

	return 0;
}

/* The one that counts is not counted. */
static uint64_t open_fds(void)
{
	AUTO_CLOSE int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t count = 0;

	if (fd >= 0)
		dirlist_each(fd, count_name, &count);

	return count > 0 ? count - 1 : 0;
}

static uint64_t history_ns(const struct ring *ring)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct ring_info info;
	bool found = false;

	ring_info(ring, &info);
	if (ring_cursor_new(ring, RING_OLDEST, &cursor) < 0)
		return 0;
	while (!found && ring_cursor_next(cursor, &event) == 0)
		found = event.type == RING_EVENT_TICK;
	ring_cursor_free(cursor);

	return found && mono_diff(info.last_tick, event.time) > 0 ? (uint64_t)mono_diff(info.last_tick, event.time) : 0;
}

void vitals_read(const struct ring *ring, struct vitals *ret)
{
	*ret = (struct vitals){
		.cpu_ns = realclock_process_cpu(),
		.resident_bytes = resident_bytes(),
		.open_fds = open_fds(),
		.history_ns = history_ns(ring),
	};
}
