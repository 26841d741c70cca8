/*
 * check_top_data.c: rows out of events, of made targets and of a real ring; and rings as files,
 * written by the test, read as spikewatch top does: found, replaced, damaged, ended; and what the
 * rules of a configuration make of them.
 */
#include "cli/top/top_data.c"

#include "ring_fixture.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/evaluator/rule_state.h"
#include "scene.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

Suite *top_data_suite(void);

/* ==== the table ==== */

static struct top_table table;
static struct top_table_list viewed;

static void table_setup(void)
{
	table = (struct top_table){ .cgroup_read_ns = 100 * NS_PER_MS };
}

static void table_teardown(void)
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

static void see(uint32_t id, double seconds, double cpu_seconds, uint64_t memory)
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
static double run_target(double from, double to, double cpu, double cores)
{
	int first = (int)(from * 100 + 0.5), last = (int)(to * 100 + 0.5);

	for (int i = first; i < last; i++) {
		if (cores > 0) {
			cpu += cores / 100;
			see(1, i / 100.0, cpu, 1 << 20);
		}
		tick(i / 100.0);
	}

	return cpu;
}

static const struct top_table_row *only_row(void)
{
	ck_assert_int_eq(top_table_view(&table, &(struct top_table_wish){ 0 }, &viewed), 0);
	ck_assert_uint_eq(viewed.count, 1);

	return viewed.row[0];
}

/* The names in the order that is wished, each followed by a space. */
static const char *order(struct top_table_wish wish)
{
	static char names[256];
	size_t len = 0;

	*names = '\0';
	ck_assert_int_eq(top_table_view(&table, &wish, &viewed), 0);
	for (size_t i = 0; i < viewed.count; i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s ", viewed.row[i]->name);

	return names;
}

/* ---- CPU ---- */

START_TEST(cpu_is_that_of_the_last_second_or_two)
{
	meet(1, "a");
	run_target(0, 5, run_target(-5, 0, 0, 0.25), 0.5);
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.01);
}
END_TEST

START_TEST(who_does_not_run_leaves_no_records_and_falls_to_nothing)
{
	meet(1, "a");
	run_target(2, 5, run_target(0, 2, 0, 1), 0);
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0, 0.001);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 1, 0.02);
}
END_TEST

START_TEST(a_burst_after_silence_is_not_spread_over_it)
{
	double cells[60], cpu = run_target(0, 1, 0, 0);

	meet(1, "a");
	cpu = run_target(1, 2, cpu, 0.1);
	cpu = run_target(2, 2.9, cpu, 0);
	cpu = run_target(2.9, 3.1, cpu, 1);
	run_target(3.1, 4.5, cpu, 0);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 1, 0.15);

	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert_double_eq_tol(cells[59], 0, 0.001);
	ck_assert_double_eq_tol(cells[58], 1, 0.15);
	ck_assert_double_eq_tol(cells[56], 0.1, 0.02);
	ck_assert(isnan(cells[54]));
}
END_TEST

START_TEST(a_hole_of_the_sampling_is_no_spike_and_is_told)
{
	const struct sampling_hole hole = { at(4.99), at(7.49), 250, 0 };
	double cells[60], cpu = run_target(0, 1, 0, 0);
	char note[TOP_WATCH_NOTE_MAX];

	meet(1, "a");
	cpu = run_target(1, 5, cpu, 0.5);
	top_table_hole(&table, &hole);
	run_target(7.49, 9.5, cpu + 2.5, 0.5); /* a core in the hole */
	ck_assert_double_eq_tol(only_row()->cpu_peak, 1, 0.03);
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert(isinf(cells[55]));
	ck_assert(isinf(cells[56]));
	ck_assert_double_eq_tol(cells[54], 0.5, 0.02);
	ck_assert_double_eq_tol(cells[58], 0.5, 0.02);
	ck_assert(hole_note(&table, note));
	ck_assert_str_eq(note, "the sampler took nothing for 2.5 s, 2 s ago; CPU over it is the average");
	run_target(60, 68, 0, 0);
	ck_assert(!hole_note(&table, note));
}
END_TEST

