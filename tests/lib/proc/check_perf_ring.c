/* check_perf_ring.c: rings made by hand, in plain memory, read in both ways. */
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *perf_ring_suite(void);

#define PAGE 4096u
#define SIZE 8192u

static _Alignas(4096) uint8_t memory[PAGE + SIZE];
static _Alignas(8) uint8_t copy[SIZE];
static _Alignas(8) uint8_t scratch[PERF_RECORD_SIZE_MAX];
static struct perf_ring ring;

static void begin(void)
{
	memset(memory, 0, sizeof(memory));
	ck_assert_int_eq(perf_ring_init(&ring, memory, sizeof(memory), PAGE), 0);
}

/* A record of `size` bytes: its head, then words that all are its number. */
static void put(uint64_t position, uint16_t size, uint64_t number)
{
	uint64_t words[128];
	const struct perf_event_header header = { .type = PERF_RECORD_SAMPLE, .size = size };

	memcpy(words, &header, sizeof(header));
	for (size_t i = 1; i < size / 8u; i++)
		words[i] = number;
	for (size_t i = 0; i < size; i++)
		memory[PAGE + (position + i) % SIZE] = ((uint8_t *)words)[i];
}

/* As the kernel does with write_backward. */
static void write_backward(uint64_t number)
{
	uint16_t size = (uint16_t)(16 + 8 * (number % 13));

	ring.page->data_head -= size;
	put(ring.page->data_head, size, number);
}

static void write_forward(uint64_t number)
{
	uint16_t size = (uint16_t)(16 + 8 * (number % 13));

	put(ring.page->data_head, size, number);
	ring.page->data_head += size;
}

/*
 * Checks that len bytes are whole records, the newest `newest`, each one less than the one before.
 * The last number.
 */
static uint64_t check_copy(size_t len, uint64_t newest)
{
	uint64_t number = newest + 1;
	bool right = true;

	for (size_t at = 0; at < len && right;) {
		struct perf_event_header header;
		uint64_t word;

		memcpy(&header, copy + at, sizeof(header));
		number--;
		right = header.size == 16 + 8 * (number % 13) && header.size <= len - at;
		for (size_t i = 8; right && i < header.size; i += 8) {
			memcpy(&word, copy + at + i, sizeof(word));
			right = word == number;
		}
		at += header.size;
	}
	ck_assert_msg(right, "record %llu of %llu is another", (unsigned long long)number, (unsigned long long)newest);
	return number;
}

/* In pieces into which hardly more than the largest record fits, or all at once. */
static void take_picture(size_t *ret_len, bool *ret_torn)
{
	static _Alignas(8) uint8_t whole[SIZE];
	struct perf_ring_walk all = { 0 }, walk = { 0 };
	size_t most = 16 + 8 * 13, part, len = perf_ring_snapshot(&ring, &all, whole, sizeof(whole));

	*ret_len = 0;
	while ((part = perf_ring_snapshot(&ring, &walk, copy + *ret_len, most)) > 0) {
		ck_assert_uint_le(part, most);
		*ret_len += part;
	}
	*ret_torn = walk.torn;
	ck_assert_uint_eq(*ret_len, len);
	ck_assert_mem_eq(copy, whole, len);
	ck_assert(len == 0 || perf_ring_snapshot(&ring, &all, whole, sizeof(whole)) == 0);
	ck_assert_int_eq(all.torn, walk.torn);
}

/* What the kernel writes between two pieces costs the oldest, and nothing is there twice or half. */
START_TEST(picture_that_is_taken_while_the_ring_is_written_has_what_was_there_but_the_oldest)
{
	for (uint64_t more = 0; more < 40; more++) {
		struct perf_ring_walk walk = { 0 };
		size_t len, part;
		uint64_t number = 1;

		begin();
		while (number <= 500)
			write_backward(number++);
		len = perf_ring_snapshot(&ring, &walk, copy, SIZE / 4);
		ck_assert_uint_gt(len, 0);
		for (uint64_t i = 0; i < more; i++)
			write_backward(number++);
		while ((part = perf_ring_snapshot(&ring, &walk, copy + len, SIZE / 4)) > 0)
			len += part;
		ck_assert(!walk.torn);
		check_copy(len, 500);
		ck_assert_uint_le(len, SIZE - (walk.head - ring.page->data_head));
		ck_assert_uint_ge(len + (walk.head - ring.page->data_head) + 16 + 8 * 13, SIZE);
	}
}
END_TEST

