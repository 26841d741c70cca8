/*
 * sink.c: the sinks that are made of a descriptor and of memory.
 *
 * A buffer doubles, so that appending byte by byte costs a constant per byte; beyond `max` it refuses whole appends instead of
 * keeping a part of one. Non-blocking descriptors (a pipe inherited from somebody else) are waited for: a sink that
 * answered EAGAIN would make every writer above it handle what only this file can.
 */
#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small enough to waste nothing on a line, large enough for most of them. */
#define BUFFER_FIRST 256

static int wait_writable(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLOUT };

	return poll(&pollfd, 1, -1) < 0 && errno != EINTR ? -errno : 0;
}

int sink_write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n >= 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return -errno;

		int r = wait_writable(fd);

		if (r < 0)
			return r;
	}

	return 0;
}

static int write_fd(void *ctx, const void *data, size_t len)
{
	const int *fd = ctx;

	return sink_write_all(*fd, data, len);
}

struct sink sink_fd(const int *fd)
{
	return (struct sink){ write_fd, (void *)fd };
}

int buffer_append(struct buffer *buffer, const void *data, size_t len)
{
	size_t need, cap = buffer->cap > 0 ? buffer->cap : BUFFER_FIRST;

	if (len == 0)
		return 0;
	if (__builtin_add_overflow(buffer->len, len, &need))
		return -ENOMEM;
	if (buffer->max > 0 && need > buffer->max)
		return -EFBIG;

	while (cap < need)
		if (__builtin_mul_overflow(cap, 2u, &cap))
			cap = need;

	if (cap > buffer->cap) {
		char *grown = realloc(buffer->data, cap);

		if (grown == NULL)
			return -ENOMEM;
		buffer->data = grown;
		buffer->cap = cap;
	}
	memcpy(buffer->data + buffer->len, data, len);
	buffer->len = need;

	return 0;
}

void buffer_release(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){ .max = buffer->max };
}

static int write_buffer(void *ctx, const void *data, size_t len)
{
	return buffer_append(ctx, data, len);
}

struct sink sink_buffer(struct buffer *buffer)
{
	return (struct sink){ write_buffer, buffer };
}
