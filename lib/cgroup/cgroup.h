/*
 * cgroup.h: reads one cgroup through descriptors that are opened once, from whichever hierarchies
 * know its path, and parses the files of cgroups v1 and v2. The descriptors stay bound to that very
 * cgroup: when it is removed they answer ENODEV, also if another one is made under the same path.
 * Source: cgroup-v2.rst and cgroup-v1/ of the kernel's documentation.
 */
#ifndef SPIKEWATCH_LIB_CGROUP_CGROUP_H
#define SPIKEWATCH_LIB_CGROUP_CGROUP_H

#include "lib/cgroup/cgroup_mounts.h"
#include "lib/model/sample.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Parsers: pure, of any bytes. What is cut short counts as missing: a number must be followed by
 * the byte that ends it.
 */

/* A file that is one number. 0 or -EBADMSG. */
int cgroup_files_number_parse(const char *buf, size_t len, uint64_t *ret);

/*
 * A limit in bytes: "max", "-1" and v1's huge number (2^62 and more) are UINT64_MAX: no limit. 0 or
 * -EBADMSG.
 */
int cgroup_files_limit_parse(const char *buf, size_t len, uint64_t *ret_bytes);

/* v2 cpu.max; quota UINT64_MAX: no limit. period is never 0. 0 or -EBADMSG. */
int cgroup_files_cpu_max_parse(const char *buf, size_t len, uint64_t *ret_quota_us, uint64_t *ret_period_us);

/* How many CPUs a list such as "0-3,8" names; an empty one names 0. 0 or -EBADMSG. */
int cgroup_files_cpus_parse(const char *buf, size_t len, uint32_t *ret_count);

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
};

/*
 * path: below the hierarchies' roots, "/" first, no "..". 0; -ENOENT: no hierarchy knows it;
 * -ENAMETOOLONG, -EMFILE, -errno.
 */
int cgroup_files_init(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path);
/* Only what cgroup_files_usage needs. */
int cgroup_files_init_usage(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path);
void cgroup_files_release(struct cgroup_files *files);

/*
 * Fills *sample; a file that answers no more makes its fields unavailable. 0; -ENOENT: the cgroup
 * is gone, sample is as it was; -errno: the first other error, after everything else was read.
 */
int cgroup_files_read(struct cgroup_files *files, struct sample *sample);

/*
 * The CPU time it has used, ns, with what is below it, as cgroup_files_read has it: one short read. 0;
 * -ENODATA: no file tells; -errno, -ENODEV if it is gone.
 */
int cgroup_files_usage(const struct cgroup_files *files, uint64_t *ret_ns);

/*
 * Lets the high-water mark of memory start anew: v1 memory.max_usage_in_bytes, for everybody; v2
 * memory.peak since Linux 6.12, for this descriptor only. Where that is not possible nothing
 * happens.
 */
void cgroup_files_reset_peak(struct cgroup_files *files);

#endif
