/*
 * check_health.c: what is said about the sampler: when a condition begins, when it ends, and not in
 * between.
 */
#include "daemon/service/health/health.h"
#include "journal.h"
#include "daemon/engine/base/log.h"
#include "scene.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/process_events.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/source/source.h"

#include <sys/resource.h>
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
	health_judge(&health, &stats, 1, now);
}

/* What was said since the last time holds part; "": nothing was said. */
static void said(const char *part)
{
	char *text = scene_log_text(&log_file);
	bool right = *part ? strstr(text, part) != NULL : *text == '\0';

	ck_assert_msg(right, "expected \"%s\", it said: %s", part, text);
	free(text);
}

/*
 * A span in which one of three threads took so many of 1,000 slots, and the others all of theirs.
 */
static void span_of_three(struct stats threads[3], size_t slow, uint64_t taken)
{
	now.ns += HEALTH_SPAN_NS;
	for (size_t i = 0; i < 3; i++) {
		threads[i].collection_rate = 10 * NS_PER_MS;
		threads[i].total_slots += 1000;
		threads[i].total_snapshots += i == slow ? taken : 1000;
		threads[i].cheap_last_collection_nanos = now.ns;
	}
	health_judge(&health, threads, 3, now);
}

START_TEST(one_slow_thread_is_not_averaged_away)
{
	struct stats threads[3] = { 0 };

	health_judge(&health, threads, 3, now);
	span_of_three(threads, 1, 1000);
	said("");
	/* Over all of them it would be 99.33 %, which is good. */
	span_of_three(threads, 1, 980);
	said("sampling is degraded: capture rate of thread 2 of 3 is 98.00 %");
	span_of_three(threads, 2, 400);
	said("sampling is degraded further: capture rate of thread 3 of 3 is 40.00 %");
	for (int i = 0; i < 6; i++)
		span_of_three(threads, 0, 1000);
	said("sampling has recovered: capture rate is 100.00 %");
}
END_TEST

START_TEST(a_condition_is_said_when_it_begins_and_when_it_ends)
{
	health_judge(&health, &stats, 1, now);
	span(1000);
	said("");
	span(900);
	said("sampling is degraded: capture rate is 90.00 %");
	span(950);
	span(900);
	said("");
	span(1000);
	span(1000);
	said("");
	span(1000);
	said("sampling has recovered: capture rate is 100.00 %; it was bad for 30 of 30 s");
	span(1000);
	said("");
}
END_TEST

START_TEST(each_level_is_said_once)
{
	health_judge(&health, &stats, 1, now);
	span(980);
	said("sampling is degraded: capture rate is 98.00 %");
	span(850);
	said("sampling is degraded further: capture rate is 85.00 %");
	span(980);
	span(850);
	said("");
	span(300);
	said("sampling is degraded further: capture rate is 30.00 %");
	span(100);
	said("");
}
END_TEST

START_TEST(what_comes_and_goes_is_one_condition)
{
	health_judge(&health, &stats, 1, now);
	span(900);
	said("sampling is degraded");
	for (int i = 0; i < 100; i++) {
		span(1000);
		span(900);
	}
	said("");
	ck_assert_uint_eq(health.episodes[VERDICT_CAPTURE_RATE], 1);
}
END_TEST

