/*
 * wholefile.c: read to the end, and write-sync-rename-sync.
 *
 * A name that is a symbolic link, a FIFO or a device is refused without waiting for it. A temporary file that an earlier
 * process left behind when it was killed is removed first, so O_EXCL is never in the way.
 */
#include "wholefile.h"

#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* NAME_MAX of linux/limits.h, and the NUL. */
#define WHOLEFILE_NAME_SIZE 256

int wholefile_read(int dirfd, const char *name, struct buffer *text)
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

/* Makes a new file and brings it to the disk. */
static int write_new(int dirfd, const char *name, const void *data, size_t len)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	int r;

	if (fd < 0)
		return -errno;

	r = sink_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fsync(fd) < 0)
		return -errno;
	return close(TAKE_FD(fd)) < 0 ? -errno : 0;
}

int wholefile_replace(int dirfd, const char *name, const void *data, size_t len)
{
	char temporary[WHOLEFILE_NAME_SIZE];
	int r;

	if (snprintf(temporary, sizeof(temporary), ".%s.tmp", name) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	if (unlinkat(dirfd, temporary, 0) < 0 && errno != ENOENT)
		return -errno;

	r = write_new(dirfd, temporary, data, len);
	if (r == 0 && renameat(dirfd, temporary, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temporary, 0);
		return r;
	}

	return fsync(dirfd) < 0 ? -errno : 0;
}
