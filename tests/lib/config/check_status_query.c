/* check_status_query.c: questions as lines, and what they choose. */
#include "lib/config/selection.h"

#include "scene.h"
#include "lib/base/base.h"

#include <errno.h>

Suite *status_query_suite(void);

static struct status_query_line line;

/* What is read of words is written as these. */
static void is_read_as(const char *words, const char *expected)
{
	char text[STATUS_QUERY_LINE_MAX];

	ck_assert_msg(status_query_parse(words, &line) == 0, "%s", words);
	ck_assert_int_eq(status_query_format(&line.query, text, sizeof(text)), 0);
	ck_assert_str_eq(text, expected);
}

START_TEST(what_is_written_is_read_again)
{
	is_read_as("", "");
	is_read_as("   ", "");
	is_read_as("brief", "brief");
	is_read_as("  name=a   brief ", "brief name=a");
	is_read_as("nearest=40 target=web* rule=cpu name=x name=y", "nearest=40 target=web* rule=cpu name=x name=y");
	is_read_as("target=a target=b", "target=b");
	is_read_as("name=a%20b%0a%25%1B", "name=a%20b%0a%25%1b");
	is_read_as("name=a=b", "name=a=b");
	ck_assert_str_eq(line.query.names[0], "a=b");
}
END_TEST

static const char *const bad[] = { "all",    "Brief",    "brief=1",   "target",       "target=",     "=",
				   "x=y",    "nearest=", "nearest=0", "nearest=1001", "nearest=-1",  "nearest=4x",
				   "name=%", "name=%2",  "name=%2g",  "name=%00a",    "brief,name=a" };

START_TEST(what_is_no_question_is_refused)
{
	ck_assert_msg(status_query_parse(bad[_i], &line) == -EINVAL, "%s", bad[_i]);
}
END_TEST

START_TEST(what_is_too_long_or_too_much_is_refused)
{
	char *names[STATUS_QUERY_NAMES_MAX + 1], text[STATUS_QUERY_LINE_MAX + 1], small[8];
	struct status_query query = { .names = names, .name_count = STATUS_QUERY_NAMES_MAX };

	static char name[] = "a";

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		names[i] = name;
	ck_assert_int_eq(status_query_format(&query, text, sizeof(text)), 0);
	is_read_as(text, text);
	query.name_count++;
	ck_assert_int_eq(status_query_format(&query, text, sizeof(text)), -E2BIG);
	query = (struct status_query){ .nearest = STATUS_QUERY_NEAREST_MAX + 1 };
	ck_assert_int_eq(status_query_format(&query, text, sizeof(text)), -EINVAL);
	query = (struct status_query){ .rule = "" };
	ck_assert_int_eq(status_query_format(&query, text, sizeof(text)), -EINVAL);
	query = (struct status_query){ .rule = "ab" };
	ck_assert_int_eq(status_query_format(&query, small, 8), 0);
	ck_assert_int_eq(status_query_format(&query, small, 7), -E2BIG);

	memset(text, ' ', sizeof(text));
	text[STATUS_QUERY_LINE_MAX] = '\0';
	ck_assert_int_eq(status_query_parse(text, &line), -E2BIG);
	text[STATUS_QUERY_LINE_MAX - 1] = '\0';
	ck_assert_int_eq(status_query_parse(text, &line), 0);
}
END_TEST

static bool wants(const char *words, const char *target, const char *entry, const char *rule)
{
	ck_assert_int_eq(status_query_parse(words, &line), 0);

	return status_query_wants(&line.query, target, entry, rule);
}

START_TEST(rows_are_chosen_by_target_rule_and_name)
{
	ck_assert(wants("", "web/1", "web", "cpu"));
	ck_assert(wants("nearest=3 brief", "web/1", "web", "cpu"));
	ck_assert(!status_query_chooses(&line.query));
	ck_assert(wants("target=web", "web/1", "web", "cpu"));
	ck_assert(status_query_chooses(&line.query));
	ck_assert(wants("target=web/?", "web/1", "web", "cpu"));
	ck_assert(!wants("target=cpu", "web/1", "web", "cpu"));
	ck_assert(wants("rule=c*", "web/1", "web", "cpu"));
	ck_assert(!wants("rule=web", "web/1", "web", "cpu"));
	ck_assert(!wants("target=web rule=memory", "web/1", "web", "cpu"));
	ck_assert(wants("name=db name=cpu", "web/1", "web", "cpu"));
	ck_assert(wants("name=web", "web/1", "web", "cpu"));
	ck_assert(!wants("name=db", "web/1", "web", "cpu"));
	ck_assert(!wants("target=web name=db", "web/1", "web", "cpu"));
	ck_assert(wants("target=a%20b", "a b", "web", "cpu"));
}
END_TEST

Suite *status_query_suite(void)
{
	Suite *suite = suite_create("status_query");
	TCase *tcase = tcase_create("questions");

	tcase_add_test(tcase, what_is_written_is_read_again);
	tcase_add_loop_test(tcase, what_is_no_question_is_refused, 0, ARRAY_LEN(bad));
	tcase_add_test(tcase, what_is_too_long_or_too_much_is_refused);
	tcase_add_test(tcase, rows_are_chosen_by_target_rule_and_name);
	suite_add_tcase(suite, tcase);

	return suite;
}
