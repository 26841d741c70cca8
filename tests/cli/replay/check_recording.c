/*
 * check_recording.c: streams as events: what busy targets did is judged as it was; what is missing,
 * damaged, doubled or absurd is not made up.
 */
#include "evaluator_feed.h"
#include "incidentmade.h"
#include "replay_rig.h"
#include "lib/base/base.h"
#include "torture.h"

#include <errno.h>

#include "cli/replay/recording.c"
#include "stream_feed.h"

Suite *recording_suite(void);

static struct replay_rig rig;

static struct config *config;
static struct evaluator *replayer; /* is fed with what is played */
static struct buffer text;
static struct stream_writer *writer;
static struct recording_summary summary;
static uint64_t troubles;
static mono_t first, until; /* what the incident says of its first and last tick */

/* Another one, for another configuration or another run. */
static void new_replayer(void)
{
	evaluator_free(replayer);
	replayer = rig_replayer(&rig, config);
}

static void setup(void)
{
	config = rig_config();
	replayer = NULL;
	new_replayer();
	rig.real.count = rig.replayed.count = 0;
	rig.seed = 1;
	text = (struct buffer){ 0 };
	troubles = 0;
	first = until = (mono_t){ 0 };
}

static void teardown(void)
{
	evaluator_free(replayer);
	config_free(config);
	buffer_release(&text);
}

/* The start on both clocks: START_TIME is that of the wall. */
#define START (50 * NS_PER_S)

static void begin_stream(uint64_t start_ns)
{
	struct stream_column columns[SAMPLE_FIELDS];
	const struct stream_options options = { .columns = columns,
						.column_count = SAMPLE_FIELDS,
						.start = { start_ns + RIG_WALL_AHEAD },
						.repeat_rows = 50 };

	columns_of_samples(columns);
	ck_assert_int_eq(stream_writer_new(sink_buffer(&text), &options, &writer), 0);
}

static void declare(const struct target *target, uint32_t looker)
{
	AUTO(buffer_release) struct buffer json = { 0 };

	ck_assert_int_eq(columns_target_json(target, looker, &json), 0);
	ck_assert_int_eq(stream_target(writer, target->id, json.data, json.len), 0);
}

static void put_row(uint32_t id, uint64_t at_ns, const struct sample *sample)
{
	ck_assert_int_eq(stream_row(writer, at_ns - START, id, sample->value, sample->mask), 0);
}

static void end_stream(void)
{
	ck_assert_int_eq(stream_close(writer), 0);
}

static void on_trouble(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	(void)ctx;
	(void)line;
	(void)rows_lost;
	ck_assert_ptr_nonnull(why);
	troubles++;
}

/* Samples are within a tick of their own writer, as in a ring. */
static int on_event(void *ctx, const struct ring_event *event)
{
	static uint32_t ticking;

	if (event->type == RING_EVENT_TICK)
		ticking = event->writer;
	if (event->type == RING_EVENT_SAMPLE || event->type == RING_EVENT_TICK_END)
		ck_assert_uint_eq(event->writer, ticking);

	return rig_event(ctx, event);
}

/* Plays what was written, in pieces. */
static void play(void)
{
	struct recording_options options = rig_tape(replayer);
	struct recording *recording;

	options.event = on_event;
	options.trouble = on_trouble;
	ck_assert_int_eq(recording_new(&options, &recording), 0);
	recording->clock.first = first;
	recording->until = until;
	ck_assert_int_eq(stream_feed_pieces(recording->stream_reader, text.data, text.len, 1000), 0);
	ck_assert_int_eq(recording_finish(recording, &summary), 0);
	recording_free(recording);
}

/*
 * A tick of one writer: its targets are those with its number and every `writers` more. The first
 * one is read as the tick begins.
 */
static void live_one_tick(struct evaluator *evaluator, struct sample *samples, uint32_t looker, uint32_t writers,
			  mono_t now)
{
	const struct feed_writer feeder = { .number = looker };

	for (uint32_t i = looker; i < RIG_TARGETS; i += writers) {
		mono_t at = mono_add(now, i == looker ? 0 : i * 20000 + rig_random(&rig, 20000));

		rig_live(&rig, &samples[i], true, RIG_INTERVAL);
		feed_sample_by(evaluator, feeder, i + 1, at, &samples[i]);
		put_row(i + 1, at.ns, &samples[i]);
	}
	ck_assert_int_eq(feed_tick_by(evaluator, feeder, now, (wall_t){ now.ns + RIG_WALL_AHEAD }), 0);
}

