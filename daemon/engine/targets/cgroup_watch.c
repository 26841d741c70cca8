/*
 * cgroup_watch.c: a watch on each directory, found again by its number, or by its path when it is
 * removed. A directory that came is watched first and listed then: what was made in it before the
 * watch is in the list, what is made later is heard, and what is both is harmless.
 *
 * The watch of a directory of cgroups that was removed stays: the kernel never says IN_IGNORED of
 * it, and keeps the inode. So its parent says that it went, and the watch is given back; where that
 * was lost, the next walk gives back those that it did not meet. A directory that went and came
 * again may lose its new watch to the old news; the news of its coming, which are later, give it
 * another.
 *
 * With cgroup v1 the same cgroup is made in one hierarchy after the other, and who opens its files
 * too early misses some for good: hence the moment that each has to wait.
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

/*
 * Directories; below others it is not heard what comes. The kernel's own limit
 * (fs.inotify.max_user_watches) is some 8,000 and more.
 */
#define CGROUP_WATCH_MAX 4096u

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

struct cgroup_watch {
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

static void add_root(struct cgroup_watch *judged_target, const char *root)
{
	for (unsigned i = 0; root != NULL && i < judged_target->root_count; i++)
		if (strcmp(judged_target->roots[i], root) == 0)
			return;
	if (root != NULL)
		judged_target->roots[judged_target->root_count++] = root;
}

int cgroup_watch_new(const struct cgroup_mounts *mounts, struct cgroup_watch **ret)
{
	struct cgroup_watch *judged_target = calloc(1, sizeof(*judged_target));
	bool v2;
	int r = 0;

	if (judged_target == NULL)
		return -ENOMEM;
	judged_target->fd = -1;
	judged_target->wants_all = true;
	add_root(judged_target, cgroup_mounts_v2(mounts));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		add_root(judged_target, cgroup_mounts_controller(mounts, (enum cgroup_resource)i, &v2));
	if (judged_target->root_count == 0)
		r = -ENOENT;
	if (r == 0) {
		judged_target->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		r = judged_target->fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		cgroup_watch_free(judged_target);
		return r;
	}
	*ret = judged_target;
	return 0;
}

void cgroup_watch_free(struct cgroup_watch *judged_target)
{
	if (judged_target == NULL)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		while (judged_target->buckets[i] != NULL) {
			struct directory *directory = judged_target->buckets[i];

			judged_target->buckets[i] = directory->next;
			free(directory);
		}
	}
	while (judged_target->waiting_count > 0)
		free(judged_target->waiting[--judged_target->waiting_count].path);
	if (judged_target->fd >= 0)
		close(judged_target->fd);
	free(judged_target);
}

int cgroup_watch_fd(const struct cgroup_watch *judged_target)
{
	return judged_target->fd;
}

bool cgroup_watch_wants_all(const struct cgroup_watch *judged_target)
{
	return judged_target->wants_all;
}

bool cgroup_watch_is_complete(const struct cgroup_watch *judged_target)
{
	return !judged_target->wants_all && !judged_target->walking && !judged_target->deaf;
}

/* ---- directories ---- */

static struct directory **find(struct cgroup_watch *judged_target, int wd)
{
	struct directory **at = &judged_target->buckets[(unsigned)wd % BUCKETS];

	while (*at != NULL && (*at)->wd != wd)
		at = &(*at)->next;
	return at;
}

/* FNV-1a. */
static struct directory **bucket_of_path(struct cgroup_watch *judged_target, unsigned root, const char *path)
{
	uint32_t hash = 2166136261u ^ root;

	for (; *path != '\0'; path++)
		hash = (hash ^ (unsigned char)*path) * 16777619u;
	return &judged_target->paths[(hash ^ hash >> 15) % BUCKETS];
}

static struct directory *find_path(struct cgroup_watch *judged_target, unsigned root, const char *path)
{
	struct directory *directory = *bucket_of_path(judged_target, root, path);

	while (directory != NULL && (directory->root != root || strcmp(directory->path, path) != 0))
		directory = directory->next_path;
	return directory;
}

