/*
 * One writer and lossy readers in one thread: what was written comes back, and no more than that.
 */
#include "ring_fixture.h"
#include "torture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *ring_suite(void);

static struct ring *ring;
static struct ring_writer *writer;
static struct fixture_target targets[64];

static void set_up(void)
{
	ring = fixture_ring(8);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint32_t i = 0; i < 64; i++)
		fixture_target_init(&targets[i], i + 1);
}

static void tear_down(void)
{
	ring_writer_free(writer);
	ring_free(ring);
}

static void write_ticks(uint32_t target_count, uint64_t from, uint64_t to)
{
	for (uint64_t tick = from; tick < to; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, target_count, tick), 0);
}

START_TEST(a_tick_comes_back_as_it_was_written)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), RING_EMPTY);
	write_ticks(1, 3, 4);

	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_TICK);
	ck_assert_uint_eq(event.tick, 0);
	ck_assert_uint_eq(event.time.ns, fixture_time(3).ns);
	ck_assert_uint_eq(event.wall.ns, fixture_wall(3).ns);

	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_TARGET);
	ck_assert_uint_eq(event.id, 1);
	ck_assert_str_eq(event.target.name, "target/1");

	struct sample expected;
	fixture_sample(1, fixture_time(3), &expected);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_SAMPLE);
	ck_assert_uint_eq(event.id, 1);
	ck_assert_uint_eq(event.changed, expected.mask);
	ck_assert(fixture_same(event.sample, &expected));

	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_TICK_END);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), RING_EMPTY);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(every_sample_comes_back)
{
	struct fixture_tally tally;

	write_ticks(10, 0, 60);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 60);
	ck_assert_uint_eq(tally.samples, 600);
	ck_assert_uint_eq(tally.targets, 10);
	ck_assert_uint_eq(tally.lapped, 0);
}
END_TEST

START_TEST(only_changed_fields_are_written)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, 1);
	sample_set(&sample, SAMPLE_MEMORY, 2);
	for (uint64_t tick = 0; tick < 2; tick++) {
		sample_set(&sample, SAMPLE_CPU, 1 + tick);
		ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
		ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(tick), &sample), 0);
		ring_tick_end(writer, NULL);
	}

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_SAMPLE);
	ck_assert_uint_eq(event.changed, 1u << SAMPLE_CPU);
	ck_assert_uint_eq(event.sample->value[SAMPLE_CPU], 2);
	ck_assert_uint_eq(event.sample->value[SAMPLE_MEMORY], 2);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_read_may_be_long_before_or_after_its_tick)
{
	static const int64_t offsets[] = { -1, 1, -3000000000, 3000000000, 2147483647, -2147483648, 100000000000 };
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct sample sample = { 0 };
	mono_t now = { 1000 * NS_PER_S };

	ck_assert_int_eq(ring_tick_begin(writer, now, fixture_wall(0), 0), 0);
	for (size_t i = 0; i < 7; i++) {
		sample_set(&sample, SAMPLE_CPU, i);
		mono_t at = mono_add(now, (uint64_t)offsets[i]);
		ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, at, &sample), 0);
	}
	ring_tick_end(writer, NULL);

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (size_t i = 0; i < 7;) {
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		if (event.type != RING_EVENT_SAMPLE)
			continue;
		ck_assert_int_eq(mono_diff(event.time, now), offsets[i]);
		i++;
	}
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_target_can_be_said_to_have_been_as_it_was)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct sample sample = { 0 };
	unsigned samples = 0;

	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(1), fixture_wall(1), 0), 0);
	ck_assert_int_eq(ring_put_still(writer, &targets[0].track, fixture_time(0)), RING_UNCHANGED); /* as what? */
	sample_set(&sample, SAMPLE_CPU, 1);
	ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(1), &sample), 0);
	ring_tick_end(writer, NULL);
	ring_writer_idle(writer, 100 * NS_PER_MS + 1);
	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(9), fixture_wall(9), 0), 0);
	ck_assert_int_eq(ring_put_still(writer, &targets[0].track, fixture_time(1)),
			 RING_UNCHANGED); /* that is known */
	ck_assert_int_eq(ring_put_still(writer, &targets[0].track, fixture_time(5)), 0);
	sample_set(&sample, SAMPLE_CPU, 2);
	ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(9), &sample), 0);
	ring_tick_end(writer, NULL);

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK)
			ck_assert_uint_eq(event.idle_ns,
					  event.time.ns == fixture_time(1).ns ? 0 : 100 * NS_PER_MS + NS_PER_US);
		if (event.type != RING_EVENT_SAMPLE)
			continue;
		ck_assert_uint_eq(event.time.ns, fixture_time(samples == 0 ? 1 : samples == 1 ? 5 : 9).ns);
		ck_assert_uint_eq(event.sample->value[SAMPLE_CPU], samples < 2 ? 1 : 2);
		ck_assert_uint_eq(event.changed, samples == 1 ? 0 : 1u << SAMPLE_CPU);
		samples++;
	}
	ck_assert_uint_eq(samples, 3);
	ring_cursor_free(cursor);

	struct ring_info info;

	ring_info(ring, &info);
	ck_assert_uint_eq(info.idle_ns, 100 * NS_PER_MS + NS_PER_US);
}
END_TEST

