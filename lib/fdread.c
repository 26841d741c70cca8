/* fdread.c: an error after some bytes is still an error: half a file is not taken for the whole. */
#include "fdread.h"

#include <errno.h>
#include <unistd.h>

ssize_t fdread_all(int fd, void *buf, size_t cap)
{
	size_t used = 0;

	while (used < cap) {
		ssize_t got = read(fd, (char *)buf + used, cap - used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		used += (size_t)got;
	}

	return (ssize_t)used;
}
