/*
 * check_prune.c: which incidents are listed, and which are removed, through the commands that
 * people type.
 */
#include "commandrun.h"

#include "cli/base/options.h"
#include "daemon/engine/incident/spool.h"
#include "incidentmade.h"
#include "lib/base/json.h"
#include "lib/base/base.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

Suite *prune_suite(void);

static struct commandrun command_run;

#define OLD "20200101T000000.000Z-web_1-cpu-1"
#define MIDDLE "20261119T120000.000Z-db_2-memory-1"
#define HELD_STEM "20261120T031502.123Z-held-cpu"
#define NEW "20261120T031502.123Z-db_3-cpu-1"

static char path[300];
static int dirfd_of_test = -1;

/*
 * Three incidents: the first is of all targets, the others of postgres/812; the one in the middle
 * is the worst.
 */
static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	setenv("TZ", "UTC", 1);
	tzset();
	setenv("SPIKEWATCH_DIR", path, 1);
	incidentmade_write(dirfd_of_test, &(struct incidentmade_options){ .name = OLD, .everything = true });
	incidentmade_write(dirfd_of_test, &(struct incidentmade_options){ .name = MIDDLE, .manual = true });
	incidentmade_write(dirfd_of_test, &(struct incidentmade_options){ .name = NEW });
}

static void tear_down(void)
{
	close(dirfd_of_test);
	incidentmade_remove(path);
	commandrun_end(&command_run);
}

static bool there(const char *name)
{
	return faccessat(dirfd_of_test, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Which of the three the last output has. */
static void lists(bool old, bool middle, bool new)
{
	ck_assert_msg(!strstr(command_run.output, OLD) == !old, "%s", command_run.output);
	ck_assert_msg(!strstr(command_run.output, MIDDLE) == !middle, "%s", command_run.output);
	ck_assert_msg(!strstr(command_run.output, NEW) == !new, "%s", command_run.output);
}

START_TEST(lists_by_time)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, list), EXIT_OK);
	lists(true, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--since", "2026-11-19"), EXIT_OK);
	lists(false, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--since", "2026-11-19T12:00:00.0005"), EXIT_OK);
	lists(false, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--since", "2026-11-19T12:00:00.001"), EXIT_OK);
	lists(false, false, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--until", "2026-11-19T12:00:00.001"), EXIT_OK);
	lists(true, true, false);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--until", "2026-11-19T12:00:00"), EXIT_OK);
	lists(true, false, false);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--since", "2021-01-01", "--until", "2026-11-20"), EXIT_OK);
	lists(false, true, false);
}
END_TEST

START_TEST(lists_by_target_and_by_rule)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--target", "all"), EXIT_OK);
	lists(true, false, false);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--target", "post*/8*"), EXIT_OK);
	lists(false, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--target", "postgres"), EXIT_OK); /* the entry */
	lists(false, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--target", "postgre"), EXIT_OK);
	lists(false, false, false);
	commandrun_says(&command_run, " matches.");
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--rule", "cpu-h?gh"), EXIT_OK);
	lists(true, false, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--rule", "manual"), EXIT_OK);
	lists(false, true, false);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--rule", "cpu-*", "--target", "postgres/*"), EXIT_OK);
	lists(false, false, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--rule", "nobody", "--json"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "[]\n");
}
END_TEST

START_TEST(the_limit_keeps_the_newest_that_pass)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "-n", "2"), EXIT_OK);
	lists(false, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "-n", "1", "--target", "all"), EXIT_OK);
	lists(true, false, false);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "-n", "0"), EXIT_OK);
	lists(true, true, true);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "-n", "100"), EXIT_OK);
	lists(true, true, true);
	ck_assert(strstr(command_run.output, OLD) < strstr(command_run.output, NEW));
}
END_TEST

START_TEST(what_cannot_be_read_is_listed_unless_its_content_is_asked_for)
{
	char file[500];

	snprintf(file, sizeof(file), "%s/%s/incident.json", path, OLD);
	ck_assert_int_eq(truncate(file, 10), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--until", "2021-01-01"), EXIT_OK);
	lists(true, false, false);
	commandrun_says(&command_run, "DAMAGED");
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--target", "*"), EXIT_OK);
	lists(false, true, true);
}
END_TEST

START_TEST(a_wrong_time_is_wrong_usage)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--since", "\x1b[31myesterdax"), EXIT_USAGE);
	commandrun_says(&command_run, "is no time; a time is");
	commandrun_harmless(&command_run);
	ck_assert_int_eq(COMMANDRUN(&command_run, list, "--until", ""), EXIT_USAGE);
}
END_TEST

START_TEST(the_old_go_for_their_age)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--older-than", "36500d"), EXIT_OK);
	commandrun_says(&command_run, "Nothing in");
	/* The clock of the machine may say anything later than when this was written. */
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--older-than", "730d", "--dry-run"), EXIT_OK);
	commandrun_says(&command_run, "would remove");
	commandrun_says(&command_run, OLD);
	commandrun_says(&command_run, "Would remove ");
	ck_assert(there(OLD));
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--older-than", "730d"), EXIT_OK);
	commandrun_says(&command_run, "age");
	ck_assert(!there(OLD));
}
END_TEST

START_TEST(the_mildest_go_for_number_and_size)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "3"), EXIT_OK);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "1", "--dry-run", "--json"), EXIT_OK);
	lists(true, false, true);
	ck_assert(there(OLD) && there(MIDDLE) && there(NEW));
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "1"), EXIT_OK);
	commandrun_says(&command_run, "Removed 2 incidents, ");
	ck_assert(!there(OLD) && there(MIDDLE) && !there(NEW));
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B", "--json"), EXIT_OK);
	commandrun_says(&command_run, "\"reason\": \"bytes\"");
	ck_assert(!there(MIDDLE));
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B", "--json"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "[]\n");
}
END_TEST

