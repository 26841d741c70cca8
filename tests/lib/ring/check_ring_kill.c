/*
 * Writers that are killed at any moment: what they had published is there, whole, and nothing else
 * is.
 */
#include "ring_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

Suite *ring_kill_suite(void);

#define ROUNDS 30

/* Publishes ticks for ever, counting them where the parent can see it. */
static _Noreturn void publish(struct ring *ring, uint32_t target_count, uint64_t *published)
{
	static struct fixture_target targets[64];
	struct ring_writer *writer;

	for (uint32_t i = 0; i < target_count; i++)
		fixture_target_init(&targets[i], i + 1);
	if (ring_writer_new(ring, &writer) != 0)
		_exit(1);
	for (uint64_t tick = 0;; tick++) {
		if (fixture_tick(writer, targets, target_count, tick) != 0)
			_exit(1);
		__atomic_store_n(published, tick + 1, __ATOMIC_RELEASE);
	}
}

static void kill_at(const struct timespec *moment, pid_t pid)
{
	int status;

	nanosleep(moment, NULL);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
}

static void round_of(uint32_t pages, uint32_t target_count, long delay_ns, uint64_t *published)
{
	struct ring *ring = fixture_ring(pages);
	struct fixture_tally tally;

	*published = 0;
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		publish(ring, target_count, published);
	kill_at(&(struct timespec){ .tv_nsec = delay_ns }, pid);

	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.lapped, 0);
	if (*published > 0) {
		/* The one it was about to count may be there, too. */
		ck_assert_uint_ge(tally.ticks, 1);
		ck_assert_uint_ge(tally.last_tick + 1, *published);
		ck_assert_uint_le(tally.last_tick, *published);
		ck_assert_uint_eq(tally.ticks, tally.last_tick - tally.first_tick + 1);
	}
	ring_free(ring);
}

START_TEST(nothing_published_is_lost_and_nothing_else_is_seen)
{
	uint64_t *published = mmap(NULL, sizeof(*published), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t total = 0;

	ck_assert_ptr_ne(published, MAP_FAILED);
	for (int i = 0; i < ROUNDS; i++) {
		/* In turn: many ticks to a page, some, several pages to a tick. */
		static const uint32_t counts[] = { 2, 20, 50 };
		round_of(16, counts[i % 3], 300000 + i * 137911L, published);
		total += *published;
	}
	ck_assert_uint_gt(total, 0);
	munmap(published, sizeof(*published));
}
END_TEST

/* ---- several writers in one process ---- */

#define WRITERS 3u
#define TARGETS_EACH 40u

struct several {
	struct ring *ring;
	uint32_t number, target_count;
	uint64_t *published;
};

/* As publish. A writer that another's page holds up tries again. */
static void *publish_one(void *ctx)
{
	const struct several *several = ctx;
	struct fixture_target *targets = calloc(TARGETS_EACH, sizeof(*targets));
	struct ring_writer *writer;

	for (uint32_t i = 0; i < several->target_count; i++)
		fixture_target_init(&targets[i], several->number * TARGETS_EACH + i + 1);
	if (ring_writer_new(several->ring, &writer) != 0)
		_exit(1);
	for (uint64_t tick = 0;;) {
		int r = fixture_tick(writer, targets, several->target_count, tick);

		if (r < 0)
			_exit(1);
		if (r == 0)
			__atomic_store_n(several->published, ++tick, __ATOMIC_RELEASE);
	}
	return NULL;
}

static _Noreturn void publish_several(struct ring *ring, uint32_t target_count, uint64_t *published)
{
	static struct several several[WRITERS];
	pthread_t thread;

	for (uint32_t i = 0; i < WRITERS; i++) {
		several[i] = (struct several){ ring, i, target_count, &published[i] };
		if (pthread_create(&thread, NULL, publish_one, &several[i]) != 0)
			_exit(1);
	}
	for (;;)
		pause();
}

/*
 * The time of the newest tick of the writer of these targets; 0: there is none in the ring, or none
 * that says anything.
 */
static uint64_t newest_of(const struct ring *ring, uint32_t number)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t newest[WRITERS] = { 0 };
	uint32_t writer = WRITERS;

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK && event.time.ns > newest[event.writer])
			newest[event.writer] = event.time.ns;
		if (event.type == RING_EVENT_SAMPLE && (event.id - 1) / TARGETS_EACH == number)
			writer = event.writer;
	}
	ring_cursor_free(cursor);

	return writer == WRITERS ? 0 : newest[writer];
}

/* Until each of them has published something. */
static void wait_for_all(const uint64_t *published)
{
	unsigned waiting = WRITERS;

	for (int i = 0; i < 60000 && waiting > 0; i++) {
		waiting = 0;
		for (uint32_t k = 0; k < WRITERS; k++)
			waiting += __atomic_load_n(&published[k], __ATOMIC_ACQUIRE) == 0;
		nanosleep(&(struct timespec){ .tv_nsec = waiting ? 1000000 : 0 }, NULL);
	}
	ck_assert_uint_eq(waiting, 0);
}

/* Killed so long after it was started, or after all its writers were heard of. */
static void round_of_several(uint32_t pages, uint32_t target_count, long delay_ns, bool all, uint64_t *published)
{
	struct ring *ring = fixture_ring(pages);
	struct fixture_tally tally;
	struct ring_info info;

	memset(published, 0, WRITERS * sizeof(*published));
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		publish_several(ring, target_count, published);
	if (all)
		wait_for_all(published);
	kill_at(&(struct timespec){ .tv_nsec = delay_ns }, pid);

	fixture_read(ring, RING_OLDEST, &tally);
	ring_info(ring, &info);
	if (info.next_seq > pages)
		tally.nameless = 0; /* the descriptions of one that had no CPU for a quarter of a ring may be gone */
	fixture_check(&tally);
	for (uint32_t i = 0; i < WRITERS; i++) {
		uint64_t newest = newest_of(ring, i);

		ck_assert(info.next_seq > pages || newest > 0 || published[i] == 0);
		/*
		 * Others may have gone round the ring since it was last on a CPU. If not, its last
		 * tick is there, or the one that it was about to count.
		 */
		ck_assert(newest == 0 ||
			  (newest >= fixture_time(published[i]).ns - (fixture_time(1).ns - fixture_time(0).ns) &&
			   newest <= fixture_time(published[i]).ns));
	}
	ring_free(ring);
}

START_TEST(nor_is_it_if_there_are_several)
{
	size_t size = WRITERS * sizeof(uint64_t);
	uint64_t *published = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(published, MAP_FAILED);
	for (int i = 0; i < ROUNDS; i++) {
		static const uint32_t counts[] = { 2, 20, TARGETS_EACH };

		round_of_several(i % 2 ? 4096 : 64, counts[i % 3], 600000 + i * 237911L, i >= ROUNDS / 2, published);
	}
	munmap(published, size);
}
END_TEST

Suite *ring_kill_suite(void)
{
	Suite *suite = suite_create("ring_kill");
	TCase *tc = tcase_create("kill -9");

	tcase_add_test(tc, nothing_published_is_lost_and_nothing_else_is_seen);
	tcase_add_test(tc, nor_is_it_if_there_are_several);
	suite_add_tcase(suite, tc);
	return suite;
}
