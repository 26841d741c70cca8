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

static char own_cgroups_name[48]; /* of the directory, as its path in a hierarchy: "/NAME" */

static struct {
	char tops[OWN_CGROUPS_HIERARCHIES][256]; /* the directories */
	size_t count;                            /* 0: this user may make none */
} own_cgroups;

/* Several controllers may share a hierarchy: there it is already. */
static inline void own_cgroups_make_in(const char *hierarchy)
{
	char *top = own_cgroups.tops[own_cgroups.count];

	if (!hierarchy || own_cgroups.count == OWN_CGROUPS_HIERARCHIES)
		return;
	snprintf(top, sizeof(own_cgroups.tops[0]), "%s%s", hierarchy, own_cgroups_name);
	own_cgroups.count += mkdir(top, 0755) == 0;
}

static inline void own_cgroups_make(const char *what)
{
	struct cgroup_mounts *mounts;
	bool v2;

	own_cgroups.count = 0;
	snprintf(own_cgroups_name, sizeof(own_cgroups_name), "/check-%s-%d", what, getpid());
	if (cgroup_mounts_new("/proc", "", &mounts) < 0)
		return;
	for (int controller = 0; controller < CGROUP_CONTROLLERS; controller++)
		own_cgroups_make_in(cgroup_mounts_controller(mounts, (enum cgroup_resource)controller, &v2));
	own_cgroups_make_in(cgroup_mounts_v2(mounts));
	cgroup_mounts_free(mounts);
}

/* With what is left in them, which has no processes any more, or soon. */
static inline void own_cgroups_remove(void)
{
	for (size_t i = 0; i < own_cgroups.count; i++) {
		for (int naps = 0; naps < 1000; naps++) {
			DIR *dir = opendir(own_cgroups.tops[i]);

			for (struct dirent *item; dir && (item = readdir(dir));)
				if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 &&
				    strcmp(item->d_name, "..") != 0)
					unlinkat(dirfd(dir), item->d_name, AT_REMOVEDIR);
			if (dir)
				closedir(dir);
			if (rmdir(own_cgroups.tops[i]) == 0 || errno != EBUSY)
				break;
			usleep(2000);
		}
	}
	own_cgroups.count = 0;
}

/* In all hierarchies. 0 or -errno of the first that failed. */
static inline int own_cgroups_add(const char *name)
{
	char path[600];

	for (size_t i = 0; i < own_cgroups.count; i++) {
		snprintf(path, sizeof(path), "%s/%s", own_cgroups.tops[i], name);
		if (mkdir(path, 0755) < 0)
			return -errno;
	}

	return 0;
}

static inline void own_cgroups_drop(const char *name)
{
	char path[600];

	for (size_t i = 0; i < own_cgroups.count; i++) {
		snprintf(path, sizeof(path), "%s/%s", own_cgroups.tops[i], name);
		ck_assert_int_eq(rmdir(path), 0);
	}
}

/* In all hierarchies but those that want more before they take a process: v1's cpuset. */
static inline void own_cgroups_join(const char *name, pid_t pid)
{
	char path[640], number[16];
	int len = snprintf(number, sizeof(number), "%d", pid);

	for (size_t i = 0; i < own_cgroups.count; i++) {
		snprintf(path, sizeof(path), "%s/%s/cgroup.procs", own_cgroups.tops[i], name);

		int fd = open(path, O_WRONLY | O_CLOEXEC);

		ck_assert_int_ge(fd, 0);
		ck_assert(write(fd, number, (size_t)len) == len || errno == ENOSPC);
		close(fd);
	}
}

#endif
