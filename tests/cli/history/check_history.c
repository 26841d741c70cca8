/*
 * check_history.c: what spikewatch history prints of a store that is known: the table, one target
 * minute by minute, JSON; minutes that are missing and why; damage; more than one day.
 */
#include "commandrun.h"

#include "cli/base/options.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/minutes/minute_file.h"
#include "scene.h"

#include <locale.h>
#include <sys/stat.h>

Suite *history_suite(void);

static struct commandrun command_run;
static char directory[64], history[96], incidents[96];

#define MINUTE_NS (60 * NS_PER_S)
#define NOON_S 1795435200ull /* 2026-11-23T12:00:00Z */

static struct minute_row row(const char *name, double cores, double peak, uint64_t memory)
{
	return (struct minute_row){ .kind = TARGET_CGROUP,
				    .name = name,
				    .entry = "services",
				    .comm = "",
				    .has_cpu = true,
				    .has_memory = true,
				    .cpu_ns = (uint64_t)(cores * 60e9),
				    .cpu_peak_milli = (uint32_t)(peak * 1000 + 0.5),
				    .memory_bytes = memory,
				    .seen_ns = MINUTE_NS,
				    .targets = 1 };
}

/* Ten minutes: two are missing after the third, the daemon has started again in the sixth; the eighth is partly sampled. */
static void write_minutes(struct buffer *text)
{
	static const struct minute_incident incident = { "20261123T120130.000Z-web.service-cpu", 0 };

	for (uint64_t i = 0; i < 10; i++) {
		struct minute_row rows[3] = { row("web.service", 0.25, i == 1 ? 2 : 0.5, 100 << 20),
					      row("db.service", 0.5, 0.75, (200 + i) << 20),
					      row("", 0.01, 0.02, 1 << 20) };
		struct minute minute = { .begin = { (NOON_S + 60 * i) * NS_PER_S },
					 .period_ns = MINUTE_NS,
					 .peak_ns = NS_PER_S,
					 .span_ns = MINUTE_NS,
					 .number = i < 5 ? 100 + i : i - 5,
					 .rows = rows,
					 .row_count = 3 };

		if (i == 3 || i == 4)
			continue;
		rows[0].throttled_ns = i == 1 ? 2 * NS_PER_S : 0;
		rows[2].kind = MINUTE_OTHERS;
		rows[2].entry = "";
		rows[2].targets = 40;
		if (i == 1) {
			minute.incidents = (struct minute_incident *)(uintptr_t)&incident;
			minute.incident_count = 1;
		}
		if (i == 7)
			minute.unsampled_ns = 18 * NS_PER_S;
		ck_assert_int_eq(minute_block_write(&minute, 1, i == 1, text), 0);
	}
}

static void write_file(const char *name, const char *data, size_t len)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", history, name);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(data, 1, len, file), len);
	fclose(file);
}

static void set_up(void)
{
	AUTO(buffer_release) struct buffer text = { 0 };

	scene_directory(directory);
	snprintf(history, sizeof(history), "%s/history", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	ck_assert_int_eq(mkdir(history, 0700), 0);
	setenv("TZ", "UTC", 1);
	tzset();
	setenv("SPIKEWATCH_DIR", incidents, 1);
	setenv("COLUMNS", "80", 1);
	setlocale(LC_CTYPE, "C");
	write_minutes(&text);
	write_file("0000000001.minutes", text.data, text.len);
}

static void tear_down(void)
{
	scene_remove(directory);
	commandrun_end(&command_run);
}

#define SPAN "--since", "2026-11-23T12:00", "--until", "2026-11-23T12:10"

/* What it prints is exactly this, but for the directory in its first line. */
static void expect_output(const char *expected)
{
	char all[8192];

	snprintf(all, sizeof(all), "%s:\n%s", history, expected);
	ck_assert_str_eq(command_run.output, all);
}

START_TEST(the_table_has_a_line_for_each_target)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	expect_output("Mon 2026-11-23 12:00 to 12:10: 8 of 10 minutes recorded, 1 of them in part (18 s unsampled)\n"
		      "  12:03 to 12:05  spikewatchd was not running\n"
		      "\n"
		      "TARGET                 CPU   PEAK AT          MEMORY THROTT INC 12:00     12:10\n"
		      "db.service           50.0%  75.0% 12:00       209.0M      -   - @@@@@?"
		      "?@@@@@@@@\n"
		      "web.service          25.0% 200.0% 12:01       100.0M   2.0s   1 -@@--?"
		      "?--------\n"
		      "others (up to 40)     1.0%   2.0% 12:00         1.0M      -   - @@@@@?"
		      "?@@@@@@@@\n"
		      "\n"
		      "INCIDENTS (spikewatch show ID)\n"
		      "  12:01  20261123T120130.000Z-web.service-cpu\n"
		      "\n"
		      "CPU: mean, of a core; PEAK: most over any 1 s; MEMORY: most; THROTT: time throttled.\n"
		      "Pictures: peaks, up to each one's own PEAK; blank: none known; dots: not recorded.\n");
}
END_TEST

