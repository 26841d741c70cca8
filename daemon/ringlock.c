/* ringlock.c: flock(2) on RING.lock. The ring itself is replaced by rename, so a lock on it would be a lock on the old one. */
#include "ringlock.h"

#include "log.h"
#include "paths.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int failed(const char *what, const char *path, int error)
{
	log_line(LOG_ERR, "%s %s: %s", what, path, strerror(-error));

	return error;
}

int ringlock_take(const char *ring, int *ret)
{
	AUTO_CLOSE int fd = -1;
	char path[PATHS_MAX + 8];
	int r = paths_make_parent(ring);

	if (r < 0)
		return failed("cannot make the directory of", ring, r);

	snprintf(path, sizeof path, "%s.lock", ring);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return failed("cannot open", path, -errno);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		log_line(LOG_ERR, "another spikewatchd uses %s", ring);
		return -EALREADY;
	}
	*ret = TAKE_FD(fd);

	return 0;
}
