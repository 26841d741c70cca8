/* check_perf_merge.c: the order of times, and of coming where times are the same. */
#include "lib/proc/perf.h"
#include "skip.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>

Suite *perf_merge_suite(void);

struct entry {
	struct perf_event_header header;
	uint64_t number;
};

static int add(struct perf_merge *merge, uint64_t number, uint64_t time_ns)
{
	const struct entry entry = { { .type = 1, .size = sizeof(entry) }, number };

	return perf_merge_add(merge, &entry, sizeof(entry), time_ns);
}

static uint64_t number_at(const struct perf_merge *merge, size_t index)
{
	struct entry entry;
	size_t size;
	const void *record = perf_merge_record(merge, index, &size);

	ck_assert_uint_eq(size, sizeof(entry));
	memcpy(&entry, record, sizeof(entry));
	return entry.number;
}

START_TEST(records_come_out_by_time_and_then_as_they_came)
{
	struct perf_merge merge = { 0 };
	struct buffer buffer = { 0 };
	const struct sink sink = sink_buffer(&buffer);
	static uint64_t numbers[1000];
	struct entry entry;

	perf_merge_sort(&merge);
	for (uint64_t number = 0; number < 1000; number++)
		ck_assert_int_eq(add(&merge, number, number * 7919 % 10), 0);
	perf_merge_sort(&merge);
	for (size_t i = 0; i < 1000; i++) {
		ck_assert_uint_eq(merge.entries[i].time_ns, i / 100);
		ck_assert_uint_eq(number_at(&merge, i) * 7919 % 10, i / 100);
		if (i % 100 > 0)
			ck_assert_uint_lt(number_at(&merge, i - 1), number_at(&merge, i));
	}
	for (size_t i = 0; i < 1000; i++)
		numbers[i] = number_at(&merge, i);
	ck_assert_int_eq(perf_merge_write(&merge, &sink), 0);
	ck_assert_uint_eq(buffer.len, 1000 * sizeof(entry));
	for (size_t i = 0; i < 1000; i++) {
		memcpy(&entry, buffer.data + i * sizeof(entry), sizeof(entry));
		ck_assert_uint_eq(entry.number, numbers[i]);
	}
	ck_assert_uint_eq(merge.count, 0);
	ck_assert_int_eq(add(&merge, 5, 5), 0);
	perf_merge_clear(&merge);
	ck_assert_uint_eq(merge.count, 0);
	ck_assert_int_eq(add(&merge, 6, 5), 0);
	ck_assert_uint_eq(number_at(&merge, 0), 6);
	buffer_release(&buffer);
	perf_merge_release(&merge);
}
END_TEST

START_TEST(limit_is_kept_and_what_is_there_stays)
{
	struct perf_merge merge = { .max_bytes = 3 * sizeof(struct entry) };

	for (uint64_t number = 0; number < 3; number++)
		ck_assert_int_eq(add(&merge, number, 0), 0);
	ck_assert_int_eq(add(&merge, 3, 0), -EFBIG);
	ck_assert_uint_eq(merge.count, 3);
	perf_merge_release(&merge);
	ck_assert_uint_eq(merge.max_bytes, 3 * sizeof(struct entry));
}
END_TEST

/* More than one chunk. */
#define MANY 10000u

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct perf_merge merge = { 0 };
		int r = 0;

		torture_arm(n);
		for (uint64_t number = 0; r == 0 && number < MANY; number++)
			r = add(&merge, number, 0);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		for (size_t i = 0; i < merge.count; i++)
			ck_assert_uint_eq(number_at(&merge, i), i);
		perf_merge_release(&merge);
	}
}
END_TEST

/* What malloc(3) has given away. */
static size_t in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Of stacks; so many take 2.4 MiB. */
#define LARGE_BYTES 4096
#define LARGE_COUNT 600u

/* A chunk for each of two rings, and one that is not full. */
#define BESIDE (3u * (128u << 10))