START_TEST(each_verdict_has_its_own_kind_of_entry)
{
	static const enum message kinds[VERDICT_KINDS] = { MESSAGE_CAPTURE_RATE_LOW, MESSAGE_SLEEP_ERROR_HIGH,
							   MESSAGE_COLLECTION_SLOW, MESSAGE_BACKOFF };
	static const char *const ratios[VERDICT_KINDS] = { "0.5", "0.2", "0.3", "0.9" };
	struct journal journal = journal_open();

	health_judge(&health, &stats, 1, now);
	stats.total_sleep_timing_error = 500 * stats.collection_rate / 5;
	stats.total_collection_timing_error = 500 * stats.collection_rate * 3 / 10;
	stats.total_backoff_sleep = 1000 * NS_PER_S;
	stats.cheap_start_nanos = now.ns;
	span(500);
	stats.total_backoff_sleep = 0;
	for (int i = 0; i < VERDICT_KINDS; i++) {
		ck_assert(journal_next(&journal));
		journal_expect(&journal, "MESSAGE_ID", message_id(kinds[i]));
		journal_expect(&journal, "SPIKEWATCH_STATE", "begin");
		if (i != VERDICT_BACKOFF)
			journal_expect(&journal, "SPIKEWATCH_VALUE", ratios[i]);
		journal_expect(&journal, "CAPTURE_RATE", i == VERDICT_CAPTURE_RATE ? "0.5000" : NULL);
		journal_expect(&journal, "SPIKEWATCH_LASTED_USEC", NULL);
	}
	ck_assert(!journal_next(&journal));
	for (int i = 0; i < 3; i++)
		span(1000);
	for (int i = 0; i < VERDICT_KINDS; i++) {
		ck_assert(journal_next(&journal));
		journal_expect(&journal, "MESSAGE_ID", message_id(kinds[i]));
		journal_expect(&journal, "SPIKEWATCH_STATE", "end");
		journal_expect(&journal, "SPIKEWATCH_COUNT", "1");
		journal_expect(&journal, "SPIKEWATCH_LASTED_USEC", "10000000");
	}
	ck_assert(!journal_next(&journal));
	journal_close(&journal);
}
END_TEST

START_TEST(nothing_is_judged_before_a_span_is_over)
{
	/* The very first ticks after the start are late. */
	stats.total_slots = 2;
	stats.total_snapshots = 1;
	stats.missed_slots = 1;
	stats.total_sleep_timing_error = 10 * NS_PER_MS;
	health_judge(&health, &stats, 1, now);
	said("");
	now.ns += NS_PER_S;
	health_judge(&health, &stats, 1, now);
	said("");
	span(1000);
	said("");
}
END_TEST

START_TEST(a_warning_names_cause_and_remedy)
{
	struct verdict verdicts[VERDICT_KINDS];
	static const struct stats nothing;

	health_judge(&health, &stats, 1, now);
	span(500);
	stats_verdicts(&stats, &nothing, verdicts);
	char *text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, verdicts[VERDICT_CAPTURE_RATE].cause));
	ck_assert_ptr_nonnull(strstr(text, verdicts[VERDICT_CAPTURE_RATE].remedy));
	free(text);
}
END_TEST

/* So much time goes by, in which the sampler did well. */
static void pass(uint64_t seconds)
{
	for (uint64_t i = 0; i < seconds; i++) {
		now.ns += NS_PER_S;
		health_judge(&health, &stats, 1, now);
	}
}

START_TEST(backing_off_is_said_with_how_late_an_onset_may_be)
{
	pass(1);
	health_budget(&health, 100 * NS_PER_MS, 1, 0.12);
	said("onset of a spike may be seen up to 100 ms late");
	health_budget(&health, 100 * NS_PER_MS, 1, 0.09);
	said("");
	health_budget(&health, 100 * NS_PER_MS, 2, 0.2);
	said("2 times slower");
	pass(60);
	health_budget(&health, 0, 1, 0.01);
	said("sampling as configured");
}
END_TEST

START_TEST(slowing_down_is_said_for_each_step_and_once_when_it_is_over)
{
	pass(1);
	health_budget(&health, 0, 1, 0.01);
	said("");
	health_budget(&health, 0, 2, 0.2);
	said("2 times slower");
	health_budget(&health, 0, 2, 0.2);
	said("");
	health_budget(&health, 0, 4, 0.2);
	said("4 times slower");
	pass(20);
	health_budget(&health, 0, 2, 0.01);
	health_budget(&health, 0, 1, 0.01);
	health_budget(&health, 0, 4, 0.2);
	said("");
	pass(29);
	health_budget(&health, 0, 1, 0.01);
	said("");
	pass(1);
	health_budget(&health, 0, 1, 0.01);
	said("sampling as configured, after 20 s");
	health_budget(&health, 0, 1, 0.01);
	said("");
}
END_TEST

