/*
 * check_ring_reader.c: how far back a reader goes when interval and heartbeat change while the ring is
 * written, and what it keeps of the targets.
 */
#include "lib/ring/ring_reader.c"

#include "ring_fixture.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

Suite *ring_reader_suite(void);

#define PAGES 64u

static struct ring *ring;
static struct ring_writer *writer;
static struct fixture_target targets[20];
static uint64_t tick;

static void set_up(void)
{
	ring = fixture_ring(PAGES);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint32_t i = 0; i < 20; i++)
		fixture_target_init(&targets[i], i + 1);
	tick = 0;
}

static void tear_down(void)
{
	ring_writer_free(writer);
	ring_free(ring);
}

/* Ticks with 20 busy targets until so many pages were begun. */
static void write_pages(uint64_t pages)
{
	struct ring_info info;

	for (ring_info(ring, &info); info.next_seq < pages; ring_info(ring, &info))
		ck_assert_int_eq(fixture_tick(writer, targets, 20, tick++), 0);
}

START_TEST(readers_see_what_is_in_force)
{
	struct ring_info info;

	ring_info(ring, &info);
	ck_assert_uint_eq(info.heartbeat_ns, ring->header->heartbeat_ns);
	ring_writer_retune(writer, 5, 7);
	ring_info(ring, &info);
	ck_assert_uint_eq(ring_interval_ns(ring), 5);
	ck_assert_uint_eq(info.heartbeat_ns, 7);
	ring_writer_retune(writer, 6, 0);
	ring_info(ring, &info);
	ck_assert_uint_eq(ring_interval_ns(ring), 6);
	ck_assert_uint_eq(info.heartbeat_ns, NS_PER_S);
}
END_TEST

START_TEST(a_ring_whose_interval_changed_can_be_opened)
{
	char path[] = "/tmp/check_ring_reader.XXXXXX";
	struct ring_options options = { .size_bytes = 1 << 20, .interval_ns = 1, .heartbeat_ns = 2 };
	struct ring *made = NULL, *opened = NULL;
	struct ring_writer *its = NULL;
	struct ring_info info;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(ring_create(AT_FDCWD, path, &options, &made), 0);
	ck_assert_int_eq(ring_writer_new(made, &its), 0);
	ring_writer_retune(its, 3, 4);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &opened), 0);
	ring_info(opened, &info);
	ck_assert_uint_eq(ring_interval_ns(opened), 3);
	ck_assert_uint_eq(info.heartbeat_ns, 4);
	ring_writer_free(its);
	ring_free(made);
	ring_free(opened);
	unlink(path);
}
END_TEST

START_TEST(the_writer_keeps_the_new_heartbeat)
{
	struct sample idle = { 0 };
	uint64_t begin = fixture_time(0).ns;
	const struct {
		uint64_t at, heartbeat;
		int result;
	} steps[] = {
		{ 0, 100, 0 },
		{ 99, 100, RING_UNCHANGED },
		{ 99, 50, 0 }, /* in force at once */
		{ 148, 50, RING_UNCHANGED },
		{ 149, 50, 0 },
		{ 199, 200, RING_UNCHANGED },
		{ 348, 200, RING_UNCHANGED },
		{ 349, 200, 0 },
	};

	sample_set(&idle, SAMPLE_CPU, 77);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		mono_t at = { begin + steps[i].at };

		ring_writer_retune(writer, 1, steps[i].heartbeat);
		ck_assert_int_eq(ring_tick_begin(writer, at, fixture_wall(0), 0), 0);
		int result = ring_put_sample(writer, &targets[0].track, at, &idle);
		ring_tick_end(writer, NULL);
		ck_assert_int_eq(result, steps[i].result);
	}
}
END_TEST

static uint64_t first_page_for(uint64_t since_ns)
{
	struct ring_follow follow;

	ck_assert_int_eq(follow_init(&follow, ring), 0);
	follow_skip(&follow, since_ns);
	uint64_t first = follow.next;
	follow_release(&follow);

	return first;
}

