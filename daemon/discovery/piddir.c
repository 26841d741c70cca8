/*
 * piddir.c: a descriptor of /proc/<pid> stays bound to that very process. Once it is gone the kernel answers ENOENT to
 * openat(2) and ESRCH to read(2); a file that this kernel lacks answers ENOENT too. Which of them it is, is decided
 * here and only here: every living process has a stat.
 */
#include "piddir.h"
#include "fdread.h"
#include "procfs.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STAT_MAX 1024 /* 52 numbers and a name of 64 bytes at most */

int piddir_file(int piddir, const char *path)
{
	char other[32] = "stat";
	int fd = openat(piddir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	const char *slash = strrchr(path, '/');

	if (fd >= 0 || errno != ENOENT)
		return fd >= 0 ? fd : -errno;
	if (slash && (size_t)(slash - path) < sizeof(other) - sizeof("/stat"))
		snprintf(other, sizeof(other), "%.*s/stat", (int)(slash - path), path);
	return faccessat(piddir, other, F_OK, 0) == 0 ? -ENOENT : -ESRCH;
}

ssize_t piddir_read(int piddir, const char *path, char *buf, size_t cap)
{
	AUTO_CLOSE int fd = piddir_file(piddir, path);
	ssize_t len = fd < 0 ? fd : fdread_all(fd, buf, cap - 1);

	if (len >= 0)
		buf[len] = '\0';
	return len;
}

int piddir_open(int procfd, int32_t pid, uint64_t start_ticks, int *ret)
{
	char name[16], text[STAT_MAX];
	AUTO_CLOSE int fd = -1;
	struct procfs_stat stat;
	ssize_t len;

	snprintf(name, sizeof(name), "%d", pid);
	fd = openat(procfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (start_ticks == 0) {
		*ret = TAKE_FD(fd);
		return 0;
	}

	len = piddir_read(fd, "stat", text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.start_ticks != start_ticks)
		return -ESRCH;
	*ret = TAKE_FD(fd);
	return 0;
}
