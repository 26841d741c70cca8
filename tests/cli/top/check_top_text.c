/*
 * check_top_text.c: lines that fit, whatever the names and the width are; what a key of the terminal
 * means. White-box: includes the module.
 */
#include "cli/top/top.c"

#include "lib/base/base.h"
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
static struct top_table_row rows[8], *row_pointers[8];

static void setup(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
}

static void teardown(void)
{
	free(table.view);
	setlocale(LC_CTYPE, "C");
}

/* Columns that a line takes. */
static size_t wide(const char *line)
{
	wchar_t text[TOP_TEXT_LINE_MAX];
	size_t len = mbstowcs(text, line, TOP_TEXT_LINE_MAX);

	ck_assert_msg(len != (size_t)-1, "broken characters: %s", line);
	int taken = wcswidth(text, len);

	ck_assert_msg(taken >= 0, "unprintable: %s", line);

	return (size_t)taken;
}

/* Targets of half a core more each, and of 75 GiB of memory and more, for three seconds. */
static struct top_table_list fill(const char *const *names, size_t count)
{
	mono_t now = { 1003 * NS_PER_S - 10 * NS_PER_MS };
	struct top_table_list list;

	ck_assert_uint_le(count, ARRAY_LEN(rows));
	table = (struct top_table){ .now = now, .row = row_pointers, .count = count, .cap = ARRAY_LEN(rows) };
	for (uint32_t i = 0; i < count; i++) {
		struct top_table_row *row = row_pointers[i] = &rows[i];
		double cores = 0.5 * (i + 1);

		*row = (struct top_table_row){
			.id = i + 1,
			.name = (char *)(uintptr_t)names[i],
			.kind = TARGET_PROCESS,
			.cpu_peak = cores,
			.has_memory = true,
			.memory_bytes = (300ull + i) << 28,
			.memory_peak_bytes = (300ull + i) << 28,
			.nearness = INFINITY,
			.marks = { { { now.ns - NS_PER_S }, 0 } },
			.seen = true,
			.has_cpu = true,
			.at = now,
			.second = now.ns / NS_PER_S,
		};
		sample_set(&row->sample, SAMPLE_CPU, (uint64_t)(cores * 1e9));
		for (uint64_t s = 0; s < TOP_TABLE_SECONDS; s++) {
			bool known = s < 3;
			size_t at = (row->second - s) % TOP_TABLE_SECONDS;

			row->cpu[at] = known ? (float)cores : NAN;
			row->memory[at] = known ? (float)row->memory_bytes : NAN;
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
	rows[1].nearness = verdict.nearness;
	rows[1].nearest = verdict.rule;
	rows[1].pending = 7;
	rows[1].waiting_count = 7;
	for (size_t i = 0; i < TOP_TABLE_WAITING_MAX; i++)
		rows[1].waiting[i] = verdict;
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
		{ 80, "TARGET           CPU LAST MINUTE     PEAK    MEMORY  DIST RULES" },
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
	sample_set(&rows[0].sample, SAMPLE_CPU_ESTIMATED, 1);
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "web/12        ~50.0%                    #  ~50.0%    75 GiB"), "%s", line);
	rows[0].nearest = "calm";
	rows[0].nearness = 0.25;
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "  25% calm"), "%s", line);
	rows[0].waiting[0] = pending;
	rows[0].waiting[1] = cooling;
	rows[0].waiting_count = 2;
	rows[0].pending = rows[0].cooling = 1;
	top_text_row(&text, &table, list.row[0], line);
	ck_assert_msg(strstr(line, "  25% mem pending 120 ms of 200 ms, cpu cooling 5 s"), "%s", line);
	rows[0].gone = true;
	rows[0].seen = rows[0].has_cpu = false;
	rows[0].nearness = INFINITY;
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

