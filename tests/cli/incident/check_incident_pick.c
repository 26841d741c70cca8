/*
 * check_incident_pick.c: what may not be read is counted and not passed over; where nothing can be
 * looked up it is said why.
 */
#include "cli/incident/incident_load.h"

#include "incidentmade.h"
#include "lib/base/base.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *incident_pick_suite(void);

/* As an unprivileged user, in a process of its own. */
static int count_hidden(int dirfd)
{
	pid_t pid = fork();
	int status = 0;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct incident_load_names names = { 0 };

		if (geteuid() == 0 && setuid(65534) < 0)
			_exit(99);
		_exit(incident_load_list(dirfd, &names) < 0 ? 98 : (int)incident_pick_hidden("check", dirfd, &names));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));

	return WEXITSTATUS(status);
}

START_TEST(what_may_not_be_read_is_counted)
{
	char path[300];
	AUTO_CLOSE int dirfd = incidentmade_directory(path, sizeof(path));

	ck_assert_int_eq(chmod(path, 0755), 0);
	incidentmade_write(dirfd, &(struct incidentmade_options){ 0 });
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0755, 0), 0);
	ck_assert_int_eq(count_hidden(dirfd), 0);
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0, 0), 0);
	ck_assert_int_eq(count_hidden(dirfd), 1);
	ck_assert_int_eq(fchmodat(dirfd, INCIDENTMADE_ID, 0755, 0), 0);
	incidentmade_remove(path);
}
END_TEST

START_TEST(the_directory_is_the_one_that_was_given)
{
	char buf[INCIDENT_LOAD_PATH_MAX];

	ck_assert_int_eq(incident_pick_directory("check", "/some/where", buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "/some/where");
}
END_TEST

Suite *incident_pick_suite(void)
{
	Suite *suite = suite_create("incident_pick");
	TCase *tcase = tcase_create("directory");

	tcase_add_test(tcase, what_may_not_be_read_is_counted);
	tcase_add_test(tcase, the_directory_is_the_one_that_was_given);
	suite_add_tcase(suite, tcase);

	return suite;
}
