/*
 * target_limits.h: effective limits, one line for all processes that are in the same cgroups: a
 * thousand processes of ten services are ten lines. A line is there as long as somebody holds it.
 * Which line a process belongs to is one small file to read; what is in the lines is read anew in
 * parts, whoever holds them.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_LIMITS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_LIMITS_H

#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <stdint.h>

struct target_limits;

/* To be read. */
struct target_limits_line {
	uint64_t cpu, memory_bytes; /* as in cgroup limits */
	uint32_t version;           /* another one if they are */
	uint64_t number;            /* of the line; never used again */
};

/* procfd and mounts must outlive it. 0 or -ENOMEM. */
int target_limits_new(int procfd, const struct cgroup_mounts *mounts, const struct metric_machine *machine,
		      struct target_limits **ret);

/* Lines that are still held are gone with it. NULL is fine. */
void target_limits_free(struct target_limits *cache);

/*
 * The line of a process, or of a cgroup by its path, takes the place of *line, which may be NULL,
 * or be that very line. 0; -ENOMEM; of a process -ESRCH, -errno too: *line stays.
 */
int target_limits_ask(struct target_limits *cache, int32_t pid, struct target_limits_line **line);
int target_limits_ask_cgroup(struct target_limits *cache, const char *path, struct target_limits_line **line);

/* NULL is fine. */
void target_limits_drop(struct target_limits *cache, struct target_limits_line *line);

/* All that is known of a line, as of its last reading. */
void target_limits_limits(const struct target_limits *cache, const struct target_limits_line *line,
			  struct cgroup_limits *ret);

/*
 * Reads anew what is in the lines, in TARGET_LIMITS_PARTS parts, in their order; lines may come and
 * go in between. Returns how many directories were read: a dozen system calls each at most.
 */
#define TARGET_LIMITS_LINE_PARTS 256u
#define TARGET_LIMITS_PARTS (LIMIT_TREE_PARTS + TARGET_LIMITS_LINE_PARTS)
size_t target_limits_refresh(struct target_limits *cache, unsigned part);

/* Lines, and directories that they are of. */
size_t target_limits_lines(const struct target_limits *cache);
size_t target_limits_directories(const struct target_limits *cache);

#endif
