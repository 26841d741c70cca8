/*
 * stream reader: streams out of the worst logs. The golden streams are cut at every length, damaged
 * in every bit and mixed with everything; what is handed out must always be what was written, and
 * the report must say what is missing.
 */
#include "lib/base/compress.h"
#include "lib/stream/stream_reader.c"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "skip.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *stream_reader_suite(void);

#define ROWS_MAX 64

/* What was handed out: all of it as text, one line per event, and the rows by number. */
struct reading {
	struct buffer events;
	size_t row_count;
	char rows[ROWS_MAX][256]; /* as in events, by number */
	uint64_t lost_told;
	struct stream_reader_report report;
	int stop_after; /* rows; 0: never */
	int result;
};

static void __attribute__((format(printf, 2, 3))) add(struct reading *reading, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	int len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	buffer_append(&reading->events, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	add(ctx, "column %zu %s %s\n", index, name, json ? json : "-");
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	add(ctx, "start %" PRIu64 "\n", start.ns);
	return 0;
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	ck_assert_uint_eq(strlen(json), len);
	add(ctx, "target %" PRIu32 " %s\n", id, json);
	return 0;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct reading *reading = ctx;
	char line[256];

	/* gVisor's rows have no target, and numbers that shift when one is lost. */
	snprintf(line, sizeof(line),
		 "row %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx32 "\n",
		 target ? seq : 0, time_ns, target, values[0], values[1], values[2], mask);
	add(reading, "%s", line);
	ck_assert_uint_lt(reading->row_count, ROWS_MAX);
	memcpy(reading->rows[reading->row_count++], line, sizeof(line));
	return reading->stop_after && reading->row_count == (size_t)reading->stop_after ? 42 : 0;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	ck_assert_uint_eq(strlen(json), len);
	add(ctx, "note %s %s\n", kind, json);
	return 0;
}

static int on_stats(void *ctx, const char *json, size_t len)
{
	ck_assert_uint_eq(strlen(json), len);
	add(ctx, "stats %s\n", json);
	return 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct reading *reading = ctx;

	ck_assert_uint_gt(line, 0);
	ck_assert_ptr_nonnull(why);
	reading->lost_told += rows_lost;
	return 0;
}

/* Feeds pieces of at most step bytes. */
static void read_in_steps(struct reading *ret, const char *data, size_t len, size_t step)
{
	const struct stream_reader_events events = {
		on_column, on_start_time, on_target, on_row, on_note, on_stats, on_damage, NULL, ret,
	};
	struct stream_reader *stream_reader;
	int stop_after = ret->stop_after;

	*ret = (struct reading){ .stop_after = stop_after };
	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	for (size_t at = 0; at < len; at += step)
		feed_reader(stream_reader, data + at, len - at < step ? len - at : step);
	ret->result = stream_reader_finish(stream_reader, &ret->report);
	stream_reader_free(stream_reader);
	buffer_append(&ret->events, "", 1);
	ck_assert_uint_eq(ret->report.rows, ret->row_count);
	ck_assert_uint_eq(ret->lost_told, ret->report.rows_lost + ret->report.late_rows);
}

static void read_all(struct reading *ret, const char *data, size_t len)
{
	read_in_steps(ret, data, len, len + 1);
}

static void reading_release(struct reading *reading)
{
	buffer_release(&reading->events);
}

#define READING AUTO(reading_release) struct reading

/* ---- the golden streams, and what is in them ---- */

static char golden[2][16384];
static size_t golden_len[2];
static struct reading original[2];

static void load_golden(void)
{
	const char *const paths[] = { "tests/data/stream/spikewatch.txt", "tests/data/stream/gvisor.txt" };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		FILE *file = fopen(paths[i], "r");

		ck_assert_msg(file, "%s", paths[i]);
		golden_len[i] = fread(golden[i], 1, sizeof(golden[i]) - 1, file);
		fclose(file);
		golden[i][golden_len[i]] = '\0';
		read_all(&original[i], golden[i], golden_len[i]);
	}
}

static void unload_golden(void)
{
	reading_release(&original[0]);
	reading_release(&original[1]);
}

/* Is this line of events in the original too. */
static bool is_original(const struct reading *of, const char *line, size_t len)
{
	for (const char *p = of->events.data; (p = memmem(p, strlen(p), line, len)); p++)
		if (p == of->events.data || p[-1] == '\n')
			return true;
	return false;
}

