/* check_limit_tree.c: effective limits, over hierarchies made of files, and when they change. */
#include "limits_of.h"
#include "scene.h"
#include "lib/base/base.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

Suite *limit_tree_suite(void);

#define GIB (1ULL << 30)

static const struct metric_machine machine = { .cores = 4, .memory_bytes = 16 * GIB };

static struct cgroup_limits of_cgroup(const char *mode, const char *path)
{
	struct cgroup_mounts *mounts = NULL;
	char root[64];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", mode);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", root, &mounts), 0);
	struct cgroup_limits limits = limits_of_cgroup(mounts, &machine, path);
	cgroup_mounts_free(mounts);

	return limits;
}

/* cpu in thousandths of a core; a limit from "" is the machine's. */
static const struct {
	const char *mode;
	const char *path;
	uint64_t cpu;
	const char *cpu_from;
	uint64_t memory_bytes;
	const char *memory_from;
} cases[] = {
	{ "v2", "/", 4000, "", 16 * GIB, "" },
	{ "v2", "/system.slice", 3000, "/system.slice", 16 * GIB, "" },
	{ "v2", "/system.slice/postgresql.service", 3000, "/system.slice", GIB, "/system.slice/postgresql.service" },
	{ "v2", "/system.slice/not-there", 3000, "/system.slice", 16 * GIB, "" },
	{ "v2", "/tiny.slice", 25, "/tiny.slice", 4 * GIB, "/tiny.slice" },
	{ "v2", "/tiny.slice/inner", 25, "/tiny.slice", 4 * GIB, "/tiny.slice" },
	{ "v2", "/pinned.slice", 2000, "/pinned.slice", 16 * GIB, "" },
	{ "v2", "/garbage.slice", 4000, "", 16 * GIB, "" },
	{ "v2", "/../elsewhere", 4000, "", 16 * GIB, "" },
	{ "v2", "", 4000, "", 16 * GIB, "" },
	{ "v1", "/system.slice", 1500, "/system.slice", 16 * GIB, "" },
	{ "v1", "/system.slice/postgresql.service", 1500, "/system.slice", GIB / 2,
	  "/system.slice/postgresql.service" },
	{ "v1", "/zero", 4000, "", 16 * GIB, "" },
	{ "v1", "/huge", 4000, "", 16 * GIB, "" },
	{ "v1", "/one", 1000, "/one", 16 * GIB, "" },
	{ "v1", "/empty", 4000, "", 16 * GIB, "" },
	{ "hybrid", "/system.slice/postgresql.service", 1500, "/system.slice", GIB / 2,
	  "/system.slice/postgresql.service" },
	{ "hybrid", "/only-in-v2", 4000, "", 16 * GIB, "" },
	{ "not-there", "/system.slice", 4000, "", 16 * GIB, "" },
};

START_TEST(the_smallest_on_the_way_up_counts)
{
	struct cgroup_limits limits = of_cgroup(cases[_i].mode, cases[_i].path);

	ck_assert_uint_eq(limits.cpu, cases[_i].cpu * 1000000);
	ck_assert_str_eq(limits.cpu_from, cases[_i].cpu_from);
	ck_assert(limits.cpu_is_machine == (cases[_i].cpu_from[0] == '\0'));
	ck_assert_uint_eq(limits.memory_bytes, cases[_i].memory_bytes);
	ck_assert_str_eq(limits.memory_from, cases[_i].memory_from);
	ck_assert(limits.memory_is_machine == (cases[_i].memory_from[0] == '\0'));
}
END_TEST

