/* check_clean_text.c: what was escaped stays as it is; what was not is. */
#include "lib/base/text.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *clean_text_suite(void);

static void expect(const char *text, size_t len, const char *clean)
{
	struct buffer buffer = { 0 };

	ck_assert_int_eq(clean_text_append(&buffer, text, len), 0);
	ck_assert_uint_eq(buffer.len, strlen(clean));
	ck_assert_mem_eq(buffer.data ? buffer.data : "", clean, buffer.len);
	buffer_release(&buffer);
}

START_TEST(leaves_what_was_escaped)
{
	expect("main", 4, "main");
	expect("", 0, "");
	expect("bad\\xff\\x3b\\x5c", 15, "bad\\xff\\x3b\\x5c");
	expect("\\", 1, "\\");
	expect("\xc3\xa4", 2, "\xc3\xa4");
}
END_TEST

START_TEST(escapes_what_was_not)
{
	expect("a\x1b[31m\n", 7, "a\\x1b[31m\\x0a");
	expect("a\0b\xff", 4, "a\\x00b\\xff");
	expect("\\\x7f\\", 3, "\\\\x7f\\");
}
END_TEST

START_TEST(tears_no_character_apart)
{
	char text[600];
	struct buffer buffer = { 0 };

	/* Whatever the pieces are: each second byte ends a character. */
	for (size_t shift = 0; shift < 2; shift++) {
		memset(text, 'x', shift);
		for (size_t i = shift; i + 1 < sizeof(text); i += 2)
			memcpy(text + i, "\xc3\xa4", 2);
		buffer.len = 0;
		ck_assert_int_eq(clean_text_append(&buffer, text, sizeof(text) - shift), 0);
		ck_assert_uint_eq(buffer.len, sizeof(text) - shift);
		ck_assert_mem_eq(buffer.data, text, buffer.len);
	}
	buffer_release(&buffer);
}
END_TEST

START_TEST(says_that_there_is_no_room)
{
	struct buffer buffer = { .max = 4 };

	ck_assert_int_eq(clean_text_append(&buffer, "abcde", 5), -EFBIG);
	buffer_release(&buffer);
	torture_arm(1);
	int rc = clean_text_append(&buffer, "a\\b", 3);
	ck_assert(torture_disarm());
	ck_assert_int_eq(rc, -ENOMEM);
	buffer_release(&buffer);
}
END_TEST

Suite *clean_text_suite(void)
{
	Suite *suite = suite_create("clean_text");
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, leaves_what_was_escaped);
	tcase_add_test(tcase, escapes_what_was_not);
	tcase_add_test(tcase, tears_no_character_apart);
	tcase_add_test(tcase, says_that_there_is_no_room);
	suite_add_tcase(suite, tcase);
	return suite;
}
