/*
 * fuzz_perf_record.c: any bytes as a row of perf records, as a forward ring and as an overwriting
 * one: what is decoded stays inside, and what can be encoded again is decoded as the same.
 */
#include "lib/proc/perf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGE 4096u

static void require(int condition)
{
	if (!condition)
		abort();
}

static uint64_t sum; /* reads what is pointed to, so that a sanitizer sees it */

static void touch(const struct perf_record *record)
{
	if (record->type == PERF_RECORD_SAMPLE) {
		for (size_t i = 0; i < record->sample.chain_len; i++)
			sum += record->sample.chain[i];
		for (size_t i = 0; i < record->sample.regs_len; i++)
			sum += record->sample.regs[i];
		for (size_t i = 0; i < record->sample.stack_bytes; i++)
			sum += record->sample.stack[i];
	} else if (record->type == PERF_RECORD_MMAP2) {
		require(strlen(record->mmap.path) == record->mmap.path_len);
	} else if (record->type == PERF_RECORD_COMM) {
		require(strlen(record->comm.name) == record->comm.name_len);
	}
}

static void back_and_forth(const struct perf_record_format *format, const struct perf_record *record)
{
	static _Alignas(8) uint8_t bytes[PERF_RECORD_SIZE_MAX], again[PERF_RECORD_SIZE_MAX];
	struct perf_record read;
	size_t len, len_again;

	if (perf_record_encode(&PERF_RECORD_PLAIN, record, bytes, sizeof(bytes), &len) < 0)
		return;
	require(perf_record_decode(format, bytes, len, &read) == 0);
	require(read.size == len && read.type == record->type && read.time_ns == record->time_ns);
	require(perf_record_encode(&PERF_RECORD_PLAIN, &read, again, sizeof(again), &len_again) == 0);
	require(len == len_again && memcmp(bytes, again, len) == 0);
}

static void walk(const struct perf_record_format *format, const uint8_t *data, size_t size)
{
	struct perf_record record;

	for (size_t at = 0; at < size && perf_record_decode(format, data + at, size - at, &record) == 0;
	     at += record.size) {
		require(record.size >= 8 && record.size <= size - at);
		touch(&record);
		if (format->sample_type == PERF_RECORD_FRAME_POINTERS)
			back_and_forth(format, &record);
	}
}

static int take(void *ctx, const struct perf_event_header *record, size_t len)
{
	const struct perf_record_format *format = ctx;
	struct perf_record decoded;

	if (perf_record_decode(format, record, len, &decoded) == 0)
		touch(&decoded);
	return 0;
}

/* The data, repeated, is the ring; its first word is where the head is. */
static void rings(struct perf_record_format *format, const uint8_t *data, size_t size)
{
	static _Alignas(4096) uint8_t memory[2 * PAGE];
	static _Alignas(8) uint8_t copy[PERF_RECORD_SIZE_MAX];
	struct perf_ring_walk back = { 0 };
	struct perf_ring ring;
	uint64_t head;
	size_t len;

	memcpy(&head, data, sizeof(head));
	for (size_t i = 0; i < PAGE; i++)
		memory[PAGE + i] = data[i % size];
	require(perf_ring_init(&ring, memory, sizeof(memory), PAGE) == 0);
	ring.page->data_head = head & ~7ULL;
	ring.page->data_tail = ring.page->data_head - (size & ~(size_t)7) % PAGE;
	while ((len = perf_ring_snapshot(&ring, &back, copy, sizeof(copy))) > 0) {
		require(len <= PAGE);
		walk(format, copy, len);
	}
	perf_ring_drain(&ring, copy, take, format);
	require(ring.page->data_tail == ring.page->data_head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perf_record_format frames = { .sample_type = PERF_RECORD_FRAME_POINTERS };
	const struct perf_record_format all = { .sample_type = PERF_RECORD_SAMPLE_TYPES, .regs_user = 0xff0fff };
	uint8_t *aligned = calloc(1, size > 0 ? size : 1);

	if (aligned == NULL)
		exit(1);
	if (size > 0)
		memcpy(aligned, data, size);
	walk(&frames, aligned, size);
	walk(&all, aligned, size);
	if (size >= 8)
		rings(&frames, aligned, size);
	free(aligned);
	return 0;
}