/*
 * Four busy targets and so many that look at them, one a little after the other. The last one hangs
 * now and then, if there are several.
 */
static void live_and_record_with(uint32_t writers, unsigned ticks)
{
	struct evaluator *evaluator = rig_evaluator(&rig, config);
	struct sample samples[RIG_TARGETS] = { { 0 } };
	mono_t now = { START };

	begin_stream(START);
	for (uint32_t i = 0; i < RIG_TARGETS; i++) {
		struct target target = rig_target(i + 1);

		declare(&target, i % writers);
		ck_assert_int_eq(feed_target_by(evaluator, (struct feed_writer){ .number = i % writers }, &target), 0);
	}
	for (unsigned tick = 0; tick < ticks; tick++) {
		now = mono_add(now, RIG_INTERVAL - NS_PER_MS + rig_random(&rig, 2 * NS_PER_MS));
		for (uint32_t w = 0; w < writers; w++)
			if (w == 0 || w + 1 < writers || tick % 700 < 480)
				live_one_tick(evaluator, samples, w, writers, mono_add(now, w * NS_PER_MS));
	}
	end_stream();
	evaluator_free(evaluator);
}

static void live_and_record(unsigned ticks)
{
	live_and_record_with(1, ticks);
}

START_TEST(a_stream_of_busy_targets_decides_as_was_decided)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		new_replayer();

		rig.real.count = rig.replayed.count = 0;
		rig.seed = seed;
		text.len = 0;
		live_and_record(1000);
		play();
		ck_assert_uint_eq(summary.ticks, 1000);
		ck_assert_uint_eq(summary.samples, 1000 * RIG_TARGETS);
		ck_assert_uint_eq(summary.targets, RIG_TARGETS);
		ck_assert_uint_eq(summary.late + summary.nameless + summary.gaps + troubles, 0);
		ck_assert(stream_reader_whole(&summary.report));
		rig_expect_same(&rig);
	}
}
END_TEST

START_TEST(targets_of_a_writer_that_hangs_are_not_idle_because_others_go_on)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		for (uint32_t writers = 2; writers <= RIG_TARGETS; writers++) {
			new_replayer();

			rig.real.count = rig.replayed.count = 0;
			rig.seed = seed;
			text.len = 0;
			live_and_record_with(writers, 1400);
			play();
			ck_assert_uint_eq(summary.ticks, (writers - 1) * 1400 + 960);
			ck_assert_uint_eq(summary.late + summary.nameless + summary.gaps + troubles, 0);
			ck_assert(stream_reader_whole(&summary.report));
			rig_expect_same(&rig);
		}
	}
}
END_TEST

/* ---- one target ---- */

static void busy(uint64_t from_ns, uint64_t to_ns, uint64_t step_ns, struct sample *sample)
{
	for (uint64_t at = from_ns; at <= to_ns; at += step_ns) {
		sample_set(sample, SAMPLE_CPU, sample->value[SAMPLE_CPU] + step_ns);
		put_row(1, at, sample);
	}
}

START_TEST(a_target_that_stands_still_is_judged_on)
{
	struct target target = rig_target(1);
	struct sample sample = { 0 };

	begin_stream(START);
	declare(&target, 0);
	busy(START, START + NS_PER_S, RIG_INTERVAL, &sample);
	put_row(1, START + 2 * NS_PER_S, &sample); /* its heartbeats */
	put_row(1, START + 3 * NS_PER_S, &sample);
	end_stream();
	play();
	ck_assert_uint_eq(rig.replayed.percent_windows, 91 + 20); /* at each step, then whole windows only */
	ck_assert_uint_eq(summary.ticks, 301);
}
END_TEST

/* A target that works for 60 ms, and the last tick at `last_ns`. */
static void play_until(uint64_t last_ns)
{
	struct target target = rig_target(1);
	struct sample sample = { 0 };

	new_replayer();
	rig.replayed.percent_windows = 0;
	text.len = 0;
	until = (mono_t){ last_ns };
	begin_stream(START);
	declare(&target, 0);
	busy(START, START + 60 * NS_PER_MS, RIG_INTERVAL, &sample);
	end_stream();
	play();
}

