/*
 * check_selection.c: texts that take long to look through, for expressions that take long to look
 * for.
 */
#include "lib/config/selection.c"
#include "lib/base/base.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Suite *selection_suite(void);

#define LONG 8191

static bool pattern_matches(const char *pattern, const char *text)
{
	struct text_regex *regex = NULL;

	ck_assert_int_eq(text_regex_new(pattern, &regex), 0);
	bool found = text_regex_matches(regex, text);

	text_regex_free(regex);
	return found;
}

START_TEST(finds_what_the_c_library_finds)
{
	static const char *const patterns[] = { "b",        "^b", "b$",    "^a|b$", "a|^b",         "(^a)+b",
						"a{2}",     "",   "[^a]b", "a.b",   "^$",           "x*",
						"(a)(b)",   "^",  "$",     "\\^",   "a\\.b",        "(^|c)b",
						"b|c|^d",   "\n", "[])]b", "[^)]b", "[[:space:]]b", "\\)|b",
						"[[.).]]|b" };
	static const char *const texts[] = {
		"", "a", "b", "ab", "ba", "aab", "a\nb", "a.b", "cb", "d", "xd", "^", "aXb"
	};

	for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
		regex_t plain;

		ck_assert_int_eq(regcomp(&plain, patterns[i], REG_EXTENDED | REG_NOSUB), 0);
		for (size_t k = 0; k < ARRAY_LEN(texts); k++)
			ck_assert_msg(pattern_matches(patterns[i], texts[k]) ==
					      (regexec(&plain, texts[k], 0, NULL, 0) == 0),
				      "'%s' in '%s'", patterns[i], texts[k]);
		regfree(&plain);
	}
}
END_TEST

START_TEST(what_is_no_expression_is_refused)
{
	static const char *const broken[] = { "(", "[", "\\", "a)", "a)|(b", "[[:x" };
	struct text_regex *regex = NULL;

	for (size_t i = 0; i < ARRAY_LEN(broken); i++)
		ck_assert_msg(text_regex_new(broken[i], &regex) == -EINVAL, "%s", broken[i]);
}
END_TEST

static double cpu_s(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/*
 * One after the other at each place of the text they take 10 s and more; in one go, milliseconds.
 */
START_TEST(long_texts_take_no_quadratic_time)
{
	static const char *const patterns[] = { "([a-z]+)+!", "(a|aa)+$b", "(.*a){20}b", "a+a+a+c" };
	char *text = malloc(LONG + 1);

	memset(text, 'a', LONG);
	text[LONG] = '\0';
	double before = cpu_s();

	for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
		struct text_regex *regex = NULL;

		ck_assert_int_eq(text_regex_new(patterns[i], &regex), 0);
		for (int k = 0; k < 20; k++)
			ck_assert(!text_regex_matches(regex, text));
		text[LONG - 1] = '!';
		ck_assert(text_regex_matches(regex, text) == (i == 0));
		text[LONG - 1] = 'a';
		text_regex_free(regex);
	}
	ck_assert_double_lt(cpu_s() - before, 3);
	free(text);
}
END_TEST

START_TEST(what_it_has_seen_does_not_pile_up)
{
	struct text_regex *regex = NULL;
	char text[2049] = "";
	unsigned random = 1;

	ck_assert_int_eq(text_regex_new("a.{40}c", &regex), 0);
	for (int i = 0; i < 24; i++) {
		for (size_t k = 0; k + 1 < sizeof(text); k++) {
			random = random * 1103515245u + 12345u;
			text[k] = "ab"[random >> 20 & 1];
		}
		ck_assert(!text_regex_matches(regex, text));
	}
#if !defined(__SANITIZE_ADDRESS__)
	ck_assert_uint_lt(mallinfo2().uordblks + mallinfo2().hblkhd, 90u << 20);
#endif
	text_regex_free(regex);
}
END_TEST

START_TEST(bytes_that_are_no_characters_are_bytes)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	ck_assert(pattern_matches("needle$", "\xff\xfe hay \xc3 needle"));
	ck_assert(pattern_matches("^.{3}x", "\xff\xfe\x80x"));
	ck_assert(pattern_matches("gr.{2}n", "gr\xc3\xbcn"));
	setlocale(LC_CTYPE, "C");
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	struct text_regex *regex = NULL;

	torture_arm(1);
	int r = text_regex_new("a", &regex);
	bool injected = torture_disarm();

	ck_assert(injected);
	ck_assert_int_eq(r, -ENOMEM);
	text_regex_free(NULL);
}
END_TEST

Suite *selection_suite(void)
{
	Suite *suite = suite_create("selection");
	TCase *tcase = tcase_create("textregex");

	tcase_add_test(tcase, finds_what_the_c_library_finds);
	tcase_add_test(tcase, what_is_no_expression_is_refused);
	tcase_add_test(tcase, long_texts_take_no_quadratic_time);
	tcase_add_test(tcase, what_it_has_seen_does_not_pile_up);
	tcase_add_test(tcase, bytes_that_are_no_characters_are_bytes);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
