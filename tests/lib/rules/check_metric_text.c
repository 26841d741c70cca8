/* check_metric_text.c: every unit has its own look. */
#include "lib/rules/metric.h"

#include <check.h>

Suite *metric_text_suite(void);

START_TEST(each_unit_is_recognisable)
{
	char text[32];

	ck_assert_str_eq(metric_text_value(METRIC_PERCENT, 182.44, text, sizeof text), "182%");
	ck_assert_str_eq(metric_text_value(METRIC_BYTES, 536870912.0, text, sizeof text), "512 MiB");
	ck_assert_str_eq(metric_text_value(METRIC_COUNT, 12, text, sizeof text), "12");
	ck_assert_str_eq(metric_text_value(METRIC_CORES, 1.25, text, sizeof text), "1.25 cores");
	ck_assert_str_eq(metric_text_value(METRIC_PER_SECOND, 12, text, sizeof text), "12 /s");
}
END_TEST

START_TEST(what_should_not_be_negative_is_not)
{
	char text[32];

	ck_assert_str_eq(metric_text_value(METRIC_BYTES, -1, text, sizeof text), "0 B");
	ck_assert_str_eq(metric_text_value(METRIC_COUNT, -1, text, sizeof text), "0");
}
END_TEST

Suite *metric_text_suite(void)
{
	Suite *suite = suite_create("metric_text");
	TCase *tcase = tcase_create("metrictext");

	tcase_add_test(tcase, each_unit_is_recognisable);
	tcase_add_test(tcase, what_should_not_be_negative_is_not);
	suite_add_tcase(suite, tcase);

	return suite;
}