START_TEST(one_target_is_shown_minute_by_minute)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "web.service"), EXIT_OK);
	expect_output("Mon 2026-11-23 12:00 to 12:10: 8 of 10 minutes recorded, 1 of them in part (18 s unsampled)\n"
		      "\n"
		      "web.service: cgroup of entry services; CPU 25.0% of a core, peak 200.0%, memory 100.0M\n"
		      "\n"
		      "TIME         CPU    PEAK  MEMORY THROTT 0 to 200.0%\n"
		      "Monday 2026-11-23\n"
		      "12:00      25.0%   50.0%  100.0M      - #####:::::\n"
		      "12:01      25.0%  200.0%  100.0M   2.0s #####::::::::::::::::::::::::::::::::::\n"
		      "         incident 20261123T120130.000Z-web.service-cpu\n"
		      "12:02      25.0%   50.0%  100.0M      - #####:::::\n"
		      "12:03 to 12:05  spikewatchd was not running\n"
		      "12:05      25.0%   50.0%  100.0M      - #####:::::\n"
		      "12:06      25.0%   50.0%  100.0M      - #####:::::\n"
		      "12:07      25.0%   50.0%  100.0M      - (42 s) ####:::\n"
		      "12:08      25.0%   50.0%  100.0M      - #####:::::\n"
		      "12:09      25.0%   50.0%  100.0M      - #####:::::\n");
}
END_TEST

START_TEST(no_line_is_wider_than_the_screen)
{
	for (unsigned width = 60; width <= 200; width += 20) {
		char text[8];

		snprintf(text, sizeof(text), "%u", width);
		setenv("COLUMNS", text, 1);
		COMMANDRUN(&command_run, history, SPAN, "web.service");
		for (const char *at = strstr(command_run.output, "TIME"); *at;) {
			size_t len = strcspn(at, "\n");

			ck_assert_msg(len <= width || width < 80, "%u: %.*s", width, (int)len, at);
			at += len + 1;
		}
	}
}
END_TEST

START_TEST(several_that_match_are_a_table_and_none_is_trouble)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "*.service"), EXIT_OK);
	commandrun_says(&command_run, "db.service");
	commandrun_says(&command_run, "web.service");
	commandrun_says_not(&command_run, "others");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "services"), EXIT_OK); /* of an entry */
	commandrun_says(&command_run, "db.service");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "nothing"), EXIT_TROUBLE);
	commandrun_says(&command_run, "No target is called nothing.");
}
END_TEST

START_TEST(a_process_is_found_by_its_command_and_keeps_it_on_a_narrow_screen)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_row rows[2] = { row("processes/4194301", 0.5, 0.5, 1 << 20),
				      row("processes/77", 0.25, 0.5, 1 << 20) };
	struct minute minute = { .begin = { NOON_S * NS_PER_S },
				 .period_ns = MINUTE_NS,
				 .peak_ns = NS_PER_S,
				 .span_ns = MINUTE_NS,
				 .rows = rows,
				 .row_count = 2 };

	rows[0].entry = rows[1].entry = "processes";
	rows[0].comm = "java";
	rows[1].comm = "redis-server";
	ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	write_file("0000000002.minutes", text.data, text.len);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "processes"), EXIT_OK);
	commandrun_says(&command_run, "\n4194301 java        ");
	commandrun_says(&command_run, "\n77 redis-server     ");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "redis-*"), EXIT_OK);
	commandrun_says(&command_run, "processes/77");
	commandrun_says_not(&command_run, "4194301");
}
END_TEST

START_TEST(the_order_is_what_was_asked_for)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--by", "peak", "-n", "1"), EXIT_OK);
	commandrun_says(&command_run, "web.service ");
	commandrun_says_not(&command_run, "db.service ");
	commandrun_says(&command_run, "others");
	commandrun_says(&command_run, "and 1 more targets");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--by", "colour"), EXIT_USAGE);
}
END_TEST