START_TEST(picture_has_the_newest_records_and_as_many_as_fit)
{
	size_t len = 1;
	bool torn = true;

	begin();
	take_picture(&len, &torn);
	ck_assert_uint_eq(len, 0);
	ck_assert(!torn);
	ck_assert(!perf_ring_came_round(&ring));
	for (uint64_t number = 1; number <= 2000; number++) {
		uint64_t oldest;

		write_backward(number);
		take_picture(&len, &torn);
		oldest = check_copy(len, number);
		ck_assert(!torn);
		/* all of them, or all but what is cut */
		if (perf_ring_came_round(&ring))
			ck_assert_uint_gt(len, SIZE - 16 - 8 * 13);
		else
			ck_assert_uint_eq(oldest, 1);
	}
	ck_assert(perf_ring_came_round(&ring));
}
END_TEST

START_TEST(record_that_makes_no_sense_ends_the_picture)
{
	const uint16_t sizes[] = { 7, 0, 9, 12 };
	uint64_t at = 0;
	size_t len;
	bool torn;

	for (size_t i = 0; i < 4; i++) {
		begin();
		for (uint64_t number = 1; number <= 20; number++) {
			write_backward(number);
			at = number == 11 ? ring.page->data_head : at;
		}
		memcpy(memory + PAGE + at % SIZE + 6, &sizes[i], 2);
		take_picture(&len, &torn);
		ck_assert(torn);
		ck_assert_uint_eq(check_copy(len, 20), 12);
	}
}
END_TEST

START_TEST(what_was_written_since_is_counted)
{
	uint64_t since;

	begin();
	since = perf_ring_head(&ring);
	ck_assert_uint_eq(perf_ring_count(&ring, since, 100), 0);
	for (uint64_t number = 1; number <= 2000; number++) {
		write_backward(number);
		ck_assert_uint_eq(perf_ring_count(&ring, since, 1000), number % 50 != 0 ? number % 50 : 50);
		ck_assert_uint_eq(perf_ring_count(&ring, since, 7),
				  number % 50 < 7 && number % 50 != 0 ? number % 50 : 7);
		if (number % 50 == 0)
			since = perf_ring_head(&ring);
	}
	/* where nothing ever was */
	ck_assert_uint_eq(perf_ring_count(&ring, perf_ring_head(&ring) - 8, 1000), 1000);
	memset(memory + PAGE + ring.page->data_head % SIZE, 0, 8);
	ck_assert_uint_eq(perf_ring_count(&ring, since + 8, 1000), 1000);
}
END_TEST

START_TEST(what_was_overwritten_is_taken_to_have_been_like_what_was_not)
{
	uint64_t since;
	size_t count;

	begin();
	since = perf_ring_head(&ring);
	for (uint64_t number = 1; number <= 2000; number++) {
		write_backward(number);
		count = perf_ring_count(&ring, since, 10000);
		ck_assert_uint_ge(count, number - number / 20);
		ck_assert_uint_le(count, number + number / 20);
	}
	ck_assert_uint_eq(perf_ring_count(&ring, since, 1000), 1000);
	/* the oldest of what can be read is being overwritten */
	memset(memory + PAGE + (ring.page->data_head + SIZE - 1024) % SIZE, 0, 512);
	count = perf_ring_count(&ring, since, 10000);
	ck_assert_uint_ge(count, 1800);
	ck_assert_uint_le(count, 2200);
}
END_TEST

