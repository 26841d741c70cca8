/* check_label_names.c: names as kube-state-metrics makes them. */
#include "daemon/service/metrics/exposition.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

#include <check.h>

#include <string.h>

Suite *label_names_suite(void);

static struct label_names names;

START_TEST(keys_become_names_that_metrics_can_have)
{
	static const char *const keys[] = {
		"app", "app.kubernetes.io/partOf", "9-lives", "APPName", "tier_2B", "\"}\\"
	};

	label_names_make(keys, ARRAY_LEN(keys), &names);
	ck_assert_str_eq(names.names[0], "label_app");
	ck_assert_str_eq(names.names[1], "label_app_kubernetes_io_part_of");
	ck_assert_str_eq(names.names[2], "label_9_lives");
	ck_assert_str_eq(names.names[3], "label_appname");
	ck_assert_str_eq(names.names[4], "label_tier_2_b");
	ck_assert_str_eq(names.names[5], "label____");
}
END_TEST

START_TEST(equal_names_are_numbered)
{
	static const char *const keys[] = { "a.b", "x", "a/b", "y", "a-b", "X" };

	label_names_make(keys, ARRAY_LEN(keys), &names);
	ck_assert_str_eq(names.names[0], "label_a_b_conflict1");
	ck_assert_str_eq(names.names[1], "label_x_conflict1");
	ck_assert_str_eq(names.names[2], "label_a_b_conflict2");
	ck_assert_str_eq(names.names[3], "label_y");
	ck_assert_str_eq(names.names[4], "label_a_b_conflict3");
	ck_assert_str_eq(names.names[5], "label_x_conflict2");
}
END_TEST

START_TEST(the_longest_keys_fit)
{
	static char key[CONFIG_LABELS_MAX + 1][LABELS_KEY_MAX + 1];
	const char *keys[CONFIG_LABELS_MAX + 1];

	for (size_t i = 0; i <= CONFIG_LABELS_MAX; i++) {
		for (size_t k = 0; k < LABELS_KEY_MAX; k++)
			key[i][k] = k % 2 ? 'A' : 'a';
		keys[i] = key[i];
	}
	label_names_make(keys, CONFIG_LABELS_MAX + 1, &names);
	ck_assert_uint_eq(names.count, CONFIG_LABELS_MAX);
	ck_assert_uint_lt(strlen(names.names[0]), LABEL_NAMES_ROOM);
	ck_assert_ptr_nonnull(strstr(names.names[CONFIG_LABELS_MAX - 1], "_conflict16"));
}
END_TEST

Suite *label_names_suite(void)
{
	Suite *suite = suite_create("label_names");
	TCase *tcase = tcase_create("labelnames");

	tcase_add_test(tcase, keys_become_names_that_metrics_can_have);
	tcase_add_test(tcase, equal_names_are_numbered);
	tcase_add_test(tcase, the_longest_keys_fit);
	suite_add_tcase(suite, tcase);

	return suite;
}
