/*
 * check_source_unread.c: what ran for a moment is told by its clock alone, and how late, at most,
 * the rest of it is seen; and how rarely what sleeps is read.
 *
 * The clock is that of a real process, which runs when it is told to; its files are ours, below a
 * directory.
 */
#include "lib/model/pacing.h"
#include "lib/rules/metric.h"
#include "scene.h"
#include "source_rig.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <sys/stat.h>

Suite *source_unread_suite(void);

#define MS NS_PER_MS
#define INTERVAL (10 * MS)
#define IDLE (100 * MS)

/* So much CPU time may be left unread. */
#define UNREAD_NS (200 * NS_PER_US)

static const struct source_options telling = {
	.capacity = 8,
	.heartbeat_ns = 1000 * S,
	.peak_interval_ns = UINT64_MAX,
	.interval_ns = INTERVAL,
	.idle_interval_ns = IDLE,
	.backoff = SOURCE_BACKOFF_ALL,
};

/* What the files of the process say. */
struct files {
	uint64_t pages, faults, mark_kib;
};

static char root[64];
static struct child child;
static struct bench bench;
static uint64_t now, interval;

static void say(struct files files)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%d/stat", root, child.pid);
	scene_write(path, "%d (app) S 1 1 1 0 -1 0 %ju 0 0 0 3 4 0 0 20 0 1 0 500 1000000 100 0\n", child.pid,
		    (uintmax_t)files.faults);
	snprintf(path, sizeof path, "%s/%d/statm", root, child.pid);
	scene_write(path, "%ju %ju 50 1 0 60 0\n", (uintmax_t)(2 * files.pages), (uintmax_t)files.pages);
	snprintf(path, sizeof path, "%s/%d/status", root, child.pid);
	scene_write(path, "VmHWM:\t %ju kB\n", (uintmax_t)files.mark_kib);
}

static void begin(struct source_options options)
{
	char path[96];

	child = child_start();
	scene_directory(root);
	snprintf(path, sizeof path, "%s/%d", root, child.pid);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	say((struct files){ 100, 1, 400 });
	bench_open(&bench, root, options);
	now = 7 * S;
	interval = options.interval_ns;
}

static void end(struct source_entry *entry)
{
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
	scene_remove(root);
}

/* A fill at `now`. */
static void fill_now(void)
{
	bench.at.ns = now;
	source_fill(bench.source, (mono_t){ now });
}

static void tick(void)
{
	now += interval;
	fill_now();
}

static uint64_t pages_of(const struct source_entry *entry)
{
	return value(entry, SAMPLE_MEMORY) / (uint64_t)sysconf(_SC_PAGESIZE);
}

/* It is known, and nothing of it is unread or moves. */
static struct source_entry *add_calm(void)
{
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);

	fill_now();
	child_do(&child, 'n');
	tick();
	for (uint64_t until = now + 2 * IDLE; now < until;)
		tick();

	return entry;
}

/*
 * Lets it run for less than may be left unread, unless the machine made more of it: then false, and
 * it is calm again.
 */
static bool run_little(const struct source_entry *entry)
{
	for (int i = 0; i < 20; i++) {
		uint64_t used = value(entry, SAMPLE_CPU);

		child_do(&child, 'n');
		if ((uint64_t)cpu_of(child.pid) - used < UNREAD_NS)
			return true;
		for (uint64_t until = now + 2 * IDLE; now < until;)
			tick();
	}

	return false;
}

START_TEST(what_ran_for_a_moment_is_told_by_its_clock_and_read_within_the_idle_interval)
{
	begin(telling);
	struct source_entry *entry = add_calm();

	for (unsigned round = 0; round < 5; round++) {
		uint64_t pages = pages_of(entry), since, looks = skipped(&bench);

		ck_assert(run_little(entry));
		say((struct files){ pages + 1, pages + 1, 400 });
		do
			tick();
		while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
		ck_assert_uint_eq(pages_of(entry), pages);
		ck_assert_uint_gt(skipped(&bench), looks);
		for (since = now; pages_of(entry) == pages; tick())
			ck_assert_uint_le(now, since + IDLE);
		ck_assert_uint_ge(now, since + IDLE);
		ck_assert_uint_eq(value(entry, SAMPLE_MINOR_FAULTS), pages + 1);

		/* With its clock standing still: there is nothing left to be read. */
		say((struct files){ pages + 2, 1, 400 });
		for (uint64_t until = now + 3 * IDLE; now < until; tick())
			ck_assert_uint_eq(pages_of(entry), pages + 1);
		say((struct files){ pages + 1, 1, 400 });
		child_do(&child, 'h'); /* and it is calm again */
		for (uint64_t until = now + 3 * IDLE; now < until;)
			tick();
	}
	end(entry);
}
END_TEST

