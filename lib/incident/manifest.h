/*
 * manifest.h: the list of a sealed directory's files with their sizes and checksums, to tell later
 * whether it is still what was written. The format:
 *
 *     SPIKEWATCH-MANIFEST 1
 *     <size in bytes> <CRC-32, 8 hex digits> <name>
 *     ...
 *     CRC32 <CRC-32 of all bytes above>
 *
 * The CRC-32 is the one of gzip and zlib. Lines are sorted by name; MANIFEST itself is not listed.
 */
#ifndef SPIKEWATCH_LIB_INCIDENT_MANIFEST_H
#define SPIKEWATCH_LIB_INCIDENT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_NAME "MANIFEST"
#define MANIFEST_ENTRIES_MAX 64 /* an incident holds about ten files */
#define MANIFEST_NAME_MAX 64    /* of a file, the NUL excluded */

/* Positive return of manifest_verify. */
enum { MANIFEST_DIFFERS = 1 };

struct manifest_entry {
	char name[MANIFEST_NAME_MAX + 1];
	uint64_t size_bytes;
	uint32_t crc32;
};

/* A value. Names are unique and sorted. */
struct manifest {
	size_t count;
	struct manifest_entry entries[MANIFEST_ENTRIES_MAX];
};

enum manifest_fault {
	MANIFEST_MISSING,    /* listed, but not there */
	MANIFEST_EXTRA,      /* there, but not listed (name may hold any byte) */
	MANIFEST_SIZE,       /* of another length */
	MANIFEST_CHECKSUM,   /* of the same length, but changed */
	MANIFEST_UNREADABLE, /* no plain file, no permission, I/O error */
};

/*
 * May a file of a sealed directory have this name: 1 to MANIFEST_NAME_MAX of A-Z a-z 0-9 _ . -, and
 * no dot first.
 */
bool manifest_name_ok(const char *name);

/*
 * Reads the text of a MANIFEST. 0; -EBADMSG: damaged, truncated, or no MANIFEST; -EPROTONOSUPPORT:
 * a later format.
 */
int manifest_parse(const char *text, size_t len, struct manifest *ret);

/*
 * Lists dirfd, checksums every file in it and makes sure each has reached the disk (fsync), then
 * writes MANIFEST (which must not exist) and syncs that too. between (may be NULL) is called after each
 * file, since each may take long. Directories are left out. 0; -EINVAL: something else there is no
 * plain file or has a name that is not allowed; -E2BIG: too many files; -errno.
 */
int manifest_write_slowly(int dirfd, void (*between)(void *ctx), void *ctx);

static inline int manifest_write(int dirfd)
{
	return manifest_write_slowly(dirfd, NULL, NULL);
}

/*
 * Compares dirfd with its MANIFEST; report (may be NULL) is called for every difference. 0: all as
 * written; MANIFEST_DIFFERS: not so; -ENOENT: no MANIFEST; -EBADMSG, -EPROTONOSUPPORT: as
 * manifest_parse; -errno.
 */
int manifest_verify(int dirfd, void (*report)(void *ctx, const char *name, enum manifest_fault fault), void *ctx);

/* "missing", "extra", "wrong size", "wrong checksum", "unreadable". */
const char *manifest_fault_name(enum manifest_fault fault);

#endif
