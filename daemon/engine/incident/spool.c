/*
 * spool.c: the directory of incidents.
 *
 * An incident is written under a temporary name and gets its final one by a rename when all of it
 * is on the disk; one that is removed gets a temporary name first and is then emptied. So final
 * names are complete incidents at any moment, after a crash too, and a temporary name that no
 * process holds locked is garbage.
 *
 * Which process is alive is asked of locks, which end with their holder: a writer holds its draft for
 * as long as it lives, a remover what it removes, and a sweep takes what is not held. What the writer
 * has started holds the same lock (children.h): after a kill -9 a draft can be taken when nothing
 * writes to it any more, and not before. All locks are on one file, .lock, that the daemon's user alone
 * can open: the directories can be read by the group, and so locked by any member. flock(2) of it,
 * short, keeps a sweep away from a draft that was made but is not held yet; a lock of the open file
 * description (fcntl(2)) on the byte that has the number of its inode holds a directory.
 *
 * A draft that a sweep takes is removed if it has no incident.json, that is until spool_note, and
 * sealed else: as it is when its MANIFEST is right (killed before the rename), or with what was
 * described, samples up to the last whole line, what commands have left, and the name of the
 * recovered incident that has the samples: so a ring is saved before drafts are swept (recover.c).
 *
 * The spool is its path. A descriptor outlives the name of its directory, and what is written
 * through it then is lost; so before each incident the descriptor is compared with the path, and a
 * directory that was removed or replaced is made anew. A draft stays where it was begun, and is
 * moved to where the path leads at the end, if that can be done.
 *
 * Retention sums sizes once: some file systems report freed space minutes later, and a loop that
 * asks again would remove everything. What is over age goes first, so that its space counts before
 * a younger one must go. For free space nothing is removed in vain: where other files have filled
 * the file system so far that removing all incidents would not be enough, they stay.
 *
 * Age is not read off a clock that can be set: it is how long incidents have been in a spool that a
 * daemon looks after, by CLOCK_MONOTONIC, and is kept in a small file beside them (struct ages).
 * Where that is lost, ages start again, and incidents are kept for longer; time without a daemon, or
 * in a suspend, does not count. Order is by the times in the names.
 *
 * Leftover files: a manifest lists regular files with plain names only, so whatever else a command
 * has made would make the incident impossible to seal, and is removed.
 *
 * Rejected: an index file, which could disagree with the directory; severity in the names, which
 * would be unreadable.
 */
#include "daemon/engine/incident/spool.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/paths.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/incident/manifest.h"
#include "lib/stream/stream.h"

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
#include <unistd.h>

/* Directories beyond are ignored in one call. */
#define SPOOL_ENTRIES_MAX 10000

#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_DIRECTORY_SUFFIX))

#define BLOCK_BYTES 4096u
#define SPOOL_LOOK_NS (10 * NS_PER_MS) /* at a lock that is waited for */
#define LOCK_LOOKS 1000u               /* 10 s: a disk that is slow, but no process that was stopped */
#define NUMBER_MAX 9999u               /* incidents of one target and rule within a millisecond */

/*
 * Records of removed leftover files; room is left for the files that are kept, the samples and
 * others.
 */
#define REMOVED_MAX (INCIDENT_CAPTURES_MAX - LEFTOVER_FILES_MAX - 4)

/* More leftover files are removed whatever their sizes. */
#define LEFTOVER_CANDIDATES_MAX 256

struct leftover_file {
	char name[MANIFEST_NAME_MAX + 1];
	uint64_t bytes;
};

struct leftover_files {
	int dirfd;
	struct incident *incident;
	size_t captures; /* of the incident itself */
	struct leftover_file files[LEFTOVER_CANDIDATES_MAX];
	size_t count;
	size_t unlisted; /* removed, without a record */
};

/* Counted: a draft keeps its directory although the spool may have made another one. */
struct spool_directory {
	int fd;
	unsigned holders;
};

/* An incident and when it was first seen. */
struct first_seen {
	char name[INCIDENT_NAME_MAX + 1];
	uint64_t at_ns; /* of looked_after_ns */
};

/* How long incidents have been in the spool. The worker's. */
struct ages {
	bool loaded;
	uint64_t looked_after_ns; /* that daemons have looked after the spool, as far as is known */
	uint64_t saved_ns;        /* looked_after_ns in the file */
	uint64_t mono_ns;         /* CLOCK_MONOTONIC at the last look */
	struct first_seen *seen;  /* sorted by name */
	size_t count;
};

struct spool {
	char *path; /* never changes */
	struct spool_directory *dir;
	pthread_mutex_t lock; /* of limits, and of nothing else */
	struct retention_limits limits;
	struct spool_swept swept[SPOOL_SWEPT_MAX]; /* the first of them */
	size_t swept_count;                        /* all */
	struct ages ages;
	bool dirty; /* a draft could not be removed */
};

struct spool_draft {
	struct spool *spool;
	struct spool_directory *parent; /* the directory of the spool when it was begun */
	int dirfd, lockfd;              /* held */
	char name[INCIDENT_NAME_MAX + 1];
	char temporary[TEMPORARY_MAX];
};

/* ---- leftover files of commands ---- */

static int remove_name(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	return errno == EISDIR || errno == EPERM ? directory_tree_remove(dirfd, name) : -errno;
}

static void record_leftover(struct leftover_files *leftover, const char *name, const char *outcome, const char *reason)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_FAILED };
	char shown[80];

	if (leftover->incident->capture_count >= REMOVED_MAX) {
		leftover->unlisted++;
		return;
	}
	text_escape(shown, sizeof(shown), name, strnlen(name, 32));
	incident_text(record.name, sizeof(record.name), INCIDENT_LEFT_FILE);
	snprintf(record.why, sizeof(record.why), "%s: %s: %s", outcome, shown, reason);
	incident_add_capture(leftover->incident, &record);
}

/* What cannot be removed is said: it is no reason to lose the incident. */
static void remove_leftover(struct leftover_files *leftover, const char *name, const char *reason)
{
	int r = remove_name(leftover->dirfd, name);

	record_leftover(leftover, name, r < 0 ? "not removed" : "removed", r < 0 ? strerrordesc_np(-r) : reason);
}

static bool is_file(int dirfd, const char *name, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	*ret_bytes = (uint64_t)st.st_size;
	return true;
}

static bool is_capture(const struct leftover_files *leftover, const char *name)
{
	if (strcmp(name, INCIDENT_FILE) == 0)
		return true;
	for (size_t i = 0; i < leftover->captures; i++)
		if (strcmp(leftover->incident->captures[i].file, name) == 0)
			return true;
	return false;
}

