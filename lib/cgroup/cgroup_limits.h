/*
 * cgroup_limits.h: effective limits: the minimum over a cgroup and all its ancestors, then the machine. What a cgroup's own directory says is
 * read when it is first asked about and then by limittree_refresh, once for all that are in it or below it.
 *
 * Memory: some 70 bytes for each cgroup that is asked about, and each of its ancestors, in each hierarchy that limits something. Cold path.
 */
#ifndef SPIKEWATCH_LIB_CGROUP_CGROUP_LIMITS_H
#define SPIKEWATCH_LIB_CGROUP_CGROUP_LIMITS_H

#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * cglimits.h: what limits a cgroup: itself, and the machine. "max", -1, v1's huge number, a missing file or controller mean "no limit here".
 * What its ancestors have to say of it: limittree.h. Cold path.
 */

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

/*
 * What is said in a cgroup's own directory: of memory bytes, of the others CPU nanoseconds per second; UINT64_MAX: nothing, or nothing that is a
 * limit. 0; -EMFILE, -ENFILE, -ENOMEM: it could not be looked at.
 */
int cglimits_read(int dir_fd, enum cglimits_kind kind, bool v2, uint64_t *ret);

struct limittree;
struct limittree_node;

/* Where somebody is: a cgroup for each kind of limit; NULL: none that is known. {0} is nowhere, where only the machine limits. */
struct limittree_place {
	struct limittree_node *at[CGLIMITS_KINDS];
};

/* mounts must outlive it. 0 or -ENOMEM. */
int limittree_new(const struct cgroup_mounts *mounts, const struct metric_machine *machine, struct limittree **ret);

/* NULL is fine. Places that are still held are gone with it. */
void limittree_free(struct limittree *tree);

/*
 * The place of a cgroup path, in whichever hierarchies; that of a process, by the text of its /proc/<pid>/cgroup. A path that leads outside of the
 * reader's cgroup namespace ("/../x") has no directory here and is nowhere. 0; -ENOMEM: nothing is held.
 */
int limittree_hold_cgroup(struct limittree *tree, const char *path, struct limittree_place *ret);
int limittree_hold_process(struct limittree *tree, const char *text, size_t len, struct limittree_place *ret);

/* *place is nowhere then. */
void limittree_drop(struct limittree *tree, struct limittree_place *place);

/* As last read. */
void limittree_limits(const struct limittree *tree, const struct limittree_place *place, struct cglimits *ret);

/*
 * Reads part number `part` of LIMITTREE_PARTS of all cgroups anew. Returns how many there were: a dozen system calls each at most. One that cannot be
 * looked at for want of descriptors keeps what it had.
 */
#define LIMITTREE_PARTS 512u
size_t limittree_refresh(struct limittree *tree, unsigned part);

/* Cgroups that are kept. */
size_t limittree_count(const struct limittree *tree);

#endif
