/*
 * spooldir.c: who is alive is asked of flock(2), which ends with its holder: a writer locks its draft for as long as it lives, and the
 * sweep takes what it can lock. The lock of the directory itself keeps a sweep away from a draft that was made but is not locked yet.
 *
 * A descriptor outlives the name of its directory: what is written through it then is lost to everybody. So before anything new is begun
 * the name is compared with the descriptor.
 */
#include "spooldir.h"

#include "dirlist.h"
#include "dirtree.h"
#include "incident_json.h"
#include "manifest.h"
#include "scope.h"
#include "strays.h"
#include "streamseal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOLDIR_SUFFIX))

struct spooldir {
	int fd;
	unsigned holders;
};

int spooldir_lock(const struct spooldir *dir)
{
	while (flock(dir->fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

void spooldir_unlock(const struct spooldir *dir)
{
	flock(dir->fd, LOCK_UN);
}

int spooldir_fd(const struct spooldir *dir)
{
	return dir->fd;
}

struct spooldir *spooldir_ref(struct spooldir *dir)
{
	dir->holders++;
	return dir;
}

void spooldir_unref(struct spooldir *dir)
{
	if (!dir || --dir->holders > 0)
		return;
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir);
}

int spooldir_is_at(const struct spooldir *dir, const char *path)
{
	struct stat named, open;

	if (stat(path, &named) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (fstat(dir->fd, &open) < 0)
		return -errno;
	return named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

/* ---- leftovers ---- */

struct sweep {
	int dirfd;
	struct spooldir_swept swept;
};

static bool is_temporary(const char *name)
{
	char final[TEMPORARY_MAX];
	size_t len = strlen(name), suffix = sizeof(SPOOLDIR_SUFFIX) - 1;

	if (len <= suffix || len >= sizeof(final) || strcmp(name + len - suffix, SPOOLDIR_SUFFIX) != 0)
		return false;
	memcpy(final, name, len - suffix);
	final[len - suffix] = '\0';
	return incident_name_ok(final);
}

/* Gives the samples the end that their writer could not write. What cannot be closed is kept as it is: a reader says what is missing. */
static void close_samples(int dirfd)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && streamseal(fd) == 0)
		fsync(fd);
}

/* A draft that was noted (spool_note) says what fired, and holds what was collected then: as much as there will ever be. */
static bool adopt(const struct sweep *sweep, int fd, const char *temporary)
{
	char name[TEMPORARY_MAX];
	struct incident incident;

	snprintf(name, sizeof(name), "%.*s", (int)(strlen(temporary) - strlen(SPOOLDIR_SUFFIX)), temporary);
	if (incident_json_read(fd, &incident) < 0)
		return false;
	unlinkat(fd, MANIFEST_NAME, 0); /* it died while it was sealing */
	close_samples(fd);
	if (manifest_write(fd) < 0) {
		/* A command may have left what cannot be listed. */
		unlinkat(fd, MANIFEST_NAME, 0);
		if (strays_settle(fd, UINT64_MAX, &incident) < 0 || manifest_write(fd) < 0)
			return false;
	}
	return renameat(sweep->dirfd, temporary, sweep->dirfd, name) == 0;
}

/* What cannot be removed today may be tomorrow: that stops nobody from working. */
static int sweep_entry(void *ctx, const char *name)
{
	struct sweep *sweep = ctx;
	AUTO_CLOSE int fd = -1;

	if (!is_temporary(name))
		return 0;
	fd = openat(sweep->dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	if (adopt(sweep, fd, name))
		sweep->swept.adopted++;
	else if (dirtree_remove(sweep->dirfd, name) == 0)
		sweep->swept.removed++;
	return 0;
}

int spooldir_sweep(const struct spooldir *dir, struct spooldir_swept *ret)
{
	struct sweep sweep = { .dirfd = dir->fd };
	int r = spooldir_lock(dir);

	if (r < 0)
		return r;
	r = dirlist_each(dir->fd, sweep_entry, &sweep);
	spooldir_unlock(dir);
	if (r < 0)
		return r;
	*ret = sweep.swept;
	return 0;
}

static void release(struct spooldir **dir)
{
	spooldir_unref(*dir);
}

int spooldir_open(const char *path, struct spooldir **ret, struct spooldir_swept *ret_swept)
{
	AUTO(release) struct spooldir *dir = calloc(1, sizeof(*dir));
	int r;

	if (!dir)
		return -ENOMEM;
	dir->holders = 1;
	dir->fd = -1;

	r = dirtree_make(path);
	if (r < 0)
		return r;
	dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return -errno;
	r = spooldir_sweep(dir, ret_swept);
	if (r < 0)
		return r;
	*ret = TAKE(dir);
	return 0;
}