START_TEST(a_tick_that_was_not_ended_is_never_seen)
{
	struct fixture_tally tally;
	struct sample sample;

	write_ticks(2, 0, 3);
	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(3), fixture_wall(3), 0), 0);
	for (uint32_t i = 0; i < 64; i++) {
		fixture_sample(i + 1, fixture_time(3), &sample);
		ck_assert_int_eq(ring_put_sample(writer, &targets[i].track, fixture_time(3), &sample), 0);
	}
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 3);

	ring_writer_free(writer);
	writer = NULL;
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 3);
}
END_TEST

START_TEST(a_tick_over_several_pages_is_one_tick)
{
	struct fixture_tally tally;

	write_ticks(64, 0, 2);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);

	struct ring_info info;
	ring_info(ring, &info);
	ck_assert_uint_gt(info.next_seq, 4);
	ck_assert_uint_le(info.next_seq, 8);
	ck_assert_uint_eq(tally.ticks, 2);
	ck_assert_uint_eq(tally.samples, 128);
	ck_assert_uint_eq(tally.last_tick, 1);
}
END_TEST

START_TEST(a_tick_whose_beginning_was_overwritten_is_not_delivered)
{
	struct fixture_tally tally;

	for (uint64_t tick = 0; tick < 20; tick++) {
		write_ticks(64, tick, tick + 1);
		fixture_read(ring, RING_OLDEST, &tally);
		fixture_check(&tally);
		ck_assert_uint_eq(tally.samples, 64 * tally.ticks);
		ck_assert_uint_eq(tally.last_tick, tick);
	}
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_counted)
{
	struct stats stats = { 0 };
	struct fixture_tally tally;
	int rc = 0;
	uint64_t fitted = 0;

	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(0), fixture_wall(0), UINT32_MAX), 0);
	for (uint32_t i = 0; i < 4000 && rc == 0; i++, fitted += rc == 0) {
		struct sample sample;
		mono_t at = mono_add(fixture_time(0), i);
		fixture_sample(i % 64 + 1, at, &sample);
		rc = ring_put_sample(writer, &targets[i % 64].track, at, &sample);
	}
	ck_assert_int_eq(rc, RING_HELD);
	ring_tick_end(writer, NULL);
	ring_writer_account(writer, &stats);
	ck_assert_uint_eq(stats.lost_records, 1);

	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 1);
	ck_assert_uint_eq(tally.samples, fitted);

	write_ticks(64, 1, 9);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.last_tick, 8);
}
END_TEST