/* Names that begin and end alike, in a screen of 80 columns. */
START_TEST(long_names_are_cut_in_the_middle_and_stay_apart)
{
	static const char *const alike[] = {
		"/system.slice/kubepods-besteffort-pod1234.slice/cri-containerd-0a.scope/worker.service",
		"/system.slice/kubepods-besteffort-pod5678.slice/cri-containerd-0a.scope/worker.service",
		"/system.slice/kubepods-besteffort-pod5678.slice/cri-containerd-0b.scope/worker.service",
	};
	struct top_table_list list = fill(alike, ARRAY_LEN(alike));
	char lines[3][TOP_TEXT_LINE_MAX];
	struct top_text text;
	size_t found = 0;

	top_text_plan(80, true, top_text_longest(&list, true), &text);
	text.names = (struct output_names){ alike, ARRAY_LEN(alike) };
	for (size_t i = 0; i < 3; i++) {
		top_text_row(&text, &table, list.row[i], lines[i]);
		lines[i][strcspn(lines[i], " ")] = '\0';
		ck_assert_uint_le(strlen(lines[i]), 42);
		ck_assert_msg(strncmp(lines[i], "/system.", 8) == 0 && strstr(lines[i], ".."), "%s", lines[i]);
		for (size_t k = 0; k < i; k++)
			found += strcmp(lines[k], lines[i]) == 0;
	}
	ck_assert_uint_eq(found, 0);
}
END_TEST

START_TEST(texts_are_cut_between_characters)
{
	char out[TOP_TEXT_LINE_MAX];

	ck_assert_uint_eq(top_text_fit("abcdef", 6, true, out), 6);
	ck_assert_str_eq(out, "abcdef");
	ck_assert_uint_eq(top_text_fit("abcdef", 5, true, out), 5);
	ck_assert_str_eq(out, "abc..");
	ck_assert_uint_eq(top_text_fit("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", 5, true, out), 4);
	ck_assert_str_eq(out, "\xe6\xbc\xa2..");
	ck_assert_uint_eq(top_text_fit("\xc3\xa4\n", 9, false, out), 6);
	ck_assert_str_eq(out, "\?\?\\x0a");
	ck_assert_uint_eq(top_text_fit("abc", 0, true, out), 0);
	ck_assert_str_eq(out, "");
}
END_TEST

static const struct {
	int curses, ours;
} keys_pressed[] = {
	{ KEY_UP, TOP_SCREEN_UP },
	{ KEY_DOWN, TOP_SCREEN_DOWN },
	{ KEY_PPAGE, TOP_SCREEN_PAGE_UP },
	{ KEY_NPAGE, TOP_SCREEN_PAGE_DOWN },
	{ KEY_HOME, TOP_SCREEN_FIRST },
	{ KEY_END, TOP_SCREEN_LAST },
	{ KEY_BACKSPACE, TOP_SCREEN_BACKSPACE },
	{ 0x7f, TOP_SCREEN_BACKSPACE },
	{ '\b', TOP_SCREEN_BACKSPACE },
	{ '\n', TOP_SCREEN_ENTER },
	{ 0x1b, TOP_SCREEN_ESCAPE },
	{ ' ', ' ' },
	{ 'q', 'q' },
	{ 0xff, 0xff },
	{ 0x01, TOP_SCREEN_OTHER }, /* Ctrl-A */
	{ 0x100, TOP_SCREEN_OTHER },
	{ KEY_LEFT, TOP_SCREEN_OTHER },
	{ KEY_F(5), TOP_SCREEN_OTHER },
};

START_TEST(a_key_is_a_character_or_one_that_is_known_or_other)
{
	ck_assert_int_eq(translate(keys_pressed[_i].curses), keys_pressed[_i].ours);
}
END_TEST

Suite *top_text_suite(void)
{
	Suite *suite = suite_create("top_text");
	TCase *tcase = tcase_create("toptext"), *keys = tcase_create("keys");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, no_line_is_wider_than_the_terminal);
	tcase_add_test(tcase, a_narrow_terminal_keeps_what_matters_most);
	tcase_add_test(tcase, without_a_width_nothing_is_cut);
	tcase_add_test(tcase, a_row_says_what_there_is);
	tcase_add_test(tcase, a_spark_goes_from_the_bottom_to_the_top);
	tcase_add_test(tcase, long_names_are_cut_in_the_middle_and_stay_apart);
	tcase_add_test(tcase, texts_are_cut_between_characters);
	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(keys, a_key_is_a_character_or_one_that_is_known_or_other, 0, (int)ARRAY_LEN(keys_pressed));
	suite_add_tcase(suite, keys);

	return suite;
}
