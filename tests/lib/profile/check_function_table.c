/*
 * check_function_table.c: self and total, recursion, the top thread, order, hostile names, failing
 * memory and sinks.
 */
#include "lib/profile/stack_text.h"

#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

Suite *function_table_suite(void);

/* Frames: one letter each, leaf first, all in module "m". before + during samples of 10 ms. */
static int add(struct function_table *list, int32_t tid, const char *frames, uint64_t before, uint64_t during)
{
	uint32_t functions[16];
	struct function_table_stack stack = {
		.functions = functions,
		.samples = { before, during },
		.weight = { before * 10 * MS, during * 10 * MS },
	};
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "t%d", (int)tid);
	rc = function_table_thread(list, &(struct function_table_thread){ 100 + tid, tid, "p", name }, &stack.thread);
	for (; *frames && rc == 0; frames++)
		rc = function_table_function(list, (char[]){ *frames, '\0' }, "m", &functions[stack.count++]);
	return rc == 0 ? function_table_add(list, &stack) : rc;
}

static void writes(const struct function_table *list, const char *text)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_int_eq(strncmp(out.data, FUNCTION_TABLE_HEADER "\n", strlen(FUNCTION_TABLE_HEADER) + 1), 0);
	ck_assert_str_eq(out.data + strlen(FUNCTION_TABLE_HEADER) + 1, text);
	buffer_release(&out);
}

START_TEST(self_is_of_the_leaf_and_total_of_all)
{
	AUTO(function_table_freep) struct function_table *list = NULL;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	writes(list, FUNCTION_TABLE_SAMPLES " 0, 0\n");
	ck_assert_int_eq(add(list, 1, "cba", 5, 2), 0);
	ck_assert_int_eq(add(list, 1, "ba", 0, 4), 0);
	ck_assert_int_eq(add(list, 1, "", 1, 1), 0);
	writes(list, FUNCTION_TABLE_SAMPLES " 6, 7\n"
					    "b\tm\t0\t5\t4\t6\t40.000\tt1\t1\t6\tp\t101\n"
					    "c\tm\t5\t5\t2\t2\t20.000\tt1\t1\t2\tp\t101\n"
					    "a\tm\t0\t5\t0\t6\t0.000\tt1\t1\t6\tp\t101\n"
					    "\t\t6\t6\t7\t7\t70.000\tt1\t1\t7\tp\t101\n");
}
END_TEST

START_TEST(recursion_counts_once_for_each_stack)
{
	AUTO(function_table_freep) struct function_table *list = NULL;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(add(list, 1, "fgfgf", 0, 3), 0);
	ck_assert_int_eq(add(list, 1, "fgfgf", 0, 2), 0);
	writes(list, FUNCTION_TABLE_SAMPLES " 0, 5\n"
					    "f\tm\t0\t0\t5\t5\t50.000\tt1\t1\t5\tp\t101\n"
					    "g\tm\t0\t0\t0\t5\t0.000\tt1\t1\t5\tp\t101\n"
					    "\t\t0\t0\t5\t5\t50.000\tt1\t1\t5\tp\t101\n");
}
END_TEST

START_TEST(the_top_thread_is_that_of_the_spike)
{
	AUTO(function_table_freep) struct function_table *list = NULL;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(add(list, 1, "a", 100, 1), 0);
	ck_assert_int_eq(add(list, 2, "a", 0, 2), 0);
	ck_assert_int_eq(add(list, 2, "ba", 0, 1), 0);
	ck_assert_int_eq(add(list, 3, "a", 50, 2), 0);
	ck_assert_int_eq(add(list, 3, "q", 1, 0), 0);
	ck_assert_int_eq(add(list, 4, "q", 3, 0), 0);
	ck_assert_int_eq(add(list, 5, "q", 2, 0), 0);
	ck_assert_int_eq(add(list, 6, "q", 1, 0), 0);
	writes(list, FUNCTION_TABLE_SAMPLES " 157, 6\n"
					    "a\tm\t150\t150\t5\t6\t50.000\tt2\t2\t3\tp\t102\n"
					    "b\tm\t0\t0\t1\t1\t10.000\tt2\t2\t1\tp\t102\n"
					    "q\tm\t7\t7\t0\t0\t0.000\tt4\t4\t3\tp\t104\n"
					    "\t\t0\t0\t3\t3\t30.000\tt2\t2\t3\tp\t102\n"
					    "\t\t51\t51\t2\t2\t20.000\tt3\t3\t2\tp\t103\n"
					    "\t\t100\t100\t1\t1\t10.000\tt1\t1\t1\tp\t101\n"
					    "\t\t3\t3\t0\t0\t0.000\tt4\t4\t3\tp\t104\n"
					    "\t\t2\t2\t0\t0\t0.000\tt5\t5\t2\tp\t105\n"
					    "\t\t1\t1\t0\t0\t0.000\tt6\t6\t1\tp\t106\n");
}
END_TEST

