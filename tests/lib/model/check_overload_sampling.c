/*
 * check_overload_sampling.c: things that come at any rate, an owner that looks as often as the
 * recorder does, and what the samples then stand for.
 */
#include "lib/base/base.h"
#include "lib/model/pacing.h"

#include <check.h>
#include <stdlib.h>

Suite *overload_sampling_suite(void);

#define STEP_NS (100 * NS_PER_US)
#define PERIOD 1000u
#define MOST 8u
#define SLOT_NS (100 * NS_PER_MS)
#define SAMPLES_MAX 20000u

/* Things a second that may be counted. */
#define BOUND (MOST * PERIOD * 10)

static struct overload_sampling overload_sampling;

static struct world {
	uint64_t now_ns, total, counted, slot_samples, late_ns, stop_seen_ns;
	double fraction;
	unsigned stops, since_sample;
	uint64_t samples[SAMPLES_MAX]; /* times */
	size_t sample_count;
} world;

static void begin_world(uint64_t late_ns)
{
	world = (struct world){ .now_ns = 1000 * NS_PER_S, .total = 77777, .late_ns = late_ns };
	overload_sampling_init(&overload_sampling,
			       &(struct overload_sampling_options){ .slot_ns = SLOT_NS, .most = MOST, .seed = 5 },
			       world.now_ns, world.total);
}

static void setup(void)
{
	begin_world(0);
}

static void happen(double per_second)
{
	world.fraction += per_second * (double)STEP_NS / 1e9;
	for (; world.fraction >= 1; world.fraction -= 1) {
		world.total++;
		if (!overload_sampling.on)
			continue;
		world.counted++;
		if (++world.since_sample < PERIOD)
			continue;
		world.since_sample = 0;
		world.slot_samples++;
		ck_assert_uint_lt(world.sample_count, SAMPLES_MAX);
		world.samples[world.sample_count++] = world.now_ns;
	}
}

/* As the recorder: when samples have come, or the time has. */
static void look(void)
{
	enum overload_sampling_verdict verdict;

	if (!overload_sampling.on) {
		if (world.now_ns >= overload_sampling_next_ns(&overload_sampling)) {
			overload_sampling_begin(&overload_sampling, world.now_ns, world.total, 0);
			world.slot_samples = 0;
		}
		return;
	}
	if (world.slot_samples < MOST && world.now_ns < overload_sampling_next_ns(&overload_sampling))
		return;
	verdict = overload_sampling_judge(&overload_sampling, world.now_ns, world.slot_samples);
	if (verdict == OVERLOAD_SAMPLING_STOP) {
		if (world.stop_seen_ns == 0)
			world.stop_seen_ns = world.now_ns;
		if (world.now_ns < world.stop_seen_ns + world.late_ns)
			return;
		world.stop_seen_ns = 0;
		world.stops++;
		overload_sampling_stop(&overload_sampling, world.now_ns, world.total, world.slot_samples);
	} else if (verdict == OVERLOAD_SAMPLING_SLOT) {
		overload_sampling_begin(&overload_sampling, world.now_ns, world.total, world.slot_samples);
		world.slot_samples = 0;
	}
}

static void pass(uint64_t ns, double per_second)
{
	for (uint64_t end_ns = world.now_ns + ns; world.now_ns < end_ns;) {
		world.now_ns += STEP_NS;
		happen(per_second);
		look();
	}
}

/* What all samples of from_ns .. to_ns stand for. */
static uint64_t weigh(uint64_t from_ns, uint64_t to_ns)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < world.sample_count; i++)
		if (world.samples[i] > from_ns && world.samples[i] <= to_ns)
			sum += overload_sampling_weigh(&overload_sampling, world.samples[i], PERIOD);
	return sum;
}

static void settle(void)
{
	overload_sampling_settle(&overload_sampling, world.now_ns, world.total);
}

static void assert_near(uint64_t value, uint64_t expected, double by)
{
	ck_assert_msg((double)value > (double)expected * (1 - by) && (double)value < (double)expected * (1 + by),
		      "%lu instead of %lu", (unsigned long)value, (unsigned long)expected);
}

START_TEST(what_comes_slowly_is_all_counted)
{
	struct overload_sampling_summary sum;

	pass(10 * NS_PER_S, 0.95 * BOUND);
	ck_assert_uint_eq(world.stops, 0);
	settle();
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, world.samples[3], 1234), 1234);
	overload_sampling_sum_up(&overload_sampling, 0, world.now_ns, &sum);
	ck_assert_uint_eq(sum.counted, world.total - 77777);
	ck_assert_uint_eq(sum.all, sum.counted);
	ck_assert_uint_eq(sum.since_ns, 0);
}
END_TEST

