/* check_target_name.c: names of targets out of names of programs. */
#include "cli/base/output.h"

#include <check.h>

Suite *target_name_suite(void);

START_TEST(the_last_part_and_the_pid)
{
	char name[TARGET_NAME_MAX];

	target_name_of("/usr/bin/postgres", 812, name);
	ck_assert_str_eq(name, "postgres-812");
	target_name_of("nginx", 0, name);
	ck_assert_str_eq(name, "nginx");
	target_name_of("bin/", 7, name);
	ck_assert_str_eq(name, "bin_-7");
}
END_TEST

START_TEST(it_fits_and_holds_nothing_odd)
{
	char name[TARGET_NAME_MAX];

	target_name_of("a name of twenty-four b.", 2147483647, name);
	ck_assert_str_eq(name, "a_name_of_twenty-fou-2147483647");
	target_name_of("\xc3\xa4\n\"\033[1m", 1, name);
	ck_assert_str_eq(name, "______1m-1");
	target_name_of("", 1, name);
	ck_assert_str_eq(name, "-1");
}
END_TEST

Suite *target_name_suite(void)
{
	Suite *suite = suite_create("target_name");
	TCase *tcase = tcase_create("names");

	tcase_add_test(tcase, the_last_part_and_the_pid);
	tcase_add_test(tcase, it_fits_and_holds_nothing_odd);
	suite_add_tcase(suite, tcase);

	return suite;
}
