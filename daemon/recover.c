/*
 * recover.c: a short pipeline of its own: the dead ring, a lossy cursor, a recorder, a draft in the spool.
 *
 * Only the last `before` window is saved: that is what an incident would have held. All targets are, because nobody can tell any
 * more which one was the story.
 */
#include "recover.h"

#include "log.h"
#include "recorder.h"
#include "ring.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void release_ring(struct ring **ring)
{
	ring_free(*ring);
}

static void release_cursor(struct ring_cursor **cursor)
{
	ring_cursor_free(*cursor);
}

/* First and last tick of what will be saved, and the wall clock of both. */
struct span {
	mono_t from, to;
	wall_t from_wall, to_wall;
	uint64_t ticks, samples, lost_pages;
};

static int measure(const struct ring *ring, mono_t since, struct span *ret)
{
	AUTO(release_cursor) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	int r = ring_cursor_new(ring, RING_OLDEST, &cursor);

	if (r < 0)
		return r;

	*ret = (struct span){ 0 };
	ring_cursor_seek(cursor, since);
	while ((r = ring_cursor_next(cursor, &event)) == 0) {
		if (event.type == RING_EVENT_LAPPED || event.type == RING_EVENT_DAMAGED)
			ret->lost_pages += event.lost_pages;
		ret->samples += event.type == RING_EVENT_SAMPLE;
		if (event.type != RING_EVENT_TICK)
			continue;
		if (ret->ticks++ == 0) {
			ret->from = event.time;
			ret->from_wall = event.wall;
		}
		ret->to = event.time;
		ret->to_wall = event.wall;
	}

	return r < 0 ? r : 0;
}

static int write_samples(const struct ring *ring, mono_t since, const struct span *span, int dirfd)
{
	AUTO(release_cursor) struct ring_cursor *cursor = NULL;
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	struct recorder_options options = { .format = STREAM_SPIKEWATCH,
					    .start = span->from,
					    .start_wall = span->from_wall };
	struct recorder *recorder;
	struct stats stats = { 0 };
	int r;

	if (fd < 0)
		return -errno;

	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (r < 0)
		return r;

	ring_cursor_seek(cursor, since);
	ring_stats(ring, &stats);
	r = recorder_new(cursor, sink_fd(&fd), &options, &recorder);

	return r < 0 ? r : recorder_close(recorder, &stats);
}

static void describe(const struct ring *ring, const struct span *span, uint64_t before_ns, struct incident *incident)
{
	struct ring_info info;
	struct utsname name;
	struct stats stats;

	ring_info(ring, &info);
	incident_init(incident, SPIKEWATCH_VERSION);
	incident->kind = INCIDENT_RECOVERED;
	incident->wall = span->to_wall;
	incident->mono = span->to;
	incident->window_from = span->from;
	incident->window_to = span->to;
	incident_text(incident->rule.name, sizeof incident->rule.name, "recovered");
	incident_text(incident->target.name, sizeof incident->target.name, "all");
	incident->coverage.want_before_ns = before_ns;
	incident->coverage.got_from_ns = mono_diff(span->from, span->to);
	incident->coverage.ticks_got = span->ticks;
	incident->coverage.samples = span->samples;
	if (info.interval_ns)
		incident->coverage.ticks_expected = (uint64_t)mono_diff(span->to, span->from) / info.interval_ns + 1;
	incident->coverage.lost_pages = span->lost_pages;
	incident->cost.interval_ns = info.interval_ns;
	if (ring_stats(ring, &stats) == 0 && stats.total_slots)
		incident->coverage.capture_rate = (double)stats.total_snapshots / (double)stats.total_slots;
	if (uname(&name) == 0) {
		incident_text(incident->hostname, sizeof incident->hostname, name.nodename);
		incident_text(incident->kernel, sizeof incident->kernel, name.release);
	}
}

static int save(const struct ring *ring, const struct config *config, struct spool *spool, char *ret_name, size_t cap)
{
	struct ring_info info;
	struct spool_draft *draft;
	struct incident incident;
	struct incident_capture samples = { .name = "samples", .file = INCIDENT_SAMPLES_FILE };
	struct span span;
	char stem[INCIDENT_NAME_MAX + 1];
	mono_t since;
	int r;

	ring_info(ring, &info);
	since = mono_sub(info.last_tick, config->incidents.before_ns);
	r = measure(ring, since, &span);
	if (r < 0 || span.ticks == 0)
		return r;

	describe(ring, &span, config->incidents.before_ns, &incident);
	incident_stem(span.to_wall, "all", "recovered", stem, sizeof stem);
	r = spool_begin(spool, stem, &draft);
	if (r < 0)
		return r;

	snprintf(ret_name, cap, "%s", spool_draft_name(draft));
	incident_text(incident.id, sizeof incident.id, ret_name);
	r = write_samples(ring, since, &span, spool_draft_dirfd(draft));
	if (r < 0) {
		spool_abort(draft);
		return r;
	}
	incident_add_capture(&incident, &samples);

	return spool_seal(draft, &incident);
}

static void set_aside(const char *path, int error)
{
	char aside[4096];

	snprintf(aside, sizeof aside, "%s.damaged", path);
	if (rename(path, aside) == 0)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = error },
			  "the old ring cannot be read (%s): it is now %s", strerror(-error), aside);
}

/* A daemon that is killed before any incident is sealed must not fill the disk with recovered ones either. */
static void enforce(struct spool *spool)
{
	int r = spool_enforce(spool, (wall_t){ 0 }, NULL, NULL); /* nothing for its age: the clock has just been met */

	if (r < 0)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .error = r },
			  "cannot keep the limits of the incident directory: %s", strerror(-r));
}

void recover_ring(const char *path, const struct config *config, struct spool *spool)
{
	AUTO(release_ring) struct ring *ring = NULL;
	char name[INCIDENT_NAME_MAX + 1] = "";
	struct ring_info info;
	int r = ring_open(AT_FDCWD, path, false, &ring);

	if (r == -ENOENT)
		return;
	if (r < 0) {
		set_aside(path, r);
		return;
	}

	ring_info(ring, &info);
	if (info.clean)
		return;

	r = save(ring, config, spool, name, sizeof name);
	if (r < 0) {
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = r },
			  "the last daemon was killed, and what its ring held could not be saved: %s", strerror(-r));
		return;
	}

	if (*name)
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_RING_RECOVERED, .incident = name },
			  "the last daemon was killed: what its ring held is incident %s", name);
	unlink(path); /* once is enough, also for a daemon that gets no further than this again and again */
	enforce(spool);
}
