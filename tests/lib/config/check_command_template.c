/* check_command_template.c: words with placeholders. */
#include "lib/config/config.h"

#include "lib/base/base.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *command_template_suite(void);

static const struct command_template_values values = { {
	[COMMAND_TEMPLATE_PID] = "812",
	[COMMAND_TEMPLATE_INCIDENT] = "/var/x",
	[COMMAND_TEMPLATE_RULE] = "cpu",
	[COMMAND_TEMPLATE_TARGET] = "{pid}",
	[COMMAND_TEMPLATE_NAME] = NULL,
} };

/* Why a command with this argument is refused; "": it is not. */
static const char *refusal(const char *word)
{
	static char line[CONFIG_FILE_MESSAGE_MAX];
	AUTO(config_freep) struct config *config = NULL;
	struct config_error error = { .message = "" };
	char text[256];
	const struct config_source source = { "t.json", text,
					      (size_t)snprintf(text, sizeof(text),
							       "{\"targets\":[{\"name\":\"a\",\"comm\":\"x\",\"run\":[{"
							       "\"name\":\"r\",\"command\":[\"/bin/x\",\"%s\"]}]}]}",
							       word) };

	config_parse(&source, 1, &config, &error);
	config_error_format(&error, line, sizeof(line));
	return line;
}

START_TEST(placeholders_are_replaced_once)
{
	static const struct {
		const char *word, *expected;
	} cases[] = {
		{ "", "" },
		{ "plain", "plain" },
		{ "{pid}", "812" },
		{ "-o{incident}/core.{pid}.gz", "-o/var/x/core.812.gz" },
		{ "{rule}{rule}", "cpucpu" },
		{ "{target}", "{pid}" }, /* what a stranger is called is not looked at again */
		{ "[{name}]", "[]" },
		{ "{{pid}", "{pid}" },
		{ "{{{pid}}", "{812}" },
		{ "a}b", "a}b" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char buf[64];

		ck_assert_str_eq(refusal(cases[i].word), "");
		ck_assert_uint_eq(command_template_expand(cases[i].word, &values, buf, sizeof(buf)),
				  strlen(cases[i].expected));
		ck_assert_str_eq(buf, cases[i].expected);
	}
}
END_TEST

START_TEST(what_does_not_fit_is_cut_and_its_length_told)
{
	char buf[8] = "xxxxxxx";

	ck_assert_uint_eq(command_template_expand("ab{incident}c", &values, NULL, 0), 9);
	for (size_t cap = 1; cap <= sizeof(buf); cap++) {
		memset(buf, 'x', sizeof(buf));
		ck_assert_uint_eq(command_template_expand("ab{incident}c", &values, buf, cap), 9);
		ck_assert_uint_lt(strlen(buf), cap);
		ck_assert_int_eq(strncmp("ab/var/xc", buf, strlen(buf)), 0);
	}
}
END_TEST

START_TEST(a_brace_that_begins_nothing_is_refused_where_it_is)
{
	static const struct {
		const char *word;
		size_t at;
	} cases[] = { { "{", 0 },   { "a{}", 1 },     { "{pid}{Pid}", 5 }, { "{pid", 0 },
		      { "{{{", 2 }, { "x{pid }", 1 }, { "{tid}", 0 } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char place[64];

		snprintf(place, sizeof(place), "unknown placeholder at \"%s\"", cases[i].word + cases[i].at);
		ck_assert_msg(strstr(refusal(cases[i].word), place), "%s", refusal(cases[i].word));
	}
}
END_TEST

START_TEST(use_is_found)
{
	ck_assert(command_template_uses("x{pid}", COMMAND_TEMPLATE_PID));
	ck_assert(!command_template_uses("x{{pid}", COMMAND_TEMPLATE_PID));
	ck_assert(!command_template_uses("{rule}", COMMAND_TEMPLATE_PID));
}
END_TEST

START_TEST(a_safe_name_is_no_option_and_no_path)
{
	char buf[COMMAND_TEMPLATE_SAFE_MAX], longer[300];

	ck_assert_str_eq(command_template_safe("postgres-12.x_y", buf), "postgres-12.x_y");
	ck_assert_str_eq(command_template_safe("--output=/etc/passwd", buf), "_-output__etc_passwd");
	ck_assert_str_eq(command_template_safe("../x", buf), "_._x");
	ck_assert_str_eq(command_template_safe("a\n\xff b", buf), "a___b");
	ck_assert_str_eq(command_template_safe("", buf), "");
	memset(longer, 'a', sizeof(longer));
	longer[299] = '\0';
	ck_assert_uint_eq(strlen(command_template_safe(longer, buf)), COMMAND_TEMPLATE_SAFE_MAX - 1);
}
END_TEST

Suite *command_template_suite(void)
{
	Suite *suite = suite_create("command_template");
	TCase *tcase = tcase_create("words");

	tcase_add_test(tcase, placeholders_are_replaced_once);
	tcase_add_test(tcase, what_does_not_fit_is_cut_and_its_length_told);
	tcase_add_test(tcase, a_brace_that_begins_nothing_is_refused_where_it_is);
	tcase_add_test(tcase, use_is_found);
	tcase_add_test(tcase, a_safe_name_is_no_option_and_no_path);
	suite_add_tcase(suite, tcase);

	return suite;
}