START_TEST(what_uses_more_is_read_in_the_next_look)
{
	begin(telling);
	struct source_entry *entry = add_calm();

	for (uint64_t round = 1; round < 10; round++) {
		child_do(&child, 'h');
		say((struct files){ 100 + round / 2, round, 400 });
		do
			tick();
		while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_uint_eq(pages_of(entry), 100 + round / 2);
		ck_assert_uint_eq(value(entry, SAMPLE_MINOR_FAULTS), round);
	}
	end(entry);
}
END_TEST

START_TEST(a_real_one_that_takes_memory_after_a_calm_is_seen_to_in_the_next_look)
{
	child = child_start();
	bench_open(&bench, "/proc", telling);
	now = 7 * S;
	interval = INTERVAL;
	struct source_entry *entry = add_calm();

	for (unsigned i = 0; i < 5; i++) {
		for (uint64_t until = now + 2 * IDLE; now < until;)
			tick();

		uint64_t memory = value(entry, SAMPLE_MEMORY);

		child_do(&child, 'm');
		do
			tick();
		while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_uint_ge(value(entry, SAMPLE_MEMORY), memory + TOUCHED_BYTES);
	}
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(moments_add_up)
{
	static const uint64_t intervals[] = { MS, 10 * MS, 100 * MS },
			      most[] = { UNREAD_NS / 10, UNREAD_NS, UNREAD_NS };
	struct source_options options = telling;
	unsigned left = 0;

	options.interval_ns = intervals[_i];
	options.idle_interval_ns = 10 * intervals[_i];
	begin(options);
	struct source_entry *entry = add_calm();

	for (unsigned i = 0; i < 30; i++) /* whatever its pauses were */
		tick();
	source_read_all_now(bench.source);
	tick();

	uint64_t used = (uint64_t)cpu_of(child.pid), faults = value(entry, SAMPLE_MINOR_FAULTS);

	for (unsigned i = 1; i <= 60; i++) {
		child_do(&child, i % 7 ? 'n' : 'h');
		say((struct files){ 100, 10 + i, 400 });
		tick();
		if ((uint64_t)cpu_of(child.pid) - used < most[_i] && value(entry, SAMPLE_MINOR_FAULTS) == faults) {
			left++;
			continue;
		}
		ck_assert_uint_eq(value(entry, SAMPLE_MINOR_FAULTS), 10 + i);
		used = value(entry, SAMPLE_CPU);
		faults = 10 + i;
	}
	if (_i > 0)
		ck_assert_uint_gt(left, 0);
	end(entry);
}
END_TEST

START_TEST(what_grows_is_read_whenever_it_runs_until_it_rests)
{
	begin(telling);
	struct source_entry *entry = add_calm();

	child_do(&child, 'h');
	for (uint64_t pages = 101; pages < 110; pages++) {
		say((struct files){ pages, pages, 400 });
		do
			tick();
		while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_uint_eq(pages_of(entry), pages);
		child_do(&child, 'n'); /* should the machine make more of it than a little, it is read all the more */
	}
	tick(); /* it ran, and had not grown */
	ck_assert(run_little(entry));
	say((struct files){ 200, 200, 400 });
	tick();
	ck_assert_uint_eq(value(entry, SAMPLE_CPU), (uint64_t)cpu_of(child.pid));
	ck_assert_uint_eq(pages_of(entry), 109);
	end(entry);
}
END_TEST

START_TEST(without_pauses_nothing_is_left_unread)
{
	struct source_options options = telling;

	if (_i == 0)
		options.idle_interval_ns = 0;
	begin(options);
	struct source_entry *entry = add_calm();

	if (_i == 1)
		source_entry_set_idle(entry, INTERVAL);
	else if (_i == 2)
		source_set_interval(bench.source, IDLE);
	for (uint64_t i = 1; i < 10; i++) {
		child_do(&child, 'n');
		say((struct files){ 100, 10 + i, 400 });
		do {
			now += _i == 2 ? IDLE : INTERVAL;
			fill_now();
		} while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_uint_eq(value(entry, SAMPLE_MINOR_FAULTS), 10 + i);
	}
	end(entry);
}
END_TEST

START_TEST(what_is_unread_is_read_in_time_however_long_the_pauses)
{
	struct source_options options = telling;

	options.idle_interval_ns = 3 * S;
	begin(options);
	struct source_entry *entry = add_calm();

	/* Pauses have places of their own: one round may end where its pause does. */
	for (uint64_t round = 1, unread = 0; unread < 4; round++) {
		ck_assert_uint_le(round, 5);
		for (uint64_t i = 0; i < 200 + 7 * round; i++)
			tick();
		source_read_all_now(bench.source);
		tick();
		ck_assert(run_little(entry));
		say((struct files){ 100, 70 + round, 400 });
		tick();
		unread += value(entry, SAMPLE_MINOR_FAULTS) != 70 + round;
		for (uint64_t since = now; value(entry, SAMPLE_MINOR_FAULTS) != 70 + round; tick())
			ck_assert_uint_lt(now, since + 3 * S);
	}
	end(entry);
}
END_TEST

START_TEST(the_sum_of_a_group_has_the_clock_of_what_is_unread)
{
	begin(telling);
	struct source_entry *group = add_group(&bench), *entry = NULL;

	ck_assert_int_eq(source_entry_process(bench.procfd, child.pid, 0, true, NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench.source, entry, group), 0);
	for (unsigned i = 0; i < 20; i++)
		tick();

	uint64_t sum = value(group, SAMPLE_CPU), used = (uint64_t)cpu_of(child.pid);

	for (unsigned i = 1; i < 5; i++) {
		child_do(&child, 'n');
		say((struct files){ 100, 1, 400 + i });
		tick();
		ck_assert_uint_eq(value(group, SAMPLE_CPU) - sum, (uint64_t)cpu_of(child.pid) - used);
		ck_assert_uint_eq(source_entry_runs(entry), i);
	}
	drop(&bench, entry);
	end(group);
}
END_TEST

START_TEST(what_has_no_descriptors_is_read_whenever_it_ran)
{
	begin(telling);
	struct source_entry *entry = add_calm();

	source_entry_close_files(entry);
	for (unsigned i = 0; i < 30; i++)
		tick();
	ck_assert(source_entry_is_closed(entry));
	for (uint64_t i = 1; i < 10; i++) {
		child_do(&child, 'n');
		say((struct files){ 100, i, 400 });
		do
			tick();
		while (value(entry, SAMPLE_CPU) != (uint64_t)cpu_of(child.pid));
		ck_assert_uint_eq(value(entry, SAMPLE_MINOR_FAULTS), i);
	}
	end(entry);
}
END_TEST

/* ---- as if everything was read ---- */

#define STEPS 700
#define BEHIND ((unsigned)(IDLE / INTERVAL) + 1)

struct seen {
	struct sample full, told;
};

/*
 * Whether the told values of what files say are those of one full sample, not more than so many
 * ticks ago.
 */
static bool was_so(const struct seen *seen, unsigned at, unsigned behind)
{
	for (unsigned i = at; i + behind >= at; i--) {
		if (seen[i].full.value[SAMPLE_MEMORY] == seen[at].told.value[SAMPLE_MEMORY] &&
		    seen[i].full.value[SAMPLE_MINOR_FAULTS] == seen[at].told.value[SAMPLE_MINOR_FAULTS])
			return true;
		if (i == 0)
			break;
	}

	return false;
}

static double rate(enum metric metric, const struct sample *from, const struct sample *to, unsigned ticks)
{
	const struct metric_machine machine = { 4, 1 << 30 };
	struct metric_point a = { .time = { S }, .sample = *from },
			    b = { .time = { S + ticks * INTERVAL }, .sample = *to };
	double result = -1;

	ck_assert(metric_value(metric, METRIC_OF_CORE, &machine, &a, &b, &result));
	return result;
}

/* The first tick at which it is above a level. */
static unsigned first_above(const struct seen *seen, bool told, uint64_t bytes)
{
	unsigned i = 0;

	while (i < STEPS && (told ? &seen[i].told : &seen[i].full)->value[SAMPLE_MEMORY] <= bytes)
		i++;
	return i;
}

static void compare_windows(const struct seen *seen)
{
	for (unsigned at = BEHIND + 1; at < STEPS; at++)
		for (unsigned ticks = 1; ticks + BEHIND <= at && ticks <= 100; ticks = ticks * 3 + 1) {
			const struct seen *from = &seen[at - ticks], *to = &seen[at];
			unsigned before = at - ticks - BEHIND;

			ck_assert_double_eq(rate(METRIC_CPU, &from->told, &to->told, ticks),
					    rate(METRIC_CPU, &from->full, &to->full, ticks));
			/*
			 * No more than all that came in the window and in what may be unread before
			 * it.
			 */
			ck_assert_double_le(rate(METRIC_FAULTS, &from->told, &to->told, ticks),
					    rate(METRIC_FAULTS, &seen[before].full, &to->full, ticks));
			if (ticks > BEHIND)
				ck_assert_double_ge(rate(METRIC_FAULTS, &from->told, &to->told, ticks),
						    rate(METRIC_FAULTS, &from->full, &seen[at - BEHIND].full, ticks));
		}
}

START_TEST(what_is_told_is_what_was_read_and_never_later_than_said)
{
	static struct seen seen[STEPS];
	struct source *full = NULL;
	struct source_options options = telling;
	const struct clock clock = { stepping_mono, no_wall, NULL, &bench };
	struct files files = { 100, 1, 400 };
	uint32_t seed = 42;
	unsigned later = 0;

	begin(telling);
	options.read_always = true;
	ck_assert_int_eq(source_new(&options, &clock, &full), 0);
	struct source_entry *told = add_calm(), *entry = NULL;

	ck_assert_int_eq(source_entry_process(bench.procfd, child.pid, 0, true, NULL, &entry), 0);
	ck_assert_int_eq(source_add(full, entry, NULL), 0);
	source_read_all_now(bench.source);

	uint64_t used = value(told, SAMPLE_CPU);

	for (unsigned i = 0; i < STEPS; i++) {
		seed = seed * 1664525 + 1013904223;

		unsigned what = (seed >> 20) % 32;

		if (what < 20) { /* often enough to be looked at in every tick: pauses are idle_backoff.h's */
			child_do(&child, what == 0 ? 'h' : 'n');
			files.faults += (seed >> 10) % 5;
			files.pages += (seed >> 13) % 16 == 0 ? (seed >> 17) % 50 : 0;
			say(files);
		}
		tick();
		source_fill(full, (mono_t){ now });
		seen[i] = (struct seen){ *source_entry_sample(entry), *source_entry_sample(told) };
		ck_assert_uint_eq(seen[i].full.value[SAMPLE_CPU], (uint64_t)cpu_of(child.pid));
		ck_assert_uint_eq(seen[i].told.value[SAMPLE_CPU], seen[i].full.value[SAMPLE_CPU]);
		ck_assert_msg(i < BEHIND || was_so(seen, i, BEHIND), "%u", i);
		if (was_so(seen, i, 0))
			used = seen[i].told.value[SAMPLE_CPU];
		else
			later++;
		ck_assert_uint_lt(seen[i].told.value[SAMPLE_CPU] - used, UNREAD_NS);
	}
	ck_assert_uint_gt(later, STEPS / 20);
	compare_windows(seen);
	for (unsigned i = 0; i < STEPS; i++) {
		uint64_t level = seen[i].full.value[SAMPLE_MEMORY] - 1;
		unsigned first = first_above(seen, false, level);

		if (first + BEHIND < STEPS)
			ck_assert_uint_le(first_above(seen, true, level), first + BEHIND);
	}
	source_remove(full, entry);
	source_entry_free(entry);
	source_free(full);
	end(told);
}
END_TEST

/* ---- what sleeps ---- */

/* Time until it is read, to the tick. */
static uint64_t until_read(const struct source_entry *entry)
{
	uint64_t since = now, looks, at;

	do {
		ck_assert_uint_le(now, since + 100 * S);
		looks = skipped(&bench);
		at = source_entry_at(entry).ns;
		tick();
	} while (source_entry_at(entry).ns == at || skipped(&bench) != looks);

	return now - since;
}

START_TEST(readings_of_what_sleeps_are_ever_further_apart)
{
	static const uint64_t beats[] = { S, 4 * S, 60 * S }, longest[] = { 8 * S, 10 * S, 60 * S };
	struct source_options options = telling;

	options.heartbeat_ns = beats[_i];
	begin(options);
	struct source_entry *entry = add_calm();

	until_read(entry); /* it is calm for less than a heartbeat */
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 1; i < 7; i++) { /* a heartbeat may be shorter by a quarter */
			uint64_t pause = beats[_i] << i < longest[_i] ? beats[_i] << i : longest[_i],
				 took = until_read(entry);

			ck_assert_uint_le(took, pause + IDLE + INTERVAL);
			ck_assert_uint_ge(took, pause * 3 / 4);
		}

		uint64_t pages = pages_of(entry) + 7;

		if (round % 2 == 0) { /* pages of it are swapped in, say */
			say((struct files){ pages, 1, 400 });
			until_read(entry);
			ck_assert_uint_eq(pages_of(entry), pages);
		} else {
			child_do(&child, 'h');
			ck_assert_uint_le(until_read(entry), IDLE + INTERVAL);
			ck_assert_uint_le(until_read(entry), IDLE + INTERVAL); /* once more, standing still */
		}
		ck_assert_uint_le(until_read(entry), beats[_i] + IDLE + INTERVAL);
	}
	end(entry);
}
END_TEST

