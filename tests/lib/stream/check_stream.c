/*
 * stream: what is written, byte by byte where it matters, and that errors are never forgotten. How
 * damaged streams are read is in check_stream_reader.c.
 */
#include "stream_feed.h"
#include "lib/stream/stream.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *stream_suite(void);

static const struct stream_column columns[] = {
	{ "cpu", "ns", "counter", "CPU time" },
	{ "memory", "bytes", "gauge", "resident \"set\"" },
	{ "memory_limit", "bytes", "limit", "effective limit" },
};

static struct stream_options options_for(enum stream_format format)
{
	return (struct stream_options){
		.format = format,
		.columns = columns,
		.column_count = ARRAY_LEN(columns),
		.start = { 1700000000123456789ULL },
		.repeat_rows = 4,
	};
}

static int row(struct stream_writer *writer, uint64_t n, uint32_t mask)
{
	const uint64_t values[] = { 1000000 * n, 4096 * n, 268435456 };

	return stream_row(writer, n * 250000000, n % 3 ? 1 : 2, values, mask);
}

#define TEXT(json) (json), strlen(json)

/* Everything a writer can say, with headers repeated twice. The first error, else 0; closes. */
static int write_everything(struct sink sink, const struct stream_options *options)
{
	struct stream_writer *writer;
	int r = stream_writer_new(sink, options, &writer);

	if (r < 0)
		return r;
	r = r ? r : stream_target(writer, 1, TEXT("{\"name\":\"web\",\"pid\":4711}"));
	r = r ? r : stream_target(writer, 2, TEXT("{\"name\":\"db\",\"pid\":4712}"));
	r = r ? r : row(writer, 0, 7);
	r = r ? r : row(writer, 1, 7);
	r = r ? r : stream_note(writer, "GAP", TEXT("{\"lost_pages\":2}"));
	r = r ? r : row(writer, 2, 5);
	r = r ? r : row(writer, 3, 0);
	r = r ? r : stream_flush(writer);
	r = r ? r : stream_target_gone(writer, 2);
	r = r ? r : row(writer, 4, 7);
	r = r ? r : stream_stats(writer, TEXT("{\"total_snapshots\":5}"));
	r = r ? r : row(writer, 5, 7);
	r = r ? r : row(writer, 7, 7);
	r = r ? r : row(writer, 8, 7);
	r = r ? r : row(writer, 10, 7);
	r = r ? r : stream_stats(writer, TEXT("{\"total_snapshots\":9}"));
	int closed = stream_close(writer);
	return r ? r : closed;
}

static void expect_golden(enum stream_format format, const char *path)
{
	AUTO(buffer_release) struct buffer got = { 0 };
	static char want[16384];
	const struct stream_options options = options_for(format);

	ck_assert_int_eq(write_everything(sink_buffer(&got), &options), 0);
	FILE *file = fopen(path, "r");
	ck_assert_msg(file, "%s", path);
	size_t len = fread(want, 1, sizeof(want), file);
	fclose(file);
	ck_assert_uint_eq(got.len, len);
	ck_assert_mem_eq(got.data, want, len);
}

START_TEST(writes_the_golden_stream)
{
	expect_golden(STREAM_SPIKEWATCH, "tests/data/stream/spikewatch.txt");
}
END_TEST

START_TEST(writes_the_golden_gvisor_stream)
{
	expect_golden(STREAM_GVISOR, "tests/data/stream/gvisor.txt");
}
END_TEST

/* Keeps what it was given and how often. */
struct record {
	struct buffer data;
	size_t writes;
	size_t fails_at; /* writes from this one on fail, counting from 1; 0: none */
};

static int record_write(void *ctx, const void *data, size_t len)
{
	struct record *record = ctx;

	if (++record->writes >= record->fails_at && record->fails_at)
		return -EIO;
	return buffer_append(&record->data, data, len);
}

static void record_release(struct record *record)
{
	buffer_release(&record->data);
}

static struct stream_reader_report read_back(const struct buffer *data)
{
	struct stream_reader_report report;
	struct stream_reader *stream_reader;

