/*
 * unsealed.c: who is alive is asked of flock(2), as the daemon does. The lock is asked for only where incident.json is already there: by then its
 * writer has long taken its own, and does not find ours in its way.
 */
#include "unsealed.h"

#include "dirlist.h"
#include "incident.h"
#include "incident_json.h"
#include "manifest.h"
#include "scope.h"
#include "spooldir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOLDIR_SUFFIX))

struct walk {
	int dirfd;
	int (*visit)(void *ctx, const char *name);
	void *ctx;
};

bool unsealed_is_written(int incidentfd)
{
	if (faccessat(incidentfd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	    faccessat(incidentfd, MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return false;
	if (flock(incidentfd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK;

	flock(incidentfd, LOCK_UN);
	return false;
}

int unsealed_open(int dirfd, const char *name)
{
	char temporary[TEMPORARY_MAX];
	int len = snprintf(temporary, sizeof(temporary), "%s%s", name, SPOOLDIR_SUFFIX);
	int fd;

	if (len < 0 || (size_t)len >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = openat(dirfd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : -errno;
}

static int visit_entry(void *ctx, const char *entry)
{
	const struct walk *walk = ctx;
	size_t len = strlen(entry), suffix = strlen(SPOOLDIR_SUFFIX);
	char name[INCIDENT_NAME_MAX + 1];
	AUTO_CLOSE int fd = -1;

	if (len <= suffix || len - suffix >= sizeof(name) || strcmp(entry + len - suffix, SPOOLDIR_SUFFIX) != 0)
		return 0;
	memcpy(name, entry, len - suffix);
	name[len - suffix] = '\0';
	if (!incident_name_ok(name))
		return 0;
	fd = unsealed_open(walk->dirfd, name);

	return fd >= 0 && unsealed_is_written(fd) ? walk->visit(walk->ctx, name) : 0;
}

int unsealed_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx)
{
	struct walk walk = { .dirfd = dirfd, .visit = visit, .ctx = ctx };

	return dirlist_each(dirfd, visit_entry, &walk);
}
