/* The field table and the mask of a sample. */
#include "lib/model/sample.h"

#include <check.h>

#include <ctype.h>
#include <string.h>

START_TEST(a_new_sample_has_no_field)
{
	struct sample sample = { 0 };

	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		ck_assert(!sample_has(&sample, f));
}
END_TEST

START_TEST(set_makes_available_and_unset_takes_back)
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		struct sample sample = { 0 };

		sample_set(&sample, f, 42 + f);
		ck_assert(sample_has(&sample, f));
		ck_assert_uint_eq(sample.value[f], 42 + f);
		ck_assert_uint_eq(sample.mask, 1u << f);

		sample_unset(&sample, f);
		ck_assert(!sample_has(&sample, f));
		ck_assert_uint_eq(sample.mask, 0);
	}
}
END_TEST

START_TEST(zero_is_a_value_and_not_unavailable)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, 0);
	ck_assert(sample_has(&sample, SAMPLE_CPU));
}
END_TEST

START_TEST(names_are_unique_column_names)
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info(f);

		ck_assert_uint_gt(strlen(info->name), 0);
		for (const char *c = info->name; *c != '\0'; c++)
			ck_assert_msg(islower((unsigned char)*c) || *c == '_', "%s", info->name);
		for (unsigned other = 0; other < f; other++)
			ck_assert_str_ne(info->name, sample_field_info(other)->name);
	}
}
END_TEST

START_TEST(every_field_says_unit_kind_and_source)
{
	static const char *const units[] = { "ns", "bytes", "count", "ns/s", "code" };

	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info(f);
		bool known = false;

		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			known = known || strcmp(units[i], info->unit) == 0;
		ck_assert_msg(known, "unit of %s", info->name);
		ck_assert_uint_gt(strlen(info->source), 0);
		ck_assert_ptr_eq(strpbrk(info->source, "\t\n"), NULL);
	}
}
END_TEST

START_TEST(positions_on_disk_do_not_move)
{
	ck_assert_int_eq(SAMPLE_CPU, 0);
	ck_assert_int_eq(SAMPLE_MEMORY, 3);
	ck_assert_int_eq(SAMPLE_THROTTLED, 12);
	ck_assert_int_eq(SAMPLE_MEMORY_LIMIT, 18);
	ck_assert_int_eq(SAMPLE_STATE, 20);
	ck_assert_str_eq(sample_field_info(SAMPLE_CPU)->name, "cpu");
	ck_assert_str_eq(sample_field_info(SAMPLE_STATE)->name, "state");
}
END_TEST

START_TEST(kinds_have_names)
{
	ck_assert_str_eq(sample_kind_name(sample_field_info(SAMPLE_CPU)->kind), "counter");
	ck_assert_str_eq(sample_kind_name(sample_field_info(SAMPLE_MEMORY)->kind), "gauge");
	ck_assert_str_eq(sample_kind_name(sample_field_info(SAMPLE_CPU_LIMIT)->kind), "limit");
}
END_TEST

Suite *sample_suite(void);
Suite *sample_suite(void)
{
	Suite *suite = suite_create("sample");
	TCase *tc = tcase_create("sample");

	tcase_add_test(tc, a_new_sample_has_no_field);
	tcase_add_test(tc, set_makes_available_and_unset_takes_back);
	tcase_add_test(tc, zero_is_a_value_and_not_unavailable);
	tcase_add_test(tc, names_are_unique_column_names);
	tcase_add_test(tc, every_field_says_unit_kind_and_source);
	tcase_add_test(tc, positions_on_disk_do_not_move);
	tcase_add_test(tc, kinds_have_names);
	suite_add_tcase(suite, tc);
	return suite;
}