START_TEST(what_comes_fast_is_counted_as_often_as_it_may_be_and_stands_for_all)
{
	static const double rates[] = { 1.1, 1.5, 3, 7, 20 };

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct overload_sampling_summary sum;
		uint64_t all;

		begin_world(0);
		pass(20 * NS_PER_S, rates[i] * BOUND);
		settle();
		all = world.total - 77777;
		ck_assert_uint_ge(world.stops, 10);
		assert_near(world.counted, 20 * BOUND, 0.15);
		assert_near(weigh(0, UINT64_MAX), all, 0.02);
		overload_sampling_sum_up(&overload_sampling, 0, world.now_ns, &sum);
		ck_assert_uint_eq(sum.counted, world.counted);
		ck_assert_uint_eq(sum.all, all);
		ck_assert_uint_ge(sum.since_ns, 1000 * NS_PER_S);
		ck_assert_uint_lt(sum.since_ns, 1001 * NS_PER_S);
	}
}
END_TEST

START_TEST(a_burst_after_a_calm_is_counted_from_its_beginning_on)
{
	uint64_t began_ns, before;
	size_t first;

	pass(5 * NS_PER_S, BOUND / 100);
	before = world.sample_count;
	began_ns = world.now_ns;
	pass(300 * NS_PER_MS, 6 * BOUND);
	settle();
	for (first = 0; first < world.sample_count && world.samples[first] <= began_ns;)
		first++;
	ck_assert_uint_lt(world.samples[first], began_ns + 5 * NS_PER_MS);
	ck_assert_uint_ge(world.sample_count - before, 24); /* two slots' for the beginning, and one later, at least */
	assert_near(weigh(began_ns, world.now_ns), 6 * BOUND / 10 * 3, 0.1);
}
END_TEST

/* A gap in which a burst has ended is not given to what comes slowly after it. */
START_TEST(what_comes_after_a_burst_does_not_stand_for_it)
{
	uint64_t ended_ns, in_burst;

	pass(2 * NS_PER_S, BOUND / 10);
	in_burst = world.total;
	pass(NS_PER_S, 6 * BOUND);
	for (unsigned stops = world.stops; world.stops == stops;)
		pass(STEP_NS, 6 * BOUND);
	pass(20 * NS_PER_MS, 6 * BOUND);
	ck_assert(!overload_sampling.on);
	ended_ns = world.now_ns;
	in_burst = world.total - in_burst;
	pass(10 * NS_PER_S, BOUND / 10);
	settle();
	assert_near(weigh(1002 * NS_PER_S, ended_ns), in_burst, 0.05);
	assert_near(weigh(ended_ns, UINT64_MAX), BOUND, 0.1);
}
END_TEST

/* As the options of a recorder are: a burst is worth ten slots, and at least as much calm. */
static void begin_bursts(void)
{
	overload_sampling_init(
		&overload_sampling,
		&(struct overload_sampling_options){ .slot_ns = SLOT_NS, .most = MOST, .burst = 10 * MOST, .seed = 5 },
		world.now_ns, world.total);
}

START_TEST(a_burst_that_may_be_is_counted_as_a_whole)
{
	begin_bursts();
	for (int i = 0; i < 5; i++) {
		pass(100 * NS_PER_MS, 9 * BOUND);
		pass(NS_PER_S, BOUND / 100);
	}
	ck_assert_uint_eq(world.stops, 0);
	ck_assert_uint_eq(world.counted, world.total - 77777);
}
END_TEST

/* Not one such burst after another. */
START_TEST(bursts_and_what_lasts_are_bounded_together)
{
	begin_bursts();
	pass(100 * NS_PER_MS, 9 * BOUND);
	ck_assert_uint_eq(world.stops, 0);
	pass(200 * NS_PER_MS, BOUND / 100);
	pass(100 * NS_PER_MS, 9 * BOUND);
	ck_assert_uint_ge(world.stops, 1);
	begin_world(0);
	begin_bursts();
	for (int i = 0; i < 50; i++) {
		pass(100 * NS_PER_MS, 9 * BOUND);
		pass(100 * NS_PER_MS, 0);
	}
	settle();
	assert_near(world.counted, 10 * BOUND + BOUND, 0.1);
	assert_near(weigh(0, UINT64_MAX), world.total - 77777, 0.05);
}
END_TEST

