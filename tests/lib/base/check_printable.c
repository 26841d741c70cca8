/*
 * check_printable.c: strings of strangers in JSON: what a terminal would obey, hide or turn around
 * is replaced, all else is kept.
 */
#include "lib/base/json.h"

#include "lib/base/io.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *printable_suite(void);

static void expect(const char *text, const char *want)
{
	struct buffer buffer = { .max = 1 << 16 };
	struct json_writer *writer;

	ck_assert_int_eq(json_writer_new(sink_buffer(&buffer), false, &writer), 0);
	ck_assert_int_eq(printable_json(writer, text), 0);
	ck_assert_int_eq(json_writer_close(writer), 0);
	ck_assert_int_eq(buffer_append(&buffer, "", 1), 0);
	ck_assert_ptr_eq(strstr(buffer.data, want), buffer.data);
	buffer_release(&buffer);
}

START_TEST(what_is_hidden_is_replaced)
{
	expect("a\x7f"
	       "b\xc2\x9b!",
	       "\"a\xef\xbf\xbd"
	       "b\xef\xbf\xbd!\"");
	expect("exe\xe2\x80\xaegpj.", "\"exe\xef\xbf\xbdgpj.\"");
}
END_TEST

START_TEST(what_is_plain_is_kept)
{
	expect("gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\xa5", "\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\xa5\"");
	expect("\x7fgr\xc3\xbc", "\"\xef\xbf\xbdgr\xc3\xbc\""); /* also beside what is not */
	expect("\n\033", "\"\\n\\u001B\"");
}
END_TEST

START_TEST(what_is_long_is_cut)
{
	char text[PRINTABLE_MAX * 3];

	memset(text, 0x7f, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	expect(text, "\"\xef\xbf\xbd\xef\xbf\xbd");
}
END_TEST

Suite *printable_suite(void)
{
	Suite *suite = suite_create("printable");
	TCase *tcase = tcase_create("strings");

	tcase_add_test(tcase, what_is_hidden_is_replaced);
	tcase_add_test(tcase, what_is_plain_is_kept);
	tcase_add_test(tcase, what_is_long_is_cut);
	suite_add_tcase(suite, tcase);

	return suite;
}
