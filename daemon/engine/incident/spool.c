/*
 * spool.c: one rename makes an incident, one rename unmakes it.
 *
 * The idea: a directory is filled under a temporary name and gets its final one when all of it is
 * on the disk; one that is to go gets a temporary name first and is then emptied. So whoever lists
 * final names sees whole incidents at any moment, after a crash too, and everything under a
 * temporary name that nobody holds locked is rubbish.
 *
 * The spool is its path; the directory that is open (spool_directory.h) is compared with it before
 * each incident, so that one that was removed or replaced is made anew. A draft stays where it was
 * begun, and is sealed where the path leads to then, if that can be done.
 *
 * Rejected: an index file, which could disagree with the directory; severity in the names, which
 * would be unreadable.
 */
#include "daemon/engine/incident/spool.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct spool_directory;

/* What became of drafts whose writers have died. */
struct spool_directory_swept {
	size_t removed;
	size_t adopted; /* sealed as far as they had come */
};

/* Directories beyond are not looked at in one call. */
#define SPOOL_ENTRIES_MAX 10000

/* Behind the name of a directory that is being written, or removed. */
#define SPOOL_SUFFIX SPOOL_DIRECTORY_SUFFIX

/*
 * strays.c: a look at all names, then one decision each. A manifest lists plain files with plain
 * names only, so whatever else a command has made would make the incident impossible to seal.
 */

/*
 * Room for the files that are kept, the samples and what else there may be goes before records of
 * what was removed.
 */
#define REMOVED_MAX (INCIDENT_CAPTURES_MAX - LEFTOVER_FILES_MAX - 4)

/* More are removed without a look at their sizes. */
#define CANDIDATES_MAX 256

struct candidate {
	char name[MANIFEST_NAME_MAX + 1];
	uint64_t bytes;
};

struct settling {
	int dirfd;
	struct incident *incident;
	size_t captures; /* those that were there before */
	struct candidate candidates[CANDIDATES_MAX];
	size_t count;
	size_t unlisted; /* removed, and not in the incident one by one */
};

/* ---- removing ---- */

static int remove_name(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;

	return errno == EISDIR || errno == EPERM ? directory_tree_remove(dirfd, name) : -errno;
}

static void say_removed(struct settling *settling, const char *name, const char *reason)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_FAILED };
	char shown[80];

	if (settling->incident->capture_count >= REMOVED_MAX) {
		settling->unlisted++;
		return;
	}
	text_escape(shown, sizeof shown, name, strnlen(name, 32));
	incident_text(record.name, sizeof record.name, INCIDENT_LEFT_FILE);
	snprintf(record.why, sizeof record.why, "removed: %s: %s", shown, reason);
	incident_add_capture(settling->incident, &record);
}

static int remove_stray(struct settling *settling, const char *name, const char *reason)
{
	say_removed(settling, name, reason);

	return remove_name(settling->dirfd, name);
}

/* ---- looking ---- */

static bool is_file(int dirfd, const char *name, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	*ret_bytes = (uint64_t)st.st_size;

	return true;
}

static bool is_ours(const struct settling *settling, const char *name)
{
	if (strcmp(name, INCIDENT_FILE) == 0)
		return true;
	for (size_t i = 0; i < settling->captures; i++)
		if (strcmp(settling->incident->captures[i].file, name) == 0)
			return true;

	return false;
}

/* Files that are still to be written: a command has no business with them. */
static bool is_reserved(const char *name)
{
	return strcmp(name, MANIFEST_NAME) == 0 || strcmp(name, INCIDENT_SAMPLES_FILE) == 0;
}

static int look(void *ctx, const char *name)
{
	struct settling *settling = ctx;
	struct candidate *candidate = &settling->candidates[settling->count];
	uint64_t bytes;

	if (is_ours(settling, name))
		return 0;
	if (!is_file(settling->dirfd, name, &bytes))
		return remove_stray(settling, name, "no plain file");
	if (!manifest_name_ok(name) || is_reserved(name) || strlen(name) >= sizeof settling->incident->captures[0].file)
		return remove_stray(settling, name, "its name");
	if (settling->count == CANDIDATES_MAX)
		return remove_stray(settling, name, "too many files");

	snprintf(candidate->name, sizeof candidate->name, "%s", name);
	candidate->bytes = bytes;
	settling->count++;

	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->bytes != right->bytes)
		return left->bytes < right->bytes ? -1 : 1;

	return strcmp(left->name, right->name);
}

