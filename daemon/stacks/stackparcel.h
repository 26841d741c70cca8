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
	struct stackfile_entry entries[STACKPARCEL_ENTRIES_MAX]; /* paths are those of the snapshots, or in `names` */
	char names[STACKPARCEL_PERF_MAPS_MAX][64];
	size_t count, files, perf_maps;
};

/*
 * Opens what a snapshot speaks of, which must outlive the parcel, unless it is open already: up to files_max files in all. What cannot be opened has the
 * descriptor -1, and is tried again with the next snapshot. procfd: the proc root.
 */
void stackparcel_add(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *snapshot,
		     size_t files_max);

/* The kernel's symbols, if they may be read. Once. */
void stackparcel_add_kernel(struct stackparcel *parcel, int procfd);

/* Closes all. */
void stackparcel_close(struct stackparcel *parcel);

#endif
