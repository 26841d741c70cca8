/*
 * spool.c: one rename makes an incident, one rename unmakes it.
 *
 * The idea: a directory is filled under a temporary name and gets its final one when all of it is on the disk; one
 * that is to go gets a temporary name first and is then emptied. So whoever lists final names sees whole incidents at
 * any moment, after a crash too, and everything under a temporary name that nobody holds locked is rubbish.
 *
 * Who is alive is asked of flock(2), which ends with its holder: a writer locks its draft for as long as it lives. The
 * lock of the spool itself keeps a sweep away from a draft that was made but is not locked yet.
 *
 * Rejected: an index file, which could disagree with the directory; names as the only source of severity, which would
 * make them unreadable.
 */
#include "spool.h"
#include "dirlist.h"
#include "dirtree.h"
#include "incident_json.h"
#include "manifest.h"
#include "scope.h"
#include "sink.h"
#include "wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#define BLOCK_BYTES 4096u
#define NUMBER_MAX 9999u /* incidents of one target and rule within a millisecond */
#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_SUFFIX))

struct spool {
	int dirfd;
	struct retention_limits limits;
	size_t adopted; /* when it was opened */
};

struct spool_draft {
	struct spool *spool;
	int dirfd; /* locked */
	char name[INCIDENT_NAME_MAX + 1];
	char temporary[TEMPORARY_MAX];
};

static void set_temporary(char ret[static TEMPORARY_MAX], const char *name)
{
	snprintf(ret, TEMPORARY_MAX, "%s" SPOOL_SUFFIX, name);
}

