/* Several writers, and the blocking reader, one step at a time. */
#include "ring_fixture.h"
#include "lib/ring/ring.h"
#include "lib/ring/ring_format.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

Suite *ring_writers_suite(void);

#define WRITERS 3

static struct ring *ring;
static struct ring_writer *writer[WRITERS];
static struct fixture_target targets[WRITERS][5];
static uint64_t clock_tick;

static void set_up(void)
{
	ring = fixture_ring(8);
	clock_tick = 0;
	for (uint32_t w = 0; w < WRITERS; w++) {
		ck_assert_int_eq(ring_writer_new(ring, &writer[w]), 0);
		for (uint32_t i = 0; i < 5; i++)
			fixture_target_init(&targets[w][i], w * 100 + i + 1);
	}
}

static void tear_down(void)
{
	for (uint32_t w = 0; w < WRITERS; w++)
		ring_writer_free(writer[w]);
	ring_free(ring);
}

static int tick(uint32_t w)
{
	return fixture_tick(writer[w], targets[w], 5, clock_tick++);
}

static uint64_t pages_claimed(void)
{
	struct ring_info info;

	ring_info(ring, &info);
	return info.next_seq;
}

static bool everybody_lives(int32_t pid, uint64_t start_ticks)
{
	(void)pid;
	(void)start_ticks;
	return true;
}

static bool everybody_is_dead(int32_t pid, uint64_t start_ticks)
{
	return !(pid == 41 && start_ticks == 1234567);
}

START_TEST(ticks_of_all_writers_are_delivered)
{
	struct fixture_tally tally;

	for (int i = 0; i < 3; i++) {
		for (uint32_t w = 0; w < WRITERS; w++)
			ck_assert_int_eq(tick(w), 0);
	}
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 9);
	ck_assert_uint_eq(tally.samples, 45);
}
END_TEST

/*
 * Whatever pages they are in. One of the writers is slow, one is away for longer than half of the
 * ring.
 */
START_TEST(ticks_come_in_the_order_in_which_they_were_published)
{
	static uint32_t by[1000];
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	uint64_t next = UINT64_MAX, read = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(by); i++) {
		by[i] = i % 29 == 0 && (i < 850 || i > 900) ? 2 : (i * 7 / 3) % 2;
		ck_assert_int_eq(tick(by[i]), 0);
	}
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		ck_assert_int_ne(event.type, RING_EVENT_DAMAGED);
		if (event.type == RING_EVENT_LAPPED)
			continue;
		ck_assert_uint_eq(event.writer, by[event.tick]);
		if (event.type == RING_EVENT_SAMPLE || event.type == RING_EVENT_TARGET)
			ck_assert_uint_eq(event.id / 100, event.writer);
		if (event.type != RING_EVENT_TICK)
			continue;
		ck_assert(next == UINT64_MAX || event.tick > next - 1);
		next = event.tick + 1;
		read++;
	}
	ck_assert_uint_eq(next, ARRAY_LEN(by));
	ck_assert_uint_gt(read, 50);
	ring_cursor_free(cursor);
}
END_TEST

