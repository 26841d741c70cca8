/*
 * check_target_table_events.c: single processes that begin, turn into something else and end
 * between two scans, over a /proc made of files.
 */
#include "target_table_rig.h"

#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

Suite *target_table_events_suite(void);

static struct target_table_rig rig;

static void setup(void)
{
	target_table_rig_setup(&rig);
}

static void teardown(void)
{
	target_table_rig_teardown(&rig);
}

#define GROUP "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}"
#define SINGLE "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}"

/* What the files of appear() say: ten ticks. */
#define USED_NS (10 * NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK))

static struct sample used(uint64_t cpu_ns)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_ns);

	return sample;
}

static void join(int pid, uint64_t start, bool whole)
{
	struct process_observation seen = {
		.pid = pid, .start_ticks = start, .comm = "app", .cmdline = "app", .cgroup = "/", .whole = whole
	};

	appear(&rig, pid, start, "/");
	ck_assert_int_eq(target_table_process(rig.table, 0, &seen, 1), 0);
	settle(&rig);
}

/* Of the group, after a tick. 0: none yet. */
static uint64_t group_cpu(void)
{
	const struct sample *sample;

	samplers_tick(rig.samplers);
	sample = source_entry_sample(find(&rig, "g")->sampled.entry);

	return sample_has(sample, SAMPLE_CPU) ? sample->value[SAMPLE_CPU] : 0;
}

/* The end of pid 10, told by pid alone. */
static bool over(const struct sample *counters)
{
	struct target_table_ending ending = { .pid = 10, .counters = *counters };

	return target_table_end(rig.table, &ending);
}

START_TEST(a_member_that_has_just_begun_counts_as_a_whole)
{
	make(&rig, 8, GROUP);
	join(10, 500, false);
	ck_assert_uint_eq(group_cpu(), 0);
	join(11, 501, true);
	ck_assert_uint_eq(group_cpu(), USED_NS);
}
END_TEST

START_TEST(what_a_member_used_until_its_end_is_added_when_it_is_back)
{
	struct sample end = used(USED_NS + 70);

	make(&rig, 8, GROUP);
	join(10, 500, true);
	ck_assert(target_table_knows(rig.table, 10));
	ck_assert(target_table_is_member(rig.table, 0, 10));
	ck_assert(over(&end));
	ck_assert_uint_eq(counts(&rig).ended, 1);
	ck_assert_uint_eq(group_cpu(), USED_NS);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).ended, 0);
	ck_assert_uint_eq(group_cpu(), USED_NS + 70);
	ck_assert_uint_eq(group_cpu(), USED_NS + 70);
	ck_assert(!target_table_knows(rig.table, 10));
}
END_TEST

START_TEST(an_end_below_the_last_sample_takes_nothing_away)
{
	struct sample end = used(1);

	make(&rig, 8, GROUP);
	join(10, 500, true);
	over(&end);
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(group_cpu(), USED_NS);
}
END_TEST

START_TEST(one_who_was_no_member_is_credited_as_a_whole)
{
	const struct target_member when = { .pid = 11, .from_ns = 5, .to_ns = 9 };
	struct sample end = used(500);

	make(&rig, 8, GROUP);
	settle(&rig);
	ck_assert(!over(&end));
	ck_assert(target_table_credit(rig.table, 0, &when, &end, SOURCE_END_EXACT));
	ck_assert(target_table_credit(rig.table, 0, &when, &end, SOURCE_END_EXACT));
	ck_assert_uint_eq(group_cpu(), 1000);
}
END_TEST

START_TEST(an_entry_without_a_group_credits_nobody)
{
	struct sample end = used(500);

	make(&rig, 8, SINGLE);
	ck_assert(!target_table_credit(rig.table, 0, &(struct target_member){ .pid = 11 }, &end, SOURCE_END_EXACT));
}
END_TEST

START_TEST(one_that_matches_no_more_leaves_and_may_come_back_at_once)
{
	struct process_observation seen = { .pid = 10, .start_ticks = 500 };
	struct sample now = { 0 };

	make(&rig, 8, SINGLE);
	join(10, 500, false);
	ck_assert(target_table_was_other(rig.table, 0, 10, 500, "other"));
	ck_assert(!target_table_was_other(rig.table, 0, 10, 500, "app"));
	ck_assert(target_table_unmatch(rig.table, 0, &seen, &now));
	ck_assert(!target_table_unmatch(rig.table, 0, &seen, &now));
	ck_assert_uint_eq(counts(&rig).leaving, 1);
	ck_assert(!target_table_process_known(rig.table, 0, 10, 500, 1));
	join(10, 500, false);
	ck_assert_uint_eq(counts(&rig).targets, 1);
	ck_assert_uint_eq(counts(&rig).found, 2);
	ck_assert_uint_eq(counts(&rig).left, 1);
}
END_TEST

START_TEST(one_that_goes_over_counts_once)
{
	struct process_observation seen = {
		.pid = 10, .start_ticks = 500, .comm = "app", .cmdline = "", .cgroup = "/"
	};
	struct sample now = used(USED_NS - 30), end = used(USED_NS + 500);

	make(&rig, 8,
	     "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}, {\"name\": \"h\", \"comm\": "
	     "\"app\", \"per\": \"group\"}]}");
	join(10, 500, false);
	ck_assert_uint_eq(group_cpu(), 0);
	ck_assert(target_table_unmatch(rig.table, 0, &seen, &now));
	seen.since = &now;
	ck_assert_int_eq(target_table_process(rig.table, 1, &seen, 1), 0);
	settle(&rig);
	ck_assert_uint_eq(group_cpu(), 0); /* it was seen beyond that already */
	ck_assert_uint_eq(source_entry_sample(find(&rig, "h")->sampled.entry)->value[SAMPLE_CPU], 30);
	ck_assert(over(&end));
	target_table_sweep(rig.table, 2);
	settle(&rig);
	ck_assert_uint_eq(group_cpu(), 0);
	ck_assert_uint_eq(source_entry_sample(find(&rig, "h")->sampled.entry)->value[SAMPLE_CPU], 530);
	ck_assert_uint_eq(counts(&rig).ended, 0);
}
END_TEST