START_TEST(targets_that_cannot_be_watched_are_said_once)
{
	struct discovery_state state = { 0 };

	pass(1);
	health_discovery(&health, &state);
	said("");
	state.target_table.refused = 4;
	health_discovery(&health, &state);
	said("max_targets allows: 4 are not watched");
	state.target_table.refused = 7;
	health_discovery(&health, &state);
	said("");
	state.target_table.refused = 8;
	health_discovery(&health, &state);
	said("8 are not watched");
	state.target_table.failed = 2;
	state.target_table.last_error = -EMFILE;
	health_discovery(&health, &state);
	said("Too many open files");
	state.unreadable = 5;
	health_discovery(&health, &state);
	said("5 processes cannot be read");
	state.error = -EMFILE;
	health_discovery(&health, &state);
	said("the scan for targets was not completed");
	pass(5);
	health_discovery(&health, &state);
	said("");
	state.error = 0;
	pass(30);
	health_discovery(&health, &state);
	said("new targets are found again, after 5 s");
}
END_TEST

START_TEST(processes_without_descriptors_are_said_with_the_limit)
{
	struct discovery_state state = { .target_table = { .processes = 1000 } };
	struct rlimit limit;
	char expected[128];

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	pass(1);
	health_discovery(&health, &state);
	said("");
	state.target_table.cold = 300;
	health_discovery(&health, &state);
	snprintf(expected, sizeof(expected), "300 of 1000 processes are read without descriptors of their own, those");
	said(expected);
	state.target_table.cold = 310;
	health_discovery(&health, &state);
	said("");
	state.target_table.cold = 600;
	health_discovery(&health, &state);
	snprintf(expected, sizeof(expected),
		 "the limit of open files is %llu. It costs more CPU when they run; raise it with LimitNOFILE=%llu.",
		 (unsigned long long)limit.rlim_cur,
		 (unsigned long long)(limit.rlim_cur + 5 * 600 + 1023) / 1024 * 1024);
	said(expected);
	pass(5);
	health_discovery(&health, &state);
	said("");
	state.target_table.cold = 0;
	pass(30);
	health_discovery(&health, &state);
	said("descriptors of their own again, after 5 s");
}
END_TEST

START_TEST(how_new_processes_are_found_is_said_once_and_when_it_changes)
{
	struct discovery_state state = { 0 };

	pass(1);
	health_discovery(&health, &state);
	said(""); /* the thread has not said yet */
	state.listened = true;
	snprintf(state.source_why, sizeof(state.source_why), "it is not permitted");
	health_discovery(&health, &state);
	said("found by rescans only (sampling.rescan_interval): it is not permitted");
	health_discovery(&health, &state);
	said("");
	state.source = PROCESS_EVENTS_CONNECTOR;
	state.exit_totals = true;
	state.source_why[0] = '\0';
	health_discovery(&health, &state);
	said("found at once, through the kernel's proc connector, with their total usage");
	health_discovery(&health, &state);
	said("");
}
END_TEST

START_TEST(processes_that_come_too_fast_are_said_as_a_condition)
{
	struct discovery_state state = { 0 };

	pass(1);
	health_discovery(&health, &state);
	for (int i = 0; i < 5; i++) {
		state.storms++;
		pass(1);
		health_discovery(&health, &state);
		said(i == 0 ? "faster than they may be read" : "");
	}
	pass(30);
	health_discovery(&health, &state);
	said("slowly enough to be read one by one again, after 4 s");
}
END_TEST

