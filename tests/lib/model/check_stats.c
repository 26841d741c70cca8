/* Verdicts on the sampler's own work, and its counters as JSON. */
#include "lib/model/sample.h"

#include "lib/base/base.h"

#include <check.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INTERVAL (10 * NS_PER_MS)

static const struct stats none;

/* A run of so many slots of which all were taken, without any error. */
static struct stats good_run(uint64_t slots)
{
	return (struct stats){
		.collection_rate = INTERVAL,
		.cheap_start_nanos = 5 * NS_PER_S,
		.cheap_last_collection_nanos = 5 * NS_PER_S + (slots - 1) * INTERVAL,
		.total_slots = slots,
		.total_snapshots = slots,
	};
}

static void assert_only_bad(const struct stats *now, int expected)
{
	struct verdict verdicts[VERDICT_KINDS];

	stats_verdicts(now, &none, verdicts);
	for (int kind = 0; kind < VERDICT_KINDS; kind++)
		ck_assert_msg(verdicts[kind].bad == (kind == expected), "%s: %g", verdicts[kind].what,
			      verdicts[kind].ratio);
}

START_TEST(a_perfect_run_is_good)
{
	struct stats now = good_run(1000);
	struct verdict verdicts[VERDICT_KINDS];

	assert_only_bad(&now, -1);
	stats_verdicts(&now, &none, verdicts);
	ck_assert_double_eq(verdicts[VERDICT_CAPTURE_RATE].ratio, 1.0);
	ck_assert_double_eq(verdicts[VERDICT_SLEEP_ERROR].ratio, 0.0);
}
END_TEST

START_TEST(nothing_is_bad_before_the_first_slot)
{
	struct stats now = { .collection_rate = INTERVAL,
			     .total_sleep_timing_error = 1,
			     .total_backoff_sleep = NS_PER_S };

	assert_only_bad(&now, -1);
	assert_only_bad(&none, -1);
}
END_TEST

START_TEST(capture_rate_is_snapshots_of_slots)
{
	struct stats now = good_run(1000);
	struct verdict verdicts[VERDICT_KINDS];

	now.total_snapshots = 990;
	assert_only_bad(&now, -1);
	now.total_snapshots = 989;
	assert_only_bad(&now, VERDICT_CAPTURE_RATE);
	stats_verdicts(&now, &none, verdicts);
	ck_assert_double_le(fabs(verdicts[VERDICT_CAPTURE_RATE].ratio - 0.989), 1e-9);
}
END_TEST

START_TEST(a_run_without_any_snapshot_is_bad)
{
	struct stats now = good_run(10);

	now.total_snapshots = 0;
	assert_only_bad(&now, VERDICT_CAPTURE_RATE);
}
END_TEST

/* In a run of 1,000 intervals: the sums that are just good. */
START_TEST(each_sum_is_held_against_the_run)
{
	static const struct {
		size_t at; /* in struct stats */
		uint64_t good;
		enum verdict_kind kind;
	} cases[] = {
		{ offsetof(struct stats, total_sleep_timing_error), 100 * INTERVAL, VERDICT_SLEEP_ERROR },
		{ offsetof(struct stats, total_collection_timing_error), 100 * INTERVAL, VERDICT_COLLECTION },
		{ offsetof(struct stats, total_backoff_sleep), 50 * INTERVAL, VERDICT_BACKOFF },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct stats now = good_run(1000);
		uint64_t *sum = (uint64_t *)(void *)((char *)&now + cases[i].at);

		*sum = cases[i].good;
		assert_only_bad(&now, -1);
		*sum += 1000;
		assert_only_bad(&now, (int)cases[i].kind);
	}
}
END_TEST

START_TEST(only_what_happened_since_is_judged)
{
	struct stats since = good_run(1000), now = good_run(2000);
	struct verdict verdicts[VERDICT_KINDS];

	/* A terrible past, a good present. */
	since.total_snapshots = 10;
	since.total_backoff_sleep = 900 * INTERVAL;
	since.total_sleep_timing_error = 900 * INTERVAL;
	now.total_snapshots = 1010;
	now.total_backoff_sleep = since.total_backoff_sleep + 40 * INTERVAL;
	now.total_sleep_timing_error = since.total_sleep_timing_error;

	stats_verdicts(&now, &since, verdicts);
	for (int kind = 0; kind < VERDICT_KINDS; kind++)
		ck_assert_msg(!verdicts[kind].bad, "%s: %g", verdicts[kind].what, verdicts[kind].ratio);
	ck_assert_double_le(fabs(verdicts[VERDICT_BACKOFF].ratio - 0.04), 1e-9);
}
END_TEST

START_TEST(counters_that_started_anew_are_no_disaster)
{
	struct stats since = good_run(5), now = good_run(10);
	struct verdict verdicts[VERDICT_KINDS];

	since.total_sleep_timing_error = since.total_collection_timing_error = since.total_backoff_sleep = 1;
	stats_verdicts(&now, &since, verdicts);
	for (int kind = 0; kind < VERDICT_KINDS; kind++)
		ck_assert(!verdicts[kind].bad);
}
END_TEST

