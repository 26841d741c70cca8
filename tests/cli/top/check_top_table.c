/* check_top_table.c: rows out of events: of made targets, and of a real ring. */
#include "ring_fixture.h"
#include "lib/base/base.h"
#include "cli/top/top_data.h"
#include "torture.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *top_table_suite(void);

static struct top_table table;
static struct top_table_list list;

static void setup(void)
{
	table = (struct top_table){ .cgroup_read_ns = 100 * NS_PER_MS };
}

static void teardown(void)
{
	top_table_release(&table);
}

/* ---- events ---- */

static mono_t at(double seconds)
{
	return (mono_t){ (uint64_t)((1000 + seconds) * 1e9 + 0.5) };
}

static int meet_kind(uint32_t id, const char *name, enum target_kind kind)
{
	struct target target = { .id = id, .kind = kind, .entry = "e", .name = name, .key = name };

	target.comm = target.cmdline = target.cgroup = "";

	return top_table_target(&table, &target);
}

static void meet(uint32_t id, const char *name)
{
	ck_assert_int_eq(meet_kind(id, name, TARGET_PROCESS), 0);
}

static void look(uint32_t id, double seconds, double cpu_seconds, uint64_t memory)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, (uint64_t)(cpu_seconds * 1e9 + 0.5));
	sample_set(&sample, SAMPLE_MEMORY, memory);
	top_table_sample(&table, id, at(seconds), &sample);
}

static void tick(double seconds)
{
	top_table_tick(&table, at(seconds));
}

/* Ticks of 10 ms in which target 1 uses so many cores. */
static double run(double from, double to, double cpu, double cores)
{
	int first = (int)(from * 100 + 0.5), last = (int)(to * 100 + 0.5);

	for (int i = first; i < last; i++) {
		if (cores > 0) {
			cpu += cores / 100;
			look(1, i / 100.0, cpu, 1 << 20);
		}
		tick(i / 100.0);
	}

	return cpu;
}

static const struct top_table_row *only(void)
{
	ck_assert_int_eq(top_table_view(&table, &(struct top_table_wish){ 0 }, &list), 0);
	ck_assert_uint_eq(list.count, 1);

	return list.row[0];
}

/* The names in the order that is wished, each followed by a space. */
static const char *order(struct top_table_wish wish)
{
	static char names[256];
	size_t len = 0;

	*names = '\0';
	ck_assert_int_eq(top_table_view(&table, &wish, &list), 0);
	for (size_t i = 0; i < list.count; i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s ", list.row[i]->name);

	return names;
}

/* ---- CPU ---- */

START_TEST(cpu_is_that_of_the_last_second_or_two)
{
	meet(1, "a");
	run(0, 5, run(-5, 0, 0, 0.25), 0.5);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.01);
}
END_TEST

START_TEST(who_does_not_run_leaves_no_records_and_falls_to_nothing)
{
	meet(1, "a");
	run(2, 5, run(0, 2, 0, 1), 0);
	ck_assert_double_eq_tol(only()->cpu_cores, 0, 0.001);
	ck_assert_double_eq_tol(only()->cpu_peak, 1, 0.02);
}
END_TEST

START_TEST(a_burst_after_silence_is_not_spread_over_it)
{
	double cells[60], cpu = run(0, 1, 0, 0);

	meet(1, "a");
	cpu = run(1, 2, cpu, 0.1);
	cpu = run(2, 2.9, cpu, 0);
	cpu = run(2.9, 3.1, cpu, 1);
	run(3.1, 4.5, cpu, 0);
	ck_assert_double_eq_tol(only()->cpu_peak, 1, 0.15);

	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert_double_eq_tol(cells[59], 0, 0.001);
	ck_assert_double_eq_tol(cells[58], 1, 0.15);
	ck_assert_double_eq_tol(cells[56], 0.1, 0.02);
	ck_assert(isnan(cells[54]));
}
END_TEST

START_TEST(a_cgroup_is_not_taken_for_idle_between_two_looks_at_it)
{
	double cpu = 0;

	ck_assert_int_eq(meet_kind(1, "/a", TARGET_CGROUP), 0);
	for (int i = 0; i < 300; i++) {
		if (i % 10 == 0)
			look(1, i / 100.0, cpu += 0.05, 1);
		tick(i / 100.0);
	}
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.01);
}
END_TEST

/* Ticks of the other one say nothing of it, neither while it hangs nor when it goes on. */
START_TEST(a_target_whose_writer_hangs_is_not_taken_for_idle)
{
	double cpu = 0;

	meet(1, "a");
	for (int i = 0; i < 600; i++) {
		top_table_writer(&table, 0);
		tick(i / 100.0);
		if (i >= 200 && i < 400)
			continue;
		top_table_writer(&table, 1);
		look(1, i / 100.0 + 0.001, cpu = i * 0.005, 1); /* half a core, also while nobody looks */
		tick(i / 100.0 + 0.001);
		if (i == 401) {
			ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.02);
			ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.02);
		}
	}
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.02);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.02);
}
END_TEST

