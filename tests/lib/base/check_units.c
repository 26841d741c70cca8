/* Quantities as people write them, and as they are shown to people. */
#include "lib/base/units.h"

#include "lib/base/base.h"

#include <check.h>

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct whole_case {
	const char *text;
	uint64_t value;
};

static void assert_parses(int (*parse)(const char *, size_t, uint64_t *), const struct whole_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t value = 4711;

		ck_assert_msg(parse(cases[i].text, strlen(cases[i].text), &value) == 0, "%s", cases[i].text);
		ck_assert_msg(value == cases[i].value, "%s: %llu", cases[i].text, (unsigned long long)value);
	}
}

static void assert_refuses(int (*parse)(const char *, size_t, uint64_t *), int expected, const char *const *texts,
			   size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t value = 4711;

		ck_assert_msg(parse(texts[i], strlen(texts[i]), &value) == expected, "%s", texts[i]);
		ck_assert_uint_eq(value, 4711);
	}
}

START_TEST(durations_have_units)
{
	static const struct whole_case cases[] = {
		{ "500ns", 500 },
		{ "100us", 100 * NS_PER_US },
		{ "10ms", 10 * NS_PER_MS },
		{ "1.5s", 1500 * NS_PER_MS },
		{ "1.5 s", 1500 * NS_PER_MS },
		{ "2m", 120 * NS_PER_S },
		{ "2min", 120 * NS_PER_S },
		{ "1h", 3600 * NS_PER_S },
		{ "30d", 30 * 86400 * NS_PER_S },
		{ "0.1s", 100 * NS_PER_MS },
		{ "0.000000001s", 1 },
		{ "0.3333333333333333333333s", 333333333 },
		{ "0.6666666666666666666666s", 666666667 },
		{ "0.29d", 29 * 864 * NS_PER_S },
		{ "007ms", 7 * NS_PER_MS },
		{ "0", 0 },
		{ "0.0", 0 },
		{ "0s", 0 },
		{ "18446744073709551615ns", UINT64_MAX },
	};

	assert_parses(units_duration, cases, ARRAY_LEN(cases));
}
END_TEST

START_TEST(sizes_have_units)
{
	static const struct whole_case cases[] = {
		{ "100B", 100 },
		{ "64KiB", 64 << 10 },
		{ "512MiB", 512 << 20 },
		{ "1GiB", 1 << 30 },
		{ "1.25GiB", 5 << 28 },
		{ "2TiB", 2ULL << 40 },
		{ "1kB", 1000 },
		{ "1KB", 1000 },
		{ "1.5 MB", 1500000 },
		{ "1GB", 1000000000 },
		{ "1TB", 1000000000000 },
		{ "0", 0 },
		{ "0B", 0 },
		{ "16777215TiB", 16777215ULL << 40 },
	};

	assert_parses(units_bytes, cases, ARRAY_LEN(cases));
}
END_TEST

START_TEST(what_is_no_duration_is_refused)
{
	static const char *const texts[] = { "",      " ",     "s",     "10",   "1",     "10 ",   "10  ms",
					     " 10ms", "-1s",   "+1s",   "1.s",  ".5s",   "1,5s",  "1.5.5s",
					     "10MS",  "10Ms",  "10mss", "1e3s", "1.5ns", "0x10s", "1s 2",
					     "1h30m", "inf s", "nan",   "0.5",  "10%",   "10KiB" };

	assert_refuses(units_duration, -EINVAL, texts, ARRAY_LEN(texts));
}
END_TEST

START_TEST(what_is_no_size_is_refused)
{
	static const char *const texts[] = { "",    "1",    "512",  "512m", "512g", "512mib",
					     "-1B", "1.5B", "1 2B", "1Ki",  "10s" };

	assert_refuses(units_bytes, -EINVAL, texts, ARRAY_LEN(texts));
}
END_TEST

START_TEST(what_is_too_large_is_out_of_range)
{
	static const char *const durations[] = { "18446744073709551616ns", "18446744074s", "213504d",
						 "99999999999999999999999999999d", "18446744073709551615.9us" };
	static const char *const sizes[] = { "16777216TiB", "18446744073709551616B", "20000000TB" };

	assert_refuses(units_duration, -ERANGE, durations, ARRAY_LEN(durations));
	assert_refuses(units_bytes, -ERANGE, sizes, ARRAY_LEN(sizes));
}
END_TEST

