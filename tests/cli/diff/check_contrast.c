/* check_contrast.c: two sides of the same things, with numbers that are known. */
#include "cli/diff/diff.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *contrast_suite(void);

static struct contrast contrast;

static void set_up(void)
{
	contrast = (struct contrast){ .shares = true, .ranked = 2 };
}

static void tear_down(void)
{
	contrast_release(&contrast);
}

static int try_add(enum contrast_side side, const char *name, const char *place, uint64_t first, uint64_t second)
{
	const struct contrast_key key = { name, place, strlen(name), strlen(place) };

	return contrast_add(&contrast, side, &key, (uint64_t[]){ first, second });
}

static void add(enum contrast_side side, const char *name, uint64_t self, uint64_t total)
{
	ck_assert_int_eq(try_add(side, name, "bin", self, total), 0);
}

static const struct contrast_row *find(const char *name)
{
	for (size_t i = 0; i < contrast.count; i++)
		if (strcmp(contrast.rows[i].name, name) == 0)
			return &contrast.rows[i];
	ck_abort_msg("no row %s", name);
}

/* A: 100 samples, B: 400. */
static void fill(void)
{
	contrast.sum[CONTRAST_A] = 100;
	contrast.sum[CONTRAST_B] = 400;
	add(CONTRAST_A, "same", 10, 20);
	add(CONTRAST_A, "shrunk", 70, 100);
	add(CONTRAST_A, "gone", 20, 20);
	add(CONTRAST_B, "new", 100, 100);
	add(CONTRAST_B, "same", 40, 80);
	add(CONTRAST_B, "shrunk", 160, 400);
	add(CONTRAST_B, "grown", 100, 300);
	add(CONTRAST_A, "grown", 0, 10);
}

START_TEST(shares_are_of_all_of_their_own_side)
{
	fill();
	contrast_sort(&contrast);
	ck_assert_double_eq(contrast_value(&contrast, find("same"), CONTRAST_A, 0), 10);
	ck_assert_double_eq(contrast_value(&contrast, find("same"), CONTRAST_B, 0), 10);
	ck_assert_double_eq(contrast_growth(&contrast, find("same"), 1), 0);
	ck_assert_double_eq(contrast_growth(&contrast, find("grown"), 0), 25);
	ck_assert_double_eq(contrast_growth(&contrast, find("grown"), 1), 65);
	ck_assert_double_eq(contrast_rank(&contrast, find("grown")), 90);
	ck_assert_double_eq(contrast_rank(&contrast, find("shrunk")), -30);
	ck_assert(!contrast_changed(&contrast, find("same")));
	ck_assert(contrast_changed(&contrast, find("shrunk")));
}
END_TEST

START_TEST(a_side_that_has_nothing_has_shares_of_0)
{
	contrast.sum[CONTRAST_B] = 10;
	add(CONTRAST_A, "f", 5, 5);
	add(CONTRAST_B, "f", 5, 5);
	ck_assert_double_eq(contrast_value(&contrast, find("f"), CONTRAST_A, 0), 0);
	ck_assert_double_eq(contrast_growth(&contrast, find("f"), 0), 50);
}
END_TEST

START_TEST(sorts_by_growth_and_knows_the_sides)
{
	static const char *const order[] = { "grown", "new", "same", "shrunk", "gone" };

	fill();
	contrast_sort(&contrast);
	ck_assert_uint_eq(contrast.count, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_str_eq(contrast.rows[i].name, order[i]);
	ck_assert(find("new")->there[CONTRAST_B] && !find("new")->there[CONTRAST_A]);
	ck_assert(find("gone")->there[CONTRAST_A] && !find("gone")->there[CONTRAST_B]);
	ck_assert_str_eq(find("new")->place, "bin");
}
END_TEST

START_TEST(chooses_what_has_changed_most_in_either_direction)
{
	static const size_t expected[][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 2, 1 }, { 2, 2 }, { 2, 2 } };
	size_t head, tail;

	fill(); /* +90, +50, 0, -30, -40 */
	contrast_sort(&contrast);
	for (size_t max = 0; max < 6; max++) {
		ck_assert_uint_eq(contrast_choose(&contrast, max, &head, &tail), 4);
		ck_assert_uint_eq(head, expected[max][0]);
		ck_assert_uint_eq(tail, expected[max][1]);
	}
	contrast_release(&contrast);
	ck_assert_uint_eq(contrast_choose(&contrast, 9, &head, &tail), 0);
	ck_assert_uint_eq(head + tail, 0);
}
END_TEST

