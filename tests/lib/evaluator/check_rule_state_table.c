/* check_rule_state_table.c: a bounded map that drops the stalest. */
#include "lib/evaluator/rule_state.h"
#include "torture.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *rule_state_table_suite(void);

static struct rule_state_table *table_new(void)
{
	struct rule_state_table *table;

	ck_assert_int_eq(rule_state_table_new(&table), 0);
	return table;
}

static int put(struct rule_state_table *table, unsigned n)
{
	char key[32];

	snprintf(key, sizeof(key), "key%u", n);
	return rule_state_table_put(table, "rule", key, &(struct trigger_memory){ .fired = n });
}

static bool has(const struct rule_state_table *table, unsigned n)
{
	struct trigger_memory value;
	char key[32];

	snprintf(key, sizeof(key), "key%u", n);
	return rule_state_table_get(table, "rule", key, &value) && value.fired == n;
}

START_TEST(holds_what_was_put)
{
	struct rule_state_table *table = table_new();
	struct trigger_memory value = { .fired = 7 };

	ck_assert(!rule_state_table_get(table, "a", "b", &value));
	ck_assert_uint_eq(value.fired, 7);
	for (unsigned n = 0; n < 1000; n++)
		ck_assert_int_eq(put(table, n), 0);
	ck_assert_uint_eq(rule_state_table_count(table), 1000);
	for (unsigned n = 0; n < 1000; n++)
		ck_assert(has(table, n));
	ck_assert(!has(table, 1000));
	rule_state_table_free(table);
}
END_TEST

START_TEST(rule_and_key_are_told_apart)
{
	struct rule_state_table *table = table_new();
	struct trigger_memory value;

	ck_assert_int_eq(rule_state_table_put(table, "ab", "c", &(struct trigger_memory){ .fired = 1 }), 0);
	ck_assert_int_eq(rule_state_table_put(table, "a", "bc", &(struct trigger_memory){ .fired = 2 }), 0);
	ck_assert_int_eq(rule_state_table_put(table, "", "abc", &(struct trigger_memory){ .fired = 3 }), 0);
	ck_assert(rule_state_table_get(table, "ab", "c", &value) && value.fired == 1);
	ck_assert(rule_state_table_get(table, "a", "bc", &value) && value.fired == 2);
	ck_assert(rule_state_table_get(table, "", "abc", &value) && value.fired == 3);
	rule_state_table_free(table);
}
END_TEST

START_TEST(put_replaces_and_tells_what_is_the_same)
{
	struct rule_state_table *table = table_new();
	struct trigger_memory value = { .fired = 1, .high_water = 2.5 };

	ck_assert_int_eq(rule_state_table_put(table, "r", "k", &value), 0);
	ck_assert_int_eq(rule_state_table_put(table, "r", "k", &value), RULE_STATE_TABLE_SAME);
	value.disarmed = true;
	ck_assert_int_eq(rule_state_table_put(table, "r", "k", &value), 0);
	ck_assert_uint_eq(rule_state_table_count(table), 1);
	value.disarmed = false;
	ck_assert(rule_state_table_get(table, "r", "k", &value) && value.disarmed);
	rule_state_table_free(table);
}
END_TEST

START_TEST(walks_from_the_stalest_to_the_freshest)
{
	const unsigned order[] = { 0, 2, 3, 1 };
	struct rule_state_table *table = table_new();
	size_t i = 0;

	ck_assert_ptr_null(rule_state_table_stalest(table));
	for (unsigned n = 0; n < 4; n++)
		put(table, n);
	ck_assert_int_eq(put(table, 1), RULE_STATE_TABLE_SAME); /* fresh again */
	for (const struct rule_state_table_entry *entry = rule_state_table_stalest(table); entry;
	     entry = rule_state_table_fresher(entry)) {
		ck_assert_str_eq(entry->rule, "rule");
		ck_assert_uint_eq(entry->value.fired, order[i++]);
	}
	ck_assert_uint_eq(i, 4);
	rule_state_table_free(table);
}
END_TEST

START_TEST(drops_the_stalest_when_full)
{
	struct rule_state_table *table = table_new();

	for (unsigned n = 0; n < RULE_STATE_TABLE_ENTRIES_MAX; n++)
		put(table, n);
	ck_assert(has(table, 0) && has(table, 1));
	put(table, 0);
	put(table, RULE_STATE_TABLE_ENTRIES_MAX);
	ck_assert_uint_eq(rule_state_table_count(table), RULE_STATE_TABLE_ENTRIES_MAX);
	ck_assert(has(table, 0));
	ck_assert(!has(table, 1));
	ck_assert(has(table, 2) && has(table, RULE_STATE_TABLE_ENTRIES_MAX));
	rule_state_table_free(table);
}
END_TEST

START_TEST(long_names_are_bounded_too)
{
	struct rule_state_table *table = table_new();
	size_t len = 1 << 20;
	char *key = malloc(len + 1);

	memset(key, 'x', len);
	key[len] = '\0';
	for (char c = 'a'; c < 'k'; c++) {
		key[0] = c;
		ck_assert_int_eq(rule_state_table_put(table, "r", key, &(struct trigger_memory){ .fired = 1 }), 0);
	}
	ck_assert_uint_eq(rule_state_table_count(table), 5); /* of 6 MiB, NULs and rules included */
	free(key);
	rule_state_table_free(table);
}
END_TEST

START_TEST(failed_allocation_changes_nothing)
{
	struct rule_state_table *table = table_new();
	bool injected = true;

	for (unsigned n = 0; n < 64; n++)
		put(table, n);
	for (long nth = 1; injected; nth++) {
		int r;

		torture_arm(nth);
		r = put(table, 64);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(rule_state_table_count(table), injected ? 64 : 65);
		for (unsigned n = 0; n < 64; n++)
			ck_assert(has(table, n));
	}
	rule_state_table_free(table);
}
END_TEST

Suite *rule_state_table_suite(void)
{
	Suite *suite = suite_create("rule_state_table");
	TCase *tcase = tcase_create("memotable");

	tcase_add_test(tcase, holds_what_was_put);
	tcase_add_test(tcase, rule_and_key_are_told_apart);
	tcase_add_test(tcase, put_replaces_and_tells_what_is_the_same);
	tcase_add_test(tcase, walks_from_the_stalest_to_the_freshest);
	tcase_add_test(tcase, drops_the_stalest_when_full);
	tcase_add_test(tcase, long_names_are_bounded_too);
	tcase_add_test(tcase, failed_allocation_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