START_TEST(damage_is_said_and_costs_its_minute)
{
	AUTO(buffer_release) struct buffer text = { 0 };

	write_minutes(&text);
	text.data[300] ^= 1; /* in the first block or the second */
	write_file("0000000001.minutes", text.data, text.len);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_TROUBLE);
	commandrun_says(&command_run, "7 of 10 minutes recorded");
	commandrun_says(&command_run, "DAMAGED: 1 block");
	/* What the daemon is writing at this moment is not damage. */
	text.data[300] ^= 1;
	write_file("0000000001.minutes", text.data, text.len - 10);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	commandrun_says(&command_run, "7 of 10 minutes recorded");
	commandrun_says_not(&command_run, "DAMAGED");
}
END_TEST

START_TEST(why_minutes_are_missing_is_told_apart)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_row rows[1] = { row("web.service", 0.25, 0.5, 4096) };
	static const struct {
		uint64_t begin, number;
	} minutes[] = { { 0, 0 }, { 3, 1 }, { 6, 4 }, { 9, 0 } };

	for (size_t i = 0; i < ARRAY_LEN(minutes); i++) {
		struct minute minute = { .begin = { (NOON_S + 60 * minutes[i].begin) * NS_PER_S },
					 .period_ns = MINUTE_NS,
					 .peak_ns = NS_PER_S,
					 .span_ns = MINUTE_NS,
					 .number = minutes[i].number,
					 .rows = rows,
					 .row_count = 1 };

		ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	}
	write_file("0000000001.minutes", text.data, text.len);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	commandrun_says(&command_run, "12:01 to 12:03  nothing was sampled");
	commandrun_says(&command_run, "12:04 to 12:06  2 minutes could not be written");
	commandrun_says(&command_run, "12:07 to 12:09  spikewatchd was not running");
}
END_TEST

START_TEST(days_are_told_apart_and_local)
{
	setenv("TZ", "UTC-12", 1); /* noon is midnight there */
	tzset();
	ck_assert_int_eq(COMMANDRUN(&command_run, history, "--since", "2026-11-23T23:00", "--until", "2026-11-24T01:00",
				    "web.service"),
			 EXIT_OK);
	commandrun_says(&command_run, "Mon 2026-11-23 23:00 to Tue 2026-11-24 01:00: 8 of 120 minutes");
	commandrun_says(&command_run, "Tuesday 2026-11-24\n00:00 ");
	commandrun_says_not(&command_run, "Monday");
}
END_TEST

static const struct json_node *member(const struct json_node *node, const char *key)
{
	const struct json_node *found = json_member(node, key);

	ck_assert_msg(found, "no %s", key);
	return found;
}

START_TEST(json_has_it_all)
{
	struct json_document *document;
	const struct json_node *root, *target, *minute;

	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--json", "web.service"), EXIT_OK);
	ck_assert_int_eq(json_parse(command_run.output, command_run.len, NULL, &document, NULL), 0);
	root = json_root(document)->first;
	ck_assert_int_eq((int)member(root, "recorded_minutes")->number, 8);
	ck_assert_int_eq((int)member(root, "gaps")->count, 1);
	ck_assert_str_eq(member(member(root, "gaps")->first, "why")->text, "stopped");
	ck_assert_int_eq((int)member(root, "targets")->count, 1);
	target = member(root, "targets")->first;
	ck_assert_str_eq(member(target, "name")->text, "web.service");
	ck_assert_double_eq_tol(member(target, "cpu_cores")->number, 0.25, 1e-9);
	ck_assert_double_eq_tol(member(target, "cpu_peak_cores")->number, 2, 1e-9);
	ck_assert_double_eq_tol(member(target, "throttled_ns")->number, 2e9, 1);
	ck_assert_int_eq((int)member(root, "minutes")->count, 8);
	minute = member(root, "minutes")->first;
	ck_assert_double_eq_tol(member(minute, "cpu_ns")->number, 15e9, 1);
	ck_assert_int_eq((int)member(root, "incidents")->count, 1);
	json_document_free(document);
}
END_TEST