START_TEST(readers_look_as_far_back_as_the_longest_heartbeat_in_the_ring)
{
	uint64_t hour = 3600 * NS_PER_S;

	ring_writer_retune(writer, 1, 1);
	ring->header->heartbeat_longest = 1; /* the ring begins with this one */
	write_pages(40);
	ck_assert_uint_gt(first_page_for(fixture_time(tick).ns), 10);
	ring_writer_retune(writer, 1, hour);
	ck_assert_uint_eq(first_page_for(fixture_time(tick).ns), 0);
	ring_writer_retune(writer, 1, 2);
	ring_writer_retune(writer, 1, 1);
	ring_writer_retune(writer, 1, 3);
	ck_assert_uint_eq(first_page_for(fixture_time(tick).ns), 0);

	/* While a page is left that the long one may have reached. */
	write_pages(40 + PAGES);
	ck_assert_uint_eq(ring_longest_heartbeat_ns(ring), hour);
	ck_assert_uint_eq(first_page_for(fixture_time(tick).ns), 40);
	write_pages(40 + PAGES + 1);
	ck_assert_uint_eq(ring_longest_heartbeat_ns(ring), 3);
	ck_assert_uint_gt(first_page_for(fixture_time(tick).ns), 50);
}
END_TEST

/* ---- states of targets ---- */

#define IDS 300u

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void compare(const struct map *states, const uint64_t *seen)
{
	size_t count = 0;

	for (uint32_t id = 1; id <= IDS; id++) {
		const struct ring_state *state = state_find(states, id);
		ck_assert_int_eq(state != NULL, seen[id] != 0);
		if (state != NULL)
			ck_assert_uint_eq(state->seen, seen[id]);
		count += seen[id] != 0;
	}
	ck_assert_uint_eq(states->count, count);
}

START_TEST(states_are_as_a_simple_model_says)
{
	struct map states = { 0 };
	uint64_t seen[IDS + 1] = { 0 };
	uint32_t random = 1;

	for (uint64_t step = 1; step < 20000; step++) {
		uint32_t id = next_random(&random) % IDS + 1;
		if (next_random(&random) % 3 == 0) {
			state_drop(&states, state_find(&states, id));
			seen[id] = 0;
		} else {
			ck_assert_ptr_nonnull(state_touch(&states, id, step));
			seen[id] = step;
		}
		if (step % 4000 == 0) {
			states_expire(&states, step - 100);
			for (id = 1; id <= IDS; id++)
				seen[id] = seen[id] < step - 100 ? 0 : seen[id];
		}
		if (step % 20 == 0)
			compare(&states, seen);
	}
	states_release(&states);
	ck_assert_ptr_null(state_find(&states, 1));
}
END_TEST

START_TEST(a_description_is_new_once)
{
	struct map states = { 0 };
	struct ring_state *state = state_touch(&states, 7, 1);

	ck_assert_int_eq(state_describe(state, "one", 3), 1);
	ck_assert_int_eq(state_describe(state, "one", 3), 0);
	ck_assert_int_eq(state_describe(state, "on", 2), 1);
	ck_assert_int_eq(state_describe(state, "", 0), 1);
	states_release(&states);
}
END_TEST

/* ---- descriptions ---- */

static void write_ticks(uint32_t target_count, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at++)
		ck_assert_int_eq(fixture_tick(writer, targets, target_count, at), 0);
}