	ck_assert_int_eq(stream_reader_new(&(struct stream_reader_events){ 0 }, &stream_reader), 0);
	if (data->len)
		stream_feed(stream_reader, data->data, data->len);
	stream_reader_finish(stream_reader, &report);
	stream_reader_free(stream_reader);
	return report;
}

START_TEST(each_flush_is_one_write_between_empty_lines)
{
	AUTO(record_release) struct record record = { 0 };
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new((struct sink){ record_write, &record }, &options, &writer), 0);
	for (uint64_t n = 0; n < 3; n++) {
		size_t before = record.data.len;

		ck_assert_int_eq(row(writer, n, 7), 0);
		ck_assert_uint_eq(record.data.len, before);
		ck_assert_int_eq(stream_flush(writer), 0);
		ck_assert_uint_eq(record.writes, n + 1);
		ck_assert_int_eq(record.data.data[before], '\n');
		ck_assert_mem_eq(record.data.data + record.data.len - 2, "\n\n", 2);
		ck_assert_uint_eq(stream_bytes(writer), record.data.len);
	}
	ck_assert_int_eq(stream_flush(writer), 0);
	ck_assert_uint_eq(record.writes, 3);
	ck_assert_int_eq(stream_close(writer), 0);
}
END_TEST

START_TEST(flushes_by_itself_when_the_buffer_is_full)
{
	AUTO(record_release) struct record record = { 0 };
	struct stream_options options = options_for(STREAM_SPIKEWATCH);

	for (options.flush_bytes = 1; options.flush_bytes < 3000; options.flush_bytes += 97) {
		record.data.len = record.writes = 0;
		ck_assert_int_eq(write_everything((struct sink){ record_write, &record }, &options), 0);
		struct stream_reader_report report = read_back(&record.data);
		ck_assert(stream_reader_whole(&report));
		ck_assert_uint_eq(report.rows, 9);
		if (options.flush_bytes == 1) /* two empty lines and a CRC line around each, but ADLER32 is not alone */
			ck_assert_uint_eq(4 * record.writes - 1, report.lines);
	}
}
END_TEST

START_TEST(the_first_failed_write_is_the_answer_to_everything_after)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	const uint64_t values[3] = { 0 };
	bool failed = true;

	options.flush_bytes = 200;
	for (size_t n = 1; failed; n++) {
		AUTO(record_release) struct record record = { .fails_at = n };
		struct stream_writer *writer = NULL;
		int r = stream_writer_new((struct sink){ record_write, &record }, &options, &writer);

		for (int i = 0; !r && i < 30; i++)
			r = stream_row(writer, 1, 1, values, 7);
		failed = r < 0;
		if (failed)
			ck_assert_int_eq(r, -EIO);
		if (failed && writer) {
			ck_assert_int_eq(stream_row(writer, 1, 1, values, 7), -EIO);
			ck_assert_int_eq(stream_target(writer, 1, TEXT("{}")), -EIO);
			ck_assert_int_eq(stream_target_gone(writer, 1), -EIO);
			ck_assert_int_eq(stream_note(writer, "GAP", TEXT("{}")), -EIO);
			ck_assert_int_eq(stream_stats(writer, TEXT("{}")), -EIO);
			ck_assert_int_eq(stream_flush(writer), -EIO);
			ck_assert_int_eq(stream_close(writer), -EIO);
			ck_assert_uint_eq(record.writes, n);
		} else if (!failed) {
			ck_assert_int_eq(stream_close(writer), n == record.writes + 1 ? 0 : -EIO);
		}
		struct stream_reader_report report = read_back(&record.data);
		ck_assert_uint_eq(report.damaged_lines + report.rows_lost, 0);
	}
}
END_TEST

START_TEST(every_write_fails_once)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer whole = { 0 };

	options.flush_bytes = 100;
	ck_assert_int_eq(write_everything(sink_buffer(&whole), &options), 0);
	for (long n = 0; n <= (long)whole.len; n++) {
		long left = n;

		ck_assert_int_eq(write_everything(torture_sink(&left), &options), n < (long)whole.len ? -EIO : 0);
	}
}
END_TEST

