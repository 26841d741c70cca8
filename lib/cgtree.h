/*
 * cgtree.h: walks several directory trees as if they were one: what the hierarchies of cgroup v1 are. Cold path.
 */
#ifndef SPIKEWATCH_CGTREE_H
#define SPIKEWATCH_CGTREE_H

#include <stddef.h>

#define CGTREE_ROOTS_MAX 8
/* Nobody nests deeper on purpose; each level costs the walk one descriptor. */
#define CGTREE_DEPTH_MAX 32
#define CGTREE_PATHS_MAX 100000

/*
 * Calls visit for the path of every directory below the roots, "/" for the roots themselves, each path once however many
 * trees have it, parents first. Symbolic links are not followed; what vanishes meanwhile is left out.
 * Returns what visit returned, as soon as that is not 0; 0; -E2BIG at the end when the bounds above left something out;
 * -ENOMEM, -errno.
 */
int cgtree_walk(const char *const roots[], size_t count, int (*visit)(void *ctx, const char *path), void *ctx);

#endif