START_TEST(a_suspend_of_the_machine_is_told)
{
	const struct sampling_hole hole = { at(4.99), at(5), 0, 7200 * NS_PER_S };
	double cells[60], cpu = run_target(0, 1, 0, 0);
	char note[TOP_WATCH_NOTE_MAX];

	meet(1, "a");
	cpu = run_target(1, 5, cpu, 0.5);
	top_table_hole(&table, &hole);
	run_target(5, 9.5, cpu, 0.5);
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	for (int i = 53; i < 59; i++)
		ck_assert_msg(i == 55 ? isinf(cells[i]) : fabs(cells[i] - 0.5) < 0.02, "%d: %f", i, cells[i]);
	ck_assert(hole_note(&table, note));
	ck_assert_str_eq(note, "the machine was suspended for 2 h; it woke up 4 s ago");
}
END_TEST

START_TEST(a_cgroup_is_not_taken_for_idle_between_two_looks_at_it)
{
	double cpu = 0;

	ck_assert_int_eq(meet_kind(1, "/a", TARGET_CGROUP), 0);
	for (int i = 0; i < 300; i++) {
		if (i % 10 == 0)
			see(1, i / 100.0, cpu += 0.05, 1);
		tick(i / 100.0);
	}
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.01);
}
END_TEST

/* Ticks of the other one say nothing of it, neither while it hangs nor when it goes on. */
START_TEST(a_target_whose_writer_hangs_is_not_taken_for_idle)
{
	double cpu = 0;

	meet(1, "a");
	for (int i = 0; i < 600; i++) {
		table.line = writer_clocks_of(0);
		tick(i / 100.0);
		if (i >= 200 && i < 400)
			continue;
		table.line = writer_clocks_of(1);
		see(1, i / 100.0 + 0.001, cpu = i * 0.005, 1); /* half a core, also between two looks */
		tick(i / 100.0 + 0.001);
		if (i == 401) {
			ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.02);
			ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.02);
		}
	}
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.02);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.02);
}
END_TEST

START_TEST(ticks_of_two_that_overlap_do_not_turn_the_clock_back)
{
	double cpu = 0;

	meet(1, "a");
	for (int i = 0; i < 500; i++) {
		table.line = writer_clocks_of(1);
		see(1, i / 100.0 + 0.05, cpu += 0.005, 1);
		tick(i / 100.0 + 0.05);
		table.line = writer_clocks_of(0);
		tick(i / 100.0);
		ck_assert_uint_eq(table.now.ns, at(i / 100.0 + 0.05).ns);
	}
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.02);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.02);
}
END_TEST

START_TEST(no_window_reaches_over_a_gap)
{
	double cells[60];

	meet(1, "a");
	run_target(0, 2, 0, 0.1);
	top_table_gap(&table);
	see(1, 5, 100, 1 << 20);
	tick(5);
	ck_assert(isnan(only_row()->cpu_cores));
	run_target(5.01, 7, 100, 0.2);
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.2, 0.01);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.2, 0.02);
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert(isnan(cells[59 - 3])); /* the fourth second, of which nothing is known */
	top_table_history(&table, only_row(), TOP_TABLE_MEMORY_BYTES, cells, 60);
	ck_assert(isnan(cells[59 - 3]));
	ck_assert(!isnan(cells[59 - 5]));
}
END_TEST

START_TEST(a_counter_that_steps_back_began_anew)
{
	meet(1, "a");
	run_target(0, 2, 50, 0.5);
	run_target(2, 5, 0, 0.5);
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.01);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.01);
}
END_TEST

START_TEST(shorter_than_the_grain_is_no_window)
{
	meet(1, "a");
	see(1, 0, 0, 1);
	tick(0);
	see(1, 0.004, 0.004, 1); /* a whole core for a tick of the scheduler */
	tick(0.004);
	ck_assert(isnan(only_row()->cpu_peak));
	ck_assert(isnan(only_row()->cpu_cores));
}
END_TEST

