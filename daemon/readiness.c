/*
 * readiness.c: two sources of the loop, of which the first that speaks ends both.
 *
 * Rejected: the first scan in the main thread. It is simpler, and whatever hangs in it hangs the start, for ever, with all signals blocked.
 */
#include "readiness.h"

#include "log.h"

#include <inttypes.h>
#include <sys/epoll.h>

void readiness_release(struct readiness *readiness)
{
	readiness->scanned = sd_event_source_disable_unref(readiness->scanned);
	readiness->patience = sd_event_source_disable_unref(readiness->patience);
}

static int be_ready(struct readiness *readiness, sd_event_source *source, int result)
{
	sd_event *event = sd_event_source_get_event(source);
	int r;

	readiness_release(readiness);
	r = readiness->ready(readiness->ctx, result);

	return r < 0 ? sd_event_exit(event, r) : 0;
}

static int on_scanned(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct readiness *readiness = userdata;

	(void)fd;
	(void)events;

	return be_ready(readiness, source, discovery_first(readiness->discovery));
}

static int on_patience(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct readiness *readiness = userdata;
	struct log_about about = { .message = MESSAGE_THREAD_STUCK, .thread = "discovery" };
	int32_t reading = discovery_reading(readiness->discovery);
	unsigned seconds = READINESS_PATIENCE_NS / NS_PER_S;

	(void)usec;
	if (discovery_first(readiness->discovery) != DISCOVERY_SCANNING)
		return on_scanned(source, -1, 0, userdata);

	if (reading)
		log_about(LOG_WARNING, &about,
			  "the first look for targets is not through after %u s: it is at the files of process %" PRId32
			  ", and may hang there. It is not waited for: targets are watched as they are found.",
			  seconds, reading);
	else
		log_about(LOG_WARNING, &about,
			  "the first look for targets is not through after %u s. It is not waited for: targets are "
			  "watched as they are found.",
			  seconds);

	return be_ready(readiness, source, 0);
}

int readiness_await(struct readiness *readiness, sd_event *event)
{
	int r = sd_event_add_io(event, &readiness->scanned, discovery_first_fd(readiness->discovery), EPOLLIN,
				on_scanned, readiness);

	if (r >= 0)
		r = sd_event_add_time_relative(event, &readiness->patience, CLOCK_MONOTONIC,
					       READINESS_PATIENCE_NS / NS_PER_US, 0, on_patience, readiness);
	if (r < 0)
		readiness_release(readiness);

	return r < 0 ? r : 0;
}
