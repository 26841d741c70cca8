/*
 * check_judged_target.c: windows over a stream of observations: what a target looks like as of
 * their ends.
 */
#include "evaluator_bench.h"
#include "lib/model/pacing.h"
#include "lib/evaluator/evaluator.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <malloc.h>

Suite *judged_target_suite(void);

START_TEST(busy_process_has_its_true_rate)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	for (uint64_t now = 10 * S; now <= 14 * S; now += 10 * MS) {
		cpu(1, now + MS, (now - 10 * S) / 2);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 4);
	for (size_t i = 0; i < firing_count; i++) {
		ck_assert_double_eq(firings[i].value, 50);
		ck_assert_uint_eq(firings[i].from.ns, (10 + i) * S + MS);
		ck_assert_uint_eq(firings[i].to.ns, (11 + i) * S + MS);
		ck_assert_uint_eq(firings[i].wall.ns, (11 + i) * S + MS + WALL_AHEAD);
	}
}
END_TEST

START_TEST(part_of_a_window_is_not_judged)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	tick(10 * S + 200 * MS);
	judged_target(1, "a");
	cpu(1, 10 * S + 300 * MS, 0);
	tick(10 * S + 300 * MS);
	cpu(1, 10 * S + 990 * MS, 690 * MS);
	tick(11 * S);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 0);
	tick(12 * S - 1);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 0);
	tick(12 * S);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 1);
}
END_TEST

START_TEST(idle_process_uses_nothing_without_a_record)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S + MS, 77);
	ticks(10 * S, 13 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_double_eq(firings[2].value, 0);
	ck_assert_uint_eq(firings[2].to.ns,
			  13 * S + MS); /* it was seen unchanged, a millisecond into the tick as ever */
}
END_TEST

START_TEST(process_that_wakes_up_did_so_in_its_window)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S + MS, 0);
	ticks(10 * S, 59 * S + 990 * MS, 10 * MS);
	firing_count = 0;
	cpu(1, 60 * S + MS, 0);
	tick(60 * S);
	for (uint64_t now = 60 * S + 10 * MS; now <= 61 * S; now += 10 * MS) {
		cpu(1, now + MS, now - 60 * S);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq(firings[0].value, 0);
	ck_assert_double_eq(firings[1].value, 100);
}
END_TEST

START_TEST(burst_between_two_ticks_counts_in_its_window_only)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S + 490 * MS, 10 * MS);
	cpu(1, 12 * S + 500 * MS, 10 * MS);
	ticks(12 * S + 500 * MS, 15 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 5);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq_tol(firings[i].value, i == 2 ? 1 : 0, 1e-9);
}
END_TEST

START_TEST(target_with_heartbeats_only_has_its_gauges)
{
	add_rule("big", METRIC_MEMORY_BYTES, 100 * MS);
	start();
	judged_target(1, "a");
	for (uint64_t now = 10 * S; now < 12 * S; now += 10 * MS) {
		if (now % S == 0)
			memory(1, now, 4711, 0);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 19);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq(firings[i].value, 4711);
}
END_TEST

START_TEST(windows_end_at_multiples_of_their_length)
{
	add_rule("slow", METRIC_CPU, 3 * S);
	add_rule("fast", METRIC_CPU, S);
	add_rule("slow2", METRIC_CPU, 3 * S);
	start();
	judged_target(1, "a");
	cpu(1, 1, 0);
	ticks(1, 12 * S + 1, S);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 11 + 3 + 3);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_uint_eq((firings[i].to.ns - 1) % ((strcmp(firings[i].rule, "fast") == 0 ? 1 : 3) * S), 0);
}
END_TEST

START_TEST(stalled_sampler_is_judged_once_over_what_has_passed)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	cpu(1, 13 * S + 200 * MS, 1600 * MS);
	tick(13 * S + 200 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S);
	ck_assert_uint_eq(firings[0].to.ns, 13 * S + 200 * MS);
	ck_assert_double_eq(firings[0].value, 50);
	cpu(1, 14 * S, 2400 * MS);
	tick(14 * S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq(firings[1].value, 100);
}
END_TEST