/* Files that are written later. */
static bool is_reserved(const char *name)
{
	return strcmp(name, MANIFEST_NAME) == 0 || strcmp(name, INCIDENT_SAMPLES_FILE) == 0;
}

static int examine_file(void *ctx, const char *name)
{
	struct leftover_files *leftover = ctx;
	struct leftover_file *candidate = &leftover->files[leftover->count];
	uint64_t bytes;

	if (is_capture(leftover, name))
		return 0;
	if (!is_file(leftover->dirfd, name, &bytes)) {
		remove_leftover(leftover, name, "no plain file");
	} else if (!manifest_name_ok(name) || is_reserved(name) ||
		   strlen(name) >= sizeof(leftover->incident->captures[0].file)) {
		remove_leftover(leftover, name, "its name");
	} else if (leftover->count == LEFTOVER_CANDIDATES_MAX) {
		remove_leftover(leftover, name, "too many files");
	} else {
		snprintf(candidate->name, sizeof(candidate->name), "%s", name);
		candidate->bytes = bytes;
		leftover->count++;
	}
	return 0;
}

static int compare_bytes(const void *a, const void *b)
{
	const struct leftover_file *left = a, *right = b;

	if (left->bytes != right->bytes)
		return left->bytes < right->bytes ? -1 : 1;
	return strcmp(left->name, right->name);
}

/* Keeps the smallest that fit. */
static void keep_or_remove(struct leftover_files *leftover, uint64_t max_bytes)
{
	char shown[160], size[UNITS_TEXT_MAX];
	size_t kept = 0;

	qsort(leftover->files, leftover->count, sizeof(leftover->files[0]), compare_bytes);
	for (size_t i = 0; i < leftover->count; i++) {
		const struct leftover_file *candidate = &leftover->files[i];
		struct incident_capture record = { .status = INCIDENT_CAPTURE_OK, .bytes = candidate->bytes };
		bool fits = candidate->bytes <= max_bytes;

		if (fits && kept < LEFTOVER_FILES_MAX) {
			incident_text(record.name, sizeof(record.name), INCIDENT_LEFT_FILE);
			incident_text(record.file, sizeof(record.file), candidate->name);
			incident_add_capture(leftover->incident, &record);
			max_bytes -= candidate->bytes;
			kept++;
			continue;
		}
		snprintf(shown, sizeof(shown), "%s, more than max_incident_size leaves room for",
			 units_format_bytes(size, sizeof(size), candidate->bytes));
		remove_leftover(leftover, candidate->name, fits ? "too many files" : shown);
	}
}

/* A command may have changed or removed the files of captures. */
static void check_captures(int dirfd, struct incident *incident)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		struct incident_capture *capture = &incident->captures[i];
		uint64_t bytes;

		if (!*capture->file)
			continue;
		if (is_file(dirfd, capture->file, &bytes)) {
			capture->bytes = bytes;
			continue;
		}
		/* What stands there instead is now a leftover. */
		incident_capture_without_file(capture, INCIDENT_CAPTURE_FAILED, "a command has removed or replaced it");
	}
}