/* A cursor that begins at the newest tick says of each target whose it is, too. */
START_TEST(what_is_known_from_before_has_its_writer)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	unsigned samples = 0;

	for (uint32_t i = 0; i < 30; i++)
		ck_assert_int_eq(tick(i % 3), 0);
	ck_assert_int_eq(ring_cursor_new(ring, RING_NEWEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		ck_assert_uint_eq(event.writer, event.id / 100);
		samples += event.type == RING_EVENT_SAMPLE;
	}
	ck_assert_uint_eq(samples, 15);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(an_open_page_behind_newer_ones_is_followed)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	uint64_t written = 0;

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (uint64_t i = 0; i < 300; i++) {
		ck_assert_int_eq(tick(i % 7 == 0 ? 0 : 1), 0);
		written++;
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
		ck_assert_uint_eq(tally.ticks, written);
	}
	fixture_check(&tally);
	ck_assert_uint_eq(tally.lapped, 0);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_writer_that_pauses_stops_nobody)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1, NULL, &cursor), 0);
	for (int round = 0; round < 5; round++) {
		ck_assert_int_eq(tick(0), 0);
		uint64_t from = pages_claimed();
		while (pages_claimed() < from + 20) {
			ck_assert_int_eq(tick(1), 0);
			ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
		}
	}
	fixture_check(&tally);
	ck_assert_uint_eq(tally.lapped, 0);
	ck_assert_uint_eq(tally.ticks, clock_tick);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_page_that_was_in_a_tick_at_half_time_does_not_hold_for_ever)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1, NULL, &cursor), 0);
	ck_assert_int_eq(ring_tick_begin(writer[0], fixture_time(0), fixture_wall(0), 0), 0);
	while (tick(1) == 0)
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	ring_tick_end(writer[0], NULL);

	/*
	 * Now its owner alone goes on: first in what is left of this page, then it needs another.
	 */
	uint64_t before = pages_claimed();
	for (int i = 0; i < 1000 && pages_claimed() == before; i++) {
		tick(0);
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	}
	ck_assert_uint_gt(pages_claimed(), before);
	ck_assert_uint_eq(tally.lapped, 0);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_page_is_not_taken_while_its_writer_is_in_a_tick)
{
	struct sample sample;
	struct fixture_tally tally;
	int rc = 0;

	ck_assert_int_eq(ring_tick_begin(writer[0], fixture_time(0), fixture_wall(0), 0), 0);
	while (rc == 0)
		rc = tick(1);
	ck_assert_int_eq(rc, RING_HELD);
	ck_assert_uint_eq(pages_claimed(), 8);

	fixture_sample(1, fixture_time(0), &sample);
	ck_assert_int_eq(ring_put_sample(writer[0], &targets[0][0].track, fixture_time(0), &sample), 0);
	ring_tick_end(writer[0], NULL);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, tally.last_tick + 1); /* the oldest page has the newest tick, which comes last */

	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(tick(1), 0);
	ck_assert_int_eq(tick(0), 0);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
}
END_TEST

START_TEST(the_blocking_reader_is_never_overtaken)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	uint64_t held = 0;
	uint64_t written = 0;

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1, NULL, &cursor), 0);
	for (uint64_t i = 0; i < 2000; i++) {
		int rc = tick((uint32_t)(i % WRITERS));
		held += rc == RING_HELD;
		written += rc == 0;
		struct ring_event event;
		for (int k = 0; k < 5 && ring_cursor_next(cursor, &event) == 0; k++)
			fixture_judge(&event, &tally);
	}
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_gt(held, 0);
	ck_assert_uint_eq(tally.lapped, 0);
	ck_assert_uint_eq(tally.ticks, written);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_tick_begins_with_its_pages_at_hand_or_not_at_all)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	uint64_t number = 0;
	bool held = false;

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1, NULL, &cursor), 0);
	while (!held) {
		mono_t now = fixture_time(number);
		held = ring_tick_begin(writer[0], now, fixture_wall(number), 5 * RING_RECORD_MAX) == RING_HELD;
		for (uint32_t i = 0; i < 5 && !held; i++) {
			struct sample sample;
			fixture_sample(targets[0][i].track.id, now, &sample);
			ck_assert_int_eq(ring_put_sample(writer[0], &targets[0][i].track, now, &sample), 0);
		}
		if (!held)
			ring_tick_end(writer[0], NULL);
		number++;
	}
	ck_assert_int_eq(ring_tick_begin(writer[0], fixture_time(0), fixture_wall(0), 5 * RING_RECORD_MAX), RING_HELD);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, number - 1);
	ck_assert_int_eq(tick(0), 0);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_second_blocking_reader_is_refused)
{
	struct ring_cursor *first = NULL;
	struct ring_cursor *second = NULL;

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1234567, NULL, &first), 0);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 42, 1, NULL, &second), RING_BUSY);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 42, 1, everybody_lives, &second), RING_BUSY);
	ck_assert_ptr_null(second);
	ring_cursor_free(first);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 42, 1, everybody_lives, &second), 0);
	ring_cursor_free(second);
}
END_TEST

