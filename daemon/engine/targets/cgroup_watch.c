/*
 * cgroup_watch.c: a watch on each directory, found again by its number, or by its path when it is removed. A directory that came is watched first and
 * listed then: what was made in it before the watch is in the list, what is made later is heard, and what is both is harmless.
 *
 * The watch of a directory of cgroups that was removed stays: the kernel never says IN_IGNORED of it, and keeps the inode. So its parent says that it
 * went, and the watch is given back; where that was lost, the next walk gives back those that it did not meet. A directory that went and came again
 * may lose its new watch to the old news; the news of its coming, which are later, give it another.
 *
 * With cgroup v1 the same cgroup is made in one hierarchy after the other, and who opens its files too early misses some for good: hence the moment
 * that each has to wait.
 */
#include "daemon/engine/targets/cgroup_watch.h"

#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Directories; below others it is not heard what comes. The kernel's own limit (fs.inotify.max_user_watches) is some 8,000 and more. */
#define CGROUPWATCH_MAX 4096u

#define ROOTS_MAX (1 + CGROUP_CONTROLLERS)
#define BUCKETS 1024u
#define WAITING_MAX 256u
#define DEPTH_MAX 32
#define MOMENT_NS (5 * NS_PER_MS)

/* Events that are read at a time: all that is there is read, and a flood is a loss. */
#define READS_MAX 64
#define EVENTS_BYTES 16384u

struct directory {
	struct directory *next;      /* in its bucket by number */
	struct directory *next_path; /* in that by path */
	int wd;
	unsigned root;
	uint32_t walk; /* the last that met it, or during or after which it came */
	char path[];   /* of the cgroup */
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
	bool walking;   /* it was begun, and is not over */
	uint32_t walk;  /* how many were begun */
	bool deaf;      /* there was a directory that it could not watch */
	size_t deaf_at; /* with so many that it could */
	struct directory *buckets[BUCKETS], *paths[BUCKETS];
	size_t count;
	struct waiting waiting[WAITING_MAX]; /* in the order of due */
	size_t waiting_count;
	uint64_t heard;
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
		add_root(watch, cgroup_mounts_controller(mounts, (enum cgroup_resource)i, &v2));
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
	return !watch->wants_all && !watch->walking && !watch->deaf;
}

/* ---- directories ---- */

static struct directory **find(struct cgroupwatch *watch, int wd)
{
	struct directory **at = &watch->buckets[(unsigned)wd % BUCKETS];

	while (*at != NULL && (*at)->wd != wd)
		at = &(*at)->next;
	return at;
}

/* FNV-1a. */
static struct directory **bucket_of_path(struct cgroupwatch *watch, unsigned root, const char *path)
{
	uint32_t hash = 2166136261u ^ root;

	for (; *path != '\0'; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;
	return &watch->paths[(hash ^ hash >> 15) % BUCKETS];
}

static struct directory *find_path(struct cgroupwatch *watch, unsigned root, const char *path)
{
	struct directory *directory = *bucket_of_path(watch, root, path);

