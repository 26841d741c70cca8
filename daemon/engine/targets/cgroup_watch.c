/*
 * cgroup_watch.c: an inotify watch on each directory, found again by its number, or by its path
 * when it is removed. A new directory is watched first and listed then: what was made in it before
 * the watch is in the list, what is made later is an event, and what is both is harmless.
 *
 * The watch of a cgroup directory that was removed stays: the kernel never sends IN_IGNORED for it,
 * and keeps the inode. So the event of its parent removes the watch; where that was lost, the next
 * walk removes those that it did not meet. A directory that was removed and made again may lose its
 * new watch to the old event; the event of its creation, which is later, gives it another.
 *
 * With cgroup v1 the same cgroup is made in one hierarchy after the other, and a target that is
 * opened too early lacks some files for good: hence the 5 ms that each new one waits.
 */
#include "daemon/engine/targets/cgroup_watch.h"

#include "lib/base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* Watches; the kernel's own limit (fs.inotify.max_user_watches) is some 8,000 or more. */
#define CGROUP_WATCH_MAX 16384u

#define ROOTS_MAX (1 + CGROUP_CONTROLLERS)
#define WAITING_MAX 256u
#define DEPTH_MAX 32
#define MOMENT_NS (5 * NS_PER_MS)

/* Reads at a time: beyond them the queue overflows, which is a loss. */
#define READS_MAX 64
#define EVENTS_BYTES 16384u

struct directory {
	struct map_node wd_node, path_node;
	int wd;
	unsigned root;
	uint32_t walk; /* the last that met it, or during or after which it was made */
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
	bool walking;                        /* it was begun, and is not over */
	uint32_t walk;                       /* how many were begun */
	bool incomplete;                     /* there was a directory that could not be watched */
	size_t incomplete_count;             /* with so many watches */
	struct map wds, paths;               /* of directories */
	struct waiting waiting[WAITING_MAX]; /* in the order of due */
	size_t waiting_count;
	uint64_t events;
};

static void add_root(struct cgroup_watch *watch, const char *root)
{
	for (unsigned i = 0; root != NULL && i < watch->root_count; i++)
		if (strcmp(watch->roots[i], root) == 0)
			return;
	if (root != NULL)
		watch->roots[watch->root_count++] = root;
}

int cgroup_watch_new(const struct cgroup_mounts *mounts, struct cgroup_watch **ret)
{
	struct cgroup_watch *watch = calloc(1, sizeof(*watch));
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
		cgroup_watch_free(watch);
		return r;
	}
	*ret = watch;
	return 0;
}

