/* paths.c: see the header for the order. Directories are made with mode 0750: what is recorded is not everybody's business. */
#include "paths.h"

#include "dirtree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int set(char *ret, size_t cap, const char *a, const char *b, const char *c)
{
	return snprintf(ret, cap, "%s%s%s", a, b, c) >= (int)cap ? -ENAMETOOLONG : 0;
}

/* A directory for one purpose: systemd's word, else root's place, else below an XDG variable, else below $HOME. */
static int choose_directory(const char *systemd, const char *root, const char *xdg, const char *home_below, char *ret)
{
	const char *given = getenv(systemd);
	const char *base = getenv(xdg), *home = getenv("HOME");

	if (given && *given)
		return set(ret, PATHS_MAX, given, "", "");
	if (geteuid() == 0)
		return set(ret, PATHS_MAX, root, "", "");
	if (base && *base)
		return set(ret, PATHS_MAX, base, "/spikewatch", "");
	if (home && *home)
		return set(ret, PATHS_MAX, home, home_below, "/spikewatch");

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

	return set(ret->state_name, sizeof ret->state_name, slash ? slash + 1 : file, "", "");
}

/* Beside the ring. */
static int set_control(struct paths *paths)
{
	const char *slash = strrchr(paths->ring, '/');
	int len = slash ? (int)(slash - paths->ring) + 1 : 0;

	return snprintf(paths->control, sizeof paths->control, "%.*scontrol", len, paths->ring) >=
			       (int)sizeof paths->control
		       ? -ENAMETOOLONG
		       : 0;
}

int paths_choose(const struct config *config, struct paths *ret)
{
	char run[PATHS_MAX], state[PATHS_MAX];
	int r = 0;

	memset(ret, 0, sizeof *ret);
	if (*config->ring.path)
		r = set(ret->ring, PATHS_MAX, config->ring.path, "", "");
	else if ((r = choose_directory("RUNTIME_DIRECTORY", "/run/spikewatch", "XDG_RUNTIME_DIR", "/.cache", run)) == 0)
		r = set(ret->ring, PATHS_MAX, run, "/ring", "");
	if (r < 0)
		return r;

	r = set_control(ret);
	if (r < 0)
		return r;

	if (*config->incidents.directory)
		r = set(ret->incidents, PATHS_MAX, config->incidents.directory, "", "");
	else if ((r = choose_directory("STATE_DIRECTORY", "/var/lib/spikewatch", "XDG_STATE_HOME", "/.local/state",
				       state)) == 0)
		r = set(ret->incidents, PATHS_MAX, state, "/incidents", "");
	if (r < 0)
		return r;

	if (*config->state_file)
		return split_state_file(config->state_file, ret);

	char beside[PATHS_MAX + 16];

	r = set(beside, sizeof beside, ret->incidents, "/../state.json", "");

	return r < 0 ? r : split_state_file(beside, ret);
}

int paths_make_parent(const char *file)
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

	return dirtree_make(path);
}