/* ---- deciding ---- */

static int keep_or_remove(struct settling *settling, uint64_t max_bytes)
{
	char shown[160], size[UNITS_TEXT_MAX];
	size_t kept = 0;

	qsort(settling->candidates, settling->count, sizeof settling->candidates[0], compare);
	for (size_t i = 0; i < settling->count; i++) {
		const struct candidate *candidate = &settling->candidates[i];
		struct incident_capture record = { .status = INCIDENT_CAPTURE_OK, .bytes = candidate->bytes };
		bool fits = candidate->bytes <= max_bytes;
		int r;

		if (fits && kept < LEFTOVER_FILES_MAX) {
			incident_text(record.name, sizeof record.name, INCIDENT_LEFT_FILE);
			incident_text(record.file, sizeof record.file, candidate->name);
			incident_add_capture(settling->incident, &record);
			max_bytes -= candidate->bytes;
			kept++;
			continue;
		}
		snprintf(shown, sizeof shown, "%s, more than max_incident_size leaves room for",
			 units_format_bytes(size, sizeof size, candidate->bytes));
		r = remove_stray(settling, candidate->name, fits ? "too many files" : shown);
		if (r < 0)
			return r;
	}

	return 0;
}

/* What is said of our own files may be true no more. */
static int check_ours(int dirfd, struct incident *incident)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		struct incident_capture *capture = &incident->captures[i];
		uint64_t bytes;
		int r;

		if (!*capture->file)
			continue;
		if (is_file(dirfd, capture->file, &bytes)) {
			capture->bytes = bytes;
			continue;
		}
		r = remove_name(dirfd, capture->file);
		if (r < 0)
			return r;
		capture->status = INCIDENT_CAPTURE_FAILED;
		capture->file[0] = '\0';
		capture->bytes = 0;
		incident_text(capture->why, sizeof capture->why, "a command has removed or replaced it");
	}

	return 0;
}

int leftover_files_settle(int dirfd, uint64_t max_bytes, struct incident *incident)
{
	AUTO_FREE struct settling *settling = calloc(1, sizeof *settling);
	struct incident_capture rate_limit = { .status = INCIDENT_CAPTURE_FAILED };
	int r;

	if (!settling)
		return -ENOMEM;

	settling->dirfd = dirfd;
	settling->incident = incident;
	r = check_ours(dirfd, incident);
	if (r < 0)
		return r;
	settling->captures = incident->capture_count;
	r = directory_list_each(dirfd, look, settling);
	if (r == 0)
		r = keep_or_remove(settling, max_bytes);
	if (r < 0 || settling->unlisted == 0)
		return r;

	incident_text(rate_limit.name, sizeof rate_limit.name, INCIDENT_LEFT_FILE);
	snprintf(rate_limit.why, sizeof rate_limit.why, "removed: %zu more", settling->unlisted);
	incident_add_capture(incident, &rate_limit);

	return 0;
}

/*
 * spool_directory.c: who is alive is asked of flock(2), which ends with its holder: a writer locks
 * its draft for as long as it lives, and the sweep takes what it can lock. The lock of the
 * directory itself keeps a sweep away from a draft that was made but is not locked yet.
 *
 * A descriptor outlives the name of its directory: what is written through it then is lost to
 * everybody. So before anything new is begun the name is compared with the descriptor.
 */

#define DIR_TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_DIRECTORY_SUFFIX))

struct spool_directory {
	int fd;
	unsigned holders;
};

/*
 * Against a sweep or another writer of this directory, in this process or another; to be held for a
 * moment only. 0 or -errno.
 */
