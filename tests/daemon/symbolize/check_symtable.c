/* check_symtable.c: a name only where there is one. */
#include "daemon/symbolize/symtable.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct symtable table;

static void setup(void)
{
	table = (struct symtable){ 0 };
}

static void teardown(void)
{
	symtable_release(&table);
}

static void add(uint64_t start, uint64_t end, const char *name, uint32_t rank, bool open)
{
	struct symtable_symbol symbol = { start, end, name, (uint32_t)strlen(name), rank, open };

	ck_assert_int_eq(symtable_add(&table, &symbol), 0);
}

static const char *at(uint64_t address)
{
	const struct symtable_symbol *symbol = symtable_find(&table, address);

	return symbol != NULL ? symbol->name : "";
}

START_TEST(an_address_is_in_a_symbol_only_within_its_size)
{
	add(100, 110, "a", 0, false);
	add(120, 121, "b", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(99), "");
	ck_assert_str_eq(at(100), "a");
	ck_assert_str_eq(at(109), "a");
	ck_assert_str_eq(at(110), "");
	ck_assert_str_eq(at(120), "b");
	ck_assert_str_eq(at(121), "");
	ck_assert_str_eq(at(UINT64_MAX), "");
}
END_TEST

START_TEST(an_open_symbol_ends_at_the_next_of_any_kind_or_at_its_end)
{
	add(100, 1000, "open", 0, true);
	add(150, 160, "", 0, false);
	add(200, 1000, "last", 0, true);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(149), "open");
	ck_assert_str_eq(at(150), "");
	ck_assert_str_eq(at(160), "");
	ck_assert_str_eq(at(200), "last");
	ck_assert_str_eq(at(999), "last");
	ck_assert_str_eq(at(1000), "");
}
END_TEST

START_TEST(a_label_in_a_function_does_not_hide_it)
{
	add(100, 200, "function", 0, false);
	add(150, 1000, "label", 9, true);
	add(300, 1000, "free", 0, true);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(150), "function");
	ck_assert_str_eq(at(199), "function");
	ck_assert_str_eq(at(200), "");
	ck_assert_str_eq(at(300), "free");
}
END_TEST

START_TEST(the_innermost_is_found_and_what_is_around_it_behind_it)
{
	add(100, 1000, "outer", 0, false);
	add(200, 300, "inner", 0, false);
	add(400, 410, "other", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(250), "inner");
	ck_assert_str_eq(at(300), "outer");
	ck_assert_str_eq(at(409), "other");
	ck_assert_str_eq(at(999), "outer");
}
END_TEST

START_TEST(of_names_for_one_address_the_preferred_is_found_in_any_order)
{
	for (int swapped = 0; swapped < 2; swapped++) {
		setup();
		add(100, 110, swapped ? "a" : "global", swapped ? 0 : 5, false);
		add(100, 110, swapped ? "global" : "a", swapped ? 5 : 0, false);
		add(200, 210, swapped ? "ab" : "b", 1, false);
		add(200, 210, swapped ? "b" : "ab", 1, false);
		ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
		ck_assert_str_eq(at(105), "global");
		ck_assert_str_eq(at(205), "b");
		teardown();
	}
}
END_TEST

START_TEST(the_latest_holds_where_code_was_moved)
{
	add(100, 200, "old", 1, false);
	add(90, 150, "new", 2, false);
	add(140, 145, "older", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_LATEST), 0);
	ck_assert_str_eq(at(95), "new");
	ck_assert_str_eq(at(142), "new");
	ck_assert_str_eq(at(149), "new");
	ck_assert_str_eq(at(150), "old");
}
END_TEST

START_TEST(what_is_nested_beyond_measure_has_no_name_rather_than_a_slow_one)
{
	add(0, 1000000, "all", 0, false);
	for (uint64_t i = 0; i < 10000; i++)
		add(10 + i, 11 + i, "tiny", 0, false);
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(20), "tiny");
	ck_assert_str_eq(at(500000), "");
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct symtable_symbol symbol = { 1, 2, "x", 1, 0, false };

		torture_arm(n);
		int r = symtable_add(&table, &symbol);
		r = r < 0 ? r : symtable_seal(&table, SYMTABLE_INNERMOST);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		symtable_release(&table);
	}
}
END_TEST

START_TEST(an_empty_table_knows_nothing)
{
	ck_assert_int_eq(symtable_seal(&table, SYMTABLE_INNERMOST), 0);
	ck_assert_str_eq(at(0), "");
}
END_TEST

Suite *symtable_suite(void);
Suite *symtable_suite(void)
{
	Suite *suite = suite_create("symtable");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, setup, teardown);
	tcase_add_test(core, an_address_is_in_a_symbol_only_within_its_size);
	tcase_add_test(core, an_open_symbol_ends_at_the_next_of_any_kind_or_at_its_end);
	tcase_add_test(core, a_label_in_a_function_does_not_hide_it);
	tcase_add_test(core, the_innermost_is_found_and_what_is_around_it_behind_it);
	tcase_add_test(core, of_names_for_one_address_the_preferred_is_found_in_any_order);
	tcase_add_test(core, the_latest_holds_where_code_was_moved);
	tcase_add_test(core, what_is_nested_beyond_measure_has_no_name_rather_than_a_slow_one);
	tcase_add_test(core, without_memory_it_says_so);
	tcase_add_test(core, an_empty_table_knows_nothing);
	suite_add_tcase(suite, core);

	return suite;
}
