/*
 * scope.h: owned locals that release themselves.
 *
 * AUTO(f)      a local whose cleanup is f(&local)
 * AUTO_FREE    a heap pointer, free(3)d at the end of its scope
 * AUTO_CLOSE   a file descriptor, closed at the end of its scope unless negative
 * TAKE(p)      moves a pointer out of its variable, which becomes NULL
 * TAKE_FD(fd)  the same for a descriptor, which becomes -1
 *
 * Source: gcc's cleanup attribute, which clang shares.
 */
#ifndef SPIKEWATCH_SCOPE_H
#define SPIKEWATCH_SCOPE_H

#include <stdlib.h>
#include <unistd.h>

#define AUTO(release) __attribute__((cleanup(release)))
#define AUTO_FREE AUTO(scope_free)
#define AUTO_CLOSE AUTO(scope_close)

#define TAKE(pointer) \
	__extension__({ \
		__typeof__(pointer) taken_ = (pointer); \
		(pointer) = NULL; \
		taken_; \
	})

#define TAKE_FD(fd) \
	__extension__({ \
		int taken_ = (fd); \
		(fd) = -1; \
		taken_; \
	})

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* Frees *(void **)pointer. Only meant for AUTO_FREE. */
static inline void scope_free(void *pointer)
{
	free(*(void **)pointer);
}

/* Closes *fd unless it is negative. Only meant for AUTO_CLOSE. */
static inline void scope_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#endif