/* Nothing but what was written; each row at most once. A column may have lost its description. */
static void expect_nothing_wrong(const struct reading *got, const struct reading *of)
{
	for (const char *p = got->events.data; *p;) {
		size_t len = strcspn(p, "\n") + 1;
		bool bare = len > 3 && memcmp(p, "column", 6) == 0 && memcmp(p + len - 3, " -\n", 3) == 0;

		ck_assert_msg(bare || is_original(of, p, len), "%.*s", (int)len, p);
		p += len;
	}
	for (size_t i = 0; i < got->row_count; i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(got->rows[i], got->rows[k]);
	if (stream_reader_whole(&got->report))
		ck_assert_str_eq(got->events.data, of->events.data);
}

START_TEST(golden_streams_are_whole)
{
	for (size_t i = 0; i < 2; i++) {
		const struct stream_reader_report *report = &original[i].report;

		ck_assert(stream_reader_whole(report));
		ck_assert(report->ours && report->complete && report->checksum_ok);
		ck_assert_int_eq((int)report->format, (int)i);
		ck_assert_uint_eq(report->rows, 9);
		ck_assert_uint_eq(report->columns, 3);
		ck_assert_uint_eq(report->streams, 1);
		ck_assert_uint_eq(report->foreign_lines + report->damaged_lines + report->rows_lost, 0);
		ck_assert_uint_eq(report->duplicate_lines + report->late_rows, 0);
		ck_assert_uint_eq(report->first_time_ns, 0);
		ck_assert_uint_eq(report->last_time_ns, 2500000000);
	}
	ck_assert_uint_eq(original[0].report.lines, 42);
}
END_TEST

START_TEST(everything_written_is_handed_out)
{
	const char *p = original[0].events.data;
	const char *const want[] = {
		"start 1700000000123456789\n",
		"column 0 cpu {\"column\":0,\"unit\":\"ns\",\"kind\":\"counter\",\"description\":\"CPU time\"}\n",
		"column 1 memory {",
		"column 2 memory_limit {",
		"target 1 {\"name\":\"web\",\"pid\":4711}\n",
		"target 2 {\"name\":\"db\",\"pid\":4712}\n",
		"row 1 0 2 0 0 268435456 7\n",
		"row 2 250000000 1 1000000 4096 268435456 7\n",
		"note GAP {\"lost_pages\":2}\n",
		"row 3 500000000 1 2000000 0 268435456 5\n",
		"row 4 750000000 2 0 0 0 0\n",
		"target 1 {\"name\":\"web\",\"pid\":4711}\n",
		"row 5 1000000000 1 4000000 16384 268435456 7\n",
		"stats {\"total_snapshots\":5}\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		ck_assert_msg(strncmp(p, want[i], strlen(want[i])) == 0, "%s", want[i]);
		p += strcspn(p, "\n") + 1;
	}
	ck_assert_ptr_nonnull(strstr(original[1].events.data, "row 0 500000000 0 2000000 4096 268435456 7\n"));
	ck_assert_ptr_nonnull(strstr(original[1].events.data, "column 2 memory_limit {\"name\":"));
}
END_TEST

START_TEST(pieces_of_any_size_read_alike)
{
	for (size_t i = 0; i < 2; i++) {
		for (size_t step = 1; step < 200; step++) {
			READING got = { 0 };

			read_in_steps(&got, golden[i], golden_len[i], step);
			ck_assert_str_eq(got.events.data, original[i].events.data);
			ck_assert_mem_eq(&got.report, &original[i].report, sizeof(got.report));
		}
	}
}
END_TEST

/* Rows whose line lies within the first len bytes, but for its newline. */
static size_t rows_within(size_t which, size_t len)
{
	size_t rows = 0, prefix = strcspn(golden[which] + 1, "\t") + 1;

	for (const char *p = golden[which]; *p; p += strcspn(p, "\n") + 1)
		rows += p[0] != '\n' && p[prefix] >= '0' && p[prefix] <= '9' &&
			p + strcspn(p, "\n") <= golden[which] + len;
	return rows;
}

START_TEST(every_prefix_is_read_as_far_as_it_goes)
{
	for (size_t i = 0; i < 2; i++) {
		for (size_t len = 0; len < golden_len[i]; len++) {
			READING got = { 0 };

			read_all(&got, golden[i], len);
			expect_nothing_wrong(&got, &original[i]);
			ck_assert_uint_eq(got.row_count, rows_within(i, len));
			ck_assert_uint_eq(got.report.rows_lost, 0);
			ck_assert_uint_le(got.report.damaged_lines, 1);
			/* Only the last two newlines may be missing. */
			ck_assert_int_eq(stream_reader_whole(&got.report), len >= golden_len[i] - 2);
			ck_assert_int_eq(got.report.complete, len >= golden_len[i] - 2);
		}
	}
}
END_TEST

START_TEST(every_suffix_is_read_from_where_it_starts)
{
	for (size_t i = 0; i < 2; i++) {
		for (size_t from = 2; from < golden_len[i]; from++) {
			READING got = { 0 };

			read_all(&got, golden[i] + from, golden_len[i] - from);
			ck_assert(!stream_reader_whole(&got.report));
			if (i == 1) /* rows have no numbers of their own there */
				continue;
			expect_nothing_wrong(&got, &original[i]);
			if (golden[i] + from <= strstr(golden[i], "SPIKEWATCH\tEND"))
				ck_assert_uint_eq(got.report.rows + got.report.rows_lost, 9);
		}
	}
}
END_TEST

START_TEST(every_flipped_bit_is_noticed)
{
	static char data[sizeof(golden[0])];

	for (size_t i = 0; i < 2; i++) {
		memcpy(data, golden[i], golden_len[i]);
		for (size_t bit = 0; bit < 8 * golden_len[i]; bit++) {
			READING got = { 0 };
			size_t at = bit / 8;

			data[at] ^= (char)(1 << bit % 8);
			read_all(&got, data, golden_len[i]);
			expect_nothing_wrong(&got, &original[i]);
			if (i == 0)
				ck_assert_uint_eq(got.report.rows + got.report.rows_lost, 9);
			if (golden[i][at] != '\n')
				ck_assert_msg(!stream_reader_whole(&got.report), "byte %zu bit %zu", at, bit % 8);
			ck_assert_uint_ge(got.row_count, 8);
			data[at] = golden[i][at];
		}
	}
}
END_TEST

START_TEST(every_lost_byte_is_noticed)
{
	static char data[sizeof(golden[0])];

	for (size_t i = 0; i < 2; i++) {
		for (size_t at = 0; at < golden_len[i]; at++) {
			READING got = { 0 };

			memcpy(data, golden[i], at);
			memcpy(data + at, golden[i] + at + 1, golden_len[i] - at - 1);
			read_all(&got, data, golden_len[i] - 1);
			expect_nothing_wrong(&got, &original[i]);
			/* A newline between two lines of ours is not missed. */
			ck_assert_int_eq(stream_reader_whole(&got.report), golden[i][at] == '\n');
		}
	}
}
END_TEST

static void expect_before(const char *first, const char *second)
{
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_nonnull(second);
	ck_assert(first < second);
}

START_TEST(a_lost_line_costs_nothing_but_itself)
{
	static char data[sizeof(golden[0])];

	for (const char *p = golden[0]; *p;) {
		READING got = { 0 };
		size_t at = (size_t)(p - golden[0]), len = strcspn(p, "\n") + 1;
		bool is_row = strlen(p) > 11 && p[11] >= '0' && p[11] <= '9';

		memcpy(data, golden[0], at);
		memcpy(data + at, p + len, golden_len[0] - at - len);
		read_all(&got, data, golden_len[0] - len);
		expect_nothing_wrong(&got, &original[0]);
		ck_assert_uint_eq(got.row_count, is_row && *p != '\n' ? 8 : 9);
		ck_assert_uint_eq(got.report.rows_lost, is_row && *p != '\n');
		ck_assert_uint_eq(got.report.damaged_lines, 0);
		ck_assert_uint_eq(got.report.streams, 1);
		ck_assert_int_eq(stream_reader_whole(&got.report), *p == '\n');
		/* All names, and the time, are known before the first row. */
		const char *rows = strstr(got.events.data, "\nrow ");
		expect_before(strstr(got.events.data, "start "), rows);
		expect_before(strstr(got.events.data, "column 0 cpu "), rows);
		expect_before(strstr(got.events.data, "column 1 memory "), rows);
		expect_before(strstr(got.events.data, "column 2 memory_limit "), rows);
		p += len;
	}
}
END_TEST

/* ---- mixed with others ---- */

/*
 * Copies a golden stream to ret, each line framed by before and after, which replaces the newline.
 */
static void frame_lines(size_t which, const char *before, const char *after, bool empty_too, struct buffer *ret)
{
	for (const char *p = golden[which]; *p; p += strcspn(p, "\n") + 1) {
		if (*p == '\n' && !empty_too)
			continue;
		buffer_append(ret, before, strlen(before));
		buffer_append(ret, p, strcspn(p, "\n"));
		buffer_append(ret, after, strlen(after));
	}
}

START_TEST(other_programs_lines_are_skipped)
{
	static const char *const frames[][2] = {
		{ "", "\r\n" },
		{ "2026-01-01T00:00:00.000Z app: ", "\n" },
		{ "Jan 01 00:00:00 host spikewatchd[7]: ", "\r\n" },
		{ "app | ", "\n" },
		{ "", "\nGET /index.html 200\n\x01\x02 \xff binary \n" },
		{ "no newline after this:", "\nor\tthis\n" },
		{ "", "\n{\"msg\":\"SPIKEWATCH is running\"}\n" },
		{ "SPIKEWATC", "\n" },
		{ "", "" }, /* every newline lost */
	};

	for (size_t i = 0; i < 2; i++) {
		for (size_t k = 0; k < ARRAY_LEN(frames); k++) {
			READING got = { 0 };
			AUTO(buffer_release) struct buffer data = { 0 };

			frame_lines(i, frames[k][0], frames[k][1], true, &data);
			read_all(&got, data.data, data.len);
			ck_assert_msg(stream_reader_whole(&got.report), "%zu", k);
			ck_assert_str_eq(got.events.data, original[i].events.data);
		}
	}
}
END_TEST

START_TEST(foreign_lines_are_counted)
{
	const char *text = "one\n\nSPIKEWATCH two\n\r\n\tSPIKEWATCH\nGVISOR_METRICS\nfour";
	READING got = { 0 };

	read_all(&got, text, strlen(text));
	ck_assert_uint_eq(got.report.foreign_lines, 5);
	ck_assert_uint_eq(got.report.lines, 7);
	ck_assert(!got.report.ours);
	ck_assert_uint_eq(got.report.damaged_lines, 0);

	READING nothing = { 0 };
	read_all(&nothing, "", 0);
	ck_assert_uint_eq(nothing.report.lines, 0);
	ck_assert(!nothing.report.complete && !nothing.report.checksum_ok && !stream_reader_whole(&nothing.report));
}
END_TEST

START_TEST(a_foreign_line_may_be_longer_than_memory)
{
	static char noise[300000];
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	memset(noise, 'S', sizeof(noise));
	buffer_append(&data, noise, sizeof(noise));
	buffer_append(&data, golden[0] + 1, golden_len[0] - 1); /* glued to it */
	noise[100000] = '\0';
	buffer_append(&data, noise, sizeof(noise));
	read_in_steps(&got, data.data, data.len, 4096);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_str_eq(got.events.data, original[0].events.data);
	ck_assert_uint_eq(got.report.foreign_lines, 1);
}
END_TEST

START_TEST(a_line_of_ours_may_begin_where_memory_ends)
{
	static char noise[66000];

	memset(noise, 'S', sizeof(noise));
	for (size_t len = 65350; len < sizeof(noise); len += 7) {
		READING got = { 0 };
		AUTO(buffer_release) struct buffer data = { 0 };

		buffer_append(&data, noise, len);
		buffer_append(&data, golden[0] + 1, golden_len[0] - 1);
		read_all(&got, data.data, data.len);
		ck_assert(stream_reader_whole(&got.report));
	}
}
END_TEST

START_TEST(a_line_of_ours_that_is_too_long_is_damaged)
{
	static char noise[200000];
	AUTO(buffer_release) struct buffer data = { 0 };

	memset(noise, 'x', sizeof(noise));
	buffer_append(&data, "SPIKEWATCH\tNOTE\t", 16);
	buffer_append(&data, noise, sizeof(noise));
	buffer_append(&data, golden[0] + 1, golden_len[0] - 1);
	for (size_t step = 1000; step < 2 * data.len; step *= 4) {
		READING got = { 0 };

		read_in_steps(&got, data.data, data.len, step);
		ck_assert_uint_eq(got.report.damaged_lines, 1);
		ck_assert_uint_eq(got.report.foreign_lines, 0);
		ck_assert(got.report.complete && got.report.checksum_ok);
		ck_assert_str_eq(got.events.data, original[0].events.data);
	}
}
END_TEST

START_TEST(a_foreign_line_inside_a_row_costs_that_row)
{
	static char data[sizeof(golden[0]) + 100];
	const char *intruder = "\nsegfault at 0\n";
	size_t at = (size_t)(strstr(golden[0], "4096\t") - golden[0]);
	READING got = { 0 };

	memcpy(data, golden[0], at);
	memcpy(data + at, intruder, strlen(intruder));
	memcpy(data + at + strlen(intruder), golden[0] + at, golden_len[0] - at);
	read_all(&got, data, golden_len[0] + strlen(intruder));
	expect_nothing_wrong(&got, &original[0]);
	ck_assert_uint_eq(got.row_count, 8);
	ck_assert_uint_eq(got.report.rows_lost, 1);
	ck_assert_uint_eq(got.report.damaged_lines, 1);
	ck_assert_uint_eq(got.report.foreign_lines, 2);
	ck_assert(got.report.complete && !got.report.checksum_ok);
}
END_TEST

/* ---- copies and order ---- */

START_TEST(doubled_lines_are_read_once)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	for (const char *p = golden[0]; *p; p += strcspn(p, "\n") + 1)
		for (int i = 0; i < (strstr(p, "STATS") == p + 11 || strstr(p, "GAP") == p + 11 ? 1 : 2); i++)
			buffer_append(&data, p, strcspn(p, "\n") + 1);
	read_all(&got, data.data, data.len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_str_eq(got.events.data, original[0].events.data);
	ck_assert_uint_eq(got.report.duplicate_lines, 35);
}
END_TEST

START_TEST(a_second_copy_of_the_whole_stream_adds_nothing)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	frame_lines(0, "", "\n", true, &data);
	frame_lines(0, "", "\n", true, &data);
	read_all(&got, data.data, data.len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_str_eq(got.events.data, original[0].events.data);
	ck_assert_uint_eq(got.report.streams, 1);
	ck_assert_uint_eq(got.report.duplicate_lines, 38);
}
END_TEST

START_TEST(a_row_that_comes_late_is_not_lost)
{
	static char data[sizeof(golden[0])];
	const char *first = strstr(golden[0], "SPIKEWATCH\t6\t"), *second = strstr(first + 1, "SPIKEWATCH\t7\t");
	const char *third = strstr(second, "SPIKEWATCH\t8\t");
	size_t at = (size_t)(first - golden[0]), first_len = (size_t)(second - first);
	size_t second_len = (size_t)(third - second);
	READING got = { 0 };

	memcpy(data, golden[0], golden_len[0]);
	memcpy(data + at, second, second_len);
	memcpy(data + at + second_len, first, first_len);
	read_all(&got, data, golden_len[0]);
	expect_nothing_wrong(&got, &original[0]);
	ck_assert_uint_eq(got.report.rows, 9);
	ck_assert_uint_eq(got.report.rows_lost, 0);
	ck_assert_uint_eq(got.report.late_rows, 1);
	ck_assert(got.report.complete && !got.report.checksum_ok);
}
END_TEST

/* Appends a line of ours, of a stream that is being forged. */
static void forge(struct buffer *data, const char *prefix, const char *content)
{
	char line[400];

	snprintf(line, sizeof(line), "%s%s\t0x%" PRIx32 "\n", prefix, content,
		 checksum_adler32(CHECKSUM_ADLER32_EMPTY, content, strlen(content)));
	buffer_append(data, line, strlen(line));
}

static void forge_row(struct buffer *data, uint64_t seq)
{
	char content[100];

	snprintf(content, sizeof(content), "%" PRIu64 "\t%" PRIu64 "\t1\t5\t6\t7", seq, seq * 10);
	forge(data, "SPIKEWATCH\t", content);
}

START_TEST(rows_are_read_once_however_late_they_are)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge_row(&data, 70000);
	forge_row(&data, 70001); /* 1 .. 69999 are missing */
	forge_row(&data, 8);
	forge_row(&data, 7);
	forge_row(&data, 69999);
	forge_row(&data, 8);
	forge_row(&data, 70000);
	forge_row(&data, 9);
	forge_row(&data, 1);
	forge_row(&data, 9);
	read_all(&got, data.data, data.len);
	ck_assert_uint_eq(got.report.rows, 7);
	ck_assert_uint_eq(got.report.late_rows, 5);
	ck_assert_uint_eq(got.report.rows_lost, 69994);
	ck_assert_uint_eq(got.report.duplicate_lines, 3);
	ck_assert_uint_eq(got.report.first_time_ns, 10);
	ck_assert_uint_eq(got.report.last_time_ns, 700010);
}
END_TEST