void cgroup_watch_free(struct cgroup_watch *watch)
{
	if (watch == NULL)
		return;
	MAP_FOR_EACH(node, &watch->wds)
		free(MAP_ENTRY(node, struct directory, wd_node));
	map_release(&watch->wds);
	map_release(&watch->paths);
	while (watch->waiting_count > 0)
		free(watch->waiting[--watch->waiting_count].path);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

/* ---- directories ---- */

static uint64_t hash_wd(int wd)
{
	return map_hash(&wd, sizeof(wd));
}

static uint64_t hash_path(unsigned root, const char *path)
{
	return map_hash(path, strlen(path)) + root;
}

static struct directory *find_wd(const struct cgroup_watch *watch, int wd)
{
	for (struct map_node *node = map_first(&watch->wds, hash_wd(wd)); node; node = map_next(node)) {
		struct directory *directory = MAP_ENTRY(node, struct directory, wd_node);

		if (directory->wd == wd)
			return directory;
	}
	return NULL;
}

static struct directory *find_path(const struct cgroup_watch *watch, unsigned root, const char *path)
{
	for (struct map_node *node = map_first(&watch->paths, hash_path(root, path)); node; node = map_next(node)) {
		struct directory *directory = MAP_ENTRY(node, struct directory, path_node);

		if (directory->root == root && strcmp(directory->path, path) == 0)
			return directory;
	}
	return NULL;
}

/* Not its watch. Where there was no room for all there may be some now. */
static void forget_directory(struct cgroup_watch *watch, struct directory *directory)
{
	map_remove(&watch->wds, &directory->wd_node);
	map_remove(&watch->paths, &directory->path_node);
	watch->wants_all |= watch->incomplete && watch->wds.count < watch->incomplete_count / 2;
	free(directory);
}

static void remove_watch(struct cgroup_watch *watch, struct directory *directory)
{
	inotify_rm_watch(watch->fd, directory->wd);
	forget_directory(watch, directory);
}

static void note_incomplete(struct cgroup_watch *watch)
{
	watch->incomplete = true;
	watch->incomplete_count = watch->wds.count;
}

/* Watches the directory of path in a hierarchy. True: it is there and was not watched before. */
static bool add_directory(struct cgroup_watch *watch, unsigned root, const char *path)
{
	char full[PATH_MAX];
	size_t len = strlen(path) + 1;
	struct directory *directory;
	int wd;

	if (watch->wds.count == CGROUP_WATCH_MAX)
		note_incomplete(watch);
	if (watch->wds.count == CGROUP_WATCH_MAX ||
	    (size_t)snprintf(full, sizeof(full), "%s%s", watch->roots[root], path) >= sizeof(full))
		return false;
	wd = inotify_add_watch(watch->fd, full,
			       IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR | IN_DONT_FOLLOW);
	if (wd < 0) {
		if (errno == ENOSPC || errno == ENOMEM)
			note_incomplete(watch);
		return false;
	}
	directory = find_wd(watch, wd);
	if (directory != NULL) {
		directory->walk = watch->walk;
		return false;
	}
	directory = map_reserve(&watch->wds, watch->wds.count + 1) == 0 &&
				    map_reserve(&watch->paths, watch->wds.count + 1) == 0
			    ? malloc(sizeof(*directory) + len)
			    : NULL;
	if (directory == NULL) {
		note_incomplete(watch);
		inotify_rm_watch(watch->fd, wd);
		return false;
	}
	*directory = (struct directory){ .wd = wd, .root = root, .walk = watch->walk };
	memcpy(directory->path, path, len);
	map_insert(&watch->wds, &directory->wd_node, hash_wd(wd));
	map_insert(&watch->paths, &directory->path_node, hash_path(root, path));
	return true;
}

static void walk_begin(struct cgroup_watch *watch)
{
	if (!watch->wants_all && !watch->walking)
		return;
	watch->wants_all = watch->incomplete = false;
	watch->walking = true;
	watch->walk++;
}

static void walk_end(struct cgroup_watch *watch)
{
	if (!watch->walking)
		return;
	watch->walking = false;
	MAP_FOR_EACH(node, &watch->wds) {
		struct directory *directory = MAP_ENTRY(node, struct directory, wd_node);

		if (directory->walk != watch->walk)
			remove_watch(watch, directory);
	}
}

struct watch_walk {
	struct cgroup_watch *watch;
	int (*visit)(void *ctx, const char *path);
	void *ctx;
};

static int walk_visit(void *ctx, const char *path)
{
	const struct watch_walk *walk = ctx;

	for (unsigned root = 0; walk->watch->walking && root < walk->watch->root_count; root++)
		add_directory(walk->watch, root, path);

	return walk->visit(walk->ctx, path);
}

int cgroup_watch_walk(struct cgroup_watch *watch, const struct cgroup_mounts *mounts,
		      int (*visit)(void *ctx, const char *path), void *ctx)
{
	struct watch_walk walk = { watch, visit, ctx };

	if (!watch)
		return cgroup_walk(mounts, visit, ctx);

	walk_begin(watch);

	int r = cgroup_walk(mounts, walk_visit, &walk);

	if (r == 0)
		walk_end(watch);

	return r;
}

/* ---- events ---- */

static void enqueue(struct cgroup_watch *watch, const char *path, mono_t now)
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

static void on_created(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name, mono_t now,
		       int depth);

/* Directories that were made in it before it was watched. */
static void list_inside(struct cgroup_watch *watch, unsigned root, const char *path, mono_t now, int depth)
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
			on_created(watch, root, path, item->d_name, now, depth);
	closedir(dir);
}

/* The path of name in parent; false: it is too long. */
static bool path_in(const char *parent, const char *name, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < PATH_MAX;
}

static void on_created(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name, mono_t now,
		       int depth)
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

static void on_removed(struct cgroup_watch *watch, unsigned root, const char *parent, const char *name)
{
	char path[PATH_MAX];
	struct directory *directory = path_in(parent, name, path) ? find_path(watch, root, path) : NULL;

	if (directory != NULL)
		remove_watch(watch, directory);
}

static void on_event(struct cgroup_watch *watch, const struct inotify_event *event, mono_t now)
{
	struct directory *directory = find_wd(watch, event->wd);

	watch->lost |= (event->mask & IN_Q_OVERFLOW) != 0;
	if (directory == NULL)
		return;
	if (event->mask & IN_IGNORED)
		forget_directory(watch, directory);
	else if (!(event->mask & IN_ISDIR) || event->len == 0)
		return;
	else if (event->mask & (IN_DELETE | IN_MOVED_FROM))
		on_removed(watch, directory->root, directory->path, event->name);
	else
		on_created(watch, directory->root, directory->path, event->name, now, 0);
}

static void read_events(struct cgroup_watch *watch, mono_t now)
{
	_Alignas(struct inotify_event) char buf[EVENTS_BYTES];

	for (int reads = 0; reads < READS_MAX; reads++) {
		ssize_t len = read(watch->fd, buf, sizeof(buf));

		if (len <= 0)
			return;
		for (size_t at = 0; at < (size_t)len;) {
			const struct inotify_event *event = (const void *)(buf + at);

			at += sizeof(*event) + event->len;
			watch->events++;
			on_event(watch, event, now);
		}
	}
}

bool cgroup_watch_read(struct cgroup_watch *watch, mono_t now, void (*visit)(void *ctx, const char *path), void *ctx)
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

struct cgroup_watch_state cgroup_watch_state(const struct cgroup_watch *watch)
{
	return (struct cgroup_watch_state){
		.fd = watch->fd,
		.complete = !watch->wants_all && !watch->walking && !watch->incomplete,
		.waiting = watch->waiting_count > 0,
		.due = watch->waiting[0].due,
		.events = watch->events,
	};
}