START_TEST(a_text_ends_where_its_length_says)
{
	uint64_t value = 0;

	ck_assert_int_eq(units_duration("10ms", 3, &value), 0);
	ck_assert_uint_eq(value, 600 * NS_PER_S);
	ck_assert_int_eq(units_duration("10msec", 4, &value), 0);
	ck_assert_uint_eq(value, 10 * NS_PER_MS);
	ck_assert_int_eq(units_duration("10s\0", 4, &value), -EINVAL);
	ck_assert_int_eq(units_duration(NULL, 0, &value), -EINVAL);
}
END_TEST

START_TEST(percentages_may_go_without_sign_and_above_100)
{
	static const struct {
		const char *text;
		double value;
	} cases[] = { { "70%", 70 }, { "70", 70 }, { "12.5%", 12.5 }, { "12.5 %", 12.5 }, { "800%", 800 }, { "0", 0 } };
	static const char *const bad[] = { "", "%", " %", "-5%", "70%%", "70  %", "7 0%", "70 percent", "1e2%" };
	double value = 4711;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(units_percent(bad[i], strlen(bad[i]), &value) == -EINVAL, "%s", bad[i]);
	ck_assert_double_eq(value, 4711);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ck_assert_int_eq(units_percent(cases[i].text, strlen(cases[i].text), &value), 0);
		ck_assert_double_eq(value, cases[i].value);
	}
	ck_assert_int_eq(units_percent("99999999999999999999%", 21, &value), -ERANGE);
}
END_TEST

START_TEST(counts_are_whole_and_numbers_need_not_be)
{
	static const char *const bad[] = { "", "1.5", "1k", "-1", "1 ", " 1", "0x1" };
	uint64_t count = 4711;
	double number;

	assert_refuses(units_count, -EINVAL, bad, ARRAY_LEN(bad));
	ck_assert_int_eq(units_count("200", 3, &count), 0);
	ck_assert_uint_eq(count, 200);
	ck_assert_int_eq(units_count("18446744073709551616", 20, &count), -ERANGE);
	ck_assert_int_eq(units_number("1.25", 4, &number), 0);
	ck_assert_double_eq(number, 1.25);
	ck_assert_int_eq(units_number("1.25x", 5, &number), -EINVAL);
}
END_TEST

static void assert_formats(enum unit_kind unit, const struct whole_case *cases, size_t count)
{
	char buf[UNITS_TEXT_MAX];

	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(units_format(buf, sizeof(buf), unit, (double)cases[i].value, UNITS_READING),
				 cases[i].text);
}

START_TEST(durations_are_shown_with_three_digits)
{
	static const struct whole_case cases[] = {
		{ "0 s", 0 },
		{ "1 ns", 1 },
		{ "999 ns", 999 },
		{ "1 us", 1000 },
		{ "1.5 us", 1500 },
		{ "12.3 us", 12345 },
		{ "312 ms", 312 * NS_PER_MS },
		{ "1 s", 999999999 },
		{ "1.5 s", 1500 * NS_PER_MS },
		{ "59.9 s", 59900 * NS_PER_MS },
		{ "1 min", 59990 * NS_PER_MS },
		{ "1.5 min", 90 * NS_PER_S },
		{ "4.25 h", 15300 * NS_PER_S },
		{ "1 d", 86399 * NS_PER_S },
		{ "30 d", 30 * 86400 * NS_PER_S },
		{ "213504 d", UINT64_MAX },
	};

	assert_formats(UNIT_DURATION, cases, ARRAY_LEN(cases));
}
END_TEST

START_TEST(sizes_are_shown_in_powers_of_1024)
{
	static const struct whole_case cases[] = {
		{ "0 B", 0 },
		{ "1 B", 1 },
		{ "1023 B", 1023 },
		{ "1 KiB", 1024 },
		{ "1.25 GiB", 5 << 28 },
		{ "1023 KiB", 1023 << 10 },
		{ "1 MiB", (1 << 20) - 1 },
		{ "12.5 MiB", 25 << 19 },
		{ "9.99 KiB", 10234 },
		{ "10 KiB", 10239 },
		{ "16777216 TiB", UINT64_MAX },
	};

	assert_formats(UNIT_BYTES, cases, ARRAY_LEN(cases));
}
END_TEST

START_TEST(counts_are_exact_while_they_are_short)
{
	static const struct whole_case cases[] = {
		{ "0", 0 },
		{ "9999", 9999 },
		{ "10 k", 10000 },
		{ "12.3 k", 12345 },
		{ "1 M", 999999 },
		{ "4.56 M", 4560000 },
		{ "18446744074 G", UINT64_MAX },
	};

	assert_formats(UNIT_COUNT, cases, ARRAY_LEN(cases));
}
END_TEST

