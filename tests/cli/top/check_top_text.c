/* check_top_text.c: lines that fit, whatever the names and the width are. */
#include "lib/base/base.h"
#include "cli/top/top.h"
#include "cli/top/top_data.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

Suite *top_text_suite(void);

static struct top_table table;

static void setup(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
}

static void teardown(void)
{
	top_table_release(&table);
	setlocale(LC_CTYPE, "C");
}

/* Columns that a line takes. */
static size_t wide(const char *line)
{
	wchar_t text[TOP_TEXT_LINE_MAX];
	size_t len = mbstowcs(text, line, TOP_TEXT_LINE_MAX);

	ck_assert_msg(len != (size_t)-1, "broken characters: %s", line);
	int columns = wcswidth(text, len);

	ck_assert_msg(columns >= 0, "unprintable: %s", line);

	return (size_t)columns;
}

static struct top_table_list fill(const char *const *names, size_t count)
{
	struct top_table_list list;

	for (uint32_t id = 1; id <= count; id++) {
		struct target target = { .id = id, .kind = TARGET_PROCESS, .name = names[id - 1] };
		struct sample sample = { 0 };

		ck_assert_int_eq(top_table_target(&table, &target), 0);
		for (uint64_t i = 0; i < 300; i++) {
			mono_t now = { 1000 * NS_PER_S + i * 10 * NS_PER_MS };

			sample_set(&sample, SAMPLE_CPU, i * id * 5 * NS_PER_MS);
			sample_set(&sample, SAMPLE_MEMORY, (i + id) << 28);
			top_table_sample(&table, id, now, &sample);
			top_table_tick(&table, now);
		}
	}
	ck_assert_int_eq(top_table_view(&table, &(struct top_table_wish){ .order = TOP_TABLE_BY_NAME }, &list), 0);

	return list;
}

static const char *const strange[] = {
	"a",
	"/system.slice/a-service-with-a-rather-long-name-that-nobody-would-want-to-type.service",
	"\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97/1234",
	"evil\033[31m\n\t\x7f\xff\xc2\x9bname",
	"e\xcc\x81\xcc\x81\xcc\x81 combining",
	"",
};

START_TEST(no_line_is_wider_than_the_terminal)
{
	struct top_table_list list = fill(strange, ARRAY_LEN(strange));
	struct top_table_verdict verdict = {
		.rule = "a-rule-of-some-length", .wait = TOP_TABLE_PENDING, .has_nearness = true, .nearness = -12345.6
	};
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	verdict.for_ns = verdict.for_whole_ns = 123456789012;
	for (int i = 0; i < 7; i++)
		top_table_judge(&table, 2, &verdict);
	for (size_t width = 1; width <= 300; width++) {
		for (int utf8 = 0; utf8 < 2; utf8++) {
			top_text_plan(width, utf8, top_text_longest(&list, utf8), &text);
			ck_assert_uint_le(wide(top_text_heads(&text, line)), width);
			for (size_t i = 0; i < list.count; i++) {
				top_text_row(&text, &table, list.row[i], line);
				ck_assert_msg(wide(line) <= width, "%zu: %s", width, line);
				for (const char *at = line; !utf8 && *at; at++)
					ck_assert_msg((unsigned char)*at < 0x80, "no ASCII: %s", line);
			}
		}
	}
}
END_TEST

START_TEST(a_narrow_terminal_keeps_what_matters_most)
{
	static const struct {
		size_t width;
		const char *heads;
	} expected[] = {
		{ 12, "TARGET" },
		{ 22, "TARGET           CPU" },
		{ 30, "TARGET           CPU    MEMORY" },
		{ 40, "TARGET           CPU    MEMORY  DIST" },
		{ 80, "TARGET           CPU LAST MINUTE        PEAK    MEMORY  DIST RULES" },
	};
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
		top_text_plan(expected[i].width, true, 5, &text);
		ck_assert_str_eq(top_text_heads(&text, line), expected[i].heads);
	}
	top_text_plan(200, true, 30, &text);
	for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++)
		ck_assert_uint_gt(text.width[i], 0);
}
END_TEST