START_TEST(functions_of_one_name_are_told_apart_by_module)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	uint32_t a, b, c, d;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "init", "x", &a), 0);
	ck_assert_int_eq(function_table_function(list, "init", "y", &b), 0);
	ck_assert_int_eq(function_table_function(list, "init", "x", &c), 0);
	ck_assert_int_eq(function_table_function(list, "initx", "", &d), 0);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_eq(a, c);
	ck_assert_uint_ne(a, d);
}
END_TEST

START_TEST(numbers_that_were_not_given_are_refused)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	uint32_t function, bad = 2, thread;
	struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 1, 1 } };

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "f", "", &function), 0);
	ck_assert_int_eq(function_table_add(list, &stack), -EINVAL);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 1, "p", "t" }, &thread), 0);
	stack.thread = thread;
	stack.functions = &bad;
	ck_assert_int_eq(function_table_add(list, &stack), -EINVAL);
	bad = 0;
	ck_assert_int_eq(function_table_add(list, &stack), -EINVAL);
	writes(list, FUNCTION_TABLE_SAMPLES " 0, 0\n");
}
END_TEST

START_TEST(hostile_names_stay_one_cell)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 0, 1 } };

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "f\tg\n\x1b", "#\xff", &function), 0);
	ck_assert_int_eq(
		function_table_thread(list, &(struct function_table_thread){ -2, -1, "p\nq", "a\tb" }, &stack.thread),
		0);
	ck_assert_int_eq(function_table_add(list, &stack), 0);
	writes(list,
	       FUNCTION_TABLE_SAMPLES " 0, 1\n"
				      "f\\x09g\\x0a\\x1b\t#\\xff\t0\t0\t1\t1\t0.000\ta\\x09b\t-1\t1\tp\\x0aq\t-2\n"
				      "\t\t0\t0\t1\t1\t0.000\ta\\x09b\t-1\t1\tp\\x0aq\t-2\n");
}
END_TEST

START_TEST(no_more_rows_than_the_limit)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[16];
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 1, 0 } };

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 1, "p", "t" }, &stack.thread),
			 0);
	for (unsigned i = 0; i < FUNCTION_TABLE_ROWS_MAX + 3; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(function_table_function(list, name, "", &function), 0);
		ck_assert_int_eq(function_table_add(list, &stack), 0);
	}
	ck_assert_int_eq(function_table_function(list, "never seen", "", &function), 0);
	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(out.data, "\tp\t1\n# 3 more functions\n\t\t"));
	buffer_release(&out);
}
END_TEST

/* Threads come after the functions, and within the first MiB. */
START_TEST(long_names_do_not_crowd_out_the_threads)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[1001], *rest;
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1 };

	memset(name, '\1', sizeof(name) - 1);
	name[1000] = '\0';
	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 7, 8, "p", "t" }, &stack.thread),
			 0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, 8, "f%05u:", i);
		name[7] = '\1';
		stack.samples[FUNCTION_TABLE_DURING] = 1000 - i;
		ck_assert_int_eq(function_table_function(list, name, "", &function), 0);
		ck_assert_int_eq(function_table_add(list, &stack), 0);
	}
	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_uint_gt(out.len, FUNCTION_TABLE_PART_BYTES_MAX - 8192);
	ck_assert_uint_lt(out.len, FUNCTION_TABLE_PART_BYTES_MAX + 1024);
	rest = strstr(out.data, " more functions\n");
	ck_assert_ptr_nonnull(rest);
	ck_assert_str_eq(rest, " more functions\n\t\t0\t0\t500500\t500500\t0.000\tt\t8\t500500\tp\t7\n");
	/* The hottest are there. */
	ck_assert_ptr_nonnull(strstr(out.data, "f00000:"));
	ck_assert_ptr_null(strstr(out.data, "f00999:"));
	buffer_release(&out);
}
END_TEST

START_TEST(no_more_threads_than_the_limit)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t unseen;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	for (int32_t tid = 1; tid <= FUNCTION_TABLE_THREADS_MAX + 2; tid++)
		ck_assert_int_eq(add(list, tid, "f", 0, tid <= 2 ? 1 : 2), 0);
	ck_assert_int_eq(
		function_table_thread(list, &(struct function_table_thread){ 1, 1, "p", "never seen" }, &unseen), 0);
	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	/* Equals are in the order of their numbers, and the least are left out. */
	ck_assert_ptr_nonnull(
		strstr(out.data, "\n\t\t0\t0\t2\t2\t20.000\tt3\t3\t2\tp\t103\n\t\t0\t0\t2\t2\t20.000\tt4\t4\t"));
	ck_assert_ptr_nonnull(strstr(out.data, "\tp\t302\n# 2 more threads\n"));
	ck_assert_ptr_null(strstr(out.data, "\n\t\t0\t0\t1\t1\t"));
	buffer_release(&out);
}
END_TEST