/* More holes than are remembered: some rows then count as copies, none is handed out twice. */
START_TEST(late_rows_of_too_many_holes_are_never_read_twice)
{
	AUTO(buffer_release) struct buffer data = { 0 };
	static const struct stream_reader_events nothing;
	struct stream_reader_report report;
	struct stream_reader *stream_reader;

	for (uint64_t seq = 2; seq <= 2 * (RANGES_MAX + 100); seq += 2)
		forge_row(&data, seq);
	for (int twice = 0; twice < 2; twice++)
		for (uint64_t seq = 1; seq < 2 * (RANGES_MAX + 100); seq += 2)
			forge_row(&data, seq);
	ck_assert_int_eq(stream_reader_new(&nothing, &stream_reader), 0);
	feed_reader(stream_reader, data.data, data.len);
	stream_reader_finish(stream_reader, &report);
	stream_reader_free(stream_reader);
	ck_assert_uint_eq(report.rows, 2 * (RANGES_MAX + 100) - 100);
	ck_assert_uint_eq(report.rows_lost, 100);
	ck_assert_uint_eq(report.duplicate_lines, RANGES_MAX + 200);
}
END_TEST

/* Each row is another in the sectors of a file of 20,000 rows. */
#define SECTOR_ROWS 20000

static unsigned char sector_rows[SECTOR_ROWS + 1];