START_TEST(overwrites_oldest)
{
	struct fixture_tally tally;

	write_ticks(10, 0, 1000);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.last_tick, 999);
	ck_assert_uint_eq(tally.first_tick, 1000 - tally.ticks);
	ck_assert_uint_gt(tally.ticks, 7 * (4096 - 600) / (10 * 48 + 32) - 8);
	ck_assert_uint_eq(tally.lapped, 0);
	ck_assert_uint_eq(tally.targets, 10);
}
END_TEST

START_TEST(reader_that_lags_is_told_so)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	write_ticks(10, 0, 4);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	ck_assert_uint_eq(tally.ticks, 4);

	write_ticks(10, 4, 1000);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_ge(tally.lapped, 1);
	ck_assert_uint_eq(tally.last_tick, 999);

	struct ring_info info;
	ring_info(ring, &info);
	ck_assert_uint_ge(tally.lost_pages, info.next_seq - 8);
	ck_assert_uint_le(tally.lost_pages, info.next_seq - 6);

	/* From here on it keeps up. */
	uint64_t lapped = tally.lapped;
	uint64_t ticks = tally.ticks;
	for (uint64_t tick = 1000; tick < 1500; tick++) {
		write_ticks(10, tick, tick + 1);
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	}
	ck_assert_uint_eq(tally.lapped, lapped);
	ck_assert_uint_eq(tally.ticks, ticks + 500);
	fixture_check(&tally);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(what_was_copied_stays_readable_while_the_page_is_recycled)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	struct ring_event event;

	write_ticks(10, 0, 4);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	fixture_judge(&event, &tally);
	write_ticks(10, 4, 1000);
	while (!(tally.lapped > 0) && ring_cursor_next(cursor, &event) == 0)
		fixture_judge(&event, &tally);
	ck_assert_uint_eq(tally.ticks, 4);
	ck_assert_uint_eq(tally.samples, 40);
	fixture_check(&tally);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(unchanged_target_costs_no_bytes_until_heartbeat)
{
	struct stats before = { 0 };
	struct stats after = { 0 };
	struct sample sample;

	fixture_sample(1, fixture_time(0), &sample);
	for (uint64_t tick = 0; tick < 1000; tick++) {
		ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
		/* A copy, with rubbish where nothing is available. */
		struct sample copy = sample;
		copy.value[SAMPLE_PIDS] = tick;
		int rc = ring_put_sample(writer, &targets[0].track, fixture_time(tick), &copy);
		struct ring_info info;
		ring_info(ring, &info);
		if (tick == 0)
			ck_assert_int_eq(rc, 0);
		else if (info.next_seq <= 2)
			ck_assert_int_eq(rc, RING_UNCHANGED);
		ring_tick_end(writer, NULL);
		if (tick == 0)
			ring_writer_account(writer, &before);
		if (tick == 20)
			ring_writer_account(writer, &after);
	}
	ck_assert_uint_eq(before.bytes, after.bytes);
	ck_assert_uint_eq(after.records, 2);

	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(2001), fixture_wall(2001), 0), 0);
	ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(2001), &targets[0].track.last), 0);
	ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(2001), &targets[0].track.last),
			 RING_UNCHANGED);
	ring_tick_end(writer, NULL);
}
END_TEST

START_TEST(an_unchanged_target_stays_in_the_ring)
{
	struct sample sample;
	struct fixture_tally tally;

	/* The other one fills the ring many times within a heartbeat. */
	fixture_sample(64, fixture_time(0), &sample);
	for (uint64_t tick = 0; tick < 900; tick++) {
		ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
		ring_put_sample(writer, &targets[63].track, fixture_time(0), &sample);
		for (uint32_t i = 0; i < 10; i++) {
			struct sample busy;
			fixture_sample(i + 1, fixture_time(tick), &busy);
			ring_put_sample(writer, &targets[i].track, fixture_time(tick), &busy);
		}
		ring_tick_end(writer, NULL);

		fixture_read(ring, RING_OLDEST, &tally);
		fixture_check(&tally);
		ck_assert_uint_eq(tally.targets, 11);
	}
}
END_TEST

