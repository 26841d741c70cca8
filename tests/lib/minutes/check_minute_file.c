/*
 * check_minute_file.c: minutes that are written and read again, torn at every byte, with every byte
 * changed; what a month of 300 targets takes.
 */
#include "lib/minutes/minute_file.h"

#include "lib/base/compress.h"
#include "scene.h"
#include "torture.h"

#include <errno.h>
#include <string.h>

Suite *minute_file_suite(void);

#define MINUTE_NS (60 * NS_PER_S)
#define BEGIN_NS (1763900000ull / 60 * MINUTE_NS)

static struct minute_row rows[2][4];
static struct minute_incident incidents[2];
static struct minute minutes[2];

static void setup(void)
{
	rows[0][0] = (struct minute_row){ .kind = TARGET_CGROUP,
					  .name = "b.service",
					  .entry = "services",
					  .comm = "",
					  .has_cpu = true,
					  .has_memory = true,
					  .cpu_ns = 12345 * NS_PER_MS,
					  .cpu_peak_milli = 1500,
					  .memory_bytes = 123 * 4096,
					  .throttled_ns = 77 * NS_PER_MS,
					  .throttled_permille = 250,
					  .seen_ns = 60 * NS_PER_S,
					  .targets = 1 };
	rows[0][1] = (struct minute_row){ .kind = TARGET_PROCESS,
					  .name = "a/12",
					  .entry = "a",
					  .comm = "python3",
					  .has_cpu = true,
					  .has_memory = true,
					  .cpu_ns = 5 * NS_PER_MS,
					  .cpu_peak_milli = 20,
					  .memory_bytes = 4096,
					  .seen_ns = 2 * NS_PER_S,
					  .targets = 1 };
	rows[0][2] = (struct minute_row){ .kind = MINUTE_OTHERS,
					  .name = "",
					  .entry = "",
					  .comm = "",
					  .has_cpu = true,
					  .has_memory = true,
					  .cpu_ns = NS_PER_S,
					  .cpu_peak_milli = 400,
					  .memory_bytes = 1 << 20,
					  .seen_ns = 60 * NS_PER_S,
					  .targets = 1240 };
	rows[1][0] = rows[0][1];
	rows[1][0].cpu_ns = 0;
	rows[1][0].has_memory = false;
	rows[1][0].memory_bytes = 0;
	rows[1][1] = rows[0][0];
	rows[1][1].cpu_peak_milli = 90;
	rows[1][1].throttled_ns = rows[1][1].throttled_permille = 0;
	incidents[0] = (struct minute_incident){ "20261123T140201.123Z-b.service-cpu", 0 };
	incidents[1] = (struct minute_incident){ "20261123T140205.000Z-everything-manual", MINUTE_NO_ROW };
	minutes[0] = (struct minute){ .begin = { BEGIN_NS },
				      .period_ns = MINUTE_NS,
				      .peak_ns = NS_PER_S,
				      .span_ns = 60 * NS_PER_S,
				      .unsampled_ns = 250 * NS_PER_MS,
				      .number = 7,
				      .rows = rows[0],
				      .row_count = 3,
				      .incidents = incidents,
				      .incident_count = 2 };
	minutes[1] = (struct minute){ .begin = { BEGIN_NS + 3 * MINUTE_NS },
				      .period_ns = MINUTE_NS,
				      .peak_ns = NS_PER_S,
				      .span_ns = 60 * NS_PER_S,
				      .number = 9,
				      .rows = rows[1],
				      .row_count = 2 };
	for (size_t i = 0; i < 2; i++)
		rows[1][i].seen_ns = minutes[1].span_ns;
}

static const struct minute_row *find_row(const struct minute *minute, const char *name)
{
	for (size_t i = 0; i < minute->row_count; i++)
		if (strcmp(minute->rows[i].name, name) == 0)
			return &minute->rows[i];
	return NULL;
}