static int add_large(struct perf_merge *merge, uint64_t time_ns)
{
	static _Alignas(8) struct {
		struct perf_event_header header;
		uint8_t stack[LARGE_BYTES - sizeof(struct perf_event_header)];
	} large = { .header = { .type = 1, .size = LARGE_BYTES } };

	return perf_merge_add(merge, &large, sizeof(large), time_ns);
}

/* Two rings, each newest first, as they are read. *ret_most: in use beyond what the records take. */
static void add_rings(struct perf_merge *merge, size_t before, size_t *ret_most)
{
	size_t most = 0;

	for (unsigned i = 0; i < LARGE_COUNT; i++) {
		ck_assert_int_eq(add_large(merge, LARGE_COUNT - i % (LARGE_COUNT / 2)), 0);

		size_t beyond = in_use() - before;

		beyond = beyond > merge->bytes ? beyond - merge->bytes : 0;
		most = beyond > most ? beyond : most;
	}
	perf_merge_sort(merge);
	*ret_most = most;
}

struct written {
	size_t bytes, before, most; /* in use, and written: at most, together */
};

static int note_written(void *ctx, const void *data, size_t len)
{
	struct written *written = ctx;
	size_t sum = in_use() - written->before + written->bytes;

	(void)data;
	written->bytes += len;
	written->most = sum > written->most ? sum : written->most;
	return 0;
}

START_TEST(takes_hardly_more_than_its_records_while_they_are_added_and_while_they_are_written)
{
	struct perf_merge merge = { 0 };
	struct written written = { .before = in_use() };
	const struct sink sink = { note_written, &written };
	size_t beyond, total;

	add_rings(&merge, written.before, &beyond);
	if (in_use() - written.before < merge.bytes) {
		perf_merge_release(&merge);
		SKIP_TEST("this allocator does not count what is in use");
	}
	total = merge.bytes;
	ck_assert_uint_le(beyond, BESIDE);
	ck_assert_int_eq(perf_merge_write(&merge, &sink), 0);
	ck_assert_uint_eq(written.bytes, total);
	ck_assert_uint_le(written.most, total + BESIDE);
	ck_assert_uint_le(in_use(), written.before + BESIDE / 8); /* what malloc(3) keeps at hand counts */
}
END_TEST

START_TEST(what_is_cleared_gives_back_what_many_records_took)
{
	struct perf_merge merge = { 0 };
	size_t before = in_use(), beyond;

	add_rings(&merge, before, &beyond);
	if (in_use() - before < merge.bytes) {
		perf_merge_release(&merge);
		SKIP_TEST("this allocator does not count what is in use");
	}
	perf_merge_clear(&merge);
	ck_assert_uint_le(in_use(), before + BESIDE / 2);
	ck_assert_int_eq(add(&merge, 7, 1), 0);
	ck_assert_uint_eq(number_at(&merge, 0), 7);
	perf_merge_release(&merge);
}
END_TEST

START_TEST(what_the_sink_refuses_ends_the_writing_and_nothing_is_left)
{
	struct perf_merge merge = { 0 };
	long left = LARGE_BYTES * (long)LARGE_COUNT / 2;
	const struct sink sink = torture_sink(&left);
	size_t beyond;

	add_rings(&merge, in_use(), &beyond);
	ck_assert_int_eq(perf_merge_write(&merge, &sink), -EIO);
	ck_assert_uint_eq(merge.count, 0);
	ck_assert_int_eq(add(&merge, 8, 1), 0);
	ck_assert_uint_eq(number_at(&merge, 0), 8);
	perf_merge_release(&merge);
}
END_TEST

Suite *perf_merge_suite(void)
{
	Suite *suite = suite_create("perf_merge");
	TCase *tcase = tcase_create("perfmerge");

	tcase_add_test(tcase, records_come_out_by_time_and_then_as_they_came);
	tcase_add_test(tcase, limit_is_kept_and_what_is_there_stays);
	tcase_add_test(tcase, takes_hardly_more_than_its_records_while_they_are_added_and_while_they_are_written);
	tcase_add_test(tcase, what_is_cleared_gives_back_what_many_records_took);
	tcase_add_test(tcase, what_the_sink_refuses_ends_the_writing_and_nothing_is_left);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
