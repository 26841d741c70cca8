/*
 * cgroup.h: reads one cgroup through descriptors that are opened once, from whichever hierarchies know its path. They stay
 * bound to that very cgroup: when it is removed they answer ENODEV, also if another one is made under the same path.
 */
#ifndef SPIKEWATCH_CGROUP_H
#define SPIKEWATCH_CGROUP_H

#include "cgmount.h"
#include "sample.h"

#include <stdint.h>

enum cgroup_file {
	CGROUP_FILE_CPU_USAGE,
	CGROUP_FILE_CPU_TIMES,
	CGROUP_FILE_CPU_STAT,
	CGROUP_FILE_MEMORY_USAGE,
	CGROUP_FILE_MEMORY_PEAK,
	CGROUP_FILE_MEMORY_STAT,
	CGROUP_FILE_PIDS,
	CGROUP_FILE_CPU_PRESSURE,
	CGROUP_FILE_MEMORY_PRESSURE,
	CGROUP_FILE_IO_PRESSURE,
	CGROUP_FILES
};

/* In the caller's storage. */
struct cgroup_files {
	int fd[CGROUP_FILES]; /* -1: unavailable */
	uint32_t live;        /* mask of the files that answered until now */
	uint64_t ns_per_tick;
};

/* path: below the hierarchies' roots, "/" first, no "..". 0; -ENOENT: no hierarchy knows it; -ENAMETOOLONG, -EMFILE, -errno. */
int cgroup_files_init(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path);
void cgroup_files_release(struct cgroup_files *files);

/*
 * Fills *sample; a file that answers no more makes its fields unavailable. 0; -ENOENT: the cgroup is gone, sample is as it
 * was; -errno: the first other error, after everything else was read.
 */
int cgroup_files_read(struct cgroup_files *files, struct sample *sample);

/*
 * Lets the high-water mark of memory start anew: v1 memory.max_usage_in_bytes, for everybody; v2 memory.peak since Linux 6.12, for this
 * descriptor only. Where that is not possible nothing happens.
 */
void cgroup_files_reset_peak(struct cgroup_files *files);

#endif
