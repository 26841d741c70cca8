/* check_story.c: what an incident's sentences say of what was recorded. */
#include "cli/incident/story.h"

#include "lib/base/base.h"
#include "cli/incident/incident_load.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *story_suite(void);

static struct incident incident;
static struct incident_samples samples;

static const char *ended_cpu = "";
static struct incident_unit unit;
static struct labels labels;
static struct stream_reader_report report = { .ours = true, .complete = true, .checksum_ok = true };

/* Recorded from so long before the firing, of the 30 s that were wanted. */
static char *told(int64_t got_from_ns)
{
	char *text = NULL;
	size_t len;
	FILE *file = open_memstream(&text, &len);

	incident_init(&incident, "0");
	memset(&samples, 0, sizeof(samples));
	samples.report = report;
	incident.coverage = (struct sample_window_coverage){ .want_before_ns = 30 * NS_PER_S,
							     .want_after_ns = 3 * NS_PER_S,
							     .got_from_ns = got_from_ns,
							     .got_to_ns = 3 * (int64_t)NS_PER_S,
							     .capture_rate = 1 };
	incident.has_unit = unit.name[0] != '\0';
	incident.unit = unit;
	incident.labels = labels;
	incident_text(incident.ended_cpu, sizeof(incident.ended_cpu), ended_cpu);
	incident.has_ended_cpu_lack = strcmp(ended_cpu, INCIDENT_ENDED_ESTIMATED) == 0;
	incident.ended_cpu_lack_ns = 40 * NS_PER_MS;
	story_tell(&incident, &samples, file);
	ck_assert_int_eq(fclose(file), 0);
	return text;
}

START_TEST(what_was_before_the_recorder_is_not_called_lost)
{
	char *text = told(-4650000000);

	ck_assert_msg(strstr(text, "Nothing was lost. The recording begins 4.65 s before it fired."), "%s", text);
	free(text);
	text = told(2000000000);
	ck_assert_msg(strstr(text, "The recording begins 2 s after it fired."), "%s", text);
	free(text);
}
END_TEST

/* Of members of a group: what is not exact of those that ended. */
START_TEST(checksums_that_do_not_agree_are_told_as_a_loss)
{
	static const struct {
		struct stream_reader_report report;
		const char *told;
	} cases[] = {
		{ { .ours = true, .complete = true, .checksum_ok = true, .crc_differs = 1 },
		  " Lost: lines that were changed, doubled or removed: a checksum of the file does not agree." },
		{ { .ours = true, .complete = true },
		  " Lost: lines that were changed, doubled or removed: a checksum of the file does not agree." },
		{ { .ours = true, .complete = true, .checksum_ok = true, .rows_unchecked = 7 },
		  " Lost: the checksums of 7 rows." },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		AUTO_FREE char *text = NULL;

		report = cases[i].report;
		text = told(-30000000000);
		ck_assert_msg(strstr(text, cases[i].told), "%zu: %s", i, text);
		ck_assert_msg(!strstr(text, "Nothing was lost."), "%zu: %s", i, text);
	}
}
END_TEST

START_TEST(cpu_time_of_members_that_ended_is_told_to_be_an_estimate)
{
	char *text = told(0);

	ck_assert_ptr_null(strstr(text, "estimate"));
	free(text);
	ended_cpu = INCIDENT_ENDED_ESTIMATED;
	text = told(0);
	ck_assert_msg(strstr(text, " Its CPU time is an estimate: of members that ended up to 40 ms may be missing for "
				   "each parent. "),
		      "%s", text);
	free(text);
	ended_cpu = INCIDENT_ENDED_SEEN;
	text = told(0);
	ck_assert_msg(strstr(text, " Its CPU time is an estimate: of members that ended it has what they were seen to "
				   "use. "),
		      "%s", text);
	free(text);
	ended_cpu = "";
}
END_TEST