START_TEST(slow_ticks_leave_no_holes)
{
	double cells[60];

	meet(1, "a");
	for (int i = 0; i <= 30; i += 5) {
		see(1, i, i / 2.0, 7);
		tick(i);
	}
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
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
	ck_assert_uint_eq(only_row()->memory_peak_bytes, 100);
	sample_set(&sample, SAMPLE_MEMORY_PEAK, 1000);
	top_table_sample(&table, 1, at(0.2), &sample);
	tick(0.2);
	ck_assert_uint_eq(only_row()->memory_peak_bytes, 1000);
	ck_assert_uint_eq(only_row()->memory_bytes, 100);
	tick(1.5);
	top_table_history(&table, only_row(), TOP_TABLE_MEMORY_BYTES, cells, 60);
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
		cpu = run_target(second, second + 1, cpu, second == 150 ? 0.9 : 0.1);
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 10);
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
	run_target(0, 3, 0, 0.5);
	top_table_rewind(&table);
	ck_assert(isnan(only_row()->cpu_cores));
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	for (int i = 0; i < 60; i++)
		ck_assert(isnan(cells[i]));
	run_target(0, 3, 0, 0.5);
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.01);
	ck_assert_double_eq_tol(only_row()->cpu_cores, 0.5, 0.01);
	top_table_history(&table, only_row(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert_double_eq_tol(cells[58], 0.5, 0.01);
}
END_TEST

START_TEST(who_ended_stays_for_ten_seconds)
{
	meet(1, "a");
	run_target(0, 2, 0, 0.5);
	top_table_gone(&table, 1, at(2));
	tick(3.01);
	ck_assert(only_row()->gone);
	ck_assert(isnan(only_row()->cpu_cores));
	ck_assert_double_eq_tol(only_row()->cpu_peak, 0.5, 0.01);
	tick(11.9);
	ck_assert(only_row()->gone);
	tick(13.1);
	ck_assert_str_eq(order((struct top_table_wish){ 0 }), "");
}
END_TEST

/* ---- order ---- */

static void add_three(void)
{
	meet(3, "Cherry");
	meet(1, "apple");
	meet(2, "banana");
	for (int i = 0; i < 300; i++) {
		see(1, i / 100.0, i * 0.001, 300);
		see(2, i / 100.0, i * 0.005, 100);
		see(3, i / 100.0, i * 0.003, 200);
		tick(i / 100.0);
	}
	meet(4, "unseen");
}

START_TEST(sorts_by_each_key_both_ways_and_the_unknown_last)
{
	add_three();
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

	add_three();
	judge(1, "far", TOP_TABLE_CALM, 0.9);
	judge(1, "near", TOP_TABLE_CALM, 0.2);
	judge(2, "near", TOP_TABLE_CALM, -0.5);
	judge(3, "slow", TOP_TABLE_PENDING, -0.1);
	judge(4, "blind", TOP_TABLE_CALM, INFINITY);
	judge(99, "nobody", TOP_TABLE_CALM, 0);
	ck_assert_str_eq(order(wish), "Cherry banana apple unseen ");
	ck_assert_str_eq(viewed.row[2]->nearest, "near");
	ck_assert_double_eq_tol(viewed.row[2]->nearness, 0.2, 1e-9);
	ck_assert_str_eq(viewed.row[3]->nearest, "blind");
	top_table_judge_begin(&table);
	ck_assert_str_eq(order(wish), "Cherry apple banana unseen ");
	ck_assert_ptr_null(viewed.row[0]->nearest);
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
	row = only_row();
	ck_assert_uint_eq(row->waiting_count, 6);
	ck_assert_uint_eq(row->pending, 2);
	ck_assert_uint_eq(row->cooling, 4);
	ck_assert_str_eq(row->waiting[0].rule, "p1");
	ck_assert_str_eq(row->waiting[1].rule, "p2");
	ck_assert_str_eq(row->waiting[2].rule, "c1");
	ck_assert_str_eq(row->waiting[3].rule, "c2");
	for (int i = 0; i < 4; i++)
		judge(1, "p", TOP_TABLE_PENDING, 1);
	ck_assert_str_eq(only_row()->waiting[3].rule, "p");
}
END_TEST

START_TEST(filters_by_part_of_the_name_or_by_pattern)
{
	const struct top_table_wish parts = { .filter = "AN", .order = TOP_TABLE_BY_NAME };
	const struct top_table_wish pattern = { .filter = "*e*", .order = TOP_TABLE_BY_NAME };
	const struct top_table_wish whole = { .filter = "?pple" };

	add_three();
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
	ck_assert_str_eq(only_row()->name, "b");
	see(7, 1, 1, 1);
	top_table_gone(&table, 7, at(1));
	ck_assert_str_eq(only_row()->name, "b");
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

static void take_ring_event(const struct ring_event *event)
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
		take_ring_event(&event);
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

START_TEST(every_allocation_of_the_table_may_fail)
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
			r = top_table_view(&table, &(struct top_table_wish){ 0 }, &viewed);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (injected)
			top_table_release(&table);
	}
	ck_assert_uint_eq(viewed.count, 79);
	ck_assert_str_eq(viewed.row[78]->name, "renamed");
}
END_TEST

