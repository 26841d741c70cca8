/*
 * fuzz_minute_file.c: any bytes as a file of the history, once with both checksums of a block at its
 * beginning made right. A block is skipped or believed; what is believed is written again and read as
 * the same.
 */
#include "lib/minutes/minute_file.h"

#include "lib/base/compress.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADER 56
#define SIZE_MAX_TRIED 65536

static void require(int condition)
{
	if (!condition)
		abort();
}

static uint64_t sum(const struct minute_block *block)
{
	uint64_t total = block->count;

	for (size_t m = 0; m < block->count; m++) {
		const struct minute *minute = &block->minutes[m];

		total = total * 31 + minute->begin.ns + minute->span_ns + minute->unsampled_ns + minute->number;
		total = total * 31 + minute->row_count + minute->incident_count;
		for (size_t i = 0; i < minute->row_count; i++) {
			const struct minute_row *row = &minute->rows[i];

			require(strlen(row->name) <= MINUTE_TEXT_MAX && strlen(row->entry) <= MINUTE_TEXT_MAX &&
				strlen(row->comm) <= MINUTE_TEXT_MAX);
			/* Rows of one target may change places. */
			total += row->kind + (row->has_cpu ? row->cpu_ns + row->cpu_peak_milli : 0) +
				 (row->has_memory ? row->memory_bytes : 0) + row->throttled_ns +
				 row->throttled_permille + row->seen_ns + row->targets + strlen(row->name);
		}
		for (size_t i = 0; i < minute->incident_count; i++) {
			require(minute->incidents[i].row == MINUTE_NO_ROW ||
				minute->incidents[i].row < minute->row_count);
			total += strlen(minute->incidents[i].id);
		}
	}
	return total;
}

static void write_again(const struct minute_block *block)
{
	struct buffer text = { 0 };
	struct minute_block again;

	if (minute_block_write(block->minutes, block->count, block->packed, &text) == 0) {
		struct minute_scan scan = { .data = text.data, .len = text.len };

		require(minute_block_next(&scan, &again) == 0);
		require(sum(&again) == sum(block));
		minute_block_release(&again);
	}
	buffer_release(&text);
}

static void read_all(const char *data, size_t size)
{
	struct minute_scan scan = { .data = data, .len = size };
	struct minute_block block;
	size_t at = 0;
	int r;

	while ((r = minute_block_next(&scan, &block)) != MINUTE_END) {
		require(r == 0 || r == MINUTE_DAMAGED);
		require(scan.at > at && scan.at <= size);
		at = scan.at;
		if (r == 0)
			write_again(&block);
		minute_block_release(&block);
	}
	require(scan.at == size && scan.whole <= size && scan.damaged_bytes <= size);
}

static void put(char *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (char)(value >> (8 * i));
}

/* The bytes as the payload of one block, whose header is what they begin with. */
static void read_believed(const uint8_t *data, size_t size)
{
	char *copy = malloc(size);

	if (!copy)
		return;
	memcpy(copy, data, size);
	memcpy(copy, "SWMINUTE\1", 9);
	put(copy + 12, (uint32_t)(size - HEADER));
	if (copy[9] == 0)
		put(copy + 16, (uint32_t)(size - HEADER));
	put(copy + 48, checksum_crc32(CHECKSUM_CRC32_EMPTY, copy + HEADER, size - HEADER));
	put(copy + 52, checksum_crc32(CHECKSUM_CRC32_EMPTY, copy, 52));
	read_all(copy, size);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > SIZE_MAX_TRIED)
		return 0;
	read_all((const char *)data, size);
	if (size >= HEADER)
		read_believed(data, size);

	return 0;
}
