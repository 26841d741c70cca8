/*
 * check_ring_recorder.c: what the ring delivered is what the stream says, row by row; a sink that
 * fails is never forgotten.
 */
#include "daemon/engine/incident/ring_recorder.h"
#include "ring_fixture.h"
#include "stream_feed.h"
#include "lib/stream/stream.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <stdlib.h>

Suite *ring_recorder_suite(void);

#define TARGETS 3u

static struct ring *ring;
static struct ring_writer *writer;
static struct ring_cursor *cursor;
static struct fixture_target targets[TARGETS];
static struct buffer out;
static struct recorder *recorder;
static const struct stats stats = { .total_snapshots = 5, .num_backoff_sleeps = 7 };

/* What stream reader found in the stream. */
static struct {
	uint64_t rows, wrong, targets, gone, gaps, stats, columns, damage, looked_at_by_another;
	uint64_t last_values[STREAM_COLUMNS_MAX];
	uint32_t last_mask;
	bool gvisor;
} found;

static void setup(void)
{
	ring = fixture_ring(16);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint32_t i = 0; i < TARGETS; i++)
		fixture_target_init(&targets[i], i + 1);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	out = (struct buffer){ 0 };
	recorder = NULL;
	memset(&found, 0, sizeof(found));
}

static void teardown(void)
{
	buffer_release(&out);
	ring_cursor_free(cursor);
	ring_writer_free(writer);
	ring_free(ring);
}

static void start(struct sink sink, enum stream_format format)
{
	static const char *const names[TARGETS] = { "target/1", "target/2", "target/3" };
	struct recorder_options options = {
		.format = format,
		.start = fixture_time(0),
		.start_wall = fixture_wall(0),
		.names = names,
		.name_count = TARGETS,
	};

	ck_assert_int_eq(recorder_new(cursor, sink, &options, &recorder), 0);
}

static void write_ticks(uint64_t from, uint64_t to)
{
	for (uint64_t tick = from; tick < to; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, TARGETS, tick), 0);
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	(void)ctx;
	(void)name;
	(void)json;
	if (index >= found.columns)
		found.columns = index + 1;

	return 0;
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	char name[32];

	(void)ctx;
	(void)len;
	snprintf(name, sizeof(name), "\"target/%u\"", id);
	found.wrong += strstr(json, name) == NULL;
	found.targets++;
	found.looked_at_by_another += strstr(json, ",\"writer\":1}") != NULL;

	return 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct sample expected;

	(void)ctx;
	(void)seq;
	found.rows++;
	memcpy(found.last_values, values, sizeof(found.last_values));
	found.last_mask = mask;
	if (found.gvisor)
		return 0;

	fixture_sample(target, mono_add(fixture_time(0), time_ns), &expected);
	found.wrong += mask != expected.mask;
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		found.wrong += (mask >> f & 1) && values[f] != expected.value[f];

	return 0;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	(void)ctx;
	(void)json;
	(void)len;
	found.gone += strcmp(kind, "GONE") == 0;
	found.gaps += strcmp(kind, "GAP") == 0;

	return 0;
}

static int on_stats(void *ctx, const char *json, size_t len)
{
	(void)ctx;
	(void)len;
	found.stats++;
	found.wrong +=
		strstr(json, "\"num_backoff_sleeps\":7") == NULL && strstr(json, "\"num_backoff_sleeps\": 7") == NULL;

	return 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	(void)ctx;
	(void)line;
	(void)rows_lost;
	(void)why;
	found.damage++;

	return 0;
}

static struct stream_reader_report read_back(void)
{
	struct stream_reader_events events = {
		.column = on_column,
		.target = on_target,
		.row = on_row,
		.note = on_note,
		.stats = on_stats,
		.damage = on_damage,
	};
	struct stream_reader_report report;
	struct stream_reader *stream_reader;

	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	ck_assert_int_eq(stream_feed(stream_reader, out.data, out.len), 0);
	ck_assert_int_eq(stream_reader_finish(stream_reader, &report), 0);
	stream_reader_free(stream_reader);

	return report;
}

START_TEST(rows_equal_what_the_ring_said)
{
	struct recorder_counts counts;

	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	ck_assert_int_eq(recorder_pump(recorder), 0); /* nothing yet */
	for (uint64_t tick = 0; tick < 500; tick += 10) {
		write_ticks(tick, tick + 10);
		ck_assert_int_eq(recorder_pump(recorder), 0);
	}
	recorder_counts(recorder, &counts);
	ck_assert_uint_eq(counts.ticks, 500);
	ck_assert_uint_eq(counts.targets, TARGETS);
	ck_assert_uint_eq(counts.gone, 0);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(found.wrong, 0);
	ck_assert_uint_eq(found.rows, counts.rows);
	ck_assert_uint_ge(found.rows, 500 * TARGETS);
	ck_assert_uint_ge(found.targets, TARGETS);
	ck_assert_uint_eq(found.columns, SAMPLE_FIELDS);
	ck_assert_uint_eq(found.stats, 1);
	ck_assert_uint_eq(found.gaps, 0);
}
END_TEST

