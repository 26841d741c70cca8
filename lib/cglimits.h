/*
 * cglimits.h: what limits a cgroup: itself, and the machine. "max", -1, v1's huge number, a missing file or controller mean "no limit here".
 * What its ancestors have to say of it: limittree.h. Cold path.
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

/* What is limited, in the order in which it counts if it is the same. */
enum cglimits_kind { CGLIMITS_QUOTA, CGLIMITS_CPUSET, CGLIMITS_MEMORY, CGLIMITS_KINDS };

/* Whose hierarchy says it. */
enum cgroup_controller cglimits_controller(enum cglimits_kind kind);

/*
 * What is said in a cgroup's own directory: of memory bytes, of the others CPU nanoseconds per second; UINT64_MAX: nothing, or nothing that is a
 * limit. 0; -EMFILE, -ENFILE, -ENOMEM: it could not be looked at.
 */
int cglimits_read(int dir_fd, enum cglimits_kind kind, bool v2, uint64_t *ret);

#endif