START_TEST(rules_that_fall_behind_are_said_with_how_many_pages)
{
	health_rules_behind(&health, 0, now);
	said("");
	health_rules_behind(&health, 3, now);
	said("3 pages were never judged");
	pass(1);
	health_rules_behind(&health, 9, now);
	said("");
	health_rules_behind(&health, 10, now);
	said("10 pages were never judged");
	health_rules_behind(&health, 99, now);
	said("");
	pass(29);
	health_rules_behind(&health, 99, now);
	said("");
	pass(1);
	health_rules_behind(&health, 99, now);
	said("keep up again: 99 pages of the ring were never judged, over 1 s");
	health_rules_behind(&health, 99, now);
	health_rules_behind(&health, 100, now);
	said(": 1 pages were never judged");
}
END_TEST

/*
 * One look at the clocks after so much time, of which some was slept through; the wall clock is
 * stepped meanwhile.
 */
static void tick(uint64_t passed_ns, uint64_t asleep_ns, int64_t stepped_ns)
{
	static uint64_t wall_ns = 1700000000 * NS_PER_S, boot_ns = 5000 * NS_PER_S;

	now.ns += passed_ns;
	boot_ns += passed_ns + asleep_ns;
	wall_ns += passed_ns + asleep_ns + (uint64_t)stepped_ns;
	health_clock(&health, now, (wall_t){ wall_ns }, boot_ns);
}

START_TEST(a_step_of_the_wall_clock_is_said_with_its_size)
{
	tick(NS_PER_S, 0, 0);
	tick(NS_PER_S, 0, 0);
	said("");
	tick(NS_PER_S, 0, 3600 * (int64_t)NS_PER_S);
	said("the wall clock was stepped by +3600.000 s");
	tick(NS_PER_S, 0, 0);
	said("");
	tick(61 * NS_PER_S, 0, -20 * (int64_t)NS_PER_S);
	said("the wall clock was stepped by -20.000 s");
	ck_assert_uint_eq(health.steps.times, 2);
	ck_assert_int_eq(health.steps.last_ns, -20 * (int64_t)NS_PER_S);
	ck_assert_uint_eq(health.suspends.times, 0);
}
END_TEST

START_TEST(slewing_and_leap_seconds_are_no_steps)
{
	tick(NS_PER_S, 0, 0);
	tick(NS_PER_S, 0, (int64_t)NS_PER_S);
	tick(NS_PER_S, 0, -(int64_t)NS_PER_S);
	for (int i = 0; i < 100; i++)
		tick(NS_PER_S, 0, NS_PER_S / 10);      /* in all 10 s */
	tick(60 * NS_PER_S, 0, 5 * (int64_t)NS_PER_S); /* the daemon was stopped for a minute */
	said("");
	ck_assert_uint_eq(health.steps.times, 0);
	tick(NS_PER_S, 0, 1101 * (int64_t)NS_PER_MS);
	said("stepped by +1.101 s");
}
END_TEST

START_TEST(a_suspend_is_said_and_is_no_step)
{
	tick(NS_PER_S, 0, 0);
	tick(NS_PER_S, 7200 * NS_PER_S, 0);
	said("the machine was suspended for 7200 s");
	ck_assert_uint_eq(health.suspends.times, 1);
	ck_assert_uint_eq(health.steps.times, 0);
	tick(61 * NS_PER_S, 100 * NS_PER_S, 100 * (int64_t)NS_PER_S);
	char *text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, "suspended for 100 s"));
	ck_assert_ptr_nonnull(strstr(text, "stepped by +100.000 s"));
	free(text);
}
END_TEST

START_TEST(a_clock_that_is_stepped_all_the_time_is_said_once_a_minute)
{
	tick(NS_PER_S, 0, 0);
	tick(NS_PER_S, 0, 2 * (int64_t)NS_PER_S);
	said("stepped by +2.000 s");
	for (int i = 0; i < 59; i++)
		tick(NS_PER_S, 0, 2 * (int64_t)NS_PER_S);
	said("");
	tick(NS_PER_S, 0, 0);
	said("stepped 59 times, the last time by +2.000 s");
	tick(120 * NS_PER_S, 0, 0);
	said("");
}
END_TEST

