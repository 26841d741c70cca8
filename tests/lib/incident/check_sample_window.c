/* check_sample_window.c: what goes in comes out, within the window and within the memory. */
#include "lib/incident/sample_window.c"

#include "lib/stream/sample_stream.h"
#include "lib/base/json.h"
#include "stream_feed.h"
#include "lib/stream/stream.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S NS_PER_S
#define MS NS_PER_MS

static mono_t at(uint64_t ns)
{
	return (mono_t){ ns };
}

/* Fires at 100 s; 10 s before, 5 s after. */
static struct sample_window *make(size_t max_bytes)
{
	struct sample_window_options options = {
		.fired = at(100 * S), .before_ns = 10 * S, .after_ns = 5 * S, .max_bytes = max_bytes
	};
	struct sample_window *sample_window;

	ck_assert_int_eq(sample_window_new(&options, &sample_window), 0);
	return sample_window;
}

/* Numbers that are the same in every run. */
static uint64_t random_u64(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static struct sample random_sample(uint64_t *seed)
{
	struct sample sample = { .mask = (uint32_t)random_u64(seed) & ((1u << SAMPLE_FIELDS) - 1) };

	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (sample_has(&sample, f))
			sample.value[f] = random_u64(seed) >> random_u64(seed) % 64;
	return sample;
}

START_TEST(what_goes_in_comes_out)
{
	enum { COUNT = 5000 };
	struct sample_window *sample_window = make(0);
	mono_t *times = calloc(COUNT, sizeof(*times));
	struct sample *samples = calloc(COUNT, sizeof(*samples));
	uint64_t seed = 42;
	size_t next = 0;

	for (size_t i = 0; i < COUNT; i++) {
		times[i] = at(90 * S + i * 3 * MS - (i > 0 && i % 7 == 0 ? 4 * MS : 0)); /* steps back sometimes */
		samples[i] = random_sample(&seed);
		sample_window_add(sample_window, times[i], &samples[i]);
	}
	for (struct cursor cursor = first_record(sample_window); next_record(&cursor); next++) {
		ck_assert_uint_lt(next, COUNT);
		ck_assert_uint_eq(cursor.state.time_ns, times[next].ns);
		ck_assert_uint_eq(cursor.state.sample.mask, samples[next].mask);
		for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
			if (sample_has(&samples[next], f))
				ck_assert_uint_eq(cursor.state.sample.value[f], samples[next].value[f]);
	}
	ck_assert_uint_eq(next, COUNT);
	sample_window_free(sample_window);
	free(times);
	free(samples);
}
END_TEST

/* What ran in a pause of 80 ms, with the record of the look before it; without back-off there is no pause. */
START_TEST(a_pause_in_which_it_ran_is_how_late_its_onset_is)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_coverage coverage;
	struct sample sample = { 0 };
	uint64_t idle_ns = _i == 0 ? 100 * MS : 0;

	for (unsigned i = 0; i <= 20; i++) {
		sample_window_tick(sample_window, at(92 * S + i * 10 * MS), idle_ns);
		sample_set(&sample, SAMPLE_CPU, i < 10 ? 5 : i);
		if (i == 0 || i == 2 || i >= 10)
			sample_window_add(sample_window, at(92 * S + i * 10 * MS), &sample);
	}
	sample_window_coverage(sample_window, 10 * MS, &coverage);
	ck_assert_uint_eq(coverage.onset_late_ns, _i == 0 ? 80 * MS : 0);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(the_row_that_says_most_is_how_late_cpu_time_was_added)
{
	static const uint64_t said[] = { 0, 120, 499, 0, 110 };
	struct sample_window *sample_window = make(0);
	struct sample_window_coverage coverage;

	for (unsigned i = 0; i < ARRAY_LEN(said); i++) {
		struct sample sample = { 0 };

		sample_window_coverage(sample_window, 10 * MS, &coverage);
		ck_assert_uint_eq(coverage.cpu_late_ns, i == 0 || i == 1 ? 0 : i == 2 ? 120 * MS : 499 * MS);
		sample_set(&sample, SAMPLE_CPU, i);
		if (said[i] > 0)
			sample_set(&sample, SAMPLE_CPU_LATE, said[i] * MS);
		sample_window_add(sample_window, at(92 * S + i * 10 * MS), &sample);
	}
	sample_window_free(sample_window);
}
END_TEST

START_TEST(what_is_outside_of_the_window_is_dropped)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_coverage coverage;
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, 1);
	sample_window_add(sample_window, at(90 * S - 1), &sample);
	sample_window_add(sample_window, at(90 * S), &sample);
	sample_window_add(sample_window, at(105 * S), &sample);
	sample_window_add(sample_window, at(105 * S + 1), &sample);
	sample_window_tick(sample_window, at(90 * S - 1), 0);
	sample_window_tick(sample_window, at(106 * S), 0);
	sample_window_gap(sample_window, at(89 * S), 3);
	sample_window_gone(sample_window, at(106 * S));
	sample_window_coverage(sample_window, S, &coverage);
	ck_assert_uint_eq(coverage.samples, 2);
	ck_assert_uint_eq(coverage.samples_dropped, 0);
	ck_assert_uint_eq(coverage.ticks_got, 0);
	ck_assert_double_eq(coverage.capture_rate, 0);
	ck_assert_uint_eq(coverage.gaps, 0);
	ck_assert(!coverage.gone);
	ck_assert(!sample_window_end(sample_window, at(105 * S), 10 * MS));
	ck_assert(sample_window_end(sample_window, at(105 * S + 1), 10 * MS));
	sample_window_free(sample_window);
}
END_TEST