/* ==== rings ==== */

static char directory[64], ring_path[128], config_path[128], state_path[128], message[CONFIG_FILE_MESSAGE_MAX];
static struct top_watch watch;
static struct ring *ring;
static struct ring_writer *writer;
static struct ring_track track;
static char description[TARGET_ENCODED_MAX];
static uint64_t now_ms; /* of the made ring */
static uint64_t cpu_ns;

#define START_MS 1000000ull
#define WALL_MS 1700000000000ull

static void configure(const char *rules)
{
	scene_write(config_path,
		    "{\"ring\": {\"path\": \"%s\"}, \"state_file\": \"%s\", \"incidents\": {\"directory\": \"%s/i\"},\n"
		    "\"targets\": [{\"name\": \"a\", \"comm\": \"a\"}], \"rules\": [%s]}\n",
		    ring_path, state_path, directory, rules);
}

#define HOT \
	"{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": \"50%\", " \
	"\"warmup\": 0, " \
	"\"cooldown\": \"1m\"}"
#define SLOW \
	"{\"name\": \"slow\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": \"50%\", " \
	"\"warmup\": 0, " \
	"\"for\": \"10s\", \"cooldown\": \"1m\"}"

/* A new daemon: a new ring. */
static void make_ring(uint64_t size_bytes, uint32_t id)
{
	struct ring_options options = { .size_bytes = size_bytes, .page_bytes = 4096, .interval_ns = 10 * NS_PER_MS };
	struct target target = { .id = id, .kind = TARGET_PROCESS, .pid = 12, .start_ticks = 7, .entry = "a" };

	options.pid = getpid();
	options.start_ticks = scene_start_ticks(getpid());
	target.name = "a/12";
	target.key = "a:12@7";
	target.comm = target.cmdline = target.cgroup = "";
	ring_writer_free(writer);
	ring_free(ring);
	ck_assert_int_eq(ring_create(AT_FDCWD, ring_path, &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	track = (struct ring_track){ .id = id, .description = description };
	track.description_len = (uint32_t)target_encode(&target, description, sizeof(description));
}

/* Ticks of 10 ms of a process that uses so many cores. */
static void run_for(uint64_t ms, double cores)
{
	for (uint64_t end = now_ms + ms; now_ms < end; now_ms += 10) {
		mono_t now = { now_ms * NS_PER_MS };
		struct sample sample = { 0 };

		cpu_ns += (uint64_t)(cores * 10e6);
		sample_set(&sample, SAMPLE_CPU, cpu_ns);
		sample_set(&sample, SAMPLE_MEMORY, 1 << 20);
		ck_assert_int_eq(ring_tick_begin(writer, now, (wall_t){ (WALL_MS + now_ms) * NS_PER_MS }, 0), 0);
		ring_put_sample(writer, &track, now, &sample);
		ring_tick_end(writer, NULL);
	}
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(state_path, sizeof(state_path), "%s/state.json", directory);
	configure(HOT "," SLOW);
	now_ms = START_MS;
	cpu_ns = 0;
}

static void teardown(void)
{
	top_watch_release(&watch);
	ring_writer_free(writer);
	ring_free(ring);
	writer = NULL;
	ring = NULL;
	scene_remove(directory);
}

static mono_t now(void)
{
	return (mono_t){ now_ms * NS_PER_MS };
}

static void open_watch(void)
{
	ck_assert_int_eq(top_watch_init(&watch, NULL, config_path, message), 0);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
}

static struct top_table_row *only(void)
{
	struct top_table_list list;

	ck_assert_int_eq(top_table_view(&watch.table, &(struct top_table_wish){ 0 }, &list), 0);
	ck_assert_uint_eq(list.count, 1);

	return list.row[0];
}

static bool noted(const char *part)
{
	char note[TOP_WATCH_NOTE_MAX];
	bool found = false;

	for (size_t i = 0; top_watch_note(&watch, now(), i, note); i++)
		found |= strstr(note, part) != NULL;

	return found;
}

static bool any_note(void)
{
	char note[TOP_WATCH_NOTE_MAX];

	return top_watch_note(&watch, now(), 0, note);
}

START_TEST(what_the_ring_holds_is_there_at_once)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.25);
	open_watch();
	ck_assert_str_eq(only()->name, "a/12");
	ck_assert_double_eq_tol(only()->cpu_cores, 0.25, 0.01);
	ck_assert_double_eq_tol(only()->nearness, 0.5, 0.01);
	ck_assert_uint_eq(watch.since.ns, (WALL_MS + START_MS) * NS_PER_MS);
	ck_assert(!any_note());
}
END_TEST

