/* stream_feed.h: text in memory for a stream reader, which reads descriptors. */
#ifndef SPIKEWATCH_TESTS_STREAM_FEED_H
#define SPIKEWATCH_TESTS_STREAM_FEED_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* As stream_read_fd of a file that holds this text, in pieces of at most step bytes. */
static inline int stream_feed_pieces(struct stream_reader *stream_reader, const char *text, size_t len, size_t step)
{
	AUTO_CLOSE int fd = memfd_create("stream", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : sink_write_all(fd, text, len);

	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	for (size_t at = 0; r == 0 && at < len; at += step)
		r = stream_read_fd(stream_reader, fd, step);
	return r;
}

static inline int stream_feed(struct stream_reader *stream_reader, const char *text, size_t len)
{
	return stream_feed_pieces(stream_reader, text, len, len + 1);
}

#endif