static void enter(struct cgroup_watch *judged_target, struct directory *directory)
{
	struct directory **at = find(judged_target, directory->wd),
			 **path = bucket_of_path(judged_target, directory->root, directory->path);

	directory->next = *at;
	*at = directory;
	directory->next_path = *path;
	*path = directory;
	judged_target->count++;
}

/* Not its watch. Where there was no room for all there may be some now. */
static void forget(struct cgroup_watch *judged_target, struct directory *directory)
{
	struct directory **at = find(judged_target, directory->wd),
			 **path = bucket_of_path(judged_target, directory->root, directory->path);

	*at = directory->next;
	while (*path != directory)
		path = &(*path)->next_path;
	*path = directory->next_path;
	judged_target->count--;
	judged_target->wants_all |= judged_target->deaf && judged_target->count < judged_target->deaf_at / 2;
	free(directory);
}

static void give_back(struct cgroup_watch *judged_target, struct directory *directory)
{
	inotify_rm_watch(judged_target->fd, directory->wd);
	forget(judged_target, directory);
}

static void grow_deaf(struct cgroup_watch *judged_target)
{
	judged_target->deaf = true;
	judged_target->deaf_at = judged_target->count;
}

/* Watches the directory of path in a hierarchy. True: it is there and was not watched before. */
static bool add_directory(struct cgroup_watch *judged_target, unsigned root, const char *path)
{
	char full[PATH_MAX];
	size_t len = strlen(path) + 1;
	struct directory *directory;
	int wd;

	if (judged_target->count == CGROUP_WATCH_MAX)
		grow_deaf(judged_target);
	if (judged_target->count == CGROUP_WATCH_MAX ||
	    (size_t)snprintf(full, sizeof(full), "%s%s", judged_target->roots[root], path) >= sizeof(full))
		return false;
	wd = inotify_add_watch(judged_target->fd, full,
			       IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR | IN_DONT_FOLLOW);
	if (wd < 0) {
		if (errno == ENOSPC || errno == ENOMEM)
			grow_deaf(judged_target);
		return false;
	}
	directory = *find(judged_target, wd);
	if (directory != NULL) {
		directory->walk = judged_target->walk;
		return false;
	}
	directory = malloc(sizeof(*directory) + len);
	if (directory == NULL) {
		grow_deaf(judged_target);
		inotify_rm_watch(judged_target->fd, wd);
		return false;
	}
	*directory = (struct directory){ .wd = wd, .root = root, .walk = judged_target->walk };
	memcpy(directory->path, path, len);
	enter(judged_target, directory);
	return true;
}

void cgroup_watch_begin(struct cgroup_watch *judged_target)
{
	if (!judged_target->wants_all && !judged_target->walking)
		return;
	judged_target->wants_all = judged_target->deaf = false;
	judged_target->walking = true;
	judged_target->walk++;
}

void cgroup_watch_add(struct cgroup_watch *judged_target, const char *path)
{
	for (unsigned root = 0; judged_target->walking && root < judged_target->root_count; root++)
		add_directory(judged_target, root, path);
}

void cgroup_watch_end(struct cgroup_watch *judged_target)
{
	if (!judged_target->walking)
		return;
	judged_target->walking = false;
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct directory *directory = judged_target->buckets[i], *next; directory != NULL;
		     directory = next) {
			next = directory->next;
			if (directory->walk != judged_target->walk)
				give_back(judged_target, directory);
		}
}

/* ---- what comes ---- */

static void enqueue(struct cgroup_watch *judged_target, const char *path, mono_t now)
{
	char *copy;

	for (size_t i = 0; i < judged_target->waiting_count; i++)
		if (strcmp(judged_target->waiting[i].path, path) == 0)
			return;
	copy = judged_target->waiting_count < WAITING_MAX ? strdup(path) : NULL;
	if (copy == NULL)
		judged_target->lost = true;
	else
		judged_target->waiting[judged_target->waiting_count++] =
			(struct waiting){ copy, mono_add(now, MOMENT_NS) };
}

