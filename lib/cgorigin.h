/*
 * cgorigin.h: where in its host's cgroup trees the reader's cgroup namespace begins (cgroup_namespaces(7)). To a reader in a namespace of its own,
 * as in most containers on cgroup v2, /proc/<pid>/cgroup says paths from there: "/../../other-pod/x" is its host's "/pods/other-pod/x". Cold path.
 */
#ifndef SPIKEWATCH_CGORIGIN_H
#define SPIKEWATCH_CGORIGIN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Looks in the tree below root for the cgroup whose cgroup.procs has pid, the reader's own, whose path by its own namespace is own. *ret: the path at which the
 * namespace begins, for free(3). 0; -ENOENT: it is not found, or the tree begins there itself; -ENOMEM; -errno.
 */
int cgorigin_find(const char *root, int32_t pid, const char *own, char **ret);

/* A path as the namespace says it, from the tree's root, into buf, terminated. 0; -ENAMETOOLONG. */
int cgorigin_resolve(const char *origin, const char *path, size_t len, char *buf, size_t cap);

#endif
