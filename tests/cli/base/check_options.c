/* check_options.c: command lines in, values or a helpful message out. */
#include "cli/base/options.c"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
	bool json;
	const char *directory;
	uint64_t number, duration, size;
};

/* Parses the words as a command's line; NULL ends them. */
static int parse(struct values *values, bool stops, int *ret_first, char error[200], char **words)
{
	const struct option_spec options[] = {
		{ 'd', "directory", OPTION_TEXT, "DIR", "where", &values->directory },
		{ 0, "json", OPTION_FLAG, NULL, "as JSON", &values->json },
		{ 'n', "number", OPTION_NUMBER, "N", "how many", &values->number },
		{ 0, "before", OPTION_DURATION, "TIME", "how long", &values->duration },
		{ 0, "max-size", OPTION_SIZE, "SIZE", "how large", &values->size },
	};
	struct options_usage usage = {
		.command = "spikewatch test",
		.operands = "FILE...",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = 2,
		.stops_at_operand = stops,
	};
	int argc = 0;

	while (words[argc])
		argc++;
	*error = '\0';
	return options_parse(&usage, argc, words, ret_first, error, 200);
}

#define WORDS(...) ((char *[]){ "test", __VA_ARGS__ __VA_OPT__(, ) NULL })

static void refused(char **words, const char *message)
{
	struct values values = { 0 };
	char error[200];
	int first = -7;

	ck_assert_int_eq(parse(&values, false, &first, error, words), -EINVAL);
	ck_assert_msg(strstr(error, message), "\"%s\" does not say \"%s\"", error, message);
	ck_assert_int_eq(first, -7);
}

START_TEST(values_are_read_by_their_kind)
{
	struct values values = { 0 };
	char error[200];
	int first;
	char **words = WORDS("-d", "/x", "--json", "--number=12", "--before", "1500ms", "--max-size", "2MiB");

	ck_assert_int_eq(parse(&values, false, &first, error, words), 0);
	ck_assert_str_eq(values.directory, "/x");
	ck_assert(values.json);
	ck_assert_uint_eq(values.number, 12);
	ck_assert_uint_eq(values.duration, 1500000000);
	ck_assert_uint_eq(values.size, 2 << 20);
	ck_assert_int_eq(first, 9);
}
END_TEST

START_TEST(what_is_not_given_keeps_its_default)
{
	struct values values = { .directory = "default", .number = 7 };
	char error[200];
	int first;

	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("a")), 0);
	ck_assert_str_eq(values.directory, "default");
	ck_assert_uint_eq(values.number, 7);
	ck_assert_int_eq(first, 1);
}
END_TEST

START_TEST(options_may_follow_operands)
{
	struct values values = { 0 };
	char error[200], **words = WORDS("a", "--json", "b");
	int first;

	ck_assert_int_eq(parse(&values, false, &first, error, words), 0);
	ck_assert(values.json);
	ck_assert_int_eq(first, 2);
	ck_assert_str_eq(words[2], "a");
	ck_assert_str_eq(words[3], "b");
}
END_TEST

START_TEST(a_command_to_run_keeps_its_options)
{
	struct values values = { 0 };
	char error[200], **words = WORDS("make", "--json");
	int first;

	ck_assert_int_eq(parse(&values, true, &first, error, words), 0);
	ck_assert(!values.json);
	ck_assert_int_eq(first, 1);
}
END_TEST

START_TEST(what_follows_two_dashes_is_no_option)
{
	struct values values = { 0 };
	char error[200], **words = WORDS("--", "--json");
	int first;

	ck_assert_int_eq(parse(&values, false, &first, error, words), 0);
	ck_assert(!values.json);
	ck_assert_str_eq(words[first], "--json");
}
END_TEST

START_TEST(can_be_called_again)
{
	struct values values = { 0 };
	char error[200];
	int first;

	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("--wrong")), -EINVAL);
	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("--json", "x")), 0);
	ck_assert(values.json);
	ck_assert_int_eq(first, 2);
}
END_TEST

START_TEST(help_is_always_understood)
{
	struct values values = { 0 };
	char error[200];
	int first;

	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("--help")), OPTIONS_HELP);
	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("-h")), OPTIONS_HELP);
	ck_assert_int_eq(parse(&values, false, &first, error, WORDS("x", "y", "z", "--help")), OPTIONS_HELP);
}
END_TEST

START_TEST(wrong_options_name_the_nearest)
{
	refused(WORDS("--jsno"), "did you mean --json?");
	refused(WORDS("--dirctory=/x"), "did you mean --directory?");
	refused(WORDS("--colour"), "there is no option --colour");
	refused(WORDS("-x"), "there is no option -x");
	refused(WORDS("--a-very-long-option-that-is-near-to-nothing-at-all"), "there is no option --a-very");
}
END_TEST

START_TEST(values_that_are_missing_or_too_many_are_named)
{
	refused(WORDS("--directory"), "--directory needs a value: DIR");
	refused(WORDS("-d"), "--directory needs a value: DIR");
	refused(WORDS("--json=yes"), "--json takes no value");
	refused(WORDS("--help=me"), "--help takes no value");
	refused(WORDS("a", "b", "c"), "\"c\" is one argument too many");
}
END_TEST