static void come(struct cgroup_watch *judged_target, unsigned root, const char *parent, const char *name, mono_t now,
		 int depth);

/* What was made in it before it was watched. */
static void list_inside(struct cgroup_watch *judged_target, unsigned root, const char *path, mono_t now, int depth)
{
	char full[PATH_MAX];
	const struct dirent *item;
	DIR *dir;

	if ((size_t)snprintf(full, sizeof(full), "%s%s", judged_target->roots[root], path) >= sizeof(full))
		return;
	dir = opendir(full);
	if (dir == NULL)
		return;
	while ((item = readdir(dir)) != NULL)
		if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
			come(judged_target, root, path, item->d_name, now, depth);
	closedir(dir);
}

/* The path of what is called name in parent; false: it is too long. */
static bool path_in(const char *parent, const char *name, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < PATH_MAX;
}

static void come(struct cgroup_watch *judged_target, unsigned root, const char *parent, const char *name, mono_t now,
		 int depth)
{
	char path[PATH_MAX];

	if (depth == DEPTH_MAX || !path_in(parent, name, path)) {
		judged_target->lost = true;
		return;
	}
	enqueue(judged_target, path, now);
	if (add_directory(judged_target, root, path))
		list_inside(judged_target, root, path, now, depth + 1);
}

static void go(struct cgroup_watch *judged_target, unsigned root, const char *parent, const char *name)
{
	char path[PATH_MAX];
	struct directory *directory = path_in(parent, name, path) ? find_path(judged_target, root, path) : NULL;

	if (directory != NULL)
		give_back(judged_target, directory);
}

static void take_event(struct cgroup_watch *judged_target, const struct inotify_event *event, mono_t now)
{
	struct directory *directory = *find(judged_target, event->wd);

	judged_target->lost |= (event->mask & IN_Q_OVERFLOW) != 0;
	if (directory == NULL)
		return;
	if (event->mask & IN_IGNORED)
		forget(judged_target, directory);
	else if (!(event->mask & IN_ISDIR) || event->len == 0)
		return;
	else if (event->mask & (IN_DELETE | IN_MOVED_FROM))
		go(judged_target, directory->root, directory->path, event->name);
	else
		come(judged_target, directory->root, directory->path, event->name, now, 0);
}

static void read_events(struct cgroup_watch *judged_target, mono_t now)
{
	_Alignas(struct inotify_event) char buf[EVENTS_BYTES];

	for (int reads = 0; reads < READS_MAX; reads++) {
		ssize_t len = read(judged_target->fd, buf, sizeof(buf));

		if (len <= 0)
			return;
		for (size_t at = 0; at < (size_t)len;) {
			const struct inotify_event *event = (const void *)(buf + at);

			at += sizeof(*event) + event->len;
			judged_target->heard++;
			take_event(judged_target, event, now);
		}
	}
}

bool cgroup_watch_read(struct cgroup_watch *judged_target, mono_t now, void (*visit)(void *ctx, const char *path),
		       void *ctx)
{
	size_t done = 0;
	bool lost;

	read_events(judged_target, now);
	for (; done < judged_target->waiting_count && mono_diff(now, judged_target->waiting[done].due) >= 0; done++) {
		visit(ctx, judged_target->waiting[done].path);
		free(judged_target->waiting[done].path);
	}
	judged_target->waiting_count -= done;
	memmove(judged_target->waiting, judged_target->waiting + done,
		judged_target->waiting_count * sizeof(judged_target->waiting[0]));
	lost = judged_target->lost;
	judged_target->lost = false;
	judged_target->wants_all |= lost;
	return !lost;
}

uint64_t cgroup_watch_events(const struct cgroup_watch *judged_target)
{
	return judged_target->heard;
}

bool cgroup_watch_next(const struct cgroup_watch *judged_target, mono_t *ret)
{
	if (judged_target->waiting_count > 0)
		*ret = judged_target->waiting[0].due;
	return judged_target->waiting_count > 0;
}

size_t cgroup_watch_count(const struct cgroup_watch *judged_target)
{
	return judged_target->count;
}
