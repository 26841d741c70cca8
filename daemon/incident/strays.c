/*
 * strays.c: a look at all names, then one decision each. A manifest lists plain files with plain names only, so whatever else a command
 * has made would make the incident impossible to seal.
 */
#include "strays.h"

#include "dirlist.h"
#include "dirtree.h"
#include "incident_json.h"
#include "manifest.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Room for the files that are kept, the samples and what else there may be goes before records of what was removed. */
#define REMOVED_MAX (INCIDENT_CAPTURES_MAX - STRAYS_MAX - 4)

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

	return errno == EISDIR || errno == EPERM ? dirtree_remove(dirfd, name) : -errno;
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

		if (fits && kept < STRAYS_MAX) {
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

int strays_settle(int dirfd, uint64_t max_bytes, struct incident *incident)
{
	AUTO_FREE struct settling *settling = calloc(1, sizeof *settling);
	struct incident_capture rest = { .status = INCIDENT_CAPTURE_FAILED };
	int r;

	if (!settling)
		return -ENOMEM;

	settling->dirfd = dirfd;
	settling->incident = incident;
	r = check_ours(dirfd, incident);
	if (r < 0)
		return r;
	settling->captures = incident->capture_count;
	r = dirlist_each(dirfd, look, settling);
	if (r == 0)
		r = keep_or_remove(settling, max_bytes);
	if (r < 0 || settling->unlisted == 0)
		return r;

	incident_text(rest.name, sizeof rest.name, INCIDENT_LEFT_FILE);
	snprintf(rest.why, sizeof rest.why, "removed: %zu more", settling->unlisted);
	incident_add_capture(incident, &rest);

	return 0;
}
