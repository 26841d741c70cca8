/* check_descriptors.c: how much of a limit is left to others. */
#include "daemon/engine/base/proc_read.h"

#include <check.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

Suite *descriptors_suite(void);

/* How many may be opened below a limit before they are short. */
static int opened_below(rlim_t soft)
{
	struct rlimit before, limit;
	int fds[4096], count = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ soft, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (count < 4096 && !descriptors_short(STDERR_FILENO))
		fds[count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int last = count ? fds[count - 1] : -1;

	for (int i = 0; i < count; i++)
		close(fds[i]);
	setrlimit(RLIMIT_NOFILE, &before);

	return last + 1;
}

START_TEST(the_highest_numbers_are_reserved)
{
	/* What one target may take, 24 of the zone of 32, still fits below. */
	ck_assert_int_eq(opened_below(1024), 1024 - (int)DESCRIPTORS_RESERVED - 24);
}
END_TEST

START_TEST(of_a_low_limit_a_quarter)
{
	ck_assert_int_eq(opened_below(100), 100 - 25 - 25 + 6);
}
END_TEST

START_TEST(strangers_among_the_highest_numbers_do_no_harm)
{
	int first = 1024 - (int)DESCRIPTORS_RESERVED - 32, fds[8];
	struct rlimit before, limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 1024, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < 8; i++)
		fds[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, first);
	bool eight = descriptors_short(STDERR_FILENO);

	for (int i = 0; i < 8; i++)
		close(fds[i]);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_int_eq(fds[7], first + 7);
	ck_assert(!eight);
}
END_TEST

START_TEST(what_was_given_up_can_be_had_again_if_a_target_fits_into_it)
{
	struct rlimit before, limit;
	int fds[1024], count = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 1024, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &limit);
	while (count < 1024 && !descriptors_short(STDERR_FILENO))
		fds[count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 15; i++)
		close(fds[100 + 3 * i]);
	bool fifteen = descriptors_short(STDERR_FILENO);

	close(fds[50]);
	bool sixteen = descriptors_short(STDERR_FILENO);
	int next = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_int_ge(count, 800);
	ck_assert(fifteen);
	ck_assert(!sixteen);
	ck_assert_int_eq(next, fds[50]);
	close(next);
	for (int i = 0; i < count; i++)
		if (i != 50 && (i < 100 || i >= 145 || i % 3 != 1))
			close(fds[i]);
}
END_TEST

START_TEST(none_at_all_is_short)
{
	struct rlimit before, none;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	bool is_short = descriptors_short(STDERR_FILENO);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert(is_short);
}
END_TEST

Suite *descriptors_suite(void)
{
	Suite *suite = suite_create("descriptors");
	TCase *tcase = tcase_create("reserve");

	tcase_add_test(tcase, the_highest_numbers_are_reserved);
	tcase_add_test(tcase, of_a_low_limit_a_quarter);
	tcase_add_test(tcase, strangers_among_the_highest_numbers_do_no_harm);
	tcase_add_test(tcase, what_was_given_up_can_be_had_again_if_a_target_fits_into_it);
	tcase_add_test(tcase, none_at_all_is_short);
	suite_add_tcase(suite, tcase);

	return suite;
}
