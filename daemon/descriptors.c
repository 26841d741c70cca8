/*
 * descriptors.c: the kernel hands out the lowest free number. So the reserve is the highest numbers, and a zone below it tells: as long as
 * one of the zone's first numbers is free, whatever is opened now ends within the zone; once those are taken, nothing is opened.
 *
 * Rejected: the lowest free number. Opening leaves holes (a directory that was open for a moment), and what comes after a hole may lie
 * anywhere. Counting what is open: a look at /proc/self/fd costs milliseconds when there are ten thousand, and counts of our own would have to
 * know what every library opens.
 */
#include "descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* The zone: as much as a target takes at most, and some numbers that strangers may hold (inherited ones are not always low). */
#define ZONE 32u

static rlim_t at_most(rlim_t value, rlim_t most)
{
	return value < most ? value : most;
}

bool descriptors_short(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;

	rlim_t zone = at_most(ZONE, limit.rlim_cur / 4);
	rlim_t first = limit.rlim_cur - at_most(DESCRIPTORS_RESERVED, limit.rlim_cur / 4) - zone;
	int free_one = fcntl(fd, F_DUPFD_CLOEXEC, (int)first);

	if (free_one < 0)
		return true;
	close(free_one);

	return (rlim_t)free_one >= first + zone / 4;
}