START_TEST(counters_of_several_threads_are_put_together)
{
	struct stats sum = { 0 }, a = good_run(3), b = good_run(5);

	a.threads = b.threads = 1;
	b.cheap_start_nanos = a.cheap_start_nanos + 1000;
	stats_merge(&sum, &a);
	ck_assert_int_eq(memcmp(&sum, &a, sizeof(sum)), 0);
	stats_merge(&sum, &b);
	ck_assert_uint_eq(sum.threads, 2);
	ck_assert_uint_eq(sum.collection_rate, a.collection_rate);
	ck_assert_uint_eq(sum.cheap_start_nanos, a.cheap_start_nanos);
	ck_assert_uint_eq(sum.cheap_last_collection_nanos, b.cheap_last_collection_nanos);
	ck_assert_uint_eq(sum.total_snapshots, a.total_snapshots + b.total_snapshots);
	ck_assert_uint_eq(sum.total_slots, a.total_slots + b.total_slots);
}
END_TEST

START_TEST(backoff_is_a_part_of_the_run_of_all_threads)
{
	struct stats now = good_run(1000);
	struct verdict one[VERDICT_KINDS], two[VERDICT_KINDS];

	now.total_backoff_sleep = 100 * now.collection_rate;
	stats_verdicts(&now, &none, one);
	now.threads = 2;
	stats_verdicts(&now, &none, two);
	ck_assert_double_eq_tol(one[VERDICT_BACKOFF].ratio, 0.1, 0.001);
	ck_assert_double_eq_tol(two[VERDICT_BACKOFF].ratio, 0.05, 0.001);
}
END_TEST

START_TEST(every_verdict_says_what_why_and_what_to_do)
{
	struct verdict verdicts[VERDICT_KINDS];

	stats_verdicts(&none, &none, verdicts);
	for (int kind = 0; kind < VERDICT_KINDS; kind++) {
		ck_assert_uint_gt(strlen(verdicts[kind].what), 0);
		ck_assert_uint_gt(strlen(verdicts[kind].cause), 0);
		ck_assert_uint_gt(strlen(verdicts[kind].remedy), 0);
	}
	ck_assert_double_eq(verdicts[VERDICT_CAPTURE_RATE].threshold, 0.99);
	ck_assert_double_eq(verdicts[VERDICT_SLEEP_ERROR].threshold, 0.10);
	ck_assert_double_eq(verdicts[VERDICT_COLLECTION].threshold, 0.10);
	ck_assert_double_eq(verdicts[VERDICT_BACKOFF].threshold, 0.05);
}
END_TEST

/* A hundred slots of a thousand are missed, which is a second. */
static struct stats bad_run(void)
{
	struct stats now = good_run(1000);

	now.total_snapshots = 900;
	now.missed_slots = 100;
	now.missed_time = NS_PER_S;
	now.run_delay = NS_PER_MS; /* the kernel says it */
	return now;
}

static void assert_cause(const struct stats *now, const char *cause, uint64_t ns)
{
	struct verdict verdicts[VERDICT_KINDS];
	const struct verdict *capture = &verdicts[VERDICT_CAPTURE_RATE];

	stats_verdicts(now, &none, verdicts);
	ck_assert(capture->bad);
	ck_assert_msg(strstr(capture->cause, cause), "%s: not %s", capture->cause, cause);
	ck_assert_uint_eq(capture->cause_ns, ns);
}

START_TEST(the_cause_of_missed_slots_is_what_took_the_most_time)
{
	struct stats now = bad_run();

	assert_cause(&now, "Reading all targets takes longer", NS_PER_S);
	now.total_backoff_sleep = 600 * NS_PER_MS;
	assert_cause(&now, "blocking reader", 600 * NS_PER_MS);
	now.starved = now.run_delay = 700 * NS_PER_MS;
	assert_cause(&now, "CPUs are busy: the sampler was ready", 700 * NS_PER_MS);
	now.real_time = 1;
	assert_cause(&now, "has real-time priority", 700 * NS_PER_MS);
	now.starved = 0;
	now.stopped = 900 * NS_PER_MS;
	assert_cause(&now, "SIGSTOP", 900 * NS_PER_MS);
	now.stolen = 800 * NS_PER_MS;
	assert_cause(&now, "hypervisor", 800 * NS_PER_MS);
}
END_TEST

/* Some kernels count it as a wait for a CPU, others do not. */
START_TEST(a_quota_that_stopped_the_sampler_is_the_cause)
{
	struct stats now = bad_run();

	now.throttled = 3 * NS_PER_S; /* of all CPUs */
	now.starved = now.run_delay = 900 * NS_PER_MS;
	assert_cause(&now, "CPU quota", 900 * NS_PER_MS);
	now.starved = 0;
	now.stopped = 900 * NS_PER_MS;
	assert_cause(&now, "CPU quota", 900 * NS_PER_MS);
	now.throttled = 100 * NS_PER_MS;
	assert_cause(&now, "SIGSTOP", 800 * NS_PER_MS);
}
END_TEST

