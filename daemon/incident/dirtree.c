/*
 * dirtree.c: every step is relative to a descriptor that was opened without following links, so that whoever may write
 * in a directory cannot make us remove anything outside of it.
 */
#include "dirtree.h"
#include "dirlist.h"
#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

struct level {
	int dirfd;
	unsigned depth;
};

static int remove_level(int dirfd, const char *name, unsigned depth);

static int remove_entry(void *ctx, const char *name)
{
	const struct level *level = ctx;

	if (unlinkat(level->dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM) /* EPERM is how POSIX says that it is a directory */
		return -errno;
	return remove_level(level->dirfd, name, level->depth + 1);
}

static int remove_level(int dirfd, const char *name, unsigned depth)
{
	AUTO_CLOSE int fd = -1;
	struct level level;
	int r;

	if (depth > DIRTREE_DEPTH_MAX)
		return -ELOOP;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;

	level = (struct level){ fd, depth };
	r = dirlist_each(fd, remove_entry, &level);
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int dirtree_remove(int dirfd, const char *name)
{
	return remove_level(dirfd, name, 0);
}

int dirtree_make(const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(part))
		return len == 0 ? -ENOENT : -ENAMETOOLONG;

	memcpy(part, path, len + 1);
	for (size_t i = 1; i <= len; i++) {
		bool end = part[i] == '\0';

		if (!end && part[i] != '/')
			continue;
		part[i] = '\0';
		if (mkdir(part, 0750) < 0 && errno != EEXIST && (end || errno != EROFS))
			return -errno;
		part[i] = end ? '\0' : '/';
	}
	return 0;
}