/*
 * The burst, then every slot's. Having been calm for an hour is worth no more than having been so
 * for a second.
 */
START_TEST(what_comes_fast_for_long_is_bounded_as_without_bursts)
{
	begin_bursts();
	pass(20 * NS_PER_S, BOUND / 100);
	world.counted = 0;
	pass(10 * NS_PER_S, 6 * BOUND);
	assert_near(world.counted, 10 * BOUND + BOUND, 0.07);
	world.counted = 0;
	pass(10 * NS_PER_S, 6 * BOUND);
	assert_near(world.counted, 10 * BOUND, 0.07);
}
END_TEST

START_TEST(who_is_late_to_go_on_has_been_calm_for_longer)
{
	uint64_t next_ns;

	begin_bursts();
	pass(2 * NS_PER_S, 6 * BOUND);
	for (unsigned stops = world.stops; world.stops == stops;)
		pass(STEP_NS, 6 * BOUND);
	next_ns = overload_sampling_next_ns(&overload_sampling);
	overload_sampling_begin(&overload_sampling, next_ns + 5 * SLOT_NS, world.total, 0);
	ck_assert_int_eq(overload_sampling_judge(&overload_sampling, next_ns + 5 * SLOT_NS, 5 * MOST),
			 OVERLOAD_SAMPLING_GO_ON);
	ck_assert_int_eq(overload_sampling_judge(&overload_sampling, next_ns + 5 * SLOT_NS, 5 * MOST + 1),
			 OVERLOAD_SAMPLING_STOP);
}
END_TEST

START_TEST(who_is_late_to_stop_waits_longer)
{
	begin_world(60 * NS_PER_MS);
	pass(20 * NS_PER_S, 6 * BOUND);
	settle();
	ck_assert_uint_ge(world.stops, 10);
	assert_near(world.counted, 20 * BOUND, 0.15);
	assert_near(weigh(0, UINT64_MAX), world.total - 77777, 0.03);
}
END_TEST

START_TEST(it_goes_on_at_times_that_are_not_regular)
{
	uint64_t shortest = UINT64_MAX, longest = 0, sum = 0;

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t from_ns = overload_sampling.slot_ns, stop_ns = from_ns + 20 * NS_PER_MS, wait_ns;

		overload_sampling_stop(&overload_sampling, stop_ns, 0, MOST);
		wait_ns = overload_sampling_next_ns(&overload_sampling) - stop_ns;
		shortest = wait_ns < shortest ? wait_ns : shortest;
		longest = wait_ns > longest ? wait_ns : longest;
		sum += wait_ns;
		overload_sampling_begin(&overload_sampling, overload_sampling_next_ns(&overload_sampling), 0, 0);
		ck_assert_uint_eq(overload_sampling_next_ns(&overload_sampling), overload_sampling.slot_ns + SLOT_NS);
	}
	ck_assert_uint_ge(shortest, 40 * NS_PER_MS);
	ck_assert_uint_lt(shortest, 45 * NS_PER_MS);
	ck_assert_uint_le(longest, 120 * NS_PER_MS);
	ck_assert_uint_gt(longest, 115 * NS_PER_MS);
	assert_near(sum / 1000, 80 * NS_PER_MS, 0.05);
}
END_TEST

/*
 * Two looks, one after the other, as an incident takes them: nothing is said twice, and nothing is
 * left out. Whenever the first of them is.
 */
START_TEST(what_is_settled_is_not_given_to_samples_of_later)
{
	for (uint64_t at_ns = 0; at_ns < 110 * NS_PER_MS; at_ns += 5 * NS_PER_MS) {
		struct overload_sampling_summary first, second;
		uint64_t look_ns, before, all_before;

		begin_world(0);
		pass(2 * NS_PER_S + at_ns, 6 * BOUND);
		settle();
		look_ns = world.now_ns;
		before = weigh(0, look_ns);
		all_before = world.total - 77777;
		overload_sampling_sum_up(&overload_sampling, 0, look_ns, &first);
		pass(2 * NS_PER_S, 6 * BOUND);
		settle();
		ck_assert_uint_eq(weigh(0, look_ns), before);
		assert_near(before, all_before, 0.03);
		assert_near(weigh(look_ns, UINT64_MAX), world.total - 77777 - all_before, 0.03);
		overload_sampling_sum_up(&overload_sampling, look_ns, world.now_ns, &second);
		ck_assert_uint_eq(first.all, all_before);
		ck_assert_uint_eq(first.all + second.all, world.total - 77777);
	}
}
END_TEST