START_TEST(sliver_of_a_window_joins_the_next)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	cpu(1, 12 * S + 990 * MS, 0);
	tick(12 * S + 990 * MS);
	cpu(1, 13 * S, 4 * MS); /* the grain of the counter: 40 % of 10 ms */
	tick(13 * S);
	ck_assert_uint_eq(firing_count, 1);
	tick(14 * S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[1].from.ns, 12 * S + 990 * MS);
	ck_assert_double_eq_tol(firings[1].value, 0.396, 0.001);
}
END_TEST

START_TEST(gap_drops_open_windows)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	judged_target(2, "b");
	cpu(1, 10 * S, 0);
	cpu(2, 10 * S, 0);
	ticks(10 * S, 11 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	feed_gap(evaluator);
	cpu(1, 11 * S + 500 * MS, 0); /* seen again; the other one is not */
	ticks(11 * S + 500 * MS, 12 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	tick(13 * S);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_str_eq(firings[2].target, "a");
	ck_assert_uint_eq(firings[2].from.ns, 12 * S);
	cpu(2, 13 * S + 10 * MS, 0);
	tick(13 * S + 10 * MS);
	tick(14 * S);
	ck_assert_uint_eq(firing_count, 4);
	tick(15 * S);
	ck_assert_uint_eq(firing_count, 6);
}
END_TEST

START_TEST(clock_that_begins_anew_is_a_gap)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 100 * S, 0);
	ticks(100 * S, 101 * S, S);
	ck_assert_uint_eq(firing_count, 1);
	judged_target(2, "b");
	tick(5 * S + 1);
	cpu(2, 5 * S + 2, 0);
	ticks(5 * S + 2, 7 * S + 2, S);
	ck_assert_uint_eq(firing_count, 2); /* 6 to 7, of the new one */
	ck_assert_str_eq(firings[1].target, "b");
	cpu(1, 7 * S + 3, 0);
	ticks(7 * S + 3, 9 * S + 3, S);
	ck_assert_uint_eq(firing_count, 5); /* of both, when the old one is seen again */
}
END_TEST

START_TEST(peak_is_over_all_samples_in_the_window)
{
	add_rule("peak", METRIC_MEMORY_PEAK, S);
	start();
	judged_target(1, "a");
	memory(1, 10 * S, 100, 0);
	tick(10 * S);
	memory(1, 10 * S + 500 * MS, 900, 0);
	tick(10 * S + 500 * MS);
	memory(1, 10 * S + 510 * MS, 200, 0);
	tick(10 * S + 510 * MS);
	tick(11 * S);
	tick(12 * S);
	memory(1, 12 * S + 500 * MS, 50, 0); /* it used 200 for half of that window */
	tick(12 * S + 500 * MS);
	tick(13 * S);
	tick(14 * S);
	ck_assert_uint_eq(firing_count, 4);
	ck_assert_double_eq(firings[0].value, 900);
	ck_assert_double_eq(firings[1].value, 200);
	ck_assert_double_eq(firings[2].value, 200);
	ck_assert_double_eq(firings[3].value, 50);
}
END_TEST

START_TEST(high_water_marks_count_when_they_move_even_if_reset_between)
{
	add_rule("peak", METRIC_MEMORY_PEAK, S);
	start();
	judged_target(1, "a");
	memory(1, 10 * S, 100, 5000); /* made before anybody looked */
	tick(10 * S);
	tick(11 * S);
	memory(1, 11 * S + 100 * MS, 100, 6000);
	tick(11 * S + 100 * MS);
	memory(1, 11 * S + 200 * MS, 100, 100); /* reset */
	tick(11 * S + 200 * MS);
	tick(12 * S);
	tick(13 * S);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_double_eq(firings[0].value, 100);
	ck_assert_double_eq(firings[1].value, 6000);
	ck_assert_double_eq(firings[2].value, 100);
}
END_TEST

/*
 * Reads every 100 ms, at ticks every 10 ms, one of which comes a tick late: neither 0 % nor 200 %
 * is true.
 */