START_TEST(ticks_of_two_that_overlap_do_not_turn_the_clock_back)
{
	double cpu = 0;

	meet(1, "a");
	for (int i = 0; i < 500; i++) {
		top_table_writer(&table, 1);
		look(1, i / 100.0 + 0.05, cpu += 0.005, 1);
		tick(i / 100.0 + 0.05);
		top_table_writer(&table, 0);
		tick(i / 100.0);
		ck_assert_uint_eq(table.now.ns, at(i / 100.0 + 0.05).ns);
	}
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.02);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.02);
}
END_TEST

START_TEST(no_window_reaches_over_a_gap)
{
	double cells[60];

	meet(1, "a");
	run(0, 2, 0, 0.1);
	top_table_gap(&table);
	look(1, 5, 100, 1 << 20);
	tick(5);
	ck_assert(isnan(only()->cpu_cores));
	run(5.01, 7, 100, 0.2);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.2, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.2, 0.02);
	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert(isnan(cells[59 - 3])); /* the fourth second, of which nothing is known */
	top_table_history(&table, only(), TOP_TABLE_MEMORY_BYTES, cells, 60);
	ck_assert(isnan(cells[59 - 3]));
	ck_assert(!isnan(cells[59 - 5]));
}
END_TEST

START_TEST(a_counter_that_steps_back_began_anew)
{
	meet(1, "a");
	run(0, 2, 50, 0.5);
	run(2, 5, 0, 0.5);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.01);
}
END_TEST

START_TEST(shorter_than_the_grain_is_no_window)
{
	meet(1, "a");
	look(1, 0, 0, 1);
	tick(0);
	look(1, 0.004, 0.004, 1); /* a whole core for a tick of the scheduler */
	tick(0.004);
	ck_assert(isnan(only()->cpu_peak));
	ck_assert(isnan(only()->cpu_cores));
}
END_TEST

START_TEST(slow_ticks_leave_no_holes)
{
	double cells[60];

	meet(1, "a");
	for (int i = 0; i <= 30; i += 5) {
		look(1, i, i / 2.0, 7);
		tick(i);
	}
	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	for (int back = 0; back < 30; back++)
		ck_assert_double_eq_tol(cells[59 - back], 0.5, 0.001);
	ck_assert(isnan(cells[59 - 30]));
}
END_TEST

/* ---- memory and history ---- */

START_TEST(memory_peaks_between_samples_count)
{
	struct sample sample = { 0 };
	double cells[60];

	meet(1, "a");
	sample_set(&sample, SAMPLE_MEMORY, 100);
	sample_set(&sample, SAMPLE_MEMORY_PEAK, 900); /* of long ago */
	top_table_sample(&table, 1, at(0.1), &sample);
	tick(0.1);
	ck_assert_uint_eq(only()->memory_peak_bytes, 100);
	sample_set(&sample, SAMPLE_MEMORY_PEAK, 1000);
	top_table_sample(&table, 1, at(0.2), &sample);
	tick(0.2);
	ck_assert_uint_eq(only()->memory_peak_bytes, 1000);
	ck_assert_uint_eq(only()->memory_bytes, 100);
	tick(1.5);
	top_table_history(&table, only(), TOP_TABLE_MEMORY_BYTES, cells, 60);
	ck_assert_double_eq(cells[58], 1000);
	ck_assert_double_eq(cells[59], 100);
	ck_assert(isnan(cells[57]));
}
END_TEST

START_TEST(fewer_cells_hold_the_highest_of_their_seconds)
{
	double cells[10], cpu = 0;

	meet(1, "a");
	for (int second = 0; second < 200; second++)
		cpu = run(second, second + 1, cpu, second == 150 ? 0.9 : 0.1);
	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 10);
	for (int i = 0; i < 10; i++) {
		/* Second 150 is the 50th before the last: seconds 140 to 199 are six in a cell. */
		ck_assert_double_eq_tol(cells[i], i == 1 ? 0.9 : 0.1, 0.05);
	}
}
END_TEST

START_TEST(rewinding_keeps_peaks_and_names_only)
{
	double cells[60];

	meet(1, "a");
	run(0, 3, 0, 0.5);
	top_table_rewind(&table);
	ck_assert(isnan(only()->cpu_cores));
	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	for (int i = 0; i < 60; i++)
		ck_assert(isnan(cells[i]));
	run(0, 3, 0, 0.5);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.01);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.5, 0.01);
	top_table_history(&table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert_double_eq_tol(cells[58], 0.5, 0.01);
}
END_TEST