/* Against a sweep or another writer of this spool, in this process or another; held for a moment only. 0 or -errno. */
static int lock(const struct spool *spool)
{
	while (flock(spool->dirfd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void unlock(const struct spool *spool)
{
	flock(spool->dirfd, LOCK_UN);
}

/* ---- leftovers ---- */

struct sweep {
	int dirfd;
	size_t removed;
	size_t adopted;
};

static bool is_temporary(const char *name)
{
	char final[TEMPORARY_MAX];
	size_t len = strlen(name), suffix = sizeof(SPOOL_SUFFIX) - 1;

	if (len <= suffix || len >= sizeof(final) || strcmp(name + len - suffix, SPOOL_SUFFIX) != 0)
		return false;
	memcpy(final, name, len - suffix);
	final[len - suffix] = '\0';
	return incident_name_ok(final);
}

/* A draft that was noted (spool_note) says what fired, and holds what was collected then: as much as there will ever be. */
static bool adopt(const struct sweep *sweep, int fd, const char *temporary)
{
	char name[TEMPORARY_MAX];
	struct incident incident;

	snprintf(name, sizeof(name), "%.*s", (int)(strlen(temporary) - strlen(SPOOL_SUFFIX)), temporary);
	if (incident_json_read(fd, &incident) < 0)
		return false;
	unlinkat(fd, MANIFEST_NAME, 0); /* it died while it was sealing */
	return manifest_write(fd) == 0 && renameat(sweep->dirfd, temporary, sweep->dirfd, name) == 0;
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
		sweep->adopted++;
	else if (dirtree_remove(sweep->dirfd, name) == 0)
		sweep->removed++;
	return 0;
}

static int sweep_leftovers(struct spool *spool, size_t *ret)
{
	struct sweep sweep = { .dirfd = spool->dirfd };
	int r;

	r = lock(spool);
	if (r < 0)
		return r;
	r = dirlist_each(spool->dirfd, sweep_entry, &sweep);
	unlock(spool);
	if (r < 0)
		return r;
	if (ret)
		*ret = sweep.removed;
	spool->adopted = sweep.adopted;
	return 0;
}

static void release_spool(struct spool **spool)
{
	spool_free(*spool);
}

int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept)
{
	AUTO(release_spool) struct spool *spool = calloc(1, sizeof(*spool));
	int r;

	if (!spool)
		return -ENOMEM;
	spool->dirfd = -1;
	spool->limits = *limits;

	r = dirtree_make(path);
	if (r < 0)
		return r;
	spool->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool->dirfd < 0)
		return -errno;
	r = sweep_leftovers(spool, ret_swept);
	if (r < 0)
		return r;
	*ret = TAKE(spool);
	return 0;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	if (spool->dirfd >= 0)
		close(spool->dirfd);
	free(spool);
}

/* 0 or -errno. */
static int free_bytes(const struct spool *spool, uint64_t *ret)
{
	struct statvfs fs;

	if (fstatvfs(spool->dirfd, &fs) < 0)
		return -errno;
	*ret = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

bool spool_predict_ok(const struct spool *spool, uint64_t expected_bytes)
{
	uint64_t left = 0, wanted;

	return free_bytes(spool, &left) == 0 &&
	       !__builtin_add_overflow(spool->limits.min_free_bytes, expected_bytes, &wanted) && left >= wanted;
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

/* "20261120T031502.123Z-...", which incident_name_ok has seen. */
static wall_t name_time(const char *name)
{
	struct tm utc = { 0 };
	unsigned milliseconds = 0;

	if (sscanf(name, "%4d%2d%2dT%2d%2d%2d.%3u", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour, &utc.tm_min,
		   &utc.tm_sec, &milliseconds) != 7)
		return (wall_t){ 0 };
	utc.tm_year -= 1900;
	utc.tm_mon -= 1;

	time_t seconds = timegm(&utc);

	return (wall_t){ seconds < 0 ? 0 : (uint64_t)seconds * NS_PER_S + milliseconds * NS_PER_MS };
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
	*entry = (struct retention_entry){ .wall = name_time(name), .bytes = sum.bytes, .severity = severity };
	memcpy(entry->name, name, strlen(name));
	return 0;
}

int spool_list(const struct spool *spool, struct retention_entry **ret, size_t *ret_count)
{
	struct listing listing = { .dirfd = spool->dirfd };
	int r;

	r = dirlist_each(spool->dirfd, list_entry, &listing);
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

/* ---- an incident that is being written ---- */

static void free_draft(struct spool_draft *draft)
{
	if (draft->dirfd >= 0)
		close(draft->dirfd);
	free(draft);
}

/* 0; -EEXIST: that name is taken; -errno. The lock of the spool is held. */
static int make_directory(struct spool_draft *draft)
{
	int parent = draft->spool->dirfd, r;
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
	struct spool_draft *draft = calloc(1, sizeof(*draft));
	int r;

	if (!draft)
		return -ENOMEM;
	draft->spool = spool;
	draft->dirfd = -1;

	r = lock(spool);
	if (r == 0) {
		r = find_number(draft, stem);
		unlock(spool);
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
	dirtree_remove(draft->spool->dirfd, draft->temporary); /* else the next sweep does it */
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

size_t spool_adopted(const struct spool *spool)
{
	return spool->adopted;
}

/* Everything but the last step. manifest_write brings the files to the disk. */
static int put_in_place(const struct spool_draft *draft, const struct incident *incident)
{
	int parent = draft->spool->dirfd;
	int r;

	r = write_incident(draft->dirfd, incident);
	if (r < 0)
		return r;
	r = manifest_write(draft->dirfd);
	if (r < 0)
		return r;
	if (fsync(draft->dirfd) < 0)
		return -errno;
	return renameat(parent, draft->temporary, parent, draft->name) < 0 ? -errno : 0;
}

int spool_seal(struct spool_draft *draft, struct incident *incident)
{
	int r;

	memcpy(incident->id, draft->name, sizeof(incident->id));
	r = put_in_place(draft, incident);
	if (r < 0) {
		spool_abort(draft);
		return r;
	}
	r = fsync(draft->spool->dirfd) < 0 ? -errno : 0;
	free_draft(draft);
	return r;
}

/* ---- retention ---- */

static int remove_sealed(const struct spool *spool, const char *name)
{
	char temporary[TEMPORARY_MAX];

	set_temporary(temporary, name);
	if (renameat(spool->dirfd, name, spool->dirfd, temporary) < 0)
		return -errno;
	return dirtree_remove(spool->dirfd, temporary);
}

int spool_enforce(struct spool *spool, wall_t now,
		  void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why), void *ctx)
{
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_FREE enum retention_reason *reasons = NULL;
	uint64_t left = UINT64_MAX;
	size_t count;
	int r, first = 0;

	r = spool_list(spool, &entries, &count);
	if (r < 0 || count == 0)
		return r;
	reasons = calloc(count, sizeof(*reasons));
	if (!reasons)
		return -ENOMEM;
	r = free_bytes(spool, &left);
	if (r < 0)
		return r;

	retention_choose(&spool->limits, now, left, entries, reasons, count);
	for (size_t i = 0; i < count; i++) {
		if (reasons[i] == RETENTION_KEEP)
			continue;
		r = remove_sealed(spool, entries[i].name);
		if (r < 0 && r != -ENOENT)
			first = first ? first : r;
		else if (removed)
			removed(ctx, &entries[i], reasons[i]);
	}
	return first;
}