static int mark_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	ck_assert(seq >= 1 && seq <= SECTOR_ROWS && target == 1 && mask == 7);
	ck_assert_uint_eq(time_ns, seq * 999983);
	ck_assert_uint_eq(values[0], seq * seq);
	sector_rows[seq]++;
	(void)ctx;
	return 0;
}

/* Rows that lie in one sector must be read once, others at most once. */
static void expect_rows_of_sectors(const char *data, size_t len, const char *shuffled, size_t sector)
{
	const struct stream_reader_events events = { .row = mark_row };
	struct stream_reader_report report;
	struct stream_reader *stream_reader;
	uint64_t torn = 0;

	memset(sector_rows, 0, sizeof(sector_rows));
	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	feed_reader(stream_reader, shuffled, len);
	stream_reader_finish(stream_reader, &report);
	stream_reader_free(stream_reader);
	for (const char *p = data, *end; (end = strchr(p, '\n')); p = end + 1) {
		uint64_t seq = strncmp(p, "SPIKEWATCH\t", 11) == 0 ? strtoull(p + 11, NULL, 10) : 0;
		bool whole = (size_t)(p - data) / sector == (size_t)(end - data) / sector;

		ck_assert_msg(!seq || sector_rows[seq] == 1 || (!whole && !sector_rows[seq]), "row %ju: %u times",
			      (uintmax_t)seq, sector_rows[seq]);
		torn += seq && !sector_rows[seq];
	}
	ck_assert_uint_eq(report.rows + torn, SECTOR_ROWS);
	ck_assert_uint_eq(report.rows_lost, torn);
	ck_assert(!stream_reader_whole(&report));
}

static void write_sectors(struct buffer *ret)
{
	static const struct stream_column columns[] = { { "a", "", "gauge", "" },
							{ "b", "", "gauge", "" },
							{ "c", "", "gauge", "" } };
	const struct stream_options options = { .columns = columns, .column_count = 3, .start = { 5 } };
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new(sink_buffer(ret), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, "{}", 2), 0);
	for (uint64_t n = 1; n <= SECTOR_ROWS; n++) {
		const uint64_t values[] = { n * n, 2, 3 };

		ck_assert_int_eq(stream_row(writer, n * 999983, 1, values, 7), 0);
	}
	ck_assert_int_eq(stream_close(writer), 0);
	ck_assert_int_eq(buffer_append(ret, "", 1), 0);
	ret->len--;
}

START_TEST(sectors_in_any_order_cost_the_rows_that_they_tear)
{
	static const size_t sizes[] = { 512, 4096, 65536 };
	size_t sector = sizes[_i];
	AUTO(buffer_release) struct buffer data = { 0 };
	uint32_t random = 1;

	write_sectors(&data);
	size_t count = data.len / sector; /* without the last, which is shorter */
	AUTO_FREE char *shuffled = malloc(data.len);
	ck_assert_ptr_nonnull(shuffled);

	/* One is somewhere else. */
	for (int round = 0; round < 40; round++) {
		size_t from = (random = random * 1664525 + 1013904223) % count;
		size_t to = (random = random * 1664525 + 1013904223) % count;
		size_t low = (from < to ? from : to) * sector, high = (from < to ? to : from) * sector;

		if (from == to)
			continue;
		memcpy(shuffled, data.data, data.len);
		if (from < to)
			memcpy(shuffled + low, data.data + low + sector, high - low);
		else
			memcpy(shuffled + low + sector, data.data + low, high - low);
		memcpy(shuffled + to * sector, data.data + from * sector, sector);
		expect_rows_of_sectors(data.data, data.len, shuffled, sector);
	}
	/* All are. */
	memcpy(shuffled, data.data, data.len);
	for (size_t i = count - 1; i > 0; i--) {
		size_t k = (random = random * 1664525 + 1013904223) % (i + 1);
		char kept[65536];

		memcpy(kept, shuffled + i * sector, sector);
		memmove(shuffled + i * sector, shuffled + k * sector, sector);
		memcpy(shuffled + k * sector, kept, sector);
	}
	expect_rows_of_sectors(data.data, data.len, shuffled, sector);
}
END_TEST

/* ---- what Adler-32 does not see ---- */

static uint64_t garbled;

/* Adds 1 to two bytes and takes it from two others, or the opposite, so that both sums stay. */
static void garble(char *data, const char *content, size_t len, size_t i, size_t k, int by)
{
	char *p = data + (content - golden[0]);
	char changed_to[] = { (char)(p[i] + by), (char)(p[i + 1] - by), (char)(p[k] - by), (char)(p[k + 1] + by) };
	READING got = { 0 };

	if (k == i + 1) { /* they share a byte */
		changed_to[1] = changed_to[2] = (char)(p[k] - 2 * by);
	}
	for (size_t n = 0; n < ARRAY_LEN(changed_to); n++)
		if (changed_to[n] < ' ' || changed_to[n] > '~' || p[i] == '\t' || p[i + 1] == '\t' || p[k] == '\t' ||
		    p[k + 1] == '\t')
			return;
	p[i] = changed_to[0];
	p[i + 1] = changed_to[1];
	p[k] = changed_to[2];
	p[k + 1] = changed_to[3];
	ck_assert_uint_eq(checksum_adler32(CHECKSUM_ADLER32_EMPTY, p, len),
			  checksum_adler32(CHECKSUM_ADLER32_EMPTY, content, len));
	read_all(&got, data, golden_len[0]);
	ck_assert_msg(!stream_reader_whole(&got.report), "%.*s", (int)len, p);
	memcpy(p, content, len);
	garbled++;
}

