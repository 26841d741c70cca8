/* limits_of.h: the effective limits of one process or cgroup, read once, as the daemon reads them. */
#ifndef SPIKEWATCH_TESTS_LIMITS_OF_H
#define SPIKEWATCH_TESTS_LIMITS_OF_H

#include "lib/cgroup/cgroup_limits.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <check.h>

static inline struct cglimits limits_of_place(struct limittree *tree, struct limittree_place *place)
{
	struct cglimits limits;

	limittree_limits(tree, place, &limits);
	limittree_drop(tree, place);
	ck_assert_uint_eq(limittree_count(tree), 0);
	limittree_free(tree);

	return limits;
}

static inline struct cglimits limits_of_cgroup(const struct cgroup_mounts *mounts, const struct metric_machine *machine,
					       const char *path)
{
	struct limittree_place place;
	struct limittree *tree;

	ck_assert_int_eq(limittree_new(mounts, machine, &tree), 0);
	ck_assert_int_eq(limittree_hold_cgroup(tree, path, &place), 0);

	return limits_of_place(tree, &place);
}

/* As procread_file, if that fails. */
static inline int limits_of_process(const struct cgroup_mounts *mounts, const struct metric_machine *machine,
				    int procfd, int32_t pid, struct cglimits *ret)
{
	struct limittree_place place;
	struct limittree *tree;
	char text[4096];
	ssize_t len = procread_file(procfd, pid, "cgroup", text, sizeof text);

	if (len < 0)
		return (int)len;

	ck_assert_int_eq(limittree_new(mounts, machine, &tree), 0);
	ck_assert_int_eq(limittree_hold_process(tree, text, (size_t)len, &place), 0);
	*ret = limits_of_place(tree, &place);

	return 0;
}

#endif
