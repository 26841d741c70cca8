/*
 * spool.c: one rename makes an incident, one rename unmakes it.
 *
 * The idea: a directory is filled under a temporary name and gets its final one when all of it is on the disk; one
 * that is to go gets a temporary name first and is then emptied. So whoever lists final names sees whole incidents at
 * any moment, after a crash too, and everything under a temporary name that nobody holds locked is rubbish.
 *
 * The spool is its path; the directory that is open (spooldir.h) is compared with it before each incident, so that one that was removed
 * or replaced is made anew. A draft stays where it was begun, and is sealed where the path leads to then, if that can be done.
 *
 * Rejected: an index file, which could disagree with the directory; severity in the names, which would be unreadable.
 */
#include "spool.h"
#include "dirlist.h"
#include "dirtree.h"
#include "incident_json.h"
#include "manifest.h"
#include "scope.h"
#include "sink.h"
#include "spooldir.h"
#include "wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define BLOCK_BYTES 4096u
#define NUMBER_MAX 9999u /* incidents of one target and rule within a millisecond */
#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_SUFFIX))

struct spool {
	char *path; /* never changes */
	struct spooldir *dir;
	pthread_mutex_t lock; /* of limits, and of nothing else */
	struct retention_limits limits;
	size_t adopted; /* when it was opened */
	bool dirty;     /* a draft could not be removed */
};

struct spool_draft {
	struct spool *spool;
	struct spooldir *parent; /* the directory of the spool when it was begun */
	int dirfd;               /* locked */
	char name[INCIDENT_NAME_MAX + 1];
	char temporary[TEMPORARY_MAX];
};

static void set_temporary(char ret[static TEMPORARY_MAX], const char *name)
{
	snprintf(ret, TEMPORARY_MAX, "%s" SPOOL_SUFFIX, name);
}

static void release_spool(struct spool **spool)
{
	spool_free(*spool);
}

int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept)
{
	AUTO(release_spool) struct spool *spool = calloc(1, sizeof(*spool));
	struct spooldir_swept swept;
	int r;

	if (!spool)
		return -ENOMEM;
	pthread_mutex_init(&spool->lock, NULL);
	spool->limits = *limits;
	spool->path = strdup(path);
	if (!spool->path)
		return -ENOMEM;
	r = spooldir_open(path, &spool->dir, &swept);
	if (r < 0)
		return r;

	spool->adopted = swept.adopted;
	if (ret_swept)
		*ret_swept = swept.removed;
	*ret = TAKE(spool);
	return 0;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	spooldir_unref(spool->dir);
	pthread_mutex_destroy(&spool->lock);
	free(spool->path);
	free(spool);
}

const char *spool_path(const struct spool *spool)
{
	return spool->path;
}

size_t spool_adopted(const struct spool *spool)
{
	return spool->adopted;
}

/* The directory that the path leads to, made anew if somebody removed it, swept if there is need. 0 or -errno: then it is the one from before. */
static int refresh(struct spool *spool)
{
	struct spooldir_swept swept;
	struct spooldir *dir;
	int r = spooldir_is_at(spool->dir, spool->path);

	if (r > 0 && spool->dirty)
		spool->dirty = spooldir_sweep(spool->dir, &swept) < 0;
	if (r != 0)
		return r < 0 ? r : 0;
	r = spooldir_open(spool->path, &dir, &swept);
	if (r < 0)
		return r;
	spooldir_unref(spool->dir);
	spool->dir = dir;
	return 0;
}

/* ---- limits ---- */

void spool_set_limits(struct spool *spool, const struct retention_limits *limits)
{
	pthread_mutex_lock(&spool->lock);
	spool->limits = *limits;
	pthread_mutex_unlock(&spool->lock);
}

static struct retention_limits limits_of(struct spool *spool)
{
	struct retention_limits limits;

	pthread_mutex_lock(&spool->lock);
	limits = spool->limits;
	pthread_mutex_unlock(&spool->lock);
	return limits;
}

