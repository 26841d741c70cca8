/*
 * cglimits.h: effective limits: the minimum over a cgroup and all its ancestors, then the machine. "max", -1, v1's huge number, a
 * missing file or controller mean "no limit here". Cold path.
 */
#ifndef SPIKEWATCH_CGLIMITS_H
#define SPIKEWATCH_CGLIMITS_H

#include "cgmount.h"
#include "metric.h"

#include <stdbool.h>
#include <stdint.h>

/* Effective limits. UINT64_MAX: not known at all (never zero cores). */
struct cglimits {
	uint64_t cpu; /* CPU nanoseconds per second: 1e9 is one core; quota, cpuset and online CPUs */
	uint64_t memory_bytes;
	bool cpu_is_machine; /* no cgroup limits it: the machine does */
	bool memory_is_machine;
	char cpu_from[256]; /* the cgroup whose limit it is, "" if the machine */
	char memory_from[256];
};

/* Reads the machine: online CPUs (sys_cpu_online: "" or a fixture's file), MemTotal of <procfd>/meminfo. 0 or -errno. */
int cglimits_machine(int procfd, const char *sys_cpu_online, struct metric_machine *ret);

/* Of a cgroup path (cpu and memory may be in different hierarchies under the same path). Always succeeds: at worst the machine. */
void cglimits_of_cgroup(const struct cgroup_mounts *mounts, const struct metric_machine *machine, const char *path,
			struct cglimits *ret);

/* Of a process: its cgroup in each hierarchy. -ESRCH if it is gone. */
int cglimits_of_process(const struct cgroup_mounts *mounts, const struct metric_machine *machine, int procfd,
			int32_t pid, struct cglimits *ret);

#endif