START_TEST(a_mark_is_read_again_when_pages_came_and_else_a_heartbeat_later)
{
	struct source_options options = telling;

	options.peak_interval_ns = IDLE;
	options.heartbeat_ns = S;
	options.reset_peaks = _i == 1;
	begin(options);
	struct source_entry *entry = add_calm();
	uint64_t since = now;

	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY_PEAK), 400 * 1024);
	for (unsigned i = 0; i < 20; i++) {
		say((struct files){ 100, 50 + i, 500 + i });
		child_do(&child, 'h');
		tick();
		tick();
		for (uint64_t until = now + 2 * IDLE; now < until;)
			tick();
		ck_assert_uint_eq(value(entry, SAMPLE_MEMORY_PEAK), (500 + i) * 1024);
	}
	ck_assert(run_little(entry)); /* and what hardly ran has one too */
	say((struct files){ 100, 70, 600 });
	for (uint64_t until = now + 4 * IDLE; now < until;)
		tick();
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY_PEAK), 600 * 1024);
	say((struct files){ 100, 70, 1000 });
	child_do(&child, 'h');
	since = now;
	while (value(entry, SAMPLE_MEMORY_PEAK) != 1000 * 1024) {
		ck_assert_uint_le(now, since + S + 2 * IDLE);
		tick();
	}
	if (_i == 1)
		ck_assert_uint_le(now, since + 3 * IDLE);
	else
		ck_assert_uint_ge(now, since + S / 2);
	end(entry);
}
END_TEST