START_TEST(a_window_longer_than_the_machine_is_up_begins_at_zero)
{
	struct sample_window_options options = { .fired = at(2 * S), .before_ns = 30 * S, .after_ns = S };
	struct sample_window *sample_window;

	ck_assert_int_eq(sample_window_new(&options, &sample_window), 0);
	ck_assert_uint_eq(sample_window->from.ns, 0);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(memory_is_bounded_and_what_is_dropped_is_counted)
{
	struct sample_window *sample_window = make(40000);
	struct sample_window_coverage coverage;
	uint64_t seed = 7;

	for (uint64_t i = 0; i < 2000; i++) {
		struct sample sample = random_sample(&seed);

		sample_window_add(sample_window, at(90 * S + i * MS), &sample);
	}
	sample_window_coverage(sample_window, MS, &coverage);
	ck_assert_uint_le(sample_window->chunk_count * sizeof(struct chunk), 40000);
	ck_assert_uint_gt(coverage.samples, 100);
	ck_assert_uint_gt(coverage.samples_dropped, 100);
	ck_assert_uint_eq(coverage.samples + coverage.samples_dropped, 2000);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(windows_that_share_memory_have_no_more_together_and_give_it_back)
{
	_Atomic size_t shared = 0;
	struct sample_window_options options = { .fired = at(100 * S),
						 .before_ns = 10 * S,
						 .after_ns = 5 * S,
						 .shared_bytes = &shared,
						 .shared_max = 60000 };
	struct sample_window_coverage coverage;
	struct sample_window *windows[3];
	uint64_t seed = 7, dropped = 0;

	for (unsigned w = 0; w < 3; w++) {
		ck_assert_int_eq(sample_window_new(&options, &windows[w]), 0);
		for (uint64_t i = 0; i < 500; i++) {
			struct sample sample = random_sample(&seed);

			sample_window_add(windows[w], at(90 * S + i * MS), &sample);
		}
		sample_window_coverage(windows[w], MS, &coverage);
		dropped += coverage.samples_dropped;
	}
	ck_assert_uint_gt(shared, 30000);
	ck_assert_uint_le(shared, 60000);
	ck_assert_uint_gt(dropped, 0);
	for (unsigned w = 0; w < 3; w++)
		sample_window_free(windows[w]);
	ck_assert_uint_eq(shared, 0);
}
END_TEST

START_TEST(an_ordinary_sample_takes_little_memory)
{
	struct sample_window *sample_window = make(0);
	struct sample sample = { 0 };

	for (uint64_t i = 0; i < 10000; i++) {
		sample_set(&sample, SAMPLE_CPU, 5 * S + i * 999000);
		sample_set(&sample, SAMPLE_CPU_USER, 4 * S + i / 10 * 10 * MS);
		sample_set(&sample, SAMPLE_MEMORY, (100u << 20) + i % 64 * 4096);
		sample_set(&sample, SAMPLE_MINOR_FAULTS, i);
		sample_set(&sample, SAMPLE_CPU_LIMIT, 2 * S);
		sample_window_add(sample_window, at(90 * S + i * MS), &sample);
	}
	ck_assert_uint_lt(sample_window->chunk_count * sizeof(struct chunk), 10000 * 24);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(coverage_says_what_there_is)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_coverage coverage;

	for (uint64_t i = 0; i <= 1000; i++)
		if (i < 400 || i >= 500) /* a tenth is missing */
			sample_window_tick(sample_window, at(92 * S + i * 10 * MS), 0);
	sample_window_gap(sample_window, at(97 * S), 2);
	sample_window_gone(sample_window, at(103 * S));
	sample_window_coverage(sample_window, 10 * MS, &coverage);
	ck_assert_uint_eq(coverage.want_before_ns, 10 * S);
	ck_assert_uint_eq(coverage.want_after_ns, 5 * S);
	ck_assert_int_eq(coverage.got_from_ns, -8 * (int64_t)S);
	ck_assert_int_eq(coverage.got_to_ns, 2 * (int64_t)S);
	ck_assert_uint_eq(coverage.ticks_expected, 1500);
	ck_assert_uint_eq(coverage.ticks_got, 901);
	ck_assert_double_eq_tol(coverage.capture_rate, 0.9001, 0.0002);
	ck_assert_uint_eq(coverage.gaps, 1);
	ck_assert_uint_eq(coverage.lost_pages, 2);
	ck_assert(coverage.gone);
	ck_assert_int_eq(coverage.gone_ns, 3 * (int64_t)S);
	sample_window_free(sample_window);
}
END_TEST

/* Four seconds of ticks, and a hole of two before them (_i), or one that goes on beyond the end of the window. */
START_TEST(a_hole_at_an_edge_of_the_window_is_in_the_capture_rate)
{
	struct sample_window *sample_window = make(0);
	const struct sampling_hole before = { at(94 * S), at(96 * S), 199, 0 };
	const struct sampling_hole behind = { at(103 * S), at(110 * S), 699, 0 };
	uint64_t from_s = _i ? 96 : 99;
	struct sample_window_coverage coverage;

	for (uint64_t i = 0; i <= 400; i++) {
		if (_i && i == 0)
			sample_window_hole(sample_window, &before);
		sample_window_tick(sample_window, at(from_s * S + i * 10 * MS), 0);
	}
	if (!_i)
		sample_window_hole(sample_window, &behind);
	sample_window_coverage(sample_window, 10 * MS, &coverage);
	ck_assert_uint_eq(coverage.ticks_got, 401);
	ck_assert_double_eq_tol(coverage.capture_rate, 4.0 / 6, 0.005);
	ck_assert_int_eq(coverage.got_to_ns, _i ? 0 : 3 * (int64_t)S);
	sample_window_free(sample_window);
}
END_TEST

/* The sampler stands still when the window ends: the record of the hole is still to come. */
static const struct {
	uint64_t interval_ms, last_ms; /* ticks; the last, of a window that ends at 105 s */
	bool told;                     /* there is a record of the hole, which goes on beyond the window */
	uint64_t holes, missed;
} ends[] = {
	{ 10, 103000, false, 1, 200 }, { 10, 103000, true, 1, 699 }, { 10, 104800, false, 0, 0 },
	{ 10, 105000, false, 0, 0 },   { 500, 104500, false, 0, 0 }, { 500, 102500, false, 1, 250 },
};

START_TEST(a_window_that_ends_before_its_ticks_come_again_ends_in_a_hole)
{
	struct sample_window *sample_window = make(0);
	uint64_t interval_ms = ends[_i].interval_ms, last_ms = ends[_i].last_ms;
	const struct sampling_hole hole = { at(last_ms * MS), at(110 * S), 699, 0 };
	struct sample_window_coverage coverage;

	for (uint64_t ms = last_ms - 4000; ms <= last_ms; ms += interval_ms)
		sample_window_tick(sample_window, at(ms * MS), 0);
	if (ends[_i].told)
		sample_window_hole(sample_window, &hole);
	ck_assert(!sample_window_end(sample_window, at(105 * S), 10 * MS));
	ck_assert(sample_window_end(sample_window, at(105 * S + 1), 10 * MS));
	sample_window_coverage(sample_window, 10 * MS, &coverage);
	ck_assert_uint_eq(coverage.holes, ends[_i].holes);
	ck_assert_uint_eq(coverage.missed_slots, ends[_i].missed);
	if (ends[_i].holes && interval_ms == 10)
		ck_assert_double_eq_tol(coverage.capture_rate, 4.0 / 6, 0.005);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(a_hole_is_kept_counted_and_no_peak)
{
	struct sample_window *sample_window = make(0);
	const struct sampling_hole holes[] = {
		{ at(88 * S), at(91 * S), 299, 0 },         /* begins before the window: only a second of it counts */
		{ at(95 * S), at(95 * S + 20 * MS), 1, 0 }, /* one slot */
		{ at(97 * S), at(99 * S), 199, 0 },
		{ at(99 * S), at(99 * S + 10 * MS), 0, 3600 * S }, /* a suspend, and no slot */
		{ at(200 * S), at(201 * S), 99, 0 },               /* not of this window */
	};
	struct sample_window_coverage coverage;
	struct sample_window_peaks peaks;
	struct sample sample = { 0 };
	size_t kept = 0;

	for (size_t i = 0; i < ARRAY_LEN(holes); i++) {
		if (holes[i].missed_slots > 0)
			sample_set(&sample, SAMPLE_CPU, i * S);
		sample_window_hole(sample_window, &holes[i]);
		sample_window_add(sample_window, holes[i].to, &sample);
	}
	sample_window_coverage(sample_window, 10 * MS, &coverage);
	ck_assert_uint_eq(coverage.gaps, 3);
	ck_assert_uint_eq(coverage.holes, 3);
	ck_assert_uint_eq(coverage.missed_slots, 299 + 1 + 199);
	ck_assert_uint_eq(coverage.longest_hole_ns, 2 * S);
	ck_assert_double_eq_tol((double)coverage.unsampled_ns, 2.99e9, 0.03e9);
	ck_assert_uint_eq(coverage.lost_pages, 0);

	for (struct cursor cursor = first_record(sample_window); next_record(&cursor);) {
		if (!cursor.is_hole)
			continue;
		ck_assert_uint_eq(cursor.hole.from.ns, holes[kept].from.ns);
		ck_assert_uint_eq(cursor.hole.to.ns, holes[kept].to.ns);
		ck_assert_uint_eq(cursor.hole.missed_slots, holes[kept].missed_slots);
		ck_assert_uint_eq(cursor.hole.suspended_ns, holes[kept].suspended_ns);
		kept++;
	}
	ck_assert_uint_eq(kept, 4);
	ck_assert_uint_eq(coverage.suspends, 1);
	ck_assert_uint_eq(coverage.suspended_ns, 3600 * S);

	/* A second of CPU time in each: over the four seconds between two samples, however short the window. */
	sample_window_peaks(sample_window, 10 * MS, &peaks);
	ck_assert(peaks.has_cpu);
	ck_assert_double_eq_tol(peaks.cpu_cores, 1.0 / 3.98, 0.01);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(many_gaps_are_added_up)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_coverage coverage;

	for (uint64_t i = 0; i < 1000; i++)
		sample_window_gap(sample_window, at(91 * S + i), 2);
	sample_window_coverage(sample_window, MS, &coverage);
	ck_assert_uint_eq(coverage.gaps, 1000);
	ck_assert_uint_eq(coverage.lost_pages, 2000);
	sample_window_free(sample_window);
}
END_TEST

/*
 * Idle until 99 s, then 0.2 s at three cores in 10 ms steps, then idle again, with heartbeats once
 * a second.
 */
static void add_burst(struct sample_window *sample_window)
{
	struct sample sample = { 0 };
	uint64_t cpu = S;

	for (uint64_t t = 90 * S; t <= 105 * S; t += 10 * MS) {
		if (t > 99 * S && t <= 99 * S + 200 * MS)
			cpu += 30 * MS;
		else if (t % S != 0)
			continue;
		sample_set(&sample, SAMPLE_CPU, cpu);
		sample_set(&sample, SAMPLE_MEMORY, t == 99 * S + 50 * MS ? 900 : 100);
		sample_set(&sample, SAMPLE_MEMORY_PEAK, t < 99 * S + 100 * MS ? 5000 : 7000);
		sample_window_add(sample_window, at(t), &sample);
	}
}

START_TEST(the_peak_is_that_of_the_burst)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_peaks peaks;

	add_burst(sample_window);
	sample_window_peaks(sample_window, 100 * MS, &peaks);
	ck_assert(peaks.has_cpu);
	ck_assert_double_eq_tol(peaks.cpu_cores, 3.0, 0.01);
	ck_assert_uint_eq(peaks.memory_bytes, 900);
	ck_assert_uint_eq(peaks.memory_peak_bytes, 7000); /* a mark that rose within the window */
	sample_window_peaks(sample_window, S, &peaks);
	ck_assert_double_eq_tol(peaks.cpu_cores, 0.6, 0.05);
	sample_window_free(sample_window);
}
END_TEST

/* It sleeps since 98 s, and was seen so a tick before it ran for 20 ms: a tenth of 200 ms, not of 1.01 s. */
START_TEST(a_burst_shorter_than_its_window_is_not_spread_over_the_sleep_before_it)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_peaks peaks;
	struct sample sample = { 0 };
	const struct {
		uint64_t at, cpu;
	} looks[] = { { 97 * S, S },
		      { 98 * S, S },
		      { 99 * S, S },
		      { 99 * S + 10 * MS, S + 10 * MS },
		      { 99 * S + 20 * MS, S + 20 * MS } };

	for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
		sample_set(&sample, SAMPLE_CPU, looks[i].cpu);
		sample_window_add(sample_window, at(looks[i].at), &sample);
	}
	sample_window_peaks(sample_window, 200 * MS, &peaks);
	ck_assert_double_eq_tol(peaks.cpu_cores, 0.1, 1e-6);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(a_high_water_mark_from_before_the_window_is_no_peak)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_peaks peaks;
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_MEMORY, 100);
	sample_set(&sample, SAMPLE_MEMORY_PEAK, 9000);
	sample_window_add(sample_window, at(91 * S), &sample);
	sample_window_add(sample_window, at(92 * S), &sample);
	sample_window_peaks(sample_window, 100 * MS, &peaks);
	ck_assert(!peaks.has_cpu);
	ck_assert_uint_eq(peaks.memory_peak_bytes, 100);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(a_counter_that_steps_back_is_no_peak)
{
	struct sample_window *sample_window = make(0);
	struct sample_window_peaks peaks;
	struct sample sample = { 0 };
	const uint64_t cpu[] = { 50 * S, 50 * S, 1 * S, 1 * S + 500 * MS };

	for (size_t i = 0; i < 4; i++) {
		sample_set(&sample, SAMPLE_CPU, cpu[i]);
		sample_window_add(sample_window, at((91 + i) * S), &sample);
	}
	sample_window_peaks(sample_window, 100 * MS, &peaks);
	ck_assert_double_eq_tol(peaks.cpu_cores, 0.5, 0.001);
	sample_window_free(sample_window);
}
END_TEST