/* Of a window of a second: it runs and waits from its beginning on; what was before does not count. */
START_TEST(waiting_for_a_cpu_is_told_where_it_was_long)
{
	static const struct {
		uint64_t wait_ms;
		const char *told; /* NULL: it is not */
	} cases[] = {
		{ 1500, " it waited for a CPU for 1.5 s, and ran for 500 ms: others took it, or its quota did." },
		{ 100, NULL }, /* less than a fifth */
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct series_point points[3] = { { .at_ns = -5 * (int64_t)NS_PER_S },
						  { .at_ns = -900000000 },
						  { .at_ns = NS_PER_S } };
		char *text = NULL;
		size_t len;
		FILE *file = open_memstream(&text, &len);

		incident_init(&incident, "0");
		memset(&samples, 0, sizeof(samples));
		incident.window_from = (mono_t){ 9 * NS_PER_S };
		incident.window_to = (mono_t){ 10 * NS_PER_S };
		for (size_t k = 0; k < 3; k++) {
			sample_set(&points[k].sample, SAMPLE_CPU, k * 500 * NS_PER_MS);
			sample_set(&points[k].sample, SAMPLE_CPU_WAIT, k * cases[i].wait_ms * NS_PER_MS);
		}
		sample_set(&points[0].sample, SAMPLE_CPU_WAIT, 0);
		samples.series.points = points;
		samples.series.count = 3;
		story_tell(&incident, &samples, file);
		ck_assert_int_eq(fclose(file), 0);
		ck_assert_msg(cases[i].told ? strstr(text, cases[i].told) != NULL : strstr(text, "for a CPU") == NULL,
			      "%s", text);
		free(text);
	}
}
END_TEST

START_TEST(a_recording_that_goes_back_far_enough_is_not_spoken_of)
{
	char *text = told(-29 * (int64_t)NS_PER_S - 100000000);

	ck_assert_msg(strstr(text, "Nothing was lost.") && !strstr(text, "recording begins"), "%s", text);
	free(text);
}
END_TEST

START_TEST(labels_are_printed_and_escaped)
{
	char *text = told(-30 * (int64_t)NS_PER_S), key[8];

	ck_assert_msg(!strstr(text, "labelled"), "%s", text);
	free(text);
	labels_add(&labels, "team", 4, "core", 4);
	labels_add(&labels, "app", 3, "w\xff", 2);
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(strstr(text, " Its container is labelled app=w\\xff, team=core."), "%s", text);
	free(text);
	for (unsigned i = 0; i < 20; i++)
		labels_add(&labels, key, (size_t)snprintf(key, sizeof(key), "k%02u", i), "", 0);
	labels.left_out = 2;
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(strstr(text, ", k10= and 12 more."), "%s", text);
	free(text);
	labels.count = labels.len = 0;
}
END_TEST

START_TEST(the_unit_and_its_restarts_are_printed)
{
	char *text;

	unit = (struct incident_unit){ .name = "web.service", .has_running = true, .running_ns = 3123456789 };
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(strstr(text, " Its unit, web.service, was started 3.12 s before. "), "%s", text);
	free(text);
	unit.has_restarts = true;
	unit.restarts = 4;
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(strstr(text, ", was started 3.12 s before, restarted 4 times by systemd. "), "%s", text);
	free(text);
	unit.has_running = false;
	unit.restarts = 1;
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(strstr(text, ", was restarted 1 time by systemd. "), "%s", text);
	free(text);
	unit.restarts = 0;
	text = told(-30 * (int64_t)NS_PER_S);
	ck_assert_msg(!strstr(text, "unit"), "%s", text);
	free(text);
	unit.name[0] = '\0';
}
END_TEST

START_TEST(above_its_average_is_not_below_its_minimum)
{
	struct incident_rule rule = { .has_average = true,
				      .average = 13,
				      .thresholds = { .has_delta = true, .delta = 50, .minimum = 50 } };
	double level = 0;

	snprintf(rule.reason, sizeof(rule.reason), "%s", trigger_reason_name(TRIGGER_ABOVE_AVERAGE));
	ck_assert(story_threshold(&rule, &level) && level == 19.5);
	rule.thresholds.has_minimum = true;
	ck_assert(story_threshold(&rule, &level) && level == 50);
	rule.average = 100;
	ck_assert(story_threshold(&rule, &level) && level == 150);
}
END_TEST

Suite *story_suite(void)
{
	Suite *suite = suite_create("story");
	TCase *tcase = tcase_create("story");

	tcase_add_test(tcase, above_its_average_is_not_below_its_minimum);
	tcase_add_test(tcase, what_was_before_the_recorder_is_not_called_lost);
	tcase_add_test(tcase, checksums_that_do_not_agree_are_told_as_a_loss);
	tcase_add_test(tcase, cpu_time_of_members_that_ended_is_told_to_be_an_estimate);
	tcase_add_test(tcase, waiting_for_a_cpu_is_told_where_it_was_long);
	tcase_add_test(tcase, a_recording_that_goes_back_far_enough_is_not_spoken_of);
	tcase_add_test(tcase, labels_are_printed_and_escaped);
	tcase_add_test(tcase, the_unit_and_its_restarts_are_printed);
	suite_add_tcase(suite, tcase);
	return suite;
}
