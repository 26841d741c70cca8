/*
 * spool.h: the directory of incidents. What is there under its final name is complete and sealed;
 * it gets there by one rename. Old and mild incidents are removed for new ones, by stated limits.
 *
 *     spool_begin ──▶ NAME.tmp/ (held by its writer)   ──┬─ spool_seal ──▶ NAME/
 *                                                        └─ spool_abort ─▶ removed
 *
 * Several processes may use one directory. Only names that incident_name_ok() accepts are ever
 * touched. Every call may wait for the disk: not for the thread that samples. A spool is used by
 * one thread at a time, but for spool_set_limits, spool_predict_ok and spool_path, which any
 * thread may call at any time.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_SPOOL_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_SPOOL_H

#include "lib/base/base.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;

/* Behind the name of a directory that is being written, or removed. */
#define SPOOL_DIRECTORY_SUFFIX ".tmp"

/* Leftover files of commands that are kept: the smallest. */
#define LEFTOVER_FILES_MAX 16

/*
 * Before an incident is sealed: adds each file in dirfd that is none of its captures to them, as
 * INCIDENT_LEFT_FILE, the smallest first, as long as all of them have at most max_bytes. Removes
 * the others, and what cannot be sealed (directories, links, names that a manifest does not
 * allow), and records that. A capture whose file is gone or no regular file any more has failed.
 * What cannot be removed stays, and that is recorded: a directory is then no part of the manifest.
 * 0; -ENOMEM; -errno: the directory cannot be read.
 */
int leftover_files_settle(int dirfd, uint64_t max_bytes, struct incident *incident);

/* 0 means no such limit. */
struct retention_limits {
	uint64_t max_bytes;
	uint32_t max_count;
	uint64_t max_age_ns;
	uint64_t min_free_bytes; /* of the file system, left for others */
	uint64_t next_bytes;     /* and for the next incident */
};

/* Those of the configuration; next_bytes is 0. */
struct retention_limits retention_limits_of(const struct config *config);

/* A sealed incident. */
struct retention_entry {
	char name[INCIDENT_NAME_MAX + 1];
	wall_t wall;                    /* when it fired: the time in its name */
	uint64_t bytes;                 /* disk space: sizes, each rounded up to 4 KiB */
	uint64_t age_ns;                /* 0: not known */
	double severity;                /* of incident.json; 0 if that cannot be read */
	char owner[INCIDENT_OWNER_MAX]; /* likewise; "" */
	uint16_t holding;               /* retention_choose's */
};

enum retention_reason {
	RETENTION_KEEP,
	RETENTION_AGE,   /* older than max_age_ns */
	RETENTION_COUNT, /* more than max_count */
	RETENTION_BYTES, /* more than max_bytes together */
	RETENTION_FREE,  /* less free space than min_free_bytes and next_bytes */
};

/*
 * Sorts entries, the mildest first (of equals the oldest), and sets reasons[i] for entries[i]:
 * first those over age; then, until count, bytes and free space are within the limits, the mildest
 * of the owner who has most: so no owner's incidents displace those of one who has fewer.
 * For free space the most severe one is never removed, and none is if all others would not be
 * enough. free_bytes: free on the file system now. Pure.
 */
void retention_choose(const struct retention_limits *limits, uint64_t free_bytes, struct retention_entry *entries,
		      enum retention_reason *reasons, size_t count);

/* Ages by the times in the names: for a person who says how old is too old. */
void retention_age_by_names(struct retention_entry *entries, size_t count, wall_t now);

/* "keep", "age", "count", "bytes", "free space". */
const char *retention_reason_name(enum retention_reason reason);

/*
 * In a spool: "NAME\tNS" of each incident, when it came, by a count of time that no clock which is set
 * changes; first a line of the count itself.
 */
#define SPOOL_AGES_FILE ".ages"
#define SPOOL_AGES_BYTES_MAX ((size_t)4 << 20)

struct spool;
struct spool_draft; /* an incident that is being written */

/*
 * Opens the directory, making it and its parents (0750) if need be. Drafts of writers that have
 * died are sealed if spool_note has described them, or else removed; *ret_swept: how many were removed.
 * NULL: they are left to spool_wait, here or in another spool of this directory. If the directory is
 * removed or replaced later, the next spool_begin makes and sweeps it again. 0; -errno; -ENOMEM.
 */
int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept);

/* A draft of a writer that has died: sealed, or removed because it held nothing yet. */
struct spool_swept {
	char name[INCIDENT_NAME_MAX + 1];
	bool adopted;
	double severity; /* of an adopted one */
	int error;       /* why it could be neither: it is left to the next sweep. 0 else */
};