START_TEST(what_agrees_with_adler32_is_found_by_the_crc)
{
	static char data[sizeof(golden[0])];

	memcpy(data, golden[0], golden_len[0]);
	for (const char *p = golden[0]; (p = strstr(p, "SPIKEWATCH\t")); p++) {
		const char *content = p + strlen("SPIKEWATCH\t"), *end = memmem(p, strlen(p), "\t0x", 3);
		size_t len = (size_t)(end - content);

		if (strncmp(content, "ADLER32", 7) == 0)
			break;
		for (size_t i = 0; i + 1 < len; i++) {
			for (size_t k = i + 1; k + 1 < len && k < i + 12; k++) {
				garble(data, content, len, i, k, 1);
				garble(data, content, len, i, k, -1);
			}
		}
	}
	ck_assert_uint_gt(garbled, 10000);
}
END_TEST

/* The values of the report that led to the CRC. */
START_TEST(a_number_with_other_digits_is_found)
{
	static const struct stream_column column = { "a", "", "gauge", "" };
	const struct stream_options options = { .columns = &column, .column_count = 1 };
	AUTO(buffer_release) struct buffer data = { 0 };
	const uint64_t value = 1989368;
	struct stream_writer *writer;
	READING got = { 0 };

	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	ck_assert_int_eq(stream_row(writer, 1, 1, &value, 1), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	memcpy(memmem(data.data, data.len, "1989368", 7), "2799368", 7);
	read_all(&got, data.data, data.len);
	ck_assert_uint_eq(got.report.damaged_lines + got.report.rows_lost, 0);
	ck_assert(got.report.complete && got.report.checksum_ok);
	ck_assert_uint_eq(got.report.crc_differs, 1);
	ck_assert(!stream_reader_whole(&got.report));
}
END_TEST

/* Moves the line that begins with what to before the line that begins with where. */
static void move_line(char *data, const char *what, const char *where)
{
	char *from = strstr(data, what), *to = strstr(data, where), line[256];
	size_t len = strcspn(from, "\n") + 1;

	memcpy(line, from, len);
	if (from < to) {
		memmove(from, from + len, (size_t)(to - from) - len);
		memcpy(to - len, line, len);
	} else {
		memmove(to + len, to, (size_t)(from - to));
		memcpy(to, line, len);
	}
}

START_TEST(rows_are_checked_wherever_they_arrive)
{
	static const char *const moves[][2] = {
		{ "SPIKEWATCH\t2\t", "SPIKEWATCH\t8\t" }, /* behind the CRC line of its flush */
		{ "SPIKEWATCH\t2\t", "SPIKEWATCH\tADLER32" },
		{ "SPIKEWATCH\t7\t", "SPIKEWATCH\t2\t" }, /* before it */
		{ "SPIKEWATCH\t4\t", "SPIKEWATCH\t3\t" },
		{ "SPIKEWATCH\tCRC", "SPIKEWATCH\t3\t" },
		{ "SPIKEWATCH\tCRC", "SPIKEWATCH\tTARGET\t2" },
	};
	static char data[sizeof(golden[0])];

	for (size_t i = 0; i < ARRAY_LEN(moves); i++) {
		READING got = { 0 }, other = { 0 };

		memcpy(data, golden[0], golden_len[0] + 1);
		move_line(data, moves[i][0], moves[i][1]);
		read_all(&got, data, golden_len[0]);
		expect_nothing_wrong(&got, &original[0]);
		ck_assert_uint_eq(got.report.rows, 9);
		ck_assert_uint_eq(got.report.rows_lost + got.report.rows_unchecked, 0);
		ck_assert_uint_eq(got.report.crc_differs, i == 5); /* two lines count for the next */

		char *row = strstr(data, "SPIKEWATCH\t8\t");
		memcpy(strstr(row, "32768"), "41678", 5);
		read_all(&other, data, golden_len[0]);
		ck_assert_uint_eq(other.report.damaged_lines + other.report.rows_lost, 0);
		ck_assert_uint_eq(other.report.crc_differs, 1 + got.report.crc_differs - (i == 5));
	}
}
END_TEST

START_TEST(a_flush_that_comes_twice_is_read_once)
{
	AUTO(buffer_release) struct buffer data = { 0 };
	const char *second = strstr(golden[0], "\n\n\n") + 2;
	size_t first_len = (size_t)(second - golden[0]);
	READING got = { 0 };

	buffer_append(&data, golden[0], first_len);
	buffer_append(&data, golden[0], first_len);
	buffer_append(&data, second, golden_len[0] - first_len);
	read_all(&got, data.data, data.len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_uint_eq(got.report.rows, 9);
	ck_assert_uint_eq(got.report.duplicate_lines, 14);
}
END_TEST

START_TEST(a_lost_crc_line_leaves_rows_unchecked)
{
	static char data[sizeof(golden[0])];
	READING got = { 0 };

	memcpy(data, golden[0], golden_len[0]);
	memcpy(strstr(data, "CRC"), "DPD", 3); /* a remark, whose checksum agrees */
	read_all(&got, data, golden_len[0]);
	ck_assert_uint_eq(got.report.rows, 9);
	ck_assert_uint_eq(got.report.damaged_lines + got.report.rows_lost, 0);
	ck_assert_uint_eq(got.report.rows_unchecked, 9);
	ck_assert(!stream_reader_whole(&got.report));
}
END_TEST

START_TEST(streams_of_before_the_crc_are_whole)
{
	static char data[sizeof(golden[0])];
	FILE *file = fopen("tests/data/stream/without_crc.txt", "r");
	READING got = { 0 };

	ck_assert_ptr_nonnull(file);
	size_t len = fread(data, 1, sizeof(data), file);
	fclose(file);
	read_all(&got, data, len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_str_eq(got.events.data, original[0].events.data);
}
END_TEST

START_TEST(a_repeated_gvisor_header_spoils_nothing)
{
	static const char *const headers[] = { "GVISOR_METRICS\tMETA\tcpu", "GVISOR_METRICS\tMETA\tmemory_limit",
					       "GVISOR_METRICS\tSTART_TIME", "GVISOR_METRICS\tTime" };

	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		const char *header = strstr(golden[1], headers[i]);
		size_t len = strcspn(header, "\n") + 1;

		for (const char *p = header + len; strncmp(p, "GVISOR_METRICS\tADLER32", 22) != 0;
		     p += strcspn(p, "\n") + 1) {
			AUTO(buffer_release) struct buffer data = { 0 };
			size_t before = (size_t)(p - golden[1]);
			READING got = { 0 };

			buffer_append(&data, golden[1], before);
			buffer_append(&data, header, len);
			buffer_append(&data, p, golden_len[1] - before);
			read_all(&got, data.data, data.len);
			ck_assert_msg(stream_reader_whole(&got.report), "%s before %.20s", headers[i], p);
			ck_assert_str_eq(got.events.data, original[1].events.data);
			ck_assert_uint_eq(got.report.duplicate_lines, 1);
		}
	}
}
END_TEST

START_TEST(a_gvisor_stream_after_one_that_was_cut_is_whole)
{
	for (int lost = 0; lost < 2; lost++) {
		AUTO(buffer_release) struct buffer data = { 0 };
		size_t cut = (size_t)(strstr(golden[1], "GVISOR_METRICS\t750000000") - golden[1]);
		READING got = { 0 };

		buffer_append(&data, golden[1], cut);
		buffer_append(&data, golden[1], golden_len[1]);
		char *start = (char *)memmem(data.data + cut, data.len - cut, "1700000000123456789\t0x752d06eb", 30);
		memcpy(start + 18, "8\t0x752c06ea", 12);
		if (lost)
			start[0] = '?';
		read_all(&got, data.data, data.len);
		ck_assert_uint_eq(got.report.streams, 2);
		ck_assert_uint_eq(got.report.rows, 3 + 9);
		ck_assert_uint_eq(got.report.damaged_lines, (uint64_t)lost);
		ck_assert_uint_eq(got.report.duplicate_lines, 0);
		ck_assert_ptr_nonnull(strstr(got.events.data + 300, "column 2 memory_limit {"));
	}
}
END_TEST

START_TEST(greatest_numbers_do_not_overflow)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	for (int i = 0; i < 3; i++) {
		char start[40];

		snprintf(start, sizeof(start), "START_TIME\t%d", i);
		forge(&data, "SPIKEWATCH\t", start);
		forge_row(&data, UINT64_MAX);
		forge(&data, "SPIKEWATCH\t", "END\t18446744073709551615");
	}
	forge(&data, "SPIKEWATCH\t", "END\t18446744073709551616");
	got.stop_after = 0;
	const struct stream_reader_events events = { 0 };
	struct stream_reader *stream_reader;
	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	feed_reader(stream_reader, data.data, data.len);
	stream_reader_finish(stream_reader, &got.report);
	stream_reader_free(stream_reader);
	ck_assert_uint_eq(got.report.rows, 3);
	ck_assert_uint_eq(got.report.rows_lost, UINT64_MAX);
	ck_assert_uint_eq(got.report.streams, 3);
	ck_assert_uint_eq(got.report.damaged_lines, 1);
}
END_TEST

/* ---- several streams ---- */

static int write_stream(struct buffer *data, uint64_t start_ns, uint64_t rows)
{
	static const struct stream_column columns[] = { { "a", "", "gauge", "" },
							{ "b", "", "gauge", "" },
							{ "c", "", "gauge", "" } };
	const uint64_t values[] = { start_ns, 2, 3 };
	const struct stream_options options = { .columns = columns, .column_count = 3, .start = { start_ns } };
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new(sink_buffer(data), &options, &writer), 0);
	for (uint64_t n = 1; n <= rows; n++)
		ck_assert_int_eq(stream_row(writer, n, 1, values, 7), 0);
	return stream_close(writer);
}

