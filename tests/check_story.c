/* check_story.c: what an incident's sentences say of what was recorded. */
#include "story.h"

#include "clock.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *story_suite(void);

static struct incident incident;
static struct incidentload_samples samples;

/* Recorded from so long before the firing, of the 30 s that were wanted. */
static char *told(int64_t got_from_ns)
{
	char *text = NULL;
	size_t len;
	FILE *file = open_memstream(&text, &len);

	incident_init(&incident, "0");
	memset(&samples, 0, sizeof(samples));
	samples.report.complete = true;
	incident.coverage = (struct slice_coverage){ .want_before_ns = 30 * NS_PER_S,
						     .want_after_ns = 3 * NS_PER_S,
						     .got_from_ns = got_from_ns,
						     .got_to_ns = 3 * (int64_t)NS_PER_S,
						     .capture_rate = 1 };
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

START_TEST(a_recording_that_goes_back_far_enough_is_not_spoken_of)
{
	char *text = told(-29 * (int64_t)NS_PER_S - 100000000);

	ck_assert_msg(strstr(text, "Nothing was lost.") && !strstr(text, "recording begins"), "%s", text);
	free(text);
}
END_TEST

Suite *story_suite(void)
{
	Suite *suite = suite_create("story");
	TCase *tcase = tcase_create("story");

	tcase_add_test(tcase, what_was_before_the_recorder_is_not_called_lost);
	tcase_add_test(tcase, a_recording_that_goes_back_far_enough_is_not_spoken_of);
	suite_add_tcase(suite, tcase);
	return suite;
}
