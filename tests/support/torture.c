/*
 * torture.c: the linker hands us every allocation (--wrap); we count it and, if it is the one,
 * refuse it.
 */
#include "torture.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local long countdown; /* 0: not armed, or done */
static _Thread_local bool injected;
static _Thread_local unsigned long allocations;

void torture_arm(long nth)
{
	injected = false;
	countdown = nth;
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
