/*
 * fuzz_smaps.c: any bytes as /proc/PID/smaps or maps, as two reads give them: only whole lines are
 * taken, and what was mapped is counted once.
 */
#include "daemon/engine/targets/baseline.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct maps_snapshot *snapshot =
		calloc(1, sizeof(*snapshot) + MAPS_SNAPSHOT_MAX * sizeof(snapshot->records[0]));
	struct reader reader = { .snapshot = snapshot, .pagemap = -1 };
	size_t used = 0, further = 0, lines = 0, mappings = 0;

	assert(snapshot != NULL);
	assert(take_lines(&reader, text, size / 2, &used) == 0 && used <= size / 2);
	assert(take_lines(&reader, text + used, size - used, &further) == 0 && used + further <= size);
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	for (size_t i = 0; i < snapshot->count; i++)
		mappings += snapshot->records[i].mappings;
	assert(mappings == reader.mappings && mappings <= lines);
	free(snapshot);
	return 0;
}