/* Free bytes where the directory is, or would be made: of the nearest one above that exists. 0 or -errno. */
static int free_bytes(const struct spool *spool, uint64_t *ret)
{
	char path[PATH_MAX], *slash;
	struct statvfs fs;

	snprintf(path, sizeof(path), "%s", spool->path);
	while (statvfs(path, &fs) < 0) {
		slash = strrchr(path, '/');
		if (errno != ENOENT || !slash || slash == path)
			return -errno;
		*slash = '\0';
	}
	*ret = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

bool spool_predict_ok(struct spool *spool, uint64_t expected_bytes)
{
	uint64_t left = 0, wanted;

	pthread_mutex_lock(&spool->lock);
	spool->limits.next_bytes = expected_bytes;
	wanted = retention_free_bytes(&spool->limits);
	pthread_mutex_unlock(&spool->lock);
	return free_bytes(spool, &left) < 0 || left >= wanted;
}

/* ---- the list ---- */

struct listing {
	int dirfd;
	struct retention_entry *entries;
	size_t count, room;
};

struct sum {
	int dirfd;
	uint64_t bytes;
};

static int add_size(void *ctx, const char *name)
{
	struct sum *sum = ctx;
	struct stat st;

	if (fstatat(sum->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0)
		sum->bytes += ((uint64_t)st.st_size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	return 0;
}

/* What cannot be understood counts as mild; what could not be read for want of memory must not. */
static int read_severity(int dirfd, double *ret)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	int r;

	if (!incident)
		return -ENOMEM;
	r = incident_json_read(dirfd, incident);
	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
		return r;
	*ret = r < 0 ? 0 : incident->rule.severity;
	return 0;
}

static int grow(struct listing *listing)
{
	size_t room = listing->room ? 2 * listing->room : 64;
	struct retention_entry *entries;

	if (listing->count < listing->room)
		return 0;
	entries = realloc(listing->entries, room * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	listing->entries = entries;
	listing->room = room;
	return 0;
}

/* A directory of ours with a MANIFEST: whatever else lies here is none of our business. */
static int list_entry(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	AUTO_CLOSE int fd = -1;
	struct retention_entry *entry;
	double severity = 0;
	struct sum sum;
	int r;

	if (!incident_name_ok(name) || listing->count == SPOOL_ENTRIES_MAX)
		return 0;
	fd = openat(listing->dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || faccessat(fd, MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = grow(listing);
	if (r < 0)
		return r;
	r = read_severity(fd, &severity);
	if (r < 0)
		return r;
	sum = (struct sum){ .dirfd = fd };
	r = dirlist_each(fd, add_size, &sum);
	if (r < 0)
		return r;
	entry = &listing->entries[listing->count++];
	*entry = (struct retention_entry){ .wall = incident_name_wall(name), .bytes = sum.bytes, .severity = severity };
	memcpy(entry->name, name, strlen(name));
	return 0;
}

int spool_list_at(int dirfd, struct retention_entry **ret, size_t *ret_count)
{
	struct listing listing = { .dirfd = dirfd };
	int r = dirlist_each(listing.dirfd, list_entry, &listing);

	if (r < 0) {
		free(listing.entries);
		return r;
	}
	if (listing.count > 0)
		qsort(listing.entries, listing.count, sizeof(listing.entries[0]), retention_compare_age);
	*ret = listing.entries;
	*ret_count = listing.count;
	return 0;
}

int spool_list(const struct spool *spool, struct retention_entry **ret, size_t *ret_count)
{
	return spool_list_at(spooldir_fd(spool->dir), ret, ret_count);
}

/* ---- an incident that is being written ---- */

static void free_draft(struct spool_draft *draft)
{
	if (draft->dirfd >= 0)
		close(draft->dirfd);
	spooldir_unref(draft->parent);
	free(draft);
}

/* 0; -EEXIST: that name is taken; -errno. The lock of the spool is held. */
static int make_directory(struct spool_draft *draft)
{
	int parent = spooldir_fd(draft->parent), r;
	struct stat st;

	if (fstatat(parent, draft->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (mkdirat(parent, draft->temporary, 0750) < 0)
		return -errno;
	draft->dirfd = openat(parent, draft->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (draft->dirfd >= 0 && flock(draft->dirfd, LOCK_EX | LOCK_NB) == 0)
		return 0;

	r = -errno;
	unlinkat(parent, draft->temporary, AT_REMOVEDIR);
	return r == -EEXIST ? -EIO : r;
}

static int find_number(struct spool_draft *draft, const char *stem)
{
	int r = -EEXIST;

	for (unsigned n = 1; r == -EEXIST && n <= NUMBER_MAX; n++) {
		int len = snprintf(draft->name, sizeof(draft->name), "%s-%u", stem, n);

		if (len < 0 || (size_t)len >= sizeof(draft->name) || !incident_name_ok(draft->name))
			return -EINVAL;
		set_temporary(draft->temporary, draft->name);
		r = make_directory(draft);
	}
	return r;
}

int spool_begin(struct spool *spool, const char *stem, struct spool_draft **ret)
{
	struct spool_draft *draft;
	int r = refresh(spool);

	if (r < 0)
		return r;
	draft = calloc(1, sizeof(*draft));
	if (!draft)
		return -ENOMEM;
	draft->spool = spool;
	draft->parent = spooldir_ref(spool->dir);
	draft->dirfd = -1;

	r = spooldir_lock(draft->parent);
	if (r == 0) {
		r = find_number(draft, stem);
		spooldir_unlock(draft->parent);
	}
	if (r < 0) {
		free_draft(draft);
		return r;
	}
	*ret = draft;
	return 0;
}

int spool_draft_dirfd(const struct spool_draft *draft)
{
	return draft->dirfd;
}

const char *spool_draft_name(const struct spool_draft *draft)
{
	return draft->name;
}

void spool_abort(struct spool_draft *draft)
{
	if (!draft)
		return;
	unlinkat(draft->dirfd, INCIDENT_FILE, 0); /* no sweep shall take it for one that is worth sealing */
	draft->spool->dirty |= dirtree_remove(spooldir_fd(draft->parent), draft->temporary) < 0;
	free_draft(draft);
}

static int write_incident(int dirfd, const struct incident *incident)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_BYTES_MAX };
	int r = incident_json_write(incident, sink_buffer(&text));

	return r < 0 ? r : wholefile_replace(dirfd, INCIDENT_FILE, text.data, text.len);
}

int spool_note(struct spool_draft *draft, struct incident *incident)
{
	memcpy(incident->id, draft->name, sizeof(incident->id));
	return write_incident(draft->dirfd, incident);
}

bool spool_lost(const struct spool_draft *draft)
{
	struct stat st;

	return fstat(draft->dirfd, &st) == 0 && st.st_nlink == 0;
}

int spool_write(struct spool_draft *draft, struct incident *incident)
{
	int r;

	if (unlinkat(draft->dirfd, MANIFEST_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	r = spool_note(draft, incident);
	if (r < 0)
		return r;
	r = manifest_write(draft->dirfd); /* brings the files to the disk */
	if (r < 0)
		return r;
	return fsync(draft->dirfd) < 0 ? -errno : 0;
}

/* The directory that it is in after the rename, to be synced, in *ret. 0 or -errno. */
static int put_in_place(const struct spool_draft *draft, int *ret)
{
	int from = spooldir_fd(draft->parent), to;

	refresh(draft->spool);
	to = spooldir_fd(draft->spool->dir);
	if (to != from && renameat(from, draft->temporary, to, draft->name) == 0)
		from = to;
	else if (renameat(from, draft->temporary, from, draft->name) < 0)
		return -errno;
	*ret = from;
	return 0;
}

int spool_publish(struct spool_draft *draft)
{
	int parent = -1, r = put_in_place(draft, &parent);

	if (r < 0) {
		spool_abort(draft);
		return r;
	}
	r = fsync(parent) < 0 ? -errno : 0;
	free_draft(draft);
	return r;
}

int spool_seal(struct spool_draft *draft, struct incident *incident)
{
	int r = spool_write(draft, incident);

	if (r == 0)
		return spool_publish(draft);
	spool_abort(draft);
	return r;
}

/* ---- retention ---- */

static int remove_sealed(int dirfd, const char *name)
{
	char temporary[TEMPORARY_MAX];

	set_temporary(temporary, name);
	if (renameat(dirfd, name, dirfd, temporary) < 0)
		return -errno;
	return dirtree_remove(dirfd, temporary);
}

int spool_enforce(struct spool *spool, wall_t now,
		  void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why), void *ctx)
{
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_FREE enum retention_reason *reasons = NULL;
	struct retention_limits limits = limits_of(spool);
	uint64_t left = UINT64_MAX;
	size_t count;
	int r = refresh(spool), first = 0;

	if (r < 0)
		return r;
	r = spool_list(spool, &entries, &count);
	if (r < 0 || count == 0)
		return r;
	reasons = calloc(count, sizeof(*reasons));
	if (!reasons)
		return -ENOMEM;
	r = free_bytes(spool, &left);
	if (r < 0)
		return r;

	retention_choose(&limits, now, left, entries, reasons, count);
	for (size_t i = 0; i < count; i++) {
		if (reasons[i] == RETENTION_KEEP)
			continue;
		r = remove_sealed(spooldir_fd(spool->dir), entries[i].name);
		if (r < 0 && r != -ENOENT)
			first = first ? first : r;
		else if (removed)
			removed(ctx, &entries[i], reasons[i]);
	}
	return first;
}