START_TEST(cgroup_is_judged_between_its_reads)
{
	struct target target = make_target(1, "c");

	target.kind = TARGET_CGROUP;
	add_rule("hot", METRIC_CPU, 100 * MS);
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	for (uint64_t now = 10 * S, due = now; now <= 12 * S; now += 10 * MS) {
		if (now >= due) {
			cpu(1, now, (now - 10 * S) / 2);
			due = now + (now == 11 * S ? 110 : 100) * MS;
		}
		tick(now);
	}
	ck_assert_uint_ge(firing_count, 18);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq(firings[i].value, 50);
}
END_TEST

START_TEST(idle_cgroup_moves_on_with_the_reads_it_must_have_had)
{
	struct target target = make_target(1, "c");

	target.kind = TARGET_CGROUP;
	add_rule("hot", METRIC_CPU, S);
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	cpu(1, 10 * S, 0);
	ticks(10 * S, 20 * S + 90 * MS, 10 * MS);
	firing_count = 0;
	for (uint64_t now = 20 * S + 100 * MS; now <= 22 * S; now += 100 * MS) {
		cpu(1, now, now - 20 * S);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq_tol(firings[0].value, 100, 10); /* 1 s of CPU within 1.0 or 1.1 s */
	ck_assert_double_eq(firings[1].value, 100);
}
END_TEST

#define INTERVAL (10 * MS)
#define IDLE (100 * MS)
#define LOOK_NS (100 * NS_PER_US) /* from the tick to the look */

/* A process of one thread that runs and sleeps, and a sampler that backs off from it. */
static struct {
	uint64_t seed;
	uint64_t turn, used; /* until when it does what it does; what it had used when that began */
	uint64_t began;
	bool runs;
	uint64_t last_cpu, last_look, written, changed, due;
	uint32_t ticks, last_tick;
} deadline_timer;

static uint64_t draw(uint64_t below)
{
	deadline_timer.seed = deadline_timer.seed * 6364136223846793005u + 1442695040888963407u;
	return (deadline_timer.seed >> 33) % below;
}

/* Times only go forward. */
static uint64_t used_by(uint64_t at)
{
	while (at >= deadline_timer.turn) {
		deadline_timer.used += deadline_timer.runs ? deadline_timer.turn - deadline_timer.began : 0;
		deadline_timer.began = deadline_timer.turn;
		deadline_timer.runs = !deadline_timer.runs;
		deadline_timer.turn +=
			1 + (deadline_timer.runs ? draw(draw(4) ? 30 * MS : S) : draw(draw(3) ? 300 * MS : 5 * S));
	}
	return deadline_timer.used + (deadline_timer.runs ? at - deadline_timer.began : 0);
}

static void look_at_it(uint64_t now)
{
	const struct idle_backoff pace = { INTERVAL, IDLE };
	uint64_t at = now + LOOK_NS, used = used_by(at);

	if (used != deadline_timer.last_cpu && deadline_timer.last_tick + 1 != deadline_timer.ticks &&
	    deadline_timer.last_look != deadline_timer.written)
		cpu(1, deadline_timer.last_look, deadline_timer.last_cpu);
	if (used != deadline_timer.last_cpu || at - deadline_timer.written >= S) {
		cpu(1, at, used);
		deadline_timer.written = at;
	}
	if (used != deadline_timer.last_cpu)
		deadline_timer.changed = at;
	deadline_timer.last_cpu = used;
	deadline_timer.last_look = at;
	deadline_timer.last_tick = deadline_timer.ticks;
	deadline_timer.due =
		now + idle_backoff_wait_ns(&pace, now > deadline_timer.changed ? now - deadline_timer.changed : 0,
					   deadline_timer.ticks, 3);
}

START_TEST(no_window_shows_more_than_was_possible_and_nothing_is_lost)
{
	double sum = 0;
	uint64_t first = 0, last = 0, windows = 0, used_first = 0, used_last = 0;

	add_rule("hot", METRIC_CPU, 400 * MS);
	start();
	judged_target(1, "a");
	feeding.idle_ns = IDLE;
	memset(&deadline_timer, 0, sizeof(deadline_timer));
	deadline_timer.seed = (uint64_t)_i + 1;
	deadline_timer.turn = deadline_timer.began = 10 * S;
	for (uint64_t slot = 10 * S; slot < 130 * S; slot += INTERVAL) {
		uint64_t now = slot + draw(2 * MS);

		if (draw(500) == 0)
			slot += draw(30) * INTERVAL; /* ticks that are missed */
		deadline_timer.ticks++;
		if (now >= deadline_timer.due)
			look_at_it(now);
		firing_count = 0;
		tick(now);
		for (size_t i = 0; i < firing_count; i++) {
			ck_assert_double_le(firings[i].value, 100 + 1e-6);
			ck_assert_uint_ge(firings[i].from.ns, last);
			used_first =
				first ? used_first
				      : deadline_timer.last_cpu -
						(uint64_t)(firings[i].value / 100 *
								   (double)mono_diff(firings[i].to, firings[i].from) +
							   0.5);
			first = first ? first : firings[i].from.ns;
			last = firings[i].to.ns;
			used_last = deadline_timer.last_cpu;
			sum += firings[i].value / 100 * (double)mono_diff(firings[i].to, firings[i].from);
			windows++;
		}
	}
	ck_assert_uint_gt(windows, 250);
	ck_assert_double_eq_tol(sum, (double)(used_last - used_first), 1000);
}
END_TEST

START_TEST(burst_after_a_pause_is_in_its_window_and_not_above_it)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	feeding.idle_ns = IDLE;
	cpu(1, 10 * S, 0);
	ticks(10 * S, 19 * S + 990 * MS, 10 * MS);
	firing_count = 0;

	/*
	 * Last looked at just before the end of a window, it had used 30 ms when it was looked at
	 * after it.
	 */
	ticks(20 * S, 20 * S + 40 * MS, 10 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_double_eq(firings[0].value, 0);
	ck_assert_uint_eq(firings[0].to.ns, 20 * S - IDLE); /* for certain */
	cpu(1, 19 * S + 970 * MS, 0);
	cpu(1, 20 * S + 50 * MS, 30 * MS);
	ticks(20 * S + 50 * MS, 21 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[1].from.ns, 19 * S + 970 * MS);
	ck_assert_uint_eq(firings[1].to.ns, 21 * S - IDLE);
	ck_assert_double_eq_tol(firings[1].value, 100 * 30. / 930, 1e-9);

	/* And one that was last looked at after the end begins at the end. */
	ticks(21 * S + 10 * MS, 21 * S + 90 * MS, 10 * MS);
	cpu(1, 21 * S + 50 * MS, 30 * MS);
	cpu(1, 21 * S + 100 * MS, 60 * MS);
	ticks(21 * S + 100 * MS, 22 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_uint_eq(firings[2].from.ns, 21 * S);
}
END_TEST

/*
 * A process that has slept for long runs without a break from the beginning of a window on, and is
 * looked at no less often than the rule's window asks for (config_idle_of). The window that it
 * fills is judged when it ends, and shows no less than four fifths of it.
 */
START_TEST(burst_that_fills_a_window_is_judged_at_its_end_whenever_the_last_look_was)
{
	const uint64_t window_ns = 100 * MS, began = 20 * S;
	uint64_t idle_ns = INTERVAL;

	for (uint64_t before = 0; before <= idle_ns; before += 5 * MS) {
		add_rule("hot", METRIC_CPU, window_ns);
		config.sampling.interval_ns = INTERVAL;
		config.sampling.idle_interval_ns = IDLE;
		config.sampling.heartbeat_ns = S;
		idle_ns = config_idle_of(&config, "a");

		mono_t last = { began - before };
		uint64_t woken = last.ns + idle_ns > began ? last.ns + idle_ns : began + INTERVAL;

		start();
		judged_target(1, "a");
		feeding.idle_ns = idle_ns;
		cpu(1, 15 * S, 0);
		cpu(1, 15 * S + INTERVAL, 1);
		ticks(15 * S + INTERVAL, woken - woken % INTERVAL, INTERVAL);
		firing_count = 0;
		cpu(1, last.ns, 1);
		for (uint64_t now = woken - woken % INTERVAL + INTERVAL; now <= began + window_ns; now += INTERVAL) {
			cpu(1, now, 1 + (now - began));
			tick(now);
		}
		ck_assert_uint_eq(firing_count, 1);
		ck_assert_uint_eq(firings[0].to.ns, began + window_ns);
		ck_assert_double_le(firings[0].value, 100);
		ck_assert_double_ge(firings[0].value, 80 - 1e-9);
		end();
		begin();
	}
}
END_TEST

START_TEST(who_is_told_nothing_of_pauses_is_put_right_by_the_record)
{
	add_rule("hot", METRIC_CPU, 100 * MS);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, 10 * MS);
	firing_count = 0;
	cpu(1, 11 * S + 930 * MS, 0);
	cpu(1, 12 * S + 10 * MS, 80 * MS);
	ticks(12 * S + 10 * MS, 12 * S + 100 * MS, 10 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 11 * S + 930 * MS);
	ck_assert_double_le(firings[0].value, 100);
}
END_TEST

/*
 * The rules of the benchmark: two window lengths among them, and the history that is the default.
 */
START_TEST(a_target_of_five_rules_takes_two_and_a_half_kilobytes)
{
	const size_t targets = 1000;
	struct judged_target *watches[1000];
	struct judged_target_plan plan;
	struct target target = make_target(1, "a");

	for (unsigned i = 0; i < 5; i++)
		add_rule("a", METRIC_CPU, i == 0 ? 5 * S : S)->trigger.history = 10;
	ck_assert_int_eq(judged_target_plan_init(&plan, &config), 0);
	struct mallinfo2 before = mallinfo2();
	for (size_t i = 0; i < targets; i++)
		ck_assert_int_eq(judged_target_new(&plan, &target, 0, rule_state, &watches[i]), 0);
	struct mallinfo2 after = mallinfo2();
	for (size_t i = 0; i < targets; i++) {
		ck_assert_uint_eq(watches[i]->pair_count, 5);
		judged_target_free(watches[i]);
	}
	judged_target_plan_release(&plan);
	ck_assert_uint_le(sizeof(struct judged_target) + 2 * sizeof(struct judged_target_window) +
				  5 * sizeof(struct judged_target_pair),
			  1280);
	ck_assert_uint_le((after.uordblks - before.uordblks) / targets, 2560); /* 0 under a sanitizer's allocator */
}
END_TEST

static TCase *windows(void)
{
	TCase *tcase = tcase_create("windows");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_loop_test(tcase, no_window_shows_more_than_was_possible_and_nothing_is_lost, 0, 10);
	tcase_add_test(tcase, burst_after_a_pause_is_in_its_window_and_not_above_it);
	tcase_add_test(tcase, burst_that_fills_a_window_is_judged_at_its_end_whenever_the_last_look_was);
	tcase_add_test(tcase, who_is_told_nothing_of_pauses_is_put_right_by_the_record);
	tcase_add_test(tcase, busy_process_has_its_true_rate);
	tcase_add_test(tcase, part_of_a_window_is_not_judged);
	tcase_add_test(tcase, idle_process_uses_nothing_without_a_record);
	tcase_add_test(tcase, process_that_wakes_up_did_so_in_its_window);
	tcase_add_test(tcase, burst_between_two_ticks_counts_in_its_window_only);
	tcase_add_test(tcase, target_with_heartbeats_only_has_its_gauges);
	tcase_add_test(tcase, windows_end_at_multiples_of_their_length);
	tcase_add_test(tcase, stalled_sampler_is_judged_once_over_what_has_passed);
	tcase_add_test(tcase, sliver_of_a_window_joins_the_next);
	tcase_add_test(tcase, gap_drops_open_windows);
	tcase_add_test(tcase, clock_that_begins_anew_is_a_gap);
	tcase_add_test(tcase, peak_is_over_all_samples_in_the_window);
	tcase_add_test(tcase, high_water_marks_count_when_they_move_even_if_reset_between);
	tcase_add_test(tcase, a_target_of_five_rules_takes_two_and_a_half_kilobytes);
	tcase_add_test(tcase, cgroup_is_judged_between_its_reads);
	tcase_add_test(tcase, idle_cgroup_moves_on_with_the_reads_it_must_have_had);
	return tcase;
}

Suite *judged_target_suite(void)
{
	Suite *suite = suite_create("judged_target");

	suite_add_tcase(suite, windows());
	return suite;
}
