/*
 * check_stack_text.c: two texts of folded stacks as one; tables of functions that are cut, changed
 * or none. What was written comes back: check_profile.c.
 */
#include "lib/profile/stack_text.h"

#include "lib/base/io.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- the table of functions ---- */

static void name_is(const struct text_part *name, const char *text)
{
	ck_assert_uint_eq(name->len, strlen(text));
	ck_assert_mem_eq(name->at, text, name->len);
}

START_TEST(a_thread_may_have_no_name)
{
	static const char text[] = "function\ttop_thread\ttop_tid\ttop_pid\n"
				   "\t\t0\t7\n"
				   "\t\t12\t7\n"
				   "\t\t12\tseven\n"
				   "\tidle\t0\t0\n";
	struct function_rows rows;
	struct function_rows_row row;

	ck_assert(function_rows_start(&rows, text, strlen(text)));
	ck_assert_int_eq(rows.unit, FUNCTION_TABLE_IN_SAMPLES);
	ck_assert(function_rows_next(&rows, &row));
	ck_assert_int_eq(row.tid, 12);
	ck_assert_int_eq(row.pid, 7);
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.thread, "idle");
	ck_assert(!function_rows_next(&rows, &row));
}
END_TEST

START_TEST(remarks_say_how_many_are_left_out)
{
	static const char text[] = "function\ttop_tid\n"
				   "# 3 more functions\n"
				   "#\n# \n# more functions\n#x9 more functions\n# 9 more functions.\n# 9\n"
				   "f\t1\n"
				   "# 18446744073709551615 more threads\n";
	struct function_rows rows;
	struct function_rows_row row;

	ck_assert(function_rows_start(&rows, text, strlen(text)));
	ck_assert(function_rows_next(&rows, &row));
	ck_assert_uint_eq(rows.more_functions, 3);
	ck_assert_uint_eq(rows.more_threads, 0);
	ck_assert(!function_rows_next(&rows, &row));
	ck_assert_uint_eq(rows.more_functions, 3);
	ck_assert_uint_eq(rows.more_threads, UINT64_MAX);
}
END_TEST

START_TEST(columns_are_found_by_their_names)
{
	static const char text[] = "new\tself_during\tfunction\n"
				   "# a remark\n"
				   "x\t5\tf\n"
				   "\n"
				   "x\t6\n"
				   "x\tmany\tg\n"
				   "x\t-1\tg\n"
				   "x\t18446744073709551616\tg\n"
				   "x\t7\t\n"
				   "x\t8\th\tmore\tand more\n"
				   "x\t9\tcut";
	struct function_rows rows;
	struct function_rows_row row;

	ck_assert(function_rows_start(&rows, text, strlen(text)));
	ck_assert_uint_eq(rows.sum[FUNCTION_TABLE_BEFORE], 0);
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.function, "f");
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_DURING], 5);
	ck_assert_uint_eq(row.module.len, 0);
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.function, "h");
	ck_assert(!function_rows_next(&rows, &row));
}
END_TEST

START_TEST(what_is_no_such_table_is_told)
{
	static const char *const texts[] = { "", "\n", "function", "pid\ttid\n1\t2\n", "functions\n" };
	struct function_rows rows;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		ck_assert_msg(!function_rows_start(&rows, texts[i], strlen(texts[i])), "%s", texts[i]);
}
END_TEST

START_TEST(milliseconds_have_up_to_six_digits)
{
	static const struct {
		const char *text;
		uint64_t ns;
		bool good;
	} cases[] = {
		{ "0", 0, true },          { "1.5", 1500000, true }, { "2.000001", 2000001, true },
		{ "2.0000011", 0, false }, { "1.", 1000000, true },  { ".5", 0, false },
		{ "", 0, false },          { "1x", 0, false },       { "18446744073709", 0, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct buffer text = { 0 };
		struct function_rows rows;
		struct function_rows_row row = { 0 };

		ck_assert_int_eq(buffer_append(&text, "function\tself_during_ms\nf\t", 26), 0);
		ck_assert_int_eq(buffer_append(&text, cases[i].text, strlen(cases[i].text)), 0);
		ck_assert_int_eq(buffer_append(&text, "\n", 1), 0);
		ck_assert(function_rows_start(&rows, text.data, text.len));
		ck_assert_msg(function_rows_next(&rows, &row) == cases[i].good, "%s", cases[i].text);
		ck_assert_uint_eq(row.self_ns, cases[i].ns);
		buffer_release(&text);
	}
}
END_TEST

Suite *stack_text_suite(void);
Suite *stack_text_suite(void)
{
	Suite *suite = suite_create("stack_text");
	TCase *diff = tcase_create("folded diff");
	TCase *rows = tcase_create("rows");

	tcase_add_checked_fixture(diff, NULL, tear_down);

	tcase_add_test(diff, puts_equal_stacks_beside_each_other);
	tcase_add_test(diff, adds_up_a_stack_that_is_there_twice);
	tcase_add_test(diff, scales_the_first_to_the_second);
	tcase_add_test(diff, names_may_have_spaces_and_numbers);
	tcase_add_test(diff, what_acts_on_a_terminal_is_escaped);
	tcase_add_test(diff, a_line_without_a_count_is_damage);
	tcase_add_test(diff, memory_and_the_sink_may_fail);
	suite_add_tcase(suite, diff);
	tcase_add_test(rows, a_thread_may_have_no_name);
	tcase_add_test(rows, remarks_say_how_many_are_left_out);
	tcase_add_test(rows, columns_are_found_by_their_names);
	tcase_add_test(rows, what_is_no_such_table_is_told);
	tcase_add_test(rows, milliseconds_have_up_to_six_digits);
	suite_add_tcase(suite, rows);
	return suite;
}