START_TEST(a_machine_that_is_not_known_is_no_limit)
{
	static const struct metric_machine unknown = { .cores = 0, .memory_bytes = 0 };
	struct cgroup_mounts *mounts = NULL;

	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", "tests/data/cgroup/not-there", &mounts), 0);
	struct cgroup_limits limits = limits_of_cgroup(mounts, &unknown, "/system.slice");
	ck_assert_uint_eq(limits.cpu, UINT64_MAX);
	ck_assert_uint_eq(limits.memory_bytes, UINT64_MAX);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(a_process_has_those_of_each_hierarchy)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_mounts *mounts = NULL;
	struct cgroup_limits limits;

	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", "tests/data/cgroup/v1", &mounts), 0);
	ck_assert_int_eq(limits_of_process(mounts, &machine, procfd, 812, &limits), 0);
	ck_assert_uint_eq(limits.cpu, 1500000000);
	ck_assert_str_eq(limits.cpu_from, "/system.slice");
	ck_assert_uint_eq(limits.memory_bytes, GIB / 2);
	ck_assert_int_eq(limits_of_process(mounts, &machine, procfd, 2, &limits), 0);
	ck_assert(limits.cpu_is_machine && limits.memory_is_machine);
	ck_assert_int_eq(limits_of_process(mounts, &machine, procfd, 4242, &limits), -ESRCH);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(this_machine_has_a_core_at_least)
{
	AUTO_CLOSE int procfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_mounts *mounts = NULL;
	struct metric_machine here;
	struct cgroup_limits limits;

	ck_assert_int_eq(cgroup_limits_machine(procfd, "", NULL, &here), 0);
	ck_assert(here.cores >= 1);
	ck_assert_uint_gt(here.memory_bytes, 0);
	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	ck_assert_int_eq(limits_of_process(mounts, &here, procfd, getpid(), &limits), 0);
	ck_assert_uint_gt(limits.cpu, 0);
	ck_assert_uint_gt(limits.memory_bytes, 0);
	cgroup_mounts_free(mounts);
}
END_TEST

/* ---- limits that change ---- */

static char root[64];
static struct cgroup_mounts *mounts;
static struct limit_tree *tree;

static void setup(void)
{
	char path[96];

	scene_directory(root);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", root);
	scene_write(path, "cpu memory\n");
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", root, &mounts), 0);
	ck_assert_int_eq(limit_tree_new(mounts, &machine, &tree), 0);
}

static void teardown(void)
{
	limit_tree_free(tree);
	cgroup_mounts_free(mounts);
	scene_remove(root);
}

static void make_cgroup(const char *path, const char *cpu_max, const char *memory_max)
{
	char name[160];

	snprintf(name, sizeof(name), "%s%s", root, path);
	ck_assert(mkdir(name, 0700) == 0 || errno == EEXIST);
	snprintf(name, sizeof(name), "%s%s/cpu.max", root, path);
	scene_write(name, "%s\n", cpu_max);
	snprintf(name, sizeof(name), "%s%s/memory.max", root, path);
	scene_write(name, "%s\n", memory_max);
}

static struct cgroup_limits limits_at(const struct limit_tree_place *place)
{
	struct cgroup_limits limits;

	limit_tree_limits(tree, place, &limits);

	return limits;
}

START_TEST(what_changes_anywhere_above_counts_after_the_next_refresh_for_all_below)
{
	struct limit_tree_place a = { 0 }, b = { 0 };

	make_cgroup("/top", "max 100000", "max");
	make_cgroup("/top/a", "200000 100000", "1073741824");
	make_cgroup("/top/b", "max 100000", "max");
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, "/top/a", &a), 0);
	ck_assert_int_eq(limit_tree_hold_process(tree, "0::/top/b\n", 10, &b), 0);
	ck_assert_uint_eq(limits_at(&a).cpu, 2000000000);
	ck_assert_str_eq(limits_at(&a).cpu_from, "/top/a");
	ck_assert(limits_at(&b).cpu_is_machine);
	make_cgroup("/top", "50000 100000", "536870912");
	ck_assert_uint_eq(limits_at(&a).cpu, 2000000000);
	ck_assert_uint_eq(limits_kept(tree), 4); /* "/", "/top" and the two in it: each once */
	ck_assert_uint_eq(limits_at(&a).cpu, 500000000);
	ck_assert_str_eq(limits_at(&a).cpu_from, "/top");
	ck_assert_uint_eq(limits_at(&b).memory_bytes, GIB / 2);
	ck_assert_str_eq(limits_at(&b).memory_from, "/top");
	make_cgroup("/top", "max 100000", "max");
	limits_kept(tree);
	ck_assert_uint_eq(limits_at(&a).cpu, 2000000000);
	ck_assert_uint_eq(limits_at(&a).memory_bytes, GIB);
	ck_assert(limits_at(&b).cpu_is_machine && limits_at(&b).memory_is_machine);
	limit_tree_drop(tree, &a);
	limit_tree_drop(tree, &b);
}
END_TEST