START_TEST(values_of_the_wrong_kind_say_what_was_expected)
{
	refused(WORDS("--before", "0.5"), "not a time such as 10ms");
	refused(WORDS("--before", "99999999999"), "not a time");
	refused(WORDS("--before", ""), "not a time");
	refused(WORDS("--max-size", "many"), "not a size such as 64K");
	refused(WORDS("--number", "-1"), "not a whole number");
	refused(WORDS("--number", "+1"), "not a whole number");
	refused(WORDS("--number", "99999999999999999999"), "not a whole number");
	refused(WORDS("--number", "1x"), "not a whole number");
	refused(WORDS("--number", ""), "not a whole number");
}
END_TEST

START_TEST(missing_operands_are_named)
{
	struct options_usage usage = { .command = "x", .operands = "ID|PATH", .operands_min = 1, .operands_max = 1 };
	char error[100];
	int first;

	ck_assert_int_eq(options_parse(&usage, 1, WORDS(), &first, error, sizeof(error)), -EINVAL);
	ck_assert_str_eq(error, "ID|PATH is missing");
}
END_TEST

START_TEST(messages_fit_their_buffer)
{
	struct options_usage usage = { .command = "x" };
	char error[16] = "", *word = malloc(100000);
	int first;

	memset(word, 'a', 99999);
	word[0] = word[1] = '-';
	word[99999] = '\0';
	ck_assert_int_eq(options_parse(&usage, 2, WORDS(word), &first, error, sizeof(error)), -EINVAL);
	ck_assert_uint_lt(strlen(error), sizeof(error));
	free(word);
}
END_TEST

START_TEST(nearest_is_a_prefix_or_a_few_edits_away)
{
	static const char *const names[] = { "list", "show", "verify", "record" };

	ck_assert_str_eq(options_nearest("ver", names, 4), "verify");
	ck_assert_str_eq(options_nearest("lsit", names, 4), "list");
	ck_assert_str_eq(options_nearest("recrod", names, 4), "record");
	ck_assert_str_eq(options_nearest("shows", names, 4), "show");
	ck_assert_ptr_null(options_nearest("banana", names, 4));
	ck_assert_ptr_null(options_nearest("", names, 4));
	ck_assert_ptr_null(options_nearest("list", names, 0));
}
END_TEST

START_TEST(help_shows_every_option_and_the_example)
{
	bool flag = false;
	const struct option_spec options[] = {
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are", NULL },
		{ 0, "a-rather-long-option", OPTION_TEXT, "SOMETHING", "what it does", NULL },
		{ 'q', "quiet", OPTION_FLAG, NULL, "say nothing", &flag },
	};
	struct options_usage usage = {
		.command = "spikewatch test",
		.operands = "[FILE]",
		.summary = "Tests.",
		.description = "At length.",
		.example = "spikewatch test a\nspikewatch test b",
		.exits = "0 fine, 1 not",
		.options = options,
		.option_count = 3,
		.operands_max = 1,
	};
	AUTO_FREE char *text = NULL;
	size_t len;
	FILE *file = open_memstream(&text, &len);

	options_help(&usage, file);
	fclose(file);
	ck_assert_str_eq(text, "Usage: spikewatch test [OPTION...] [FILE]\n"
			       "Tests.\n"
			       "\n"
			       "At length.\n"
			       "\n"
			       "  -d, --directory DIR         where incidents are\n"
			       "      --a-rather-long-option SOMETHING\n"
			       "                              what it does\n"
			       "  -q, --quiet                 say nothing\n"
			       "  -h, --help                  show this\n"
			       "\n"
			       "Example:\n"
			       "  spikewatch test a\n"
			       "  spikewatch test b\n"
			       "\n"
			       "Exit code:\n"
			       "  0 fine, 1 not\n");
}
END_TEST

Suite *options_suite(void);

Suite *options_suite(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = tcase_create("options");

	tcase_add_test(tcase, values_are_read_by_their_kind);
	tcase_add_test(tcase, what_is_not_given_keeps_its_default);
	tcase_add_test(tcase, options_may_follow_operands);
	tcase_add_test(tcase, a_command_to_run_keeps_its_options);
	tcase_add_test(tcase, what_follows_two_dashes_is_no_option);
	tcase_add_test(tcase, can_be_called_again);
	tcase_add_test(tcase, help_is_always_understood);
	tcase_add_test(tcase, wrong_options_name_the_nearest);
	tcase_add_test(tcase, values_that_are_missing_or_too_many_are_named);
	tcase_add_test(tcase, values_of_the_wrong_kind_say_what_was_expected);
	tcase_add_test(tcase, missing_operands_are_named);
	tcase_add_test(tcase, messages_fit_their_buffer);
	tcase_add_test(tcase, nearest_is_a_prefix_or_a_few_edits_away);
	tcase_add_test(tcase, help_shows_every_option_and_the_example);
	suite_add_tcase(suite, tcase);
	return suite;
}
