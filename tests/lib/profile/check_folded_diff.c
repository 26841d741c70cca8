/* check_folded_diff.c: two texts of folded stacks as one. */
#include "lib/profile/stack_text.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *folded_diff_suite(void);

static struct buffer out;

static void tear_down(void)
{
	buffer_release(&out);
}

static struct buffer text_of(const char *text)
{
	return (struct buffer){ .data = (char *)(uintptr_t)text, .len = strlen(text) };
}

static int pair(const char *first, const char *second, bool scale)
{
	struct buffer a = text_of(first), b = text_of(second);
	struct sink sink = sink_buffer(&out);

	out.len = 0;
	return folded_diff_write(&a, &b, scale, &sink);
}

static void expect(const char *first, const char *second, bool scale, const char *both)
{
	ck_assert_int_eq(pair(first, second, scale), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, both);
}

START_TEST(puts_equal_stacks_beside_each_other)
{
	expect("p;main;a 3\np;main 1\n", "p;main;a 5\np;main;b 7\n", false, "p;main 1 0\np;main;a 3 5\np;main;b 0 7\n");
	expect("", "p;x 1\n", false, "p;x 0 1\n");
	expect("p;x 1\n", "", false, "p;x 1 0\n");
	expect("", "", false, "");
}
END_TEST

START_TEST(adds_up_a_stack_that_is_there_twice)
{
	expect("a;b 1\nc 2\n\na;b 4", "c 1\nc 0\nd 0\n", false, "a;b 5 0\nc 2 1\n");
	expect("a 18446744073709551615\na 2\n", "", false, "a 18446744073709551615 0\n");
}
END_TEST

START_TEST(scales_the_first_to_the_second)
{
	expect("a 30\nb 10\n", "a 10\nc 10\n", true, "a 15 10\nb 5 0\nc 0 10\n");
	expect("a 1\n", "", true, "a 1 0\n");
	expect("a 3\nb 3\nc 3\n", "a 1\n", true, "a 0 1\n");
}
END_TEST

START_TEST(names_may_have_spaces_and_numbers)
{
	expect("my proc;operator new(unsigned long) 1\n", "my proc;a 2 3\n", false,
	       "my proc;a 2 0 3\nmy proc;operator new(unsigned long) 1 0\n");
}
END_TEST

START_TEST(what_acts_on_a_terminal_is_escaped)
{
	expect("a;\x1b[31m\xff\\x3b 1\n", "", false, "a;\\x1b[31m\\xff\\x3b 1 0\n");
}
END_TEST

START_TEST(a_line_without_a_count_is_damage)
{
	static const char *const bad[] = {
		"a", "a;b", "a x\n", " 1\n", "a 1\nb -1\n", "a 1.5\n", "a 18446744073709551616\n", "a 1 \n"
	};
	uint64_t sum = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct buffer text = text_of(bad[i]);

		ck_assert_msg(!folded_diff_check(&text, &sum), "%s", bad[i]);
		ck_assert_uint_eq(sum, 7);
	}
	struct buffer good = text_of("a 1\n\nb;c 2");
	ck_assert(folded_diff_check(&good, &sum));
	ck_assert_uint_eq(sum, 3);
	good.len = 0;
	ck_assert(folded_diff_check(&good, &sum));
	ck_assert_uint_eq(sum, 0);
}
END_TEST

START_TEST(memory_and_the_sink_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		buffer_release(&out);
		torture_arm(n);
		int rc = pair("a 1\nb 2\n", "b 3\nc 4\n", true);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
	for (long room = 0; room < 18; room++) {
		long left = room;
		struct sink sink = torture_sink(&left);
		struct buffer a = text_of("a 1\nb 2\n"), b = text_of("b 3\nc 4\n");

		ck_assert_int_eq(folded_diff_write(&a, &b, false, &sink), -EIO);
	}
}
END_TEST

Suite *folded_diff_suite(void)
{
	Suite *suite = suite_create("folded_diff");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, NULL, tear_down);
	tcase_add_test(tcase, puts_equal_stacks_beside_each_other);
	tcase_add_test(tcase, adds_up_a_stack_that_is_there_twice);
	tcase_add_test(tcase, scales_the_first_to_the_second);
	tcase_add_test(tcase, names_may_have_spaces_and_numbers);
	tcase_add_test(tcase, what_acts_on_a_terminal_is_escaped);
	tcase_add_test(tcase, a_line_without_a_count_is_damage);
	tcase_add_test(tcase, memory_and_the_sink_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