START_TEST(percentages_and_numbers_may_be_negative_or_none)
{
	static const struct {
		double value;
		const char *number;
	} cases[] = {
		{ 0, "0" },        { 70, "70" },       { 12.5, "12.5" },   { -3, "-3" },
		{ 0.001, "0" },    { -0.001, "0" },    { 9.999, "10" },    { 10.26, "10.3" },
		{ 100.4, "100" },  { 99.97, "100" },   { 1234.4, "1234" }, { 1.25, "1.25" },
		{ INFINITY, "-" }, { -INFINITY, "-" }, { NAN, "-" },       { 1e300, "1000000000000000000" },
	};
	char buf[UNITS_TEXT_MAX], expected[UNITS_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ck_assert_str_eq(units_format(buf, sizeof(buf), UNIT_NUMBER, cases[i].value, UNITS_READING),
				 cases[i].number);
		snprintf(expected, sizeof(expected), "%s%s", cases[i].number, isfinite(cases[i].value) ? "%" : "");
		ck_assert_str_eq(units_format_percent(buf, sizeof(buf), cases[i].value), expected);
	}
}
END_TEST

START_TEST(each_unit_has_its_look_in_each_style)
{
	static const struct {
		enum unit_kind unit;
		double value;
		const char *text[UNITS_NARROW + 1]; /* by style; NULL: not looked at */
	} cases[] = {
		{ UNIT_PERCENT, 182.44, { "182%", "182.44", "182.4 %", "182.4%" } },
		{ UNIT_PERCENT, 9999.96, { "10000%", "9999.96", "10000.0 %", "10000%" } },
		{ UNIT_PERCENT, NAN, { "-", NULL, "?", "-" } },
		{ UNIT_CORES, 1.5, { "1.5 cores", "1.5", "1.50 cores", "1.5 cores" } },
		{ UNIT_CORES, 0.1, { "0.1 cores", "0.1", "0.10 cores", NULL } },
		{ UNIT_CORES, INFINITY, { "- cores", NULL, "?", NULL } },
		{ UNIT_BYTES, 0, { "0 B", "0B", "0 B", "0" } },
		{ UNIT_BYTES, 512, { "512 B", "512B", "512 B", "512" } },
		{ UNIT_BYTES, 999, { "999 B", "999B", "999 B", "999" } },
		{ UNIT_BYTES, 1000, { "1000 B", "1000B", "1000 B", "1.0K" } },
		{ UNIT_BYTES, 1536, { "1.5 KiB", "1536B", "1.5 KiB", "1.5K" } },
		{ UNIT_BYTES, 314572800, { "300 MiB", "300MiB", "300 MiB", "300.0M" } },
		{ UNIT_BYTES, 1023 * 1024.0 + 1000, { "1 MiB", "1048552B", "1.0 MiB", "1.0M" } },
		{ UNIT_BYTES, 1023 * 1024.0 * 1024, { "1023 MiB", "1023MiB", "1023 MiB", "1.0G" } },
		{ UNIT_BYTES, 0x1p60, { "1048576 TiB", NULL, "1024 PiB", "1.0E" } },
		{ UNIT_BYTES, -1, { "0 B", "0B", NULL, NULL } },
		{ UNIT_COUNT, 12, { "12", "12", "12", "12" } },
		{ UNIT_COUNT, 12345, { "12.3 k", "12345", "12345", NULL } },
		{ UNIT_COUNT, -1, { "0", NULL, NULL, NULL } },
		{ UNIT_PER_SECOND, 12, { "12 /s", "12", "12 /s", NULL } },
		{ UNIT_DURATION, 1500000000, { "1.5 s", "1500ms", "1.5 s", "1.5 s" } },
		{ UNIT_DURATION, 7200e9, { "2 h", "2h", NULL, NULL } },
		{ UNIT_DURATION, 0, { "0 s", "0ns", NULL, NULL } },
		{ UNIT_NUMBER, 80.5, { "80.5", "80.5", "80.5", NULL } },
		{ UNIT_NUMBER, 0.00001, { "0", "0.000010000", "0.0", NULL } },
		{ UNIT_NUMBER, 1e20, { NULL, "100000000000000000000.000000000", NULL, NULL } },
	};
	char buf[UNITS_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (enum units_style style = UNITS_READING; style <= UNITS_NARROW; style++)
			if (cases[i].text[style])
				ck_assert_str_eq(units_format(buf, sizeof(buf), cases[i].unit, cases[i].value, style),
						 cases[i].text[style]);
}
END_TEST

START_TEST(exact_texts_bring_the_value_back)
{
	char buf[UNITS_TEXT_MAX];
	uint64_t whole;
	double number;

	for (unsigned bit = 0; bit < 53; bit++) {
		uint64_t value = (1ULL << bit) + bit % 3;

		units_format(buf, sizeof(buf), UNIT_BYTES, (double)value, UNITS_EXACT);
		ck_assert_int_eq(units_bytes(buf, strlen(buf), &whole), 0);
		ck_assert_uint_eq(whole, value);
		units_format(buf, sizeof(buf), UNIT_DURATION, (double)value, UNITS_EXACT);
		ck_assert_int_eq(units_duration(buf, strlen(buf), &whole), 0);
		ck_assert_uint_eq(whole, value);
		units_format(buf, sizeof(buf), UNIT_PERCENT, (double)value / 64, UNITS_EXACT);
		ck_assert_int_eq(units_percent(buf, strlen(buf), &number), 0);
		ck_assert_double_eq(number, (double)value / 64);
	}
}
END_TEST

START_TEST(units_of_metrics_have_names)
{
	for (enum unit_kind unit = 0; unit < UNITS_NAMED; unit++)
		ck_assert_int_eq(units_by_name(units_name(unit)), unit);
	ck_assert_str_eq(units_name(UNIT_PER_SECOND), "per_second");
	ck_assert_ptr_null(units_name(UNIT_DURATION));
	ck_assert_int_eq(units_by_name("parsecs"), UNIT_NUMBER);
}
END_TEST

START_TEST(what_is_shown_can_be_read_again)
{
	char buf[UNITS_TEXT_MAX];
	uint64_t back;

	for (unsigned bit = 0; bit < 63; bit++) {
		uint64_t value = (1ULL << bit) + bit * 7;

		ck_assert_ptr_eq(units_format_duration(buf, sizeof(buf), value), buf);
		ck_assert_msg(units_duration(buf, strlen(buf), &back) == 0, "%s", buf);
		ck_assert_msg(fabs((double)back - (double)value) <= 0.006 * (double)value, "%s", buf);
		ck_assert_ptr_eq(units_format_bytes(buf, sizeof(buf), value), buf);
		ck_assert_msg(units_bytes(buf, strlen(buf), &back) == 0, "%s", buf);
		ck_assert_msg(fabs((double)back - (double)value) <= 0.006 * (double)value, "%s", buf);
	}
}
END_TEST

START_TEST(a_short_buffer_gets_a_terminated_part)
{
	char buf[8] = "xxxxxxx";

	units_format_bytes(buf, 4, 5 << 28);
	ck_assert_str_eq(buf, "1.2");
	ck_assert_int_eq(buf[4], 'x');
	units_format_bytes(buf, 0, 5 << 28);
	ck_assert_str_eq(buf, "1.2");
}
END_TEST

START_TEST(the_locale_changes_nothing)
{
	static const char *const locales[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8" };
	char buf[UNITS_TEXT_MAX];
	uint64_t value;

	for (size_t i = 0; i < ARRAY_LEN(locales); i++) {
		setlocale(LC_ALL, locales[i]); /* one that is not installed changes nothing */
		ck_assert_str_eq(units_format_duration(buf, sizeof(buf), 1500 * NS_PER_MS), "1.5 s");
		ck_assert_int_eq(units_duration("1.5s", 4, &value), 0);
		ck_assert_int_eq(units_duration("1,5s", 4, &value), -EINVAL);
	}
	setlocale(LC_ALL, "C");
}
END_TEST

Suite *units_suite(void);
Suite *units_suite(void)
{
	Suite *suite = suite_create("units");
	TCase *tc = tcase_create("units");

	tcase_add_test(tc, durations_have_units);
	tcase_add_test(tc, sizes_have_units);
	tcase_add_test(tc, what_is_no_duration_is_refused);
	tcase_add_test(tc, what_is_no_size_is_refused);
	tcase_add_test(tc, what_is_too_large_is_out_of_range);
	tcase_add_test(tc, a_text_ends_where_its_length_says);
	tcase_add_test(tc, percentages_may_go_without_sign_and_above_100);
	tcase_add_test(tc, counts_are_whole_and_numbers_need_not_be);
	tcase_add_test(tc, durations_are_shown_with_three_digits);
	tcase_add_test(tc, sizes_are_shown_in_powers_of_1024);
	tcase_add_test(tc, counts_are_exact_while_they_are_short);
	tcase_add_test(tc, percentages_and_numbers_may_be_negative_or_none);
	tcase_add_test(tc, each_unit_has_its_look_in_each_style);
	tcase_add_test(tc, exact_texts_bring_the_value_back);
	tcase_add_test(tc, units_of_metrics_have_names);
	tcase_add_test(tc, what_is_shown_can_be_read_again);
	tcase_add_test(tc, a_short_buffer_gets_a_terminated_part);
	tcase_add_test(tc, the_locale_changes_nothing);
	suite_add_tcase(suite, tc);
	return suite;
}
