/*
 * streamseal.c: the salvaging reader already keeps the overall checksum of what it has read; the end is made by those who make every line.
 *
 * Where anything else than the last line is damaged nothing is sealed: a closing checksum says that all of it is as it was written.
 */
#include "streamseal.h"

#include "salvage.h"
#include "scope.h"
#include "sink.h"
#include "stream.h"
#include "stream_lines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void free_salvage(struct salvage **salvage)
{
	salvage_free(*salvage);
}

/* Behind the last newline, before which the number of rows may already be; 0: there is none within the length of a line. -errno. */
static off_t find_end(int fd, char *piece, bool *ret_counted)
{
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > STREAM_LINE_MAX ? size - STREAM_LINE_MAX : 0;
	ssize_t len = size < 0 ? -1 : pread(fd, piece, STREAM_LINE_MAX, from);
	const char *newline;

	if (len < 0)
		return -errno;
	newline = memrchr(piece, '\n', (size_t)len);

	if (!newline)
		return 0;
	*ret_counted = memmem(piece, (size_t)(newline - piece), STREAM_PREFIX "END\t", strlen(STREAM_PREFIX "END\t"));

	return from + (newline - piece) + 1;
}

/* 0; -errno. */
static int feed(int fd, off_t end, char *piece, struct salvage *salvage)
{
	for (off_t at = 0; at < end;) {
		size_t want = end - at < STREAM_LINE_MAX ? (size_t)(end - at) : STREAM_LINE_MAX;
		ssize_t len = pread(fd, piece, want, at);
		int r;

		if (len <= 0)
			return len < 0 ? -errno : -EIO;
		r = salvage_feed(salvage, piece, (size_t)len);
		if (r != 0)
			return r;
		at += len;
	}

	return 0;
}

static bool is_closable(const struct salvage_report *report)
{
	return report->ours && report->streams == 1 && !report->complete && report->format == STREAM_SPIKEWATCH &&
	       report->damaged_lines == 0 && report->duplicate_lines == 0 && report->foreign_lines == 0 &&
	       report->rows_lost == 0;
}

static void release_lines(struct stream_lines *lines)
{
	stream_lines_release(lines);
}

static int append_end(int fd, const struct salvage_report *report, bool counted)
{
	AUTO(release_lines) struct stream_lines lines = { 0 };
	char text[40];
	int len = snprintf(text, sizeof(text), "END\t%ju", (uintmax_t)report->rows);
	int r = stream_lines_init(&lines, sink_fd(&fd), STREAM_PREFIX, STREAM_LINE_MAX, sizeof(text));

	if (r < 0)
		return r;
	lines.adler = report->adler;
	r = counted ? 0 : stream_lines_put(&lines, text, (size_t)len);

	return r < 0 ? r : stream_lines_close(&lines);
}

int streamseal(int fd)
{
	static const struct salvage_events nothing;
	AUTO(free_salvage) struct salvage *salvage = NULL;
	AUTO_FREE char *piece = malloc(STREAM_LINE_MAX);
	struct salvage_report report;
	bool counted = false;
	off_t end = piece ? find_end(fd, piece, &counted) : -ENOMEM;
	int r = end < 0 ? (int)end : salvage_new(&nothing, &salvage);

	if (r == 0)
		r = feed(fd, end, piece, salvage);
	if (r == 0)
		r = salvage_finish(salvage, &report);
	if (r < 0)
		return r;
	if (!is_closable(&report))
		return STREAMSEAL_LEFT;
	if (ftruncate(fd, end) < 0 || lseek(fd, end, SEEK_SET) < 0)
		return -errno;

	return append_end(fd, &report, counted);
}