START_TEST(who_ended_stays_for_ten_seconds)
{
	meet(1, "a");
	run(0, 2, 0, 0.5);
	top_table_gone(&table, 1, at(2));
	tick(3.01);
	ck_assert(only()->gone);
	ck_assert(isnan(only()->cpu_cores));
	ck_assert_double_eq_tol(only()->cpu_peak, 0.5, 0.01);
	tick(11.9);
	ck_assert(only()->gone);
	tick(13.1);
	ck_assert_str_eq(order((struct top_table_wish){ 0 }), "");
}
END_TEST

/* ---- order ---- */

static void three(void)
{
	meet(3, "Cherry");
	meet(1, "apple");
	meet(2, "banana");
	for (int i = 0; i < 300; i++) {
		look(1, i / 100.0, i * 0.001, 300);
		look(2, i / 100.0, i * 0.005, 100);
		look(3, i / 100.0, i * 0.003, 200);
		tick(i / 100.0);
	}
	meet(4, "unseen");
}

START_TEST(sorts_by_each_key_both_ways_and_the_unknown_last)
{
	three();
	ck_assert_str_eq(order((struct top_table_wish){ 0 }), "banana Cherry apple unseen ");
	ck_assert_str_eq(order((struct top_table_wish){ .reverse = true }), "apple Cherry banana unseen ");
	ck_assert_str_eq(order((struct top_table_wish){ .order = TOP_TABLE_BY_MEMORY }), "apple Cherry banana unseen ");
	ck_assert_str_eq(order((struct top_table_wish){ .order = TOP_TABLE_BY_NAME }), "Cherry apple banana unseen ");
	ck_assert_str_eq(order((struct top_table_wish){ .order = TOP_TABLE_BY_NAME, .reverse = true }),
			 "unseen banana apple Cherry ");
}
END_TEST

static void judge(uint32_t id, const char *rule, enum top_table_wait wait, double nearness)
{
	struct top_table_verdict verdict = { .rule = rule, .wait = wait, .nearness = nearness };

	verdict.has_nearness = isfinite(nearness);
	top_table_judge(&table, id, &verdict);
}

START_TEST(nearest_to_firing_comes_first_and_before_it_what_is_pending)
{
	const struct top_table_wish wish = { .order = TOP_TABLE_BY_DISTANCE };

	three();
	judge(1, "far", TOP_TABLE_CALM, 0.9);
	judge(1, "near", TOP_TABLE_CALM, 0.2);
	judge(2, "near", TOP_TABLE_CALM, -0.5);
	judge(3, "slow", TOP_TABLE_PENDING, -0.1);
	judge(4, "blind", TOP_TABLE_CALM, INFINITY);
	judge(99, "nobody", TOP_TABLE_CALM, 0);
	ck_assert_str_eq(order(wish), "Cherry banana apple unseen ");
	ck_assert_str_eq(list.row[2]->nearest, "near");
	ck_assert_double_eq_tol(list.row[2]->nearness, 0.2, 1e-9);
	ck_assert_str_eq(list.row[3]->nearest, "blind");
	top_table_judge_begin(&table);
	ck_assert_str_eq(order(wish), "Cherry apple banana unseen ");
	ck_assert_ptr_null(list.row[0]->nearest);
}
END_TEST

START_TEST(pending_rules_come_before_cooling_ones_and_none_is_lost_from_the_count)
{
	const struct top_table_row *row;

	meet(1, "a");
	judge(1, "c1", TOP_TABLE_COOLING, 1);
	judge(1, "c2", TOP_TABLE_COOLING, 1);
	judge(1, "p1", TOP_TABLE_PENDING, 1);
	judge(1, "c3", TOP_TABLE_COOLING, 1);
	judge(1, "c4", TOP_TABLE_COOLING, 1);
	judge(1, "p2", TOP_TABLE_PENDING, 1);
	row = only();
	ck_assert_uint_eq(row->waiting_count, 6);
	ck_assert_uint_eq(row->pending, 2);
	ck_assert_uint_eq(row->cooling, 4);
	ck_assert_str_eq(row->waiting[0].rule, "p1");
	ck_assert_str_eq(row->waiting[1].rule, "p2");
	ck_assert_str_eq(row->waiting[2].rule, "c1");
	ck_assert_str_eq(row->waiting[3].rule, "c2");
	for (int i = 0; i < 4; i++)
		judge(1, "p", TOP_TABLE_PENDING, 1);
	ck_assert_str_eq(only()->waiting[3].rule, "p");
}
END_TEST