START_TEST(the_ticks_after_the_last_row_of_an_incident_are_made_up)
{
	play_until(0); /* not known */
	ck_assert_uint_eq(summary.ticks, 7);
	ck_assert_uint_eq(rig.replayed.percent_windows, 0); /* none of 100 ms is whole */
	play_until(START + 120 * NS_PER_MS - 30000);
	ck_assert_uint_eq(summary.ticks, 13);
	ck_assert_uint_gt(rig.replayed.percent_windows, 0);
	ck_assert_uint_eq(summary.to.ns, START + 120 * NS_PER_MS - 30000 + RIG_WALL_AHEAD);
	/* That of the last row, an earlier one, and nonsense. */
	play_until(START + 60 * NS_PER_MS + 4000000);
	ck_assert_uint_eq(summary.ticks, 7);
	play_until(START + 30 * NS_PER_MS);
	ck_assert_uint_eq(summary.ticks, 7);
	play_until(START + 3600 * NS_PER_S);
	ck_assert_uint_eq(summary.ticks, 7);
	play_until(UINT64_MAX);
	ck_assert_uint_eq(summary.ticks, 7);
}
END_TEST

START_TEST(an_incident_says_when_its_last_tick_was)
{
	struct recording_options options = rig_tape(replayer);
	const struct incidentmade_options story = { 0 };
	char directory[200], message[REPLAY_SOURCE_MESSAGE_MAX];
	static struct incident incident;
	struct replay_source source;
	int dirfd = incidentmade_directory(directory, sizeof(directory));

	incidentmade_fill(&story, &incident);
	incidentmade_write(dirfd, &story);
	ck_assert_int_eq(replay_source_open("last", directory, &source, message), 0);
	ck_assert_uint_eq(source.last_tick.ns, incident.mono.ns + (uint64_t)incident.coverage.got_to_ns);
	source.last_tick.ns += 500 * NS_PER_MS; /* it stood still */
	ck_assert_int_eq(replay_source_play(&source, &options, NULL, &summary), 0);
	ck_assert_uint_eq(summary.to.ns, incident.wall.ns + (uint64_t)incident.coverage.got_to_ns + 500 * NS_PER_MS);
	replay_source_close(&source);
	close(dirfd);
	incidentmade_remove(directory);
}
END_TEST

/* A step begins between the first tick and its row: the window that begins with the tick after it is whole. */
START_TEST(the_first_tick_of_an_incident_is_where_it_says)
{
	const uint64_t tick = START - 100 * NS_PER_US;
	struct target target = rig_target(1);

	for (unsigned known = 0; known < 2; known++) {
		struct sample sample = { 0 };

		new_replayer();
		rig.replayed.percent_windows = 0;
		text.len = 0;
		first.ns = known ? tick : 0;
		begin_stream(START);
		declare(&target, 0);
		busy(START + 200 * NS_PER_US, START + 200 * NS_PER_US, RIG_INTERVAL, &sample);
		busy(tick + 3 * RIG_INTERVAL, tick + 11 * RIG_INTERVAL, RIG_INTERVAL, &sample);
		end_stream();
		play();
		ck_assert_uint_eq(summary.ticks, 12);
		ck_assert_uint_eq(summary.from.ns, (known ? tick : START + 200 * NS_PER_US) + RIG_WALL_AHEAD);
		ck_assert_uint_eq(rig.replayed.percent_windows, known);
	}
}
END_TEST

START_TEST(where_the_writer_stalled_no_ticks_are_made_up)
{
	struct target target = rig_target(1);
	struct sample sample = { 0 };

	begin_stream(START);
	declare(&target, 0);
	busy(START, START + NS_PER_S, RIG_INTERVAL, &sample);
	busy(START + 5 * NS_PER_S, START + 6 * NS_PER_S, RIG_INTERVAL, &sample);
	end_stream();
	play();
	ck_assert_uint_eq(summary.ticks, 202);
	ck_assert_uint_eq(rig.replayed.percent_windows, 91 + 6 + 91); /* six reach into the stall */
}
END_TEST