/* ---- the stream ---- */

struct seen {
	uint64_t rows, last_time, notes, targets;
	uint64_t gap_after_rows;
	bool gone;
	char target[2048];
};

static int see_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct seen *seen = ctx;

	(void)seq;
	ck_assert_uint_eq(target, 3);
	ck_assert_uint_eq(mask, 1u << SAMPLE_CPU);
	ck_assert_uint_eq(values[SAMPLE_CPU], 1000 + seen->rows);
	seen->rows++;
	seen->last_time = time_ns;
	return 0;
}

static int see_note(void *ctx, const char *kind, const char *json, size_t len)
{
	struct seen *seen = ctx;

	(void)len;
	seen->notes++;
	if (strcmp(kind, "GAP") == 0) {
		seen->gap_after_rows = seen->rows;
		ck_assert_str_eq(json, "{\"time_ns\":5500000000,\"lost_pages\":4}");
	}
	seen->gone |= strcmp(kind, "GONE") == 0;
	return 0;
}

static int see_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	struct seen *seen = ctx;

	ck_assert_uint_eq(id, 3);
	snprintf(seen->target, sizeof(seen->target), "%.*s", (int)len, json);
	seen->targets++;
	return 0;
}

static const struct target hostile = { .id = 3,
				       .kind = TARGET_PROCESS,
				       .pid = 12,
				       .start_ticks = 99,
				       .entry = "web",
				       .name = "web/12",
				       .key = "web:12@99",
				       .comm = "a\tb\n\"c\x1b[2J",
				       .cmdline = "x \x7f y \xc2\x9b z \xff",
				       .cgroup = "/" };

