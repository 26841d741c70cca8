/*
 * check_cgroup_limits.c: what one directory says, whatever is missing, unlimited or nonsense; and
 * the machine.
 */
#include "lib/cgroup/cgroup_limits.c"
#include "lib/base/base.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

Suite *cgroup_limits_suite(void);

static const struct {
	const char *directory;
	bool v2;
	uint64_t limit[CGROUP_LIMITS_KINDS]; /* CPU in thousandths of a core; 0: none */
} cases[] = {
	{ "v2/system.slice", true, { 3000, 4000, 0 } },
	{ "v2/tiny.slice", true, { 25, 2000, 4ull << 30 } },
	{ "v2/pinned.slice", true, { 0, 2000, 0 } },
	{ "v2/garbage.slice", true, { 0, 0, 0 } },
	{ "v1/cpu,cpuacct/system.slice", false, { 1500, 0, 0 } },
	{ "v1/cpu,cpuacct/zero", false, { 0, 0, 0 } },
	{ "v1/memory/system.slice/postgresql.service", false, { 0, 0, 512ull << 20 } },
};

START_TEST(a_directory_says_what_it_says)
{
	char path[128];

	snprintf(path, sizeof(path), "tests/data/cgroup/%s", cases[_i].directory);
	AUTO_CLOSE int dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		uint64_t unit = kind == CGROUP_LIMITS_MEMORY ? 1 : 1000000, limit = 0;

		ck_assert_int_eq(cgroup_limits_read(dir_fd, (enum cgroup_limits_kind)kind, cases[_i].v2, &limit), 0);
		ck_assert_uint_eq(limit, cases[_i].limit[kind] ? cases[_i].limit[kind] * unit : UINT64_MAX);
	}
}
END_TEST

START_TEST(who_has_no_descriptor_left_does_not_say_that_there_is_no_limit)
{
	AUTO_CLOSE int dir_fd = open("tests/data/cgroup/v2/system.slice", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct rlimit limit, none;
	uint64_t quota = 7;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	int r = cgroup_limits_read(dir_fd, CGROUP_LIMITS_QUOTA, true, &quota);
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_uint_eq(quota, 7);
}
END_TEST

START_TEST(the_machine_is_read)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int no_procfd = open("tests/data/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct metric_machine read = { 0 };

	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online", &read), 0);
	ck_assert(read.cores == 4);
	ck_assert_uint_eq(read.memory_bytes, 24684092ULL * 1024);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online_one", &read), 0);
	ck_assert(read.cores == 1);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online_garbage", &read), -EBADMSG);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/not-there", &read), -ENOENT);
	ck_assert_int_eq(cgroup_limits_machine(no_procfd, "tests/data/proc/online", &read), -ENOENT);
	ck_assert(read.cores == 1);
}
END_TEST

Suite *cgroup_limits_suite(void)
{
	Suite *suite = suite_create("cgroup_limits");
	TCase *tcase = tcase_create("limits");

	tcase_add_loop_test(tcase, a_directory_says_what_it_says, 0, (int)ARRAY_LEN(cases));
	tcase_add_test(tcase, who_has_no_descriptor_left_does_not_say_that_there_is_no_limit);
	tcase_add_test(tcase, the_machine_is_read);
	suite_add_tcase(suite, tcase);

	return suite;
}
