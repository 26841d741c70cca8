/*
 * check_perf_map.c: what just-in-time compilers write, and what the kernel says of itself:
 * perf_map.h and kallsyms.h.
 */
#include "daemon/symbolize/symtable.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct symtable table;
static struct perf_map_counts counts;

static void teardown(void)
{
	symtable_release(&table);
}

static void read_map(const char *text)
{
	symtable_release(&table);
	ck_assert_int_eq(perf_map_parse(text, strlen(text), &table, &counts), 0);
}

static void read_kernel(const char *text)
{
	symtable_release(&table);
	ck_assert_int_eq(kallsyms_parse(text, strlen(text), &table), 0);
}

#define ck_assert_name(address, expected) \
	do { \
		const struct symtable_symbol *symbol_ = symtable_find(&table, address); \
		const char *expected_ = expected; \
		ck_assert_uint_eq(symbol_ ? symbol_->len : 0, strlen(expected_)); \
		ck_assert(!symbol_ || memcmp(symbol_->name, expected_, symbol_->len) == 0); \
	} while (0)

START_TEST(lines_of_a_perf_map_are_functions)
{
	read_map("7f1000 20 LazyCompile:~render /srv/app.js:12\n0x7f2000 0x10 py::main:<module>\n7F3000 A upper\n");
	ck_assert_uint_eq(counts.lines, 3);
	ck_assert_uint_eq(counts.broken, 0);
	ck_assert_name(0x7f101f, "LazyCompile:~render /srv/app.js:12");
	ck_assert_name(0x7f1020, "");
	ck_assert_name(0x7f2000, "py::main:<module>");
	ck_assert_name(0x7f3009, "upper");
}
END_TEST

START_TEST(lines_that_are_none_are_skipped_and_counted)
{
	read_map("nonsense\n100\n100 10\n100 10 \n100 0 nothing\n11111111111111111 1 long\nffffffffffffffff 10 "
		 "wraps\n\n200 10 good");
	ck_assert_uint_eq(counts.lines, 1);
	ck_assert_uint_eq(counts.broken, 7);
	ck_assert_name(0x20f, "good");
	ck_assert_name(0x100, "");
}
END_TEST

START_TEST(code_that_was_replaced_has_its_last_name)
{
	read_map("100 100 first\n180 10 inside\n150 100 second\n");
	ck_assert_name(0x14f, "first");
	ck_assert_name(0x150, "second");
	ck_assert_name(0x185, "second");
	ck_assert_name(0x24f, "second");
}
END_TEST

START_TEST(kernel_symbols_end_where_the_next_begins)
{
	read_kernel("ffffffff81000000 T _text\nffffffff81000000 t local\nffffffff81000100 t second\nffffffff81000200 D "
		    "data\n"
		    "ffffffffc0000000 t helper\t[ext4]\n");
	ck_assert_name(0xffffffff80ffffff, "");
	ck_assert_name(0xffffffff810000ff, "_text");
	ck_assert_name(0xffffffff81000100, "second");
	ck_assert_name(0xffffffff81000200, "");
	ck_assert_name(0xffffffffc0000000, "helper\t[ext4]");
	ck_assert_name(0xffffffffc0000000 + KALLSYMS_FUNCTION_MAX, "");
}
END_TEST

START_TEST(a_kernel_that_hides_its_addresses_says_nothing)
{
	read_kernel("0000000000000000 T _text\n0000000000000000 t second\n");
	ck_assert_uint_eq(table.count, 0);
	read_kernel("ffffffff8100000 T\nxyz\nffffffff81000000T no\nffffffff81000000 T \n");
	ck_assert_uint_eq(table.count, 0);
}
END_TEST

START_TEST(without_memory_they_say_so)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = perf_map_parse("1 1 a\n2 1 b\n", 12, &table, NULL);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		symtable_release(&table);
	}
}
END_TEST

Suite *perf_map_suite(void);
Suite *perf_map_suite(void)
{
	Suite *suite = suite_create("perf_map");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, NULL, teardown);
	tcase_add_test(core, lines_of_a_perf_map_are_functions);
	tcase_add_test(core, lines_that_are_none_are_skipped_and_counted);
	tcase_add_test(core, code_that_was_replaced_has_its_last_name);
	tcase_add_test(core, kernel_symbols_end_where_the_next_begins);
	tcase_add_test(core, a_kernel_that_hides_its_addresses_says_nothing);
	tcase_add_test(core, without_memory_they_say_so);
	suite_add_tcase(suite, core);

	return suite;
}