START_TEST(without_a_total_the_time_is_taken)
{
	struct overload_sampling_summary sum;

	overload_sampling_init(&overload_sampling,
			       &(struct overload_sampling_options){ .slot_ns = SLOT_NS, .most = MOST }, NS_PER_S,
			       NS_PER_S);
	overload_sampling_stop(&overload_sampling, NS_PER_S + 20 * NS_PER_MS, NS_PER_S + 20 * NS_PER_MS, MOST);
	overload_sampling_begin(&overload_sampling, NS_PER_S + 100 * NS_PER_MS, NS_PER_S + 100 * NS_PER_MS, 0);
	overload_sampling_stop(&overload_sampling, NS_PER_S + 140 * NS_PER_MS, NS_PER_S + 140 * NS_PER_MS, MOST);
	/* half of the 80 ms each */
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, NS_PER_S + 10 * NS_PER_MS, 1000), 3000);
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, NS_PER_S + 110 * NS_PER_MS, 1000), 2000);
	overload_sampling_sum_up(&overload_sampling, 0, UINT64_MAX, &sum);
	ck_assert_uint_eq(sum.counted, 60 * NS_PER_MS);
	ck_assert_uint_eq(sum.all, 140 * NS_PER_MS);
	ck_assert_uint_eq(sum.since_ns, NS_PER_S);
}
END_TEST

START_TEST(only_the_newest_pieces_are_remembered)
{
	struct overload_sampling_summary sum;

	pass(400 * NS_PER_S / 3, 6 * BOUND);
	ck_assert_uint_gt(world.stops, OVERLOAD_SAMPLING_PIECES);
	settle();
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, world.samples[0], PERIOD), PERIOD);
	ck_assert_uint_gt(overload_sampling_weigh(&overload_sampling, world.samples[world.sample_count - 1], PERIOD),
			  3 * PERIOD);
	overload_sampling_sum_up(&overload_sampling, 0, UINT64_MAX, &sum);
	ck_assert_uint_gt(sum.counted, 0);
	ck_assert_uint_lt(sum.counted, world.counted);
	assert_near(sum.all, 6 * sum.counted, 0.1);
}
END_TEST

/* A total or a clock that steps back, and pieces without anything. */
START_TEST(nonsense_does_no_harm)
{
	struct overload_sampling_summary sum;

	overload_sampling_stop(&overload_sampling, 5, 3, UINT64_MAX);
	ck_assert_uint_ge(overload_sampling_next_ns(&overload_sampling), 5);
	overload_sampling_settle(&overload_sampling, 4, 2);
	overload_sampling_begin(&overload_sampling, 3, 1, 0);
	overload_sampling_begin(&overload_sampling, 3, 0, 0);
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, 3, 10), 10);
	ck_assert_uint_eq(overload_sampling_weigh(&overload_sampling, 0, UINT64_MAX), UINT64_MAX);
	overload_sampling_sum_up(&overload_sampling, UINT64_MAX, 0, &sum);
	ck_assert_uint_eq(sum.all, 0);
}
END_TEST

Suite *overload_sampling_suite(void)
{
	Suite *suite = suite_create("overload_sampling");
	TCase *tcase = tcase_create("thinning");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, what_comes_slowly_is_all_counted);
	tcase_add_test(tcase, what_comes_fast_is_counted_as_often_as_it_may_be_and_stands_for_all);
	tcase_add_test(tcase, a_burst_after_a_calm_is_counted_from_its_beginning_on);
	tcase_add_test(tcase, what_comes_after_a_burst_does_not_stand_for_it);
	tcase_add_test(tcase, a_burst_that_may_be_is_counted_as_a_whole);
	tcase_add_test(tcase, bursts_and_what_lasts_are_bounded_together);
	tcase_add_test(tcase, what_comes_fast_for_long_is_bounded_as_without_bursts);
	tcase_add_test(tcase, who_is_late_to_go_on_has_been_calm_for_longer);
	tcase_add_test(tcase, who_is_late_to_stop_waits_longer);
	tcase_add_test(tcase, it_goes_on_at_times_that_are_not_regular);
	tcase_add_test(tcase, what_is_settled_is_not_given_to_samples_of_later);
	tcase_add_test(tcase, without_a_total_the_time_is_taken);
	tcase_add_test(tcase, only_the_newest_pieces_are_remembered);
	tcase_add_test(tcase, nonsense_does_no_harm);
	suite_add_tcase(suite, tcase);
	return suite;
}
