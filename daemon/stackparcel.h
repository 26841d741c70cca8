/*
 * stackparcel.h: the files that an incident's stacks speak of, opened for the symboliser: those that were mapped, the perf maps of
 * just-in-time compilers, the kernel's symbols. The worker's.
 */
#ifndef SPIKEWATCH_STACKPARCEL_H
#define SPIKEWATCH_STACKPARCEL_H

#include "stackfile.h"
#include "stackrecorder.h"

/* Files of mappings, those with most frames first; perf maps of processes on top. */
#define STACKPARCEL_FILES_MAX 256u
#define STACKPARCEL_PERF_MAPS_MAX 32u
#define STACKPARCEL_ENTRIES_MAX (STACKPARCEL_FILES_MAX + STACKPARCEL_PERF_MAPS_MAX + 1)

/* Zeroed is empty. Large: on the heap. */
struct stackparcel {
	struct stackfile_entry entries[STACKPARCEL_ENTRIES_MAX]; /* paths are those of the snapshots, or in `paths` */
	char paths[STACKPARCEL_ENTRIES_MAX][64];
	size_t count;
};

/* Opens what both snapshots speak of, which must outlive the parcel. What cannot be opened has the descriptor -1. procfd: the proc root. */
void stackparcel_open(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *first,
		      const struct stackrecorder_snapshot *second);

/* Closes all. */
void stackparcel_close(const struct stackparcel *parcel);

#endif