/* Each one's targets say whose they are, those of the first by not saying it; ticks are counted for each. */
START_TEST(whose_a_target_is_is_said_if_there_are_several_writers)
{
	struct recorder_counts counts;
	struct ring_writer *second;

	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	ck_assert_int_eq(ring_writer_new(ring, &second), 0);
	for (uint64_t tick = 1; tick < 50; tick++) {
		ck_assert_int_eq(fixture_tick(writer, targets, 1, tick), 0);
		ck_assert_int_eq(fixture_tick(second, targets + 1, TARGETS - 1, tick - 1), 0);
	}
	ring_writer_free(second);
	ck_assert_int_eq(recorder_pump(recorder), 0);
	recorder_counts(recorder, &counts);
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(counts.writers[i].ticks, 49);
		ck_assert_uint_eq(counts.writers[i].span.first.ns, fixture_time(1 - i).ns);
		ck_assert_uint_eq(counts.writers[i].span.last.ns, fixture_time(49 - i).ns);
		ck_assert_uint_eq(counts.writers[i].span.tick_ns, NS_PER_MS);
	}
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(found.wrong, 0);
	ck_assert_uint_eq(found.targets % TARGETS, 0);
	ck_assert_uint_eq(found.looked_at_by_another, found.targets / TARGETS * (TARGETS - 1));
}
END_TEST

START_TEST(closing_takes_what_is_still_in_the_ring)
{
	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	write_ticks(0, 10);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(found.rows, 10 * TARGETS);
}
END_TEST

START_TEST(what_is_flushed_can_be_read_before_the_end)
{
	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	write_ticks(0, 3);
	ck_assert_int_eq(recorder_pump(recorder), 0);
	ck_assert_int_eq(recorder_flush(recorder), 0);

	struct stream_reader_report report = read_back();

	ck_assert_uint_eq(report.rows, 3 * TARGETS);
	ck_assert(!report.complete);
	ck_assert_uint_eq(report.damaged_lines, 0);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);
}
END_TEST

START_TEST(a_target_that_ends_is_noted)
{
	struct recorder_counts counts;

	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	write_ticks(0, 2);
	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(2), fixture_wall(2), 0), 0);
	ck_assert_int_eq(ring_put_gone(writer, &targets[1].track, fixture_time(2), RING_GONE_EXITED), 0);
	ring_tick_end(writer, NULL);
	ck_assert_int_eq(recorder_pump(recorder), 0);
	recorder_counts(recorder, &counts);
	ck_assert_uint_eq(counts.gone, 1);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(found.gone, 1);
	ck_assert_uint_eq(found.wrong, 0);
}
END_TEST

START_TEST(a_hole_is_noted_and_what_comes_after_it_is_right)
{
	struct recorder_counts counts;

	start(sink_buffer(&out), STREAM_SPIKEWATCH);
	write_ticks(0, 5);
	ck_assert_int_eq(recorder_pump(recorder), 0);
	write_ticks(5, 5000); /* round the ring several times */
	ck_assert_int_eq(recorder_pump(recorder), 0);
	recorder_counts(recorder, &counts);
	ck_assert_uint_gt(counts.coverage.lost_pages, 0);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report)); /* as a stream; what it lacks it says */
	ck_assert_uint_gt(found.gaps, 0);
	ck_assert_uint_eq(found.wrong, 0);
	ck_assert_uint_gt(found.rows, 5 * TARGETS);
}
END_TEST

/*
 * Of two writers, over 1,000 ms: the last tick of each; whether the time is over; the holes that this makes. The first
 * has said itself what it missed, if it ticks after the end.
 */
static const struct {
	uint64_t first, second;
	bool over;
	uint64_t holes, missed;
} ends[] = {
	{ 1000, 1000, true, 0, 0 },  { 800, 760, true, 0, 0 },    { 1000, 600, true, 1, 400 },
	{ 600, 1000, true, 1, 400 }, { 500, 400, true, 2, 1100 }, { 500, 400, false, 0, 0 },
	{ 1010, 400, true, 1, 600 }, { 1010, 1000, true, 0, 0 },
};

static void tick_at(struct ring_writer *of, uint64_t ms, uint64_t last_ms)
{
	if (ms <= last_ms)
		ck_assert_int_eq(fixture_tick(of, targets + (of == writer ? 0 : 1), 1, ms), 0);
}

