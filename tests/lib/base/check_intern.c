/* check_intern.c: numbers, growth, the budget, every allocation that fails. */
#include "lib/base/map.h"

#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MANY 5000u

Suite *intern_suite(void);

static uint32_t put(struct intern *set, const char *text)
{
	struct intern_budget budget = { 0 };
	uint32_t number = 0;

	ck_assert_int_eq(intern_put(set, &budget, text, strlen(text), &number), 0);
	return number;
}

static uint32_t put_number(struct intern *set, unsigned i)
{
	char text[32];

	snprintf(text, sizeof(text), "function number %u", i);
	return put(set, text);
}

START_TEST(the_same_bytes_have_one_number)
{
	struct intern set = { 0 };
	struct intern_budget budget = { 0 };
	uint32_t number;
	size_t len;

	ck_assert_uint_eq(put(&set, "main"), 1);
	ck_assert_uint_eq(put(&set, ""), 2);
	ck_assert_uint_eq(put(&set, "main"), 1);
	ck_assert_uint_eq(put(&set, ""), 2);
	ck_assert_uint_eq(put(&set, "mai"), 3);
	ck_assert_int_eq(intern_put(&set, &budget, "a\0b", 3, &number), 0);
	ck_assert_int_eq(intern_put(&set, &budget, "a\0c", 3, &number), 0);
	ck_assert_uint_eq(number, 5);
	ck_assert_mem_eq(intern_get(&set, 4, &len), "a\0b", 4);
	ck_assert_uint_eq(len, 3);
	ck_assert_str_eq(intern_text(&set, 3), "mai");
	ck_assert_uint_eq((uintptr_t)intern_get(&set, 5, &len) % _Alignof(max_align_t), 0);
	intern_release(&set);
	ck_assert_uint_eq(put(&set, "again"), 1);
	intern_release(&set);
}
END_TEST

START_TEST(numbers_stay_while_it_grows)
{
	struct intern set = { 0 };

	for (unsigned i = 0; i < MANY; i++)
		ck_assert_uint_eq(put_number(&set, i), i + 1);
	for (unsigned i = MANY; i > 0; i--)
		ck_assert_uint_eq(put_number(&set, i - 1), i);
	ck_assert_uint_eq(set.count, MANY);
	intern_release(&set);
}
END_TEST

START_TEST(a_spent_budget_refuses_what_is_new)
{
	struct intern set = { 0 }, other = { 0 };
	struct intern_budget budget = { .max_bytes = 1000 };
	char large[900] = "";
	uint32_t number = 77;

	ck_assert_int_eq(intern_put(&set, &budget, "a", 1, &number), 0);
	ck_assert_int_eq(intern_put(&other, &budget, large, sizeof(large), &number), INTERN_FULL);
	ck_assert_uint_eq(number, 1);
	ck_assert(budget.spent);
	/* Also what is small enough. */
	ck_assert_int_eq(intern_put(&set, &budget, "b", 1, &number), INTERN_FULL);
	ck_assert_int_eq(intern_put(&set, &budget, "a", 1, &number), 0);
	ck_assert_uint_le(budget.used_bytes, budget.max_bytes);
	ck_assert_uint_eq(set.count, 1);
	intern_release(&set);
	intern_release(&other);
}
END_TEST

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct intern set = { 0 };
		struct intern_budget budget = { .max_bytes = 1 << 20 };
		size_t used = 0;
		uint32_t before = 0, number = 0, i = 0;
		int rc = 0;

		torture_arm(n);
		for (; i < 200 && rc == 0; i++) {
			used = budget.used_bytes;
			before = set.count;
			rc = intern_put(&set, &budget, &i, sizeof(i), &number);
		}
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		if (injected) {
			i--;
			ck_assert_uint_eq(set.count, before);
			ck_assert_uint_eq(budget.used_bytes, used);
			/* It goes on. */
			ck_assert_int_eq(intern_put(&set, &budget, &i, sizeof(i), &number), 0);
			ck_assert_uint_eq(number, i + 1);
		}
		intern_release(&set);
	}
}
END_TEST

Suite *intern_suite(void)
{
	Suite *suite = suite_create("intern");
	TCase *tcase = tcase_create("set");

	tcase_add_test(tcase, the_same_bytes_have_one_number);
	tcase_add_test(tcase, numbers_stay_while_it_grows);
	tcase_add_test(tcase, a_spent_budget_refuses_what_is_new);
	tcase_add_test(tcase, any_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