START_TEST(what_is_written_meanwhile_is_followed)
{
	make_ring(1 << 20, 1);
	run_for(2000, 0.1);
	open_watch();
	run_for(3000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.4, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.4, 0.01);
}
END_TEST

START_TEST(pending_and_cooling_are_found_out_from_the_samples)
{
	make_ring(1 << 20, 1);
	run_for(1000, 0.1);
	run_for(4000, 0.8);
	open_watch();
	ck_assert_uint_eq(only()->pending, 1);
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_str_eq(only()->waiting[0].rule, "slow");
	ck_assert_uint_eq(only()->waiting[0].for_whole_ns, 10 * NS_PER_S);
	ck_assert_uint_ge(only()->waiting[0].for_ns, 3 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].for_ns, 4 * NS_PER_S);
	ck_assert_str_eq(only()->waiting[1].rule, "hot");
	ck_assert_uint_gt(only()->waiting[1].left_ns, 55 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[1].left_ns, 58 * NS_PER_S);
	ck_assert_double_eq_tol(only()->nearness, -0.6, 0.01);
}
END_TEST

/* As the daemon writes it. */
static void remember(uint64_t cooldown_until_ms)
{
	struct trigger_memory memory = { .cooldown_until = { cooldown_until_ms * NS_PER_MS }, .fired = 1 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(buffer_release) struct buffer text = { 0 };
	char boot_id[64] = "";
	struct rule_state *rule_state;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(boot_id, sizeof(boot_id), file));
	fclose(file);
	boot_id[strcspn(boot_id, "\n")] = '\0';
	ck_assert_int_eq(rule_state_new(boot_id, &rule_state), 0);
	ck_assert_int_eq(rule_state_put(rule_state, "hot", "a:12@7", &memory), 0);
	ck_assert_int_eq(rule_state_text(rule_state, &text), 0);
	ck_assert_int_eq(whole_file_replace(dirfd, "state.json", text.data, text.len, WHOLE_FILE_DURABLE), 0);
	rule_state_free(rule_state);
}