START_TEST(a_dead_blocking_reader_is_replaced)
{
	struct ring_cursor *dead = NULL;
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1234567, NULL, &dead), 0);
	while (tick(0) == 0)
		continue;
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 42, 1, everybody_is_dead, &cursor), 0);
	while (tick(0) == 0)
		continue;
	/* What is left of the dead one neither moves nor detaches its successor. */
	fixture_drain(dead, &tally);
	ck_assert_int_eq(tick(0), RING_HELD);
	ring_cursor_free(dead);
	ck_assert_int_eq(tick(0), RING_HELD);

	tally = (struct fixture_tally){ 0 };
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_int_eq(tick(0), 0);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_dead_blocking_reader_can_be_evicted)
{
	struct ring_cursor *dead = NULL;

	ck_assert(!ring_evict_reader(ring, everybody_is_dead));
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1234567, NULL, &dead), 0);
	while (tick(0) == 0)
		continue;
	ck_assert(!ring_evict_reader(ring, NULL));
	ck_assert(!ring_evict_reader(ring, everybody_lives));
	ck_assert(ring_evict_reader(ring, everybody_is_dead));
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(tick(0), 0);
	ring_cursor_free(dead);
}
END_TEST

START_TEST(a_blocking_reader_on_a_full_ring_starts_at_a_page_that_is_safe)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };

	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(tick(0), 0);
	ck_assert_int_eq(ring_cursor_new_blocking(ring, 41, 1, NULL, &cursor), 0);
	while (tick(0) == 0)
		continue;
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.lapped, 0);
	ring_cursor_free(cursor);
}
END_TEST

/* One tick over pages 0 and 1, from which then something is taken back. */
static void tick_over_two_pages(void)
{
	static struct fixture_target many[30];

	for (uint32_t i = 0; i < 30; i++)
		fixture_target_init(&many[i], i + 1);
	ck_assert_int_eq(fixture_tick(writer[0], many, 30, 0), 0);
	ck_assert_uint_eq(pages_claimed(), 2);
}

START_TEST(a_tick_whose_beginning_is_not_published_yet_waits)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	struct ring_page *first = ring_page(ring, 0);

	tick_over_two_pages();
	uint64_t used = first->used;
	uint64_t word = first->word;
	first->used = 0;
	first->word = ring_word(0, RING_PAGE_TICKING);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	ck_assert_uint_eq(tally.ticks + tally.samples + tally.damaged, 0);

	first->used = used;
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	ck_assert_uint_eq(tally.samples, 30);
	first->word = word;
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 1);
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_tick_is_not_pieced_together_from_strangers)
{
	struct ring_page *second = ring_page(ring, 1);
	struct fixture_tally tally;

	tick_over_two_pages();
	second->prev = 5;
	fixture_read(ring, RING_OLDEST, &tally);
	ck_assert_uint_eq(tally.ticks, 0);

	second->prev = 1;
	second->payload[1]++;
	fixture_read(ring, RING_OLDEST, &tally);
	ck_assert_uint_eq(tally.ticks, 0);

	second->payload[1]--;
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 1);
}
END_TEST

Suite *ring_writers_suite(void)
{
	Suite *suite = suite_create("ring_writers");
	TCase *tc = tcase_create("interleaved");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, ticks_of_all_writers_are_delivered);
	tcase_add_test(tc, ticks_come_in_the_order_in_which_they_were_published);
	tcase_add_test(tc, what_is_known_from_before_has_its_writer);
	tcase_add_test(tc, an_open_page_behind_newer_ones_is_followed);
	tcase_add_test(tc, a_writer_that_pauses_stops_nobody);
	tcase_add_test(tc, a_page_that_was_in_a_tick_at_half_time_does_not_hold_for_ever);
	tcase_add_test(tc, a_page_is_not_taken_while_its_writer_is_in_a_tick);
	tcase_add_test(tc, the_blocking_reader_is_never_overtaken);
	tcase_add_test(tc, a_tick_begins_with_its_pages_at_hand_or_not_at_all);
	tcase_add_test(tc, a_second_blocking_reader_is_refused);
	tcase_add_test(tc, a_dead_blocking_reader_is_replaced);
	tcase_add_test(tc, a_dead_blocking_reader_can_be_evicted);
	tcase_add_test(tc, a_blocking_reader_on_a_full_ring_starts_at_a_page_that_is_safe);
	tcase_add_test(tc, a_tick_whose_beginning_is_not_published_yet_waits);
	tcase_add_test(tc, a_tick_is_not_pieced_together_from_strangers);
	suite_add_tcase(suite, tc);
	return suite;
}
