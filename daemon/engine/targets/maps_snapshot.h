/*
 * maps_snapshot.h: the memory that a process had mapped at a moment, summed by what is mapped (path
 * or [heap], [stack], [anon], and permissions).
 *
 * The kernel holds the process' mmap lock while it reads a page table: meanwhile the process can
 * neither map memory nor, on older kernels, take a page fault. No part of this holds the lock for
 * longer than half a millisecond or so, and the process gets the lock between two parts.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_MAPS_SNAPSHOT_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_MAPS_SNAPSHOT_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Different names beyond are summed into one record called "[other]". */
#define MAPS_SNAPSHOT_MAX 512

struct maps_record {
	char name[112];      /* cut at the front; may hold any byte but NUL */
	char permissions[5]; /* "rw-p" */
	uint32_t mappings;
	uint64_t rss_bytes;
	uint64_t swap_bytes;
	uint64_t pss_bytes;           /* 0 if by_pages */
	uint64_t private_dirty_bytes; /* 0 if by_pages */
};

struct maps_snapshot {
	mono_t taken;
	bool by_pages; /* the process is too large for smaps */
	bool left_out; /* too large to be read in the CPU time: there are no records */
	size_t count;  /* unsorted */
	struct maps_record records[];
};

/*
 * Of the memory of a small process smaps says all; of a larger one the page tables are read,
 * which takes 15 ns a page by PAGEMAP_SCAN (Linux 6.7) and 50 ns by /proc/<pid>/pagemap. cpu_ns: of
 * the calling thread at most. *ret is for free(3). 0; -ESRCH: gone;
 * -EACCES: not allowed to look; -ENOENT: the kernel has no such files; -ENOMEM; -errno.
 */
int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, uint64_t cpu_ns,
		       struct maps_snapshot **ret);

/* For free(3); NULL of NULL, or without memory. */
struct maps_snapshot *maps_snapshot_copy(const struct maps_snapshot *snapshot);

/* The record of the same name and permissions, NULL if there is none. */
const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like);

#endif
