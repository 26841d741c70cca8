/*
 * perfmerge.c: the bytes as they came and beside them an index that is sorted. Records carry their own size.
 */
#include "perfmerge.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int perfmerge_add(struct perfmerge *merge, const void *record, size_t size, uint64_t time_ns)
{
	size_t at = merge->bytes.len;
	int r;

	assert(size % PERFRECORD_ALIGN == 0);
	if (merge->count == merge->cap) {
		size_t cap = merge->cap == 0 ? 64 : 2 * merge->cap;
		struct perfmerge_entry *entries = reallocarray(merge->entries, cap, sizeof(*entries));

		if (entries == NULL)
			return -ENOMEM;
		merge->entries = entries;
		merge->cap = cap;
	}
	r = buffer_append(&merge->bytes, record, size);
	if (r == 0)
		merge->entries[merge->count++] = (struct perfmerge_entry){ time_ns, at };
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct perfmerge_entry *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

void perfmerge_sort(struct perfmerge *merge)
{
	if (merge->count > 0)
		qsort(merge->entries, merge->count, sizeof(*merge->entries), compare);
}

const void *perfmerge_record(const struct perfmerge *merge, size_t index, size_t *ret_size)
{
	const char *record = merge->bytes.data + merge->entries[index].at;
	struct perf_event_header header;

	memcpy(&header, record, sizeof(header));
	*ret_size = header.size;
	return record;
}

int perfmerge_write(const struct perfmerge *merge, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		size_t size;
		const void *record = perfmerge_record(merge, i, &size);

		r = sink_write(sink, record, size);
	}
	return r;
}

void perfmerge_clear(struct perfmerge *merge)
{
	merge->count = 0;
	merge->bytes.len = 0;
}

void perfmerge_release(struct perfmerge *merge)
{
	buffer_release(&merge->bytes);
	free(merge->entries);
	merge->entries = NULL;
	merge->count = merge->cap = 0;
}
