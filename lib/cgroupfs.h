/*
 * cgroupfs.h: parsers of the files of a cgroup, v1 and v2. Pure: a buffer in, values out. Source: cgroup-v2.rst and
 * cgroup-v1/ of the kernel's documentation.
 *
 * Every parser takes any bytes. What is cut short counts as missing: a number must be followed by the byte that ends it.
 */
#ifndef SPIKEWATCH_CGROUPFS_H
#define SPIKEWATCH_CGROUPFS_H

#include "sample.h"

#include <stddef.h>
#include <stdint.h>

/* What memory.stat says, of the cgroup and everything below it. UINT64_MAX: unavailable. */
struct cgroupfs_memory_stat {
	uint64_t inactive_file; /* bytes */
	uint64_t faults;        /* pgfault: minor and major */
	uint64_t major_faults;
};

/* A file that is one number. 0 or -EBADMSG. */
int cgroupfs_number_parse(const char *buf, size_t len, uint64_t *ret);

/* A limit in bytes: "max", "-1" and v1's huge number (2^62 and more) are UINT64_MAX: no limit. 0 or -EBADMSG. */
int cgroupfs_limit_parse(const char *buf, size_t len, uint64_t *ret_bytes);

/* v2 cpu.max; quota UINT64_MAX: no limit. period is never 0. 0 or -EBADMSG. */
int cgroupfs_cpu_max_parse(const char *buf, size_t len, uint64_t *ret_quota_us, uint64_t *ret_period_us);

/* How many CPUs a list such as "0-3,8" names; an empty one names 0. 0 or -EBADMSG. */
int cgroupfs_cpus_parse(const char *buf, size_t len, uint32_t *ret_count);

/* Sets in *sample what cpu.stat says, v1 or v2: CPU, CPU_USER, CPU_SYSTEM, PERIODS, THROTTLED_PERIODS, THROTTLED. */
void cgroupfs_cpu_stat_parse(const char *buf, size_t len, struct sample *sample);

/* Sets CPU_USER and CPU_SYSTEM from v1 cpuacct.stat, which counts clock ticks. */
void cgroupfs_cpuacct_stat_parse(const char *buf, size_t len, uint64_t ns_per_tick, struct sample *sample);

/* memory.stat, v1 (its total_ lines, which are of the whole subtree) or v2. */
void cgroupfs_memory_stat_parse(const char *buf, size_t len, struct cgroupfs_memory_stat *ret);

/* The total of the "some" line of *.pressure, in ns. 0 or -EBADMSG. */
int cgroupfs_pressure_parse(const char *buf, size_t len, uint64_t *ret_ns);

#endif