START_TEST(gone_targets_are_named_and_forgotten)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct target target;

	write_ticks(2, 0, 2);
	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(2), fixture_wall(2), 0), 0);
	ck_assert_int_eq(ring_put_gone(writer, &targets[0].track, fixture_time(2), RING_GONE_UNWATCHED), 0);
	ring_tick_end(writer, NULL);

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	do
		ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	while (event.type != RING_EVENT_GONE);
	ck_assert_uint_eq(event.id, 1);
	ck_assert_int_eq(event.reason, RING_GONE_UNWATCHED);
	ck_assert_str_eq(event.target.name, "target/1");
	ck_assert(find_description(cursor, 1, &target));

	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_TICK_END);
	ck_assert(!find_description(cursor, 1, &target));
	ck_assert(find_description(cursor, 2, &target));
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(seek_keeps_the_state_of_idle_targets)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct target target;
	struct sample idle = { 0 };

	sample_set(&idle, SAMPLE_CPU, 77);
	for (tick = 0; tick < 100; tick++) {
		ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
		ring_put_sample(writer, &targets[0].track, fixture_time(tick), &idle);
		ring_tick_end(writer, NULL);
	}
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	ck_assert_int_eq(ring_cursor_seek(cursor, fixture_time(50)), 0);
	ck_assert_int_eq(ring_cursor_next(cursor, &event), 0);
	ck_assert_int_eq(event.type, RING_EVENT_TICK);
	ck_assert_uint_eq(event.tick, 50);
	ck_assert(find_description(cursor, 1, &target));
	ring_cursor_free(cursor);
}
END_TEST

START_TEST(a_target_that_is_no_longer_in_the_ring_is_forgotten)
{
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	struct target target;

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	write_ticks(10, 0, 10);
	for (tick = 10; tick < 8000; tick++) {
		write_ticks(5, tick, tick + 1);
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
		if (tick < 15)
			ck_assert(find_description(cursor, 6, &target));
	}
	for (uint32_t id = 1; id <= 10; id++)
		ck_assert_int_eq(find_description(cursor, id, &target), id <= 5);
	ring_cursor_free(cursor);
}
END_TEST

/* Of an allocator that does not tell (a sanitizer's) both figures are 0. */
START_TEST(a_tick_of_many_pages_leaves_one_copy_of_a_page)
{
	enum { MANY = 2000 };
	struct fixture_target *many = calloc(MANY, sizeof *many);
	struct ring_cursor *cursor = NULL;
	struct fixture_tally tally = { 0 };
	struct ring_info info;

	ck_assert_ptr_nonnull(many);
	for (uint32_t i = 0; i < MANY; i++)
		fixture_target_init(&many[i], i + 1);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	for (tick = 0; tick < 2; tick++) {
		ck_assert_int_eq(fixture_tick(writer, many, MANY, tick), 0);
		ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	}
	ring_info(ring, &info);
	ck_assert_uint_gt(info.next_seq, 10);

	size_t held = mallinfo2().uordblks + mallinfo2().hblkhd;

	ck_assert_int_eq(fixture_tick(writer, many, MANY, tick), 0);
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	ck_assert_uint_le(mallinfo2().uordblks + mallinfo2().hblkhd, held + ring->payload_bytes);
	ck_assert_uint_le(cursor->follow.count, 1);
	held = mallinfo2().uordblks + mallinfo2().hblkhd;
	follow_release(&cursor->follow);
	ck_assert_uint_le(held - (mallinfo2().uordblks + mallinfo2().hblkhd), 3 * ring->payload_bytes);
	ck_assert_int_eq(follow_init(&cursor->follow, ring), 0);
	ring_cursor_free(cursor);
	free(many);
}
END_TEST

Suite *ring_reader_suite(void)
{
	Suite *suite = suite_create("ring_reader");
	TCase *tc = tcase_create("heartbeat");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, readers_see_what_is_in_force);
	tcase_add_test(tc, a_ring_whose_interval_changed_can_be_opened);
	tcase_add_test(tc, the_writer_keeps_the_new_heartbeat);
	tcase_add_test(tc, readers_look_as_far_back_as_the_longest_heartbeat_in_the_ring);
	suite_add_tcase(suite, tc);

	tc = tcase_create("descriptions");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, gone_targets_are_named_and_forgotten);
	tcase_add_test(tc, seek_keeps_the_state_of_idle_targets);
	tcase_add_test(tc, a_target_that_is_no_longer_in_the_ring_is_forgotten);
	tcase_add_test(tc, a_tick_of_many_pages_leaves_one_copy_of_a_page);
	suite_add_tcase(suite, tc);

	tc = tcase_create("states");
	tcase_add_test(tc, states_are_as_a_simple_model_says);
	tcase_add_test(tc, a_description_is_new_once);
	suite_add_tcase(suite, tc);
	return suite;
}
