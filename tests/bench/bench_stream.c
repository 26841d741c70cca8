/*
 * bench_stream.c: text and checksums: rows as a recorder writes them, into nothing, and the reader
 * that gets them back. Held against copying the same bytes, and against their checksum as fast as
 * libdeflate makes it over all of them at once.
 */
#include "bench.h"
#include "lib/base/compress.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream_reader.c"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <libdeflate.h>

#define ROWS 100000u
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

/* Rows are made before they are timed, as many at a time as stay in a cache. */
#define BLOCK_ROWS 100u

/*
 * Writes the same stream each time; the rows of the targets come in turns. Returns the CPU time, without that
 * of making the values.
 */
static uint64_t write_stream(struct sink sink, uint32_t targets)
{
	static uint64_t block[BLOCK_ROWS][SAMPLE_FIELDS];
	struct stream_column columns[STREAM_COLUMNS_MAX];
	struct stream_options options = { .columns = columns, .column_count = SAMPLE_FIELDS };
	static const char target[] = "{\"kind\":\"process\",\"pid\":1234,\"name\":\"postgres/1234\"}";
	struct stream_writer *writer;
	uint64_t ns = 0, from = bench_cpu();

	columns_of_samples(columns);
	bench_need(stream_writer_new(sink, &options, &writer) == 0, "stream");
	for (uint32_t id = 1; id <= targets; id++)
		bench_need(stream_target(writer, id, target, sizeof target - 1) == 0, "target");
	ns += bench_cpu() - from;
	for (uint32_t first = 0; first < ROWS; first += BLOCK_ROWS) {
		for (uint32_t i = 0; i < BLOCK_ROWS; i++)
			fill(block[i], (first + i) / targets + (first + i) % targets * 1000003);
		from = bench_cpu();
		for (uint32_t i = 0, row = first; i < BLOCK_ROWS; i++, row++)
			bench_need(stream_row(writer, row * 1000000ull + row % 977, row % targets + 1, block[i],
					      FIELDS) == 0,
				   "row");
		ns += bench_cpu() - from;
	}
	from = bench_cpu();
	bench_need(stream_close(writer) == 0, "closing");
	return ns + bench_cpu() - from;
}

static int drop(void *ctx, const void *data, size_t len)
{
	*(uint64_t *)ctx += len;
	return data ? 0 : -EINVAL;
}

static double rate(uint64_t bytes, uint64_t ns)
{
	return (double)bytes / (double)ns;
}

static double time_writer(uint32_t targets)
{
	uint64_t dropped = 0, ns = write_stream((struct sink){ drop, &dropped }, targets);

	return rate(dropped, ns);
}

/* In the pieces in which a stream is written. */
#define PIECE 65536u

static double time_checksum(const struct buffer *text)
{
	uint64_t from = bench_cpu();
	uint32_t sum = 1;

	for (size_t at = 0; at < text->len; at += PIECE)
		sum = libdeflate_adler32(sum, text->data + at, text->len - at < PIECE ? text->len - at : PIECE);
	__asm__ volatile("" : : "r"(sum));
	return rate(text->len, bench_cpu() - from);
}

static double time_copy(const struct buffer *text)
{
	static char piece[PIECE];
	uint64_t from = bench_cpu();

	for (size_t at = 0; at < text->len; at += PIECE) {
		memcpy(piece, text->data + at, text->len - at < PIECE ? text->len - at : PIECE);
		__asm__ volatile("" : : "r"(piece) : "memory");
	}
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
	for (size_t at = 0; at < text->len; at += PIECE)
		bench_need(feed_reader(stream_reader, text->data + at,
				       text->len - at < PIECE ? text->len - at : PIECE) == 0,
			   "reading");
	bench_need(stream_reader_finish(stream_reader, &report) == 0 && stream_reader_whole(&report) && rows == ROWS,
		   "the stream is whole");
	stream_reader_free(stream_reader);
	return rate(text->len, bench_cpu() - from);
}

int main(void)
{
	struct buffer text = { 0 };
	double writer[ROUNDS], several[ROUNDS], many[ROUNDS], copy[ROUNDS], checksum[ROUNDS], stream_reader[ROUNDS];

	bench_pin(bench_nth_cpu(0));
	write_stream(sink_buffer(&text), 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		writer[i] = time_writer(1);
		copy[i] = time_copy(&text);
		several[i] = time_writer(20);
		checksum[i] = time_checksum(&text);
		many[i] = time_writer(500);
		stream_reader[i] = time_stream_reader(&text);
	}

	double copied = bench_median(copy, ROUNDS), summed = bench_median(checksum, ROUNDS);
	double wrote = bench_median(writer, ROUNDS), read = bench_median(stream_reader, ROUNDS);

	bench_report((struct bench_row){ "stream writer, text of one target (against: copying it)", "GB/s", wrote,
					 copied, BENCH_AT_LEAST, 1.5 });
	bench_report((struct bench_row){ "  (against: Adler-32 of it, libdeflate)", "GB/s", wrote, summed,
					 BENCH_NO_LIMIT, 0 });
	bench_report((struct bench_row){
		.what = "  a row of 12 fields", .unit = "ns", .measured = (double)text.len / ROWS / wrote });
	bench_report((struct bench_row){ "  text of 20 targets in turns (against: copying)", "GB/s",
					 bench_median(several, ROUNDS), copied, BENCH_AT_LEAST, 1.5 });
	bench_report((struct bench_row){ "  text of 500 targets in turns (against: copying)", "GB/s",
					 bench_median(many, ROUNDS), copied, BENCH_AT_LEAST, 1.5 });
	bench_report((struct bench_row){ "stream reader, text of one target (against: copying it)", "GB/s", read,
					 copied, BENCH_AT_LEAST, 1 });
	bench_report((struct bench_row){ "  (against: Adler-32 of it, libdeflate)", "GB/s", read, summed,
					 BENCH_NO_LIMIT, 0 });
	buffer_release(&text);

	return 0;
}