START_TEST(every_allocation_fails_once)
{
	static char long_json[10000];
	const struct stream_options spikewatch = options_for(STREAM_SPIKEWATCH), gvisor = options_for(STREAM_GVISOR);
	const struct stream_options *const both[] = { &spikewatch, &gvisor };

	memset(long_json, '7', sizeof(long_json));
	for (size_t i = 0; i < ARRAY_LEN(both); i++) {
		bool injected = true;

		for (long n = 1; injected; n++) {
			AUTO(record_release) struct record record = { 0 };
			struct stream_options options = *both[i];
			struct stream_writer *writer = NULL;
			uint64_t rows = 0;

			options.flush_bytes = 1000;
			buffer_append(&record.data, "", 0);
			record.data.data = realloc(record.data.data, 1 << 17);
			record.data.cap = 1 << 17;
			torture_arm(n);
			int r = stream_writer_new((struct sink){ record_write, &record }, &options, &writer);
			int target = r ? r : stream_target(writer, 1, long_json, sizeof(long_json));
			int again = r ? r : stream_target(writer, 1, long_json, 9000);
			int note = r ? r : stream_note(writer, "GAP", long_json, sizeof(long_json));
			int stats = r ? r : stream_stats(writer, long_json, sizeof(long_json));
			for (uint64_t k = 0; !r && k < 30; k++)
				rows += row(writer, k, 7) == 0;
			int closed = r ? r : stream_close(writer);
			injected = torture_disarm();

			int failures = !!target + !!again + !!note + !!stats + !!closed;
			ck_assert_int_eq(failures > 0, injected);
			struct stream_reader_report report = read_back(&record.data);
			if (r) {
				ck_assert_int_eq(r, -ENOMEM);
				continue;
			}
			ck_assert_int_eq(failures, injected);
			ck_assert_uint_eq(rows, 30);
			ck_assert_uint_eq(report.rows, 30);
			ck_assert(stream_reader_whole(&report));
		}
	}
}
END_TEST

START_TEST(rows_allocate_nothing)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	struct stream_writer *writer;
	long left = 100000000;
	int r = 0;

	ck_assert_int_eq(stream_writer_new(torture_sink(&left), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, TEXT("{}")), 0);
	unsigned long before = torture_allocations();
	for (uint64_t n = 0; !r && n < 10000; n++)
		r = row(writer, n, 7);
	unsigned long after = torture_allocations();
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(after, before);
	ck_assert_int_eq(stream_close(writer), 0);
}
END_TEST

START_TEST(text_that_would_break_the_format_is_refused)
{
	static char huge[70000];
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer data = { 0 };
	struct stream_writer *writer;

	memset(huge, 'x', sizeof(huge));
	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, TEXT("{\t}")), -EINVAL);
	ck_assert_int_eq(stream_target(writer, 1, TEXT("{}\n")), -EINVAL);
	ck_assert_int_eq(stream_target(writer, 0, TEXT("{}")), -EINVAL);
	ck_assert_int_eq(stream_target(writer, 1, huge, sizeof(huge)), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "GAP", TEXT("a\nb")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "gap", TEXT("{}")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "", TEXT("{}")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "ADLER32", TEXT("{}")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "START_TIME", TEXT("1")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "CRC", TEXT("{}")), -EINVAL);
	ck_assert_int_eq(stream_note(writer, "GAP", huge, sizeof(huge)), -EINVAL);
	ck_assert_int_eq(stream_stats(writer, "\0", 1), -EINVAL);
	ck_assert_int_eq(row(writer, 1, 7), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	struct stream_reader_report report = read_back(&data);
	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(report.lines,
			  12); /* 6 headers, the row, END, CRC, ADLER32, and an empty one before and after */
}
END_TEST

static int try_columns(enum stream_format format, const struct stream_column *tried, size_t count)
{
	struct stream_options options = options_for(format);
	AUTO(buffer_release) struct buffer data = { 0 };
	struct stream_writer *writer = NULL;

	options.columns = tried;
	options.column_count = count;
	int r = stream_writer_new(sink_buffer(&data), &options, &writer);
	stream_close(writer);
	return r;
}

