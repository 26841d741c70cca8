/*
 * io.h: where bytes go (sinks and buffers), and files and directories by descriptor: read to the
 * end, listed, replaced as a whole, made, removed, and opened below another root.
 */
#ifndef SPIKEWATCH_LIB_BASE_IO_H
#define SPIKEWATCH_LIB_BASE_IO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

/*
 * A sink: a file, memory or a sink that fails. write takes all len bytes or returns -errno (some of
 * them may then have been taken). There is no close: the maker of the sink owns what is behind ctx.
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

/*
 * Writes to *fd, which stays the caller's and must outlive the sink. Restarts on EINTR and short
 * writes.
 */
struct sink sink_fd(const int *fd);

/* Appends to buffer, which stays the caller's. -ENOMEM; -EFBIG beyond buffer->max. */
struct sink sink_buffer(struct buffer *buffer);

/* Adds the number of bytes to *bytes and keeps none. Never fails. */
struct sink sink_count(uint64_t *bytes);

/* Appends. 0; -ENOMEM; -EFBIG beyond buffer->max, and then nothing was appended. */
int buffer_append(struct buffer *buffer, const void *data, size_t len);

/*
 * Room for exactly so many bytes (at least len) and no more: the memory is made larger or smaller. 0;
 * -ENOMEM, and then it is as it was.
 */
static inline int buffer_fit(struct buffer *buffer, size_t bytes)
{
	char *data = bytes > 0 ? (char *)realloc(buffer->data, bytes) : NULL;

	if (bytes == 0)
		return 0;
	if (data == NULL)
		return -ENOMEM;
	buffer->data = data;
	buffer->cap = bytes;
	return 0;
}

/* Frees the memory; the buffer is empty and usable again. */
void buffer_release(struct buffer *buffer);

/*
 * Writes all of data to fd. 0 or -errno. A descriptor in non-blocking mode is waited for (poll(2)).
 */
int sink_write_all(int fd, const void *data, size_t len);

/*
 * Reads until the end of the file or until cap bytes are there, whichever comes first. The bytes
 * read, or -errno.
 */
ssize_t fd_read_all(int fd, void *buf, size_t cap);

/*
 * Calls visit for every name in dirfd but "." and "..", until it returns non-zero, which is
 * returned. 0; -errno.
 */
int directory_list_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx);

/*
 * Appends the file name below dirfd to text. 0; -ENOENT and other errors of open(2) and read(2);
 * -EINVAL: not a regular file; -ENOMEM; -EFBIG: larger than text->max.
 */
int whole_file_read(int dirfd, const char *name, struct buffer *text);

enum whole_file_kind {
	WHOLE_FILE_DURABLE, /* mode 0640, less the umask; on the disk before it has its name */
	WHOLE_FILE_PUBLIC,  /* mode 0644; not synchronised: it is written again soon */
	WHOLE_FILE_QUICK,   /* mode 0640, less the umask; not synchronised: it may be lost in a power failure */
};

/*
 * Replaces the file: a reader sees the old or the new text, never a part. Writes data under the
 * temporary name ".NAME.tmp" and renames it. 0 or -errno: the old file then stays, whole, unless it
 * was the very last step that failed, the fsync of the directory.
 */
int whole_file_replace(int dirfd, const char *name, const void *data, size_t len, enum whole_file_kind kind);

/* As many directories of a tree that is removed are open at a time. */
#define DIRECTORY_TREE_DEPTH_MAX 32

/*
 * Removes the directory name below dirfd with all that is in it, never through a symbolic link.
 * Directories that this process's user owns are made writable. What is gone already is fine. 0;
 * -ENOTDIR: it is a symbolic link or no directory, and stays; -errno: the first failure, after which
 * the rest was still removed.
 */
int directory_tree_remove(int dirfd, const char *name);

/*
 * Makes the directory path and those above it, with mode 0750 less the umask. What exists is left
 * as it is. 0 or -errno.
 */
int directory_tree_make(const char *path);

/*
 * Opens path, which is relative, below the directory rootfd; symbolic links lead nowhere outside of
 * it. flags: of open(2), which may be O_PATH. one_mount: what is mounted inside, by which any process
 * could make a read wait, is not entered: -EXDEV. A descriptor, closed on execution, or -errno.
 */
int open_beneath(int rootfd, const char *path, int flags, bool one_mount);

#endif
