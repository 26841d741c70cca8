/*
 * base.h: what every file may use: owned locals that release themselves, and points in time as
 * types that cannot be confused.
 */
#ifndef SPIKEWATCH_LIB_BASE_BASE_H
#define SPIKEWATCH_LIB_BASE_BASE_H

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * AUTO(f)              a local whose cleanup, at the end of its scope, is f(&local)
 * AUTO_FREE            a heap pointer, free(3)d
 * AUTO_CLOSE           a file descriptor, closed unless negative
 * CLEANUP(noun, verb)  stands below void noun_verb(struct noun *), which takes NULL: defines
 *                      noun_verbp for AUTO(noun_verbp) struct noun *local
 * TAKE(p)              moves a pointer out of its variable, which becomes NULL
 * TAKE_FD(fd)          the same for a descriptor, which becomes -1
 *
 * By gcc's cleanup attribute, which clang shares.
 */

#define AUTO(release) __attribute__((cleanup(release)))
#define AUTO_FREE AUTO(scope_free)
#define AUTO_CLOSE AUTO(scope_close)

#define CLEANUP(noun, verb) \
	static inline void noun##_##verb##p(struct noun **owned) \
	{ \
		noun##_##verb(*owned); \
	} \
	struct noun /* takes the semicolon */

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

/*
 * Logic never reads a clock: it takes a mono_t. What stands at the edge (a thread of the daemon, a
 * test) has a struct clock and reads it. Nanoseconds throughout.
 */

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL

/* CLOCK_MONOTONIC: rates, deadlines, windows. Stands still while the machine is suspended. */
typedef struct {
	uint64_t ns;
} mono_t;

/* CLOCK_REALTIME, nanoseconds since 1970: names, people, what must outlive a boot. */
typedef struct {
	uint64_t ns;
} wall_t;

/* Where time comes from. Both functions must be async-signal-safe and must not fail. */
struct clock {
	mono_t (*mono)(void *ctx);
	wall_t (*wall)(void *ctx);
	uint64_t (*boot_ns)(void *ctx); /* CLOCK_BOOTTIME: as mono, and the time suspended. NULL: never is */
	void *ctx;
};

static inline mono_t clock_mono(const struct clock *clock)
{
	return clock->mono(clock->ctx);
}

static inline wall_t clock_wall(const struct clock *clock)
{
	return clock->wall(clock->ctx);
}

/* later - earlier in nanoseconds; negative when "later" is the earlier one. */
static inline int64_t mono_diff(mono_t later, mono_t earlier)
{
	return (int64_t)(later.ns - earlier.ns);
}

static inline mono_t mono_add(mono_t at, uint64_t ns)
{
	return (mono_t){ at.ns + ns };
}

/* at - ns, but never before the epoch of the clock. */
static inline mono_t mono_sub(mono_t at, uint64_t ns)
{
	return (mono_t){ at.ns > ns ? at.ns - ns : 0 };
}

#endif