START_TEST(columns_that_a_reader_could_not_tell_apart_are_refused)
{
	static struct stream_column many[STREAM_COLUMNS_MAX + 1];
	static char names[STREAM_COLUMNS_MAX + 1][8], name[STREAM_NAME_MAX + 2];
	const struct stream_column twice[] = { { "a", "", "gauge", "" }, { "a", "", "gauge", "" } };
	const struct stream_column field = { "a[b]", "", "gauge", "" };
	struct stream_column longest = { name, "", "gauge", "" };

	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		snprintf(names[i], sizeof(names[i]), "c%zu", i);
		many[i] = (struct stream_column){ names[i], "", "gauge", "" };
	}
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, many, 0), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, many, STREAM_COLUMNS_MAX), 0);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, many, STREAM_COLUMNS_MAX + 1), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, twice, 2), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &field, 1), 0);
	ck_assert_int_eq(try_columns(STREAM_GVISOR, &field, 1), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &longest, 1), -EINVAL);
	memset(name, 'n', STREAM_NAME_MAX);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &longest, 1), 0);
	name[STREAM_NAME_MAX] = 'n';
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &longest, 1), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &(struct stream_column){ "a\tb", "", "", "" }, 1), -EINVAL);
	ck_assert_int_eq(try_columns(STREAM_SPIKEWATCH, &(struct stream_column){ "a", "", "", NULL }, 1), -EINVAL);
}
END_TEST

static size_t count(const struct buffer *data, const char *text)
{
	size_t n = 0;

	for (const char *p = data->data; (p = memmem(p, data->len - (size_t)(p - data->data), text, strlen(text))); p++)
		n++;
	return n;
}

START_TEST(living_targets_are_repeated_with_the_headers)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer data = { 0 };
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 7, TEXT("{\"n\":\"stays\"}")), 0);
	ck_assert_int_eq(stream_target(writer, 8, TEXT("{\"n\":\"goes\"}")), 0);
	ck_assert_int_eq(stream_target(writer, 7, TEXT("{\"n\":\"stays\"}")), 0); /* says nothing new */
	ck_assert_int_eq(stream_target_gone(writer, 8), 0);
	ck_assert_int_eq(stream_target_gone(writer, 9), 0);
	for (uint64_t n = 0; n < 9; n++)
		ck_assert_int_eq(row(writer, n, 7), 0);
	ck_assert_int_eq(stream_target(writer, 7, TEXT("{\"n\":\"renamed\"}")), 0);
	for (uint64_t n = 9; n < 13; n++)
		ck_assert_int_eq(row(writer, n, 7), 0);
	ck_assert_int_eq(stream_close(writer), 0);

	ck_assert_uint_eq(count(&data, "TARGET\t7\t{\"n\":\"stays\"}"), 3);
	ck_assert_uint_eq(count(&data, "TARGET\t7\t{\"n\":\"renamed\"}"), 2);
	ck_assert_uint_eq(count(&data, "TARGET\t8\t"), 1);
	ck_assert_uint_eq(count(&data, "FORMAT\t"), 4);
	ck_assert_uint_eq(count(&data, "START_TIME\t"), 4);
	ck_assert_uint_eq(count(&data, "Seq\tTime (ns)\tTarget\tcpu\tmemory\tmemory_limit\t"), 4);
}
END_TEST

START_TEST(many_targets_take_turns)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer data = { 0 };
	struct stream_writer *writer;
	char text[40];

	options.repeat_rows = 32; /* room for 3 targets */
	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	for (uint32_t id = 1; id <= 9; id++)
		ck_assert_int_eq(stream_target(writer, id, TEXT("{}")), 0);
	for (uint64_t n = 0; n < 3 * 32 + 1; n++)
		ck_assert_int_eq(row(writer, n, 7), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	for (uint32_t id = 1; id <= 9; id++) {
		snprintf(text, sizeof(text), "TARGET\t%u\t", id);
		ck_assert_uint_eq(count(&data, text), 2);
	}
}
END_TEST