static int spool_directory_lock(const struct spool_directory *dir)
{
	while (flock(dir->fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void spool_directory_unlock(const struct spool_directory *dir)
{
	flock(dir->fd, LOCK_UN);
}

/* Stays the directory's. */
static int spool_directory_fd(const struct spool_directory *dir)
{
	return dir->fd;
}

/* One more holder; returns dir. */
static struct spool_directory *spool_directory_ref(struct spool_directory *dir)
{
	dir->holders++;
	return dir;
}

/* One holder less; the last one closes it. NULL is fine. */
static void spool_directory_unref(struct spool_directory *dir)
{
	if (!dir || --dir->holders > 0)
		return;
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir);
}

CLEANUP(spool_directory, unref);

/*
 * Whether path still leads here. 0: no; 1: yes; -errno: path cannot be looked at, for another
 * reason than that there is nothing.
 */
static int spool_directory_is_at(const struct spool_directory *dir, const char *path)
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
	struct spool_directory_swept swept;
};

static bool is_temporary(const char *name)
{
	char final[DIR_TEMPORARY_MAX];
	size_t len = strlen(name), suffix = sizeof(SPOOL_DIRECTORY_SUFFIX) - 1;

	if (len <= suffix || len >= sizeof(final) || strcmp(name + len - suffix, SPOOL_DIRECTORY_SUFFIX) != 0)
		return false;
	memcpy(final, name, len - suffix);
	final[len - suffix] = '\0';
	return incident_name_ok(final);
}

/*
 * Gives the samples the end that their writer could not write. What cannot be closed is kept as it
 * is: a reader says what is missing.
 */
static void close_samples(int dirfd)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && stream_repair(fd) == 0)
		fsync(fd);
}

/*
 * A draft that was noted (spool_note) says what fired, and holds what was collected then: as much
 * as there will ever be.
 */
