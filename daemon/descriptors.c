/*
 * descriptors.c: the kernel hands out the lowest free number. As long as a number below the reserve is free, nothing that was just opened can have
 * come from it: so no target ever holds one of the highest numbers, and those are the reserve.
 *
 * Rejected: counting what is open. A look at /proc/self/fd costs milliseconds when there are ten thousand, and counts of our own would have
 * to know what every library opens.
 */
#include "descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static rlim_t reserve_of(rlim_t limit)
{
	return limit / 4 < DESCRIPTORS_RESERVED ? limit / 4 : DESCRIPTORS_RESERVED;
}

bool descriptors_short(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;

	int lowest = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (lowest < 0)
		return true;
	close(lowest);

	return (rlim_t)lowest + reserve_of(limit.rlim_cur) > limit.rlim_cur;
}