	while (directory != NULL && (directory->root != root || strcmp(directory->path, path) != 0))
		directory = directory->next_path;
	return directory;
}

static void enter(struct cgroupwatch *watch, struct directory *directory)
{
	struct directory **at = find(watch, directory->wd),
			 **path = bucket_of_path(watch, directory->root, directory->path);

	directory->next = *at;
	*at = directory;
	directory->next_path = *path;
	*path = directory;
	watch->count++;
}

/* Not its watch. Where there was no room for all there may be some now. */
static void forget(struct cgroupwatch *watch, struct directory *directory)
{
	struct directory **at = find(watch, directory->wd),
			 **path = bucket_of_path(watch, directory->root, directory->path);

	*at = directory->next;
	while (*path != directory)
		path = &(*path)->next_path;
	*path = directory->next_path;
	watch->count--;
	watch->wants_all |= watch->deaf && watch->count < watch->deaf_at / 2;
	free(directory);
}

static void give_back(struct cgroupwatch *watch, struct directory *directory)
{
	inotify_rm_watch(watch->fd, directory->wd);
	forget(watch, directory);
}

static void grow_deaf(struct cgroupwatch *watch)
{
	watch->deaf = true;
	watch->deaf_at = watch->count;
}

/* Watches the directory of path in a hierarchy. True: it is there and was not watched before. */
static bool add_directory(struct cgroupwatch *watch, unsigned root, const char *path)
{
	char full[PATH_MAX];
	size_t len = strlen(path) + 1;
	struct directory *directory;
	int wd;

	if (watch->count == CGROUPWATCH_MAX)
		grow_deaf(watch);
	if (watch->count == CGROUPWATCH_MAX ||
	    (size_t)snprintf(full, sizeof(full), "%s%s", watch->roots[root], path) >= sizeof(full))
		return false;
	wd = inotify_add_watch(watch->fd, full,
			       IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR | IN_DONT_FOLLOW);
	if (wd < 0) {
		if (errno == ENOSPC || errno == ENOMEM)
			grow_deaf(watch);
		return false;
	}
	directory = *find(watch, wd);
	if (directory != NULL) {
		directory->walk = watch->walk;
		return false;
	}
	directory = malloc(sizeof(*directory) + len);
	if (directory == NULL) {
		grow_deaf(watch);
		inotify_rm_watch(watch->fd, wd);
		return false;
	}
	*directory = (struct directory){ .wd = wd, .root = root, .walk = watch->walk };
	memcpy(directory->path, path, len);
	enter(watch, directory);
	return true;
}

void cgroupwatch_begin(struct cgroupwatch *watch)
{
	if (!watch->wants_all && !watch->walking)
		return;
	watch->wants_all = watch->deaf = false;
	watch->walking = true;
	watch->walk++;
}

void cgroupwatch_add(struct cgroupwatch *watch, const char *path)
{
	for (unsigned root = 0; watch->walking && root < watch->root_count; root++)
		add_directory(watch, root, path);
}

void cgroupwatch_has_all(struct cgroupwatch *watch)
{
	if (!watch->walking)
		return;
	watch->walking = false;
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct directory *directory = watch->buckets[i], *next; directory != NULL; directory = next) {
			next = directory->next;
			if (directory->walk != watch->walk)
				give_back(watch, directory);
		}
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

/* The path of what is called name in parent; false: it is too long. */
static bool path_in(const char *parent, const char *name, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < PATH_MAX;
}

static void come(struct cgroupwatch *watch, unsigned root, const char *parent, const char *name, mono_t now, int depth)
{
	char path[PATH_MAX];

	if (depth == DEPTH_MAX || !path_in(parent, name, path)) {
		watch->lost = true;
		return;
	}
	enqueue(watch, path, now);
	if (add_directory(watch, root, path))
		list_inside(watch, root, path, now, depth + 1);
}

static void go(struct cgroupwatch *watch, unsigned root, const char *parent, const char *name)
{
	char path[PATH_MAX];
	struct directory *directory = path_in(parent, name, path) ? find_path(watch, root, path) : NULL;

	if (directory != NULL)
		give_back(watch, directory);
}

static void take_event(struct cgroupwatch *watch, const struct inotify_event *event, mono_t now)
{
	struct directory *directory = *find(watch, event->wd);

	watch->lost |= (event->mask & IN_Q_OVERFLOW) != 0;
	if (directory == NULL)
		return;
	if (event->mask & IN_IGNORED)
		forget(watch, directory);
	else if (!(event->mask & IN_ISDIR) || event->len == 0)
		return;
	else if (event->mask & (IN_DELETE | IN_MOVED_FROM))
		go(watch, directory->root, directory->path, event->name);
	else
		come(watch, directory->root, directory->path, event->name, now, 0);
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
			watch->heard++;
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

uint64_t cgroupwatch_heard(const struct cgroupwatch *watch)
{
	return watch->heard;
}

bool cgroupwatch_next(const struct cgroupwatch *watch, mono_t *ret)
{
	if (watch->waiting_count > 0)
		*ret = watch->waiting[0].due;
	return watch->waiting_count > 0;
}

size_t cgroupwatch_count(const struct cgroupwatch *watch)
{
	return watch->count;
}
