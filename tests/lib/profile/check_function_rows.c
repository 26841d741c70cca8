/*
 * check_function_rows.c: what function table writes comes back; tables that are cut, changed or
 * none.
 */
#include "lib/profile/stack_text.h"
#include "lib/base/io.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

Suite *function_rows_suite(void);

static void name_is(const struct function_rows_name *name, const char *text)
{
	ck_assert_uint_eq(name->len, strlen(text));
	ck_assert_mem_eq(name->text, text, name->len);
}

START_TEST(what_was_written_comes_back)
{
	struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1 };
	struct function_rows rows;
	struct function_rows_row row;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "a\tb", "/lib/x.so", &function), 0);
	ck_assert_int_eq(function_table_thread(list,
					       &(struct function_table_thread){ 812, -7, "post\tgres", "worker 1" },
					       &stack.thread),
			 0);
	stack.samples[FUNCTION_TABLE_BEFORE] = 3;
	stack.samples[FUNCTION_TABLE_DURING] = UINT64_C(1) << 40;
	stack.weight[FUNCTION_TABLE_DURING] = 1234567 * MS + 891000;
	ck_assert_int_eq(function_table_add(list, &stack), 0);
	ck_assert_int_eq(function_table_write(list, &sink), 0);

	ck_assert(function_rows_start(&rows, out.data, out.len));
	ck_assert_uint_eq(rows.sum[FUNCTION_TABLE_BEFORE], 3);
	ck_assert_uint_eq(rows.sum[FUNCTION_TABLE_DURING], UINT64_C(1) << 40);
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.function, "a\\x09b");
	name_is(&row.module, "/lib/x.so");
	name_is(&row.thread, "worker 1");
	ck_assert_int_eq(row.tid, -7);
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_BEFORE], 3);
	ck_assert_uint_eq(row.total[FUNCTION_TABLE_BEFORE], 3);
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_DURING], UINT64_C(1) << 40);
	ck_assert_uint_eq(row.total[FUNCTION_TABLE_DURING], UINT64_C(1) << 40);
	ck_assert_uint_eq(row.self_ns, 1234567 * MS + 891000);
	ck_assert_uint_eq(row.top_amount, UINT64_C(1) << 40);
	name_is(&row.process, "post\\x09gres");
	ck_assert_int_eq(row.pid, 812);
	/* The thread. */
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.function, "");
	name_is(&row.module, "");
	name_is(&row.thread, "worker 1");
	ck_assert_int_eq(row.tid, -7);
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_BEFORE], 3);
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_DURING], UINT64_C(1) << 40);
	ck_assert_uint_eq(row.self_ns, 1234567 * MS + 891000);
	ck_assert(!function_rows_next(&rows, &row));
	buffer_release(&out);
	function_table_free(list);
}
END_TEST

START_TEST(bytes_come_back_as_bytes)
{
	struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t function;
	struct function_table_stack stack = {
		.functions = &function, .count = 1, .samples = { 2, 3 }, .weight = { 8192, 12288 }
	};
	struct function_rows rows;
	struct function_rows_row row;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_BYTES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "grow", "", &function), 0);
	ck_assert_int_eq(
		function_table_thread(list, &(struct function_table_thread){ 812, 813, "p", "t" }, &stack.thread), 0);
	ck_assert_int_eq(function_table_add(list, &stack), 0);
	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert(function_rows_start(&rows, out.data, out.len));
	ck_assert_int_eq(rows.unit, FUNCTION_TABLE_IN_BYTES);
	ck_assert_uint_eq(rows.sum[FUNCTION_TABLE_BEFORE], 8192);
	ck_assert_uint_eq(rows.sum[FUNCTION_TABLE_DURING], 12288);
	ck_assert(function_rows_next(&rows, &row));
	name_is(&row.function, "grow");
	ck_assert_uint_eq(row.self[FUNCTION_TABLE_DURING], 12288);
	ck_assert_uint_eq(row.self_faults, 3);
	ck_assert_uint_eq(row.self_ns, 0);
	ck_assert_uint_eq(row.top_amount, 12288);
	ck_assert(function_rows_next(&rows, &row));
	ck_assert_int_eq(row.tid, 813);
	ck_assert(!function_rows_next(&rows, &row));
	buffer_release(&out);
	function_table_free(list);
}
END_TEST

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

Suite *function_rows_suite(void)
{
	Suite *suite = suite_create("function_rows");
	TCase *tcase = tcase_create("rows");

	tcase_add_test(tcase, what_was_written_comes_back);
	tcase_add_test(tcase, bytes_come_back_as_bytes);
	tcase_add_test(tcase, a_thread_may_have_no_name);
	tcase_add_test(tcase, remarks_say_how_many_are_left_out);
	tcase_add_test(tcase, columns_are_found_by_their_names);
	tcase_add_test(tcase, what_is_no_such_table_is_told);
	tcase_add_test(tcase, milliseconds_have_up_to_six_digits);
	suite_add_tcase(suite, tcase);
	return suite;
}
