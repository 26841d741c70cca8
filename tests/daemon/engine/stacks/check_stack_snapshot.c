/* check_stack_snapshot.c: which cgroup stands for a process. White-box: includes the module. */
#include "daemon/engine/stacks/stack_snapshot.c"

#include <check.h>

Suite *stack_snapshot_suite(void);

static const char *cgroup_of(const char *text)
{
	static char path[64];

	return parse_cgroup(text, strlen(text), path, sizeof(path)) ? path : NULL;
}

START_TEST(a_process_has_one_cgroup_that_stands_for_it)
{
	ck_assert_str_eq(cgroup_of("0::/system.slice/a.service\n"), "/system.slice/a.service");
	ck_assert_str_eq(cgroup_of("0::/\n"), "/");
	/* hybrid: the cpu controller is where it is used */
	ck_assert_str_eq(cgroup_of("5:memory:/m\n4:cpu,cpuacct:/c\n0::/\n"), "/c");
	ck_assert_str_eq(cgroup_of("0::/\n4:cpuacct,cpu:/c\n"), "/c");
	ck_assert_str_eq(cgroup_of("4:cpu,cpuacct:/c\n0::/u\n"), "/u");
	/* v1 alone */
	ck_assert_str_eq(cgroup_of("4:cpu:/c\n1:name=systemd:/s\n"), "/c");
	ck_assert_ptr_null(cgroup_of("4:cpuset:/c\n3:cpuacct:/d\n1:name=systemd:/s\n"));
	ck_assert_ptr_null(cgroup_of(""));
	ck_assert_ptr_null(
		cgroup_of("0::/of-a-path-that-is-longer-than-the-room-that-there-is-for-it-here-and-so-on\n"));
}
END_TEST

Suite *stack_snapshot_suite(void)
{
	Suite *suite = suite_create("stack_snapshot");
	TCase *tcase = tcase_create("cgroups");

	tcase_add_test(tcase, a_process_has_one_cgroup_that_stands_for_it);
	suite_add_tcase(suite, tcase);
	return suite;
}