START_TEST(threads_of_one_number_are_told_apart_by_their_names_and_processes)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	uint32_t a, b, c, d, e;

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 2, "p", "t" }, &a), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 2, "p", "u" }, &b), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 2, "q", "t" }, &c), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 3, 2, "p", "t" }, &d), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 1, 2, "p", "t" }, &e), 0);
	ck_assert(a != b && a != c && a != d && b != c && b != d && c != d);
	ck_assert_uint_eq(a, e);
}
END_TEST

START_TEST(a_table_of_memory_counts_bytes)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t functions[2];
	struct function_table_stack stack = {
		.functions = functions, .count = 2, .samples = { 7, 3 }, .weight = { 28672, 2101248 }
	};

	ck_assert_int_eq(function_table_new(FUNCTION_TABLE_IN_BYTES, &list), 0);
	ck_assert_int_eq(function_table_function(list, "memset", "m", &functions[0]), 0);
	ck_assert_int_eq(function_table_function(list, "grow", "m", &functions[1]), 0);
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 5, 6, "p", "t" }, &stack.thread),
			 0);
	ck_assert_int_eq(function_table_add(list, &stack), 0);
	/* More faults, but fewer bytes. */
	stack.samples[FUNCTION_TABLE_DURING] = 100;
	stack.weight[FUNCTION_TABLE_DURING] = 409600;
	ck_assert_int_eq(function_table_thread(list, &(struct function_table_thread){ 5, 7, "p", "t" }, &stack.thread),
			 0);
	ck_assert_int_eq(function_table_add(list, &stack), 0);
	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, FUNCTION_TABLE_HEADER_BYTES
			 "\n" FUNCTION_TABLE_BYTES " 57344, 2510848\n"
			 "memset\tm\t57344\t57344\t2510848\t2510848\t103\tt\t6\t2101248\tp\t5\n"
			 "grow\tm\t0\t57344\t0\t2510848\t0\tt\t6\t2101248\tp\t5\n"
			 "\t\t28672\t28672\t2101248\t2101248\t3\tt\t6\t2101248\tp\t5\n"
			 "\t\t28672\t28672\t409600\t409600\t100\tt\t7\t409600\tp\t5\n");
	buffer_release(&out);
}
END_TEST

static int everything(const struct sink *sink)
{
	AUTO(function_table_freep) struct function_table *list = NULL;
	int rc = function_table_new(FUNCTION_TABLE_IN_SAMPLES, &list);

	if (rc == 0)
		rc = add(list, 1, "cba", 5, 2);
	/* More than the tallies begin with. */
	for (char name[] = "!"; rc == 0 && *name < 'z'; (*name)++)
		rc = add(list, *name, name, 1, 1);
	return rc == 0 ? function_table_write(list, sink) : rc;
}

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 1 << 20;
		struct sink sink = torture_sink(&left);
		int rc;

		torture_arm(n);
		rc = everything(&sink);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
}
END_TEST

START_TEST(any_write_may_fail)
{
	struct buffer out = { 0 };
	struct sink whole = sink_buffer(&out);

	ck_assert_int_eq(everything(&whole), 0);
	for (long room = 0; room < (long)out.len; room++) {
		long left = room;
		struct sink sink = torture_sink(&left);

		ck_assert_int_eq(everything(&sink), -EIO);
	}
	buffer_release(&out);
}
END_TEST

Suite *function_table_suite(void)
{
	Suite *suite = suite_create("function_table");
	TCase *tcase = tcase_create("functions");

	tcase_add_test(tcase, self_is_of_the_leaf_and_total_of_all);
	tcase_add_test(tcase, recursion_counts_once_for_each_stack);
	tcase_add_test(tcase, the_top_thread_is_that_of_the_spike);
	tcase_add_test(tcase, functions_of_one_name_are_told_apart_by_module);
	tcase_add_test(tcase, numbers_that_were_not_given_are_refused);
	tcase_add_test(tcase, hostile_names_stay_one_cell);
	tcase_add_test(tcase, no_more_rows_than_the_limit);
	tcase_add_test(tcase, long_names_do_not_crowd_out_the_threads);
	tcase_add_test(tcase, no_more_threads_than_the_limit);
	tcase_add_test(tcase, threads_of_one_number_are_told_apart_by_their_names_and_processes);
	tcase_add_test(tcase, a_table_of_memory_counts_bytes);
	tcase_add_test(tcase, any_allocation_may_fail);
	tcase_add_test(tcase, any_write_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
