/* incidentpick.c: a path is taken as it is; an id is looked for among the names that are there. */
#include "incidentpick.h"

#include "incident_json.h"
#include "output.h"
#include "scope.h"
#include "unsealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_A_DIRECTORY \
	"a file, and not the directory of an incident; a page of a report spikewatch export, without a format, makes " \
	"one"

/* Explains on stderr. Returns error. */
static int refuse(const char *command, const char *what, const char *why, int error)
{
	fprintf(stderr, "%s: ", command);
	output_escaped(stderr, what);
	fprintf(stderr, ": %s\n", why);
	return error;
}

int incidentpick_directory(const char *command, const char *option, char *buf, size_t cap)
{
	int rc = incidentload_directory(option, buf, cap);

	if (rc == -ENOENT)
		return refuse(command, "cannot tell where incidents are",
			      "neither HOME nor XDG_STATE_HOME is set; -d DIR says it", rc);
	return rc < 0 ? refuse(command, "cannot tell where incidents are", strerror(-rc), rc) : 0;
}

size_t incidentpick_hidden(const char *command, int dirfd, const struct incidentload_names *names)
{
	size_t hidden = 0;

	for (size_t i = 0; i < names->count; i++) {
		AUTO_CLOSE int fd = incidentload_open(dirfd, names->name[i]);

		hidden += fd == -EACCES || fd == -EPERM;
	}
	if (hidden)
		fprintf(stderr,
			"%s: %zu of %zu incidents may not be read: ask as root, or as a member of the group "
			"spikewatch\n",
			command, hidden, names->count);
	return hidden;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* What might have been meant. Returns -ENOENT. */
static int refuse_none(const char *command, const char *directory, const char *query, size_t count)
{
	if (is_file(query))
		return refuse(command, query, NOT_A_DIRECTORY, -ENOENT);
	if (access(query, F_OK) == 0)
		return refuse(command, query, "no incident is called so; a path has a slash, as in ./NAME", -ENOENT);
	if (count == 0)
		return refuse(command, directory, "there are no incidents; -d DIR looks elsewhere", -ENOENT);
	return refuse(command, query, "no incident is called so; see spikewatch list", -ENOENT);
}

/* The name that a query means. */
struct wanted {
	const char *query;
	char name[INCIDENT_NAME_MAX + 1];
	size_t count;
};

static int consider(void *ctx, const char *name)
{
	struct wanted *wanted = ctx;

	if (strstr(name, wanted->query) && wanted->count++ == 0)
		incident_text(wanted->name, sizeof(wanted->name), name);
	return 0;
}

/* One that is still being written. fd; -ENOENT: none, or several, are called so. */
static int open_unsealed(int dirfd, const char *query)
{
	struct wanted wanted = { .query = query };
	int rc = *query ? unsealed_each(dirfd, consider, &wanted) : 0;

	return rc == 0 && wanted.count == 1 ? unsealed_open(dirfd, wanted.name) : -ENOENT;
}

static int open_by_id(const char *command, const char *directory, const char *query)
{
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name;
	int fd, rc = dirfd >= 0 ? incidentload_list(dirfd, &names) : -errno;

	if (rc == -ENOENT)
		return refuse(command, directory, "there is no such directory; -d DIR looks elsewhere", rc);
	if (rc < 0)
		return refuse(command, directory, strerror(-rc), rc);
	rc = incidentload_find(&names, query, &name);
	if (rc == INCIDENTLOAD_NONE) {
		fd = open_unsealed(dirfd, query);
		return fd >= 0 ? fd : refuse_none(command, directory, query, names.count);
	}
	if (rc == INCIDENTLOAD_MANY) {
		refuse(command, query, "more than one incident is called so; the newest of them is", -EEXIST);
		fprintf(stderr, "  %s\n", name);
		return -EEXIST;
	}
	fd = incidentload_open(dirfd, name);
	return fd >= 0 ? fd : refuse(command, query, strerror(-fd), fd);
}

static int open_any(const char *command, const char *option, const char *query)
{
	char directory[INCIDENTLOAD_PATH_MAX];
	int rc;

	if (strchr(query, '/') || strcmp(query, ".") == 0) {
		rc = incidentload_open(AT_FDCWD, strcmp(query, ".") == 0 ? "./" : query);
		return rc >= 0 ? rc : refuse(command, query, is_file(query) ? NOT_A_DIRECTORY : strerror(-rc), rc);
	}
	rc = incidentpick_directory(command, option, directory, sizeof(directory));
	if (rc < 0)
		return rc;
	return open_by_id(command, directory, query);
}

int incidentpick_any(const char *command, const char *directory, const char *query, int *ret)
{
	AUTO_CLOSE int fd = open_any(command, directory, query);

	if (fd < 0)
		return fd;
	if (faccessat(fd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(command, query, "no incident: there is no " INCIDENT_FILE " in it", INCIDENTPICK_FOREIGN);
	*ret = TAKE_FD(fd);
	return 0;
}

int incidentpick(const char *command, const char *directory, const char *query, int *ret)
{
	AUTO_CLOSE int fd = -1;
	int rc = incidentpick_any(command, directory, query, &fd);

	if (rc != 0)
		return rc;
	if (unsealed_is_written(fd))
		return refuse(command, query, "it is still being written; spikewatch show says what there is so far",
			      -EBUSY);
	*ret = TAKE_FD(fd);
	return 0;
}