Suite *source_unread_suite(void)
{
	Suite *suite = suite_create("source_unread");
	TCase *tcase = tcase_create("moments");

	tcase_add_test(tcase, what_ran_for_a_moment_is_told_by_its_clock_and_read_within_the_idle_interval);
	tcase_add_test(tcase, what_uses_more_is_read_in_the_next_look);
	tcase_add_test(tcase, a_real_one_that_takes_memory_after_a_calm_is_seen_to_in_the_next_look);
	tcase_add_loop_test(tcase, moments_add_up, 0, 3);
	tcase_add_test(tcase, what_grows_is_read_whenever_it_runs_until_it_rests);
	tcase_add_loop_test(tcase, without_pauses_nothing_is_left_unread, 0, 3);
	tcase_add_test(tcase, what_is_unread_is_read_in_time_however_long_the_pauses);
	tcase_add_test(tcase, the_sum_of_a_group_has_the_clock_of_what_is_unread);
	tcase_add_test(tcase, what_has_no_descriptors_is_read_whenever_it_ran);
	tcase_add_test(tcase, what_is_told_is_what_was_read_and_never_later_than_said);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("sleep");
	tcase_add_loop_test(tcase, readings_of_what_sleeps_are_ever_further_apart, 0, 3);
	tcase_add_loop_test(tcase, a_mark_is_read_again_when_pages_came_and_else_a_heartbeat_later, 0, 2);
	suite_add_tcase(suite, tcase);

	return suite;
}