START_TEST(one_that_goes_over_is_counted_until_then_where_it_was)
{
	struct process_observation seen = { .pid = 10, .start_ticks = 500 };
	struct sample now = used(USED_NS + 40), end = used(USED_NS + 500);

	make(&rig, 8, GROUP);
	join(10, 500, true);
	ck_assert(target_table_unmatch(rig.table, 0, &seen, &now));
	over(&end); /* what it used since is not this group's */
	settle(&rig);
	ck_assert_uint_eq(group_cpu(), USED_NS + 40);
	ck_assert_uint_eq(counts(&rig).ended, 0);
}
END_TEST

START_TEST(what_is_fetched_is_kept_until_it_is_settled)
{
	struct sample end = used(USED_NS + 5);

	make(&rig, 8, GROUP);
	join(10, 500, true);
	target_table_sweep(rig.table, 2);
	samplers_tick(rig.samplers);
	ck_assert(target_table_fetch(rig.table));
	ck_assert(over(&end)); /* told late, but in time */
	target_table_settle(rig.table);
	ck_assert(!target_table_knows(rig.table, 10));
	ck_assert_uint_eq(group_cpu(), USED_NS + 5);
}
END_TEST

/* Its successor with that pid came and went before the sampler found out. */
START_TEST(who_has_ended_does_not_end_again)
{
	struct process_observation seen = { .pid = 10, .start_ticks = 500 };
	struct sample end = used(USED_NS + 70), other = used(USED_NS + 5000);

	make(&rig, 8, GROUP);
	join(10, 500, true);
	ck_assert(over(&end));
	ck_assert(!over(&other));
	ck_assert(target_table_unmatch(rig.table, 0, &seen, &other)); /* seen in its place, under another name */
	ck_assert(!over(&other));
	settle(&rig);
	ck_assert_uint_eq(counts(&rig).ended, 0);
	ck_assert_uint_eq(group_cpu(), USED_NS + 70);
}
END_TEST

START_TEST(an_end_is_of_the_one_that_is_meant)
{
	struct target_table_ending ending = { .pid = 10, .counters = used(USED_NS + 70) };

	make(&rig, 8, GROUP);
	join(10, 500, true);
	ending.alive_ticks = 500;
	ck_assert(!target_table_end(rig.table, &ending));
	ending.alive_ticks = 0;
	ending.start_ticks = 501;
	ck_assert(!target_table_end(rig.table, &ending));
	ck_assert_uint_eq(counts(&rig).ended, 0);
	ending.start_ticks = 500;
	ending.comm = "other";
	ck_assert(!target_table_end(rig.table, &ending));
	ending.comm = "app";
	ck_assert(target_table_end(rig.table, &ending));
	ck_assert_uint_eq(counts(&rig).ended, 1);
}
END_TEST

START_TEST(a_member_that_is_seen_under_another_name_ends_under_that)
{
	struct process_observation seen = {
		.pid = 11, .start_ticks = 501, .comm = "other", .cmdline = "app", .cgroup = "/"
	};
	struct target_table_ending ending = { .pid = 11, .comm = "other", .counters = used(USED_NS + 70) };

	make(&rig, 8, GROUP);
	join(10, 500, true); /* by which the group is called */
	join(11, 501, true);
	ck_assert(target_table_is_outdated(rig.table, 0, &seen));
	ck_assert(!target_table_end(rig.table, &ending));
	ck_assert_int_eq(target_table_describe(rig.table, 0, &seen), 0);
	ck_assert(!target_table_is_outdated(rig.table, 0, &seen));
	ck_assert(target_table_end(rig.table, &ending));
}
END_TEST

Suite *target_table_events_suite(void)
{
	Suite *suite = suite_create("target_table_events");
	TCase *tcase = tcase_create("events");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_member_that_has_just_begun_counts_as_a_whole);
	tcase_add_test(tcase, what_a_member_used_until_its_end_is_added_when_it_is_back);
	tcase_add_test(tcase, an_end_below_the_last_sample_takes_nothing_away);
	tcase_add_test(tcase, one_who_was_no_member_is_credited_as_a_whole);
	tcase_add_test(tcase, an_entry_without_a_group_credits_nobody);
	tcase_add_test(tcase, one_that_matches_no_more_leaves_and_may_come_back_at_once);
	tcase_add_test(tcase, one_that_goes_over_counts_once);
	tcase_add_test(tcase, one_that_goes_over_is_counted_until_then_where_it_was);
	tcase_add_test(tcase, who_has_ended_does_not_end_again);
	tcase_add_test(tcase, an_end_is_of_the_one_that_is_meant);
	tcase_add_test(tcase, a_member_that_is_seen_under_another_name_ends_under_that);
	tcase_add_test(tcase, what_is_fetched_is_kept_until_it_is_settled);
	suite_add_tcase(suite, tcase);

	return suite;
}