/* Targets live for 40 ticks, eight at a time, then others come. */
static void write_generation(uint32_t generation)
{
	struct fixture_target living[8];

	for (uint32_t i = 0; i < 8; i++)
		fixture_target_init(&living[i], generation * 8 + i + 1);
	for (uint64_t tick = 0; tick < 40; tick++)
		ck_assert_int_eq(fixture_tick(writer, living, 8, generation * 41 + tick), 0);

	mono_t now = fixture_time(generation * 41 + 40);
	ck_assert_int_eq(ring_tick_begin(writer, now, fixture_wall(0), 0), 0);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(ring_put_gone(writer, &living[i].track, now, RING_GONE_EXITED), 0);
	ring_tick_end(writer, NULL);
}

START_TEST(every_sample_in_the_ring_has_its_description)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally follower = { 0 };

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (uint32_t generation = 0; generation < 200; generation++) {
		struct fixture_tally tally;
		write_generation(generation);
		fixture_read(ring, RING_OLDEST, &tally);
		fixture_check(&tally);
		ck_assert_int_eq(fixture_drain(cursor, &follower), RING_EMPTY);
	}
	fixture_check(&follower);
	ck_assert_uint_eq(follower.gone, 1600);
	ck_assert_uint_eq(follower.targets, 1600);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_reader_at_the_newest_tick_gets_states_first)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct fixture_tally tally = { 0 };

	write_ticks(20, 0, 500);
	ck_assert_int_eq(ring_cursor_new(ring, RING_NEWEST, &cursor), 0);
	for (int i = 0; i < 20; i++) {
		struct sample expected;
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		ck_assert_int_eq(event.type, RING_EVENT_TARGET);
		ck_assert(fixture_named(&event.target, event.id));
		tally.described[event.id].id = event.id;
		tally.described[event.id].named = true;
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		ck_assert_int_eq(event.type, RING_EVENT_SAMPLE);
		fixture_sample(event.id, mono_add(fixture_time(499), event.id - 1), &expected);
		ck_assert(fixture_same(event.sample, &expected));
	}
	for (uint32_t id = 1; id <= 20; id++)
		ck_assert_uint_eq(tally.described[id].id, id);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), RING_EMPTY);

	write_ticks(20, 500, 520);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 20);
	ck_assert_uint_eq(tally.targets, 0);
	ck_assert_uint_eq(tally.first_tick, 500);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(seek_skips_what_is_before)
{
	write_ticks(20, 0, 500);
	for (uint64_t since = 440; since <= 501; since++) {
		struct ring_cursor *cursor = NULL;
		struct fixture_tally all;
		struct fixture_tally tally = { 0 };
		fixture_read(ring, RING_OLDEST, &all);
		ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
		ck_assert_int_eq(ring_cursor_seek(cursor, fixture_time(since)), 0);
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
		fixture_check(&tally);
		uint64_t first = since > all.first_tick ? since : all.first_tick;
		ck_assert_uint_eq(tally.ticks, first < 500 ? 500 - first : 0);
		ck_assert_uint_eq(tally.targets, tally.ticks > 0 ? 20 : 0);
		ck_assert_uint_eq(tally.lapped, 0);
		ring_cursor_free(cursor);
	}
}
END_TEST

START_TEST(a_cursor_for_one_target_passes_over_the_others)
{
	struct fixture_tally all;
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	uint64_t ticks = 0, samples = 0, named = 0;

	write_ticks(20, 0, 500);
	fixture_read(ring, RING_OLDEST, &all);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ring_cursor_only(cursor, 7);
	while (ring_cursor_next(cursor, &event) == 0) {
		struct sample expected;

		ticks += event.type == RING_EVENT_TICK;
		named += event.type == RING_EVENT_TARGET;
		if (event.type == RING_EVENT_TICK || event.type == RING_EVENT_TICK_END)
			continue;
		ck_assert_uint_eq(event.id, 7);
		if (event.type != RING_EVENT_SAMPLE)
			continue;
		fixture_sample(7, event.time, &expected);
		ck_assert(fixture_same(event.sample, &expected));
		samples++;
	}
	ck_assert_uint_eq(ticks, all.ticks);
	ck_assert_uint_eq(samples, all.samples / 20);
	ck_assert_uint_eq(named, 1);
	ring_cursor_free(cursor);
}
END_TEST

