/* The ring as a file: made, opened again, replaced, and what is no ring refused. */
#include "ring_fixture.h"
#include "lib/base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *ring_file_suite(void);

#define PAGE 4096
#define PAGES 8

static char directory[] = "/tmp/check-ring-XXXXXX";
static int dirfd;
static struct fixture_target targets[10];

static const struct ring_options options = {
	.size_bytes = PAGE + PAGES * PAGE + 100,
	.page_bytes = PAGE,
	.interval_ns = 7,
	.heartbeat_ns = 9,
	.boot_id = { 1, 2, 3 },
	.pid = 4321,
	.start_ticks = 8765,
};

static void set_up(void)
{
	memcpy(directory + sizeof(directory) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd, 0);
}

static void tear_down(void)
{
	unlinkat(dirfd, "ring", 0);
	unlinkat(dirfd, "ring.new", 0);
	close(dirfd);
	rmdir(directory);
}

/* A ring of this many ticks under the name "ring". */
static void make(uint64_t ticks, struct ring **ret)
{
	struct ring_writer *writer = NULL;

	for (uint32_t i = 0; i < 10; i++)
		fixture_target_init(&targets[i], i + 1);
	ck_assert_int_eq(ring_create(dirfd, "ring", &options, ret), 0);
	ck_assert_int_eq(ring_writer_new(*ret, &writer), 0);
	for (uint64_t tick = 0; tick < ticks; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, 10, tick), 0);
	ring_writer_free(writer);
}

START_TEST(a_ring_can_be_read_after_its_writer_is_gone)
{
	struct ring *ring = NULL;
	struct fixture_tally tally;

	make(300, &ring);
	ring_free(ring);
	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), 0);
	fixture_read(ring, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.last_tick, 299);
	ck_assert_uint_eq(tally.first_tick, 300 - tally.ticks);
	ring_free(ring);
}
END_TEST

START_TEST(the_header_says_what_it_was_made_with)
{
	struct ring *ring = NULL;
	struct ring_info info;
	struct stat st;

	make(300, &ring);
	ck_assert_int_eq(fstatat(dirfd, "ring", &st, 0), 0);
	ck_assert_int_eq(st.st_size, PAGE + PAGES * PAGE);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);

	ring_info(ring, &info);
	ck_assert_uint_eq(info.size_bytes, (uint64_t)st.st_size);
	ck_assert_uint_eq(info.page_bytes, PAGE);
	ck_assert_uint_eq(info.page_count, PAGES);
	ck_assert_uint_eq(ring_interval_ns(ring), 7);
	ck_assert_uint_eq(info.heartbeat_ns, 9);
	ck_assert_mem_eq(info.boot_id, options.boot_id, 16);
	ck_assert_int_eq(info.pid, 4321);
	ck_assert_uint_eq(info.start_ticks, 8765);
	ck_assert_uint_eq(info.ticks, 300);
	ck_assert_uint_eq(info.last_tick.ns, fixture_time(299).ns);
	ck_assert(!info.clean);
	ring_finish(ring);
	ring_free(ring);

	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), 0);
	ring_info(ring, &info);
	ck_assert(info.clean);
	ring_free(ring);
}
END_TEST

START_TEST(counters_are_published_with_the_tick)
{
	struct ring *ring = NULL;
	struct ring_writer *writer = NULL;
	struct stats stats = { .collection_rate = 1, .own_cpu = 17, .records = 99 };
	struct stats read = { .own_cpu = 5 };

	make(0, &ring);
	ck_assert_int_eq(ring_stats(ring, &read), 0);
	ck_assert_uint_eq(read.own_cpu, 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint64_t tick = 0; tick < 5; tick++) {
		stats.own_cpu++;
		ck_assert_int_eq(ring_tick_begin(writer, fixture_time(tick), fixture_wall(tick), 0), 0);
		ring_tick_end(writer, &stats);
		ck_assert_int_eq(ring_stats(ring, &read), 0);
		ck_assert_uint_eq(read.own_cpu, stats.own_cpu);
		ck_assert_uint_eq(read.records, 0);
	}
	ring_writer_free(writer);
	ring_free(ring);
}
END_TEST

/* What the configuration and `record --ring-size` say is the least. */
START_TEST(four_pages_are_enough)
{
	static const uint32_t pages[] = { 4096, 65536, 1 << 20 };

	for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
		for (uint64_t more = 0; more < 3 * 4096; more += 4095) {
			const struct ring_options least = { .size_bytes = 4 * (uint64_t)pages[i] + more,
							    .page_bytes = pages[i] };
			struct ring *ring = NULL;

			ck_assert_int_eq(ring_create_anonymous(&least, &ring), 0);
			ring_free(ring);
		}
	}
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
	static const struct ring_options wrong[] = {
		{ .size_bytes = 4 * PAGE - 1, .page_bytes = PAGE },
		{ .size_bytes = 1 << 20, .page_bytes = 2048 },
		{ .size_bytes = 1 << 20, .page_bytes = 5000 },
		{ .size_bytes = 1 << 24, .page_bytes = 1 << 21 },
		{ .size_bytes = 1 << 17 },
		{ .size_bytes = UINT64_MAX },
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct ring *ring = NULL;
		ck_assert_int_eq(ring_create(dirfd, "ring", &wrong[i], &ring), -EINVAL);
		ck_assert_int_eq(ring_create_anonymous(&wrong[i], &ring), -EINVAL);
		ck_assert_ptr_null(ring);
	}
	ck_assert_int_eq(faccessat(dirfd, "ring", F_OK, 0), -1);
	ck_assert_int_eq(faccessat(dirfd, "ring.new", F_OK, 0), -1);
}
END_TEST

