/*
 * fuzz_addressbook.c: any bytes as records, and the same as the text of /proc/<pid>/maps: limits hold, what is written can be read, and nothing is left
 * when all is over.
 */
#include "lib/proc/mapping_history.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct perfrecord_format format = { .sample_type = PERFRECORD_FRAME_POINTERS };
static const struct addressbook_limits limits = {
	.max_lives = 6, .max_bytes = 32 << 10, .max_mappings = 16, .max_names = 8, .keep_ns = 1000
};

static void require(int condition)
{
	if (!condition)
		abort();
}

static int take(void *ctx, const void *data, size_t len)
{
	static _Alignas(8) uint8_t aligned[PERFRECORD_SIZE_MAX];
	struct perfrecord record;

	(void)ctx;
	require(len <= sizeof(aligned));
	memcpy(aligned, data, len);
	require(perfrecord_decode(&format, aligned, len, &record) == 0 && record.size == len);
	return 0;
}

static void ask(const struct addressbook *book, const struct perfrecord *record)
{
	const struct sink sink = { take, NULL };
	struct addressbook_stats stats;
	struct addressbook_place place;
	uint32_t parent;

	addressbook_stats(book, &stats);
	require(stats.lives <= limits.max_lives && stats.bytes <= limits.max_bytes);
	addressbook_knows(book, record->pid, record->time_ns, &parent);
	if (addressbook_find(book, record->pid, record->time_ns, 0x401000, &place))
		require(place.start <= 0x401000 && 0x401000 < place.end && strlen(place.path) <= 4096);
	require(addressbook_write(book, &record->pid, 1, record->time_ns / 2, record->time_ns, &sink) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *aligned = calloc(1, size > 0 ? size : 1);
	struct addressbook *book;
	struct perfrecord record;

	if (aligned == NULL || addressbook_new(&limits, &book) < 0)
		exit(1);
	if (size > 0)
		memcpy(aligned, data, size);
	for (size_t at = 0; at < size && perfrecord_decode(&format, aligned + at, size - at, &record) == 0;
	     at += record.size) {
		addressbook_feed(book, &record);
		addressbook_expire(book, record.time_ns);
		ask(book, &record);
		addressbook_seed(book, record.pid, "seeded", (const char *)aligned, size, record.time_ns);
		ask(book, &record);
	}
	record = (struct perfrecord){ .pid = 7, .time_ns = 1000 };
	addressbook_seed(book, 7, NULL, (const char *)aligned, size, 1000);
	ask(book, &record);
	addressbook_free(book);
	free(aligned);
	return 0;
}