START_TEST(the_rate_of_a_recording_is_found_out)
{
	struct recording_options options = rig_tape(replayer);
	struct target target = rig_target(1);
	struct sample sample = { 0 };
	struct recording *recording;

	options.interval_is_known = false;
	begin_stream(START);
	declare(&target, 0);
	busy(START, START + NS_PER_S, NS_PER_MS, &sample);
	put_row(1, START + 2 * NS_PER_S, &sample);
	end_stream();
	ck_assert_int_eq(recording_new(&options, &recording), 0);
	ck_assert_int_eq(stream_feed(recording->stream_reader, text.data, text.len), 0);
	ck_assert_int_eq(recording_finish(recording, &summary), 0);
	recording_free(recording);
	ck_assert_uint_eq(summary.ticks, 2001);
}
END_TEST

START_TEST(gaps_ends_and_unknown_targets_are_handed_on)
{
	static const char gap[] = "{\"lost_pages\":2}", gone[] = "{\"target\":1,\"time_ns\":5}";
	struct target target = rig_target(1);
	struct sample sample = { 0 };

	begin_stream(START);
	declare(&target, 0);
	busy(START, START + 50 * NS_PER_MS, RIG_INTERVAL, &sample);
	ck_assert_int_eq(stream_note(writer, "GAP", gap, strlen(gap)), 0);
	busy(START + 60 * NS_PER_MS, START + 150 * NS_PER_MS, RIG_INTERVAL, &sample);
	put_row(9, START + 150 * NS_PER_MS, &sample);
	ck_assert_int_eq(stream_note(writer, "GONE", gone, strlen(gone)), 0);
	put_row(1, START + 160 * NS_PER_MS, &sample);
	end_stream();
	play();
	ck_assert_uint_eq(rig.replayed.percent_windows, 0); /* the gap has cut the only one */
	ck_assert_uint_eq(summary.gaps, 1);
	ck_assert_uint_eq(summary.gone, 1);
	ck_assert_uint_eq(summary.nameless, 2);
}
END_TEST

START_TEST(rows_out_of_time_are_passed_over)
{
	struct target target = rig_target(1);
	struct sample sample = { 0 };

	begin_stream(START);
	declare(&target, 0);
	busy(START, START + 200 * NS_PER_MS, RIG_INTERVAL, &sample);
	put_row(1, START, &sample);                   /* again the first */
	put_row(1, START + UINT64_MAX / 2, &sample);  /* in centuries */
	put_row(1, START + 195 * NS_PER_MS, &sample); /* a little back is fine */
	busy(START + 210 * NS_PER_MS, START + 300 * NS_PER_MS, RIG_INTERVAL, &sample);
	end_stream();
	play();
	ck_assert_uint_eq(summary.late, 2);
	ck_assert_uint_eq(summary.samples, 32);
	ck_assert_uint_eq(rig.replayed.percent_windows, 21);
}
END_TEST

START_TEST(how_a_target_was_before_it_woke_comes_late_and_is_taken)
{
	struct target target = rig_target(1), sleeper = rig_target(2);
	struct sample sample = { 0 }, other = { 0 };
	uint64_t woke = START + 200 * NS_PER_MS;

	begin_stream(START);
	declare(&target, 0);
	declare(&sleeper, 0);
	sample_set(&other, SAMPLE_CPU, 1);
	put_row(2, START, &other);
	busy(START, woke, RIG_INTERVAL, &sample);
	put_row(2, woke - 80 * NS_PER_MS, &other); /* when it was last looked at */
	sample_set(&other, SAMPLE_CPU, 2);
	put_row(2, woke + 1, &other);
	put_row(2, woke - 50 * NS_PER_MS, &other); /* before its last row: nonsense */
	busy(woke + RIG_INTERVAL, START + 300 * NS_PER_MS, RIG_INTERVAL, &sample);
	end_stream();
	play();
	ck_assert_uint_eq(summary.late, 1);
	ck_assert_uint_eq(summary.ticks, 31);
}
END_TEST