START_TEST(streams_that_follow_one_another_are_told_apart)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	ck_assert_int_eq(write_stream(&data, 100, 5), 0);
	ck_assert_int_eq(write_stream(&data, 200, 3), 0);
	ck_assert_int_eq(write_stream(&data, 300, 0), 0);
	read_all(&got, data.data, data.len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_uint_eq(got.report.streams, 3);
	ck_assert_uint_eq(got.report.rows, 8);
	ck_assert_ptr_nonnull(strstr(got.events.data, "start 200\ncolumn 0 a "));
}
END_TEST

START_TEST(an_interrupted_stream_before_another_is_not_whole)
{
	static const char *const lost[] = { "", "FORMAT", "START_TIME", "META\ta", "Seq" };

	for (size_t i = 0; i < ARRAY_LEN(lost); i++) {
		READING got = { 0 };
		AUTO(buffer_release) struct buffer data = { 0 };

		ck_assert_int_eq(write_stream(&data, 100, 5), 0);
		data.len = (size_t)((char *)memmem(data.data, data.len, "SPIKEWATCH\t5", 12) - data.data);
		size_t second = data.len;
		ck_assert_int_eq(write_stream(&data, 200, 5), 0);
		if (*lost[i]) /* one header of the second does not arrive */
			*(char *)memmem(data.data + second, data.len - second, lost[i], strlen(lost[i])) = '?';
		read_all(&got, data.data, data.len);
		ck_assert_uint_eq(got.report.streams, 2);
		ck_assert_uint_eq(got.report.rows, 9);
		ck_assert_uint_eq(got.report.rows_lost, 0); /* the fifth is not known of */
		ck_assert(!got.report.complete && !got.report.checksum_ok);
		ck_assert_ptr_nonnull(strstr(got.events.data, "start 200\n"));
	}
}
END_TEST

START_TEST(a_stream_that_begins_after_rows_without_headers_is_another)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge_row(&data, 500);
	forge_row(&data, 501);
	ck_assert_int_eq(write_stream(&data, 200, 5), 0);
	read_all(&got, data.data, data.len);
	ck_assert_uint_eq(got.report.streams, 2);
	ck_assert_uint_eq(got.report.rows, 7);
	ck_assert_uint_eq(got.report.rows_lost, 499);
}
END_TEST

START_TEST(gvisor_streams_that_follow_one_another_are_told_apart)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	frame_lines(1, "", "\n", true, &data);
	frame_lines(1, "", "\n", true, &data);
	read_all(&got, data.data, data.len);
	ck_assert(stream_reader_whole(&got.report));
	ck_assert_uint_eq(got.report.streams, 2);
	ck_assert_uint_eq(got.report.rows, 18);
}
END_TEST

START_TEST(the_first_good_line_decides_the_format)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	buffer_append(&data, "grep GVISOR_METRICS\tlog\n", 24);
	frame_lines(0, "", "\nGVISOR_METRICS\t1\t2\t0x50006\n", false, &data);
	read_all(&got, data.data, data.len);
	ck_assert_int_eq((int)got.report.format, STREAM_SPIKEWATCH);
	ck_assert_uint_eq(got.report.damaged_lines, 1);
	ck_assert_uint_eq(got.report.foreign_lines, 38);
	ck_assert_str_eq(got.events.data, original[0].events.data);
}
END_TEST

/* ---- versions, and sense ---- */

START_TEST(another_version_is_not_guessed_at)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge(&data, "SPIKEWATCH\t", "FORMAT\t{\"name\":\"spikewatch-stream\",\"version\":2,\"start_ns\":5}");
	forge_row(&data, 1);
	forge(&data, "SPIKEWATCH\t", "STATS\t{}");
	size_t lines = 3;
	ck_assert_int_eq(write_stream(&data, 200, 2), 0);
	read_all(&got, data.data, data.len);
	ck_assert_uint_eq(got.report.damaged_lines, lines);
	ck_assert_uint_eq(got.report.rows, 2);
	ck_assert_uint_eq(got.report.streams, 2);
}
END_TEST