int leftover_files_settle(int dirfd, uint64_t max_bytes, struct incident *incident)
{
	AUTO_FREE struct leftover_files *leftover = calloc(1, sizeof(*leftover));
	struct incident_capture more = { .status = INCIDENT_CAPTURE_FAILED };
	struct stat st;
	int r;

	if (!leftover)
		return -ENOMEM;
	/* A command may have taken away the right to write here. */
	if (fstat(dirfd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(dirfd, (st.st_mode & 07777) | 0700);

	leftover->dirfd = dirfd;
	leftover->incident = incident;
	check_captures(dirfd, incident);
	leftover->captures = incident->capture_count;
	r = directory_list_each(dirfd, examine_file, leftover);
	if (r < 0)
		return r;
	keep_or_remove(leftover, max_bytes);
	if (leftover->unlisted == 0)
		return 0;

	incident_text(more.name, sizeof(more.name), INCIDENT_LEFT_FILE);
	snprintf(more.why, sizeof(more.why), "removed: %zu more", leftover->unlisted);
	incident_add_capture(incident, &more);
	return 0;
}

/* ---- locks ---- */

/* Root's commands leave the lock file to the owner of the directory, who has to open it later. */
static void give_to_owner(int dirfd, int fd)
{
	struct stat directory, file;

	if (geteuid() == 0 && fstat(dirfd, &directory) == 0 && fstat(fd, &file) == 0 && file.st_uid != directory.st_uid)
		(void)!fchown(fd, directory.st_uid, directory.st_gid);
}

/*
 * Against a sweep or another writer, in this process or another. Held for short: until LOCK_UN of *ret,
 * or close. 0; -EBUSY: another process has kept it for LOCK_LOOKS times SPOOL_LOOK_NS; -errno.
 */
static int lock_spool(int dirfd, int *ret)
{
	struct clock clock = real_clock();
	int r = lock_file_take(dirfd, PATHS_LOCK, ret);

	for (unsigned looks = 0; r == -EBUSY && looks < LOCK_LOOKS; looks++) {
		real_clock_sleep_until(mono_add(clock_mono(&clock), SPOOL_LOOK_NS));
		r = lock_file_take(dirfd, PATHS_LOCK, ret);
	}
	if (r == 0)
		give_to_owner(dirfd, *ret);
	return r;
}

/* Early, while root may still give it away: no filter of system calls is set yet (sandbox.h). */
static void make_lock_file(int dirfd)
{
	AUTO_CLOSE int fd = -1;

	if (lock_file_take(dirfd, PATHS_LOCK, &fd) == 0)
		give_to_owner(dirfd, fd);
}

/* The byte of the lock file that stands for a directory. It need not exist. */
static int directory_byte(int dirfd, short type, struct flock *ret)
{
	struct stat st;

	if (fstat(dirfd, &st) < 0)
		return -errno;
	*ret = (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(st.st_ino & INT64_MAX), .l_len = 1
	};
	return 0;
}

/*
 * Holds it until lockfd and all its copies are closed. Shared, because lockfd is open to be read only:
 * that others do not hold it is asked before, under the lock of the spool. flock(2) on the directory
 * keeps nothing out; readers ask by it whether it is being written.
 */
static int hold_directory(int lockfd, int dirfd)
{
	struct flock byte;
	int r = directory_byte(dirfd, F_RDLCK, &byte);

	if (r == 0 && fcntl(lockfd, F_OFD_SETLK, &byte) < 0)
		r = -errno;
	if (r == 0)
		(void)flock(dirfd, LOCK_EX | LOCK_NB);
	return r;
}

/* 1: it is held; 0; -errno. */
static int look_whether_held(int lockfd, int dirfd)
{
	struct flock byte;
	int r = directory_byte(dirfd, F_WRLCK, &byte);

	if (r == 0 && fcntl(lockfd, F_OFD_GETLK, &byte) < 0)
		r = -errno;
	return r < 0 ? r : byte.l_type != F_UNLCK;
}

/* A directory in the spool that this process has taken. */
struct taken {
	int dirfd, lockfd;
};

#define TAKEN_NONE ((struct taken){ -1, -1 })

static void taken_release(struct taken *taken)
{
	if (taken->dirfd >= 0)
		close(taken->dirfd);
	if (taken->lockfd >= 0)
		close(taken->lockfd);
}

enum { TAKEN_GONE = 1, TAKEN_BY_ANOTHER };

/* 0; TAKEN_GONE: no directory of that name, or not any more; TAKEN_BY_ANOTHER; -errno. */
static int take_directory(int spoolfd, const char *name, struct taken *ret)
{
	AUTO(taken_release) struct taken taken = TAKEN_NONE;
	struct stat named, held;
	int r = lock_spool(spoolfd, &taken.lockfd);

	if (r < 0)
		return r;
	taken.dirfd = openat(spoolfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (taken.dirfd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? TAKEN_GONE : -errno;
	r = look_whether_held(taken.lockfd, taken.dirfd);
	if (r != 0)
		return r < 0 ? r : TAKEN_BY_ANOTHER;
	r = hold_directory(taken.lockfd, taken.dirfd);
	flock(taken.lockfd, LOCK_UN);
	if (r < 0)
		return r;
	/* Who held it may have renamed it meanwhile. */
	if (fstat(taken.dirfd, &held) < 0)
		return -errno;
	if (fstatat(spoolfd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? TAKEN_GONE : -errno;
	if (held.st_ino != named.st_ino)
		return TAKEN_GONE;
	*ret = taken;
	taken = TAKEN_NONE;
	return 0;
}

/* ---- its directory ---- */

/* The last one closes it. NULL is fine. */
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
 * Whether path still leads to dir. 0: no; 1: yes; -errno: path cannot be read, though it may
 * exist.
 */
static int directory_is_at(const struct spool_directory *dir, const char *path)
{
	struct stat named, open;

	if (stat(path, &named) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (fstat(dir->fd, &open) < 0)
		return -errno;
	return named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

/* The longest time between two ticks: what fired after the last one is in what was recovered with it. */
#define TICK_MAX_NS (10 * NS_PER_S)

/* A sealed incident of kind INCIDENT_RECOVERED that has all of its samples. */
struct recovered {
	char name[INCIDENT_NAME_MAX + 1];
	char boot_id[sizeof(((struct incident *)0)->boot_id)];
	mono_t from, to;
};

struct recovered_list {
	bool loaded;
	struct recovered *list;
	size_t count, cap;
	int dirfd;
	struct incident *read; /* while it is loaded */
};

/* What became of the drafts of writers that have died. */
struct sweep {
	int dirfd;
	struct spool *spool; /* to be told */
	spool_told *told;    /* may be NULL */
	void *ctx;
	bool recovered_only;
	bool is_recovered; /* those of incidents that were being recovered, or the others: what is swept now */
	bool again;        /* what fails was told before */
	struct recovered_list recovered;
	size_t removed;
	size_t locked; /* of living ones, and of those whose children live */
};

static bool is_temporary(const char *name)
{
	char final[TEMPORARY_MAX];
	size_t len = strlen(name), suffix = sizeof(SPOOL_DIRECTORY_SUFFIX) - 1;

	if (len <= suffix || len >= sizeof(final) || strcmp(name + len - suffix, SPOOL_DIRECTORY_SUFFIX) != 0)
		return false;
	memcpy(final, name, len - suffix);
	final[len - suffix] = '\0';
	return incident_name_ok(final);
}

/* 1: samples.tsv has rows; 0: it has none, or is no plain file; -errno. *ret_ended: it is whole, with its end. */
static int find_rows(int dirfd, uint64_t *ret_bytes, bool *ret_ended)
{
	static const struct stream_reader_events nothing;
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	AUTO(stream_reader_freep) struct stream_reader *reader = NULL;
	struct stream_reader_report report;
	struct stat st;
	int r;

	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	r = stream_reader_new(&nothing, &reader);
	if (r == 0)
		r = stream_read_fd(reader, fd, UINT64_MAX);
	if (r >= 0)
		r = stream_reader_finish(reader, &report);
	if (r < 0)
		return r;
	*ret_bytes = (uint64_t)st.st_size;
	*ret_ended = stream_reader_whole(&report);
	return report.rows > 0;
}

/* Adds the end that the writer could not write, or leaves the file as it is: readers say what is missing. */
static void repair_samples(int dirfd, struct incident_capture *samples)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	(void)stream_repair(fd);
	if (fstat(fd, &st) == 0)
		samples->bytes = (uint64_t)st.st_size;
}

static struct incident_capture *find_samples(struct incident *incident)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, "samples") == 0)
			return &incident->captures[i];
	return NULL;
}

/* Not synchronised: what counts after a power failure is a MANIFEST, and manifest_write brings all to the disk. */
static int write_incident(int dirfd, const struct incident *incident)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_BYTES_MAX };
	int r = incident_json_write(incident, sink_buffer(&text));
	return r < 0 ? r : whole_file_replace(dirfd, INCIDENT_FILE, text.data, text.len, WHOLE_FILE_QUICK);
}

/* Whether spool_note, or a sweep that was killed itself, has written this of the samples. */
static bool is_of_the_killed(const struct incident_capture *samples)
{
	return samples->status == INCIDENT_CAPTURE_FAILED &&
	       strncmp(samples->why, INCIDENT_KILLED, strlen(INCIDENT_KILLED)) == 0;
}

/*
 * A file without a row is removed. One that is cut is described before it gets its end: a sweep that
 * is killed in between would leave one that looks whole. recovered: the incident that has the
 * samples; NULL: none that is known. 0 or -errno.
 */
static int settle_samples(int dirfd, struct incident *incident, const char *recovered)
{
	struct incident_capture record = { .name = "samples", .status = INCIDENT_CAPTURE_FAILED };
	struct incident_capture *capture = find_samples(incident);
	bool ended = false, killed = capture && is_of_the_killed(capture), there;
	int r = find_rows(dirfd, &record.bytes, &ended);

	if (r < 0)
		return r;
	there = r > 0;
	if (!there) {
		r = remove_name(dirfd, INCIDENT_SAMPLES_FILE);
		if (r < 0)
			return r;
	}
	if (!there && (!capture || (!killed && !*capture->file)))
		return 0; /* there were to be none, or they could not be written */
	if (ended && capture && !killed)
		return 0;

	incident_text(record.file, sizeof(record.file), there ? INCIDENT_SAMPLES_FILE : "");
	if (ended && (!capture || strcmp(capture->why, INCIDENT_KILLED) == 0))
		record.status = INCIDENT_CAPTURE_OK; /* its writer had come to the end of it */
	else
		snprintf(record.why, sizeof(record.why), INCIDENT_KILLED "%s%.64s",
			 there       ? recovered ? ": the file ends there; the rest is in incident "
						 : ": the file ends there; no recovered incident had the rest then"
			 : recovered ? " before they were written; they are in incident "
				     : " before they were written; no recovered incident had them then",
			 recovered ? recovered : "");
	if (capture)
		*capture = record;
	else
		incident_add_capture(incident, &record);
	r = write_incident(dirfd, incident);
	capture = find_samples(incident);
	if (r == 0 && there && !ended && capture)
		repair_samples(dirfd, capture);
	return r;
}

static bool is_recovered_name(const char *name)
{
	return strstr(name, "-" INCIDENT_EVERYTHING "-" INCIDENT_RECOVERED_RULE "-") != NULL;
}

static int add_recovered(void *ctx, const char *name)
{
	struct recovered_list *list = ctx;
	struct incident *incident = list->read;
	AUTO_CLOSE int fd = -1;
	const struct incident_capture *samples;

	if (!incident_name_ok(name) || !is_recovered_name(name))
		return 0;
	fd = openat(list->dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || incident_json_read(fd, incident) < 0 || incident->kind != INCIDENT_RECOVERED)
		return 0;
	samples = find_samples(incident);
	if (!samples || samples->status != INCIDENT_CAPTURE_OK ||
	    vector_reserve(&list->list, &list->cap, list->count + 1, sizeof(*list->list)) < 0)
		return 0;

	struct recovered *recovered = &list->list[list->count++];

	incident_text(recovered->name, sizeof(recovered->name), name);
	incident_text(recovered->boot_id, sizeof(recovered->boot_id), incident->boot_id);
	recovered->from = incident->window_from;
	recovered->to = incident->window_to;
	return 0;
}

/* What cannot be read is not in it. */
static void load_recovered(int dirfd, struct recovered_list *ret)
{
	AUTO_FREE struct incident *read = malloc(sizeof(*read));

	ret->loaded = true;
	ret->dirfd = dirfd;
	ret->read = read;
	if (read)
		directory_list_each(dirfd, add_recovered, ret);
}

/* One that begins at `from` or before, and ends at `to` or after it; of several the one that ends last. */
static const struct recovered *find_recovered(const struct recovered_list *list, const char *boot_id, mono_t from,
					      mono_t to)
{
	const struct recovered *found = NULL;

	for (size_t i = 0; i < list->count; i++) {
		const struct recovered *recovered = &list->list[i];

		if (strcmp(recovered->boot_id, boot_id) == 0 && mono_diff(recovered->from, from) <= 0 &&
		    mono_diff(recovered->to, to) >= 0 && (!found || mono_diff(recovered->to, found->to) > 0))
			found = recovered;
	}
	return found;
}

/* Brings a draft into the state in which it can be sealed. 0 or -errno. */
static int finish_draft(int dirfd, struct incident *incident, const char *recovered)
{
	static const char *const parts[] = { MANIFEST_NAME, "." MANIFEST_NAME ".tmp", "." INCIDENT_FILE ".tmp" };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (unlinkat(dirfd, parts[i], 0) < 0 && errno != ENOENT)
			return -errno;
	r = settle_samples(dirfd, incident, recovered);
	if (r == 0)
		r = leftover_files_settle(dirfd, UINT64_MAX, incident);
	if (r == 0)
		r = write_incident(dirfd, incident);
	if (r == 0)
		r = manifest_write(dirfd);
	return r == 0 && fsync(dirfd) < 0 ? -errno : r;
}

/* Whether an error of incident_json_read says that there is no description that could be read at any time. */
static bool is_none(int error)
{
	return error == -ENOENT || error == -EBADMSG || error == -EFBIG || error == -EPROTONOSUPPORT || error == -ELOOP;
}

/* Makes a draft that spool_note has described ready for its final name. 1: it holds nothing. -errno: it is left. */
static int adopt_draft(struct sweep *sweep, int fd, struct spool_swept *ret)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	const struct recovered *recovered;
	int r = incident ? incident_json_read(fd, incident) : -ENOMEM;

	if (r < 0)
		return is_none(r) ? 1 : r;
	ret->severity = incident->rule.severity;
	if (manifest_verify(fd, NULL, NULL) == 0)
		return 0;
	if (!sweep->recovered.loaded)
		load_recovered(sweep->dirfd, &sweep->recovered);
	recovered = find_recovered(&sweep->recovered, incident->boot_id, incident->mono,
				   mono_sub(incident->mono, TICK_MAX_NS));
	return finish_draft(fd, incident, recovered ? recovered->name : NULL);
}

static void note_swept(struct spool *spool, const struct spool_swept *swept)
{
	if (spool->swept_count < SPOOL_SWEPT_MAX)
		spool->swept[spool->swept_count] = *swept;
	spool->swept_count++;
}

/* 0; -errno: it is left for the next sweep. It is told first: a kill in between must not leave it untold. */
static int settle_draft(struct sweep *sweep, int fd, const char *name, struct spool_swept *swept)
{
	int r = adopt_draft(sweep, fd, swept);

	if (r < 0)
		return r;
	swept->adopted = r == 0;
	if (sweep->told)
		sweep->told(sweep->ctx, swept);
	if (!swept->adopted)
		return directory_tree_remove(sweep->dirfd, name);
	if (renameat(sweep->dirfd, name, sweep->dirfd, swept->name) < 0 || fsync(sweep->dirfd) < 0)
		return -errno;
	return 0;
}

static int sweep_entry(void *ctx, const char *name)
{
	struct sweep *sweep = ctx;
	struct spool_swept swept = { .adopted = false };
	AUTO(taken_release) struct taken taken = TAKEN_NONE;
	int r;

	if (!is_temporary(name) || is_recovered_name(name) != sweep->is_recovered)
		return 0;
	r = take_directory(sweep->dirfd, name, &taken);
	sweep->locked += r == TAKEN_BY_ANOTHER;
	if (r > 0)
		return 0;
	snprintf(swept.name, sizeof(swept.name), "%.*s", (int)(strlen(name) - strlen(SPOOL_DIRECTORY_SUFFIX)), name);
	swept.error = r < 0 ? r : settle_draft(sweep, taken.dirfd, name, &swept);
	if (swept.error < 0) {
		if (sweep->told && !sweep->again)
			sweep->told(sweep->ctx, &swept);
		return r == -EBUSY ? r : 0; /* the lock of the spool: not waited for once more */
	}
	sweep->removed += !swept.adopted;
	note_swept(sweep->spool, &swept);
	return 0;
}

/*
 * Drafts of living writers stay, this process's included. Those of recovered incidents come first:
 * others may name them. 0 or -errno.
 */
static int sweep_directory(const struct spool_directory *dir, struct sweep *sweep)
{
	int r;

	sweep->dirfd = dir->fd;
	sweep->locked = 0;
	sweep->is_recovered = true;
	r = directory_list_each(dir->fd, sweep_entry, sweep);
	free(TAKE(sweep->recovered.list));
	sweep->recovered = (struct recovered_list){ 0 };
	if (r < 0 || sweep->recovered_only)
		return r;
	sweep->is_recovered = false;
	r = directory_list_each(dir->fd, sweep_entry, sweep);
	free(TAKE(sweep->recovered.list));
	sweep->recovered = (struct recovered_list){ 0 };
	return r;
}

/* Makes it (0750) and its parents if need be, opens it, and sweeps it unless sweep is NULL. 0; -ENOMEM; -errno. */
static int open_directory(const struct spool *spool, struct sweep *sweep, struct spool_directory **ret)
{
	AUTO(spool_directory_unrefp) struct spool_directory *dir = calloc(1, sizeof(*dir));
	int r;

	if (!dir)
		return -ENOMEM;

	dir->holders = 1;
	dir->fd = -1;
	r = directory_tree_make(spool->path);
	if (r < 0)
		return r;
	dir->fd = open(spool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return -errno;
	make_lock_file(dir->fd);
	r = sweep ? sweep_directory(dir, sweep) : 0;
	if (r < 0)
		return r;
	*ret = TAKE(dir);
	return 0;
}

/* ---- which to remove ---- */

/* What is still too much. */
struct excess {
	uint64_t bytes;
	size_t count;
	uint64_t free; /* bytes that are missing on the file system */
	size_t left;   /* incidents */
};

/* Older first, then by name. */
static int compare_age(const void *a, const void *b)
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
	/* The time in a name is that of a clock which may have been set. */
	if (left->age_ns != right->age_ns)
		return left->age_ns > right->age_ns ? -1 : 1;
	return compare_age(a, b);
}

static uint64_t excess_over(uint64_t value, uint64_t limit)
{
	return limit > 0 && value > limit ? value - limit : 0;
}

static uint64_t subtract(uint64_t value, uint64_t by)
{
	return value > by ? value - by : 0;
}

static void count_removed(struct excess *excess, const struct retention_entry *entry)
{
	excess->bytes = subtract(excess->bytes, entry->bytes);
	excess->free = subtract(excess->free, entry->bytes);
	excess->count -= excess->count > 0;
	excess->left--;
}

/* The last of those that are kept; count: none is. */
static size_t most_severe(const enum retention_reason *reasons, size_t count)
{
	for (size_t i = count; i > 0; i--)
		if (reasons[i - 1] == RETENTION_KEEP)
			return i - 1;
	return count;
}

/* What may be removed for free space: never the most severe. */
static uint64_t removable_bytes(const struct retention_entry *entries, const enum retention_reason *reasons,
				size_t count)
{
	size_t spared = most_severe(reasons, count);
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		if (reasons[i] == RETENTION_KEEP && i != spared)
			bytes += entries[i].bytes;
	return bytes;
}

static enum retention_reason reason_to_remove(const struct excess *excess)
{
	if (excess->count > 0)
		return RETENTION_COUNT;
	if (excess->bytes > 0)
		return RETENTION_BYTES;
	return excess->free > 0 && excess->left > 1 ? RETENTION_FREE : RETENTION_KEEP;
}

/* Owners beyond are taken as one. */
#define HOLDINGS_MAX 256

/* What one owner has. */
struct holding {
	const char *owner;
	uint64_t bytes;
	size_t count;
	size_t next; /* entries before it are not the owner's, or go */
};

struct holdings {
	struct holding of[HOLDINGS_MAX];
	size_t count;
};

static uint16_t find_holding(struct holdings *holdings, const char *owner)
{
	for (size_t i = 0; i < holdings->count; i++)
		if (strcmp(holdings->of[i].owner, owner) == 0)
			return (uint16_t)i;
	if (holdings->count < HOLDINGS_MAX)
		holdings->of[holdings->count++] = (struct holding){ .owner = owner };
	return (uint16_t)(holdings->count - 1);
}

static void sum_holdings(struct holdings *holdings, struct retention_entry *entries,
			 const enum retention_reason *reasons, size_t count)
{
	holdings->count = 0;
	for (size_t i = 0; i < count; i++) {
		entries[i].holding = find_holding(holdings, entries[i].owner);
		if (reasons[i] != RETENTION_KEEP)
			continue;
		holdings->of[entries[i].holding].bytes += entries[i].bytes;
		holdings->of[entries[i].holding].count++;
	}
}

/*
 * The entry to remove next: the mildest of the owner who has most. Never the one at spared; count:
 * none is left.
 */
static size_t next_victim(struct holdings *holdings, const struct retention_entry *entries,
			  const enum retention_reason *reasons, size_t count, bool by_count, size_t spared)
{
	for (;;) {
		struct holding *largest = NULL;
		uint64_t most = 0;

		for (size_t i = 0; i < holdings->count; i++) {
			uint64_t amount = by_count ? holdings->of[i].count : holdings->of[i].bytes;

			if (amount <= most)
				continue;
			most = amount;
			largest = &holdings->of[i];
		}
		if (!largest)
			return count;
		for (size_t i = largest->next; i < count; i++) {
			if (&holdings->of[entries[i].holding] != largest || reasons[i] != RETENTION_KEEP || i == spared)
				continue;
			largest->next = i + 1;
			largest->bytes = subtract(largest->bytes, entries[i].bytes);
			largest->count--;
			return i;
		}
		*largest = (struct holding){ .owner = largest->owner };
	}
}

/* min_free_bytes and next_bytes. */
struct retention_limits retention_limits_of(const struct config *config)
{
	return (struct retention_limits){
		.max_bytes = config->incidents.max_bytes,
		.max_count = config->incidents.max_count,
		.max_age_ns = config->incidents.max_age_ns,
		.min_free_bytes = config->incidents.min_free_bytes,
	};
}

static uint64_t wanted_free_bytes(const struct retention_limits *limits)
{
	uint64_t bytes;
	return __builtin_add_overflow(limits->min_free_bytes, limits->next_bytes, &bytes) ? UINT64_MAX : bytes;
}

void retention_age_by_names(struct retention_entry *entries, size_t count, wall_t now)
{
	for (size_t i = 0; i < count; i++)
		entries[i].age_ns = subtract(now.ns, entries[i].wall.ns);
}

void retention_choose(const struct retention_limits *limits, uint64_t free_bytes, struct retention_entry *entries,
		      enum retention_reason *reasons, size_t count)
{
	struct excess excess = { .count = excess_over(count, limits->max_count), .left = count };
	enum retention_reason why;
	struct holdings holdings;
	uint64_t total = 0;

	if (count == 0)
		return;
	qsort(entries, count, sizeof(*entries), compare_severity);
	for (size_t i = 0; i < count; i++)
		total += entries[i].bytes;
	excess.bytes = excess_over(total, limits->max_bytes);
	excess.free = subtract(wanted_free_bytes(limits), free_bytes);

	for (size_t i = 0; i < count; i++) {
		reasons[i] = RETENTION_KEEP;
		if (limits->max_age_ns > 0 && entries[i].age_ns > limits->max_age_ns) {
			reasons[i] = RETENTION_AGE;
			count_removed(&excess, &entries[i]);
		}
	}
	if (excess.free > removable_bytes(entries, reasons, count))
		excess.free = 0;
	sum_holdings(&holdings, entries, reasons, count);
	while ((why = reason_to_remove(&excess)) != RETENTION_KEEP) {
		size_t victim = next_victim(&holdings, entries, reasons, count, why == RETENTION_COUNT,
					    why == RETENTION_FREE ? most_severe(reasons, count) : count);

		if (victim == count)
			return;
		reasons[victim] = why;
		count_removed(&excess, &entries[victim]);
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

/* ---- the spool ---- */

static void set_temporary(char ret[static TEMPORARY_MAX], const char *name)
{
	snprintf(ret, TEMPORARY_MAX, "%s" SPOOL_DIRECTORY_SUFFIX, name);
}

int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept)
{
	AUTO(spool_freep) struct spool *spool = calloc(1, sizeof(*spool));
	struct sweep sweep = { .spool = spool };
	int r;

	if (!spool)
		return -ENOMEM;
	pthread_mutex_init(&spool->lock, NULL);
	spool->limits = *limits;
	spool->path = strdup(path);
	if (!spool->path)
		return -ENOMEM;
	r = open_directory(spool, ret_swept ? &sweep : NULL, &spool->dir);
	if (r < 0)
		return r;

	if (ret_swept)
		*ret_swept = sweep.removed;
	*ret = TAKE(spool);
	return 0;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	spool_directory_unref(spool->dir);
	pthread_mutex_destroy(&spool->lock);
	free(spool->ages.seen);
	free(spool->path);
	free(spool);
}

const char *spool_path(const struct spool *spool)
{
	return spool->path;
}

size_t spool_swept(const struct spool *spool, const struct spool_swept **ret)
{
	*ret = spool->swept;
	return spool->swept_count;
}

void spool_wait(struct spool *spool, uint64_t patience_ns, spool_told *told, void *ctx)
{
	struct clock clock = real_clock();
	mono_t now = clock_mono(&clock), end = mono_add(now, patience_ns);
	struct sweep sweep = { .spool = spool, .told = told, .ctx = ctx };

	while (sweep_directory(spool->dir, &sweep) == 0 && sweep.locked > 0 && mono_diff(end, now) > 0) {
		sweep.again = true;
		now = mono_add(clock_mono(&clock), SPOOL_LOOK_NS);
		real_clock_sleep_until(now);
	}
}

bool spool_find_recovered(struct spool *spool, const struct incident *like, spool_told *told, void *ctx,
			  char ret[static INCIDENT_NAME_MAX + 1])
{
	struct sweep sweep = { .spool = spool, .told = told, .ctx = ctx, .recovered_only = true };
	struct recovered_list list = { 0 };
	const struct recovered *found;

	if (sweep_directory(spool->dir, &sweep) < 0)
		return false;
	load_recovered(spool->dir->fd, &list);
	found = find_recovered(&list, like->boot_id, like->window_from, like->window_to);
	if (found)
		memcpy(ret, found->name, sizeof(found->name));
	free(list.list);
	return found;
}

/*
 * Opens the directory that the path leads to, made anew if it was removed, and swept if a draft was
 * left. -errno: the one from before stays open.
 */
static int refresh_directory(struct spool *spool)
{
	struct sweep sweep = { .spool = spool };
	struct spool_directory *dir;
	int r = directory_is_at(spool->dir, spool->path);

	if (r > 0 && spool->dirty)
		spool->dirty = sweep_directory(spool->dir, &sweep) < 0;
	if (r != 0)
		return r < 0 ? r : 0;
	r = open_directory(spool, &sweep, &dir);
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

/* Of the file system where the directory is, or would be made. 0 or -errno. */
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
	wanted = wanted_free_bytes(&spool->limits);
	pthread_mutex_unlock(&spool->lock);
	return free_bytes(spool, &left) < 0 || left >= wanted;
}

/* ---- sealed incidents ---- */

struct listing {
	int dirfd;
	struct retention_entry *entries;
	size_t count, cap;
	int unread; /* the first error of one that is left out */
};

struct size_sum {
	int dirfd;
	uint64_t bytes;
};

static int add_size(void *ctx, const char *name)
{
	struct size_sum *sum = ctx;
	struct stat st;

	if (fstatat(sum->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (st.st_size > 0)
		sum->bytes += ((uint64_t)st.st_size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	return 0;
}

/* 0 for one whose incident.json is missing, or none. -errno: it could not be read, whatever it says. */
static int read_severity(int dirfd, struct retention_entry *ret)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	int r;

	if (!incident)
		return -ENOMEM;
	r = incident_json_read(dirfd, incident);
	if (r < 0 && !is_none(r))
		return r;
	ret->severity = r < 0 ? 0 : incident->rule.severity;
	incident_text(ret->owner, sizeof(ret->owner), r < 0 ? "" : incident->target.owner);
	return 0;
}

/* 1: it is no sealed incident. */
static int read_entry(int dirfd, const char *name, struct retention_entry *ret)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct size_sum sum = { .dirfd = fd };
	int r;

	if (fd < 0 || faccessat(fd, MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 1 : -errno;
	r = read_severity(fd, ret);
	if (r == 0)
		r = directory_list_each(fd, add_size, &sum);
	ret->bytes = sum.bytes;
	memcpy(ret->name, name, strlen(name));
	return r;
}

/*
 * Incidents have a name of one and a MANIFEST; everything else is ignored. One that cannot be read
 * is left out: as one of severity 0 it would be the first to go.
 */
static int list_entry(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	struct retention_entry entry = { .wall = incident_name_wall(name) };
	int r;

	if (!incident_name_ok(name) || listing->count == SPOOL_ENTRIES_MAX)
		return 0;
	r = read_entry(listing->dirfd, name, &entry);
	if (r < 0 && listing->unread == 0)
		listing->unread = r;
	if (r != 0)
		return 0;
	r = vector_reserve(&listing->entries, &listing->cap, listing->count + 1, sizeof(*listing->entries));
	if (r == 0)
		listing->entries[listing->count++] = entry;
	return r;
}

int spool_list_at(int dirfd, struct retention_entry **ret, size_t *ret_count, int *ret_unread)
{
	struct listing listing = { .dirfd = dirfd };
	int r = directory_list_each(listing.dirfd, list_entry, &listing);

	if (r < 0) {
		free(listing.entries);
		return r;
	}
	if (listing.count > 0)
		qsort(listing.entries, listing.count, sizeof(listing.entries[0]), compare_age);
	*ret = listing.entries;
	*ret_count = listing.count;
	*ret_unread = listing.unread;
	return 0;
}

/* ---- drafts ---- */

static void free_draft(struct spool_draft *draft)
{
	taken_release(&(struct taken){ draft->dirfd, draft->lockfd });
	spool_directory_unref(draft->parent);
	free(draft);
}

/* 0; -EEXIST: that name is taken; -errno. The lock of the spool is held. */
static int make_draft_directory(struct spool_draft *draft)
{
	int parent = draft->parent->fd, r;
	struct stat st;

	if (fstatat(parent, draft->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (mkdirat(parent, draft->temporary, 0750) < 0)
		return -errno;
	draft->dirfd = openat(parent, draft->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = draft->dirfd < 0 ? -errno : hold_directory(draft->lockfd, draft->dirfd);
	if (r == 0)
		return 0;

	unlinkat(parent, draft->temporary, AT_REMOVEDIR);
	return r == -EEXIST ? -EIO : r;
}

/* Makes the directory, with the first number that is free. */
static int number_draft(struct spool_draft *draft, const char *stem)
{
	int r = -EEXIST;

	for (unsigned n = 1; r == -EEXIST && n <= NUMBER_MAX; n++) {
		int len = snprintf(draft->name, sizeof(draft->name), "%s-%u", stem, n);

		if (len < 0 || (size_t)len >= sizeof(draft->name) || !incident_name_ok(draft->name))
			return -EINVAL;
		set_temporary(draft->temporary, draft->name);
		r = make_draft_directory(draft);
	}
	return r;
}

int spool_begin(struct spool *spool, const char *stem, struct spool_draft **ret)
{
	struct spool_draft *draft;
	int r = refresh_directory(spool);

	if (r < 0)
		return r;
	draft = calloc(1, sizeof(*draft));
	if (!draft)
		return -ENOMEM;
	draft->spool = spool;
	draft->parent = spool->dir;
	draft->parent->holders++;
	draft->dirfd = draft->lockfd = -1;

	r = lock_spool(draft->parent->fd, &draft->lockfd);
	if (r == 0) {
		r = number_draft(draft, stem);
		flock(draft->lockfd, LOCK_UN);
	}
	if (r < 0) {
		free_draft(draft);
		return r;
	}
	*ret = draft;
	return 0;
}

struct spool_draft_parts spool_draft_parts(const struct spool_draft *draft)
{
	return (struct spool_draft_parts){ .name = draft->name, .dirfd = draft->dirfd, .lockfd = draft->lockfd };
}

void spool_abort(struct spool_draft *draft)
{
	if (!draft)
		return;
	unlinkat(draft->dirfd, INCIDENT_FILE, 0); /* or a sweep would adopt it */
	draft->spool->dirty |= directory_tree_remove(draft->parent->fd, draft->temporary) < 0;
	free_draft(draft);
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

int spool_write(struct spool_draft *draft, struct incident *incident, void (*between)(void *ctx), void *ctx)
{
	int r;

	if (unlinkat(draft->dirfd, MANIFEST_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	r = spool_note(draft, incident);
	if (r < 0)
		return r;
	r = manifest_write_slowly(draft->dirfd, between, ctx); /* and syncs the files */
	if (r < 0)
		return r;
	return fsync(draft->dirfd) < 0 ? -errno : 0;
}

/* Renames it. *ret: the directory that it is in then, to be synced. 0 or -errno. */
static int rename_draft(const struct spool_draft *draft, int *ret)
{
	int from = draft->parent->fd, to;

	refresh_directory(draft->spool);
	to = draft->spool->dir->fd;
	if (to != from && renameat(from, draft->temporary, to, draft->name) == 0)
		from = to;
	else if (renameat(from, draft->temporary, from, draft->name) < 0)
		return -errno;
	*ret = from;
	return 0;
}

int spool_publish(struct spool_draft *draft)
{
	int parent = -1, r = rename_draft(draft, &parent);

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
	int r = spool_write(draft, incident, NULL, NULL);

	if (r == 0)
		return spool_publish(draft);
	spool_abort(draft);
	return r;
}

/* ---- removal ---- */

/*
 * Held until all of it is gone, or a sweep would seal it meanwhile. incident.json first: what is left if
 * this is interrupted is removed by the next sweep, not sealed again. As take_directory.
 */
static int remove_sealed(int dirfd, const char *name)
{
	AUTO(taken_release) struct taken taken = TAKEN_NONE;
	char temporary[TEMPORARY_MAX];
	int r = take_directory(dirfd, name, &taken);

	if (r != 0)
		return r;
	set_temporary(temporary, name);
	if (renameat(dirfd, name, dirfd, temporary) < 0)
		return -errno;
	unlinkat(taken.dirfd, INCIDENT_FILE, 0);
	return directory_tree_remove(dirfd, temporary);
}

/* ---- ages ---- */

#define AGES_HEADER "spikewatch ages 1"
#define AGES_SAVE_NS (3600 * NS_PER_S) /* what a daemon that is killed may lose of them */

static int compare_seen(const void *a, const void *b)
{
	return strcmp(((const struct first_seen *)a)->name, ((const struct first_seen *)b)->name);
}

/* A line of the file: a name, or the header, and a number. False: it is none. */
static bool ages_line(const char *line, struct first_seen *ret)
{
	const char *tab = strchr(line, '\t');
	size_t len = tab ? (size_t)(tab - line) : 0;
	char *end;

	if (len == 0 || len >= sizeof(ret->name) || tab[1] < '0' || tab[1] > '9')
		return false;
	memcpy(ret->name, line, len);
	ret->name[len] = '\0';
	ret->at_ns = strtoull(tab + 1, &end, 10);
	return *end == '\0';
}

/* Nothing of a file that is damaged is used. -ENOMEM or 0. */
static int ages_parse(struct ages *ages, char *text)
{
	struct ages read = { 0 };
	struct first_seen line;
	size_t cap = 0;
	char *rest = text, *at;
	int r = 0;

	for (bool header = true; r == 0 && (at = strsep(&rest, "\n")) != NULL; header = false) {
		if (*at == '\0' && rest == NULL)
			break;
		if (!ages_line(at, &line) || (header && strcmp(line.name, AGES_HEADER) != 0)) {
			free(read.seen);
			return 0;
		}
		if (header) {
			read.looked_after_ns = read.saved_ns = line.at_ns;
			continue;
		}
		r = vector_reserve(&read.seen, &cap, read.count + 1, sizeof(*read.seen));
		if (r == 0)
			read.seen[read.count++] = line;
	}
	if (r < 0) {
		free(read.seen);
		return r;
	}
	if (read.count > 0)
		qsort(read.seen, read.count, sizeof(*read.seen), compare_seen);
	*ages = read;
	return 0;
}

static int ages_load(struct ages *ages, int dirfd)
{
	AUTO(buffer_release) struct buffer text = { .max = SPOOL_AGES_BYTES_MAX };
	int r = whole_file_read(dirfd, SPOOL_AGES_FILE, &text);

	if (r == 0)
		r = buffer_append(&text, "", 1);
	if (r == 0)
		r = ages_parse(ages, text.data);
	ages->loaded = r != -ENOMEM;
	return r == -ENOMEM ? r : 0;
}

static int put_age(struct buffer *text, const char *name, uint64_t ns)
{
	char line[INCIDENT_NAME_MAX + 24];

	return buffer_append(text, line, (size_t)snprintf(line, sizeof(line), "%s\t%ju\n", name, (uintmax_t)ns));
}

static int ages_save(struct ages *ages, int dirfd)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	int r = put_age(&text, AGES_HEADER, ages->looked_after_ns);

	for (size_t i = 0; r == 0 && i < ages->count; i++)
		r = put_age(&text, ages->seen[i].name, ages->seen[i].at_ns);
	/* Where a power failure has damaged it ages start again: no reason to wait for the disk after each incident. */
	if (r == 0)
		r = whole_file_replace(dirfd, SPOOL_AGES_FILE, text.data, text.len, WHOLE_FILE_QUICK);
	if (r == 0)
		ages->saved_ns = ages->looked_after_ns;
	return r;
}

/*
 * Sets age_ns of all. A file that cannot be written is no reason to keep none of the limits. 0;
 * -ENOMEM.
 */
static int ages_update(struct ages *ages, int dirfd, uint64_t mono_ns, struct retention_entry *entries, size_t count)
{
	AUTO_FREE struct first_seen *seen = calloc(count + 1, sizeof(*seen));
	size_t known = 0;
	int r = seen ? 0 : -ENOMEM;

	if (r == 0 && !ages->loaded)
		r = ages_load(ages, dirfd);
	if (r < 0)
		return r;

	if (ages->mono_ns > 0)
		ages->looked_after_ns += subtract(mono_ns, ages->mono_ns);
	ages->mono_ns = mono_ns;
	for (size_t i = 0; i < count; i++) {
		const struct first_seen *before = NULL;

		memcpy(seen[i].name, entries[i].name, sizeof(seen[i].name));
		if (ages->count > 0)
			before = bsearch(&seen[i], ages->seen, ages->count, sizeof(*seen), compare_seen);
		known += before != NULL;
		seen[i].at_ns = before ? before->at_ns : ages->looked_after_ns;
		entries[i].age_ns = subtract(ages->looked_after_ns, seen[i].at_ns);
	}
	if (known < count || known < ages->count || ages->looked_after_ns - ages->saved_ns > AGES_SAVE_NS) {
		qsort(seen, count, sizeof(*seen), compare_seen);
		free(ages->seen);
		ages->seen = TAKE(seen);
		ages->count = count;
		ages_save(ages, dirfd);
	}
	return 0;
}

int spool_enforce(struct spool *spool, struct spool_now now,
		  void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why), void *ctx)
{
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_FREE enum retention_reason *reasons = NULL;
	struct retention_limits limits = limits_of(spool);
	uint64_t left = UINT64_MAX;
	size_t count;
	int r = refresh_directory(spool), first = 0;

	if (r < 0)
		return r;
	r = spool_list_at(spool->dir->fd, &entries, &count, &first);
	if (r < 0 || count == 0)
		return r < 0 ? r : first;
	reasons = calloc(count, sizeof(*reasons));
	if (!reasons)
		return -ENOMEM;
	r = free_bytes(spool, &left);
	if (r < 0)
		return r;

	if (now.mono_ns > 0)
		r = ages_update(&spool->ages, spool->dir->fd, now.mono_ns, entries, count);
	else if (now.wall.ns > 0)
		retention_age_by_names(entries, count, now.wall);
	if (r < 0)
		return r;
	retention_choose(&limits, left, entries, reasons, count);
	for (size_t i = 0; i < count; i++) {
		if (reasons[i] == RETENTION_KEEP)
			continue;
		r = remove_sealed(spool->dir->fd, entries[i].name);
		if (r < 0)
			first = first ? first : r;
		else if (r != TAKEN_BY_ANOTHER && removed)
			removed(ctx, &entries[i], reasons[i]);
		if (r == -EBUSY) /* the lock of the spool: not waited for once more */
			break;
	}
	return first;
}