/* A cgroup without the memory controller, and one whose CPU time cannot be read. */
static void write_unknown(void)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_row rows[2] = { row("dark.service", 0.25, 0.5, 0), row("mute.service", 0, 0, 64 << 20) };
	struct minute minute = { .begin = { NOON_S * NS_PER_S },
				 .period_ns = MINUTE_NS,
				 .peak_ns = NS_PER_S,
				 .span_ns = MINUTE_NS,
				 .rows = rows,
				 .row_count = 2 };

	rows[0].has_memory = false;
	rows[1].has_cpu = false;
	ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	write_file("0000000001.minutes", text.data, text.len);
}

START_TEST(what_is_not_known_is_no_zero)
{
	char page[160], *html;

	write_unknown();
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	commandrun_says(&command_run, "\ndark.service         25.0%  50.0% 12:00            -      -   - @@?");
	commandrun_says(&command_run, "\nmute.service             -      - -            64.0M      -   -   ?");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "dark.service"), EXIT_OK);
	commandrun_says(&command_run, "; CPU 25.0% of a core, peak 50.0%, memory not known\n");
	commandrun_says(&command_run, "\n12:00      25.0%   50.0%       -      - ####");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "mute.service"), EXIT_OK);
	commandrun_says(&command_run, "; CPU not known, memory 64.0M\n");
	commandrun_says(&command_run, "0 to -\n");
	commandrun_says(&command_run, "\n12:00          -       -   64.0M      - \n");
	snprintf(page, sizeof(page), "%s/page.html", directory);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--html", page), EXIT_OK);
	html = scene_read(page);
	ck_assert_ptr_nonnull(html);
	ck_assert_ptr_nonnull(strstr(html, "<td data-label=\"at\">12:00<td data-label=\"memory\">-<td"));
	ck_assert_ptr_nonnull(
		strstr(html, "<td data-label=\"CPU\">-<td data-label=\"peak\">-<td data-label=\"at\">-<td"));
	free(html);
}
END_TEST

START_TEST(what_is_not_known_is_null_in_json)
{
	static const char *const of_cpu[] = { "cpu_ns", "cpu_cores", "cpu_peak_cores", "cpu_peak_time_ns" };
	struct json_document *document;
	const struct json_node *dark, *mute;

	write_unknown();
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--json"), EXIT_OK);
	ck_assert_int_eq(json_parse(command_run.output, command_run.len, NULL, &document, NULL), 0);
	dark = member(json_root(document)->first, "targets")->first;
	mute = dark->next;
	ck_assert_int_eq(member(dark, "memory_peak_bytes")->type, JSON_NULL);
	ck_assert_double_eq_tol(member(mute, "memory_peak_bytes")->number, 64 << 20, 1);
	for (size_t i = 0; i < ARRAY_LEN(of_cpu); i++) {
		ck_assert_int_eq(member(dark, of_cpu[i])->type, JSON_NUMBER);
		ck_assert_msg(member(mute, of_cpu[i])->type == JSON_NULL, "%s", of_cpu[i]);
	}
	json_document_free(document);
}
END_TEST

START_TEST(where_there_is_none_it_says_so)
{
	scene_remove(history);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	commandrun_says(&command_run, "There is no history in ");
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "-d", history), EXIT_TROUBLE);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, "--since", "soon"), EXIT_USAGE);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, "--since", "1h", "--until", "2h"), EXIT_USAGE);
	ck_assert_int_eq(mkdir(history, 0700), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN), EXIT_OK);
	commandrun_says(&command_run, "0 of 0 minutes recorded");
}
END_TEST

START_TEST(names_cannot_act_on_the_terminal)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_row rows[1] = { row("\033[31mred\n", 0.25, 0.5, 4096) };
	struct minute_incident incident = { "\033]0;title", 0 };
	struct minute minute = { .begin = { NOON_S * NS_PER_S },
				 .period_ns = MINUTE_NS,
				 .peak_ns = NS_PER_S,
				 .span_ns = MINUTE_NS,
				 .rows = rows,
				 .row_count = 1,
				 .incidents = &incident,
				 .incident_count = 1 };

	rows[0].comm = "\033x";
	rows[0].entry = "\a";
	ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	write_file("0000000001.minutes", text.data, text.len);
	COMMANDRUN(&command_run, history, SPAN);
	commandrun_harmless(&command_run);
	COMMANDRUN(&command_run, history, SPAN, "*red*");
	commandrun_harmless(&command_run);
	COMMANDRUN(&command_run, history, SPAN, "--json", "*red*");
	commandrun_harmless(&command_run);
}
END_TEST