static void expect_row(const struct minute *minute, const struct minute_row *row)
{
	const struct minute_row *found = find_row(minute, row->name);

	ck_assert_ptr_nonnull(found);
	ck_assert_uint_eq(found->kind, row->kind);
	ck_assert_str_eq(found->entry, row->entry);
	ck_assert_str_eq(found->comm, row->comm);
	ck_assert(found->has_cpu == row->has_cpu && found->has_memory == row->has_memory);
	ck_assert_uint_eq(found->cpu_ns, row->cpu_ns);
	ck_assert_uint_eq(found->cpu_peak_milli, row->cpu_peak_milli);
	ck_assert_uint_eq(found->memory_bytes, row->memory_bytes);
	ck_assert_uint_eq(found->throttled_ns, row->throttled_ns);
	ck_assert_uint_eq(found->throttled_permille, row->throttled_permille);
	ck_assert_uint_eq(found->seen_ns, row->seen_ns);
	ck_assert_uint_eq(found->targets, row->targets);
}

static void expect_minute(const struct minute *minute, const struct minute *expected)
{
	ck_assert_uint_eq(minute->begin.ns, expected->begin.ns);
	ck_assert_uint_eq(minute->period_ns, expected->period_ns);
	ck_assert_uint_eq(minute->peak_ns, expected->peak_ns);
	ck_assert_uint_eq(minute->span_ns, expected->span_ns);
	ck_assert_uint_eq(minute->unsampled_ns, expected->unsampled_ns);
	ck_assert_uint_eq(minute->number, expected->number);
	ck_assert_uint_eq(minute->row_count, expected->row_count);
	for (size_t i = 0; i < expected->row_count; i++)
		expect_row(minute, &expected->rows[i]);
	ck_assert_uint_eq(minute->incident_count, expected->incident_count);
	for (size_t i = 0; i < expected->incident_count; i++) {
		const struct minute_incident *incident = &minute->incidents[i];

		ck_assert_str_eq(incident->id, expected->incidents[i].id);
		if (expected->incidents[i].row == MINUTE_NO_ROW)
			ck_assert_uint_eq(incident->row, MINUTE_NO_ROW);
		else
			ck_assert_str_eq(minute->rows[incident->row].name,
					 expected->rows[expected->incidents[i].row].name);
	}
}

static struct minute_scan scan_of(const struct buffer *text)
{
	return (struct minute_scan){ .data = text->data, .len = text->len };
}

START_TEST(what_is_written_is_read)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_scan scan;
	struct minute_block block;

	ck_assert_int_eq(minute_block_write(minutes, 2, _i == 1, &text), 0);
	scan = scan_of(&text);
	ck_assert_int_eq(minute_block_next(&scan, &block), 0);
	ck_assert_uint_eq(block.count, 2);
	ck_assert(block.packed == (_i == 1));
	for (size_t i = 0; i < 2; i++)
		expect_minute(&block.minutes[i], &minutes[i]);
	minute_block_release(&block);
	ck_assert_int_eq(minute_block_next(&scan, &block), MINUTE_END);
	ck_assert_uint_eq(scan.minutes, 2);
	ck_assert_uint_eq(scan.period_ns, 2 * MINUTE_NS);
	ck_assert_uint_eq(scan.damaged, 0);
}
END_TEST

START_TEST(blocks_outside_of_the_interval_are_counted_and_not_read)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_scan scan;
	struct minute_block block;

	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(minute_block_write(&minutes[i], 1, false, &text), 0);
	scan = scan_of(&text);
	scan.from.ns = BEGIN_NS + MINUTE_NS;
	ck_assert_int_eq(minute_block_next(&scan, &block), 0);
	expect_minute(&block.minutes[0], &minutes[1]);
	minute_block_release(&block);
	ck_assert_int_eq(minute_block_next(&scan, &block), MINUTE_END);
	ck_assert_uint_eq(scan.blocks, 2);

	scan = scan_of(&text);
	scan.until.ns = BEGIN_NS + 3 * MINUTE_NS;
	ck_assert_int_eq(minute_block_next(&scan, &block), 0);
	expect_minute(&block.minutes[0], &minutes[0]);
	minute_block_release(&block);
	ck_assert_int_eq(minute_block_next(&scan, &block), MINUTE_END);
}
END_TEST