START_TEST(without_a_width_nothing_is_cut)
{
	struct top_table_list list = fill(strange, 2);
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	top_text_plan(0, true, top_text_longest(&list, true), &text);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, strange[1]) == line, "%s", line);
	ck_assert_ptr_null(strstr(line, ".."));
}
END_TEST

START_TEST(a_row_says_what_there_is)
{
	static const char *const names[] = { "web/12" };
	struct top_table_list list = fill(names, 1);
	struct top_table_verdict calm = { .rule = "calm", .has_nearness = true, .nearness = 0.25 };
	struct top_table_verdict cooling = { .rule = "cpu", .wait = TOP_TABLE_COOLING, .left_ns = 4100 * NS_PER_MS };
	struct top_table_verdict pending = { .rule = "mem", .wait = TOP_TABLE_PENDING };
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	pending.for_ns = 120 * NS_PER_MS;
	pending.for_whole_ns = 200 * NS_PER_MS;
	top_text_plan(0, false, 6, &text);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_str_eq(line,
			 "web/12         50.0%                    #   50.0%    75 GiB                    _    75 GiB"
			 "     - -");
	top_table_judge(&table, 1, &calm);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "  25% calm"), "%s", line);
	top_table_judge(&table, 1, &cooling);
	top_table_judge(&table, 1, &pending);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "  25% mem pending 120 ms of 200 ms, cpu cooling 5 s"), "%s", line);
	top_table_gone(&table, 1, table.now);
	top_table_view(&table, &(struct top_table_wish){ 0 }, &list);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "web/12             -"), "%s", line);
	ck_assert_msg(strstr(line, "     - (ended)"), "%s", line);
}
END_TEST

START_TEST(a_spark_goes_from_the_bottom_to_the_top)
{
	const double values[] = { 0, 1, 2, 3, 4, 5, 6, 7, NAN, 8, 99, -1 };
	char out[64];

	top_text_spark(values, ARRAY_LEN(values), 0, 8, true, out, sizeof(out));
	ck_assert_str_eq(out, "▁▂▃▄▅▆▇█ ██▁");
	top_text_spark(values, ARRAY_LEN(values), 0, 8, false, out, sizeof(out));
	ck_assert_str_eq(out, "_.:-=+*# ##_");
	top_text_spark(values, 3, 5, 5, true, out, sizeof(out));
	ck_assert_str_eq(out, "▁▁▁");
	top_text_spark(values, ARRAY_LEN(values), 0, 8, true, out, 10);
	ck_assert_str_eq(out, "▁▂▃");
}
END_TEST

START_TEST(texts_are_cut_at_either_end_between_characters)
{
	char out[TOP_TEXT_LINE_MAX];

	ck_assert_uint_eq(top_text_fit("abcdef", 6, true, false, out), 6);
	ck_assert_str_eq(out, "abcdef");
	ck_assert_uint_eq(top_text_fit("abcdef", 5, true, false, out), 5);
	ck_assert_str_eq(out, "abc..");
	ck_assert_uint_eq(top_text_fit("abcdef", 5, true, true, out), 5);
	ck_assert_str_eq(out, "..def");
	/* Two columns each: half of one is none. */
	ck_assert_uint_eq(top_text_fit("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", 5, true, true, out), 4);
	ck_assert_str_eq(out, "..\xe6\xbc\xa2");
	ck_assert_uint_eq(top_text_fit("\xc3\xa4\n", 9, false, true, out), 6);
	ck_assert_str_eq(out, "\?\?\\x0a");
	ck_assert_uint_eq(top_text_fit("abc", 0, true, true, out), 0);
	ck_assert_str_eq(out, "");
}
END_TEST

Suite *top_text_suite(void)
{
	Suite *suite = suite_create("top_text");
	TCase *tcase = tcase_create("toptext");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, no_line_is_wider_than_the_terminal);
	tcase_add_test(tcase, a_narrow_terminal_keeps_what_matters_most);
	tcase_add_test(tcase, without_a_width_nothing_is_cut);
	tcase_add_test(tcase, a_row_says_what_there_is);
	tcase_add_test(tcase, a_spark_goes_from_the_bottom_to_the_top);
	tcase_add_test(tcase, texts_are_cut_at_either_end_between_characters);
	suite_add_tcase(suite, tcase);

	return suite;
}