START_TEST(unknown_kinds_and_columns_are_kept)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge(&data, "SPIKEWATCH\t", "Seq\tTime (ns)\tTarget\tcpu\tinvented\tmemory\tlater");
	forge(&data, "SPIKEWATCH\t", "WEATHER\t{\"sun\":true}\tmore");
	forge(&data, "SPIKEWATCH\t", "PAUSE");
	forge(&data, "SPIKEWATCH\t", "1\t2\t3\t4\t5\t6\t7");
	read_all(&got, data.data, data.len);
	ck_assert_str_eq(got.events.data, "column 0 cpu -\ncolumn 1 invented -\ncolumn 2 memory -\ncolumn 3 later -\n"
					  "note WEATHER {\"sun\":true}\tmore\nnote PAUSE \nrow 1 2 3 4 5 6 f\n");
	ck_assert_uint_eq(got.report.damaged_lines, 0);
}
END_TEST

START_TEST(lines_that_make_no_sense_are_damaged)
{
	static const char too_many[] = "1\t2\t3\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13\t14\t15\t16\t17\t18"
				       "\t19\t20\t21\t22\t23\t24\t25\t26\t27\t28\t29\t30\t31\t32\t33";
	static const char *const senseless[] = {
		"",
		"1",
		"1\t2",
		"1\t2\t3",
		"0\t2\t3\t4\t5\t6",
		"1\t2\t3\t4\t5",
		"1\t2\t3\t4\t5\t6\t7",
		"1\t2\t\t4\t5\t6",
		"1\t\t3\t4\t5\t6",
		"1\t2\t4294967296\t4\t5\t6",
		"1\t2\t3\t-4\t5\t6",
		"1\t2\t3\t4\t5\t18446744073709551616",
		"1\t2\t3\t4\t5\t6x",
		too_many,
		"FORMAT\t{}",
		"START_TIME\tnoon",
		"START_TIME\t",
		"META\ta",
		"META\t\t{\"column\":0}",
		"META\ta\t{}",
		"META\ta\t{\"column\":32}",
		"TARGET\t1",
		"TARGET\t0\t{}",
		"TARGET\tx\t{}",
		"TARGET\t4294967296\t{}",
		"Seq\tTime (ns)\tTarget\t",
		"Seq\tTime (ns)\tTarget\ta\t\tb",
		"END\t",
		"END\t1x",
		"lower\t{}",
		"KIND9\t{}",
		"A_KIND_THAT_IS_LONGER_THAN_ANY_THERE_IS\t{}",
		"Seq\tTime (ns)",
		"\t",
		"FORMAT",
	};

	for (size_t i = 0; i < ARRAY_LEN(senseless); i++) {
		READING got = { 0 };
		AUTO(buffer_release) struct buffer data = { 0 };

		forge(&data, "SPIKEWATCH\t", "Seq\tTime (ns)\tTarget\ta\tb\tc");
		forge(&data, "SPIKEWATCH\t", senseless[i]);
		read_all(&got, data.data, data.len);
		/* A kind without anything behind it is one that is not known. */
		bool note = strcmp(senseless[i], "FORMAT") == 0;
		ck_assert_msg(got.report.damaged_lines == !note, "%s", senseless[i]);
		ck_assert_msg(strcmp(got.events.data + strlen("column 0 a -\ncolumn 1 b -\ncolumn 2 c -\n"),
				     note ? "note FORMAT \n" : "") == 0,
			      "%s", got.events.data);
	}
}
END_TEST

START_TEST(a_nul_is_never_part_of_a_line)
{
	const char content[] = "NOTE\t{\0}";
	char line[64];
	READING got = { 0 };
	int len = snprintf(line, sizeof(line), "SPIKEWATCH\t%.6s%c}\t0x%" PRIx32 "\n", content, '\0',
			   checksum_adler32(CHECKSUM_ADLER32_EMPTY, content, sizeof(content) - 1));

	read_all(&got, line, (size_t)len);
	ck_assert_str_eq(got.events.data, "");
	ck_assert_uint_eq(got.report.damaged_lines, 1);
}
END_TEST

START_TEST(checksums_must_be_written_as_the_writer_does)
{
	static const char *const lines[] = {
		"SPIKEWATCH\tGAP\t{}\t0x05c301da\n",
		"SPIKEWATCH\tGAP\t{}\t0X5c301da\n",
		"SPIKEWATCH\tGAP\t{}\t5c301da\n",
		"SPIKEWATCH\tGAP\t{}\t0x5C301DA\n",
		"SPIKEWATCH\tGAP\t{}\t0x5c301da \n",
		"SPIKEWATCH\tGAP\t{} 0x5c301da\n",
		"SPIKEWATCH\tGAP\t{}\t0x\n",
		"SPIKEWATCH\t0x1\n",
		"SPIKEWATCH\t\n",
		"SPIKEWATCH\tADLER32\t0x\n",
		"SPIKEWATCH\tADLER32\t0x1ffffffff\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		READING got = { 0 };

		read_all(&got, lines[i], strlen(lines[i]));
		ck_assert_msg(got.report.damaged_lines == 1, "%s", lines[i]);
		ck_assert_uint_eq(got.report.streams, 0);
		ck_assert(got.report.ours);
	}
}
END_TEST

START_TEST(gvisor_rows_without_known_columns_are_not_guessed_at)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge(&data, "GVISOR_METRICS\t", "META\ta\t{\"name\":\"a\"}");
	forge(&data, "GVISOR_METRICS\t", "1\t2\t3");
	forge(&data, "GVISOR_METRICS\t", "2\t2");
	forge(&data, "GVISOR_METRICS\t", "2\t2");
	forge(&data, "GVISOR_METRICS\t", "3\t");
	forge(&data, "GVISOR_METRICS\t", "GAP\t{}");
	read_all(&got, data.data, data.len);
	ck_assert_uint_eq(got.report.damaged_lines, 3);
	ck_assert_uint_eq(got.report.rows, 1);
	ck_assert_uint_eq(got.report.duplicate_lines, 1);
}
END_TEST

START_TEST(a_lost_gvisor_description_shifts_no_names)
{
	READING got = { 0 };
	AUTO(buffer_release) struct buffer data = { 0 };

	forge(&data, "GVISOR_METRICS\t", "META\tb\t{\"name\":\"b\"}");
	forge(&data, "GVISOR_METRICS\t", "START_TIME\t77");
	forge(&data, "GVISOR_METRICS\t", "Time (ns)\ta\tb\tChecksum");
	read_all(&got, data.data, data.len);
	ck_assert_str_eq(got.events.data, "start 77\ncolumn 0 a -\ncolumn 1 b {\"name\":\"b\"}\n");
	ck_assert_uint_eq(got.report.columns, 2);
}
END_TEST

/* ---- life ---- */

START_TEST(what_an_event_returns_stops_for_good)
{
	READING got = { .stop_after = 2 };

	read_in_steps(&got, golden[0], golden_len[0], 10);
	ck_assert_int_eq(got.result, 42);
	ck_assert_uint_eq(got.row_count, 2);
	ck_assert(!got.report.complete);
}
END_TEST

START_TEST(works_without_listeners)
{
	struct stream_reader_report report;
	struct stream_reader *stream_reader;

	ck_assert_int_eq(stream_reader_new(&(struct stream_reader_events){ 0 }, &stream_reader), 0);
	ck_assert_int_eq(feed_reader(stream_reader, golden[0], golden_len[0]), 0);
	ck_assert_int_eq(stream_reader_finish(stream_reader, &report), 0);
	stream_reader_free(stream_reader);
	stream_reader_free(NULL);
	ck_assert_mem_eq(&report, &original[0].report, sizeof(report));
}
END_TEST