/* A tick after so many missed slots; those are of the fixture's interval. */
static void write_tick_after_hole(uint64_t tick, uint64_t missed_slots, uint64_t suspended_ns, int expected)
{
	struct sample sample;

	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
	ck_assert_int_eq(ring_put_hole(writer, missed_slots, suspended_ns), expected);
	fixture_sample(1, fixture_time(tick), &sample);
	ck_assert_int_eq(ring_put_sample(writer, &targets[0].track, fixture_time(tick), &sample), 0);
	ring_tick_end(writer, NULL);
}

START_TEST(a_hole_comes_before_the_samples_of_the_tick_that_ends_it)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct ring_event event = { 0 };

	write_tick_after_hole(0, 7, 7, RING_UNCHANGED); /* nothing is missed before the first tick */
	write_tick_after_hole(1, 0, 0, RING_UNCHANGED);
	write_tick_after_hole(2000, 1998, 0, 0);
	write_tick_after_hole(2001, 0, 3600 * NS_PER_S, 0);

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ring_cursor_only(cursor, 99); /* a cursor of one target is told, too */
	for (uint64_t tick = 0; tick < 4; tick++) {
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		ck_assert_int_eq(event.type, RING_EVENT_TICK);
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		if (tick == 2) {
			ck_assert_int_eq(event.type, RING_EVENT_HOLE);
			ck_assert_uint_eq(event.time.ns, fixture_time(2000).ns);
			ck_assert_uint_eq(event.hole.from.ns, fixture_time(1).ns);
			ck_assert_uint_eq(event.hole.to.ns, fixture_time(2000).ns);
			ck_assert_uint_eq(event.hole.missed_slots, 1998);
			ck_assert_uint_eq(event.hole.suspended_ns, 0);
			ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		}
		if (tick == 3) {
			ck_assert_int_eq(event.type, RING_EVENT_HOLE);
			ck_assert_uint_eq(event.hole.from.ns, fixture_time(2000).ns);
			ck_assert_uint_eq(event.hole.missed_slots, 0);
			ck_assert_uint_eq(event.hole.suspended_ns, 3600 * NS_PER_S);
			ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
		}
		ck_assert_int_eq(event.type, RING_EVENT_TICK_END);
	}

	struct fixture_tally tally;
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.holes, 2);
	ck_assert_uint_eq(tally.missed, 1998);
	ck_assert_uint_eq(tally.samples, 4);
}
END_TEST

START_TEST(a_description_that_changed_is_told_again)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	write_ticks(1, 0, 1);
	const struct target renamed = {
		.id = 1,
		.kind = TARGET_PROCESS,
		.pid = 1,
		.start_ticks = 3,
		.entry = "",
		.name = "target/1",
		.key = "",
		.comm = "other",
		.cmdline = "",
		.cgroup = "/a.slice/b.service",
	};
	targets[0].track.description_len =
		(uint32_t)target_encode(&renamed, targets[0].description, sizeof(targets[0].description));
	targets[0].track.described_seq = 0;
	write_ticks(1, 1, 3);

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.targets, 2);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_tick_allocates_nothing)
{
	write_ticks(10, 0, 1);
	unsigned long before = torture_allocations();
	bool ok = true;
	for (uint64_t tick = 1; tick < 500; tick++)
		ok = fixture_tick(writer, targets, 10, tick) == 0 && ok;
	ck_assert_uint_eq(torture_allocations(), before);
	ck_assert(ok);
}
END_TEST