START_TEST(a_cooldown_from_before_is_known_from_the_state_file)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.1);
	remember(WALL_MS + now_ms + 20000);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_gt(only()->waiting[0].left_ns, 19 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].left_ns, 21 * NS_PER_S);
}
END_TEST

START_TEST(a_firing_that_the_ring_and_the_file_know_cools_as_long_as_it_should)
{
	configure(HOT);
	make_ring(4 << 20, 1);
	run_for(20000, 0.1);
	run_for(200, 0.9);
	remember(WALL_MS + now_ms + 60000); /* fired just now */
	run_for(55000, 0.9);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_gt(only()->waiting[0].left_ns, 4 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].left_ns, 6 * NS_PER_S);
}
END_TEST

START_TEST(a_changed_configuration_is_judged_from_the_past_on)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 0);
	only()->cpu_peak = 3; /* of long ago */
	configure("{\"name\": \"low\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": "
		  "\"30%\", "
		  "\"warmup\": 0, \"cooldown\": \"1m\"}");
	run_for(1000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_str_eq(only()->waiting[0].rule, "low");
	ck_assert_double_eq(only()->cpu_peak, 3);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.4, 0.01);

	/* A bad one is not taken; it is said. */
	scene_write(config_path, "{ this is none");
	run_for(1000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert(noted("rules as before a change: "));
	ck_assert_str_eq(only()->nearest, "low");
}
END_TEST

START_TEST(another_ring_is_another_world)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert_uint_eq(only()->id, 1);
	ring_finish(ring);
	ck_assert(noted("the daemon has stopped"));
	make_ring(1 << 20, 3);
	run_for(2000, 0.2);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->id, 3);
	ck_assert_uint_eq(watch.since.ns, (WALL_MS + START_MS + 5000) * NS_PER_MS);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.2, 0.01);
	ck_assert(!any_note());
}
END_TEST

START_TEST(a_daemon_that_is_silent_gone_or_was_never_there_is_told_apart)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert(!any_note());
	now_ms += 2500;
	ck_assert(!any_note());
	now_ms += 2000;
	ck_assert(noted("the daemon has written nothing for 5 s"));
	unlink(ring_path);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_str_eq(only()->name, "a/12"); /* what was seen stays */
	top_watch_release(&watch);

	ck_assert_int_eq(top_watch_init(&watch, ring_path, NULL, message), 0);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_ptr_null(watch.feed.ring);
	ck_assert_int_eq(watch.place_error[0], -ENOENT);
	ck_assert(noted("the ring was removed"));
	make_ring(1 << 20, 2);
	run_for(2000, 0.1);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->id, 2);
}
END_TEST

static bool none_alive(int32_t pid, uint64_t start_ticks)
{
	(void)pid;
	(void)start_ticks;

	return false;
}

START_TEST(a_daemon_without_a_goodbye_is_gone)
{
	make_ring(1 << 20, 1);
	run_for(1000, 0.4);
	open_watch();
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), none_alive), TOP_FEED_LIVE);
	now_ms += 5000;
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), none_alive), TOP_FEED_KILLED);
	/* Of another boot: its last tick is in the future. */
	now_ms = 1000;
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), none_alive), TOP_FEED_KILLED);
}
END_TEST

START_TEST(being_overtaken_is_said)
{
	double cells[60];

	make_ring(4096 + 8 * 4096, 1);
	run_for(1000, 0.4);
	open_watch();
	run_for(60000, 0.3);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_gt(watch.feed.lost_pages, 0);
	ck_assert(noted("pages of the ring were overwritten"));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
	top_table_history(&watch.table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert(isnan(cells[30]) && !isnan(cells[58]));
}
END_TEST

START_TEST(a_damaged_page_is_said_and_passed_over)
{
	make_ring(1 << 20, 1);
	run_for(30000, 0.3);
	AUTO_CLOSE int fd = open(ring_path, O_RDWR | O_CLOEXEC);
	char byte;

	/* In the records of the fourth page. */
	ck_assert_int_eq(pread(fd, &byte, 1, 4096 + 3 * 4096 + 1000), 1);
	byte = (char)~byte;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 4096 + 3 * 4096 + 1000), 1);
	open_watch();
	ck_assert_uint_eq(watch.feed.damaged_pages, 1);
	ck_assert(noted("1 pages of the ring are damaged"));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
}
END_TEST