/* Three blocks; how many of them are read from so many bytes of the file. */
static size_t whole_blocks(const struct buffer *text, struct minute_scan *ret)
{
	struct minute_block block;
	int r;

	*ret = scan_of(text);
	while ((r = minute_block_next(ret, &block)) != MINUTE_END) {
		ck_assert(r == 0 || r == MINUTE_DAMAGED);
		if (r == 0)
			expect_minute(&block.minutes[0], &minutes[block.minutes[0].number == 9]);
		minute_block_release(&block);
	}
	return ret->blocks;
}

static size_t write_three(struct buffer *text, size_t ends[3])
{
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(minute_block_write(&minutes[i % 2], 1, i == 1, text), 0);
		ends[i] = text->len;
	}
	return text->len;
}

START_TEST(a_file_torn_at_any_byte_keeps_the_blocks_before)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	size_t ends[3], len = write_three(&text, ends);

	for (text.len = 0; text.len <= len; text.len++) {
		size_t whole = text.len >= ends[2] ? 3 : text.len >= ends[1] ? 2 : text.len >= ends[0];
		struct minute_scan scan;

		ck_assert_uint_eq(whole_blocks(&text, &scan), whole);
		ck_assert_uint_eq(scan.whole, whole ? ends[whole - 1] : 0);
		ck_assert_uint_eq(scan.damaged_bytes, text.len - scan.whole);
		ck_assert_uint_eq(scan.damaged, text.len > scan.whole);
	}
}
END_TEST

START_TEST(a_changed_byte_costs_its_own_block_and_is_counted)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	size_t ends[3], len = write_three(&text, ends);

	for (size_t at = 0; at < len; at++) {
		size_t hit = at < ends[0] ? 0 : at < ends[1] ? 1 : 2;
		struct minute_scan scan;

		text.data[at] = (char)(text.data[at] ^ (1 << (at % 8)));
		ck_assert_uint_eq(whole_blocks(&text, &scan), 2);
		ck_assert_uint_eq(scan.damaged, 1);
		ck_assert_uint_eq(scan.damaged_bytes, ends[hit] - (hit ? ends[hit - 1] : 0));
		text.data[at] = (char)(text.data[at] ^ (1 << (at % 8)));
	}
}
END_TEST

START_TEST(a_checksum_that_is_right_does_not_make_it_believed)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	unsigned char *head;

	ck_assert_int_eq(minute_block_write(minutes, 2, false, &text), 0);
	head = (unsigned char *)text.data;
	for (size_t at = 56; at < text.len; at++) {
		for (unsigned value = 0; value < 256; value += 51) {
			unsigned char before = head[at];
			struct minute_scan scan;
			struct minute_block block;
			uint32_t crc;
			int r;

			head[at] = (unsigned char)value;
			crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, head + 56, text.len - 56);
			memcpy(head + 48, &crc, 4);
			crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, head, 52);
			memcpy(head + 52, &crc, 4);
			scan = scan_of(&text);
			/* Believed or not: nothing is read or written that is not there (sanitizers). */
			r = minute_block_next(&scan, &block);
			ck_assert(r == 0 || r == MINUTE_DAMAGED);
			for (size_t m = 0; r == 0 && m < block.count; m++)
				for (size_t i = 0; i < block.minutes[m].row_count; i++)
					ck_assert_uint_le(strlen(block.minutes[m].rows[i].name), MINUTE_TEXT_MAX);
			minute_block_release(&block);
			head[at] = before;
		}
	}
}
END_TEST

START_TEST(long_names_are_cut)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	char name[1000];
	struct minute_scan scan;
	struct minute_block block;

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	rows[1][0].name = name;
	ck_assert_int_eq(minute_block_write(&minutes[1], 1, false, &text), 0);
	scan = scan_of(&text);
	ck_assert_int_eq(minute_block_next(&scan, &block), 0);
	name[MINUTE_TEXT_MAX] = '\0';
	ck_assert_ptr_nonnull(find_row(&block.minutes[0], name));
	minute_block_release(&block);
}
END_TEST