START_TEST(every_allocation_may_fail_once)
{
	const struct ring_options options = { .size_bytes = 1 << 16, .page_bytes = 4096 };
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct ring *other = NULL;
		struct ring_writer *other_writer = NULL;
		torture_arm(n);
		int rc = ring_create_anonymous(&options, &other);
		if (rc == 0)
			rc = ring_writer_new(other, &other_writer);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		ring_writer_free(other_writer);
		ring_free(other);
	}

	write_ticks(64, 0, 8);
	injected = true;
	for (long n = 1; injected; n++) {
		struct ring_cursor *cursor = NULL;
		struct ring_event event;
		struct fixture_tally tally = { 0 };
		torture_arm(n);
		int rc = ring_cursor_new(ring, n % 2 == 0 ? RING_OLDEST : RING_NEWEST, &cursor);
		while (rc == 0 || (rc == -ENOMEM && cursor != NULL)) {
			rc = ring_cursor_next(cursor, &event);
			tally.samples += rc == 0 && event.type == RING_EVENT_SAMPLE;
		}
		injected = torture_disarm();
		ck_assert_int_eq(rc, cursor != NULL ? RING_EMPTY : -ENOMEM);
		if (cursor != NULL && n % 2 == 1)
			ck_assert_uint_eq(tally.samples, 64);
		ring_cursor_free(cursor);
	}
}
END_TEST

START_TEST(a_call_that_ran_out_of_memory_can_be_made_again)
{
	struct fixture_tally whole;
	bool injected = true;

	write_ticks(64, 0, 8);
	fixture_read(ring, RING_OLDEST, &whole);
	for (long n = 1; injected; n++) {
		struct ring_cursor *cursor = NULL;
		struct ring_event event;
		struct fixture_tally tally = { 0 };
		int rc;
		ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
		torture_arm(n);
		while ((rc = ring_cursor_next(cursor, &event)) != RING_EMPTY) {
			if (rc == 0)
				fixture_judge(&event, &tally);
		}
		injected = torture_disarm();
		fixture_check(&tally);
		ck_assert_uint_eq(tally.samples, whole.samples);
		ck_assert_uint_eq(tally.targets, whole.targets);
		ring_cursor_free(cursor);
	}
}
END_TEST

Suite *ring_suite(void)
{
	Suite *suite = suite_create("ring");
	TCase *tc = tcase_create("one writer");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_tick_comes_back_as_it_was_written);
	tcase_add_test(tc, every_sample_comes_back);
	tcase_add_test(tc, only_changed_fields_are_written);
	tcase_add_test(tc, a_read_may_be_long_before_or_after_its_tick);
	tcase_add_test(tc, a_tick_that_was_not_ended_is_never_seen);
	tcase_add_test(tc, a_target_can_be_said_to_have_been_as_it_was);
	tcase_add_test(tc, a_tick_over_several_pages_is_one_tick);
	tcase_add_test(tc, a_tick_whose_beginning_was_overwritten_is_not_delivered);
	tcase_add_test(tc, what_does_not_fit_is_refused_and_counted);
	tcase_add_test(tc, overwrites_oldest);
	tcase_add_test(tc, reader_that_lags_is_told_so);
	tcase_add_test(tc, what_was_copied_stays_readable_while_the_page_is_recycled);
	tcase_add_test(tc, unchanged_target_costs_no_bytes_until_heartbeat);
	tcase_add_test(tc, an_unchanged_target_stays_in_the_ring);
	tcase_add_test(tc, every_sample_in_the_ring_has_its_description);
	tcase_add_test(tc, a_reader_at_the_newest_tick_gets_states_first);
	tcase_add_test(tc, seek_skips_what_is_before);
	tcase_add_test(tc, a_cursor_for_one_target_passes_over_the_others);
	tcase_add_test(tc, a_hole_comes_before_the_samples_of_the_tick_that_ends_it);
	tcase_add_test(tc, a_description_that_changed_is_told_again);
	tcase_add_test(tc, a_tick_allocates_nothing);
	tcase_add_test(tc, every_allocation_may_fail_once);
	tcase_add_test(tc, a_call_that_ran_out_of_memory_can_be_made_again);
	suite_add_tcase(suite, tc);
	return suite;
}
