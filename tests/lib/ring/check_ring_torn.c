/*
 * A golden ring, cut at every length and with a bit flipped in every byte: refused, or what is read
 * is true. With one writer of single-page ticks and one whose ticks go over pages.
 */
#include "ring_fixture.h"
#include "lib/base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

Suite *ring_torn_suite(void);

#define PAGE 4096
#define PAGES 6
#define SIZE (PAGE + PAGES * PAGE)

static char directory[] = "/tmp/check-ring-XXXXXX";
static int dirfd;
static unsigned char *image; /* of the file, shared with it */
static struct fixture_tally whole;
static struct fixture_target targets[40];
static size_t stride; /* of the bytes that are flipped: all of them once is enough */

static void set_up(uint32_t target_count)
{
	const struct ring_options options = { .size_bytes = SIZE, .page_bytes = PAGE };
	struct ring *ring = NULL;
	struct ring_writer *writer = NULL;

	memcpy(directory + sizeof(directory) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (uint32_t i = 0; i < target_count; i++)
		fixture_target_init(&targets[i], i + 1);

	ck_assert_int_eq(ring_create(dirfd, "ring", &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint64_t tick = 0; tick < 100; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, target_count, tick), 0);
	ring_writer_free(writer);
	ring_finish(ring);
	fixture_read(ring, RING_OLDEST, &whole);
	fixture_check(&whole);
	ring_free(ring);

	AUTO_CLOSE int fd = openat(dirfd, "ring", O_RDWR | O_CLOEXEC);
	image = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(image, MAP_FAILED);
}

static void set_up_small_ticks(void)
{
	set_up(7);
	stride = 1;
}

static void set_up_large_ticks(void)
{
	set_up(40);
	stride = 5;
}

static void tear_down(void)
{
	munmap(image, SIZE);
	unlinkat(dirfd, "ring", 0);
	close(dirfd);
	rmdir(directory);
}

/* Whether the first SAMPLE and everything else in the tally is something that was written. */
static void check_true(const struct fixture_tally *tally, size_t at)
{
	ck_assert_msg(tally->wrong == 0 && tally->misnamed == 0, "byte %zu: a wrong sample or description", at);
	ck_assert_msg(tally->disordered == 0 && tally->ends == tally->ticks, "byte %zu: half a tick", at);
	ck_assert_msg(tally->samples <= whole.samples, "byte %zu: more samples than there were", at);
	ck_assert_msg(tally->samples == whole.samples || tally->damaged + tally->lapped > 0 || (at >= 128 && at < PAGE),
		      "byte %zu: samples are missing without a word", at);
}

START_TEST(every_flipped_byte_is_refused_or_found)
{
	uint64_t refused = 0;
	uint64_t damaged = 0;

	for (size_t at = 0; at < SIZE; at += stride) {
		struct ring *ring = NULL;
		image[at] ^= (unsigned char)(1u << (at + at / 8) % 8);
		int rc = ring_open(dirfd, "ring", false, &ring);
		if (rc == 0) {
			struct fixture_tally tally;
			fixture_read(ring, RING_OLDEST, &tally);
			check_true(&tally, at);
			damaged += tally.damaged > 0;
			if (at % 16 == 0)
				fixture_read(ring, RING_NEWEST, &tally);
			ck_assert_uint_eq(tally.wrong, 0);
		}
		refused += rc == -EBADMSG;
		ck_assert(rc == 0 || rc == -EBADMSG);
		ring_free(ring);
		image[at] ^= (unsigned char)(1u << (at + at / 8) % 8);
	}
	ck_assert_uint_ge(refused, 84 / stride);
	ck_assert_uint_gt(damaged, (PAGES - 1) * (PAGE - 1300) / stride);
}
END_TEST

START_TEST(every_truncated_ring_is_refused)
{
	AUTO_CLOSE int fd = openat(dirfd, "ring", O_RDWR | O_CLOEXEC);

	for (off_t size = SIZE - 1; size >= 0; size--) {
		struct ring *ring = NULL;
		ck_assert_int_eq(ftruncate(fd, size), 0);
		ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), -EBADMSG);
	}
}
END_TEST

START_TEST(pages_of_zeros_are_reported)
{
	uint32_t missed = 0;

	for (uint32_t page = 0; page < PAGES; page++) {
		struct ring *ring = NULL;
		struct fixture_tally tally;
		unsigned char saved[PAGE];
		memcpy(saved, image + PAGE + page * PAGE, PAGE);
		memset(image + PAGE + page * PAGE, 0, PAGE);
		ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), 0);
		fixture_read(ring, RING_OLDEST, &tally);
		check_true(&tally, PAGE + page * PAGE);
		missed += tally.samples < whole.samples;
		ring_free(ring);
		memcpy(image + PAGE + page * PAGE, saved, PAGE);
	}
	/* Of ticks over pages one may hold no more than the rest of a tick whose beginning was overwritten. */
	ck_assert_uint_ge(missed, whole.ticks < PAGES ? PAGES - 1 : PAGES);
}
END_TEST

Suite *ring_torn_suite(void)
{
	Suite *suite = suite_create("ring_torn");
	TCase *small = tcase_create("small ticks");
	TCase *large = tcase_create("ticks over pages");

	tcase_add_checked_fixture(small, set_up_small_ticks, tear_down);
	tcase_add_test(small, every_flipped_byte_is_refused_or_found);
	tcase_add_test(small, every_truncated_ring_is_refused);
	tcase_add_test(small, pages_of_zeros_are_reported);
	suite_add_tcase(suite, small);
	tcase_add_checked_fixture(large, set_up_large_ticks, tear_down);
	tcase_add_test(large, every_flipped_byte_is_refused_or_found);
	tcase_add_test(large, pages_of_zeros_are_reported);
	suite_add_tcase(suite, large);
	return suite;
}
