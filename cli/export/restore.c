/*
 * restore.c: under another name first, like everything that has to be whole under its own. The names come from the page, which anybody may have
 * written: reportfile.h lets only those of incidents through, and files are made anew, never opened.
 */
#include "restore.h"

#include "incidentload.h"
#include "manifest.h"
#include "options.h"
#include "output.h"
#include "reportfile.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* While a page is taken apart. */
struct restoring {
	const char *command, *path;
	int dirfd;
	uint64_t files, bytes;
	bool trouble;
};

static int complain(const char *command, const char *what, const char *why)
{
	fprintf(stderr, "%s: ", command);
	output_escaped(stderr, what);
	fprintf(stderr, ": %s\n", why);
	return EXIT_TROUBLE;
}

static void trouble(struct restoring *restoring, const char *what, const char *why)
{
	complain(restoring->command, what, why);
	restoring->trouble = true;
}

bool restore_is_page(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int write_file(int dirfd, const char *name, const struct buffer *bytes)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	int rc = fd < 0 ? -errno : sink_write_all(fd, bytes->data ? bytes->data : "", bytes->len);

	if (rc == 0 && close(TAKE_FD(fd)) < 0)
		rc = -errno;
	return rc;
}

/* 0; -ENOMEM; the error of the disk. What is damaged is said and passed over. */
static int restore_file(struct restoring *restoring, const struct reportfile_entry *entry)
{
	AUTO(buffer_release) struct buffer bytes = { 0 };
	int rc = reportfile_get(entry, &bytes);

	if (rc == -EBADMSG) {
		trouble(restoring, entry->name, "damaged, not restored");
		return 0;
	}
	if (rc == 0)
		rc = write_file(restoring->dirfd, entry->name, &bytes);
	if (rc < 0)
		return rc;
	restoring->files++;
	restoring->bytes += bytes.len;
	return 0;
}

static int restore_files(struct restoring *restoring, struct reportfile *page)
{
	struct reportfile_entry entry;
	int rc = 0;

	while (rc >= 0 && rc != REPORTFILE_END) {
		rc = reportfile_next(page, &entry);
		if (rc == 0) {
			rc = restore_file(restoring, &entry);
			if (rc < 0)
				return rc;
		} else if (rc == -EBADMSG) {
			trouble(restoring, restoring->path, "a file in it is damaged, not restored");
			rc = 0;
		} else if (rc == -ENODATA) {
			trouble(restoring, restoring->path, "it was cut off, or changed: files may be missing");
		}
	}
	return 0;
}

static void say_fault(void *ctx, const char *name, enum manifest_fault fault)
{
	trouble(ctx, name, manifest_fault_name(fault));
}

/* What was left out of the page, or was damaged before it was made, is said by the incident's own list. */
static void verify(struct restoring *restoring)
{
	int rc = manifest_verify(restoring->dirfd, say_fault, restoring);

	if (rc < 0)
		trouble(restoring, MANIFEST_NAME, rc == -ENOENT ? "missing" : "damaged");
}

static void remove_files(int dirfd, struct reportfile page, const char *directory)
{
	struct reportfile_entry entry;
	int rc = 0;

	while (rc == 0 || rc == -EBADMSG) {
		rc = reportfile_next(&page, &entry);
		if (rc == 0)
			unlinkat(dirfd, entry.name, 0);
	}
	rmdir(directory);
}

static int restore_into(struct restoring *restoring, struct reportfile *page, const char *temporary,
			const char *directory)
{
	const struct reportfile from = *page;
	AUTO_CLOSE int dirfd = -1;
	int rc;

	if (mkdir(temporary, 0750) < 0)
		return complain(restoring->command, temporary, strerror(errno));
	dirfd = open(temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	restoring->dirfd = dirfd;
	rc = dirfd < 0 ? -errno : restore_files(restoring, page);
	if (rc == 0 && rename(temporary, directory) < 0)
		rc = -errno;
	if (rc < 0) {
		remove_files(dirfd, from, temporary);
		return rc == -ENOMEM ? output_no_memory() : complain(restoring->command, directory, strerror(-rc));
	}
	verify(restoring);
	printf("Restored: ");
	output_escaped(stdout, directory);
	printf(", %ju files, %ju bytes\n", (uintmax_t)restoring->files, (uintmax_t)restoring->bytes);
	return restoring->trouble ? EXIT_TROUBLE : EXIT_OK;
}

/* Without the slashes at its end. False: that is no place for a directory. */
static bool name_places(const char *directory, char place[static INCIDENTLOAD_PATH_MAX],
			char temporary[static INCIDENTLOAD_PATH_MAX])
{
	size_t len = strlen(directory);

	while (len > 1 && directory[len - 1] == '/')
		len--;
	return len > 0 && snprintf(place, INCIDENTLOAD_PATH_MAX, "%.*s", (int)len, directory) < INCIDENTLOAD_PATH_MAX &&
	       snprintf(temporary, INCIDENTLOAD_PATH_MAX, "%.*s.tmp-%d", (int)len, directory, (int)getpid()) <
		       INCIDENTLOAD_PATH_MAX;
}

static int restore(const char *command, const char *path, const char *directory, const struct buffer *text)
{
	struct restoring restoring = { .command = command, .path = path };
	char place[INCIDENTLOAD_PATH_MAX], temporary[INCIDENTLOAD_PATH_MAX];
	struct reportfile page;
	struct stat st;
	int rc = reportfile_start(&page, text->data ? text->data : "", text->len);

	if (rc < 0) {
		complain(command, path,
			 rc == -ENOENT ? "no incident, and no report of one" : "a report of a later version");
		return EXIT_USAGE;
	}
	if (!directory && !page.incident[0])
		return complain(command, path, "it does not say what the incident was called: --output DIR does");
	if (!name_places(directory ? directory : page.incident, place, temporary))
		return complain(command, directory, "no name for a directory");
	if (lstat(place, &st) == 0)
		return complain(command, place, "it is there already");
	return restore_into(&restoring, &page, temporary, place);
}

int restore_page(const char *command, const char *path, const char *directory)
{
	AUTO(buffer_release) struct buffer text = { .max = RESTORE_PAGE_MAX };
	int rc = incidentload_whole(AT_FDCWD, path, &text);

	if (rc == -ENOMEM)
		return output_no_memory();
	if (rc < 0)
		return complain(command, path, strerror(-rc));
	return restore(command, path, directory, &text);
}
