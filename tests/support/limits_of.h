/*
 * limits_of.h: the effective limits of one process or cgroup, read once, as the daemon reads them.
 */
#ifndef SPIKEWATCH_TESTS_LIMITS_OF_H
#define SPIKEWATCH_TESTS_LIMITS_OF_H

#include "lib/cgroup/cgroup.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <check.h>

/* Cgroups that are kept; reads them all anew. */
static inline size_t limits_kept(struct limit_tree *tree)
{
	size_t count = 0;

	for (unsigned part = 0; part < LIMIT_TREE_PARTS; part++)
		count += limit_tree_refresh(tree, part, 1);

	return count;
}

static inline struct cgroup_limits limits_of_place(struct limit_tree *tree, struct limit_tree_place *place)
{
	struct cgroup_limits limits;

	limit_tree_limits(tree, place, &limits);
	limit_tree_drop(tree, place);
	ck_assert_uint_eq(limits_kept(tree), 0);
	limit_tree_free(tree);

	return limits;
}

static inline struct cgroup_limits limits_of_cgroup(const struct cgroup_mounts *mounts,
						    const struct metric_machine *machine, const char *path)
{
	struct limit_tree_place place;
	struct limit_tree *tree;

	ck_assert_int_eq(limit_tree_new(mounts, machine, &tree), 0);
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, path, &place), 0);

	return limits_of_place(tree, &place);
}

/* As proc_read_file, if that fails. */
static inline int limits_of_process(const struct cgroup_mounts *mounts, const struct metric_machine *machine,
				    int procfd, int32_t pid, struct cgroup_limits *ret)
{
	struct limit_tree_place place;
	struct limit_tree *tree;
	char text[4096];
	ssize_t len = proc_read_file(procfd, pid, "cgroup", text, sizeof text);

	if (len < 0)
		return (int)len;

	ck_assert_int_eq(limit_tree_new(mounts, machine, &tree), 0);
	ck_assert_int_eq(limit_tree_hold_process(tree, text, (size_t)len, &place), 0);
	*ret = limits_of_place(tree, &place);

	return 0;
}

#endif
