/* Writers that are killed at any moment: what they had published is there, whole, and nothing else is. */
#include "ring_fixture.h"

#include <fcntl.h>
#include <signal.h>
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

Suite *ring_kill_suite(void)
{
	Suite *suite = suite_create("ring_kill");
	TCase *tc = tcase_create("kill -9");

	tcase_add_test(tc, nothing_published_is_lost_and_nothing_else_is_seen);
	suite_add_tcase(suite, tc);
	return suite;
}