START_TEST(memory_is_taken_once)
{
	struct stream_reader_report report;
	struct stream_reader *stream_reader;

	torture_arm(1);
	int r = stream_reader_new(&(struct stream_reader_events){ 0 }, &stream_reader);
	bool injected = torture_disarm();
	ck_assert(injected);
	ck_assert_int_eq(r, -ENOMEM);

	ck_assert_int_eq(stream_reader_new(&(struct stream_reader_events){ 0 }, &stream_reader), 0);
	torture_arm(1);
	feed_reader(stream_reader, golden[0], golden_len[0]);
	stream_reader_finish(stream_reader, &report);
	injected = torture_disarm();
	stream_reader_free(stream_reader);
	ck_assert(!injected);
	ck_assert(stream_reader_whole(&report));
}
END_TEST

#ifdef __x86_64__
/* Cells of digits as in rows, some of them empty or too large for a number; now and then something else. */
static size_t random_cells(unsigned *seed, char *out)
{
	static const char others[] = "/:-\t 9\0\xff";
	size_t len = 0, cells = 1 + (size_t)rand_r(seed) % 35;

	for (size_t i = 0; i < cells; i++) {
		size_t digits = rand_r(seed) % 4 == 0 ? 0 : (size_t)rand_r(seed) % 22;

		for (size_t n = 0; n < digits; n++)
			out[len++] = (char)('0' + rand_r(seed) % 10);
		out[len++] = '\t';
	}
	len -= len > 1;
	if (rand_r(seed) % 3 == 0)
		out[(size_t)rand_r(seed) % len] = others[(size_t)rand_r(seed) % (sizeof(others) - 1)];
	return len;
}

/* The portable one is what every number of a row was read with before there was the other. */
START_TEST(both_ways_to_read_cells_agree)
{
	char text[VECTOR + 36 * 23];
	unsigned seed = 20261124, taken = 0, refused = 0;

	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi"))
		SKIP_TEST("this processor has no AVX2");
	memset(text, 'x', sizeof(text));
	for (int i = 0; i < 200000; i++) {
		size_t len = random_cells(&seed, text + VECTOR), max = (size_t)rand_r(&seed) % 33;
		uint64_t want[STREAM_COLUMNS_MAX] = { 0 }, got[STREAM_COLUMNS_MAX] = { 0 };
		uint32_t want_mask = 0, got_mask = 0;
		const char *from = text + VECTOR, *end = from + len;

		if (len < VECTOR)
			continue;
		size_t cells = parse_cells(from, end, max, want, &want_mask);

		ck_assert_uint_eq(parse_cells_avx2(from, end, max, got, &got_mask), cells);
		refused += cells == 0;
		taken += cells > 0;
		if (cells == 0)
			continue;
		ck_assert_uint_eq(got_mask, want_mask);
		ck_assert_mem_eq(got, want, sizeof(got));
	}
	ck_assert_uint_gt(taken, 10000);
	ck_assert_uint_gt(refused, 10000);
}
END_TEST
#endif

Suite *stream_reader_suite(void)
{
	Suite *suite = suite_create("stream_reader");
	TCase *tcase = tcase_create("salvage");

	tcase_add_checked_fixture(tcase, load_golden, unload_golden);
	tcase_add_test(tcase, golden_streams_are_whole);
	tcase_add_test(tcase, everything_written_is_handed_out);
	tcase_add_test(tcase, pieces_of_any_size_read_alike);
	tcase_add_test(tcase, every_prefix_is_read_as_far_as_it_goes);
	tcase_add_test(tcase, every_suffix_is_read_from_where_it_starts);
	tcase_add_test(tcase, every_flipped_bit_is_noticed);
	tcase_add_test(tcase, every_lost_byte_is_noticed);
	tcase_add_test(tcase, a_lost_line_costs_nothing_but_itself);
	tcase_add_test(tcase, other_programs_lines_are_skipped);
	tcase_add_test(tcase, foreign_lines_are_counted);
	tcase_add_test(tcase, a_foreign_line_may_be_longer_than_memory);
	tcase_add_test(tcase, a_line_of_ours_may_begin_where_memory_ends);
	tcase_add_test(tcase, a_line_of_ours_that_is_too_long_is_damaged);
	tcase_add_test(tcase, a_foreign_line_inside_a_row_costs_that_row);
	tcase_add_test(tcase, doubled_lines_are_read_once);
	tcase_add_test(tcase, a_second_copy_of_the_whole_stream_adds_nothing);
	tcase_add_test(tcase, a_row_that_comes_late_is_not_lost);
	tcase_add_test(tcase, rows_are_read_once_however_late_they_are);
	tcase_add_test(tcase, late_rows_of_too_many_holes_are_never_read_twice);
	tcase_add_test(tcase, what_agrees_with_adler32_is_found_by_the_crc);
	tcase_add_test(tcase, a_number_with_other_digits_is_found);
	tcase_add_test(tcase, rows_are_checked_wherever_they_arrive);
	tcase_add_test(tcase, a_flush_that_comes_twice_is_read_once);
	tcase_add_test(tcase, a_lost_crc_line_leaves_rows_unchecked);
	tcase_add_test(tcase, streams_of_before_the_crc_are_whole);
	tcase_add_test(tcase, a_repeated_gvisor_header_spoils_nothing);
	tcase_add_test(tcase, a_gvisor_stream_after_one_that_was_cut_is_whole);
	tcase_add_loop_test(tcase, sectors_in_any_order_cost_the_rows_that_they_tear, 0, 3);
	tcase_add_test(tcase, greatest_numbers_do_not_overflow);
	tcase_add_test(tcase, streams_that_follow_one_another_are_told_apart);
	tcase_add_test(tcase, an_interrupted_stream_before_another_is_not_whole);
	tcase_add_test(tcase, a_stream_that_begins_after_rows_without_headers_is_another);
	tcase_add_test(tcase, gvisor_streams_that_follow_one_another_are_told_apart);
	tcase_add_test(tcase, the_first_good_line_decides_the_format);
	tcase_add_test(tcase, another_version_is_not_guessed_at);
	tcase_add_test(tcase, unknown_kinds_and_columns_are_kept);
	tcase_add_test(tcase, lines_that_make_no_sense_are_damaged);
	tcase_add_test(tcase, a_nul_is_never_part_of_a_line);
	tcase_add_test(tcase, checksums_must_be_written_as_the_writer_does);
	tcase_add_test(tcase, gvisor_rows_without_known_columns_are_not_guessed_at);
	tcase_add_test(tcase, a_lost_gvisor_description_shifts_no_names);
	tcase_add_test(tcase, what_an_event_returns_stops_for_good);
	tcase_add_test(tcase, works_without_listeners);
	tcase_add_test(tcase, memory_is_taken_once);
#ifdef __x86_64__
	tcase_add_test(tcase, both_ways_to_read_cells_agree);
#endif
	suite_add_tcase(suite, tcase);
	return suite;
}
