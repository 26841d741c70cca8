/* check_html_text.c: text of strangers inside of HTML and of JSON. */
#include "cli/report/report.h"

#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *html_text_suite(void);

static void shown_as(const char *text, size_t len, const char *expected)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(html_text_write(&sink, text, len), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, expected);
	buffer_release(&out);
}

#define SHOWN(text, expected) shown_as(text, sizeof(text) - 1, expected)

START_TEST(plain_text_stays)
{
	SHOWN("", "");
	SHOWN("postgres/812 [\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5] a\\b",
	      "postgres/812 [\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5] a\\b");
}
END_TEST

START_TEST(no_markup_gets_through)
{
	SHOWN("<script>alert('1')</script>", "&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;");
	SHOWN("a\" onload=\"x&lt;", "a&#34; onload=&#34;x&#38;lt;");
}
END_TEST

START_TEST(what_cannot_be_seen_is_written_out)
{
	SHOWN("a\tb\n\x7f\0c", "a\\x09b\\x0a\\x7f\\x00c");
	SHOWN("exe\xe2\x80\xaegpj.", "exe\\u{202e}gpj.");
	SHOWN("\xc2\x9b\xe2\x81\xa6\xef\xbb\xbf\xe2\x80\x8b", "\\u{9b}\\u{2066}\\u{feff}\\u{200b}");
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_written_out)
{
	SHOWN("\xff\xc3", "\\xff\\xc3");
	SHOWN("\xc0\xbc", "\\xc0\\xbc");          /* "<", too long */
	SHOWN("\xe0\x80\xbc", "\\xe0\\x80\\xbc"); /* and longer */
	SHOWN("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
	SHOWN("\xf4\x90\x80\x80x", "\\xf4\\x90\\x80\\x80x");
	SHOWN("\xe2\x82<", "\\xe2\\x82&#60;");
}
END_TEST

START_TEST(no_tag_begins_in_json)
{
	struct buffer out = { 0 };
	struct sink inner = sink_buffer(&out), sink = html_text_json(&inner);

	ck_assert_int_eq(sink_write(&sink, "[\"</script><!--\",", 17), 0);
	ck_assert_int_eq(sink_write(&sink, "\"<\"", 3), 0);
	ck_assert_int_eq(sink_write(&sink, "]", 1), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, "[\"\\u003c/script>\\u003c!--\",\"\\u003c\"]");
	buffer_release(&out);
}
END_TEST

START_TEST(a_sink_that_fails_is_said)
{
	for (long bytes = 0; bytes < 12; bytes++) {
		long left = bytes;
		struct sink inner = torture_sink(&left), sink = html_text_json(&inner);

		ck_assert_int_eq(html_text_write(&inner, "abc<d\x01", 6), -EIO);
		left = bytes;
		ck_assert_int_eq(sink_write(&sink, "aaa<bbbbbb<", 11), -EIO);
	}
}
END_TEST

Suite *html_text_suite(void)
{
	Suite *suite = suite_create("html_text");
	TCase *tcase = tcase_create("text");

	tcase_add_test(tcase, plain_text_stays);
	tcase_add_test(tcase, no_markup_gets_through);
	tcase_add_test(tcase, what_cannot_be_seen_is_written_out);
	tcase_add_test(tcase, bytes_that_are_no_utf8_are_written_out);
	tcase_add_test(tcase, no_tag_begins_in_json);
	tcase_add_test(tcase, a_sink_that_fails_is_said);
	suite_add_tcase(suite, tcase);
	return suite;
}
