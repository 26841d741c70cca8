/* check_health.c: what is said about the sampler: when a condition begins, when it ends, and not in between. */
#include "health.h"
#include "scene.h"

#include <errno.h>

Suite *health_suite(void);

static struct scene_log log_file;
static struct health health;
static struct stats stats;
static mono_t now;

static void setup(void)
{
	log_file = scene_log_catch();
	health = (struct health){ 0 };
	stats = (struct stats){ .collection_rate = 10 * NS_PER_MS };
	now = (mono_t){ 1000 * NS_PER_S };
}

static void teardown(void)
{
	scene_log_release(&log_file);
}

/* A span goes by in which so many of 1,000 slots were taken. */
static void span(uint64_t taken)
{
	now.ns += HEALTH_SPAN_NS;
	stats.total_slots += 1000;
	stats.total_snapshots += taken;
	stats.missed_slots += 1000 - taken;
	stats.cheap_last_collection_nanos = now.ns;
	health_judge(&health, &stats, now);
}

/* What was said since the last time holds part; "": nothing was said. */
static void said(const char *part)
{
	char *text = scene_log_text(&log_file);
	bool right = *part ? strstr(text, part) != NULL : *text == '\0';

	ck_assert_msg(right, "expected \"%s\", it said: %s", part, text);
	free(text);
}

START_TEST(a_condition_is_said_when_it_begins_and_when_it_ends)
{
	health_judge(&health, &stats, now);
	span(1000);
	said("");
	span(900);
	said("capture rate is 90.00 %");
	span(850);
	span(900);
	said("");
	span(1000);
	said("sampling has recovered: capture rate is 100.00 %");
	span(1000);
	said("");
}
END_TEST

START_TEST(nothing_is_judged_before_a_span_is_over)
{
	/* The very first ticks after the start are late. */
	stats.total_slots = 2;
	stats.total_snapshots = 1;
	stats.missed_slots = 1;
	stats.total_sleep_timing_error = 10 * NS_PER_MS;
	health_judge(&health, &stats, now);
	said("");
	now.ns += NS_PER_S;
	health_judge(&health, &stats, now);
	said("");
	span(1000);
	said("");
}
END_TEST

START_TEST(a_warning_names_cause_and_remedy)
{
	struct verdict verdicts[VERDICT_KINDS];
	static const struct stats nothing;

	health_judge(&health, &stats, now);
	span(500);
	stats_verdicts(&stats, &nothing, verdicts);
	char *text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, verdicts[VERDICT_CAPTURE_RATE].cause));
	ck_assert_ptr_nonnull(strstr(text, verdicts[VERDICT_CAPTURE_RATE].remedy));
	free(text);
}
END_TEST

START_TEST(slowing_down_is_said_for_each_step_and_once_when_it_is_over)
{
	health_slowdown(&health, 1, 0.01);
	said("");
	health_slowdown(&health, 2, 0.2);
	said("2 times slower");
	health_slowdown(&health, 2, 0.2);
	said("");
	health_slowdown(&health, 4, 0.2);
	said("4 times slower");
	health_slowdown(&health, 2, 0.01);
	said("");
	health_slowdown(&health, 1, 0.01);
	said("sampling as configured");
	health_slowdown(&health, 1, 0.01);
	said("");
}
END_TEST

START_TEST(targets_that_cannot_be_watched_are_said_once)
{
	struct discovery_state state = { 0 };

	health_discovery(&health, &state);
	said("");
	state.roster.refused = 3;
	health_discovery(&health, &state);
	said("max_targets");
	health_discovery(&health, &state);
	said("");
	state.roster.failed = 2;
	state.roster.last_error = -EMFILE;
	health_discovery(&health, &state);
	said("Too many open files");
	state.unreadable = 5;
	health_discovery(&health, &state);
	said("5 processes may not be looked at");
	state.error = -EMFILE;
	health_discovery(&health, &state);
	said("stopped half-way");
	health_discovery(&health, &state);
	said("");
	state.error = 0;
	health_discovery(&health, &state);
	said("new targets are found again");
}
END_TEST

START_TEST(the_last_words_are_about_the_whole_run)
{
	health_judge(&health, &stats, now);
	for (int i = 0; i < 20; i++)
		span(1000);
	span(900); /* bad for a while, not on the whole */
	said("capture rate is 90.00 %");
	health_summary(&health, &stats);
	said("capture rate was bad for a while (1 times)");
	health_summary(&health, &stats);
	said("20900 of 21000 snapshots");

	stats = (struct stats){ .collection_rate = NS_PER_MS, .total_slots = 1000, .total_snapshots = 500 };
	health_summary(&health, &stats);
	said("over the whole run: capture rate is 50.00 %");
}
END_TEST

START_TEST(a_run_without_a_tick_has_nothing_to_say)
{
	health_summary(&health, &stats);
	said("0 of 0 snapshots");
}
END_TEST

Suite *health_suite(void)
{
	Suite *suite = suite_create("health");
	TCase *tcase = tcase_create("log");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_condition_is_said_when_it_begins_and_when_it_ends);
	tcase_add_test(tcase, nothing_is_judged_before_a_span_is_over);
	tcase_add_test(tcase, a_warning_names_cause_and_remedy);
	tcase_add_test(tcase, slowing_down_is_said_for_each_step_and_once_when_it_is_over);
	tcase_add_test(tcase, targets_that_cannot_be_watched_are_said_once);
	tcase_add_test(tcase, the_last_words_are_about_the_whole_run);
	tcase_add_test(tcase, a_run_without_a_tick_has_nothing_to_say);
	suite_add_tcase(suite, tcase);

	return suite;
}