/* Called for each before it is sealed or removed, and again with the error if that fails. */
typedef void spool_told(void *ctx, const struct spool_swept *swept);

#define SPOOL_SWEPT_MAX 64

/*
 * Drafts that were swept since the spool was opened: how many; *ret: the first SPOOL_SWEPT_MAX of
 * them, the spool's.
 */
size_t spool_swept(const struct spool *spool, const struct spool_swept **ret);

/*
 * Sweeps, and waits, for so long at most, while drafts are locked: for what a writer that was killed has
 * started, which ends within a second (children.h). Sweeps those that become free. Those that do
 * not are left to the next sweep. told may be NULL. One whose samples are not all there is sealed with
 * the name of the recovered incident that has the rest: that is to be there first.
 */
void spool_wait(struct spool *spool, uint64_t patience_ns, spool_told *told, void *ctx);

/*
 * Whether there is a sealed incident of kind INCIDENT_RECOVERED, of that boot_id, whose window has the
 * one from window_from to window_to, with all its samples: *ret, its name. Sweeps drafts of such
 * incidents first.
 */
bool spool_find_recovered(struct spool *spool, const struct incident *like, spool_told *told, void *ctx,
			  char ret[static INCIDENT_NAME_MAX + 1]);

/* NULL is fine. Drafts must be gone. */
void spool_free(struct spool *spool);
CLEANUP(spool, free);

/* As in spool_open; valid as long as the spool. */
const char *spool_path(const struct spool *spool);

/* Applied by the next spool_enforce. */
void spool_set_limits(struct spool *spool, const struct retention_limits *limits);

/*
 * Whether the file system has room for so many bytes more, which become next_bytes of the limits.
 * True if that cannot be read: a later write then fails with the reason. One system call.
 */
bool spool_predict_ok(struct spool *spool, uint64_t expected_bytes);

/*
 * The sealed incidents of a spool's directory, oldest first, for free(3); NULL with count 0 if
 * there are none. *ret_unread: why one was left out that could not be read (-errno), or 0. Changes
 * nothing there. 0; -ENOMEM; -errno.
 */
int spool_list_at(int dirfd, struct retention_entry **ret, size_t *ret_count, int *ret_unread);

/*
 * Begins an incident called "<stem>-<n>" with the smallest n that is free (stem: incident_stem). 0;
 * -ENOMEM; -EINVAL: stem is no name of an incident; -errno: the directory cannot be used, and was
 * not made anew if it was gone.
 */
int spool_begin(struct spool *spool, const char *stem, struct spool_draft **ret);

/* All stay the draft's. */
struct spool_draft_parts {
	const char *name; /* that it will have */
	int dirfd;        /* to write files into with openat(2) and O_EXCL */
	int lockfd;       /* while it is open, in another process too (children.h), no sweep takes the draft */
};

/* Valid as long as the draft. */
struct spool_draft_parts spool_draft_parts(const struct spool_draft *draft);

/* Whether its directory was removed from outside, with all that was written. */
bool spool_lost(const struct spool_draft *draft);

/*
 * Sets incident->id to the name, writes incident.json and MANIFEST, brings every file to the disk;
 * between (may be NULL) is called after each, because the disk may be slow.
 * 0; -errno: the draft is as it was but for these two, and this may be called again when something
 * in it was removed.
 */
int spool_write(struct spool_draft *draft, struct incident *incident, void (*between)(void *ctx), void *ctx);

/*
 * Renames what spool_write has written to its final name. Frees the draft in any case. 0; -errno:
 * nothing is left of it, unless the last step failed, the fsync of the spool: then it is there,
 * complete, but may not survive a power failure.
 */
int spool_publish(struct spool_draft *draft);

/* Both, or spool_abort. Returns as they do. */
int spool_seal(struct spool_draft *draft, struct incident *incident);

/*
 * Writes incident.json as far as it is known, sets its id. If this process dies before the draft is
 * sealed, the next spool_open seals it as it is. 0 or -errno.
 */
int spool_note(struct spool_draft *draft, struct incident *incident);

/* Removes what was written and frees the draft. NULL is fine. */
void spool_abort(struct spool_draft *draft);

/* What ages are measured by; {0}: none goes for its age. */
struct spool_now {
	wall_t wall;      /* by the times in the names */
	uint64_t mono_ns; /* CLOCK_MONOTONIC: by how long the incidents have been in a spool that is looked after */
};

/*
 * Removes what retention_choose chooses; removed (may be NULL) is called for each. 0; -ENOMEM;
 * -errno: the first failure, after which the others were still removed; one that could not be read
 * stays.
 */
int spool_enforce(struct spool *spool, struct spool_now now,
		  void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why),
		  void *ctx);

#endif