START_TEST(a_late_row_belongs_to_the_last_tick_of_its_writer)
{
	struct target target = rig_target(1), sleeper = rig_target(2), neighbour = rig_target(3);
	struct sample sample = { 0 }, other = { 0 };
	uint64_t woke = START + 200 * NS_PER_MS;

	begin_stream(START);
	declare(&target, 0);
	declare(&sleeper, 1);
	declare(&neighbour, 1);
	sample_set(&other, SAMPLE_CPU, 1);
	put_row(2, START, &other);
	for (uint64_t at = START; at <= woke; at += RIG_INTERVAL) {
		put_row(3, at, &other);
		busy(at, at, RIG_INTERVAL, &sample);
	}
	put_row(2, woke - 80 * NS_PER_MS, &other); /* when it was last looked at */
	sample_set(&other, SAMPLE_CPU, 2);
	put_row(2, woke + RIG_INTERVAL, &other);
	end_stream();
	play();
	ck_assert_uint_eq(summary.late, 0);
	ck_assert_uint_eq(summary.ticks, 21 + 22);
}
END_TEST

START_TEST(targets_of_a_second_stream_are_others)
{

	/* The second one is of earlier. */
	for (unsigned i = 0; i < 2; i++) {
		struct target target = rig_target(1);
		struct sample sample = { 0 };

		begin_stream(START - i * 10 * NS_PER_S);
		declare(&target, 0);
		busy(START, START + 200 * NS_PER_MS, RIG_INTERVAL, &sample);
		end_stream();
	}
	play();
	ck_assert_uint_eq(summary.targets, 2);
	ck_assert_uint_eq(rig.replayed.percent_windows, 2 * 11);
	ck_assert_uint_eq(summary.late, 0);
}
END_TEST

START_TEST(damage_is_reported_and_leaves_a_gap)
{
	char *row;

	live_and_record(100);
	row = strstr(text.data, "\t200\t");
	ck_assert_ptr_nonnull(row);
	row[1] = '3';
	play();
	ck_assert_uint_gt(troubles, 0);
	ck_assert_uint_eq(summary.report.rows_lost, 1);
	ck_assert_uint_eq(summary.gaps, 1);
	ck_assert_uint_eq(summary.samples, 100 * RIG_TARGETS - 1);
}
END_TEST

START_TEST(gvisors_format_is_read_by_the_names_of_its_columns)
{
	static const struct stream_column columns[] = {
		{ "/web/cpu", "ns", "counter", "" },
		{ "/web/memory", "bytes", "gauge", "" },
		{ "/db-7/cpu", "ns", "counter", "" },
		{ "/db-7/none_of_ours", "ns", "counter", "" },
	};
	const struct stream_options options = {
		.format = STREAM_GVISOR, .columns = columns, .column_count = 4, .start = { START + RIG_WALL_AHEAD }
	};
	uint64_t values[4] = { 0, 50 << 20, 0, 1 };

	ck_assert_int_eq(stream_writer_new(sink_buffer(&text), &options, &writer), 0);
	for (uint64_t at = 0; at <= 3000; at += 10) {
		values[0] = at * NS_PER_MS;
		ck_assert_int_eq(stream_row(writer, at * NS_PER_MS, 0, values, 15), 0);
	}
	end_stream();
	play();
	ck_assert_uint_eq(summary.targets, 2);
	ck_assert_uint_eq(summary.ticks, 301);
	ck_assert_uint_eq(rig.replayed.percent_windows, 2 * 291);
	uint64_t fired = 0;

	for (size_t i = 0; i < rig.replayed.count; i++)
		if (strcmp(rig.replayed.firings[i].rule, "count") == 0) {
			ck_assert_str_eq(rig.replayed.firings[i].target, "web");
			fired++;
		}
	ck_assert_uint_gt(fired, 0);
}
END_TEST

/* The Adler-32 of these names is the same. */
START_TEST(targets_of_columns_are_told_apart_by_their_names)
{
	static const struct stream_column columns[] = {
		{ "/python3-10131/cpu", "ns", "counter", "" },
		{ "/python3-10212/cpu", "ns", "counter", "" },
	};
	struct stream_options options = {
		.format = STREAM_GVISOR, .columns = columns, .column_count = 2, .start = { START + RIG_WALL_AHEAD }
	};

	/* The second stream has the same targets. */
	for (unsigned round = 0; round < 2; round++, options.start.ns += NS_PER_S) {
		ck_assert_int_eq(stream_writer_new(sink_buffer(&text), &options, &writer), 0);
		for (uint64_t at = 0; at <= 100; at += 10)
			ck_assert_int_eq(stream_row(writer, at * NS_PER_MS, 0, (uint64_t[]){ at, 0 }, 3), 0);
		end_stream();
	}
	play();
	ck_assert_uint_eq(summary.report.streams, 2);
	ck_assert_uint_eq(summary.targets, 2);
	ck_assert_uint_eq(summary.samples, 2 * 2 * 11);
}
END_TEST

