/*
 * perfmerge.h: records of many rings, put in the order of their times. Stable: of the same time, the one that was added first comes first.
 */
#ifndef SPIKEWATCH_PERFMERGE_H
#define SPIKEWATCH_PERFMERGE_H

#include "perfrecord.h"
#include "sink.h"

struct perfmerge_entry {
	uint64_t time_ns;
	size_t at; /* in bytes: ascending in the order they were added */
};

/* {0} is empty. */
struct perfmerge {
	struct buffer bytes; /* bytes.max bounds it; 0: no limit */
	struct perfmerge_entry *entries;
	size_t count, cap;
};

/* Adds a copy of a record of size bytes. 0; -ENOMEM; -EFBIG beyond bytes.max, and then it was not added. */
int perfmerge_add(struct perfmerge *merge, const void *record, size_t size, uint64_t time_ns);

/* Puts them in order. */
void perfmerge_sort(struct perfmerge *merge);

/* The record of entry index, aligned to PERFRECORD_ALIGN; *ret_size bytes. */
const void *perfmerge_record(const struct perfmerge *merge, size_t index, size_t *ret_size);

/* Empty again; the memory stays for the next. */
void perfmerge_clear(struct perfmerge *merge);

/* Writes all, in order. 0 or what the sink returned. */
int perfmerge_write(const struct perfmerge *merge, const struct sink *sink);

/* Frees it; empty and usable again, with the same limit. */
void perfmerge_release(struct perfmerge *merge);

#endif