START_TEST(waits_that_made_no_slot_missed_are_not_the_cause)
{
	struct stats now = bad_run();

	now.run_delay = 5 * NS_PER_S;
	now.stopped = 900 * NS_PER_MS;
	assert_cause(&now, "SIGSTOP", 900 * NS_PER_MS);
}
END_TEST

START_TEST(spinning_is_advised_only_where_the_timer_is_the_cause)
{
	struct stats now = bad_run();
	struct verdict verdicts[VERDICT_KINDS];

	now.total_sleep_timing_error = 900 * INTERVAL / 5;
	stats_verdicts(&now, &none, verdicts);
	ck_assert(verdicts[VERDICT_SLEEP_ERROR].bad);
	ck_assert_ptr_ne(strstr(verdicts[VERDICT_SLEEP_ERROR].remedy, "\"spin\""), NULL);
	now.run_delay = now.total_sleep_timing_error;
	stats_verdicts(&now, &none, verdicts);
	ck_assert_ptr_eq(strstr(verdicts[VERDICT_SLEEP_ERROR].remedy, "\"spin\""), NULL);
	ck_assert_ptr_ne(strstr(verdicts[VERDICT_SLEEP_ERROR].remedy, "LimitRTPRIO"), NULL);
}
END_TEST

START_TEST(json_holds_every_counter_on_one_line)
{
	struct stats stats = good_run(3);
	char buf[2048], expected[128];
	size_t len;

	stats.threads = UINT64_MAX;
	len = stats_to_json(&stats, buf, sizeof(buf));
	ck_assert_uint_eq(len, strlen(buf));
	ck_assert_ptr_eq(strchr(buf, '\n'), NULL);
	ck_assert_msg(strncmp(buf, "{\"collection_rate\":10000000,\"cheap_start_nanos\":5000000000,", 58) == 0, "%s",
		      buf);
	ck_assert_ptr_ne(strstr(buf, ",\"threads\":18446744073709551615,"), NULL);
#define X(name, kind, meaning) \
	snprintf(expected, sizeof(expected), "\"" #name "\":%llu", (unsigned long long)stats.name); \
	ck_assert_ptr_ne(strstr(buf, expected), NULL);
	STATS_FIELD_TABLE(X)
#undef X
}
END_TEST

START_TEST(json_of_the_largest_counters_fits_the_stated_size)
{
	struct stats stats;
	char buf[2048];

	memset(&stats, 0xff, sizeof(stats));
	ck_assert_uint_gt(stats_to_json(&stats, buf, sizeof(buf)), 0);
}
END_TEST

START_TEST(json_fits_or_is_refused)
{
	struct stats stats = good_run(3);
	char buf[2048];
	size_t len = stats_to_json(&stats, buf, sizeof(buf));

	for (size_t cap = 0; cap <= len; cap++) {
		memset(buf, 'x', sizeof(buf));
		ck_assert_uint_eq(stats_to_json(&stats, buf, cap), 0);
		ck_assert_int_eq(buf[cap], 'x');
	}
	ck_assert_uint_eq(stats_to_json(&stats, buf, len + 1), len);
}
END_TEST

Suite *stats_suite(void);
Suite *stats_suite(void)
{
	Suite *suite = suite_create("stats");
	TCase *tc = tcase_create("stats");

	tcase_add_test(tc, a_perfect_run_is_good);
	tcase_add_test(tc, nothing_is_bad_before_the_first_slot);
	tcase_add_test(tc, capture_rate_is_snapshots_of_slots);
	tcase_add_test(tc, a_run_without_any_snapshot_is_bad);
	tcase_add_test(tc, each_sum_is_held_against_the_run);
	tcase_add_test(tc, only_what_happened_since_is_judged);
	tcase_add_test(tc, counters_that_started_anew_are_no_disaster);
	tcase_add_test(tc, counters_of_several_threads_are_put_together);
	tcase_add_test(tc, backoff_is_a_part_of_the_run_of_all_threads);
	tcase_add_test(tc, every_verdict_says_what_why_and_what_to_do);
	tcase_add_test(tc, the_cause_of_missed_slots_is_what_took_the_most_time);
	tcase_add_test(tc, a_quota_that_stopped_the_sampler_is_the_cause);
	tcase_add_test(tc, waits_that_made_no_slot_missed_are_not_the_cause);
	tcase_add_test(tc, spinning_is_advised_only_where_the_timer_is_the_cause);
	tcase_add_test(tc, json_holds_every_counter_on_one_line);
	tcase_add_test(tc, json_of_the_largest_counters_fits_the_stated_size);
	tcase_add_test(tc, json_fits_or_is_refused);
	suite_add_tcase(suite, tc);
	return suite;
}
