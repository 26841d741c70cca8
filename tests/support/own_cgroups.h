/*
 * own_cgroups.h: cgroups of a test's own, below one directory in each hierarchy that the daemon
 * reads, v1 and v2. Made before the tests of a case and removed after them, whatever became of
 * them: own_cgroups_make and own_cgroups_remove belong into an unchecked fixture.
 */
#ifndef SPIKEWATCH_TESTS_OWN_CGROUPS_H
#define SPIKEWATCH_TESTS_OWN_CGROUPS_H

#include "lib/cgroup/cgroup_mounts.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_CGROUPS_HIERARCHIES 8u

struct own_cgroups {
	char name[48];                           /* of the directory, as its path in a hierarchy: "/NAME" */
	char tops[OWN_CGROUPS_HIERARCHIES][256]; /* the directories */
	size_t count;                            /* 0: this user may make none */
};

/* Several controllers may share a hierarchy: there it is already. */
static inline void own_cgroups_make_in(struct own_cgroups *cgroups, const char *hierarchy)
{
	char top[sizeof(cgroups->tops[0])];

	if (!hierarchy || cgroups->count == OWN_CGROUPS_HIERARCHIES)
		return;
	snprintf(top, sizeof(top), "%s%s", hierarchy, cgroups->name);
	memcpy(cgroups->tops[cgroups->count], top, sizeof(top));
	cgroups->count += mkdir(top, 0755) == 0;
}

static inline void own_cgroups_make(struct own_cgroups *cgroups, const char *what)
{
	struct cgroup_mounts *mounts;
	bool v2;

	cgroups->count = 0;
	snprintf(cgroups->name, sizeof(cgroups->name), "/check-%s-%d", what, getpid());
	if (cgroup_mounts_new("/proc", "", &mounts) < 0)
		return;
	for (int controller = 0; controller < CGROUP_CONTROLLERS; controller++)
		own_cgroups_make_in(cgroups, cgroup_mounts_controller(mounts, (enum cgroup_resource)controller, &v2));
	own_cgroups_make_in(cgroups, cgroup_mounts_v2(mounts));
	cgroup_mounts_free(mounts);
}

/* Removes what is below a directory. False: a process is in it, or was a moment ago. */
static inline bool own_cgroups_empty_one(int in, const char *path)
{
	int fd = openat(in, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool empty = true;

	for (struct dirent *item; dir && (item = readdir(dir));)
		if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
			empty &= own_cgroups_empty_one(fd, item->d_name) &&
				 (unlinkat(fd, item->d_name, AT_REMOVEDIR) == 0 || errno != EBUSY);
	if (dir)
		closedir(dir);
	return empty;
}

/*
 * Without what a test has left in them that failed: a checked fixture's setup, which runs before the next one. Its
 * processes end with it, or soon.
 */
static inline void own_cgroups_empty(struct own_cgroups *cgroups)
{
	for (size_t i = 0; i < cgroups->count; i++)
		for (int naps = 0; naps < 1000 && !own_cgroups_empty_one(AT_FDCWD, cgroups->tops[i]); naps++)
			usleep(2000);
}

/* With what is left in them, which has no processes any more, or soon: on a busy machine within some seconds. */
static inline void own_cgroups_remove(struct own_cgroups *cgroups)
{
	own_cgroups_empty(cgroups);
	for (size_t i = 0; i < cgroups->count; i++)
		for (int naps = 0; naps < 5000 && rmdir(cgroups->tops[i]) < 0 && errno == EBUSY; naps++)
			usleep(2000);
	cgroups->count = 0;
}

/* In all hierarchies. 0 or -errno of the first that failed. */
static inline int own_cgroups_add(struct own_cgroups *cgroups, const char *name)
{
	char path[600];

	for (size_t i = 0; i < cgroups->count; i++) {
		snprintf(path, sizeof(path), "%s/%s", cgroups->tops[i], name);
		if (mkdir(path, 0755) < 0)
			return -errno;
	}

	return 0;
}

static inline void own_cgroups_drop(struct own_cgroups *cgroups, const char *name)
{
	char path[600];

	for (size_t i = 0; i < cgroups->count; i++) {
		snprintf(path, sizeof(path), "%s/%s", cgroups->tops[i], name);
		/* What has ended is in it for a moment. */
		for (int naps = 0; naps < 1000 && rmdir(path) < 0 && errno == EBUSY; naps++)
			usleep(2000);
		ck_assert_int_lt(access(path, F_OK), 0);
	}
}

/* In all hierarchies but those that want more before they take a process: v1's cpuset. */
static inline void own_cgroups_join(struct own_cgroups *cgroups, const char *name, pid_t pid)
{
	char path[640], number[16];
	int len = snprintf(number, sizeof(number), "%d", pid);

	for (size_t i = 0; i < cgroups->count; i++) {
		snprintf(path, sizeof(path), "%s/%s/cgroup.procs", cgroups->tops[i], name);

		int fd = open(path, O_WRONLY | O_CLOEXEC);

		ck_assert_int_ge(fd, 0);
		ck_assert(write(fd, number, (size_t)len) == len || errno == ENOSPC);
		close(fd);
	}
}

#endif
