/*
 * spool.h: the directory of incidents. What is there under its final name is whole and sealed; it gets there by one
 * rename. Old and mild incidents make room for new ones, by stated limits.
 *
 *     spool_begin ──▶ NAME.tmp/  (locked by whoever writes it; files are put in) ──┬─ spool_seal ──▶ NAME/
 *                                                                                  └─ spool_abort ─▶ removed
 *
 * Several processes may use one directory. Only names that incident_name_ok() accepts are ever touched. Every call may
 * wait for the disk: not for the thread that samples. A spool is used by one thread at a time.
 */
#ifndef SPIKEWATCH_SPOOL_H
#define SPIKEWATCH_SPOOL_H

#include "clock.h"
#include "incident.h"
#include "retention.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Directories beyond are not looked at in one call. */
#define SPOOL_ENTRIES_MAX 10000

/* Behind the name of a directory that is being written, or removed. */
#define SPOOL_SUFFIX ".tmp"

struct spool;
struct spool_draft; /* an incident that is being written */

/*
 * Opens the directory, making it and those above it (0750) if need be, and removes what writers that have died left
 * behind; *ret_swept says how many (may be NULL). 0; -errno; -ENOMEM.
 */
int spool_open(const char *path, const struct retention_limits *limits, struct spool **ret, size_t *ret_swept);

/* How many noted drafts of writers that have died were sealed when the spool was opened. */
size_t spool_adopted(const struct spool *spool);

/* NULL is fine. Drafts must be gone. */
void spool_free(struct spool *spool);

/* Is there room for so many bytes more? Costs one system call. False too when the file system cannot be asked. */
bool spool_predict_ok(const struct spool *spool, uint64_t expected_bytes);

/*
 * Sealed incidents, oldest first, for free(3); NULL with count 0 if there are none. 0; -ENOMEM; -errno.
 */
int spool_list(const struct spool *spool, struct retention_entry **ret, size_t *ret_count);

/*
 * Begins an incident called "<stem>-<n>" with the smallest n that is free (stem: incident_stem). 0; -ENOMEM; -EINVAL:
 * stem is no name of an incident; -errno.
 */
int spool_begin(struct spool *spool, const char *stem, struct spool_draft **ret);

/* Its directory, to write files into with openat(2) and O_EXCL; stays the draft's. */
int spool_draft_dirfd(const struct spool_draft *draft);

/* The name it will have. */
const char *spool_draft_name(const struct spool_draft *draft);

/*
 * Sets incident->id to the name, writes incident.json and MANIFEST, brings every file to the disk, renames. Frees the
 * draft whatever happens. 0; -errno: nothing is left of it, unless it was the very last step that failed, the fsync of
 * the spool: then it is there, whole, but may not survive a power failure.
 */
int spool_seal(struct spool_draft *draft, struct incident *incident);

/*
 * Writes incident.json as far as it is known, sets its id. If this process dies before the draft is sealed, the next spool_open seals it as it is. 0 or -errno.
 */
int spool_note(struct spool_draft *draft, struct incident *incident);

/* Removes what was written and frees the draft. NULL is fine. */
void spool_abort(struct spool_draft *draft);

/*
 * Makes the limits true by removing what retention_choose says. removed (may be NULL) is called for each that was
 * removed. What cannot be removed stays. now: the wall clock. 0; -ENOMEM; -errno: the first failure; what could be
 * done was done.
 */
int spool_enforce(struct spool *spool, wall_t now,
		  void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why),
		  void *ctx);

#endif