/* The second value of a target changes with each of its rows, by more digits now and then; the others stay. */
START_TEST(rows_of_more_and_more_targets_have_the_values_of_each)
{
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer data = { 0 };
	static uint64_t counts[701];
	struct stream_writer *writer;
	uint64_t n = 0;
	char text[120];

	options.repeat_rows = 100000;
	memset(counts, 0, sizeof(counts));
	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	for (uint32_t last = 1; last <= 700; last++) {
		ck_assert_int_eq(stream_target(writer, last, TEXT("{}")), 0);
		for (uint32_t id = last; id > 0; id /= 3) {
			const uint64_t values[] = { id * 1000003ull, counts[id] * counts[id] * 1237, 1u << id % 31 };

			counts[id]++;
			ck_assert_int_eq(stream_row(writer, n++, id, values, 7), 0);
		}
	}
	ck_assert_int_eq(stream_close(writer), 0);
	ck_assert_int_eq(buffer_append(&data, "", 1), 0);

	const char *at = (const char *)data.data;

	n = 0;
	memset(counts, 0, sizeof(counts));
	for (uint32_t last = 1; last <= 700; last++) {
		for (uint32_t id = last; id > 0; id /= 3) {
			snprintf(text, sizeof(text), "\t%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%" PRIu64 "\t%u\t0x",
				 n + 1, n, id, id * UINT64_C(1000003), counts[id] * counts[id] * 1237, 1u << id % 31);
			counts[id]++;
			n++;
			at = strstr(at, text);
			ck_assert_msg(at, "row %s", text);
		}
	}
}
END_TEST

#define WIDTHS 8
#define WIDTH_ROWS 40000u

struct expected_rows {
	uint64_t time_ns[WIDTH_ROWS], values[WIDTH_ROWS][WIDTHS];
	uint32_t targets[WIDTH_ROWS], masks[WIDTH_ROWS];
	uint64_t seen;
};

static int expect_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	const struct expected_rows *rows = ctx;

	((struct expected_rows *)ctx)->seen++;
	ck_assert_uint_lt(seq - 1, WIDTH_ROWS);
	ck_assert_uint_eq(time_ns, rows->time_ns[seq - 1]);
	ck_assert_uint_eq(target, rows->targets[seq - 1]);
	ck_assert_uint_eq(mask, rows->masks[seq - 1]);
	for (size_t i = 0; i < WIDTHS; i++)
		ck_assert_msg(values[i] == (mask >> i & 1 ? rows->values[seq - 1][i] : 0), "row %" PRIu64 ", value %zu",
			      seq, i);
	return 0;
}

/* Of any number of digits. */
static uint64_t random_value(unsigned *seed)
{
	uint64_t value = (uint64_t)rand_r(seed) << 33 ^ (uint64_t)rand_r(seed) << 11 ^ (uint64_t)rand_r(seed);

	return value >> rand_r(seed) % 64;
}

/* What may become of a value from one row to the next: little, a digit more or less, or something else. */
static uint64_t next_value(unsigned *seed, uint64_t value)
{
	switch (rand_r(seed) % 8) {
	case 0:
		return value + (uint64_t)rand_r(seed) % 1000;
	case 1:
		return value + 100000000;
	case 2:
		return value * 10;
	case 3:
		return value / 10;
	case 4:
		return rand_r(seed) % 16 == 0 ? random_value(seed) : value;
	default:
		return value;
	}
}

