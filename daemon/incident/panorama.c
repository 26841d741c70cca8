/*
 * panorama.c: a lossy cursor, a recorder, a file.
 *
 * Rejected: copying the window into memory first. It holds all targets, and at a thousand of them a thousand times a second it is larger
 * than what the daemon may take; the disk takes it as fast as it comes.
 */
#include "panorama.h"

#include "incident.h"
#include "recorder.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

struct panorama {
	struct panorama_options options;
	int dirfd; /* the caller's */
	int fd;    /* -1: there is no file */
	struct ring_cursor *cursor;
	struct recorder *recorder;
	int error;
};

static void release(struct panorama **panorama)
{
	panorama_abort(*panorama);
}

static struct recorder_options recording(const struct panorama_options *options)
{
	struct recorder_options recorder = {
		.format = STREAM_SPIKEWATCH,
		.start = mono_sub(options->fired, options->before_ns),
		.until = mono_add(options->fired, options->after_ns),
		.max_bytes = options->max_bytes,
	};

	recorder.start_wall.ns = options->wall.ns - (uint64_t)mono_diff(options->fired, recorder.start);

	return recorder;
}

static int start(struct panorama *panorama, struct sink sink)
{
	struct recorder_options recorder = recording(&panorama->options);
	int r = ring_cursor_new(panorama->options.ring, RING_OLDEST, &panorama->cursor);

	if (r < 0)
		return r;

	ring_cursor_seek(panorama->cursor, recorder.start);

	return recorder_new(panorama->cursor, sink, &recorder, &panorama->recorder);
}

static int count_bytes(void *ctx, const void *data, size_t len)
{
	uint64_t *bytes = ctx;

	(void)data;
	*bytes += len;

	return 0;
}

int panorama_bytes(const struct panorama_options *options, uint64_t *ret_bytes)
{
	struct panorama panorama = { .options = *options, .dirfd = -1, .fd = -1 };
	struct stats stats = { 0 };
	uint64_t bytes = 0;
	int r = start(&panorama, (struct sink){ .write = count_bytes, .ctx = &bytes });

	ring_stats(options->ring, &stats);
	if (r == 0)
		r = recorder_close(panorama.recorder, &stats);
	ring_cursor_free(panorama.cursor);
	if (r == 0)
		*ret_bytes = bytes;

	return r;
}

int panorama_open(const struct panorama_options *options, int dirfd, struct panorama **ret)
{
	AUTO(release) struct panorama *panorama = calloc(1, sizeof *panorama);
	int r;

	if (!panorama)
		return -ENOMEM;

	panorama->options = *options;
	panorama->dirfd = dirfd;
	panorama->fd = -1;
	panorama->fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (panorama->fd < 0)
		return -errno;
	r = start(panorama, sink_fd(&panorama->fd));
	if (r == 0)
		r = panorama_follow(panorama);
	if (r < 0)
		return r;
	*ret = TAKE(panorama);

	return 0;
}

int panorama_follow(struct panorama *panorama)
{
	if (panorama->error == 0)
		panorama->error = recorder_pump(panorama->recorder);
	if (panorama->error == 0)
		panorama->error = recorder_flush(panorama->recorder);

	return panorama->error;
}

/* As slice_coverage says it. */
static struct slice_coverage coverage_of(const struct panorama *panorama, const struct recorder_counts *counts)
{
	const struct panorama_options *options = &panorama->options;
	struct slice_coverage coverage = {
		.want_before_ns = options->before_ns,
		.want_after_ns = options->after_ns,
		.ticks_expected = (options->before_ns + options->after_ns) / options->interval_ns,
		.ticks_got = counts->ticks,
		.samples = counts->rows,
		.samples_dropped = counts->dropped,
		.gaps = counts->gaps,
		.lost_pages = counts->damaged_pages,
	};
	double slots, rate;

	if (counts->ticks == 0)
		return coverage;

	slots = (double)mono_diff(counts->last, counts->first) / (double)options->interval_ns + 1;
	rate = (double)counts->ticks / slots;
	coverage.got_from_ns = mono_diff(counts->first, options->fired);
	coverage.got_to_ns = mono_diff(counts->last, options->fired);
	coverage.capture_rate = rate < 1 ? rate : 1;

	return coverage;
}

int panorama_close(struct panorama *panorama, struct slice_coverage *ret, uint64_t *ret_bytes)
{
	AUTO(release) struct panorama *owned = panorama;
	struct recorder_counts counts;
	struct stats stats = { 0 };
	struct stat st;
	int r = panorama_follow(owned);

	if (r < 0)
		return r;

	recorder_counts(owned->recorder, &counts);
	ring_stats(owned->options.ring, &stats);
	r = recorder_close(TAKE(owned->recorder), &stats);
	if (r < 0)
		return r;
	if (fstat(owned->fd, &st) < 0)
		return -errno;

	close(TAKE_FD(panorama->fd));
	*ret = coverage_of(panorama, &counts);
	*ret_bytes = (uint64_t)st.st_size;

	return 0;
}

void panorama_abort(struct panorama *panorama)
{
	struct stats nothing = { 0 };

	if (!panorama)
		return;

	recorder_close(panorama->recorder, &nothing);
	ring_cursor_free(panorama->cursor);
	if (panorama->fd >= 0) {
		unlinkat(panorama->dirfd, INCIDENT_SAMPLES_FILE, 0);
		close(panorama->fd);
	}
	free(panorama);
}