START_TEST(a_trial_touches_nothing_and_prune_no_strangers)
{
	const struct retention_limits limits = { 0 };
	AUTO(spool_freep) struct spool *spool = NULL;
	struct spool_draft *held;

	ck_assert_int_eq(spool_open(path, &limits, &spool, NULL), 0);
	ck_assert_int_eq(mkdirat(dirfd_of_test, OLD ".tmp", 0700), 0);
	ck_assert_int_eq(mkdirat(dirfd_of_test, "somebody-elses", 0700), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B", "--dry-run"), EXIT_OK);
	ck_assert(there(OLD ".tmp") && there(OLD));

	/* Held: it is being written. The other one's writer has died. */
	ck_assert_int_eq(spool_begin(spool, HELD_STEM, &held), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B"), EXIT_OK);
	ck_assert(!there(OLD ".tmp") && there(HELD_STEM "-1.tmp") && there("somebody-elses"));
	ck_assert(!there(OLD) && !there(MIDDLE) && !there(NEW));
	spool_abort(held);
}
END_TEST

START_TEST(wrong_usage_is_explained)
{
	char missing[400];

	ck_assert_int_eq(COMMANDRUN(&command_run, prune), EXIT_USAGE);
	commandrun_says(&command_run, "no limit is given");
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "0"), EXIT_USAGE);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "4294967296"), EXIT_USAGE);
	snprintf(missing, sizeof(missing), "%s/not-there", path);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "1", "-d", missing), EXIT_TROUBLE);
	ck_assert(!there("not-there"));
	setenv("SPIKEWATCH_DIR", missing, 1);
	ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--keep", "1"), EXIT_OK);
	commandrun_says(&command_run, "Nothing in");
	ck_assert(!there("not-there"));
}
END_TEST

Suite *prune_suite(void)
{
	Suite *suite = suite_create("prune");
	TCase *tcase = tcase_create("prune");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, lists_by_time);
	tcase_add_test(tcase, lists_by_target_and_by_rule);
	tcase_add_test(tcase, the_limit_keeps_the_newest_that_pass);
	tcase_add_test(tcase, what_cannot_be_read_is_listed_unless_its_content_is_asked_for);
	tcase_add_test(tcase, a_wrong_time_is_wrong_usage);
	tcase_add_test(tcase, the_old_go_for_their_age);
	tcase_add_test(tcase, the_mildest_go_for_number_and_size);
	tcase_add_test(tcase, a_trial_touches_nothing_and_prune_no_strangers);
	tcase_add_test(tcase, wrong_usage_is_explained);
	suite_add_tcase(suite, tcase);
	return suite;
}
