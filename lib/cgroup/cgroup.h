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
#include "lib/rules/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/*
 * Effective limits: the minimum over a cgroup and all its ancestors, then the
 * machine. "max", -1, v1's huge number, a missing file or controller mean "no limit here".
 *
 * A cgroup's own directory is read when it is first asked about and then by limit_tree_refresh and
 * limit_tree_read, once for all that are in it or below it. Memory: some 70 bytes for each cgroup that is asked
 * about, and each of its ancestors, in each hierarchy that limits something. Cold path.
 */

/* Effective limits. UINT64_MAX: not known at all (never zero cores). */
struct cgroup_limits {
	uint64_t cpu; /* CPU nanoseconds per second: 1e9 is one core; quota, cpuset and online CPUs */
	uint64_t memory_bytes;
	bool cpu_is_machine; /* no cgroup limits it: the machine does */
	bool memory_is_machine;
	char cpu_from[256]; /* the cgroup whose limit it is, "" if the machine */
	char memory_from[256];
};

/*
 * Reads the machine: online CPUs (sys_cpu_online: "" or a fixture's file), MemTotal of
 * <procfd>/meminfo. read: these files, as read(2) but for -errno, because a file system that need not answer
 * may be mounted over them (lxcfs); NULL: here. If it fails (for meminfo but with -ENOENT) the kernel is
 * asked, without a file. 0 or -errno.
 */
typedef ssize_t cgroup_machine_reader(int dirfd, const char *path, char *buf, size_t cap);
int cgroup_limits_machine(int procfd, const char *sys_cpu_online, cgroup_machine_reader *read,
			  struct metric_machine *ret);

/* What is limited, in the order in which it counts if it is the same. */
enum cgroup_limits_kind { CGROUP_LIMITS_QUOTA, CGROUP_LIMITS_CPUSET, CGROUP_LIMITS_MEMORY, CGROUP_LIMITS_KINDS };

struct limit_tree;
struct limit_tree_node;

/*
 * The cgroups of a process or cgroup, one for each kind of limit; NULL: none is known. {0} is
 * nowhere, where only the machine limits.
 */
struct limit_tree_place {
	struct limit_tree_node *at[CGROUP_LIMITS_KINDS];
};

/* mounts must outlive it. 0 or -ENOMEM. */
int limit_tree_new(const struct cgroup_mounts *mounts, const struct metric_machine *machine, struct limit_tree **ret);

/* NULL is fine. Places that are still held are gone with it. */
void limit_tree_free(struct limit_tree *tree);

/*
 * The place of a cgroup path, in whichever hierarchies; that of a process, by the text of its
 * /proc/<pid>/cgroup. A path that leads outside of the reader's cgroup namespace ("/../x") has no
 * directory here and is nowhere. 0; -ENOMEM: nothing is held.
 */
int limit_tree_hold_cgroup(struct limit_tree *tree, const char *path, struct limit_tree_place *ret);
int limit_tree_hold_process(struct limit_tree *tree, const char *text, size_t len, struct limit_tree_place *ret);

/* *place is nowhere then. */
void limit_tree_drop(struct limit_tree *tree, struct limit_tree_place *place);

/* As last read. */
void limit_tree_limits(const struct limit_tree *tree, const struct limit_tree_place *place, struct cgroup_limits *ret);

/*
 * Reads part number `part` of LIMIT_TREE_PARTS of all cgroups anew, in a round, which the caller
 * numbers from 1 on. Returns how many directories were read: a dozen system calls each at most. One
 * that cannot be read for want of descriptors keeps its previous limits.
 */
#define LIMIT_TREE_PARTS 512u
size_t limit_tree_refresh(struct limit_tree *tree, unsigned part, uint32_t round);

/* The same for the cgroups of a place and those above them, as far as they were not read in this round. */
size_t limit_tree_read(struct limit_tree *tree, const struct limit_tree_place *place, uint32_t round);

#endif
