/*
 * maps_snapshot.h: what memory a process had mapped at a moment, summed by what is mapped (path or [heap], [stack],
 * [anon], and permissions). Reading smaps makes the kernel walk all page tables of the process: some milliseconds per
 * GiB resident, in which it cannot change its mappings. So this is taken seldom: once when a target appears, and when
 * an incident is written.
 */
#ifndef SPIKEWATCH_MAPS_SNAPSHOT_H
#define SPIKEWATCH_MAPS_SNAPSHOT_H

#include "clock.h"

#include <stddef.h>
#include <stdint.h>

/* Different names beyond are summed into one record called "[other]". */
#define MAPS_SNAPSHOT_MAX 512

struct maps_record {
	char name[112];      /* cut at the front: the end of a path says more; may hold any byte but NUL */
	char permissions[5]; /* "rw-p" */
	uint32_t mappings;
	uint64_t rss_bytes;
	uint64_t pss_bytes;
	uint64_t private_dirty_bytes;
	uint64_t swap_bytes;
};

struct maps_snapshot {
	mono_t taken;
	size_t count; /* unsorted */
	struct maps_record records[];
};

/* For free(3). 0; -ESRCH: gone; -EACCES: not allowed to look; -ENOENT: the kernel has no smaps; -ENOMEM; -errno. */
int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct maps_snapshot **ret);

/* The record of the same name and permissions, NULL if there is none. */
const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like);

#endif