/* The numbers of tests/report.mjs are what a browser makes of it. */
START_TEST(a_page_has_each_minute)
{
	char page[160], *html;

	snprintf(page, sizeof(page), "%s/page.html", directory);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--html", page), EXIT_OK);
	html = scene_read(page);
	ck_assert_ptr_nonnull(html);
	/* Minute 7 was sampled for 42 s. Minutes 3 and 4 are a gap. */
	ck_assert_ptr_nonnull(
		strstr(html, "data-zones=\"1795435200.000:0\" data-minutes=\"0 60 120 300 360 420:42 480 540\""));
	ck_assert_ptr_nonnull(strstr(
		html,
		"data-from=\"1795435380.000\" data-to=\"1795435500.000\" data-why=\"spikewatchd was not running\""));
	ck_assert_ptr_nonnull(strstr(
		html, "data-name=\"web.service\" data-cells=\"250,500,102400 250,2000,102400,2000 250,500,102400 "));
	ck_assert_ptr_nonnull(
		strstr(html, "data-at=\"1795435260.000\" data-target=\"web.service\">12:01: <code>20261123T120130"));
	free(html);
}
END_TEST

START_TEST(a_page_has_a_line_and_a_picture_for_each)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_row rows[1] = { row("<script>&\"", 0.25, 0.5, 4096) };
	struct minute minute = { .begin = { (NOON_S + 120) * NS_PER_S },
				 .period_ns = MINUTE_NS,
				 .peak_ns = NS_PER_S,
				 .span_ns = MINUTE_NS,
				 .number = 9,
				 .rows = rows,
				 .row_count = 1 };
	char page[160], *html;
	struct stat st;

	ck_assert_int_eq(minute_block_write(&minute, 1, false, &text), 0);
	write_file("0000000002.minutes", text.data, text.len);
	snprintf(page, sizeof(page), "%s/page.html", directory);
	umask(077); /* as process_setup has it */
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--html", page), EXIT_OK);
	ck_assert_str_eq(command_run.output, "");
	ck_assert_int_eq(stat(page, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	html = scene_read(page);
	ck_assert_ptr_nonnull(html);
	ck_assert_ptr_nonnull(strstr(html, "<td>db.service<td data-label=\"CPU\">"));
	ck_assert_ptr_nonnull(strstr(html, "class=\"bar\""));
	ck_assert_ptr_nonnull(strstr(html, "class=\"hole\""));
	ck_assert_ptr_nonnull(strstr(html, "12:03 to 12:05: spikewatchd was not running"));
	ck_assert_ptr_nonnull(strstr(html, "20261123T120130.000Z-web.service-cpu"));
	ck_assert_ptr_nonnull(strstr(html, "&lt;script&gt;&amp;&quot;"));
	ck_assert_ptr_null(strstr(html, "<script>&"));
	free(html);
	ck_assert_int_eq(COMMANDRUN(&command_run, history, SPAN, "--html", page, "--json"), EXIT_USAGE);
}
END_TEST

Suite *history_suite(void)
{
	Suite *suite = suite_create("history");
	TCase *tcase = tcase_create("history");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_table_has_a_line_for_each_target);
	tcase_add_test(tcase, one_target_is_shown_minute_by_minute);
	tcase_add_test(tcase, no_line_is_wider_than_the_screen);
	tcase_add_test(tcase, several_that_match_are_a_table_and_none_is_trouble);
	tcase_add_test(tcase, a_process_is_found_by_its_command_and_keeps_it_on_a_narrow_screen);
	tcase_add_test(tcase, the_order_is_what_was_asked_for);
	tcase_add_test(tcase, damage_is_said_and_costs_its_minute);
	tcase_add_test(tcase, why_minutes_are_missing_is_told_apart);
	tcase_add_test(tcase, days_are_told_apart_and_local);
	tcase_add_test(tcase, json_has_it_all);
	tcase_add_test(tcase, what_is_not_known_is_no_zero);
	tcase_add_test(tcase, what_is_not_known_is_null_in_json);
	tcase_add_test(tcase, where_there_is_none_it_says_so);
	tcase_add_test(tcase, names_cannot_act_on_the_terminal);
	tcase_add_test(tcase, a_page_has_each_minute);
	tcase_add_test(tcase, a_page_has_a_line_and_a_picture_for_each);
	suite_add_tcase(suite, tcase);

	return suite;
}
