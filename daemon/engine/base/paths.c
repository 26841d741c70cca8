/*
 * paths.c: choice of the daemon's files, and the locks that its processes exclude each other by.
 *
 * Directories are made with mode 0750: recorded command lines and samples are not for every user.
 * flock(2) asks for no more than a descriptor to read by, so a lock on a file or directory that the
 * group may read could be held by any of its members. Therefore locks have files of their own, with
 * mode 0600. They are opened to be read: the service may read one that root has made.
 */
#include "daemon/engine/base/paths.h"

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int join_path(char *ret, size_t cap, const char *a, const char *b, const char *c)
{
	return snprintf(ret, cap, "%s%s%s", a, b, c) >= (int)cap ? -ENAMETOOLONG : 0;
}

/* The variable that systemd sets; else for root its place; else below an XDG variable, or $HOME. */
static int choose_directory(const char *systemd, const char *root, const char *xdg, const char *home_below, char *ret)
{
	const char *given = getenv(systemd);
	const char *base = getenv(xdg), *home = getenv("HOME");

	if (given && *given)
		return join_path(ret, PATHS_MAX, given, "", "");
	if (geteuid() == 0)
		return join_path(ret, PATHS_MAX, root, "", "");
	if (base && *base)
		return join_path(ret, PATHS_MAX, base, "/spikewatch", "");
	if (home && *home)
		return join_path(ret, PATHS_MAX, home, home_below, "/spikewatch");

	return -ENOENT;
}

static int split_state_file(const char *file, struct paths *ret)
{
	const char *slash = strrchr(file, '/');
	size_t len = slash ? (size_t)(slash - file) : 0;

	if (len >= sizeof ret->state)
		return -ENAMETOOLONG;
	memcpy(ret->state, len ? file : slash ? "/" : ".", len ? len : 1);
	ret->state[len ? len : 1] = '\0';

	return join_path(ret->state_name, sizeof ret->state_name, slash ? slash + 1 : file, "", "");
}

static int set_control(struct paths *paths)
{
	const char *slash = strrchr(paths->ring, '/');
	int len = slash ? (int)(slash - paths->ring) + 1 : 0;

	return snprintf(paths->control, sizeof paths->control, "%.*scontrol", len, paths->ring) >=
			       (int)sizeof paths->control
		       ? -ENAMETOOLONG
		       : 0;
}

/* "history" instead of the last component. */
static int set_history(const struct config *config, struct paths *paths)
{
	const char *slash = strrchr(paths->incidents, '/');
	int len = slash ? (int)(slash - paths->incidents) + 1 : 0;

	if (*config->history.directory)
		return join_path(paths->history, PATHS_MAX, config->history.directory, "", "");
	return snprintf(paths->history, PATHS_MAX, "%.*shistory", len, paths->incidents) >= PATHS_MAX ? -ENAMETOOLONG
												      : 0;
}

int paths_choose(const struct config *config, struct paths *ret)
{
	char run[PATHS_MAX], state[PATHS_MAX];
	int r = 0;

	memset(ret, 0, sizeof *ret);
	if (*config->ring.path)
		r = join_path(ret->ring, PATHS_MAX, config->ring.path, "", "");
	else if ((r = choose_directory("RUNTIME_DIRECTORY", PATHS_SYSTEM_RUN, "XDG_RUNTIME_DIR", "/.cache", run)) == 0)
		r = join_path(ret->ring, PATHS_MAX, run, "/ring", "");
	if (r < 0)
		return r;

	r = set_control(ret);
	if (r < 0)
		return r;

	if (*config->incidents.directory)
		r = join_path(ret->incidents, PATHS_MAX, config->incidents.directory, "", "");
	else if ((r = choose_directory("STATE_DIRECTORY", PATHS_SYSTEM_STATE, "XDG_STATE_HOME", "/.local/state",
				       state)) == 0)
		r = join_path(ret->incidents, PATHS_MAX, state, "/incidents", "");
	if (r == 0)
		r = set_history(config, ret);
	if (r < 0)
		return r;

	if (*config->state_file)
		return split_state_file(config->state_file, ret);

	char beside[PATHS_MAX + 16];

	r = join_path(beside, sizeof beside, ret->incidents, "/../state.json", "");

	return r < 0 ? r : split_state_file(beside, ret);
}

static int make_parent(const char *file)
{
	char path[PATHS_MAX];
	const char *slash = strrchr(file, '/');
	size_t len = slash ? (size_t)(slash - file) : 0;

	if (strlen(file) >= sizeof path)
		return -ENAMETOOLONG;
	if (len == 0)
		return 0;

	memcpy(path, file, len);
	path[len] = '\0';

	return directory_tree_make(path);
}

int lock_file_take(int dirfd, const char *path, int *ret)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r = make_parent(path);

	if (r < 0)
		return r;
	/* Nothing is written, and so no disk waited for, where it is there. */
	fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		fd = openat(dirfd, path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	/* An older version has made it for its group, too. Of another user's file nothing is changed. */
	if (fstat(fd, &st) == 0 && (st.st_mode & 077) != 0)
		(void)fchmod(fd, 0600);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	*ret = TAKE_FD(fd);
	return 0;
}
