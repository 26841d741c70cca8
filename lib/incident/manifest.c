/*
 * manifest.c: sizes and checksums of a sealed directory.
 *
 * Parsing is strict and canonical (one way to write a number, sorted names, nothing after the
 * checksum), so a MANIFEST is byte for byte what manifest_write writes, or damaged. The last line
 * covers all lines above, the first one included, and is checked before any of them is used.
 *
 * Names are restricted in writing and reading: a MANIFEST can never lead out of its directory, and
 * files are opened without following symbolic links and without blocking on a FIFO.
 *
 * Rejected: cryptographic digests. They would promise protection against an attacker who can
 * rewrite MANIFEST as well.
 */
#include "lib/incident/manifest.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MANIFEST_BYTES_MAX 16384 /* of MANIFEST: more than entries times their longest line */

#define FIRST_LINE "SPIKEWATCH-MANIFEST 1\n"
#define FIRST_WORD "SPIKEWATCH-MANIFEST "
#define LAST_WORD "CRC32 "
#define LAST_LEN (sizeof(LAST_WORD) - 1 + 8 + 1)
#define CHUNK_BYTES 65536 /* files are read in pieces of this size */

/* The text that is not parsed yet. */
struct rest {
	const char *at;
	size_t len;
};

bool manifest_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= MANIFEST_NAME_MAX && name[0] != '.' &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == len;
}

const char *manifest_fault_name(enum manifest_fault fault)
{
	static const char *const names[] = {
		[MANIFEST_MISSING] = "missing",       [MANIFEST_EXTRA] = "extra",
		[MANIFEST_SIZE] = "wrong size",       [MANIFEST_CHECKSUM] = "wrong checksum",
		[MANIFEST_UNREADABLE] = "unreadable",
	};

	return names[fault];
}

/* ---- reading ---- */

static bool take_text(struct rest *rest, const char *text)
{
	size_t len = strlen(text);

	if (rest->len < len || memcmp(rest->at, text, len) != 0)
		return false;
	rest->at += len;
	rest->len -= len;
	return true;
}

/* Canonical decimal: no sign, no leading zero, fits. */
static bool take_size(struct rest *rest, uint64_t *ret)
{
	const char *end = text_parse_u64(rest->at, rest->at + rest->len, ret);

	if (!end || (rest->at[0] == '0' && end - rest->at > 1))
		return false;
	rest->len -= (size_t)(end - rest->at);
	rest->at = end;
	return true;
}

/* Eight lower-case digits. */
static bool take_crc(struct rest *rest, uint32_t *ret)
{
	uint64_t value;

	if (rest->len < 8 || text_parse_hex(rest->at, rest->at + 8, &value) != rest->at + 8)
		return false;
	rest->at += 8;
	rest->len -= 8;
	*ret = (uint32_t)value;
	return true;
}

static bool take_name(struct rest *rest, char ret[static MANIFEST_NAME_MAX + 1])
{
	const char *end = memchr(rest->at, '\n', rest->len);
	size_t len = end ? (size_t)(end - rest->at) : 0;

	if (len == 0 || len > MANIFEST_NAME_MAX || memchr(rest->at, '\0', len))
		return false;
	memcpy(ret, rest->at, len);
	ret[len] = '\0';
	rest->at += len + 1;
	rest->len -= len + 1;
	return manifest_name_ok(ret) && strcmp(ret, MANIFEST_NAME) != 0;
}

/* "1234 0a1b2c3d samples.tsv\n" */
static bool take_entry(struct rest *rest, struct manifest_entry *ret)
{
	return take_size(rest, &ret->size_bytes) && take_text(rest, " ") && take_crc(rest, &ret->crc32) &&
	       take_text(rest, " ") && take_name(rest, ret->name);
}