/* Of a busy machine: a third of the targets computes, a third does a little, a third sleeps. */
static void synthetic_minute(struct minute *minute, struct minute_row *row, char (*names)[64], size_t count,
			     uint32_t *seed)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t noise = (*seed = *seed * 1664525u + 1013904223u) >> 8;

		row[i] = (struct minute_row){ .kind = TARGET_CGROUP,
					      .name = names[i],
					      .entry = "services",
					      .comm = "",
					      .has_cpu = true,
					      .has_memory = true,
					      .seen_ns = minute->span_ns,
					      .targets = 1,
					      .memory_bytes = (100 + i) << 20 };
		if (i % 3 == 0) {
			row[i].cpu_ns = (noise % 30000) * NS_PER_MS;
			row[i].cpu_peak_milli = (uint32_t)(noise % 2000);
			row[i].memory_bytes += (noise % 5000) * 4096;
		} else if (i % 3 == 1) {
			row[i].cpu_ns = (noise % 100) * NS_PER_MS;
			row[i].cpu_peak_milli = (uint32_t)(noise % 30);
			row[i].memory_bytes += (noise % 20) * 4096;
		}
	}
}

START_TEST(a_month_of_300_targets_takes_less_than_100_mb)
{
	enum { TARGETS = 300, HOURS = 6 };
	static struct minute_row row[15][TARGETS];
	static char names[TARGETS][64];
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute quarter[15];
	uint32_t seed = 1;
	double month;

	for (size_t i = 0; i < TARGETS; i++)
		snprintf(names[i], sizeof(names[i]), "/system.slice/%08x-worker-%zu.service",
			 (unsigned)(i * 2654435761u), i);
	for (unsigned q = 0; q < HOURS * 4; q++) {
		for (unsigned m = 0; m < 15; m++) {
			quarter[m] = (struct minute){ .begin = { BEGIN_NS + (q * 15 + m) * MINUTE_NS },
						      .period_ns = MINUTE_NS,
						      .peak_ns = NS_PER_S,
						      .span_ns = MINUTE_NS,
						      .number = q * 15 + m,
						      .rows = row[m],
						      .row_count = TARGETS };
			synthetic_minute(&quarter[m], row[m], names, TARGETS, &seed);
		}
		ck_assert_int_eq(minute_block_write(quarter, 15, true, &text), 0);
	}
	month = (double)text.len / HOURS * 24 * 30;
	printf("a synthetic month of 300 targets: %.1f MB, %.2f bytes a row\n", month / 1e6,
	       (double)text.len / (HOURS * 60 * TARGETS));
	ck_assert_double_lt(month, 100e6);
}
END_TEST

START_TEST(memory_that_is_refused_is_reported)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		AUTO(buffer_release) struct buffer text = { 0 };
		struct minute_block block = { 0 };
		struct minute_scan scan;
		bool written, read;
		int r;

		torture_arm(n);
		r = minute_block_write(minutes, 2, true, &text);
		written = !torture_disarm();
		ck_assert_int_eq(r, written ? 0 : -ENOMEM);
		ck_assert(written || text.len == 0);
		text.len = 0;
		ck_assert_int_eq(minute_block_write(minutes, 2, true, &text), 0);
		scan = scan_of(&text);
		torture_arm(n);
		r = minute_block_next(&scan, &block);
		read = !torture_disarm();
		ck_assert_int_eq(r, read ? 0 : -ENOMEM);
		ck_assert(read || scan.at == 0); /* it can be tried again */
		minute_block_release(&block);
		injected = !written || !read;
	}
}
END_TEST

Suite *minute_file_suite(void)
{
	Suite *suite = suite_create("minute_file");
	TCase *tcase = tcase_create("minute_file");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, what_is_written_is_read, 0, 2);
	tcase_add_test(tcase, blocks_outside_of_the_interval_are_counted_and_not_read);
	tcase_add_test(tcase, a_file_torn_at_any_byte_keeps_the_blocks_before);
	tcase_add_test(tcase, a_changed_byte_costs_its_own_block_and_is_counted);
	tcase_add_test(tcase, a_checksum_that_is_right_does_not_make_it_believed);
	tcase_add_test(tcase, long_names_are_cut);
	tcase_add_test(tcase, a_month_of_300_targets_takes_less_than_100_mb);
	tcase_add_test(tcase, memory_that_is_refused_is_reported);
	suite_add_tcase(suite, tcase);

	return suite;
}
