/*
 * torture.c: the linker hands us every allocation (--wrap); we count it and, if it is the one,
 * refuse it.
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

static _Thread_local long countdown; /* 0: not armed, or done */
static _Thread_local bool injected;
static _Thread_local unsigned long allocations;

void torture_arm(long nth)
{
	injected = false;
	countdown = nth;
}

/* A child that the code under test forks would keep the failure for later, and nobody would know. */
static void forget(void)
{
	countdown = 0;
}

static void __attribute__((constructor)) watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget);
}

bool torture_disarm(void)
{
	countdown = 0;
	return injected;
}

unsigned long torture_allocations(void)
{
	return allocations;
}

/* Counts one allocation: true if it must fail. */
static bool refuse(void)
{
	allocations++;
	if (countdown == 0 || --countdown > 0)
		return false;

	injected = true;
	errno = ENOMEM;
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **ret, size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **ret, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);

void *__wrap_malloc(size_t size)
{
	return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return refuse() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return refuse() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return refuse() ? NULL : __real_reallocarray(old, count, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return refuse() ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **ret, size_t alignment, size_t size)
{
	return refuse() ? ENOMEM : __real_posix_memalign(ret, alignment, size);
}

char *__wrap_strdup(const char *text)
{
	return refuse() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t len)
{
	return refuse() ? NULL : __real_strndup(text, len);
}

/* ---- killed at a step ---- */

static atomic_long steps_left;     /* 0: not armed */
static const char *stepped_thread; /* NULL: all */
static int step_signal;

void torture_kill_at(long nth, const char *thread)
{
	stepped_thread = thread;
	step_signal = SIGKILL;
	atomic_store(&steps_left, nth);
}

void torture_stop_at(long nth)
{
	torture_kill_at(0, NULL);
	step_signal = SIGSTOP;
	atomic_store(&steps_left, nth);
}

static bool is_stepped(bool changes)
{
	char name[16] = "";

	if (!stepped_thread)
		return true;
	return changes && prctl(PR_GET_NAME, name) == 0 && strcmp(name, stepped_thread) == 0;
}

static void step(bool changes)
{
	if (atomic_load(&steps_left) > 0 && is_stepped(changes) && atomic_fetch_sub(&steps_left, 1) == 1)
		kill(getpid(), step_signal);
}

/* What others see at once is a step of its own, before what is done and said after it. */
static int stepped(int r)
{
	int error = errno;

	step(true);
	errno = error;
	return r;
}

int __real_openat(int dirfd, const char *path, int flags, ...);
int __real_mkdirat(int dirfd, const char *path, mode_t mode);
ssize_t __real_write(int fd, const void *data, size_t len);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int dirfd, const char *path, int flags);
int __real_fsync(int fd);
int __real_ftruncate(int fd, off_t len);
int __real_flock(int fd, int operation);

int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __wrap_mkdirat(int dirfd, const char *path, mode_t mode);
ssize_t __wrap_write(int fd, const void *data, size_t len);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_unlinkat(int dirfd, const char *path, int flags);
int __wrap_fsync(int fd);
int __wrap_ftruncate(int fd, off_t len);
int __wrap_flock(int fd, int operation);

int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list arguments;

	va_start(arguments, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(arguments, mode_t);
	va_end(arguments);
	step((flags & (O_ACCMODE | O_CREAT)) != 0);
	return __real_openat(dirfd, path, flags, mode);
}

int __wrap_mkdirat(int dirfd, const char *path, mode_t mode)
{
	step(true);
	return __real_mkdirat(dirfd, path, mode);
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
	step(true);
	return __real_write(fd, data, len);
}

int __wrap_rename(const char *from, const char *to)
{
	step(true);
	return stepped(__real_rename(from, to));
}

int __wrap_unlink(const char *path)
{
	step(true);
	return stepped(__real_unlink(path));
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	step(true);
	return stepped(__real_renameat(from_dir, from, to_dir, to));
}

int __wrap_unlinkat(int dirfd, const char *path, int flags)
{
	step(true);
	return __real_unlinkat(dirfd, path, flags);
}

int __wrap_fsync(int fd)
{
	step(true);
	return __real_fsync(fd);
}

int __wrap_ftruncate(int fd, off_t len)
{
	step(true);
	return __real_ftruncate(fd, len);
}

int __wrap_flock(int fd, int operation)
{
	step(true);
	return __real_flock(fd, operation);
}

static int torture_write(void *ctx, const void *data, size_t len)
{
	long *bytes_left = ctx;

	(void)data;
	if (len > (size_t)*bytes_left) {
		*bytes_left = 0;
		return -EIO;
	}

	*bytes_left -= (long)len;
	return 0;
}

struct sink torture_sink(long *bytes_left)
{
	return (struct sink){ torture_write, bytes_left };
}

/* ---- before anything is opened ---- */

static void (*before_opening)(void);

bool torture_before_opening(void (*what)(void))
{
	bool was_set = before_opening != NULL;

	before_opening = what;
	return was_set;
}

int __real_open_beneath(int rootfd, const char *path, int flags, bool one_mount);
int __wrap_open_beneath(int rootfd, const char *path, int flags, bool one_mount);

int __wrap_open_beneath(int rootfd, const char *path, int flags, bool one_mount)
{
	if (before_opening)
		before_opening();

	return __real_open_beneath(rootfd, path, flags, one_mount);
}