struct taken {
	uint64_t next;
	uint64_t stop_at;
};

static int take(void *ctx, const struct perf_event_header *record, size_t len)
{
	struct taken *taken = ctx;
	const uint8_t *bytes = (const uint8_t *)record;
	bool right = true;

	ck_assert_uint_eq((uintptr_t)record % 8, 0);
	ck_assert_uint_eq(len, 16 + 8 * (taken->next % 13));
	for (size_t i = 8; i < len; i += 8) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		right &= word == taken->next;
	}
	ck_assert(right);
	return taken->next++ == taken->stop_at ? -EPIPE : 0;
}

START_TEST(ring_is_emptied_in_order_over_its_end)
{
	struct taken taken = { .next = 1 };

	begin();
	for (uint64_t number = 1; number <= 3000; number++) {
		write_forward(number);
		if (number % 37 == 0 || number == 3000) {
			ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), 0);
			ck_assert_uint_eq(taken.next, number + 1);
			ck_assert_uint_eq(ring.page->data_tail, ring.page->data_head);
		}
	}
	ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), 0);
	ck_assert_uint_eq(taken.next, 3001);
}
END_TEST

START_TEST(taker_that_stops_finds_the_rest_next_time)
{
	struct taken taken = { .next = 1, .stop_at = 3 };

	begin();
	for (uint64_t number = 1; number <= 5; number++)
		write_forward(number);
	ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), -EPIPE);
	ck_assert_uint_eq(taken.next, 4);
	ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), 0);
	ck_assert_uint_eq(taken.next, 6);
}
END_TEST

START_TEST(forward_ring_that_makes_no_sense_is_thrown_away)
{
	const uint16_t sizes[] = { 0, 7, 12, 65528 };
	struct taken taken;

	for (size_t i = 0; i < 4; i++) {
		begin();
		taken = (struct taken){ .next = 1 };
		write_forward(1);
		memcpy(memory + PAGE + ring.page->data_head + 6, &sizes[i], 2);
		ring.page->data_head += 16;
		ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), -EBADMSG);
		ck_assert_uint_eq(taken.next, 2);
		ck_assert_uint_eq(ring.page->data_tail, ring.page->data_head);
	}
	begin();
	ring.page->data_head = SIZE + 8;
	ck_assert_int_eq(perf_ring_drain(&ring, scratch, take, &taken), -EBADMSG);
	ck_assert_uint_eq(ring.page->data_tail, ring.page->data_head);
}
END_TEST

START_TEST(mapping_of_another_shape_is_refused)
{
	ck_assert_int_eq(perf_ring_init(&ring, memory, PAGE, PAGE), -EINVAL);
	ck_assert_int_eq(perf_ring_init(&ring, memory, PAGE - 8, PAGE), -EINVAL);
	ck_assert_int_eq(perf_ring_init(&ring, memory, PAGE + 5000, PAGE), -EINVAL);
	ck_assert_int_eq(perf_ring_init(&ring, memory, PAGE + SIZE, 512), -EINVAL);
}
END_TEST

Suite *perf_ring_suite(void)
{
	Suite *suite = suite_create("perf_ring");
	TCase *tcase = tcase_create("perfring");

	tcase_add_test(tcase, picture_has_the_newest_records_and_as_many_as_fit);
	tcase_add_test(tcase, picture_that_is_taken_while_the_ring_is_written_has_what_was_there_but_the_oldest);
	tcase_add_test(tcase, record_that_makes_no_sense_ends_the_picture);
	tcase_add_test(tcase, what_was_written_since_is_counted);
	tcase_add_test(tcase, what_was_overwritten_is_taken_to_have_been_like_what_was_not);
	tcase_add_test(tcase, ring_is_emptied_in_order_over_its_end);
	tcase_add_test(tcase, taker_that_stops_finds_the_rest_next_time);
	tcase_add_test(tcase, forward_ring_that_makes_no_sense_is_thrown_away);
	tcase_add_test(tcase, mapping_of_another_shape_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