static int write_slice(const struct sample_window *sample_window, struct sink sink)
{
	struct stream_column columns[SAMPLE_FIELDS];
	struct stream_options options = { .columns = columns, .column_count = SAMPLE_FIELDS, .start = { 7 * S } };
	struct buffer json = { 0 };
	struct stream_writer *writer;
	int r, close_r;

	columns_of_samples(columns);
	r = stream_writer_new(sink, &options, &writer);
	if (r < 0)
		return r;
	r = columns_target_json(&hostile, 0, &json);
	if (r == 0)
		r = stream_target(writer, 3, json.data, json.len);
	buffer_release(&json);
	if (r == 0)
		r = sample_window_write(sample_window, writer, 3);
	close_r = stream_close(writer);
	return r < 0 ? r : close_r;
}

static struct sample_window *ten_seconds(void)
{
	struct sample_window *sample_window = make(0);
	struct sample sample = { 0 };

	for (uint64_t i = 0; i < 10; i++) {
		if (i == 6)
			sample_window_gap(sample_window, at(90 * S + 5500 * MS), 4);
		sample_set(&sample, SAMPLE_CPU, 1000 + i);
		sample_window_add(sample_window, at(90 * S + i * S), &sample);
	}
	sample_window_gone(sample_window, at(100 * S));
	return sample_window;
}