START_TEST(a_thread_that_is_stuck_is_said_and_when_it_goes_on)
{
	health_stuck(&health, "sampler", 0, now);
	health_stuck(&health, "discovery", 0, now);
	said("");
	health_stuck(&health, "sampler", 11 * NS_PER_S, now);
	said("the sampler thread has given no sign of life for 11 s");
	health_stuck(&health, "sampler", 12 * NS_PER_S, now);
	health_stuck(&health, "discovery", 0, now);
	said("");
	health_stuck(&health, "sampler", 16 * NS_PER_S, now);
	said("for 16 s");
	health_stuck(&health, "sampler", 0, now);
	said("the sampler thread continues, after 16 s");
	health_stuck(&health, "collector", 121 * NS_PER_S, now);
	said("the collector thread has given no sign of life for 121 s: incidents are not written meanwhile");
	health_stuck(&health, "sampler", 0, now);
	said("");
	health_stuck(&health, "sampler", 11 * NS_PER_S, now);
	said("systemd gets no keep-alive messages");
}
END_TEST

START_TEST(discovery_that_is_stuck_is_said_with_the_process_that_it_hangs_in)
{
	struct discovery_state state = { 0 };

	health_stuck(&health, "discovery", 11 * NS_PER_S, now);
	said("for 11 s: new targets are not found meanwhile; watched ones are still recorded");
	health_stuck(&health, "discovery", 0, now);
	said("the discovery thread continues");
	state.reading = 812;
	health_discovery(&health, &state);
	health_stuck(&health, "discovery", 11 * NS_PER_S, now);
	said("for 11 s: it is blocked in a read of the files of process 812. New targets are not found meanwhile");
}
END_TEST

START_TEST(the_last_words_are_about_the_whole_run)
{
	health_judge(&health, &stats, 1, now);
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
	tcase_add_test(tcase, one_slow_thread_is_not_averaged_away);
	tcase_add_test(tcase, each_level_is_said_once);
	tcase_add_test(tcase, what_comes_and_goes_is_one_condition);
	tcase_add_test(tcase, each_verdict_has_its_own_kind_of_entry);
	tcase_add_test(tcase, rules_that_fall_behind_are_said_with_how_many_pages);
	tcase_add_test(tcase, a_step_of_the_wall_clock_is_said_with_its_size);
	tcase_add_test(tcase, slewing_and_leap_seconds_are_no_steps);
	tcase_add_test(tcase, a_suspend_is_said_and_is_no_step);
	tcase_add_test(tcase, a_clock_that_is_stepped_all_the_time_is_said_once_a_minute);
	tcase_add_test(tcase, a_thread_that_is_stuck_is_said_and_when_it_goes_on);
	tcase_add_test(tcase, discovery_that_is_stuck_is_said_with_the_process_that_it_hangs_in);
	tcase_add_test(tcase, nothing_is_judged_before_a_span_is_over);
	tcase_add_test(tcase, a_warning_names_cause_and_remedy);
	tcase_add_test(tcase, backing_off_is_said_with_how_late_an_onset_may_be);
	tcase_add_test(tcase, slowing_down_is_said_for_each_step_and_once_when_it_is_over);
	tcase_add_test(tcase, targets_that_cannot_be_watched_are_said_once);
	tcase_add_test(tcase, processes_without_descriptors_are_said_with_the_limit);
	tcase_add_test(tcase, how_new_processes_are_found_is_said_once_and_when_it_changes);
	tcase_add_test(tcase, processes_that_come_too_fast_are_said_as_a_condition);
	tcase_add_test(tcase, the_last_words_are_about_the_whole_run);
	tcase_add_test(tcase, a_run_without_a_tick_has_nothing_to_say);
	suite_add_tcase(suite, tcase);

	return suite;
}
