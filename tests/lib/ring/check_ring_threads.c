/*
 * Four writers, two lossy readers and a blocking one at the same time. Also meant to be run under
 * ThreadSanitizer.
 */
#include "ring_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

Suite *ring_threads_suite(void);

#define WRITERS 4
#define TARGETS 6
#define TICKS 1500

struct crew {
	struct ring *ring;
	int writers_left;
	uint32_t next_writer;
	uint64_t published;
	uint64_t failed;
};

static void *write_ticks(void *ctx)
{
	struct crew *crew = ctx;
	uint32_t number = __atomic_fetch_add(&crew->next_writer, 1, __ATOMIC_RELAXED);
	struct fixture_target targets[TARGETS];
	struct ring_writer *writer = NULL;
	uint64_t published = 0;

	for (uint32_t i = 0; i < TARGETS; i++)
		fixture_target_init(&targets[i], number * TARGETS + i + 1);
	if (ring_writer_new(crew->ring, &writer) != 0)
		__atomic_fetch_add(&crew->failed, 1, __ATOMIC_RELAXED);

	/* The writers go at different speeds. */
	for (uint64_t tick = 0; writer != NULL && tick < TICKS; tick += 1 + number) {
		int rc;
		while ((rc = fixture_tick(writer, targets, TARGETS, tick * WRITERS + number)) == RING_HELD)
			sched_yield();
		published += rc == 0;
	}
	ring_writer_free(writer);
	__atomic_fetch_add(&crew->published, published, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&crew->writers_left, 1, __ATOMIC_RELEASE);
	return NULL;
}

struct reader {
	struct crew *crew;
	struct ring_cursor *cursor;
	struct fixture_tally tally;
};

static void *read_ticks(void *ctx)
{
	struct reader *reader = ctx;
	bool last = false;

	for (;;) {
		int rc = fixture_drain(reader->cursor, &reader->tally);
		if (rc != RING_EMPTY)
			__atomic_fetch_add(&reader->crew->failed, 1, __ATOMIC_RELAXED);
		if (last || rc != RING_EMPTY)
			return NULL;
		last = __atomic_load_n(&reader->crew->writers_left, __ATOMIC_ACQUIRE) == 0;
		sched_yield();
	}
}

/* Readers of different kinds; with_blocking: the first one is the blocking reader. */
static void run(struct crew *crew, struct reader *readers, uint32_t reader_count, bool with_blocking)
{
	pthread_t threads[WRITERS + 3];

	crew->writers_left = WRITERS;
	for (uint32_t i = 0; i < reader_count; i++) {
		readers[i].crew = crew;
		int rc = i == 0 && with_blocking ? ring_cursor_new_blocking(crew->ring, 1, 1, NULL, &readers[i].cursor)
						 : ring_cursor_new(crew->ring, RING_OLDEST, &readers[i].cursor);
		ck_assert_int_eq(rc, 0);
	}
	for (uint32_t i = 0; i < reader_count; i++)
		ck_assert_int_eq(pthread_create(&threads[WRITERS + i], NULL, read_ticks, &readers[i]), 0);
	for (uint32_t i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_ticks, crew), 0);
	for (uint32_t i = 0; i < WRITERS + reader_count; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	for (uint32_t i = 0; i < reader_count; i++)
		ring_cursor_free(readers[i].cursor);
	ck_assert_uint_eq(crew->failed, 0);
}

static void check_lossy(const struct fixture_tally *tally, uint64_t published)
{
	ck_assert_uint_eq(tally->wrong, 0);
	ck_assert_uint_eq(tally->misnamed, 0);
	ck_assert_uint_eq(tally->disordered, 0);
	ck_assert_uint_eq(tally->damaged, 0);
	ck_assert_uint_eq(tally->ticks, tally->ends);
	ck_assert_uint_le(tally->ticks, published);
	ck_assert(tally->ticks == published || tally->lapped > 0);
}

START_TEST(the_blocking_reader_gets_every_tick)
{
	struct crew crew = { .ring = fixture_ring(32) };
	struct reader readers[3] = { 0 };

	run(&crew, readers, 3, true);
	fixture_check(&readers[0].tally);
	ck_assert_uint_eq(readers[0].tally.lapped, 0);
	ck_assert_uint_eq(readers[0].tally.ticks, crew.published);
	check_lossy(&readers[1].tally, crew.published);
	check_lossy(&readers[2].tally, crew.published);
	ring_free(crew.ring);
}
END_TEST

START_TEST(lossy_readers_never_get_a_torn_sample)
{
	struct crew crew = { .ring = fixture_ring(8) };
	struct reader readers[2] = { 0 };

	run(&crew, readers, 2, false);
	check_lossy(&readers[0].tally, crew.published);
	check_lossy(&readers[1].tally, crew.published);
	ring_free(crew.ring);
}
END_TEST

static void *write_until_told(void *ctx)
{
	struct crew *crew = ctx;
	struct fixture_target targets[TARGETS];
	struct ring_writer *writer = NULL;

	for (uint32_t i = 0; i < TARGETS; i++)
		fixture_target_init(&targets[i], i + 1);
	if (ring_writer_new(crew->ring, &writer) != 0)
		return NULL;
	for (uint64_t tick = 0; __atomic_load_n(&crew->writers_left, __ATOMIC_RELAXED) != 0; tick++)
		fixture_tick(writer, targets, TARGETS, tick);
	ring_writer_free(writer);
	return NULL;
}

/* Every cursor begins with the page that is overwritten next. */
START_TEST(a_copy_of_a_page_that_was_recycled_meanwhile_is_not_used)
{
	const struct ring_options options = { .size_bytes = 5 << 16, .page_bytes = 1 << 16 };
	struct crew crew = { .writers_left = 1 };
	pthread_t thread;
	static struct fixture_tally tally;

	ck_assert_int_eq(ring_create_anonymous(&options, &crew.ring), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_until_told, &crew), 0);
	memset(&tally, 0, sizeof(tally));
	for (int i = 0; i < 3000; i++) {
		struct ring_cursor *cursor = NULL;
		struct ring_event event;
		ck_assert_int_eq(ring_cursor_new(crew.ring, RING_OLDEST, &cursor), 0);
		for (int k = 0; k < 10 && ring_cursor_next(cursor, &event) == 0; k++)
			fixture_judge(&event, &tally);
		tally.inside = false;
		ring_cursor_free(cursor);
	}
	__atomic_store_n(&crew.writers_left, 0, __ATOMIC_RELAXED);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(tally.wrong, 0);
	ck_assert_uint_eq(tally.damaged, 0);
	ring_free(crew.ring);
}
END_TEST

Suite *ring_threads_suite(void)
{
	Suite *suite = suite_create("ring_threads");
	TCase *tc = tcase_create("threads");

	tcase_add_test(tc, the_blocking_reader_gets_every_tick);
	tcase_add_test(tc, lossy_readers_never_get_a_torn_sample);
	tcase_add_test(tc, a_copy_of_a_page_that_was_recycled_meanwhile_is_not_used);
	suite_add_tcase(suite, tc);
	return suite;
}