START_TEST(the_stream_has_rows_gaps_and_the_end)
{
	struct sample_window *sample_window = ten_seconds();
	struct seen seen = { 0 };
	struct stream_reader_events events = { .row = see_row, .note = see_note, .target = see_target, .ctx = &seen };
	struct stream_reader_report report;
	struct buffer text = { 0 };
	struct stream_reader *stream_reader;

	ck_assert_int_eq(write_slice(sample_window, sink_buffer(&text)), 0);
	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	ck_assert_int_eq(stream_feed(stream_reader, text.data, text.len), 0);
	ck_assert_int_eq(stream_reader_finish(stream_reader, &report), 0);
	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(report.columns, SAMPLE_FIELDS);
	ck_assert_uint_eq(seen.rows, 10);
	ck_assert_uint_eq(seen.last_time, 9 * S);
	ck_assert_uint_eq(seen.gap_after_rows, 6);
	ck_assert(seen.gone);
	ck_assert_uint_ge(seen.targets, 1);
	stream_reader_free(stream_reader);
	buffer_release(&text);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(a_target_is_one_harmless_line)
{
	struct buffer json = { 0 };

	ck_assert_int_eq(columns_target_json(&hostile, 0, &json), 0);
	for (size_t i = 0; i < json.len; i++)
		ck_assert_int_ge((unsigned char)json.data[i], 0x20);
	ck_assert_int_eq(json.data[json.len - 1], '}');
	ck_assert_int_eq(buffer_append(&json, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(json.data, "\"pid\":12,\"start_ticks\":99"));
	ck_assert_ptr_null(strchr(json.data, 0x7f));
	ck_assert_ptr_null(strstr(json.data, "\xc2\x9b"));
	ck_assert_ptr_nonnull(strstr(json.data, "x \xef\xbf\xbd y \xef\xbf\xbd z"));
	buffer_release(&json);
}
END_TEST

START_TEST(every_failing_write_is_reported)
{
	struct sample_window *sample_window = ten_seconds();
	long bytes = 0;
	int r = -EIO;

	for (; r != 0; bytes += 97) {
		long left = bytes;

		r = write_slice(sample_window, torture_sink(&left));
		ck_assert(r == 0 || r == -EIO);
		ck_assert_int_lt(bytes, 1000000);
	}
	ck_assert_int_gt(bytes, 1000);
	sample_window_free(sample_window);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct sample_window_options options = { .fired = at(100 * S), .before_ns = S, .after_ns = S };
		struct sample_window_coverage coverage = { 0 };
		struct sample_window *sample_window = NULL;
		struct sample sample = { 0 };
		struct buffer text = { 0 };
		int r;

		sample_set(&sample, SAMPLE_CPU, 1000);
		torture_arm(n);
		r = sample_window_new(&options, &sample_window);
		if (r == 0) {
			sample_window_add(sample_window, at(100 * S), &sample);
			sample_window_coverage(sample_window, MS, &coverage);
			r = write_slice(sample_window, sink_buffer(&text));
		}
		injected = torture_disarm();
		if (r == 0)
			ck_assert_uint_eq(coverage.samples_dropped, injected ? 1 : 0);
		else
			ck_assert_int_eq(r, -ENOMEM);
		buffer_release(&text);
		sample_window_free(sample_window);
	}
}
END_TEST

Suite *sample_window_suite(void);
Suite *sample_window_suite(void)
{
	Suite *suite = suite_create("sample_window");
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, what_goes_in_comes_out);
	tcase_add_loop_test(tcase, a_pause_in_which_it_ran_is_how_late_its_onset_is, 0, 2);
	tcase_add_test(tcase, the_row_that_says_most_is_how_late_cpu_time_was_added);
	tcase_add_test(tcase, what_is_outside_of_the_window_is_dropped);
	tcase_add_test(tcase, a_window_longer_than_the_machine_is_up_begins_at_zero);
	tcase_add_test(tcase, memory_is_bounded_and_what_is_dropped_is_counted);
	tcase_add_test(tcase, windows_that_share_memory_have_no_more_together_and_give_it_back);
	tcase_add_test(tcase, an_ordinary_sample_takes_little_memory);
	tcase_add_test(tcase, coverage_says_what_there_is);
	tcase_add_loop_test(tcase, a_hole_at_an_edge_of_the_window_is_in_the_capture_rate, 0, 2);
	tcase_add_loop_test(tcase, a_window_that_ends_before_its_ticks_come_again_ends_in_a_hole, 0, ARRAY_LEN(ends));
	tcase_add_test(tcase, a_hole_is_kept_counted_and_no_peak);
	tcase_add_test(tcase, many_gaps_are_added_up);
	tcase_add_test(tcase, the_peak_is_that_of_the_burst);
	tcase_add_test(tcase, a_burst_shorter_than_its_window_is_not_spread_over_the_sleep_before_it);
	tcase_add_test(tcase, a_high_water_mark_from_before_the_window_is_no_peak);
	tcase_add_test(tcase, a_counter_that_steps_back_is_no_peak);
	tcase_add_test(tcase, the_stream_has_rows_gaps_and_the_end);
	tcase_add_test(tcase, a_target_is_one_harmless_line);
	tcase_add_test(tcase, every_failing_write_is_reported);
	tcase_add_test(tcase, every_failing_allocation_is_survived);
	suite_add_tcase(suite, tcase);
	return suite;
}