/* Checks the first and the last line, and leaves the lines between them in *rest. */
static int check_frame(struct rest *rest)
{
	struct rest last;
	uint32_t crc;

	if (rest->len < LAST_LEN)
		return -EBADMSG;
	last = (struct rest){ rest->at + rest->len - LAST_LEN, LAST_LEN };
	rest->len -= LAST_LEN;
	if (!take_text(&last, LAST_WORD) || !take_crc(&last, &crc) || !take_text(&last, "\n"))
		return -EBADMSG;
	if (checksum_crc32(0, rest->at, rest->len) != crc)
		return -EBADMSG;
	if (take_text(rest, FIRST_LINE))
		return 0;
	return take_text(rest, FIRST_WORD) ? -EPROTONOSUPPORT : -EBADMSG;
}

int manifest_parse(const char *text, size_t len, struct manifest *ret)
{
	struct manifest manifest = { 0 };
	struct rest rest = { text, len };
	int r;

	r = check_frame(&rest);
	if (r < 0)
		return r;

	while (rest.len > 0) {
		struct manifest_entry *entry = &manifest.entries[manifest.count];

		if (manifest.count == MANIFEST_ENTRIES_MAX || !take_entry(&rest, entry))
			return -EBADMSG;
		if (manifest.count > 0 && strcmp(entry[-1].name, entry->name) >= 0)
			return -EBADMSG;
		manifest.count++;
	}
	*ret = manifest;
	return 0;
}

/* ---- files ---- */

/* 0; -EINVAL: not a regular file; -errno. */
static int open_plain(int dirfd, const char *name, int *ret)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ELOOP ? -EINVAL : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*ret = TAKE_FD(fd);
	return 0;
}

/* Size and checksum of all of fd, as read. */
static int checksum_file(int fd, struct manifest_entry *entry)
{
	AUTO_FREE char *chunk = malloc(CHUNK_BYTES);

	if (!chunk)
		return -ENOMEM;

	entry->size_bytes = 0;
	entry->crc32 = 0;
	for (;;) {
		ssize_t n = read(fd, chunk, CHUNK_BYTES);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		entry->size_bytes += (uint64_t)n;
		entry->crc32 = checksum_crc32(entry->crc32, chunk, (size_t)n);
	}
}

/* ---- writing ---- */

struct listing {
	int dirfd;
	void (*between)(void *ctx);
	void *ctx;
	struct manifest manifest;
};

