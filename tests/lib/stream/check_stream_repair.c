/*
 * check_stream_repair.c: streams cut off anywhere are sealed and whole then; damaged ones and whole
 * ones are left alone.
 */
#include "stream_feed.h"
#include "lib/stream/stream.h"

#include "scene.h"
#include "lib/base/io.h"
#include "torture.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

Suite *stream_repair_suite(void);

static struct buffer golden; /* a whole stream */
static int file = -1;

static void write_stream(struct buffer *ret)
{
	static const struct stream_column columns[] = { { "a", "ns", "counter", "A" }, { "b", "bytes", "gauge", "B" } };
	const struct stream_options options = {
		.format = STREAM_SPIKEWATCH, .columns = columns, .column_count = 2, .start = { 7 }, .flush_bytes = 200
	};
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new(sink_buffer(ret), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, "{}", 2), 0);
	for (uint64_t i = 1; i <= 12; i++)
		ck_assert_int_eq(stream_row(writer, i, 1, (uint64_t[]){ i, 2 * i }, 3), 0);
	ck_assert_int_eq(stream_close(writer), 0);
}

static void setup(void)
{
	golden = (struct buffer){ 0 };
	write_stream(&golden);
	file = memfd_create("stream", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
}

static void teardown(void)
{
	close(file);
	buffer_release(&golden);
}

static void put(const char *data, size_t len)
{
	ck_assert_int_eq(ftruncate(file, 0), 0);
	ck_assert_int_eq(pwrite(file, data, len, 0), (ssize_t)len);
}

static size_t size(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(file, &st), 0);

	return (size_t)st.st_size;
}

static bool holds(const char *data, size_t len)
{
	static char text[65536];

	return size() == len && pread(file, text, sizeof(text), 0) == (ssize_t)len && memcmp(text, data, len) == 0;
}

static int read_back(struct stream_reader_report *ret)
{
	static const struct stream_reader_events nothing;
	static char text[65536];
	ssize_t len = pread(file, text, sizeof(text), 0);
	struct stream_reader *stream_reader;
	int r;

	ck_assert_int_eq(stream_reader_new(&nothing, &stream_reader), 0);
	ck_assert_int_eq(stream_feed(stream_reader, text, (size_t)len), 0);
	r = stream_reader_finish(stream_reader, ret);
	stream_reader_free(stream_reader);

	return r;
}

START_TEST(cut_off_anywhere_it_is_whole_as_far_as_it_goes)
{
	struct stream_reader_report report;
	uint64_t rows = 0;
	size_t sealed = 0;

	for (size_t len = 0; len < golden.len; len++) {
		int r;

		put(golden.data, len);
		r = stream_repair(file);
		if (r == STREAM_REPAIR_LEFT) {
			ck_assert(holds(golden.data, len));
			continue;
		}
		ck_assert_int_eq(r, 0);
		sealed++;
		ck_assert_int_eq(read_back(&report), 0);
		ck_assert_msg(stream_reader_whole(&report), "cut at %zu of %zu", len, golden.len);
		ck_assert_uint_ge(report.rows, rows); /* what is there is lost no more */
		rows = report.rows;
		ck_assert_int_eq(stream_repair(file), STREAM_REPAIR_LEFT);
	}
	ck_assert_uint_eq(rows, 12);
	ck_assert_uint_gt(sealed, golden.len / 2);
}
END_TEST

START_TEST(what_is_whole_stays_as_it_is)
{
	put(golden.data, golden.len);
	ck_assert_int_eq(stream_repair(file), STREAM_REPAIR_LEFT);
	ck_assert(holds(golden.data, golden.len));
	put("no line of ours\n", 16);
	ck_assert_int_eq(stream_repair(file), STREAM_REPAIR_LEFT);
	put("", 0);
	ck_assert_int_eq(stream_repair(file), STREAM_REPAIR_LEFT);
	ck_assert_uint_eq(size(), 0);
}
END_TEST

START_TEST(what_is_damaged_is_never_called_whole)
{
	size_t len = golden.len * 3 / 4, left = 0;

	for (size_t at = 0; at < len; at++) {
		struct stream_reader_report report;
		int r;

		golden.data[at] ^= 1;
		put(golden.data, len);
		r = stream_repair(file);
		ck_assert_int_ge(r, 0);
		ck_assert_int_eq(read_back(&report), 0);
		ck_assert(r == STREAM_REPAIR_LEFT || stream_reader_whole(&report));
		if (r == STREAM_REPAIR_LEFT)
			ck_assert(holds(golden.data, len));
		left += r == STREAM_REPAIR_LEFT;
		golden.data[at] ^= 1;
	}
	ck_assert_uint_gt(left, len * 3 / 4);
}
END_TEST

START_TEST(without_memory_it_is_left_for_another_time)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		put(golden.data, golden.len / 2);
		torture_arm(n);
		int r = stream_repair(file);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
}
END_TEST

Suite *stream_repair_suite(void)
{
	Suite *suite = suite_create("stream_repair");
	TCase *tcase = tcase_create("streams");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, cut_off_anywhere_it_is_whole_as_far_as_it_goes);
	tcase_add_test(tcase, what_is_whole_stays_as_it_is);
	tcase_add_test(tcase, what_is_damaged_is_never_called_whole);
	tcase_add_test(tcase, without_memory_it_is_left_for_another_time);
	suite_add_tcase(suite, tcase);

	return suite;
}
