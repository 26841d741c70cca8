/*
 * slow_disk.c: a disk that does not answer, for a program that has this loaded before it
 * (LD_PRELOAD): what changes a regular file or a directory, or asks a file system for its room, waits
 * as long as a gate is closed. The ring, which is in memory where a daemon runs as a service, passes.
 * Another gate is for reads of the files of cgroups and of other processes: all but those of the samplers,
 * and of the main thread but for cgroups (a process's user is in its status). SLOW_DISK is a file with a
 * struct slow_disk, shared with the test.
 */
#include "slow_disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct slow_disk *disk;

__attribute__((constructor)) static void map_disk(void)
{
	const char *path = getenv("SLOW_DISK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	disk = at == MAP_FAILED ? NULL : at;
}

static void nap(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static void pass_gate(void)
{
	if (!disk)
		return;
	disk->waiting++;
	while (disk->closed)
		nap(5);
	nap(disk->delay_ms);
	disk->waiting--;
	disk->passed++;
}

/* By its name, or that of the file that takes its place. */
static int is_ring(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return strncmp(name, "ring", 4) == 0 || strncmp(name, ".ring", 5) == 0;
}

static int is_ring_fd(int fd)
{
	char link[32], path[512];
	ssize_t len;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof path - 1);
	path[len < 0 ? 0 : len] = '\0';
	return is_ring(path);
}

/* The log may be let through; a memfd, which has no name, is no disk. */
static void pass_fd(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 0 &&
	    !(fd == STDERR_FILENO && disk && disk->log_is_fast) && !is_ring_fd(fd))
		pass_gate();
}

static void pass_path(const char *path)
{
	if (!is_ring(path))
		pass_gate();
}

static int is_sampler(void)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	return strncmp(name, "sampler", 7) == 0;
}

static int is_late(int fd)
{
	char link[64], path[512] = "";
	int pid = 0;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof path - 1) <= 0)
		return 0;
	if (strncmp(path, "/sys/fs/cgroup/", 15) == 0)
		return !is_sampler();
	return sscanf(path, "/proc/%d/", &pid) == 1 && pid != getpid() && gettid() != getpid() && !is_sampler();
}

static void pass_late(int fd)
{
	if (!disk || !disk->files_closed || !is_late(fd))
		return;
	disk->files_waiting++;
	while (disk->files_closed)
		nap(5);
	disk->files_waiting--;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRAP_FD(type, name, parameters, arguments) \
	type name parameters \
	{ \
		pass_fd(fd); \
		return REAL(name) arguments; \
	}

#define WRAP_GATE(type, name, parameters, arguments) \
	type name parameters \
	{ \
		pass_gate(); \
		return REAL(name) arguments; \
	}

ssize_t read(int fd, void *data, size_t len)
{
	pass_late(fd);
	return REAL(read)(fd, data, len);
}

ssize_t pread(int fd, void *data, size_t len, off_t at)
{
	pass_late(fd);
	return REAL(pread)(fd, data, len, at);
}

/* What they are where the size of data is known (_FORTIFY_SOURCE). */
ssize_t __read_chk(int fd, void *data, size_t len, size_t cap);
ssize_t __pread_chk(int fd, void *data, size_t len, off_t at, size_t cap);

ssize_t __read_chk(int fd, void *data, size_t len, size_t cap)
{
	(void)cap;
	return read(fd, data, len);
}

ssize_t __pread_chk(int fd, void *data, size_t len, off_t at, size_t cap)
{
	(void)cap;
	return pread(fd, data, len, at);
}

#define WRAP_PATH(type, name, parameters, arguments) \
	type name parameters \
	{ \
		pass_path(path); \
		return REAL(name) arguments; \
	}

WRAP_FD(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len))
WRAP_FD(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP_FD(ssize_t, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at))
WRAP_FD(int, fdatasync, (int fd), (fd))
WRAP_FD(int, ftruncate, (int fd, off_t len), (fd, len))
WRAP_FD(int, posix_fallocate, (int fd, off_t at, off_t len), (fd, at, len))
WRAP_GATE(int, fsync, (int fd), (fd))
WRAP_GATE(int, fstatvfs, (int fd, struct statvfs *ret), (fd, ret))
WRAP_PATH(int, statvfs, (const char *path, struct statvfs *ret), (path, ret))
WRAP_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP_PATH(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP_PATH(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP_PATH(int, rename, (const char *path, const char *to), (path, to))
WRAP_PATH(int, renameat, (int at, const char *path, int to_at, const char *to), (at, path, to_at, to))

/* Sockets are in /run, in memory. */
int unlink(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		pass_path(path);
	return REAL(unlink)(path);
}

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	if (flags & O_CREAT)
		pass_path(path);
	return REAL(open)(path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	if (flags & O_CREAT)
		pass_path(path);
	return REAL(openat)(fd, path, flags, mode);
}
