/*
 * io.c: descriptors, files and directories.
 *
 * A buffer doubles, so that appending byte by byte costs a constant per byte; beyond `max` it
 * refuses whole appends instead of keeping a part of one. Non-blocking descriptors (an inherited
 * pipe) are waited for: a sink that returned EAGAIN would make every writer above it handle that.
 *
 * A whole file is read to its end and replaced by write, fsync, rename and fsync. A name that is a
 * symbolic link, a FIFO or a device is refused without waiting for it. A temporary file that a
 * killed process left behind is removed first, so O_EXCL never fails for it.
 *
 * Directory trees are removed step by step relative to descriptors that were opened without
 * following links, so a process that may write in a directory cannot make us remove anything
 * outside of it.
 *
 * Files below a root are opened with RESOLVE_IN_ROOT (openat2(2), Linux 5.6): below "/host" a link
 * to /data is one to /host/data. Before Linux 5.6 that is right only where the root is "/", and
 * links are not followed below another.
 */
#include "lib/base/io.h"

#include "lib/base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static int count_bytes(void *ctx, const void *data, size_t len)
{
	uint64_t *bytes = ctx;

	(void)data;
	*bytes += len;
	return 0;
}

struct sink sink_count(uint64_t *bytes)
{
	return (struct sink){ .write = count_bytes, .ctx = bytes };
}

/* An error after some bytes is still an error: half a file is not taken for the whole. */

ssize_t fd_read_all(int fd, void *buf, size_t cap)
{
	size_t used = 0;

	while (used < cap) {
		ssize_t got = read(fd, (char *)buf + used, cap - used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		used += (size_t)got;
	}
	return (ssize_t)used;
}

/* The directory is opened again, so that the caller's descriptor keeps its position. */

static void release_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

int directory_list_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx)
{
	AUTO_CLOSE int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(release_dir) DIR *dir = NULL;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);

	for (;;) {
		const struct dirent *entry;
		int r;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return -errno;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		r = visit(ctx, entry->d_name);
		if (r != 0)
			return r;
	}
}

/* NAME_MAX of linux/limits.h, and the NUL. */
#define WHOLE_FILE_NAME_SIZE 256

int whole_file_read(int dirfd, const char *name, struct buffer *text)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char block[16384];
	struct stat status;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;

	while ((n = read(fd, block, sizeof(block))) > 0) {
		int r = buffer_append(text, block, (size_t)n);

		if (r < 0)
			return r;
	}
	return n < 0 ? -errno : 0;
}

static int write_new(int dirfd, const char *name, const void *data, size_t len, enum whole_file_kind kind)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	int r;

	if (fd < 0 || (kind == WHOLE_FILE_PUBLIC && fchmod(fd, 0644) < 0))
		return -errno;

	r = sink_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (kind == WHOLE_FILE_DURABLE && fsync(fd) < 0)
		return -errno;
	return close(TAKE_FD(fd)) < 0 ? -errno : 0;
}

int whole_file_replace(int dirfd, const char *name, const void *data, size_t len, enum whole_file_kind kind)
{
	char temporary[WHOLE_FILE_NAME_SIZE];
	int r;

	if (snprintf(temporary, sizeof(temporary), ".%s.tmp", name) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	if (unlinkat(dirfd, temporary, 0) < 0 && errno != ENOENT)
		return -errno;

	r = write_new(dirfd, temporary, data, len, kind);
	if (r == 0 && renameat(dirfd, temporary, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temporary, 0);
		return r;
	}
	return kind == WHOLE_FILE_DURABLE && fsync(dirfd) < 0 ? -errno : 0;
}

/* What is removed. A level that would be too deep is moved up, into the topmost one. */
struct tree {
	int topfd;
	unsigned moved;
};

struct level {
	struct tree *tree;
	int dirfd;
	unsigned depth;
	int error; /* the first */
};

static int remove_level(struct tree *tree, int dirfd, const char *name, unsigned depth);

/* A directory whose owner has taken its own rights away gets them back. 0; -errno: -EPERM, -EISDIR: a directory. */
static int unlink_entry(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EACCES)
		return -errno;
	if (fchmod(dirfd, 0700) < 0)
		return -EACCES;
	return unlinkat(dirfd, name, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Goes on after an error: what can be removed is. */
static int remove_entry(void *ctx, const char *name)
{
	struct level *level = ctx;
	int r = unlink_entry(level->dirfd, name);

	if (r == -EISDIR || r == -EPERM) /* EPERM is how POSIX says that it is a directory */
		r = remove_level(level->tree, level->dirfd, name, level->depth + 1);
	if (level->error == 0)
		level->error = r;
	return 0;
}

static int move_up(struct tree *tree, int dirfd, const char *name)
{
	char aside[32];

	snprintf(aside, sizeof(aside), ".deep-%u", tree->moved);
	if (renameat(dirfd, name, tree->topfd, aside) < 0 &&
	    (errno != EACCES || fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW) < 0 ||
	     renameat(dirfd, name, tree->topfd, aside) < 0))
		return -errno;
	tree->moved++;
	return 0;
}

static int open_level(int dirfd, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dirfd, name, flags);

	if (fd >= 0 || errno != EACCES)
		return fd >= 0 ? fd : -errno;
	if (fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW) < 0)
		return -EACCES;
	fd = openat(dirfd, name, flags);
	return fd >= 0 ? fd : -errno;
}

static int remove_level(struct tree *tree, int dirfd, const char *name, unsigned depth)
{
	AUTO_CLOSE int fd = -1;
	struct level level = { .tree = tree, .depth = depth };
	unsigned moved;
	int r;

	if (depth > DIRECTORY_TREE_DEPTH_MAX)
		return move_up(tree, dirfd, name);
	r = open_level(dirfd, name);
	if (r < 0)
		return r == -ENOENT ? 0 : r;

	fd = level.dirfd = r;
	if (depth == 0)
		tree->topfd = fd;
	do {
		moved = tree->moved;
		r = directory_list_each(fd, remove_entry, &level);
	} while (r == 0 && depth == 0 && tree->moved > moved);
	if (r == 0)
		r = level.error;
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int directory_tree_remove(int dirfd, const char *name)
{
	return remove_level(&(struct tree){ .topfd = -1 }, dirfd, name, 0);
}

int directory_tree_make(const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(part))
		return len == 0 ? -ENOENT : -ENAMETOOLONG;

	memcpy(part, path, len + 1);
	for (size_t i = 1; i <= len; i++) {
		bool end = part[i] == '\0';

		if (!end && part[i] != '/')
			continue;
		part[i] = '\0';
		if (access(part, F_OK) < 0 && mkdir(part, 0750) < 0 && errno != EEXIST && (end || errno != EROFS))
			return -errno;
		part[i] = end ? '\0' : '/';
	}
	return 0;
}

int open_beneath(int rootfd, const char *path, int flags, bool one_mount)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | (one_mount ? RESOLVE_NO_XDEV : 0u),
	};
	int fd = (int)syscall(SYS_openat2, rootfd, path, &how, sizeof how);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(rootfd, path, flags | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}
