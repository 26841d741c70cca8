/*
 * bench_stream.c: text and checksums: rows as a recorder writes them, into nothing, and the reader
 * that gets them back. Held against the checksum alone, over the same bytes, as fast as the library
 * does it: once over each line and once over all.
 */
#include "bench.h"
#include "lib/base/compress.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream_reader.c"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#define ROWS 200000u
#define ROUNDS 9u

static void fill(uint64_t *values, uint32_t row)
{
	memset(values, 0, SAMPLE_FIELDS * sizeof *values);
	values[SAMPLE_CPU] = 5012345678u + row * 1234567ull;
	values[SAMPLE_CPU_USER] = 4500000000u + row / 10 * 10000000ull;
	values[SAMPLE_CPU_SYSTEM] = 510000000u + row / 50 * 10000000ull;
	values[SAMPLE_MEMORY] = 123457536u + row % 97 * 4096ull;
	values[SAMPLE_MEMORY_PEAK] = 223457280u;
	values[SAMPLE_THREADS] = 17;
	values[SAMPLE_FDS] = 43;
	values[SAMPLE_MINOR_FAULTS] = 654321u + row;
	values[SAMPLE_MAJOR_FAULTS] = 12;
	values[SAMPLE_CPU_LIMIT] = 2000000000u;
	values[SAMPLE_MEMORY_LIMIT] = 8589934592u;
	values[SAMPLE_STATE] = 'S';
}

#define HAS(field) (1u << SAMPLE_##field)
#define FIELDS \
	(HAS(CPU) | HAS(CPU_USER) | HAS(CPU_SYSTEM) | HAS(MEMORY) | HAS(MEMORY_PEAK) | HAS(THREADS) | HAS(FDS) | \
	 HAS(MINOR_FAULTS) | HAS(MAJOR_FAULTS) | HAS(CPU_LIMIT) | HAS(MEMORY_LIMIT) | HAS(STATE))

/* Writes the same stream each time. */
static void write_stream(struct sink sink)
{
	struct stream_column columns[STREAM_COLUMNS_MAX];
	struct stream_options options = { .columns = columns, .column_count = SAMPLE_FIELDS };
	static const char target[] = "{\"kind\":\"process\",\"pid\":1234,\"name\":\"postgres/1234\"}";
	uint64_t values[SAMPLE_FIELDS];
	struct stream_writer *writer;

	columns_of_samples(columns);
	bench_need(stream_writer_new(sink, &options, &writer) == 0, "stream");
	bench_need(stream_target(writer, 1, target, sizeof target - 1) == 0, "target");
	for (uint32_t row = 0; row < ROWS; row++) {
		fill(values, row);
		bench_need(stream_row(writer, row * 1000000ull + row % 977, 1, values, FIELDS) == 0, "row");
	}
	bench_need(stream_close(writer) == 0, "closing");
}

static int drop(void *ctx, const void *data, size_t len)
{
	*(uint64_t *)ctx += len;
	return data ? 0 : -EINVAL;
}

static double rate(uint64_t bytes, uint64_t ns)
{
	return (double)bytes * 1e3 / (double)ns;
}

static double time_writer(void)
{
	uint64_t dropped = 0, from = bench_cpu();

	write_stream((struct sink){ drop, &dropped });
	return rate(dropped, bench_cpu() - from);
}

/* Each line by itself, then everything. */
static double time_checksum(const struct buffer *text)
{
	uint64_t from = bench_cpu();
	uint32_t sum = CHECKSUM_ADLER32_EMPTY;

	for (const char *at = text->data, *end = at + text->len; at < end;) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *next = newline ? newline + 1 : end;

		sum ^= checksum_adler32(CHECKSUM_ADLER32_EMPTY, at, (size_t)(next - at));
		at = next;
	}
	sum ^= checksum_adler32(CHECKSUM_ADLER32_EMPTY, text->data, text->len);
	__asm__ volatile("" : : "r"(sum));
	return rate(text->len, bench_cpu() - from);
}

static int count_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	*(uint64_t *)ctx += seq && target && values[SAMPLE_CPU] && mask == FIELDS && time_ns < UINT64_MAX;
	return 0;
}

static double time_stream_reader(const struct buffer *text)
{
	uint64_t rows = 0;
	struct stream_reader_events events = { .row = count_row, .ctx = &rows };
	struct stream_reader_report report;
	struct stream_reader *stream_reader;
	uint64_t from = bench_cpu();

	bench_need(stream_reader_new(&events, &stream_reader) == 0, "salvage");
	for (size_t at = 0; at < text->len; at += 65536)
		bench_need(feed_reader(stream_reader, text->data + at,
				       text->len - at < 65536 ? text->len - at : 65536) == 0,
			   "reading");
	bench_need(stream_reader_finish(stream_reader, &report) == 0 && stream_reader_whole(&report) && rows == ROWS,
		   "the stream is whole");
	stream_reader_free(stream_reader);
	return rate(text->len, bench_cpu() - from);
}

int main(void)
{
	struct buffer text = { 0 };
	double writer[ROUNDS], checksum[ROUNDS], stream_reader[ROUNDS];

	bench_pin(bench_nth_cpu(0));
	write_stream(sink_buffer(&text));
	for (unsigned i = 0; i < ROUNDS; i++) {
		writer[i] = time_writer();
		checksum[i] = time_checksum(&text);
		stream_reader[i] = time_stream_reader(&text);
	}

	double floor = bench_median(checksum, ROUNDS), wrote = bench_median(writer, ROUNDS);

	bench_report((struct bench_row){ "stream writer, text (against: two checksums alone)", "MB/s", wrote, floor,
					 BENCH_AT_LEAST, 500 });
	bench_report((struct bench_row){
		.what = "  a row of 12 fields", .unit = "ns", .measured = (double)text.len / ROWS * 1e3 / wrote });
	bench_report((struct bench_row){ "salvage, reading it back (against: two checksums alone)", "MB/s",
					 bench_median(stream_reader, ROUNDS), floor, BENCH_NO_LIMIT, 0 });
	buffer_release(&text);

	return 0;
}