static bool adopt(const struct sweep *sweep, int fd, const char *temporary)
{
	char name[DIR_TEMPORARY_MAX];
	struct incident incident;

	snprintf(name, sizeof(name), "%.*s", (int)(strlen(temporary) - strlen(SPOOL_DIRECTORY_SUFFIX)), temporary);
	if (incident_json_read(fd, &incident) < 0)
		return false;
	unlinkat(fd, MANIFEST_NAME, 0); /* it died while it was sealing */
	close_samples(fd);
	if (manifest_write(fd) < 0) {
		/* A command may have left what cannot be listed. */
		unlinkat(fd, MANIFEST_NAME, 0);
		if (leftover_files_settle(fd, UINT64_MAX, &incident) < 0 || manifest_write(fd) < 0)
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
	else if (directory_tree_remove(sweep->dirfd, name) == 0)
		sweep->swept.removed++;
	return 0;
}

/* Sweeps it once more. Drafts of living writers stay, our own too. 0 or -errno. */
static int spool_directory_sweep(const struct spool_directory *dir, struct spool_directory_swept *ret)
{
	struct sweep sweep = { .dirfd = dir->fd };
	int r = spool_directory_lock(dir);

	if (r < 0)
		return r;
	r = directory_list_each(dir->fd, sweep_entry, &sweep);
	spool_directory_unlock(dir);
	if (r < 0)
		return r;
	*ret = sweep.swept;
	return 0;
}

/*
 * Makes it (0750) and those above if need be, opens it, sweeps. 0; -ENOMEM; -errno. *ret is to be
 * given back.
 */
static int spool_directory_open(const char *path, struct spool_directory **ret, struct spool_directory_swept *ret_swept)
{
	AUTO(spool_directory_unrefp) struct spool_directory *dir = calloc(1, sizeof(*dir));
	int r;

	if (!dir)
		return -ENOMEM;
	dir->holders = 1;
	dir->fd = -1;

	r = directory_tree_make(path);
	if (r < 0)
		return r;
	dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return -errno;
	r = spool_directory_sweep(dir, ret_swept);
	if (r < 0)
		return r;
	*ret = TAKE(dir);
	return 0;
}

/*
 * retention.c: one pass over the incidents, the mildest first.
 *
 * Sums are estimates taken once: some file systems report freed space minutes later, and a loop
 * that asks again and again would remove everything. What is over age goes first, so that its space
 * counts before a younger one must go. For free space nothing goes in vain: where others have
 * filled the file system so far that all of ours would not do, ours stay.
 */

/* What is still too much. */
struct excess {
	uint64_t bytes;
	size_t count;
	uint64_t free; /* bytes that are missing on the file system */
	size_t left;   /* incidents */
};

/* Older first, then by name: for qsort(3) over entries. */
static int retention_compare_age(const void *a, const void *b)
{
	const struct retention_entry *left = a, *right = b;

	if (left->wall.ns != right->wall.ns)
		return left->wall.ns < right->wall.ns ? -1 : 1;
	return strcmp(left->name, right->name);
}

static int compare_severity(const void *a, const void *b)
{
	const struct retention_entry *left = a, *right = b;

	if (left->severity != right->severity)
		return left->severity < right->severity ? -1 : 1;
	return retention_compare_age(a, b);
}

static uint64_t above(uint64_t value, uint64_t limit)
{
	return limit > 0 && value > limit ? value - limit : 0;
}

static uint64_t less(uint64_t value, uint64_t by)
{
	return value > by ? value - by : 0;
}

static void take_out(struct excess *excess, const struct retention_entry *entry)
{
	excess->bytes = less(excess->bytes, entry->bytes);
	excess->free = less(excess->free, entry->bytes);
	excess->count -= excess->count > 0;
	excess->left--;
}

/* What may go for free space at most: the last one, the worst, never does. */
static uint64_t removable(const struct retention_entry *entries, const enum retention_reason *reasons, size_t count)
{
	uint64_t bytes = 0;
	size_t last = count;

	while (last > 0 && reasons[last - 1] != RETENTION_KEEP)
		last--;
	for (size_t i = 0; i + 1 < last; i++)
		if (reasons[i] == RETENTION_KEEP)
			bytes += entries[i].bytes;

	return bytes;
}

static enum retention_reason judge(const struct excess *excess)
{
	if (excess->count > 0)
		return RETENTION_COUNT;
	if (excess->bytes > 0)
		return RETENTION_BYTES;
	return excess->free > 0 && excess->left > 1 ? RETENTION_FREE : RETENTION_KEEP;
}

/* What is to be free: min_free_bytes and next_bytes, or as much as can be said. */
static uint64_t retention_free_bytes(const struct retention_limits *limits)
{
	uint64_t bytes;

	return __builtin_add_overflow(limits->min_free_bytes, limits->next_bytes, &bytes) ? UINT64_MAX : bytes;
}

void retention_choose(const struct retention_limits *limits, wall_t now, uint64_t free_bytes,
		      struct retention_entry *entries, enum retention_reason *reasons, size_t count)
{
	struct excess excess = { .count = above(count, limits->max_count), .left = count };
	uint64_t total = 0;

	if (count == 0)
		return;
	qsort(entries, count, sizeof(*entries), compare_severity);
	for (size_t i = 0; i < count; i++)
		total += entries[i].bytes;
	excess.bytes = above(total, limits->max_bytes);
	excess.free = less(retention_free_bytes(limits), free_bytes);

	for (size_t i = 0; i < count; i++) {
		reasons[i] = RETENTION_KEEP;
		if (limits->max_age_ns > 0 && less(now.ns, entries[i].wall.ns) > limits->max_age_ns) {
			reasons[i] = RETENTION_AGE;
			take_out(&excess, &entries[i]);
		}
	}
	if (excess.free > removable(entries, reasons, count))
		excess.free = 0;
	for (size_t i = 0; i < count; i++) {
		if (reasons[i] != RETENTION_KEEP)
			continue;
		reasons[i] = judge(&excess);
		if (reasons[i] == RETENTION_KEEP)
			return;
		take_out(&excess, &entries[i]);
	}
}

const char *retention_reason_name(enum retention_reason reason)
{
	static const char *const names[] = {
		[RETENTION_KEEP] = "keep",   [RETENTION_AGE] = "age",         [RETENTION_COUNT] = "count",
		[RETENTION_BYTES] = "bytes", [RETENTION_FREE] = "free space",
	};

	return names[reason];
}

#define BLOCK_BYTES 4096u
#define NUMBER_MAX 9999u /* incidents of one target and rule within a millisecond */
#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_SUFFIX))

struct spool {
	char *path; /* never changes */
	struct spool_directory *dir;
	pthread_mutex_t lock; /* of limits, and of nothing else */
	struct retention_limits limits;
	size_t adopted; /* when it was opened */
	bool dirty;     /* a draft could not be removed */
};

struct spool_draft {
	struct spool *spool;
	struct spool_directory *parent; /* the directory of the spool when it was begun */
	int dirfd;                      /* locked */
	char name[INCIDENT_NAME_MAX + 1];
	char temporary[TEMPORARY_MAX];
};

static void set_temporary(char ret[static TEMPORARY_MAX], const char *name)
{
	snprintf(ret, TEMPORARY_MAX, "%s" SPOOL_SUFFIX, name);
}

int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept)
{
	AUTO(spool_freep) struct spool *spool = calloc(1, sizeof(*spool));
	struct spool_directory_swept swept;
	int r;

	if (!spool)
		return -ENOMEM;
	pthread_mutex_init(&spool->lock, NULL);
	spool->limits = *limits;
	spool->path = strdup(path);
	if (!spool->path)
		return -ENOMEM;
	r = spool_directory_open(path, &spool->dir, &swept);
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
	spool_directory_unref(spool->dir);
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

/*
 * The directory that the path leads to, made anew if somebody removed it, swept if there is need. 0
 * or -errno: then it is the one from before.
 */
static int refresh(struct spool *spool)
{
	struct spool_directory_swept swept;
	struct spool_directory *dir;
	int r = spool_directory_is_at(spool->dir, spool->path);

	if (r > 0 && spool->dirty)
		spool->dirty = spool_directory_sweep(spool->dir, &swept) < 0;
	if (r != 0)
		return r < 0 ? r : 0;
	r = spool_directory_open(spool->path, &dir, &swept);
	if (r < 0)
		return r;
	spool_directory_unref(spool->dir);
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

/*
 * Free bytes where the directory is, or would be made: of the nearest one above that exists. 0 or
 * -errno.
 */
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
	r = directory_list_each(fd, add_size, &sum);
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
	int r = directory_list_each(listing.dirfd, list_entry, &listing);

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
	spool_directory_unref(draft->parent);
	free(draft);
}

/* 0; -EEXIST: that name is taken; -errno. The lock of the spool is held. */
static int make_directory(struct spool_draft *draft)
{
	int parent = spool_directory_fd(draft->parent), r;
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
	draft->parent = spool_directory_ref(spool->dir);
	draft->dirfd = -1;

	r = spool_directory_lock(draft->parent);
	if (r == 0) {
		r = find_number(draft, stem);
		spool_directory_unlock(draft->parent);
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
	draft->spool->dirty |= directory_tree_remove(spool_directory_fd(draft->parent), draft->temporary) < 0;
	free_draft(draft);
}

static int write_incident(int dirfd, const struct incident *incident)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_BYTES_MAX };
	int r = incident_json_write(incident, sink_buffer(&text));

	return r < 0 ? r : whole_file_replace(dirfd, INCIDENT_FILE, text.data, text.len);
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
	int from = spool_directory_fd(draft->parent), to;

	refresh(draft->spool);
	to = spool_directory_fd(draft->spool->dir);
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
	return directory_tree_remove(dirfd, temporary);
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
	r = spool_list_at(spool_directory_fd(spool->dir), &entries, &count);
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
		r = remove_sealed(spool_directory_fd(spool->dir), entries[i].name);
		if (r < 0 && r != -ENOENT)
			first = first ? first : r;
		else if (removed)
			removed(ctx, &entries[i], reasons[i]);
	}
	return first;
}