/* Cells are written over those of the row before: of each number of digits, beside each other, in several targets. */
START_TEST(values_that_change_in_any_way_come_back)
{
	static struct expected_rows rows;
	static struct stream_column many[WIDTHS] = { { "a", "", "gauge", "" }, { "b", "", "gauge", "" },
						     { "c", "", "gauge", "" }, { "d", "", "gauge", "" },
						     { "e", "", "gauge", "" }, { "f", "", "gauge", "" },
						     { "g", "", "gauge", "" }, { "h", "", "gauge", "" } };
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	struct stream_reader_events events = { .row = expect_row, .ctx = &rows };
	AUTO(buffer_release) struct buffer data = { 0 };
	uint64_t values[4][WIDTHS], time_ns = 0;
	struct stream_reader_report report;
	struct stream_reader *reader;
	struct stream_writer *writer;
	unsigned seed = 20261124;

	options.columns = many;
	options.column_count = WIDTHS;
	memset(&rows, 0, sizeof(rows));
	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	for (size_t i = 0; i < 4 * WIDTHS; i++)
		values[i / WIDTHS][i % WIDTHS] = random_value(&seed);
	for (uint32_t n = 0; n < WIDTH_ROWS; n++) {
		uint32_t target = (uint32_t)rand_r(&seed) % 4;

		for (size_t i = 0; i < WIDTHS; i++)
			values[target][i] = next_value(&seed, values[target][i]);
		rows.masks[n] = rand_r(&seed) % 8 == 0 ? (uint32_t)rand_r(&seed) % (1u << WIDTHS) : (1u << WIDTHS) - 1;
		rows.targets[n] = target + 1;
		rows.time_ns[n] = time_ns += (uint64_t)rand_r(&seed) % (n < 100 ? 20 : 50000000);
		memcpy(rows.values[n], values[target], sizeof(values[target]));
		ck_assert_int_eq(stream_row(writer, time_ns, target + 1, values[target], rows.masks[n]), 0);
	}
	ck_assert_int_eq(stream_close(writer), 0);
	ck_assert_int_eq(stream_reader_new(&events, &reader), 0);
	ck_assert_int_eq(stream_feed(reader, data.data, data.len), 0);
	ck_assert_int_eq(stream_reader_finish(reader, &report), 0);
	stream_reader_free(reader);
	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(rows.seen, WIDTH_ROWS);
}
END_TEST

START_TEST(greatest_values_fit_a_row)
{
	static struct stream_column many[STREAM_COLUMNS_MAX];
	static char names[STREAM_COLUMNS_MAX][8];
	struct stream_options options = options_for(STREAM_SPIKEWATCH);
	AUTO(buffer_release) struct buffer data = { 0 };
	struct stream_writer *writer;
	uint64_t values[STREAM_COLUMNS_MAX];

	for (size_t i = 0; i < STREAM_COLUMNS_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "c%zu", i);
		many[i] = (struct stream_column){ names[i], "", "gauge", "" };
		values[i] = UINT64_MAX;
	}
	options.columns = many;
	options.column_count = STREAM_COLUMNS_MAX;
	options.flush_bytes = 1;
	ck_assert_int_eq(stream_writer_new(sink_buffer(&data), &options, &writer), 0);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(stream_row(writer, UINT64_MAX, UINT32_MAX, values, UINT32_MAX), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	struct stream_reader_report report = read_back(&data);
	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(report.last_time_ns, UINT64_MAX);
	ck_assert_uint_eq(report.columns, STREAM_COLUMNS_MAX);
}
END_TEST

START_TEST(closing_nothing_is_fine)
{
	ck_assert_int_eq(stream_close(NULL), 0);
}
END_TEST

Suite *stream_suite(void)
{
	Suite *suite = suite_create("stream");
	TCase *tcase = tcase_create("stream");

	tcase_add_test(tcase, writes_the_golden_stream);
	tcase_add_test(tcase, writes_the_golden_gvisor_stream);
	tcase_add_test(tcase, each_flush_is_one_write_between_empty_lines);
	tcase_add_test(tcase, flushes_by_itself_when_the_buffer_is_full);
	tcase_add_test(tcase, the_first_failed_write_is_the_answer_to_everything_after);
	tcase_add_test(tcase, every_write_fails_once);
	tcase_add_test(tcase, every_allocation_fails_once);
	tcase_add_test(tcase, rows_allocate_nothing);
	tcase_add_test(tcase, text_that_would_break_the_format_is_refused);
	tcase_add_test(tcase, columns_that_a_reader_could_not_tell_apart_are_refused);
	tcase_add_test(tcase, living_targets_are_repeated_with_the_headers);
	tcase_add_test(tcase, many_targets_take_turns);
	tcase_add_test(tcase, rows_of_more_and_more_targets_have_the_values_of_each);
	tcase_add_test(tcase, values_that_change_in_any_way_come_back);
	tcase_add_test(tcase, greatest_values_fit_a_row);
	tcase_add_test(tcase, closing_nothing_is_fine);
	suite_add_tcase(suite, tcase);
	return suite;
}