START_TEST(a_file_without_stream_lines_yields_nothing)
{

	ck_assert_int_eq(buffer_append(&text, "one line\nanother\n", 17), 0);
	play();
	ck_assert(!summary.any && !summary.report.ours);
}
END_TEST

static int nothing(void *ctx, const struct ring_event *event)
{
	(void)ctx;
	(void)event;
	return 0;
}

START_TEST(memory_that_runs_out_is_an_error)
{
	const struct recording_options options = { .interval_ns = RIG_INTERVAL,
						   .heartbeat_ns = NS_PER_S,
						   .event = nothing };
	bool injected = true;

	live_and_record(3);
	for (long n = 1; injected; n++) {
		struct recording *recording = NULL;

		torture_arm(n);
		int r = recording_new(&options, &recording);

		r = r == 0 ? stream_feed(recording->stream_reader, text.data, text.len) : r;
		r = r == 0 ? recording_finish(recording, &summary) : r;
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		recording_free(recording);
	}
}
END_TEST

static int stop(void *ctx, const struct ring_event *event)
{
	return event->type == RING_EVENT_SAMPLE && ++*(unsigned *)ctx == 5 ? -ECANCELED : 0;
}

START_TEST(an_event_handler_may_stop_it)
{
	unsigned samples = 0;
	const struct recording_options options = {
		.interval_ns = RIG_INTERVAL, .heartbeat_ns = NS_PER_S, .event = stop, .ctx = &samples
	};
	struct recording *recording;

	live_and_record(10);
	ck_assert_int_eq(recording_new(&options, &recording), 0);
	ck_assert_int_eq(stream_feed(recording->stream_reader, text.data, text.len), -ECANCELED);
	ck_assert_int_eq(recording_finish(recording, &summary), -ECANCELED);
	ck_assert_uint_eq(samples, 5);
	recording_free(recording);
}
END_TEST

Suite *recording_suite(void)
{
	Suite *suite = suite_create("recording");
	TCase *tcase = tcase_create("streams");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_stream_of_busy_targets_decides_as_was_decided);
	tcase_add_test(tcase, targets_of_a_writer_that_hangs_are_not_idle_because_others_go_on);
	tcase_add_test(tcase, a_target_that_stands_still_is_judged_on);
	tcase_add_test(tcase, the_ticks_after_the_last_row_of_an_incident_are_made_up);
	tcase_add_test(tcase, an_incident_says_when_its_last_tick_was);
	tcase_add_test(tcase, the_first_tick_of_an_incident_is_where_it_says);
	tcase_add_test(tcase, where_the_writer_stalled_no_ticks_are_made_up);
	tcase_add_test(tcase, the_rate_of_a_recording_is_found_out);
	tcase_add_test(tcase, gaps_ends_and_unknown_targets_are_handed_on);
	tcase_add_test(tcase, rows_out_of_time_are_passed_over);
	tcase_add_test(tcase, how_a_target_was_before_it_woke_comes_late_and_is_taken);
	tcase_add_test(tcase, a_late_row_belongs_to_the_last_tick_of_its_writer);
	tcase_add_test(tcase, targets_of_a_second_stream_are_others);
	tcase_add_test(tcase, damage_is_reported_and_leaves_a_gap);
	tcase_add_test(tcase, gvisors_format_is_read_by_the_names_of_its_columns);
	tcase_add_test(tcase, targets_of_columns_are_told_apart_by_their_names);
	tcase_add_test(tcase, a_file_without_stream_lines_yields_nothing);
	tcase_add_test(tcase, memory_that_runs_out_is_an_error);
	tcase_add_test(tcase, an_event_handler_may_stop_it);
	suite_add_tcase(suite, tcase);

	return suite;
}
