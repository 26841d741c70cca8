/* check_perf_merge.c: the order of times, and of coming where times are the same. */
#include "lib/proc/perf.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
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
	ck_assert_int_eq(perf_merge_write(&merge, &sink), 0);
	ck_assert_uint_eq(buffer.len, 1000 * sizeof(entry));
	for (size_t i = 0; i < 1000; i++) {
		memcpy(&entry, buffer.data + i * sizeof(entry), sizeof(entry));
		ck_assert_uint_eq(entry.number, number_at(&merge, i));
	}
	perf_merge_clear(&merge);
	ck_assert_uint_eq(merge.count, 0);
	ck_assert_int_eq(add(&merge, 5, 5), 0);
	ck_assert_uint_eq(number_at(&merge, 0), 5);
	buffer_release(&buffer);
	perf_merge_release(&merge);
}
END_TEST

START_TEST(limit_is_kept_and_what_is_there_stays)
{
	struct perf_merge merge = { .bytes.max = 3 * sizeof(struct entry) };

	for (uint64_t number = 0; number < 3; number++)
		ck_assert_int_eq(add(&merge, number, 0), 0);
	ck_assert_int_eq(add(&merge, 3, 0), -EFBIG);
	ck_assert_uint_eq(merge.count, 3);
	perf_merge_release(&merge);
	ck_assert_uint_eq(merge.bytes.max, 3 * sizeof(struct entry));
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct perf_merge merge = { 0 };
		int r = 0;

		torture_arm(n);
		for (uint64_t number = 0; r == 0 && number < 200; number++)
			r = add(&merge, number, 0);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		for (size_t i = 0; i < merge.count; i++)
			ck_assert_uint_eq(number_at(&merge, i), i);
		perf_merge_release(&merge);
	}
}
END_TEST

Suite *perf_merge_suite(void)
{
	Suite *suite = suite_create("perf_merge");
	TCase *tcase = tcase_create("perfmerge");

	tcase_add_test(tcase, records_come_out_by_time_and_then_as_they_came);
	tcase_add_test(tcase, limit_is_kept_and_what_is_there_stays);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