START_TEST(amounts_that_are_no_shares_are_themselves)
{
	contrast.shares = false;
	add(CONTRAST_A, "m", 100, 50);
	add(CONTRAST_B, "m", 99, 52);
	ck_assert_double_eq(contrast_rank(&contrast, find("m")), 1);
	ck_assert(contrast_changed(&contrast, find("m")));
	contrast.ranked = 0; /* the first */
	ck_assert_double_eq(contrast_rank(&contrast, find("m")), -1);
}
END_TEST

START_TEST(a_change_that_reads_0_is_none)
{
	contrast.ranked = 1;
	contrast.sum[CONTRAST_A] = contrast.sum[CONTRAST_B] = 10000;
	add(CONTRAST_A, "f", 100, 100);
	add(CONTRAST_B, "f", 104, 100);
	ck_assert(!contrast_changed(&contrast, find("f")));
	add(CONTRAST_B, "f", 1, 0);
	ck_assert(contrast_changed(&contrast, find("f")));
}
END_TEST

START_TEST(the_same_name_elsewhere_is_something_else)
{
	ck_assert_int_eq(try_add(CONTRAST_A, "f", "x", 1, 1), 0);
	ck_assert_int_eq(try_add(CONTRAST_A, "fx", "", 1, 1), 0);
	ck_assert_int_eq(try_add(CONTRAST_A, "f", "y", 1, 1), 0);
	ck_assert_int_eq(try_add(CONTRAST_A, "f", "x", 2, 3), 0);
	ck_assert_uint_eq(contrast.count, 3);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][0], 3);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][1], 4);
	contrast_sort(&contrast); /* equals by name and place */
	ck_assert_str_eq(contrast.rows[0].place, "x");
	ck_assert_str_eq(contrast.rows[1].place, "y");
	ck_assert_str_eq(contrast.rows[2].name, "fx");
}
END_TEST

START_TEST(sums_stop_at_the_largest_number)
{
	add(CONTRAST_A, "f", UINT64_MAX - 1, 0);
	add(CONTRAST_A, "f", 5, 0);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][0], UINT64_MAX);
}
END_TEST

START_TEST(an_allocation_that_fails_leaves_no_key_without_row)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		int rc = 0;

		contrast_release(&contrast);
		torture_arm(n);
		for (int i = 0; i < 200 && rc == 0; i++) {
			char name[16];

			snprintf(name, sizeof(name), "%d", i);
			rc = try_add(CONTRAST_A, name, "", 1, 1);
		}
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		ck_assert_uint_le(contrast.keys.count, contrast.count);
		ck_assert_int_eq(try_add(CONTRAST_B, "0", "", 1, 1), 0);
		ck_assert_uint_eq(contrast.keys.count, contrast.count);
	}
	ck_assert_uint_eq(contrast.count, 200);
}
END_TEST

Suite *contrast_suite(void)
{
	Suite *suite = suite_create("contrast");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, shares_are_of_all_of_their_own_side);
	tcase_add_test(tcase, a_side_that_has_nothing_has_shares_of_0);
	tcase_add_test(tcase, sorts_by_growth_and_knows_the_sides);
	tcase_add_test(tcase, chooses_what_has_changed_most_in_either_direction);
	tcase_add_test(tcase, amounts_that_are_no_shares_are_themselves);
	tcase_add_test(tcase, a_change_that_reads_0_is_none);
	tcase_add_test(tcase, the_same_name_elsewhere_is_something_else);
	tcase_add_test(tcase, sums_stop_at_the_largest_number);
	tcase_add_test(tcase, an_allocation_that_fails_leaves_no_key_without_row);
	suite_add_tcase(suite, tcase);
	return suite;
}