START_TEST(filters_by_part_of_the_name_or_by_pattern)
{
	const struct top_table_wish parts = { .filter = "AN", .order = TOP_TABLE_BY_NAME };
	const struct top_table_wish pattern = { .filter = "*e*", .order = TOP_TABLE_BY_NAME };
	const struct top_table_wish whole = { .filter = "?pple" };

	three();
	ck_assert_str_eq(order(parts), "banana ");
	ck_assert_str_eq(order(pattern), "Cherry apple unseen ");
	ck_assert_str_eq(order(whole), "apple ");
	ck_assert_str_eq(order((struct top_table_wish){ .filter = "[" }), "");
}
END_TEST

START_TEST(a_target_may_be_renamed_and_unknown_ones_are_passed_over)
{
	meet(1, "a");
	meet(1, "b");
	ck_assert_str_eq(only()->name, "b");
	look(7, 1, 1, 1);
	top_table_gone(&table, 7, at(1));
	ck_assert_str_eq(only()->name, "b");
}
END_TEST

START_TEST(more_targets_than_there_is_room_for_are_counted)
{
	for (uint32_t id = 1; id <= TOP_TABLE_TARGETS_MAX + 10; id++)
		meet(id, "x");
	ck_assert_uint_eq(table.count, TOP_TABLE_TARGETS_MAX);
	ck_assert_uint_eq(table.left_out, 10);
}
END_TEST

/* ---- a ring ---- */

static void take(const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_SAMPLE:
		top_table_sample(&table, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		ck_assert_int_eq(top_table_target(&table, &event->target), 0);
		break;
	case RING_EVENT_TICK_END:
		top_table_tick(&table, event->time);
		break;
	default:
		break;
	}
}

START_TEST(a_ring_is_read_into_rows)
{
	static struct fixture_target targets[20];
	struct ring *ring = fixture_ring(64);
	struct ring_writer *writer;
	struct ring_cursor *cursor;
	struct ring_event event;

	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (uint32_t i = 0; i < 20; i++)
		fixture_target_init(&targets[i], 20 - i);
	for (uint64_t n = 0; n < 100; n++)
		ck_assert_int_eq(fixture_tick(writer, targets, 20, n), 0);
	while (ring_cursor_next(cursor, &event) == 0)
		take(&event);
	ring_cursor_free(cursor);
	ring_writer_free(writer);
	ring_free(ring);

	ck_assert_uint_eq(table.count, 20);
	for (uint32_t i = 0; i < 20; i++) {
		const struct top_table_row *row = table.row[i];
		char name[32];

		snprintf(name, sizeof(name), "target/%u", i + 1);
		ck_assert_str_eq(row->name, name);
		ck_assert_uint_eq(row->memory_bytes, fixture_mix(row->id));
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = meet_kind(1, "a", TARGET_PROCESS);
		for (uint32_t id = 2; r == 0 && id < 80; id++)
			r = meet_kind(id, "b", TARGET_GROUP);
		if (r == 0)
			r = meet_kind(1, "renamed", TARGET_PROCESS);
		if (r == 0)
			r = top_table_view(&table, &(struct top_table_wish){ 0 }, &list);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (injected)
			top_table_release(&table);
	}
	ck_assert_uint_eq(list.count, 79);
	ck_assert_str_eq(list.row[78]->name, "renamed");
}
END_TEST

Suite *top_table_suite(void)
{
	const TTest *const tests[] = {
		cpu_is_that_of_the_last_second_or_two,
		who_does_not_run_leaves_no_records_and_falls_to_nothing,
		a_burst_after_silence_is_not_spread_over_it,
		a_cgroup_is_not_taken_for_idle_between_two_looks_at_it,
		a_target_whose_writer_hangs_is_not_taken_for_idle,
		ticks_of_two_that_overlap_do_not_turn_the_clock_back,
		no_window_reaches_over_a_gap,
		a_counter_that_steps_back_began_anew,
		shorter_than_the_grain_is_no_window,
		slow_ticks_leave_no_holes,
		memory_peaks_between_samples_count,
		fewer_cells_hold_the_highest_of_their_seconds,
		rewinding_keeps_peaks_and_names_only,
		who_ended_stays_for_ten_seconds,
		sorts_by_each_key_both_ways_and_the_unknown_last,
		nearest_to_firing_comes_first_and_before_it_what_is_pending,
		pending_rules_come_before_cooling_ones_and_none_is_lost_from_the_count,
		filters_by_part_of_the_name_or_by_pattern,
		a_target_may_be_renamed_and_unknown_ones_are_passed_over,
		more_targets_than_there_is_room_for_are_counted,
		a_ring_is_read_into_rows,
		every_allocation_may_fail,
	};
	Suite *suite = suite_create("top_table");
	TCase *tcase = tcase_create("toptable");

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);

	return suite;
}
