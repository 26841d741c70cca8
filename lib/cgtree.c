/*
 * cgtree.c: trees in order, and a path is visited in the first one that has it. Asking the earlier trees costs a system call
 * for each, and needs no set of the paths seen, whose size would have to be bounded.
 */
#include "cgtree.h"

#include "scope.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

struct walk {
	int (*visit)(void *ctx, const char *path);
	void *ctx;
	int earlier[CGTREE_ROOTS_MAX]; /* roots of the trees that were walked before this one */
	size_t earlier_count;
	uint32_t visited;
	bool bounded; /* something was left out */
	size_t len;
	char path[PATH_MAX]; /* below the root; "" is the root itself */
};

static bool was_visited(const struct walk *walk)
{
	const char *relative = walk->len > 0 ? walk->path + 1 : ".";

	for (size_t i = 0; i < walk->earlier_count; i++) {
		if (faccessat(walk->earlier[i], relative, F_OK, 0) == 0)
			return true;
	}

	return false;
}

static int visit_path(struct walk *walk)
{
	if (was_visited(walk))
		return 0;
	if (walk->visited == CGTREE_PATHS_MAX) {
		walk->bounded = true;
		return 0;
	}

	walk->visited++;
	return walk->visit(walk->ctx, walk->len > 0 ? walk->path : "/");
}

static bool is_directory(int dir_fd, const struct dirent *item)
{
	struct stat st;

	if (item->d_type != DT_UNKNOWN)
		return item->d_type == DT_DIR;

	return fstatat(dir_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int walk_directory(struct walk *walk, int fd, int depth);

static int walk_child(struct walk *walk, int dir_fd, const char *name, int depth)
{
	size_t len = walk->len;
	size_t name_len = strlen(name);

	if (depth == CGTREE_DEPTH_MAX || len + 1 + name_len >= sizeof(walk->path)) {
		walk->bounded = true;
		return 0;
	}

	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;

	walk->path[len] = '/';
	memcpy(walk->path + len + 1, name, name_len + 1);
	walk->len = len + 1 + name_len;
	int r = walk_directory(walk, fd, depth + 1);
	walk->len = len;
	walk->path[len] = '\0';
	return r;
}

/* Takes fd. A cgroup that vanishes on the way is as if it had not been there. */
static int walk_directory(struct walk *walk, int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}

	const struct dirent *item;
	int r = visit_path(walk);
	while (r == 0 && (item = readdir(dir))) {
		if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 && is_directory(dirfd(dir), item))
			r = walk_child(walk, dirfd(dir), item->d_name, depth);
	}
	closedir(dir);

	return r;
}

/* A tree that is not there (any more) is an empty one. */
static int walk_tree(struct walk *walk, const char *root)
{
	int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;

	int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (kept < 0) {
		close(fd);
		return -errno;
	}

	int r = walk_directory(walk, fd, 0);
	walk->earlier[walk->earlier_count++] = kept;
	return r;
}

int cgtree_walk(const char *const roots[], size_t count, int (*visit)(void *ctx, const char *path), void *ctx)
{
	struct walk walk = { .visit = visit, .ctx = ctx };
	int r = 0;

	assert(count <= CGTREE_ROOTS_MAX);

	for (size_t i = 0; i < count && r == 0; i++)
		r = walk_tree(&walk, roots[i]);
	while (walk.earlier_count > 0)
		close(walk.earlier[--walk.earlier_count]);

	return r == 0 && walk.bounded ? -E2BIG : r;
}
