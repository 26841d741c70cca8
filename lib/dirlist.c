/* dirlist.c: opens the directory anew, so that the caller's descriptor keeps its position. */
#include "dirlist.h"

#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void release_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

int dirlist_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx)
{
	AUTO_CLOSE int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(release_dir) DIR *dir = NULL;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);

	for (;;) {
		const struct dirent *entry;
		int r;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return -errno;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		r = visit(ctx, entry->d_name);
		if (r != 0)
			return r;
	}
}