START_TEST(a_cgroup_that_is_removed_and_made_again_has_its_new_limits)
{
	struct limit_tree_place place = { 0 };
	char name[160];

	make_cgroup("/a", "50000 100000", "max");
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, "/a", &place), 0);
	ck_assert_uint_eq(limits_at(&place).cpu, 500000000);
	snprintf(name, sizeof(name), "%s/a", root);
	scene_remove(name);
	limits_kept(tree);
	ck_assert(limits_at(&place).cpu_is_machine);
	make_cgroup("/a", "30000 100000", "max");
	limits_kept(tree);
	ck_assert_uint_eq(limits_at(&place).cpu, 300000000);
	limit_tree_drop(tree, &place);
}
END_TEST

START_TEST(a_name_that_begins_with_two_dots_is_not_outside)
{
	struct limit_tree_place place = { 0 };

	make_cgroup("/..a", "50000 100000", "max");
	ck_assert_int_eq(limit_tree_hold_process(tree, "0::/..a\n", 8, &place), 0);
	ck_assert_uint_eq(limits_at(&place).cpu, 500000000);
	ck_assert_str_eq(limits_at(&place).cpu_from, "/..a");
	limit_tree_drop(tree, &place);
	ck_assert_int_eq(limit_tree_hold_process(tree, "0::/..\n", 7, &place), 0);
	ck_assert_uint_eq(limits_kept(tree), 0);
}
END_TEST

START_TEST(without_descriptors_limits_stay_what_they_were)
{
	struct limit_tree_place place = { 0 };
	struct rlimit limit, none;

	make_cgroup("/a", "50000 100000", "max");
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, "/a", &place), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	limits_kept(tree);
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_uint_eq(limits_at(&place).cpu, 500000000);
	limit_tree_drop(tree, &place);
}
END_TEST

START_TEST(what_has_no_holder_is_not_kept)
{
	struct limit_tree_place places[3] = { 0 };
	char path[4096] = "";

	ck_assert_int_eq(limit_tree_hold_cgroup(tree, "/a/b/c", &places[0]), 0);
	ck_assert_uint_eq(limits_kept(tree), 4);
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, "/a/b", &places[1]), 0);
	ck_assert_uint_eq(limits_kept(tree), 4);
	limit_tree_drop(tree, &places[0]);
	ck_assert_uint_eq(limits_kept(tree), 3);
	for (size_t i = 0; i + 3 < sizeof path; i += 2)
		memcpy(path + i, "/x", 3);
	ck_assert_int_eq(limit_tree_hold_cgroup(tree, path, &places[2]), 0); /* deeper than any path can name */
	ck_assert(limits_at(&places[2]).cpu_is_machine);
	limit_tree_drop(tree, &places[2]);
	limit_tree_drop(tree, &places[1]);
	ck_assert_uint_eq(limits_kept(tree), 0);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	make_cgroup("/a", "50000 100000", "max");
	for (long n = 1; injected; n++) {
		struct limit_tree_place place = { 0 };

		torture_arm(n);
		int r = limit_tree_hold_cgroup(tree, "/a/b/c", &place);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(!injected || limits_kept(tree) == 0);
		limit_tree_drop(tree, &place);
		ck_assert_uint_eq(limits_kept(tree), 0);
	}
}
END_TEST

Suite *limit_tree_suite(void)
{
	Suite *suite = suite_create("limit_tree");
	TCase *tcase = tcase_create("limits"), *changes = tcase_create("changes");

	tcase_add_loop_test(tcase, the_smallest_on_the_way_up_counts, 0, (int)ARRAY_LEN(cases));
	tcase_add_test(tcase, a_machine_that_is_not_known_is_no_limit);
	tcase_add_test(tcase, a_process_has_those_of_each_hierarchy);
	tcase_add_test(tcase, this_machine_has_a_core_at_least);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(changes, setup, teardown);
	tcase_add_test(changes, what_changes_anywhere_above_counts_after_the_next_refresh_for_all_below);
	tcase_add_test(changes, a_cgroup_that_is_removed_and_made_again_has_its_new_limits);
	tcase_add_test(changes, a_name_that_begins_with_two_dots_is_not_outside);
	tcase_add_test(changes, without_descriptors_limits_stay_what_they_were);
	tcase_add_test(changes, what_has_no_holder_is_not_kept);
	tcase_add_test(changes, every_allocation_may_fail);
	suite_add_tcase(suite, changes);

	return suite;
}