START_TEST(zeroed_options_make_a_ring)
{
	const struct ring_options zero = { 0 };
	struct ring *ring = NULL;
	struct ring_info info;

	ck_assert_int_eq(ring_create(dirfd, "ring", &zero, &ring), 0);
	ring_info(ring, &info);
	ck_assert_uint_eq(info.page_bytes, 65536);
	ck_assert_uint_eq(info.page_count, 255);
	ck_assert_uint_eq(info.heartbeat_ns, NS_PER_S);
	ring_free(ring);
}
END_TEST

static void put_file(const char *name, const char *text, size_t len)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
}

START_TEST(what_is_no_ring_is_refused)
{
	static char zeros[64 * 1024];
	struct ring *ring = NULL;

	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), -ENOENT);
	put_file("ring", "", 0);
	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), -EBADMSG);
	put_file("ring", "text", 4);
	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), -EBADMSG);
	put_file("ring", zeros, sizeof(zeros));
	ck_assert_int_eq(ring_open(dirfd, "ring", true, &ring), -EBADMSG);
	ck_assert_int_eq(unlinkat(dirfd, "ring", 0), 0);
	ck_assert_int_eq(mkfifoat(dirfd, "ring", 0600), 0);
	ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), -EBADMSG);
	ck_assert_ptr_null(ring);
}
END_TEST

START_TEST(a_new_ring_leaves_the_old_mapping_readable)
{
	struct ring *old = NULL;
	struct ring *new = NULL;
	struct fixture_tally tally;
	struct ring_cursor *cursor = NULL;

	make(20, &old);
	ring_free(old);
	ck_assert_int_eq(ring_open(dirfd, "ring", false, &old), 0);
	ck_assert_int_eq(ring_cursor_new(old, RING_OLDEST, &cursor), 0);
	put_file("ring.new", "left by a creator that was killed", 33);
	make(7, &new);

	tally = (struct fixture_tally){ 0 };
	ck_assert_int_eq(fixture_drain(cursor, &tally), RING_EMPTY);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 20);
	fixture_read(new, RING_OLDEST, &tally);
	fixture_check(&tally);
	ck_assert_uint_eq(tally.ticks, 7);
	ring_cursor_free(cursor);
	ring_free(old);
	ring_free(new);
}
END_TEST

START_TEST(each_page_can_be_read_alone)
{
	struct ring *ring = NULL;
	static char image[PAGE + PAGES * PAGE];
	uint64_t samples = 0;
	unsigned rests = 0;
	struct fixture_tally whole;

	make(300, &ring);
	fixture_read(ring, RING_OLDEST, &whole);
	ring_free(ring);
	AUTO_CLOSE int fd = openat(dirfd, "ring", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pread(fd, image, sizeof(image), 0), sizeof(image));

	for (int page = 0; page < PAGES; page++) {
		static char alone[sizeof(image)];
		struct fixture_tally tally;
		memset(alone, 0, sizeof(alone));
		memcpy(alone, image, PAGE);
		memcpy(alone + PAGE + page * PAGE, image + PAGE + page * PAGE, PAGE);
		ck_assert_int_eq(pwrite(fd, alone, sizeof(alone), 0), sizeof(alone));
		ck_assert_int_eq(ring_open(dirfd, "ring", false, &ring), 0);
		fixture_read(ring, RING_OLDEST, &tally);
		ring_free(ring);
		ck_assert_uint_eq(tally.wrong, 0);
		ck_assert_uint_eq(tally.misnamed, 0);
		ck_assert_uint_eq(tally.ticks, tally.ends);
		rests += tally.samples == 0;
		samples += tally.samples;
	}
	/* The one written last may hold no more than the rest of the last tick: that depends on how large ticks are. */
	ck_assert_uint_le(rests, 1);
	/* All but those in ticks over two pages. */
	ck_assert_uint_le(samples, whole.samples);
	ck_assert_uint_ge(samples, whole.samples - (PAGES - 1) * 10);
}
END_TEST

START_TEST(a_ring_can_be_locked_or_says_why_not)
{
	struct ring *ring = NULL;

	make(1, &ring);
	int rc = ring_lock(ring);
	ck_assert(rc == 0 || rc == -EPERM || rc == -ENOMEM || rc == -EAGAIN);
	ring_free(ring);
	ring_free(NULL);
}
END_TEST

Suite *ring_file_suite(void)
{
	Suite *suite = suite_create("ring_file");
	TCase *tc = tcase_create("file");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_ring_can_be_read_after_its_writer_is_gone);
	tcase_add_test(tc, the_header_says_what_it_was_made_with);
	tcase_add_test(tc, counters_are_published_with_the_tick);
	tcase_add_test(tc, four_pages_are_enough);
	tcase_add_test(tc, options_out_of_range_are_refused);
	tcase_add_test(tc, zeroed_options_make_a_ring);
	tcase_add_test(tc, what_is_no_ring_is_refused);
	tcase_add_test(tc, a_new_ring_leaves_the_old_mapping_readable);
	tcase_add_test(tc, each_page_can_be_read_alone);
	tcase_add_test(tc, a_ring_can_be_locked_or_says_why_not);
	suite_add_tcase(suite, tc);
	return suite;
}