/* Verifying tells of it: one that could not be removed is no reason to seal nothing. */
static bool is_directory(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int add_file(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	struct manifest *manifest = &listing->manifest;
	struct manifest_entry entry = { 0 };
	AUTO_CLOSE int fd = -1;
	size_t at = manifest->count;
	int r;

	if (strcmp(name, MANIFEST_NAME) == 0 || is_directory(listing->dirfd, name))
		return 0;
	if (!manifest_name_ok(name))
		return -EINVAL;
	if (manifest->count == MANIFEST_ENTRIES_MAX)
		return -E2BIG;
	r = open_plain(listing->dirfd, name, &fd);
	if (r < 0)
		return r;
	r = checksum_file(fd, &entry);
	if (r < 0)
		return r;
	if (fsync(fd) < 0)
		return -errno;
	if (listing->between)
		listing->between(listing->ctx);

	memcpy(entry.name, name, strlen(name));
	for (; at > 0 && strcmp(manifest->entries[at - 1].name, name) > 0; at--)
		manifest->entries[at] = manifest->entries[at - 1];
	manifest->entries[at] = entry;
	manifest->count++;
	return 0;
}

/*
 * Into text, which has room for MANIFEST_BYTES_MAX: the longest line has 20 + 1 + 8 + 1 +
 * MANIFEST_NAME_MAX + 1 bytes.
 */
static size_t format_manifest(const struct manifest *manifest, char *text)
{
	size_t len = sizeof(FIRST_LINE) - 1;

	_Static_assert(MANIFEST_BYTES_MAX > MANIFEST_ENTRIES_MAX * (31 + MANIFEST_NAME_MAX) + 64, "all lines fit");
	memcpy(text, FIRST_LINE, len);
	for (size_t i = 0; i < manifest->count; i++) {
		const struct manifest_entry *entry = &manifest->entries[i];

		len += (size_t)snprintf(text + len, MANIFEST_BYTES_MAX - len, "%ju %08x %s\n",
					(uintmax_t)entry->size_bytes, entry->crc32, entry->name);
	}
	len += (size_t)snprintf(text + len, MANIFEST_BYTES_MAX - len, LAST_WORD "%08x\n", checksum_crc32(0, text, len));
	return len;
}

int manifest_write_slowly(int dirfd, void (*between)(void *ctx), void *ctx)
{
	struct listing listing = { .dirfd = dirfd, .between = between, .ctx = ctx };
	char text[MANIFEST_BYTES_MAX];
	AUTO_CLOSE int fd = -1;
	int r;

	r = directory_list_each(dirfd, add_file, &listing);
	if (r < 0)
		return r;

	fd = openat(dirfd, MANIFEST_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	r = sink_write_all(fd, text, format_manifest(&listing.manifest, text));
	if (r < 0)
		return r;
	return fsync(fd) < 0 ? -errno : 0;
}

/* ---- verifying ---- */

struct verification {
	int dirfd;
	struct manifest manifest;
	bool seen[MANIFEST_ENTRIES_MAX];
	void (*report)(void *ctx, const char *name, enum manifest_fault fault);
	void *ctx;
	bool differs;
};

static void report_difference(struct verification *verification, const char *name, enum manifest_fault fault)
{
	verification->differs = true;
	if (verification->report)
		verification->report(verification->ctx, name, fault);
}

/* Lack of memory or descriptors is an error; all else is a difference of the file. */
static int verify_file(struct verification *verification, const struct manifest_entry *wanted)
{
	struct manifest_entry found = { 0 };
	AUTO_CLOSE int fd = -1;
	int r;

	r = open_plain(verification->dirfd, wanted->name, &fd);
	if (r == 0)
		r = checksum_file(fd, &found);
	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
		return r;
	if (r < 0)
		report_difference(verification, wanted->name, MANIFEST_UNREADABLE);
	else if (found.size_bytes != wanted->size_bytes)
		report_difference(verification, wanted->name, MANIFEST_SIZE);
	else if (found.crc32 != wanted->crc32)
		report_difference(verification, wanted->name, MANIFEST_CHECKSUM);
	return 0;
}

static int verify_name(void *ctx, const char *name)
{
	struct verification *verification = ctx;

	if (strcmp(name, MANIFEST_NAME) == 0)
		return 0;
	for (size_t i = 0; i < verification->manifest.count; i++) {
		if (strcmp(verification->manifest.entries[i].name, name) != 0)
			continue;
		verification->seen[i] = true;
		return verify_file(verification, &verification->manifest.entries[i]);
	}
	report_difference(verification, name, MANIFEST_EXTRA);
	return 0;
}

static int read_manifest(int dirfd, struct manifest *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = MANIFEST_BYTES_MAX };
	int r = whole_file_read(dirfd, MANIFEST_NAME, &text);

	if (r == -EINVAL || r == -ELOOP || r == -EFBIG)
		return -EBADMSG;
	return r < 0 ? r : manifest_parse(text.data, text.len, ret);
}

int manifest_verify(int dirfd, void (*report)(void *ctx, const char *name, enum manifest_fault fault), void *ctx)
{
	struct verification verification = { .dirfd = dirfd, .report = report, .ctx = ctx };
	int r;

	r = read_manifest(dirfd, &verification.manifest);
	if (r < 0)
		return r;
	r = directory_list_each(dirfd, verify_name, &verification);
	if (r < 0)
		return r;

	for (size_t i = 0; i < verification.manifest.count; i++)
		if (!verification.seen[i])
			report_difference(&verification, verification.manifest.entries[i].name, MANIFEST_MISSING);
	return verification.differs ? MANIFEST_DIFFERS : 0;
}
