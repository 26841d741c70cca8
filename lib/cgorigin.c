/*
 * cgorigin.c: the kernel tells nobody where his namespace begins. But the list of processes of a cgroup is in the host's tree, and who reads it sees himself
 * there: that cgroup's path, less what the namespace says of it, is the answer. One walk, at the start.
 *
 * Rejected: the inode of /sys/fs/cgroup, which is the namespace's own root only where nobody has mounted the host's over it.
 */
#include "cgorigin.h"
#include "cgtree.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The reader's own cgroup has few processes, and the kernel lists them in no order that helps. */
#define PROCS_MAX 65536

struct search {
	const char *root;
	int32_t pid;
	char *text; /* PROCS_MAX bytes */
	char *found;
};

/* Whether a line of "812\n813\n" is that number. */
static bool lists(const char *text, const char *number)
{
	size_t len = strlen(number);

	for (const char *at = text; (at = strstr(at, number)) != NULL; at += len)
		if ((at == text || at[-1] == '\n') && (at[len] == '\n' || at[len] == '\0'))
			return true;

	return false;
}

static int visit(void *ctx, const char *path)
{
	struct search *search = ctx;
	char name[PATH_MAX], number[16];

	if ((size_t)snprintf(name, sizeof(name), "%s%s/cgroup.procs", search->root, path) >= sizeof(name))
		return 0;

	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, search->text, PROCS_MAX - 1);

	if (len <= 0)
		return 0;
	search->text[len] = '\0';
	snprintf(number, sizeof(number), "%d", search->pid);
	if (!lists(search->text, number))
		return 0;
	search->found = strdup(path);

	return search->found ? 1 : -ENOMEM;
}

/* Takes own off the end of path, so that "/pods/a/x" less "/x" is "/pods/a". False: it does not end so, or nothing is left. */
static bool take_off(char *path, const char *own)
{
	size_t len = strlen(path), cut = strcmp(own, "/") == 0 ? 0 : strlen(own);

	if (cut >= len || strcmp(path + len - cut, cut > 0 ? own : "") != 0)
		return false;
	path[len - cut] = '\0';

	return strcmp(path, "/") != 0;
}

int cgorigin_find(const char *root, int32_t pid, const char *own, char **ret)
{
	AUTO_FREE char *text = malloc(PROCS_MAX);
	AUTO_FREE char *found = NULL;
	struct search search = { .root = root, .pid = pid, .text = text };
	int r;

	if (!text)
		return -ENOMEM;

	r = cgtree_walk(&root, 1, visit, &search);
	found = search.found;
	if (r < 0 && r != -E2BIG)
		return r;
	if (!found || !take_off(found, own))
		return -ENOENT;

	*ret = TAKE(found);
	return 0;
}

int cgorigin_resolve(const char *origin, const char *path, size_t len, char *buf, size_t cap)
{
	size_t kept = strlen(origin), at = 0;

	while (len - at >= 3 && memcmp(path + at, "/..", 3) == 0 && (at + 3 == len || path[at + 3] == '/')) {
		at += 3;
		while (kept > 0 && origin[--kept] != '/')
			;
	}

	/* "/" behind something is nothing. */
	size_t rest = len - at == 1 && path[at] == '/' ? 0 : len - at;

	if (kept + rest == 0)
		return cap > 1 ? (memcpy(buf, "/", 2), 0) : -ENAMETOOLONG;
	if (kept + rest >= cap)
		return -ENAMETOOLONG;
	memcpy(buf, origin, kept);
	memcpy(buf + kept, path + at, rest);
	buf[kept + rest] = '\0';

	return 0;
}
