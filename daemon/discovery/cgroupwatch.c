/*
 * cgroupwatch.c: a watch on each directory, found again by its number. A directory that came is watched first and listed then: what was made in it
 * before the watch is in the list, what is made later is heard, and what is both is harmless.
 *
 * With cgroup v1 the same cgroup is made in one hierarchy after the other, and who opens its files too early misses some for good: hence the moment
 * that each has to wait.
 */
#include "cgroupwatch.h"

#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define ROOTS_MAX (1 + CGROUP_CONTROLLERS)
#define BUCKETS 1024u
#define WAITING_MAX 256u
#define DEPTH_MAX 32
#define MOMENT_NS (5 * NS_PER_MS)

/* Events that are read at a time: all that is there is read, and a flood is a loss. */
#define READS_MAX 64
#define EVENTS_BYTES 16384u

struct directory {
	struct directory *next; /* in its bucket */
	int wd;
	unsigned root;
	char path[]; /* of the cgroup */
};

struct waiting {
	char *path;
	mono_t due;
};

struct cgroupwatch {
	const char *roots[ROOTS_MAX];
	unsigned root_count;
	int fd;
	bool wants_all, lost;
	bool deaf; /* there was a directory that it could not watch */
	struct directory *buckets[BUCKETS];
	size_t count;
	struct waiting waiting[WAITING_MAX]; /* in the order of due */
	size_t waiting_count;
};

static void add_root(struct cgroupwatch *watch, const char *root)
{
	for (unsigned i = 0; root != NULL && i < watch->root_count; i++)
		if (strcmp(watch->roots[i], root) == 0)
			return;
	if (root != NULL)
		watch->roots[watch->root_count++] = root;
}

int cgroupwatch_new(const struct cgroup_mounts *mounts, struct cgroupwatch **ret)
{
	struct cgroupwatch *watch = calloc(1, sizeof(*watch));
	bool v2;
	int r = 0;

	if (watch == NULL)
		return -ENOMEM;
	watch->fd = -1;
	watch->wants_all = true;
	add_root(watch, cgroup_mounts_v2(mounts));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		add_root(watch, cgroup_mounts_controller(mounts, (enum cgroup_controller)i, &v2));
	if (watch->root_count == 0)
		r = -ENOENT;
	if (r == 0) {
		watch->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		r = watch->fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		cgroupwatch_free(watch);
		return r;
	}
	*ret = watch;
	return 0;
}

void cgroupwatch_free(struct cgroupwatch *watch)
{
	if (watch == NULL)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		while (watch->buckets[i] != NULL) {
			struct directory *directory = watch->buckets[i];

			watch->buckets[i] = directory->next;
			free(directory);
		}
	}
	while (watch->waiting_count > 0)
		free(watch->waiting[--watch->waiting_count].path);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

int cgroupwatch_fd(const struct cgroupwatch *watch)
{
	return watch->fd;
}

bool cgroupwatch_wants_all(const struct cgroupwatch *watch)
{
	return watch->wants_all;
}

bool cgroupwatch_hears_all(const struct cgroupwatch *watch)
{
	return !watch->wants_all && !watch->deaf;
}

void cgroupwatch_has_all(struct cgroupwatch *watch)
{
	watch->wants_all = false;
}

/* ---- directories ---- */

static struct directory **find(struct cgroupwatch *watch, int wd)
{
	struct directory **at = &watch->buckets[(unsigned)wd % BUCKETS];

	while (*at != NULL && (*at)->wd != wd)
		at = &(*at)->next;
	return at;
}

/* Watches the directory of path in a hierarchy. True: it is there and was not watched before. */
static bool add_directory(struct cgroupwatch *watch, unsigned root, const char *path)
{
	char full[PATH_MAX];
	size_t len = strlen(path) + 1;
	struct directory *directory, **at;
	int wd;

	watch->deaf |= watch->count == CGROUPWATCH_MAX;
	if (watch->count == CGROUPWATCH_MAX ||
	    (size_t)snprintf(full, sizeof(full), "%s%s", watch->roots[root], path) >= sizeof(full))
		return false;
	wd = inotify_add_watch(watch->fd, full, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW);
	if (wd < 0) {
		watch->deaf |= errno == ENOSPC || errno == ENOMEM;
		return false;
	}
	at = find(watch, wd);
	if (*at != NULL)
		return false;
	directory = malloc(sizeof(*directory) + len);
	if (directory == NULL) {
		watch->deaf = true;
		inotify_rm_watch(watch->fd, wd);
		return false;
	}
	*directory = (struct directory){ .wd = wd, .root = root };
	memcpy(directory->path, path, len);
	*at = directory;
	watch->count++;
	return true;
}

