/*
 * sink.h: where bytes go. A file, memory and a sink that fails are three values of one type, made at the edge.
 */
#ifndef SPIKEWATCH_SINK_H
#define SPIKEWATCH_SINK_H

#include <stddef.h>

/*
 * write takes all len bytes or returns -errno (some of them may then have been taken). There is no close: whoever
 * made the sink owns what is behind ctx.
 */
struct sink {
	int (*write)(void *ctx, const void *data, size_t len);
	void *ctx;
};

/* A growing piece of memory. {0} is empty and legal. max 0 means no limit but the machine's. */
struct buffer {
	char *data;
	size_t len;
	size_t cap;
	size_t max;
};

static inline int sink_write(const struct sink *sink, const void *data, size_t len)
{
	return sink->write(sink->ctx, data, len);
}

/* Writes to *fd, which stays the caller's and must outlive the sink. Restarts on EINTR and short writes. */
struct sink sink_fd(const int *fd);

/* Appends to buffer, which stays the caller's. -ENOMEM; -EFBIG beyond buffer->max. */
struct sink sink_buffer(struct buffer *buffer);

/* Appends. 0; -ENOMEM; -EFBIG beyond buffer->max, and then nothing was appended. */
int buffer_append(struct buffer *buffer, const void *data, size_t len);

/* Frees the memory; the buffer is empty and usable again. */
void buffer_release(struct buffer *buffer);

/*
 * Writes all of data to fd. 0 or -errno. A descriptor in non-blocking mode is waited for (poll(2)).
 */
int sink_write_all(int fd, const void *data, size_t len);

#endif