START_TEST(what_is_over_before_ticks_come_again_ends_in_a_hole)
{
	struct recorder_options options = { .start = fixture_time(0), .until = fixture_time(1000) };
	struct recorder_counts counts;
	struct ring_writer *second;

	ck_assert_int_eq(recorder_new(cursor, sink_buffer(&out), &options, &recorder), 0);
	ck_assert_int_eq(ring_writer_new(ring, &second), 0);
	for (uint64_t ms = 0; ms <= 1010; ms++) {
		tick_at(writer, ms, ends[_i].first);
		tick_at(second, ms, ends[_i].second);
		if (ms % 50 == 0)
			ck_assert_int_eq(recorder_pump(recorder), 0);
	}
	ring_writer_free(second);
	ck_assert_int_eq(recorder_close(recorder, &stats, ends[_i].over ? NS_PER_MS : 0, &counts), 0);

	struct stream_reader_report report = read_back();

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(found.wrong, 0);
	ck_assert_uint_eq(found.gaps, ends[_i].holes);
	ck_assert_uint_eq(found.rows, counts.rows);
	ck_assert_uint_eq(counts.coverage.holes, ends[_i].holes);
	ck_assert_uint_eq(counts.coverage.missed_slots, ends[_i].missed);
}
END_TEST

START_TEST(gvisors_format_has_a_row_for_each_tick)
{
	found.gvisor = true;
	start(sink_buffer(&out), STREAM_GVISOR);
	write_ticks(0, 20);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);

	struct stream_reader_report report = read_back();
	struct sample last;

	ck_assert(stream_reader_whole(&report));
	ck_assert_int_eq(report.format, STREAM_GVISOR);
	ck_assert_uint_eq(found.rows, 20);
	ck_assert_uint_eq(found.columns, TARGETS * RECORDER_GVISOR_FIELDS);
	for (uint32_t i = 0; i < TARGETS; i++) {
		fixture_sample(i + 1, mono_add(fixture_time(19), i), &last);
		ck_assert_uint_eq(found.last_values[i * RECORDER_GVISOR_FIELDS], last.value[SAMPLE_CPU]);
		ck_assert_uint_eq(found.last_values[i * RECORDER_GVISOR_FIELDS + 3], last.value[SAMPLE_MEMORY]);
	}
}
END_TEST

static int close_after(long bytes_left, int *ret_pump)
{
	start(torture_sink(&bytes_left), STREAM_SPIKEWATCH);
	write_ticks(0, 5);
	*ret_pump = recorder_pump(recorder);
	if (*ret_pump == 0)
		*ret_pump = recorder_flush(recorder);

	return recorder_close(recorder, &stats, 0, NULL);
}

START_TEST(an_error_of_the_sink_is_said_again_by_every_call)
{
	long bytes_left = 2000;

	start(torture_sink(&bytes_left), STREAM_SPIKEWATCH);
	write_ticks(0, 50);
	recorder_pump(recorder);
	ck_assert_int_eq(recorder_flush(recorder), -EIO);
	ck_assert_int_eq(recorder_flush(recorder), -EIO);
	write_ticks(50, 52);
	ck_assert_int_eq(recorder_pump(recorder), -EIO);
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), -EIO);
}
END_TEST

START_TEST(every_write_may_fail_and_closing_says_so)
{
	int pumped, closed = -EIO;

	for (long bytes = 4000; closed != 0; bytes += 1999) {
		closed = close_after(bytes, &pumped);
		ck_assert(closed == 0 || closed == -EIO);
		ck_assert(pumped == 0 || closed == pumped);
		ring_cursor_free(cursor);
		ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	struct recorder_options options = { .format = STREAM_SPIKEWATCH };
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = recorder_new(cursor, sink_buffer(&out), &options, &recorder);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	ck_assert_int_eq(recorder_close(recorder, &stats, 0, NULL), 0);
	ck_assert_int_eq(recorder_close(NULL, &stats, 0, NULL), 0);
}
END_TEST

Suite *ring_recorder_suite(void)
{
	Suite *suite = suite_create("ring_recorder");
	TCase *stream = tcase_create("stream");

	tcase_add_checked_fixture(stream, setup, teardown);
	tcase_add_test(stream, rows_equal_what_the_ring_said);
	tcase_add_test(stream, whose_a_target_is_is_said_if_there_are_several_writers);
	tcase_add_test(stream, closing_takes_what_is_still_in_the_ring);
	tcase_add_test(stream, what_is_flushed_can_be_read_before_the_end);
	tcase_add_test(stream, a_target_that_ends_is_noted);
	tcase_add_test(stream, a_hole_is_noted_and_what_comes_after_it_is_right);
	tcase_add_loop_test(stream, what_is_over_before_ticks_come_again_ends_in_a_hole, 0, ARRAY_LEN(ends));
	tcase_add_test(stream, gvisors_format_has_a_row_for_each_tick);
	tcase_add_test(stream, an_error_of_the_sink_is_said_again_by_every_call);
	tcase_add_test(stream, every_write_may_fail_and_closing_says_so);
	tcase_add_test(stream, every_allocation_may_fail);
	suite_add_tcase(suite, stream);

	return suite;
}
