/*
 * descriptors.c: the kernel hands out the lowest free number. So the reserve is the highest numbers, and a zone below it tells: as long as
 * one of the zone's first numbers is free, whatever is opened now ends within the zone. Once those are taken there may still be holes below, of
 * processes that ended or gave theirs up: then as many numbers as a target takes at most must be free below the reserve, which takes longer to find out.
 *
 * Rejected: the lowest free number. Opening leaves holes (a directory that was open for a moment), and what comes after a hole may lie
 * anywhere. Counting what is open: a look at /proc/self/fd costs milliseconds when there are ten thousand, and counts of our own would have to
 * know what every library opens.
 */
#include "descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a target takes while it is opened: see descriptors.h. */
#define TARGET_MAX 16u

/* The zone: as much as a target takes at most, and some numbers that strangers may hold (inherited ones are not always low). */
#define ZONE 32u

static rlim_t at_most(rlim_t value, rlim_t most)
{
	return value < most ? value : most;
}

/* The lowest free number from `from` on; -1: none. */
static int free_from(int fd, rlim_t from)
{
	int free_one = fcntl(fd, F_DUPFD_CLOEXEC, (int)from);

	if (free_one >= 0)
		close(free_one);

	return free_one;
}

/* Whether a target finds all it takes below end. */
static bool has_holes(int fd, rlim_t end)
{
	rlim_t from = 0;

	for (unsigned i = 0; i < TARGET_MAX && from < end; i++) {
		int free_one = free_from(fd, from);

		from = free_one < 0 ? end : (rlim_t)free_one + 1;
	}

	return from < end;
}

bool descriptors_short(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;

	rlim_t zone = at_most(ZONE, limit.rlim_cur / 4);
	rlim_t first = limit.rlim_cur - at_most(DESCRIPTORS_RESERVED, limit.rlim_cur / 4) - zone;
	int free_one = free_from(fd, first);

	if (free_one >= 0 && (rlim_t)free_one < first + zone / 4)
		return false;

	return !has_holes(fd, first + zone / 4);
}
