/*
 * fuzz_mapping_history.c: any bytes as records, and the same as the text of /proc/<pid>/maps:
 * limits hold, what is written can be read, and nothing is left when all is over.
 */
#include "lib/proc/mapping_history.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };
static const struct mapping_history_limits limits = {
	.max_lifetimes = 6, .max_bytes = 32 << 10, .max_mappings = 16, .max_names = 8
};

static void require(int condition)
{
	if (!condition)
		abort();
}

static int take(void *ctx, const void *data, size_t len)
{
	static _Alignas(8) uint8_t aligned[PERF_RECORD_SIZE_MAX];
	struct perf_record record;

	(void)ctx;
	require(len <= sizeof(aligned));
	memcpy(aligned, data, len);
	require(perf_record_decode(&format, aligned, len, &record) == 0 && record.size == len);
	return 0;
}

static void ask(const struct mapping_history *book, const struct perf_record *record)
{
	const struct sink sink = { take, NULL };
	struct mapping_history_stats stats;
	struct mapping_history_place place;
	uint32_t parent;

	mapping_history_stats(book, &stats);
	require(stats.lifetimes <= limits.max_lifetimes && stats.bytes <= limits.max_bytes);
	mapping_history_knows(book, record->pid, record->time_ns, &parent);
	if (mapping_history_find(book, record->pid, record->time_ns, 0x401000, &place))
		require(place.start <= 0x401000 && 0x401000 < place.end && strlen(place.path) <= 4096);
	require(mapping_history_write(book, record->pid, record->time_ns / 2, record->time_ns, &sink) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *aligned = calloc(1, size > 0 ? size : 1);
	struct mapping_history *book;
	struct perf_record record;

	if (aligned == NULL || mapping_history_new(&limits, &book) < 0)
		exit(1);
	if (size > 0)
		memcpy(aligned, data, size);
	for (size_t at = 0; at < size && perf_record_decode(&format, aligned + at, size - at, &record) == 0;
	     at += record.size) {
		mapping_history_feed(book, &record);
		mapping_history_expire(book, record.time_ns > 1000 ? record.time_ns - 1000 : 0);
		ask(book, &record);
		mapping_history_seed(book, record.pid, "seeded", (const char *)aligned, size, record.time_ns);
		ask(book, &record);
	}
	record = (struct perf_record){ .pid = 7, .time_ns = 1000 };
	mapping_history_seed(book, 7, NULL, (const char *)aligned, size, 1000);
	ask(book, &record);
	mapping_history_free(book);
	free(aligned);
	return 0;
}
