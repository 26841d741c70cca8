/* check_cglimits.c: effective limits, whatever is missing, unlimited or nonsense. */
#include "cglimits.h"
#include "scope.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

Suite *cglimits_suite(void);

#define GIB (1ULL << 30)

static const struct metric_machine machine = { .cores = 4, .memory_bytes = 16 * GIB };

static struct cglimits of_cgroup(const char *mode, const char *path)
{
	struct cgroup_mounts *mounts = NULL;
	struct cglimits limits;
	char root[64];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", mode);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", root, &mounts), 0);
	cglimits_of_cgroup(mounts, &machine, path, &limits);
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
	struct cglimits limits = of_cgroup(cases[_i].mode, cases[_i].path);

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
	struct cglimits limits;

	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", "tests/data/cgroup/not-there", &mounts), 0);
	cglimits_of_cgroup(mounts, &unknown, "/system.slice", &limits);
	ck_assert_uint_eq(limits.cpu, UINT64_MAX);
	ck_assert_uint_eq(limits.memory_bytes, UINT64_MAX);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(a_process_has_those_of_each_hierarchy)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_mounts *mounts = NULL;
	struct cglimits limits;

	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", "tests/data/cgroup/v1", &mounts), 0);
	ck_assert_int_eq(cglimits_of_process(mounts, &machine, procfd, 812, &limits), 0);
	ck_assert_uint_eq(limits.cpu, 1500000000);
	ck_assert_str_eq(limits.cpu_from, "/system.slice");
	ck_assert_uint_eq(limits.memory_bytes, GIB / 2);
	ck_assert_int_eq(cglimits_of_process(mounts, &machine, procfd, 2, &limits), 0);
	ck_assert(limits.cpu_is_machine && limits.memory_is_machine);
	ck_assert_int_eq(cglimits_of_process(mounts, &machine, procfd, 4242, &limits), -ESRCH);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(the_machine_is_read)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int no_procfd = open("tests/data/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct metric_machine read = { 0 };

	ck_assert_int_eq(cglimits_machine(procfd, "tests/data/proc/online", &read), 0);
	ck_assert(read.cores == 4);
	ck_assert_uint_eq(read.memory_bytes, 24684092ULL * 1024);
	ck_assert_int_eq(cglimits_machine(procfd, "tests/data/proc/online_one", &read), 0);
	ck_assert(read.cores == 1);
	ck_assert_int_eq(cglimits_machine(procfd, "tests/data/proc/online_garbage", &read), -EBADMSG);
	ck_assert_int_eq(cglimits_machine(procfd, "tests/data/proc/not-there", &read), -ENOENT);
	ck_assert_int_eq(cglimits_machine(no_procfd, "tests/data/proc/online", &read), -ENOENT);
	ck_assert(read.cores == 1);
}
END_TEST

START_TEST(this_machine_has_a_core_at_least)
{
	AUTO_CLOSE int procfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_mounts *mounts = NULL;
	struct metric_machine here;
	struct cglimits limits;

	ck_assert_int_eq(cglimits_machine(procfd, "", &here), 0);
	ck_assert(here.cores >= 1);
	ck_assert_uint_gt(here.memory_bytes, 0);
	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	ck_assert_int_eq(cglimits_of_process(mounts, &here, procfd, getpid(), &limits), 0);
	ck_assert_uint_gt(limits.cpu, 0);
	ck_assert_uint_gt(limits.memory_bytes, 0);
	cgroup_mounts_free(mounts);
}
END_TEST

Suite *cglimits_suite(void)
{
	Suite *suite = suite_create("cglimits");
	TCase *tcase = tcase_create("limits");

	tcase_add_loop_test(tcase, the_smallest_on_the_way_up_counts, 0, (int)ARRAY_LEN(cases));
	tcase_add_test(tcase, a_machine_that_is_not_known_is_no_limit);
	tcase_add_test(tcase, a_process_has_those_of_each_hierarchy);
	tcase_add_test(tcase, the_machine_is_read);
	tcase_add_test(tcase, this_machine_has_a_core_at_least);
	suite_add_tcase(suite, tcase);

	return suite;
}