void cgroupwatch_add(struct cgroupwatch *watch, const char *path)
{
	for (unsigned root = 0; root < watch->root_count; root++)
		add_directory(watch, root, path);
}

/* ---- what comes ---- */

static void enqueue(struct cgroupwatch *watch, const char *path, mono_t now)
{
	char *copy;

	for (size_t i = 0; i < watch->waiting_count; i++)
		if (strcmp(watch->waiting[i].path, path) == 0)
			return;
	copy = watch->waiting_count < WAITING_MAX ? strdup(path) : NULL;
	if (copy == NULL)
		watch->lost = true;
	else
		watch->waiting[watch->waiting_count++] = (struct waiting){ copy, mono_add(now, MOMENT_NS) };
}

static void come(struct cgroupwatch *watch, unsigned root, const char *parent, const char *name, mono_t now, int depth);

/* What was made in it before it was watched. */
static void list_inside(struct cgroupwatch *watch, unsigned root, const char *path, mono_t now, int depth)
{
	char full[PATH_MAX];
	const struct dirent *item;
	DIR *dir;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", watch->roots[root], path) >= sizeof(full))
		return;
	dir = opendir(full);
	if (dir == NULL)
		return;
	while ((item = readdir(dir)) != NULL)
		if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
			come(watch, root, path, item->d_name, now, depth);
	closedir(dir);
}

static void come(struct cgroupwatch *watch, unsigned root, const char *parent, const char *name, mono_t now, int depth)
{
	char path[PATH_MAX];

	if (depth == DEPTH_MAX || (size_t)snprintf(path, sizeof(path), "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
						   name) >= sizeof(path)) {
		watch->lost = true;
		return;
	}
	enqueue(watch, path, now);
	if (add_directory(watch, root, path))
		list_inside(watch, root, path, now, depth + 1);
}

static void take_event(struct cgroupwatch *watch, const struct inotify_event *event, mono_t now)
{
	struct directory **at = find(watch, event->wd), *directory = *at;

	watch->lost |= (event->mask & IN_Q_OVERFLOW) != 0;
	if (directory == NULL)
		return;
	if (event->mask & IN_IGNORED) {
		*at = directory->next;
		watch->count--;
		free(directory);
	} else if ((event->mask & IN_ISDIR) && event->len > 0) {
		come(watch, directory->root, directory->path, event->name, now, 0);
	}
}

static void read_events(struct cgroupwatch *watch, mono_t now)
{
	_Alignas(struct inotify_event) char buf[EVENTS_BYTES];

	for (int reads = 0; reads < READS_MAX; reads++) {
		ssize_t len = read(watch->fd, buf, sizeof(buf));

		if (len <= 0)
			return;
		for (size_t at = 0; at < (size_t)len;) {
			const struct inotify_event *event = (const void *)(buf + at);

			at += sizeof(*event) + event->len;
			take_event(watch, event, now);
		}
	}
}

bool cgroupwatch_hear(struct cgroupwatch *watch, mono_t now, void (*visit)(void *ctx, const char *path), void *ctx)
{
	size_t done = 0;
	bool lost;

	read_events(watch, now);
	for (; done < watch->waiting_count && mono_diff(now, watch->waiting[done].due) >= 0; done++) {
		visit(ctx, watch->waiting[done].path);
		free(watch->waiting[done].path);
	}
	watch->waiting_count -= done;
	memmove(watch->waiting, watch->waiting + done, watch->waiting_count * sizeof(watch->waiting[0]));
	lost = watch->lost;
	watch->lost = false;
	watch->wants_all |= lost;
	return !lost;
}

bool cgroupwatch_next(const struct cgroupwatch *watch, mono_t *ret)
{
	if (watch->waiting_count > 0)
		*ret = watch->waiting[0].due;
	return watch->waiting_count > 0;
}