START_TEST(what_is_no_ring_is_refused_with_a_reason)
{
	char said[2048] = "";
	FILE *file = fmemopen(said, sizeof(said), "w");

	scene_write(ring_path, "this is no ring");
	open_watch();
	ck_assert_ptr_null(watch.feed.ring);
	ck_assert_int_eq(top_watch_explain(&watch, "x: ", file), 2);
	fclose(file);
	ck_assert_msg(strstr(said, "not a ring that can be read"), "%s", said);
	ck_assert_msg(strstr(said, "The file is damaged"), "%s", said);
}
END_TEST

START_TEST(without_a_good_configuration_there_are_figures_and_no_rules)
{
	make_ring(1 << 20, 1);
	run_for(2000, 0.3);
	scene_write(config_path, "{}");
	ck_assert_int_eq(top_watch_init(&watch, ring_path, config_path, message), 0);
	scene_write(config_path, "{\"rules\": 7}");
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_ptr_null(watch.rules);
	ck_assert(noted("no rules: "));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
	ck_assert_ptr_null(only()->nearest);
	top_watch_release(&watch);

	/* One that was named must be good where it says where the ring is. */
	ck_assert_int_eq(top_watch_init(&watch, NULL, config_path, message), -EINVAL);
	ck_assert_msg(strstr(message, config_path) != NULL, "%s", message);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	make_ring(1 << 20, 1);
	run_for(500, 0.1);
	run_for(500, 0.8);
	remember(WALL_MS + now_ms + 20000);
	for (long n = 1; injected && n < 100000; n++) {
		int r;

		torture_arm(n);
		r = top_watch_init(&watch, NULL, config_path, message);
		if (r == 0)
			r = top_watch_update(&watch, now());
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (injected)
			top_watch_release(&watch);
	}
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_eq(only()->pending, 1);
}
END_TEST

Suite *top_data_suite(void)
{
	const TTest *const of_table[] = {
		cpu_is_that_of_the_last_second_or_two,
		who_does_not_run_leaves_no_records_and_falls_to_nothing,
		a_burst_after_silence_is_not_spread_over_it,
		a_hole_of_the_sampling_is_no_spike_and_is_told,
		a_suspend_of_the_machine_is_told,
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
		every_allocation_of_the_table_may_fail,
	};
	const TTest *const of_rings[] = {
		what_the_ring_holds_is_there_at_once,
		what_is_written_meanwhile_is_followed,
		pending_and_cooling_are_found_out_from_the_samples,
		a_cooldown_from_before_is_known_from_the_state_file,
		a_firing_that_the_ring_and_the_file_know_cools_as_long_as_it_should,
		a_changed_configuration_is_judged_from_the_past_on,
		another_ring_is_another_world,
		a_daemon_that_is_silent_gone_or_was_never_there_is_told_apart,
		a_daemon_without_a_goodbye_is_gone,
		being_overtaken_is_said,
		a_damaged_page_is_said_and_passed_over,
		what_is_no_ring_is_refused_with_a_reason,
		without_a_good_configuration_there_are_figures_and_no_rules,
		every_allocation_may_fail,
	};
	Suite *suite = suite_create("top_data");
	TCase *tables = tcase_create("table"), *rings = tcase_create("rings");

	tcase_add_checked_fixture(tables, table_setup, table_teardown);
	for (size_t i = 0; i < ARRAY_LEN(of_table); i++)
		tcase_add_test(tables, of_table[i]);
	suite_add_tcase(suite, tables);
	tcase_add_checked_fixture(rings, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(of_rings); i++)
		tcase_add_test(rings, of_rings[i]);
	suite_add_tcase(suite, rings);

	return suite;
}
