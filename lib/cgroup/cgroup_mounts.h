/*
 * cgroup_mounts.h: where the cgroup hierarchies are, which cgroup a process is in, a walk over all
 * hierarchies as if they were one, and where in the host's trees the reader's cgroup namespace
 * begins (cgroup_namespaces(7)): in a namespace of its own, as in most containers on cgroup v2,
 * /proc/<pid>/cgroup has paths from there: "/../../other-pod/x" is the host's "/pods/other-pod/x".
 *
 * The only module that knows libcgroup, which is asked when everything is at its usual place; below
 * another proc root or cgroup root (fixtures, a daemon in a container) the kernel's files are read
 * directly. Cold path.
 */
#ifndef SPIKEWATCH_LIB_CGROUP_CGROUP_MOUNTS_H
#define SPIKEWATCH_LIB_CGROUP_CGROUP_MOUNTS_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Calls visit for the path of every directory below the roots, "/" for the roots themselves, each
 * path once however many trees have it, parents first. Symbolic links are not followed; what
 * vanishes meanwhile is left out. Returns what visit returned, as soon as that is not 0; 0; -E2BIG
 * at the end when the bounds above left something out; -ENOMEM, -errno.
 */
int cgroup_tree_walk(const char *const roots[], size_t count, int (*visit)(void *ctx, const char *path), void *ctx);

enum cgroup_resource { CGROUP_CPU, CGROUP_CPUACCT, CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPUSET, CGROUP_CONTROLLERS };

enum cgroup_mode { CGROUPS_NONE, CGROUPS_V1, CGROUPS_V2, CGROUPS_HYBRID };

struct cgroup_mounts; /* opaque; immutable once made */

/*
 * Finds the hierarchies. proc_root "/proc" and cgroup_root "" (or NULL): libcgroup; else
 * cgroup_root is where the tree is mounted (a v2 root with cgroup.controllers, or a folder of v1
 * controllers with, possibly, "unified"). 0 (also when there are none: mode CGROUPS_NONE); -errno;
 * -ENOMEM.
 */
int cgroup_mounts_new(const char *proc_root, const char *cgroup_root, struct cgroup_mounts **ret);
void cgroup_mounts_free(struct cgroup_mounts *mounts);
CLEANUP(cgroup_mounts, free);

/* Who reads: its own process, as it sees itself. */
struct cgroup_reader {
	int32_t pid;
	const char *text; /* its /proc/self/cgroup */
	size_t len;
};

/*
 * Right after it was made, for a reader in a cgroup namespace of its own that has its host's
 * hierarchies mounted: paths of processes are from then on those of the hierarchies, and not from
 * where the namespace begins. Looks for it only if process 1 of procfd is outside; what is not
 * found stays as it is. 0; -ENOMEM; -errno.
 */
int cgroup_mounts_orient(struct cgroup_mounts *mounts, int procfd, const struct cgroup_reader *reader);

enum cgroup_mode cgroup_mounts_mode(const struct cgroup_mounts *mounts);
const char *cgroup_mode_name(enum cgroup_mode mode); /* "none", "v1", "v2", "hybrid" */

/*
 * Directory of a controller's hierarchy (v1, or v2 if it is enabled there), NULL if it is nowhere;
 * *ret_v2 says which.
 */
const char *cgroup_mounts_controller(const struct cgroup_mounts *mounts, enum cgroup_resource controller, bool *ret_v2);

/* Directory of the v2 hierarchy (for cpu.stat and pressure), NULL if there is none. */
const char *cgroup_mounts_v2(const struct cgroup_mounts *mounts);

/*
 * The path of a process's cgroup as people name it: that of the v2 hierarchy where controllers are
 * there, else that of memory, cpuacct, cpu, name=systemd: the first that is not "/", else "/". Into
 * buf, NUL-terminated. 0; -ESRCH; -ENOENT no cgroups; -ENAMETOOLONG; -errno.
 */
int cgroup_path_of(const struct cgroup_mounts *mounts, int procfd, int32_t pid, char *buf, size_t cap);

/*
 * The path in one controller's hierarchy, from the text of a process's /proc/<pid>/cgroup. 0;
 * -ENOENT; -ENAMETOOLONG.
 */
int cgroup_path_from(const struct cgroup_mounts *mounts, const char *text, size_t len, enum cgroup_resource controller,
		     char *buf, size_t cap);

/* The same of a process. Returns as cgroup_path_of. */
int cgroup_path_in(const struct cgroup_mounts *mounts, int procfd, int32_t pid, enum cgroup_resource controller,
		   char *buf, size_t cap);

/*
 * Opens the file or directory path, "/" or "/a/b", of the tree at root, on the mount of the root only:
 * a cgroup may belong to a user, who may mount a file system there that does not answer. flags: of
 * open(2). A descriptor or -errno.
 */
static inline int cgroup_open(const char *root, const char *path, int flags)
{
	AUTO_CLOSE int rootfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return rootfd < 0 ? -errno
			  : open_beneath(rootfd, path[0] != '\0' && path[1] != '\0' ? path + 1 : ".", flags, true);
}

/*
 * Calls visit for every cgroup path (of any hierarchy used here, each path once, parents first),
 * "/" included, until it returns non-zero, which is returned. Bounded: depth 32, 100,000 cgroups
 * (then -E2BIG at the end). -ENOMEM, -errno.
 */
int cgroup_walk(const struct cgroup_mounts *mounts, int (*visit)(void *ctx, const char *path), void *ctx);

/* Does path match the glob: * within a component, ** over components, ? one byte, [...] a set. */
bool cgroup_glob(const char *glob, const char *path);

#endif
